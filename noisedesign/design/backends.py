"""Interchangeable solvers of the problems of every family: our own, and conic ones by a model."""

from __future__ import annotations

import importlib.metadata
import platform
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from noisedesign.base import memory, settings
from noisedesign.base.checks import InputError, describe, one_of
from noisedesign.base.device import CPU, device_of, index_of
from noisedesign.base.monitor import Checkpoint, Monitor, Stop
from noisedesign.base.plugins import Group
from noisedesign.conic.data import errors
from noisedesign.conic.solvers import CONIC_SOLVERS, Availability, ConicSolver
from noisedesign.families.family import (
    Answer,
    Costly,
    Family,
    Form,
    Model,
    Modelled,
    Optioned,
    formulations,
    not_convex,
)
from noisedesign.forms import Noise

if TYPE_CHECKING:
    from noisedesign.conic.data import Outcome
    from noisedesign.conic.program import ConicProgram

Q = TypeVar("Q")
P = TypeVar("P")

TOLERANCE_PER_GAP = 0.1  # share of the gap asked of solvers, which measure residuals, not gaps


class How(NamedTuple):
    """The settings of one solve; ``isolate`` None isolates it under a time limit."""

    monitor: Monitor
    formulation: str
    isolate: bool | None = None


class Backend(ABC):
    """A solver. It never says whether its answer is good: the family's judge does."""

    name: str
    takes: str  # the problems it can take, in one line
    remedies: tuple[str, ...] = ()  # things to try where it found nothing
    short: str  # advice where the gap it reached is larger than that asked for
    remembers: bool = False  # whether it can begin with the multipliers of another problem

    @property
    @abstractmethod
    def formulations(self) -> tuple[str, ...]:
        """Names of the formulations it can be given, the default first."""

    @abstractmethod
    def availability(self) -> Availability: ...

    @abstractmethod
    def check_options(self, family: Family[Any, P], program: P, options: Options) -> None:
        """Raise InputError where it, or the family, can do none of what is asked besides."""

    @abstractmethod
    def answer(self, family: Family[Any, P], program: P, how: How) -> Answer: ...

    def least_seconds(self, family: Family[Q, P], problem: Q) -> float:
        """Seconds that the first answer and its verdict take, about; 0 where nobody knows."""
        return 0.0

    def check(self, family: Family[Any, P], program: P, formulation: str | None) -> str:
        """Return the formulation to use; InputError where it cannot take the program."""
        self.require_ready()
        chosen = self.formulations[0] if formulation is None else formulation
        return one_of(chosen, field="formulation", allowed=self.formulations)

    def require_ready(self) -> None:
        """Raise InputError where the backend cannot run here."""
        available = self.availability()
        if not available.ready:
            state = "is not licensed" if available.installed else "is not installed"
            expected = "an installed and licensed backend"
            got = f"{self.name}, which {state}"
            raise InputError("backend", expected=expected, got=got, remedy=available.remedy)

    def versions(self) -> dict[str, str]:
        """Versions of what shapes a design's digits."""
        return {"python": platform.python_version(), "numpy": np.__version__}

    def blamed(self) -> AbstractContextManager[None]:
        """Tell errors within this as mistakes of the backend."""
        return nullcontext()


class Native(Backend):
    """Our own solvers, one a family."""

    name = "native"
    takes = "every problem"
    short = "Rounding is in the way of more: ask for less."
    remembers = True
    formulations = ("dual",)

    def availability(self) -> Availability:
        return Availability(installed=True, version=f"numpy {np.__version__}")

    def require_ready(self) -> None:
        """It always is."""

    def check_options(self, family: Family[Any, P], program: P, options: Options) -> None:
        if not isinstance(family, Optioned):
            watched = family.trust == "observers"
            of = "against observers" if watched else "of structured and space-time designs"
            options.refuse(f"those {of}")
        elif (by := family.without_options(program)) is not None:
            options.refuse(by, device=True)

    def least_seconds(self, family: Family[Q, P], problem: Q) -> float:
        return family.least_seconds(problem) if isinstance(family, Costly) else 0.0

    def answer(self, family: Family[Any, P], program: P, how: How) -> Answer:
        started = time.perf_counter()
        answer = family.solve(program, monitor=how.monitor)
        if answer.solve_seconds:
            return answer
        return replace(answer, solve_seconds=time.perf_counter() - started)


