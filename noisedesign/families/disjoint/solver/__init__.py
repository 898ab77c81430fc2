"""Our own solver: one eigendecomposition an iteration, stopped by its own duality gap.

Newton-CG on the dual: see the modules named after what they solve.
"""

from __future__ import annotations

import time
from dataclasses import replace

from noisedesign.base.checks import InputError
from noisedesign.base.device import device_of
from noisedesign.base.monitor import Monitor, Stop
from noisedesign.families.disjoint.program import Found
from noisedesign.families.disjoint.solver import central_path, diagonal, fixed_epoch
from noisedesign.families.disjoint.solver.limits import active_caps, capped, floored
from noisedesign.program.program import Program


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
    elif several:
        answer = _several(program, monitor)
    elif program.cap is not None:
        answer = _capped(program, monitor)
    else:
        answer = diagonal.solve(program, monitor=monitor, device=device_of(monitor.device))
    if not program.limited and answer.dual is not None:
        monitor.keep(program, answer.dual.blocks)
    return replace(answer, solve_seconds=time.perf_counter() - started)


def _several(program: Program, monitor: Monitor) -> Found:
    """By the quick method where H is regular and nothing capped; else, and where that falls short,
    by the one that arrives."""
    spent = 0
    if program.cap is None and program.null_space.shape[1] == 0:
        answer = fixed_epoch.solve(program, monitor=monitor, device=device_of(monitor.device))
        if answer.stop is not Stop.INACCURATE:
            return answer
        spent = answer.evaluations
    answer = central_path.solve(program, monitor=monitor)
    return replace(answer, evaluations=answer.evaluations + spent)


def _capped(program: Program, monitor: Monitor) -> Found:
    """By the quick method where H is regular; what it cannot solve is for the one that arrives."""
    spent = 0
    if program.null_space.shape[1] == 0:
        answer = active_caps.solve(program, monitor=monitor, device=device_of(monitor.device))
        if answer.stop is not Stop.INACCURATE:
            return answer
        spent = answer.evaluations
    answer = capped.solve(program, monitor=monitor)
    return replace(answer, evaluations=answer.evaluations + spent)
