"""Forms of C: maps from free numbers x to C >= 0 and its bins' Gram matrix, with their adjoints;
column t of C is of bin t modulo b, and m_j is the sum of the columns of bin j."""

from __future__ import annotations

import math

import numpy as np

from noisedesign.base import power_series as series
from noisedesign.base.banded_matrices import BandedError, dense
from noisedesign.base.checks import Array
from noisedesign.families.amplified.solver.variance import Variance
from noisedesign.families.toeplitz import solver as toeplitz
from noisedesign.forms import (
    BandedInverse,
    BandedStrategy,
    BufferedToeplitz,
    DenseStrategy,
    Strategy,
    ToeplitzStrategy,
)
from noisedesign.system.workloads.toeplitz import GramWorkload

DECAYS = (1.0, 0.9, 0.7, 0.0)
"""Powers that start a search: square roots of prefix sums times powers of them; 0 is C = I."""


def square_root(lags: int, decay: float) -> Array:
    """The first coefficients of the square root of prefix sums, times powers of ``decay``."""
    j = np.arange(1, lags)
    return np.cumprod(np.append(1.0, (2 * j - 1) / (2 * j) * decay))


class FreeBands:
    """Every entry of ``bands`` diagonals, by columns: x[t, d] = C[t + d, t]."""

    nonnegative = True  # of x

    def __init__(self, gram: Array, *, bins: int, bands: int, banded: bool) -> None:
        self.horizon, self.bins, self.bands, self.banded = len(gram), bins, bands, banded
        self.error = BandedError(gram, bands)
        self.inside = np.arange(self.horizon)[:, None] + np.arange(bands) < self.horizon

    @property
    def starts(self) -> list[Array]:
        columns = (np.where(self.inside, square_root(self.bands, d), 0.0) for d in DECAYS)
        return [c[self.inside] for c in columns]

    def _columns(self, x: Array) -> Array:
        columns = np.zeros(self.inside.shape)
        columns[self.inside] = x
        return columns

    def _means(self, columns: Array) -> Array:
        return np.asarray(dense(columns).reshape(self.horizon, -1, self.bins).sum(axis=1))

    def gram(self, x: Array) -> Array:
        """G, shape (b, b)."""
        means = self._means(self._columns(x))
        return means.T @ means

    def objective(self, x: Array, variance: Variance) -> tuple[float, Array]:
        """log tr(H (C^T C)^-1) + log sigma^2(G), and its gradient."""
        columns = self._columns(x)
        if columns[:, 0].min() <= 0:  # C is singular
            return math.inf, np.zeros_like(x)
        error, by_columns = self.error(columns)
        means = self._means(columns)
        log, by_gram = variance(means.T @ means)
        by_means = 2 * means @ by_gram
        gradient = by_columns / error
        for d in range(self.bands):
            steps = np.arange(self.horizon - d)
            gradient[: len(steps), d] += by_means[steps + d, steps % self.bins]
        return math.log(error) + log, gradient[self.inside]

    def strategy(self, x: Array) -> Strategy:
        columns = self._columns(x)
        if self.banded:
            return BandedStrategy(bands=columns.T)
        return DenseStrategy(strategy=dense(columns))


class Stationary:
    """Toeplitz C of a kind of first column, as :mod:`noisedesign.families.toeplitz` has them."""

    def __init__(
        self, gram: Array, *, bins: int, bands: int | None = None, buffers: int | None = None
    ) -> None:
        self.horizon, self.bins = len(gram), bins
        self.workload = GramWorkload(matrix=gram)
        self.bands, self.buffers = bands, buffers
        self.columns: toeplitz.Parameters
        self.nonnegative = False
        if buffers is not None:
            self.columns = toeplitz.Buffers(horizon=self.horizon)
        elif bands is not None:
            self.columns = toeplitz.NoisingShares(horizon=self.horizon)
        else:
            self.columns = toeplitz.Coefficients(bands=self.horizon, horizon=self.horizon)
            self.nonnegative = True

    @property
    def starts(self) -> list[Array]:
        if self.buffers is not None:
            return toeplitz.buffered_starts(self.buffers, memory=min(self.bins, self.horizon))
        if self.bands is not None:
            inverse = toeplitz.inverse_root(self.bands, power=-0.5)
            return [
                toeplitz.NoisingShares.start(
                    np.append(1.0, inverse[1:] * d ** np.arange(1, self.bands))
                )
                for d in DECAYS
                if d > 0
            ]
        return [square_root(self.horizon, d)[1:] for d in DECAYS]

    def _strategy_column(self, x: Array) -> Array:
        column = self.columns.column(x)
        return series.fast_reciprocal(column) if self.columns.is_noising else column

    def _means(self, column: Array) -> Array:
        """m_j is m_0 moved down by j."""
        total = series.strided_sums(column, stride=self.bins, count=self.horizon // self.bins)
        means = np.zeros((self.horizon, self.bins))
        for j in range(self.bins):
            means[j:, j] = total[: self.horizon - j]
        return means

    def gram(self, x: Array) -> Array:
        means = self._means(self._strategy_column(x))
        return means.T @ means

    def objective(self, x: Array, variance: Variance) -> tuple[float, Array]:
        given = self.columns.column(x)
        other = series.fast_reciprocal(given)
        strategy, noising = (other, given) if self.columns.is_noising else (given, other)
        error, of_noising = self.workload.error_and_gradient(noising)
        if not error > 0:
            return math.nan, np.zeros_like(x)
        means = self._means(strategy)
        log, by_gram = variance(means.T @ means)
        by_means = 2 * means @ by_gram
        by_total = np.zeros(self.horizon)
        for j in range(self.bins):
            by_total[: self.horizon - j] += by_means[j:, j]
        of_strategy = series.strided_sums_adjoint(
            by_total, stride=self.bins, count=self.horizon // self.bins
        )
        of_noising = of_noising / error
        of_given, of_other = (
            (of_noising, of_strategy) if self.columns.is_noising else (of_strategy, of_noising)
        )
        gradient = of_given - series.correlate(series.convolve(other, other), of_other)
        return math.log(error) + log, self.columns.pull_back(x, gradient)

    def strategy(self, x: Array) -> Strategy:
        if isinstance(self.columns, toeplitz.Buffers):
            scales, decays = self.columns.parameters(x)
            return BufferedToeplitz(scales=scales, decays=decays).at(self.horizon)
        column = self.columns.column(x)
        if self.columns.is_noising:
            return BandedInverse(coefficients=column[: self.bands]).at(self.horizon)
        return ToeplitzStrategy(coefficients=column).at(self.horizon)


Form = FreeBands | Stationary
"""Strategies of a kind, by free numbers x."""
