"""Kronecker noise of covariance S x R, by alternating a design in time and a design in space.

With one factor fixed the other one is the convex program again, with Gram matrix time_gram(R) or
space_gram(S), so the objective tr(H (S x R)) never increases. The two factors together are not
convex; the alternation starts from independent noise, and which factor is designed first decides
where it goes: time first begins with Mafalda-SGD, space first with Whisper D-SGD for all T steps.

How a factor is designed is the caller's choice. A step is any function from a Gram matrix to a
feasible covariance; what does not improve on the present factor is not taken.

What proves the bound on all space-time designs begins with the multipliers of the two factors. At
the end every node gets multipliers of its own (:mod:`.turned`), where arrays of that fit and
patterns are given. Before, where pairs are few, or else instead of that, the witness is improved by
L-BFGS, which maximises the logarithm of the bound of :mod:`noisedesign.families.kronecker.bound`,

    2 log || diag(v)^1/2 Q diag(c) ||_* - log <budget, v> - log sum_j p_j,
    c_i = || A_i F ||_*,   F F^T = P,

over log v, log p_j and unit rows V_j with P_j = p_j V_j V_j^T, so that every point is feasible.
A nuclear norm has its polar factor for gradient. An evaluation costs one eigendecomposition of
size T a mode, and one singular value decomposition of size n.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.optimize

from noisedesign.base import linalg as _linalg, settings
from noisedesign.base.checks import Array, InputError
from noisedesign.base.monitor import Monitor, Search, Stop
from noisedesign.families.disjoint import solver
from noisedesign.families.disjoint.attainment import LAZY
from noisedesign.families.disjoint.program import Found, independent_gram, unlimited
from noisedesign.families.kronecker import turned
from noisedesign.families.kronecker.bound import Witness, mode_traces, on_patterns
from noisedesign.families.kronecker.program import KroneckerProgram
from noisedesign.families.kronecker.turned import Turned
from noisedesign.program import repair
from noisedesign.program.family import Answer, Arrays
from noisedesign.program.noise import DenseStrategy, Noise, Strategy, strategy_of_structure
from noisedesign.program.program import Program, denormalized_gram
from noisedesign.program.space_time import MAX_COORDINATES, SpaceTimeProgram
from noisedesign.system.workloads import Workload

Step = Callable[[Array], Array]
"""From a Gram matrix H of one factor to a feasible covariance that makes tr(H .) small."""

MAX_SWEEPS = 200

STEP_GAP_SHARE = 0.1
"""Gap of a step of the alternation, as a share of what a sweep must gain to go on."""

UNLIMITED_GAP = 1e-4
"""Least gap of a step in time whose H is singular: noise that costs nothing grows as its inverse,
and no product is as near to its bound."""

WITNESS_GAP = 1e-5
"""Relative gain below which the lower bound of a Kronecker design is no further improved: the
distance between Kronecker and full designs is a thousand times larger."""


def solve(program: KroneckerProgram, *, monitor: Monitor) -> Answer:
    """The better of two alternations, each factor designed by the family of its structure.

    Raises:
        InputError: noise in a null direction of W is free, and nothing caps it.
    """
    in_time = in_space = start = None
    if program.time.restricts:
        in_time = _StructuredStep(program.time_family, program.in_time, monitor)
    if program.space.restricts:
        in_space = _StructuredStep(program.space_family, program.in_space, monitor)
        if not program.space_family.convex:
            # Independent noise within unequal budgets is none of DECOR, whose nodes are all alike.
            steps = program.participation
            start = in_space(program.workload.space_gram(steps.epochs * np.eye(steps.horizon)))
    factors = design_kronecker(
        program, monitor=monitor, time_step=in_time, space_step=in_space, space_start=start
    )
    form: Strategy = DenseStrategy(strategy=factors.strategy(program))
    if in_time is not None:
        found = in_time.of(factors.time)
        made = None if found is None else found[0].strategy
        form = program.of_time.unit(made or strategy_of_structure(program.time, form.dense()))
    witness = witness_of(program, factors, monitor)
    fixed = program.target is None
    proof = proof_of(program, witness, monitor) if fixed else witness.arrays()
    return Answer(
        stop=factors.stop,
        noises=[Noise.of_strategy(form, covariance=factors.space)],
        proof={**proof, **_parts(program, factors.space, in_space)},
        evaluations=len(factors.history),
    )


class _StructuredStep:
    """A step by a family, which keeps the noise and the proof that every covariance came with."""

    def __init__(self, family: Any, program_of: Callable[[Array], Any], monitor: Monitor) -> None:
        self.family, self.program_of, self.monitor = family, program_of, monitor
        self.made: list[tuple[Array, Noise, Arrays]] = []

    def __call__(self, gram: Array) -> Array:
        monitor = Monitor(gap=self.monitor.gap, time_limit=self.monitor.time_left)
        answer = self.family.solve(self.program_of(gram), monitor=monitor)
        noise = next(iter(answer.noises))
        if noise.strategy is None:
            covariance = noise.covariance
        else:
            covariance = _linalg.inverse_of_positive(noise.dense_strategy.T @ noise.dense_strategy)
        self.made.append((covariance, noise, answer.proof))
        return np.asarray(covariance)

    def of(self, covariance: Array) -> tuple[Noise, Arrays] | None:
        """None of what no step made: of the factor that the alternation began with."""
        for made, noise, proof in self.made:
            if made is covariance:
                return noise, proof
        return None


def _parts(program: KroneckerProgram, covariance: Array, step: _StructuredStep | None) -> Arrays:
    """What the family in space keeps of R besides multipliers."""
    if step is None:
        return {}
    found = step.of(covariance)
    if found is not None:
        return dict(step.family.without_multipliers(found[1]))
    inner = step.program_of(np.eye(len(covariance)))
    parts: Arrays = step.family.parts(inner, np.diagonal(covariance))
    return parts


# --- the alternation ------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class Factors:
    """Where the alternation ended.

    ``time`` is S, shape (T, T), ``space`` is R, shape (n, n); ``history`` is the objective
    (squared noise) at the start and after every half sweep, and never increases.
    """

    time: Array
    space: Array
    history: tuple[float, ...]
    stop: Stop

    @property
    def objective(self) -> float:
        """tr(H (S x R)), squared noise."""
        return self.history[-1]

    def strategy(self, program: SpaceTimeProgram) -> Array:
        """C, shape (T, T), lower triangular, of unit squared sensitivity."""
        unit = program.time_program(np.eye(len(self.time)))
        return repair.unit_strategy(unit, np.linalg.inv(np.linalg.cholesky(self.time)))


def design_kronecker(
    program: SpaceTimeProgram,
    *,
    monitor: Monitor,
    time_step: Step | None = None,
    space_step: Step | None = None,
    space_start: Array | None = None,
) -> Factors:
    """The better of two alternations, started from Mafalda-SGD and from Whisper D-SGD.

    Args:
        monitor: its gap is the relative gain of a sweep below which to stop.
        time_step: from H_time(R), shape (T, T), to a covariance S of squared sensitivity at most
            1; default the optimal one. A structured family of strategies goes here.
        space_step: from H_space(S), shape (n, n), to a covariance R with diag(R^-1) <= budget.
        space_start: R to begin with, shape (n, n); default independent noise, which has to be of
            the structure of ``space_step`` where that has one.

    Raises:
        InputError: noise in a null direction of W is free, and nothing caps it.
    """

    def optimal_time(gram: Array) -> Array:
        return _linalg.inverse_of_positive(optimal_gram(program.time_program(gram), monitor))

    def optimal_space(gram: Array) -> Array:
        in_space = program.space_program(gram)
        try:
            return repair.covariance_of(in_space, optimal_gram(in_space, monitor))
        except InputError as error:
            if program.workload.modes is None:
                raise
            raise error.told(remedy=f"{error.remedy} {LAZY}") from None

    in_space = np.diag(1 / program.budget) if space_start is None else space_start
    start = program.participation.epochs * np.eye(program.workload.horizon), in_space
    steps = time_step or optimal_time, space_step or optimal_space
    found = [alternate(program.workload, start, steps, time_first=True, monitor=monitor)]
    if not (monitor.expired or found[0].stop is Stop.INTERRUPTED):
        found.append(alternate(program.workload, start, steps, time_first=False, monitor=monitor))
    return min(found, key=lambda factors: factors.objective)


def alternate(
    workload: Workload,
    start: tuple[Array, Array],
    steps: tuple[Step, Step],
    *,
    time_first: bool,
    monitor: Monitor,
) -> Factors:
    """Alternate until a sweep gains less than the relative ``monitor.gap``.

    The monitor's lower bounds are 0: alternating proves none.

    Args:
        start: S, shape (T, T), and R, shape (n, n), to start from; ``steps``: in time, in space.
    """
    (time, space), (time_step, space_step) = start, steps
    in_time = workload.time_gram(space)
    objective = float(np.sum(in_time * time))
    history = [objective]
    with Search(monitor) as search:
        for half in range(2 * MAX_SWEEPS):
            if (half % 2 == 0) == time_first:
                time = min(time, time_step(in_time), key=lambda s: float(np.sum(in_time * s)))
            else:
                gram = workload.space_gram(time)
                space = min(space, space_step(gram), key=lambda r: float(np.sum(gram * r)))
                in_time = workload.time_gram(space)
            # The two ways to the same trace differ by rounding.
            objective = min(objective, float(np.sum(in_time * time)))
            history.append(objective)
            monitor.report(lower=0.0, upper=objective)
            settled = half >= 1 and history[-3] <= objective * (1 + monitor.gap)
            if search.ended(solved=settled):
                break
    return Factors(time=time, space=space, history=tuple(history), stop=search.stop)


# --- optimal factors, and what proves a bound -----------------------------------------------------


def _answer(program: Program, monitor: Monitor) -> Found:
    """The native solver's answer to a program, at unit budgets, that is one step of many."""
    gap = STEP_GAP_SHARE * monitor.gap
    if program.axes == "time" and unlimited(program):
        gap = max(gap, UNLIMITED_GAP)
    step = Monitor(gap=gap, time_limit=monitor.time_left)
    answer = solver.solve(program.normalized(), monitor=step)
    if answer.stop is Stop.INTERRUPTED:
        raise KeyboardInterrupt
    return answer


