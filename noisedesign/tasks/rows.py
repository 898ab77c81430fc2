"""Tables of one row a problem and backend, each answer judged by the same certificate."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

from noisedesign.base.checks import InputError
from noisedesign.base.monitor import Stop
from noisedesign.conic.data import ERRORS
from noisedesign.families.disjoint.warm_start import Start
from noisedesign.files.results_file import KEY, ResultsFile
from noisedesign.program.backends import get_backend
from noisedesign.program.design import Design
from noisedesign.program.family import BEST_FOUND, LOCAL, SEARCHED, STATISTICAL
from noisedesign.program.problem import Problem
from noisedesign.tasks.report import AT_TARGET, REFUSED, Record, at_target
from noisedesign.tasks.solve import FAILED, OPTIMAL, Solution, solve

_OF_A_SOLUTION = ("status", "build_seconds", "solve_seconds", "seconds", "evaluations")
_OF_A_DESIGN = ("objective", "lower_bound", "gap", "relative_to_ldp")

COLUMNS = (
    *("name", "design", "backend", "solved", "status", "reason", *_OF_A_DESIGN, *AT_TARGET),
    *("feasible", "build_seconds", "solve_seconds", "seconds", "evaluations"),
    *(*ERRORS, "versions"),
)
"""Columns of an answer.

``solved`` is true only for a feasible answer certified to the gap: whatever its solver said,
anything else is a failure with its ``reason``. Without an answer of the solver's own there is no
objective, bound or gap; the columns from mu to error_at_target are those of
:data:`noisedesign.tasks.report.AT_TARGET`. A problem that a backend cannot take has status
"refused". The columns err1 to err6 are the DIMACS errors of what a conic solver left
(:mod:`noisedesign.conic.data`), and None elsewhere; ``versions`` are those of what solved it.
"""

_TEXT = ("name", "design", "backend", "status", "reason", "adjacency", "which", "versions")
TYPES: dict[str, type] = {
    **{column: float for column in COLUMNS if column not in _TEXT},
    "solved": bool,
    "feasible": bool,
    "evaluations": int,
}
"""Of columns that are not text."""

SEARCHED_REASONS = {
    LOCAL: "the best that was found; its gap is that to designs without the structure",
    BEST_FOUND: "the best that was found; its gap is that to a bound on all linear mechanisms",
    STATISTICAL: "its gap holds with a confidence: objective and bound are estimated",
}

Progress = Callable[[int, int], None]


class Row(Protocol):
    """One row to compute."""

    @property
    def key(self) -> str: ...


R = TypeVar("R", bound=Row)


def named(name: str, design: str, backend: str) -> Record:
    """The columns of a row that has no answer yet."""
    asked = {"name": name, "design": design, "backend": backend}
    return dict.fromkeys(COLUMNS) | asked | {"solved": False, "feasible": False}


def answered(
    problem: Problem,
    *,
    backend: str,
    gap: float,
    time_limit: float | None,
    formulation: str | None = None,
    start: Start | None = None,
) -> tuple[Record, Design | None]:
    """The columns of an answer, and the design where there is one.

    Args:
        gap: relative duality gap, which every solver is asked for and judged by.
        formulation: of a backend that has several.
        start: where the native backend begins.

    Raises:
        InputError: the backend cannot take the problem.
        KeyboardInterrupt: a row half done is no row.
    """
    solution = solve(
        problem,
        backend=backend,
        gap=gap,
        time_limit=time_limit,
        formulation=formulation if len(get_backend(backend).formulations) > 1 else None,
        isolate=True,
        start=start,
    )
    if solution.status == Stop.INTERRUPTED:
        raise KeyboardInterrupt  # whoever pressed Ctrl-C wants out
    row = named(problem.name, problem.axes, backend) | {
        **{name: getattr(solution, name) for name in _OF_A_SOLUTION},
        "solved": solution.status == OPTIMAL and solution.feasible,
        "reason": SEARCHED_REASONS.get(solution.status, solution.remedy),
        "feasible": solution.feasible and solution.found,
        "versions": _versions(solution),
    }
    if solution.errors is not None:
        row |= dict(zip(ERRORS, solution.errors, strict=True))
    design = solution.design
    if design is not None and solution.found:
        row |= {name: getattr(design, name) for name in _OF_A_DESIGN} | at_target(design)
    return row, design


def attempted(row: Record, answer: Callable[[], Record]) -> Record:
    """What ``answer`` returns; whatever goes wrong is a status with a reason of a ``named`` row."""
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


def _versions(solution: Solution) -> str:
    """Of the solver, which may be another one than was named: "native" leaves some to others."""
    design = solution.design
    known = None if design is None else design.provenance.versions
    used = get_backend(solution.backend).versions() if known is None else known
    return ", ".join(f"{name} {version}" for name, version in used.items())


def kept(
    wanted: Sequence[R],
    compute: Callable[[list[R]], Iterator[Record]],
    *,
    table: ResultsFile | None,
    retry: bool,
    progress: Progress | None = None,
) -> tuple[dict[str, Record], int]:
    """All rows by their key, and how many of them the table had.

    Every row is in the table as soon as it is computed, so that whatever ends this, the next call
    goes on from there.

    Args:
        compute: records of the rows that are missing, as they are finished.
        retry: those that were not solved are missing too, but for local optima, which stay so.
        progress: called with the number of rows that are finished, and that of all.
    """
    known: dict[str, Record] = {}
    if table is not None:
        known = {r.key: _as_put(table.rows[r.key]) for r in wanted if r.key in table.rows}
    if retry:
        known = {k: row for k, row in known.items() if row["solved"] or row["status"] in SEARCHED}
    left = [row for row in wanted if row.key not in known]
    done = len(wanted) - len(left)
    if progress is not None:
        progress(done, len(wanted))
    for count, record in enumerate(compute(left), start=done + 1):
        if table is not None:
            table.put(record)
        known[record[KEY]] = record
        if progress is not None:
            progress(count, len(wanted))
    return known, done


def _as_put(row: Record) -> Record:
    """A row of a table, which has no way to say None of a text, as it was when it was put there."""
    return {
        column: None if cell == "" and column != "reason" else cell for column, cell in row.items()
    }
