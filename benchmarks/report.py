"""Everything measured, as one page: ``python -m benchmarks.report -o docs/benchmarks.md``.

The page and the picture beside it are written by this command and never by hand. It runs the
comparison of all backends on all shipped problems, the peers (:mod:`benchmarks.peers`) and the
ratios (:mod:`benchmarks.speed`). ``--results`` keeps the table of the comparison, so that a long
run may be interrupted and gone on with; ``--quick`` takes minutes to a few small problems.

``--verdicts`` puts the runs of the public collection in the place of the comparison: they are timed
by CPU seconds, which hold on a machine that does other things beside
(``tools/collection.py answers``, then ``noisedesign check-results``).
"""

from __future__ import annotations

import argparse
import datetime
import re
import resource
import shlex
import subprocess
import sys
import tempfile
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import peers
from noisedesign.base.atomic import overwriting, write_text
from noisedesign.base.checks import InputError
from noisedesign.base.machine import this_machine
from noisedesign.conic.data import ERRORS
from noisedesign.design.backends import all_backends
from noisedesign.families.family import SEARCHED
from noisedesign.files.picture_file import write_figure
from noisedesign.files.problem_file import load_problem
from noisedesign.files.problem_set import problem_files
from noisedesign.surveys import compare as comparing, performance
from noisedesign.surveys.check_results import (
    MISSING,
    PENALTY,
    VERIFIED,
    CheckedResults,
    read_verdicts,
)
from noisedesign.surveys.compare import RUNS, SHORT_SECONDS, Comparison, compare
from noisedesign.tasks.report import REFUSED, Record

QUICK_PROBLEMS = (
    "problems/whisper/florentine.toml",
    "problems/whisper/ring-20.toml",
    "problems/prefix/prefix-8x16.toml",
    "problems/objectives/path-6-last-iterate-2x2.toml",
    "problems/space-structures/florentine-decor.toml",
)
QUICK_LIMIT = 20.0

CPU_LIMIT = 5.0
"""Of the runs of the collection, in seconds."""

INTRODUCTION = """\
# Benchmarks

*Written on {when} by*

```sh
python -m benchmarks.report {arguments}
```

*and never by hand.*

{machine}
"""

BESIDE = """{machine}. {memory} Other programs may have run beside: times compare with each other,
within one section, and with nothing else. Gaps are what the rounding of this processor made of
them; what is promised is the one asked for."""

CURVES = """\
## Every backend on every problem

A problem is solved where the exported matrix is feasible and our certificate proves a gap of at
most {gap:g}, whatever the solver said. A time is that of building and solving the model, in a
process that has solved something small before, and the median of {runs} where the first is at most
{short:g} s; judging is the same for all and left out. A solve may take {limit:g} s; all that is
unsolved counts as that in the means, which are geometric, shifted by {shift:g} s (as in
Mittelmann's benchmarks). *Late* answers are certified, but past that limit. *Best found* is what a
search ends with where the problem is not convex: nobody can certify that, so it is no failure, and
is not counted as solved either. *Common* problems are those that every backend takes; why others
are refused is said below.

{absent}

![Share of the problems solved and certified, against time]({picture})

{summary}

Conic backends were given the formulation `balanced` and a tolerance of a tenth of the gap, SCS and
Clarabel looser ones where those are certified as well ([why](mathematics.md)). The same table, with
every digit:

```sh
noisedesign compare {problems} \\
    --backends {backends} --time-limit {limit:g} -o results.csv
```

### Times in seconds, or why there is none

{times}

### DIMACS errors

The largest of each over the problems solved and certified, computed from the model's data and the
answer ([what they are](mathematics.md)). Solvers whose answers are equally
certified differ by orders of magnitude here: the certificate repairs what they leave.

{errors}

### Best found

Problems that are not convex, which only a search takes. The gap is that to a bound on all designs
without the structure, so it is what the structure costs at most, not how far the search is from its
optimum.

{searches}

### Not solved

{failures}

### Refused

{refusals}
"""

VERDICTS = """\
## Every solver on the public collection

Runs of the [public collection](guides/collection.md), under its rules: each answer judged anew from
the data, runs matched by the accuracy that they reached, failures charged {charge:g} s. Seconds are
those of CPU, of one thread; a run may take {limit:g}. Means are geometric, shifted by {shift:g} s.

![Share of the problems solved against the ratio to the fastest solver]({picture})

{summary}

### CPU seconds to {level:.0e}, or what was reached

{times}

### Without an answer

Numbers in reasons are left out, so that they can be counted.

{reasons}
"""

