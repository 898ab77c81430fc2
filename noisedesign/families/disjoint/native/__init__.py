"""Our own solver: one eigendecomposition an iteration, stopped by its own duality gap."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np

from noisedesign.base.device import CPU, Device
from noisedesign.families.disjoint.native import diagonal, fixed_epoch
from noisedesign.families.disjoint.native.limits import capped, floored
from noisedesign.program.backend import Answer, Availability, Monitor
from noisedesign.program.program import Program


@dataclass(frozen=True)
class NativeBackend:
    """Newton-CG on the dual: see the modules named after what they solve.

    ``device`` is where :mod:`diagonal` and :mod:`fixed_epoch` compute; the others do so on the CPU.
    Multipliers of programs without limits are kept in the monitor's checkpoint, also when the solve
    ends.
    """

    name: str = "native"
    formulations: tuple[str, ...] = ("dual",)
    device: Device = CPU

    def takes(self) -> str:
        return "space (with or without limits), time under (k, b) participation"

    def refusal(self, program: Program, formulation: str) -> str | None:
        if program.limited and program.participation.epochs > 1:
            return "a limit on variances (cap or floor) together with several epochs"
        return None

    def availability(self) -> Availability:
        return Availability(installed=True, version=f"numpy {np.__version__}")

    def solve(self, program: Program, *, monitor: Monitor, formulation: str) -> Answer:
        started = time.perf_counter()
        if program.raising:
            answer = floored.solve(program, monitor=monitor)
        elif program.cap is not None:
            answer = capped.solve(program, monitor=monitor)
        elif program.participation.epochs == 1:
            answer = diagonal.solve(program, monitor=monitor, device=self.device)
        else:
            answer = fixed_epoch.solve(program, monitor=monitor, device=self.device)
        if not program.limited and answer.dual is not None:
            monitor.keep(program, answer.dual.blocks)
        return replace(answer, solve_seconds=time.perf_counter() - started)
