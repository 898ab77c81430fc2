"""The W under which a kind of noise adds the least error to a run."""

from __future__ import annotations

import contextlib

import numpy as np

from noisedesign.base.checks import Array, InputError
from noisedesign.design.least_noise import least_noise_mixing
from noisedesign.design.solve import solve
from noisedesign.problem.problem import Problem, SpaceProblem
from noisedesign.surveys.situation import OF_ITS_OWN, OF_ONE_STEP, Kind, Situation


def chosen_mixings(situation: Situation, kind: Kind, *, seconds: float) -> list[tuple[str, Array]]:
    """Errors that W is of least noise for, and W, that of least error with fixed batches first;
    empty where there is no other W."""
    found = least_noise_mixing(SpaceProblem(mixing=situation.mixing))
    if found.status == "given":
        return []
    known = {OF_ONE_STEP: found.mixing}
    problem = situation.problem(kind)
    with contextlib.suppress(InputError):  # no such problem, or not in time
        known[OF_ITS_OWN] = least_noise_mixing(problem, time_limit=seconds).mixing
    # A search ends some thousandths above its best, which for few steps is that of one step.
    errors = {name: _least(problem.with_mixing(mixing), seconds) for name, mixing in known.items()}
    return [(name, known[name]) for name in sorted(errors, key=errors.__getitem__)]


def _least(problem: Problem, seconds: float) -> float:
    """The error of the noise of a problem in so many seconds; infinite where there is none."""
    try:
        design = solve(problem, time_limit=seconds).design
    except InputError:
        return np.inf
    return np.inf if design is None else design.objective
