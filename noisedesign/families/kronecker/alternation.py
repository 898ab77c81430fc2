"""Kronecker designs: noise covariance S x R, by alternating a time design and a space design.

With one factor fixed the other one is the convex program again, with Gram matrix time_gram(R) or
space_gram(S), so the objective tr(H (S x R)) never increases. The two factors together are not
convex; the alternation starts from independent noise, and which factor is designed first decides
where it goes: time first begins with Mafalda-SGD, space first with Whisper D-SGD for all T steps.

How a factor is designed is the caller's choice. A step is any function from a Gram matrix to a
feasible covariance; what does not improve on the present factor is not taken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from noisedesign.base.checks import Array
from noisedesign.base.monitor import Monitor, Stop
from noisedesign.system.workloads.workload import Workload

Step = Callable[[Array], Array]
"""From a Gram matrix H of one factor to a feasible covariance that makes tr(H .) small."""

MAX_SWEEPS = 200


@dataclass(frozen=True, kw_only=True, eq=False)
class Factors:
    """Where the alternation ended.

    ``time`` is S, shape (T, T), ``space`` is R, shape (n, n); ``history`` is the objective
    (squared noise) at the start and after every half sweep, and never increases.
    """

    time: Array
    space: Array
    history: tuple[float, ...]
    stop: Stop

    @property
    def objective(self) -> float:
        """tr(H (S x R)), squared noise."""
        return self.history[-1]


def alternate(
    workload: Workload,
    *,
    time: Array,
    space: Array,
    time_step: Step,
    space_step: Step,
    time_first: bool,
    monitor: Monitor,
) -> Factors:
    """Alternate until a sweep gains less than the relative ``monitor.gap``.

    The monitor's lower bounds are 0: alternating proves none.

    Args:
        time: S to start from, shape (T, T); ``space``: R to start from, shape (n, n).
    """
    objective = float(np.sum(workload.time_gram(space) * time))
    history = [objective]
    stop = Stop.INACCURATE
    try:
        for half in range(2 * MAX_SWEEPS):
            if (half % 2 == 0) == time_first:
                gram = workload.time_gram(space)
                time = min(time, time_step(gram), key=lambda s: float(np.sum(gram * s)))
            else:
                gram = workload.space_gram(time)
                space = min(space, space_step(gram), key=lambda r: float(np.sum(gram * r)))
            # The two ways to the same trace differ by rounding.
            objective = min(objective, float(np.sum(workload.time_gram(space) * time)))
            history.append(objective)
            monitor.report(lower=0.0, upper=objective)
            if half >= 1 and history[-3] <= objective * (1 + monitor.gap):
                stop = Stop.SOLVED
                break
            if monitor.expired:
                stop = Stop.TIME_LIMIT
                break
    except KeyboardInterrupt:
        stop = Stop.INTERRUPTED
    return Factors(time=time, space=space, history=tuple(history), stop=stop)
