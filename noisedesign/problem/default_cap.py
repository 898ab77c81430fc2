"""The cap on variances that a problem has where H is singular and nobody states one.

Where H is singular, noise that mixing cancels may be as large as one likes, and no design is
optimal. A cap of c times the variance of independent noise costs designs without a structure at
most 1 / (c - 1) of the infimum: X blended with 1 / c of independent noise keeps it (docs/
mathematics/bound.md, theorem C)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar, cast

import numpy as np

from noisedesign.base import linalg as _linalg, settings
from noisedesign.base.checks import InputError
from noisedesign.problem.problem import Problem

P = TypeVar("P", bound=Problem)

TIMES = (settings.SUGGESTED_CAP, 20.0, 50.0, 100.0)
"""Caps that are tried, in variances of independent noise: the last costs at most 1 / 99."""
WORTH = 0.013  # cost, relative to the infimum, up to which a cap is small enough not to be raised
ABOUT = 0.95  # share of the cap that a cost foretells that is tried, as caps cost a little less
ROUNDING = 1e-9  # relative difference of a stored cap from one of these that is no other cap


LAZY = "Or use other weights: those of lazy-metropolis-hastings never make W singular."


class FreeNoiseError(InputError):
    """No design is optimal: H is singular, and noise that costs nothing would grow for ever."""


@contextmanager
def lazy_advice(helps: Callable[[], bool]) -> Iterator[None]:
    """Refusals advise lazy weights as well, where it is W alone that hides noise from the error."""
    try:
        yield
    except FreeNoiseError as error:
        raise error.told(remedy=f"{error.remedy} {LAZY}" if helps() else None) from None


def capped(problem: Any, times: float) -> Any:
    """The problem under a cap of so many variances of independent noise, at every node."""
    return replace(problem, max_variance=times / problem.budget)


def larger(times: float, cost: float) -> float | None:
    """The cap to try after one of such a cost, or None: a blend costs share / (1 - share) of a
    share that is about 1 / cap."""
    if cost <= WORTH or times == TIMES[-1]:
        return None
    share = 1.0 if cost == math.inf else cost / (1 + cost)
    wanted = ABOUT * times * share * (1 + WORTH) / WORTH
    return next((t for t in TIMES if t > times and t >= wanted), TIMES[-1])


def uncapped(problem: P) -> P:
    """The problem that has no cap by default, for whoever asks whether its optimum is attained."""
    if not hasattr(problem, "default_cap"):
        return problem
    found: P = replace(cast(Any, problem), default_cap=False)
    return found


def as_solved(rebuilt: Problem, stored: Problem) -> Problem:
    """The problem ``rebuilt`` from its text, under the cap by default that ``stored`` has."""
    cap, asked = stored.max_variance, rebuilt.max_variance
    if cap is None or asked is not None or not getattr(rebuilt, "default_cap", False):
        return rebuilt
    return next(_like(rebuilt, stored), rebuilt)


def _like(rebuilt: Any, stored: Any) -> Iterator[Problem]:
    if stored.max_variance.shape != rebuilt.budget.shape or not _is_singular(rebuilt):
        return
    for times in TIMES:
        if np.allclose(stored.max_variance * rebuilt.budget, times, rtol=ROUNDING, atol=0.0):
            yield replace(rebuilt, max_variance=stored.max_variance)


def _is_singular(problem: Any) -> bool:
    """Whether H of noise across the nodes has a null direction."""
    if problem.worst:
        problem = problem.with_error(problem.error.summed)
    gram = problem.gram if problem.axes == "space" else problem.error_workload.space_gram()
    factor = _linalg.without_rounding(_linalg.gram_factor(gram), gram=gram)
    return bool(_linalg.null_space(factor, gram=gram).shape[1])
