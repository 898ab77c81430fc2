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
X (.) N + N (.) X: both then diagonalise along with W^-1.
"""

from __future__ import annotations

import numpy as np

from noisedesign.base.checks import Array
from noisedesign.base.device import conjugate_gradients
from noisedesign.base.monitor import Monitor
from noisedesign.families.shared_seeds.explicit import Explicit
from noisedesign.families.shared_seeds.layout import Squares, congruence, roots, scaling, transposed
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
            self._factor_schur()
        at, watched = setting.coordinates, [hidden.watched for hidden in setting.hidden]
        few = len(at.row) * sum(map(len, watched)) <= CHUNK_FLOATS and not setting.explicit
        self._squares = [
            Squares(layout, at, x, on, few=few)
            for x, on in zip(point.precisions, watched, strict=True)
        ]

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
