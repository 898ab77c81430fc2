"""Published noise as designs, judged by the same code as ours, so that one table compares them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import NoneType
from typing import Any

import numpy as np
from scipy.linalg import toeplitz
from scipy.optimize import minimize_scalar

from noisedesign.base import checks as _checks, settings
from noisedesign.base.checks import Array, InputError
from noisedesign.base.linalg import inverse_of_positive, reversed_cholesky
from noisedesign.base.monitor import Monitor
from noisedesign.base.shown import Listing
from noisedesign.certify import repair
from noisedesign.certify.program import DualPoint, Program
from noisedesign.design.backends import get_backend
from noisedesign.design.design import Design, Provenance
from noisedesign.design.solve import solve
from noisedesign.families.decor import solver as decor
from noisedesign.families.disjoint.program import arrays_of, independent_gram, program_of
from noisedesign.families.family import AnyFamily, Arrays, certified, family_of, released
from noisedesign.families.kronecker.solver import optimal_gram
from noisedesign.families.space_time import SpaceTimeProgram
from noisedesign.families.temporal import TemporalProgram
from noisedesign.families.toeplitz.solver import inverse_root
from noisedesign.families.worst.program import WorstProgram
from noisedesign.forms import BandedInverse, DenseStrategy, ModalStrategy, Noise
from noisedesign.problem.default_cap import TIMES, FreeNoiseError
from noisedesign.problem.problem import (
    ANY_SPACE,
    ANY_TIME,
    Problem,
    SpaceProblem,
    SpaceTimeProblem,
    TimeProblem,
    problem_of,
    unstructured,
)
from noisedesign.system.graph import graph_laplacian
from noisedesign.system.participation import FixedEpoch
from noisedesign.system.workloads.toeplitz import prefix_workload

CENTRAL = "cdp"  # the baseline that trusts a server


@dataclass(frozen=True, kw_only=True)
class Published:
    """A published mechanism: the problems it is a baseline of, and its C and R, by default I."""

    axes: tuple[str, ...]
    strategy: Callable[[FixedEpoch], Array] | None = None  # C, shape (T, T), not normalised
    precision: Callable[[Program, Array], Array] | None = None  # R^-1, shape (n, n), beside a W
    of_run: bool = False  # whether R is for the error of all steps, and not of the first
    signed: bool = False  # whether C has negative entries: no account of random participation


def names_of(axes: str) -> tuple[str, ...]:
    """The names of the baselines of problems in "space", "time" or "space-time"."""
    return tuple(name for name, known in PUBLISHED.items() if axes in known.axes)


def baseline_names(problem: Problem) -> tuple[str, ...]:
    """Names of the baselines that make sense for a problem.

    Args:
        problem: a problem, or what has one, as a loaded file and a design do.

    Returns:
        Names for :func:`baseline`.

    Raises:
        InputError: a problem against chosen observers, or no problem.

    Examples:
        >>> import noisedesign as nd
        >>> nd.baseline_names(nd.TimeProblem.prefix(participation=nd.participation.single(2)))
        ('ldp', 'cdp', 'antipgd', 'd-mf', 'banded-sqrt', 'normalized-sqrt', 'bisr', 'bifr')
    """
    problem = problem_of(problem)
    if family_of(problem).trust != "local":
        expected = "one against a reader of all messages"
        remedy = "Leave out [observers] for baselines."
        raise InputError("problem", expected=expected, got="chosen observers", remedy=remedy)
    names, used = names_of(problem.axes), problem.use
    if problem.axes != "space" and used is not None and used.random:
        names = tuple(name for name in names if not PUBLISHED[name].signed)
    error = problem.error if problem.axes == "time" else None
    consensus = error is not None and error.of == "consensus"
    if problem.worst or consensus:  # of which a server's noise has none
        names = tuple(name for name in names if name != CENTRAL)
    return names


def baseline(problem: Problem, name: str, *, dual: DualPoint | Design | None = None) -> Design:
    """A published mechanism as a design for ``problem``.

    - ``ldp``: independent noise;
    - ``cdp``: noise that a trusted server adds to the average; it protects nothing else, and its
      ``trust`` says "central";
    - ``decor`` (space): R = s I + c Laplacian with optimal s and c (DECOR, Allouah et al. 2024);
    - ``antipgd`` (time): C of ones, each step's noise taken back at the next (AntiPGD);
    - ``d-mf`` (time): the prefix-optimal strategy used by every node (D-MF);
    - ``banded-sqrt`` (time): lower triangular banded square root of the prefix sums, as many
      bands as steps between participations (Kalinin and Lampert 2024);
    - ``normalized-sqrt`` (time): the whole square root with columns of norm 1 (Henzinger, Kalinin
      and Upadhyay 2025);
    - ``bisr`` (time): C whose inverse is that of the square root cut to bands (Kalinin, McKenna,
      Upadhyay and Lampert 2025): a power of two of them, or all, whichever suits prefix sums best;
    - ``bifr`` (time): the same of (1 - z)^gamma, with the gamma that suits prefix sums best
      (gamma-BIFR, Kalinin, Rehn, Andersson, Honkela and Lampert 2026).

    For a space-time problem those in time are used by nodes that are independent, those in space at
    steps that are, and

    - ``whisper-one-step`` and ``whisper``: the optimal R at steps that are independent, for the
      error after one step, as published, and for that of the problem;
    - ``mafalda``: the optimal C of nodes that are independent.

    Args:
        problem: a problem, or what has one, as a loaded file and a design do.
        name: one of :func:`baseline_names`.
        dual: multipliers that prove the lower bound stated with the design, for instance those of
            the optimal design, or that design; default: the uniform ones.

    Returns:
        A design at the budgets of the problem, with a certificate of its own.

    Raises:
        InputError: the name is not one of :func:`baseline_names`.

    Examples:
        Prefix sums of T = 3 steps, each record in one: independent noise has the error
        1 + 2 + 3; AntiPGD, whose C has columns of squared norm up to T, has T per step.

        >>> import noisedesign as nd
        >>> problem = nd.TimeProblem.prefix(participation=nd.participation.single(3))
        >>> for name in ("ldp", "antipgd"):
        ...     print(f"{name}: {nd.baseline(problem, name).objective:.4f}")
        ldp: 6.0000
        antipgd: 9.0000
    """
    problem = problem_of(problem)
    _checks.one_of(name, field="baseline", allowed=baseline_names(problem))
    kinds = "a Design, a DualPoint or None"
    _checks.instance(dual, (DualPoint, Design, NoneType), field="dual", expected=kinds)
    judged, noise_of = _MADE[problem.axes]
    wide = judged(problem, name)
    family = family_of(wide)
    program = released(wide)[1] if name == CENTRAL else family.program(wide)
    within = program.even if isinstance(program, WorstProgram) else program
    noise = noise_of(wide, within, name)
    # In space alone the noise of a trusted server is of the same program as all other noise.
    same = name != CENTRAL or problem.axes == "space"
    proof = _proof(family, program, dual) if same else {}
    bound = family.bound(program, proof)
    versions = get_backend("native").versions()
    made = Provenance(method=name, backend="closed form", status="baseline", versions=versions)
    return Design(
        problem=wide if problem.axes == "space-time" else problem,
        noise=noise,
        provenance=made,
        proof={} if name == CENTRAL else proof,
        certificate=certified(family, program, noise, proof, bound=bound, everywhere=None),
        trust="central" if name == CENTRAL else "local",
    )


def _proof(family: AnyFamily, program: Program, dual: DualPoint | Design | None) -> Arrays:
    """The arrays that prove a bound on noise without a structure."""
    if isinstance(dual, Design):
        known, found = family.proof, dual.relaxed_proof or dual.proof
        return {name: found[name] for name in found if name in known and known[name].multiplier}
    return {} if dual is None else arrays_of(program, dual)


def published(problem: Problem, *, dual: DualPoint | Design | None = None) -> Listing[Design]:
    """Every baseline of a problem, independent noise first."""
    return Listing(baseline(problem, name, dual=dual) for name in baseline_names(problem))


def compared(problem: Problem) -> Listing[Design]:
    """Every baseline and, last, the optimum whose multipliers bound them all."""
    best = solve(problem).design
    assert best is not None
    return Listing([*published(problem, dual=best), best])


def _in_space(problem: SpaceProblem, program: Program, name: str) -> Noise:
    return Noise.of_covariance(_covariance(name, program, problem.mixing))


def _covariance(name: str, program: Program, mixing: Array) -> Array:
    """R of a baseline, shape (n, n), within the budgets of a program in space."""
    if name == CENTRAL:
        # The mean's noise needs variance 1 / (n^2 tau), and every node holds the same mean.
        n = len(mixing)
        least = 1 / (n**2 * float(program.budget.min()))
        return np.full((n, n), least * (1 + 4 * settings.EPS))
    make = PUBLISHED[name].precision
    precision = independent_gram(program) if make is None else make(program, mixing)
    return repair.covariance_of(program, precision)


def _best(program: Program, mixing: Array | None = None) -> Array:
    return optimal_gram(program, Monitor(gap=settings.DEFAULT_GAP))


def decor_variances(problem: SpaceProblem) -> tuple[float, float]:
    """Squared scales of the best DECOR noise: of every node's own, and of every edge's."""
    return decor.decor_variances(program_of(problem), graph_laplacian(problem.mixing))


def _in_time(problem: TimeProblem, program: Program | TemporalProgram, name: str) -> Noise:
    strategy = _strategy(name, problem.fixed_epoch)
    if problem.participation.random and isinstance(program, TemporalProgram):
        return Noise.of_strategy(program.unit(DenseStrategy(strategy=strategy)))
    strategy = repair.unit_strategy(program, strategy)
    if problem.budget is not None:  # every record moves messages in the units of its own
        strategy *= np.sqrt(np.tile(problem.budget, problem.fixed_epoch.epochs))
    return Noise.of_strategy(DenseStrategy(strategy=strategy))


def _strategy(name: str, participation: FixedEpoch) -> Array:
    make = PUBLISHED[name].strategy
    return np.eye(participation.horizon) if make is None else make(participation)


def banded_square_root(*, horizon: int, bands: int) -> Array:
    """Toeplitz square root of the prefix sums, (T, T), cut to bands and not normalised."""
    # Coefficients binomial(2j, j) / 4^j (Kalinin and Lampert 2024).
    column = np.ones(horizon)
    for j in range(1, horizon):
        column[j] = column[j - 1] * (2 * j - 1) / (2 * j) if j < bands else 0.0
    return np.asarray(np.tril(toeplitz(column)))


def column_normalized_square_root(*, horizon: int) -> Array:
    """Toeplitz square root of the prefix sums, (T, T), with every column scaled to norm 1."""
    # Henzinger, Kalinin and Upadhyay (2025).
    root = banded_square_root(horizon=horizon, bands=horizon)
    return np.asarray(root / np.linalg.norm(root, axis=0))


def banded_inverse_root(*, horizon: int, bands: int, power: float = 0.5) -> Array:
    """C, (T, T), whose inverse is (1 - z)^``power`` cut to bands; not normalised (BISR, BIFR)."""
    coefficients = inverse_root(bands, power=-power)
    return BandedInverse(coefficients=coefficients, steps=horizon).dense()


def best_banded_inverse_root(use: FixedEpoch, *, any_power: bool) -> Array:
    """The one of as many bands, a power of two or all, and of 1/2 or the power, as suit prefix sums
    best, shape (T, T)."""
    horizon = use.horizon
    workload = prefix_workload(horizon=horizon)

    def error(power: float, bands: int) -> float:
        form = BandedInverse(coefficients=inverse_root(bands, power=-power))
        return form.squared_error(workload) * form.squared_sensitivity(use.fixed).squared

    counts = sorted({min(2**power, horizon) for power in range(1, horizon.bit_length() + 1)})
    tried = [(0.5, bands) for bands in counts]
    if any_power:
        tried += [(float(minimize_scalar(error, bounds=(0, 1), args=(n,)).x), n) for n in counts]
    power, bands = min(tried, key=lambda both: error(*both))
    return banded_inverse_root(horizon=horizon, bands=bands, power=power)


def prefix_optimal_strategy(participation: FixedEpoch) -> Array:
    """C of the optimal prefix sums, shape (T, T), of unit squared sensitivity (D-MF)."""
    solution = solve(TimeProblem.prefix(participation=participation.fixed))
    assert solution.design is not None
    return solution.design.strategy


def _unstructured_pair(problem: SpaceTimeProblem, name: str) -> Problem:
    """A trusted server's noise is of rank one across nodes, which no full strategy is."""
    joint = "kronecker" if name == CENTRAL else problem.joint
    free: Problem = replace(problem, time=ANY_TIME, space=ANY_SPACE, joint=joint)
    return free


