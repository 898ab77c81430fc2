"""Whisper's problem on a sparse graph: W is sparse, and no n x n array is ever made."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array, InputError
from noisedesign.families.polynomial.operator import DENSE, Powers
from noisedesign.families.polynomial.reach import nearer
from noisedesign.forms import PolynomialCovariance
from noisedesign.system.graph import check_sparse_mixing


@dataclass(frozen=True, kw_only=True, eq=False)
class SparseProgram:
    """Minimise tr(H R) over noise covariances R with [R^-1]_ii <= tau_i, H = sum_t c_t (W^t)^T W^t.

    ``mixing`` W is a sparse array, (n, n), nonnegative, of rows that sum to 1, strongly connected;
    ``budget`` tau of shape (n,) or a scalar; ``powers`` c_1 to c_T, nonnegative, the last positive.
    ``seed`` is that of the vectors by which a judge estimates traces, None the operating system's;
    ``share`` of them are drawn, fewer leave more open. An ``InputError`` names the field."""

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
        for name, value in (("powers", powers), ("mixing", w), ("budget", budget)):
            object.__setattr__(self, name, value)

    @property
    def size(self) -> int:
        """n."""
        return int(self.mixing.shape[0])

    @cached_property
    def order(self) -> Array | None:
        """The order of nodes in which products are quicker, or None: that which they have."""
        return nearer(self.mixing)

    @cached_property
    def in_order(self) -> SparseProgram:
        """The same with nodes in that order."""
        if (order := self.order) is None:
            return self
        return replace(self, mixing=self.mixing[order][:, order], budget=self.budget[order])

    def back(
        self, noise: PolynomialCovariance, weights: Array
    ) -> tuple[PolynomialCovariance, Array]:
        """Noise and multipliers of nodes in that order, in their own."""
        if self.order is None:
            return noise, weights
        back = np.argsort(self.order)
        own = {"mixing": self.mixing, "weights": noise.weights[back], "scale": noise.scale[back]}
        return replace(noise, **own), weights[back]

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
        """The error of independent noise (LDP), squared noise; on large graphs an estimate."""
        if self.plain:
            columns: Array = np.asarray(self.mixing.power(2).sum(axis=0))
            return float(self.powers[0] * np.sum(columns / self.budget))
        if self.size <= DENSE:
            return float(np.sum(np.diagonal(self.objective.dense) / self.budget))
        probes = 16
        signs = np.random.default_rng(self.seed).choice([-1.0, 1.0], size=(self.size, probes))
        seen = self.objective.forward(signs / np.sqrt(self.budget * probes)[:, None])
        return float(np.sum(seen**2))
