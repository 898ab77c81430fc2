"""Interior-point and first-order conic solvers: SCS and Clarabel directly, others by CVXPY."""

from __future__ import annotations

import importlib
import importlib.metadata
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from noisedesign.base import memory
from noisedesign.base.checks import InputError
from noisedesign.base.monitor import Monitor, Stop
from noisedesign.families.disjoint.model_size import ModelSize, model_size
from noisedesign.program.backend import Answer, Availability
from noisedesign.program.program import Program
from noisedesign.system.participation import single

if TYPE_CHECKING:
    from noisedesign.conic.program import ConicProgram
    from noisedesign.conic.run import Run

Options = dict[str, Any]

BALANCED = "balanced"

PARTS = 2
"""How many inequalities interior-point methods get for one: factors of their systems take half as
long, for at most an iteration more; with three parts it is more of both. First-order methods
take eigenvectors of the blocks, for which there is nothing to gain."""


LOOSEST = 1e-6
"""A solver that breaks down at the accuracy asked for is asked again, a digit less each time, up to
this: CVXOPT stalls at 1e-9 with the rounding of one processor, and not with another's."""

FIRST = Program(gram=np.eye(2), participation=single(2), budget=np.ones(2))
"""What a new process solves before its clock starts."""


@dataclass(frozen=True, kw_only=True)
class ConicBackend:
    """One conic solver: how to ask it for an accuracy and for a time limit.

    ``solver`` is its name in CVXPY. ``accuracy`` turns a relative tolerance into the solver's
    options; ``limit`` turns seconds into options, None where the solver has no such option and only
    stopping its process will do. ``memory`` is what a model of some size takes at least, in bytes:
    the leading term of what the solver factors. In the formulation ``balanced`` it is given the
    options of ``tuned`` besides, from the program and the gap asked for, None where it is to stop
    at its own accuracy; ``parts`` is how many inequalities that formulation is cut into. ``direct``
    hands it arrays, in the place of CVXPY.
    """

    name: str
    solver: str
    distribution: str
    remedy: str
    accuracy: Callable[[float], Options]
    memory: Callable[[ModelSize], int]
    limit: Callable[[float], Options] | None = None
    always: Options | None = None
    licence: Callable[[], str | None] | None = None
    direct: Callable[[ConicProgram], Run] | None = None
    parts: int = PARTS
    tuned: Callable[[Program, float | None], Options] | None = None

    @property
    def formulations(self) -> tuple[str, ...]:
        return (BALANCED, "compact", "covariance", "paper")

    @property
    def modelled(self) -> bool:
        """Whether programs reach the solver through CVXPY, and not as arrays."""
        return self.direct is None

    def load(self) -> None:
        """Solve something small, so that whatever is imported late is imported now."""
        self.solve(FIRST, monitor=Monitor(gap=0.1), formulation=self.formulations[0])

    def takes(self) -> str:
        return "space (with or without limits), time under (k, b) participation; small sizes"

    def refusal(self, program: Program, formulation: str) -> str | None:
        from noisedesign.families.disjoint import conic_model

        reason = conic_model.refusal(program, formulation)
        if reason is not None:
            return reason
        needed, allowed = self.bytes_for(program, formulation), memory.physical()
        if needed <= allowed:
            return None
        fits = memory.largest(
            lambda size: self._bytes(program, formulation, size=size, rank=size), below=program.size
        )
        return (
            f"a conic model of {program.size} coordinates, which takes at least "
            f"{memory.words(needed)} where this machine has {memory.words(allowed)}: up to "
            f"{fits} fit"
        )

    def bytes_for(self, program: Program, formulation: str) -> int:
        """Least memory that a solve of this program takes, told without building the model."""
        least = self._bytes(program, formulation, size=program.size, rank=0)
        if least > memory.physical():  # and the rank of H is not worth an hour
            return least
        rank = 0 if program.limited else int(np.linalg.matrix_rank(program.factor))
        return self._bytes(program, formulation, size=program.size, rank=rank)

    def _bytes(self, program: Program, formulation: str, *, size: int, rank: int) -> int:
        return self.memory(
            model_size(
                size,
                epochs=program.participation.epochs,
                rank=rank,
                formulation=formulation,
                limited=program.limited,
                parts=self.parts,
            )
        )

    def availability(self) -> Availability:
        # Only a missing distribution reads as "not installed": a broken import must surface.
        try:
            version = importlib.metadata.version(self.distribution)
        except importlib.metadata.PackageNotFoundError:
            return Availability(installed=False, licensed=False, remedy=self.remedy)
        problem = self.licence() if self.licence is not None else None
        return Availability(
            installed=True, version=version, licensed=problem is None, remedy=problem or ""
        )

    def options(self, monitor: Monitor) -> Options:
        """Solver options for the accuracy and time that the monitor allows."""
        options: Options = dict(self.always or {})
        if monitor.tolerance is not None:
            options.update(self.accuracy(monitor.tolerance))
        if self.limit is not None and monitor.time_limit is not None:
            options.update(self.limit(max(monitor.remaining, 0.01)))
        return _merged(options)

    def options_for(self, program: Program, *, monitor: Monitor, formulation: str) -> Options:
        """As :meth:`options`, with what is known of (P) in this formulation."""
        options = self.options(monitor)
        if formulation == BALANCED and self.tuned is not None:
            options |= self.tuned(program, None if monitor.tolerance is None else monitor.gap)
        return options

    def solve(self, program: Program, *, monitor: Monitor, formulation: str) -> Answer:
        from noisedesign.conic import data as conic_data
        from noisedesign.conic import run as conic_runs
        from noisedesign.families.disjoint import conic_model

        started = time.perf_counter()
        model = conic_model.build(program, formulation=formulation, parts=self.parts)
        if self.direct is not None:
            run = self.direct(model.conic)
        else:
            run = conic_runs.through_cvxpy(model.conic, self.solver)
        built = time.perf_counter()
        iterations, asked = 0, monitor
        while True:
            try:
                found = run(self.options_for(program, monitor=asked, formulation=formulation))
            except KeyboardInterrupt:
                found = conic_runs.Outcome(stop=Stop.INTERRUPTED)
            iterations += found.iterations
            looser = _looser(asked)
            if found.stop is not Stop.FAILED or looser is None:
                break
            asked = looser
        solved = time.perf_counter()
        stop, point = found.stop, found.point
        # Some solvers report a limit of time as a failure, others as one of iterations.
        if stop in (Stop.INACCURATE, Stop.FAILED) and monitor.expired:
            stop = Stop.TIME_LIMIT
        return Answer(
            stop=stop,
            gram=None if point is None else model.gram(point),
            dual=None if point is None else model.dual(point),
            message=found.message,
            build_seconds=built - started,
            solve_seconds=solved - built,
            evaluations=iterations,
            measure=lambda: None if point is None else conic_data.errors_of(model.conic, point),
        )


