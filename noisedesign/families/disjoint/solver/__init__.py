"""Our own solver: one eigendecomposition an iteration, stopped by its own duality gap.

Every module is named after what it solves or how: :mod:`diagonal` and :mod:`fixed_epoch` without
limits, :mod:`barrier` a singular H, :mod:`active_caps` caps, :mod:`smoothed` floors and
:mod:`central_path` whatever the others leave."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace

from noisedesign.base.checks import InputError
from noisedesign.base.device import Device, device_of
from noisedesign.base.monitor import Bounds, Monitor, Stop
from noisedesign.certify.program import Program
from noisedesign.families.disjoint.program import Found
from noisedesign.families.disjoint.solver import (
    active_caps,
    central_path,
    diagonal,
    fixed_epoch,
    smoothed,
)


def solve(program: Program, *, monitor: Monitor) -> Found:
    """X and the multipliers of a program of unit budgets; without limits those are kept in the
    monitor's checkpoint, also when the solve ends."""
    started = time.perf_counter()
    device = device_of(monitor.device)
    if program.floored:
        if program.participation.epochs > 1:
            expected = "no floor together with several epochs"
            raise InputError("limits", expected=expected, got="one")
        answer = smoothed.solve(program, monitor=monitor, device=device)
    else:
        answer = _without_floors(program, monitor, device)
    if not program.limited and answer.dual is not None:
        monitor.keep(program, answer.dual.blocks)
    return replace(answer, solve_seconds=time.perf_counter() - started)


def _without_floors(program: Program, monitor: Monitor, device: Device) -> Found:
    """The answer of the quick method, or of the central path where it has none or falls short."""
    singular = program.singular
    if program.participation.epochs > 1:
        if program.cap is not None or singular:
            return central_path.solve(program, monitor=monitor)
        quick = fixed_epoch.solve
    elif program.cap is None:
        quick = diagonal.solve
    elif singular:
        return central_path.solve(program, monitor=monitor)
    else:
        quick = active_caps.solve
    answer = quick(program, monitor=monitor, device=device)
    # An evaluation of the central path takes half a minute at 2048 nodes.
    if answer.stop is not Stop.INACCURATE or program.size > 2048:
        return answer
    seen = len(monitor.history)
    other = central_path.solve(program, monitor=monitor)
    evaluations = answer.evaluations + other.evaluations
    before, after = _least_gap(monitor.history[:seen]), _least_gap(monitor.history[seen:])
    return replace(other if after < before else answer, evaluations=evaluations, stop=other.stop)


def _least_gap(history: Sequence[Bounds]) -> float:
    """The least ratio of an upper to a lower bound."""
    return min((b.upper / b.lower for b in history if 0 < b.lower <= b.upper), default=math.inf)
