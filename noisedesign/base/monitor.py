"""The clock of a solve: deadline, history of bounds, progress, checkpoints; and how it stopped."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

import numpy as np

from noisedesign.base.checks import Array


class Stop(StrEnum):
    """Why a backend stopped."""

    SOLVED = "solved"
    INACCURATE = "inaccurate"
    TIME_LIMIT = "time-limit"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


REACHED = 0.8  # share of a gap at which a search stops: the rest is for rounding and repairs


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """One point of a convergence history.

    Attributes:
        seconds: since the start of the solve.
        lower: bound on the objective.
        upper: objective of the best design so far.
    """

    doing: ClassVar[str] = ""

    seconds: float
    lower: float
    upper: float


@dataclass(frozen=True, kw_only=True)
class Working(Bounds):
    """The last bounds, and in ``doing`` the work in progress in words."""

    doing: str  # type: ignore[misc]


ProgressCallback = Callable[[Bounds], None]

P = TypeVar("P", contravariant=True)


@runtime_checkable
class Checkpoint(Protocol[P]):
    """A place that keeps the multipliers of a solve, so that a later one can go on from them."""

    @property
    def seconds(self) -> float:
        """Time between two moments of keeping."""

    def load(self, program: P) -> Array | None:
        """Multipliers U kept of this program, (patterns, epochs, epochs), or None."""

    def save(self, program: P, blocks: Array) -> None:
        """Keep these multipliers in place of those before."""


@dataclass(kw_only=True)
class Monitor:
    """The clock of one solve: deadline, history of bounds, progress reports, checkpoints.

    ``tolerance`` is asked of solvers that cannot stop on a certified ``gap``; None: their default.
    ``start`` are multipliers U of the normalised program, shape (patterns, epochs, epochs)."""

    gap: float
    tolerance: float | None = None
    time_limit: float | None = None
    progress: ProgressCallback | None = None
    checkpoint: Checkpoint[Any] | None = None
    start: Array | None = None
    device: str = "cpu"
    started: float = field(default_factory=time.monotonic)
    history: list[Bounds] = field(default_factory=list)
    _kept: float = field(default_factory=time.monotonic)
    stopped: bool = False

    def report(self, *, lower: float, upper: float) -> None:
        """Record the bounds of an iteration."""
        bounds = Bounds(seconds=self._elapsed, lower=lower, upper=upper)
        self.history.append(bounds)
        if self.stopped:
            raise KeyboardInterrupt
        if self.progress is not None:
            self.progress(bounds)

    def tell(self, doing: str) -> None:
        """Tell the callback what is in progress; Ctrl-C within it stops the search that follows."""
        if self.progress is not None:
            none = Bounds(seconds=0.0, lower=0.0, upper=float("inf"))
            last = vars(self.history[-1] if self.history else none) | {"seconds": self._elapsed}
            try:
                self.progress(Working(**last, doing=doing))
            except KeyboardInterrupt:
                self.stopped = True

    @property
    def _elapsed(self) -> float:
        return time.monotonic() - self.started

    @property
    def remaining(self) -> float:
        """Seconds left, infinite where there is no limit."""
        return float("inf") if self.time_limit is None else self.time_limit - self._elapsed

    @property
    def time_left(self) -> float | None:
        """A time limit for what is still to come, at least a moment; None without one."""
        return None if self.time_limit is None else max(self.remaining, 1e-3)

    @property
    def expired(self) -> bool:
        return self.remaining <= 0

    def resumed(self, program: object) -> Array | None:
        """Multipliers to begin with: those of the checkpoint, which are nearer, else ``start``."""
        kept = None if self.checkpoint is None else self.checkpoint.load(program)
        return self.start if kept is None else kept

    @property
    def due(self) -> bool:
        """Whether multipliers are to be kept now."""
        if self.checkpoint is None:
            return False
        return time.monotonic() - self._kept >= self.checkpoint.seconds

    def keep(self, program: object, blocks: Array) -> None:
        """Keep multipliers, where there is a checkpoint. A full disk ends no solve: it warns."""
        if self.checkpoint is None:
            return
        try:
            self.checkpoint.save(program, blocks)
        except OSError as error:
            warnings.warn(f"{error}; the solve goes on", RuntimeWarning, stacklevel=2)
        self._kept = time.monotonic()


class Search:
    """A search under a monitor; as a context it ends on Ctrl-C and singular matrices."""

    def __init__(self, monitor: Monitor) -> None:
        self.monitor, self.stop = monitor, Stop.INACCURATE

    def ended(self, *, solved: bool) -> bool:
        """Whether the gap asked for is reached, or the time over."""
        if self.monitor.stopped:
            raise KeyboardInterrupt
        if solved:
            self.stop = Stop.SOLVED
        elif self.monitor.expired:
            self.stop = Stop.TIME_LIMIT
        return self.stop is not Stop.INACCURATE

    def __enter__(self) -> Search:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        if isinstance(error, KeyboardInterrupt):
            self.stop = Stop.INTERRUPTED
        return isinstance(error, (KeyboardInterrupt, np.linalg.LinAlgError))
