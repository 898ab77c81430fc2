"""The fastest mixing of a graph: the symmetric W >= 0 under which models agree soonest.

W of least s = ||W - J||_2, J = 1 1^T / n, is found by a primal-dual method (Mehrotra 1992;
Helmberg, Rendl, Vanderbei and Wolkowicz 1996) whose equations have one row a weight, by which the
slacks F_1 = s I - (W - J) and F_2 = s I + (W - J) change by a matrix of rank one
(docs/methods/workloads.md). Numbers are computed from an exactly feasible W; the path serves
digraphs as well, whose slack is one of twice the size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from noisedesign.base import memory, settings
from noisedesign.base.checks import Array, InputError
from noisedesign.system.links import EdgeWeights, Held, Links, mixing_norm, stochastic_on
from noisedesign.system.rules import ruled_mixing

NORM_TOLERANCE = 1e-6  # distance of ||W - J||_2 from its bound that no run of D-SGD notices
LINKED = 1e-8  # share of Metropolis-Hastings weights, lest last digits decide who is linked
TO_BOUNDARY = 0.98  # share of the longest step that keeps everything positive


class Point(NamedTuple):
    """Weights w and the norm s, with their multipliers."""

    weights: Array  # w, shape (m,)
    norm: float  # s
    distance: Array  # Y of the slacks of ||W - J||_2 <= s
    of_weights: Array  # x of w >= 0, shape (m,)
    of_nodes: Array  # z of W_ii >= 0, shape (n,)


def longest_step(root: Array, change: Array) -> float:
    """The longest step from L L^T that stays positive semidefinite, at most 1 over TO_BOUNDARY."""
    half = scipy.linalg.solve_triangular(root, change, lower=True, check_finite=False)
    inner = scipy.linalg.solve_triangular(root, half.T, lower=True, check_finite=False)
    least = float(np.linalg.eigvalsh(inner)[0])
    return min(1 / TO_BOUNDARY, -1 / least if least < 0 else np.inf)


def longest_of(values: Array, change: Array) -> float:
    """The longest step from values > 0 that leaves none negative, at most 1 over TO_BOUNDARY."""
    falling = values < -change / TO_BOUNDARY  # a change too small to divide by bounds no step
    return float(np.min(-values[falling] / change[falling], initial=1 / TO_BOUNDARY))


class _Step:
    """Newton's equations at a point: two solves of one factorisation."""

    def __init__(self, graph: Links, here: Point) -> None:
        self.graph, self.here = graph, here
        self.slack = graph.slacks(gap_of(graph, here.weights), here.norm)
        self.inverse = np.linalg.inv(self.slack)
        self.inverse = (self.inverse + self.inverse.transpose(0, 2, 1)) / 2
        self.kept = 1 - graph.at_nodes(here.weights)
        if min(self.kept.min(initial=1), here.weights.min()) <= 0:
            raise np.linalg.LinAlgError("rounding has made a slack vanish")
        size = len(here.weights)
        matrix = np.zeros((size + 1, size + 1))
        matrix[:size, :size] = graph.between_slacks(self.inverse, here.distance)
        mixed = self.inverse @ here.distance
        mixed = np.asarray((mixed + mixed.transpose(0, 2, 1)) / 2)
        matrix[:size, size] = graph.along_slacks(mixed)
        matrix[size, size] = np.trace(mixed.sum(axis=0))
        matrix[size, :size] = matrix[:size, size]
        matrix[np.arange(size), np.arange(size)] += here.of_weights / here.weights
        # Two edges share the slack of a node that both have.
        unsigned = graph.at_nodes_each
        matrix[:size, :size] += (unsigned.T * (here.of_nodes / self.kept)) @ unsigned
        if not np.isfinite(matrix).all() or np.diagonal(matrix).min() <= 0:
            raise np.linalg.LinAlgError("rounding has made a system indefinite")
        scale = 1 / np.sqrt(np.diagonal(matrix))
        matrix *= scale[:, None] * scale
        factor = scipy.linalg.cho_factor(matrix, lower=True, overwrite_a=True)

        def solve(right: Array) -> Array:
            return np.asarray((scale * scipy.linalg.cho_solve(factor, (scale * right.T).T).T).T)

        self.solve = Held(solve, np.pad(graph.held, ((0, 0), (0, 1))))

    @property
    def complementarity(self) -> float:
        """<F, Y> + <w, x> + <diag W, z>: how far s is above the bound, once multipliers fit."""
        here = self.here
        linear = here.weights @ here.of_weights + self.kept @ here.of_nodes
        return float(np.sum(self.slack * here.distance) + linear)

    @property
    def degree(self) -> int:
        return 2 * self.graph.nodes + len(self.kept) + len(self.here.weights)

    def towards(self, mu: float, ahead: tuple[Point, Array, Array] | None = None) -> Point:
        """The change that leads to F_k Y_k = mu I, w x = mu and W_ii z_i = mu to first order."""
        here, graph = self.here, self.graph
        y, x, z = mu * self.inverse, mu / here.weights, mu / self.kept
        if ahead is not None:
            step, d_slack, d_kept = ahead
            bent = step.distance @ d_slack @ self.inverse
            y = y - (bent + bent.transpose(0, 2, 1)) / 2
            x = x - step.of_weights * step.weights / here.weights
            z = z - step.of_nodes * d_kept / self.kept
        of_weights = graph.along_slacks(np.asarray(y)) + x - graph.at_nodes_each.T @ z
        right = np.append(of_weights, np.trace(y.sum(axis=0)) - 1)
        found, _ = self.solve(right, 1 - graph.held @ here.weights)
        w, s = found[:-1], float(found[-1])
        d_slack, d_kept = self.slack_along(w, s)
        turned = here.distance @ d_slack @ self.inverse
        return Point(
            w,
            s,
            y - here.distance - (turned + turned.transpose(0, 2, 1)) / 2,
            x - here.of_weights - here.of_weights * w / here.weights,
            z - here.of_nodes - here.of_nodes * d_kept / self.kept,
        )

    def slack_along(self, w: Array, s: float) -> tuple[Array, Array]:
        """Change of F, and of diag(W)."""
        return self.graph.slacks(self.graph.less(w), s), -self.graph.at_nodes(w)

    def lengths(self, step: Point) -> tuple[float, float]:
        """Longest step of (w, s), and of the multipliers."""
        here = self.here
        d_slack, d_kept = self.slack_along(step.weights, step.norm)
        pairs = list(zip(self.slack, d_slack, strict=True))
        primal = min(longest_step(np.linalg.cholesky(a), d) for a, d in pairs)
        pairs = list(zip(here.distance, step.distance, strict=True))
        dual = min(longest_step(np.linalg.cholesky(a), d) for a, d in pairs)
        primal = min(primal, longest_of(here.weights, step.weights))
        primal = min(primal, longest_of(self.kept, d_kept))
        dual = min(dual, longest_of(here.of_weights, step.of_weights))
        dual = min(dual, longest_of(here.of_nodes, step.of_nodes))
        return primal, dual

    def next(self) -> Point:
        mu = self.complementarity / self.degree
        predicted = self.towards(0.0)
        primal, dual = (min(1.0, length) for length in self.lengths(predicted))
        d_slack, d_kept = self.slack_along(predicted.weights, predicted.norm)
        there = _moved(self.here, predicted, primal, dual)
        left = float(np.sum((self.slack + primal * d_slack) * there.distance))
        left += float(there.weights @ there.of_weights)
        left += float((self.kept + primal * d_kept) @ there.of_nodes)
        aim = min(1.0, max(left / self.degree / mu, 0.0) ** 2) * mu
        step = self.towards(aim, (predicted, d_slack, d_kept))
        primal, dual = (min(1.0, TO_BOUNDARY * length) for length in self.lengths(step))
        return _moved(self.here, step, primal, dual)


