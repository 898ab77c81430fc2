"""Strategies that are constant along diagonals: Toeplitz, banded inverse, buffered.

Nothing here is convex: what a search finds may be a local optimum, and the only bound is that on
strategies of every structure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from noisedesign.base.checks import Array
from noisedesign.base.enclosures import Interval
from noisedesign.base.monitor import Monitor
from noisedesign.certify.certificate import ProvedBound
from noisedesign.certify.rigorous import Judged
from noisedesign.families.family import Answer, Arrays, ArraySpec, Form, Model, not_convex
from noisedesign.families.temporal import (
    TemporalFamily,
    largest_share,
    rigorous_uniform_bound,
    temporal_program,
    unit_form,
)
from noisedesign.families.toeplitz.bound import lower_bound_of_unrestricted_optimum
from noisedesign.families.toeplitz.program import ToeplitzProgram
from noisedesign.forms import Noise
from noisedesign.forms.structure import TimeStructure
from noisedesign.system.workloads.toeplitz import GramWorkload


class Toeplitz(TemporalFamily[ToeplitzProgram]):
    name = "toeplitz"
    convex = False
    proof: ClassVar[Mapping[str, ArraySpec]] = {}

    def program_of_gram(
        self, gram: Array, *, participation: Any, structure: TimeStructure, **_: Any
    ) -> ToeplitzProgram:
        program = temporal_program(gram=gram, participation=participation)
        return ToeplitzProgram(gram=program.gram, participation=participation, structure=structure)

    def solve(self, program: ToeplitzProgram, *, monitor: Monitor) -> Answer:
        from noisedesign.families.toeplitz import solver

        found = solver.solve(program, monitor=monitor)
        form = unit_form(program, found.strategy.at(program.size))
        return Answer(
            stop=found.stop, noises=[Noise.of_strategy(form)], evaluations=found.evaluations
        )

    def model(self, program: ToeplitzProgram, form: Form) -> Model:
        raise not_convex("structure.time", f'"{program.structure}"')

    def bound(self, program: ToeplitzProgram, proof: Arrays, **_: Any) -> ProvedBound:
        """The bound on strategies of every structure, in closed form."""
        workload = GramWorkload(matrix=program.gram)
        value = lower_bound_of_unrestricted_optimum(workload, program.participation)
        return ProvedBound(value, 0.0)

    def rigorous_bound(
        self,
        program: ToeplitzProgram,
        proof: Arrays,
        *,
        judged: Judged | None = None,
        enough: float = 0.0,
        **_: Any,
    ) -> Interval:
        """The same bound, by uniform multipliers, with every rounding accounted for."""
        return rigorous_uniform_bound(program, judged=judged, enough=enough)

    def departure(self, program: ToeplitzProgram, noise: Noise, proof: Arrays) -> float:
        strategy, structure = noise.dense_strategy, program.structure
        uneven = float(np.abs(strategy[1:, 1:] - strategy[:-1, :-1]).max(initial=0.0))
        uneven /= float(np.abs(strategy).max())
        if structure.kind == "banded-inverse":
            assert structure.bands is not None
            assert noise.strategy is not None
            steps = np.arange(program.size)
            below = np.subtract.outer(steps, steps) >= structure.bands
            return max(uneven, largest_share(noise.strategy.dense_noising(), below))
        if structure.buffers is not None:
            return max(uneven, _more_than(structure.buffers, strategy[1:, 0]))
        return uneven


def _more_than(buffers: int, coefficients: Array) -> float:
    """The first singular value of the Hankel matrix to be 0 for so many buffers (Kronecker)."""
    rows = (len(coefficients) + 1) // 2
    if rows <= buffers:
        return 0.0
    hankel = np.lib.stride_tricks.sliding_window_view(coefficients, rows)
    values = np.linalg.svd(hankel, compute_uv=False)
    if len(values) <= buffers or values[0] == 0:
        return 0.0
    return float(values[buffers] / values[0])


FAMILY = Toeplitz()
