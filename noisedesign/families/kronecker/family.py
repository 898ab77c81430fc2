"""Noise of covariance (C^T C)^-1 x R: one strategy for all nodes, one covariance for all steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from noisedesign.base import settings
from noisedesign.base.checks import Array, InputError
from noisedesign.base.linalg import inverse_of_positive
from noisedesign.base.monitor import Monitor
from noisedesign.families.kronecker.bound import Witness, judge_kronecker
from noisedesign.families.kronecker.program import JointProgram
from noisedesign.families.kronecker.workload import joint_program
from noisedesign.privacy.seeds import SeedPlan
from noisedesign.program.certificate import NOTHING, Certificate, ProvedBound
from noisedesign.program.family import (
    Answer,
    Arrays,
    ArraySpec,
    Family,
    Model,
    family_at,
    not_convex,
)
from noisedesign.program.noise import DenseForm, Noise, StrategyForm, form_of_structure
from noisedesign.program.problem import SpaceTimeProblem
from noisedesign.program.structure import SpaceStructure, TimeStructure
from noisedesign.program.temporal import temporal_program, unit_form

SAME_STRATEGY = 1e-9
"""Relative difference of two strategies that is the rounding of an inverse and a factorisation."""


@dataclass(frozen=True, kw_only=True, eq=False)
class KroneckerProgram:
    """The program of both factors, and what either may be."""

    joint: JointProgram
    mixing: Array
    time: TimeStructure
    space: SpaceStructure
    cap: Array | None

    def in_time(self, gram: Array) -> Any:
        """The program of C at unit sensitivity, for H_time(R) = ``gram``, shape (T, T)."""
        return self._time.program_of_gram(
            gram, participation=self.joint.participation, structure=self.time
        )

    def in_space(self, gram: Array, *, cap: Array | None = None) -> Any:
        """The program of R, for H_space(S) = ``gram``, shape (n, n)."""
        return self._space.program_of_gram(
            gram, mixing=self.mixing, structure=self.space, budget=self.joint.budget, cap=cap
        )

    @property
    def _time(self) -> Any:
        return family_at("time", self.time.kind)

    @property
    def _space(self) -> Any:
        return family_at("space", self.space.kind)


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
        if problem.space.known_seeds:
            raise InputError(
                "structure.known_seeds",
                expected='0 for design = "space-time"',
                got=str(problem.space.known_seeds),
            )
        return KroneckerProgram(
            joint=joint_program(problem),
            mixing=problem.mixing,
            time=problem.time,
            space=problem.space,
            cap=problem.max_variance,
        )

    def solve(self, program: KroneckerProgram, *, monitor: Monitor) -> Answer:
        from noisedesign.families.kronecker.solver import design_kronecker

        forms: list[StrategyForm] = []
        parts: list[tuple[Array, Arrays]] = []

        def time_step(gram: Array) -> Array:
            found = program._time.solve(program.in_time(gram), monitor=_step(monitor))
            (noise,) = found.noises
            forms.append(noise.strategy)
            return inverse_of_positive(noise.dense_strategy.T @ noise.dense_strategy)

        def space_step(gram: Array) -> Array:
            inner = program.in_space(gram, cap=program.cap)
            found = program._space.solve(inner, monitor=_step(monitor))
            (noise,) = found.noises
            parts.append((noise.covariance, found.proof))
            return np.asarray(noise.covariance)

        joint, start = program.joint, None
        if not program._space.convex:
            # Independent noise within unequal budgets is none of DECOR, whose nodes are all alike.
            steps = joint.participation
            start = space_step(joint.workload.space_gram(steps.epochs * np.eye(steps.horizon)))
        found = design_kronecker(
            joint,
            monitor=monitor,
            cap=program.cap,
            time_step=time_step if program.time.restricts else None,
            space_step=space_step if program.space.restricts else None,
            space_start=start,
        )
        form: StrategyForm = DenseForm(strategy=found.strategy)
        if program.time.restricts:
            form = _form_of(found.strategy, program, forms)
        noise = Noise.of_strategy(form, covariance=found.covariance)
        witness = {"dual_blocks": found.witness.blocks, "dual_weights": found.witness.weights}
        return Answer(
            stop=found.stop,
            noises=[noise],
            proof={**witness, **_parts_of(found.covariance, program, parts)},
            evaluations=len(found.history),
        )

    def model(self, program: KroneckerProgram, **_: Any) -> Model:
        raise not_convex("structure.joint", '"kronecker", a product of two unknowns')

    def bound(
        self,
        program: KroneckerProgram,
        proof: Arrays,
        *,
        noise: Noise | None = None,
        negligible: float = settings.NEGLIGIBLE,
    ) -> ProvedBound:
        if not {"dual_blocks", "dual_weights"} <= set(proof):
            return NOTHING
        witness = Witness(blocks=proof["dual_blocks"], weights=proof["dual_weights"])
        return ProvedBound(program.joint.lower_bound(witness), 0.0)

    def judge(
        self, program: KroneckerProgram, noise: Noise, proof: Arrays, *, bound: float
    ) -> Certificate:
        joint = program.joint
        return judge_kronecker(
            joint.workload,
            participation=joint.participation,
            budget=joint.budget,
            strategy=noise.dense_strategy,
            covariance=noise.covariance,
            bound=bound,
            cap=program.cap,
        )

    def certificate(
        self,
        program: KroneckerProgram,
        noise: Noise,
        proof: Arrays,
        *,
        bound: ProvedBound,
        everywhere: float | None,
    ) -> Certificate:
        return super().certificate(program, noise, proof, bound=bound, everywhere=bound.value)

    def departure(self, program: KroneckerProgram, noise: Noise, proof: Arrays) -> float:
        size, nodes = program.joint.workload.horizon, program.joint.workload.nodes
        assert noise.strategy is not None
        in_time, in_space = Noise.of_strategy(noise.strategy), Noise.of_covariance(noise.covariance)
        found = [0.0]
        if program.time.restricts:
            found.append(program._time.departure(program.in_time(np.eye(size)), in_time, {}))
        if program.space.restricts:
            inner = program.in_space(np.eye(nodes))
            found.append(program._space.departure(inner, in_space, proof))
        return max(found)

    def seeds(self, program: KroneckerProgram, noise: Noise, proof: Arrays) -> SeedPlan | None:
        if not program.space.restricts:
            return None
        inner = program.in_space(np.eye(program.joint.workload.nodes))
        plan: SeedPlan | None = program._space.seeds(
            inner, Noise.of_covariance(noise.covariance), proof
        )
        return plan

    def independent(self, program: KroneckerProgram) -> Noise:
        steps = program.joint.participation
        strategy = DenseForm(strategy=np.eye(steps.horizon) / np.sqrt(steps.epochs))
        return Noise.of_strategy(
            strategy, covariance=np.diag((1 + 8 * settings.EPS) / program.joint.budget)
        )

    def independent_error(self, problem: SpaceTimeProblem) -> float:
        return joint_program(problem).independent_objective

    def sizes(self, problem: SpaceTimeProblem) -> dict[str, int]:
        steps = problem.participation
        return {"n": len(problem.mixing), "b": steps.separation, "k": steps.epochs}


def _step(monitor: Monitor) -> Monitor:
    """The clock of one step of the alternation."""
    return Monitor(gap=monitor.gap, time_limit=monitor.time_limit)


def _parts_of(
    covariance: Array, program: KroneckerProgram, found: list[tuple[Array, Arrays]]
) -> Arrays:
    """What the family in space keeps, besides multipliers, of the R that the alternation ended
    with: of one it found, or of the independent noise that it began with."""
    if not program.space.restricts:
        return {}
    inner = program.in_space(np.eye(len(covariance)))
    own: dict[str, Array] = program._space.parts(inner, np.diagonal(covariance))
    for matrix, proof in found:
        if matrix is covariance:
            return {name: proof[name] for name in own}
    return own


def _form_of(strategy: Array, program: KroneckerProgram, found: list[StrategyForm]) -> StrategyForm:
    """The form of the C that the alternation ended with: its covariance went through an inverse
    and a factorisation, which leave of a structure what rounding does."""
    unit = temporal_program(gram=np.eye(len(strategy)), participation=program.joint.participation)
    size = float(np.abs(strategy).max())
    for form in found:
        if np.abs(form.dense() - strategy).max() <= SAME_STRATEGY * size:
            return unit_form(unit, form)
    return unit_form(unit, form_of_structure(program.time, strategy))


FAMILY = Kronecker()
