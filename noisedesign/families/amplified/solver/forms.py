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
    DenseStrategy,
    Strategy,
    ToeplitzStrategy,
)
from noisedesign.system.workloads.toeplitz import GramWorkload

DECAYS = (1.0, 0.9, 0.7, 0.0)  # square roots of prefix sums times their powers start; 0 is C = I


class FreeBands:
    """Every entry of ``bands`` diagonals, by columns: x[t, d] = C[t + d, t]."""

    nonnegative = True  # of x

    def __init__(self, gram: Array, *, bins: int, bands: int, banded: bool) -> None:
        self.horizon, self.bins, self.bands, self.banded = len(gram), bins, bands, banded
        self.error = BandedError(gram, bands)
        self.inside = np.arange(self.horizon)[:, None] + np.arange(bands) < self.horizon

    @property
    def starts(self) -> list[Array]:
        roots = (toeplitz.inverse_root(self.bands, power=0.5, decay=d) for d in DECAYS)
        return [np.broadcast_to(root, self.inside.shape)[self.inside] for root in roots]

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
        self.sums = {"stride": bins, "count": self.horizon // bins}
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
            powers = (d ** np.arange(self.bands) for d in DECAYS if d > 0)
            return [toeplitz.NoisingShares.start(inverse * fading) for fading in powers]
        return [toeplitz.inverse_root(self.horizon, power=0.5, decay=d)[1:] for d in DECAYS]

    def _means(self, column: Array) -> Array:
        """m_j is m_0 moved down by j."""
        total = series.strided_sums(column, **self.sums)
        means = np.zeros((self.horizon, self.bins))
        for j in range(self.bins):
            means[j:, j] = total[: self.horizon - j]
        return means

    def gram(self, x: Array) -> Array:
        column = self.columns.column(x)
        means = self._means(series.fast_reciprocal(column) if self.columns.is_noising else column)
        return means.T @ means

    def objective(self, x: Array, variance: Variance) -> tuple[float, Array]:
        def log_size(strategy: Array) -> tuple[float, Array]:
            means = self._means(strategy)
            log, by_gram = variance(means.T @ means)
            by_means = 2 * means @ by_gram
            by_total = np.zeros(self.horizon)
            for j in range(self.bins):
                by_total[: self.horizon - j] += by_means[j:, j]
            return log, series.strided_sums_adjoint(by_total, **self.sums)

        return toeplitz.log_objective(self.columns, self.workload, log_size)(x)

    def strategy(self, x: Array) -> Strategy:
        if isinstance(self.columns, toeplitz.Buffers):
            return self.columns.strategy(x).at(self.horizon)
        column = self.columns.column(x)
        if self.columns.is_noising:
            return BandedInverse(coefficients=column[: self.bands]).at(self.horizon)
        return ToeplitzStrategy(coefficients=column).at(self.horizon)


Form = FreeBands | Stationary  # strategies of a kind, by free numbers x
