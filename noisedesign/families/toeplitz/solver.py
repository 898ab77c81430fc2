"""Optimised Toeplitz strategies: error times sensitivity, minimised over one kind of columns.

Each answer is a local optimum *of its kind*, from a start that is known to be good, and carries a
lower bound of the unrestricted optimum. Columns of C or C^-1 are smooth maps of unconstrained
numbers x, each with its adjoint; where coefficients >= 0 make sensitivity exact, that holds for
every x.

An evaluation takes O(T log T) for the reciprocal and its adjoint, and O(n T) for sums of n poles or
O(T^2) for a Gram matrix. Buffers for sums of poles take O(n log T) (:mod:`.buffered`), p bands of
an inverse O(n p) and O(p T) (:mod:`.banded_inverse`). With d = 1 / c as power series and g the
gradient of the error in d, the gradient in c is -(d * d) correlated with g."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.optimize
import scipy.special

from noisedesign.base import checks as _checks, power_series as series, settings
from noisedesign.base.checks import Array, InputError
from noisedesign.base.monitor import Monitor, Stop
from noisedesign.families.toeplitz import banded_inverse, buffered
from noisedesign.families.toeplitz.bound import lower_bound_of_unrestricted_optimum, same_horizon
from noisedesign.families.toeplitz.program import ToeplitzProgram
from noisedesign.families.toeplitz.signed import (
    SHARPNESS,
    Turning,
    log_sensitivity as log_sensitivity_of_signs,
)
from noisedesign.families.toeplitz.streaming import StreamingDesign
from noisedesign.forms import (
    BandedInverse,
    BufferedToeplitz,
    SignedBuffers,
    StationaryStrategy,
    ToeplitzStrategy,
)
from noisedesign.system.participation import FixedEpoch, Participation, require_fixed_epoch
from noisedesign.system.workloads.toeplitz import GramWorkload, PoleWorkload, Workload

ENDED = (Stop.TIME_LIMIT, Stop.INTERRUPTED)
SHORTEST = 4
"""Least T for which fewer buffers stand for all coefficients."""


def optimize_toeplitz(
    *,
    workload: Workload,
    participation: Participation,
    bands: int | None = None,
    signed: bool = False,
    monitor: Monitor | None = None,
) -> StreamingDesign:
    """The best C of ``bands`` Toeplitz coefficients.

    Coefficients may have any sign where that leaves sensitivity exact: single participation, and
    bands of at most the separation. Otherwise they are kept >= 0 (fixed epochs) unless they are
    ``signed``.

    Args:
        workload, participation: of horizon T.
        bands: 1 to T. By default T, or the separation b under min-separation with more than one
            participation, where more than b coefficients are refused: in all instances tried, the
            best nonincreasing coefficients vanish from lag b on.
        signed: whether coefficients may have any sign, under (k, b) participation.
        monitor: limits the time and records progress.

    Returns:
        The best that the search found, which may be a local optimum.

    Raises:
        InputError: horizons that differ, bands out of range, or signs under another participation.

    Examples:
        Prefix sums of two steps, c_0 = 1 and c_1 = c: the error 1 + (1 - c)^2 + 1 times the
        sensitivity 1 + c^2 is least at the root of 2 c^3 - 3 c^2 + 4 c - 1. Independent noise,
        c = 0, has 3.

        >>> import noisedesign as nd
        >>> from noisedesign.families.toeplitz.solver import optimize_toeplitz
        >>> from noisedesign.system.workloads.toeplitz import prefix_workload
        >>> workload = prefix_workload(horizon=2)
        >>> design = optimize_toeplitz(workload=workload, participation=nd.participation.single(2))
        >>> c = design.strategy.coefficients[1]
        >>> bool(abs(2 * c**3 - 3 * c**2 + 4 * c - 1) < 1e-4)
        True
        >>> print(f"{design.objective:.4f}, {(2 + (1 - c) ** 2) * (1 + c**2):.4f}")
        2.7140, 2.7140
    """
    horizon = same_horizon(workload, participation)
    count, stride = participation.largest_size, participation.stride
    if signed:
        _require_signs(participation)
    most = horizon
    if not participation.disjoint and count > 1:
        most = min(horizon, stride)
    bands = _checked_bands(most if bands is None else bands, most=most)
    family = Coefficients(bands=bands, horizon=horizon)
    objective = log_objective(family, workload, log_sensitivity(participation))

    def strategy_at(x: Array) -> ToeplitzStrategy:
        return ToeplitzStrategy(coefficients=family.column(x)[:bands])

    starts, of = [inverse_root(bands, power=0.5)[1:]], (workload, participation, monitor)
    kept = count > 1 and bands > stride
    design = _searched(objective, starts, strategy_at, *of, nonnegative=kept)
    if not (signed and kept):
        return design
    start = design.strategy.strategy_column(bands)[1:]
    return _descended(design, family, start, strategy_at, monitor)


def optimize_banded_inverse(
    *, workload: Workload, participation: Participation, bands: int, monitor: Monitor | None = None
) -> StreamingDesign:
    """The best C^-1 of ``bands`` Toeplitz coefficients.

    Those after the first are nonpositive and of sum above -1, which makes C nonnegative and C^-1
    stable.

    Under min-separation the search, and the progress it reports, takes steps 0, b, 2b, ... for the
    worst pattern; the answer's own sensitivity then confirms that or is the bound it says. In all
    instances tried it was exact.

    Args:
        workload, participation: of horizon T.
        bands: 1 to T.
        monitor: limits the time and records progress.

    Returns:
        The best that the search found, which may be a local optimum.

    Raises:
        InputError: horizons that differ, or bands out of range.

    Examples:
        Of two steps every Toeplitz C has an inverse of two bands.

        >>> import noisedesign as nd
        >>> from noisedesign.families.toeplitz import solver
        >>> from noisedesign.system.workloads.toeplitz import prefix_workload
        >>> once = nd.participation.single(2)
        >>> asked = {"workload": prefix_workload(horizon=2), "participation": once}
        >>> banded = solver.optimize_banded_inverse(bands=2, **asked)
        >>> print(f"{banded.objective:.4f}, {solver.optimize_toeplitz(**asked).objective:.4f}")
        2.7140, 2.7140
    """
    horizon = same_horizon(workload, participation)
    bands = _checked_bands(bands, most=horizon)
    family = NoisingShares(horizon=horizon)
    if isinstance(workload, PoleWorkload):
        objective = log_objective_of_banded_inverse(workload, participation, bands=bands)
    else:
        objective = log_objective(family, workload, log_sensitivity(participation))

    def strategy_at(x: Array) -> BandedInverse:
        return BandedInverse(coefficients=family.column(x)[:bands])

    starts = [family.start(inverse_root(bands, power=-0.5))]
    return _searched(objective, starts, strategy_at, workload, participation, monitor)


def optimize_buffered(
    *,
    workload: Workload,
    participation: Participation,
    buffers: int,
    signed: bool = False,
    monitor: Monitor | None = None,
) -> StreamingDesign:
    """The best buffered linear Toeplitz strategy.

    Buffers whose decays coincide in the answer act as one: fewer would do.

    Args:
        workload, participation: of horizon T.
        buffers: m >= 1.
        signed: whether they may have any sign, and oscillate in pairs, under (k, b) participation.
        monitor: limits the time and records progress.

    Returns:
        The best that the search found, which may be a local optimum.

    Raises:
        InputError: horizons that differ, buffers < 1, or signs under another participation.

    Examples:
        Two buffers, four numbers, do nearly what a hundred coefficients do.

        >>> import noisedesign as nd
        >>> from noisedesign.families.toeplitz import solver
        >>> from noisedesign.system.workloads.toeplitz import prefix_workload
        >>> once = nd.participation.single(100)
        >>> asked = {"workload": prefix_workload(horizon=100), "participation": once}
        >>> buffered = solver.optimize_buffered(buffers=2, **asked)
        >>> 1 < buffered.objective / solver.optimize_toeplitz(**asked).objective < 1.01
        True

        In several epochs positive ones do not suffice: lags of a multiple of b are expensive.

        >>> asked["participation"] = nd.participation.FixedEpoch(epochs=5, separation=20)
        >>> positive = solver.optimize_buffered(buffers=4, **asked)
        >>> signed = solver.optimize_buffered(buffers=4, signed=True, **asked)
        >>> print(f"{signed.objective / positive.objective:.2f}")
        0.93
    """
    horizon = same_horizon(workload, participation)
    buffers = _checks.positive_int(buffers, field="buffers")
    family = Buffers(horizon=horizon)
    if isinstance(workload, PoleWorkload):
        objective = log_objective_of_buffers(workload, participation)
    else:
        objective = log_objective(family, workload, log_sensitivity(participation))
    if signed:
        _require_signs(participation)
    starts = buffered_starts(buffers, memory=min(participation.stride, horizon))
    design = _searched(objective, starts, family.strategy, workload, participation, monitor)
    if not signed:
        return design
    positive, zeros = design.strategy, np.zeros(buffers)
    assert isinstance(positive, BufferedToeplitz)
    alike = SignedBuffers(scales=positive.scales, decays=positive.decays, turns=zeros)
    design = replace(design, strategy=alike)
    if horizon < SHORTEST:
        return design
    for any_sign in (False, True):
        whole = optimize_toeplitz(
            workload=workload, participation=participation, signed=any_sign, monitor=monitor
        )
        column = whole.strategy.strategy_column(horizon)
        design = replace(design, evaluations=design.evaluations + whole.evaluations)
        if whole.stop in ENDED:
            return replace(design, stop=whole.stop)
        try:
            turning, start = Turning.reduced(column, buffers=buffers)
        except np.linalg.LinAlgError:  # fewer buffers are all that there is
            continue
        design = _descended(design, turning, start, turning.strategy, monitor)
    return design


def solve(program: ToeplitzProgram, *, monitor: Monitor) -> StreamingDesign:
    """The best strategy of the structure of a program."""
    structure, workload = program.structure, GramWorkload(matrix=program.gram)
    given: dict[str, Any] = {"participation": program.participation, "monitor": monitor}
    given["signed"] = structure.kind.startswith("signed")
    if structure.kind.endswith("toeplitz"):
        return optimize_toeplitz(workload=workload, **given)
    if structure.kind == "banded-inverse":
        assert structure.bands is not None
        del given["signed"]
        return optimize_banded_inverse(workload=workload, bands=structure.bands, **given)
    assert structure.buffers is not None
    return optimize_buffered(workload=workload, buffers=structure.buffers, **given)


def log_objective(family: Parameters, workload: Workload, log_size: Objective) -> Objective:
    """x -> log(squared error) + ``log_size`` of the first column of C, and its gradient."""

    def objective(x: Array) -> tuple[float, Array]:
        given = family.column(x)
        other = series.fast_reciprocal(given)
        strategy, noising = (other, given) if family.is_noising else (given, other)
        error, of_noising = workload.error_and_gradient(noising)
        if not error > 0:
            return math.nan, np.zeros_like(x)
        log, of_strategy = log_size(strategy)
        of_given, of_other = of_strategy, of_noising / error
        if family.is_noising:
            of_given, of_other = of_other, of_given
        gradient = of_given - series.correlate(series.convolve(other, other), of_other)
        return math.log(error) + log, family.pull_back(x, gradient)

    return objective


def log_sensitivity(participation: Participation) -> Objective:
    """The logarithm of the squared norm of the sum of the columns 0, b, 2b, ..., by the first."""
    by = {"stride": participation.stride, "count": participation.largest_size}

    def log_size(strategy: Array) -> tuple[float, Array]:
        total = series.strided_sums(strategy, **by)
        squared = float(total @ total)
        return math.log(squared), series.strided_sums_adjoint(2 * total, **by) / squared

    return log_size


def log_objective_of_buffers(workload: PoleWorkload, participation: Participation) -> Objective:
    """:func:`log_objective` of :class:`Buffers`, without their columns."""

    def objective(x: Array) -> tuple[float, Array]:
        scales, logits = shares(x[: len(x) // 2]), x[len(x) // 2 :]
        losses, logs = buffered.losses_and_logs(logits)
        error, *of_error = buffered.error_and_gradient(workload, scales, losses)
        squared, *of_squared = buffered.sensitivity_and_gradient(scales, logs, participation)
        if not (error > 0 and squared < math.inf):
            return math.nan, np.zeros_like(x)
        of_scales = of_error[0] / error + of_squared[0] / squared
        of_logits = losses * (of_squared[1] / squared - (1 - losses) * of_error[1] / error)
        gradient = np.concatenate([shares_pull_back(scales, of_scales), of_logits])
        return math.log(error) + math.log(squared), gradient

    return objective


def log_objective_of_banded_inverse(
    workload: PoleWorkload, participation: Participation, *, bands: int
) -> Objective:
    """:func:`log_objective` of :class:`NoisingShares`, from what ``bands`` entries have to say."""
    error_of = banded_inverse.error_and_gradient(workload, bands=bands)
    squared_of = banded_inverse.sensitivity_and_gradient(participation)

    def objective(x: Array) -> tuple[float, Array]:
        q = shares(x)
        noising = np.concatenate([[1.0], -q])
        error, of_error = error_of(noising)
        squared, of_squared = squared_of(noising)
        if not (error > 0 and squared < math.inf):
            return math.nan, np.zeros_like(x)
        gradient = of_error / error + of_squared / squared
        return math.log(error) + math.log(squared), shares_pull_back(q, -gradient[1:])

    return objective


def _searched(
    objective: Objective,
    starts: list[Array],
    strategy_at: Callable[[Array], StationaryStrategy],
    workload: Workload,
    participation: Participation,
    monitor: Monitor | None,
    *,
    nonnegative: bool = False,
) -> StreamingDesign:
    """The best of one search a start, its worth computed from the strategy itself."""
    monitor = Monitor(gap=settings.DEFAULT_GAP) if monitor is None else monitor
    lower = lower_bound_of_unrestricted_optimum(workload, participation)
    searches: list[Found] = []
    for start in starts:
        searches.append(
            minimized(objective, start, monitor=monitor, lower=lower, nonnegative=nonnegative)
        )
        if (last := searches[-1].stop) in ENDED:
            break
    best = min(searches, key=lambda found: found.value)
    return StreamingDesign(
        horizon=workload.horizon,
        workload=workload,
        participation=participation,
        lower_bound_of_unrestricted_optimum=lower,
        stop=last if last in ENDED else best.stop,
        evaluations=sum(found.evaluations for found in searches),
        **_facts(strategy_at(best.x), workload, participation),
    )


def _facts(
    strategy: StationaryStrategy, workload: Workload, participation: Participation
) -> dict[str, Any]:
    """A strategy and its worth, computed from itself."""
    sensitivity = strategy.squared_sensitivity(participation)
    return {
        "strategy": strategy,
        "squared_error": strategy.squared_error(workload),
        "squared_sensitivity": sensitivity.squared,
        "sensitivity_kind": sensitivity.kind,
    }


def _descended(
    design: StreamingDesign,
    family: Parameters,
    start: Array,
    strategy_at: Callable[[Array], StationaryStrategy],
    monitor: Monitor | None,
) -> StreamingDesign:
    """The better of a design and of what is reached from ``start`` with signs counted."""
    monitor = Monitor(gap=settings.DEFAULT_GAP) if monitor is None else monitor
    workload, lower = design.workload, design.lower_bound_of_unrestricted_optimum
    participation = _require_signs(design.participation)
    for sharpness in SHARPNESS:
        size = log_sensitivity_of_signs(participation, sharpness=sharpness)
        objective = log_objective(family, workload, size)
        found = minimized(objective, start, monitor=monitor, lower=lower, nonnegative=False)
        start = found.x
        design = replace(design, evaluations=design.evaluations + found.evaluations)
        if found.stop in ENDED:
            break
    try:
        other = replace(design, **_facts(strategy_at(start), workload, participation))
    except InputError:  # the noise would grow for ever
        return design
    return replace(min(design, other, key=lambda each: each.objective), stop=found.stop)


def _require_signs(participation: Participation) -> FixedEpoch:
    """The scheme, once one pattern decides the sensitivity of coefficients of any sign."""
    expected = "(k, b) participation, for coefficients or buffers of any sign"
    return require_fixed_epoch(participation, expected=expected)


def inverse_root(count: int, *, power: float, decay: float = 1.0) -> Array:
    """Coefficients of (1 - x)^(-power) times powers of ``decay``: for 1/2 the square root of prefix
    sums, binom(2j, j) / 4^j (Fichtenberger, Henzinger and Upadhyay 2023), for -1/2 its inverse."""
    lags = np.arange(1, count)
    return np.concatenate([[1.0], np.cumprod((lags - 1 + power) / lags * decay)])


def buffered_starts(buffers: int, *, memory: int) -> list[Array]:
    """Two x of :class:`Buffers`, decays geometric between no memory and that of ``memory`` steps:
    each alone now and then ends, up to 1 per cent worse, where two buffers coincide; together they
    have not been seen to."""
    slowest = 1 / (memory + 1)
    losses = [np.geomspace(1.0, slowest, buffers + 2)[1:-1]]
    if buffers > 1:  # c_1 is nearly free of the rest with a buffer that forgets nearly all at once
        losses.append(np.geomspace(0.98, slowest, buffers))
    # A sum of exponentials that follows j^(-1/2) weighs a loss by its square root; c_1 = 1/2 is
    # that of the square root of prefix sums.
    return [Buffers.start(0.5 * np.sqrt(each) / np.sqrt(each).sum(), each) for each in losses]


def _checked_bands(bands: int, *, most: int) -> int:
    bands = _checks.positive_int(bands, field="bands")
    if bands > most:
        raise InputError("bands", expected=f"at most {most}", got=str(bands))
    return bands


@dataclass(frozen=True, kw_only=True)
class Coefficients:
    """C with free coefficients c_1, ..., c_{p-1}: x itself."""

    bands: int
    horizon: int
    is_noising = False

    def column(self, x: Array) -> Array:
        return series.resized(np.concatenate([[1.0], x]), self.horizon)

    def pull_back(self, x: Array, gradient: Array) -> Array:
        return gradient[1 : self.bands]


@dataclass(frozen=True, kw_only=True)
class NoisingShares:
    """C^-1 with d_i = -q_i, q shares of a whole, softmax of x and one more zero: so c = 1 + q * c
    >= 0."""

    horizon: int
    is_noising = True

    def column(self, x: Array) -> Array:
        return series.resized(np.concatenate([[1.0], -shares(x)]), self.horizon)

    def pull_back(self, x: Array, gradient: Array) -> Array:
        return shares_pull_back(shares(x), -gradient[1 : len(x) + 1])

    @staticmethod
    def start(column: Array) -> Array:
        """x of a column with d_0 = 1 > sum of the -d_i > 0."""
        return np.asarray(np.log(-column[1:]) - np.log(column.sum()))


@dataclass(frozen=True, kw_only=True)
class Buffers:
    """C of m decaying exponentials: scales are shares of a whole (first half of x), decays are
    logistic functions of the second half. C is nonnegative and nonincreasing."""

    horizon: int
    is_noising = False

    def strategy(self, x: Array) -> BufferedToeplitz:
        """C, whose diagonal is 1."""
        scales, decays = shares(x[: len(x) // 2]), scipy.special.expit(x[len(x) // 2 :])
        return BufferedToeplitz(scales=scales, decays=decays)

    def column(self, x: Array) -> Array:
        return np.concatenate([[1.0], shares(x[: len(x) // 2]) @ self._powers(x)])

    def pull_back(self, x: Array, gradient: Array) -> Array:
        scales = shares(x[: len(x) // 2])
        powers, tail = self._powers(x), gradient[1:]
        losses = scipy.special.expit(-x[len(scales) :])
        of_scales = powers @ tail
        of_logits = scales * losses * (powers @ (np.arange(self.horizon - 1) * tail))
        return np.concatenate([shares_pull_back(scales, of_scales), of_logits])

    def _powers(self, x: Array) -> Array:
        # log theta = -log(1 + exp(-x)) keeps the digits of 1 - theta.
        logs = -np.logaddexp(0.0, -x[len(x) // 2 :])
        return np.asarray(np.exp(np.multiply.outer(logs, np.arange(self.horizon - 1))))

    @staticmethod
    def start(scales: Array, losses: Array) -> Array:
        """x of scales > 0 of sum below 1 and decays 1 - losses."""
        return np.concatenate(
            [np.log(scales) - np.log1p(-scales.sum()), np.log1p(-losses) - np.log(losses)]
        )


Parameters = Coefficients | NoisingShares | Buffers | Turning
"""First columns, shape (T,), the first entry 1, that depend smoothly on x, and the adjoint
``pull_back`` of the derivative: columns of C^-1 where they are ``is_noising``, else of C."""


def shares(x: Array) -> Array:
    """exp(x_i) / (1 + sum exp(x)): positive, of sum below 1."""
    largest = max(0.0, float(x.max(initial=0.0)))
    weights = np.exp(x - largest)
    return np.asarray(weights / (np.exp(-largest) + weights.sum()))


def shares_pull_back(q: Array, gradient: Array) -> Array:
    """Adjoint of the derivative of :func:`shares` where its value is ``q``."""
    return q * (gradient - q @ gradient)


Objective = Callable[[Array], tuple[float, Array]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Found:
    """The best point, the logarithm of the objective there, and how the search ended."""

    x: Array
    value: float
    stop: Stop
    evaluations: int


def minimized(
    objective: Objective,
    start: Array,
    *,
    monitor: Monitor,
    lower: float,
    nonnegative: bool,
    flat: float = 1e-13,  # the last digits
    most: int = 3000,  # six times what the slowest family takes
) -> Found:
    """The best point of L-BFGS on the log of an objective, until that changes by ``flat``."""
    best_x, best, evaluations = start, math.inf, 0

    def evaluate(x: Array) -> tuple[float, Array]:
        nonlocal best_x, best, evaluations
        if evaluations and monitor.expired:
            raise TimeoutError  # the way out of the minimiser
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            value, gradient = objective(x)
        evaluations += 1
        if not (math.isfinite(value) and np.isfinite(gradient).all()):
            # A column overflows: the line search steps back as from a wall.
            return (best if math.isfinite(best) else 0.0) + 10.0, np.zeros_like(x)
        if value < best:
            best_x, best = np.array(x), value
        return value, gradient

    def report(xk: Array) -> None:
        monitor.report(lower=lower, upper=math.exp(best))

    # Ten pairs are enough for prefix sums; strategies with few coefficients, whose scales differ
    # most, take half as many steps with thirty.
    options: Any = {"maxcor": 30, "ftol": flat, "gtol": 1e-10, "maxfun": most, "maxiter": most}
    bounds = [(0, None)] * len(start) if nonnegative else None
    if not len(start):
        return Found(x=start, value=evaluate(start)[0], stop=Stop.SOLVED, evaluations=1)
    try:
        result = scipy.optimize.minimize(
            evaluate,
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            callback=report,
            options=options,
        )
    except TimeoutError:
        stop = Stop.TIME_LIMIT
    except KeyboardInterrupt:
        stop = Stop.INTERRUPTED
    else:
        stop = Stop.SOLVED if result.success else Stop.INACCURATE
    return Found(x=best_x, value=best, stop=stop, evaluations=evaluations)
