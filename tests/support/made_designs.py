"""Designs made of matrices, and what tests read off a design."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from noisedesign.certify.program import DualPoint
from noisedesign.design.design import Design
from noisedesign.families.disjoint.program import arrays_of, dual_of, program_of
from noisedesign.forms import DenseStrategy, Noise


def noise_of(problem: Any, matrix: np.ndarray) -> Noise:
    """R of a spatial problem, else C."""
    if problem.axes == "space":
        return Noise.of_covariance(matrix)
    return Noise.of_strategy(DenseStrategy(strategy=matrix))


def made(
    problem: Any, matrix: np.ndarray, *, dual: DualPoint | None = None, **fields: Any
) -> Design:
    """A design of a matrix, R or C, and of multipliers of (P)."""
    proof = {} if dual is None else arrays_of(program_of(problem), dual)
    return Design(problem=problem, noise=noise_of(problem, matrix), proof=proof, **fields)


def with_matrix(design: Design, matrix: np.ndarray, **fields: Any) -> Design:
    """The same design with another R or C."""
    problem = fields.get("problem", design.problem)
    noise = noise_of(problem, matrix)
    if problem.axes == "space-time":
        noise = replace(design.noise, strategy=noise.strategy)
    return replace(design, noise=noise, **fields)


def multipliers(design: Design) -> DualPoint:
    """Those of a design of (P)."""
    found = dual_of(design.proof)
    assert found is not None
    return found
