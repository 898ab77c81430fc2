"""Fill in the [reference] table of problem files, by the oracles alone.

    python -m tests.support.reference_intervals problems/{whisper,mafalda,prefix,examples}/*.toml

Only the mixing matrix comes from the library. H is formed anew, and the interval is what
:mod:`oracles` proves about it. Files that have a table already are left as they are.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from noisedesign.files.problem_file import load_problem
from noisedesign.problem.problem import Problem, SpaceProblem
from tests.support import oracles
from tests.support.oracles import Interval

WIDEST = 1e-5
WANTED = 2e-6
ROUNDING = 1e-12
"""Relative rounding of sums and eigendecompositions of a few hundred terms, with a margin."""


def interval_of(problem: Problem) -> tuple[Interval, str]:
    """An interval for the optimum, and one sentence on how it was obtained."""
    if isinstance(problem, SpaceProblem):
        gram = problem.mixing.T @ problem.mixing
        if problem.min_variance is not None:
            found = oracles.floored_interval(
                gram, budget=problem.budget, floor=problem.min_variance, cap=problem.max_variance
            )
            return found, (
                "lower: the dual function at Clarabel's multipliers; upper: Clarabel's R with rows "
                "multiplied until budgets and floors hold; both evaluated in numpy"
            )
        if problem.max_variance is not None:
            found = oracles.capped_interval(gram, budget=problem.budget, cap=problem.max_variance)
            return found, (
                "lower: the dual function at Clarabel's multipliers; upper: Clarabel's R^-1 "
                "blended with diag(tau) until budgets and cap hold; both evaluated in numpy"
            )
        found = oracles.diagonal_interval(gram, budget=problem.budget, width=WANTED / 20)
        return found, (
            "fixed point v <- diag((D^1/2 H D^1/2)^1/2), D = diag(v); lower: its dual value; "
            "upper: tr(H X^-1) of its X rescaled to the budgets"
        )
    k, b = problem.participation.epochs, problem.participation.separation
    if problem.workload == "decentralized":
        assert problem.mixing is not None
        gram = oracles.gram_of_powers(np.asarray(problem.mixing), k * b)
    else:
        workload = oracles.prefix_workload(k * b)
        gram = workload.T @ workload
    if k == 1:
        found = oracles.diagonal_interval(gram, width=WANTED / 20)
        return found, (
            "fixed point v <- diag((D^1/2 H D^1/2)^1/2), D = diag(v); lower: its dual value; "
            "upper: tr(H X^-1) of its X rescaled to unit diagonal"
        )
    found = oracles.fixed_epoch_interval(gram, k, b, width=WANTED)
    return found, (
        "L-BFGS-B on U_j = p_j V_j V_j^T with unit rows of V_j; lower: the dual value; upper: "
        "tr(H X^-1) of X made diagonal on the patterns and rescaled"
    )


def fill_in(path: Path) -> None:
    """Append the table to a file that has none."""
    loaded = load_problem(path)
    if loaded.reference is not None:
        print(f"{path}: has a reference", flush=True)
        return
    found, method = interval_of(loaded.problem)
    if not found.width <= WIDEST:
        raise SystemExit(f"{path}: only reached a relative width of {found.width:.2g}")
    lower, upper = found.lower * (1 - ROUNDING), found.upper * (1 + ROUNDING)
    text = path.read_text(encoding="utf-8").rstrip("\n")
    table = f'[reference]\nlower = {lower!r}\nupper = {upper!r}\nmethod = "{method}"\n'
    path.write_text(f"{text}\n\n{table}", encoding="utf-8")
    print(f"{path}: [{lower:.12g}, {upper:.12g}], width {found.width:.2g}", flush=True)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        fill_in(Path(name))
