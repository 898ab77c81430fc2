"""One row of a sweep: the same to its gap wherever it is computed, and never an error.

Rows of a grid are alike, so a row starts from the nearest that the same process solved before it:
that saves evaluations and changes no answer by more than its gap.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from noisedesign.base.threads import one_thread
from noisedesign.families.disjoint.warm_start import Neighbours
from noisedesign.files.problem_file import parse_problem
from noisedesign.files.results_file import KEY, RESULTS_FORMAT, SWEEP, format_column
from noisedesign.files.sweep_file import SweepRow
from noisedesign.program.backends import get_backend
from noisedesign.tasks import rows as judging
from noisedesign.tasks.report import Record

ASKED_GAP, TIME_LIMIT = "asked_gap", "time_limit"
"""Columns of what was asked for: a relative duality gap, and seconds or nothing."""

WARM = "warm"
"""Column that says whether the row started from another: its evaluations and seconds are fewer."""

TYPES: dict[str, type] = judging.TYPES | {ASKED_GAP: float, TIME_LIMIT: float, WARM: bool}

_worker = Neighbours()
"""What this process solved as a worker, of whichever sweeps."""


def columns_of(keys: Iterable[str]) -> tuple[str, ...]:
    """Columns after version and key: the swept keys, what was asked, how it started, and those of a
    comparison.

    A swept name or design is told by the column of the comparison.
    """
    swept = (key for key in keys if key not in judging.COLUMNS)
    return (*swept, ASKED_GAP, TIME_LIMIT, WARM, *judging.COLUMNS)


def row_of(row: SweepRow, neighbours: Neighbours) -> Record:
    """Solve and judge one problem; whatever goes wrong is a status with a reason.

    Args:
        neighbours: what the row may start from; its own design is added.

    Raises:
        KeyboardInterrupt: a row half done is no row.
    """

    def answer() -> Record:
        problem = parse_problem(row.text, folder=row.folder).problem
        remembers = get_backend(row.backend).remembers
        start = neighbours.nearest(problem) if remembers else None
        found, design = judging.answered(
            problem, backend=row.backend, gap=row.gap, time_limit=row.time_limit, start=start
        )
        if remembers and design is not None:
            neighbours.add(design)
        return {WARM: start is not None} | found

    return _asked(row) | judging.attempted(row, answer)


def row_on_one_thread(row: SweepRow) -> Record:
    """As :func:`row_of`, of a worker: where others need the other cores."""
    with one_thread():
        return row_of(row, _worker)


def unanswered(row: SweepRow, *, status: str, reason: str) -> Record:
    """The row of a problem without an answer."""
    return _asked(row) | judging.unanswered(row, status=status, reason=reason)


def _asked(row: SweepRow) -> Record:
    return {
        format_column(SWEEP): RESULTS_FORMAT[SWEEP],
        KEY: row.key,
        **row.parameters,
        ASKED_GAP: row.gap,
        TIME_LIMIT: row.time_limit,
        WARM: False,
    }


def in_turn(rows: Iterable[SweepRow]) -> Iterator[Record]:
    """The rows one after the other, in this process."""
    neighbours = Neighbours()
    return (row_of(row, neighbours) for row in rows)
