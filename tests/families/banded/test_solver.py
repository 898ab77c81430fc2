"""Banded strategies: the error and its gradient, the optimum, what is refused."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from noisedesign.base.banded_matrices import BandedError, dense
from noisedesign.base.checks import InputError
from noisedesign.base.monitor import Monitor, Stop
from noisedesign.certify.certificate import judge_strategy
from noisedesign.certify.repair import unit_strategy
from noisedesign.families.banded import bound as banded_witness, solver as banded
from noisedesign.families.banded.bound import banded_lower_bound
from noisedesign.families.banded.program import BandedProgram, allowance, banded_program
from noisedesign.privacy.sensitivity import squared_sensitivity
from noisedesign.system.participation import FixedEpoch, Participation, Patterns, single
from tests.support import oracles
from tests.support.banded_cases import Array, min_sep, patterns_of, prefix, random_gram


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


def clarabel_optimum(gram: Array, participation: Participation, bands: int) -> float:
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
def test_the_search_descends_along_true_derivatives(participation: Participation) -> None:
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

CASES: list[tuple[Participation, int]] = [
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
    participation: Participation, bands: int, kind: str
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
def test_longer_horizons_are_certified(participation: Participation, bands: int) -> None:
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
def test_more_bands_than_the_separation_are_refused(participation: Participation) -> None:
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
