"""Every backend on every problem, each answer judged by the same certificate."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

from noisedesign.base import checks as _checks
from noisedesign.base import settings
from noisedesign.base.checks import InputError
from noisedesign.base.monitor import Stop
from noisedesign.conic import dimacs
from noisedesign.families.disjoint.start import Start
from noisedesign.program.backends import all_backends, get_backend
from noisedesign.program.design import Design
from noisedesign.program.problem import Problem, problem_of
from noisedesign.tasks.report import AT_TARGET, REFUSED, Record, at_target
from noisedesign.tasks.solve import LOCAL, OPTIMAL, Solution, solve

COLUMNS = (
    "name", "design", "backend", "solved", "status", "reason", "objective", "lower_bound", "gap",
    "relative_to_ldp", *AT_TARGET, "feasible", "build_seconds", "solve_seconds", "seconds",
    "evaluations", *dimacs.NAMES, "versions",
)  # fmt: skip

_NUMBERS = (
    "objective",
    "lower_bound",
    "gap",
    "relative_to_ldp",
    *(name for name in AT_TARGET if name != "adjacency"),
    "build_seconds",
    "solve_seconds",
    "seconds",
)
TYPES: dict[str, type] = {
    **dict.fromkeys((*_NUMBERS, *dimacs.NAMES), float),
    "solved": bool,
    "feasible": bool,
    "evaluations": int,
}
"""Of columns that are not text."""

LOCAL_REASON = "the best that was found; its gap is that to designs without the structure"

Announce = Callable[[str], None]


def compare(
    problems: Sequence[Problem],
    *,
    backends: Sequence[str],
    gap: float | None = None,
    time_limit: float | None = None,
    formulation: str | None = None,
    announce: Announce = lambda _: None,
) -> Iterator[Record]:
    """Yield one record a (problem, backend), as each is finished.

    ``solved`` is true only for a feasible answer certified to the gap: whatever its solver said,
    anything else is a failure with its reason. Every solver is asked for the gap it is judged by.
    Without an answer of the solver's own there is no objective, bound or gap; the columns from mu
    to error_at_target are those of :data:`noisedesign.tasks.report.AT_TARGET`.
    A backend that cannot take a problem gives a record with status "refused". The columns err1 to
    err6 are the DIMACS errors of what a conic solver left (:mod:`noisedesign.conic.dimacs`), and
    None elsewhere; ``versions`` are those of what solved it.

    Args:
        formulation: of the conic backends.
        announce: told what is about to run.

    Raises:
        InputError: at once, for an unknown backend or formulation, gap or time_limit <= 0.
    """
    asked = settings.DEFAULT_GAP if gap is None else _checks.real(gap, field="gap", low=0, high=1)
    if time_limit is not None:
        _checks.real(time_limit, field="time_limit", low=0)
    asking = "a list of problems"
    problems = [
        problem_of(given) for given in _checks.listed(problems, field="problems", expected=asking)
    ]
    backends = _checks.listed(backends, field="backends", expected="a list of names of backends")
    for backend in backends:
        get_backend(backend)
    if formulation is not None:
        known = (b.formulations for b in all_backends() if b.name != "native")
        allowed = tuple(dict.fromkeys(itertools.chain.from_iterable(known)))
        _checks.one_of(formulation, field="formulation", allowed=allowed)

    def rows() -> Iterator[Record]:
        for problem in problems:
            for backend in backends:
                announce(f"{problem.name} with {backend}")
                row, _ = answered(
                    problem,
                    backend=backend,
                    gap=asked,
                    time_limit=time_limit,
                    formulation=formulation,
                )
                yield row

    return rows()


def answered(
    problem: Problem,
    *,
    backend: str,
    gap: float,
    time_limit: float | None,
    formulation: str | None = None,
    start: Start | None = None,
) -> tuple[Record, Design | None]:
    """One record of :func:`compare`, and the design where there is one.

    Args:
        start: where the native backend begins.
    """
    row: Record = dict.fromkeys(COLUMNS)
    row |= {
        "name": problem.name,
        "design": problem.axes,
        "backend": backend,
        "solved": False,
        "feasible": False,
    }
    chosen = None if backend == "native" else formulation
    try:
        solution = solve(
            problem,
            backend=backend,
            gap=gap,
            time_limit=time_limit,
            formulation=chosen,
            isolate=True,
            start=start,
        )
    except InputError as error:
        return row | {"status": REFUSED, "reason": str(error)}, None
    if solution.status == Stop.INTERRUPTED:
        raise KeyboardInterrupt  # a row half done is no row, and whoever pressed Ctrl-C wants out
    row |= {
        "status": solution.status,
        "solved": solution.status == OPTIMAL and solution.feasible,
        "reason": LOCAL_REASON if solution.status == LOCAL else solution.remedy,
        "feasible": solution.feasible and solution.found,
        "build_seconds": solution.build_seconds,
        "solve_seconds": solution.solve_seconds,
        "seconds": solution.seconds,
        "evaluations": solution.evaluations,
        "versions": _versions(solution),
    }
    if solution.errors is not None:
        row |= dict(zip(dimacs.NAMES, solution.errors, strict=True))
    design = solution.design
    if design is not None and solution.found:
        row |= {
            "objective": design.objective,
            "lower_bound": design.lower_bound,
            "gap": design.gap,
            "relative_to_ldp": design.relative_to_ldp,
            **at_target(design),
        }
    return row, design


def _versions(solution: Solution) -> str:
    """Of the solver, which may be another one than was named: "native" leaves some to others."""
    design = solution.design
    used = (
        get_backend(solution.backend).versions() if design is None else design.provenance.versions
    )
    return ", ".join(f"{name} {version}" for name, version in used.items())
