"""What signs save in several epochs: ``python -m benchmarks.signed_buffers``.

Root mean squared error of the best Toeplitz strategies found over the certified optimum of every
strategy, for prefix sums over 8 epochs of 64 steps. ``--quick`` leaves out what takes longest."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence

import noisedesign as nd
from noisedesign.families.toeplitz.solver import optimize_buffered, optimize_toeplitz
from noisedesign.system.workloads.toeplitz import prefix_workload

SCHEME = nd.participation.FixedEpoch(epochs=8, separation=64)
QUICK, BUFFERS = (1, 2, 3, 5, 8), (1, 2, 3, 4, 5, 6, 8, 10, 12, 16)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args(arguments)
    optimum = nd.solve(nd.TimeProblem.prefix(participation=SCHEME)).design
    assert optimum is not None
    given = {"workload": prefix_workload(horizon=SCHEME.horizon), "participation": SCHEME}

    def row(name: object, positive: float, signed: float) -> None:
        over = (f"{math.sqrt(error / optimum.objective):.4f}" for error in (positive, signed))
        print(f"| {name} | {' | '.join(over)} |", flush=True)

    print("| buffers | positive | of any sign |\n|---|---|---|")
    for count in QUICK if asked.quick else BUFFERS:
        found = [optimize_buffered(buffers=count, signed=s, **given) for s in (False, True)]
        row(count, *(each.objective for each in found))
    best = [optimize_toeplitz(signed=signed, **given).objective for signed in (False, True)]
    row("as many as steps", *best)


if __name__ == "__main__":
    main()
