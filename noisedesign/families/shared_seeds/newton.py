"""The Newton system of covariances of shared seeds, solved by preconditioned conjugate gradients.

With X = R^-1, v the multipliers of the budgets, s their slacks, N = X diag(v) X and W the scaling
points of the blocks, a change dP with dR = sum_c E_c dP_c E_c^T satisfies on every set

    W^-1 dP W^-1 + (X dR N + N dR X + X diag(v/s * diag(X dR X)) X)_cc = right-hand side,

see :mod:`noisedesign.families.shared_seeds.solver`; w / room * diag(dR) is added where variances
are capped, and with coalitions the bracket is a sum over those that leave the set alone. A
product costs three n x n matrix products a coalition.

The third term is stiff near the boundary, along one direction for every budget. The
preconditioner takes it as it is, by a Schur complement as large as the number of budgets and caps,
and the first two block by block, with 2 Y (.) Y, Y the geometric mean of X_cc and N_cc, for
X (.) N + N (.) X: both then diagonalise along with W^-1. Where all sets are pairs, a projection
takes the place of that complement, and what couples the blocks is allowed for.
"""

from __future__ import annotations

import numpy as np

from noisedesign.base import settings
from noisedesign.base.checks import Array
from noisedesign.base.device import conjugate_gradients
from noisedesign.base.monitor import Monitor
from noisedesign.families.shared_seeds.explicit import Explicit
from noisedesign.families.shared_seeds.layout import Squares, congruence, roots, scaling, transposed
from noisedesign.families.shared_seeds.program import Members
from noisedesign.families.shared_seeds.state import Point, Setting

MAX_PRODUCTS, MANY_PRODUCTS = 1000, 60
CHUNK_FLOATS = 1 << 22
"""Floats of the columns of a Schur complement formed at a time, and kept: 32 MB."""


