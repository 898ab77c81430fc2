"""Designs of polynomial precision against dense inverses, closed forms and dense optima."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import networkx as nx
import numpy as np
import pytest
from scipy import sparse

from noisedesign.base.checks import Array, InputError
from noisedesign.families.polynomial import bound, operator as operators, solver
from noisedesign.families.polynomial.bound import Estimate
from noisedesign.families.polynomial.operator import Weighted, near
from noisedesign.families.polynomial.program import SparseProgram
from noisedesign.families.polynomial.quadrature import deviation
from noisedesign.forms import PolynomialCovariance
from tests.support import oracles


def program_of(w: Array, budget: Array | float = 1.0) -> SparseProgram:
    return SparseProgram(mixing=sparse.csr_array(w), budget=budget)


def designed(
    program: SparseProgram, degree: int | None = None, seed: int = 0
) -> tuple[PolynomialCovariance, Weighted]:
    """The last noise, and B of the last multipliers."""
    steps = solver.improving(program, degree=degree, rng=np.random.default_rng(seed))
    return list(steps)[-1]


def solved(
    program: SparseProgram, degree: int | None = None
) -> tuple[PolynomialCovariance, Estimate, Estimate]:
    """Noise, its error, and a bound on that of all noise."""
    noise, operator = designed(program, degree)
    return noise, bound.error(program, noise), bound.proved(program, operator.weights, noise)


@cache
def scale_free(horizon: int = 1) -> tuple[PolynomialCovariance, Weighted]:
    """A design of degree 3, by estimates in place of eigenvectors."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(operators, "DENSE", 0)
        return designed(over_steps(horizon)[0], degree=3)


def random_budget(n: int) -> Array:
    return np.random.default_rng(9).uniform(0.5, 2.0, n)


SCALE_FREE = oracles.metropolis(nx.barabasi_albert_graph(120, 3, seed=0))
RING = oracles.metropolis(nx.cycle_graph(50))
CASES: dict[str, tuple[Array, Array | float, float]] = {
    "scale-free": (SCALE_FREE, 1.0, 0.03),
    "uneven budgets": (SCALE_FREE, random_budget(120), 0.04),
    "not symmetric": (oracles.row_normalized(nx.barabasi_albert_graph(60, 3, seed=5)), 2.0, 0.05),
    "ring": (RING, 1.0, 0.02),
    "star": (oracles.metropolis(nx.star_graph(11)), 1.0, 0.10),
    "one node": (np.ones((1, 1)), 4.0, 1e-3),
}
"""W, budgets, and the gap that is asked for."""


@pytest.mark.parametrize("case", list(CASES))
def test_noise_keeps_its_budgets_and_its_error_and_bound_enclose_the_optimum(case: str) -> None:
    w, budget, gap = CASES[case]
    program = program_of(w, budget)
    noise, (low, objective), (lower_bound, _) = solved(program, degree=3)
    r = noise.covariance()
    precision = np.diagonal(np.linalg.inv(r))
    assert np.all(precision <= program.budget)
    assert np.all(precision >= (1 - 1e-3) * program.budget)
    assert low == objective == pytest.approx(np.sum((w.T @ w) * r), rel=1e-9)
    assert objective <= (1 + gap) * lower_bound
    assert objective < program.independent_error * (1 if len(w) > 1 else 1.001)
    assert program.independent_error == pytest.approx(np.sum(np.diagonal(w.T @ w) / budget))
    optimum = oracles.diagonal_interval(w.T @ w, budget=program.budget, width=1e-6, sweeps=300)
    assert lower_bound <= optimum.upper * (1 + 1e-9)
    assert objective >= optimum.lower * (1 - 1e-9)


def test_the_optimum_of_a_ring_is_enclosed() -> None:
    """Vertex-transitive W: (nuclear norm of W)^2 / (n tau)."""
    optimum = oracles.vertex_transitive_optimum(RING)
    coarse, fine = (solved(program_of(RING), degree=degree) for degree in (2, 6))
    assert coarse[2].low <= optimum * (1 + 1e-12) <= fine[1].high < coarse[1].high
    assert fine[1].high <= 1.005 * optimum
    assert fine[2].low >= 0.995 * optimum


def test_noise_that_mixing_cancels_costs_what_no_design_undercuts() -> None:
    """W = J / n: the infimum 1 / n is not attained, polynomials stay away from it."""
    _, error, proved = solved(program_of(np.full((8, 8), 1 / 8)), degree=4)
    assert proved.low <= (1 + 1e-12) / 8
    assert (1 - 1e-12) / 8 <= error.high < 1


def test_estimates_hold_on_either_side_of_the_traces_themselves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    noise, v = scale_free()
    monkeypatch.setattr(bound, "PROBED", 110 * 120)
    monkeypatch.setattr(bound, "FAILURE", 1e-3)
    best = np.linalg.svd(v.factor.toarray(), compute_uv=False).sum() ** 2 / v.weights.sum()
    true = float(np.sum((SCALE_FREE.T @ SCALE_FREE) * noise.covariance()))
    for seed in range(2):
        program = replace(program_of(SCALE_FREE), seed=seed)
        error, below = bound.error(program, noise), bound.proved(program, v.weights)
        assert 0.9 * true <= error.low <= true <= error.high <= 1.1 * true
        assert 0.9 * best <= below.low <= best <= below.high


