"""The program of a space-time problem: any objective, any mixing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from noisedesign.base.checks import Array
from noisedesign.families.kronecker.program import JointProgram
from noisedesign.program.problem import SpaceTimeProblem
from noisedesign.system.workloads import Objective, space_gram, space_time_gram, time_gram
from noisedesign.system.workloads.space_time import AllIterates, Modes, Workload


@dataclass(frozen=True, kw_only=True, eq=False)
class ObjectiveWorkload:
    """A :class:`noisedesign.system.workloads.space_time.Workload` without modes."""

    mixing: Any
    objective: Objective
    nodes: int

    @classmethod
    def of(cls, problem: SpaceTimeProblem) -> ObjectiveWorkload:
        objective = problem.objective or Objective(horizon=problem.participation.horizon)
        mixing = problem.mixing if problem.random is None else problem.random
        return cls(mixing=mixing, objective=objective, nodes=len(problem.mixing))

    @property
    def horizon(self) -> int:
        return self.objective.horizon

    @property
    def modes(self) -> Modes | None:
        return None

    def factor(self) -> Array | None:
        return None

    def gram(self) -> Array:
        return space_time_gram(self.mixing, objective=self.objective)

    def time_gram(self, covariance: Array) -> Array:
        return time_gram(self.mixing, objective=self.objective, node_covariance=covariance)

    def space_gram(self, covariance: Array) -> Array:
        return space_gram(self.mixing, objective=self.objective, time_covariance=covariance)


def joint_program(problem: SpaceTimeProblem) -> JointProgram:
    """The program of a problem, whatever its structure."""
    workload: Workload
    if problem.objective is None and problem.random is None:
        workload = AllIterates(mixing=problem.mixing, horizon=problem.participation.horizon)
    else:
        workload = ObjectiveWorkload.of(problem)
    return JointProgram(
        workload=workload, participation=problem.participation, budget=problem.budget
    )