class NewtonSystem:
    """The system at one point: its product, its preconditioner and its solution."""

    def __init__(self, setting: Setting, point: Point, monitor: Monitor) -> None:
        self.setting, self.point, self.monitor = setting, point, monitor
        layout = setting.layout
        self.scalings, self.inverse_scalings = scaling(layout, point.blocks, point.dual)
        self.stiffness = [v / s for v, s in zip(point.weights, point.slacks, strict=True)]
        self.cap_stiffness = point.prices / point.room
        self.curvatures = point.curvatures()
        self.explicit: Explicit | None = None
        if setting.explicit:
            self.explicit = Explicit(
                setting,
                point,
                inverse_scalings=self.inverse_scalings,
                stiffness=self.stiffness,
                cap_stiffness=self.cap_stiffness,
            )
        if self.explicit is None:
            self._diagonalize()
            if not setting.of_pairs:
                self._factor_schur()
        at, watched = setting.coordinates, [hidden.watched for hidden in setting.hidden]
        few = len(at.row) * sum(map(len, watched)) <= CHUNK_FLOATS and not setting.explicit
        self._squares = [
            Squares(layout, at, x, on, few=few)
            for x, on in zip(point.precisions, watched, strict=True)
        ]
        self.pairs = PairPreconditioner(self, self._squares[0]) if setting.of_pairs else None

    # --- product ------------------------------------------------------------------------------

    def scaled_back(self, flat: Array) -> Array:
        """W^-1 dP W^-1."""
        layout = self.setting.layout
        pairs = zip(self.inverse_scalings, layout.split(flat), strict=True)
        return layout.join([congruence(w, block) for w, block in pairs])

    def product(self, flat: Array) -> Array:
        layout, result = self.setting.layout, self.scaled_back(flat)
        for index, precision in enumerate(self.point.precisions):
            change = layout.assemble(self.setting.restrict(flat, index))
            moved = (precision @ change) @ precision
            stiff = self.stiffness[index] * np.diagonal(moved) / 2
            half = (moved * self.point.weights[index] + precision * stiff) @ precision
            result += self.setting.restrict(layout.gather(half + half.T), index)
        if len(self.cap_stiffness):
            result += layout.gather(np.diag(self.cap_stiffness * self.setting.variances(flat)))
        return result

    # --- preconditioner -----------------------------------------------------------------------

    def _diagonalize(self) -> None:
        """Factors with F W^-1 F^T = I and F Y F^T diagonal, for all blocks."""
        layout = self.setting.layout
        count = np.zeros(len(self.point.blocks))
        precision, curvature = np.zeros_like(count), np.zeros_like(count)
        for index, (x, n) in enumerate(zip(self.point.precisions, self.curvatures, strict=True)):
            count += self.setting.restrict(np.ones_like(count), index)
            precision += self.setting.restrict(layout.gather(x), index)
            curvature += self.setting.restrict(layout.gather(n), index)
        self._factors, self._shrinks = [], []
        means, curvatures = layout.split(precision / count), layout.split(curvature)
        for x, n, w in zip(means, curvatures, self.inverse_scalings, strict=True):
            lower = np.asarray(np.linalg.cholesky(x), dtype=np.float64)
            half = np.asarray(np.linalg.inv(lower), dtype=np.float64)
            scaled = congruence(half, n)
            mean = congruence(lower, roots(scaled)[0])
            inverse = np.linalg.inv(np.linalg.cholesky(w))
            values, vectors = np.linalg.eigh(congruence(inverse, mean))
            self._factors.append(transposed(vectors) @ inverse)
            self._shrinks.append(1 / (1 + 2 * values[:, :, None] * values[:, None, :]))

    def block_solve(self, flat: Array) -> Array:
        layout, found = self.setting.layout, []
        parts = zip(self._factors, self._shrinks, layout.split(flat), strict=True)
        for factor, shrink, block in parts:
            found.append(congruence(transposed(factor), congruence(factor, block) * shrink))
        return layout.join(found)

    def _factor_schur(self) -> None:
        """Inverse of theta^-1 + Z^T B^-1 Z: one column Z for every budget and every cap."""
        columns, stiffness, owners = [], [], []
        for index, hidden in enumerate(self.setting.hidden):
            nodes = hidden.watched
            columns.append(self.point.precisions[index][:, nodes])
            stiffness.append(self.stiffness[index][nodes])
            owners.append(np.full(len(nodes), index))
        columns.append(np.eye(self.setting.layout.size)[:, : len(self.cap_stiffness)])
        stiffness.append(self.cap_stiffness)
        owners.append(np.full(len(self.cap_stiffness), -1))
        self._sizes = [len(stiff) for stiff in stiffness]
        schur = np.diag(1 / np.concatenate(stiffness))
        self._add_columns(schur, np.concatenate(columns, axis=1), np.concatenate(owners))
        half = np.linalg.inv(np.linalg.cholesky(schur))
        self._schur_inverse = half.T @ half

    def _add_columns(self, schur: Array, columns: Array, owners: Array) -> None:
        layout = self.setting.layout
        masks = [h.kept for h in self.setting.hidden]
        starts = np.cumsum([0] + [s.size for s in layout.split(self.point.blocks)])
        for group, members in enumerate(layout.members):
            factor, shrink = self._factors[group], self._shrinks[group]
            k = members.shape[1]
            rows = max(1, CHUNK_FLOATS // (columns.shape[1] * k))
            for first in range(0, len(members), rows):
                part = slice(first, first + rows)
                image = factor[part] @ columns[members[part]]
                for index, kept in enumerate(masks):
                    if kept is not None:
                        where = kept[starts[group] : starts[group + 1] : k * k][part]
                        image[:, :, owners == index] *= where[:, None, None]
                for i in range(k):
                    for j in range(i + 1):
                        weight = np.sqrt(shrink[part, i, j] * (1 if i == j else 2))
                        z = image[:, i] * image[:, j] * weight[:, None]
                        schur += z.T @ z

    def _project(self, flat: Array) -> Array:
        """Z^T applied to blocks: diag(X dR X) of every coalition, and diag(dR)."""
        restrict = self.setting.restrict
        found = [squares.of(restrict(flat, i)) for i, squares in enumerate(self._squares)]
        if len(self.cap_stiffness):
            found.append(self.setting.variances(flat))
        return np.concatenate(found)

    def _spread(self, values: Array) -> Array:
        """Z applied to one value for every budget and cap."""
        layout, parts = self.setting.layout, np.split(values, np.cumsum(self._sizes)[:-1])
        total = np.zeros(len(self.point.blocks))
        for index, squares in enumerate(self._squares):
            total += self.setting.restrict(squares.spread(parts[index]), index)
        if len(self.cap_stiffness):
            total += layout.gather(np.diag(parts[-1]))
        return total

    def precondition(self, flat: Array) -> Array:
        if self.explicit is not None:
            return self.explicit.solve(flat)
        if self.pairs is not None:
            return self.pairs.apply(flat)
        solved = self.block_solve(flat)
        stiff = self._schur_inverse @ self._project(solved)
        return solved - self.block_solve(self._spread(stiff))

    # --- solution -----------------------------------------------------------------------------

    def solve(self, right: Array, start: Array | None, *, tolerance: float) -> tuple[Array, Array]:
        """dP by conjugate gradients, and the residual it leaves.

        Args:
            start: where to start from; zero if None.
            tolerance: residual to reach, in the norm of the preconditioner, relative to that of
                the right-hand side or to the root of the complementarity, whichever is less.
        """
        preconditioned = self.precondition(right)
        size = float(right @ preconditioned)
        target, used = tolerance**2 * min(size, self.point.complementarity()), 0
        x = np.zeros_like(right)
        if start is not None:
            x, right, used = start, right - self.product(start), 1
            preconditioned = self.precondition(right)
            size = float(right @ preconditioned)
        if not size > target or self.monitor.expired:
            return x, right
        solved = conjugate_gradients(
            self.product,
            self.precondition,
            right=right,
            preconditioned=preconditioned,
            target=target,
            most=MAX_PRODUCTS - used,
            expired=lambda: self.monitor.expired,
        )
        self.setting.form(solved.products > MANY_PRODUCTS)
        return x + solved.x, solved.residual


# --- a better preconditioner: every set a pair or a node alone, nothing capped -------------------

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
        shares = np.concatenate([to_first * scaled, to_second * scaled])
        both = np.bincount(np.concatenate([first, second]), shares, len(values[1]))
        return scaled, self._node_inverse @ (values[1] - both)

    def solve_transposed(self, values: Vector) -> Vector:
        """L^-T."""
        (first, second), (to_first, to_second) = self._pairs, self._to_nodes
        nodes = self._node_inverse.T @ values[1]
        return (values[0] - to_first * nodes[first] - to_second * nodes[second]) / self._root, nodes


class PairPreconditioner:
    """The preconditioner then: that of the blocks, and one that knows how K couples them.

    In terms of dR the Newton system is M^-1 + K, with M the covariance that the barrier lends
    dR and K = X (.) N + N (.) X restricted to the entries of pairs. K is ill conditioned, for
    some noise hardly costs anything; but without the restriction it is diagonal in the basis F
    of X = F F^T, N = F diag(l) F^T, and T, the restriction of that inverse, is within a small
    factor of the inverse of the restriction. What is wanted is (M^-1 + T^-1)^-1; what is used
    is E T E^T, E = L_M L_D^-1, with Cholesky factors of M and of D = M + diag(T): it is T where
    M is large, never more than M times the largest eigenvalue of D^-1 T, and exact where T is
    diagonal and commutes with M. M is diagonal but for the nodes, which many pairs share, so
    that both factors are sparse but for the nodes.

    Row scalings, D P D of every block, are what moves one budget and no other. A projection along
    them keeps both of these off the stiff directions of the budgets, and the system is solved
    among row scalings themselves, where it is a matrix as large as there are nodes.
    """

    def __init__(self, system: NewtonSystem, squares: Squares) -> None:
        point, self._system, self._squares = system.point, system, squares
        self._layout, self._blocks = system.setting.layout, point.blocks
        self._scalings, v = system.scalings, point.weights[0]
        precision, curvature = point.precisions[0], system.curvatures[0]
        self._twice = 2 * np.diagonal(precision)
        lower = np.asarray(np.linalg.cholesky(precision))
        values, vectors = np.linalg.eigh((lower.T * v) @ lower)
        values = np.maximum(values, np.finfo(np.float64).eps * values[-1])
        self._basis = vectors.T @ np.linalg.inv(lower)  # F^-1
        self._energies = 1 / (values[:, None] + values)
        shares = np.square(self._basis)
        restricted = shares.T @ self._energies @ shares
        restricted = restricted * (1 + np.eye(len(restricted))) / 2
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
        self._factor_rows(curvature, system.stiffness[0], v)

    def _factor_rows(self, curvature: Array, stiffness: Array, v: Array) -> None:
        """Inverse of the system among row scalings t: dR = diag(t) R + R diag(t)."""
        layout, covariance = self._layout, self._layout.assemble(self._blocks)
        energies = []
        parts = (layout.split(self._blocks), self._system.inverse_scalings)
        for p, inverse in zip(*parts, strict=True):
            half = p @ inverse
            energies.append(2 * (half * transposed(half) + inverse * (half @ p)))
        matrix = layout.assemble(layout.join(energies)) + 2 * curvature * covariance
        matrix[np.diag_indices(len(matrix))] += (3 * v + stiffness * self._twice) * self._twice
        half = np.linalg.inv(np.linalg.cholesky(matrix))
        self._row_inverse = half.T @ half

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
            self._upper, self._lower = first * n + second, second * n + first
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
        ends, values = np.concatenate(self._pairs), np.concatenate([first, second])
        total[np.diag_indices(len(total))] += np.bincount(ends, values, len(total))
        total[self._pairs] += both
        total[self._pairs[::-1]] += both

    def _read(self, matrix: Array) -> Vector:
        flat = matrix.ravel()
        return flat[self._upper], flat[:: len(matrix) + 1]

    def _write(self, values: Vector) -> Array:
        """The symmetric matrix Y with <Y, dR> = <values, entries of dR>."""
        size = self._layout.size
        result = np.zeros(size**2)
        result[self._upper] = result[self._lower] = values[0] / 2
        result[:: size + 1] = values[1]
        return result.reshape(size, size)

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
        layout = self._layout
        blocks = layout.split(self._blocks)
        parts = zip(blocks, layout.split(flat), strict=True)
        along = layout.node_sums([2 * np.einsum("mij,mij->mi", p, r) for p, r in parts])
        flat = flat - self._squares.spread(along / self._twice)
        lent = self._lent(flat)
        entries = self._lending.solve(self._read(layout.assemble(lent)))
        inner = self._write(self._fading.solve_transposed(entries)) * self._weights
        inner = (self._basis @ inner @ self._basis.T) * self._energies
        inner = (self._basis.T @ inner @ self._basis) * self._weights
        faded = self._fading.solve(self._read(inner))
        # What only moves variance between blocks is left as it is: lent, less what R sees of it.
        seen = self._lending.solve_transposed((faded[0] - entries[0], faded[1] - entries[1]))
        pull = self._write(seen)
        result = lent + self._lent(layout.gather(pull)) + self._system.block_solve(flat)
        row = self._row_inverse @ along - self._squares.of(result) / self._twice
        found = []
        for p, block, members in zip(blocks, layout.split(result), layout.members, strict=True):
            scales = row[members]
            found.append(block + (scales[:, :, None] + scales[:, None, :]) * p)
        return layout.join(found)
