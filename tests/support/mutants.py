"""Small wrong changes to the code (``tests/mutants.jsonl``), each of which a test has to notice.

    python -m tests.support.mutants                    # a sample, another one every day
    python -m tests.support.mutants --seed 7 --sample 40
    python -m tests.support.mutants --all --jobs 4
    python -m tests.support.mutants program/rigorous px-budget   # by parts of files and ids
    python -m tests.support.mutants --needing --all    # those whose tests need a trainer
    python -m tests.support.mutants --stale            # what the list says and the code does not

Each is made in a copy of the tree, where the tests that it names are run in a process of their own;
before, they have to pass without it. A mutant is the place of its ``before``, which is in its file
once; those with a reason in ``equivalent`` change nothing that is promised, and are not run. The
exit code is 1 where a mutant was not noticed or nothing can be said of it.
"""

from __future__ import annotations

import argparse
import compileall
import datetime
import importlib.util
import json
import os
import py_compile
import queue
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIST = Path("tests", "mutants.jsonl")
LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "_build", "build", "dist", "out")

NOTICED, UNNOTICED, ENDLESS = "noticed", "NOT NOTICED", "did not end"


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """A wrong change.

    Attributes:
        before: text that is in the file once, and ``after`` what it becomes.
        tests: arguments of pytest: node ids or files, the nearest ones.
        equivalent: why it changes nothing that is promised; None where a test has to notice it.
        needs: modules without which its tests skip, so that it is not run there.
    """

    id: str
    file: str
    before: str
    after: str
    tests: tuple[str, ...]
    equivalent: str | None = None
    needs: tuple[str, ...] = ()

    @property
    def runs(self) -> bool:
        """Whether what its tests need is installed."""
        return all(importlib.util.find_spec(name) for name in self.needs)

    def wrong(self, root: Path) -> str | None:
        """What of it is no longer true of a tree; None where all is."""
        path = root / self.file
        found = path.read_text(encoding="utf-8").count(self.before) if path.is_file() else 0
        if found != 1 or self.before == self.after:
            return f"its text is in {self.file} {found} times"
        for test in self.tests:
            name, *inside = re.sub(r"\[.*", "", test).split("::")
            text = (root / name).read_text(encoding="utf-8") if (root / name).is_file() else ""
            if not text or not all(re.search(rf"\b{one}\b", text) for one in inside):
                return f"there is no {test}"
        return None if self.tests or self.equivalent else "no test is named"

    def made(self, text: str) -> str:
        """The text of its file with it."""
        return text.replace(self.before, self.after)


def listed(root: Path = ROOT) -> list[Mutant]:
    """All mutants of a tree, as its list has them."""
    lines = (root / LIST).read_text(encoding="utf-8").splitlines()
    found = map(json.loads, lines)
    return [
        Mutant(**one | {key: tuple(one.get(key, ())) for key in ("tests", "needs")})
        for one in found
    ]


def copied(root: Path, into: Path) -> Path:
    """A copy whose compiled modules are compared by what is in them, not by their time and size."""
    shutil.copytree(root, into, ignore=LEFT_OUT)
    mode = py_compile.PycInvalidationMode.CHECKED_HASH
    compileall.compile_dir(into / "noisedesign", quiet=2, invalidation_mode=mode)
    return into