def _moved(here: Point, step: Point, primal: float, dual: float) -> Point:
    return Point(
        here.weights + primal * step.weights,
        here.norm + primal * step.norm,
        here.distance + dual * step.distance,
        here.of_weights + dual * step.of_weights,
        here.of_nodes + dual * step.of_nodes,
    )


def gap_of(graph: Links, weights: Array) -> Array:
    """J - W, shape (n, n)."""
    return np.asarray(graph.less(weights) - graph.at_zero + 1 / graph.nodes)


def path_to_fastest(graph: Links, weights: Array) -> Iterator[Point]:
    """Points ever nearer to the optimum, from W > 0 with W_ii > 0, until rounding is in the way."""
    kept = 1 - graph.at_nodes(weights)
    inverse = np.linalg.inv(graph.slacks(gap_of(graph, weights), 1.0))
    mu = 1 / float(np.trace(inverse.sum(axis=0)))
    distance = np.asarray(mu * inverse, dtype=np.float64)
    here = Point(weights, 1.0, distance, mu / weights, mu / kept)
    for _ in range(100):  # five times what graphs of up to a thousand nodes have taken
        yield here
        try:
            here = _Step(graph, here).next()
        except np.linalg.LinAlgError:
            return


def norm_lower_bound(
    edges: NDArray[np.integer[Any]], *, nodes: int, distance: Array, self_weights: Array
) -> float:
    """A bound below ||W - J||_2 for all symmetric W >= 0 on the edges (m, 2) with W 1 = 1."""
    # For Y of nuclear norm 1 it is <Y, W - J> = tr(Y (I - J)) - sum_e w_e y_e, y_e = b_e^T Y b_e,
    # at most z_i + z_j at the price sum z, the rest paid at the largest weight; infinite Y gives 0.
    if not np.isfinite(distance).all():
        return 0.0
    i, j = edges[:, 0], edges[:, 1]
    y = (distance + distance.T) / 2
    nuclear = float(np.abs(np.linalg.eigvalsh(y)).sum()) * (1 + settings.rank_tolerance(nodes))
    if not 0 < nuclear < np.inf:
        return 0.0
    y = y / nuclear
    left = y[i, i] + y[j, j] - 2 * y[i, j]
    bound = float(np.trace(y) - y.mean() * nodes) - settings.rank_tolerance(nodes)
    z = np.maximum(self_weights / nuclear, 0.0)
    excess = np.maximum(left - z[i] - z[j], 0.0)
    # Wherever ||W - J||_2 <= 1, which W = I attains, |w_e| <= 1 + 1/n <= 2.
    return max(0.0, bound - float(z.sum()) - 2 * float(excess.sum()))


