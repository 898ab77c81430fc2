"""The program of a space-time problem: any objective, any mixing."""

from __future__ import annotations

from noisedesign.families.kronecker.program import JointProgram
from noisedesign.program.problem import SpaceTimeProblem
from noisedesign.system.workloads import Workload


def joint_program(problem: SpaceTimeProblem) -> JointProgram:
    """The program of a problem, whatever its structure."""
    workload = Workload.of(
        problem.mixing,
        horizon=problem.participation.horizon,
        objective=problem.objective,
        random=problem.random,
    )
    return JointProgram(
        workload=workload, participation=problem.participation, budget=problem.budget
    )
