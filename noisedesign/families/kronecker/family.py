"""Solving space-time problems: the statement of a user in, a judged pair of matrices out."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from noisedesign.base.checks import Array, InputError
from noisedesign.base.linalg import inverse_of_positive
from noisedesign.families.kronecker.bound import Witness, judge_kronecker
from noisedesign.families.kronecker.solver import design_full, design_kronecker
from noisedesign.families.kronecker.workload import joint_program
from noisedesign.families.shared_seeds.family import independent_blocks, solve_space
from noisedesign.families.structured_time import solve_time, unit_form
from noisedesign.program.backend import Monitor, ProgressCallback, Stop
from noisedesign.program.certificate import Certificate
from noisedesign.program.noise import StrategyForm, form_of_structure
from noisedesign.program.problem import SpaceTimeProblem
from noisedesign.program.program import DualPoint
from noisedesign.program.temporal import temporal_program

SAME_STRATEGY = 1e-9
"""Relative difference of two strategies that is the rounding of an inverse and a factorisation."""


@dataclass(frozen=True, kw_only=True, eq=False)
class JointAnswer:
    """C and, of a Kronecker design, R; their certificate, and what proves its bound."""

    strategy: Array
    covariance: Array | None
    certificate: Certificate
    stop: Stop
    evaluations: int
    dual: DualPoint | None = None
    witness: dict[str, Array] = field(default_factory=dict)
    form: StrategyForm | None = None


def solve_joint(
    problem: SpaceTimeProblem,
    *,
    gap: float,
    time_limit: float | None = None,
    progress: ProgressCallback | None = None,
) -> JointAnswer:
    """The best noise of a space-time problem, judged.

    Raises:
        InputError: too many coordinates for a full design; noise in a null direction of W is free,
            and nothing caps it; a structure that cannot hold the constraints.
    """
    program = joint_program(problem)
    if problem.joint == "full":
        full = design_full(
            program,
            gap=gap,
            time_limit=time_limit,
            progress=progress,
            max_variance=problem.max_variance,
        )
        return JointAnswer(
            strategy=full.strategy,
            covariance=None,
            certificate=full.certificate,
            stop=full.stop,
            evaluations=len(full.history),
            dual=full.dual,
        )

    forms: list[StrategyForm] = []
    blocks: list[tuple[Array, Array]] = []

    def time_step(gram: Array) -> Array:
        found = solve_time(
            gram,
            participation=problem.participation,
            structure=problem.time,
            monitor=Monitor(gap=gap, time_limit=time_limit),
        )
        if found.form is not None:
            forms.append(found.form)
        return inverse_of_positive(found.matrix.T @ found.matrix)

    def space_step(gram: Array) -> Array:
        found = solve_space(
            gram,
            mixing=problem.mixing,
            structure=problem.space,
            budget=problem.budget,
            cap=problem.max_variance,
            monitor=Monitor(gap=gap, time_limit=time_limit),
        )
        if "clique_blocks" in found.witness:
            blocks.append((found.matrix, found.witness["clique_blocks"]))
        return found.matrix

    if problem.space.known_seeds:
        raise InputError(
            "structure.known_seeds",
            expected='0 for design = "space-time"',
            got=str(problem.space.known_seeds),
        )
    start = None
    if problem.space.kind == "decor":
        # Independent noise within unequal budgets is none of DECOR, whose nodes are all alike.
        steps = problem.participation
        start = space_step(program.workload.space_gram(steps.epochs * np.eye(steps.horizon)))
    found = design_kronecker(
        program,
        gap=gap,
        time_limit=time_limit,
        progress=progress,
        max_space_variance=problem.max_variance,
        time_step=time_step if problem.time.restricts else None,
        space_step=space_step if problem.space.restricts else None,
        space_start=start,
    )
    # The bound of a Kronecker design holds for all designs.
    judged = replace(found.certificate, unrestricted_lower_bound=found.certificate.lower_bound)
    strategy, form = found.strategy, None
    if problem.time.restricts:
        form = _form_of(found.strategy, problem, forms)
        strategy = form.dense()
        again = judge_kronecker(
            program.workload,
            participation=problem.participation,
            budget=problem.budget,
            strategy=strategy,
            covariance=found.covariance,
            bound=found.certificate.lower_bound,
            cap=problem.max_variance,
        )
        judged = replace(again, unrestricted_lower_bound=again.lower_bound)
    return JointAnswer(
        strategy=strategy,
        covariance=found.covariance,
        certificate=judged,
        stop=found.stop,
        evaluations=len(found.history),
        form=form,
        witness=_arrays(found.witness) | _seeds_of(found.covariance, problem, blocks),
    )


def _seeds_of(
    covariance: Array, problem: SpaceTimeProblem, found: list[tuple[Array, Array]]
) -> dict[str, Array]:
    """The blocks of the R that the alternation ended with, where shared seeds make it up: of one it
    found, or of the independent noise that it began with."""
    if problem.space.kind in ("dense", "decor"):
        return {}
    for matrix, blocks in found:
        if matrix is covariance:
            return {"clique_blocks": blocks}
    return {"clique_blocks": independent_blocks(problem, np.diagonal(covariance))}


def _form_of(strategy: Array, problem: SpaceTimeProblem, found: list[StrategyForm]) -> StrategyForm:
    """The form of the C that the alternation ended with: its covariance went through an inverse
    and a factorisation, which leave of a structure what rounding does."""
    unit = temporal_program(gram=np.eye(len(strategy)), participation=problem.participation)
    size = float(np.abs(strategy).max())
    for form in found:
        if np.abs(form.dense() - strategy).max() <= SAME_STRATEGY * size:
            return unit_form(unit, form)
    return unit_form(unit, form_of_structure(problem.time, strategy))


def _arrays(witness: Witness) -> dict[str, Array]:
    return {"dual_blocks": witness.blocks, "dual_weights": witness.weights}
