"""Measure what the documentation shows: ``python -m benchmarks.measured`` (``make results``).

Runs what has no stored result, or one of other code than today's, the shortest first, stores each
as it ends, and writes the pages; interrupted, it goes on where it was. NAMES are those only, stored
or not. ``--list`` says how all of them stand, and which files changed since; ``--marks`` runs
nothing: it writes the pages of what is stored, and marks what is of other code.

Sources have to be those of their commit; ``--dirty`` takes others, and the pages say so.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import os
import resource
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from string import Template

from benchmarks.measured import pages, store
from benchmarks.measured.store import Measurement, Result, changed, digest, load
from noisedesign.base.tables import print_table

TRACE = Path(__file__).with_name("trace")
CODE = ("benchmarks/", "lab/", "noisedesign/", "problems/", "tools/")
DATA = ("docs/",)
"""Folders whose files a result rests on; of the second kind tables of numbers only."""
OWN = ("benchmarks/measured/", "docs/measured/")
"""Those that measure, and no result rests on."""
SAYS = "import json; from noisedesign.base.machine import this_machine as m; " + (
    "print(json.dumps(m().record()))"
)


class FailedError(Exception):
    """A measurement ended without a result."""


def git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=store.ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def state() -> str:
    """The commit of the sources, and whether they differ from it; pages do not count."""
    return git("rev-parse", "HEAD") + ".dirty" * bool(
        git("status", "--porcelain", "--", *CODE, ":!benchmarks/measured/list.toml")
    )


def lacking(asked: Measurement) -> list[str]:
    """What it needs and is not here: variables in capitals, and modules."""
    return [
        need
        for need in asked.needs
        if not (os.environ.get(need) if need.isupper() else importlib.util.find_spec(need))
    ]


def measured(asked: Measurement) -> Result:
    """Run its commands and return what the last one printed."""
    commit, (load_before, *_) = state(), os.getloadavg()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "read")
        path = [
            TRACE,
            store.ROOT,
            store.ROOT / "lab",
            *filter(None, [os.environ.get("PYTHONPATH")]),
        ]
        environment = {
            "OPENBLAS_NUM_THREADS": "1",
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, path)),
            "NOISEDESIGN_TRACED_ROOT": str(store.ROOT),
            "NOISEDESIGN_TRACED_LOG": str(log),
        }
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        for command in asked.run:
            printed = printed_by(command, environment | {"COMMIT": commit[:12]})
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        read = log.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        machine = json.loads("".join(printed_by(shlex.join(["python", "-c", SAYS]), environment)))
    if not any(line.strip() for line in printed):
        raise FailedError("it printed nothing")
    if state() != commit:
        raise FailedError("the sources changed while it ran")
    machine.pop("noisedesign")  # which names the commit as well
    machine["load"] = round(load_before, 1)
    digest.cache_clear()  # what it read may have been written by itself
    return Result(
        run=asked.run,
        date=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        commit=commit,
        machine=machine,
        packages={name: metadata.version(name) for name in asked.packages if _installed(name)},
        cpu_seconds=round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1),
        rests_on={name: digest(store.ROOT / name) for name in rested_on(read, asked.run)},
        printed=tuple(printed),
    )


def printed_by(command: str, environment: Mapping[str, str]) -> list[str]:
    """Lines that a command prints, as people type it."""
    words = [Template(word).safe_substitute(environment) for word in shlex.split(command)]
    program = {"python": [sys.executable], "noisedesign": [sys.executable, "-m", "noisedesign"]}
    done = subprocess.run(
        [*program[words[0]], *words[1:]],
        cwd=store.ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        raise FailedError(f"exit code {done.returncode} of {command}")
    return [line.rstrip() for line in done.stdout.strip("\n").splitlines()]


def _installed(name: str) -> bool:
    try:
        return bool(metadata.version(name))
    except metadata.PackageNotFoundError:
        return False


def rested_on(read: Sequence[str], run: Sequence[str]) -> list[str]:
    """Sources, data and folders of problems among what was read, relative to the checkout."""
    known = set(git("ls-files", "--cached", "--others", "--exclude-standard").splitlines())
    names = set()
    for line in read:
        path = Path(line)
        if path.suffix == ".pyc":
            path = Path(importlib.util.source_from_cache(line))
        name = path.relative_to(store.ROOT).as_posix()
        if line.endswith(os.sep):
            names |= {f"{name}/"} if name.startswith("problems") else set()
        elif name in known and not name.startswith(OWN):
            data = name.startswith(DATA) and path.suffix in (".csv", ".json", ".toml")
            names |= {name} if data or name.startswith(CODE) else set()
    return sorted(names)


def minutes_of(asked: Measurement, result: Result | None) -> float:
    """What a measurement took the last time, or is expected to take, of CPU."""
    known = None if result is None else result.cpu_seconds
    return asked.minutes if known is None else known / 60


def standing(asked: Measurement) -> dict[str, object]:
    """A line of ``--list``."""
    result = load(asked.name)
    differs = [] if result is None else changed(result, asked)
    return {
        "measurement": asked.name,
        "result": "none" if result is None else "of other code" if differs else "as it is",
        "date": result.date if result else None,
        "takes": pages.minutes(60 * minutes_of(asked, result)),
        "needs": ", ".join(lacking(asked)) or None,
        "what changed": ", ".join(differs[:3])
        + f" and {len(differs) - 3} more" * (len(differs) > 3),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = store.measurements()
    parser.add_argument("names", nargs="*", metavar="NAMES")
    parser.add_argument("--list", action="store_true", help="how they stand")
    parser.add_argument("--marks", action="store_true", help="write the pages of what is stored")
    parser.add_argument("--most", type=float, metavar="MINUTES", help="leave out what takes longer")
    parser.add_argument("--dirty", action="store_true", help="of sources that no commit has")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.names if name not in known]:
        parser.error(f"no measurement {unknown[0]}; there are {', '.join(known)}")
    if options.list:
        rows = [standing(known[name]) for name in options.names or known]
        print_table(rows, list(rows[0]))
        return 0
    failures = 0 if options.marks else run_all(known, options)
    for page in pages.write_pages():
        print(f"{page.relative_to(store.ROOT)} is written", file=sys.stderr)
    return int(failures > 0)


def run_all(known: Mapping[str, Measurement], options: argparse.Namespace) -> int:
    """Run what is asked for, or what is stale, and return how many failed."""
    todo = []
    for asked in known.values():
        row, result = standing(asked), load(asked.name)
        wanted = asked.name in options.names if options.names else row["result"] != "as it is"
        took = minutes_of(asked, result)
        if wanted and row["needs"]:
            print(f"{asked.name} is left out: it needs {row['needs']}", file=sys.stderr)
        elif wanted and (options.most is None or took <= options.most):
            todo.append((took, asked))
    if todo and state().endswith(".dirty") and not options.dirty:
        print("the sources differ from their commit: commit them, or --dirty", file=sys.stderr)
        return 1
    failures, todo = 0, sorted(todo, key=lambda one: one[0])
    for place, (took, asked) in enumerate(todo, start=1):
        about = pages.minutes(60 * took)
        print(f"{place} of {len(todo)}: {asked.name}, about {about}", file=sys.stderr)
        try:
            store.save(asked.name, measured(asked))
        except FailedError as failure:
            print(f"  {asked.name} has no new result: {failure}", file=sys.stderr)
            failures += 1
        pages.write_pages()
    return failures


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("\nstopped; what was stored stays, and the next run goes on", file=sys.stderr)
        sys.exit(130)
