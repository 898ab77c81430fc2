"""A proof beside the arithmetic it is made of: ``python -m benchmarks.rigorous``.

Time to prove a design in space, or in time for several epochs, feasible and near its optimum with
every rounding accounted for, over that of five products of its size and an inverse, in turn in this
process: processor time, the least of several. The design is solved before, once to a gap of 1e-12
and once to the usual one.

In units of a product, 2 n^3 operations, a proof in space takes a Cholesky factor, its inverse and
the Gram matrix of that (.83), I - R Y (1), L R (1, next to nothing where W is sparse), one more L R
where the rows of R were scaled, and a step of Newton and Schulz (1.5). In time: the inverse of a
triangle, C D, L D and C^T C (.17 each), L^-T X B (.5), Newton and Schulz (1.5), and L itself (.33
where H is of integers, else 1.5). ``decompositions`` counts eigenvalues and singular values of
matrices of that size, each of some ten products.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np

import noisedesign as nd
from noisedesign.design.proof import Proof, prove
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
    scheme = nd.participation.FixedEpoch(epochs=EPOCHS, separation=steps // EPOCHS)
    return nd.TimeProblem.prefix(participation=scheme)


def counted(design: nd.Design) -> tuple[Proof, int]:
    """The proof, and how many eigenvalue and singular value decompositions of its size it takes."""
    made = 0

    def watched(of: Callable[..., Any], a: Any, **more: Any) -> Any:
        nonlocal made
        made += np.shape(a)[-1] == design.size
        return of(a, **more)

    with ExitStack() as stack:
        for name in ("eigh", "eigvalsh", "svd"):
            routine = partial(watched, getattr(np.linalg, name))
            stack.enter_context(patch.object(np.linalg, name, routine))
        return prove(design), made


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
        proof, decompositions = counted(design)
        yield {
            "design": kind,
            "size": size,
            "gap": design.gap,
            "proved_gap": proof.gap if proof.rigorous else proof.why_not,
            "decompositions": decompositions,
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
