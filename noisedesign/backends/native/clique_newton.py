"""The Newton system of covariances on cliques, solved by preconditioned conjugate gradients.

With X = R^-1, v the multipliers of the budgets, s their slacks, N = X diag(v) X and W the scaling
points of the blocks, a change dP with dR = sum_c E_c dP_c E_c^T satisfies on every clique

    W^-1 dP W^-1 + (X dR N + N dR X + X diag(v/s * diag(X dR X)) X)_cc = mu P^-1 - gradient,

and w / room * diag(dR) is added where variances are capped; with coalitions the bracket is a sum
over those that leave the clique alone. A product costs three n x n matrix products a coalition.

The third term is stiff near the boundary, along one direction for every budget. The
preconditioner takes it as it is, by a Schur complement as large as the number of budgets and caps,
and the first two block by block, with 2 Y (.) Y, Y the geometric mean of X_cc and N_cc, for
X (.) N + N (.) X: both then diagonalise along with W^-1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from noisedesign import _linalg
from noisedesign._checks import Array
from noisedesign.backends.native.clique_blocks import (
    congruence,
    inverses,
    roots,
    scaling,
    transposed,
)
from noisedesign.backends.native.clique_pairs import PairCorrection
from noisedesign.backends.native.clique_state import Point, Setting

CHUNK_FLOATS = 1 << 22
"""Floats of the columns of a Schur complement formed at a time: 32 MB."""


class NewtonSystem:
    """The system at one point: its right-hand side, its product and its preconditioner."""

    def __init__(self, setting: Setting, point: Point, *, mu: float) -> None:
        self.setting, self.point, self.mu = setting, point, mu
        layout = setting.layout
        self.scalings, self.inverse_scalings = scaling(layout, point.blocks, point.dual)
        pairs = zip(point.weights, point.slacks, strict=True)
        self.stiffness = [v / s for v, s in pairs]
        self.cap_stiffness = None
        if point.prices is not None and point.room is not None:
            self.cap_stiffness = point.prices / point.room
        self.curvatures = point.curvatures()
        self.barrier = mu * inverses(layout, point.blocks)
        self.right = self.barrier - setting.gram_blocks + self._pull()
        self._diagonalize()
        self._factor_schur()
        self.correction = None
        if PairCorrection.applies(setting):
            self.correction = PairCorrection(setting, point, self.scalings)

    def _pull(self) -> Array:
        """What budgets and caps add to the right-hand side, their multipliers at mu / slack."""
        layout, total = self.setting.layout, np.zeros(len(self.barrier))
        for index, precision in enumerate(self.point.precisions):
            on = self.point.weights[index] > 0
            target = np.where(on, self.mu / self.point.slacks[index], 0.0)
            pull = layout.gather((precision * target) @ precision)
            total += self.setting.restrict(pull, index)
        if self.point.room is not None:
            total -= layout.gather(np.diag(self.mu / self.point.room))
        return total

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
        if self.cap_stiffness is not None:
            capped = self.cap_stiffness * self.setting.variances(flat)
            result += layout.gather(np.diag(capped))
        return result

    # --- preconditioner -----------------------------------------------------------------------

    def _diagonalize(self) -> None:
        """Factors with F W^-1 F^T = I and F Y F^T diagonal, for all blocks."""
        layout = self.setting.layout
        count = np.zeros(len(self.barrier))
        precision, curvature = np.zeros_like(count), np.zeros_like(count)
        for index, (x, n) in enumerate(zip(self.point.precisions, self.curvatures, strict=True)):
            count += self.setting.restrict(np.ones_like(count), index)
            precision += self.setting.restrict(layout.gather(x), index)
            curvature += self.setting.restrict(layout.gather(n), index)
        self._factors, self._shrinks = [], []
        parts = zip(
            layout.split(precision / count), layout.split(curvature), self.inverse_scalings,
            strict=True,
        )  # fmt: skip
        for x, n, w in parts:
            lower = np.asarray(np.linalg.cholesky(x), dtype=np.float64)
            half = np.asarray(np.linalg.inv(lower), dtype=np.float64)
            scaled = congruence(half, n)
            mean = congruence(lower, roots(scaled)[0])
            inverse = np.linalg.inv(np.linalg.cholesky(w))
            values, vectors = np.linalg.eigh(congruence(inverse, mean))
            self._factors.append(transposed(vectors) @ inverse)
            self._shrinks.append(1 / (1 + 2 * values[:, :, None] * values[:, None, :]))

    def _block_solve(self, flat: Array) -> Array:
        layout, found = self.setting.layout, []
        parts = zip(self._factors, self._shrinks, layout.split(flat), strict=True)
        for factor, shrink, block in parts:
            found.append(congruence(transposed(factor), congruence(factor, block) * shrink))
        return layout.join(found)

    def _factor_schur(self) -> None:
        """Inverse of theta^-1 + Z^T B^-1 Z: one column Z for every budget and every cap."""
        columns, stiffness, owners = [], [], []
        for index, (nodes, _) in enumerate(self.setting.hidden):
            columns.append(self.point.precisions[index][:, nodes])
            stiffness.append(self.stiffness[index][nodes])
            owners.append(np.full(len(nodes), index))
        if self.cap_stiffness is not None:
            columns.append(np.eye(self.setting.layout.size))
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
        starts = np.cumsum([0] + [s.size for s in layout.split(self.barrier)])
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
        found = []
        for index, (nodes, _) in enumerate(self.setting.hidden):
            precision = self.point.precisions[index]
            change = self.setting.layout.assemble(self.setting.restrict(flat, index))
            found.append(np.einsum("ij,ij->i", precision @ change, precision)[nodes])
        if self.cap_stiffness is not None:
            found.append(self.setting.variances(flat))
        return np.concatenate(found)

    def _spread(self, values: Array) -> Array:
        """Z applied to one value for every budget and cap."""
        layout, parts = self.setting.layout, np.split(values, np.cumsum(self._sizes)[:-1])
        total = np.zeros(len(self.barrier))
        for index, (nodes, _) in enumerate(self.setting.hidden):
            precision = self.point.precisions[index][:, nodes]
            pull = layout.gather((precision * parts[index]) @ precision.T)
            total += self.setting.restrict(pull, index)
        if self.cap_stiffness is not None:
            total += layout.gather(np.diag(parts[-1]))
        return total

    def precondition(self, flat: Array) -> Array:
        solved = self._block_solve(flat)
        stiff = self._schur_inverse @ self._project(solved)
        solved -= self._block_solve(self._spread(stiff))
        if self.correction is not None:
            solved += self.correction.apply(flat)
        return solved


@dataclass(frozen=True, kw_only=True, eq=False)
class Change:
    """A step: dP; the N it leads to, where there are no coalitions; the products it took."""

    blocks: Array
    curvature: Array | None
    products: int


def newton_step(
    system: NewtonSystem, *, tolerance: float, most: int, expired: Callable[[], bool]
) -> Change:
    """Solve the system by conjugate gradients.

    What they leave of the residual is moved into N, whose entries are free as long as those of the
    cliques match: so the multipliers stay feasible however loosely the system is solved.

    Args:
        tolerance: residual to reach, in the norm of the preconditioner, relative to the start.
    """
    layout, point = system.setting.layout, system.point
    change, used = _conjugate_gradients(system, tolerance, most, expired)
    if point.curvature is None:
        return Change(blocks=layout.symmetrized(change), curvature=None, products=used)
    residual = system.right - system.product(change)
    count = layout.assemble(np.ones_like(residual))
    left = layout.assemble(residual) / np.maximum(count, 1.0)
    if system.correction is not None:
        # After the mean, so that what cancels here is small.
        moved, more = system.correction.settle(residual - layout.gather(left))
        change, left = change + moved, left + more
    change = layout.symmetrized(change)
    precision, v = point.precisions[0], point.weights[0]
    moved = (precision @ layout.assemble(change)) @ precision
    # ds = diag(X dR X), so this is v + dv.
    ahead = (system.mu - v * np.diagonal(moved)) / point.slacks[0]
    half = (precision * (ahead / 2) - moved * v) @ precision
    return Change(blocks=change, curvature=_linalg.symmetrized(half + half.T - left), products=used)


def _conjugate_gradients(
    system: NewtonSystem, tolerance: float, most: int, expired: Callable[[], bool]
) -> tuple[Array, int]:
    """The change dP, and how many products it took."""
    x = np.zeros_like(system.right)
    residual = system.right.copy()
    z = system.precondition(residual)
    direction, size = z, float(residual @ z)
    # A system that is nearly solved already need not be solved to more than mu is worth.
    target = tolerance**2 * max(size, 0.01 * system.mu * system.setting.order)
    used = 0
    while used < most:
        used += 1
        image = system.product(direction)
        along = float(direction @ image)
        if not along > 0:
            break
        length = size / along
        x += length * direction
        residual -= length * image
        z = system.precondition(residual)
        previous, size = size, float(residual @ z)
        if size <= target or not size > 0 or expired():
            break
        direction = z + size / previous * direction
    return x, used
