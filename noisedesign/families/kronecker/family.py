"""Noise of covariance (C^T C)^-1 x R: one strategy for all nodes, one covariance for all steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from noisedesign.base import settings
from noisedesign.base.checks import InputError
from noisedesign.base.monitor import Monitor
from noisedesign.families.kronecker import bound as judging
from noisedesign.families.kronecker.program import KroneckerProgram
from noisedesign.privacy.seeds import SeedPlan
from noisedesign.program.certificate import Certificate, ProvedBound
from noisedesign.program.family import Answer, Arrays, ArraySpec, Family, Form, Model, not_convex
from noisedesign.program.noise import DenseStrategy, Noise
from noisedesign.program.problem import SpaceTimeProblem
from noisedesign.program.space_time import SpaceTimeProgram


class Kronecker(Family):
    """Its bound holds for every design, Kronecker or not; the alternation that finds the two
    factors may end in a local optimum."""

    name = "kronecker"
    convex = False
    proof: ClassVar[Mapping[str, ArraySpec]] = {
        "dual_blocks": ArraySpec("P", "bkk"),
        "dual_weights": ArraySpec("v", "n"),
        "clique_blocks": ArraySpec("P", "*", multiplier=False),
    }

    def program(self, problem: SpaceTimeProblem) -> KroneckerProgram:
        if known := problem.space.known_seeds:
            expected = '0 for design = "space-time"'
            raise InputError("structure.known_seeds", expected=expected, got=str(known))
        return KroneckerProgram.of(
            problem, mixing=problem.mixing, time=problem.time, space=problem.space
        )

    def solve(self, program: KroneckerProgram, *, monitor: Monitor) -> Answer:
        from noisedesign.families.kronecker import solver

        return solver.solve(program, monitor=monitor)

    def model(self, program: KroneckerProgram, form: Form) -> Model:
        raise not_convex("structure.joint", '"kronecker", a product of two unknowns')

    def bound(self, program: KroneckerProgram, proof: Arrays, **_: Any) -> ProvedBound:
        witness = judging.Witness.of_arrays(proof) or judging.Witness.uniform(program)
        return ProvedBound(judging.lower_bound(program, witness), 0.0)

    def judge(
        self, program: KroneckerProgram, noise: Noise, proof: Arrays, *, bound: float
    ) -> Certificate:
        return judging.judge_kronecker(
            program, strategy=noise.dense_strategy, covariance=noise.covariance, bound=bound
        )

    def certificate(
        self, program: KroneckerProgram, *of: Any, bound: ProvedBound, **_: Any
    ) -> Certificate:
        return super().certificate(program, *of, bound=bound, everywhere=bound.value)

    def departure(self, program: KroneckerProgram, noise: Noise, proof: Arrays) -> float:
        assert noise.strategy is not None
        found = 0.0
        if program.time.restricts:
            inner = program.in_time(np.eye(program.workload.horizon))
            in_time = Noise.of_strategy(noise.strategy)
            found = program.time_family.departure(inner, in_time, {})
        if program.space.restricts:
            inner = program.in_space(np.eye(program.workload.nodes))
            in_space = Noise.of_covariance(noise.covariance)
            found = max(found, program.space_family.departure(inner, in_space, proof))
        return found

    def seeds(self, program: KroneckerProgram, noise: Noise, proof: Arrays) -> SeedPlan | None:
        if not program.space.restricts:
            return None
        inner = program.in_space(np.eye(program.workload.nodes))
        in_space = Noise.of_covariance(noise.covariance)
        plan: SeedPlan | None = program.space_family.seeds(inner, in_space, proof)
        return plan

    def independent(self, program: KroneckerProgram) -> Noise:
        steps = program.participation
        strategy = DenseStrategy(strategy=np.eye(steps.horizon) / np.sqrt(steps.epochs))
        covariance = np.diag((1 + 8 * settings.EPS) / program.budget)
        return Noise.of_strategy(strategy, covariance=covariance)

    def independent_error(self, problem: SpaceTimeProblem) -> float:
        return SpaceTimeProgram.of(problem).independent_objective

    def sizes(self, problem: SpaceTimeProblem) -> dict[str, int]:
        steps = problem.participation
        return {"n": len(problem.mixing), "b": steps.separation, "k": steps.epochs}


FAMILY = Kronecker()
