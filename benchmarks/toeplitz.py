"""What small memory costs: ``python -m benchmarks.toeplitz``.

Each family of Toeplitz strategies is optimised for prefix sums and for gossip on a random graph of
20 nodes. ``over_bound`` is the objective over the lower bound of the unrestricted optimum, which is
itself a few per cent low for one participation and much lower for many; ``over_certified`` is the
objective over the certified unrestricted optimum, where its T x T matrices can be afforded. Time is
a ratio as well: the whole search in units of one convolution of two vectors of length T.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterator

import numpy as np

import noisedesign as nd
from noisedesign.base import power_series as series
from noisedesign.families.toeplitz.solver import (
    optimize_banded_inverse,
    optimize_buffered,
    optimize_toeplitz,
)
from noisedesign.families.toeplitz.streaming import StreamingDesign
from noisedesign.system.workloads.toeplitz import Workload, gossip_workload, prefix_workload
from noisedesign.tasks import report
from noisedesign.tasks.report import Record

CERTIFIED_HORIZON = 1024
"""The native solver takes seconds here."""

Scheme = nd.participation.FixedEpoch | nd.participation.MinSeparation


def searches(
    workload: Workload, participation: Scheme
) -> Iterator[tuple[str, float, StreamingDesign]]:
    """Name, seconds and answer of every family."""

    def timed(name: str, search: str, **size: int) -> tuple[str, float, StreamingDesign]:
        optimize = {
            "toeplitz": optimize_toeplitz,
            "banded inverse": optimize_banded_inverse,
            "buffered": optimize_buffered,
        }[search]
        started = time.process_time()
        design = optimize(workload=workload, participation=participation, **size)
        return name, time.process_time() - started, design

    yield timed("Toeplitz", "toeplitz")
    for bands in (4, 16):
        yield timed(f"banded inverse, {bands} bands", "banded inverse", bands=bands)
    for buffers in (2, 3, 4, 8):
        yield timed(f"{buffers} buffers", "buffered", buffers=buffers)


def convolution_seconds(horizon: int) -> float:
    vectors = np.random.default_rng(0).standard_normal((2, horizon))
    runs = []
    for _ in range(9):
        started = time.process_time()
        series.convolve(*vectors)
        runs.append(time.process_time() - started)
    return statistics.median(runs)


def rows(name: str, workload: Workload, participation: Scheme) -> list[Record]:
    certified = None
    if workload.horizon <= CERTIFIED_HORIZON and isinstance(
        participation, nd.participation.FixedEpoch
    ):
        problem = nd.TimeProblem.from_gram(gram=workload.gram(), participation=participation)
        certificate = nd.solve(problem).certificate
        assert certificate is not None
        certified = certificate.lower_bound
    unit = convolution_seconds(workload.horizon)
    result: list[Record] = []
    for family, seconds, design in searches(workload, participation):
        print(f"  {name}, T = {workload.horizon}: {family}", file=sys.stderr)
        result.append(
            {
                "workload": name,
                "participation": str(participation),
                "family": family,
                "vectors_kept": design.strategy.vectors_kept(workload.horizon),
                "over_bound": design.objective / design.lower_bound_of_unrestricted_optimum,
                "over_certified": None if certified is None else design.objective / certified,
                "evaluations": design.evaluations,
                "convolutions": round(seconds / unit),
                "stop": str(design.stop),
            }
        )
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--horizons", type=int, nargs="+", default=[1024, 16_384, 100_000], help="values of T"
    )
    arguments = parser.parse_args()
    mixing = nd.mixing_matrix(nd.build_graph("erdos-renyi", nodes=20, p=0.2, seed=0))
    for horizon in arguments.horizons:
        epochs = nd.participation.FixedEpoch(epochs=8, separation=horizon // 8)
        found: list[Record] = []
        for steps in (nd.participation.single(horizon), epochs):
            for name, workload in (
                ("prefix sums", prefix_workload(horizon=steps.horizon)),
                ("gossip", gossip_workload(mixing, horizon=steps.horizon)),
            ):
                found += rows(name, workload, steps)
        print()
        report.print_table(found, list(found[0]), title=f"T = {horizon} (smaller is better)")


if __name__ == "__main__":
    main()
