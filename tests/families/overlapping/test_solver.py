"""Designs over all overlapping patterns: the bound, Newton steps, the optimum, what is refused."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings, strategies as st

from noisedesign.base import linalg as _linalg
from noisedesign.base.banded_matrices import dense
from noisedesign.base.checks import InputError
from noisedesign.base.monitor import Monitor, Stop
from noisedesign.certify.certificate import Certificate, judge_strategy
from noisedesign.certify.repair import unit_strategy
from noisedesign.families.banded import solver as banded
from noisedesign.families.banded.program import banded_program
from noisedesign.families.disjoint.solver.pattern_pairs import (
    Blocks,
    ConstantDiagonal,
    Pairs,
    inner,
)
from noisedesign.families.overlapping import solver as min_separation
from noisedesign.families.overlapping.bound import PatternBlocks, overlapping_lower_bound
from noisedesign.families.overlapping.family import overlapping_program
from noisedesign.families.overlapping.solver import Inverse, Newton, Point
from noisedesign.families.temporal import temporal_program
from noisedesign.system.participation import (
    FixedEpoch,
    MinSeparation,
    Participation,
    Patterns,
    every_step,
    single,
)
from tests.support import oracles

Array = oracles.Array


def min_sep(horizon: int, separation: int, most: int) -> MinSeparation:
    return MinSeparation(horizon=horizon, separation=separation, max_participations=most)


def prefix(horizon: int) -> Array:
    summation = np.tril(np.ones((horizon, horizon)))
    return summation.T @ summation


def random_gram(size: int, seed: int) -> Array:
    a = np.random.default_rng(seed).standard_normal((size + 1, size))
    return a.T @ a


def solved(gram: Array, participation: Participation, *, gap: float = 1e-6) -> Certificate:
    program = temporal_program(gram=gram, participation=participation)
    answer = min_separation.solve(program, monitor=Monitor(gap=gap))
    assert answer.stop is Stop.SOLVED
    bound = overlapping_lower_bound(program, answer.multipliers)
    strategy = unit_strategy(program, _linalg.reversed_cholesky(answer.gram))
    certificate = judge_strategy(program, strategy, bound=bound)
    assert certificate.feasible
    assert 0 <= certificate.gap <= gap
    return certificate


def clarabel_optimum(gram: Array, patterns: list[tuple[int, ...]]) -> float:
    """min tr Y, [[Y, L], [L^T, X]] >= 0, X on a pattern <= Diag(y), sum y = 1."""
    import cvxpy as cp

    size = len(gram)
    x = cp.Variable((size, size), symmetric=True)
    y = cp.Variable((size, size), symmetric=True)
    root = np.linalg.cholesky(gram).T
    limits = [cp.bmat([[y, root], [root.T, x]]) >> 0]
    for pattern in patterns:
        select = np.eye(size)[list(pattern)]
        ceiling = cp.Variable(len(pattern))
        slack = cp.diag(ceiling) - select @ x @ select.T
        limits += [slack >> 0 if len(pattern) > 1 else slack[0, 0] >= 0, cp.sum(ceiling) == 1]
    problem = cp.Problem(cp.Minimize(cp.trace(y)), limits)
    problem.solve(solver="CLARABEL", tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    return float(problem.value)


# --- optima ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", [(6, 2, 3), (6, 2, 2), (6, 3, 2), (5, 1, 3)], ids=str)
@pytest.mark.parametrize("kind", ["prefix", "random"])
def test_the_optimum_is_that_of_a_conic_solver(scheme: tuple[int, int, int], kind: str) -> None:
    gram = prefix(scheme[0]) if kind == "prefix" else random_gram(scheme[0], 7)
    value = solved(gram, min_sep(*scheme)).objective
    patterns = oracles.min_separation_patterns(*scheme)
    assert value == pytest.approx(clarabel_optimum(gram, patterns), rel=1e-6)


def test_any_list_of_patterns_will_do() -> None:
    steps = ((0, 1, 3), (2, 3), (1, 4), (0, 2, 4))
    gram = random_gram(5, 2)
    value = solved(gram, Patterns(horizon=5, steps=steps)).objective
    assert value == pytest.approx(clarabel_optimum(gram, list(steps)), rel=1e-6)


def test_disjoint_patterns_have_the_fixed_epoch_optimum() -> None:
    """Which another method finds, on another formulation: X diagonal on patterns."""
    for gram, k, b in ((prefix(12), 3, 4), (random_gram(8, 1), 2, 4)):
        certificate = solved(gram, FixedEpoch(epochs=k, separation=b))
        reference = oracles.fixed_epoch_interval(gram, k, b, width=1e-8)
        assert reference.meets(certificate.lower_bound, certificate.objective)


def test_one_participation_is_a_budget_for_every_step() -> None:
    certificate = solved(prefix(15), min_sep(15, 4, 1))
    reference = oracles.diagonal_interval(prefix(15))
    assert reference.meets(certificate.lower_bound, certificate.objective)


def test_full_participation_is_one_pattern() -> None:
    """One pattern: (sum of H_tt^1/2)^2 where H is diagonal."""
    diagonal = np.diag([1.0, 4.0, 9.0])
    assert solved(diagonal, every_step(3)).objective == pytest.approx(36, rel=1e-6)
    gram = random_gram(4, 3)
    value = solved(gram, every_step(4)).objective
    assert value == pytest.approx(clarabel_optimum(gram, [(0, 1, 2, 3)]), rel=1e-6)


def test_a_band_restriction_loses_a_little_and_no_more() -> None:
    """Known: at most 3 of 12 steps, 4 apart: 8.635 a step, against 8.650 with four bands."""
    scheme = min_sep(12, 4, 3)
    free = solved(prefix(12), scheme)
    program = banded_program(gram=prefix(12), participation=scheme, bands=4)
    answer = banded.solve(program, monitor=Monitor(gap=1e-7))
    held = judge_strategy(program, unit_strategy(program, dense(answer.columns)), bound=0.0)
    assert free.objective / 12 == pytest.approx(8.635, abs=5e-4)
    assert held.objective / 12 == pytest.approx(8.650, abs=5e-4)
    # The banded strategy is feasible for the free problem: the bound holds for it.
    assert free.lower_bound < held.objective


def some_workload(seed: int) -> tuple[Array, MinSeparation]:
    """A workload of 4 to 12 steps, the half of them nearly singular, and a scheme."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(4, 13))
    a = rng.standard_normal((size + seed % 2, size))
    a = a if seed % 2 else np.tril(a)
    most = int(rng.integers(1, 5))
    return a.T @ a, min_sep(size, int(rng.integers(1, 4)), most)


