"""Noise that keeps the budgets before every observer, exactly, by the account."""

from __future__ import annotations

import numpy as np

from noisedesign.base import linalg as _linalg
from noisedesign.base import settings
from noisedesign.base.checks import Array, InputError
from noisedesign.families.observers.program import ObserverProblem

MARGIN = 1e-12
"""Relative slack left in cap and budgets, so that recomputed numbers cannot exceed them."""

ROOM = 2.0
"""Factor on the variance of independent noise beyond what its budgets ask, as far as the cap has
room: answers are repaired with it, and half its sensitivity to spare does so at little cost."""


def independent(problem: ObserverProblem) -> Array:
    """Independent noise that keeps the budgets with room to spare, within the cap.

    Raises:
        InputError: a cap too small; an observer that sees a gradient without noise.
    """
    largest = np.diag(problem.cap) * (1 - MARGIN)
    worst, whose = problem.worst(largest)
    if np.isinf(worst):
        raise InputError(
            "observers",
            expected="observers from whom noise hides every gradient",
            got=whose,
            remedy="Some of it is seen without any noise that the observer does not know.",
        )
    if not worst < 1:
        raise InputError(
            "max_variance",
            expected="a cap at which independent noise keeps every budget with room to spare",
            got=f"{whose}: {worst:.6g} times its budget",
            remedy=f"Above {float((1 / problem.budget).max()):.6g}, 1 / budget, it always does.",
        )
    return np.asarray(largest * min(1.0, ROOM * worst))


def repaired(problem: ObserverProblem, found: Array) -> Array:
    """The answer made positive semidefinite, brought within the cap and then within the budgets.

    Squared sensitivity is convex in the covariance, so mixing in independent noise that has room
    to spare brings it within the budgets and keeps it within the cap. Noise to spare is taken away.
    """
    values, vectors = np.linalg.eigh(_linalg.symmetrized(found))
    noise = (vectors * np.maximum(values, 0.0)) @ vectors.T
    shrink = np.sqrt(1 / np.maximum(np.diagonal(noise) / (problem.cap * (1 - MARGIN)), 1.0))
    noise = _linalg.symmetrized(noise * np.multiply.outer(shrink, shrink))
    apart, share = independent(problem), settings.EPS
    spare = 1 - problem.worst(apart)[0]
    while (worst := problem.worst(noise)[0]) > 1:
        # Twice as far each time at least, so it ends, with independent noise if nothing else.
        needed = 0.0 if np.isinf(worst) else (worst - 1) / (worst - 1 + spare)
        share = min(1.0, max(needed, 2 * share))
        noise = (1 - share) * noise + share * apart
    less = noise * min(1.0, worst * (1 + MARGIN))
    return less if problem.worst(less)[0] <= 1 else noise
