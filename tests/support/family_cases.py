"""Problems of every family, small enough that their optimum is known without the library.

An optimum is a closed form, or the least value over the few free numbers of the noise, by scipy or
by a conic model of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import networkx as nx
import numpy as np
import scipy.optimize

from noisedesign.forms.structure import SpaceStructure, TimeStructure
from noisedesign.privacy import views
from noisedesign.problem.problem import Problem, SpaceProblem, SpaceTimeProblem, TimeProblem
from noisedesign.system.participation import FixedEpoch, MinSeparation, every_step, single
from noisedesign.system.workloads import ErrorMeasure
from tests.support import clique_oracles, oracles, structured_oracles
from tests.support.oracles import Array
from tests.support.space_time_cases import stacked_workload


@dataclass(frozen=True)
class Case:
    """A problem, the name of its family, and its optimum, known to 1e-8 of itself.

    ``bounded`` is what the lower bound is about where that is another optimum: over noise of every
    structure. ``tight`` bounds reach it. Noise of ``excess``, relative, has so much more error than
    the optimum at most.
    """

    family: str
    problem: Problem
    optimum: Callable[[], float]
    bounded: Callable[[], float] | None = None
    tight: bool = True
    excess: float = 0.0


# --- optima ---------------------------------------------------------------------------------------


def diagonal(gram: Array, budget: Any = 1.0) -> float:
    """Least tr(H X^-1), X_ii <= budget_i, by the fixed point of its multipliers."""
    found = oracles.diagonal_interval(gram, budget=budget, width=1e-11)
    return (found.lower + found.upper) / 2


def least(value: Callable[[Array], float], starts: Sequence[Sequence[float]]) -> float:
    """Over a few free numbers, by simplices that are built anew where they have collapsed."""
    found = []
    for start in starts:
        best = np.asarray(start, dtype=float)
        for _ in range(4):
            best = scipy.optimize.minimize(
                value,
                best,
                method="Nelder-Mead",
                options={"xatol": 1e-12, "fatol": 1e-15, "maxfev": 3_000, "maxiter": 3_000},
            ).x
        found.append(value(best))
    return min(found)


def error(gram: Array, x: Array) -> float:
    """tr(H X^-1); infinite where X is not positive definite."""
    if np.linalg.eigvalsh(x)[0] <= 0:
        return np.inf
    return float(np.trace(np.linalg.solve(x, gram)))


def two_bands(gram: Array) -> float:
    """Three steps, one participation: X has ones on its diagonal, and two free numbers beside."""

    def value(x: Array) -> float:
        return error(gram, np.eye(3) + np.diag(x, 1) + np.diag(x, -1))

    return least(value, [(0.0, 0.0), (-0.3, -0.3), (0.3, -0.3)])


def pairs_of_steps(gram: Array, pairs: Sequence[tuple[int, int]]) -> float:
    """One of these pairs of steps for every record: X_ss + X_tt + 2 |X_st| <= 1, by Clarabel."""
    import cvxpy as cp

    x, y = (cp.Variable(gram.shape, symmetric=True) for _ in range(2))
    root = np.linalg.cholesky(gram).T
    limits = [cp.bmat([[y, root], [root.T, x]]) >> 0]
    limits += [x[s, s] + x[t, t] + 2 * cp.abs(x[s, t]) <= 1 for s, t in pairs]
    problem = cp.Problem(cp.Minimize(cp.trace(y)), limits)
    problem.solve(solver="CLARABEL", tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    return float(problem.value)


def seeds_of_a_path(gram: Array) -> float:
    """Three nodes, a seed on either edge: R = diag(p) and a block of rank one on either pair.

    A block of two nodes is of rank one beside a diagonal, and any R is brought to its budgets by
    rows, which keeps it such a sum.
    """

    def value(v: Array) -> float:
        r = np.diag(np.square(v[:3]) + 1e-14)
        for edge, pair in (((0, 1), v[3:5]), ((1, 2), v[5:7])):
            r[np.ix_(edge, edge)] += np.outer(pair, pair)
        scale = np.sqrt(np.diagonal(np.linalg.inv(r)))
        return float(np.sum(gram * r * scale[:, None] * scale))

    return least(value, [(1, 1, 1, 1, -1, 1, -1), (0.5, 0.5, 0.5, 1, -0.5, 0.5, -1)])


def one_participation(
    gram: Array, strategy: Callable[[Array], Array], starts: Sequence[Sequence[float]]
) -> float:
    """Of a family of strategies: the price of each is its longest column."""

    def value(x: Array) -> float:
        c = strategy(x)
        return error(gram, c.T @ c) * float(np.square(c).sum(axis=0).max())

    return least(value, starts)


def two_participations(
    strategy: Callable[[Array], Array], starts: Sequence[Sequence[float]]
) -> float:
    """Of four steps, of which two in two: the worse of steps 0 and 2 and of 1 and 3."""

    def value(x: Array) -> float:
        c = strategy(x)
        gram = np.abs(c.T @ c)
        own = (gram + np.roll(gram, 2, axis=1)).diagonal()
        return error(FOUR_SUMS, c.T @ c) * float((own[:2] + own[2:]).max())

    return least(value, starts)


def two_steps_of_a_product(w: Array) -> float:
    """Two steps: C^T C is [[1, a], [a, 1]], and R the best for it, over the one free number."""

    def value(a: float) -> float:
        s = np.linalg.inv(np.array([[1.0, a], [a, 1.0]]))
        return diagonal(structured_oracles.space_part(w, s, 2))

    found = scipy.optimize.minimize_scalar(
        value, bounds=(-0.9, 0.9), method="bounded", options={"xatol": 1e-9}
    )
    return float(found.fun)


def middle(found: oracles.Interval) -> float:
    return (found.lower + found.upper) / 2


# --- problems -------------------------------------------------------------------------------------

PATH_3, PATH_4 = (oracles.metropolis(nx.path_graph(n)) for n in (3, 4))
RING_5, COMPLETE_4 = (oracles.metropolis(g) for g in (nx.cycle_graph(5), nx.complete_graph(4)))
ONE_WAY = (
    0.5 * np.eye(5) + 0.3 * np.roll(np.eye(5), 1, axis=1) + 0.2 * np.roll(np.eye(5), -1, axis=1)
)
ONE_NODE, PAIR = np.ones((1, 1)), np.full((2, 2), 0.5)
LAZY = (PATH_3 + np.eye(3)) / 2
UNEVEN = np.array([0.5, 2.0, 1.0, 3.0])
SKEWED = np.array([[3.0, 1.0, 0.5], [1.0, 2.0, 0.7], [0.5, 0.7, 1.0]])
SUMS = oracles.prefix_workload(3).T @ oracles.prefix_workload(3)
LAZY_RING = (RING_5 + np.eye(5)) / 2
RING_STACKED = stacked_workload(LAZY_RING, 2).T @ stacked_workload(LAZY_RING, 2)
STACKED = stacked_workload(LAZY, 2).T @ stacked_workload(LAZY, 2)


def in_space(w: Array, kind: str = "dense", **words: Any) -> SpaceProblem:
    """Words of the structure are told from those of the problem."""
    own = {key: words.pop(key) for key in ("hops", "clusters", "known_seeds") if key in words}
    return SpaceProblem(mixing=w, structure=SpaceStructure(kind=kind, **own), **words)


def in_time(kind: str = "dense", scheme: Any = None, gram: Array = SUMS, **own: Any) -> TimeProblem:
    return TimeProblem.from_gram(
        gram=gram,
        participation=scheme or single(len(gram)),
        structure=TimeStructure(kind=kind, **own),
    )


def gram(w: Array) -> Array:
    return w.T @ w


PAIRS = MinSeparation(horizon=3, separation=1, max_participations=2)
ANY_TWO = ((0, 1), (0, 2), (1, 2))
FOUR_SUMS = oracles.prefix_workload(4).T @ oracles.prefix_workload(4)

CASES: dict[str, Case] = {
    "ring": Case(
        "disjoint",
        in_space(RING_5, budget=2.0),
        lambda: oracles.vertex_transitive_optimum(RING_5, tau=2.0),
    ),
    "uneven budgets": Case(
        "disjoint", in_space(PATH_4, budget=UNEVEN), lambda: diagonal(gram(PATH_4), UNEVEN)
    ),
    "one node": Case("disjoint", in_space(ONE_NODE, budget=4.0), lambda: 0.25),
    "singular, capped": Case(
        "disjoint",
        in_space(COMPLETE_4, max_variance=5.0),
        lambda: oracles.complete_graph_capped(4, cap=5.0),
    ),
    "floored": Case(
        "disjoint",
        in_space(RING_5, min_variance=4.0),
        lambda: oracles.ring_with_variance(RING_5, variance=4.0),
    ),
    "sums": Case("disjoint", in_time(), lambda: diagonal(SUMS)),
    "one step": Case("disjoint", in_time(gram=np.full((1, 1), 7.0)), lambda: 7.0),
    "epochs of a diagonal": Case(
        "disjoint",
        in_time(scheme=FixedEpoch(epochs=2, separation=2), gram=np.diag(UNEVEN)),
        lambda: oracles.diagonal_workload_optimum(UNEVEN, [[0, 2], [1, 3]], np.ones(2)),
    ),
    "two epochs": Case(
        "disjoint",
        in_time(scheme=FixedEpoch(epochs=2, separation=2), gram=FOUR_SUMS),
        lambda: pairs_of_steps(FOUR_SUMS, ((0, 2), (1, 3))),
    ),
    "every step": Case(
        "disjoint", in_time(scheme=every_step(3)), lambda: oracles.every_step_optimum(SUMS)
    ),
    "any two steps": Case(
        "overlapping", in_time(scheme=PAIRS), lambda: pairs_of_steps(SUMS, ANY_TWO)
    ),
    "any two steps, skewed": Case(
        "overlapping", in_time(scheme=PAIRS, gram=SKEWED), lambda: pairs_of_steps(SKEWED, ANY_TWO)
    ),
    "worst of two sums": Case(  # gamma_2 of [[1, 0], [1, 1]] is 2 / 3^1/2
        "worst",
        TimeProblem.prefix(participation=single(2), error=ErrorMeasure(horizon=2, of="worst")),
        lambda: 4 / 3,
    ),
    "no negative entries": Case("nonnegative", in_time(nonnegative=True), lambda: diagonal(SUMS)),
    "two bands": Case("banded", in_time("banded", bands=2), lambda: two_bands(SUMS)),
    "two bands, skewed": Case(
        "banded", in_time("banded", bands=2, gram=SKEWED), lambda: two_bands(SKEWED)
    ),
    "one band": Case("banded", in_time("banded", bands=1), lambda: float(np.trace(SUMS))),
    "all bands": Case("banded", in_time("banded", bands=3), lambda: diagonal(SUMS)),
    "one band of any two": Case(
        "banded",
        in_time("banded", PAIRS, bands=1, gram=np.eye(3)),
        lambda: 6.0,  # 1/2 each
    ),
    "toeplitz": Case(
        "toeplitz",
        in_time("toeplitz"),
        lambda: one_participation(
            SUMS, structured_oracles.toeplitz_strategy, [(0.5, 0.4), (0.0, 0.0)]
        ),
        bounded=lambda: diagonal(SUMS),
    ),
    "banded inverse": Case(
        "toeplitz",
        in_time("banded-inverse", bands=2),
        lambda: one_participation(
            SUMS, lambda x: structured_oracles.banded_inverse(x, 3), [(-0.5,), (0.0,)]
        ),
        bounded=lambda: diagonal(SUMS),
    ),
    "buffered": Case(
        "toeplitz",
        in_time("blt", buffers=1),
        lambda: one_participation(
            SUMS, lambda x: structured_oracles.buffered(x, 3), [(-0.5, 0.5), (0.0, 0.0)]
        ),
        bounded=lambda: diagonal(SUMS),
    ),
    "toeplitz, one step": Case(
        "toeplitz", in_time("toeplitz", gram=np.full((1, 1), 7.0)), lambda: 7.0
    ),
    "coefficients of any sign": Case(
        "toeplitz",
        in_time("signed-toeplitz", FixedEpoch(epochs=2, separation=2), gram=FOUR_SUMS),
        lambda: two_participations(
            structured_oracles.toeplitz_strategy, [(0.5, 0.0, 0.0), (0.5, -0.2, 0.1)]
        ),
        bounded=lambda: middle(oracles.fixed_epoch_interval(FOUR_SUMS, 2, 2, width=1e-9)),
        tight=False,
        excess=1e-4,
    ),
    "a buffer of any sign": Case(
        "toeplitz",
        in_time("signed-blt", FixedEpoch(epochs=2, separation=2), buffers=1, gram=FOUR_SUMS),
        lambda: two_participations(
            lambda x: structured_oracles.toeplitz(
                np.array([1.0, x[0], x[0] * x[1], x[0] * x[1] ** 2])
            ),
            [(0.5, 0.5), (0.5, -0.2)],
        ),
        bounded=lambda: middle(oracles.fixed_epoch_interval(FOUR_SUMS, 2, 2, width=1e-9)),
        tight=False,
        excess=1e-4,
    ),
    "the worst node": Case(  # node 0 alone: H = w w^T has the optimum max w_i^2
        "worst",
        SpaceProblem(mixing=LAZY, error=ErrorMeasure(horizon=1, of="worst-node")),
        lambda: (5 / 6) ** 2,
    ),
    "the worst of all pairs": Case(
        "worst",
        SpaceTimeProblem(
            mixing=LAZY_RING,
            participation=single(1),
            joint="full",
            error=ErrorMeasure(horizon=1, of="worst-iterate"),
        ),
        lambda: oracles.vertex_transitive_optimum(LAZY_RING) / len(LAZY_RING),
    ),
    "seeds of edges": Case(
        "shared seeds", in_space(PATH_3, "edge-local"), lambda: seeds_of_a_path(gram(PATH_3))
    ),
    "seeds of clusters": Case(
        "shared seeds",
        in_space(PATH_4, "clusters", clusters=(0, 0, 1, 1)),
        lambda: diagonal(gram(PATH_4)[:2, :2]) + diagonal(gram(PATH_4)[2:, 2:]),
    ),
    "no seeds": Case(
        "shared seeds",
        in_space(PATH_4, "independent", budget=UNEVEN),
        lambda: float(np.sum(np.diagonal(gram(PATH_4)) / UNEVEN)),
    ),
    "seeds of all": Case(
        "shared seeds",
        in_space(RING_5, "hops", hops=2),
        lambda: oracles.vertex_transitive_optimum(RING_5),
    ),
    "seeds of neighbourhoods": Case(  # the middle of a path has every node in its own
        "shared seeds", in_space(LAZY, "neighbourhood"), lambda: diagonal(gram(LAZY))
    ),
    "known seeds": Case(
        "shared seeds",
        in_space(LAZY, "edge-local", known_seeds=1),
        lambda: middle(
            clique_oracles.clique_interval(
                gram(LAZY), [(0,), (1,), (2,), (0, 1), (1, 2)], known_seeds=1
            )
        ),
    ),
    "one seed for all edges": Case(
        "decor",
        in_space(PATH_3, "decor"),
        lambda: float(
            np.sum(gram(PATH_3) * structured_oracles.decor_covariance(gram(PATH_3), PATH_3))
        ),
        bounded=lambda: diagonal(gram(PATH_3)),
    ),
    "a polynomial": Case(
        "polynomial",
        in_space(LAZY, "polynomial", budget=2.0),
        lambda: diagonal(gram(LAZY), 2.0),
        tight=False,
        excess=1e-4,
    ),
    "a polynomial, uneven budgets": Case(
        "polynomial",
        in_space(PATH_4, "polynomial", budget=UNEVEN),
        lambda: diagonal(gram(PATH_4), UNEVEN),
        tight=False,
        excess=2.1e-2,
    ),
    "seeds of pairs by few numbers": Case(
        "pairwise",
        in_space(PATH_4, "pairwise", budget=UNEVEN),
        lambda: middle(
            clique_oracles.clique_interval(
                gram(PATH_4) / np.sqrt(np.outer(UNEVEN, UNEVEN)), [(0, 1), (1, 2), (2, 3)]
            )
        ),
        bounded=lambda: diagonal(gram(PATH_4), UNEVEN),
        tight=False,
        excess=1e-2,
    ),
    "a product of one node": Case(
        "kronecker",
        SpaceTimeProblem(mixing=ONE_NODE, participation=single(2)),
        lambda: oracles.PREFIX_TWO_STEPS,
    ),
    "a product of one step": Case(
        "kronecker",
        SpaceTimeProblem(mixing=RING_5, participation=single(1), budget=2.0),
        lambda: oracles.vertex_transitive_optimum(RING_5, tau=2.0),
    ),
    "a product of one step on a directed ring": Case(  # without modes
        "kronecker",
        SpaceTimeProblem(mixing=ONE_WAY, participation=single(1), budget=2.0),
        lambda: oracles.vertex_transitive_optimum(ONE_WAY, tau=2.0),
    ),
    "a product": Case(
        "kronecker",
        SpaceTimeProblem(mixing=LAZY, participation=single(2)),
        lambda: two_steps_of_a_product(LAZY),
        bounded=lambda: diagonal(STACKED),
        tight=False,
    ),
    "modes of one node": Case(
        "modal",
        SpaceTimeProblem(mixing=ONE_NODE, participation=single(2), joint="modal"),
        lambda: oracles.PREFIX_TWO_STEPS,
    ),
    "modes of a ring": Case(  # whose nodes are all alike: no noise is better
        "modal",
        SpaceTimeProblem(mixing=LAZY_RING, participation=single(2), joint="modal", budget=2.0),
        lambda: diagonal(RING_STACKED) / 2,
    ),
    "all of space and time": Case(
        "full",
        SpaceTimeProblem(mixing=LAZY, participation=single(2), joint="full"),
        lambda: diagonal(STACKED),
    ),
    "one node of it": Case(
        "full",
        SpaceTimeProblem(mixing=ONE_NODE, participation=single(2), joint="full"),
        lambda: oracles.PREFIX_TWO_STEPS,
    ),
    "against neighbours": Case(
        "observers",
        in_space(PAIR, max_variance=1.7, observers=tuple(views.pndp(nodes=[i]) for i in range(2))),
        lambda: oracles.complete_graph_capped(2, cap=1.7),
    ),
    "against all": Case(
        "observers",
        in_space(RING_5, max_variance=50.0, observers=(views.ldp(),)),
        lambda: oracles.vertex_transitive_optimum(RING_5),
    ),
}