def _in_both(problem: SpaceTimeProblem, asked: Any, name: str) -> Noise:
    """A pair (C, R), one of which is mostly independent."""
    program, scheme = SpaceTimeProgram.of(problem), problem.participation
    # Of a schedule, the first step.
    once = _checks.square_matrices(problem.step_mixing, field="mixing")[0]
    gram = once.T @ once
    if PUBLISHED[name].of_run:
        gram = program.workload.space_gram(scheme.epochs * np.eye(scheme.horizon))
    in_space = program.space_program(gram)
    try:
        covariance = _covariance(name, in_space, problem.mixing)
    except FreeNoiseError:  # nothing bounds it but a cap, as of the optimum
        if not problem.default_cap:
            raise
        capped = replace(in_space, cap=TIMES[0] / in_space.coordinate_budget)
        covariance = _covariance(name, capped, problem.mixing)
    if name in ("mafalda", CENTRAL):  # the best C beside this R
        in_time = program.time_program(program.workload.time_gram(covariance))
        strategy = repair.strategy_of(in_time, _best(in_time))
    else:
        strategy = _strategy(name, scheme)
        if scheme.random:
            strategy = asked.of_time.unit(DenseStrategy(strategy=strategy)).dense()
        else:
            in_time = program.time_program(np.eye(scheme.horizon))
            strategy = repair.unit_strategy(in_time, strategy)
    if problem.joint == "modal":
        by_modes = ModalStrategy.of_pair(strategy, covariance)
        return replace(Noise.of_strategy(by_modes), nodes=len(covariance), full=True)
    if problem.joint == "kronecker":
        return Noise.of_strategy(DenseStrategy(strategy=strategy), covariance=covariance)
    # C x L, L^T L = R^-1, is lower triangular, and a full design of the same covariance.
    factor = reversed_cholesky(inverse_of_positive(covariance))
    form = DenseStrategy(strategy=np.asarray(np.kron(strategy, factor), dtype=np.float64))
    return replace(Noise.of_strategy(form), full=True)


