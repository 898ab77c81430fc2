"""Strategies with few diagonals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from noisedesign.base.checks import Array
from noisedesign.base.enclosures import Interval
from noisedesign.base.monitor import Monitor
from noisedesign.certify.certificate import ProvedBound
from noisedesign.certify.rigorous import Judged, NotProvedError, judge_strategy
from noisedesign.families.banded.bound import (
    lower_bound,
    multipliers_of,
    repaired_multipliers,
    rigorous_lower_bound,
)
from noisedesign.families.banded.program import BandedProgram, banded_program
from noisedesign.families.family import ANY, Answer, Arrays, ArraySpec, Form, Model, Modelled
from noisedesign.families.temporal import TemporalFamily, covering_prices, largest_share, unit_form
from noisedesign.forms import BandedStrategy, Noise
from noisedesign.forms.structure import TimeStructure
from noisedesign.problem.problem import TimeProblem


class Banded(TemporalFamily[BandedProgram], Modelled[BandedProgram]):
    name = "banded"
    formulations: ClassVar[tuple[str, ...]] = ("compact",)
    proof: ClassVar[Mapping[str, ArraySpec]] = {
        "dual_matrix": ArraySpec("U", "TT"),
        "dual_shares": ArraySpec("z, diag(X) = P z", ANY),
    }

    def program_of_gram(
        self, gram: Array, *, participation: Any, structure: TimeStructure, **_: Any
    ) -> BandedProgram:
        assert structure.bands is not None
        return banded_program(gram=gram, participation=participation, bands=structure.bands)

    def solve(self, program: BandedProgram, *, monitor: Monitor) -> Answer:
        from noisedesign.families.banded import solver

        found = solver.solve(program, monitor=monitor)
        # Past the end of a diagonal there is nothing.
        inside = np.arange(program.bands)[:, None] + np.arange(program.size) < program.size
        form = unit_form(program, BandedStrategy(bands=np.where(inside, found.columns.T, 0.0)))
        proof = {"dual_shares": found.shares} if found.own else {"dual_matrix": found.multipliers}
        return Answer(
            stop=found.stop,
            noises=[Noise.of_strategy(form)],
            proof=proof,
            evaluations=found.evaluations,
        )

    def model(self, program: BandedProgram, form: Form) -> Model:
        from noisedesign.families.banded import model

        form.only("compact")
        return model.compact(program, scaled=form.scaled)

    def bound(self, program: BandedProgram, proof: Arrays, **by: Any) -> ProvedBound:
        return ProvedBound(lower_bound(program, proof, **by), 0.0)

    def prices(self, problem: TimeProblem, noise: Noise, proof: Arrays) -> dict[str, float]:
        """The weights of the patterns that cover diag(U) at the least sum."""
        program = self.program(problem)
        multipliers = multipliers_of(program, proof, noise=noise)
        u = None if multipliers is None else repaired_multipliers(program, multipliers)
        if u is None:
            return {}
        return covering_prices(program.participation, np.diagonal(u).copy())

    def rigorous_judge(self, program: BandedProgram, noise: Noise, proof: Arrays) -> Judged:
        if noise.dense_strategy[np.tril(program.outside())].any():
            raise NotProvedError("C has entries outside of its bands")
        return judge_strategy(program, noise.dense_strategy)

    def rigorous_bound(self, program: BandedProgram, proof: Arrays, **by: Any) -> Interval:
        return rigorous_lower_bound(program, proof, **by)

    def departure(self, program: BandedProgram, noise: Noise, proof: Arrays) -> float:
        return largest_share(noise.dense_strategy, np.tril(program.outside()))

    def sizes(self, problem: TimeProblem) -> dict[str, int]:
        return {"T": problem.participation.horizon}


FAMILY = Banded()
