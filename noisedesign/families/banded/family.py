"""Strategies with few diagonals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from noisedesign.base import settings
from noisedesign.base.checks import Array
from noisedesign.base.monitor import Monitor, Stop
from noisedesign.families.banded.bound import (
    BandedProgram,
    allowance,
    banded_lower_bound,
    banded_program,
)
from noisedesign.families.banded.multipliers import multipliers_of_bands
from noisedesign.program.certificate import NOTHING, ProvedBound
from noisedesign.program.family import ANY, Answer, Arrays, ArraySpec, Model, one_formulation
from noisedesign.program.noise import BandedForm, Noise
from noisedesign.program.structure import TimeStructure
from noisedesign.program.temporal_family import TemporalFamily, largest_share, unit_form

OWN_PROOF = 0.1
"""Share of the gap asked for that a bound may lose where its T x T multipliers are left out of the
design: those that follow from C prove it, but for their rounding."""


class Banded(TemporalFamily):
    name = "banded"
    proof: ClassVar[Mapping[str, ArraySpec]] = {
        "dual_matrix": ArraySpec("U", "TT"),
        "dual_shares": ArraySpec("z, diag(X) = P z", ANY),
    }

    def program_of_gram(
        self, gram: Array, *, participation: Any, structure: TimeStructure
    ) -> BandedProgram:
        assert structure.bands is not None
        return banded_program(gram=gram, participation=participation, bands=structure.bands)

    def solve(self, program: BandedProgram, *, monitor: Monitor) -> Answer:
        from noisedesign.families.banded import solver

        found = solver.solve(program, monitor=monitor)
        # Past the end of a diagonal there is nothing.
        inside = np.arange(program.bands)[:, None] + np.arange(program.size) < program.size
        form = unit_form(program, BandedForm(bands=np.where(inside, found.columns.T, 0.0)))
        noise, negligible = Noise.of_strategy(form), settings.NEGLIGIBLE_PER_GAP * monitor.gap
        proof: dict[str, Array] = {"dual_matrix": found.multipliers}
        own: dict[str, Array] = {"dual_shares": found.shares}
        bound = self.bound(program, proof, negligible=negligible)
        by_itself = self.bound(program, own, noise=noise, negligible=negligible)
        if by_itself.value >= bound.value * (1 - OWN_PROOF * monitor.gap):
            proof = own
        return Answer(stop=found.stop, noises=[noise], proof=proof, evaluations=found.evaluations)

    def model(
        self,
        program: BandedProgram,
        *,
        formulation: str | None = None,
        scaled: bool = False,
        parts: int = 1,
    ) -> Model:
        from noisedesign.families.banded import model

        one_formulation(formulation, "compact")
        conic = model.compact(program).finished(name="", formulation="compact", remarks=())
        return Model(conic=conic, read=lambda point: Answer(stop=Stop.FAILED))

    def bound(
        self,
        program: BandedProgram,
        proof: Arrays,
        *,
        noise: Noise | None = None,
        negligible: float = settings.NEGLIGIBLE,
    ) -> ProvedBound:
        """By the stored multipliers, or by those that C proves its bound with."""
        multipliers = proof.get("dual_matrix")
        shares = proof.get("dual_shares")
        if multipliers is None and shares is not None and noise is not None:
            if shares.shape != allowance(program.participation).cost.shape:
                return NOTHING
            bands = BandedForm.of_dense(noise.dense_strategy, bands=program.bands).bands
            try:
                multipliers = multipliers_of_bands(program, bands=bands, shares=shares)
            except np.linalg.LinAlgError:
                return NOTHING
        if multipliers is None:
            return NOTHING
        return ProvedBound(banded_lower_bound(program, multipliers, negligible=negligible), 0.0)

    def departure(self, program: BandedProgram, noise: Noise, proof: Arrays) -> float:
        steps = np.arange(program.size)
        below = np.subtract.outer(steps, steps) >= program.bands
        return largest_share(noise.dense_strategy, below)

    def sizes(self, problem: Any) -> dict[str, int]:
        return {"T": problem.participation.horizon}


FAMILY = Banded()
