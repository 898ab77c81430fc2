"""What is proved of (P): the bound of any multipliers, and the verdict on exported noise."""

from __future__ import annotations

from noisedesign.base import settings
from noisedesign.families.disjoint.program import dual_of
from noisedesign.program.certificate import (
    Certificate,
    ProvedBound,
    judge_covariance,
    judge_strategy,
    proved_bound,
)
from noisedesign.program.family import Arrays
from noisedesign.program.noise import Noise
from noisedesign.program.program import Program, uniform_dual


def bound(
    program: Program, proof: Arrays, *, negligible: float = settings.NEGLIGIBLE
) -> ProvedBound:
    """That of the multipliers; without any, of uniform ones."""
    dual = dual_of(proof)
    if dual is None:
        return proved_bound(program, uniform_dual(program))
    return proved_bound(program, dual, negligible=negligible)


def judge(program: Program, noise: Noise, *, bound: float) -> Certificate:
    """Of a covariance R, or of a strategy C."""
    if program.axes == "space":
        return judge_covariance(program, noise.covariance, bound=bound)
    return judge_strategy(program, noise.dense_strategy, bound=bound)
