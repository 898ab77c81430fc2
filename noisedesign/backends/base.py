"""What a backend is: it takes a normalised program and returns matrices and multipliers.

A backend never says whether its answer is good: :mod:`noisedesign.certificate` does. It reports how
it stopped, in one vocabulary for all solvers.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from noisedesign._checks import Array
from noisedesign.formulations import DualPoint, Program


class Stop(StrEnum):
    """Why a backend stopped."""

    SOLVED = "solved"
    INACCURATE = "inaccurate"
    TIME_LIMIT = "time-limit"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """One point of a convergence history; seconds since the start of the solve."""

    seconds: float
    lower: float
    upper: float


ProgressCallback = Callable[[Bounds], None]


@dataclass(kw_only=True)
class Monitor:
    """The clock of one solve: deadline, history of bounds, progress reports.

    ``gap`` is the relative gap asked for. ``tolerance`` is the accuracy to ask of a solver that
    cannot stop on a certified gap; None leaves the solver's own default.
    """

    gap: float
    tolerance: float | None = None
    time_limit: float | None = None
    progress: ProgressCallback | None = None
    started: float = field(default_factory=time.monotonic)
    history: list[Bounds] = field(default_factory=list)

    def report(self, *, lower: float, upper: float) -> None:
        """Record the bounds of an iteration."""
        bounds = Bounds(seconds=time.monotonic() - self.started, lower=lower, upper=upper)
        self.history.append(bounds)
        if self.progress is not None:
            self.progress(bounds)

    @property
    def remaining(self) -> float:
        """Seconds left, infinite where there is no limit."""
        if self.time_limit is None:
            return float("inf")
        return self.time_limit - (time.monotonic() - self.started)

    @property
    def expired(self) -> bool:
        return self.remaining <= 0


@dataclass(frozen=True, kw_only=True, eq=False)
class Answer:
    """What a backend found, for the normalised program it was given.

    ``gram`` is X, shape (m, m), not necessarily feasible; ``dual`` not necessarily feasible either:
    the certificate repairs both. ``evaluations`` counts eigendecompositions for the native
    backend and the solver's own iterations otherwise.
    """

    stop: Stop
    gram: Array | None = None
    dual: DualPoint | None = None
    message: str = ""
    build_seconds: float = 0.0
    solve_seconds: float = 0.0
    evaluations: int = 0


@dataclass(frozen=True, kw_only=True)
class Availability:
    """Whether a backend can run here and, where not, what to do about it."""

    installed: bool
    version: str = ""
    licensed: bool = True
    remedy: str = ""

    @property
    def ready(self) -> bool:
        return self.installed and self.licensed


class Backend(Protocol):
    """A solver of normalised programs."""

    @property
    def name(self) -> str: ...

    @property
    def formulations(self) -> tuple[str, ...]:
        """Names of the formulations it can be given, the default first."""

    def takes(self) -> str:
        """One line: the problems it can take."""

    def refusal(self, program: Program, formulation: str) -> str | None:
        """Why it cannot take this program, or None."""

    def availability(self) -> Availability: ...

    def solve(self, program: Program, *, monitor: Monitor, formulation: str) -> Answer: ...
