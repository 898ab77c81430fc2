"""W on the edges of a graph, and a primal-dual method for the weights of least ||W - J||_2.

Unknown are the weights w of W = I - sum_e w_e b_e b_e^T, b_e = e_i - e_j, and s >= ||W - J||_2:

    minimise s   subject to   F_1 = s I - (W - J) >= 0,   F_2 = s I + (W - J) >= 0,

and w >= 0, W_ii >= 0 where asked. Multipliers are Y_1, Y_2 >= 0 of total trace 1, x of w and z of
W_ii. A general conic solver has n (n + 1) rows for the two cones, and factors systems of that size.
But what w changes is of rank one an edge, so Newton's equations of the path F_k Y_k = mu I are

    M_ef = sum_k (b_e^T F_k^-1 b_f) (b_e^T Y_k b_f),

entrywise products of matrices whose entries are read off F_k^-1 and Y_k: m x m for m edges, at
O(m^2) to form and m^3 / 3 to factor, whatever the rest. Twice solved a step, for a predictor and a
corrector (Mehrotra 1992; the direction is that of Helmberg, Rendl, Vanderbei and Wolkowicz 1996).
F_k, w and W_ii are computed from (w, s) and stay positive: every step is feasible.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.linalg

from noisedesign.base.checks import Array

TO_BOUNDARY = 0.98
"""Share of the longest step that keeps everything positive."""

MAX_STEPS = 100
"""Five times what graphs of up to a thousand nodes have taken."""


class EdgeWeights:
    """The edges of a graph and W as a function of their weights."""

    def __init__(self, mixing: Array) -> None:
        self.nodes = len(mixing)
        self.edges = np.argwhere(np.triu(mixing, 1) > 0)

    @cached_property
    def incidence(self) -> Array:
        """b_e as columns, shape (n, m)."""
        columns = np.arange(len(self.edges))
        result = np.zeros((self.nodes, len(self.edges)))
        result[self.edges[:, 0], columns], result[self.edges[:, 1], columns] = 1, -1
        return result

    def mixing(self, w: Array, *, nonnegative: bool) -> Array:
        """W, exactly symmetric and within a rounding of W 1 = 1; made >= 0 where asked."""
        i, j = self.edges.T
        mixing = np.zeros((self.nodes, self.nodes))
        mixing[i, j] = mixing[j, i] = np.maximum(w, 0.0) if nonnegative else w
        if nonnegative:
            mixing /= max(1.0, float(mixing.sum(axis=1).max()))
        kept = 1 - mixing.sum(axis=1)
        np.fill_diagonal(mixing, np.maximum(kept, 0.0) if nonnegative else kept)
        return mixing

    def laplacian(self, w: Array) -> Array:
        """sum_e w_e b_e b_e^T, shape (n, n)."""
        i, j = self.edges.T
        result = np.zeros((self.nodes, self.nodes))
        result[i, j] = result[j, i] = -w
        np.fill_diagonal(result, self.at_nodes(w))
        return result

    def at_nodes(self, w: Array) -> Array:
        """Sums over the edges of every node, shape (n,)."""
        ends = self.edges.ravel()
        return np.asarray(np.bincount(ends, np.repeat(w, 2), self.nodes), dtype=np.float64)

    def along(self, matrix: Array) -> Array:
        """b_e^T A b_e of a symmetric A, shape (m,)."""
        i, j = self.edges.T
        return np.asarray(matrix[i, i] + matrix[j, j] - 2 * matrix[i, j])

    def between(self, matrix: Array) -> Array:
        """b_e^T A b_f, shape (m, m)."""
        i, j = self.edges.T
        rows = matrix[i] - matrix[j]
        return np.asarray(rows[:, i] - rows[:, j])


class Point(NamedTuple):
    """Weights w, shape (m,), and s; multipliers (Y_1, Y_2), shape (2, n, n), x of w >= 0, shape
    (m,), and z of W_ii >= 0, shape (n,); the last two are zero where W may be negative."""

    weights: Array
    norm: float
    distance: Array
    of_weights: Array
    of_nodes: Array


SIGNS = np.array([1.0, -1.0])[:, None, None]
"""Of what weights add to F_1 and F_2."""


def _longest(root: Array, change: Array) -> float:
    """The longest step along ``change`` from L L^T that stays positive semidefinite, at most 1 over
    TO_BOUNDARY."""
    half = scipy.linalg.solve_triangular(root, change, lower=True, check_finite=False)
    inner = scipy.linalg.solve_triangular(root, half.T, lower=True, check_finite=False)
    least = float(np.linalg.eigvalsh(inner)[0])
    return min(1 / TO_BOUNDARY, -1 / least if least < 0 else np.inf)


def _longest_of(values: Array, change: Array) -> float:
    """The same for positive numbers."""
    falling = change < 0
    return float(np.min(-values[falling] / change[falling], initial=1 / TO_BOUNDARY))


class _Step:
    """Newton's equations at a point: two solves of one factorisation."""

    def __init__(self, graph: EdgeWeights, here: Point, *, nonnegative: bool) -> None:
        self.graph, self.here, self.nonnegative = graph, here, nonnegative
        n = graph.nodes
        off = graph.laplacian(here.weights) - np.eye(n) + 1 / n
        self.slack = here.norm * np.eye(n) + SIGNS * off
        self.inverse = np.linalg.inv(self.slack)
        self.inverse = (self.inverse + self.inverse.transpose(0, 2, 1)) / 2
        self.kept = 1 - graph.at_nodes(here.weights)
        if nonnegative and min(self.kept.min(), here.weights.min()) <= 0:
            raise np.linalg.LinAlgError("rounding has made a slack vanish")
        size = len(here.weights)
        matrix = np.zeros((size + 1, size + 1))
        for inverse, y, sign in zip(self.inverse, here.distance, (1, -1), strict=True):
            matrix[:size, :size] += graph.between(inverse) * graph.between(y)
            mixed = inverse @ y
            matrix[:size, size] += sign * graph.along((mixed + mixed.T) / 2)
            matrix[size, size] += np.trace(mixed)
        matrix[size, :size] = matrix[:size, size]
        if nonnegative:
            matrix[np.arange(size), np.arange(size)] += here.of_weights / here.weights
            matrix[:size, :size] += self._shared_nodes(here.of_nodes / self.kept)
        if not np.isfinite(matrix).all() or np.diagonal(matrix).min() <= 0:
            raise np.linalg.LinAlgError("rounding has made a system indefinite")
        self.scale = 1 / np.sqrt(np.diagonal(matrix))
        matrix *= self.scale[:, None] * self.scale
        self.factor = scipy.linalg.cho_factor(matrix, lower=True, overwrite_a=True)

    def _shared_nodes(self, values: Array) -> Array:
        """sum of ``values`` over the nodes that two edges share, shape (m, m)."""
        unsigned = np.abs(self.graph.incidence)
        return np.asarray((unsigned.T * values) @ unsigned)

    @property
    def complementarity(self) -> float:
        """<F, Y> + <w, x> + <diag W, z>: how far s is above the bound, once multipliers fit."""
        here = self.here
        linear = here.weights @ here.of_weights + self.kept @ here.of_nodes
        return float(np.sum(self.slack * here.distance) + linear)

    @property
    def degree(self) -> int:
        """Of the barrier."""
        linear = len(self.kept) + len(self.here.weights) if self.nonnegative else 0
        return 2 * len(self.kept) + linear

    def towards(self, mu: float, ahead: tuple[Point, Array, Array] | None = None) -> Point:
        """The change that leads to F_k Y_k = mu I, w x = mu and W_ii z_i = mu to first order, with
        what the product of a step ``ahead`` with itself leaves taken off."""
        here, graph = self.here, self.graph
        y, x, z = mu * self.inverse, np.zeros(len(here.weights)), np.zeros(graph.nodes)
        if self.nonnegative:
            x, z = mu / here.weights, mu / self.kept
        if ahead is not None:
            step, d_slack, d_kept = ahead
            bent = step.distance @ d_slack @ self.inverse
            y = y - (bent + bent.transpose(0, 2, 1)) / 2
            if self.nonnegative:
                x = x - step.of_weights * step.weights / here.weights
                z = z - step.of_nodes * d_kept / self.kept
        i, j = graph.edges.T
        right = np.append(graph.along(y[0] - y[1]) + x - z[i] - z[j], np.trace(y[0] + y[1]) - 1)
        found = self.scale * scipy.linalg.cho_solve(self.factor, self.scale * right)
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
        """Change of F, shape (2, n, n), and of diag(W)."""
        d_slack = s * np.eye(self.graph.nodes) + SIGNS * self.graph.laplacian(w)
        return d_slack, -self.graph.at_nodes(w)

    def lengths(self, step: Point) -> tuple[float, float]:
        """Longest step of (w, s), and of the multipliers."""
        here = self.here
        d_slack, d_kept = self.slack_along(step.weights, step.norm)
        pairs = list(zip(self.slack, d_slack, strict=True))
        primal = min(_longest(np.linalg.cholesky(a), d) for a, d in pairs)
        pairs = list(zip(here.distance, step.distance, strict=True))
        dual = min(_longest(np.linalg.cholesky(a), d) for a, d in pairs)
        if self.nonnegative:
            primal = min(primal, _longest_of(here.weights, step.weights))
            primal = min(primal, _longest_of(self.kept, d_kept))
            dual = min(dual, _longest_of(here.of_weights, step.of_weights))
            dual = min(dual, _longest_of(here.of_nodes, step.of_nodes))
        return primal, dual

    def next(self) -> Point:
        """The point a predictor and a corrector lead to."""
        mu = self.complementarity / self.degree
        predicted = self.towards(0.0)
        primal, dual = (min(1.0, length) for length in self.lengths(predicted))
        d_slack, d_kept = self.slack_along(predicted.weights, predicted.norm)
        there = _moved(self.here, predicted, primal, dual)
        left = float(np.sum((self.slack + primal * d_slack) * there.distance))
        if self.nonnegative:
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


def path_to_fastest(graph: EdgeWeights, weights: Array, *, nonnegative: bool) -> Iterator[Point]:
    """Points ever nearer to the optimum, until rounding is in the way.

    Args:
        graph: connected, with at least one edge.
        weights: to begin with, shape (m,), of a W with ||W - J||_2 < 1; positive, and with W_ii > 0
            for every node, where W has to be nonnegative.
        nonnegative: whether it has to.
    """
    start = Point(weights, 1.0, np.empty((2, 0, 0)), np.empty(0), np.empty(0))
    n, kept = graph.nodes, 1 - graph.at_nodes(weights)
    off = graph.laplacian(weights) - np.eye(n) + 1 / n
    inverse = np.linalg.inv(np.eye(n) + SIGNS * off)
    mu = 1 / float(np.trace(inverse.sum(axis=0)))
    here = start._replace(
        distance=np.asarray(mu * inverse, dtype=np.float64),
        of_weights=mu / weights if nonnegative else np.zeros(len(weights)),
        of_nodes=mu / kept if nonnegative else np.zeros(n),
    )
    for _ in range(MAX_STEPS):
        yield here
        try:
            here = _Step(graph, here, nonnegative=nonnegative).next()
        except np.linalg.LinAlgError:
            return
