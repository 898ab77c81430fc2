"""Whisper's problem on a sparse graph: W is sparse, and no n x n array is ever made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array
from noisedesign.system.graph import check_sparse_mixing


@dataclass(frozen=True, kw_only=True, eq=False)
class SparseProgram:
    """Minimise tr(W R W^T) over noise covariances R with [R^-1]_ii <= tau_i.

    Args:
        mixing: W, a scipy sparse array or matrix, shape (n, n), float64, nonnegative, rows that sum
            to 1, strongly connected.
        budget: tau, scalar or shape (n,), inverse squared noise units.
        seed: of the vectors by which a judge estimates traces; None: from the operating system.

    Raises:
        InputError: naming ``mixing`` or ``budget.tau``.
    """

    mixing: Any
    budget: Any = 1.0
    seed: int | None = 0

    def __post_init__(self) -> None:
        w = check_sparse_mixing(self.mixing)
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