def _looser(monitor: Monitor) -> Monitor | None:
    """The same clock for a digit less; None where nothing looser is worth a try."""
    tolerance = monitor.tolerance
    if tolerance is None or tolerance > LOOSEST / 5 or monitor.expired:
        return None
    return replace(monitor, gap=monitor.gap * 10, tolerance=tolerance * 10)


def _merged(options: Options) -> Options:
    """MOSEK nests its parameters: those of accuracy and of the limit go into one dictionary."""
    nested: Options = {}
    flat: Options = {}
    for key, value in options.items():
        if key.startswith("MSK_"):
            nested[key] = value
        else:
            flat[key] = value
    return {**flat, "mosek_params": nested} if nested else flat


def _mosek_licence() -> str | None:
    """What to do about a missing licence, or None where one can be checked out."""
    mosek = importlib.import_module("mosek")
    try:
        with mosek.Env() as environment:
            environment.checkoutlicense(mosek.feature.pts)
    except mosek.Error as error:
        return (
            f"no licence ({error.errno}). Free academic and trial licences: "
            "https://www.mosek.com/license/request; save it as ~/mosek/mosek.lic or name it in "
            "MOSEKLM_LICENSE_FILE"
        )
    return None


def _through_scs(conic: ConicProgram) -> Run:
    from noisedesign.conic import run as conic_runs

    return conic_runs.through_scs(conic)


