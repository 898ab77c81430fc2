"""Error workloads of Toeplitz strategies: quadratic forms of the T coefficients of C^-1."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from noisedesign.base import checks as _checks, linalg as _linalg, settings
from noisedesign.base.checks import Array, InputError
from noisedesign.base.power_series import filtered
from noisedesign.system.workloads.response import sums_along_diagonals


@dataclass(frozen=True, kw_only=True, eq=False)
class GramWorkload:
    """Any workload, through H = A^T A.

    H is folded once along its diagonals into the matrix of the quadratic form, O(T^2). The error
    is known to EPS times the largest term of the form: about ten digits at T = 1000.

    Args:
        matrix: H, shape (T, T), symmetric positive semidefinite.

    Raises:
        InputError: H is not a finite symmetric float64 matrix, is zero, or has a negative
            eigenvalue.

    Examples:
        >>> import numpy as np
        >>> from noisedesign.system.workloads.toeplitz import GramWorkload
        >>> workload = GramWorkload(matrix=np.diag([3.0, 2.0]))
        >>> workload.error_and_gradient(np.array([1.0, 0.0]))[0]  # independent noise: tr H
        5.0
    """

    matrix: Any
    _form: Array = field(init=False, repr=False)

    def __post_init__(self) -> None:
        h = _checks.semidefinite_matrix(self.matrix, field="workload.gram", nonzero=True)
        object.__setattr__(self, "matrix", h)
        object.__setattr__(self, "_form", sums_along_diagonals(h[::-1, ::-1])[::-1, ::-1])

    @property
    def horizon(self) -> int:
        """T."""
        return len(self.matrix)

    def error_and_gradient(self, noising: Array) -> tuple[float, Array]:
        """Total squared error tr(H C^-1 C^-T), and its gradient.

        Args:
            noising: first column of C^-1, shape (T,).

        Returns:
            The error, and its gradient in ``noising``, shape (T,).
        """
        half = self._form @ noising
        return float(noising @ half), 2 * half

    def gram(self) -> Array:
        """The matrix of the workload.

        Returns:
            H, shape (T, T).
        """
        return np.asarray(self.matrix)


@dataclass(frozen=True, kw_only=True, eq=False)
class PoleWorkload:
    """Workloads that are sums of one-pole filters.

    H = sum_j weight_j A_j^T A_j, (A_j)_ts = pole_j^(t - s). Memory O(T + m), time O(m T).

    Args:
        poles: shape (m,), in [-1, 1].
        weights: squared gains, shape (m,), > 0.
        horizon: T, the number of steps.

    Raises:
        InputError: a pole outside [-1, 1], where errors would grow without bound; a weight <= 0;
            unequal lengths; horizon < 1.

    Examples:
        >>> from noisedesign.system.workloads.toeplitz import PoleWorkload
        >>> PoleWorkload(poles=[0.5], weights=[4.0], horizon=2).gram().tolist()
        [[5.0, 2.0], [2.0, 4.0]]
    """

    poles: Any
    weights: Any
    horizon: int

    def __post_init__(self) -> None:
        count = max(1, _checks.as_array(self.poles, field="workload.poles", ndim=1).size)
        poles = _checks.vector(self.poles, field="workload.poles", length=count)
        if np.abs(poles).max() > 1:
            worst = poles[np.abs(poles).argmax()]
            raise InputError("workload.poles", expected="values in [-1, 1]", got=f"{worst:.17g}")
        given = _checks.as_array(self.weights, field="workload.weights", ndim=1).size
        if given != count:
            raise InputError("workload.weights", expected=f"{count}, one per pole", got=f"{given}")
        weights = _checks.positive_vector(  # errors are linear in them
            self.weights,
            field="workload.weights",
            length=count,
            least=_checks.SMALLEST,
            most=_checks.LARGEST,
        )
        object.__setattr__(self, "poles", poles)
        object.__setattr__(self, "weights", weights)
        _checks.positive_int(self.horizon, field="workload.horizon")

    def error_and_gradient(self, noising: Array) -> tuple[float, Array]:
        """Total squared error tr(H C^-1 C^-T), and its gradient.

        Args:
            noising: first column of C^-1, shape (T,).

        Returns:
            The error, and its gradient in ``noising``, shape (T,).
        """
        seen = np.arange(self.horizon, 0, -1.0)
        error, gradient = 0.0, np.zeros(self.horizon)
        for pole, weight in zip(self.poles, self.weights, strict=True):
            by = np.array([1.0, -pole])
            response = filtered(noising, by=by)
            weighted = weight * seen * response
            error += float(weighted @ response)
            gradient += 2 * filtered(weighted[::-1], by=by)[::-1]
        return error, gradient

    def gram(self) -> Array:
        """The matrix of the workload, in O(T^2) memory.

        Returns:
            H, shape (T, T).
        """
        remaining = np.arange(self.horizon - 1, -1, -1)
        last_rows = np.power.outer(self.poles, remaining)
        last_row_gram = (last_rows.T * self.weights) @ last_rows
        return sums_along_diagonals(last_row_gram[::-1, ::-1])[::-1, ::-1]


Workload = GramWorkload | PoleWorkload


def prefix_workload(*, horizon: int) -> PoleWorkload:
    """Prefix sums, one pole at 1, of :func:`noisedesign.system.workloads.prefix_gram`.

    Args:
        horizon: T, the number of steps.

    Returns:
        The workload.

    Raises:
        InputError: horizon < 1.

    Examples:
        >>> from noisedesign.system.workloads.toeplitz import prefix_workload
        >>> prefix_workload(horizon=2).gram().tolist()
        [[2.0, 1.0], [1.0, 1.0]]
    """
    return PoleWorkload(poles=np.ones(1), weights=np.ones(1), horizon=horizon)


def gossip_workload(mixing: Any, *, horizon: int) -> PoleWorkload:
    """All iterates of all nodes under a symmetric W, every node using the same strategy.

    Each eigenvalue lambda of W filters by lambda^(s+1): a pole lambda of weight lambda^2, equal
    eigenvalues taken together. Its Gram matrix is
    :func:`noisedesign.system.workloads.decentralized_gram` (Mafalda-SGD, Lemma 10, equation (10)).

    Args:
        mixing: W, shape (n, n), symmetric, of spectral radius at most 1.
        horizon: T, the number of steps.

    Returns:
        The workload.

    Raises:
        InputError: W is not a finite float64 matrix, not symmetric, zero, or has an eigenvalue
            outside [-1, 1]; horizon < 1.

    Examples:
        >>> from noisedesign.system.workloads.toeplitz import gossip_workload
        >>> workload = gossip_workload([[0.75, 0.25], [0.25, 0.75]], horizon=2)
        >>> workload.poles.round(4).tolist(), workload.weights.round(4).tolist()
        ([0.5, 1.0], [0.25, 1.0])
    """
    w = _checks.matrix(mixing, field="mixing", square=True)
    if np.abs(w - w.T).max() > settings.SYMMETRY_TOLERANCE * np.abs(w).max():
        remedy = (
            "Use GramWorkload with noisedesign.system.workloads.decentralized_gram, "
            "which takes any W and O(T^2) memory."
        )
        raise InputError("mixing", expected="a symmetric W", got="one that is not", remedy=remedy)
    if (peak := float(np.abs(w).max())) > _checks.LARGEST:
        raise InputError("mixing", expected="eigenvalues in [-1, 1]", got=f"a weight {peak:.3g}")
    eigenvalues = _linalg.eigenvalues(w)
    largest = float(np.abs(eigenvalues).max())
    # What rounding can add to an eigenvalue, or set two equal ones apart by.
    rounding = settings.rank_tolerance(len(w)) * largest
    if not 0 < largest <= 1 + rounding:
        expected = "a nonzero W with eigenvalues in [-1, 1]"
        raise InputError("mixing", expected=expected, got=f"one of modulus {largest:.6g}")
    eigenvalues = np.clip(eigenvalues[np.abs(eigenvalues) > rounding], -1.0, 1.0)
    # One rounding below 1 is 1: its powers over 1e5 steps are not.
    eigenvalues = np.where(1 - np.abs(eigenvalues) <= rounding, np.sign(eigenvalues), eigenvalues)
    starts = np.flatnonzero(np.diff(eigenvalues, prepend=-np.inf) > rounding)
    counts = np.diff(starts, append=len(eigenvalues))
    poles = np.add.reduceat(eigenvalues, starts) / counts
    return PoleWorkload(poles=poles, weights=counts * poles**2, horizon=horizon)
