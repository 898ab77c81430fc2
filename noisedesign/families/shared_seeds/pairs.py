"""A better preconditioner where every clique is a pair (or a node alone) and nothing is capped.

In terms of dR the Newton system is M^-1 + K, with M the covariance that the barrier lends dR and
K = X (.) N + N (.) X restricted to the entries of pairs. K is ill conditioned, for some noise
hardly costs anything; but without the restriction it is diagonal in the basis F of X = F F^T,
N = F diag(l) F^T, and T, the restriction of that inverse, is within a small factor of the inverse
of the restriction. What is wanted is (M^-1 + T^-1)^-1; what is used is E T E^T, E = L_M L_D^-1,
with Cholesky factors of M and of D = M + diag(T): it is T where M is large, never more than M times
the largest eigenvalue of D^-1 T, and exact where T is diagonal and commutes with M. M is diagonal
but for the nodes, which many pairs share, so that both factors are sparse but for the nodes.
A projection along row scalings of R keeps it off the stiff directions of the budgets.
"""

from __future__ import annotations

import numpy as np

from noisedesign.base import settings
from noisedesign.base.checks import Array
from noisedesign.families.shared_seeds.blocks import congruence, roots
from noisedesign.families.shared_seeds.sets import Members
from noisedesign.families.shared_seeds.state import Point, Setting

Vector = tuple[Array, Array]  # values of the pairs, shape (m,), and of the nodes, shape (n,)


FADE = 1e-2
"""Variance lent by the barrier, relative to the inverse of diag(K), below which E fades out."""


class _Factor:
    """Cholesky factor L of a matrix over pairs and nodes, the pairs first.

    Args:
        pairs: the two ends of every pair, shapes (m,).
        variance: of the pairs, shape (m,); they are uncorrelated.
        covariance: of every pair with its two ends, shapes (m,).
        schur: of the nodes given the pairs, shape (n, n).
    """

    def __init__(
        self,
        pairs: tuple[Members, Members],
        variance: Array,
        covariance: tuple[Array, Array],
        schur: Array,
    ) -> None:
        self._pairs, self._root = pairs, np.sqrt(variance)
        self._to_nodes = tuple(c / self._root for c in covariance)
        self._node_inverse = np.linalg.inv(np.linalg.cholesky(schur))

    def solve(self, values: Vector) -> Vector:
        """L^-1."""
        (first, second), (to_first, to_second) = self._pairs, self._to_nodes
        scaled = values[0] / self._root
        ends = np.concatenate([first, second])
        both = np.bincount(
            ends, np.concatenate([to_first * scaled, to_second * scaled]), len(values[1])
        )
        return scaled, self._node_inverse @ (values[1] - both)

    def solve_transposed(self, values: Vector) -> Vector:
        """L^-T."""
        (first, second), (to_first, to_second) = self._pairs, self._to_nodes
        nodes = self._node_inverse.T @ values[1]
        return (values[0] - to_first * nodes[first] - to_second * nodes[second]) / self._root, nodes


