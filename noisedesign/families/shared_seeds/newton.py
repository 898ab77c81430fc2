"""The Newton system of covariances of shared seeds, solved by preconditioned conjugate gradients.

With X = R^-1, v the multipliers of the budgets, s their slacks, N = X diag(v) X and W the scaling
points of the blocks, a change dP with dR = sum_c E_c dP_c E_c^T satisfies on every set

    W^-1 dP W^-1 + (X dR N + N dR X + X diag(v/s * diag(X dR X)) X)_cc = right-hand side;

w / room * diag(dR) is added where variances are capped, and with coalitions the bracket is a sum
over those that leave the set alone. The preconditioner takes the third term, stiff near the
boundary, as it is, by a Schur complement, and the first two block by block, with 2 Y (.) Y, Y the
geometric mean of X_cc and N_cc, for X (.) N + N (.) X: both then diagonalise along with W^-1."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg

from noisedesign.base.checks import Array
from noisedesign.base.device import conjugate_gradients
from noisedesign.base.monitor import Monitor
from noisedesign.families.shared_seeds.layout import (
    congruence,
    products,
    roots,
    scaling,
    transposed,
)
from noisedesign.families.shared_seeds.state import Point, Setting, curvatures, diagonals

MAX_PRODUCTS, MANY_PRODUCTS = 1000, 60
CHUNK_FLOATS = 1 << 22
"""Floats of the columns of a Schur complement formed at a time, and kept: 32 MB."""


class Solved(NamedTuple):
    """A change, the residual it leaves, its image, and how many products it took."""

    change: Array
    residual: Array
    image: Array
    products: int = 0


class Bend(NamedTuple):
    """The second-order remainders of a step: of the product of P and S in the units of S, of dv ds,
    of what s and N gain, and of dw times the change of the room."""

    dual: Array
    products: Array
    slacks: Array
    curvatures: Array
    room: Array

    @classmethod
    def of(cls, x: Array, change: Array, v: Array, step: Any, *, dual: Array, share: float) -> Bend:
        """Take a share of them, as the step is not going to be taken whole; ``change`` is dR."""
        moved, v, dv = x @ change, v[..., None, :], step.weights[..., None, :]
        first = moved @ x
        second = moved @ first
        half = (second * v - first * dv) @ x
        return cls(
            dual=share * dual,
            products=share * step.weights * step.slacks,
            slacks=-share * np.diagonal(second, axis1=-2, axis2=-1),
            curvatures=share * (half + half.swapaxes(-1, -2) + (first * v) @ first),
            room=share * step.prices * step.room,
        )


class System(ABC):
    """A Newton system at a point, solved by preconditioned conjugate gradients."""

    def __init__(self, complementarity: float, monitor: Monitor) -> None:
        self.complementarity, self.monitor = complementarity, monitor

    @abstractmethod
    def product(self, change: Array) -> Array:
        """The image of a change."""

    @abstractmethod
    def precondition(self, residual: Array) -> Array:
        """A change whose image is about the residual."""

    def solve(self, right: Array, near: Solved | None, *, tolerance: float) -> Solved:
        """Solve from the solution ``near`` of a system with another right-hand side: ``tolerance``,
        in the norm of the preconditioner, is relative to the right-hand side or the root of the
        complementarity, whichever is less."""
        start, residual, preconditioned = np.zeros_like(right), right, self.precondition(right)
        size = float(right @ preconditioned)
        target = tolerance**2 * min(size, self.complementarity)
        if near is not None:
            start, residual = near.change, right - near.image
            preconditioned = self.precondition(residual)
            size = float(residual @ preconditioned)
        if not size > target or self.monitor.expired:
            return Solved(start, residual, right - residual)
        change, residual, products = conjugate_gradients(
            self.product,
            self.precondition,
            right=residual,
            preconditioned=preconditioned,
            target=target,
            most=MAX_PRODUCTS,
            expired=lambda: self.monitor.expired,
        )
        return Solved(start + change, residual, right - residual, products)


class NewtonSystem(System):
    """The system in the blocks."""

    def __init__(self, setting: Setting, point: Point, monitor: Monitor) -> None:
        super().__init__(point.complementarity(), monitor)
        self.setting, self.point = setting, point
        layout = setting.layout
        self.scalings, self.inverse_scalings = scaling(layout, point.blocks, point.dual)
        self.stiffness = point.weights / point.slacks
        self.cap_stiffness = point.prices / point.room
        self.curvatures = curvatures(point.precisions, point.weights)
        self.explicit = Explicit(self) if setting.explicit else None
        if self.explicit is None:
            self._diagonalize()
            self._factor_schur()

    def scaled_back(self, flat: Array) -> Array:
        """W^-1 dP W^-1."""
        layout = self.setting.layout
        pairs = zip(self.inverse_scalings, layout.split(flat), strict=True)
        return layout.join([congruence(w, block) for w, block in pairs])

    def product(self, flat: Array) -> Array:
        layout, result = self.setting.layout, self.scaled_back(flat)
        precisions = self.point.precisions
        moved = precisions @ self.setting.assembled(flat) @ precisions
        stiff = self.stiffness * diagonals(moved) / 2
        half = (moved * self.point.weights[:, None] + precisions * stiff[:, None]) @ precisions
        result += self.setting.gathered(half + transposed(half))
        if len(self.cap_stiffness):
            result += layout.gather(np.diag(self.cap_stiffness * self.setting.variances(flat)))
        return result

    def _diagonalize(self) -> None:
        """Factors with F W^-1 F^T = I and F Y F^T diagonal, for all blocks."""
        layout = self.setting.layout
        precision = self.setting.gathered(self.point.precisions) / self.setting.kept.sum(axis=0)
        curvature = self.setting.gathered(self.curvatures)
        self._factors, self._shrinks = [], []
        means, curvatures = layout.split(precision), layout.split(curvature)
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
        setting, caps = self.setting, len(self.cap_stiffness)
        owners, nodes = np.nonzero(setting.watched)
        of_caps = np.eye(setting.layout.size)[:, :caps]
        columns = np.concatenate([self.point.precisions[owners, nodes].T, of_caps], axis=1)
        stiffness = np.concatenate([self.stiffness[owners, nodes], self.cap_stiffness])
        schur = np.diag(1 / stiffness)
        # Every set is left alone by what caps the variances, the last one.
        kept = np.append(setting.kept, np.ones((1, setting.layout.length), dtype=bool), axis=0)
        self._add_columns(schur, columns, kept[np.append(owners, np.full(caps, -1))].T)
        half = np.linalg.inv(np.linalg.cholesky(schur))
        self._schur_inverse = half.T @ half

    def _add_columns(self, schur: Array, columns: Array, kept: Array) -> None:
        layout = self.setting.layout
        starts = np.cumsum([0] + [s.size for s in layout.split(self.point.blocks)])
        for group, members in enumerate(layout.members):
            factor, shrink = self._factors[group], self._shrinks[group]
            k = members.shape[1]
            rows = max(1, CHUNK_FLOATS // (columns.shape[1] * k))
            for first in range(0, len(members), rows):
                part = slice(first, first + rows)
                image = factor[part] @ columns[members[part]]
                image *= kept[starts[group] : starts[group + 1] : k * k][part][:, None]
                for i in range(k):
                    for j in range(i + 1):
                        weight = np.sqrt(shrink[part, i, j] * (1 if i == j else 2))
                        z = image[:, i] * image[:, j] * weight[:, None]
                        schur += z.T @ z

    def _project(self, flat: Array) -> Array:
        """Z^T applied to blocks: diag(X dR X) of every coalition, and diag(dR)."""
        x = self.point.precisions
        moved = np.einsum("aij,aij->ai", x @ self.setting.assembled(flat), x)
        found = moved[self.setting.watched]
        if len(self.cap_stiffness):
            found = np.append(found, self.setting.variances(flat))
        return np.asarray(found)

    def _spread(self, values: Array) -> Array:
        """Z applied to one value for every budget and cap."""
        watched = self.setting.watched
        of_budgets, of_caps = np.split(values, [int(watched.sum())])
        weights = np.zeros(watched.shape)
        weights[watched] = of_budgets
        total = self.setting.gathered(curvatures(self.point.precisions, weights))
        if len(of_caps):
            total += self.setting.layout.gather(np.diag(of_caps))
        return total

    def precondition(self, flat: Array) -> Array:
        if self.explicit is not None:
            return self.explicit.solve(flat)
        solved = self.block_solve(flat)
        stiff = self._schur_inverse @ self._project(solved)
        return solved - self.block_solve(self._spread(stiff))


def _solver_of(matrix: Array) -> Callable[[Array], Array]:
    """The map of b, (m, k), to x with A x = b, A positive definite, scaled to unit diagonal."""
    diagonal = np.diagonal(matrix)
    if not (np.isfinite(matrix).all() and diagonal.min(initial=1.0) > 0):
        raise np.linalg.LinAlgError("rounding has made a system indefinite")
    root = 1 / np.sqrt(diagonal)[:, None]
    factor = scipy.linalg.cho_factor(matrix * root * root.T, lower=True, overwrite_a=True)
    return lambda right: np.asarray(root * scipy.linalg.cho_solve(factor, root * right))


class Explicit:
    """The matrix at the point of a system, in the blocks F Z F^T, W = F F^T: W^-1 (.) W^-1 is I.

    Coordinates of a symmetric block are its entries on and above the diagonal, those above times
    the root of two. With the matrices E_e and E_f of two of them, and X, N of a coalition,
    K_ef = <E_e, X E_f N + N E_f X> and Z_eu = <E_e, x_u x_u^T> depend on the entries of R that e
    and f are of alone. Z diag(theta) Z^T would drown K in rounding: a Schur complement takes it."""

    def __init__(self, system: NewtonSystem) -> None:
        setting, point = system.setting, system.point
        cap_stiffness = system.cap_stiffness
        self.at = at = setting.coordinates
        self._turns = []
        for inverse in system.inverse_scalings:
            values, vectors = np.linalg.eigh(inverse)
            self._turns.append(products(vectors / np.sqrt(values)[:, None, :]))
        total, columns, eased = np.zeros((len(at.row),) * 2), [], []
        rows, matrix = (np.zeros((len(at.entry),) * 2) for _ in range(2))
        of_blocks = zip(setting.kept, setting.outside, setting.watched, strict=True)
        of_point = zip(point.precisions, point.weights, system.stiffness, strict=True)
        for (kept, nodes, watched), (x, v, theta) in zip(of_blocks, of_point, strict=True):
            own, lost = at.curvature(x, v), at.lost(kept, nodes)
            total += own
            column = at.squares(x, np.flatnonzero(watched))[at.entry]
            column[lost] = 0.0
            here = own[at.entry[lost]]
            rows[lost] += here[:, at.entry]
            matrix[np.ix_(lost, lost)] += here[:, at.entry[lost]]
            columns.append(column)
            eased.append(1 / theta[watched])
        # What is taken away again is no larger than what is left, but for what is stiff.
        matrix += total[at.entry][:, at.entry]
        matrix -= rows
        matrix -= rows.T
        if len(cap_stiffness):
            entry, node = at.entry, at.row[at.entry]
            of_nodes = np.flatnonzero(node == at.column[entry])
            column = np.zeros((len(entry), len(cap_stiffness)))
            column[of_nodes, node[of_nodes]] = 1.0
            columns.append(column)
            eased.append(1 / cap_stiffness)
        self._turn(matrix, transpose=True)
        self._turn(matrix.T, transpose=True)
        matrix[np.diag_indices(len(matrix))] += 1.0
        self._solved = _solver_of(matrix)
        self._stiff = np.concatenate(columns, axis=1)
        self._turn(self._stiff, transpose=True)
        self._eased = self._solved(self._stiff)
        schur = self._stiff.T @ self._eased
        schur[np.diag_indices(len(schur))] += np.concatenate(eased)
        self._schur = _solver_of(schur)

    def solve(self, flat: Array) -> Array:
        values = self.at.read(flat)[:, None]
        self._turn(values, transpose=True)
        values = self._solved(values)
        values -= self._eased @ self._schur(self._stiff.T @ values)
        self._turn(values, transpose=False)
        return self.at.write(values[:, 0])

    def _turn(self, columns: Array, *, transpose: bool) -> None:
        """Z -> F Z F^T of all columns, in place, or its transpose."""
        for group, turn in enumerate(self._turns):
            part = columns[self.at.ends[group] : self.at.ends[group + 1]]
            blocks = part.reshape(*turn.shape[:2], columns.shape[1])
            part[...] = ((turn.transpose(0, 2, 1) if transpose else turn) @ blocks).reshape(
                part.shape
            )
