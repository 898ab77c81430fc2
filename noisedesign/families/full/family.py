"""Noise of any covariance over all pairs of step and node: (P) on nT coordinates, in time-major
order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np

from noisedesign.base import settings
from noisedesign.base.checks import Array, InputError
from noisedesign.base.monitor import Monitor
from noisedesign.families.disjoint import native
from noisedesign.families.disjoint.family import Disjoint
from noisedesign.families.disjoint.program import arrays_of, dual_of, independent_gram
from noisedesign.families.kronecker.solver import refuse_divergent
from noisedesign.families.kronecker.workload import joint_program
from noisedesign.program import repair
from noisedesign.program.certificate import (
    NOTHING,
    Certificate,
    ProvedBound,
    judge_strategy,
    proved_bound,
)
from noisedesign.program.family import Answer, Arrays, ArraySpec
from noisedesign.program.noise import DenseForm, Noise
from noisedesign.program.problem import SpaceTimeProblem
from noisedesign.program.program import DualPoint, Program


class Full(Disjoint):
    """C, shape (nT, nT), lower triangular, at the budgets: noise of a step needs draws of no later
    one."""

    name = "full"
    formulations: ClassVar[tuple[str, ...]] = ()
    proof: ClassVar[Mapping[str, ArraySpec]] = {
        "dual_blocks": ArraySpec("P", "bkk"),
        "dual_cap": ArraySpec("w", "m"),
    }

    def program(self, problem: SpaceTimeProblem) -> Program:
        steps = problem.participation
        if problem.max_variance is not None and steps.epochs > 1:
            raise InputError("max_variance", expected="single participation", got=f"{steps}")
        return joint_program(problem).full_program(cap=problem.max_variance)

    def without_options(self, program: Program) -> str | None:
        return "those of structured and space-time designs"

    def solve(self, program: Program, *, monitor: Monitor) -> Answer:
        # At unit budgets a strategy's sensitivity is one number, whatever the node.
        unit = program.normalized()
        found = native.solve(unit, monitor=monitor)
        assert found.gram is not None
        assert found.dual is not None
        refuse_divergent(program, found, capped=program.participation.epochs == 1)
        return Answer(
            stop=found.stop,
            noises=_noises(unit, program, found.gram, found.dual),
            proof=arrays_of(program, found.dual.denormalized(program)),
            solve_seconds=found.solve_seconds,
            evaluations=len(monitor.history),
        )

    def bound(
        self,
        program: Program,
        proof: Arrays,
        *,
        noise: Noise | None = None,
        negligible: float = settings.NEGLIGIBLE,
    ) -> ProvedBound:
        dual = dual_of(proof)
        return NOTHING if dual is None else proved_bound(program, dual, negligible=negligible)

    def judge(self, program: Program, noise: Noise, proof: Arrays, *, bound: float) -> Certificate:
        strategy = noise.dense_strategy
        root = np.sqrt(program.coordinate_budget)
        judged = judge_strategy(program.normalized(), strategy / root, bound=bound)
        if program.cap is None:
            return judged
        variance = np.square(np.linalg.inv(strategy)).sum(axis=1)
        return replace(judged, variance_ratio=float((variance / program.cap).max()))

    def remark(self, program: Program, noise: Noise) -> str:
        return ""

    def independent(self, program: Program) -> Noise:
        unit = program.normalized()
        return _noise(program, repair.strategy_of(unit, independent_gram(unit)))

    def independent_error(self, problem: SpaceTimeProblem) -> float:
        return joint_program(problem).independent_objective

    def sizes(self, problem: SpaceTimeProblem) -> dict[str, int]:
        n, steps = len(problem.mixing), problem.participation
        return {"m": n * steps.horizon, "b": n * steps.separation, "k": steps.epochs}


def _noises(unit: Program, program: Program, gram: Array, dual: DualPoint) -> Iterator[Noise]:
    for thorough in (False, True):
        feasible = repair.feasible_gram(unit, gram, dual=dual, thorough=thorough)
        found = independent_gram(unit) if feasible is None else feasible
        yield _noise(program, repair.strategy_of(unit, found))


def _noise(program: Program, strategy: Array) -> Noise:
    """Of C at unit budgets."""
    root = np.sqrt(program.coordinate_budget)
    return replace(Noise.of_strategy(DenseForm(strategy=strategy * root)), full=True)


FAMILY = Full()
