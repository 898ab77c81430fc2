"""Every solver on the public collection: ``python -m benchmarks.collection``.

Tables of the verdicts in ``docs/collection-results.csv``: how many problems each solver brought to
an accuracy within the limit, its mean CPU seconds, seconds problem by problem, and why there was no
answer. ``-o`` draws the profiles as well.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from noisedesign.base.atomic import overwriting
from noisedesign.base.checks import InputError
from noisedesign.files.picture_file import write_figure
from noisedesign.surveys import performance
from noisedesign.surveys.check_results import (
    MISSING,
    PENALTY,
    VERIFIED,
    CheckedResults,
    read_verdicts,
)
from noisedesign.tasks.report import Record

VERDICTS = Path(__file__).parents[1] / "docs" / "collection-results.csv"

CPU_LIMIT = 5.0
"""Of the runs of the collection, in seconds."""

SHOWN = 1e-6
"""The accuracy whose times are listed problem by problem."""


def markdown(rows: Sequence[Record], columns: Iterable[str]) -> str:
    """A Markdown table of records."""
    names = list(columns)
    lines = [names, ["---"] * len(names), *([_cell(row[name]) for name in names] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return "" if value is None else str(value).replace("|", "\\|").replace("\n", " ")


def reached_of(found: CheckedResults, solvers: Sequence[str]) -> list[Record]:
    """A record a problem: CPU seconds to SHOWN, else the best that was reached in time."""
    times = performance.times(found, accuracy=SHOWN)
    table: dict[str, Record] = {
        name: {"problem": name} | dict.fromkeys(solvers, "none") for name in found.problems
    }
    for row in found.rows:
        name, solver = str(row["problem"]), str(row["solver"])
        if (seconds := times[solver].get(name)) is not None:
            table[name][solver] = f"{seconds:.3g}"
        elif row["status"] == VERIFIED:
            late = row["seconds"] > found.time_limit
            table[name][solver] = "late" if late else f"to {row['excess']:.0e}"
    return list(table.values())


def reasons_of(found: CheckedResults) -> list[Record]:
    """Why there was no answer, counted; numbers differ from problem to problem."""
    counted = Counter(
        (str(row["solver"]), re.sub(r"[0-9][0-9.,]*", "#", str(row["reason"])))
        for row in found.rows
        if row["status"] == MISSING
    )
    return [
        {"solver": solver, "runs": count, "reason": reason}
        for (solver, reason), count in sorted(counted.items())
    ]


def checked(path: Path) -> CheckedResults:
    """The verdicts of a table, under the limit of those published."""
    rows = read_verdicts(path)
    if {row["clock"] for row in rows} != {"cpu"}:
        raise InputError("verdicts", expected="runs timed by CPU seconds", got=str(path))
    names = tuple(dict.fromkeys(str(row["problem"]) for row in rows))
    return CheckedResults(rows=tuple(rows), problems=names, time_limit=CPU_LIMIT, penalty=PENALTY)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--verdicts", type=Path, default=VERDICTS, metavar="VERDICTS.csv")
    parser.add_argument("-o", "--output", metavar="FILE", help="picture of the profiles")
    options = parser.parse_args(arguments)
    found = checked(options.verdicts)
    solvers = list(dict.fromkeys(str(row["solver"]) for row in found.rows))
    summary, reasons = performance.summary(found), reasons_of(found)
    print(f"problems reached, and mean seconds of CPU\n\n{markdown(summary, summary[0])}\n")
    times = markdown(reached_of(found, solvers), ["problem", *solvers])
    print(f"seconds to {SHOWN:.0e}, or what was reached\n\n{times}\n")
    print(f"without an answer\n\n{markdown(reasons, ['solver', 'runs', 'reason'])}")
    if options.output:
        with overwriting():
            write_figure(performance.figure_of(found), options.output)


if __name__ == "__main__":
    main()
