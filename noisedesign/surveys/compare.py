"""A comparison that anyone can rerun: every backend on every problem, and what the times say.

A time is that of building and solving a model; starting a solver's process and judging its answer
are the same for all backends and left out. A problem counts as solved where the answer is certified
to the gap asked for within the time limit, whatever its solver said."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noisedesign.base import checks as _checks, settings
from noisedesign.base.checks import InputError
from noisedesign.base.machine import FIELDS, Machine, this_machine
from noisedesign.base.shown import ROWS, Shown
from noisedesign.design.backends import all_backends, get_backend
from noisedesign.design.solve import solve
from noisedesign.families.family import SEARCHED
from noisedesign.files.picture_file import COLOURS, LINES, legend_below, new_figure, plain, style
from noisedesign.files.problem_file import LoadedProblem
from noisedesign.files.toml import parsed
from noisedesign.problem.problem import Problem, TimeProblem, problem_of
from noisedesign.surveys import rows
from noisedesign.surveys.results_file import (
    COMPARISON,
    KEY,
    RESULTS_FORMAT,
    format_column,
    open_results,
)
from noisedesign.surveys.sweep_file import FOR_PEOPLE, KEY_DIGITS
from noisedesign.system.participation import FixedEpoch
from noisedesign.tasks.report import REFUSED, Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure


TIME_LIMIT_SECONDS = 600.0  # of one solve: an unsolved problem has to count as some limit
WARM_UP = TimeProblem.prefix(participation=FixedEpoch(epochs=2, separation=2))  # unclocked
SHORT_SECONDS = 0.1  # seconds up to which a solve is run RUNS times, and the median kept
RUNS = 3

COLUMNS = ("asked_gap", "time_limit", "formulation", "runs", *rows.COLUMNS, *FIELDS)
"""Columns of the table after its version and key."""

TYPES = rows.TYPES | dict.fromkeys(("asked_gap", "time_limit"), float)
TYPES |= dict.fromkeys(("runs", "threads", "cores"), int)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Comparison(Shown):
    """The rows of a comparison.

    Attributes:
        rows: of all problems and backends; missing values are None.
        kept: how many of them are from the table.
        machine: that all of them were made on.
    """

    rows: tuple[Record, ...]
    kept: int
    machine: Machine

    def _title(self) -> str:
        solved = sum(bool(row["solved"]) for row in self.rows)
        return f"Comparison: {solved} of {len(self.rows)} rows solved"

    def _facts(self) -> dict[str, object]:
        facts: dict[str, object] = {}
        for row in self.rows[:ROWS]:
            told = "" if row["gap"] is None else f", gap {row['gap']:.2g}, {row['seconds']:.3g} s"
            facts[f"{row['name']}, {row['backend']}"] = f"{row['status']}{told}"
        others = len(self.rows) - len(facts)
        return facts | {"others": f"{others} rows" if others else None}


@dataclass(frozen=True, kw_only=True, eq=False)
class _Wanted:
    key: str
    problem: Problem
    backend: str
    asked: Record


def compare(
    problems: Sequence[Problem | LoadedProblem],
    *,
    backends: Sequence[str] | None = None,
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
        backends: names, as of :func:`noisedesign.solve`; None: all that are installed and licensed.
        gap: relative duality gap to certify, default 1e-6.
        time_limit: seconds a solve.
        formulation: of the conic backends; default the first of each.
        output: a .csv or .parquet file; columns are its version, the key of a row, what was asked
            for, :data:`noisedesign.surveys.rows.COLUMNS`, and the machine.
        retry: run the rows again that were not solved, but for local optima, which stay so.
        announce: told what is about to run.

    Returns:
        ``rows`` of all problems and backends, how many of them the table had, and the machine.

    Raises:
        InputError: an unknown backend or formulation, no backends, gap or time_limit <= 0; two
            problems of one name; problems without a text for a table; ``output`` as
            :func:`results_file.open_results`, or a table made elsewhere.
        OSError: the table cannot be written any more; what was finished is kept.

    Examples:
        >>> import noisedesign as nd
        >>> problem = nd.TimeProblem.prefix(participation=nd.participation.single(2))
        >>> comparison = nd.compare([problem], backends=["native", "clarabel"], gap=1e-5)
        >>> for row in comparison.rows:
        ...     print(row["backend"], row["solved"], f"{row['objective']:.3f}")
        native True 2.618
        clarabel True 2.618
    """
    problems = _checks.listed(problems, field="problems", expected="a list of problems")
    if backends is None:
        backends = [one.name for one in all_backends() if one.availability().ready]
    backends = _checks.listed(backends, field="backends", expected="a list of names of backends")
    retry = _checks.flag(retry, field="retry")
    if not backends:
        raise InputError("backends", expected="at least one backend", got="none")
    for name in backends:
        get_backend(name)
    if formulation is not None:
        several = (b.formulations for b in all_backends() if len(b.formulations) > 1)
        allowed = tuple(dict.fromkeys(itertools.chain.from_iterable(several)))
        _checks.one_of(formulation, field="formulation", allowed=allowed)
    gap = settings.DEFAULT_GAP if gap is None else gap
    asked = {
        "asked_gap": _checks.real(gap, field="gap", low=0, high=1),
        "time_limit": _checks.real(time_limit, field="time_limit", low=0),
        "formulation": formulation,
    }
    wanted = _wanted(problems, backends, asked, stored=output is not None)
    machine = this_machine()
    place = {row.key: f"{number}/{len(wanted)}" for number, row in enumerate(wanted, start=1)}

    def compute(left: list[_Wanted]) -> Iterator[Record]:
        if left:
            # The first solve of a process loads code; other solvers have processes of their own.
            solve(WARM_UP)
        for row in left:
            announce(f"{place[row.key]} {row.problem.name} with {row.backend}")
            yield _computed(row) | machine.record()

    how: dict[str, Any] = {"columns": COLUMNS, "kind": COMPARISON, "types": TYPES}
    with nullcontext() if output is None else open_results(output, **how) as table:
        for row in () if table is None else table.rows.values():
            for name, value in machine.record().items():
                if str(row[name]) != str(value):
                    expected, got = (
                        f"results with {name} = {value}, as now",
                        f"{output}: {row[name]}",
                    )
                    remedy = (
                        "Times of two machines or versions are not compared: name another file."
                    )
                    raise InputError("output", expected=expected, got=got, remedy=remedy)
        found, kept = rows.kept(wanted, compute, table=table, retry=retry)
    return Comparison(rows=tuple(found[row.key] for row in wanted), kept=kept, machine=machine)


