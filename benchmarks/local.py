"""Pairwise seeds beside a dealer: ``python -m benchmarks.local``.

The same space design with one seed an edge (edge-local) and without a structure, both to a
certified gap of 1e-6, in turn in this process. ``--ego`` picks graphs of the Facebook collection:
414 has 148 nodes, 107 has 1034 and takes minutes.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable

import noisedesign as nd
from noisedesign.program.structure import SpaceStructure
from noisedesign.system import datasets
from noisedesign.tasks import report
from noisedesign.tasks.report import Record

GAP = 1e-6


def timed(run: Callable[[], nd.Solution]) -> tuple[nd.Solution, float]:
    started = time.perf_counter()
    solution = run()
    return solution, time.perf_counter() - started


def compare(ego: int, runs: int, limit: float) -> Record:
    graph = datasets.ego_facebook(ego)
    mixing = nd.mixing_matrix(graph)
    free = nd.SpaceProblem(mixing=mixing)
    local = nd.SpaceProblem(mixing=mixing, structure=SpaceStructure(kind="edge-local"))
    nd.solve(free, gap=GAP)  # warm up
    plain, seconds = [], []
    for _ in range(runs):
        plain += [timed(lambda: nd.solve(free, gap=GAP))[1] for _ in range(3)]
        solution, taken = timed(lambda: nd.solve(local, gap=GAP, time_limit=limit))
        seconds.append(taken)
    design = solution.design
    if design is None:
        sys.exit(f"edge-local: {solution.status}")
    ours, theirs = statistics.median(seconds), statistics.median(plain)
    return {
        "nodes": len(mixing),
        "edges": graph.number_of_edges(),
        "status": solution.status,
        "gap": design.gap,
        "over_unrestricted": design.certificate.relative_to_unrestricted,
        "seconds": ours,
        "unrestricted_seconds": theirs,
        "ratio": ours / theirs,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ego", type=int, nargs="+", default=[414], metavar="EGO")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--time-limit", type=float, default=600.0, metavar="SECONDS")
    arguments = parser.parse_args()
    rows = [compare(ego, arguments.runs, arguments.time_limit) for ego in arguments.ego]
    report.print_table(rows, list(rows[0]), title="one seed an edge, beside noise from a dealer")


if __name__ == "__main__":
    main()
