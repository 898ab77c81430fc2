"""The Newton system of covariances of shared seeds as a matrix, formed and factored.

Coordinates of a symmetric block are its entries on and above the diagonal, those above times the
root of two. With the matrices E_e and E_f of two of them, and X, N of a coalition,

    K_ef = <E_e, X E_f N + N E_f X>,    Z_eu = <E_e, x_u x_u^T>

depend on the entries of R that e and f are of, and on nothing else of their sets: they are computed
once for every pair of entries, n^2 at most. In the system W^-1 (.) W^-1 + K + Z diag(theta) Z^T the
first part turns into I by W = F F^T. What merely moves variance between sets is then resisted by
that alone, and theta, as large as the square of what makes up K, would drown it in rounding: it is
dealt with by a Schur complement in budgets.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg

from noisedesign.base.checks import Array
from noisedesign.families.shared_seeds.layout import products
from noisedesign.families.shared_seeds.state import Point, Setting


class _Factored:
    """A symmetric positive definite matrix, scaled to unit diagonal and factored."""

    def __init__(self, matrix: Array) -> None:
        self._root = 1 / np.sqrt(np.diagonal(matrix))
        matrix = matrix * self._root * self._root[:, None]
        self._factor = scipy.linalg.cho_factor(matrix, lower=True, overwrite_a=True)

    def solve(self, right: Array) -> Array:
        root = self._root if right.ndim == 1 else self._root[:, None]
        return np.asarray(root * scipy.linalg.cho_solve(self._factor, root * right))


class Explicit:
    """The matrix at one point, in the blocks F Z F^T, with W = F F^T: D becomes the identity.

    Args:
        inverse_scalings: W^-1 of every block, in batches of one size.
        stiffness: theta of every coalition.
        cap_stiffness: w over what is left under the cap; empty without caps.

    Raises:
        numpy.linalg.LinAlgError: rounding left the matrix indefinite.
    """

    def __init__(
        self,
        setting: Setting,
        point: Point,
        *,
        inverse_scalings: list[Array],
        stiffness: list[Array],
        cap_stiffness: Array,
    ) -> None:
        self.at = at = setting.coordinates
        self._turns = []
        for inverse in inverse_scalings:
            values, vectors = np.linalg.eigh(inverse)
            self._turns.append(products(vectors / np.sqrt(values)[:, None, :]))
        total, columns, eased = np.zeros((len(at.row),) * 2), [], []
        rows, matrix = (np.zeros((len(at.entry),) * 2) for _ in range(2))
        parts = zip(point.precisions, point.weights, stiffness, setting.hidden, strict=True)
        for x, v, theta, hidden in parts:
            own = at.curvature(x, v)
            total += own
            column = at.squares(x, hidden.watched)[at.entry]
            lost = hidden.lost
            column[lost] = 0.0
            here = own[at.entry[lost]]
            rows[lost] += here[:, at.entry]
            matrix[np.ix_(lost, lost)] += here[:, at.entry[lost]]
            columns.append(column)
            eased.append(1 / theta[hidden.watched])
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
        self._factored = _Factored(matrix)
        self._stiff = np.concatenate(columns, axis=1)
        self._turn(self._stiff, transpose=True)
        self._eased = self._factored.solve(self._stiff)
        schur = self._stiff.T @ self._eased
        schur[np.diag_indices(len(schur))] += np.concatenate(eased)
        self._schur = _Factored(schur)

    def solve(self, flat: Array) -> Array:
        values = self.at.read(flat)[:, None]
        self._turn(values, transpose=True)
        values = self._factored.solve(values)
        values -= self._eased @ self._schur.solve(self._stiff.T @ values)
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
