"""Optimised Toeplitz strategies: error times sensitivity, minimised over one family.

The objective is total squared error times squared sensitivity, which no scaling of C changes. It
is smooth but not convex, so each answer is a local optimum *of its family*, found from a start
that is known to be good, and there is no certificate that no better member exists. What is
certified is how far it can be from the best strategy of any kind: every answer carries a lower
bound of the unrestricted optimum.

An evaluation takes O(T log T) for the reciprocal and its adjoint, and what the workload takes:
O(n T) for sums of n poles, O(T^2) for a Gram matrix. With d = 1 / c as power series and g the
gradient of the error in d, the gradient in c is -(d * d) correlated with g.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base import power_series as series
from noisedesign.base import settings
from noisedesign.base.checks import Array, InputError
from noisedesign.base.monitor import Monitor, Stop
from noisedesign.families.toeplitz import families
from noisedesign.families.toeplitz.bounds import lower_bound_of_unrestricted_optimum, same_horizon
from noisedesign.families.toeplitz.search import Found, Objective, minimized
from noisedesign.program.noise import (
    BandedInverse,
    BufferedToeplitz,
    StationaryStrategy,
    ToeplitzStrategy,
)
from noisedesign.program.streaming import StreamingDesign
from noisedesign.system.participation import Participation
from noisedesign.system.workloads.toeplitz import Workload

FASTEST_LOSS = 0.98
"""Loss 1 - theta of the fastest buffer in the second start: c_1 is then nearly free of the rest."""


def optimize_toeplitz(
    *,
    workload: Workload,
    participation: Participation,
    bands: int | None = None,
    monitor: Monitor | None = None,
) -> StreamingDesign:
    """The best C of ``bands`` Toeplitz coefficients.

    Coefficients may have any sign where that leaves sensitivity exact: single participation, and
    bands of at most the separation. Otherwise they are kept >= 0 (fixed epochs).

    Args:
        workload: of horizon T.
        participation: of horizon T.
        bands: 1 to T. By default T, or the separation b under min-separation with more than one
            participation, where more than b coefficients are refused: in all instances tried, the
            best nonincreasing coefficients vanish from lag b on.
        monitor: limits the time and records progress.

    Raises:
        InputError: horizons that differ, or bands out of range.
    """
    horizon = same_horizon(workload, participation)
    count, stride = participation.largest_size, participation.stride
    most = horizon
    if not participation.disjoint and count > 1:
        most = min(horizon, stride)
    bands = _in_range(most if bands is None else bands, field="bands", most=most)
    family = families.Coefficients(bands=bands, horizon=horizon)
    return _optimized(
        family,
        [_inverse_root(bands, power=0.5)[1:]],
        lambda x: ToeplitzStrategy(coefficients=family.column(x)[:bands]),
        workload=workload,
        participation=participation,
        monitor=monitor,
        nonnegative=count > 1 and bands > stride,
    )


def optimize_banded_inverse(
    *, workload: Workload, participation: Participation, bands: int, monitor: Monitor | None = None
) -> StreamingDesign:
    """The best C^-1 of ``bands`` Toeplitz coefficients, those after the first nonpositive and of
    sum above -1, which makes C nonnegative and C^-1 stable.

    Under min-separation the search, and the progress it reports, takes steps 0, b, 2b, ... for the
    worst pattern; the answer's own sensitivity then confirms that or is the bound it says. In all
    instances tried it was exact.

    Args:
        workload: of horizon T.
        participation: of horizon T.
        bands: 1 to T.
        monitor: limits the time and records progress.

    Raises:
        InputError: horizons that differ, or bands out of range.
    """
    horizon = same_horizon(workload, participation)
    bands = _in_range(bands, field="bands", most=horizon)
    start = _inverse_root(bands, power=-0.5)
    family = families.NoisingShares(horizon=horizon)
    return _optimized(
        family,
        [family.start(start)],
        lambda x: BandedInverse(coefficients=family.column(x)[:bands]),
        workload=workload,
        participation=participation,
        monitor=monitor,
    )


def optimize_buffered(
    *,
    workload: Workload,
    participation: Participation,
    buffers: int,
    monitor: Monitor | None = None,
) -> StreamingDesign:
    """The best buffered linear Toeplitz strategy with ``buffers`` buffers.

    Buffers whose decays coincide in the answer act as one: fewer would do.

    Args:
        workload: of horizon T.
        participation: of horizon T.
        buffers: m >= 1.
        monitor: limits the time and records progress.

    Raises:
        InputError: horizons that differ, or buffers < 1.
    """
    horizon = same_horizon(workload, participation)
    buffers = _checks.positive_int(buffers, field="buffers")
    family = families.Buffers(horizon=horizon)
    stride = participation.stride
    starts = [
        _buffers_start(losses) for losses in _starting_losses(buffers, memory=min(stride, horizon))
    ]

    def strategy_at(x: Array) -> BufferedToeplitz:
        scales, decays = family.parameters(x)
        return BufferedToeplitz(scales=scales, decays=decays)

    return _optimized(
        family, starts, strategy_at, workload=workload, participation=participation, monitor=monitor
    )


# --- the objective --------------------------------------------------------------------------------


def log_objective(
    family: families.Family, workload: Workload, participation: Participation
) -> Objective:
    """x -> log(squared error) + log(squared sensitivity), and its gradient.

    Sensitivity is the squared norm of the sum of the columns 0, b, 2b, ....
    """
    count, stride = participation.largest_size, participation.stride

    def objective(x: Array) -> tuple[float, Array]:
        given = family.column(x)
        other = series.fast_reciprocal(given)
        strategy, noising = (other, given) if family.is_noising else (given, other)
        error, of_noising = workload.error_and_gradient(noising)
        total = series.strided_sums(strategy, stride=stride, count=count)
        squared = float(total @ total)
        of_strategy = series.strided_sums_adjoint(2 * total, stride=stride, count=count)
        if not (error > 0 and squared < math.inf):
            return math.nan, np.zeros_like(x)
        of_noising, of_strategy = of_noising / error, of_strategy / squared
        of_given, of_other = (
            (of_noising, of_strategy) if family.is_noising else (of_strategy, of_noising)
        )
        gradient = of_given - series.correlate(series.convolve(other, other), of_other)
        return math.log(error) + math.log(squared), family.pull_back(x, gradient)

    return objective


def _optimized(
    family: families.Family,
    starts: list[Array],
    strategy_at: Callable[[Array], StationaryStrategy],
    *,
    workload: Workload,
    participation: Participation,
    monitor: Monitor | None,
    nonnegative: bool = False,
) -> StreamingDesign:
    """The best of one search a start; what its strategy is worth is computed from the strategy
    itself, nothing is taken over from the search."""
    monitor = Monitor(gap=settings.DEFAULT_GAP) if monitor is None else monitor
    lower = lower_bound_of_unrestricted_optimum(workload, participation)
    objective = log_objective(family, workload, participation)
    searches: list[Found] = []
    for start in starts:
        searches.append(
            minimized(objective, start, monitor=monitor, lower=lower, nonnegative=nonnegative)
        )
        if searches[-1].stop in (Stop.TIME_LIMIT, Stop.INTERRUPTED):
            break
    best = min(searches, key=lambda found: found.value)
    last = searches[-1].stop
    strategy = strategy_at(best.x)
    sensitivity = strategy.squared_sensitivity(participation)
    return StreamingDesign(
        strategy=strategy,
        horizon=workload.horizon,
        workload=workload,
        participation=participation,
        squared_error=strategy.squared_error(workload),
        squared_sensitivity=sensitivity.squared,
        sensitivity_kind=sensitivity.kind,
        lower_bound_of_unrestricted_optimum=lower,
        stop=last if last in (Stop.TIME_LIMIT, Stop.INTERRUPTED) else best.stop,
        evaluations=sum(found.evaluations for found in searches),
    )


def _inverse_root(count: int, *, power: float) -> Array:
    """Coefficients of (1 - x)^(-power): for 1/2 the square root of prefix sums, binom(2j, j) / 4^j
    (Fichtenberger, Henzinger and Upadhyay 2023), for -1/2 its inverse."""
    lags = np.arange(1, count)
    return np.concatenate([[1.0], np.cumprod((lags - 1 + power) / lags)])


def _starting_losses(buffers: int, *, memory: int) -> list[Array]:
    """Losses 1 - theta of two starts, geometric between no memory and that of ``memory`` steps.

    Each start alone now and then ends, up to 1 per cent worse, where two buffers coincide: a
    stationary point of every larger number of buffers. Together they have not been seen to.
    """
    slowest = 1 / (memory + 1)
    inside = np.geomspace(1.0, slowest, buffers + 2)[1:-1]
    return [inside] if buffers == 1 else [inside, np.geomspace(FASTEST_LOSS, slowest, buffers)]


def _buffers_start(losses: Array) -> Array:
    """A sum of exponentials that follows j^(-1/2) weighs a loss by its square root; c_1 = 1/2 is
    that of the square root of prefix sums."""
    scales = np.sqrt(losses)
    return families.Buffers.start(0.5 * scales / scales.sum(), losses)


def _in_range(value: int, *, field: str, most: int) -> int:
    value = _checks.positive_int(value, field=field)
    if value > most:
        raise InputError(field, expected=f"at most {most}", got=str(value))
    return value
