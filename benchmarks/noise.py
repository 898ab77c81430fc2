"""Noise of a node beside plain normals of numpy: ``python -m benchmarks.noise``.

A whole run, every step once and written into one array, against ``numpy.random.Generator``
(PCG64) drawing as many normals of that precision into one array: ratios of the two taken in turn in
this process, after one warm-up of each. So a ratio is the cost of a step and a node over that of
noise without correlation, without secrets and with other bits on other versions of numpy. ``draws``
are the normals behind one number of one step, on average: the ratio a draw is what is left.

The node with seeds has five neighbours on a graph and shares one with each; the dense C is that of
prefix sums.
"""

from __future__ import annotations

import argparse
import statistics

import numpy as np
from numpy.typing import NDArray

from benchmarks.speed import in_turn
from noisedesign.noise import Claim, NodeNoise, Plan, Secret, Stream
from noisedesign.noise.filters import Banded, Buffered, Filter, Fresh, Moving, Rows
from noisedesign.tasks import report
from noisedesign.tasks.report import Record

OWN = (Stream(name="node 0", coefficient=1.0, holders=(0,)),)
NEIGHBOURS = 5
DENSE_STEPS = 64


def square_root(horizon: int) -> NDArray[np.float64]:
    """C^-1 of the lower triangular root of the prefix sums: 1, -1/2, -1/8, ... in its columns."""
    column = np.cumprod(np.concatenate([[1.0], 1 - 1.5 / np.arange(1, horizon)]))
    lags = np.subtract.outer(np.arange(horizon), np.arange(horizon))
    return np.where(lags >= 0, column[np.abs(lags)], 0.0)


def plan_of(filter_: Filter, *, horizon: int, streams: tuple[Stream, ...] = OWN) -> Plan:
    claim = Claim(noise_stddev=1.0)
    return Plan(
        digest="5" * 64, node=0, horizon=horizon, streams=streams, claim=claim, filter=filter_
    )


def plans(horizon: int) -> dict[str, tuple[Plan, float]]:
    """Plans by what they are called, and their draws a number and step."""
    bands = np.full((4, horizon), -0.2)
    bands[0] = 1.0
    taps = np.array([1.0, -0.5, -0.125, -0.0625])
    buffers = Buffered(np.array([0.4, 0.2, 0.1]), np.array([0.3, 0.8, 0.99]), np.array([1.0]))
    shared = tuple(
        Stream(name=f"seed {k}", coefficient=1.0, source="shared", holders=(0, k + 1))
        for k in range(NEIGHBOURS)
    )
    dense = plan_of(Rows(square_root(DENSE_STEPS)), horizon=DENSE_STEPS)
    return {
        "independent": (plan_of(Fresh(), horizon=horizon), 1),
        "banded, p = 4": (plan_of(Banded(bands), horizon=horizon), 1),
        "banded inverse, p = 4": (plan_of(Moving(taps), horizon=horizon), 1),
        "buffers, m = 3": (plan_of(buffers, horizon=horizon), 1),
        f"seeds, {NEIGHBOURS} neighbours": (
            plan_of(Fresh(), horizon=horizon, streams=OWN + shared),
            NEIGHBOURS + 1,
        ),
        f"dense, T = {DENSE_STEPS}": (dense, (DENSE_STEPS + 1) / 2),
    }


def run_of(plan: Plan, out: NDArray[np.float32] | NDArray[np.float64]) -> None:
    """All noise of a plan, from the first step on."""
    seeds = {s.name: Secret.new() for s in plan.streams if s.source == "shared"}
    source = NodeNoise(plan, secret=Secret.new(), seeds=seeds, record=None, resume=False)
    for t in range(plan.horizon):
        source.step(t, out=out)


def row_of(name: str, plan: Plan, draws: float, dtype: type, *, size: int, runs: int) -> Record:
    out = np.empty(size, dtype=dtype)
    generator = np.random.default_rng(0)

    def plain() -> None:
        for _ in range(plan.horizon):
            generator.standard_normal(out=out, dtype=dtype)

    ratio = statistics.median(in_turn(lambda: run_of(plan, out), plain, runs=runs))
    return {
        "noise": name,
        "precision": np.dtype(dtype).name,
        "draws": draws,
        "over_plain": ratio,
        "a_draw": ratio / draws,
    }


def table(*, size: int, steps: int, runs: int) -> list[Record]:
    """A row a kind of noise and precision."""
    return [
        row_of(name, plan, draws, dtype, size=size, runs=runs)
        for name, (plan, draws) in plans(steps).items()
        for dtype in (np.float32, np.float64)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=1 << 18, help="numbers of the model")
    parser.add_argument("--steps", type=int, default=16, help="of a run, but for the dense C")
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    rows = table(size=arguments.size, steps=arguments.steps, runs=arguments.runs)
    title = f"noise of a node over plain normals, {arguments.size} numbers a step"
    report.print_table(rows, list(rows[0]), title=title)


if __name__ == "__main__":
    main()
