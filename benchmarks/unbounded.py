"""Ratios of noise without a horizon, by participation: ``python -m benchmarks.unbounded``.

A ratio is that of the standard deviation of the error to a lower bound on what those have who know
the number of steps, at most, at every step from the first one at which a record can have taken part
as often as it may, to a million; proved with every rounding accounted for."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import noisedesign as nd

CASES = ((1, 1), (2, 100), (4, 100), (8, 64), (20, 1000), (64, 1), (128, 10), (1000, 100))
QUICK = CASES[:3]
"""How often a record takes part, at most, and how many steps apart, at least."""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args(arguments)
    print("| participations | steps apart | ratio at most | from step |\n|---|---|---|---|")
    for often, apart in QUICK if asked.quick else CASES:
        problem = nd.UnboundedProblem(max_participations=often, separation=apart)
        design = nd.solve(problem)
        apart_said = apart if often > 1 else "-"
        print(f"| {often} | {apart_said} | {design.ratio:.3f} | {design.first} |", flush=True)


if __name__ == "__main__":
    main()
