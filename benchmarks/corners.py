"""Problems that used to be slow, in units of what they cannot do without: ``python -m
benchmarks.corners``.

Caps and floors: the whole of ``nd.solve``, certificate included, in units of one eigendecomposition
of an n x n matrix, beside the same without limits, on Erdos-Renyi graphs of mean degree 20.
``--sizes``, ``--caps``, ``--floors`` and ``--gap`` say which. Strategies in few numbers: the whole
search over ``--horizon`` steps, in units of one convolution of two vectors of that length. Both are
processor time, taken in turn in one process; the fastest mixing has a page of its own
(:mod:`benchmarks.fastest_mixing`).
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import noisedesign as nd
from benchmarks.toeplitz import searches
from noisedesign.base import power_series as series
from noisedesign.system.workloads.toeplitz import gossip_workload
from noisedesign.tasks import report
from noisedesign.tasks.report import Record

GAP = 1e-9
DEGREE = 20
UNITS = 5
"""Runs of what is the unit, before and after what is measured."""


def spent(run: Callable[[], Any]) -> tuple[Any, float]:
    """What a run gives, and its processor time in seconds."""
    started = time.process_time()
    return run(), time.process_time() - started


def in_units(run: Callable[[], Any], unit: Callable[[], Any]) -> tuple[Any, float]:
    """What a run gives, and its time over the median of the unit's just before and after."""
    before = [spent(unit)[1] for _ in range(UNITS)]
    found, seconds = spent(run)
    after = [spent(unit)[1] for _ in range(UNITS)]
    return found, seconds / statistics.median(before + after)


def limits(nodes: int, caps: list[float], floors: list[float], *, gap: float) -> list[Record]:
    graph = nd.build_graph("erdos-renyi", nodes=nodes, p=DEGREE / nodes, seed=0)
    mixing = nd.mixing_matrix(graph)
    symmetric = mixing + mixing.T
    asked: list[dict[str, float]] = [{}]
    asked += [{"max_variance": cap} for cap in caps]
    asked += [{"min_variance": floor} for floor in floors]
    nd.solve(nd.SpaceProblem(mixing=mixing), gap=gap)  # warm up
    rows: list[Record] = []
    for limit in asked:
        problem = nd.SpaceProblem(mixing=mixing, **limit)
        print(f"  n = {nodes}: {limit or 'no limit'}", file=sys.stderr)
        solution, units = in_units(
            lambda problem=problem: nd.solve(problem, gap=gap), lambda: np.linalg.eigh(symmetric)
        )
        design = solution.design
        rows.append(
            {
                "nodes": nodes,
                "limit": " ".join(f"{name} {value:g}" for name, value in limit.items()) or "none",
                "status": solution.status,
                "gap": None if design is None else design.gap,
                "evaluations": solution.evaluations,
                "eigh": round(units, 1),
                "over none": round(units / (rows[0]["eigh"] if rows else units), 2),
            }
        )
    return rows


def strategies(horizon: int) -> list[Record]:
    mixing = nd.mixing_matrix(nd.build_graph("erdos-renyi", nodes=20, p=0.2, seed=0))
    workload = gossip_workload(mixing, horizon=horizon)
    vectors = np.random.default_rng(0).standard_normal((2, horizon))
    unit = statistics.median(spent(lambda: series.convolve(*vectors))[1] for _ in range(9))
    rows: list[Record] = []
    for steps in (
        nd.participation.single(horizon),
        nd.participation.FixedEpoch(epochs=8, separation=horizon // 8),
    ):
        kinds = searches(workload, steps)
        while True:
            found, seconds = spent(lambda kinds=kinds: next(kinds, None))
            if found is None:
                break
            family, _, design = found
            rows.append(
                {
                    "participation": str(steps),
                    "family": family,
                    "evaluations": design.evaluations,
                    "stop": str(design.stop),
                    "convolutions": round(seconds / unit),
                    "over_bound": design.objective / design.lower_bound_of_unrestricted_optimum,
                }
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="*", default=[148, 500], metavar="N")
    parser.add_argument("--caps", type=float, nargs="*", default=[1.05, 1.2, 2.0, 5.0, 100.0])
    parser.add_argument("--floors", type=float, nargs="*", default=[1.1, 2.0, 5.0])
    parser.add_argument("--gap", type=float, default=GAP)
    parser.add_argument("--horizon", type=int, default=100_000, metavar="T", help="0 for none")
    arguments = parser.parse_args()
    for nodes in arguments.sizes:
        rows = limits(nodes, arguments.caps, arguments.floors, gap=arguments.gap)
        title = f"limits on variances, gap {arguments.gap:g}"
        report.print_table(rows, list(rows[0]), title=title)
        print()
    if not arguments.horizon:
        return
    rows = strategies(arguments.horizon)
    title = f"gossip of 20 nodes over {arguments.horizon} steps"
    report.print_table(rows, list(rows[0]), title=title)


if __name__ == "__main__":
    main()
