"""Proved bounds on max <M, Y> over correlation matrices: closed forms, a conic solver, any M."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings, strategies as st

from noisedesign.privacy.sensitivity import elliptope
from noisedesign.privacy.sensitivity.elliptope import (
    SOLVED,
    Bounds,
    balancing_signs,
    block_bounds,
    certified_multiple,
    sparse_bounds,
)
from tests.support import oracles
from tests.support.sensitivity_cases import ROUNDING, TRIANGLE, cycle, random_gram


def sparse(m: np.ndarray) -> scipy.sparse.csr_array:
    return scipy.sparse.csr_array(m)


def check(found: Bounds, value: float, *, width: float) -> None:
    assert found.lower <= value * (1 + ROUNDING)
    assert value <= found.upper * (1 + 1e-15)
    assert found.upper - found.lower <= width * value


# --- closed forms ---------------------------------------------------------------------------------


def test_three_vectors_at_120_degrees_by_hand() -> None:
    # Y_ij = -1/2: 3 - 2 * 3 * (-1/2)(-1/2)... = 3 + 3/2; y = (3/2) 1 is lambda_max, so optimal.
    turned = np.array([[math.cos(a), math.sin(a)] for a in (0, 2 * math.pi / 3, 4 * math.pi / 3)])
    assert float(np.sum(TRIANGLE * (turned @ turned.T))) == pytest.approx(4.5)
    assert oracles.elliptope_by_angles(TRIANGLE) == pytest.approx(4.5)
    assert oracles.best_signs(TRIANGLE) == pytest.approx(4)
    check(block_bounds(TRIANGLE), 4.5, width=SOLVED)


@pytest.mark.parametrize("size", [3, 5, 7, 31])
def test_odd_cycles(size: int) -> None:
    check(block_bounds(cycle(size)), oracles.odd_cycle_elliptope(size), width=SOLVED)


@pytest.mark.parametrize("a", [0.0, 0.3, 1.0])
def test_two_steps(a: float) -> None:
    for sign in (-1, 1):
        check(block_bounds(np.array([[1, sign * a], [sign * a, 1]])), 2 + 2 * a, width=SOLVED)


def test_rank_one_is_the_square_of_a_sum() -> None:
    v = np.array([1.0, -2, 0, 0.5, -1e-3])
    check(block_bounds(np.outer(v, v)), np.abs(v).sum() ** 2, width=SOLVED)


def test_one_step_no_step_and_nothing() -> None:
    check(block_bounds(np.array([[3.0]])), 3.0, width=SOLVED)
    assert block_bounds(np.zeros((3, 3))) == Bounds(lower=0.0, upper=0.0)
    assert sparse_bounds(sparse(np.zeros((3, 3)))) == Bounds(lower=0.0, upper=0.0)
    padded = np.zeros((5, 5))
    padded[1:4, 1:4] = TRIANGLE
    check(block_bounds(padded), 4.5, width=SOLVED)


def test_identity_and_ones() -> None:
    check(block_bounds(np.eye(6)), 6, width=SOLVED)
    check(block_bounds(np.ones((6, 6))), 36, width=SOLVED)


# --- a conic solver -------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_clarabel_agrees(seed: int) -> None:
    m = random_gram(5, seed, rank=2 + seed % 4)
    lower, upper = oracles.elliptope(m)
    assert upper <= lower * (1 + 1e-5)
    found = block_bounds(m)
    assert found.agree(SOLVED)
    assert found.lower <= upper * (1 + ROUNDING)
    assert lower <= found.upper * (1 + ROUNDING)


def test_twelve_steps_against_clarabel() -> None:
    m = random_gram(12, seed=7, rank=5)
    lower, upper = oracles.elliptope(m)
    found = block_bounds(m)
    assert found.agree(SOLVED)
    assert found.lower <= upper * (1 + ROUNDING)
    assert lower <= found.upper * (1 + ROUNDING)


def test_three_unit_vectors_by_search_over_angles() -> None:
    for seed in range(3):
        m = random_gram(3, seed, rank=2) - 0.2 * np.eye(3)
        searched = oracles.elliptope_by_angles(m)
        assert block_bounds(m).upper == pytest.approx(searched, rel=1e-8)


# --- any matrix -----------------------------------------------------------------------------------


@settings(derandomize=True, deadline=None, max_examples=60)
@given(
    k=st.integers(1, 30),
    rank=st.integers(1, 30),
    exponent=st.integers(0, 12),
    seed=st.integers(0, 10**6),
)
def test_the_bounds_agree(k: int, rank: int, exponent: int, seed: int) -> None:
    """Whatever the rank, and with rows of very unlike size."""
    rows = 10.0 ** -(exponent * np.random.default_rng(seed).random(k))
    found = block_bounds(random_gram(k, seed, rank=rank) * rows[:, None] * rows)
    assert found.agree(2 * SOLVED)
    assert found.lower <= found.upper


@settings(derandomize=True, deadline=None, max_examples=40)
@given(k=st.integers(1, 8), seed=st.integers(0, 10**6))
def test_no_correlation_matrix_passes_the_upper_bound(k: int, seed: int) -> None:
    """Of indefinite matrices neither, however the vectors were drawn; some reach the lower one."""
    rng = np.random.default_rng(seed)
    m = rng.standard_normal((k, k))
    m = (m + m.T) / 2
    found = block_bounds(m)
    room = ROUNDING * k * np.abs(m).max()
    for dimension in (1, k, 2 * k):
        v = rng.standard_normal((20, k, dimension))
        v /= np.linalg.norm(v, axis=2, keepdims=True)
        assert np.einsum("ij,nid,njd->n", m, v, v).max() <= found.upper + room
    assert oracles.best_signs(m) <= found.upper + room
    assert found.lower <= min(k * np.linalg.eigvalsh(m)[-1], np.abs(m).sum()) + room


@pytest.mark.parametrize("size", [131, 201])
def test_large_blocks_need_no_interior_point(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elliptope, "_interior_bounds", None)
    check(block_bounds(cycle(size)), oracles.odd_cycle_elliptope(size), width=SOLVED)


@pytest.mark.parametrize("products", [0, 50, 1500])
def test_the_searches_agree_and_the_second_finishes(
    products: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether or not the first came to rest."""
    monkeypatch.setattr(elliptope, "PRODUCTS", products)
    for seed in range(3):
        m = random_gram(elliptope.SMALL + 2, seed, rank=5)
        found = block_bounds(m)
        assert found.agree(SOLVED)
        alone = elliptope._interior_bounds(m, -math.inf)
        assert alone.agree(SOLVED)
        assert found.lower <= alone.upper
        assert alone.lower <= found.upper