class Conic(Backend):
    """A conic solver, given the model of a family."""

    takes = "convex problems whose matrix inequalities fit the memory"
    remedies = ("--backend native",)
    short = "Ask the backend for it with --gap, or use --backend native."

    def __init__(self, solver: ConicSolver) -> None:
        self.solver, self.name = solver, solver.name

    @property
    def formulations(self) -> tuple[str, ...]:
        return formulations()

    def availability(self) -> Availability:
        return self.solver.availability()

    def check_options(self, family: Family[Any, P], program: P, options: Options) -> None:
        options.refuse(f"the backend {self.name}")

    def check(self, family: Family[Any, P], program: P, formulation: str | None) -> str:
        if not isinstance(family, Modelled):
            got = f"{self.name}, and noise of the kind {family.name!r}"
            raise not_convex("backend", got).told(remedy="Use --backend native.")
        chosen = family.formulations[0] if formulation is None else formulation
        one_of(chosen, field="formulation", allowed=family.formulations)
        reason = family.unable(program, chosen) or self.too_large(family, program, chosen)
        if reason is not None:
            raise self._refusal(reason)
        self.require_ready()
        if (reason := self.solver.lacks(chosen)) is not None:
            raise self._refusal(reason)
        return chosen

    def too_large(self, family: Modelled[P], program: P, formulation: str) -> str | None:
        """Tell, without building the model, why the memory of this machine cannot hold a solve."""

        form = Form(formulation, True, self.solver.parts)

        def bytes_for(**of: int) -> int:
            size = family.model_size(program, form, **of)
            return 0 if size is None else self.solver.memory(size)

        allowed = memory.physical()
        needed = bytes_for(rank=0)
        if needed <= allowed:  # else the rank of H is not worth an hour
            needed = bytes_for()
        if needed <= allowed:
            return None
        coordinates: int = program.size  # type: ignore[attr-defined]  # as all with a model have
        fits = memory.largest(lambda size: bytes_for(size=size, rank=size), below=coordinates)
        return (
            f"a conic model of {coordinates} coordinates, which takes at least "
            f"{memory.words(needed)} where this machine has {memory.words(allowed)}: up to "
            f"{fits} fit"
        )

    def _refusal(self, reason: str) -> InputError:
        got = f"{self.name}, which cannot take {reason}"
        return InputError("backend", expected="one that takes this problem", got=got)

    def answer(self, family: Family[Any, P], program: P, how: How) -> Answer:
        assert isinstance(family, Modelled)  # as ``check`` found
        monitor, form = how.monitor, Form(how.formulation, True, self.solver.parts)
        family.attained(program, time_limit=monitor.time_left)
        alone = monitor.time_limit is not None if how.isolate is None else how.isolate
        began = time.perf_counter()

        def ask(model: Model) -> Answer:
            nonlocal began
            built = time.perf_counter() - began
            found = self._solved(model.conic, monitor=monitor, alone=alone)
            answer, point = Answer(stop=found.stop), found.point
            if point is not None:
                with suppress(np.linalg.LinAlgError):
                    answer = model.read(point)
            began = time.perf_counter()  # of the next model, where there is one
            return replace(
                answer,
                stop=found.stop,
                message=found.message,
                build_seconds=built + found.build_seconds,
                solve_seconds=found.solve_seconds,
                evaluations=found.iterations,
                measure=lambda: None if point is None else errors(model.conic, point),
            )

        return family.answer_by(program, ask, form, monitor=monitor)

    def _solved(self, program: ConicProgram, *, monitor: Monitor, alone: bool) -> Outcome:
        needed, allowed = self.solver.memory(program.size), memory.physical()
        if needed > allowed:
            raise self._refusal(
                f"a conic model of {program.variables:,} unknowns, which takes at least "
                f"{memory.words(needed)} where this machine has {memory.words(allowed)}"
            )
        if not alone:
            return self.solver.solve(program, monitor=monitor)
        from noisedesign.conic import process

        return process.solve(self.solver, program, monitor=monitor)

    def versions(self) -> dict[str, str]:
        found = super().versions() | {self.name: self.solver.availability().version}
        if self.solver.direct is None:  # through CVXPY
            found["cvxpy"] = importlib.metadata.version("cvxpy")
        return found


_ADDED = Group("noisedesign.backends", field="backend", what="a backend")