def optimal_gram(program: Program, monitor: Monitor) -> Array:
    """A feasible X of a program, shape (m, m), to a tenth of the monitor's gap.

    Raises:
        InputError: noise of nodes in a null direction of H is free, and nothing caps it.
    """
    unit, answer = program.normalized(), _answer(program, monitor)
    assert answer.gram is not None
    assert answer.dual is not None
    direction = None
    if program.axes == "space" and answer.stop is not Stop.TIME_LIMIT:
        direction = repair.unbounded_direction(unit, answer.gram, dual=answer.dual)
    if direction is not None:
        cap = f"{settings.SUGGESTED_CAP / program.coordinate_budget.min():.2g}"
        raise InputError(
            "mixing",
            expected="a matrix W, and an error, whose optimal noise is bounded",
            got="a singular H: noise of the nodes along a null direction costs nothing, and no "
            "budget seems to bound it",
            remedy=f'Cap the variance, of joint = "kronecker": max_variance={cap} in Python, '
            f"[limits] max_variance = {cap} in a problem file.",
        )
    gram = repair.feasible_gram(unit, answer.gram, dual=answer.dual)
    return denormalized_gram(program, independent_gram(unit) if gram is None else gram)


def witness_of(program: SpaceTimeProgram, factors: Factors, monitor: Monitor) -> Witness:
    """Multipliers of the two factors' programs, improved together where the workload has modes and
    nothing else improves them."""

    def multipliers(of: Program) -> Array:
        answer = _answer(replace(of, cap=None), monitor)
        assert answer.dual is not None
        return answer.dual.denormalized(of).blocks

    workload, modes = program.workload, program.workload.modes
    witness = Witness.uniform(program)
    with contextlib.suppress(KeyboardInterrupt):
        in_time = program.time_program(workload.time_gram(factors.space))
        witness = replace(witness, blocks=multipliers(in_time))
        if modes is None:
            gram = workload.space_gram(factors.time)
        else:
            traces = mode_traces(program, witness.blocks)
            gram = (modes.basis * np.square(traces)) @ modes.basis.T
        in_space = program.space_program(gram)
        witness = replace(witness, weights=multipliers(in_space)[:, 0, 0])
    many = workload.nodes * workload.horizon > MAX_COORDINATES
    if modes is None or (many and turned.fits(program)):
        return witness
    step = Monitor(gap=WITNESS_GAP, time_limit=monitor.time_left)
    return improved(witness, program, monitor=step)


