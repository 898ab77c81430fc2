"""Learning rate and noise together: the loss of the last model as a function of the rate.

To second order around the minimum the expected excess loss after T steps is that of the start,
which steps forget, plus that of noise: sum_m count_m lambda_m / 2 r_m^2 d_m^2 + s^2 opt, with r_m
what is left of a distance after T steps without noise, s the standard deviation of unit noise in a
mean gradient and opt the certified optimum, both functions of the learning rate. By the envelope
theorem the derivative of opt is that of tr(H K) at its covariance K."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array, InputError
from noisedesign.base.shown import Shown
from noisedesign.design.design import Design
from noisedesign.design.solve import INTERRUPTED, solve
from noisedesign.families.family import family_of
from noisedesign.forms import Noise
from noisedesign.problem.calibration import calibrate
from noisedesign.problem.problem import Problem
from noisedesign.system.workloads import ErrorMeasure

GRID = 9  # rates tried before the best is refined; fewer may miss the best of two valleys
WIDEST = 1e3  # largest rate over the smallest that is tried by default
STEP = 1e-4  # relative change of the rate that derivatives are found by; its error is its square
NEAR = 1e-3  # relative distance of the rate from the best that nobody notices

ASSUMED = (
    "Assumes a loss that is quadratic with these curvatures over the whole run, gradients that are "
    "not clipped and not sampled, and a start of this distance from the minimum at every node."
)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Tuned(Shown):
    """A learning rate and the noise for it.

    Attributes:
        learning_rate: the best rate; of a schedule, the factor on it.
        loss: expected excess loss of the last model at it, in units of the loss.
        of_start: its part that steps have not forgotten.
        rates: those that were tried, ascending.
        losses: at these.
        problem: with the best rate, whose design is ``design``.
        design: the certified optimum at that rate.
        assumed: what the numbers rest on beside the certificate.

    Examples:
        >>> import noisedesign as nd
        >>> error = nd.ErrorMeasure(horizon=1, of="loss", curvature=[1.0])
        >>> problem = nd.TimeProblem.from_graph(
        ...     nd.build_graph("complete", nodes=2),
        ...     participation=nd.participation.single(1),
        ...     error=error,
        ...     privacy=nd.PrivacyTarget(epsilon=2.0),
        ... )
        >>> tuned = nd.tune_learning_rate(problem, start=1.0, batch_size=1000)
        >>> print(f"{tuned.learning_rate:.2f}")  # little noise: one step to the minimum
        1.00
    """

    learning_rate: float
    loss: float
    of_start: float
    rates: Array
    losses: Array
    problem: Problem
    design: Design
    assumed: str = ASSUMED

    def _facts(self) -> dict[str, object]:
        return {
            "learning rate": self.learning_rate,
            "loss": self.loss,
            "of the start": self.of_start,
            "assumed": self.assumed,
        }


def tune_learning_rate(
    problem: Problem,
    *,
    start: Any,
    batch_size: float = 1.0,
    between: tuple[float, float] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Tuned:
    """The learning rate of least expected loss of the last model, noise designed for every rate.

    Args:
        problem: with an error of="loss" or "loss-of-mean" and a privacy target. Learning rates that
            it states are multiplied by a factor, which is what is tuned.
        start: d^2, squared distance of the start from the minimum in one coordinate of each
            curvature, scalar or shape (m,), in squared units of the model.
        batch_size: what sums of clipped gradients, and the noise in them, are divided by.
        between: smallest and largest rate (or factor); default: the largest at which steps do not
            diverge, and a thousandth of it.
        progress: called with designs solved and how many the grid has.

    Returns:
        The rate, its loss and design, and the losses of all rates that were tried.

    Raises:
        InputError: naming the argument: another error, no target, no positive numbers.

    Examples:
        >>> import noisedesign as nd
        >>> error = nd.ErrorMeasure(horizon=8, of="loss", curvature=[0.1, 1.0])
        >>> problem = nd.TimeProblem.from_graph(
        ...     nd.build_graph("path", nodes=3),
        ...     participation=nd.participation.single(8),
        ...     error=error,
        ...     privacy=nd.PrivacyTarget(epsilon=2.0),
        ... )
        >>> tuned = nd.tune_learning_rate(problem, start=1.0, batch_size=64)
        >>> print(0.3 < tuned.learning_rate < 2.0, tuned.loss < 0.55)  # 0.55 at the start
        True True
    """
    error = getattr(problem, "error", None)
    if not isinstance(error, ErrorMeasure) or not error.of.startswith("loss"):
        expected = 'an error of = "loss" or "loss-of-mean", to tune a learning rate by'
        raise InputError("error.of", expected=expected, got="another")
    counts = error.curvatures.size
    distances = _checks.positive_vector(start, field="start", length=counts, each="curvature")
    scale = calibrate(problem).noise_stddev / _checks.scale(batch_size, field="batch_size")
    steepest = float(error.rates.max() * error.curvatures.max())
    low, high = _between(between, 2 * (1 + error.momentum) / steepest)
    known: dict[float, tuple[float, float, Design]] = {}

    def solved(rate: float) -> tuple[float, float, Design]:
        if rate not in known:
            found = solve(with_rate(problem, rate))
            if found.status == INTERRUPTED:
                raise KeyboardInterrupt
            assert found.design is not None
            of_start = _of_start(error, rate, distances)
            loss = of_start + scale**2 * found.design.objective
            known[rate] = loss, of_start, found.design
            if progress is not None:
                progress(min(len(known), GRID), GRID)
        return known[rate]

    def slope(rate: float) -> float:
        design = solved(rate)[2]
        ends = [
            _of_start(error, at, distances)
            + scale**2 * objective_of(with_rate(problem, at), design.noise)
            for at in (rate * (1 - STEP), rate * (1 + STEP))
        ]
        return (ends[1] - ends[0]) / (2 * STEP)

    grid = np.geomspace(low, high, GRID)
    best = int(np.argmin([solved(float(rate))[0] for rate in grid]))
    before, after = float(grid[max(best - 1, 0)]), float(grid[min(best + 1, GRID - 1)])
    if slope(before) < 0 < slope(after):
        from scipy.optimize import brentq

        solved(float(brentq(slope, before, after, xtol=NEAR * before)))
    rate = min(known, key=lambda rate: known[rate][0])
    loss, of_start, design = known[rate]
    rates = np.array(sorted(known))
    return Tuned(
        learning_rate=rate,
        loss=loss,
        of_start=of_start,
        rates=rates,
        losses=np.array([known[float(rate)][0] for rate in rates]),
        problem=with_rate(problem, rate),
        design=design,
    )


def with_rate(problem: Problem, rate: float) -> Problem:
    """The problem with its learning rates times a factor."""
    error = problem.error
    assert isinstance(error, ErrorMeasure)
    rates = 1.0 if error.learning_rates is None else error.learning_rates
    return problem.with_error(replace(error, learning_rates=np.multiply(rates, rate)))


def objective_of(problem: Problem, noise: Noise) -> float:
    """The objective of a noise, scaled to the budgets of a problem."""
    family = family_of(problem)
    return float(family.judge(family.program(problem), noise, {}, bound=0.0).objective)


def _between(between: tuple[float, float] | None, largest: float) -> tuple[float, float]:
    if between is None:
        high = largest * (1 - 2 * STEP)
        return high / WIDEST, high
    expected = f"two positive numbers, the second at most {largest:.6g}"
    if not isinstance(between, tuple | list) or len(between) != 2:
        raise InputError("between", expected=expected, got=_checks.describe(between))
    low, high = (_checks.scale(value, field="between") for value in between)
    if not low < high <= largest * (1 + 1e-12):
        raise InputError("between", expected=expected, got=f"{low:g} and {high:g}")
    return low, min(high, largest * (1 - 2 * STEP))


def _of_start(error: ErrorMeasure, rate: float, distances: Array) -> float:
    """Excess loss that T steps without noise have left of the start's."""
    left = np.ones(error.curvatures.size)
    velocity = np.zeros_like(left)
    for step in error.rates * rate:
        velocity = error.momentum * velocity + error.curvatures * left
        left = left - step * velocity
    weights = np.zeros_like(left)
    counts = error.curvature_weights
    weights[:] = error.curvatures / 2 * (1.0 if counts is None else counts)
    return float(weights @ (left**2 * distances))