class Foreign(Backend):
    """A backend of another distribution, whose errors are told as mistakes of that distribution.
    The noise and multipliers of its answer count, judged like any other; its own errors do not."""

    def __init__(self, backend: Backend, *, distribution: str) -> None:
        self.backend, self.distribution, self.name = backend, distribution, backend.name
        self.takes, self.remedies = str(backend.takes), tuple(map(str, backend.remedies))
        self.short, self.remembers = str(backend.short), bool(backend.remembers)

    def blamed(self) -> AbstractContextManager[None]:
        return _ADDED.blames(self.distribution)

    @property
    def formulations(self) -> tuple[str, ...]:
        with self.blamed():
            return tuple(self.backend.formulations)

    def availability(self) -> Availability:
        with self.blamed():
            found = self.backend.availability()
            return replace(found, version=f"{found.version} ({self.distribution})".strip())

    def check_options(self, family: Family[Any, P], program: P, options: Options) -> None:
        with self.blamed():
            self.backend.check_options(family, program, options)

    def check(self, family: Family[Any, P], program: P, formulation: str | None) -> str:
        with self.blamed():
            return str(self.backend.check(family, program, formulation))

    def answer(self, family: Family[Any, P], program: P, how: How) -> Answer:
        with self.blamed():
            found = self.backend.answer(family, program, how)
            if not isinstance(found, Answer):
                raise TypeError(f"expected an Answer, got {describe(found)}")
            known = [name for name in family.proof if name in found.proof]
            proof = {name: np.array(found.proof[name], np.float64) for name in known}
            return replace(
                found,
                stop=Stop(found.stop),
                noises=self._noises(family, program, replace(found, proof=proof)),
                proof=proof,
                message=str(found.message),
                evaluations=int(found.evaluations),
                build_seconds=float(found.build_seconds),
                solve_seconds=float(found.solve_seconds),
                measure=lambda: None,
            )

    def _noises(self, family: Family[Any, P], program: P, answer: Answer) -> Iterator[Noise]:
        """Yield noise of the kind and the structure of the family."""
        stated = family.independent(program)
        for noise in answer.noises:
            if not isinstance(noise, Noise):
                raise TypeError(f"expected Noise, got {describe(noise)}")
            of = (noise.axes, noise.nodes, noise.steps)
            if of != (stated.axes, stated.nodes, stated.steps):
                raise ValueError(f"expected {stated.axes} noise of the problem, got {of}")
            if not all(np.isfinite(array).all() for array in noise.arrays().values()):
                continue
            if family.departure(program, noise, answer.proof) <= settings.STRUCTURE_TOLERANCE:
                yield noise

    def versions(self) -> dict[str, str]:
        with self.blamed():
            version = importlib.metadata.version(self.distribution)
            return super().versions() | {self.distribution: version}


class Unusable(Backend):
    """The place of a backend of another distribution that cannot be loaded, and why."""

    takes = "nothing"
    short = ""
    formulations = ()

    def __init__(self, name: str, reason: InputError) -> None:
        self.name, self.reason = name, reason

    def availability(self) -> Availability:
        return Availability(installed=False, licensed=False, remedy=str(self.reason))

    def check_options(self, family: Family[Any, P], program: P, options: Options) -> None:
        raise self.reason

    def answer(self, family: Family[Any, P], program: P, how: How) -> Answer:
        raise self.reason


_BACKENDS: dict[str, Backend] = {
    backend.name: backend for backend in (Native(), *map(Conic, CONIC_SOLVERS))
}


def all_backends() -> tuple[Backend, ...]:
    """Every backend the toolkit knows, installed or not, those of other distributions last."""

    def added(name: str) -> Backend:
        try:
            return _added(name)
        except InputError as error:
            return Unusable(name, error)

    return (*_BACKENDS.values(), *map(added, _ADDED.names(_BACKENDS)))


def get_backend(name: str) -> Backend:
    """Return the backend of that name; InputError where there is none, or it cannot be used."""
    if isinstance(name, str) and name in _BACKENDS:
        return _BACKENDS[name]
    names = (*_BACKENDS, *_ADDED.names(_BACKENDS))
    return _added(one_of(name, field="backend", allowed=names))


def _added(name: str) -> Backend:
    value, distribution = _ADDED.load(name)
    with _ADDED.blames(distribution):
        backend = value() if isinstance(value, type) and issubclass(value, Backend) else value
        if not isinstance(backend, Backend):
            expected = "a Backend of noisedesign.design.backends, or its class"
            raise TypeError(f"expected {expected}, got {describe(value)}")
        if backend.name != name:
            raise ValueError(f"expected a backend named {name!r}, got {backend.name!r}")
        return Foreign(backend, distribution=distribution)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Wishes beyond a plain solve: a device's name, a checkpoint, multipliers to start from."""

    device: str = CPU.name
    checkpoint: Checkpoint[Any] | None = None
    start: Any = None

    def __post_init__(self) -> None:
        if self.checkpoint is not None and not isinstance(self.checkpoint, Checkpoint):
            raise InputError(
                "checkpoint",
                expected="a CheckpointFile",
                got=describe(self.checkpoint),
                remedy="Write checkpoint=CheckpointFile(path).",
            )

    def refuse(self, by: str, *, device: bool = False) -> None:
        """Raise InputError for wishes that ``by`` cannot meet, but a device with ``device``."""
        elsewhere = index_of(self.device) is not None and not device
        kept, begun = self.checkpoint is not None, self.start is not None
        all_three, device_name = "limits, structures", describe(self.device)
        for field, asked, able, others, expected, got in (
            ("device", elsewhere, "runs on CUDA devices", "structures", "cpu", device_name),
            ("checkpoint", kept, "keeps checkpoints", all_three, "none here", "one"),
            ("start", begun, "can start from multipliers", all_three, "none here", "one"),
        ):
            if asked:
                remedy = (
                    f"What {able} are the native solvers of problems without {others} "
                    f"and observers, not {by}."
                )
                raise InputError(field, expected=expected, got=got, remedy=remedy)

    @property
    def versions(self) -> dict[str, str]:
        """Versions of what computes on the device; InputError where there is no such device."""
        return device_of(self.device).versions