def _through_clarabel(conic: ConicProgram) -> Run:
    from noisedesign.conic import run as conic_runs

    return conic_runs.through_clarabel(conic)


def _tuned_scs(program: Program, gap: float | None) -> Options:
    """SCS in balanced coordinates, where designs and multipliers are of the same size: scale 1.

    Bounds are flat at their tops, so that a certified gap goes with the square of the tolerance,
    and what is asked for is the loosest that is certified; repairs under limits are paid in the
    first order.
    """
    options: Options = {"acceleration_interval": 1, "scale": 0.3 if program.limited else 1.0}
    if gap is not None:
        tolerance = gap / 30 if program.limited else math.sqrt(gap) / 30
        options |= {"eps_abs": tolerance, "eps_rel": tolerance}
    return options


def _tuned_clarabel(program: Program, gap: float | None) -> Options:
    """Answers of interior points are certified to up to three times their tolerance."""
    tolerance = None if gap is None else gap / 3
    names = ("tol_gap_abs", "tol_gap_rel", "tol_feas")
    return {} if tolerance is None else dict.fromkeys(names, tolerance)


CONIC_BACKENDS: tuple[ConicBackend, ...] = (
    ConicBackend(
        name="scs", solver="SCS", distribution="scs",
        remedy="pip install scs",
        accuracy=lambda tol: {"eps_abs": tol, "eps_rel": tol},
        memory=lambda model: 64 * model.entries,
        limit=lambda seconds: {"time_limit_secs": seconds},
        always={"max_iters": 1_000_000},
        direct=_through_scs, parts=1, tuned=_tuned_scs,
    ),
    ConicBackend(
        name="clarabel", solver="CLARABEL", distribution="clarabel",
        remedy="pip install clarabel",
        accuracy=lambda tol: {"tol_gap_abs": tol, "tol_gap_rel": tol, "tol_feas": tol},
        memory=lambda model: 48 * model.entry_pairs,
        limit=lambda seconds: {"time_limit": seconds},
        direct=_through_clarabel, tuned=_tuned_clarabel,
    ),
    ConicBackend(
        name="mosek", solver="MOSEK", distribution="Mosek",
        remedy="pip install 'noisedesign[mosek]', and a licence from "
        "https://www.mosek.com/license/request",
        accuracy=lambda tol: {
            "MSK_DPAR_INTPNT_CO_TOL_REL_GAP": tol,
            "MSK_DPAR_INTPNT_CO_TOL_PFEAS": tol,
            "MSK_DPAR_INTPNT_CO_TOL_DFEAS": tol,
        },
        memory=lambda model: 4 * model.variables**2,
        limit=lambda seconds: {"MSK_DPAR_OPTIMIZER_MAX_TIME": seconds},
        # An answer MOSEK is not sure of is judged like any other.
        always={"accept_unknown": True},
        licence=_mosek_licence,
    ),
    ConicBackend(
        name="cvxopt", solver="CVXOPT", distribution="cvxopt",
        remedy="pip install 'noisedesign[solvers]'",
        accuracy=lambda tol: {"abstol": tol, "reltol": tol, "feastol": tol},
        memory=lambda model: 16 * model.variables * model.entries,
    ),
    ConicBackend(
        name="sdpa", solver="SDPA", distribution="sdpa-python",
        remedy="pip install 'noisedesign[solvers]'",
        accuracy=lambda tol: {"epsilonStar": tol, "epsilonDash": tol},
        memory=lambda model: 8 * model.variables**2,
    ),
)  # fmt: skip


def conic_solver(name: str) -> ConicBackend:
    """The conic solver of that name.

    Raises:
        InputError: no such solver, or none that runs here.
    """
    solver = next((solver for solver in CONIC_BACKENDS if solver.name == name), None)
    if solver is None or not solver.availability().ready:
        raise InputError(
            "backend",
            expected="an installed conic solver",
            got=repr(name),
            remedy="" if solver is None else solver.availability().remedy,
        )
    return solver
