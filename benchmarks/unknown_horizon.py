"""The least price of not knowing the number of steps: ``python -m benchmarks.unknown_horizon``.

The error of step t of prefix sums is at least gamma_2(t)^2 at one participation, had t been known
to be the last. A design for the worst step with weights 1 / gamma_2(t)^2 has the least largest
ratio of standard deviations over all designs, certified like every other; weights are those of the
lower ends of intervals, interpolated in ln t, and a ratio is wrong by as much as they are.
``--quick`` leaves out what takes minutes."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence

import numpy as np

import noisedesign as nd
from benchmarks.constants import interval

STEPS, QUICK = (16, 64, 256), (16, 64)
A_DOUBLING = 4  # horizons a doubling that gamma_2 is computed at; it is linear in ln t beyond a few
GAP = 1e-4  # relative, of squared ratios


def least_errors(steps: int) -> np.ndarray:
    """gamma_2 of 1 to ``steps``, from below, shape (steps,)."""
    count = A_DOUBLING * math.ceil(math.log2(steps))
    known = np.unique(np.round(np.geomspace(2, steps, count)).astype(int))
    found = [1.0, *(interval(int(t), worst=True)[0] for t in known)]
    return np.interp(np.log(np.arange(1, steps + 1)), np.log([1, *known]), found)


def price(steps: int) -> tuple[float, float]:
    """Bound and ratio of standard deviations, not squared."""
    weights = least_errors(steps) ** -2
    error = nd.ErrorMeasure(horizon=steps, of="worst", step_weights=weights)
    problem = nd.TimeProblem.prefix(participation=nd.single(steps), error=error)
    design = nd.solve(problem, gap=GAP).design
    assert design is not None
    return math.sqrt(design.certificate.lower_bound), math.sqrt(design.objective)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args(arguments)
    print("| steps | at least | this design |\n|---|---|---|")
    for steps in QUICK if asked.quick else STEPS:
        low, high = price(steps)
        print(f"| {steps} | {low:.4f} | {high:.4f} |", flush=True)


if __name__ == "__main__":
    main()
