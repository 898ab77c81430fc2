"""Banded strategies: the price of a diagonal, bounds from multipliers and from a factor of them."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings, strategies as st

from noisedesign.base.banded_matrices import dense
from noisedesign.base.monitor import Monitor, Search, Stop
from noisedesign.certify.repair import unit_strategy
from noisedesign.families.banded import solver as banded
from noisedesign.families.banded.bound import (
    banded_lower_bound,
    factored_lower_bound,
    multipliers_above,
    repaired_multipliers,
)
from noisedesign.families.banded.program import BandedProgram, allowance, banded_program
from noisedesign.system.participation import FixedEpoch, Participation, single
from tests.support.banded_cases import Array, min_sep, patterns_of, prefix, random_band, random_gram

# --- price and bound ------------------------------------------------------------------------------


SCHEMES: list[Participation] = [
    single(1),
    single(4),
    FixedEpoch(epochs=3, separation=2),
    FixedEpoch(epochs=4, separation=1),
    min_sep(1, 1, 1),
    min_sep(6, 1, 6),
    min_sep(6, 1, 2),
    min_sep(7, 3, 3),
    min_sep(7, 3, 2),
    min_sep(7, 3, 1),
    min_sep(6, 2, 9),
    min_sep(5, 5, 2),
    min_sep(5, 9, 2),
    min_sep(8, 4, 2),
]


@pytest.mark.parametrize("participation", SCHEMES, ids=str)
def test_the_price_is_the_heaviest_diagonal_over_all_patterns(participation: Participation) -> None:
    """max <v, x>, x >= 0, sum of x over every pattern <= 1: a linear program over all of them."""
    horizon = participation.horizon
    rows = np.array([[float(t in p) for t in range(horizon)] for p in patterns_of(participation)])
    rng = np.random.default_rng(horizon)
    for _ in range(8):
        v = rng.exponential(size=horizon) * (rng.uniform(size=horizon) < 0.7)
        found = scipy.optimize.linprog(-v, A_ub=rows, b_ub=np.ones(len(rows)))
        assert allowance(participation).price(v) == pytest.approx(-found.fun, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("participation", SCHEMES, ids=str)
def test_generators_are_allowed_and_leave_no_room(participation: Participation) -> None:
    """x = P z with costs adding up to 1 has no pattern above 1; a generator alone has one at 1."""
    allowed = allowance(participation)
    patterns = patterns_of(participation)
    z = np.random.default_rng(1).exponential(size=len(allowed.cost))
    z /= allowed.per_budget(allowed.cost * z)[allowed.budget]
    x = allowed.generators @ z
    assert max(x[p].sum() for p in patterns) <= 1 + 1e-12
    for generator, cost in zip(allowed.generators.T, allowed.cost, strict=True):
        assert max(generator[p].sum() for p in patterns) == cost


@given(seed=st.integers(0, 10**6), bands=st.integers(1, 3), noise=st.floats(0, 3))
@settings(max_examples=40, derandomize=True, deadline=None)
def test_any_multipliers_bound_every_feasible_design(seed: int, bands: int, noise: float) -> None:
    """Junk, indefinite and off structure, proves less than the objective of any feasible X."""
    scheme = min_sep(7, 3, 2)
    program = banded_program(gram=random_gram(7, seed), participation=scheme, bands=bands)
    rng = np.random.default_rng(seed)
    columns = rng.standard_normal((7, bands))
    columns[:, 0] = 1 + np.abs(columns[:, 0])
    strategy = unit_strategy(program, np.tril(dense(columns)))
    x = strategy.T @ strategy
    inverse = np.linalg.inv(x)
    objective = float(np.trace(program.gram @ inverse))
    guess = inverse @ program.gram @ inverse + noise * rng.standard_normal((7, 7))
    bound = banded_lower_bound(program, guess)
    assert 0 <= bound <= objective * (1 + 1e-9)
    scaled = banded_lower_bound(program, guess * 1e-200)
    assert scaled == pytest.approx(bound, rel=1e-9)


def test_repair_keeps_the_structure_of_the_multipliers() -> None:
    program = banded_program(gram=prefix(6), participation=single(6), bands=2)
    guess = np.full((6, 6), -3.0)
    np.fill_diagonal(guess, 1.0)
    guess[0, 0] = -1.0
    repaired = repaired_multipliers(program, guess)
    assert repaired is not None
    steps = np.arange(6)
    distance = np.abs(np.subtract.outer(steps, steps))
    assert not repaired[distance == 1].any()
    assert np.linalg.eigvalsh(repaired)[0] > 0
    assert (repaired[distance > 1] < 0).all()  # shrunk, not dropped
    diagonal = np.diagonal(repaired)
    assert diagonal[1:] == pytest.approx(diagonal[1])
    assert 0 < diagonal[0] <= 1e-15 * diagonal[1]


def test_feasible_multipliers_are_left_alone() -> None:
    program = banded_program(gram=prefix(5), participation=single(5), bands=2)
    u = np.diag(np.arange(1.0, 6.0))
    u[0, 4] = u[4, 0] = 0.5
    repaired = repaired_multipliers(program, u)
    assert repaired is not None
    assert repaired * u.max() == pytest.approx(u, rel=1e-14)
    # (tr (L U L^T)^1/2)^2 / sum v, written out.
    values = np.linalg.eigvalsh(np.linalg.cholesky(u).T @ prefix(5) @ np.linalg.cholesky(u))
    expected = np.sqrt(values).sum() ** 2 / 15
    bound = banded_lower_bound(program, u)
    assert bound == pytest.approx(expected, rel=1e-11)
    assert bound < expected


@pytest.mark.parametrize(
    "useless", [np.zeros((4, 4)), np.full((4, 4), np.nan), -np.eye(4), np.eye(3)]
)
def test_useless_multipliers_prove_nothing(useless: Array) -> None:
    program = banded_program(gram=prefix(4), participation=single(4), bands=2)
    assert banded_lower_bound(program, useless) == 0.0


@pytest.mark.parametrize(
    "participation",
    [FixedEpoch(epochs=3, separation=4), min_sep(12, 4, 2), min_sep(12, 1, 12)],
    ids=str,
)
def test_generators_are_applied_as_the_matrix_they_are(participation: Participation) -> None:
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
    seed: int, bands: int, noise: float, participation: Participation
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
    participation: Participation, short: bool
) -> None:
    """At e and e / 10 from the optimum: a hundredth, where X^-1 L^T alone gains a tenth."""
    size = participation.horizon
    gram = prefix(size) if short else random_gram(size, 9)
    program = banded_program(gram=gram, participation=participation, bands=4)
    search = banded._Search(program, Monitor(gap=1e-11))
    with Search(search.monitor) as ended:
        search.run(ended)
    assert ended.stop is Stop.SOLVED
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
