"""Banded strategies: the price of a diagonal, the bound, the optimum, what is refused."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st

from noisedesign.base.banded_matrices import BandedError, dense
from noisedesign.base.checks import InputError
from noisedesign.families.banded import multipliers as banded_witness
from noisedesign.families.banded import solver as banded
from noisedesign.families.banded.bound import (
    BandedProgram,
    Spaced,
    allowance,
    banded_lower_bound,
    banded_program,
    repaired_multipliers,
)
from noisedesign.privacy.sensitivity import squared_sensitivity
from noisedesign.program.backend import Monitor, Stop
from noisedesign.program.certificate import judge_strategy
from noisedesign.program.temporal import unit_strategy
from noisedesign.system.participation import FixedEpoch, MinSeparation, Patterns, single
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


def patterns_of(participation: Spaced) -> list[list[int]]:
    """Every pattern, listed without the library."""
    if isinstance(participation, FixedEpoch):
        return oracles.fixed_epoch_patterns(participation.epochs, participation.separation)
    steps = oracles.min_separation_patterns(
        participation.horizon, participation.separation, participation.max_participations
    )
    return [list(pattern) for pattern in steps]


def solved(program: BandedProgram, *, gap: float = 1e-8) -> tuple[Array, float, float]:
    """The exported C, its objective and the proved bound; exactly feasible and banded."""
    answer = banded.solve(program, monitor=Monitor(gap=gap))
    assert answer.stop is Stop.SOLVED
    strategy = unit_strategy(program, dense(answer.columns))
    certificate = judge_strategy(
        program, strategy, bound=banded_lower_bound(program, answer.multipliers)
    )
    assert certificate.feasible
    assert certificate.gap <= gap
    gram = strategy.T @ strategy
    horizon = np.arange(len(gram))
    far = np.abs(np.subtract.outer(horizon, horizon)) >= program.bands
    assert not gram[far].any()
    assert not np.triu(strategy, 1).any()
    assert squared_sensitivity(gram, program.participation).squared <= 1
    value = float(np.trace(program.gram @ np.linalg.inv(gram)))
    assert certificate.objective == pytest.approx(value, rel=1e-11)
    return strategy, value, certificate.lower_bound


def clarabel_optimum(gram: Array, participation: Spaced, bands: int) -> float:
    """min tr Y, [[Y, L], [L^T, X]] >= 0, X banded, every pattern's trace at most 1."""
    import cvxpy as cp

    size = len(gram)
    x = cp.Variable((size, size), symmetric=True)
    y = cp.Variable((size, size), symmetric=True)
    root = np.linalg.cholesky(gram).T
    limits = [cp.bmat([[y, root], [root.T, x]]) >> 0]
    limits += [x[i, j] == 0 for i in range(size) for j in range(i + bands, size)]
    limits += [sum(x[t, t] for t in p) <= 1 for p in patterns_of(participation)]
    problem = cp.Problem(cp.Minimize(cp.trace(y)), limits)
    problem.solve(solver="CLARABEL", tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    return float(problem.value)


# --- price and bound ------------------------------------------------------------------------------

SCHEMES: list[Spaced] = [
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
def test_the_price_is_the_heaviest_diagonal_over_all_patterns(participation: Spaced) -> None:
    """max <v, x>, x >= 0, sum of x over every pattern <= 1: a linear program over all of them."""
    horizon = participation.horizon
    rows = np.array([[float(t in p) for t in range(horizon)] for p in patterns_of(participation)])
    rng = np.random.default_rng(horizon)
    for _ in range(8):
        v = rng.exponential(size=horizon) * (rng.uniform(size=horizon) < 0.7)
        found = scipy.optimize.linprog(-v, A_ub=rows, b_ub=np.ones(len(rows)))
        assert allowance(participation).price(v) == pytest.approx(-found.fun, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("participation", SCHEMES, ids=str)
def test_generators_are_allowed_and_leave_no_room(participation: Spaced) -> None:
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


# --- the objective --------------------------------------------------------------------------------


@pytest.mark.parametrize(("horizon", "bands"), [(1, 1), (5, 1), (5, 5), (40, 3), (70, 33), (96, 8)])
def test_error_and_gradient_by_dense_algebra(horizon: int, bands: int) -> None:
    """tr(H (C^T C)^-1), and -2 C X^-1 H X^-1 on the band; twice, as arrays are kept."""
    rng = np.random.default_rng(horizon)
    gram = random_gram(horizon, bands)
    error = BandedError(gram, bands)
    for _ in range(2):
        columns = rng.standard_normal((horizon, bands)) * 0.3 / bands
        columns[:, 0] = rng.uniform(0.5, 2, size=horizon)
        c = np.zeros((horizon, horizon))
        for d in range(bands):
            for t in range(horizon - d):
                c[t + d, t] = columns[t, d]
        assert (dense(columns) == c).all()
        inverse = np.linalg.inv(c.T @ c)
        value, gradient = error(columns)
        assert value == pytest.approx(float(np.sum(gram * inverse)), rel=1e-11)
        expected = -2 * c @ inverse @ gram @ inverse
        for d in range(bands):
            assert gradient[: horizon - d, d] == pytest.approx(
                np.diagonal(expected, -d), rel=1e-8, abs=1e-9 * float(np.abs(expected).max())
            )


@pytest.mark.parametrize("participation", [min_sep(9, 3, 2), FixedEpoch(epochs=3, separation=3)])
def test_the_search_descends_along_true_derivatives(participation: Spaced) -> None:
    program = banded_program(gram=random_gram(9, 4), participation=participation, bands=3)
    variables = banded._Variables(program)
    rng = np.random.default_rng(0)
    point = variables.start() * rng.uniform(0.5, 1.5, size=len(variables.start()))
    _, gradient = variables.value_and_gradient(point)
    for direction in rng.standard_normal((5, len(point))):
        step = 1e-6 * direction
        up, _ = variables.value_and_gradient(point + step)
        down, _ = variables.value_and_gradient(point - step)
        assert (up - down) / 2e-6 == pytest.approx(gradient @ direction, rel=1e-6, abs=1e-8)


def test_a_point_where_the_error_overflows_is_far_away_and_not_an_accident() -> None:
    program = banded_program(gram=prefix(300), participation=single(300), bands=2)
    search = banded._Search(program, Monitor(gap=1e-6))
    upper = search.upper
    columns = np.column_stack([np.full(300, 1e-9), np.ones(300)])
    bad = search.at.copy()
    entries = (columns / search.variables.column_scale)[search.variables.inside]
    bad[: len(entries)] = entries
    value, gradient = search.evaluate(bad)
    assert np.log(upper) + 1 < value < np.inf
    assert not gradient.any()
    columns[:, 0] = 0.0
    bad[: len(entries)] = (columns / search.variables.column_scale)[search.variables.inside]
    assert search.evaluate(bad)[0] == value


# --- optima ---------------------------------------------------------------------------------------

CASES: list[tuple[Spaced, int]] = [
    (single(6), 2),
    (single(6), 6),
    (FixedEpoch(epochs=3, separation=2), 2),
    (FixedEpoch(epochs=2, separation=3), 2),
    (min_sep(7, 3, 3), 3),
    (min_sep(7, 3, 2), 3),
    (min_sep(7, 2, 9), 1),
    (min_sep(6, 4, 1), 6),
    (min_sep(5, 9, 2), 4),
    (min_sep(6, 1, 3), 1),
]


@pytest.mark.parametrize(("participation", "bands"), CASES, ids=str)
@pytest.mark.parametrize("kind", ["prefix", "random"])
def test_the_optimum_is_that_of_a_conic_solver(
    participation: Spaced, bands: int, kind: str
) -> None:
    size = participation.horizon
    gram = prefix(size) if kind == "prefix" else random_gram(size, size + bands)
    program = banded_program(gram=gram, participation=participation, bands=bands)
    _, value, lower = solved(program)
    assert lower <= value
    assert value == pytest.approx(clarabel_optimum(gram, participation, bands), rel=2e-7)


def test_one_band_is_independent_noise_in_closed_form() -> None:
    """Budgets shared in proportion to H_tt^1/2: the sum over classes of squared sums of roots."""
    gram = random_gram(12, 5)
    root = np.sqrt(np.diagonal(gram))
    program = banded_program(gram=gram, participation=FixedEpoch(epochs=4, separation=3), bands=1)
    expected = sum(root[j::3].sum() ** 2 for j in range(3))
    assert solved(program)[1] == pytest.approx(expected, rel=1e-8)
    program = banded_program(gram=gram, participation=single(12), bands=1)
    assert solved(program)[1] == pytest.approx(float(np.trace(gram)), rel=1e-12)


@pytest.mark.parametrize("horizon", [1, 2, 20])
def test_all_bands_are_no_restriction(horizon: int) -> None:
    """p = T under single participation: the unrestricted optimum, by its fixed point."""
    gram = prefix(horizon)
    program = banded_program(gram=gram, participation=single(horizon), bands=horizon)
    reference = oracles.diagonal_interval(gram)
    _, value, lower = solved(program)
    assert reference.meets(lower, value)


def test_more_bands_never_cost() -> None:
    gram = prefix(24)
    for participation in (FixedEpoch(epochs=4, separation=6), min_sep(24, 6, 3)):
        values = []
        for bands in (1, 2, 4, 6):
            program = banded_program(gram=gram, participation=participation, bands=bands)
            values.append(solved(program, gap=1e-7)[1])
        assert all(more < less for less, more in itertools.pairwise(values))


def test_min_separation_costs_more_than_fixed_epochs() -> None:
    """Their patterns are among its: (3, 4) against at most 3, 4 apart, of 12. Known: 8.650 a step,
    where all patterns without a band restriction allow 8.635."""
    gram = prefix(12)
    epochs = banded_program(gram=gram, participation=FixedEpoch(epochs=3, separation=4), bands=4)
    apart = banded_program(gram=gram, participation=min_sep(12, 4, 3), bands=4)
    value = solved(apart)[1]
    assert solved(epochs)[1] < value
    assert value / 12 == pytest.approx(8.650, abs=5e-4)


@pytest.mark.parametrize(
    ("participation", "bands"),
    [
        (single(128), 16),
        (FixedEpoch(epochs=4, separation=16), 8),
        (min_sep(60, 16, 4), 16),
        (min_sep(64, 16, 3), 4),
    ],
    ids=str,
)
def test_longer_horizons_are_certified(participation: Spaced, bands: int) -> None:
    program = banded_program(
        gram=prefix(participation.horizon), participation=participation, bands=bands
    )
    solved(program, gap=1e-6)


@given(seed=st.integers(0, 10**6), exponent=st.sampled_from([-120, 0, 120]))
@settings(max_examples=10, derandomize=True, deadline=None)
def test_the_scale_of_the_workload_is_free(seed: int, exponent: int) -> None:
    gram = random_gram(8, seed)
    scheme = min_sep(8, 3, 3)
    plain = solved(banded_program(gram=gram, participation=scheme, bands=3), gap=1e-7)[1]
    program = banded_program(gram=gram * 10.0**exponent, participation=scheme, bands=3)
    assert solved(program, gap=1e-7)[1] / 10.0**exponent == pytest.approx(plain, rel=2e-7)


@given(seed=st.integers(0, 10**6))
@settings(max_examples=30, derandomize=True, deadline=None)
def test_balanced_multipliers_cost_no_more_than_their_own_diagonal(seed: int) -> None:
    """Where some generators are not in use: those that are have the rate <v, x>, none a larger."""
    rng = np.random.default_rng(seed)
    allowed = allowance(min_sep(24, 6, 4))
    shares = rng.exponential(size=19) * (rng.uniform(size=19) < 0.5)
    shares /= shares.sum()
    x = allowed.generators @ shares
    rates = 1 + 0.02 * rng.standard_normal(24)
    balanced = banded_witness.balanced(allowed, rates, shares)
    assert allowed.price(balanced) / (balanced @ x) <= allowed.price(rates) / (rates @ x)
    assert allowed.price(balanced) == pytest.approx(balanced @ x, rel=1e-6)


def test_diagonals_that_cannot_be_balanced_keep_their_shape() -> None:
    """Four windows side by side and all steps at cost 3: rates 4 r = 3 r only for r = 0."""
    allowed = allowance(min_sep(24, 6, 3))
    shares = np.zeros(len(allowed.cost))
    shares[[0, 6, 12, 18]] = 0.1
    shares[-1] = 0.2
    balanced = banded_witness.balanced(allowed, np.ones(24), shares)
    assert balanced == pytest.approx(np.full(24, balanced[0]), rel=1e-9)


# --- stopping and refusals ------------------------------------------------------------------------


def test_interrupted_and_late_answers_are_feasible_and_bounded() -> None:
    program = banded_program(gram=prefix(64), participation=min_sep(64, 16, 4), bands=16)

    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    for monitor, stop in (
        (Monitor(gap=1e-12, progress=interrupt), Stop.INTERRUPTED),
        (Monitor(gap=1e-12, time_limit=0.0), Stop.TIME_LIMIT),
    ):
        answer = banded.solve(program, monitor=monitor)
        assert answer.stop is stop
        bound = banded_lower_bound(program, answer.multipliers)
        certificate = judge_strategy(
            program, unit_strategy(program, dense(answer.columns)), bound=bound
        )
        assert certificate.feasible
        assert 0 < bound <= certificate.objective
        reported = monitor.history[-1]
        assert reported.lower == pytest.approx(bound, rel=1e-9)
        assert reported.upper == pytest.approx(certificate.objective, rel=1e-9)


@pytest.mark.parametrize("participation", [FixedEpoch(epochs=2, separation=3), min_sep(6, 3, 2)])
def test_more_bands_than_the_separation_are_refused(participation: Spaced) -> None:
    banded_program(gram=prefix(6), participation=participation, bands=3)
    with pytest.raises(InputError, match=r"bands: .*separation, 3.*this structure cannot hold"):
        banded_program(gram=prefix(6), participation=participation, bands=4)


def test_what_is_no_problem_is_refused() -> None:
    good = prefix(4)
    cases = [
        ("bands", {"bands": 5}),
        ("bands", {"bands": 0}),
        ("bands", {"bands": 2.0}),
        ("gram", {"gram": prefix(5)}),
        ("gram", {"gram": good.astype(np.float32)}),
        ("gram", {"gram": np.ones((4, 4))}),
        ("gram", {"gram": np.zeros((4, 4))}),
        ("gram", {"gram": np.diag([1.0, 1.0, 1.0, -1.0])}),
        ("gram", {"gram": np.tril(good)}),
        ("gram", {"gram": np.where(good == 4, np.nan, good)}),
        ("participation", {"participation": Patterns(horizon=4, steps=((0, 2),))}),
    ]
    for field, change in cases:
        arguments = {"gram": good, "participation": single(4), "bands": 2} | change
        with pytest.raises(InputError) as caught:
            banded_program(**arguments)
        assert caught.value.field == field
    with pytest.raises(InputError, match="null direction"):
        banded_program(gram=np.ones((4, 4)), participation=single(4), bands=2)
