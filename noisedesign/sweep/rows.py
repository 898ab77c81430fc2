"""One row of a sweep: the same wherever it is computed, and never an error."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from noisedesign import compare
from noisedesign._checks import InputError
from noisedesign._threads import one_thread
from noisedesign.io.problem_file import parse_problem
from noisedesign.io.results_file import KEY, RESULTS_FORMAT, format_column
from noisedesign.io.sweep_file import SweepRow
from noisedesign.report import Record
from noisedesign.solve import FAILED

ASKED_GAP, TIME_LIMIT = "asked_gap", "time_limit"
"""Columns of what was asked for: a relative duality gap, and seconds or nothing."""


def columns_of(keys: Iterable[str]) -> tuple[str, ...]:
    """Columns after version and key: the swept keys, what was asked, and those of a comparison.

    A swept name or design is told by the column of the comparison.
    """
    swept = (key for key in keys if key not in compare.COLUMNS)
    return (*swept, ASKED_GAP, TIME_LIMIT, *compare.COLUMNS)


def row_of(row: SweepRow) -> Record:
    """Solve and judge one problem; whatever goes wrong is a status with a reason.

    Raises:
        KeyboardInterrupt: a row half done is no row.
    """
    try:
        problem = parse_problem(row.text, folder=row.folder).problem
        (answer,) = compare.compare(
            [problem], backends=[row.backend], gap=row.gap, time_limit=row.time_limit
        )
    except InputError as error:
        return unanswered(row, status=compare.REFUSED, reason=str(error))
    except Exception as error:  # one problem that nobody foresaw is no reason to lose the others
        return unanswered(row, status=FAILED, reason=f"{type(error).__name__}: {error}")
    return _asked(row) | answer


def row_on_one_thread(row: SweepRow) -> Record:
    """As :func:`row_of`, where other workers need the other cores."""
    with one_thread():
        return row_of(row)


def unanswered(row: SweepRow, *, status: str, reason: str) -> Record:
    """The row of a problem without an answer."""
    answer: dict[str, Any] = dict.fromkeys(compare.COLUMNS)
    answer |= {"name": row.name, "design": row.design, "backend": row.backend, "solved": False,
               "status": status, "reason": reason, "feasible": False}  # fmt: skip
    return _asked(row) | answer


def _asked(row: SweepRow) -> Record:
    return {
        format_column(KIND): RESULTS_FORMAT[KIND], KEY: row.key, **row.parameters,
        ASKED_GAP: row.gap, TIME_LIMIT: row.time_limit,
    }  # fmt: skip


def in_turn(rows: Iterable[SweepRow]) -> Iterator[Record]:
    """The rows one after the other, in this process."""
    return map(row_of, rows)
