"""The public collection, kept: ``python tools/collection.py COMMAND``.

references  [reference] of files in problems/collection that lack one: solved as closely as float64
            allows and, up to 40 nodes, once more by Clarabel, whose interval has to meet
manifest    problems/collection.csv: hashes and intervals of all problems, the best proved
programs    -o FOLDER: every problem that has a conic program, in the Conic Benchmark Format and in
            SDPA's
answers     -o FOLDER --backends NAMES --time-limit S: designs of our backends and the table of
            them, which `noisedesign check-results` takes
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from noisedesign import Design, InputError, load_problem, save_design, solve
from noisedesign.base.atomic import overwriting
from noisedesign.conic import formats
from noisedesign.files.collection import (
    BEST_FOUND,
    MANIFEST,
    OPTIMUM,
    Instance,
    collection,
    described,
    write_collection,
)
from noisedesign.files.problem_file import LoadedProblem
from noisedesign.files.problem_set import problem_files
from noisedesign.files.toml import shipped_folder
from noisedesign.program.family import SEARCHED, family_of
from noisedesign.program.problem import Problem
from noisedesign.tasks.model import conic_program

OWN = "collection"
"""Folder whose references come from here; those of others were found by routes of their own."""

LEFT_OUT = "sparse-graphs/"
"""Their bounds are statistical, and gaps some percent."""

GAPS = (1e-11, 1e-10, 1e-9, 1e-8, 1e-6)
"""Asked for one after the other, until one is certified."""

CONFIRMED, CONFIRMING_GAP = 40, 1e-7
"""Largest size at which another solver is asked, and for which gap."""

WIDEST = 1e-8

LEVELS = (1e-3, 1e-6, 1e-9)


def files() -> dict[str, Path]:
    folder = shipped_folder()
    found, _ = problem_files([folder])
    names = {path.relative_to(folder).with_suffix("").as_posix(): path for path in found}
    return {name: path for name, path in names.items() if not name.startswith(LEFT_OUT)}


def narrowest(loaded: LoadedProblem) -> tuple[float, float, str]:
    """The narrowest interval, and what it holds; where ours is wide, SCS narrows it."""
    lower, upper = 0.0, float("inf")
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
    """What is known of a problem already is kept; references of the other folders are narrowed."""
    known: dict[str, Instance] = {}
    if (shipped_folder() / MANIFEST).exists() and not arguments.anew:
        known = collection()
    lines = []
    for name, path in files().items():
        loaded, before = load_problem(path), known.get(name)
        reference = loaded.reference
        assert reference is not None, name
        lower, upper, method = reference.lower, reference.upper, reference.method
        holds = BEST_FOUND if {"best-found", "local-optimum"} & set(loaded.tags) else OPTIMUM
        if before is not None and not name.startswith(f"{OWN}/"):
            lower, upper, method = before.lower, before.upper, before.method
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


def programs(arguments: argparse.Namespace) -> None:
    folder = Path(arguments.output)
    for name, path in files().items():
        loaded = load_problem(path)
        try:
            program = conic_program(loaded.problem)
        except InputError as error:
            print(f"{name}: {error}", file=sys.stderr)
            continue
        for suffix in (".cbf", ".dat-s"):
            target = folder / f"{name}{suffix}"
            target.parent.mkdir(parents=True, exist_ok=True)
            formats.write(program, target, description=loaded.description)
        print(name, flush=True)


ANSWERS = ("problem", "solver", "seconds", "answer", "objective", "reason")


def answers(arguments: argparse.Namespace) -> None:
    """A solver that does not reach an accuracy in time is not asked for a higher one."""
    folder = Path(arguments.output)
    folder.mkdir(parents=True, exist_ok=True)
    table = folder / "answers.csv"
    done = set()
    if table.exists():
        with table.open(newline="") as file:
            done = {(row["problem"], row["solver"]) for row in csv.DictReader(file)}
    with table.open("a", newline="") as file:
        rows = csv.DictWriter(file, ANSWERS, lineterminator="\n")
        if not done:
            rows.writeheader()
        for name, instance in sorted(collection().items(), key=lambda item: item[1].size):
            problem = load_problem(name).problem
            for backend in arguments.backends.split(","):
                if (name, backend) in done:
                    continue
                for row in _runs(name, problem, backend, instance, folder, arguments.time_limit):
                    rows.writerow(row)
                    file.flush()
                    print(*row.values(), flush=True)


def _runs(
    name: str, problem: Problem, backend: str, instance: Instance, folder: Path, limit: float
) -> Iterator[dict[str, object]]:
    for level in LEVELS:
        row: dict[str, object] = {"problem": name, "solver": backend, "seconds": limit}
        row |= {"answer": "", "objective": "", "reason": ""}
        started = time.perf_counter()
        try:
            found = solve(problem, backend=backend, gap=level, time_limit=limit, isolate=True)
        except InputError as error:
            yield row | {"reason": str(error)}
            return
        except Exception as error:
            spent = time.perf_counter() - started
            yield row | {"reason": f"{type(error).__name__}: {error}", "seconds": spent}
            return
        row["seconds"] = found.build_seconds + found.solve_seconds
        design = found.design
        if design is None or not found.found:
            yield row | {"reason": found.remedy or found.status}
            return
        target = folder / f"{name.replace('/', '-')}-{backend}-{level:g}.npz"
        save_design(design, target)
        yield row | {"answer": target.name, "objective": repr(design.objective)}
        searched = instance.holds == BEST_FOUND
        if searched or row["seconds"] > limit or design.gap > level:
            return
        if design.objective <= instance.lower * (1 + LEVELS[-1]):
            return


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
    command.set_defaults(run=programs)
    command = commands.add_parser("answers")
    command.add_argument("-o", "--output", required=True, metavar="FOLDER")
    command.add_argument("--backends", default="native")
    command.add_argument("--time-limit", type=float, default=10.0, metavar="S")
    command.set_defaults(run=answers)
    options = parser.parse_args(arguments)
    options.run(options)


if __name__ == "__main__":
    main()
