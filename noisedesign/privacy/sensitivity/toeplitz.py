"""Squared sensitivity of a lower triangular Toeplitz strategy, at any horizon, by its first column
c.

With c >= 0 the pattern 0, b, 2b, ... is the worst of fixed epochs, and of min-separation where c is
nonincreasing (Kalinin and Lampert 2024) or has at most b coefficients; else steps i < j have a
product of at most the largest correlation of |c|, cut to T - ib rows, over lags of (j - i) b and
more. Signs give an upper bound by |c|, or by the least nonincreasing vector above it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisedesign.base import power_series as series, settings
from noisedesign.base.checks import Array
from noisedesign.base.enclosures import products_up, up
from noisedesign.privacy.sensitivity import (
    ABS_SUM_UPPER_BOUND,
    AGREEMENT,
    EXACT,
    UPPER_BOUND,
    Sensitivity,
    squared_sensitivity as squared_sensitivity_of_gram,
)
from noisedesign.system.participation import Participation, every_step

DENSE_FLOATS = 1 << 24  # columns of a pattern with signs are written out up to here, 128 MB
CORRELATED_FLOATS = 1 << 28  # k T up to which correlations are taken, in seconds
DENSE_HORIZON = 1024  # longest horizon of signs that the general computation gets, for seconds


def squared_sensitivity(coefficients: Any, participation: Participation) -> Sensitivity:
    """Squared sensitivity of C, with first column c, to unit-norm vectors, rounded up."""
    horizon = participation.horizon
    c = series.resized(series.checked(coefficients, field="coefficients"), horizon)
    if participation.disjoint or participation.spaced:
        return _rounded_up(_of_scheme(c, participation), horizon)
    parts = [_of_pattern(c, np.array(steps)) for steps in participation.patterns]
    per_pattern = np.array([part.squared for part in parts])
    kind = parts[int(per_pattern.argmax())].kind
    return _rounded_up(Sensitivity(per_pattern=per_pattern, kind=kind), horizon)


def sensitivity_above(coefficients: Array, participation: Participation) -> float:
    """An upper bound of it with every rounding, by |C|; infinite where patterns go one by one."""
    if participation.random or not (participation.disjoint or participation.spaced):
        return float("inf")
    above, horizon = np.abs(coefficients), len(coefficients)
    if participation.spaced and above[participation.stride :].any():
        above = np.maximum.accumulate(above[::-1])[::-1]
    total = above.copy()
    for start in range(1, participation.largest_size):
        late = start * participation.stride
        total[late:] += above[: horizon - late]
    # ``up`` allows for two roundings each.
    total = up(total, participation.largest_size // 2)
    return products_up(total, total)


def _of_scheme(c: Array, participation: Participation) -> Sensitivity:
    count, stride = participation.largest_size, participation.stride
    above = np.abs(c)
    orthogonal = not c[stride:].any()
    if participation.spaced and count > 1 and not orthogonal:
        above = np.maximum.accumulate(above[::-1])[::-1]
    total = series.strided_sums(above, stride=stride, count=count)
    upper = float(total @ total)
    equal = series.strided_sums(c, stride=stride, count=count)
    attained = float(equal @ equal)
    if upper - attained <= AGREEMENT * upper:
        return Sensitivity(per_pattern=np.array([upper]), kind=EXACT)
    if participation.disjoint:
        return _of_pattern(c, np.arange(count) * stride)
    if count * len(c) <= CORRELATED_FLOATS:
        upper = min(upper, _correlation_bound(np.abs(c), count=count, stride=stride))
        if upper - attained <= AGREEMENT * upper:
            return Sensitivity(per_pattern=np.array([upper]), kind=EXACT)
    if len(c) <= DENSE_HORIZON:
        strategy = series.dense(c)
        found = squared_sensitivity_of_gram(strategy.T @ strategy, participation, ceiling=upper)
        return Sensitivity(per_pattern=np.array([found.squared]), kind=found.kind)
    return Sensitivity(per_pattern=np.array([upper]), kind=UPPER_BOUND)


def _correlation_bound(above: Array, *, count: int, stride: int) -> float:
    """sum over i, j of the largest correlation that steps i and j of a pattern can have."""
    total = 0.0
    for i in range(count):
        head = above[: len(above) - i * stride]
        correlations = series.correlate(head, head)
        heaviest = np.maximum.accumulate(correlations[::-1])[::-1]
        later = stride * np.arange(1, count - i)
        total += float(correlations[0] + 2 * heaviest[later].sum())
    return total


def _of_pattern(c: Array, steps: NDArray[np.intp]) -> Sensitivity:
    """The squared sensitivity of one pattern, from the columns it touches."""
    if c.min() < 0 and c.size * steps.size <= DENSE_FLOATS:
        columns = np.zeros((len(steps), len(c)))
        for column, s in zip(columns, steps, strict=True):
            column[s:] = c[: len(c) - s]
        return squared_sensitivity_of_gram(columns @ columns.T, every_step(len(steps)))
    total = np.zeros_like(c)
    for s in steps:
        total[s:] += np.abs(c[: len(c) - s])
    kind = EXACT if c.min() >= 0 or len(steps) == 1 else ABS_SUM_UPPER_BOUND
    return Sensitivity(per_pattern=np.array([float(total @ total)]), kind=kind)


def _rounded_up(found: Sensitivity, horizon: int) -> Sensitivity:
    """Sums of T terms may come out this much too small; a proof allows for twice that."""
    slack = 1 + 4 * settings.rank_tolerance(horizon)
    return Sensitivity(per_pattern=found.per_pattern * slack, kind=found.kind)