@dataclass(frozen=True, kw_only=True, eq=False)
class FastestMixing:
    """W, shape (n, n), its ||W - J||_2 (not squared), and a bound below that of every W allowed."""

    mixing: Array
    norm: float
    lower_bound: float


def fastest_mixing(graph: nx.Graph) -> FastestMixing:
    """The best W and the best bound on the way, which need not belong together."""
    plain = ruled_mixing(graph)
    if len(plain) == 1:
        return FastestMixing(mixing=np.ones((1, 1)), norm=0.0, lower_bound=0.0)
    weights = EdgeWeights(plain)
    # Six arrays of m x m doubles are held at once.
    memory.require(lambda m: 6 * 8 * m * m, len(weights.edges), field="graph", of="edges")
    i, j = weights.edges.T
    best = FastestMixing(mixing=plain, norm=mixing_norm(plain), lower_bound=0.0)
    for point in path_to_fastest(weights, plain[i, j]):
        mixing = weights.mixing(point.weights)
        bound = norm_lower_bound(
            weights.edges,
            nodes=weights.nodes,
            distance=point.distance[0] - point.distance[1],
            self_weights=point.of_nodes,
        )
        norm = mixing_norm(mixing)
        if norm < best.norm:
            best = replace(best, mixing=mixing, norm=norm)
        best = replace(best, lower_bound=max(best.lower_bound, bound))
        if best.norm - best.lower_bound <= 1e-9:  # a step or two before rounding stops it
            break
    return best


def stated_fastest_mixing(graph: nx.Graph, *, known: Array | None = None) -> Array:
    """W, positive on the links alone, at most ``NORM_TOLERANCE`` above the least ||W - J||_2."""
    # The stored one as long as it proves to be, as a solver's last digits are its own.
    plain = ruled_mixing(graph)
    found = fastest_mixing(graph)
    allowed = found.lower_bound + NORM_TOLERANCE
    if known is not None and stochastic_on(plain, known) and mixing_norm(known) <= allowed:
        return known
    mixing = (1 - LINKED) * found.mixing + LINKED * plain
    excess = mixing_norm(mixing) - found.lower_bound
    if not excess <= NORM_TOLERANCE:
        expected = f"a graph whose fastest mixing is found to {NORM_TOLERANCE:g}"
        got = f"one that is only proved to be within {excess:.2g} of it"
        remedy = 'Store a W of your own as a .npy file, and name it by graph.kind = "matrix".'
        raise InputError("graph.weights", expected=expected, got=got, remedy=remedy)
    return mixing