PEERS = """\
## jax_privacy

`python -m benchmarks.peers{quick} --runs {runs}`:
`jax_privacy.matrix_factorization.dense.optimize` at its defaults, in double precision, against
`noisedesign.solve` at a gap of {gap:g}; the workload of a network is given to it as a factor of H.
Its strategy is made feasible and judged by the same code as ours. Seconds and how many times as
long it takes are medians of runs taken in turn, {own} of ours for each of its. It compiles anew at
every call, which is part of its time.

{table}
"""

SPEED = """\
## Ratios on one machine

`python -m benchmarks.speed --quick`

```text
{output}
```
"""


def memory_limit() -> str:
    """How much memory a process may take, in a sentence."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return "A process may take all memory there is."
    return f"A process may take {limit / 1e9:.3g} GB of memory."


def markdown(rows: Sequence[Record], columns: Iterable[str]) -> str:
    """A Markdown table of records."""
    names = list(columns)
    lines = [names, ["---"] * len(names), *([_cell(row[name]) for name in names] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _table(rows: Sequence[Record]) -> str:
    return markdown(rows, rows[0]) if rows else "None."


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return "" if value is None else str(value).replace("|", "\\|").replace("\n", " ")


def times_of(found: Comparison, backends: Sequence[str]) -> list[Record]:
    """A record a problem: seconds where it is solved or searched, else the status."""
    table: dict[str, Record] = {}
    for row in found.rows:
        seconds = comparing.seconds_of(row)
        told = row["status"] if seconds is None else f"{seconds:.3g}"
        if row["status"] in SEARCHED:
            told = f"{comparing.spent(row):.3g} s, best found"
        table.setdefault(row["name"], {"problem": row["name"]})[row["backend"]] = told
    return [dict.fromkeys(backends) | entry for entry in table.values()]


def errors_of(found: Comparison) -> list[Record]:
    """A record a conic backend: the largest of each error over what it solved."""
    worst: dict[str, Record] = {}
    for row in found.rows:
        if not row["solved"] or row[ERRORS[0]] is None:
            continue
        nothing: Record = {"backend": row["backend"], "problems": 0}
        nothing |= dict.fromkeys(ERRORS, 0.0)
        entry = worst.setdefault(row["backend"], nothing)
        entry["problems"] += 1
        for name in ERRORS:
            entry[name] = max(entry[name], abs(row[name]))
    return list(worst.values())


def searches_of(found: Comparison) -> list[Record]:
    """A record each problem that a backend can only search."""
    return [
        {
            "problem": row["name"],
            "backend": row["backend"],
            "seconds": comparing.spent(row),
            "gap": row["gap"],
        }
        for row in found.rows
        if row["status"] in SEARCHED
    ]


def failures_of(found: Comparison) -> list[Record]:
    """A record each problem that a backend took and did not solve."""
    return [
        {
            "problem": row["name"],
            "backend": row["backend"],
            "status": row["status"],
            "gap": row["gap"],
            "reason": row["reason"],
        }
        for row in found.rows
        if comparing.seconds_of(row) is None and row["status"] not in (REFUSED, *SEARCHED)
    ]


def refusals_of(found: Comparison) -> list[Record]:
    """What backends do not take, counted by their reasons."""
    refused = Counter(
        (row["backend"], row["reason"]) for row in found.rows if row["status"] == REFUSED
    )
    return [
        {"backend": backend, "problems": count, "reason": reason}
        for (backend, reason), count in refused.items()
    ]


def absent(backends: Iterable[str]) -> str:
    """Which backends are not compared, and why."""
    others = [b for b in all_backends() if b.name not in backends]
    reasons = {b.name: b.availability() for b in others}
    told = [
        f"`{name}` ({'left out by choice' if found.ready else found.remedy})"
        for name, found in reasons.items()
    ]
    return f"Not compared: {'; '.join(told)}." if told else "These are all backends there are."


def comparison_section(options: argparse.Namespace, backends: list[str], target: Path) -> str:
    names = options.problems or (QUICK_PROBLEMS if options.quick else ("problems",))
    files, _ = problem_files(names)
    with tempfile.TemporaryDirectory() as folder:
        found = compare(
            [load_problem(path) for path in files],
            backends=backends,
            time_limit=options.time_limit,
            output=options.results or Path(folder, "results.csv"),
            announce=_say,
        )
    profiles = comparing.profiles(found.rows)
    drawn = target.with_suffix(".svg")
    write_figure(comparing.figure_of(profiles, time_limit=options.time_limit), drawn)
    summary = comparing.summary(found.rows)
    errors = errors_of(found)
    return CURVES.format(
        gap=found.rows[0]["asked_gap"],
        limit=options.time_limit,
        shift=comparing.SHIFT_SECONDS,
        picture=drawn.name,
        runs=RUNS,
        short=SHORT_SECONDS,
        summary=markdown(summary, summary[0]),
        problems=shlex.join(names),
        backends=",".join(backends),
        times=markdown(times_of(found, backends), ["problem", *backends]),
        errors=markdown(errors, errors[0]) if errors else "No conic backend solved anything.",
        absent=textwrap.fill(absent(backends), width=100),
        searches=_table(searches_of(found)),
        failures=_table(failures_of(found)),
        refusals=_table(refusals_of(found)),
    )


SHOWN = 1e-6
"""The accuracy whose times are listed problem by problem."""


def verdicts_section(path: str, target: Path) -> str:
    """What judged runs of the collection say, at the limit of those published."""
    rows = read_verdicts(path)
    if {row["clock"] for row in rows} != {"cpu"}:
        raise InputError("verdicts", expected="runs timed by CPU seconds", got=path)
    names = tuple(dict.fromkeys(str(row["problem"]) for row in rows))
    found = CheckedResults(rows=tuple(rows), problems=names, time_limit=CPU_LIMIT, penalty=PENALTY)
    drawn = target.with_suffix(".svg")
    write_figure(performance.figure_of(found), drawn)
    solvers = list(dict.fromkeys(str(row["solver"]) for row in rows))
    return VERDICTS.format(
        charge=CPU_LIMIT * PENALTY,
        limit=CPU_LIMIT,
        shift=comparing.SHIFT_SECONDS,
        picture=drawn.name,
        summary=_table(performance.summary(found)),
        level=SHOWN,
        times=markdown(reached_of(found, solvers), ["problem", *solvers]),
        reasons=_table(reasons_of(found)),
    )


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


def peers_section(options: argparse.Namespace) -> str:
    rows, reason = peers.compare(options.rival, quick=options.quick, runs=options.runs)
    return PEERS.format(
        quick=" --quick" if options.quick else "",
        gap=peers.GAP,
        runs=options.runs,
        own=peers.OWN_RUNS,
        table=markdown(rows, rows[0]) if rows else reason,
    )


def speed_section() -> str:
    """Without its conic solvers, which the comparison has already."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.speed", "--quick"],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line.rstrip() for line in done.stdout.strip().splitlines()]
    return SPEED.format(output="\n".join(lines))


