"""Every backend on every problem, each answer judged by the same certificate."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from noisedesign.base import checks as _checks
from noisedesign.base import settings
from noisedesign.base.checks import InputError
from noisedesign.base.machine import FIELDS, Machine, this_machine
from noisedesign.base.shown import ROWS, Shown
from noisedesign.files.problem_file import LoadedProblem
from noisedesign.files.results_file import (
    COMPARISON,
    KEY,
    RESULTS_FORMAT,
    ResultsFile,
    format_column,
    open_results,
)
from noisedesign.files.sweep_file import FOR_PEOPLE, KEY_DIGITS
from noisedesign.files.toml import parsed
from noisedesign.program.backends import all_backends, get_backend
from noisedesign.program.family import family_of
from noisedesign.program.problem import Problem, TimeProblem, problem_of
from noisedesign.system.participation import FixedEpoch
from noisedesign.tasks import rows
from noisedesign.tasks.report import REFUSED, Record
from noisedesign.tasks.solve import solve

TIME_LIMIT_SECONDS = 600.0
"""Of one solve. There has to be one: an unsolved problem counts as this in the means."""

WARM_UP = TimeProblem.prefix(participation=FixedEpoch(epochs=2, separation=2))
"""Solved before the clock runs for the first time."""

SHORT_SECONDS = 0.1
"""To build and solve: what takes no longer is run RUNS times, and the median kept."""
RUNS = 3

ASKED = ("asked_gap", "time_limit", "formulation")
"""Columns of what was asked for: a relative duality gap, seconds, a name or nothing."""
COLUMNS = (*ASKED, "runs", *rows.COLUMNS, *FIELDS)
"""Columns of the table after its version and key."""

TYPES: dict[str, type] = rows.TYPES | {
    "asked_gap": float,
    "time_limit": float,
    "runs": int,
    "threads": int,
    "cores": int,
}


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Comparison(Shown):
    """What came of a comparison: ``rows`` of all problems and backends, ``kept`` of them from the
    table, and the machine that all of them were made on. Missing values are None."""

    rows: tuple[Record, ...]
    kept: int
    machine: Machine

    def _title(self) -> str:
        solved = sum(bool(row["solved"]) for row in self.rows)
        return f"Comparison: {solved} of {len(self.rows)} rows solved"

    def _facts(self) -> dict[str, object]:
        rows = {
            f"{row['name']}, {row['backend']}": (
                row["status"]
                if row["gap"] is None
                else f"{row['status']}, gap {row['gap']:.2g}, {row['seconds']:.3g} s"
            )
            for row in self.rows[:ROWS]
        }
        others = len(self.rows) - len(rows)
        return rows | {"others": f"{others} rows" if others else None}


@dataclass(frozen=True, kw_only=True, eq=False)
class _Row:
    key: str
    problem: Problem
    backend: str
    asked: Record

    @property
    def name(self) -> str:
        return self.problem.name

    @property
    def design(self) -> str:
        return self.problem.axes


def compare(
    problems: Sequence[Problem | LoadedProblem],
    *,
    backends: Sequence[str],
    gap: float | None = None,
    time_limit: float = TIME_LIMIT_SECONDS,
    formulation: str | None = None,
    output: str | Path | None = None,
    retry: bool = False,
    announce: Callable[[str], None] = lambda _: None,
) -> Comparison:
    """Solve every problem with every backend, but for what the table at ``output`` has.

    Every row is on the disk as soon as it is finished, so that whatever ends this, the next call
    goes on from there. Times of one table can be compared: one that was begun by other versions, on
    another machine or with other threads is refused. Rows of other problems, backends, gaps or
    limits are left as they are. A problem given twice is run once. What "native" would leave to
    another backend it is taken to refuse, here where it is the backends that are compared.

    Args:
        problems: for a table, loaded ones: rows are told apart by the text of their problem.
        gap: relative duality gap to certify, default 1e-6.
        time_limit: seconds a solve.
        formulation: of the conic backends; default the first of each.
        output: a .csv or .parquet file; columns are its version, the key of a row, what was asked
            for, :data:`noisedesign.tasks.rows.COLUMNS`, and the machine.
        retry: run the rows again that were not solved, but for local optima, which stay so.
        announce: told what is about to run.

    Raises:
        InputError: an unknown backend or formulation, no backends, gap or time_limit <= 0; two
            problems of one name; problems without a text for a table; ``output`` as
            :func:`results_file.open_results`, or a table made elsewhere.
        OSError: the table cannot be written any more; what was finished is kept.
    """
    problems = _checks.listed(problems, field="problems", expected="a list of problems")
    backends = _checks.listed(backends, field="backends", expected="a list of names of backends")
    if not backends:
        raise InputError("backends", expected="at least one backend", got="none")
    for name in backends:
        get_backend(name)
    if formulation is not None:
        several = (b.formulations for b in all_backends() if len(b.formulations) > 1)
        allowed = tuple(dict.fromkeys(itertools.chain.from_iterable(several)))
        _checks.one_of(formulation, field="formulation", allowed=allowed)
    asked = {
        "asked_gap": settings.DEFAULT_GAP
        if gap is None
        else _checks.real(gap, field="gap", low=0, high=1),
        "time_limit": _checks.real(time_limit, field="time_limit", low=0),
        "formulation": formulation,
    }
    wanted = _wanted(problems, backends, asked, stored=output is not None)
    machine = this_machine()
    place = {row.key: f"{number}/{len(wanted)}" for number, row in enumerate(wanted, start=1)}

    def compute(left: list[_Row]) -> Iterator[Record]:
        if left:
            # The first solve of a process loads code; other solvers have processes of their own.
            solve(WARM_UP)
        for row in left:
            announce(f"{place[row.key]} {row.name} with {row.backend}")
            yield _computed(row) | machine.record()

    with ExitStack() as files:
        table = None
        if output is not None:
            table = files.enter_context(
                open_results(output, columns=COLUMNS, kind=COMPARISON, types=TYPES)
            )
            _check_machine(table, machine)
        found, kept = rows.kept(wanted, compute, table=table, retry=retry)
    return Comparison(rows=tuple(found[row.key] for row in wanted), kept=kept, machine=machine)


def _wanted(
    problems: Sequence[Problem | LoadedProblem],
    backends: Sequence[str],
    asked: Record,
    *,
    stored: bool,
) -> list[_Row]:
    wanted: dict[str, _Row] = {}
    known: dict[str, Mapping[str, object]] = {}
    for given in problems:
        problem = problem_of(given)
        tables = _tables(given, stored=stored)
        if known.setdefault(problem.name, tables) != tables:
            raise InputError(
                "problems",
                expected="problems with names of their own",
                got=f"two called {problem.name}",
            )
        for backend in backends:
            parts = json.dumps([RESULTS_FORMAT[COMPARISON], tables, backend, asked], sort_keys=True)
            key = hashlib.sha256(parts.encode()).hexdigest()[:KEY_DIGITS]
            wanted[key] = _Row(key=key, problem=problem, backend=backend, asked=asked)
    return list(wanted.values())


def _tables(given: Problem | LoadedProblem, *, stored: bool) -> Mapping[str, object]:
    """What decides the answers of a problem: rewording what is for people is no reason to solve
    again; files named count by name."""
    if isinstance(given, LoadedProblem):
        tables = parsed(given.text, field="problem")
        return {key: value for key, value in tables.items() if key not in FOR_PEOPLE}
    if stored:
        raise InputError(
            "problems",
            expected="problems with a text, by which a table tells its rows apart",
            got="one without",
            remedy="Give load_problem(path).",
        )
    return {"itself": id(given)}


def _check_machine(table: ResultsFile, machine: Machine) -> None:
    for row in table.rows.values():
        for name, value in machine.record().items():
            if str(row[name]) != str(value):
                raise InputError(
                    "output",
                    expected=f"results with {name} = {value}, as now",
                    got=f"{table.path}: {row[name]}",
                    remedy="Times of two machines or versions are not compared: name another file.",
                )


def _computed(row: _Row) -> Record:
    answers = [_answer(row)]
    while len(answers) < RUNS and answers[0]["solved"] and _seconds(answers[0]) <= SHORT_SECONDS:
        answers.append(_answer(row))
    answers.sort(key=_seconds)
    version = {format_column(COMPARISON): RESULTS_FORMAT[COMPARISON]}
    found = version | {KEY: row.key, **row.asked, "runs": len(answers)}
    return found | answers[len(answers) // 2]


def _seconds(answer: Record) -> float:
    return sum(float(answer[part] or 0.0) for part in ("build_seconds", "solve_seconds"))


def _answer(row: _Row) -> Record:
    if left := get_backend(row.backend).stand_in(family_of(row.problem)):
        reason = f"problems against chosen observers are left to {left}"
        return rows.unanswered(row, status=REFUSED, reason=reason)

    def answer() -> Record:
        found, _ = rows.answered(
            row.problem,
            backend=row.backend,
            gap=row.asked["asked_gap"],
            time_limit=row.asked["time_limit"],
            formulation=row.asked["formulation"],
        )
        return found

    return rows.attempted(row, answer)
