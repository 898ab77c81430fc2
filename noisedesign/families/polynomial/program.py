"""Whisper's problem on a sparse graph: W is sparse, and no n x n array is ever made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from noisedesign.base import checks as _checks, settings
from noisedesign.base.checks import Array, InputError


@dataclass(frozen=True, kw_only=True, eq=False)
class SparseProgram:
    """Minimise tr(W R W^T) over noise covariances R with [R^-1]_ii <= tau_i.

    Args:
        mixing: W, a scipy sparse array or matrix, shape (n, n), float64, nonnegative, rows that sum
            to 1, strongly connected.
        budget: tau, scalar or shape (n,), inverse squared noise units.

    Raises:
        InputError: naming ``mixing`` or ``budget.tau``.
    """

    mixing: Any
    budget: Any = 1.0

    def __post_init__(self) -> None:
        w = checked_mixing(self.mixing)
        budget = _checks.positive_vector(self.budget, field="budget.tau", length=w.shape[0])
        object.__setattr__(self, "mixing", w)
        object.__setattr__(self, "budget", budget)

    @property
    def size(self) -> int:
        """n."""
        return int(self.mixing.shape[0])

    @property
    def independent_error(self) -> float:
        """The error of independent noise at the same budgets (LDP), squared noise."""
        columns: Array = np.asarray(self.mixing.power(2).sum(axis=0))
        return float(np.sum(columns / self.budget))


def checked_mixing(mixing: Any) -> Any:
    """W as a sparse array by rows, once it is what a design needs.

    Raises:
        InputError: naming ``mixing``, and what is wrong with it.
    """
    given: Any = mixing  # what the stubs of issparse make of it has no dtype
    if not sparse.issparse(mixing):
        got = _checks.describe(mixing)
        raise InputError("mixing", expected="a scipy sparse array of shape (n, n)", got=got)
    if given.dtype != np.float64:
        expected = "float64 weights"
        remedy = "Convert the data at its source; widening float32 does not restore its digits."
        raise InputError("mixing", expected=expected, got=str(given.dtype), remedy=remedy)
    if given.ndim != 2 or given.shape[0] != given.shape[1] or not given.shape[0]:
        raise InputError("mixing", expected="a square matrix", got=f"shape {given.shape}")
    w = sparse.csr_array(given, copy=True)
    w.sum_duplicates()
    w.eliminate_zeros()
    if not np.isfinite(w.data).all() or (w.data < 0).any():
        worst = float(w.data[~np.isfinite(w.data) | (w.data < 0)][0])
        raise InputError("mixing", expected="finite, nonnegative weights", got=f"{worst:.6g}")
    sums = np.asarray(w.sum(axis=1))
    row = int(np.abs(sums - 1).argmax())
    if abs(sums[row] - 1) > settings.STOCHASTIC_TOLERANCE:
        raise InputError("mixing", expected="rows that sum to 1", got=f"{sums[row]!r} in row {row}")
    count, _ = connected_components(w, directed=True, connection="strong")
    if count > 1:
        expected = "every node to reach every other along nonzero weights"
        raise InputError("mixing", expected=expected, got=f"{count} components")
    return w
