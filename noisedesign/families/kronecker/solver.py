"""Kronecker noise of covariance S x R, by alternating a design in time and a design in space.

With one factor fixed the other one is the convex program again, so tr(H (S x R)) never increases.
What proves the bound on all designs begins with the multipliers of the factors. L-BFGS improves
them, where pairs are few or :mod:`.turned` does not fit, by the logarithm of the bound of
:mod:`.bound` over log v, log p_j and unit rows V_j with P_j = p_j V_j V_j^T. At the end every node
gets multipliers of its own (:mod:`.turned`), where arrays of that fit and patterns are given."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.optimize

from noisedesign.base import linalg as _linalg, settings
from noisedesign.base.checks import Array, InputError
from noisedesign.base.monitor import Monitor, Search, Stop
from noisedesign.certify import repair
from noisedesign.certify.program import Program, denormalized_gram
from noisedesign.families.disjoint import solver
from noisedesign.families.disjoint.attainment import LAZY
from noisedesign.families.disjoint.program import Found, independent_gram, unlimited
from noisedesign.families.family import Answer, Arrays, Seeded, without_multipliers
from noisedesign.families.kronecker import turned
from noisedesign.families.kronecker.bound import Witness, mode_traces, on_patterns
from noisedesign.families.kronecker.program import KroneckerProgram
from noisedesign.families.kronecker.turned import Turned
from noisedesign.families.space_time import MANY_COORDINATES, SpaceTimeProgram
from noisedesign.forms import DenseStrategy, Noise, Strategy, strategy_of_structure
from noisedesign.problem.default_cap import FreeNoiseError
from noisedesign.system.workloads import Workload

SAMPLED_GAP = 1e-3  # relative gain of a sweep that samples of random batches do not tell from none
Step = Callable[[Array], Array]  # from H of one factor to a feasible covariance of small tr(H .)


def solve(program: KroneckerProgram, *, monitor: Monitor) -> Answer:
    """The better of two alternations, each factor designed by the family of its structure."""
    in_time = in_space = start = None
    if program.time.restricts:
        in_time = _StructuredStep(program.time_family, program.in_time, monitor)
    if program.space.restricts:
        in_space = _StructuredStep(program.space_family, program.in_space, monitor)
        if not program.space_family.convex:
            # Independent noise within unequal budgets is none of DECOR, whose nodes are all alike.
            steps = program.participation
            start = in_space(program.workload.space_gram(steps.epochs * np.eye(steps.horizon)))
    how: dict[str, Any] = {"space_step": in_space, "space_start": start}
    if program.target is not None:  # C of random batches takes seconds, and that of fixed ones none
        how["space_start"] = design_kronecker(program, monitor=monitor, **how).space
        how |= {"once": True}
    factors = design_kronecker(program, monitor=monitor, time_step=in_time, **how)
    form: Strategy = DenseStrategy(strategy=factors.strategy(program))
    if in_time is not None:
        found = in_time.of(factors.time)
        made = None if found is None else found[0].strategy
        form = program.of_time.unit(made or strategy_of_structure(program.time, form.dense()))
    witness = witness_of(program, factors, monitor)
    fixed = program.target is None
    proof = dict(proof_of(program, witness, monitor) if fixed else witness.arrays())
    if in_space is not None:  # the blocks that the family in space keeps of R besides multipliers
        known, family = in_space.of(factors.space), program.space_family
        if known is not None:
            proof |= without_multipliers(family, known[1])
        elif isinstance(family, Seeded):
            inner = program.in_space(np.eye(len(factors.space)))
            proof |= family.parts(inner, np.diagonal(factors.space))
    return Answer(
        stop=factors.stop,
        noises=[Noise.of_strategy(form, covariance=factors.space)],
        proof=proof,
        evaluations=len(factors.history),
    )


@dataclass(frozen=True, eq=False)
class _StructuredStep:
    """A step by a family, which keeps noise and proof of every covariance it gave."""

    family: Any
    program_of: Callable[[Array], Any]
    monitor: Monitor
    made: list[tuple[Array, Noise, Arrays]] = field(default_factory=list)

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
        """The noise and proof of a covariance; None if no step made it."""
        return next(((n, proof) for made, n, proof in self.made if made is covariance), None)


@dataclass(frozen=True, kw_only=True, eq=False)
class Factors:
    """The end of an alternation: S, (T, T), R, (n, n), and the objective after every half sweep."""

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
    once: bool = False,
) -> Factors:
    """The better of two alternations, started from Mafalda-SGD and from Whisper D-SGD, until a
    sweep gains less than the monitor's gap. Steps, from H_time(R) to S and from H_space(S) to R,
    are optimal unless given; ``space_start`` is the first R. ``once``: the first one alone, until a
    sweep gains less than samples tell."""

    def optimal_time(gram: Array) -> Array:
        return _linalg.inverse_of_positive(optimal_gram(program.time_program(gram), monitor))

    def optimal_space(gram: Array) -> Array:
        in_space = program.space_program(gram)
        try:
            return repair.covariance_of(in_space, optimal_gram(in_space, monitor))
        except InputError as error:
            if program.workload.one_mixing is None:
                raise
            raise error.told(remedy=f"{error.remedy} {LAZY}") from None

    in_space = np.diag(1 / program.budget) if space_start is None else space_start
    start = program.participation.epochs * np.eye(program.workload.horizon), in_space
    steps = time_step or optimal_time, space_step or optimal_space
    if once:
        monitor = replace(monitor, gap=max(monitor.gap, SAMPLED_GAP))
    found = [alternate(program.workload, start, steps, time_first=True, monitor=monitor)]
    if not (once or monitor.expired or found[0].stop is Stop.INTERRUPTED):
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
    """Alternate from S and R, by steps, until a sweep gains less than ``monitor.gap``."""
    (time, space), (time_step, space_step) = start, steps
    in_time = workload.time_gram(space)
    objective = float(np.sum(in_time * time))
    history = [objective]
    with Search(monitor) as search:
        for half in range(2 * 200):
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


def _answer(program: Program, monitor: Monitor) -> Found:
    """The native solver's answer to a program, at unit budgets, that is one step of many."""
    gap = 0.1 * monitor.gap
    if program.axes == "time" and unlimited(program):
        # Noise that costs nothing grows as 1 / gap, and no product is as near to its bound.
        gap = max(gap, 1e-4)
    step = Monitor(gap=gap, time_limit=monitor.time_left)
    answer = solver.solve(program.normalized(), monitor=step)
    if answer.stop is Stop.INTERRUPTED:
        raise KeyboardInterrupt
    return answer


