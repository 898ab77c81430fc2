"""Noise of any covariance over all pairs of step and node: (P) on nT coordinates, in time-major
order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from noisedesign.base.checks import Array
from noisedesign.families.disjoint.family import Disjoint
from noisedesign.families.disjoint.program import independent_gram
from noisedesign.program import repair
from noisedesign.program.family import ArraySpec
from noisedesign.program.noise import DenseStrategy, Noise
from noisedesign.program.problem import SpaceTimeProblem, check_cap_over_time
from noisedesign.program.program import Program
from noisedesign.program.space_time import SpaceTimeProgram


class Full(Disjoint):
    """C, shape (nT, nT), lower triangular, at the budgets: noise of a step needs draws of no later
    one. At unit budgets the sensitivity of C is one number, whatever the node."""

    name = "full"
    structured = True
    proof: ClassVar[Mapping[str, ArraySpec]] = {
        "dual_blocks": ArraySpec("P", "bkk"),
        "dual_cap": ArraySpec("w", "m"),
    }

    def program(self, problem: SpaceTimeProblem) -> Program:
        program = SpaceTimeProgram.of(problem).full_program()
        if program.cap is not None:
            check_cap_over_time(program.cap, 1 / independent_gram(program).diagonal())
        return program

    def without_options(self, program: Program) -> str | None:
        return "those of structured and space-time designs"

    def independent_error(self, problem: SpaceTimeProblem) -> float:
        return SpaceTimeProgram.of(problem).independent_objective

    def sizes(self, problem: SpaceTimeProblem) -> dict[str, int]:
        n, steps = len(problem.mixing), problem.participation
        return {"m": n * steps.horizon, "b": n * steps.separation, "k": steps.epochs}

    def _noise(self, program: Program, gram: Array) -> Noise:
        root = np.sqrt(program.coordinate_budget)
        strategy = repair.strategy_of(program, gram / root / root[:, None])
        return Noise(steps=len(root), strategy=DenseStrategy(strategy=strategy * root), full=True)


FAMILY = Full()