def _wanted(
    problems: Sequence[Any], backends: Sequence[str], asked: Record, *, stored: bool
) -> list[_Wanted]:
    wanted: dict[str, _Wanted] = {}
    known: dict[str, Mapping[str, object]] = {}
    for given in problems:
        problem = problem_of(given, sparse=True)
        # The tables that decide the answers; files named count by name.
        tables: dict[str, object] = {"itself": id(given)}
        if isinstance(given, LoadedProblem):
            said = parsed(given.text, field="problem")
            tables = {key: value for key, value in said.items() if key not in FOR_PEOPLE}
        elif stored:
            expected = "problems with a text, by which a table tells its rows apart"
            remedy = "Give load(path)."
            raise InputError("problems", expected=expected, got="one without", remedy=remedy)
        if known.setdefault(problem.name, tables) != tables:
            expected = "problems with names of their own"
            raise InputError("problems", expected=expected, got=f"two called {problem.name}")
        for backend in backends:
            parts = json.dumps([RESULTS_FORMAT[COMPARISON], tables, backend, asked], sort_keys=True)
            key = hashlib.sha256(parts.encode()).hexdigest()[:KEY_DIGITS]
            wanted[key] = _Wanted(key=key, problem=problem, backend=backend, asked=asked)
    return list(wanted.values())