@pytest.mark.parametrize("rank", [1, 20])
def test_a_deviation_is_exceeded_as_rarely_as_it_says(rank: int) -> None:
    """E of ``rank`` eigenvalues 1: means of z^T E z are chi-squared, and known here by drawing."""
    rng = np.random.default_rng(7)
    squares = rng.chisquare(rank, size=(20_000, 4)).mean(axis=1)  # |E z|^2 = z^T E z
    for failure in (0.3, 0.05):
        over = np.array([deviation(s, 0.0, 1.0, probes=4, failure=failure) for s in squares])
        under = np.array([deviation(s, -1.0, 0.0, probes=4, failure=failure) for s in squares])
        assert np.mean(squares > rank + over) <= failure
        assert np.mean(squares < rank - under) <= failure
        assert np.all(under < over)
        # And no more than a few standard deviations: that of the mean is sqrt(rank / 2).
        assert np.median(over) <= 15 * math.sqrt(rank / 2)


def test_a_trace_is_far_on_the_side_of_its_large_eigenvalues() -> None:
    """The means of z^T E z of a positive E have their long tail above: less is known of how far
    the trace is below them."""
    down, up = (deviation(9.0, *ends, probes=9, failure=0.1) for ends in ((0, 1), (-1, 0)))
    assert down > up > 0


@pytest.mark.parametrize("kind", ["scale-free", "ring"])
def test_what_is_known_has_the_trace_and_the_ends_that_it_says(kind: str) -> None:
    w = {"scale-free": SCALE_FREE, "ring": RING}[kind]
    n = len(w)
    rng = np.random.default_rng(3)
    operator = Weighted(mixing=sparse.csr_array(w), weights=rng.uniform(0.5, 1.0, n))
    g = rng.uniform(0.5, 1.5, n)
    e = rng.standard_normal((n, n))
    starts = rng.standard_normal((n, 4))
    found = near(operator, g, degree=3, starts=starts, images=(e + e.T) @ starts)
    k = found.apply(np.eye(n))
    np.testing.assert_allclose(found.diagonal, np.diagonal(k), atol=1e-11)
    values = np.linalg.eigvalsh((k + k.T) / 2)
    assert found.ends[0] <= min(values[0], 0)
    assert max(values[-1], 0) <= found.ends[1]
    again = near(operator, g, degree=3, starts=starts, images=k @ starts)
    np.testing.assert_allclose(again.q.coef, found.q.coef, atol=1e-10)


@pytest.mark.parametrize("horizon", [1, 8, 32])
@pytest.mark.parametrize("uneven", [False, True])
def test_the_largest_eigenvalue_is_bounded(horizon: int, uneven: bool) -> None:
    program, h = over_steps(horizon)
    noise, _ = designed(replace(program, budget=random_budget(120) if uneven else 1.0), degree=3)
    largest = float(np.linalg.eigvals(h @ noise.covariance()).real.max())
    found = bound.largest_of(noise, program.objective)
    assert largest <= found
    if not uneven:
        assert found <= 12 * largest


