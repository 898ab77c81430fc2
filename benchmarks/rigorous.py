"""A proof beside the arithmetic it is made of: ``python -m benchmarks.rigorous``.

Time to prove a design in space, or in time for several epochs, feasible and near its optimum with
every rounding accounted for, over that of five products of its size and an inverse, in turn in this
process: processor time, the least of several. The design is solved before, to a gap of 1e-12; one
that is further from its optimum guesses polar factors less well, and takes an eigendecomposition
more, as the second row of a size shows.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

import noisedesign as nd
from noisedesign.program.proof import prove
from noisedesign.tasks import report
from noisedesign.tasks.report import Record

DEGREE = 8
"""Of the Erdos-Renyi graphs, on average."""

EPOCHS = 4
"""Of designs in time."""

TIGHT, USUAL = 1e-12, 1e-6


def seconds(run: Callable[[], object]) -> float:
    started = time.process_time()
    run()
    return time.process_time() - started


def in_space(nodes: int) -> nd.SpaceProblem:
    graph = nd.build_graph("erdos-renyi", nodes=nodes, p=DEGREE / nodes, seed=1)
    return nd.SpaceProblem.from_graph(graph)


def in_time(steps: int) -> nd.TimeProblem:
    scheme = nd.FixedEpoch(epochs=EPOCHS, separation=steps // EPOCHS)
    return nd.TimeProblem.prefix(participation=scheme)


def proved(kind: str, size: int, runs: int) -> Iterator[Record]:
    problem = {"space": in_space, "time": in_time}[kind](size)
    a = np.random.default_rng(0).standard_normal((size, size))

    def arithmetic() -> None:
        for _ in range(5):
            a @ a
        np.linalg.inv(a)

    for gap in (TIGHT, USUAL):
        design = nd.solve(problem, gap=gap).design
        assert design is not None
        ours, theirs = [], []
        for _ in range(runs):
            ours.append(seconds(partial(prove, design)))
            theirs.append(seconds(arithmetic))
        proof = prove(design)
        yield {
            "design": kind,
            "size": size,
            "gap": design.gap,
            "proved_gap": proof.gap if proof.rigorous else proof.why_not,
            "proof_seconds": min(ours),
            "arithmetic_seconds": min(theirs),
            "ratio": min(ours) / min(theirs),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--designs", nargs="+", choices=("space", "time"), default=["space", "time"]
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[148, 500, 2000])
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    kinds = itertools.product(arguments.designs, arguments.sizes)
    rows = [row for kind, size in kinds for row in proved(kind, size, arguments.runs)]
    title = "proofs, beside five products and an inverse"
    report.print_table(rows, list(rows[0]), title=title)


if __name__ == "__main__":
    main()
