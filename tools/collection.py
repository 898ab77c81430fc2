"""The public collection, kept: ``python tools/collection.py COMMAND``.

references  [reference] of files in problems/collection that lack one: solved as closely as float64
            allows and, up to 40 nodes, once more by Clarabel, whose interval has to meet
manifest    problems/collection.csv: hashes and intervals of all problems, the best proved
programs    -o FOLDER: every problem that has a conic program, in the Conic Benchmark Format and in
            SDPA's, and programs.csv: their hashes, or why there is none; run again, it goes on
answers     -o FOLDER --backends NAMES --cpu-limit S: designs of our backends and the table of
            them, which `noisedesign check-results` takes; run again, it goes on (Linux, macOS)
results     VERDICTS.csv ...: of those runs, for docs/guides/collection.md, with its picture
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import math
import multiprocessing
import os
import resource
import signal
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest import mock

from noisedesign import Design, InputError, load as load_problem, save as save_design, solve
from noisedesign.base.atomic import overwriting, write_text
from noisedesign.conic import formats
from noisedesign.design.backends import Backend, Conic, all_backends, get_backend
from noisedesign.families.family import SEARCHED, family_of
from noisedesign.files.picture_file import write_figure
from noisedesign.files.problem_file import LoadedProblem
from noisedesign.files.problem_set import problem_files
from noisedesign.files.toml import shipped_folder
from noisedesign.problem.problem import Problem, SpaceProblem
from noisedesign.surveys import performance
from noisedesign.surveys.check_results import (
    LEVELS,
    MISSING,
    PENALTY,
    VERIFIED,
    WRONG,
    CheckedResults,
    read_verdicts,
    write_verdicts,
)
from noisedesign.surveys.collection import (
    BEST_FOUND,
    MANIFEST,
    OPTIMUM,
    Instance,
    collection,
    described,
    write_collection,
)
from noisedesign.surveys.compare import WARM_UP
from noisedesign.tasks.model import conic_program

OWN = "collection"
"""Folder whose references come from here; those of others were found by routes of their own."""

LEFT_OUT = (
    "sparse-graphs/barabasi-albert-100000",
    "mixing-weights/erdos-renyi-20-least-noise",
    "mixing-weights/erdos-renyi-8-one-way-least-noise",
    "mixing-weights/florentine-least-noise",
    "unbounded/unknown-horizon-64",
)
"""Judging one answer of the first takes a minute, and of so many nodes no optimum is known to
compare with; the W of two has other digits on every machine, and nearly singular it is; weights of
steps are known to 1e-6."""

SEARCHED_TAGS = {"best-found", "local-optimum", "sparse"}

GAPS = (1e-11, 1e-10, 1e-9, 1e-8, 1e-6)
"""Asked for one after the other, until one is certified."""

CONFIRMED, CONFIRMING_GAP = 40, 1e-7
"""Largest size at which another solver is asked, and for which gap."""

WIDEST = 1e-8

CPU_LIMIT = 5.0
"""Seconds of the published runs."""

ROOT = Path(__file__).resolve().parents[1]

Row = dict[str, object]


def files() -> dict[str, Path]:
    folder = shipped_folder()
    found, _ = problem_files([folder])
    names = {path.relative_to(folder).with_suffix("").as_posix(): path for path in found}
    return {name: path for name, path in names.items() if name not in LEFT_OUT}


def narrowest(loaded: LoadedProblem) -> tuple[float, float, str]:
    """The narrowest interval, and what it holds; where ours is wide, SCS narrows it."""
    lower, upper = 0.0, float("inf")
    if loaded.problem.sparse:
        return *_beside_all_noise(loaded.problem), BEST_FOUND
    for gap in GAPS:
        found = solve(loaded.problem, gap=gap)
        lower, upper = _met(lower, upper, found.design)
        if found.status in SEARCHED:
            return lower, upper, BEST_FOUND
        if found.status == "optimal":
            break
    if upper / lower - 1 > WIDEST and family_of(loaded.problem).formulations:
        other = solve(loaded.problem, backend="scs", gap=WIDEST / 10, time_limit=100)
        lower, upper = _met(lower, upper, other.design)
    return lower, upper, OPTIMUM


def _beside_all_noise(problem: SpaceProblem) -> tuple[float, float]:
    """The bound of all noise on a graph that is small enough for it, and the best of the kind."""
    best = solve(problem).design
    dense = SpaceProblem(mixing=problem.mixing.toarray(), budget=problem.budget)
    bound = solve(dense, gap=GAPS[0]).design
    assert best is not None
    assert bound is not None
    return float(bound.lower_bound), float(best.objective)


def _met(lower: float, upper: float, design: Design | None) -> tuple[float, float]:
    if design is None:
        return lower, upper
    return max(lower, float(design.lower_bound)), min(upper, float(design.objective))


def references(arguments: argparse.Namespace) -> None:
    for name, path in files().items():
        loaded = load_problem(path)
        if not name.startswith(f"{OWN}/") or loaded.reference is not None:
            continue
        try:
            lower, upper, holds = narrowest(loaded)
        except InputError as error:
            print(f"{name}: {error}", file=sys.stderr)
            continue
        method = "certified by our own solver"
        problem = loaded.problem
        if holds == BEST_FOUND:
            method = "lower: a bound on designs without the structure; upper: the best found"
        elif problem.axes != "time" and len(problem.mixing) <= CONFIRMED:
            other = solve(problem, backend="clarabel", gap=CONFIRMING_GAP).design
            meets = other.lower_bound <= upper and lower <= other.objective
            assert meets, (name, lower, upper, other.lower_bound, other.objective)
            method += f", and met by Clarabel's interval of width {max(other.gap, 0):.0e}"
        if holds == OPTIMUM and upper / lower - 1 > WIDEST:
            method += "; no narrower one is known"
        text = f'\n[reference]\nlower = {lower!r}\nupper = {upper!r}\nmethod = "{method}"\n'
        path.write_text(loaded.text + text)
        print(f"{name}: {upper / lower - 1:.1e} {method}", flush=True)


def manifest(arguments: argparse.Namespace) -> None:
    """Keep what is known of a problem already; references of the other folders are narrowed."""
    known: dict[str, Instance] = {}
    if (shipped_folder() / MANIFEST).exists() and not arguments.anew:
        known = collection()
    lines = []
    for name, path in files().items():
        loaded, before = load_problem(path), known.get(name)
        reference = loaded.reference
        assert reference is not None, name
        lower, upper, method = reference.lower, reference.upper, reference.method
        holds = BEST_FOUND if SEARCHED_TAGS & set(loaded.tags) else OPTIMUM
        if before is not None and not name.startswith(f"{OWN}/"):
            lower, upper, method = before.lower, before.upper, before.method
        elif loaded.problem.sparse:
            lower, upper, _ = narrowest(loaded)
            method = "lower: the bound on all noise, by the dense optimum; upper: the best found"
        elif not name.startswith(f"{OWN}/"):
            nearer = narrowest(loaded)
            if nearer[1] <= upper:
                method = "the interval of the file, narrowed by our own solver"
            lower, upper = max(lower, nearer[0]), min(upper, nearer[1])
        found = described(name, loaded, lower=lower, upper=upper, holds=holds, method=method)
        if before is not None and before.sha256 != found.sha256:
            print(f"{name}: other data than before", file=sys.stderr)
        lines.append(found)
        print(f"{name}: {found.width:.1e} {found.holds}", flush=True)
        with overwriting():
            write_collection((known | {one.name: one for one in lines}).values())
    with overwriting():
        write_collection(lines)


PROGRAMS = ("problem", "format", "formulation", "variables", "blocks", "bytes", "sha256", "reason")

COMMENTS = {".cbf": b"#", ".dat-s": b"*"}
"""Format -> the beginning of its lines of words, where versions stand, which are not hashed."""


def programs(arguments: argparse.Namespace) -> None:
    """A line a problem and format: what was written, or why nothing was."""
    folder = Path(arguments.output)
    folder.mkdir(parents=True, exist_ok=True)
    table = folder / "programs.csv"
    done = {row["problem"] for row in _begun(table, PROGRAMS)}
    for name, path in files().items():
        if name not in done and _chosen(name, arguments):
            began = cpu_seconds()
            _append(table, PROGRAMS, list(_written(name, path, folder, arguments.hashes_only)))
            print(f"{name}: {cpu_seconds() - began:.1f} s", flush=True)


def _written(name: str, path: Path, folder: Path, hashes_only: bool) -> Iterator[Row]:
    loaded = load_problem(path)
    row: Row = {"problem": name}
    try:
        program = conic_program(loaded.problem)
    except InputError as error:
        yield from (row | {"format": suffix, "reason": str(error)} for suffix in COMMENTS)
        return
    row |= {"formulation": program.formulation, "variables": program.variables}
    row |= {"blocks": len(program.blocks)}
    for suffix in COMMENTS:
        target = folder / f"{name}{suffix}"
        target.parent.mkdir(parents=True, exist_ok=True)
        with overwriting():
            formats.write(program, target, description=loaded.description)
        yield row | {"format": suffix} | hashed(target)
        if hashes_only:
            target.unlink()


def hashed(path: Path) -> Row:
    """Bytes and hash of all lines of a program but those of words."""
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        for line in file:
            if not line.startswith(COMMENTS[path.suffix]):
                digest.update(line)
                size += len(line)
    return {"bytes": size, "sha256": digest.hexdigest()}


ANSWERS = ("problem", "solver", "clock", "seconds", "answer", "objective", "asked", "reason")

ONE_THREAD = dict.fromkeys(
    ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"), "1"
)

WALL_PER_CPU, WALL_BESIDE = 20, 120
"""Seconds of a clock on the wall that a run may take, a second of its limit and besides: whatever
else runs on the machine, a solver that computes is ended by its own limit."""

GIBIBYTES = 12
"""GiB of addresses that a run may take; a smaller limit ends more runs."""


def answers(arguments: argparse.Namespace) -> None:
    """A solver that does not reach an accuracy in time is not asked for a higher one. Runs of a
    problem and a solver are written together, so that whatever ends this, the next call begins
    where it ended."""
    if any(os.environ.get(name) != value for name, value in ONE_THREAD.items()):
        os.environ.update(ONE_THREAD)  # of libraries that are loaded already, it is too late
        os.execv(sys.executable, [sys.executable, *sys.argv])
    folder = Path(arguments.output)
    folder.mkdir(parents=True, exist_ok=True)
    table = folder / "answers.csv"
    done = {(row["problem"], row["solver"]) for row in _begun(table, ANSWERS)}
    backends = arguments.backends.split(",")
    for backend in backends:
        _load(backend)
    wanted = {name: line for name, line in collection().items() if _chosen(name, arguments)}
    for name, instance in sorted(wanted.items(), key=lambda item: item[1].size):
        left = [backend for backend in backends if (name, backend) not in done]
        if not left:
            continue
        problem = load_problem(name).problem
        for backend in left:
            lines = list(_runs(name, problem, backend, instance, folder, arguments.cpu_limit))
            _append(table, ANSWERS, lines)
            for line in lines:
                print(*line.values(), flush=True)


def _chosen(name: str, arguments: argparse.Namespace) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in arguments.problems or ["*"])


def _begun(table: Path, columns: Sequence[str]) -> list[dict[str, str]]:
    """Rows of a table, which is begun where there is none. Where a power cut left half a line, the
    problem that was being written goes with it."""
    text = table.read_text() if table.exists() else ""
    rows = list(csv.DictReader(io.StringIO(text[: text.rfind("\n") + 1])))
    if rows and not text.endswith("\n"):
        rows = [row for row in rows if row["problem"] != rows[-1]["problem"]]
    with overwriting():
        write_text(table, ",".join(columns) + "\n" + _csv(columns, rows))
    return rows


def _append(table: Path, columns: Sequence[str], rows: Sequence[Row]) -> None:
    with table.open("a", newline="") as file:
        file.write(_csv(columns, rows))


def _csv(columns: Sequence[str], rows: Sequence[Mapping[str, object]]) -> str:
    text = io.StringIO(newline="")
    csv.DictWriter(text, columns, restval="", lineterminator="\n").writerows(rows)
    return text.getvalue()


def _load(backend: str) -> None:
    """Whatever a solver imports late is imported now, for all runs."""
    chosen = get_backend(backend)
    chosen.require_ready()
    if isinstance(chosen, Conic):
        chosen.solver.load()
    solve(WARM_UP)


def _runs(
    name: str, problem: Problem, backend: str, instance: Instance, folder: Path, limit: float
) -> Iterator[Row]:
    for level in LEVELS:
        row = dict.fromkeys(ANSWERS, "") | {"problem": name, "solver": backend, "clock": "cpu"}
        row |= {"seconds": limit, "asked": level}
        target = folder / f"{name.replace('/', '-')}-{backend}-{level:g}.npz"
        found = _in_a_process(problem, backend, level, limit, target)
        yield row | {key: found[key] for key in ANSWERS if key in found}
        if "gap" not in found or instance.holds == BEST_FOUND:
            return
        if found["seconds"] > limit or found["gap"] > level:
            return
        if found["value"] <= instance.lower * (1 + LEVELS[-1]):
            return


def _in_a_process(
    problem: Problem, backend: str, level: float, limit: float, target: Path
) -> dict[str, Any]:
    """One run, in a process that is forked for it: of the CPU seconds of its solver, those of all
    threads and of the processes that it starts count, and nothing else does."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    asked = (problem, backend, level, limit, target, sender)
    child = context.Process(target=_run, args=asked)
    child.start()
    sender.close()
    wall = WALL_PER_CPU * limit + WALL_BESIDE
    try:
        found = receiver.recv() if receiver.poll(wall) else None
    except EOFError:
        found = None
    ended = found is None and child.is_alive() and not receiver.poll(1)
    if ended:
        child.kill()
    child.join()
    if found is not None:
        return dict(found)
    if ended:
        return {"reason": f"ended after {wall:g} s by the clock on the wall"}
    if child.exitcode == -signal.SIGXCPU:
        return {"reason": f"ended after {limit:g} s of CPU"}
    died = "exit code" if child.exitcode >= 0 else "signal"
    return {"reason": f"its process ended with {died} {abs(child.exitcode)}"}