def test_all_of_the_gap_is_closed() -> None:
    """Patterns of little weight are tight at the optimum, and some H are nearly singular."""
    solved(prefix(7), min_sep(7, 2, 2))
    solved(prefix(8), min_sep(8, 1, 2))
    conditions = []
    for seed in (4, 24, 60, 82, 161, 206, 219, 278):
        gram, scheme = some_workload(91000 + seed)
        solved(gram, scheme)
        conditions.append(np.linalg.cond(gram))
    assert max(conditions) > 1e11


@pytest.mark.slow
def test_all_of_the_gap_is_closed_on_every_workload() -> None:
    for seed in range(300):
        gram, scheme = some_workload(91000 + seed)
        if np.linalg.cond(gram) < 1e13:  # others are refused as singular
            solved(gram, scheme)


def test_proofs_leave_out_patterns_with_slack() -> None:
    scheme = min_sep(24, 6, 4)
    program = temporal_program(gram=prefix(24), participation=scheme)
    answer = min_separation.solve(program, monitor=Monitor(gap=1e-6))
    kept = sum(len(m.steps) for m in answer.multipliers)
    assert 0 < kept < scheme.count()
    solved(prefix(24), scheme)


@given(seed=st.integers(0, 10**6), exponent=st.sampled_from([-120, 0, 120]))
@settings(max_examples=8, derandomize=True, deadline=None)
def test_the_scale_of_the_workload_is_free(seed: int, exponent: int) -> None:
    gram = random_gram(6, seed)
    plain = solved(gram, min_sep(6, 2, 3)).objective
    scaled = solved(gram * 10.0**exponent, min_sep(6, 2, 3)).objective
    assert scaled / 10.0**exponent == pytest.approx(plain, rel=2e-6)


