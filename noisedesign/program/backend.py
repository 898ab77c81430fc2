"""What a backend is: it takes a normalised program and returns matrices and multipliers.

A backend never says whether its answer is good: :mod:`program.certificate` does. It reports how
it stopped, in one vocabulary for all solvers.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, runtime_checkable

from noisedesign.base.checks import Array
from noisedesign.conic.dimacs import Errors
from noisedesign.program.program import DualPoint, Program


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


MOMENT = 1e-3
"""Seconds that even a solve without any left is given."""


@runtime_checkable
class Checkpoint(Protocol):
    """Where the multipliers of a solve are kept, so that a later one can go on from them."""

    @property
    def seconds(self) -> float:
        """Time between two moments of keeping."""

    def load(self, program: Program) -> Array | None:
        """Multipliers U kept of this normalised program, shape (patterns, epochs, epochs), positive
        definite; None where nothing is kept yet.

        Raises:
            InputError: what is kept is of another program, or damaged.
        """

    def save(self, program: Program, blocks: Array) -> None:
        """Keep these multipliers in place of those before."""


@dataclass(kw_only=True)
class Monitor:
    """The clock of one solve: deadline, history of bounds, progress reports, checkpoints.

    ``gap`` is the relative gap asked for. ``tolerance`` is the accuracy to ask of a solver that
    cannot stop on a certified gap; None leaves the solver's own default. ``start`` are multipliers
    U to begin with, of the normalised program, shape (patterns, epochs, epochs), positive definite.
    """

    gap: float
    tolerance: float | None = None
    time_limit: float | None = None
    progress: ProgressCallback | None = None
    checkpoint: Checkpoint | None = None
    start: Array | None = None
    started: float = field(default_factory=time.monotonic)
    history: list[Bounds] = field(default_factory=list)
    _kept: float = field(default_factory=time.monotonic)

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
    def time_left(self) -> float | None:
        """A time limit for what is still to come; None without one."""
        return None if self.time_limit is None else max(self.remaining, MOMENT)

    @property
    def expired(self) -> bool:
        return self.remaining <= 0

    def resumed(self, program: Program) -> Array | None:
        """Multipliers to begin with: those of the checkpoint, which are nearer, else ``start``."""
        kept = None if self.checkpoint is None else self.checkpoint.load(program)
        return self.start if kept is None else kept

    @property
    def due(self) -> bool:
        """Whether multipliers are to be kept now."""
        if self.checkpoint is None:
            return False
        return time.monotonic() - self._kept >= self.checkpoint.seconds

    def keep(self, program: Program, blocks: Array) -> None:
        """Keep multipliers, where there is a checkpoint. A full disk ends no solve: it warns."""
        if self.checkpoint is None:
            return
        try:
            self.checkpoint.save(program, blocks)
        except OSError as error:
            warnings.warn(f"{error}; the solve goes on", RuntimeWarning, stacklevel=2)
        self._kept = time.monotonic()


@dataclass(frozen=True, kw_only=True, eq=False)
class Answer:
    """What a backend found, for the normalised program it was given.

    ``gram`` is X, shape (m, m), not necessarily feasible; ``dual`` not necessarily feasible either:
    the certificate repairs both. ``evaluations`` counts evaluations of the dual for the native
    backend, an eigendecomposition each (or one of every block of H), and the solver's own
    iterations otherwise. ``measure`` computes the DIMACS errors
    of the conic model as it was solved, where there was one: on demand, since that may take as long
    as a quick solve.
    """

    stop: Stop
    gram: Array | None = None
    dual: DualPoint | None = None
    message: str = ""
    build_seconds: float = 0.0
    solve_seconds: float = 0.0
    evaluations: int = 0
    measure: Callable[[], Errors | None] = lambda: None


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
