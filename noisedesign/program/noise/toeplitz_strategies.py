"""Strategies that are lower triangular Toeplitz matrices, in three forms of small memory.

* :class:`ToeplitzStrategy`: C with p coefficients. Noise by forward substitution keeps the last
  p - 1 noise vectors, so a full C (p = T) needs O(T d) memory.
* :class:`BandedInverse`: C^-1 with p coefficients, keeping the last p - 1 draws.
* :class:`BufferedToeplitz`: C of m decaying exponentials; so is C^-1, and m buffers make the noise.

None of them has a horizon of its own: it is asked for wherever it matters, and the noise streams
of :mod:`noise.short_memory` stop at theirs. Every privacy statement holds for one
participation scheme and its horizon only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base import power_series as series
from noisedesign.base import settings
from noisedesign.base.checks import Array, InputError
from noisedesign.base.shown import Shown
from noisedesign.privacy.sensitivity import Sensitivity
from noisedesign.privacy.sensitivity.toeplitz import squared_sensitivity
from noisedesign.system.participation import Participation
from noisedesign.system.workloads.toeplitz import Workload


class Strategy(Shown, ABC):
    """A lower triangular Toeplitz strategy C."""

    @abstractmethod
    def strategy_column(self, horizon: int) -> Array:
        """First column of C, shape (T,)."""

    @abstractmethod
    def noising_column(self, horizon: int) -> Array:
        """First column of C^-1, shape (T,)."""

    @abstractmethod
    def vectors_kept(self, horizon: int) -> int:
        """Vectors of the model's size that a stream of its noise keeps between steps."""

    def dense(self, horizon: int) -> Array:
        """C, shape (T, T)."""
        return series.dense(self.strategy_column(horizon))

    def dense_noising(self, horizon: int) -> Array:
        """C^-1, shape (T, T)."""
        return series.dense(self.noising_column(horizon))

    def squared_sensitivity(self, participation: Participation) -> Sensitivity:
        """Squared sensitivity over the participation scheme, and whether it is exact or a bound:
        :func:`noisedesign.privacy.sensitivity.toeplitz.squared_sensitivity`."""
        return squared_sensitivity(self.strategy_column(participation.horizon), participation)

    def squared_error(self, workload: Workload) -> float:
        """Total squared error tr(H C^-1 C^-T) of ``workload``, for noise of unit variance."""
        return workload.error_and_gradient(self.noising_column(workload.horizon))[0]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ToeplitzStrategy(Strategy):
    """C with first column ``coefficients`` c_0, ..., c_{p-1} and zeros after them.

    Raises:
        InputError: not a finite float64 vector, or c_0 <= 0.
    """

    coefficients: Any

    def __post_init__(self) -> None:
        checked = series.checked(self.coefficients, field="strategy.coefficients")
        object.__setattr__(self, "coefficients", checked)

    def strategy_column(self, horizon: int) -> Array:
        """First column of C, shape (T,)."""
        return series.resized(self.coefficients, _length(horizon))

    def noising_column(self, horizon: int) -> Array:
        """First column of C^-1, shape (T,)."""
        return series.reciprocal(self.strategy_column(horizon))

    def vectors_kept(self, horizon: int) -> int:
        """p - 1, or T - 1 where that is less."""
        return min(len(self.coefficients), _length(horizon)) - 1


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class BandedInverse(Strategy):
    """C^-1 with first column ``coefficients`` d_0, ..., d_{p-1} and zeros after them.

    Source: Kalinin, McKenna, Upadhyay and Lampert 2025, "Back to square roots" (banded inverse
    square root), of which this is the family.

    Raises:
        InputError: not a finite float64 vector, or d_0 <= 0.
    """

    coefficients: Any

    def __post_init__(self) -> None:
        checked = series.checked(self.coefficients, field="strategy.coefficients")
        object.__setattr__(self, "coefficients", checked)

    def strategy_column(self, horizon: int) -> Array:
        """First column of C, shape (T,)."""
        return series.reciprocal(self.noising_column(horizon))

    def noising_column(self, horizon: int) -> Array:
        """First column of C^-1, shape (T,)."""
        return series.resized(self.coefficients, _length(horizon))

    def vectors_kept(self, horizon: int) -> int:
        """p - 1, or T - 1 where that is less."""
        return min(len(self.coefficients), _length(horizon)) - 1


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class BufferedToeplitz(Strategy):
    """Buffered linear Toeplitz: c_0 = 1 and c_j = sum_i scales_i decays_i^(j - 1) for j >= 1.

    With scales >= 0 of sum at most 1 and decays in [0, 1] the coefficients are nonnegative and
    nonincreasing, so sensitivity is exact under fixed epochs and min-separation alike.

    The inverse is of the same form. With u = sqrt(scales) and z = 1 / x the generating function is
    1 + u^T (z - diag(decays))^-1 u, whose reciprocal is 1 - u^T (z - diag(decays) + u u^T)^-1 u:
    its decays are the eigenvalues of diag(decays) - u u^T and its scales minus the squares of u in
    that eigenbasis.

    Sources: Dvijotham et al. 2024, "Efficient and near-optimal noise generation for streaming
    differential privacy"; McMahan, Xu and Zhang 2024, "A hassle-free algorithm for private
    learning in practice".

    Args:
        scales: omega, shape (m,).
        decays: theta, shape (m,).

    Raises:
        InputError: values outside those ranges, or of unequal number.
    """

    scales: Any
    decays: Any

    def __post_init__(self) -> None:
        buffers = max(1, np.size(self.scales))
        scales = _checks.vector(self.scales, field="strategy.scales", length=buffers)
        if np.size(self.decays) != buffers:
            raise InputError(
                "strategy.decays",
                expected=f"{buffers}, one per scale",
                got=f"{np.size(self.decays)}",
            )
        decays = _checks.vector(self.decays, field="strategy.decays", length=buffers)
        if scales.min() < 0 or scales.sum() > 1 + settings.rank_tolerance(buffers):
            raise InputError(
                "strategy.scales",
                expected="values >= 0 of sum at most 1",
                got=f"a least of {scales.min():.6g} and a sum of {scales.sum():.6g}",
            )
        if decays.min() < 0 or decays.max() > 1:
            worst = decays.min() if decays.min() < 0 else decays.max()
            raise InputError("strategy.decays", expected="values in [0, 1]", got=f"{worst:.6g}")
        object.__setattr__(self, "scales", scales)
        object.__setattr__(self, "decays", decays)

    def strategy_column(self, horizon: int) -> Array:
        """First column of C, shape (T,)."""
        return _exponentials(self.scales, self.decays, _length(horizon))

    def noising_column(self, horizon: int) -> Array:
        """First column of C^-1, shape (T,)."""
        root = np.sqrt(self.scales)
        decays, basis = np.linalg.eigh(np.diag(self.decays) - np.outer(root, root))
        return _exponentials(-((basis.T @ root) ** 2), decays, _length(horizon))

    def vectors_kept(self, horizon: int) -> int:
        """m, whatever the horizon."""
        return len(self.scales)


def _length(horizon: int) -> int:
    return _checks.positive_int(horizon, field="horizon")


def _exponentials(scales: Array, decays: Array, horizon: int) -> Array:
    """1, then sum_i scales_i decays_i^(j - 1) for j = 1 .. T - 1."""
    column = np.ones(horizon)
    column[1:] = scales @ np.power.outer(decays, np.arange(horizon - 1))
    return column