def _computed(row: _Wanted) -> Record:
    asked = {"gap" if name == "asked_gap" else name: v for name, v in row.asked.items()}
    blank = rows.named(row.problem.name, row.problem.axes, row.backend)

    def answer() -> Record:
        return rows.answered(row.problem, backend=row.backend, **asked)[0]

    answers = [rows.attempted(blank, answer)]
    if answers[0]["solved"] and (spent(answers[0]) or 0.0) <= SHORT_SECONDS:
        answers += [rows.attempted(blank, answer) for _ in range(RUNS - 1)]
    answers.sort(key=lambda one: spent(one) or 0.0)
    version = {format_column(COMPARISON): RESULTS_FORMAT[COMPARISON]}
    found = version | {KEY: row.key, **row.asked, "runs": len(answers)}
    return found | answers[len(answers) // 2]


SHIFT_SECONDS = 10.0  # before geometric means, as in Mittelmann's: nobody waits for less

WITHIN, WITHIN_SECONDS = "within_", (0.01, 0.1, 1.0, 10.0, 100.0)

Row = Mapping[str, Any]


def shifted_geometric_mean(seconds: Sequence[float], *, shift: float = SHIFT_SECONDS) -> float:
    """exp(mean log(t + shift)) - shift, in seconds."""
    shift = _checks.real(shift, field="shift", low=0)
    if not len(seconds) or not all(0 <= t < math.inf for t in seconds):
        raise InputError("seconds", expected="some times >= 0", got=str(list(seconds)))
    # One logarithm of the ratio to the shift: times far below it keep their digits.
    return shift * math.expm1(math.fsum(math.log1p(t / shift) for t in seconds) / len(seconds))


def spent(row: Row) -> float | None:
    """Seconds to build and solve, whatever came of it; None where nothing was begun."""
    if row["solve_seconds"] is None:
        return None
    return float(row["build_seconds"] + row["solve_seconds"])


def seconds_of(row: Row) -> float | None:
    """Seconds of a certified answer in time, as :func:`spent`; None where there is none."""
    seconds = spent(row)
    late = seconds is None or seconds > row["time_limit"]
    return None if late or not row["solved"] else seconds


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Ascending seconds, or ratios to those of the fastest, in which some of ``problems`` problems
    were solved by one backend or solver."""

    name: str
    problems: int
    times: tuple[float, ...]

    def share(self, *, within: float) -> float:
        """Share of the problems, 0 to 1, solved within so many seconds, or times the fastest."""
        return sum(t <= within for t in self.times) / self.problems


def profiles(rows: Sequence[Row]) -> list[Profile]:
    """One a backend, in the order of the rows. A refused problem is one that is not solved."""
    found = []
    for backend, own in _by_backend(rows).items():
        times = sorted(t for row in own if (t := seconds_of(row)) is not None)
        found.append(Profile(name=backend, problems=len(own), times=tuple(times)))
    return found


def summary(rows: Sequence[Row]) -> list[Record]:
    """One record a backend: counts, shifted geometric means, and the curve at some times."""
    # ``best_found`` counts local optima, ``late`` what is certified past the limit: not solved.
    # An unsolved problem counts as the time limit; ``mean_seconds_common`` is over ``common``.
    groups = _by_backend(rows)
    limit = max(float(row["time_limit"]) for row in rows)
    taken = [{row["name"] for row in own if row["status"] != REFUSED} for own in groups.values()]
    common = set.intersection(*filter(None, taken)) if any(taken) else set()
    records = []
    for profile, own in zip(profiles(rows), groups.values(), strict=True):
        refused = sum(row["status"] == REFUSED for row in own)
        searched = sum(row["status"] in SEARCHED for row in own)
        solved = len(profile.times)
        late = sum(bool(row["solved"]) for row in own) - solved
        shared = [row for row in own if row["name"] in common]
        counts = {"problems": profile.problems, "solved": solved, "late": late}
        counts |= {"best_found": searched, "refused": refused}
        counts |= {"failed": profile.problems - solved - late - searched - refused}
        means: Record = {"mean_seconds": _mean(own), "common": len(common)}
        means["mean_seconds_common"] = _mean(shared) if shared else None
        curve = {f"{WITHIN}{t:g}_s": profile.share(within=t) for t in WITHIN_SECONDS if t <= limit}
        records.append({"backend": profile.name} | counts | means | curve)
    return records


def record(found: Comparison) -> Record:
    return {
        "machine": found.machine.record(),
        "shift_seconds": SHIFT_SECONDS,
        "summary": summary(found.rows),
        "curves": [
            {"backend": p.name, "problems": p.problems, "seconds": list(p.times)}
            for p in profiles(found.rows)
        ],
        "rows": list(found.rows),
    }


def _mean(rows: Sequence[Row]) -> float:
    times = ((seconds_of(row), float(row["time_limit"])) for row in rows)
    return shifted_geometric_mean([limit if t is None else t for t, limit in times])


def _by_backend(rows: Sequence[Row]) -> dict[str, list[Row]]:
    names = dict.fromkeys(row["backend"] for row in rows)
    return {name: [row for row in rows if row["backend"] == name] for name in names}


@style()
def figure_of(profiles: Sequence[Profile], *, time_limit: float, title: str = "") -> Figure:
    """The share of the problems solved against the time in seconds, logarithmic."""
    if not profiles:
        raise InputError("profiles", expected="at least one backend", got="none")
    figure = new_figure(7.2, 4.6)
    axes = figure.subplots()
    # Less than 1e-4 s is below what a clock tells.
    left = max(min((t for profile in profiles for t in profile.times), default=0.0), 1e-4) / 2
    labels = [f"{p.name} ({len(p.times)} of {p.problems})" for p in profiles]
    draw_shares(axes, profiles, labels, ends=(left, time_limit))
    axes.set(xlabel="seconds to build and solve", ylabel="problems solved and certified")
    axes.set_title(plain(title, longest=80))
    legend_below(figure, columns=3)
    return figure


def draw_shares(
    axes: Any, profiles: Sequence[Profile], labels: Sequence[str], *, ends: tuple[float, float]
) -> None:
    """Steps of the share of problems solved, against a logarithmic axis of times."""
    from matplotlib.ticker import PercentFormatter

    left, right = ends
    for number, (profile, label) in enumerate(zip(profiles, labels, strict=True)):
        count = len(profile.times)
        axes.step(
            [left, *(max(t, left) for t in profile.times), right],
            [solved / profile.problems for solved in (*range(count + 1), count)],
            where="post",
            color=COLOURS[number % len(COLOURS)],
            linestyle=LINES[number % len(LINES)],
            label=label,
        )
    axes.set(xscale="log", xlim=(left, right), ylim=(0, 1.02))
    axes.yaxis.set_major_formatter(PercentFormatter(xmax=1))
    axes.grid()
