"""Our own solver: one eigendecomposition an iteration, stopped by its own duality gap.

Newton-CG on the dual: see the modules named after what they solve.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace

from noisedesign.base.checks import InputError
from noisedesign.base.device import device_of
from noisedesign.base.monitor import Bounds, Monitor, Stop
from noisedesign.families.disjoint.program import Found
from noisedesign.families.disjoint.solver import central_path, diagonal, fixed_epoch
from noisedesign.families.disjoint.solver.limits import active_caps, capped, floored
from noisedesign.program.program import Program

MOST_FOLLOWED = 2048
"""Size up to which a second method has its turn: an evaluation of it takes half a minute there."""


def solve(program: Program, *, monitor: Monitor) -> Found:
    """X and the multipliers of a program of unit budgets.

    Without limits :mod:`diagonal` and :mod:`fixed_epoch` compute on the monitor's device and keep
    multipliers in its checkpoint, also when the solve ends.

    Raises:
        InputError: a floor on variances together with several epochs; no such device.
    """
    started = time.perf_counter()
    several = program.participation.epochs > 1
    if program.raising and several:
        raise InputError("limits", expected="no floor together with several epochs", got="one")
    if program.raising:
        answer = floored.solve(program, monitor=monitor, device=device_of(monitor.device))
    elif several and (program.cap is not None or program.null_space.shape[1] > 0):
        answer = central_path.solve(program, monitor=monitor)
    else:
        answer = _quick(program, monitor)
    if not program.limited and answer.dual is not None:
        monitor.keep(program, answer.dual.blocks)
    return replace(answer, solve_seconds=time.perf_counter() - started)


def _quick(program: Program, monitor: Monitor) -> Found:
    """By Newton's method on the dual; where it falls short, as it may with an H that is nearly
    singular, the better of that and the central path."""
    if program.cap is not None:
        answer = _capped(program, monitor)
    else:
        module = diagonal if program.participation.epochs == 1 else fixed_epoch
        answer = module.solve(program, monitor=monitor, device=device_of(monitor.device))
    if answer.stop is not Stop.INACCURATE or program.size > MOST_FOLLOWED:
        return answer
    seen = len(monitor.history)
    other = central_path.solve(program, monitor=monitor)
    evaluations = answer.evaluations + other.evaluations
    before, after = _nearest(monitor.history[:seen]), _nearest(monitor.history[seen:])
    return replace(other if after < before else answer, evaluations=evaluations, stop=other.stop)


def _nearest(history: Sequence[Bounds]) -> float:
    """The least gap of these."""
    return min((b.upper / b.lower for b in history if 0 < b.lower <= b.upper), default=math.inf)


def _capped(program: Program, monitor: Monitor) -> Found:
    """One participation: by the quick method where H is regular; what it cannot solve is for the
    one that arrives."""
    spent = 0
    if program.null_space.shape[1] == 0:
        answer = active_caps.solve(program, monitor=monitor, device=device_of(monitor.device))
        if answer.stop is not Stop.INACCURATE:
            return answer
        spent = answer.evaluations
    answer = capped.solve(program, monitor=monitor)
    return replace(answer, evaluations=answer.evaluations + spent)
