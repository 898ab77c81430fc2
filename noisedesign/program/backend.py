"""What a backend is: it takes a normalised program and returns matrices and multipliers.

A backend never says whether its answer is good: :mod:`program.certificate` does. It reports how
it stopped, in one vocabulary for all solvers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from noisedesign.base.checks import Array
from noisedesign.base.monitor import Monitor, Stop
from noisedesign.conic.dimacs import Errors
from noisedesign.program.program import DualPoint, Program


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
