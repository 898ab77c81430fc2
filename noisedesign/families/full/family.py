"""Noise of any covariance over all pairs of step and node: (P) on nT coordinates, in time-major
order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np

from noisedesign.base.checks import Array, InputError
from noisedesign.base.monitor import Stop
from noisedesign.families.disjoint.family import Disjoint
from noisedesign.families.disjoint.program import Found
from noisedesign.program import repair, rigorous
from noisedesign.program.certificate import Certificate, judge_strategy
from noisedesign.program.family import Arrays, ArraySpec
from noisedesign.program.noise import DenseStrategy, Noise
from noisedesign.program.problem import SpaceTimeProblem
from noisedesign.program.program import Program
from noisedesign.program.rigorous import Judged
from noisedesign.program.space_time import SpaceTimeProgram, refuse_divergent


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
        steps = problem.participation
        if problem.max_variance is not None and steps.epochs > 1:
            raise InputError("max_variance", expected="single participation", got=f"{steps}")
        return SpaceTimeProgram.of(problem).full_program()

    def without_options(self, program: Program) -> str | None:
        return "those of structured and space-time designs"

    def _refuse(self, program: Program, found: Found, *, time_limit: float | None) -> None:
        if found.stop in (Stop.TIME_LIMIT, Stop.INTERRUPTED):
            return
        assert found.gram is not None
        assert found.dual is not None
        capped = program.participation.epochs == 1
        refuse_divergent(program, found.gram, found.dual, capped=capped)

    def judge(self, program: Program, noise: Noise, proof: Arrays, *, bound: float) -> Certificate:
        strategy = noise.dense_strategy
        root = np.sqrt(program.coordinate_budget)
        judged = judge_strategy(program, strategy, bound=bound, root=root)
        if program.cap is None:
            return judged
        variance = np.square(np.linalg.inv(strategy)).sum(axis=1)
        return replace(judged, variance_ratio=float((variance / program.cap).max()))

    def rigorous_judge(self, program: Program, noise: Noise, proof: Arrays) -> Judged:
        return rigorous.judge_strategy(
            program,
            noise.dense_strategy,
            exact_factor=program.exact_factor,
            root=np.sqrt(program.coordinate_budget),
            cap=program.cap,
        )

    def remark(self, program: Program, noise: Noise) -> str:
        return ""

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
