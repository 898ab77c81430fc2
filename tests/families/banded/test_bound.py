"""Banded strategies: H with a short memory, bounds from a factor of multipliers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noisedesign.base.banded_matrices import BandedError, BandedSolver, banded_product, dense
from noisedesign.families.banded import solver as banded
from noisedesign.families.banded.bound import (
    BandedProgram,
    Spaced,
    allowance,
    banded_lower_bound,
    banded_program,
    factored_lower_bound,
    gram_band,
    multipliers_above,
)
from noisedesign.families.banded.recursion import LONGEST_MEMORY, RecursiveError, inverse_factor
from noisedesign.program.backend import Monitor, Stop
from noisedesign.program.temporal import unit_strategy
from noisedesign.system.participation import FixedEpoch, MinSeparation, single
from tests.support import oracles

Array = oracles.Array


def min_sep(horizon: int, separation: int, most: int) -> MinSeparation:
    return MinSeparation(horizon=horizon, separation=separation, max_participations=most)


def summation(horizon: int) -> Array:
    return np.tril(np.ones((horizon, horizon)))


def prefix(horizon: int) -> Array:
    return summation(horizon).T @ summation(horizon)


def random_gram(size: int, seed: int) -> Array:
    a = np.random.default_rng(seed).standard_normal((size + 1, size))
    return a.T @ a


def by_columns(matrix: Array, diagonals: int) -> Array:
    """[t, d] at (t + d, t), written out."""
    horizon = len(matrix)
    columns = np.zeros((horizon, diagonals))
    for t in range(horizon):
        for d in range(min(diagonals, horizon - t)):
            columns[t, d] = matrix[t + d, t]
    return columns


def random_band(horizon: int, bands: int, seed: int) -> Array:
    """A well-conditioned lower triangle of so many diagonals, shape (T, T)."""
    rng = np.random.default_rng(seed)
    c = np.tril(rng.standard_normal((horizon, horizon)) * 0.3 / bands, -1)
    c += np.diag(rng.uniform(0.5, 2, size=horizon))
    return np.asarray(np.triu(c, 1 - bands))


# --- H with a short memory ------------------------------------------------------------------------


def test_prefix_sums_remember_one_step() -> None:
    found = inverse_factor(summation(5), tolerance=1e-12)
    assert found is not None
    expected = np.array([[1.0, -1], [1, -1], [1, -1], [1, -1], [1, 0]])
    assert found == pytest.approx(expected, abs=1e-14)


def test_momentum_and_rates_remember_two() -> None:
    """y_t = y_{t-1} + rate_t m_t, m_t = 0.9 m_{t-1} + x_t, against the dense inverse."""
    rates = np.linspace(1, 0.1, 30)
    momentum = np.linalg.inv(np.eye(30) - 0.9 * np.eye(30, k=-1))
    factor = np.tril(summation(30) @ (rates[:, None] * momentum))
    found = inverse_factor(factor, tolerance=1e-9)
    assert found is not None
    assert found.shape == (30, 3)
    assert found == pytest.approx(by_columns(np.linalg.inv(factor), 3), abs=1e-9)


def test_the_longest_memory_is_found_and_a_longer_one_is_not() -> None:
    for memory in (0, LONGEST_MEMORY, LONGEST_MEMORY + 1):
        inverse = np.eye(40) + 0.1 * np.eye(40, k=-memory)
        found = inverse_factor(np.linalg.inv(inverse), tolerance=1e-12)
        if memory > LONGEST_MEMORY:
            assert found is None
        else:
            assert found is not None
            assert found == pytest.approx(by_columns(inverse, memory + 1), abs=1e-13)
    short = np.linalg.inv(np.eye(3) - 0.5 * np.eye(3, k=-2))
    found = inverse_factor(short, tolerance=1e-12)
    assert found is not None
    assert found.shape == (3, 3)


def test_a_memory_is_taken_for_short_within_the_tolerance_only() -> None:
    """A far entry of 1e-6 in L leaves L N - I = 1e-6 there: invisible to the diagonal blocks."""
    factor = summation(40)
    factor[-1, 0] += 1e-6
    assert inverse_factor(factor, tolerance=0.9e-6) is None
    found = inverse_factor(factor, tolerance=1.1e-6)
    assert found is not None
    assert found.shape == (40, 2)
    assert inverse_factor(factor.T, tolerance=1.0) is None  # no lower triangle


@pytest.mark.parametrize(
    ("horizon", "bands", "memory"),
    [(1, 1, 0), (2, 1, 1), (7, 7, 1), (16, 3, 0), (17, 3, 2), (50, 20, 3), (64, 16, 1), (75, 5, 4)],
)
def test_recursive_error_and_gradient_by_dense_algebra(
    horizon: int, bands: int, memory: int
) -> None:
    """tr(H (C^T C)^-1) and -2 C X^-1 H X^-1 on the band; entries beyond the horizon are ignored."""
    n = random_band(horizon, memory + 1, seed=horizon)
    c = random_band(horizon, bands, seed=horizon + 1)
    factor = np.linalg.inv(n)
    gram, inverse = factor.T @ factor, np.linalg.inv(c.T @ c)
    columns = by_columns(c, bands)
    columns[np.arange(horizon)[:, None] + np.arange(bands) >= horizon] = 7.0
    value, gradient = RecursiveError(by_columns(n, memory + 1), bands)(columns)
    assert value == pytest.approx(float(np.sum(gram * inverse)), rel=1e-11)
    expected = by_columns(-2 * c @ inverse @ gram @ inverse, bands)
    assert gradient == pytest.approx(expected, rel=1e-8, abs=1e-9 * float(np.abs(expected).max()))


def test_the_search_takes_the_recursion_where_it_pays() -> None:
    """And the same objective either way."""
    scheme = min_sep(80, 8, 3)
    short = banded_program(gram=prefix(80), participation=scheme, bands=8)
    variables = banded._Variables(short)
    assert isinstance(variables.error, RecursiveError)
    value, gradient = variables.value_and_gradient(variables.start())
    variables.error = BandedError(short.gram, 8)
    by_blocks = variables.value_and_gradient(variables.start())
    assert value == pytest.approx(by_blocks[0], rel=1e-12)
    assert gradient == pytest.approx(by_blocks[1], rel=1e-9, abs=1e-12)
    long = banded_program(gram=random_gram(80, 0), participation=scheme, bands=8)
    assert isinstance(banded._Variables(long).error, BandedError)
    whole = banded_program(gram=prefix(80), participation=single(80), bands=80)
    assert isinstance(banded._Variables(whole).error, BandedError)


def test_a_memory_that_is_nearly_short_is_solved_as_what_it_is() -> None:
    """H off by 1e-6 of itself: at a gap of 1e-7 no short memory; the true optimum is certified."""
    factor = summation(70)
    factor[-1, 0] += 1e-3
    program = banded_program(gram=factor.T @ factor, participation=single(70), bands=3)
    assert isinstance(banded._Variables(program, negligible=1e-2).error, RecursiveError)
    answer = banded.solve(program, monitor=Monitor(gap=1e-7))
    assert answer.stop is Stop.SOLVED
    strategy = unit_strategy(program, dense(answer.columns))
    value = float(np.sum(program.gram * np.linalg.inv(strategy.T @ strategy)))
    assert value <= banded_lower_bound(program, answer.multipliers) * (1 + 1e-7)


# --- banded algebra -------------------------------------------------------------------------------


@pytest.mark.parametrize(("horizon", "bands"), [(1, 1), (6, 1), (6, 6), (33, 4), (100, 40)])
def test_banded_products_and_solves_by_dense_algebra(horizon: int, bands: int) -> None:
    c = random_band(horizon, bands, seed=1)
    b = np.random.default_rng(2).standard_normal((horizon, 5))
    solver = BandedSolver(by_columns(c, bands))
    assert solver.solve(b) == pytest.approx(np.linalg.solve(c, b), rel=1e-9, abs=1e-11)
    assert solver.solve_transposed(b) == pytest.approx(np.linalg.solve(c.T, b), rel=1e-9, abs=1e-11)
    assert banded_product(c, bands - 1, b) == pytest.approx(c @ b, rel=1e-11, abs=1e-13)
    assert gram_band(c, bands) == pytest.approx(by_columns(c @ c.T, bands), rel=1e-12, abs=1e-14)


@pytest.mark.parametrize(
    "participation",
    [FixedEpoch(epochs=3, separation=4), min_sep(12, 4, 2), min_sep(12, 1, 12)],
    ids=str,
)
def test_generators_are_applied_as_the_matrix_they_are(participation: Spaced) -> None:
    allowed = allowance(participation)
    rng = np.random.default_rng(3)
    z, v = rng.exponential(size=len(allowed.cost)), rng.exponential(size=12)
    assert allowed.diagonal(z) == pytest.approx(allowed.generators @ z, rel=1e-14)
    assert allowed.rates(v) == pytest.approx(allowed.generators.T @ v, rel=1e-14)


# --- bounds from a factor -------------------------------------------------------------------------


def test_the_factored_bound_by_hand() -> None:
    """H = [[2, 1], [1, 2]], V = L^T: V V^T = L^T L = H and tr(L V) = tr H = 4.

    One band prices the diagonal, 2 + 2, and proves 4^2 / 4 = 4, the error of C = I, its optimum.
    Of two bands the off-diagonal 1 has to be covered: 3 + 3, and 4^2 / 6.
    """
    gram = np.array([[2.0, 1.0], [1.0, 2.0]])
    for bands, expected in ((1, 4.0), (2, 8 / 3)):
        program = banded_program(gram=gram, participation=single(2), bands=bands)
        bound = factored_lower_bound(program, program.factor.T)
        assert bound == pytest.approx(expected, rel=1e-13)
        assert bound < expected


@given(
    seed=st.integers(0, 10**6),
    bands=st.integers(1, 3),
    noise=st.floats(0, 3),
    participation=st.sampled_from([min_sep(6, 3, 2), FixedEpoch(epochs=2, separation=3)]),
)
@settings(max_examples=60, derandomize=True, deadline=None)
def test_any_factor_bounds_every_feasible_design(
    seed: int, bands: int, noise: float, participation: Spaced
) -> None:
    program = banded_program(gram=random_gram(6, seed), participation=participation, bands=bands)
    strategy = unit_strategy(program, random_band(6, bands, seed))
    inverse = np.linalg.inv(strategy.T @ strategy)
    objective = float(np.sum(program.gram * inverse))
    rng = np.random.default_rng(seed)
    v = inverse @ program.factor.T + noise * rng.standard_normal((6, 6))
    bound = factored_lower_bound(program, v)
    assert 0 <= bound <= objective * (1 + 1e-12)
    assert factored_lower_bound(program, v * 2.0**-700) == bound
    multipliers = multipliers_above(program, v)
    # The spectrum proves as much, and multipliers are what they are said to be.
    assert banded_lower_bound(program, multipliers) >= bound * (1 - 1e-9)
    steps = np.arange(6)
    distance = np.abs(np.subtract.outer(steps, steps))
    assert not multipliers[(distance > 0) & (distance < bands)].any()
    assert multipliers[distance >= bands] == pytest.approx((v @ v.T)[distance >= bands], rel=1e-12)
    room = np.linalg.eigvalsh(multipliers - v @ v.T)
    assert room[0] >= -1e-12 * float(np.abs(v @ v.T).max())


@pytest.mark.parametrize(
    "useless", [np.zeros((4, 4)), np.full((4, 4), np.nan), -np.eye(4), np.eye(3)]
)
def test_useless_factors_prove_nothing(useless: Array) -> None:
    program = banded_program(gram=prefix(4), participation=single(4), bands=2)
    assert factored_lower_bound(program, useless) == 0.0


def witnessed(program: BandedProgram, variables: Array) -> tuple[float, float, float]:
    """Error at that point, the bound of the witness there, and that of X^-1 L^T as it is."""
    free = banded._Variables(program)
    c = dense(np.where(free.inside, free.columns(variables)[0], 0.0))
    inverse = np.linalg.inv(c.T @ c)
    factor, bound = free.witness(variables)
    assert bound == factored_lower_bound(program, factor)
    plain = factored_lower_bound(program, inverse @ program.factor.T)
    return float(np.sum(program.gram * inverse)), bound, plain


@pytest.mark.parametrize(
    ("participation", "short"),
    [
        (single(40), True),
        (single(24), False),
        (FixedEpoch(epochs=3, separation=8), True),
        (min_sep(24, 6, 4), True),
    ],
    ids=str,
)
def test_bounds_of_a_witness_err_by_the_square_of_the_distance(
    participation: Spaced, short: bool
) -> None:
    """At e and e / 10 from the optimum: a hundredth, where X^-1 L^T alone gains a tenth."""
    size = participation.horizon
    gram = prefix(size) if short else random_gram(size, 9)
    program = banded_program(gram=gram, participation=participation, bands=4)
    search = banded._Search(program, Monitor(gap=1e-11))
    assert search.run() is Stop.SOLVED
    optimum = search.lower
    away = np.random.default_rng(0).standard_normal(len(search.at)) * search.at
    gaps = []
    for distance in (3e-3, 3e-4):
        _, bound, plain = witnessed(program, search.at + distance * away)
        gaps.append((optimum / bound - 1, optimum / plain - 1))
    assert gaps[0][0] < gaps[0][1]
    assert gaps[1][0] < gaps[0][0] / 50
    assert gaps[1][1] > gaps[0][1] / 20


def test_far_from_the_optimum_a_witness_proves_as_much_as_uncorrected() -> None:
    """At the start of a long min-separation problem corrections make the bound worse."""
    program = banded_program(gram=prefix(128), participation=min_sep(128, 16, 8), bands=16)
    error, bound, plain = witnessed(program, banded._Variables(program).start())
    assert plain * (1 - 1e-9) <= bound <= error
    assert bound > 0