def proof_of(program: SpaceTimeProgram, witness: Witness, monitor: Monitor) -> Arrays:
    """What proves the bound where patterns are given, and not drawn."""
    found = witness.arrays()
    if not monitor.expired and turned.fits(program):
        with contextlib.suppress(KeyboardInterrupt):
            found = turning(witness, program, monitor=monitor).arrays()
    return found


MOST_ROUNDS = 8
"""Of one polar factor a mode each: two or three are usual."""
ROUND_GAIN = 1e-4
"""Relative gain of a round below which there is no other."""


def turning(witness: Witness, program: SpaceTimeProgram, *, monitor: Monitor) -> Turned:
    """Multipliers of every node's own from P x diag(v); the best so far when time is up, or the
    user interrupts."""
    best = Turned.of(program, witness)
    value = 0.0
    with contextlib.suppress(KeyboardInterrupt):
        for _ in range(MOST_ROUNDS):
            before, (value, best) = value, turned.improved(program, best)
            if monitor.expired or value <= before * (1 + ROUND_GAIN):
                break
    return best


# --- the witness, improved ------------------------------------------------------------------------

MAX_EVALUATIONS = 60
MEMORY = 20
"""Pairs that L-BFGS remembers: the variables are many and the evaluations few."""
SMALLEST_WEIGHT = 1e-12
"""A relative multiplier below which its logarithm is not started: at zero it could not move."""


