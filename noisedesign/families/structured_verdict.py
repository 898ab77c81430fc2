"""Judging structured and joint designs again, from their arrays alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from noisedesign.base.checks import Array
from noisedesign.families.banded.bound import allowance, banded_lower_bound, banded_program
from noisedesign.families.banded.multipliers import multipliers_of_bands
from noisedesign.families.kronecker.bound import Witness, judge_kronecker
from noisedesign.families.kronecker.workload import joint_program
from noisedesign.families.observers import family as against_observers
from noisedesign.families.overlapping.bound import multipliers_of, overlapping_lower_bound
from noisedesign.families.shared_seeds.bound import covariance, judge
from noisedesign.families.shared_seeds.bound import lower_bound as clique_lower_bound
from noisedesign.families.shared_seeds.family import clique_program, stored_blocks, stored_witness
from noisedesign.families.toeplitz import GramWorkload
from noisedesign.families.toeplitz.bounds import lower_bound_of_unrestricted_optimum
from noisedesign.program import certificate
from noisedesign.program import temporal as temporal_program
from noisedesign.program.certificate import Certificate
from noisedesign.program.design import Design
from noisedesign.program.noise import form_of_structure
from noisedesign.program.problem import SpaceProblem, SpaceTimeProblem, TimeProblem
from noisedesign.program.program import DualPoint, program_of

ASSEMBLED = 1e-12
"""Relative difference of R from the sum of its blocks that is rounding."""


def judged(design: Design) -> Certificate:
    """The certificate of what is stored; a bound that needs a witness and has none is 0."""
    problem = design.problem
    if isinstance(problem, SpaceTimeProblem):
        return _joint(design, problem)
    if isinstance(problem, SpaceProblem):
        if problem.observers:
            return against_observers.judged(design, problem)
        return _space(design, problem)
    return _time(design, problem)


def _unrestricted_bound(problem: SpaceProblem | TimeProblem, witness: Mapping[str, Array]) -> float:
    """The bound of multipliers of the program without structure."""
    blocks = witness.get("unrestricted_blocks")
    if "unrestricted_weights" in witness:
        blocks = witness["unrestricted_weights"][:, None, None]
    if blocks is None:
        return 0.0
    dual = DualPoint(blocks=blocks, cap=witness.get("unrestricted_cap"))
    return certificate.lower_bound(program_of(problem), dual)


def _space(design: Design, problem: SpaceProblem) -> Certificate:
    everywhere = _unrestricted_bound(problem, design.witness)
    if "clique_blocks" in design.witness:
        found = _in_cliques(design, problem)
    else:
        bound = everywhere if design.local else 0.0
        found = certificate.judge_covariance(program_of(problem), design.covariance, bound=bound)
    return replace(found, unrestricted_lower_bound=everywhere)


def _in_cliques(design: Design, problem: SpaceProblem) -> Certificate:
    program, arrays = clique_program(problem), dict(design.witness)
    blocks = stored_blocks(program, arrays["clique_blocks"])
    witness = stored_witness(arrays)
    bound = 0.0 if witness is None else clique_lower_bound(program, witness)
    difference = float(np.abs(covariance(program, blocks) - design.covariance).max())
    if difference <= ASSEMBLED * float(np.abs(design.covariance).max()):
        return judge(program, blocks, bound=bound)
    # R is not what its seeds make: nothing is known of what hides it once seeds are known.
    found = certificate.judge_covariance(program_of(problem), design.covariance, bound=bound)
    if not program.known_seeds:
        return found
    return replace(found, sensitivity_squared=float("inf"))


def _time(design: Design, problem: TimeProblem) -> Certificate:
    scheme, structure = problem.participation, problem.structure
    everywhere: float | None = None
    if scheme.disjoint:
        everywhere = _unrestricted_bound(problem, design.witness)
    elif design.local:
        everywhere = lower_bound_of_unrestricted_optimum(GramWorkload(matrix=problem.gram), scheme)
    bound = 0.0
    if design.local:
        bound = everywhere or 0.0
    elif structure.bands is not None:
        bound = _banded_bound(design, problem, structure.bands)
    program = temporal_program.temporal_program(gram=problem.gram, participation=scheme)
    if "pattern_blocks" in design.witness:
        everywhere = overlapping_lower_bound(program, multipliers_of(design.witness))
        bound = everywhere if design.local or not structure.restricts else bound
    found = certificate.judge_strategy(program, design.strategy, bound=bound)
    return replace(found, unrestricted_lower_bound=everywhere)


def _banded_bound(design: Design, problem: TimeProblem, bands: int) -> float:
    """By the stored multipliers, or by those that C proves its bound with; 0 without either."""
    program = banded_program(gram=problem.gram, participation=problem.participation, bands=bands)
    if "dual_matrix" in design.witness:
        return banded_lower_bound(program, design.witness["dual_matrix"])
    if "dual_shares" not in design.witness:
        return 0.0
    stored = form_of_structure(problem.structure, design.strategy).arrays()["strategy_bands"]
    shares = design.witness["dual_shares"]
    if shares.shape != allowance(problem.participation).cost.shape:
        return 0.0
    return banded_lower_bound(program, multipliers_of_bands(program, bands=stored, shares=shares))


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
    bound = 0.0
    if {"dual_blocks", "dual_weights"} <= set(design.witness):
        blocks, weights = design.witness["dual_blocks"], design.witness["dual_weights"]
        bound = program.lower_bound(Witness(blocks=blocks, weights=weights))
    found = judge_kronecker(
        program.workload,
        participation=problem.participation,
        budget=problem.budget,
        strategy=design.strategy,
        covariance=design.covariance,
        bound=bound,
        cap=problem.max_variance,
    )
    return replace(found, unrestricted_lower_bound=bound)
