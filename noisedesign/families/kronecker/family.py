"""Noise of covariance (C^T C)^-1 x R: one strategy for all nodes, one covariance for all steps."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

import numpy as np

from noisedesign.base import settings
from noisedesign.base.checks import Array, InputError
from noisedesign.base.enclosures import Interval
from noisedesign.base.monitor import Monitor
from noisedesign.certify.certificate import Certificate, ProvedBound
from noisedesign.certify.rigorous import RANDOM, Judged, NotProvedError
from noisedesign.families.family import (
    BEST_FOUND,
    LOCAL,
    Answer,
    Arrays,
    ArraySpec,
    Cappable,
    Family,
    Form,
    Model,
    Remarked,
    Sampled,
    Seeded,
    Served,
    Uncapped,
    Weighable,
    family_at,
    named_shares,
    not_convex,
)
from noisedesign.families.kronecker import bound as judging, rigorous, turned
from noisedesign.families.kronecker.program import KroneckerProgram
from noisedesign.families.space_time import SpaceTimeProgram
from noisedesign.forms import DenseStrategy, Noise
from noisedesign.privacy.seeds import SeedPlan
from noisedesign.problem.calibration import required_target
from noisedesign.problem.problem import SpaceTimeProblem

K = TypeVar("K", bound=SpaceTimeProgram)


class FactorFamily(Family[SpaceTimeProblem, K], Remarked[SpaceTimeProblem, K], Weighable):
    """Noise whose bound, by multipliers of two factors or of every node, holds for every design."""

    convex = False
    bounds_all = True
    capped: ClassVar[str] = ""  # what a cap does here, of the remark on large noise
    proof: ClassVar[Mapping[str, ArraySpec]] = {
        "dual_blocks": ArraySpec("P", "bkk"),
        "dual_weights": ArraySpec("v", "n"),
        **turned.SPECS,
        turned.MODES: ArraySpec("Q", "nn"),
    }

    def bound(self, program: K, proof: Arrays, **_: Any) -> ProvedBound:
        return ProvedBound(turned.proved(program, proof), 0.0)

    def rigorous_bound(
        self, program: K, proof: Arrays, *, enough: float = 0.0, **_: Any
    ) -> Interval:
        return rigorous.proved(program, proof, enough=enough)

    def prices(self, problem: SpaceTimeProblem, noise: Noise, proof: Arrays) -> dict[str, float]:
        """The part of each node in the price of all multipliers."""
        if (found := turned.Turned.of_arrays(proof)) is not None:
            weights = found.weights
        elif "dual_weights" in proof:
            weights = proof["dual_weights"]
        else:
            return {}
        return named_shares(problem.nodes, problem.budget * weights)

    def weighed(self, proof: Arrays, factors: Array) -> Arrays:
        if (found := turned.Turned.of_arrays(proof)) is None:
            return {**proof, "dual_weights": proof["dual_weights"] * factors}
        roots = found.roots * np.sqrt(factors)[:, None, None, None]
        return {**proof, **replace(found, roots=roots).arrays()}

    def sizes(self, problem: SpaceTimeProblem) -> dict[str, int]:
        return turned.sizes(problem)

    def remark(self, program: K, noise: Noise) -> str:
        """Say where noise is large along what an error over time does not see."""
        from noisedesign.families.disjoint.attainment import LARGE

        variances = self._variances(noise)
        ratio = float((variances * program.budget).max()) / program.participation.epochs
        if program.participation.random or ratio < LARGE:
            return ""
        return (
            "H is nearly singular and little bounds the noise along its null directions: the "
            f"largest variance of this design is {variances.max():.2g}, {ratio:.2g} times that of "
            f'independent noise. {self.capped}joint = "full" takes a cap on every node and step, a '
            "design in time one on every step."
        )

    @abstractmethod
    def _variances(self, noise: Noise) -> Array:
        """The variances of every step and node, shape (T, n)."""


class Kronecker(
    FactorFamily[KroneckerProgram],
    Cappable[KroneckerProgram],
    Sampled[KroneckerProgram],
    Seeded[KroneckerProgram],
    Served[SpaceTimeProblem, KroneckerProgram],
):
    """Kronecker noise; the alternation that finds the factors may end in a local optimum."""

    name = "kronecker"
    capped = "max_variance caps R alone here: "
    proof: ClassVar[Mapping[str, ArraySpec]] = {
        **FactorFamily.proof,
        "clique_blocks": ArraySpec("P", "*", multiplier=False),
    }

    def program(self, problem: SpaceTimeProblem) -> KroneckerProgram:
        if known := problem.space.known_seeds:
            expected = '0 for design = "space-time"'
            raise InputError("structure.known_seeds", expected=expected, got=str(known))
        target = required_target(problem.privacy) if problem.participation.random else None
        return KroneckerProgram.of(
            problem, mixing=problem.mixing, time=problem.time, space=problem.space, target=target
        )

    def afresh(self, program: KroneckerProgram, *, seed: int | None = None) -> KroneckerProgram:
        return replace(program, seed=seed)

    def searched(self, program: KroneckerProgram) -> str:
        return LOCAL if program.target is None else BEST_FOUND

    def solve(self, program: KroneckerProgram, *, monitor: Monitor) -> Answer:
        from noisedesign.families.kronecker import solver

        return solver.solve(program, monitor=monitor)

    def without_cap(
        self, program: KroneckerProgram, noise: Noise, proof: Arrays, *, monitor: Monitor
    ) -> Uncapped:
        """The bound of the nodes' covariance beside the C of this noise."""
        assert noise.strategy is not None
        noising = noise.strategy.dense_noising()
        gram = program.workload.space_gram(noising @ noising.T)
        inner, family = program.space_program(gram), family_at("space", "dense")
        if program.space.restricts:
            inner, family = program.in_space(gram), program.space_family
        if not isinstance(family, Cappable):
            return Uncapped(0.0, "")
        found = family.without_cap(inner, noise, {}, monitor=monitor)
        return Uncapped(found.bound, f"{found.beside}, the same C over time")

    def _variances(self, noise: Noise) -> Array:
        assert noise.strategy is not None
        of_steps = np.square(noise.strategy.dense_noising()).sum(axis=1)
        return np.asarray(np.multiply.outer(of_steps, np.diagonal(noise.covariance)))

    def model(self, program: KroneckerProgram, form: Form) -> Model:
        raise not_convex("structure.joint", '"kronecker", a product of two unknowns')

    def bound(self, program: KroneckerProgram, proof: Arrays, **_: Any) -> ProvedBound:
        if program.target is None:
            return super().bound(program, proof)
        witness = judging.Witness.of(program, proof)
        return ProvedBound(judging.random_lower_bound(program, witness), 0.0)

    def judge(
        self, program: KroneckerProgram, noise: Noise, proof: Arrays, *, bound: float
    ) -> Certificate:
        in_time = None
        if program.target is not None:
            assert noise.strategy is not None
            alone = Noise.of_strategy(noise.strategy)
            in_time = program.time_family.judge(program.of_time, alone, {}, bound=0.0)
        return judging.judge_kronecker(
            program,
            strategy=noise.dense_strategy,
            covariance=noise.covariance,
            in_time=in_time,
            bound=bound,
        )

    def rigorous_judge(self, program: KroneckerProgram, noise: Noise, proof: Arrays) -> Judged:
        return rigorous.judge(program, strategy=noise.dense_strategy, covariance=noise.covariance)

    def rigorous_release(self, program: KroneckerProgram, noise: Noise) -> Judged:
        return rigorous.judge_release(
            program, strategy=noise.dense_strategy, covariance=noise.covariance
        )

    def rigorous_bound(
        self, program: KroneckerProgram, proof: Arrays, *, enough: float = 0.0, **_: Any
    ) -> Interval:
        if program.target is not None:
            raise NotProvedError(RANDOM)
        return super().rigorous_bound(program, proof, enough=enough)

    def fixed_bound(self, program: KroneckerProgram, proof: Arrays) -> float | None:
        if program.target is None:
            return None
        return judging.lower_bound(program, judging.Witness.of(program, proof))

    def rigorous_fixed_bound(
        self, program: KroneckerProgram, proof: Arrays, *, enough: float
    ) -> Interval | None:
        if program.target is None:
            return None
        witness = judging.Witness.of(program, proof)
        return rigorous.lower_bound(program, witness, enough=enough)

    def departure(self, program: KroneckerProgram, noise: Noise, proof: Arrays) -> float:
        assert noise.strategy is not None
        found = 0.0
        if program.time.restricts:
            in_time = Noise.of_strategy(noise.strategy)
            found = program.time_family.departure(program.of_time, in_time, {})
        if program.space.restricts:
            inner = program.in_space(np.eye(program.workload.nodes))
            in_space = Noise.of_covariance(noise.covariance)
            found = max(found, program.space_family.departure(inner, in_space, proof))
        return found

    def seeds(self, program: KroneckerProgram, noise: Noise, proof: Arrays) -> SeedPlan | None:
        family = program.space_family
        if not (program.space.restricts and isinstance(family, Seeded)):
            return None
        inner = program.in_space(np.eye(program.workload.nodes))
        return family.seeds(inner, Noise.of_covariance(noise.covariance), proof)

    def independent(self, program: KroneckerProgram) -> Noise:
        steps = program.participation
        form = DenseStrategy(strategy=np.eye(steps.horizon) / np.sqrt(steps.epochs))
        strategy = form if program.target is None else program.of_time.unit(form)
        covariance = np.diag((1 + 8 * settings.EPS) / program.budget)
        return Noise.of_strategy(strategy, covariance=covariance)

    def independent_error(self, problem: SpaceTimeProblem) -> float:
        fixed = SpaceTimeProgram.of(problem).independent_objective
        if not problem.participation.random:
            return fixed
        program = self.program(problem)
        unit = self.independent(program).dense_strategy[0, 0]
        return fixed / (program.participation.epochs * float(unit) ** 2)


FAMILY = Kronecker()