# --- bounds ---------------------------------------------------------------------------------------


@given(seed=st.integers(0, 10**6), noise=st.floats(0, 3))
@settings(max_examples=40, derandomize=True, deadline=None)
def test_any_multipliers_bound_every_feasible_design(seed: int, noise: float) -> None:
    rng = np.random.default_rng(seed)
    program = temporal_program(gram=random_gram(6, seed), participation=min_sep(6, 2, 2))
    strategy = np.tril(0.3 * rng.standard_normal((6, 6)), -1) + np.diag(rng.uniform(0.5, 1, 6))
    objective = judge_strategy(program, unit_strategy(program, strategy), bound=0.0).objective
    pairs = [p for p in oracles.min_separation_patterns(6, 2, 2) if len(p) == 2]
    blocks = np.array([np.eye(2) * rng.exponential() for _ in pairs])
    blocks += noise * rng.standard_normal(blocks.shape)
    guess = [PatternBlocks(steps=np.array(pairs), blocks=blocks)]
    bound = overlapping_lower_bound(program, guess)
    assert 0 <= bound <= objective * (1 + 1e-9)
    huge = [PatternBlocks(steps=np.array(pairs), blocks=blocks * 1e200)]
    assert overlapping_lower_bound(program, huge) == pytest.approx(bound, rel=1e-9)


def test_the_bound_of_feasible_multipliers_written_out() -> None:
    """Two patterns that share step 1: U = sum of the blocks, price 2 + 3."""
    program = temporal_program(
        gram=prefix(3), participation=Patterns(horizon=3, steps=((0, 1), (1, 2)))
    )
    blocks = np.array([[[2.0, 0.5], [0.5, 2.0]], [[3.0, -1.0], [-1.0, 3.0]]])
    multipliers = [PatternBlocks(steps=np.array([[0, 1], [1, 2]]), blocks=blocks)]
    u = np.array([[2, 0.5, 0], [0.5, 5, -1], [0, -1, 3]])
    root = scipy.linalg.sqrtm(prefix(3)).real
    expected = np.sqrt(np.linalg.eigvalsh(root @ u @ root)).sum() ** 2 / 5
    bound = overlapping_lower_bound(program, multipliers)
    assert bound == pytest.approx(expected, rel=1e-11)
    assert bound < expected


@pytest.mark.parametrize(
    ("participation", "steps"),
    [
        (min_sep(6, 2, 2), [0, 1]),
        (min_sep(6, 2, 2), [0, 2, 4]),
        (min_sep(6, 2, 2), [2, 0]),
        (min_sep(6, 2, 2), [3, 6]),
        (min_sep(6, 2, 2), [-1, 3]),
        (FixedEpoch(epochs=2, separation=3), [0, 4]),
        (FixedEpoch(epochs=2, separation=3), [3, 0]),
        (Patterns(horizon=6, steps=((0, 1, 2), (3, 4, 5))), [1, 3]),
    ],
)
def test_multipliers_of_no_pattern_are_refused(
    participation: Participation, steps: list[int]
) -> None:
    program = temporal_program(gram=prefix(6), participation=participation)
    blocks = np.eye(len(steps))[None]
    with pytest.raises(InputError, match="steps of patterns"):
        overlapping_lower_bound(program, [PatternBlocks(steps=np.array([steps]), blocks=blocks)])


def test_parts_of_patterns_are_multipliers_too() -> None:
    program = temporal_program(
        gram=prefix(6), participation=Patterns(horizon=6, steps=((0, 1, 2), (3, 4, 5)))
    )
    pairs = PatternBlocks(steps=np.array([[0, 2], [3, 5]]), blocks=np.tile(np.eye(2), (2, 1, 1)))
    ones = PatternBlocks(steps=np.array([[1], [4]]), blocks=np.ones((2, 1, 1)))
    assert overlapping_lower_bound(program, [pairs, ones]) > 0


@pytest.mark.parametrize("value", [0.0, np.nan, np.inf])
def test_useless_multipliers_prove_nothing(value: float) -> None:
    program = temporal_program(gram=prefix(4), participation=single(4))
    blocks = np.full((4, 1, 1), value)
    useless = [PatternBlocks(steps=np.arange(4)[:, None], blocks=blocks)]
    assert overlapping_lower_bound(program, useless) == 0.0
    assert overlapping_lower_bound(program, []) == 0.0


