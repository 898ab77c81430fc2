"""Mixing weights as part of the design: the fastest, and those that suit the noise.

A graph's symmetric W with W 1 = 1 are W = I - sum_e w_e b_e b_e^T, b_e = e_i - e_j, one weight an
edge. How fast models agree is ||W - J||_2, J = 1 1^T / n, convex in w: the fastest W is a
semidefinite program (Boyd, Diaconis and Xiao 2004; Xiao and Boyd 2004 where weights may be
negative), and :mod:`.edge_weights` solves it. So is the W of least tr(W R W^T) for a given R among
those that are fast enough; alternating it with the design of R finds a pair, though no proof that
there is no better one.

Whatever a solver returns is made exactly feasible, and every number is computed from that matrix.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from noisedesign.base import memory, settings
from noisedesign.base.checks import Array, InputError
from noisedesign.base.monitor import Monitor, Search, Stop
from noisedesign.base.shown import Shown
from noisedesign.system.edge_weights import EdgeWeights, path_to_fastest
from noisedesign.system.graph import mixing_matrix

LARGEST_WEIGHT = 2.0
"""Bound on |w_e| wherever ||W - J||_2 <= 1, which W = I attains: |w_e| <= 1 + 1/n. It prices what
rounding leaves of constraints that a dual point has to meet exactly."""

NORM_TOLERANCE = 1e-6
"""How far ||W - J||_2 of a W that counts as fastest may be above a proved bound. Conic solvers
leave 1e-9 to 1e-7 on graphs of up to a hundred nodes; no run of D-SGD notices the tolerance."""

ENOUGH = 1e-9
"""How far above the bound our own method goes on: a step or two before rounding stops it."""

EDGE_SQUARES = 6
"""Arrays of m x m doubles, m edges, that our own method holds at once."""

LINKED = 1e-8
"""Share of Metropolis-Hastings weights mixed into the fastest. Weights that are zero but for a
solver's last digits would otherwise decide who is whose neighbour; a hundredth of the tolerance
is the most it costs."""


def affine(weights: EdgeWeights, w: Any, *, nonnegative: bool) -> tuple[Any, list[Any]]:
    """W - J in cvxpy, and the constraints w >= 0 and W_ii >= 0 where asked."""
    import cvxpy as cp

    b = weights.incidence
    distance = np.eye(weights.nodes) - 1 / weights.nodes - b @ cp.diag(w) @ b.T
    return distance, [w >= 0, np.abs(b) @ w <= 1] if nonnegative else []


def mixing_norm(mixing: Array) -> float:
    """||W - J||_2, not squared, of a symmetric W, shape (n, n)."""
    return float(np.abs(np.linalg.eigvalsh(mixing - 1 / len(mixing))).max())


def norm_lower_bound(
    edges: NDArray[np.integer[Any]], *, nodes: int, distance: Array, self_weights: Array | None
) -> float:
    """A bound below ||W - J||_2 for every symmetric W on the edges with W 1 = 1, from multipliers.

    For symmetric Y of nuclear norm 1, ||W - J|| >= <Y, W - J> = tr(Y (I - J)) - sum_e w_e y_e with
    y_e = b_e^T Y b_e. Without ``self_weights`` w is free and y_e has to vanish; with z >= 0 for
    W_ii >= 0, w >= 0 and y_e <= z_i + z_j, at the price sum z. What is left of either is paid at
    the largest weight that matters.

    Args:
        edges: pairs of zero-based nodes, shape (m, 2), integers.
        nodes: n, how many.
        distance: Y, shape (n, n), of any scale.
        self_weights: z, shape (n,), at the scale of Y, or None where W may be negative.

    Returns:
        The bound, at least 0; multipliers that are not finite prove nothing.
    """
    if not np.isfinite(distance).all():
        return 0.0
    i, j = edges[:, 0], edges[:, 1]
    y = (distance + distance.T) / 2
    if self_weights is None:
        y[i, j] = y[j, i] = (y[i, i] + y[j, j]) / 2
    nuclear = float(np.abs(np.linalg.eigvalsh(y)).sum()) * (1 + settings.rank_tolerance(nodes))
    if not 0 < nuclear < np.inf:
        return 0.0
    y = y / nuclear
    left = y[i, i] + y[j, j] - 2 * y[i, j]
    bound = float(np.trace(y) - y.mean() * nodes) - settings.rank_tolerance(nodes)
    if self_weights is None:
        return max(0.0, bound - LARGEST_WEIGHT * float(np.abs(left).sum()))
    z = np.maximum(self_weights / nuclear, 0.0)
    excess = np.maximum(left - z[i] - z[j], 0.0)
    return max(0.0, bound - float(z.sum()) - LARGEST_WEIGHT * float(excess.sum()))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class FastestMixing(Shown):
    """W, shape (n, n), symmetric with rows summing to 1, and how near it is to the fastest.

    ``norm`` is ||W - J||_2, not squared, of this very matrix; no W allowed has one below
    ``lower_bound``.
    """

    mixing: Array
    norm: float
    lower_bound: float

    @property
    def spectral_gap(self) -> float:
        """1 - ||W - J||_2."""
        return 1 - self.norm


def fastest_mixing(
    graph: nx.Graph,
    *,
    nonnegative: bool = True,
    backend: str | None = None,
    monitor: Monitor | None = None,
) -> FastestMixing:
    """The symmetric W on a graph under which models agree fastest, and a bound that proves it.

    Args:
        graph: connected, simple, undirected; rows of W follow ``graph.nodes``.
        nonnegative: W >= 0, as designs need; otherwise any weights, on edges and self.
        backend: a conic solver in place of our own method: "clarabel", "scs", "mosek", ..., which
            takes minutes for a hundred nodes instead of a second.
        monitor: time limit, and the tolerance of a conic solver; default its own. Our own method
            goes on to ``ENOUGH``, and returns the best so far when time is up.

    Raises:
        InputError: see :func:`graph.mixing_matrix`; a backend that cannot be used, or
            that came back with nothing; more edges than fit the memory.
    """
    plain = mixing_matrix(graph)
    if len(plain) == 1:
        return FastestMixing(mixing=np.ones((1, 1)), norm=0.0, lower_bound=0.0)
    monitor = monitor or Monitor(gap=settings.DEFAULT_GAP)
    if backend is None:
        return _natively(plain, nonnegative=nonnegative, monitor=monitor)
    return _by_conic(EdgeWeights(plain), nonnegative=nonnegative, backend=backend, monitor=monitor)


def _natively(plain: Array, *, nonnegative: bool, monitor: Monitor) -> FastestMixing:
    """The best W and the best bound on the way, which need not belong together, from a W > 0."""
    weights = EdgeWeights(plain)

    def held(edges: int) -> int:
        return 8 * EDGE_SQUARES * edges * edges

    memory.require(held, len(weights.edges), field="graph", of="edges")
    i, j = weights.edges.T
    best = FastestMixing(mixing=plain, norm=mixing_norm(plain), lower_bound=0.0)
    with Search(monitor) as search:
        for point in path_to_fastest(weights, plain[i, j], nonnegative=nonnegative):
            mixing = weights.mixing(point.weights, nonnegative=nonnegative)
            bound = norm_lower_bound(
                weights.edges,
                nodes=weights.nodes,
                distance=point.distance[0] - point.distance[1],
                self_weights=point.of_nodes if nonnegative else None,
            )
            norm = mixing_norm(mixing)
            if norm < best.norm:
                best = replace(best, mixing=mixing, norm=norm)
            best = replace(best, lower_bound=max(best.lower_bound, bound))
            monitor.report(lower=best.lower_bound, upper=best.norm)
            if search.ended(solved=best.norm - best.lower_bound <= ENOUGH):
                break
    if search.stop is Stop.INTERRUPTED:
        raise KeyboardInterrupt
    return best


def _by_conic(
    weights: EdgeWeights, *, nonnegative: bool, backend: str, monitor: Monitor
) -> FastestMixing:
    import cvxpy as cp

    from noisedesign.conic.solvers import solve_cvxpy

    n = weights.nodes
    w, s = cp.Variable(len(weights.edges)), cp.Variable()
    distance, allowed = affine(weights, w, nonnegative=nonnegative)
    above, below = s * np.eye(n) - distance >> 0, s * np.eye(n) + distance >> 0
    problem = cp.Problem(cp.Minimize(s), [above, below, *allowed])
    if not solve_cvxpy(problem, backend, monitor):
        raise InputError(
            "backend",
            expected="a solver that finds the fastest mixing",
            got=f"{backend}, which reports {problem.status!r}",
            remedy="Allow more time, or leave the backend out.",
        )
    mixing = weights.mixing(np.asarray(w.value), nonnegative=nonnegative)
    bound = norm_lower_bound(
        weights.edges,
        nodes=n,
        distance=above.dual_value - below.dual_value,
        self_weights=np.asarray(allowed[1].dual_value) if nonnegative else None,
    )
    return FastestMixing(mixing=mixing, norm=mixing_norm(mixing), lower_bound=bound)


# --- as the weights of a problem ---


def stated_fastest_mixing(graph: nx.Graph, *, known: Array | None = None) -> Array:
    """W, shape (n, n), symmetric and doubly stochastic, positive on exactly the links of ``graph``.

    A solver's last digits are its own, and the fastest W need not be unique. So the weights of a
    problem that was solved are those stored with its design, as long as they still prove to be
    fastest: W is judged by the bound, which any solver's multipliers prove, and not by its entries.
    Of all such W none has ||W - J||_2 (not squared) more than ``NORM_TOLERANCE`` below.

    Args:
        graph: connected, simple, undirected; rows of W follow ``graph.nodes``.
        known: a W that is returned as it is if all of this is true of it.

    Raises:
        InputError: see :func:`fastest_mixing`; naming ``graph.weights``
            where what the solver found is not proved to be that near the fastest.
    """
    plain = mixing_matrix(graph)
    found = fastest_mixing(graph)
    allowed = found.lower_bound + NORM_TOLERANCE
    if known is not None and _stochastic_on(plain, known) and mixing_norm(known) <= allowed:
        return known
    mixing = (1 - LINKED) * found.mixing + LINKED * plain
    excess = mixing_norm(mixing) - found.lower_bound
    if not excess <= NORM_TOLERANCE:
        raise InputError(
            "graph.weights",
            expected=f"a graph whose fastest mixing is found to {NORM_TOLERANCE:g}",
            got=f"one that is only proved to be within {excess:.2g} of it",
            remedy='Store a W of your own as a .npy file, and name it by graph.kind = "matrix".',
        )
    return mixing


def _stochastic_on(links: Array, mixing: Array) -> bool:
    """Whether W is symmetric, nonnegative and stochastic, with the links of another W."""
    if mixing.shape != links.shape or not np.isfinite(mixing).all():
        return False
    off = ~np.eye(len(links), dtype=bool)
    return bool(
        np.array_equal(mixing, mixing.T)
        and mixing.min() >= 0
        and np.array_equal(mixing[off] > 0, links[off] > 0)
        and np.abs(mixing.sum(axis=1) - 1).max() <= settings.STOCHASTIC_TOLERANCE
    )
