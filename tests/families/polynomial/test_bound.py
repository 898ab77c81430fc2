"""The judge of polynomial noise: what it accepts is so, and what is not so it refuses."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import networkx as nx
import numpy as np
import pytest
from numpy.polynomial import Chebyshev
from scipy import sparse

from noisedesign.base.checks import Array
from noisedesign.base.monitor import Monitor
from noisedesign.families.polynomial import bound, quadrature, reach
from noisedesign.families.polynomial.family import FAMILY
from noisedesign.families.polynomial.operator import Weighted
from noisedesign.families.polynomial.program import SparseProgram
from noisedesign.families.polynomial.quadrature import Probes
from noisedesign.forms import PolynomialCovariance
from noisedesign.forms.structure import SpaceStructure
from noisedesign.problem.problem import SpaceProblem
from tests.support import oracles
from tests.support.forged_polynomials import FORGED

W = oracles.metropolis(nx.barabasi_albert_graph(60, 2, seed=0))
BUDGET = np.random.default_rng(2).uniform(0.5, 2.0, 60)
POLYNOMIAL = SpaceStructure(kind="polynomial")


@cache
def designed() -> PolynomialCovariance:
    program = FAMILY.program(SpaceProblem(mixing=W, budget=BUDGET, structure=POLYNOMIAL))
    (noise,) = FAMILY.solve(program, monitor=Monitor(gap=0.1)).noises
    assert isinstance(noise.space, PolynomialCovariance)
    return noise.space


def operator(space: PolynomialCovariance) -> Array:
    """B, dense."""
    root = np.sqrt(space.weights)
    w = space.mixing.toarray()
    return np.asarray(root[:, None] * (w.T @ w) * root)


def by_the_solver(space: PolynomialCovariance) -> Array:
    """The diagonal of p(B) by its sums, on the same domain."""
    found = Weighted(mixing=space.mixing, weights=space.weights, bound=space.bound)
    return found.diagonal(space.polynomials[0])


@pytest.mark.parametrize("degree", [0, 1, 2, 3, 4, 7, 12])
def test_diagonals_are_those_of_dense_powers(degree: int) -> None:
    coefficients = np.random.default_rng(degree).standard_normal(degree + 1)
    space = replace(designed(), precision=coefficients)
    values, vectors = np.linalg.eigh(operator(space))
    p = Chebyshev(coefficients, domain=[0, space.bound])
    for found in (bound.diagonal(space), by_the_solver(space)):
        np.testing.assert_allclose(found, vectors**2 @ p(values), atol=1e-12)


def test_diagonals_of_a_graph_whose_paths_end() -> None:
    """On a complete graph B has rank 1: after one step there is nothing more."""
    space = PolynomialCovariance(
        mixing=sparse.csr_array(np.full((4, 4), 0.25)),
        weights=np.ones(4),
        bound=1.0,
        precision=np.array([1.0, 0.3, 0.2, 0.1]),
        noise=np.ones(1),
        scale=np.ones(4),
    )
    p, _ = space.polynomials
    for found in (bound.diagonal(space), by_the_solver(space)):
        np.testing.assert_allclose(found, p(0) + (p(1) - p(0)) / 4, rtol=1e-14)


def test_sums_of_the_solver_that_are_wrong_are_found_by_the_judge_of_a_solve(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Half of every diagonal: the noise has half the variance that it should have. What its error
    is, and what is proved of others, is told by no such sum."""
    monkeypatch.setattr(bound, "PROBED", 0)
    right = Weighted._moments
    monkeypatch.setattr(Weighted, "_moments", lambda *given: right(*given) / 2)
    program = FAMILY.program(SpaceProblem(mixing=W, budget=BUDGET, structure=POLYNOMIAL))
    assert program.seed is not None  # a solve, whose vectors are fixed
    answer = FAMILY.solve(program, monitor=Monitor(gap=0.1))
    (noise,) = answer.noises
    told = FAMILY.judge(program, noise, {}, bound=0.0)
    assert told.sensitivity_squared == pytest.approx(2.0, rel=1e-3)
    space, weights = noise.space, answer.proof["dual_weights"]
    assert isinstance(space, PolynomialCovariance)
    true = float(np.sum((W.T @ W) * space.covariance()))
    error = bound.error(program, space)
    assert error.low < true < error.high == told.objective
    nuclear = np.linalg.svd(W * np.sqrt(weights), compute_uv=False).sum()
    proved = bound.proved(program, weights, space)
    assert proved.low < nuclear**2 / float(BUDGET @ weights) < proved.high


