"""Strategies without a structure under patterns that overlap, as under min separation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from noisedesign.base import settings
from noisedesign.base.checks import Array, InputError
from noisedesign.base.enclosures import Interval
from noisedesign.base.monitor import Monitor
from noisedesign.certify.certificate import ProvedBound, repaired_blocks
from noisedesign.certify.repair import strategy_of
from noisedesign.certify.rigorous import Judged, NotProvedError
from noisedesign.families.family import (
    ANY,
    Answer,
    Arrays,
    ArraySpec,
    Form,
    Model,
    Modelled,
    named_shares,
    pattern_name,
)
from noisedesign.families.overlapping.bound import (
    multipliers_of,
    overlapping_lower_bound,
    pattern_arrays,
    rigorous_multipliers,
)
from noisedesign.families.temporal import (
    TemporalFamily,
    TemporalProgram,
    rigorous_bound_by,
    temporal_program,
)
from noisedesign.forms import DenseStrategy, Noise
from noisedesign.forms.structure import TimeStructure
from noisedesign.problem.problem import TimeProblem
from noisedesign.system.participation import Participation


def overlapping_program(*, gram: Any, participation: Participation) -> TemporalProgram:
    """The program without a structure for H, (T, T); a step in no pattern is refused."""
    program = temporal_program(gram=gram, participation=participation)
    taking_part = participation.taking_part
    if not taking_part.all():
        raise InputError(
            "participation",
            expected="patterns that cover every step",
            got=f"none with step {int(taking_part.argmin())}: nothing limits how well it may be "
            "served",
        )
    return program


class Overlapping(TemporalFamily[TemporalProgram], Modelled[TemporalProgram]):
    name = "overlapping"
    formulations: ClassVar[tuple[str, ...]] = ("compact",)
    proof: ClassVar[Mapping[str, ArraySpec]] = {
        "pattern_lengths": ArraySpec("k of every U_pi", ANY),
        "pattern_steps": ArraySpec("steps of every U_pi", ANY),
        "pattern_blocks": ArraySpec("U_pi", ANY),
    }

    def program_of_gram(
        self, gram: Array, *, participation: Any, structure: TimeStructure, **_: Any
    ) -> TemporalProgram:
        return overlapping_program(gram=gram, participation=participation)

    def solve(self, program: TemporalProgram, *, monitor: Monitor) -> Answer:
        from noisedesign.families.overlapping import solver

        found = solver.solve(program, monitor=monitor)
        strategy = strategy_of(program, found.gram)
        return Answer(
            stop=found.stop,
            noises=[Noise.of_strategy(DenseStrategy(strategy=strategy))],
            proof=pattern_arrays(found.multipliers),
            evaluations=found.evaluations,
        )

    def model(self, program: TemporalProgram, form: Form) -> Model:
        from noisedesign.families.overlapping import model

        form.only("compact")
        return model.compact(program, scaled=form.scaled)

    def bound(
        self,
        program: TemporalProgram,
        proof: Arrays,
        *,
        negligible: float = settings.NEGLIGIBLE,
        **_: Any,
    ) -> ProvedBound:
        if not set(self.proof) <= set(proof):
            return ProvedBound(0.0, 0.0)
        multipliers = multipliers_of(proof)
        value = overlapping_lower_bound(program, multipliers, negligible=negligible)
        return ProvedBound(value, 0.0)

    def prices(self, problem: TimeProblem, noise: Noise, proof: Arrays) -> dict[str, float]:
        if not set(self.proof) <= set(proof):
            return {}
        groups = multipliers_of(proof)
        names = [pattern_name(steps) for group in groups for steps in group.steps]
        paid = [repaired_blocks(group.blocks)[:, 0, 0] for group in groups]
        return named_shares(names, np.concatenate(paid))

    def rigorous_bound(
        self,
        program: TemporalProgram,
        proof: Arrays,
        *,
        judged: Judged | None = None,
        enough: float = 0.0,
        **_: Any,
    ) -> Interval:
        if not set(self.proof) <= set(proof):
            raise NotProvedError("there are no multipliers")
        u, price = rigorous_multipliers(program, multipliers_of(proof))
        return rigorous_bound_by(program, u, price, judged=judged, enough=enough)


FAMILY = Overlapping()