def _run(
    problem: Problem, backend: str, level: float, limit: float, target: Path, sender: Connection
) -> None:
    """Run a solver, whose own output is thrown away."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nothing, stream)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (GIBIBYTES * 2**30,) * 2)
    _load(backend)  # once more: a fork has yet to copy what it writes to
    began = cpu_seconds()
    spent = [limit]
    try:
        with _limited(get_backend(backend), limit, spent):
            wall = WALL_PER_CPU * limit
            found = solve(problem, backend=backend, gap=level, time_limit=wall, isolate=False)
        design = found.design
        said: dict[str, Any] = {"reason": found.remedy or found.status}
        if design is not None and found.found:
            save_design(design, target)
            said |= {"answer": target.name, "objective": repr(design.objective)}
            said |= {"gap": design.gap, "value": design.objective, "reason": ""}
            said["seconds"] = spent[0]
    except InputError as error:
        said = {"reason": str(error)}
    except Exception as error:
        said = {"reason": f"{type(error).__name__}: {error}", "seconds": cpu_seconds() - began}
    sender.send(said)


@contextmanager
def _limited(backend: Backend, limit: float, spent: list[float]) -> Iterator[None]:
    """A backend whose part of a solve ends after so many CPU seconds, and is clocked: judging its
    answer is not."""
    inner = backend.answer

    def answer(*how: Any) -> Any:
        began = cpu_seconds()
        no_limit = resource.RLIM_INFINITY
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(began + limit), no_limit))
        found = inner(*how)
        resource.setrlimit(resource.RLIMIT_CPU, (no_limit, no_limit))
        spent[0] = cpu_seconds() - began
        return found

    with mock.patch.object(backend, "answer", answer):
        yield


def cpu_seconds() -> float:
    """The seconds of this process and those it has waited for, in all threads and the system."""
    own = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in own)


PAGE = ROOT / "docs" / "guides" / "collection.md"
VERDICTS = ROOT / "docs" / "collection-results.csv"
PICTURE = ROOT / "docs" / "pictures" / "collection.svg"
BEGIN, END = "<!-- written by tools/collection.py results -->", "<!-- end -->"


def results(arguments: argparse.Namespace) -> None:
    """The published verdicts, their picture, and what the page says of them."""
    rows = [row for file in arguments.verdicts for row in read_verdicts(file)]
    order = {name: number for number, name in enumerate(collection())}
    names = [backend.name for backend in all_backends()]
    rows.sort(key=lambda row: (order[str(row["problem"])], names.index(str(row["solver"]))))
    found = published(rows)
    with overwriting():
        write_verdicts(found, VERDICTS)
        write_figure(performance.figure_of(found), PICTURE)
        before, rest = PAGE.read_text().split(BEGIN)
        after = rest.split(END)[1]
        write_text(PAGE, f"{before}{BEGIN}\n\n{section(found)}\n{END}{after}")


def published(rows: Iterable[Mapping[str, Any]]) -> CheckedResults:
    """Verdicts under the limit that the page states, on all problems."""
    return CheckedResults(
        rows=tuple(dict(row) for row in rows),
        problems=tuple(collection()),
        time_limit=CPU_LIMIT,
        penalty=PENALTY,
    )


def section(found: CheckedResults) -> str:
    """The part of the page on verdicts, in Markdown."""
    records = performance.summary(found)
    solvers = list(dict.fromkeys(str(record["solver"]) for record in records))
    told = [
        f"Of {len(found.problems)} problems, those that a solver brought to an accuracy within "
        f"{found.time_limit:g} s of CPU, and its mean of such seconds, "
        f"{found.time_limit * found.penalty:g} where it did not:",
        "",
        "| solver | runs | " + " | ".join(f"to {level:.0e} | seconds" for level in LEVELS) + " |",
        "|---" * (2 + 2 * len(LEVELS)) + "|",
    ]
    for solver in solvers:
        own = [record for record in records if record["solver"] == solver]
        cells = [solver, str(own[0]["runs"])]
        for record in own:
            cells += [str(record["reached"]), f"{record['mean_seconds']:.3g}"]
        told.append(f"| {' | '.join(cells)} |")
    counts = Counter(str(row["status"]) for row in found.rows)
    late = Counter(
        str(row["solver"])
        for row in found.rows
        if row["status"] == VERIFIED and row["seconds"] > found.time_limit
    )
    drawn = [row for row in found.rows if row["confidence"] is not None]
    said = ", ".join(f"{count} by {solver}" for solver, count in late.items())
    told += [
        "",
        f"{len(found.rows)} runs: {counts[VERIFIED]} answers verified, {counts[MISSING]} runs "
        f"without one, {counts[WRONG]} answers wrong. {sum(late.values())} verified answers came "
        f"late{f' ({said})' if said else ''} and count as failures.",
    ]
    if drawn:
        sure = min(row["confidence"] for row in drawn)
        names = sorted({f"`{row['problem']}`" for row in drawn})
        told += [
            "",
            f"Random vectors or samples judge {len(drawn)} of the answers, which hold with "
            f"confidence {sure!r} each: those to {' and '.join(names)}.",
        ]
    return "\n".join(told) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    commands.add_parser("references").set_defaults(run=references)
    command = commands.add_parser("manifest")
    command.add_argument("--anew", action="store_true", help="solve all again")
    command.set_defaults(run=manifest)
    command = commands.add_parser("programs")
    command.add_argument("-o", "--output", required=True, metavar="FOLDER")
    command.add_argument("--hashes-only", action="store_true", help="keep no files")
    command.add_argument("--problems", nargs="+", metavar="PATTERN", help="default all")
    command.set_defaults(run=programs)
    command = commands.add_parser("answers")
    command.add_argument("-o", "--output", required=True, metavar="FOLDER")
    command.add_argument("--backends", default="native")
    command.add_argument("--cpu-limit", type=float, default=CPU_LIMIT, metavar="S")
    command.add_argument("--problems", nargs="+", metavar="PATTERN", help="default all")
    command.set_defaults(run=answers)
    command = commands.add_parser("results")
    command.add_argument("verdicts", nargs="+", metavar="VERDICTS.csv")
    command.set_defaults(run=results)
    options = parser.parse_args(arguments)
    options.run(options)


if __name__ == "__main__":
    main()