def test_a_column_is_added_at_a_saddle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elliptope, "_interior_bounds", None)
    monkeypatch.setattr(elliptope, "RANK", 1)
    check(block_bounds(cycle(131)), oracles.odd_cycle_elliptope(131), width=SOLVED)


@pytest.mark.parametrize("scale", [1e-150, 1e150])
def test_scale_does_not_matter(scale: float) -> None:
    check(block_bounds(scale * TRIANGLE), 4.5 * scale, width=SOLVED)


@pytest.mark.parametrize("steps", range(6))
def test_an_unfinished_search_still_bounds(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elliptope, "NEWTON_STEPS", steps)
    unfinished = 0
    for seed in range(8):
        m = random_gram(6, seed)
        lower, upper = oracles.elliptope(m)
        found = block_bounds(m)
        assert found.upper >= lower * (1 - ROUNDING)
        assert found.lower <= upper * (1 + ROUNDING)
        signs_suffice = oracles.best_signs(m) > lower * (1 - 1e-6)
        assert found.agree(SOLVED) == signs_suffice
        unfinished += not signs_suffice
    assert unfinished >= 3


@pytest.mark.parametrize("seed", range(20))
def test_where_signs_are_optimal_no_search_is_needed(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Laplacian certificate: y_i - M_ii sums off-diagonal entries, so Diag(y) - M >= 0."""
    monkeypatch.setattr(elliptope, "NEWTON_STEPS", 0)
    rng = np.random.default_rng(seed)
    m = rng.uniform(0.1, 1, (7, 7)) + 7 * np.eye(7)
    signs = rng.choice([-1.0, 1.0], 7)
    m = (m + m.T) / 2 * np.outer(signs, signs)
    m[0, 1] = m[1, 0] = -m[0, 1] / 50  # one entry of the wrong sign: no longer balanced
    best = oracles.best_signs(m)
    check(block_bounds(m), best, width=SOLVED)
    assert best < np.abs(m).sum() * (1 - 1e-6)


def test_it_stops_where_less_is_enough() -> None:
    m = random_gram(8, seed=2)
    full = block_bounds(m)
    early = block_bounds(m, enough=1.2 * full.upper)
    assert full.upper * (1 + 1e-6) < early.upper <= 1.2 * full.upper
    assert early.lower <= full.upper
    assert block_bounds(m, enough=0.9 * full.upper) == full


def test_the_upper_bound_holds_in_exact_arithmetic() -> None:
    """Of integer matrices with a rational or quadratic value: no rounding of ours undercuts it."""
    with mpmath.workdps(40):
        for size in (3, 5, 9):
            exact = size * (2 + 2 * mpmath.cos(mpmath.pi / size))
            found = block_bounds(cycle(size))
            assert found.lower * (1 - 1e-15) <= exact <= found.upper
    assert block_bounds(TRIANGLE).upper >= 4.5


@pytest.mark.parametrize("size", [3, 10])
def test_what_cholesky_lets_pass_is_added(size: int) -> None:
    """y = t 1 with t just below lambda_max may pass a factorisation; the bound is still one."""
    for seed in range(12):
        m = random_gram(size, seed)
        with mpmath.workdps(40):
            exact = max(mpmath.eigsy(mpmath.matrix(m.tolist()), eigvals_only=True))
        below, above = 0.9 * float(exact), 1.1 * float(exact)
        while below < (middle := (below + above) / 2) < above:
            passes = math.isfinite(elliptope._ends(m, np.full(size, middle), np.eye(size)).upper)
            below, above = (below, middle) if passes else (middle, above)
        upper = elliptope._ends(m, np.full(size, above), np.eye(size)).upper
        assert size * exact <= upper <= size * exact * (1 + 1e-12)
        # Rump (2006): Cholesky may pass down to an eigenvalue of -(k + 1) EPS trace.
        trace = size * above - float(np.trace(m))
        assert upper >= size * (above + (size + 1) * np.finfo(float).eps * trace)


# --- large or sparse ------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [3, 31, 101])
def test_long_odd_cycles(size: int) -> None:
    found = sparse_bounds(sparse(cycle(size)))
    check(found, oracles.odd_cycle_elliptope(size), width=1e-5)


@settings(derandomize=True, deadline=None, max_examples=15)
@given(k=st.integers(3, 40), rank=st.integers(1, 40), seed=st.integers(0, 10**6))
def test_both_searches_find_the_same_maximum(k: int, rank: int, seed: int) -> None:
    m = random_gram(k, seed, rank=rank)
    block, found = block_bounds(m), sparse_bounds(sparse(m))
    assert found.lower <= block.upper * (1 + ROUNDING)
    assert block.lower <= found.upper * (1 + ROUNDING)
    assert found.agree(1e-3)


def test_a_banded_matrix_is_solved_in_its_band() -> None:
    rng = np.random.default_rng(0)
    strategy = scipy.sparse.diags_array(
        [rng.standard_normal(300 - j) / (1 + j) for j in range(6)], offsets=[-j for j in range(6)]
    )
    m = scipy.sparse.csr_array(strategy.T @ strategy)
    exact = block_bounds(m.toarray())
    assert exact.agree(SOLVED)
    found = sparse_bounds(m)
    assert exact.lower <= found.upper <= exact.upper * (1 + 1e-4)
    assert exact.upper >= found.lower >= exact.lower * (1 - 1e-4)


def test_an_unfinished_ascent_still_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elliptope, "STEPS", 1)
    for seed in range(4):
        m = random_gram(25, seed, rank=4)
        exact, found = block_bounds(m), sparse_bounds(sparse(m))
        assert found.lower <= exact.lower * (1 - 1e-3)
        assert exact.upper * (1 + 1e-3) <= found.upper <= np.abs(m).sum()


def test_the_largest_eigenvalue_helps_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elliptope, "STEPS", 1)
    exact = oracles.odd_cycle_elliptope(31)  # which is 31 lambda_max
    assert exact <= sparse_bounds(sparse(cycle(31))).upper <= exact * (1 + 1e-8)


def test_a_band_too_wide_to_factorise_leaves_the_sum_of_absolute_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(elliptope, "BAND_ENTRIES", 3 * 5 - 1)
    m = cycle(3)
    assert sparse_bounds(sparse(m)).upper == pytest.approx(9, rel=1e-4)
    pentagon = sparse(cycle(5))
    assert sparse_bounds(pentagon).upper == 20
    assert certified_multiple(pentagon, np.ones(5)) == math.inf


# --- certified eigenvalues ------------------------------------------------------------------------


@pytest.mark.parametrize("size", [20, 500])
def test_the_largest_eigenvalue_is_not_underestimated(size: int) -> None:
    # Path Laplacian with loose ends: 2 + 2 cos(pi / (n + 1)), crowded, and hard for Lanczos.
    path = scipy.sparse.diags_array(
        [np.full(size, 2.0), -np.ones(size - 1), -np.ones(size - 1)], offsets=[0, 1, -1]
    )
    exact = 2 + 2 * math.cos(math.pi / (size + 1))
    found = certified_multiple(scipy.sparse.csr_array(path), np.ones(size))
    assert exact <= found <= exact * (1 + SOLVED)


@pytest.mark.parametrize("seed", range(4))
def test_the_least_multiple_of_a_diagonal(seed: int) -> None:
    m, y = random_gram(9, seed), np.random.default_rng(seed + 100).exponential(size=9)
    root = 1 / np.sqrt(y)
    exact = float(np.linalg.eigvalsh(m * root[:, None] * root)[-1])
    assert certified_multiple(sparse(m), y) == pytest.approx(exact, rel=SOLVED)
    assert certified_multiple(sparse(m), y) >= exact * (1 - 1e-14)


@pytest.mark.parametrize("estimate", [-5.0, 0.0, 1e3])
def test_a_bad_estimate_does_no_harm(estimate: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elliptope, "_largest_eigenvalue", lambda m: estimate)
    m = random_gram(9, seed=0)
    exact = float(np.linalg.eigvalsh(m)[-1])
    found = certified_multiple(sparse(m), np.ones(9))
    assert exact <= found <= np.abs(m).sum(axis=1).max() * (1 + 1e-12)
    if estimate <= exact:
        assert found <= exact * (1 + SOLVED)


# --- signs ----------------------------------------------------------------------------------------


@settings(derandomize=True, deadline=None, max_examples=40)
@given(k=st.integers(1, 9), density=st.floats(0, 1), seed=st.integers(0, 10**6))
def test_signs_that_balance_are_found(k: int, density: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    hidden = rng.choice([-1.0, 1.0], k)
    m = np.triu(rng.exponential(size=(k, k)) * (rng.random((k, k)) < density))
    m = (m + m.T) * hidden[:, None] * hidden
    for s in (balancing_signs(m), balancing_signs(sparse(m))):
        assert set(s) <= {-1.0, 1.0}
        assert float(s @ m @ s) == pytest.approx(float(np.abs(m).sum()), rel=1e-14)


def test_rounding_does_not_unbalance() -> None:
    hidden = np.array([1.0, -1, 1, 1, -1])
    m = np.outer(hidden, hidden)
    m[0, 1] = m[1, 0] = 1e-17
    for s in (balancing_signs(m), balancing_signs(sparse(m))):
        assert float(s @ m @ s) == pytest.approx(23)


def test_signs_of_an_unbalanced_cycle_are_signs() -> None:
    for m in (TRIANGLE, sparse(TRIANGLE)):
        assert set(balancing_signs(m)) <= {-1.0, 1.0}
