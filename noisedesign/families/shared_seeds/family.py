"""Covariances made of shared seeds: a block P_c for every set of nodes that may share one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from noisedesign.base.checks import Array
from noisedesign.base.enclosures import Interval
from noisedesign.base.monitor import Monitor
from noisedesign.certify.certificate import NOTHING, Certificate, ProvedBound
from noisedesign.certify.rigorous import Judged, NotProvedError
from noisedesign.families.family import (
    ANY,
    OPERATIONS_PER_CALL,
    Answer,
    Arrays,
    ArraySpec,
    Ask,
    Cappable,
    Form,
    Model,
    Modelled,
    Seeded,
    SpatialFamily,
    Uncapped,
    named_shares,
)
from noisedesign.families.shared_seeds import bound as judging
from noisedesign.families.shared_seeds.bound import Multipliers, blocks_of, multipliers_of
from noisedesign.families.shared_seeds.program import SeedProgram, seed_program
from noisedesign.families.temporal import largest_share
from noisedesign.forms import Noise
from noisedesign.privacy.seeds import SeedPlan, seed_plan
from noisedesign.problem.default_cap import lazy_advice
from noisedesign.problem.problem import SpaceProblem

ASSEMBLED = 1e-12
"""Difference of R from the sum of its blocks, relative to its largest entry, that is rounding."""


WIDE = 1e3
"""Variances of independent noise up to which a cap by default is compared with wider ones: beyond,
the error falls by less than can be proved."""


class SharedSeeds(
    SpatialFamily[SeedProgram], Cappable[SeedProgram], Modelled[SeedProgram], Seeded[SeedProgram]
):
    name = "shared seeds"
    formulations: ClassVar[tuple[str, ...]] = ("covariance",)
    proof: ClassVar[Mapping[str, ArraySpec]] = {
        "dual_cap": ArraySpec("w", "n"),
        "clique_blocks": ArraySpec("P", ANY, multiplier=False),
        "dual_factors": ArraySpec("F, N = F^T F", ANY),
        "dual_prices": ArraySpec("v", ANY),
        "dual_coalitions": ArraySpec("coalitions with multipliers", ANY),
    }

    def program(self, problem: SpaceProblem) -> SeedProgram:
        with lazy_advice(lambda: problem.plain):
            return super().program(problem)

    def program_of_gram(self, gram: Array, **of: Any) -> SeedProgram:
        return seed_program(gram, **of)

    def solve(self, program: SeedProgram, *, monitor: Monitor) -> Answer:
        from noisedesign.families.shared_seeds import solver

        return solver.solve(program, monitor=monitor)

    def without_cap(
        self, program: SeedProgram, noise: Noise, proof: Arrays, *, monitor: Monitor
    ) -> Uncapped:
        """The bound under a cap of WIDE."""
        wide = replace(program, cap=WIDE / program.budget)
        bound = self.bound(wide, self.solve(wide, monitor=monitor).proof).value
        return Uncapped(bound, f"such noise of up to {WIDE:,.0f} times")

    def model(self, program: SeedProgram, form: Form) -> Model:
        from noisedesign.families.shared_seeds import model

        form.only("covariance")
        return model.scaled(program) if form.scaled else model.stated(program)

    def answer_by(self, program: SeedProgram, ask: Ask, form: Form, *, monitor: Monitor) -> Answer:
        """Ask a digit more: bounds fall short in the first order of what a solver leaves."""
        if monitor.tolerance is not None:
            monitor.tolerance /= 10
        return ask(self.model(program, form))

    def bound(self, program: SeedProgram, proof: Arrays, **_: Any) -> ProvedBound:
        found = self._multipliers(program, proof)
        return NOTHING if found is None else ProvedBound(judging.lower_bound(program, found), 0.0)

    def _multipliers(self, program: SeedProgram, proof: Arrays) -> Multipliers | None:
        if not {"dual_factors", "dual_prices"} <= set(proof):
            return None
        return multipliers_of(program, proof)

    def prices(self, problem: SpaceProblem, noise: Noise, proof: Arrays) -> dict[str, float]:
        program = self.program(problem)
        if (found := self._multipliers(program, proof)) is None:
            return {}
        shares = judging.prices(program, found)
        return named_shares(problem.nodes, shares, float(shares.sum()))

    def rigorous_bound(
        self, program: SeedProgram, proof: Arrays, *, enough: float = 0.0, **_: Any
    ) -> Interval:
        found = self._multipliers(program, proof)
        if found is None:
            raise NotProvedError("there are no multipliers")
        return judging.rigorous_bound(program, found, enough=enough)

    def rigorous_judge(self, program: SeedProgram, noise: Noise, proof: Arrays) -> Judged:
        """Judge the blocks that make up R, as noise is drawn from them, and R as stored."""
        blocks = self._blocks(program, noise.covariance, proof)
        if blocks is None:
            raise NotProvedError("R is not made of blocks of shared seeds")
        return judging.rigorous_judge(program, blocks, noise.covariance)

    def _blocks(
        self, program: SeedProgram, covariance: Array, proof: Arrays
    ) -> tuple[Array, ...] | None:
        """The blocks where they make up R, as independent noise does of itself."""
        if "clique_blocks" not in proof and not np.triu(covariance, 1).any():
            proof = self.parts(program, np.diagonal(covariance))
        if "clique_blocks" in proof and self._unmade(program, covariance, proof) <= ASSEMBLED:
            return blocks_of(program.sets, proof["clique_blocks"])
        return None

    def judge(
        self, program: SeedProgram, noise: Noise, proof: Arrays, *, bound: float
    ) -> Certificate:
        """Judge the blocks where they make up R; else known seeds leave R nothing hidden."""
        blocks = self._blocks(program, noise.covariance, proof)
        if blocks is not None:
            return judging.judge(program, blocks, bound=bound)
        if "clique_blocks" not in proof:
            bound = 0.0  # nothing says that R is made of seeds at all
        found = super().judge(program, noise, proof, bound=bound)
        return replace(found, sensitivity_squared=float("inf")) if program.known_seeds else found

    def departure(self, program: SeedProgram, noise: Noise, proof: Arrays) -> float:
        """The larger of the entries outside of all sets and the distance to the sum of blocks."""
        apart = np.ones(noise.covariance.shape, dtype=bool)
        for nodes in program.sets:
            apart[np.ix_(nodes, nodes)] = False
        found = largest_share(noise.covariance, apart)
        if "clique_blocks" not in proof:
            return found
        return max(found, self._unmade(program, noise.covariance, proof))

    def _unmade(self, program: SeedProgram, covariance: Array, proof: Arrays) -> float:
        """Largest difference of R from the sum of its blocks, relative to its largest entry."""
        blocks = blocks_of(program.sets, proof["clique_blocks"])
        difference = np.abs(judging.covariance(program, blocks) - covariance).max()
        return float(difference / np.abs(covariance).max())

    def work(self, problem: SpaceProblem) -> float:
        n, known = len(problem.nodes), problem.structure.known_seeds
        coalitions = math.comb(n, known) if known else 0
        return super().work(problem) + coalitions * (n**3 + OPERATIONS_PER_CALL)

    def seeds(self, program: SeedProgram, noise: Noise, proof: Arrays) -> SeedPlan | None:
        if "clique_blocks" not in proof:
            return None
        blocks = blocks_of(program.sets, proof["clique_blocks"])
        judged = [(block + block.T) / 2 for block in blocks]  # as R is made of them
        return seed_plan(nodes=program.size, cliques=program.sets, blocks=judged)

    def parts(self, program: SeedProgram, variance: Array) -> dict[str, Array]:
        """Put the variance of every node, shape (n,), on the smallest set it is in."""
        left, blocks = variance.copy(), [np.zeros(0)] * len(program.sets)
        for which in sorted(range(len(blocks)), key=lambda c: len(program.sets[c])):
            nodes = list(program.sets[which])
            blocks[which] = np.diag(left[nodes]).ravel()
            left[nodes] = 0.0
        return {"clique_blocks": np.concatenate(blocks)}


FAMILY = SharedSeeds()