_MADE: dict[str, tuple[Callable[[Any, str], Problem], Callable[[Any, Any, str], Noise]]] = {
    "space": (lambda problem, name: unstructured(problem), _in_space),
    "time": (lambda problem, name: family_of(problem).relaxed(problem) or problem, _in_time),
    "space-time": (_unstructured_pair, _in_both),
}
"""The problem that judges the baselines of each kind of problem, and the maker of their noise."""

_ALWAYS, _OVER_TIME = ("space", "time", "space-time"), ("time", "space-time")

PUBLISHED = {
    "ldp": Published(axes=_ALWAYS),
    CENTRAL: Published(axes=_ALWAYS, signed=True),
    "whisper-one-step": Published(axes=("space-time",), precision=_best),
    "whisper": Published(axes=("space-time",), precision=_best, of_run=True),
    "decor": Published(
        axes=("space", "space-time"),
        precision=lambda program, w: decor.decor_precision(program, graph_laplacian(w)),
        of_run=True,
    ),
    "mafalda": Published(axes=("space-time",), signed=True),
    "antipgd": Published(
        axes=_OVER_TIME, strategy=lambda use: np.tril(np.ones((use.horizon, use.horizon)))
    ),
    "d-mf": Published(axes=_OVER_TIME, strategy=prefix_optimal_strategy, signed=True),
    "banded-sqrt": Published(
        axes=_OVER_TIME,
        strategy=lambda use: banded_square_root(horizon=use.horizon, bands=use.separation),
    ),
    "normalized-sqrt": Published(
        axes=_OVER_TIME, strategy=lambda use: column_normalized_square_root(horizon=use.horizon)
    ),
    "bisr": Published(
        axes=_OVER_TIME, strategy=lambda use: best_banded_inverse_root(use, any_power=False)
    ),
    "bifr": Published(
        axes=_OVER_TIME, strategy=lambda use: best_banded_inverse_root(use, any_power=True)
    ),
}