# --- the algebra of a Newton step -----------------------------------------------------------------

GROUPS = [np.array([[0, 2], [1, 3]]), np.array([[0, 2, 4], [0, 3, 5], [1, 3, 5]])]


def some_blocks(seed: int) -> list[Array]:
    """Positive definite, with constant diagonals."""
    rng = np.random.default_rng(seed)
    blocks = []
    for steps in GROUPS:
        v = rng.standard_normal((*steps.shape, 4))
        v /= np.linalg.norm(v, axis=2, keepdims=True)
        blocks.append(rng.uniform(0.5, 2, (len(steps), 1, 1)) * (v @ v.transpose(0, 2, 1)))
    return blocks


def test_sums_and_blocks_are_adjoint_and_packing_keeps_inner_products() -> None:
    pairs = Pairs(6, GROUPS)
    blocks = some_blocks(0)
    total = np.zeros((6, 6))
    for group, u in zip(GROUPS, blocks, strict=True):
        for steps, block in zip(group, u, strict=True):
            total[np.ix_(steps, steps)] += block
    assert pairs.scatter(blocks) == pytest.approx(total)
    other = random_gram(6, 1)
    gathered = pairs.gather(other)
    assert (gathered[1][2] == other[np.ix_([1, 3, 5], [1, 3, 5])]).all()
    packed = pairs.pack(total)
    assert pairs.unpack(packed) == pytest.approx(total)
    assert packed @ packed == pytest.approx(float(np.sum(total**2)))
    # 0-2, 0-4, 2-4, 0-3, 0-5, 3-5, 1-3, 1-5 and six steps alone.
    assert pairs.count == 14
    assert pairs.times_covered.tolist() == [3, 2, 2, 3, 1, 2]


def test_curvature_and_metric_are_the_maps_they_say() -> None:
    pairs = Pairs(6, GROUPS)
    rng = np.random.default_rng(3)
    spread, weights = rng.standard_normal((6, 6)), random_gram(6, 2)
    direction = pairs.unpack(rng.standard_normal(pairs.count))
    image = spread @ ((spread.T @ direction @ spread) * weights) @ spread.T
    curvature = pairs.curvature(spread, weights)
    assert curvature @ pairs.pack(direction) == pytest.approx(pairs.pack(image))
    scaled = [ConstantDiagonal(u) for u in some_blocks(4)]
    applied = [d(x) for d, x in zip(scaled, pairs.gather(direction), strict=True)]
    expected = pairs.pack(pairs.scatter(applied))
    assert pairs.metric(scaled) @ pairs.pack(direction) == pytest.approx(expected)


@pytest.mark.parametrize("size", [1.0, 1e-9, 1e9])
def test_the_barrier_is_inverted_on_blocks_with_constant_diagonals(size: float) -> None:
    """E = U (R + diag m) U has a constant diagonal, and U^-1 E U^-1 - R is diagonal with sum 0."""
    u = some_blocks(5)[1] * size
    right = np.random.default_rng(6).standard_normal(u.shape)
    right = right + right.transpose(0, 2, 1)
    found = ConstantDiagonal(u)(right)
    inverse = np.linalg.inv(u)
    rest = inverse @ found @ inverse - right
    diagonal = np.einsum("jii->ji", found)
    assert np.ptp(diagonal, axis=1) == pytest.approx(np.zeros(len(u)), abs=1e-12 * size**2)
    off = rest - np.einsum("jii->ji", rest)[:, None, :] * np.eye(3)
    assert off == pytest.approx(np.zeros_like(off), abs=1e-8)
    assert np.trace(rest, axis1=1, axis2=2) == pytest.approx(np.zeros(len(u)), abs=1e-8)


