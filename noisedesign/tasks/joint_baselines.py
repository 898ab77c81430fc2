"""Published noise for space-time problems: Kronecker pairs (C, R), one of them mostly the identity.

All are for the error and the budgets of the problem, and are judged as its designs are.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from noisedesign.base import settings
from noisedesign.base.checks import Array
from noisedesign.base.linalg import inverse_of_positive, reversed_cholesky
from noisedesign.base.monitor import Monitor
from noisedesign.families.decor.program import graph_laplacian
from noisedesign.families.decor.solver import decor_precision
from noisedesign.families.disjoint.program import arrays_of
from noisedesign.families.kronecker.solver import optimal_gram
from noisedesign.program import repair
from noisedesign.program.design import Design, Provenance
from noisedesign.program.family import Arrays, family_of
from noisedesign.program.noise import DenseForm, Noise
from noisedesign.program.problem import ANY_SPACE, ANY_TIME, SpaceTimeProblem
from noisedesign.program.program import Program, uniform_dual
from noisedesign.program.space_time import SpaceTimeProgram

NAMES = (
    "ldp",
    "cdp",
    "whisper-one-step",
    "whisper",
    "decor",
    "mafalda",
    "d-mf",
    "antipgd",
    "banded-sqrt",
)


def joint_baseline(
    problem: SpaceTimeProblem,
    name: str,
    *,
    strategy: Array | None,
    best: Design | None,
    provenance: Provenance,
) -> Design:
    """The baseline ``name`` as a design of ``problem`` without its structure.

    Args:
        strategy: C, shape (T, T), at any scale, for the baselines in time; None for the others.
        best: a design of the problem, whose multipliers prove the bound; None: the uniform ones.

    Raises:
        InputError: noise in a null direction of W is free, and nothing caps it.
    """
    free = replace(problem, time=ANY_TIME, space=ANY_SPACE)
    if name == "cdp":
        # The mean's noise needs variance 1 / (n^2 tau), and every node holds the same mean.
        n = len(problem.mixing)
        mean = np.full((n, n), 1 / (n**2 * float(problem.budget.min())))
        free = replace(free, joint="kronecker")
        noise = Noise.of_strategy(DenseForm(strategy=_strategy(free, mean)), covariance=mean)
        return _judged(free, noise, {}, provenance, trust="central")
    scheme = problem.participation
    if strategy is None:
        strategy = np.eye(scheme.horizon)
    covariance = np.diag(1 / problem.budget)
    if name in ("whisper", "whisper-one-step", "decor"):
        covariance = _covariance(free, name)
    if name == "mafalda":
        strategy = _strategy(free, covariance)
    unit = SpaceTimeProgram.of(free).time_program(np.eye(scheme.horizon))
    strategy = repair.unit_strategy(unit, strategy)
    if problem.joint == "full":
        # C x L, L^T L = R^-1, is lower triangular, and a full design of the same covariance.
        full = SpaceTimeProgram.of(free).full_program()
        factor = reversed_cholesky(inverse_of_positive(covariance))
        form = DenseForm(strategy=np.asarray(np.kron(strategy, factor), dtype=np.float64))
        proof = arrays_of(full, uniform_dual(full)) if best is None else best.proof
        return _judged(free, replace(Noise.of_strategy(form), full=True), proof, provenance)
    noise = Noise.of_strategy(DenseForm(strategy=strategy), covariance=covariance)
    return _judged(free, noise, _witness(problem, best), provenance)


def _covariance(problem: SpaceTimeProblem, name: str) -> Array:
    """R of noise that is drawn afresh at every step, C = I / sqrt(k), within the budgets."""
    program, scheme = SpaceTimeProgram.of(problem), problem.participation
    gram = problem.mixing.T @ problem.mixing
    if name != "whisper-one-step":
        gram = program.workload.space_gram(scheme.epochs * np.eye(scheme.horizon))
    in_space = program.space_program(gram)
    if name == "decor":
        precision = decor_precision(in_space, graph_laplacian(problem.mixing))
        return repair.covariance_of(in_space, precision)
    return repair.covariance_of(in_space, optimal_gram(in_space, Monitor(gap=settings.DEFAULT_GAP)))


def _strategy(problem: SpaceTimeProblem, covariance: Array) -> Array:
    """The best C for noise of nodes with the covariance R, shape (n, n)."""
    program = SpaceTimeProgram.of(problem)
    in_time: Program = program.time_program(program.workload.time_gram(covariance))
    return repair.strategy_of(in_time, optimal_gram(in_time, Monitor(gap=settings.DEFAULT_GAP)))


def _witness(problem: SpaceTimeProblem, best: Design | None) -> dict[str, Any]:
    if best is not None:
        return {name: best.proof[name] for name in ("dual_blocks", "dual_weights")}
    k, b = problem.participation.epochs, problem.participation.separation
    return {"dual_blocks": np.tile(np.eye(k), (b, 1, 1)), "dual_weights": 1 / problem.budget}


def _judged(
    problem: SpaceTimeProblem,
    noise: Noise,
    proof: Arrays,
    provenance: Provenance,
    *,
    trust: str = "local",
) -> Design:
    family = family_of(problem)
    program = family.program(problem)
    bound = family.bound(program, proof)
    return Design(
        problem=problem,
        noise=noise,
        certificate=family.certificate(program, noise, proof, bound=bound, everywhere=None),
        provenance=provenance,
        proof=proof,
        trust=trust,
    )
