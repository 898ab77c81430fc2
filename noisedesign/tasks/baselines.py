"""Published noise as designs, judged by the same code as ours, so that one table compares them."""

from __future__ import annotations

from types import NoneType
from typing import Any

import numpy as np
from scipy.linalg import toeplitz

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array, InputError
from noisedesign.base.shown import Listing
from noisedesign.families.decor import solver as decor
from noisedesign.families.decor.program import graph_laplacian
from noisedesign.families.disjoint.program import arrays_of, dual_of, independent_gram, program_of
from noisedesign.program import repair
from noisedesign.program.backends import get_backend
from noisedesign.program.design import Design, Provenance
from noisedesign.program.family import Arrays, family_of
from noisedesign.program.noise import DenseForm, Noise
from noisedesign.program.problem import Problem, SpaceProblem, TimeProblem, problem_of
from noisedesign.program.program import DualPoint, Program
from noisedesign.system.participation import FixedEpoch
from noisedesign.tasks import joint_baselines
from noisedesign.tasks.solve import solve

SPACE_BASELINES = ("ldp", "cdp", "decor")
TIME_BASELINES = ("ldp", "cdp", "antipgd", "d-mf", "banded-sqrt")
_NAMES = {"space": SPACE_BASELINES, "time": TIME_BASELINES, "space-time": joint_baselines.NAMES}


def baseline_names(problem: Problem) -> tuple[str, ...]:
    """Names of the baselines that make sense for a problem.

    Raises:
        InputError: one against chosen observers.
    """
    problem = problem_of(problem)
    if family_of(problem).trust != "local":
        raise InputError(
            "problem",
            expected="one against a reader of all messages",
            got="chosen observers",
            remedy="Leave out [observers] for baselines.",
        )
    return _NAMES[problem.axes]


def baseline(problem: Problem, name: str, *, dual: DualPoint | Design | None = None) -> Design:
    """A published mechanism as a design for ``problem``.

    - ``ldp``: independent noise;
    - ``cdp``: what a trusted server adds to the average; it protects nothing else, and its
      ``trust`` says "central";
    - ``decor`` (space): R = s I + c Laplacian with optimal s and c (DECOR, Allouah et al. 2024);
    - ``antipgd`` (time): C of ones, each step's noise taken back at the next (AntiPGD);
    - ``d-mf`` (time): the prefix-optimal strategy used by every node (D-MF);
    - ``banded-sqrt`` (time): lower triangular banded square root of the prefix sums, as many
      bands as steps between participations (Kalinin and Lampert 2024).

    For a space-time problem those in time are used by nodes that are independent, those in space at
    steps that are, and

    - ``whisper-one-step`` and ``whisper``: the optimal R at steps that are independent, for the
      error after one step, as published, and for that of the problem;
    - ``mafalda``: the optimal C of nodes that are independent.

    Args:
        dual: multipliers that prove the lower bound stated with the design, for instance those of
            the optimal design, or that design; default: the uniform ones.

    Raises:
        InputError: the name is not one of :func:`baseline_names`.
    """
    problem = problem_of(problem)
    _checks.one_of(name, field="baseline", allowed=baseline_names(problem))
    kinds = "a design or its dual, or None"
    _checks.instance(dual, (DualPoint, Design, NoneType), field="dual", expected=kinds)
    if problem.axes == "space-time":
        in_time = name in TIME_BASELINES and name not in SPACE_BASELINES
        return joint_baselines.joint_baseline(
            problem,
            name,
            best=dual if isinstance(dual, Design) else None,
            strategy=_strategy(name, problem.participation) if in_time else None,
            provenance=_provenance(name),
        )
    wide = family_of(problem).relaxed(problem) or problem
    family, central = family_of(wide), name == "cdp"
    program = family.program(wide)
    if central:
        program = family.central(wide) or program
    proof: Arrays = {} if central else _proof(program, dual)
    make = _covariance if problem.axes == "space" else _in_time
    noise = make(problem, program, name)
    bound = family.bound(program, _proof(program, dual) if problem.axes == "space" else proof)
    return Design(
        problem=problem,
        noise=noise,
        provenance=_provenance(name),
        proof=proof,
        certificate=family.certificate(program, noise, proof, bound=bound, everywhere=None),
        trust="central" if central else "local",
    )


def _proof(program: Program, dual: DualPoint | Design | None) -> Arrays:
    """What proves a bound on noise without a structure."""
    if isinstance(dual, Design):
        dual = dual_of(dual.relaxed_proof or dual.proof)
    return {} if dual is None else arrays_of(program, dual)


def published(problem: Problem, *, dual: DualPoint | Design | None = None) -> Listing[Design]:
    """Every baseline of a problem, independent noise first."""
    return Listing(baseline(problem, name, dual=dual) for name in baseline_names(problem))


def compared(problem: Problem) -> Listing[Design]:
    """Every baseline and, last, the optimum whose multipliers bound them all.

    Raises:
        InputError: as :func:`noisedesign.tasks.solve.solve`.
    """
    best = solve(problem).design
    assert best is not None
    return Listing([*published(problem, dual=best), best])


def _provenance(name: str) -> Provenance:
    return Provenance(
        method=name,
        backend="closed form",
        status="baseline",
        versions=get_backend("native").versions(),
    )


# --- space ----------------------------------------------------------------------------------


def _covariance(problem: Any, program: Program, name: str) -> Noise:
    if name == "cdp":
        # The mean's noise needs variance 1 / (n^2 tau), and every node holds the same mean.
        n = len(problem.mixing)
        return Noise.of_covariance(np.full((n, n), 1 / (n**2 * float(problem.budget.min()))))
    precision = independent_gram(program)
    if name == "decor":
        precision = decor.decor_precision(program, graph_laplacian(problem.mixing))
    return Noise.of_covariance(repair.covariance_of(program, precision))


def decor_variances(problem: SpaceProblem) -> tuple[float, float]:
    """Squared scales of the best DECOR noise: of every node's own, and of every edge's."""
    return decor.decor_variances(program_of(problem), graph_laplacian(problem.mixing))


# --- time -----------------------------------------------------------------------------------


def _in_time(problem: Any, program: Program, name: str) -> Noise:
    strategy = repair.unit_strategy(program, _strategy(name, problem.fixed_epoch))
    return Noise.of_strategy(DenseForm(strategy=strategy))


def _strategy(name: str, participation: FixedEpoch) -> Array:
    """C of a baseline in time, shape (T, T), not normalised."""
    if name == "antipgd":
        return np.tril(np.ones((participation.horizon,) * 2))
    if name == "banded-sqrt":
        return banded_square_root(horizon=participation.horizon, bands=participation.separation)
    if name == "d-mf":
        return prefix_optimal_strategy(participation)
    return np.eye(participation.horizon)


def banded_square_root(*, horizon: int, bands: int) -> Array:
    """Lower triangular Toeplitz square root of the prefix sums, cut to ``bands`` bands, (T, T).

    Coefficients binomial(2j, j) / 4^j (Kalinin and Lampert 2024). Not normalised.
    """
    column = np.ones(horizon)
    for j in range(1, horizon):
        column[j] = column[j - 1] * (2 * j - 1) / (2 * j) if j < bands else 0.0
    return np.asarray(np.tril(toeplitz(column)))


def prefix_optimal_strategy(participation: FixedEpoch) -> Array:
    """C of the optimal prefix sums, shape (T, T), of unit squared sensitivity (D-MF)."""
    solution = solve(TimeProblem.prefix(participation=participation))
    assert solution.design is not None
    return solution.design.strategy
