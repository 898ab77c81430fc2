"""The one verb: a problem in, a certified design out."""

from __future__ import annotations

import importlib.metadata
import platform
import time
from dataclasses import dataclass, replace
from functools import partial
from types import NoneType
from typing import Any

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base import settings
from noisedesign.base.checks import Array, InputError
from noisedesign.base.shown import Shown
from noisedesign.conic import process as isolated
from noisedesign.conic.dimacs import Errors
from noisedesign.families import structured
from noisedesign.families.disjoint import attainment
from noisedesign.families.disjoint.options import Extras
from noisedesign.families.disjoint.start import Start
from noisedesign.families.disjoint.warm_start import start_of
from noisedesign.families.observers import search
from noisedesign.families.observers.family import solve_against
from noisedesign.program import certificate, repair
from noisedesign.program.backend import Checkpoint, ProgressCallback
from noisedesign.program.backends import Answer, Backend, Monitor, Stop, get_backend
from noisedesign.program.certificate import Certificate
from noisedesign.program.design import PROTECTS, Design, Provenance
from noisedesign.program.problem import Problem, SpaceProblem, SpaceTimeProblem, problem_of
from noisedesign.program.program import (
    DualPoint,
    Program,
    denormalized_gram,
    is_structured,
    program_of,
    uniform_dual,
)

OPTIMAL = "optimal"
INACCURATE = "inaccurate"
LOCAL = "local-optimum"
FAILED = "failed"
INTERRUPTED = Stop.INTERRUPTED.value

STAND_IN = "ldp"
"""The method of a design that takes the place of one that was not found."""

OBSERVER_BACKEND = "clarabel"
"""What solves problems against chosen observers where no conic solver is named."""

