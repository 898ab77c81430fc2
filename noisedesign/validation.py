"""A design put to the simulator: does its noise vary, and protect, as it says?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from noisedesign import simulate
from noisedesign._checks import InputError
from noisedesign.design import Design
from noisedesign.formulations import program_of
from noisedesign.problem import SpaceProblem

AUDITED_MU = 1.0
"""The audit scales noise until the claim is this mu: error rates near 0.3, where a few thousand
runs tell most."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True)
class Validation:
    """Both halves of the validation of one design."""

    variance: simulate.VarianceReport
    audit: simulate.AuditReport

    @property
    def agrees(self) -> bool:
        return self.variance.agrees and self.audit.agrees

    def as_dict(self) -> dict[str, Any]:
        return {
            "agrees": self.agrees,
            "variance": self.variance.as_dict(),
            "audit": self.audit.as_dict(),
        }


def validate(
    design: Design, *, runs: int = 2000, seed: int = 0, progress: Progress | None = None
) -> Validation:
    """Simulate the exported matrix of a design: variance of the iterates, and a privacy audit.

    Args:
        runs: independent runs of the variance, and of each world of the audit.
        seed: the same seed gives the same report.

    Raises:
        InputError: runs too few, or a design that only a trusted server can use.
    """
    if design.trust != "local":
        raise InputError(
            "design", expected="one that protects every message",
            got=f"{design.provenance.method}, which needs a trusted server",
        )  # fmt: skip
    problem = design.problem
    if isinstance(problem, SpaceProblem):
        variance = simulate.simulate_space(
            mixing=problem.mixing, covariance=design.covariance, predicted=design.objective,
            runs=runs, seed=seed, progress=progress,
        )  # fmt: skip
        audit = simulate.audit_space(
            mixing=problem.mixing, covariance=design.covariance, budget=problem.budget,
            claimed_mu=AUDITED_MU, noise_multiplier=1 / AUDITED_MU,
            runs=runs, seed=seed, progress=progress,
        )  # fmt: skip
        return Validation(variance=variance, audit=audit)
    factor = None if problem.workload != "gram" else program_of(problem).factor
    variance = simulate.simulate_time(
        noising_matrix=design.noising_matrix, mixing=problem.mixing, workload_factor=factor,
        predicted=design.objective, runs=runs, seed=seed, progress=progress,
    )  # fmt: skip
    audit = simulate.audit_time(
        noising_matrix=design.noising_matrix, mixing=problem.mixing,
        patterns=problem.participation.patterns,
        claimed_mu=AUDITED_MU, noise_multiplier=1 / AUDITED_MU,
        runs=runs, seed=seed, progress=progress,
    )  # fmt: skip
    return Validation(variance=variance, audit=audit)
