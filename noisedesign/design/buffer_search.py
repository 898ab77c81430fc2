"""The search for the buffers of a run without an end, and what is proved of what it finds."""

from __future__ import annotations

from typing import Any

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base.checks import InputError
from noisedesign.design.unbounded import UnboundedDesign
from noisedesign.families.unbounded.bound import judged, least_stddevs
from noisedesign.families.unbounded.directed import Directed
from noisedesign.families.unbounded.solver import search
from noisedesign.problem.unbounded import STEPS, UnboundedProblem


def solve_unbounded(problem: UnboundedProblem, **options: Any) -> UnboundedDesign:
    """Search for the buffers of a run without an end, and prove what they are worth."""
    for name, value in options.items():
        if value is not None:
            expected = "nothing for a run without an end"
            raise InputError(name, expected=expected, got=_checks.describe(value))
    poles, weights = np.asarray(problem.workload.poles), np.asarray(problem.workload.weights)
    often, apart = problem.max_participations, problem.separation
    directed = Directed(problem.mixing) if problem.directed else None
    least = least_stddevs(
        poles, weights, participations=often, separation=apart, steps=STEPS, directed=directed
    )
    found = search(
        poles,
        weights,
        least=least,
        participations=often,
        separation=apart,
        buffers=problem.buffers,
        steps=STEPS,
    )
    squared = found.proved_sensitivity(participations=often, separation=apart)
    outcome = judged(
        found, poles, weights, least=least, squared=squared, steps=STEPS, directed=directed
    )
    return UnboundedDesign(
        problem=problem,
        scales=found.scales,
        decays=found.decays,
        squared_sensitivity=squared,
        ratio=outcome.ratio,
        worst=outcome.worst,
    )