def optimal_gram(program: Program, monitor: Monitor) -> Array:
    """A feasible X of a program, shape (m, m), to a tenth of the monitor's gap."""
    unit, answer = program.normalized(), _answer(program, monitor)
    assert answer.gram is not None
    assert answer.dual is not None
    direction = None
    if program.axes == "space" and answer.stop is not Stop.TIME_LIMIT:
        direction = repair.unbounded_direction(unit, answer.gram, dual=answer.dual)
    if direction is not None:
        cap = f"{settings.SUGGESTED_CAP / program.coordinate_budget.min():.2g}"
        raise FreeNoiseError(
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
    """Multipliers of the two factors' programs, improved together where nothing else does."""

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
    many = workload.nodes * workload.horizon > MANY_COORDINATES
    if modes is None or (many and turned.fits(program)):
        return witness
    # The distance between Kronecker and full designs is a thousand times this gap.
    return improved(witness, program, monitor=Monitor(gap=1e-5, time_limit=monitor.time_left))


def proof_of(program: SpaceTimeProgram, witness: Witness, monitor: Monitor) -> Arrays:
    """The proof of the bound where patterns are given, and not drawn."""
    found = witness.arrays()
    if not monitor.expired and turned.fits(program):
        with contextlib.suppress(KeyboardInterrupt):
            found = turning(witness, program, monitor=monitor).arrays()
    return found


def turning(witness: Witness, program: SpaceTimeProgram, *, monitor: Monitor) -> Turned:
    """Multipliers of every node's own from P x diag(v); the best so far when time is up."""
    best, value = Turned.of(program, witness), 0.0
    with contextlib.suppress(KeyboardInterrupt):
        for _ in range(8):  # two or three are usual
            before, (value, best) = value, turned.improved(program, best)
            if monitor.expired or value <= before * (1 + 1e-4):
                break
    return best


SMALLEST_WEIGHT = 1e-12  # least relative multiplier of a start: at zero its log could not move


def _split(x: Array, program: SpaceTimeProgram) -> tuple[Array, Array, Array, Array]:
    """v, p, the unit rows of every V_j, shape (b, k, k), and the lengths they had."""
    n, b, k = len(program.budget), program.participation.separation, program.participation.epochs
    log_weights, log_prices, rows = np.split(x, [n, n + b])
    rows = rows.reshape(b, k, k)
    lengths = np.linalg.norm(rows, axis=2, keepdims=True)
    return np.exp(log_weights), np.exp(log_prices), rows / lengths, lengths


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
        per_mode[j], polar = turned.polar(factor @ root)
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
    """A witness of a workload with modes whose bound is at least as large, up to rounding."""
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
            options={"maxcor": 20, "maxfun": 60, "ftol": monitor.gap, "gtol": 0.0},
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