class PairCorrection:
    """What is added to the block preconditioner: a positive semidefinite map of flat vectors."""

    @staticmethod
    def applies(setting: Setting) -> bool:
        largest = max(members.shape[1] for members in setting.layout.members)
        return largest == 2 and setting.cap is None and len(setting.hidden) == 1

    def __init__(self, setting: Setting, point: Point, scalings: list[Array]) -> None:
        self._layout, self._blocks = setting.layout, point.blocks
        self._scalings = scalings
        self._precision = precision = point.precisions[0]
        self._twice = 2 * np.diagonal(precision)
        half, inverse_half = (root[0] for root in roots(precision[None]))
        values, vectors = np.linalg.eigh((half * point.weights[0]) @ half)
        values = np.maximum(values, np.finfo(np.float64).eps * values[-1])
        self._basis = vectors.T @ inverse_half  # F^-1
        self._energies = 1 / (values[:, None] + values)
        squares = np.square(self._basis)
        restricted = squares.T @ self._energies @ squares
        restricted = restricted * (1 + np.eye(len(restricted))) / 2
        curvature = point.curvatures()[0]
        own = np.outer(np.diagonal(precision), np.diagonal(curvature))
        plain = 1 / ((own + own.T + 2 * precision * curvature) * (2 - np.eye(len(own))))
        diagonals = []
        for w in self._scalings:
            diagonal = np.einsum("mii->mi", w)
            outer = diagonal[:, :, None] * diagonal[:, None, :]
            diagonals.append((outer + np.square(w)) / 2)
        lent = self._layout.assemble(self._layout.join(diagonals))
        self._weights = np.sqrt(lent / (lent + restricted))
        self._factor(FADE * plain)

    def _factor(self, restricted: Array) -> None:
        """L_M and L_D.

        A block W = [[a, b], [b, c]] lends the variance (a c + b^2) / 2 to its pair, [[a^2, b^2],
        [b^2, c^2]] to its nodes, and a b and b c between them; given the pair, that leaves the
        nodes det W / (a c + b^2) [[a^2, -b^2], [-b^2, c^2]].
        """
        n = self._layout.size
        alone, tied = np.zeros((n, n)), np.zeros((n, n))
        for members, w in zip(self._layout.members, self._scalings, strict=True):
            if members.shape[1] == 1:
                alone[members[:, 0], members[:, 0]] += w[:, 0, 0] ** 2
                continue
            first, second = self._pairs = members[:, 0], members[:, 1]
            a, b, c = w[:, 0, 0], w[:, 0, 1], w[:, 1, 1]
            lent, covariance = (a * c + b * b) / 2, (a * b, b * c)
            variance = lent + restricted[first, second]
            share = np.linalg.det(w) / (2 * lent)
            self._add(alone, share * a**2, -share * b**2, share * c**2)
            # The same, and what the pairs' own variance adds to it.
            more = restricted[first, second] / (lent * variance)
            self._add(tied, more * (a * b) ** 2, more * a * b * b * c, more * (b * c) ** 2)
        alone[np.diag_indices(n)] *= 1 + n * settings.EPS
        tied += alone + np.diag(np.diagonal(restricted))
        self._lending = _Factor(self._pairs, lent, covariance, alone)
        self._fading = _Factor(self._pairs, variance, covariance, tied)

    def _add(self, total: Array, first: Array, both: Array, second: Array) -> None:
        """Add [[first, both], [both, second]] at every pair."""
        ends = np.concatenate(self._pairs)
        total[np.diag_indices(len(total))] += np.bincount(
            ends, np.concatenate([first, second]), len(total)
        )
        total[self._pairs] += both
        total[self._pairs[::-1]] += both

    def _read(self, matrix: Array) -> Vector:
        return matrix[self._pairs], np.diagonal(matrix)

    def _write(self, values: Vector) -> Array:
        """The symmetric matrix Y with <Y, dR> = <values, entries of dR>."""
        result = np.diag(values[1])
        result[self._pairs] = result[self._pairs[::-1]] = values[0] / 2
        return result

    def _lent(self, flat: Array) -> Array:
        """W B W for all blocks B."""
        parts = zip(self._scalings, self._layout.split(flat), strict=True)
        return self._layout.join([congruence(w, block) for w, block in parts])

    def settle(self, residual: Array) -> tuple[Array, Array]:
        """A change of the blocks that leaves R alone, after which the residual is G_cc; and G."""
        layout = self._layout
        lent = self._lent(residual)
        solved = self._lending.solve(self._read(layout.assemble(lent)))
        left = self._write(self._lending.solve_transposed(solved))
        return lent - self._lent(layout.gather(left)), left

    def apply(self, flat: Array) -> Array:
        layout, precision = self._layout, self._precision
        parts = zip(layout.split(self._blocks), layout.split(flat), strict=True)
        shares = [2 * np.einsum("mij,mij->mi", p, r) for p, r in parts]
        along = layout.node_sums(shares) / self._twice
        flat = flat - layout.gather((precision * along) @ precision)
        lent = self._lending.solve(self._read(layout.assemble(self._lent(flat))))
        inner = self._write(self._fading.solve_transposed(lent)) * self._weights
        inner = (self._basis @ inner @ self._basis.T) * self._energies
        inner = (self._basis.T @ inner @ self._basis) * self._weights
        faded = self._lending.solve_transposed(self._fading.solve(self._read(inner)))
        result = self._lent(layout.gather(self._write(faded)))
        change = layout.assemble(result)
        row = np.einsum("ij,ij->i", precision @ change, precision) / self._twice
        found = []
        for p, block, members in zip(
            layout.split(self._blocks), layout.split(result), layout.members, strict=True
        ):
            scales = row[members]
            found.append(block - (scales[:, :, None] + scales[:, None, :]) * p)
        return layout.join(found)