def _split(x: Array, program: SpaceTimeProgram) -> tuple[Array, Array, Array, Array]:
    """v, p, the unit rows of every V_j, shape (b, k, k), and the lengths they had."""
    n, b, k = len(program.budget), program.participation.separation, program.participation.epochs
    log_weights, log_prices, rows = np.split(x, [n, n + b])
    rows = rows.reshape(b, k, k)
    lengths = np.linalg.norm(rows, axis=2, keepdims=True)
    return np.exp(log_weights), np.exp(log_prices), rows / lengths, lengths


def _polar(a: Array) -> tuple[float, Array]:
    """Nuclear norm and polar factor of a tall or square matrix, from the Gram matrix of it."""
    squared, basis = np.linalg.eigh(a.T @ a)
    root = np.sqrt(np.maximum(squared, settings.EPS * max(squared[-1], np.finfo(np.float64).tiny)))
    return float(root.sum()), np.asarray(((a @ basis) / root) @ basis.T)


def log_bound(x: Array, program: SpaceTimeProgram) -> tuple[float, Array]:
    """Logarithm of the bound, and its gradient in x = (log v, log p, rows)."""
    modes, budget, participation = program.workload.modes, program.budget, program.participation
    assert modes is not None
    weights, prices, unit, lengths = _split(x, program)
    roots = np.sqrt(prices)[:, None, None] * unit
    root = on_patterns(roots, participation)
    patterns = participation.patterns
    per_mode = np.empty(len(budget))
    slopes = np.empty((len(budget), *roots.shape))
    for j in range(len(budget)):
        factor = modes.factor(j)
        per_mode[j], polar = _polar(factor @ root)
        slopes[j] = (factor.T @ polar)[patterns[:, :, None], patterns[:, None, :]]
    mixed = np.sqrt(weights)[:, None] * modes.basis
    left, values, right = np.linalg.svd(mixed * per_mode)
    polar, trace = left @ right, float(values.sum())
    by_mode = np.einsum("uj,uj->j", polar, mixed)  # of the norm, along c
    by_weight = np.einsum("uj,uj->u", polar, mixed * per_mode) / 2  # along log v
    by_root = np.tensordot(by_mode, slopes, axes=1)
    by_unit = np.sqrt(prices)[:, None, None] * by_root
    radial = np.sum(by_unit * unit, axis=2, keepdims=True)
    priced = float(budget @ weights)
    gradient = np.concatenate(
        [
            2 * by_weight / trace - budget * weights / priced,
            np.einsum("jkl,jkl->j", by_root, roots) / trace - prices / prices.sum(),
            (2 / trace * (by_unit - radial * unit) / lengths).ravel(),
        ]
    )
    return 2 * np.log(trace) - float(np.log(priced) + np.log(prices.sum())), gradient


def improved(witness: Witness, program: SpaceTimeProgram, *, monitor: Monitor) -> Witness:
    """A witness with a bound at least as large, up to rounding, for a workload with modes.

    Stops when an iteration gains less than the relative ``monitor.gap``, and returns the best
    witness so far when time is up or the user interrupts.
    """
    best = _start(witness)
    best_value, first = -np.inf, None

    def negative(x: Array) -> tuple[float, Array]:
        nonlocal best_value, best, first
        value, gradient = log_bound(x, program)
        if value > best_value:
            best_value, best = value, x.copy()
        if monitor.expired:
            raise TimeoutError  # the way out of the minimiser
        # The minimiser stops on changes relative to the value: it is kept near zero.
        first = value if first is None else first
        return first - value, -gradient

    with contextlib.suppress(TimeoutError, KeyboardInterrupt):
        scipy.optimize.minimize(
            negative,
            best,
            jac=True,
            method="L-BFGS-B",
            options={"maxcor": MEMORY, "maxfun": MAX_EVALUATIONS, "ftol": monitor.gap, "gtol": 0.0},
        )
    weights, prices, unit, _ = _split(best, program)
    blocks = unit @ unit.transpose(0, 2, 1) * prices[:, None, None]
    return Witness(blocks=blocks, weights=weights)


def _start(witness: Witness) -> Array:
    """Variables of a witness, moved off the boundary, each scale normalised."""
    prices = witness.blocks[:, 0, 0] / witness.blocks[:, 0, 0].max()
    prices = np.maximum(prices, SMALLEST_WEIGHT)
    values, vectors = np.linalg.eigh(witness.blocks)
    values = np.maximum(values, SMALLEST_WEIGHT * values[:, -1:])
    root = (vectors * np.sqrt(values)[:, None, :]) @ vectors.transpose(0, 2, 1)
    weights = np.maximum(witness.weights / witness.weights.max(), SMALLEST_WEIGHT)
    return np.concatenate([np.log(weights), np.log(prices), root.ravel()])
