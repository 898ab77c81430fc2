"""Every shipped problem solved, and its design proved: ``python -m benchmarks.proofs``.

One line a problem, with what gap is claimed and what is proved, or why not; then how many are
proved, and the reasons of the others: under random participation the objective is, and the bound on
designs for participation that an adversary chooses, and not the account. The exit code is 1 where
one is not proved for another reason than those that docs/guarantees.md names.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import noisedesign as nd
from noisedesign.design.proof import prove
from noisedesign.files.problem_file import load_problem
from noisedesign.files.problem_set import problem_files
from noisedesign.files.toml import shipped_folder
from noisedesign.tasks import report
from noisedesign.tasks.report import Record

KNOWN = ("the account of random participation", "of which at most", "of which there are")
"""Words of the reasons that are named in the documentation."""

PROVED = "proved"

MOST_SECONDS = 300.0
"""Of one solve."""


def proved(name: str, path: Path) -> Record:
    problem = load_problem(path).problem
    found: Record = {"problem": name}
    started = time.process_time()
    try:
        design = nd.solve(problem, time_limit=MOST_SECONDS).design
    except nd.InputError as error:
        return found | {"said": f"not solved: {error}"}
    if design is None:
        return found | {"said": "not solved"}
    solved = time.process_time()
    proof = prove(design)
    return found | {
        "gap": design.gap,
        "proved_gap": proof.gap if proof.rigorous else None,
        "solve_seconds": solved - started,
        "proof_seconds": time.process_time() - solved,
        "said": PROVED if proof.rigorous else proof.why_not,
    }


def rows(folder: Path, *, without: tuple[str, ...], only: str) -> Iterator[Record]:
    for path in problem_files([folder])[0]:
        name = path.relative_to(folder).with_suffix("").as_posix()
        if only in name and not name.startswith(without):
            row = proved(name, path)
            print(f"{name}: {row['said']}", flush=True)
            yield row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="problems whose names hold these words")
    parser.add_argument(
        "--without",
        nargs="*",
        default=["sparse-graphs/barabasi-albert-100000"],
        help="what their names begin with that are left out",
    )
    arguments = parser.parse_args()
    found = list(rows(shipped_folder(), without=tuple(arguments.without), only=arguments.only))
    columns = ["problem", "gap", "proved_gap", "solve_seconds", "proof_seconds"]
    table = [row for row in found if "gap" in row]
    print()
    report.print_table(
        table, columns, title="shipped problems, and what is proved of their designs"
    )
    said = Counter(str(row["said"]) for row in found)
    print(f"\n{len(found)} problems, {said[PROVED]} proved")
    for reason, count in said.most_common():
        if reason != PROVED:
            print(f"  {count}: {reason}")
    new = [reason for reason in said if reason != PROVED and not any(w in reason for w in KNOWN)]
    return 1 if new else 0


if __name__ == "__main__":
    raise SystemExit(main())
