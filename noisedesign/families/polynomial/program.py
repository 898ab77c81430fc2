"""Whisper's problem on a sparse graph: W is sparse, and no n x n array is ever made."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array, InputError
from noisedesign.families.polynomial.operator import DENSE, Powers
from noisedesign.system.graph import check_sparse_mixing

LDP_PROBES = 16


@dataclass(frozen=True, kw_only=True, eq=False)
class SparseProgram:
    """Minimise tr(H R) over noise covariances R with [R^-1]_ii <= tau_i, H = sum_t c_t (W^t)^T W^t.

    Args:
        mixing: W, a scipy sparse array or matrix, shape (n, n), float64, nonnegative, rows that sum
            to 1, strongly connected.
        budget: tau, scalar or shape (n,), inverse squared noise units.
        powers: c_1 to c_T, nonnegative, the last positive; by default H = W^T W. The error of all
            iterates of T steps has c_t = T + 1 - t, that after step T alone c_t = 1.
        seed: of the vectors by which a judge estimates traces; None: from the operating system.
        share: of these vectors that are drawn: fewer leave more open of error and bound.

    Raises:
        InputError: naming ``mixing``, ``budget.tau`` or ``powers``.
    """

    mixing: Any
    budget: Any = 1.0
    powers: Any = (1.0,)
    seed: int | None = 0
    share: float = 1.0

    def __post_init__(self) -> None:
        w = check_sparse_mixing(self.mixing)
        budget = _checks.positive_vector(self.budget, field="budget.tau", length=w.shape[0])
        powers = np.asarray(self.powers, dtype=np.float64)
        if powers.ndim != 1 or not len(powers) or not np.isfinite(powers).all():
            raise InputError("powers", expected="a list of finite numbers", got=repr(self.powers))
        if powers.min() < 0 or powers[-1] <= 0:
            expected = "nonnegative numbers, the last of them positive"
            raise InputError("powers", expected=expected, got=f"{powers.tolist()}")
        object.__setattr__(self, "powers", powers)
        object.__setattr__(self, "mixing", w)
        object.__setattr__(self, "budget", budget)

    @property
    def size(self) -> int:
        """n."""
        return int(self.mixing.shape[0])

    @property
    def plain(self) -> bool:
        """Whether H is a multiple of W^T W."""
        return len(self.powers) == 1

    @cached_property
    def objective(self) -> Powers:
        """H."""
        return Powers(mixing=self.mixing, counts=self.powers)

    @property
    def independent_error(self) -> float:
        """The error of independent noise at the same budgets (LDP), squared noise; of many powers
        on a large graph an estimate, within about a part in a thousand at 100,000 nodes."""
        if self.plain:
            columns: Array = np.asarray(self.mixing.power(2).sum(axis=0))
            return float(self.powers[0] * np.sum(columns / self.budget))
        if self.size <= DENSE:
            return float(np.sum(np.diagonal(self.objective.dense) / self.budget))
        signs = np.random.default_rng(self.seed).choice([-1.0, 1.0], size=(self.size, LDP_PROBES))
        seen = self.objective.forward(signs / np.sqrt(self.budget * LDP_PROBES)[:, None])
        return float(np.sum(seen**2))