def run(tests: Sequence[str], tree: Path, *, timeout: float | None = None) -> tuple[str, str]:
    """How tests end in a tree, and the first that failed."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=no", "-p", "no:cacheprovider"]
    # The laboratory, too, is that of the copy.
    path = os.pathsep.join((str(tree), str(tree / "lab")))
    environment = os.environ | {"PYTHONPATH": path}
    try:
        done = subprocess.run(
            [*command, *tests],
            cwd=tree,
            env=environment,
            timeout=timeout,
            capture_output=True,
            text=True,
        )
    except subprocess.TimeoutExpired:
        return ENDLESS, f"within {timeout:g} s"
    failed = re.search(r"^FAILED (\S+)", done.stdout, re.MULTILINE)
    if done.returncode == 1 and failed:
        return NOTICED, failed[1]
    if done.returncode == 0:
        return UNNOTICED, ""
    return f"pytest ended with {done.returncode}", (done.stdout + done.stderr).strip()[-300:]


def tried(mutant: Mutant, tree: Path, *, timeout: float) -> tuple[str, str]:
    """:func:`run` of its tests with it, in a tree that is then as before."""
    path = tree / mutant.file
    text = path.read_text(encoding="utf-8")
    path.write_text(mutant.made(text), encoding="utf-8")
    try:
        return run(mutant.tests, tree, timeout=timeout)
    finally:
        path.write_text(text, encoding="utf-8")


def judge(mutants: Sequence[Mutant], *, root: Path, jobs: int, timeout: float) -> int:
    """Tries them all and prints a line each and their counts; how many nothing noticed."""
    counts: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as pool:
        trees: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for number in range(jobs):
            trees.put(copied(root, Path(folder, str(number))))
        needed = sorted({test for mutant in mutants for test in mutant.tests})
        print(f"{len(mutants)} mutants; first, their tests without them ...", flush=True)
        tree = trees.get()
        ended, which = run(needed, tree) if needed else (UNNOTICED, "")
        trees.put(tree)
        if ended != UNNOTICED:
            print(f"without any mutant: {ended.lower()} {which}")
            return len(mutants)

        def one(mutant: Mutant) -> tuple[str, str, float]:
            tree, started = trees.get(), time.monotonic()
            try:
                return *tried(mutant, tree, timeout=timeout), time.monotonic() - started
            finally:
                trees.put(tree)

        for mutant, (ended, which, seconds) in zip(mutants, pool.map(one, mutants), strict=True):
            counts[ended] = counts.get(ended, 0) + 1
            print(f"{mutant.id:<22} {ended:<12} {seconds:4.0f} s  {which}", flush=True)
    print("; ".join(f"{count} {ended}" for ended, count in sorted(counts.items())))
    return len(mutants) - counts.get(NOTICED, 0) - counts.get(ENDLESS, 0)


def main(arguments: list[str] | None = None, *, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.mutants")
    parser.add_argument("which", nargs="*", help="parts of files and ids; all without any")
    parser.add_argument("--all", action="store_true", help="no sample")
    parser.add_argument("--sample", type=int, default=24, help="how many are drawn (24)")
    parser.add_argument("--seed", type=int, default=datetime.date.today().toordinal())
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time (2)")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for one (300)")
    parser.add_argument(
        "--needing", action="store_true", help="only those that need a trainer; with --all all"
    )
    parser.add_argument("--stale", action="store_true", help="only what is no longer true")
    asked = parser.parse_args(arguments)
    everything = listed(root)
    stale = {mutant.id: said for mutant in everything if (said := mutant.wrong(root))}
    for name, said in stale.items():
        print(f"{name:<22} stale: {said}")
    if asked.stale:
        return int(bool(stale))
    mutants = [one for one in everything if one.id not in stale and one.equivalent is None]
    if asked.needing:
        mutants = [one for one in mutants if one.needs]
    if absent := [one for one in mutants if not one.runs]:
        names = ", ".join(sorted({name for one in absent for name in one.needs}))
        print(f"{len(absent)} of {len(mutants)} are not run: some of {names} is not installed")
        mutants = [one for one in mutants if one.runs]
    if asked.which:
        mutants = [one for one in mutants if any(p in one.file or p in one.id for p in asked.which)]
    elif not asked.all and asked.sample < len(mutants):
        print(f"a sample by --seed {asked.seed}")
        chosen = set(random.Random(asked.seed).sample(range(len(mutants)), asked.sample))
        mutants = [one for number, one in enumerate(mutants) if number in chosen]
    left = judge(mutants, root=root, jobs=asked.jobs, timeout=asked.timeout)
    return int(bool(left or stale or not (mutants or absent)))


if __name__ == "__main__":
    sys.exit(main())