def kept_ratios(target: Path) -> list[str]:
    """Both sections of ratios as the page has them, and when they were written."""
    text = target.read_text(encoding="utf-8")
    start = text.find(PEERS[: PEERS.index("\n")])
    if start < 0:
        raise InputError("keep_ratios", expected="a page with ratios", got=str(target))
    said = re.findall(r"Written on (.*?) by|ratios below are of (.*?), and of", text[:start])
    when = "".join(said[-1])
    return [f"*The ratios below are of {when}, and of the version of then.*\n", text[start:]]


def _say(message: str) -> None:
    print(f"  {message}", file=sys.stderr)


def main(arguments: Sequence[str] | None = None) -> None:
    given = list(sys.argv[1:] if arguments is None else arguments)
    ready = [b.name for b in all_backends() if b.availability().ready]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", required=True, metavar="PAGE.md")
    parser.add_argument("--quick", action="store_true", help="small problems only")
    parser.add_argument("--problems", nargs="+", metavar="FILE", help="instead of all shipped")
    parser.add_argument("--backends", default=",".join(ready), help="instead of all that can run")
    parser.add_argument("--time-limit", type=float, metavar="S", help="seconds a solve")
    parser.add_argument("--results", metavar="TABLE.csv", help="gone on with where it exists")
    parser.add_argument("--verdicts", metavar="VERDICTS.csv", help="instead of the comparison")
    parser.add_argument(
        "--keep-ratios", action="store_true", help="those of the page as it is, with their date"
    )
    parser.add_argument("--rival", default=sys.executable, metavar="PYTHON", help="has jax_privacy")
    parser.add_argument("--runs", type=int, default=3, help="of each peer")
    options = parser.parse_args(given)
    # Where somebody keeps that Python is nobody's business.
    told = ["PYTHON" if word == options.rival else word for word in given]
    if options.time_limit is None:
        options.time_limit = QUICK_LIMIT if options.quick else 600.0
    target = Path(options.output)
    with overwriting():  # the page and the picture of the last time
        write_text(target, "\n".join(sections_of(options, told, target)))


def sections_of(options: argparse.Namespace, told: Sequence[str], target: Path) -> list[str]:
    when = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d, %H:%M UTC")
    beside = BESIDE.format(machine=this_machine(), memory=memory_limit())
    machine = textwrap.fill(beside, width=100)
    if options.keep_ratios:
        ratios = kept_ratios(target)
    else:
        ratios = [peers_section(options), speed_section()]
    return [
        INTRODUCTION.format(when=when, arguments=shlex.join(told), machine=machine),
        verdicts_section(options.verdicts, target)
        if options.verdicts
        else comparison_section(options, options.backends.split(","), target),
        *ratios,
    ]


if __name__ == "__main__":
    main()
