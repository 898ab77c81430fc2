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
from noisedesign.families.disjoint.solver import diagonal, fixed_epoch
from noisedesign.families.disjoint.solver.limits import active_caps, capped, floored
from noisedesign.program.program import Program


def solve(program: Program, *, monitor: Monitor) -> Found:
    """X and the multipliers of a program of unit budgets.

    Without limits :mod:`diagonal` and :mod:`fixed_epoch` compute on the monitor's device and keep
    multipliers in its checkpoint, also when the solve ends.

    Raises:
        InputError: a limit on variances together with several epochs; no such device.
    """
    started = time.perf_counter()
    if program.limited and program.participation.epochs > 1:
        raise InputError(
            "limits",
            expected="none together with several epochs",
            got="a limit on variances (cap or floor)",
        )
    if program.raising:
        answer = floored.solve(program, monitor=monitor, device=device_of(monitor.device))
    elif program.cap is not None:
        answer = _capped(program, monitor)
    elif program.participation.epochs == 1:
        answer = diagonal.solve(program, monitor=monitor, device=device_of(monitor.device))
    else:
        answer = fixed_epoch.solve(program, monitor=monitor, device=device_of(monitor.device))
    if not program.limited and answer.dual is not None:
        monitor.keep(program, answer.dual.blocks)
    return replace(answer, solve_seconds=time.perf_counter() - started)


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