@pytest.mark.parametrize("least", [1e-3, 1e-7])
def test_the_barrier_is_inverted_on_blocks_that_are_nearly_singular(least: float) -> None:
    """Against 60 digits, in the metric of the barrier: V E V with V = U^-1/2."""
    rng = np.random.default_rng(4)
    k = 4
    signs, right = np.array([1.0, -1.0, 1.0, 1.0]), random_gram(k, 8)
    other = rng.standard_normal((k, k))
    other /= np.linalg.norm(other, axis=1, keepdims=True)
    u = np.multiply.outer(signs, signs) + least * (other @ other.T)
    u[np.diag_indices(k)] = u[0, 0]
    with mpmath.workdps(60):
        exact = mpmath.matrix(u.tolist())
        scaled = exact * mpmath.matrix(right.tolist()) * exact
        system = mpmath.zeros(k + 1)
        for i in range(k):
            system[i, k], system[k, i] = -1, 1
            for j in range(k):
                system[i, j] = exact[i, j] ** 2
        shift = mpmath.lu_solve(system, mpmath.matrix([*(-scaled[i, i] for i in range(k)), 0]))
        wanted = scaled + exact * mpmath.diag(list(shift[:k])) * exact
        inverse = mpmath.cholesky(exact) ** -1

        def size(matrix: mpmath.matrix) -> float:
            return float(mpmath.mnorm(inverse * matrix * inverse.T, "f"))

        found = Inverse(u[None])(right[None])[0]
        error = mpmath.matrix(found.tolist()) - wanted
        assert size(error) <= 1e-14 / least * size(wanted)


def test_a_newton_step_solves_its_system_of_true_derivatives() -> None:
    scheme = min_sep(6, 2, 3)
    program = temporal_program(gram=random_gram(6, 9), participation=scheme)
    search = min_separation._Search(program, Monitor(gap=1e-6))
    point, barrier = search.point, 0.01
    gradient = Newton(search.pairs, point, barrier).gradient()
    rng = np.random.default_rng(1)
    step = 1e-4

    def moved(length: float, along: Blocks) -> Point:
        return search._evaluate([u + length * d for u, d in zip(point.blocks, along, strict=True)])

    for _ in range(3):
        direction = [
            min_separation.onto_constant_diagonal(rng.standard_normal(u.shape) * u.max())
            for u in point.blocks
        ]
        rise = moved(step, direction).value(barrier) - moved(-step, direction).value(barrier)
        assert rise / (2 * step) == pytest.approx(inner(gradient, direction), rel=1e-5)
    found = Newton(search.pairs, point, barrier).direction(gradient)
    step = 1e-5 / max(float(np.abs(d).max()) for d in found)
    after, before = (
        Newton(search.pairs, moved(length, found), barrier).gradient() for length in (step, -step)
    )
    for plus, minus, wanted in zip(after, before, gradient, strict=True):
        change = (minus - plus) / (2 * step)
        assert change == pytest.approx(wanted, abs=1e-6 * float(np.abs(wanted).max()))


# --- stopping and refusals ------------------------------------------------------------------------


def test_interrupted_and_late_answers_are_feasible_and_bounded() -> None:
    program = temporal_program(gram=prefix(12), participation=min_sep(12, 4, 3))

    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    for monitor, stop in (
        (Monitor(gap=1e-6, progress=interrupt), Stop.INTERRUPTED),
        (Monitor(gap=1e-6, time_limit=0.0), Stop.TIME_LIMIT),
    ):
        answer = min_separation.solve(program, monitor=monitor)
        assert answer.stop is stop
        bound = overlapping_lower_bound(program, answer.multipliers)
        strategy = unit_strategy(program, _linalg.reversed_cholesky(answer.gram))
        certificate = judge_strategy(program, strategy, bound=bound)
        assert certificate.feasible
        assert 0 < bound <= certificate.objective
        assert monitor.history[-1].upper == pytest.approx(certificate.objective, rel=1e-9)


def test_schemes_that_are_too_large_are_refused() -> None:
    monitor = Monitor(gap=1e-6)
    cases = [
        (min_sep(200, 20, 10), "fewer patterns.*banded"),
        (min_sep(130, 2, 2), "pairs of steps.*banded"),
    ]
    for participation, message in cases:
        program = temporal_program(gram=np.eye(participation.horizon), participation=participation)
        with pytest.raises(InputError, match=message):
            min_separation.solve(program, monitor=monitor)
    with pytest.raises(InputError, match="cover every step.*step 2"):
        overlapping_program(gram=np.eye(3), participation=Patterns(horizon=3, steps=((0, 1),)))