def test_a_bound_that_says_too_much_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the deviation adds is needed: without it half of all estimates are off."""
    noise, v = scale_free()
    monkeypatch.setattr(bound, "deviation", lambda *_, **__: 0.0)
    monkeypatch.setattr(bound, "PROBED", 60 * 120)
    best = np.linalg.svd(v.factor.toarray(), compute_uv=False).sum() ** 2 / v.weights.sum()
    true = float(np.sum((SCALE_FREE.T @ SCALE_FREE) * noise.covariance()))
    programs = [replace(program_of(SCALE_FREE), seed=seed) for seed in range(5)]
    lows = [bound.proved(program, v.weights, noise).low for program in programs]
    highs = [bound.error(program, noise).high for program in programs]
    assert any(low > best for low in lows)
    assert any(high < true for high in highs)
    assert np.std(highs) < 0.02 * true  # against .1 without what is known exactly
    np.testing.assert_allclose(np.mean(highs), true, rtol=0.02)
    np.testing.assert_allclose(np.mean(lows), best, rtol=0.02)


def over_steps(horizon: int, w: Array = SCALE_FREE) -> tuple[SparseProgram, Array]:
    """All iterates of that many steps, and H."""
    counts = np.arange(horizon, 0.0, -1.0)
    h = np.zeros_like(w)
    for t, count in enumerate(counts, start=1):
        power = np.linalg.matrix_power(w, t)
        h += count * power.T @ power
    return SparseProgram(mixing=sparse.csr_array(w), powers=counts), h


def test_the_optimum_over_thirty_two_steps_is_enclosed() -> None:
    program, h = over_steps(32)
    noise, error, proved = solved(program)
    r = noise.covariance()
    assert np.all(np.diagonal(np.linalg.inv(r)) <= 1)
    assert error.low == error.high == pytest.approx(np.sum(h * r), rel=1e-9)
    assert error.high <= 1.03 * proved.low
    optimum = oracles.diagonal_interval(h, budget=program.budget, width=1e-6, sweeps=300)
    assert proved.low <= optimum.upper * (1 + 1e-9)
    assert error.high >= optimum.lower * (1 - 1e-9)
    assert program.independent_error == pytest.approx(np.trace(h))


def test_estimates_over_many_steps_hold_on_either_side(monkeypatch: pytest.MonkeyPatch) -> None:
    program, h = over_steps(8)
    noise, v = scale_free(8)
    monkeypatch.setattr(bound, "WRITTEN_OVER_STEPS", 0)
    monkeypatch.setattr(bound, "PROBED", 30 * 120)
    monkeypatch.setattr(bound, "FAILURE", 1e-3)
    true = float(np.sum(h * noise.covariance()))
    root = np.sqrt(v.weights)
    values = np.linalg.eigvalsh(root[:, None] * h * root)
    best = np.sqrt(np.clip(values, 0, None)).sum() ** 2 / v.weights.sum()
    assert best <= true <= 1.1 * best
    for seed in range(2):
        seeded = replace(program, seed=seed)
        error, below = bound.error(seeded, noise), bound.proved(seeded, v.weights)
        assert error.low <= true <= error.high <= 2 * true
        assert 0.6 * best <= below.low <= best


def test_one_power_scales_error_and_bound() -> None:
    plain, three = (
        solved(SparseProgram(mixing=sparse.csr_array(RING), powers=(c,))) for c in (1.0, 3.0)
    )
    assert three[1].high == pytest.approx(3 * plain[1].high)
    assert three[2].low == pytest.approx(3 * plain[2].low)


@pytest.mark.parametrize("powers", [(), (0.0,), (1.0, -1.0, 1.0), (math.nan,), 1.0])
def test_bad_powers_are_refused(powers: object) -> None:
    with pytest.raises(InputError) as caught:
        SparseProgram(mixing=sparse.csr_array(RING), powers=powers)
    assert caught.value.field == "powers"


@pytest.mark.slow
def test_twenty_thousand_nodes_within_three_percent() -> None:
    """An array of n x n doubles would take 3.2 GB. Budgets are met: seen at the ten nodes of the
    most neighbours and ten others, by products with unit vectors."""
    graph = nx.barabasi_albert_graph(20_000, 3, seed=0)
    links = nx.to_scipy_sparse_array(graph, dtype=float, format="coo")
    degrees = links.sum(axis=1)
    weights = 1 / (1 + np.maximum(degrees[links.row], degrees[links.col]))
    w = sparse.csr_array((weights, (links.row, links.col)), shape=links.shape)
    w = w + sparse.diags_array(1 - w.sum(axis=1))
    program = SparseProgram(mixing=w, budget=2.0)
    noise, error, proved = solved(program, degree=2)
    assert not bound.is_exact(program)
    assert error.high <= 1.03 * proved.low
    seen = np.concatenate([np.argsort(degrees)[-10:], np.arange(10_000, 10_010)])
    unit = np.zeros((20_000, 20))
    unit[seen, np.arange(20)] = 1 / np.sqrt(noise.scale[seen])
    operator = Weighted(mixing=noise.mixing, weights=noise.weights, bound=noise.bound)
    precision = np.sum(unit * operator.apply(noise.polynomials[0], unit), axis=0)
    np.testing.assert_allclose(precision, 2.0, rtol=1e-9)
    assert np.all(precision <= 2.0)


def test_the_same_seed_gives_the_same_design(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operators, "DENSE", 0)
    first, second, other = (designed(program_of(RING), 3, seed)[0].scale for seed in (3, 3, 4))
    assert np.array_equal(first, second)
    assert not np.array_equal(first, other)


def wrong() -> dict[str, tuple[object, str]]:
    row = sparse.csr_array(SCALE_FREE)
    nan = row.copy()
    nan.data[0] = math.nan
    return {
        "dense": (SCALE_FREE, "sparse"),
        "float32": (row.astype(np.float32), "float64"),
        "oblong": (row[:, :7], "square"),
        "negative": (-row, "nonnegative"),
        "nan": (nan, "finite"),
        "sums": (row * 0.5, "row"),
        "parts": (sparse.eye_array(3, format="csr"), "3 components"),
    }


@pytest.mark.parametrize("kind", list(wrong()))
def test_bad_mixing_is_refused(kind: str) -> None:
    mixing, told = wrong()[kind]
    with pytest.raises(InputError, match=told) as caught:
        SparseProgram(mixing=mixing)
    assert caught.value.field == "mixing"


@pytest.mark.parametrize("budget", [0.0, -1.0, [1.0, 2.0], math.nan])
def test_bad_budgets_are_refused(budget: object) -> None:
    with pytest.raises(InputError) as caught:
        program_of(SCALE_FREE, budget)  # type: ignore[arg-type]
    assert caught.value.field.startswith("budget")
