"""A smooth search that keeps the best point it has seen and can be stopped at any time."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.optimize

from noisedesign.base.checks import Array
from noisedesign.base.monitor import Monitor, Stop

MEMORY = 30
"""Pairs that L-BFGS keeps. Ten are enough for prefix sums; strategies with few coefficients, whose
scales differ most, take half as many steps with thirty."""

MAX_EVALUATIONS = 3000
"""A hundred times what a Toeplitz search takes, six times what the slowest family takes."""

FLAT = 1e-13
"""Relative change of the logarithm of the objective below which a search ends: its last digits."""

STATIONARY = 1e-10
"""Largest component of the gradient of the logarithm of the objective at which a search ends."""

REJECTED = 10.0
"""How much worse than the best a point is called whose column overflows, on the logarithmic scale:
a line search steps back from it as from a wall."""

Objective = Callable[[Array], tuple[float, Array]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Found:
    """The best point, the logarithm of the objective there, and how the search ended."""

    x: Array
    value: float
    stop: Stop
    evaluations: int


class _Expired(Exception):  # noqa: N818 - not an error: the way out of the minimiser
    """The time limit is reached."""


def minimized(
    objective: Objective, start: Array, *, monitor: Monitor, lower: float, nonnegative: bool
) -> Found:
    """L-BFGS from ``start``, on the logarithm of a positive objective.

    ``lower`` is the lower bound that progress is reported with. Where the monitor's time is up or
    the user interrupts, the best point so far is returned.
    """
    best_x, best, evaluations = start, math.inf, 0

    def evaluate(x: Array) -> tuple[float, Array]:
        nonlocal best_x, best, evaluations
        if evaluations and monitor.expired:
            raise _Expired
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            value, gradient = objective(x)
        evaluations += 1
        if not (math.isfinite(value) and np.isfinite(gradient).all()):
            return (best if math.isfinite(best) else 0.0) + REJECTED, np.zeros_like(x)
        if value < best:
            best_x, best = np.array(x), value
        return value, gradient

    def report(xk: Array) -> None:
        monitor.report(lower=lower, upper=math.exp(best))

    options: Any = {
        "maxcor": MEMORY,
        "ftol": FLAT,
        "gtol": STATIONARY,
        "maxfun": MAX_EVALUATIONS,
        "maxiter": MAX_EVALUATIONS,
    }
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
    except _Expired:
        stop = Stop.TIME_LIMIT
    except KeyboardInterrupt:
        stop = Stop.INTERRUPTED
    else:
        stop = Stop.SOLVED if result.success else Stop.INACCURATE
    return Found(x=best_x, value=best, stop=stop, evaluations=evaluations)
