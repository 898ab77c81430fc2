"""Judging structured and joint designs again, from their arrays alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from noisedesign import certificate, temporal_program
from noisedesign.banded_certificate import banded_lower_bound, banded_program
from noisedesign.certificate import Certificate
from noisedesign.design import Design
from noisedesign.formulations import DualPoint, program_of
from noisedesign.joint_program import joint_program
from noisedesign.problem import SpaceProblem, SpaceTimeProblem, TimeProblem
from noisedesign.space_time_certificate import Witness, judge_kronecker, lower_bound


def judged(design: Design) -> Certificate:
    """The certificate of what is stored; a bound without a witness is 0."""
    problem = design.problem
    if isinstance(problem, SpaceTimeProblem):
        return _joint(design, problem)
    if isinstance(problem, SpaceProblem):
        return _space(design, problem)
    return _time(design, problem)


def _unrestricted_bound(design: Design) -> float:
    """The bound of multipliers of the program without structure."""
    blocks = design.witness.get("dual_blocks")
    if blocks is None and "dual_weights" in design.witness:
        blocks = design.witness["dual_weights"][:, None, None]
    if blocks is None:
        return 0.0
    dual = DualPoint(blocks=blocks, cap=design.witness.get("dual_cap"))
    return certificate.lower_bound(program_of(design.problem), dual)


def _space(design: Design, problem: SpaceProblem) -> Certificate:
    bound = _unrestricted_bound(design) if design.local else 0.0
    return certificate.judge_covariance(program_of(problem), design.covariance, bound=bound)


def _time(design: Design, problem: TimeProblem) -> Certificate:
    scheme, structure = problem.participation, problem.structure
    program = temporal_program.temporal_program(gram=problem.gram, participation=scheme)
    bound = 0.0
    if design.local:
        bound = _unrestricted_bound(design)
    elif structure.bands is not None and "dual_matrix" in design.witness:
        bound = banded_lower_bound(
            banded_program(gram=problem.gram, participation=scheme, bands=structure.bands),
            design.witness["dual_matrix"],
        )
    return temporal_program.judge(program, design.strategy, bound=bound)


def _joint(design: Design, problem: SpaceTimeProblem) -> Certificate:
    program = joint_program(problem)
    if design.node_covariance is None:
        full = program.full_program(cap=problem.max_variance)
        bound = 0.0 if design.dual is None else certificate.lower_bound(full, design.dual)
        root = np.sqrt(full.coordinate_budget)
        judged = certificate.judge_strategy(full.normalized(), design.strategy / root, bound=bound)
        if full.cap is None:
            return judged
        variance = np.square(np.linalg.inv(design.strategy)).sum(axis=1)
        return replace(judged, variance_ratio=float((variance / full.cap).max()))
    witness = Witness(blocks=design.witness["dual_blocks"], weights=design.witness["dual_weights"])
    bound = lower_bound(
        program.workload, participation=problem.participation, budget=problem.budget,
        witness=witness,
    )  # fmt: skip
    return judge_kronecker(
        program.workload, participation=problem.participation, budget=problem.budget,
        strategy=design.strategy, covariance=design.covariance, bound=bound,
        cap=problem.max_variance,
    )  # fmt: skip
