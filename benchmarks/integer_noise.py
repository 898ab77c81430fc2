"""Noise in integers beside noise in floats: ``python -m benchmarks.integer_noise``.

Samples a second and core: discrete Gaussians of several sigma, then what one node draws at a step,
in integers and in float64, for strategies with bands. ``over numpy`` is the time beside numpy's
``standard_normal``, which is no source for deployment, ``over floats`` that beside normals in
float64 from ChaCha20. Each is the best of some runs, in turn in this process.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from fractions import Fraction
from functools import partial

import numpy as np

from noisedesign.noise import Claim, Plan, Rule, Secret, Stream, integer_noise, noise
from noisedesign.noise.discrete_gaussian import DiscreteGaussian
from noisedesign.noise.filters import Fresh, Toeplitz
from noisedesign.noise.normals import Normals
from noisedesign.tasks import report
from noisedesign.tasks.report import Record

VARIANCES = (Fraction(1, 4), *(Fraction(4**power) for power in (2, 6, 10, 20, 32, 40)))
"""sigma^2 (squared), of 1/2 to 2^40 steps of a lattice."""
HORIZON = 24
KEY = bytes(range(32))


def best(run: Callable[[], object], runs: int) -> float:
    """Seconds."""
    found = []
    for _ in range(runs):
        started = time.process_time()
        run()
        found.append(time.process_time() - started)
    return min(found)


def draws(count: int, runs: int) -> list[Record]:
    floats, integers = np.empty(count), np.empty(count, dtype=np.int64)
    generator = np.random.default_rng(1)
    plain = best(lambda: generator.standard_normal(out=floats), runs)
    ours = best(lambda: Normals(KEY).fill(floats), runs)
    rows = [("numpy's standard_normal", plain), ("normals in float64", ours)]
    for variance in VARIANCES:
        source = DiscreteGaussian(variance)
        name = f"discrete Gaussian, sigma {float(variance) ** 0.5:g}"
        rows.append((name, best(partial(source.fill, KEY, integers), runs)))
    return [
        {
            "draws": name,
            "million_per_second": count / seconds / 1e6,
            "over_numpy": seconds / plain,
            "over_floats": seconds / ours,
        }
        for name, seconds in rows
    ]


def steps(dimension: int, runs: int) -> list[Record]:
    """The steps of a run that all bands have a part in."""
    rows: list[Record] = []
    plain = best(lambda: np.random.default_rng(1).standard_normal(dimension), runs)
    for bands in (1, 4, 16):
        filter_ = Toeplitz.of(0.7 ** np.arange(bands), horizon=HORIZON) if bands > 1 else Fresh()
        plan = Plan(
            digest="ab" * 32,
            node=0,
            horizon=HORIZON,
            streams=(Stream(name="node 0", coefficient=1.0, holders=(0,)),),
            claim=Claim(
                noise_stddev=1.0, mu=1.0, clip=1.0, adjacency="zero-out", rule=Rule(most=1)
            ),
            filter=filter_,
        )
        for name, made in (("int64", integer_noise), ("float64", noise)):
            source = made(plan, secret=Secret(KEY), record=False)
            times = []
            for t in range(HORIZON):
                started = time.process_time()
                source.step(t, dimension)
                times.append(time.process_time() - started)
            seconds = min(times[bands - 1 :])
            rows.append(
                {
                    "bands": bands,
                    "noise": name,
                    "million_per_second": dimension / seconds / 1e6,
                    "over_numpy": seconds / plain,
                }
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dimension", type=int, default=2**22)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    rows = draws(arguments.dimension, arguments.runs)
    report.print_table(rows, list(rows[0]), title="draws, one core")
    rows = steps(arguments.dimension, arguments.runs)
    report.print_table(rows, list(rows[0]), title="a step of one node, one core")


if __name__ == "__main__":
    main()
