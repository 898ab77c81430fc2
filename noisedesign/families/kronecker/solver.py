"""Solving joint designs: the alternation of two factors, and the program on all coordinates.

Both use the native solver of the convex program, and both are judged by functions that know no
solver.
"""

from __future__ import annotations

import contextlib

import numpy as np

from noisedesign.base import linalg as _linalg
from noisedesign.base import settings
from noisedesign.base.checks import Array, InputError
from noisedesign.base.monitor import Monitor, Stop
from noisedesign.families.disjoint import native
from noisedesign.families.disjoint.program import Found
from noisedesign.families.kronecker import alternation as kronecker
from noisedesign.families.kronecker import bound as space_time_certificate
from noisedesign.families.kronecker import bound_search as kronecker_witness
from noisedesign.families.kronecker.alternation import Factors, Step
from noisedesign.families.kronecker.bound import Witness
from noisedesign.families.kronecker.program import JointProgram, KroneckerDesign
from noisedesign.program import repair
from noisedesign.program.program import Program, denormalized_gram

STEP_GAP_SHARE = 0.1
"""Gap of a step of the alternation, as a share of what a sweep must gain to go on."""

WITNESS_GAP = 1e-5
"""Relative gain below which the lower bound of a Kronecker design is no further improved: the
distance between Kronecker and full designs is a thousand times larger."""


def design_kronecker(
    problem: JointProgram,
    *,
    monitor: Monitor,
    cap: Array | None = None,
    time_step: Step | None = None,
    space_step: Step | None = None,
    space_start: Array | None = None,
) -> KroneckerDesign:
    """The better of two alternations, started from Mafalda-SGD and from Whisper D-SGD.

    Args:
        monitor: its gap is the relative gain of a sweep below which to stop.
        cap: on diag(R), shape (n,), at unit time sensitivity.
        time_step: from H_time(R), shape (T, T), to a covariance S of squared sensitivity at most
            1; default the optimal one. A structured family of strategies goes here.
        space_step: from H_space(S), shape (n, n), to a covariance R with diag(R^-1) <= budget.
        space_start: R to begin with, shape (n, n); default independent noise, which has to be of
            the structure of ``space_step`` where that has one.

    Raises:
        InputError: noise in a null direction of W is free, and nothing caps it.
    """

    def optimal_time(gram: Array) -> Array:
        return _linalg.inverse_of_positive(_step(problem.time_program(gram), monitor))

    def optimal_space(gram: Array) -> Array:
        program = problem.space_program(gram, cap=cap)
        return repair.covariance_of(program, _step(program, monitor))

    found: list[Factors] = []
    for time_first in (True, False):
        if not found or not (monitor.expired or found[0].stop is Stop.INTERRUPTED):
            found.append(
                kronecker.alternate(
                    problem.workload,
                    time=problem.participation.epochs * np.eye(problem.workload.horizon),
                    space=np.diag(1 / problem.budget) if space_start is None else space_start,
                    time_step=time_step or optimal_time,
                    space_step=space_step or optimal_space,
                    time_first=time_first,
                    monitor=monitor,
                )
            )
    best = min(found, key=lambda factors: factors.objective)
    witness = _witness(problem, best, monitor)
    noising = np.linalg.cholesky(best.time)
    program = problem.time_program(np.eye(len(noising)))
    strategy = repair.unit_strategy(program, np.linalg.inv(noising))
    return KroneckerDesign(
        strategy=strategy,
        covariance=best.space,
        witness=witness,
        stop=best.stop,
        history=best.history,
    )


# --- parts of a solve -----------------------------------------------------------------------------


def _answer(program: Program, monitor: Monitor) -> Found:
    """The native solver's answer to a program, at unit budgets, that is one step of many."""
    limit = None if monitor.time_limit is None else monitor.remaining
    answer = native.solve(
        program.normalized(), monitor=Monitor(gap=STEP_GAP_SHARE * monitor.gap, time_limit=limit)
    )
    if answer.stop is Stop.INTERRUPTED:
        raise KeyboardInterrupt
    return answer


def optimal_gram(program: Program, *, gap: float = settings.DEFAULT_GAP) -> Array:
    """A feasible X of a program, shape (m, m), to a tenth of ``gap``.

    Raises:
        InputError: noise in a null direction of H is free, and nothing caps it.
    """
    return _step(program, Monitor(gap=gap))


def _step(program: Program, monitor: Monitor) -> Array:
    """A feasible X that is nearly optimal."""
    unit = program.normalized()
    answer = _answer(program, monitor)
    assert answer.gram is not None
    assert answer.dual is not None
    refuse_divergent(program, answer, capped=True)
    gram = repair.feasible_gram(unit, answer.gram, dual=answer.dual)
    return denormalized_gram(program, _independent(unit) if gram is None else gram)


def _multipliers(program: Program, monitor: Monitor) -> Array:
    """Nearly optimal blocks U_j of a program, shape (patterns, epochs, epochs)."""
    answer = _answer(program, monitor)
    assert answer.dual is not None
    return answer.dual.denormalized(program).blocks


def _independent(program: Program) -> Array:
    """X of independent noise at full budget."""
    return np.diag(program.coordinate_budget / program.participation.epochs)


def refuse_divergent(program: Program, answer: Found, *, capped: bool) -> None:
    """Refuse noise in a null direction that nothing seems to bound; unknown where time was up.

    Args:
        capped: whether a cap on the variance could bound it.
    """
    if answer.stop in (Stop.TIME_LIMIT, Stop.INTERRUPTED):
        return
    assert answer.gram is not None
    direction = repair.unbounded_direction(program.normalized(), answer.gram, dual=answer.dual)
    if direction is None:
        return
    remedy = (
        "Take weights whose W is not singular, such as lazy-metropolis-hastings, and an error that "
        "sees all noise."
    )
    if capped:
        cap = f"{settings.SUGGESTED_CAP / program.coordinate_budget.min():.2g}"
        remedy = (
            f"Cap the variance: max_variance={cap} in Python, [limits] max_variance = {cap} in a "
            f"problem file. Or {remedy[0].lower()}{remedy[1:]}"
        )
    raise InputError(
        "mixing",
        expected="a matrix W, and an error, whose optimal noise is bounded",
        got="a singular H: noise along a null direction costs nothing, and no budget seems to "
        "bound it",
        remedy=remedy,
    )


def _witness(problem: JointProgram, factors: Factors, monitor: Monitor) -> Witness:
    """Multipliers of the two factors' programs, improved together where the workload has modes."""
    workload, modes = problem.workload, problem.workload.modes
    k, b = problem.participation.epochs, problem.participation.separation
    blocks, weights = np.tile(np.eye(k), (b, 1, 1)), 1 / problem.budget
    with contextlib.suppress(KeyboardInterrupt):
        blocks = _multipliers(problem.time_program(workload.time_gram(factors.space)), monitor)
        gram = workload.space_gram(factors.time)
        if modes is not None:
            traces = space_time_certificate.mode_traces(
                modes, blocks=blocks, participation=problem.participation
            )
            gram = (modes.basis * np.square(traces)) @ modes.basis.T
        weights = _multipliers(problem.space_program(gram), monitor)[:, 0, 0]
    witness = Witness(blocks=blocks, weights=weights)
    if modes is None:
        return witness
    limit = None if monitor.time_limit is None else monitor.remaining
    return kronecker_witness.improved(
        witness,
        modes=modes,
        participation=problem.participation,
        budget=problem.budget,
        monitor=Monitor(gap=WITNESS_GAP, time_limit=limit),
    )
