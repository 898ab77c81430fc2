"""Decompositions of native solves of every shipped problem: ``python -m benchmarks.counts``.

Counts are of eigendecompositions and singular value decompositions of the problem's size, and do
not depend on the machine. Problems with a structure, whose iterations cost something else, are left
out, and so are those against chosen observers.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Container
from pathlib import Path

import noisedesign as nd
from noisedesign.families.disjoint.program import program_of
from noisedesign.families.family import family_of
from noisedesign.files.problem_file import load_problem
from noisedesign.problem.problem import Problem
from noisedesign.tasks import report
from noisedesign.tasks.report import Record

PROBLEMS = Path(__file__).parents[1] / "problems"
OTHER_FILES = ("unbounded", "accounts", "sweeps", "papers", "training")
GAPS = (1e-6, 1e-9)
GROUP = ["design", "W or H", "limits", "k"]


def shipped(names: Container[str] | None = None) -> dict[str, Problem]:
    """Problems of one matrix without a structure, by folder and file name: all, or those named."""
    found = {}
    for path in sorted(PROBLEMS.glob("*/*.toml")):
        name = f"{path.parent.name}/{path.stem}"
        if path.parent.name in OTHER_FILES or (names is not None and name not in names):
            continue
        try:
            problem = load_problem(path).problem
        except nd.InputError as error:
            print(f"  {name} is left out: {error}", file=sys.stderr)
            continue
        if family_of(problem).name == "disjoint":
            found[name] = problem
    return found


def row_of(name: str, problem: Problem) -> Record:
    """Counts and statuses at both gaps, and what kind of problem it is."""
    program = program_of(problem)
    limits = {"cap": program.cap is not None, "floor": program.floored}
    row: Record = {
        "problem": name,
        "design": problem.axes,
        "k": program.participation.epochs,
        "W or H": "singular" if program.null_space.shape[1] else "regular",
        "limits": " and ".join(limit for limit, there in limits.items() if there) or "none",
    }
    for gap in GAPS:
        solution = nd.solve(problem, gap=gap)
        row[f"eigh, gap {gap:g}"] = solution.evaluations
        row[f"status, gap {gap:g}"] = solution.status
    return row


def largest(rows: list[Record]) -> list[Record]:
    """The largest counts of every group of problems alike in :data:`GROUP`."""
    groups: dict[tuple[object, ...], list[Record]] = defaultdict(list)
    for row in rows:
        groups[tuple(row[column] for column in GROUP)].append(row)
    found: list[Record] = []
    for key in sorted(groups, key=str):
        record: Record = {"problems": len(groups[key])}
        record.update({column: groups[key][0][column] for column in GROUP})
        for gap in GAPS:
            column = f"eigh, gap {gap:g}"
            record[column] = max(int(str(row[column])) for row in groups[key])
        found.append(record)
    return found


def print_tables() -> None:
    """One row a problem, then one a group."""
    rows = [row_of(name, problem) for name, problem in shipped().items()]
    counted = [f"eigh, gap {gap:g}" for gap in GAPS]
    columns = [f"{what}, gap {gap:g}" for gap in GAPS for what in ("eigh", "status")]
    print()
    report.print_table(
        rows,
        ["problem", "W or H", "limits", "k", *columns],
        title="eigendecompositions of native solves of the shipped problems",
    )
    print()
    report.print_table(
        largest(rows), [*GROUP, "problems", *counted], title="the largest of each group"
    )


if __name__ == "__main__":
    print_tables()