TOLERANCE_PER_GAP = 0.1
"""Solvers without a certified gap are asked for a tenth of it: their residuals are not ours."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Solution(Shown):
    """What came of a solve.

    ``status`` is "optimal" (certified to the gap asked for), "inaccurate" (certified, but to a
    larger gap), "local-optimum" (the best a search in a nonconvex structure found; the gap is that
    to the optimum without a structure), "time-limit" or "interrupted" (stopped; the best certified
    answer so far), or "failed" (no usable answer; ``design`` is None). ``remedy`` says what to do
    about anything but the first, and how large noise is where W is singular and little bounds it.
    ``seconds`` is the whole solve, ``build_seconds`` and ``solve_seconds`` the backend's own parts
    of it. ``errors`` are the six DIMACS errors of a conic model as it was solved
    (:mod:`noisedesign.conic.dimacs`).
    """

    problem: Problem
    backend: str
    status: str
    design: Design | None
    remedy: str
    seconds: float
    build_seconds: float
    solve_seconds: float
    evaluations: int
    errors: Errors | None = None

    def _title(self) -> str:
        return f"Solution of {self.problem.name!r}"

    def _facts(self) -> dict[str, object]:
        design, numbers = self.design, {}
        if design is not None:
            numbers = {
                "objective": design.objective,
                "lower bound": design.lower_bound,
                "gap": design.gap,
                "relative to LDP": design.relative_to_ldp,
                "feasible": self.feasible,
                "protects": PROTECTS.get(design.trust),
            }
        return {
            "status": self.status,
            **numbers,
            "backend": self.backend,
            "evaluations": self.evaluations,
            "seconds": self.seconds,
            "remedy": self.remedy,
        }

    @property
    def certificate(self) -> Certificate | None:
        return None if self.design is None else self.design.certificate

    @property
    def feasible(self) -> bool:
        return self.certificate is not None and self.certificate.feasible

    @property
    def found(self) -> bool:
        """Whether the design is an answer: where a solver is stopped with nothing in its hands, the
        design is independent noise, for which nobody had to look."""
        return self.design is not None and (
            self.status == OPTIMAL or self.design.provenance.method != STAND_IN
        )


def solve(
    problem: Problem,
    *,
    backend: str = "native",
    gap: float | None = None,
    time_limit: float | None = None,
    formulation: str | None = None,
    progress: ProgressCallback | None = None,
    isolate: bool | None = None,
    device: str = "cpu",
    checkpoint: Checkpoint | None = None,
    start: DualPoint | Design | Start | None = None,
) -> Solution:
    """Design the noise of ``problem`` and certify it.

    Args:
        problem: a :class:`SpaceProblem`, :class:`TimeProblem` or :class:`SpaceTimeProblem`, or what
            has one: a loaded file or a design, whose problem is solved.
        backend: "native", "scs", "clarabel", "mosek", "cvxopt" or "sdpa"; problems with a
            structure, in space-time or under min-separation participation are for "native" alone,
            those against chosen observers for the others ("native" stands for "clarabel" there).
        gap: relative duality gap to certify, default 1e-6, or 1e-5 against observers. Given
            explicitly, conic solvers are asked for an accuracy to match; otherwise they run at
            their own defaults.
        time_limit: seconds; the best certified answer so far is returned when they are over.
        formulation: of the conic model: "balanced", the default, "compact", "covariance" or
            "paper".
        progress: called with the bounds of every iteration of the native backend.
        isolate: run a conic solver in its own process, where it can be stopped; default: only
            with a time limit.
        device: where the native solvers of problems without limits compute: "cpu", "cuda" or
            "cuda:N".
        checkpoint: where the native solvers of problems without limits keep their multipliers while
            they run, and what they go on from (:class:`noisedesign.CheckpointFile`).
        start: where the same solvers begin, unless a checkpoint holds more: a design of a problem
            of the same size and participation, or its ``dual``. It changes the number of
            evaluations, not what the answer means.

    Raises:
        InputError: a backend that is unknown, not installed, unlicensed or cannot take the
            problem; gap or time_limit <= 0; a singular W (or H) whose noise nothing bounds;
            a device that is not there; a checkpoint of another problem, or a damaged one; a start
            of another size, or for a solver that takes none.
    """
    started = time.perf_counter()
    problem = problem_of(problem)
    asked = settings.DEFAULT_GAP if gap is None else _checks.real(gap, field="gap", low=0, high=1)
    _checks.instance(isolate, (bool, NoneType), field="isolate", expected="True, False or None")
    if time_limit is not None:
        time_limit = _checks.real(time_limit, field="time_limit", low=0)
    extras = Extras(device=device, checkpoint=checkpoint, start=start_of(start))
    if isinstance(problem, SpaceProblem) and problem.observers:
        extras.refused("those against observers")
        if formulation is not None:
            raise InputError(
                "formulation", expected="none against chosen observers", got=formulation
            )
        return _solve_against(
            problem, backend, None if gap is None else asked, time_limit, progress, started
        )
    solver = get_backend(backend)
    if is_structured(problem):
        _refuse_other_backends(solver, formulation)
        extras.refused("those of structured and space-time designs")
        return _solve_structured(problem, asked, time_limit, progress, started)
    assert not isinstance(problem, SpaceTimeProblem)
    program = program_of(problem)
    chosen = _checked_backend(solver, program, formulation)
    solver = extras.given_to(solver, program)
    doubtful, own = attainment.doubtful(program), solver.name == "native"
    monitor = Monitor(
        # A looser answer would not tell whether the optimum is attained.
        gap=min(asked, settings.DEFAULT_GAP) if doubtful and own else asked,
        tolerance=None if gap is None else asked * TOLERANCE_PER_GAP,
        time_limit=time_limit,
        progress=progress,
        checkpoint=checkpoint,
        start=extras.begin_with(program),
    )
    normalized = program.normalized()
    if doubtful and not own:
        probe = Monitor(gap=settings.DEFAULT_GAP, time_limit=time_limit)
        found = get_backend("native").solve(normalized, monitor=probe, formulation="dual")
        if found.stop is Stop.INTERRUPTED:
            raise KeyboardInterrupt
        attainment.refuse_divergent(problem, program, found, time_limit=probe.time_left)
    alone = not own and (time_limit is not None if isolate is None else isolate)
    run = isolated.solve if alone else _solve_here
    answer = run(solver, normalized, monitor=monitor, formulation=chosen)
    if doubtful and own:
        attainment.refuse_divergent(problem, program, answer, time_limit=monitor.time_left)
    judged = _design(problem, program, answer, solver.name, monitor)
    status, remedy = _status(judged, answer, solver.name, asked)
    if judged is not None:
        if doubtful:
            remedy = f"{remedy} {attainment.remark(problem, program, judged)}".strip()
        used = judged.provenance.versions | extras.versions
        judged = replace(
            judged, provenance=replace(judged.provenance, status=status, versions=used)
        )
    seconds = time.perf_counter() - started
    return Solution(
        problem=problem,
        backend=solver.name,
        status=status,
        design=judged,
        remedy=remedy,
        seconds=seconds,
        build_seconds=answer.build_seconds,
        solve_seconds=answer.solve_seconds,
        evaluations=answer.evaluations,
        errors=answer.measure(),
    )


def _refuse_other_backends(backend: Backend, formulation: str | None) -> None:
    if backend.name != "native":
        raise InputError(
            "backend", expected="native for a structured or space-time problem", got=backend.name
        )
    if formulation is not None:
        _checks.one_of(formulation, field="formulation", allowed=backend.formulations)


def _solve_structured(
    problem: Problem,
    gap: float,
    time_limit: float | None,
    progress: ProgressCallback | None,
    started: float,
) -> Solution:
    monitor = Monitor(gap=gap, time_limit=time_limit, progress=progress)
    design = structured.solve(problem, monitor=monitor)
    status, remedy = _structured_status(design, gap)
    design = replace(
        design, provenance=replace(design.provenance, status=status, versions=versions("native"))
    )
    seconds = time.perf_counter() - started
    return Solution(
        problem=problem,
        backend="native",
        status=status,
        design=design,
        remedy=remedy,
        seconds=seconds,
        build_seconds=0.0,
        solve_seconds=design.provenance.solve_seconds,
        evaluations=design.provenance.evaluations,
    )


def _solve_against(
    problem: SpaceProblem,
    backend: str,
    gap: float | None,
    time_limit: float | None,
    progress: ProgressCallback | None,
    started: float,
) -> Solution:
    """Against chosen observers: by a conic solver, which "native" leaves to the library."""
    chosen = OBSERVER_BACKEND if backend == "native" else backend
    asked = search.GAP if gap is None else gap
    monitor = Monitor(
        gap=asked,
        tolerance=min(search.TOLERANCE, asked * TOLERANCE_PER_GAP),
        time_limit=time_limit,
        progress=progress,
    )
    design = solve_against(problem, backend=chosen, monitor=monitor)
    status, remedy = FAILED, "The solver found nothing. Try another backend, or another cap."
    seconds = time.perf_counter() - started
    if design is not None:
        status, remedy = _structured_status(design, asked)
        used = versions(chosen, modelled=True)
        provenance = replace(design.provenance, status=status, versions=used)
        design = replace(design, provenance=provenance)
    return Solution(
        problem=problem,
        backend=chosen,
        status=status,
        design=design,
        remedy=remedy,
        seconds=seconds,
        build_seconds=0.0,
        solve_seconds=seconds,
        evaluations=len(monitor.history),
    )


def _structured_status(design: Design, gap: float) -> tuple[str, str]:
    """As :func:`_status`, of a design that is feasible; its provenance says how it stopped."""
    if design.gap <= gap:
        return OPTIMAL, ""
    stop = design.provenance.status
    if stop == Stop.TIME_LIMIT:
        return stop, f"certified gap {design.gap:.2g}, asked {gap:.2g}. Allow more time."
    if stop == Stop.INTERRUPTED:
        return stop, f"certified gap {design.gap:.2g}, asked {gap:.2g}. Run it again to the end."
    if design.local:
        return LOCAL, ""
    return INACCURATE, f"certified gap {design.gap:.2g}, asked {gap:.2g}: ask for less."


def _solve_here(
    backend: Backend, program: Program, *, monitor: Monitor, formulation: str
) -> Answer:
    return backend.solve(program, monitor=monitor, formulation=formulation)


def _checked_backend(backend: Backend, program: Program, formulation: str | None) -> str:
    """The formulation to use, after checking that the backend can run and take the program."""
    chosen = backend.formulations[0] if formulation is None else formulation
    _checks.one_of(chosen, field="formulation", allowed=backend.formulations)
    if (reason := backend.refusal(program, chosen)) is not None:
        raise InputError(
            "backend",
            expected="one that takes this problem",
            got=f"{backend.name}, which cannot take {reason}",
        )
    available = backend.availability()
    if not available.ready:
        state = "is not licensed" if available.installed else "is not installed"
        raise InputError(
            "backend",
            expected="an installed and licensed backend",
            got=f"{backend.name}, which {state}",
            remedy=available.remedy,
        )
    return chosen


def certified_design(
    problem: Problem,
    program: Program,
    *,
    gram: Array,
    dual: DualPoint | None,
    provenance: Provenance,
    gap: float = settings.DEFAULT_GAP,
    thorough: bool = False,
) -> Design | None:
    """The design of a (nearly feasible) X: repaired, exported and judged; None where it cannot be.

    ``gram`` and ``dual`` belong to ``program``, at its own budgets. Without ``dual``, or with one
    that proves nothing, the bound is that of uniform multipliers; its rounding is kept small
    against ``gap``.
    """
    feasible = repair.feasible_gram(program, gram, dual=dual, thorough=thorough)
    if feasible is None:
        return None
    negligible = settings.NEGLIGIBLE_PER_GAP * gap
    proved = certificate.NOTHING
    if dual is not None:
        proved = certificate.proved_bound(program, dual, negligible=negligible)
    if proved.value <= 0:
        dual, proved = None, certificate.proved_bound(program, uniform_dual(program))
    try:
        if isinstance(problem, SpaceProblem):
            matrix = repair.covariance_of(program, feasible)
            del feasible
            judged = certificate.judge_covariance(program, matrix, bound=proved.value)
        else:
            matrix = repair.strategy_of(program, feasible)
            del feasible  # as whatever has m^2 entries, once it is used
            judged = certificate.judge_strategy(program, matrix, bound=proved.value)
    except np.linalg.LinAlgError:
        return None
    if not judged.feasible or not np.isfinite(judged.objective):
        return None
    matrix.flags.writeable = False
    judged = replace(judged, rounding=proved.rounding)
    return Design(
        problem=problem, matrix=matrix, certificate=judged, provenance=provenance, dual=dual
    )


def independent_gram(program: Program) -> Array:
    """X of independent noise at full budget: budget_j / k on the diagonal (LDP)."""
    return np.diag(program.coordinate_budget / program.participation.epochs)


def _design(
    problem: Problem, program: Program, answer: Answer, backend: str, monitor: Monitor
) -> Design | None:
    """Design and certificate of an answer; independent noise where a stopped solver had none."""
    provenance = Provenance(
        method="optimal",
        backend=backend,
        status=answer.stop.value,
        build_seconds=answer.build_seconds,
        solve_seconds=answer.solve_seconds,
        evaluations=answer.evaluations,
        versions=versions(backend),
        history=tuple(monitor.history),
    )
    dual = None if answer.dual is None else answer.dual.denormalized(program)
    if answer.gram is not None:
        gram = denormalized_gram(program, answer.gram)
        found = partial(
            certified_design,
            problem,
            program,
            gram=gram,
            dual=dual,
            provenance=provenance,
            gap=monitor.gap,
        )
        design = found()
        if design is None or design.gap > monitor.gap:
            tried = [other for other in (design, found(thorough=True)) if other is not None]
            design = min(tried, key=lambda other: other.objective, default=None)
        if design is not None:
            return design
    if answer.stop not in (Stop.TIME_LIMIT, Stop.INTERRUPTED):
        return None
    return certified_design(
        problem,
        program,
        gram=independent_gram(program),
        dual=dual,
        provenance=replace(provenance, method=STAND_IN),
    )


def _status(design: Design | None, answer: Answer, backend: str, gap: float) -> tuple[str, str]:
    """Our verdict, from the certificate and not from the solver, and what to do about it."""
    if design is None:
        why = answer.message or "its answer could not be made feasible"
        others = ["--backend native"] * (backend != "native")
        # Where there is nothing to repair, no gap is loose enough.
        others += ["a looser --gap"] * (answer.gram is not None)
        return FAILED, f"{why}. Try {', or '.join(others)}." if others else f"{why}."
    if design.certificate.gap <= gap:
        return OPTIMAL, ""
    reached = f"certified gap {design.certificate.gap:.2g}, asked {gap:.2g}"
    if design.provenance.method == STAND_IN:
        reached = f"{answer.message or 'nothing was found'}; independent noise has a {reached}"
    if answer.stop is Stop.TIME_LIMIT:
        return Stop.TIME_LIMIT.value, f"{reached}. Allow more time."
    if answer.stop is Stop.INTERRUPTED:
        return Stop.INTERRUPTED.value, f"{reached}. Run it again to the end."
    if backend == "native":
        return INACCURATE, f"{reached}. Rounding is in the way of more: ask for less."
    return INACCURATE, f"{reached}. Ask the backend for it with --gap, or use --backend native."


def versions(backend: str, *, modelled: bool = False) -> dict[str, str]:
    """Versions of what shaped a design's digits; ``modelled`` where that is CVXPY's own model."""
    found: dict[str, Any] = {"python": platform.python_version(), "numpy": np.__version__}
    if backend != "native":
        solver = get_backend(backend)
        found[backend] = solver.availability().version
        if modelled or getattr(solver, "modelled", False):
            found["cvxpy"] = importlib.metadata.version("cvxpy")
    return found
