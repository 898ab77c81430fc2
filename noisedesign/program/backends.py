"""Interchangeable solvers of the problems of every family: our own, and conic ones by a model."""

from __future__ import annotations

import importlib.metadata
import platform
from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from noisedesign.base.checks import InputError, one_of
from noisedesign.base.monitor import Monitor
from noisedesign.conic.solvers import CONIC_BACKENDS, ConicBackend
from noisedesign.program.backend import Availability
from noisedesign.program.family import Answer, Family
from noisedesign.program.options import Options

TOLERANCE_PER_GAP = 0.1
"""Solvers without a certified gap are asked for a tenth of it: their residuals are not ours."""


class Backend(ABC):
    """Who solves. A backend never says whether its answer is good: the family's judge does."""

    name: str
    formulations: tuple[str, ...]
    """Names of the formulations it can be given, the default first."""
    takes: str
    """One line: the problems it can take."""
    remedies: tuple[str, ...] = ()
    """What else to try where it found nothing."""
    short: str
    """What to do where the gap it reached is larger than that asked for."""
    remembers: bool = False
    """Whether it can begin with the multipliers of another problem."""

    @abstractmethod
    def availability(self) -> Availability: ...

    @abstractmethod
    def check_options(self, family: Family, program: Any, options: Options) -> None:
        """Raise InputError where it, or the family, can do none of what is asked besides."""

    @abstractmethod
    def answer(
        self,
        family: Family,
        program: Any,
        *,
        monitor: Monitor,
        formulation: str,
        isolate: bool | None = None,
    ) -> Answer: ...

    def check(self, family: Family, program: Any, formulation: str | None) -> str:
        """The formulation to use.

        Raises:
            InputError: the backend cannot take the program, or cannot run here.
        """
        chosen = self.formulations[0] if formulation is None else formulation
        one_of(chosen, field="formulation", allowed=self.formulations)
        available = self.availability()
        if not available.ready:
            state = "is not licensed" if available.installed else "is not installed"
            raise InputError(
                "backend",
                expected="an installed and licensed backend",
                got=f"{self.name}, which {state}",
                remedy=available.remedy,
            )
        return chosen

    def stand_in(self, family: Family) -> str:
        """Who solves the problems of a family in its place; mostly nobody."""
        return ""

    def versions(self) -> dict[str, str]:
        """Versions of what shapes a design's digits."""
        return {"python": platform.python_version(), "numpy": np.__version__}


class Native(Backend):
    """Our own solvers, one a family."""

    name = "native"
    formulations = ("dual",)
    takes = "every problem"
    short = "Rounding is in the way of more: ask for less."
    remembers = True

    def availability(self) -> Availability:
        return Availability(installed=True, version=f"numpy {np.__version__}")

    def stand_in(self, family: Family) -> str:
        return family.stand_in

    def check_options(self, family: Family, program: Any, options: Options) -> None:
        if (by := family.without_options(program)) is not None:
            options.refuse(by)

    def answer(
        self,
        family: Family,
        program: Any,
        *,
        monitor: Monitor,
        formulation: str,
        isolate: bool | None = None,
    ) -> Answer:
        return family.solve(program, monitor=monitor)


class Conic(Backend):
    """A conic solver, given the model of a family."""

    remedies = ("--backend native",)
    short = "Ask the backend for it with --gap, or use --backend native."

    def __init__(self, solver: ConicBackend) -> None:
        self.solver = solver
        self.name, self.formulations = solver.name, solver.formulations
        self.takes = solver.takes()

    def availability(self) -> Availability:
        return self.solver.availability()

    def check_options(self, family: Family, program: Any, options: Options) -> None:
        options.refuse(f"the backend {self.name}")

    def check(self, family: Family, program: Any, formulation: str | None) -> str:
        if not family.formulations:
            raise InputError(
                "backend", expected="native for a structured or space-time problem", got=self.name
            )
        chosen = self.formulations[0] if formulation is None else formulation
        one_of(chosen, field="formulation", allowed=self.formulations)
        if (reason := self.solver.refusal(program, chosen)) is not None:
            raise InputError(
                "backend",
                expected="one that takes this problem",
                got=f"{self.name}, which cannot take {reason}",
            )
        return super().check(family, program, chosen)

    def answer(
        self,
        family: Family,
        program: Any,
        *,
        monitor: Monitor,
        formulation: str,
        isolate: bool | None = None,
    ) -> Answer:
        from noisedesign.conic import process
        from noisedesign.families.disjoint.family import FAMILY, answer_of

        family.attained(program, time_limit=monitor.time_left)
        alone = monitor.time_limit is not None if isolate is None else isolate
        if alone:
            found = process.solve(
                self.solver, program.normalized(), monitor=monitor, formulation=formulation
            )
        else:
            found = self.solver.solve(
                program.normalized(), monitor=monitor, formulation=formulation
            )
        return answer_of(program, found, FAMILY._noise)

    def versions(self) -> dict[str, str]:
        found = super().versions() | {self.name: self.solver.availability().version}
        if self.solver.modelled:
            found["cvxpy"] = importlib.metadata.version("cvxpy")
        return found


_BACKENDS: dict[str, Backend] = {
    backend.name: backend for backend in (Native(), *map(Conic, CONIC_BACKENDS))
}


def all_backends() -> tuple[Backend, ...]:
    """Every backend the toolkit knows, installed or not."""
    return tuple(_BACKENDS.values())


def get_backend(name: str) -> Backend:
    """The backend of that name.

    Raises:
        InputError: no such backend.
    """
    return _BACKENDS[one_of(name, field="backend", allowed=tuple(_BACKENDS))]
