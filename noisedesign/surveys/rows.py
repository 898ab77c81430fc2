"""Tables of one row a problem and backend, each answer judged by the same certificate."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from noisedesign.base.checks import InputError
from noisedesign.base.monitor import Stop
from noisedesign.conic.data import ERRORS
from noisedesign.design.backends import get_backend
from noisedesign.design.design import Design
from noisedesign.design.solve import FAILED, OPTIMAL, solve
from noisedesign.families.family import BEST_FOUND, LOCAL, SEARCHED, STATISTICAL
from noisedesign.problem.problem import Problem
from noisedesign.surveys.results_file import KEY, ResultsFile
from noisedesign.tasks.evaluate import error_of_run
from noisedesign.tasks.report import AT_TARGET, OF_RUN, REFUSED, Record, at_target

_OF_A_SOLUTION = ("status", "build_seconds", "solve_seconds", "seconds", "evaluations")
_OF_A_DESIGN = ("objective", "lower_bound", "gap", "relative_to_ldp")

COLUMNS = (
    *("name", "design", "backend", "solved", "status", "reason", *_OF_A_DESIGN, *AT_TARGET),
    OF_RUN,
    *("feasible", "build_seconds", "solve_seconds", "seconds", "evaluations"),
    *(*ERRORS, "versions"),
)
"""Columns of an answer.

``solved`` is true only for a feasible answer certified to the gap: whatever its solver said,
anything else is a failure with its ``reason``, and a problem that a backend cannot take has status
"refused". The columns from mu to error_at_target are those of
:data:`noisedesign.tasks.report.AT_TARGET`, and error_of_run is that of the whole run, by which
designs in space and in time compare; err1 to err6 are the DIMACS errors of what a conic
solver left (:mod:`noisedesign.conic.data`).
"""

_TEXT = ("name", "design", "backend", "status", "reason", "adjacency", "which", "versions")
TYPES: dict[str, type] = {  # types of the columns that are not text
    **{column: float for column in COLUMNS if column not in _TEXT},
    "solved": bool,
    "feasible": bool,
    "evaluations": int,
}

SEARCHED_REASONS = {
    LOCAL: "the best that was found; its gap is that to designs without the structure",
    BEST_FOUND: "the best that was found; its gap is that to a bound on all linear mechanisms",
    STATISTICAL: "its gap holds with a confidence: objective and bound are statistical",
}

Progress = Callable[[int, int], None]


R = TypeVar("R", bound=Any)  # a row to compute, which has a ``key``


def named(name: str, design: str, backend: str) -> Record:
    asked = {"name": name, "design": design, "backend": backend}
    return dict.fromkeys(COLUMNS) | asked | {"solved": False, "feasible": False}


def answered(
    problem: Problem, *, backend: str, formulation: str | None = None, **how: Any
) -> tuple[Record, Design | None]:
    """The columns of an answer, and the design where there is one."""
    # A KeyboardInterrupt passes: a row half done is no row.
    if len(get_backend(backend).formulations) > 1:
        how["formulation"] = formulation
    solution = solve(problem, backend=backend, isolate=True, **how)
    if solution.status == Stop.INTERRUPTED:
        raise KeyboardInterrupt  # whoever pressed Ctrl-C wants out
    design = solution.design
    known = None if design is None else design.provenance.versions
    # Those of the solver, which may be another one than was named: "native" leaves some to others.
    versions = get_backend(solution.backend).versions() if known is None else known
    told = [SEARCHED_REASONS.get(solution.status, solution.remedy)]
    if solution.default_cap is not None:
        told.append(f"largest variance {solution.default_cap}")
    row = named(problem.name, problem.axes, backend) | {
        **{name: getattr(solution, name) for name in _OF_A_SOLUTION},
        "solved": solution.status == OPTIMAL and solution.feasible,
        "reason": ". ".join(filter(None, told)),
        "feasible": solution.feasible and solution.found,
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
    }
    if solution.errors is not None:
        row |= dict(zip(ERRORS, solution.errors, strict=True))
    if design is not None and solution.found:
        row |= {name: getattr(design, name) for name in _OF_A_DESIGN} | at_target(design)
        row[OF_RUN] = error_of_run(design)
    return row, design


def attempted(row: Record, answer: Callable[[], Record]) -> Record:
    """Return the ``answer``; whatever goes wrong is a status with a reason of a ``named`` row."""
    started = time.perf_counter()
    try:
        return answer()
    except InputError as error:
        return row | {"status": REFUSED, "reason": str(error)}
    except Exception as error:  # one problem that nobody foresaw is no reason to lose the others
        seconds = time.perf_counter() - started
        reason = f"{type(error).__name__}: {error}"
        spent = {"build_seconds": 0.0, "solve_seconds": seconds, "seconds": seconds}
        return row | {"status": FAILED, "reason": reason} | spent


def kept(
    wanted: Sequence[R],
    compute: Callable[[list[R]], Iterator[Record]],
    *,
    table: ResultsFile | None,
    retry: bool,
    progress: Progress | None = None,
) -> tuple[dict[str, Record], int]:
    """All rows by their key, and how many of them the table had."""
    # Rows are in the table as soon as ``compute`` yields them: the next call goes on from there.
    rows = {} if table is None else table.rows
    # A table has no way to say None of a text.
    known: dict[str, Record] = {
        row.key: {c: None if x == "" and c != "reason" else x for c, x in rows[row.key].items()}
        for row in wanted
        if row.key in rows
    }
    if retry:
        known = {k: row for k, row in known.items() if row["solved"] or row["status"] in SEARCHED}
    left = [row for row in wanted if row.key not in known]
    done = len(wanted) - len(left)
    if progress is not None:
        progress(done, len(wanted))
    for count, record in enumerate(compute(left), start=done + 1):
        if table is not None:
            table.put_all([record])
        known[record[KEY]] = record
        if progress is not None:
            progress(count, len(wanted))
    return known, done
