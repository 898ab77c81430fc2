"""Solving temporal designs of a structure, and those under min-separation participation.

Every answer is judged by code that knows no solver, and carries what proves its bound. Within the
Toeplitz families nothing is convex: those answers are local optima, and the only bound they carry
is that of the unrestricted optimum.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from noisedesign.base import linalg as _linalg
from noisedesign.base import settings
from noisedesign.base.checks import Array
from noisedesign.families.banded import solver as banded
from noisedesign.families.banded.bound import BandedProgram, banded_lower_bound, banded_program
from noisedesign.families.banded.multipliers import multipliers_of_bands
from noisedesign.families.disjoint.native import NativeBackend
from noisedesign.families.overlapping import solver as min_separation
from noisedesign.families.overlapping.bound import overlapping_lower_bound, pattern_arrays
from noisedesign.families.toeplitz import (
    GramWorkload,
    optimize_banded_inverse,
    optimize_buffered,
    optimize_toeplitz,
)
from noisedesign.privacy.sensitivity import squared_sensitivity
from noisedesign.program import temporal as temporal_program
from noisedesign.program.backend import Monitor, Stop
from noisedesign.program.certificate import Certificate, judge_strategy
from noisedesign.program.noise import BandedForm, StrategyForm, form_of_strategy
from noisedesign.program.program import DualPoint, Program
from noisedesign.program.structure import TimeStructure
from noisedesign.program.temporal import TemporalProgram
from noisedesign.system.participation import Participation

OWN_PROOF = 0.1
"""Share of the gap asked for that a bound may lose where its T x T multipliers are left out of the
design: those that follow from C prove it, but for their rounding."""


@dataclass(frozen=True, kw_only=True, eq=False)
class StructuredAnswer:
    """What came of a structured solve.

    Attributes:
        matrix: what is exported, C, shape (T, T), or R, shape (n, n).
        certificate: of that matrix; its bound is of the structure, or for ``local`` answers of the
            unrestricted optimum.
        witness: the multipliers that prove the bound, by name.
        local: whether the search may have ended in a local optimum.
        form: C by the numbers its structure leaves; ``matrix`` is made from it.
    """

    matrix: Array
    certificate: Certificate
    stop: Stop
    evaluations: int
    witness: dict[str, Array] = field(default_factory=dict)
    local: bool = False
    form: StrategyForm | None = None


def solve_time(
    gram: Array, *, participation: Participation, structure: TimeStructure, monitor: Monitor
) -> StructuredAnswer:
    """The best strategy of a structure for H = ``gram``, shape (T, T).

    Raises:
        InputError: the structure cannot hold the participation; H is singular.
    """
    if structure.kind == "banded":
        assert structure.bands is not None
        return _banded(gram, participation, structure.bands, monitor)
    if structure.kind == "dense":
        return _every_pattern(gram, participation, monitor)
    workload = GramWorkload(matrix=gram)
    if structure.kind == "toeplitz":
        found = optimize_toeplitz(workload=workload, participation=participation, monitor=monitor)
    elif structure.kind == "banded-inverse":
        assert structure.bands is not None
        found = optimize_banded_inverse(
            workload=workload, participation=participation, bands=structure.bands, monitor=monitor
        )
    else:
        assert structure.buffers is not None
        found = optimize_buffered(
            workload=workload,
            participation=participation,
            buffers=structure.buffers,
            monitor=monitor,
        )
    program = temporal_program.temporal_program(gram=gram, participation=participation)
    form = unit_form(program, form_of_strategy(found.strategy, horizon=len(gram)))
    strategy = form.dense()
    judged = judge_strategy(program, strategy, bound=found.lower_bound_of_unrestricted_optimum)
    return StructuredAnswer(
        matrix=strategy,
        certificate=judged,
        stop=found.stop,
        evaluations=found.evaluations,
        local=True,
        form=form,
    )


def unit_form(program: TemporalProgram, form: StrategyForm) -> StrategyForm:
    """The form scaled so that its own C is of squared sensitivity <= 1 in floating point."""
    strategy = form.dense()
    squared = squared_sensitivity(strategy.T @ strategy, program.participation).squared
    room = 1 - 4 * settings.rank_tolerance(form.horizon)
    return form.scaled(float(np.sqrt(squared)) / room)


def _banded(
    gram: Array, participation: Participation, bands: int, monitor: Monitor
) -> StructuredAnswer:
    program = banded_program(gram=gram, participation=participation, bands=bands)
    answer = banded.solve(program, monitor=monitor)
    # Past the end of a diagonal there is nothing.
    inside = np.arange(bands)[:, None] + np.arange(len(gram)) < len(gram)
    form = unit_form(program, BandedForm(bands=np.where(inside, answer.columns.T, 0.0)))
    strategy = form.dense()
    negligible = settings.NEGLIGIBLE_PER_GAP * monitor.gap
    bound = banded_lower_bound(program, answer.multipliers, negligible=negligible)
    witness = {"dual_matrix": answer.multipliers}
    own = _own_bound(program, form.arrays()["strategy_bands"], answer.shares, negligible)
    if own >= bound * (1 - OWN_PROOF * monitor.gap):
        bound, witness = own, {"dual_shares": answer.shares}
    return StructuredAnswer(
        matrix=strategy,
        certificate=judge_strategy(program, strategy, bound=bound),
        stop=answer.stop,
        evaluations=answer.evaluations,
        witness=witness,
        form=form,
    )


def _own_bound(program: BandedProgram, bands: Array, shares: Array, negligible: float) -> float:
    """The bound of the multipliers that follow from C, which need not be kept."""
    try:
        multipliers = multipliers_of_bands(program, bands=bands, shares=shares)
    except np.linalg.LinAlgError:
        return 0.0
    return banded_lower_bound(program, multipliers, negligible=negligible)


def _every_pattern(gram: Array, participation: Participation, monitor: Monitor) -> StructuredAnswer:
    """Without a structure, under patterns that overlap."""
    program = temporal_program.temporal_program(gram=gram, participation=participation)
    answer = min_separation.solve(program, monitor=monitor)
    strategy = temporal_program.unit_strategy(program, _linalg.reversed_cholesky(answer.gram))
    bound = overlapping_lower_bound(
        program, answer.multipliers, negligible=settings.NEGLIGIBLE_PER_GAP * monitor.gap
    )
    return StructuredAnswer(
        matrix=strategy,
        certificate=judge_strategy(program, strategy, bound=bound),
        stop=answer.stop,
        evaluations=answer.evaluations,
        witness=pattern_arrays(answer.multipliers),
    )


def unrestricted_dual(program: Program, *, monitor: Monitor) -> DualPoint | None:
    """Multipliers that bound the optimum without a structure, from the native backend."""
    answer = NativeBackend().solve(program.normalized(), monitor=monitor, formulation="dual")
    return None if answer.dual is None else answer.dual.denormalized(program)
