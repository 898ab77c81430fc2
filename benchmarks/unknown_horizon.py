"""The least price of not knowing the number of steps: ``python -m benchmarks.unknown_horizon``.

The error of step t of prefix sums is at least gamma_2(t)^2 at one participation, had t been known
to be the last. A design for the worst step with weights 1 / gamma_2(t)^2, ``step_weights =
"unknown-horizon"``, has the least largest ratio of standard deviations over all designs, certified
like every other. ``below`` is how far the weights are from those of upper ends of gamma_2, at
horizons between those whose shares are found: the ratio at least is too large by no more. Beyond
``SOLVED`` steps both ends are those of shares, and there is no design. ``--quick`` leaves out what
takes minutes."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence

import numpy as np

import noisedesign as nd
from noisedesign.system.workloads.factorization_norm import best_shares, least_errors

STEPS, QUICK = (16, 64, 256, 1024, 4096), (16, 64)
SOLVED = 1024  # steps of the longest design that is made here, in seconds
GAP = 1e-4  # relative, of squared ratios
COMPARED = 12  # horizons whose gamma_2 is found from above


def price(steps: int) -> tuple[float, float]:
    """Bound and ratio of standard deviations, not squared."""
    if steps > SOLVED:
        found = best_shares(least_errors(steps) ** -2, gap=GAP / 2)
        return found.lower, found.upper
    error = nd.ErrorMeasure(horizon=steps, of="worst", step_weights="unknown-horizon")
    problem = nd.TimeProblem.prefix(participation=nd.participation.single(steps), error=error)
    design = nd.solve(problem, gap=GAP).design
    assert design is not None
    return math.sqrt(design.certificate.lower_bound), math.sqrt(design.objective)


def below(steps: int) -> float:
    """How much least errors are too small, at most, of some horizons."""
    some = np.unique(np.geomspace(3, steps, COMPARED).astype(int)).tolist()
    uppers = [best_shares(np.ones(t), gap=1e-9).upper for t in some]
    return max(
        u / x - 1 for u, x in zip(uppers, least_errors(steps)[np.array(some) - 1], strict=True)
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args(arguments)
    print("| steps | at least | this design | below |\n|---|---|---|---|")
    for steps in QUICK if asked.quick else STEPS:
        low, high = price(steps)
        print(f"| {steps} | {low:.4f} | {high:.4f} | {below(steps):.0e} |", flush=True)


if __name__ == "__main__":
    main()
