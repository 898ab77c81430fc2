"""Covariances of seeds that pairs share as entries of R, and the path that leads to the best.

R is a sum of positive semidefinite blocks on pairs if and only if its comparison matrix, R_ii on
the diagonal and -|R_ij| off it, is positive semidefinite (Boman, Chen, Parekh and Toledo 2005, "On
factor width and symmetric H-matrices"). So one barrier of order n, - log det M, takes the place of
those of all blocks. In M, |R_ij| is t_ij = (R_ij^2 + e^2)^1/2: that is convex and no less, and the
inverse of M has no negative entry, so that the barrier stays convex and its noise is of pairs.

With a multiplier D of M, y_ij of t_ij and v of the budgets, S is D_ii on the diagonal and
- y_ij D_ij off it: as D >= 0 and |y_ij| <= 1, the blocks of S on pairs are positive semidefinite
and N = H - S on the entries of pairs proves a bound. The path is

    M D = mu I,    y_ij t_ij = R_ij,    v_i s_i = mu,    N = X diag(v) X,    X = R^-1,

and the gap on it 2 n mu and the sum over pairs of 2 D_ij (t_ij - y_ij R_ij), which is small
however many R_ij vanish.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from noisedesign.base import linalg as _linalg, settings
from noisedesign.base.checks import Array
from noisedesign.families.shared_seeds.layout import Layout

SHORTER = 0.7
START_GAP, START_EPSILON = 2e-2, 1e-2
"""Gap of the barrier at the start, relative to the objective; e there, in units of the budgets."""
LEAST_WEIGHT, MOST_SLACK = 1e-2, 0.5
"""Weights at the start are no less than the first share of their mean; slacks are no more than the
second wherever rows are scaled."""


class Pattern:
    """The entries of R that may differ from zero: those of pairs, and the diagonal after them."""

    def __init__(self, layout: Layout) -> None:
        self.size = n = layout.size
        pairs = [m for m in layout.members if m.shape[1] == 2]
        self.first, self.second = pairs[0].T if pairs else np.zeros((2, 0), dtype=np.intp)
        self.pairs = len(self.first)
        self._upper, self._lower = self.first * n + self.second, self.second * n + self.first
        nodes = np.arange(n)
        self.row = np.concatenate([self.first, nodes])
        self.column = np.concatenate([self.second, nodes])
        self._at = self.row * n + self.column
        self.twice = np.where(self.row == self.column, 1.0, 2.0)
        """How often every entry is in the matrix."""

    def split(self, values: Array) -> tuple[Array, Array]:
        """Those of pairs and those of nodes."""
        return values[: self.pairs], values[self.pairs :]

    def matrix(self, values: Array) -> Array:
        """The symmetric matrix of these entries."""
        total = np.zeros(self.size**2)
        on, diagonal = self.split(values)
        total[self._upper] = total[self._lower] = on
        total[:: self.size + 1] = diagonal
        return total.reshape(self.size, self.size)

    def replaced(self, matrix: Array, values: Array) -> Array:
        """A symmetric matrix with these entries in the place of its own."""
        return matrix + self.matrix(values - self.entries(matrix))

    def entries(self, matrix: Array) -> Array:
        return np.asarray(np.ascontiguousarray(matrix).ravel()[self._at])

    def adjoint(self, matrix: Array) -> Array:
        """g with <g, z> = <matrix, matrix of z>, of any matrix."""
        flat = np.ascontiguousarray(matrix).ravel()
        values = flat[self._at]
        values[: self.pairs] += flat[self._lower]
        return np.asarray(values)

    def scaled(self, values: Array, row: Array) -> Array:
        """Those of D R D, D = diag(row)."""
        return np.asarray(values * row[self.row] * row[self.column])

    def comparison(self, values: Array, epsilon: float) -> Array:
        """M, with t = (R^2 + e^2)^1/2 in the place of |R|."""
        on, diagonal = self.split(values)
        return self.matrix(np.concatenate([-np.hypot(on, epsilon), diagonal]))

    def node_sums(self, values: Array) -> Array:
        """Sums over the pairs of every node, and its own entry twice: what D R + R D takes."""
        on, diagonal = self.split(values)
        ends = np.bincount(self.first, on, self.size) + np.bincount(self.second, on, self.size)
        return np.asarray(ends + 2 * diagonal)

    def row_sums(self, row: Array) -> Array:
        """row_i + row_j of every entry."""
        return np.asarray(row[self.row] + row[self.column])

    def compared(self, values: Array, signs: Array) -> Array:
        """The matrix with - signs_ij z_ij off the diagonal."""
        on, diagonal = self.split(values)
        return self.matrix(np.concatenate([-signs * on, diagonal]))

    def pulled(self, matrix: Array, signs: Array) -> Array:
        """The adjoint of that, of a symmetric matrix."""
        on, diagonal = self.split(self.entries(matrix))
        return np.concatenate([-2 * signs * on, diagonal])


@dataclass(frozen=True, kw_only=True, eq=False)
class Point:
    """Entries of R, e, and the multipliers D, y, v and N; what follows from R and e."""

    pattern: Pattern
    entries: Array
    epsilon: float
    precision: Array
    dual: Array
    signs: Array
    weights: Array
    curvature: Array

    @cached_property
    def comparison(self) -> Array:
        return self.pattern.comparison(self.entries, self.epsilon)

    @cached_property
    def roots(self) -> Array:
        """t of every pair."""
        return np.hypot(self.pattern.split(self.entries)[0], self.epsilon)

    @cached_property
    def slacks(self) -> Array:
        return np.asarray(1 - np.diagonal(self.precision))

    @cached_property
    def dual_pairs(self) -> Array:
        """D_ij of every pair."""
        return self.pattern.split(self.pattern.entries(self.dual))[0]

    @property
    def order(self) -> int:
        """Of the barrier: that of M, and the budgets."""
        return 2 * self.pattern.size

    def complementarity(self) -> float:
        return float(np.vdot(self.comparison, self.dual) + self.weights @ self.slacks)

    def smoothing(self) -> float:
        """What e adds to the gap."""
        on, _ = self.pattern.split(self.entries)
        return 2 * float(self.dual_pairs @ (self.roots - self.signs * on))


def start(pattern: Pattern, gram: Array, covariance: Array) -> Point:
    """The point of a sum of positive definite blocks, multipliers to match."""
    size, cost = pattern.size, float(np.vdot(gram, covariance))
    mu = START_GAP * cost / (2 * size)
    v = np.maximum(np.sum(gram * covariance, axis=1), LEAST_WEIGHT * cost / size)
    spent = np.diagonal(_linalg.inverse_of_positive(covariance))
    row = np.sqrt(spent / (1 - np.minimum(mu / v, MOST_SLACK)))
    entries, epsilon = pattern.scaled(pattern.entries(covariance), row), START_EPSILON
    while not _linalg.is_positive(comparison := pattern.comparison(entries, epsilon)):
        epsilon *= SHORTER
    precision = _linalg.inverse_of_positive(pattern.matrix(entries))
    on, _ = pattern.split(entries)
    return Point(
        pattern=pattern,
        entries=entries,
        epsilon=epsilon,
        precision=precision,
        dual=mu * _linalg.inverse_of_positive(comparison),
        signs=on / np.hypot(on, epsilon),
        weights=v,
        curvature=(precision * v) @ precision,
    )


def feasible_curvature(point: Point, gram: Array) -> Array:
    """N with the entries of H - S on pairs and nodes: what D and y prove."""
    pattern = point.pattern
    on, diagonal = pattern.split(pattern.entries(point.dual))
    entries = pattern.entries(gram) - np.concatenate([-point.signs * on, diagonal])
    return pattern.replaced(point.curvature, entries)


def blocks_of(layout: Layout, pattern: Pattern, entries: Array) -> Array:
    """Blocks that sum to R, flat: with M d > 0 that of a pair has |R_ij| d_j / d_i on its diagonal,
    and what is left of R_ii is shared out."""
    d = np.linalg.solve(pattern.comparison(entries, 0.0), np.ones(pattern.size))
    d = np.maximum(d, settings.EPS * d.max())
    on, left = pattern.split(entries.copy())
    on_first = np.abs(on) * d[pattern.second] / d[pattern.first]
    on_second = np.abs(on) * d[pattern.first] / d[pattern.second]
    left -= np.bincount(pattern.first, on_first, pattern.size)
    left -= np.bincount(pattern.second, on_second, pattern.size)
    share = np.maximum(left, 0.0) / layout.node_sums([np.ones(m.shape) for m in layout.members])
    found = []
    for members in layout.members:
        if members.shape[1] == 1:
            found.append(share[members][:, :, None])
            continue
        block = np.empty((len(members), 2, 2))
        block[:, 0, 0] = on_first + share[pattern.first]
        block[:, 1, 1] = on_second + share[pattern.second]
        block[:, 0, 1] = block[:, 1, 0] = on
        found.append(block)
    return layout.join(found)
