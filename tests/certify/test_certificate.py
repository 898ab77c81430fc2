"""Certificates: bounds that hold for any multipliers, repairs, exact feasibility, attainment."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import networkx as nx
import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st
from hypothesis.extra.numpy import arrays

from noisedesign.base import linalg as _linalg
from noisedesign.base.checks import InputError
from noisedesign.certify import repair
from noisedesign.certify.certificate import (
    Certificate,
    judge_covariance,
    judge_strategy,
    lower_bound,
    repaired_dual,
)
from noisedesign.certify.program import (
    DualPoint,
    Program,
    denormalized_gram,
    diagonal_dual,
    uniform_dual,
)
from noisedesign.design.solve import solve
from noisedesign.families.disjoint.program import program_of
from noisedesign.problem.problem import Problem, SpaceProblem, TimeProblem
from noisedesign.system.participation import FixedEpoch
from tests.support import oracles

ROUNDING = 1e-12
ATTAINED = 1e-10
"""Relative: a bound gives up what its own rounding could have added."""
FLORENTINE = oracles.metropolis(nx.florentine_families_graph())
RING5 = oracles.metropolis(nx.cycle_graph(5))
EVERY_FLOAT = st.floats(allow_nan=True, allow_infinity=True)
MODERATE = st.floats(-1e3, 1e3)


def space(w: np.ndarray, **kwargs: Any) -> SpaceProblem:
    return SpaceProblem(mixing=w, **kwargs)


def prefix(epochs: int, separation: int) -> TimeProblem:
    return TimeProblem.prefix(participation=FixedEpoch(epochs=epochs, separation=separation))


def blocks(program: Program, elements: st.SearchStrategy[float]) -> st.SearchStrategy[np.ndarray]:
    k, b = program.participation.epochs, program.participation.separation
    return arrays(np.float64, (b, k, k), elements=elements)


# --- a lower bound from anything ------------------------------------------------------------------

RING = program_of(space(RING5))
RING_OPTIMUM = oracles.vertex_transitive_optimum(RING5)
CAPPED = program_of(space(np.full((5, 5), 0.2), max_variance=3.0))
CAPPED_OPTIMUM = oracles.complete_graph_capped(5, cap=3.0)
EPOCHS = program_of(prefix(2, 2))
EPOCHS_OPTIMUM = oracles.fixed_epoch_interval(EPOCHS.gram, 2, 2, width=1e-12).upper
EVERY = program_of(prefix(4, 1))
EVERY_OPTIMUM = oracles.every_step_optimum(EVERY.gram)


@settings(derandomize=True, deadline=None, max_examples=100)
@given(u=blocks(RING, EVERY_FLOAT))
@example(u=np.full((5, 1, 1), 1e308))
@example(u=np.full((5, 1, 1), 5e-324))
@example(u=np.array([1e308, 5e-324, 1, -1, 0]).reshape(5, 1, 1))
def test_no_multipliers_beat_the_ring(u: np.ndarray) -> None:
    assert 0 <= lower_bound(RING, DualPoint(blocks=u)) <= RING_OPTIMUM * (1 + ROUNDING)


@settings(derandomize=True, deadline=None, max_examples=100)
@given(u=blocks(EPOCHS, st.one_of(MODERATE, EVERY_FLOAT)))
@example(u=np.full((2, 2, 2), 1e308))
@example(u=np.full((2, 2, 2), 5e-324))
@example(u=np.stack([np.array([[0.0, 1], [-1, 0]]), np.array([[1.0, 2], [2, 1]])]))
def test_no_blocks_beat_two_epochs(u: np.ndarray) -> None:
    """Indefinite, asymmetric, with unequal diagonals, infinite: repaired, or worth nothing."""
    assert 0 <= lower_bound(EPOCHS, DualPoint(blocks=u)) <= EPOCHS_OPTIMUM * (1 + ROUNDING)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(u=blocks(EVERY, MODERATE))
def test_no_block_beats_every_step(u: np.ndarray) -> None:
    assert 0 <= lower_bound(EVERY, DualPoint(blocks=u)) <= EVERY_OPTIMUM * (1 + ROUNDING)


@pytest.mark.parametrize("seed", range(12))
def test_blocks_of_rank_one_prove_no_more_than_the_optimum(seed: int) -> None:
    """U = v v^T, with unequal diagonals that the repair makes the largest of them."""
    v = np.random.default_rng(seed).standard_normal(4)
    dual = DualPoint(blocks=np.outer(v, v)[None])
    assert 0 < lower_bound(EVERY, dual) <= EVERY_OPTIMUM * (1 + ROUNDING)


@settings(derandomize=True, deadline=None, max_examples=100)
@given(
    u=blocks(CAPPED, st.one_of(MODERATE, EVERY_FLOAT)),
    w=arrays(np.float64, 5, elements=st.one_of(MODERATE, EVERY_FLOAT)),
)
@example(u=np.ones((5, 1, 1)), w=np.full(5, 1e308))
@example(u=np.ones((5, 1, 1)), w=np.full(5, 1e12))
@example(u=np.full((5, 1, 1), 1e308), w=np.zeros(5))
def test_no_multipliers_beat_the_cap(u: np.ndarray, w: np.ndarray) -> None:
    found = lower_bound(CAPPED, DualPoint(blocks=u, cap=w))
    assert 0 <= found <= CAPPED_OPTIMUM * (1 + ROUNDING)


@pytest.mark.parametrize("w", [1.0, 1e6, 1e12])
def test_huge_cap_multipliers_prove_nothing_by_cancellation(w: float) -> None:
    # A cap just above 1 / tau makes bound and price two large numbers of the same size.
    cap = 1 + 1e-9
    program = program_of(space(np.full((5, 5), 0.2), max_variance=cap))
    dual = diagonal_dual(np.ones(5), cap=np.full(5, w))
    assert lower_bound(program, dual) <= oracles.complete_graph_capped(5, cap=cap) * (1 + ROUNDING)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_multipliers_that_are_no_numbers_prove_nothing(bad: float) -> None:
    u = np.ones((5, 1, 1))
    u[2] = bad
    assert lower_bound(RING, DualPoint(blocks=u)) == 0
    dual = diagonal_dual(np.ones(5), cap=np.array([0, 0, bad, 0, 0]))
    assert lower_bound(CAPPED, dual) == 0


def test_no_multipliers_prove_nothing() -> None:
    assert lower_bound(RING, diagonal_dual(np.zeros(5))) == 0
    assert lower_bound(RING, diagonal_dual(-np.ones(5))) == 0
    assert lower_bound(EPOCHS, DualPoint(blocks=np.zeros((2, 2, 2)))) == 0


def test_the_bound_is_not_merely_safe() -> None:
    """At the right multipliers it is the optimum, and off them it falls off to second order."""
    best = lower_bound(RING, uniform_dual(RING))
    assert best == pytest.approx(RING_OPTIMUM, rel=ATTAINED)
    assert lower_bound(RING, diagonal_dual(np.full(5, 1e-5))) == pytest.approx(best, rel=ATTAINED)
    tilted = lower_bound(RING, diagonal_dual(np.linspace(1, 1.004, 5)))
    assert best * (1 - 1e-5) < tilted < best


def test_the_optimal_block_where_every_step_takes_part() -> None:
    # X = diag(x), x_t ~ sqrt(H_tt): U = X^-1 H X^-1 has the constant diagonal H_tt / x_t^2.
    x = np.sqrt(np.diagonal(EVERY.gram))
    u = EVERY.gram / x[:, None] / x
    assert lower_bound(EVERY, DualPoint(blocks=u[None])) == pytest.approx(
        EVERY_OPTIMUM, rel=ATTAINED
    )


@settings(derandomize=True, deadline=None, max_examples=50)
@given(seed=st.integers(0, 10**6), k=st.integers(1, 3), b=st.integers(1, 3))
def test_the_formula_is_the_plain_one(seed: int, k: int, b: int) -> None:
    """Against dense square roots, for blocks that need no repair."""
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((k * b, k * b))
    scheme = FixedEpoch(epochs=k, separation=b)
    program = program_of(
        TimeProblem.from_gram(gram=(a.T @ a + (a.T @ a).T) / 2, participation=scheme)
    )
    v = rng.standard_normal((b, k, k))
    v /= np.linalg.norm(v, axis=2, keepdims=True)
    u = rng.uniform(0.1, 2, size=(b, 1, 1)) * (v @ v.transpose(0, 2, 1))
    plain = oracles.block_lower_bound(program.gram, oracles.fixed_epoch_patterns(k, b), u)
    assert lower_bound(program, DualPoint(blocks=u)) == pytest.approx(plain, rel=1e-7)


@settings(derandomize=True, deadline=None, max_examples=40)
@given(seed=st.integers(0, 10**6), rows=st.integers(1, 5), decades=st.integers(0, 18))
def test_the_nuclear_norm_is_never_overstated(seed: int, rows: int, decades: int) -> None:
    """By not so much as a rounding, whatever the condition; 50 digits decide."""
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((rows, 4)) * 10.0 ** -rng.uniform(0, decades, 4)
    with mpmath.workdps(50):
        exact = sum(mpmath.svd_r(mpmath.matrix(a.tolist()), compute_uv=False))
    found = _linalg.nuclear_norm(a)
    assert found <= exact
    assert found >= exact * (1 - ATTAINED)


@pytest.mark.parametrize(
    ("graph", "dimension"),
    [
        (nx.cycle_graph(5), 0),
        (nx.cycle_graph(6), 2),  # eigenvalues (1 + 2 cos(2 pi j / 6)) / 3 vanish at j = 2, 4
        (nx.star_graph(6), 1),
        (nx.complete_graph(5), 4),
        (nx.path_graph(12), 1),
    ],
)
def test_null_spaces(graph: nx.Graph, dimension: int) -> None:
    w = oracles.metropolis(graph)
    null = program_of(space(w)).null_space
    assert null.shape == (len(w), dimension)
    np.testing.assert_allclose(w @ null, 0, atol=1e-14)
    np.testing.assert_allclose(null.T @ null, np.eye(dimension), atol=1e-14)


def test_a_small_eigenvalue_is_not_a_zero() -> None:
    for smallest in (1e-4, 1e-10):
        factor = np.diag([1.0, 0.5, smallest])
        program = Program(
            gram=factor @ factor,
            participation=FixedEpoch(epochs=1, separation=3),
            budget=np.ones(3),
            exact_factor=factor,
        )
        assert program.null_space.shape == (3, 0)


def nuclear_norm_squared(gram: mpmath.matrix, u: np.ndarray) -> mpmath.mpf:
    """( tr (U^1/2 N U^1/2)^1/2 )^2 for diagonal U, which has to be finite."""
    n = len(u)
    root = [mpmath.sqrt(mpmath.mpf(float(x))) for x in u]
    scaled = mpmath.matrix(n)
    for i in range(n):
        for j in range(n):
            scaled[i, j] = root[i] * gram[i, j] * root[j]
    values = mpmath.eigsy(scaled, eigvals_only=True)
    return sum(mpmath.sqrt(max(value, 0)) for value in values) ** 2


def test_the_bound_is_below_its_formula_without_any_tolerance() -> None:
    """A claim about rounding: half of these would be above it by a few units in the last place."""
    rng = np.random.default_rng(0)
    for w in (np.full((5, 5), 0.2), RING5, *10 * [FLORENTINE]):
        u = rng.uniform(0.1, 1, len(w))
        found = lower_bound(program_of(space(w)), diagonal_dual(u))
        with mpmath.workdps(50):
            factor = mpmath.matrix(w.tolist())
            price = sum(mpmath.mpf(float(x)) for x in u / u.max())
            exact = nuclear_norm_squared(factor.T * factor, u / u.max()) / price
            assert mpmath.mpf(found) <= exact
            assert found >= exact * (1 - mpmath.mpf("1e-12"))


@pytest.mark.parametrize("seed", range(8))
def test_a_floor_at_the_price_that_leaves_nothing_is_below_its_formula_too(seed: int) -> None:
    """Multipliers u too large are lowered until N = H - diag(u) is all but singular, which takes
    half the digits of the Cholesky factor that the bound is computed from."""
    rng = np.random.default_rng(seed)
    w = (RING5 + np.eye(5)) / 2
    program = program_of(space(w, min_variance=3.0))
    dual = DualPoint(blocks=rng.uniform(0.1, 1, (5, 1, 1)), floor=1e3 * rng.uniform(0.1, 1, 5))
    repaired = repaired_dual(program, dual)
    assert repaired.floor is not None
    found, u = lower_bound(program, dual), repaired.blocks[:, 0, 0]
    with mpmath.workdps(50):
        price = [mpmath.mpf(float(x)) for x in repaired.floor]
        factor = mpmath.matrix(w.tolist())
        below = factor.T * factor - mpmath.diag(price)
        assert min(mpmath.eigsy(below, eigvals_only=True)) > 0
        exact = nuclear_norm_squared(below, u) / sum(mpmath.mpf(float(x)) for x in u)
        exact += 3 * sum(price)
        assert exact * (1 - mpmath.mpf("1e-6")) <= mpmath.mpf(found) <= exact


def test_budgets_price_the_multipliers() -> None:
    # H = diag(h), X = diag(tau): the optimum is sum h_i / tau_i, at v_i = h_i / tau_i^2.
    h, tau = np.array([1.0, 4, 9]), np.array([0.5, 1, 2])
    program = Program(gram=np.diag(h), participation=FixedEpoch(epochs=1, separation=3), budget=tau)
    optimum = oracles.diagonal_workload_optimum(h, [[0], [1], [2]], tau)
    assert optimum == pytest.approx(1 / 0.5 + 4 + 9 / 2)
    assert lower_bound(program, diagonal_dual(h / tau**2)) == pytest.approx(optimum, rel=ATTAINED)
    assert lower_bound(program, diagonal_dual(h / tau)) < optimum


# --- a feasible X from anything -------------------------------------------------------------------


def check_gram(program: Program, x: np.ndarray) -> None:
    """Constraints of X by entries, mpmath's Cholesky and mpmath's inverse."""
    k, b = program.participation.epochs, program.participation.separation
    np.testing.assert_allclose(x, x.T, rtol=1e-15)
    for j, pattern in enumerate(oracles.fixed_epoch_patterns(k, b)):
        part = x[np.ix_(pattern, pattern)]
        assert np.count_nonzero(part - np.diag(np.diagonal(part))) == 0
        assert np.trace(part) <= program.budget[j] * (1 + 1e-14)
    with mpmath.workdps(60):
        mpmath.cholesky(mpmath.matrix(x.tolist()))  # raises unless positive definite
    if program.cap is not None:
        inverse = oracles.exact_inverse(x)
        for i, cap in enumerate(program.cap):
            assert inverse[i][i] <= cap


PROGRAMS = {
    "space": program_of(space(RING5, budget=[0.1, 1, 2, 3, 40])),
    "capped": program_of(space(RING5, budget=[0.5, 1, 2, 3, 4], max_variance=[3.0, 2, 1, 1, 1])),
    "epochs": program_of(prefix(3, 2)),
    "every step": program_of(prefix(4, 1)),
}


@pytest.mark.parametrize("name", PROGRAMS)
@settings(derandomize=True, deadline=None, max_examples=60)
@given(data=st.data())
def test_garbage_is_repaired_or_refused(name: str, data: st.DataObject) -> None:
    program = PROGRAMS[name]
    elements = st.floats(-1e6, 1e6, allow_subnormal=False)
    x = data.draw(arrays(np.float64, (program.size, program.size), elements=elements))
    if data.draw(st.booleans()):
        x = x + 1e6 * np.eye(program.size)
    found = repair.feasible_gram(program, x)
    if found is None:
        shares = np.diagonal(x) / program.coordinate_budget
        assert shares.min() <= max(0.0, 1e-30 * shares.max())
    else:
        check_gram(program, found)


@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_to_repair_is_left_as_it_is(name: str) -> None:
    program = PROGRAMS[name]
    x = np.diag(program.coordinate_budget / program.participation.epochs)
    found = repair.feasible_gram(program, x)
    assert found is not None
    np.testing.assert_allclose(found, x, rtol=1e-14)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0, 0.0])
def test_a_gram_matrix_without_a_positive_diagonal_is_refused(bad: float) -> None:
    x = np.eye(5)
    x[3, 3] = bad
    assert repair.feasible_gram(RING, x) is None


def test_an_indefinite_gram_matrix_becomes_positive_definite() -> None:
    x = np.full((5, 5), 10.0)
    np.fill_diagonal(x, 1.0)
    found = repair.feasible_gram(RING, x)
    assert found is not None
    check_gram(RING, found)


def test_singular_h_keeps_its_null_space_and_fills_the_slack() -> None:
    w = oracles.metropolis(nx.star_graph(4))
    program = program_of(space(w))
    rng = np.random.default_rng(0)
    values, vectors = np.linalg.eigh(w)
    keep = np.abs(values) > 1e-12
    scale = rng.uniform(1, 2, keep.sum())
    x = (vectors[:, keep] * scale) @ vectors[:, keep].T  # range of H only
    found = repair.feasible_gram(program, x)
    assert found is not None
    np.testing.assert_allclose(np.diagonal(found), 1, rtol=1e-12)
    check_gram(program, found)


# --- exported matrices, checked again -------------------------------------------------------------

SOLVED: dict[str, Problem] = {
    "ring": space(RING5),
    "florentine": space(FLORENTINE),
    "budgets": space(FLORENTINE, budget=np.geomspace(0.01, 100, 15)),
    "star": space(oracles.metropolis(nx.star_graph(9))),
    "capped": space(FLORENTINE, budget=2.0, max_variance=0.9),
    "caps": space(np.full((4, 4), 0.25), max_variance=[1.5, 2.0, 5.0, 50.0]),
    "wide": space(np.full((4, 4), 0.25), max_variance=1e6),
    "spread": space(FLORENTINE, budget=np.geomspace(1e-3, 1e3, 15)),
    "path": space(oracles.metropolis(nx.path_graph(20))),
    "one-node": space(np.ones((1, 1)), budget=3.0),
    "prefix": prefix(1, 12),
    "epochs": prefix(4, 3),
    "every-step": prefix(6, 1),
    "mafalda": TimeProblem.decentralized(
        mixing=FLORENTINE, participation=FixedEpoch(epochs=3, separation=5)
    ),
}


@pytest.mark.parametrize("name", SOLVED)
def test_what_is_exported_meets_the_constraints_exactly(name: str) -> None:
    """No tolerance: 50-digit arithmetic on the very floats of the matrix."""
    problem = SOLVED[name]
    design = solve(problem).design
    assert design is not None
    assert design.certificate.feasible
    if isinstance(problem, SpaceProblem):
        r = design.covariance
        assert np.array_equal(r, r.T)
        precision = oracles.exact_inverse(r)
        for i, tau in enumerate(problem.budget):
            assert precision[i][i] <= tau
            if problem.max_variance is not None:
                assert r[i, i] <= problem.max_variance[i]
        np.testing.assert_allclose(
            np.diagonal(np.linalg.inv(r)),
            [float(precision[i][i]) for i in range(len(r))],
            rtol=1e-9,
        )
        objective = np.sum((problem.mixing @ r) * problem.mixing)
    else:
        c = design.strategy
        assert np.array_equal(c, np.tril(c))
        x = oracles.exact_gram(c)
        k, b = problem.participation.epochs, problem.participation.separation
        for pattern in oracles.fixed_epoch_patterns(k, b):
            # Off-diagonal entries vanish up to rounding; absolute values bound any contribution.
            assert sum(abs(x[s][t]) for s in pattern for t in pattern) <= 1
        noise = np.linalg.inv(c)
        objective = np.trace(problem.gram @ noise @ noise.T)
    # A wide cap lets R be a million times larger than what remains of it after mixing.
    assert design.objective == pytest.approx(objective, rel=1e-8)


@pytest.mark.parametrize("name", SOLVED)
def test_budgets_are_used_up_and_not_given_away(name: str) -> None:
    found = solve(SOLVED[name]).certificate
    assert found is not None
    assert found.sensitivity_squared > 1 - 1e-7


@pytest.mark.parametrize("name", SOLVED)
@pytest.mark.parametrize("factor", [1 - 1e-6, 0.9, 1e-3, 0.0, -1.0])
def test_less_noise_is_infeasible(name: str, factor: float) -> None:
    problem = SOLVED[name]
    design, program = solve(problem).design, program_of(problem)
    assert design is not None
    if isinstance(problem, SpaceProblem):
        judged = judge_covariance(program, factor * design.covariance, bound=1.0)
        assert not judged.feasible
    elif factor > 0:
        judged = judge_strategy(program, design.strategy / math.sqrt(factor), bound=1.0)
        assert not judged.feasible
        assert judged.sensitivity_squared == pytest.approx(1 / factor, rel=1e-5)


def test_more_noise_than_the_cap_is_infeasible() -> None:
    problem = space(FLORENTINE, max_variance=1.3)
    design = solve(problem).design
    assert design is not None
    judged = judge_covariance(program_of(problem), (1 + 1e-4) * design.covariance, bound=1.0)
    assert judged.sensitivity_squared <= 1
    assert judged.variance_ratio is not None
    assert judged.variance_ratio > 1
    assert not judged.feasible


def test_a_covariance_is_judged_as_by_exact_arithmetic() -> None:
    """Of noise a little above and below what budget and cap leave room for, about half holds."""
    program = program_of(space(np.full((4, 4), 0.25), max_variance=2.2))
    rng = np.random.default_rng(0)
    verdicts = []
    for _ in range(60):
        a = rng.standard_normal((4, 4))
        r = np.eye(4) + a @ a.T / 8
        r *= float(np.diagonal(np.linalg.inv(r)).max()) * rng.uniform(0.7, 1.6)
        r = (r + r.T) / 2
        with mpmath.workdps(60):
            exact = mpmath.matrix(r.tolist())
            inverse = exact**-1
            worst = max(
                *(inverse[i, i] for i in range(4)),
                *(exact[i, i] / mpmath.mpf(2.2) for i in range(4)),
            )
            assert abs(worst - 1) > 1e-6  # nothing here is left to rounding
        judged = judge_covariance(program, r, bound=1e-3)
        assert judged.feasible == (worst <= 1)
        verdicts.append(judged.feasible)
    assert 10 < sum(verdicts) < 50


@pytest.mark.parametrize(
    "r",
    [
        np.zeros((4, 4)),
        np.ones((4, 4)),
        np.full((4, 4), np.nan),
        4 * np.ones((4, 4)) - 2 * np.eye(4),
    ],
    ids=["none", "singular", "nan", "indefinite"],
)
def test_what_is_no_covariance_is_infeasible(r: np.ndarray) -> None:
    program = program_of(space(np.full((4, 4), 0.25), max_variance=5.0))
    assert not judge_covariance(program, r, bound=1e-3).feasible


@pytest.mark.parametrize("where", [(0, 1), (3, 2)])
def test_an_asymmetric_matrix_is_no_covariance(where: tuple[int, int]) -> None:
    """Neither half of it is taken for the whole: each alone would be feasible."""
    r = 2 * np.eye(4)
    program = program_of(space(np.full((4, 4), 0.25)))
    assert judge_covariance(program, r, bound=1e-3).feasible
    r[where] = 0.5
    judged = judge_covariance(program, r, bound=1e-3)
    assert math.isinf(judged.sensitivity_squared)
    assert not judged.feasible


@settings(derandomize=True, deadline=None, max_examples=60)
@given(c=arrays(np.float64, (4, 4), elements=st.floats(-2, 2)))
@example(c=np.zeros((4, 4)))
@example(c=np.full((4, 4), np.nan))
@example(c=np.eye(4) / math.sqrt(2))
def test_no_infeasible_strategy_is_accepted(c: np.ndarray) -> None:
    program = program_of(prefix(2, 2))
    with np.errstate(over="ignore"):
        judged = judge_strategy(program, np.tril(c), bound=1.0)
    if not judged.feasible:
        return
    x = np.tril(c).T @ np.tril(c)
    for pattern in ([0, 2], [1, 3]):
        m = x[np.ix_(pattern, pattern)]
        # Two steps: the elliptope is a + b + 2 |m|.
        assert m[0, 0] + m[1, 1] + 2 * abs(m[0, 1]) <= 1 + 1e-12


def test_a_strategy_without_noise_is_infinitely_bad() -> None:
    judged = judge_strategy(program_of(prefix(2, 2)), np.zeros((4, 4)), bound=1.0)
    assert judged.objective == math.inf
    assert judged.gap == math.inf


def test_gap_and_feasibility_of_a_certificate() -> None:
    plain = Certificate(objective=3.0, lower_bound=2.0, sensitivity_squared=1.0)
    assert plain.gap == 0.5
    assert plain.feasible
    over = math.nextafter(1.0, 2.0)
    assert not Certificate(objective=3.0, lower_bound=2.0, sensitivity_squared=over).feasible
    assert not Certificate(
        objective=3.0, lower_bound=2.0, sensitivity_squared=1.0, variance_ratio=over
    ).feasible
    assert Certificate(objective=3.0, lower_bound=0.0, sensitivity_squared=1.0).gap == math.inf


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_a_sensitivity_that_is_no_number_is_infeasible(number: float) -> None:
    assert not Certificate(objective=1.0, lower_bound=1.0, sensitivity_squared=number).feasible


# --- scaling between the stated and the unit budgets ----------------------------------------------


def test_normalised_programs_are_the_same_program() -> None:
    tau, cap = np.array([0.5, 1, 2, 3, 4]), np.array([3.0, 2, 1, 1, 1])
    program = program_of(space(RING5, budget=tau, max_variance=cap))
    unit = program.normalized()
    np.testing.assert_array_equal(unit.budget, 1)
    assert unit.cap is not None
    np.testing.assert_allclose(unit.cap, cap * tau)
    rng = np.random.default_rng(0)
    dual = diagonal_dual(rng.uniform(1, 2, 5), cap=rng.uniform(0, 0.01, 5))
    assert lower_bound(program, dual.denormalized(program)) == pytest.approx(
        lower_bound(unit, dual), rel=1e-10
    )
    root = rng.standard_normal((5, 5))
    x = root @ root.T
    original = denormalized_gram(program, x)
    assert np.trace(np.linalg.solve(original, program.gram)) == pytest.approx(
        np.trace(np.linalg.solve(x, unit.gram)), rel=1e-10
    )
    np.testing.assert_allclose(np.diagonal(original), tau * np.diagonal(x))
    np.testing.assert_allclose(unit.factor.T @ unit.factor, unit.gram, atol=1e-14)


# --- attainment where H is singular ---------------------------------------------------------------

TWINS = oracles.metropolis(nx.complete_graph(3))
KITE = nx.Graph([(0, 1), (0, 2), (1, 2), (1, 3), (2, 3), (3, 4)])  # 1 and 2 are twins
DIVERGING = {
    "ring of 6": nx.cycle_graph(6),
    "complete": nx.complete_graph(4),
    "link": nx.path_graph(2),
    "twins": KITE,
}


@pytest.mark.parametrize("name", DIVERGING)
def test_noise_that_diverges_is_refused_with_its_direction(name: str) -> None:
    w = oracles.metropolis(DIVERGING[name])
    with pytest.raises(InputError, match="max_variance") as caught:
        solve(space(w, max_variance="none"))
    assert caught.value.field == "mixing"
    program = program_of(space(w))
    near = near_optimal(w)
    z = repair.unbounded_direction(program, near)
    assert z is not None
    assert np.linalg.norm(z) == pytest.approx(1)
    np.testing.assert_allclose(w @ z, 0, atol=1e-12)
    # The remedy works, and the wider the cap the closer the infimum, which no R attains.
    infimum = oracles.diagonal_interval(w.T @ w + 1e-13 * np.eye(len(w)), width=1e-6).lower
    values = [solve(space(w, max_variance=c)).design for c in (2.0, 20.0, 200.0)]
    objectives = [d.objective for d in values if d is not None]
    assert objectives[0] > objectives[1] * 1.001 > objectives[2] > infimum
    assert objectives[2] == pytest.approx(infimum, rel=0.05)


def near_optimal(w: np.ndarray) -> np.ndarray:
    """X of the fixed point on the range of W, by plain dense algebra."""
    n = len(w)
    h, v = w.T @ w, np.ones(n)
    for _ in range(300):
        root = np.sqrt(v)
        values, vectors = np.linalg.eigh(h * root[:, None] * root)
        values[values < n * 2e-16 * values[-1]] = 0
        s = (vectors * np.sqrt(values)) @ vectors.T
        v = np.maximum(np.diagonal(s), 1e-100)
    return np.asarray(s / root[:, None] / root)


@pytest.mark.parametrize("leaves", [2, 4, 9])
def test_a_star_is_singular_and_bounded(leaves: int) -> None:
    w = oracles.metropolis(nx.star_graph(leaves))
    assert abs(np.linalg.eigvalsh(w)).min() < 1e-12
    assert repair.unbounded_direction(program_of(space(w)), near_optimal(w)) is None
    found = solve(space(w))
    assert found.status == "optimal"
    assert found.design is not None
    # Bounded: a far wider cap does not help, up to the two gaps.
    capped = solve(space(w, max_variance=100.0)).design
    assert capped is not None
    assert found.design.objective == pytest.approx(capped.objective, rel=3e-6)


def test_nonsingular_h_has_no_null_direction() -> None:
    assert repair.unbounded_direction(RING, np.eye(5)) is None


def test_a_cap_bounds_everything() -> None:
    assert repair.unbounded_direction(CAPPED, np.full((5, 5), 0.2)) is None


def test_a_singular_workload_in_time_is_solved() -> None:
    # Steps 0 and 1 enter the error only through their sum: equal and opposite noise is free, so
    # that they cost as much as one, and step 2 as much again.
    gram = np.array([[1.0, 1, 0], [1, 1, 0], [0, 0, 1]])
    problem = TimeProblem.from_gram(gram=gram, participation=FixedEpoch(epochs=1, separation=3))
    found = solve(problem).design
    assert found is not None
    assert found.objective == pytest.approx(2, rel=1e-6)