def test_the_sensitivity_is_above_that_of_the_inverse_and_hardly() -> None:
    space = designed()
    found = bound.squared_sensitivity(space, BUDGET)
    true = float((np.diagonal(np.linalg.inv(space.covariance())) / BUDGET).max())
    assert found <= 1
    assert true <= found <= true * (1 + 2e-5)


@pytest.mark.parametrize("full", [0.0, 0.05, 2.0])
def test_blocks_of_columns_are_as_good_as_all(full: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sparse, dense, and as they fill."""
    space = designed()
    monkeypatch.setattr(reach, "RUN", 7)
    monkeypatch.setattr(quadrature, "FULL", full)
    np.testing.assert_allclose(
        bound.diagonal(replace(space)), by_the_solver(space), rtol=1e-13
    )  # a copy, of which nothing is kept


@pytest.mark.parametrize("forged", FORGED)
def test_what_is_forged_is_not_feasible(forged: object) -> None:
    space = designed()
    changed = replace(space, **forged(space))  # type: ignore[operator]
    assert not bound.squared_sensitivity(changed, BUDGET) <= 1


def test_noise_that_vanishes_beyond_the_bound_is_not_feasible() -> None:
    """r >= 1 on [0, 1/2], and .02 at 1, the eigenvalue of the mean: [R^-1]_ii is over 600."""
    space = PolynomialCovariance(
        mixing=sparse.csr_array(np.full((4, 4), 0.25)),
        weights=np.ones(4),
        bound=0.5,
        precision=np.ones(1),
        noise=np.array([1.505, -0.495]),  # 2 - 1.98 x
        scale=np.ones(4),
    )
    assert np.diagonal(np.linalg.inv(space.covariance())).min() > 600
    assert bound.squared_sensitivity(space, np.ones(4)) == np.inf
    # On [0, 1.1] the same coefficients say r >= 1 at all eigenvalues.
    assert bound.squared_sensitivity(replace(space, bound=1.1), np.ones(4)) <= 1


def test_a_dip_between_points_is_not_missed() -> None:
    """p dips below 0 where two points of a coarse grid do not look."""
    dip = Chebyshev.fromroots([0.49, 0.51], domain=[0, 1])
    assert dip(np.array([0.0, 0.25, 0.75, 1.0])).min() > 0
    assert bound.least(dip, dip) < 0
    assert bound.least(dip + 2e-4, dip) > 0  # its least value is -1e-4, on [0, 1] of slopes 1
    assert bound.least(dip, dip) <= float(dip(0.5))


@pytest.mark.parametrize("degree", [0, 1, 2, 9, 40])
def test_a_bound_on_a_polynomial_is_below_it_and_hardly(degree: int) -> None:
    p = Chebyshev(np.random.default_rng(degree).standard_normal(degree + 1), domain=[0, 0.7])
    values = p(np.linspace(0, 0.7, 20_001))
    assert values.min() - 2e-3 * np.abs(values).max() <= bound.least(p, p) <= values.min()
    # Where the constant is known apart, what is missed is a share of how much it changes.
    assert bound.least(p + 1e3, p) >= 1e3 + values.min() - 2e-3 * np.abs(values).max()


def test_eigenvalues_are_within_what_is_above_them_alone() -> None:
    space = designed()
    top = float(np.linalg.eigvalsh(operator(space)).max())
    assert bound.eigenvalues_within(replace(space, bound=top * 1.02))
    assert not bound.eigenvalues_within(replace(space, bound=top * (1 - 1e-9)))


def test_estimates_enclose_error_and_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bound, "PROBED", 0)
    program = SparseProgram(mixing=sparse.csr_array(W), budget=BUDGET, seed=7)
    assert not bound.is_exact(program)
    space = designed()
    error = bound.error(program, space)
    true = float(np.sum((W.T @ W) * space.covariance()))
    assert error.low < true < error.high
    v = np.random.default_rng(0).uniform(0.5, 1.0, 60)
    proved = bound.proved(program, v)
    nuclear = np.linalg.svd(W * np.sqrt(v), compute_uv=False).sum()
    assert 0 < proved.low < nuclear**2 / float(BUDGET @ v)
    assert proved.low < proved.high


MANY = np.arange(32.0, 0.0, -1.0)


def test_over_many_steps_less_than_the_root_is_proved_and_hardly_less(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """E in place of S by dense eigenvectors: its trace and norm are below those of S for any v, and
    close where v varies little; what is estimated encloses that trace, not that of S."""
    monkeypatch.setattr(bound, "WRITTEN_OVER_STEPS", 0)
    monkeypatch.setattr(bound, "PROBED", 0)
    program = SparseProgram(mixing=sparse.csr_array(W), powers=MANY, seed=7)
    assert not bound.is_exact(program)
    values, vectors = np.linalg.eigh(W)
    fourth = program.objective.fourth_root
    assert fourth is not None
    s = (vectors * fourth(values**2)) @ vectors.T
    rng = np.random.default_rng(0)
    for spread in (0.0, 0.3, 3.0):
        v = np.exp(spread * rng.standard_normal(60))
        h = np.sqrt(v)[:, None] * program.objective.dense * np.sqrt(v)
        whole = np.sqrt(np.clip(np.linalg.eigvalsh(h), 0, None))
        x, u = np.linalg.eigh((W * v) @ W)
        inside = s @ (u * np.sqrt(np.clip(x, 0, None))) @ u.T @ s
        assert inside.trace() <= whole.sum() * (1 + 1e-12)
        assert np.linalg.norm(inside, 2) <= whole[-1] * (1 + 1e-12)
        assert inside.trace() >= whole.sum() * (1 - 2e-3 - spread / 30)
        proved = bound.proved(program, v)
        assert proved.low < inside.trace() ** 2 / v.sum() < proved.high


def test_a_judge_draws_vectors_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bound, "PROBED", 0)
    problem = SpaceProblem(mixing=W, budget=BUDGET, structure=POLYNOMIAL)
    program, space = FAMILY.program(problem), designed()
    same = {bound.error(program, space).high for _ in range(2)}
    other = {bound.error(FAMILY.afresh(program), space).high for _ in range(2)}
    assert len(same) == 1
    assert len(other | same) == 3


def test_error_and_bound_have_vectors_of_their_own() -> None:
    """Else what is drawn by chance would err in both, and the gap be less than it is."""
    program = SparseProgram(mixing=sparse.csr_array(W), budget=BUDGET, seed=7)
    for seeded in (program, FAMILY.afresh(program)):
        first, second = (bound._vectors(seeded, use).standard_normal(8) for use in (0, 1))
        assert not np.isin(first, second).any()


@pytest.mark.parametrize("share", [0.9, 0.5, 0.1])
def test_noise_that_says_too_little_of_its_eigenvalues_serves_no_bound(
    share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is known of it is of polynomials beyond where they are told: as without any noise."""
    monkeypatch.setattr(bound, "PROBED", 0)
    program = SparseProgram(mixing=sparse.csr_array(W), budget=BUDGET, seed=7)
    space = designed()
    v = np.random.default_rng(0).uniform(0.5, 1.0, 60)
    alone, honest = bound.proved(program, v), bound.proved(program, v, space)
    assert honest != alone
    assert bound.proved(program, v, replace(space, bound=share * space.bound)) == alone
    nuclear = np.linalg.svd(W * np.sqrt(v), compute_uv=False).sum() ** 2 / float(BUDGET @ v)
    for found in (alone, honest):
        assert found.low < nuclear < found.high


class Diagonal:
    """K = diag(values), which is known."""

    def __init__(self, values: Array) -> None:
        self.diagonal = values
        self.ends = min(float(values.min()), 0.0), max(float(values.max()), 0.0)

    def apply(self, block: Array) -> Array:
        return np.asarray(self.diagonal[:, None] * block)


def watched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, float]]:
    """What |E z|^2 is said to be on average, and with which failure, where deviations are asked."""
    said: list[tuple[float, float]] = []
    original = bound.deviation

    def deviation(squared: float, *ends: float, probes: int, failure: float) -> float:
        said.append((squared, failure))
        return original(squared, *ends, probes=probes, failure=failure)

    monkeypatch.setattr(bound, "deviation", deviation)
    return said


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_what_is_estimated_may_be_off_to_either_side_by_its_own_ends(
    sign: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of S = c I, which one step tells, and K far from symmetric about 0, by the words of Laurent
    and Massart: tr(S - K) is above the mean of z^T (S - K) z by 2 f s^(1/2) + 2 s e, e the largest
    eigenvalue of K - S or 0, and below it by the same of S - K, all by the ends of K and S."""
    squares = watched(monkeypatch)
    failure, count, n, c = 1e-3, 400, 5, 1e3
    values = sign * np.array([1.0, 2.0, 3.0, 4.0, 100.0])
    known = Diagonal(values)
    starts = Probes(n, count, np.random.default_rng(3))
    found = bound.rest_of_root(
        lambda x: c * x,
        lambda y: c * y,
        known,  # type: ignore[arg-type]
        top=c**2,
        starts=starts,
        failure=failure,
    )
    z = np.hstack([starts.block(i) for i in range(len(starts))])
    share = np.log(2 / failure) / count
    left = (c - values)[:, None] * z
    largest, least = c - min(0.0, sign * 100), -max(0.0, sign * 100)
    shift = max(largest, -least) * np.sqrt(share)
    frobenius = shift + np.sqrt(shift**2 + squares[0][0])
    mean = float(values.sum() + np.mean(np.sum(z * left, axis=0)))
    high = mean + 2 * frobenius * np.sqrt(share) - 2 * least * share
    low = mean - 2 * frobenius * np.sqrt(share) - 2 * largest * share
    assert found.high == pytest.approx(high, rel=1e-6)
    assert found.low == pytest.approx(low, rel=1e-6)
    assert low < n * c < high


@pytest.mark.parametrize("most", [1, 2, 4, 30])
@pytest.mark.parametrize("stretched", [False, True])
def test_what_is_left_of_a_root_is_no_less_than_it_is(
    most: int, stretched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """|(S - K) z| by dense eigenvectors, however few steps tell S z, and whatever Q is beside it;
    the failures of both sides are those that were asked for."""
    said = watched(monkeypatch)
    rng = np.random.default_rng(4)
    a = W * np.sqrt(BUDGET)
    q = np.diag(rng.uniform(0.5, 7.0, 60)) if stretched else np.eye(60)
    values, vectors = np.linalg.eigh(a.T @ a)
    root = (vectors * np.sqrt(np.clip(values, 0.0, None))) @ vectors.T
    whole = q @ root @ q
    known = Diagonal(np.diagonal(whole) * rng.uniform(0.9, 1.1, 60))
    starts = Probes(60, 16, rng)
    found = bound.rest_of_root(
        lambda x: a @ x,
        lambda y: a.T @ y,
        known,  # type: ignore[arg-type]
        outer=(lambda x: q @ x) if stretched else None,
        stretch=float(np.linalg.norm(q, 2)),
        top=float(np.linalg.norm(whole, 2)) ** 2,
        starts=starts,
        failure=1e-3,
        apart=0.0,
        most=most,
    )
    z = np.hstack([starts.block(i) for i in range(len(starts))])
    left = whole @ z - known.apply(z)
    truth = float(np.mean(np.sum(left**2, axis=0)))
    assert [failure for _, failure in said] == [1e-3, 1e-3]
    assert all(squared >= truth * (1 - 1e-9) for squared, _ in said)
    assert found.low < whole.trace() < found.high
