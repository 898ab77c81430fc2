"""Polynomials of B through sparse products, against dense eigenvectors."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from numpy.polynomial import Chebyshev
from scipy import sparse

from noisedesign.base.checks import Array
from noisedesign.families.polynomial import operator as operators, reach
from noisedesign.families.polynomial.operator import Powers, Weighted
from tests.support import oracles


def cases() -> dict[str, Array]:
    return {
        "symmetric": oracles.metropolis(nx.barabasi_albert_graph(50, 3, seed=1)),
        "one-sided": oracles.row_normalized(nx.barabasi_albert_graph(50, 2, seed=2)),
        "rank one": np.full((6, 6), 1 / 6),
        "one node": np.ones((1, 1)),
    }


@pytest.fixture(params=list(cases()))
def pair(request: pytest.FixtureRequest) -> tuple[Weighted, Array]:
    """B by products, and B itself."""
    w = cases()[request.param]
    v = np.random.default_rng(0).uniform(0.2, 1.0, len(w))
    operator = Weighted(mixing=sparse.csr_array(w), weights=v)
    return operator, np.sqrt(v)[:, None] * (w.T @ w) * np.sqrt(v)


def dense(p: Chebyshev, b: Array) -> Array:
    values, vectors = np.linalg.eigh(b)
    return np.asarray((vectors * p(values)) @ vectors.T)


def polynomial(operator: Weighted, degree: int) -> Chebyshev:
    coefficients = np.random.default_rng(degree).standard_normal(degree + 1)
    return Chebyshev(coefficients, domain=[0.0, operator.top])


def test_eigenvalues_are_within_a_bound_that_is_close(pair: tuple[Weighted, Array]) -> None:
    operator, b = pair
    largest = float(np.linalg.eigvalsh(b)[-1])
    assert largest <= operator.top <= 1.02 * largest


def test_a_bound_ends_where_it_gains_no_more(pair: tuple[Weighted, Array]) -> None:
    """Of rank one, or of one node, the first step is exact; of others some pay."""
    _, b = pair
    asked: list[int] = []

    def product(x: Array) -> Array:
        asked.append(1)
        return b @ x

    found = operators.largest_at_most(product, len(b), steps=60)
    assert np.linalg.eigvalsh(b)[-1] <= found
    assert operators.GAINING < len(asked) < 40
    if np.linalg.matrix_rank(b) == 1:
        assert len(asked) <= operators.GAINING + 2


def test_chebyshev_polynomials_by_turns(pair: tuple[Weighted, Array]) -> None:
    operator, b = pair
    block = np.random.default_rng(1).standard_normal((len(b), 2))
    for j, found in enumerate(operator.chebyshev(block, 4)):
        p = Chebyshev.basis(j, domain=[0.0, operator.top])
        np.testing.assert_allclose(found, dense(p, b) @ block, atol=1e-11)
    assert j == 4


def test_the_bound_holds_without_convergence(
    pair: tuple[Weighted, Array], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operators, "POWER_STEPS", 1)
    operator, b = pair
    assert np.linalg.eigvalsh(b)[-1] <= operator.top


@pytest.mark.parametrize("degree", [0, 1, 2, 9])
def test_a_polynomial_times_a_block(pair: tuple[Weighted, Array], degree: int) -> None:
    operator, b = pair
    p = polynomial(operator, degree)
    block = np.random.default_rng(1).standard_normal((len(b), 3))
    np.testing.assert_allclose(operator.apply(p, block), dense(p, b) @ block, atol=1e-11)


@pytest.mark.parametrize("full", [0.0, 0.08, 2.0])
@pytest.mark.parametrize("degree", [0, 1, 2, 5])
def test_a_diagonal_is_a_finite_sum(
    pair: tuple[Weighted, Array], degree: int, full: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operators, "DENSE_FROM", full)
    monkeypatch.setattr(reach, "RUN", 7)
    operator, b = pair
    p = polynomial(operator, degree)
    np.testing.assert_allclose(operator.diagonal(p), np.diagonal(dense(p, b)), atol=1e-12)


def test_diagonals_are_found_once_and_ended_on_request(pair: tuple[Weighted, Array]) -> None:
    operator, _ = pair
    with pytest.raises(TimeoutError):
        operator.moments(3, go_on=lambda: False)
    more = operator.moments(3)
    assert np.array_equal(operator.moments(2, go_on=lambda: False), more[:3])
    more[:] = 0  # of whoever asked
    assert np.all(operator.moments(0) == 1)


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_change_nothing(
    pair: tuple[Weighted, Array], threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("noisedesign.base.workers.cores", lambda: threads)
    monkeypatch.setattr(reach, "RUN", 7)
    monkeypatch.setattr(operators, "WORTH", 0)
    operator, _ = pair
    again = Weighted(mixing=operator.mixing, weights=operator.weights)
    p = polynomial(operator, 5)
    block = np.random.default_rng(1).standard_normal((len(operator.weights), 40))
    assert np.array_equal(again.apply(p, block), operator.apply(p, block))
    np.testing.assert_array_equal(again.moments(4), operator.moments(4))
    columns = [again.apply(p, np.ascontiguousarray(block[:, k : k + 1])) for k in range(40)]
    np.testing.assert_allclose(np.concatenate(columns, axis=1), operator.apply(p, block))


def test_a_spectrum_has_the_moments_of_its_start(pair: tuple[Weighted, Array]) -> None:
    """Gauss quadrature of k points is exact up to degree 2 k - 1."""
    operator, b = pair
    start = np.random.default_rng(4).standard_normal(len(b))
    points, weights = operator.spectrum(start, steps=5)
    assert np.all((points >= 0) & (points <= operator.top))
    for power in range(1, 10):
        expected = start @ np.linalg.matrix_power(b, power) @ start
        assert weights @ points**power == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("dense", [0, 1000])
def test_a_measure_stands_for_a_trace(
    pair: tuple[Weighted, Array], dense: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exactly where all eigenvalues are found, else about: 400 vectors, and six deviations."""
    monkeypatch.setattr(operators, "DENSE", dense)
    monkeypatch.setattr(operators, "MEASURED", 400)
    operator, b = pair
    outer = sparse.csr_array(np.random.default_rng(5).random((3, len(b))))
    points, weights = operator.measure(outer, np.random.default_rng(6))
    for power in range(4):
        form = outer @ np.linalg.matrix_power(b, power) @ outer.T
        spread = 1e-9 if dense else 6 * np.sqrt(2 / 400) * np.linalg.norm(form)
        assert abs(weights @ points**power - np.trace(form)) <= spread


def test_blocks_are_cut_where_they_would_be_large(
    pair: tuple[Weighted, Array], monkeypatch: pytest.MonkeyPatch
) -> None:
    operator, b = pair
    monkeypatch.setattr(reach, "ENTRIES_AT_ONCE", 1)
    np.testing.assert_allclose(operator.moments(1)[1], 2 * np.diagonal(b) / operator.top - 1)


POWERS = np.array([2.0, 0.0, 0.5])


def test_powers_and_their_products() -> None:
    w = cases()["one-sided"]
    n = len(w)
    powers = Powers(mixing=sparse.csr_array(w), counts=POWERS)
    w3 = w @ w @ w
    h = 2 * w.T @ w + 0.5 * w3.T @ w3
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((n, 3)), rng.standard_normal((3 * n, 3))
    np.testing.assert_allclose(powers.dense, h, atol=1e-14)
    np.testing.assert_allclose(powers.times(x), h @ x, atol=1e-12)
    np.testing.assert_allclose(np.sum(powers.forward(x) ** 2), np.sum(x * (h @ x)), rtol=1e-12)
    np.testing.assert_allclose(np.sum(powers.forward(x) * y), np.sum(x * powers.backward(y)))
    drawn = powers.random(rng, 4000)
    spread = np.sqrt((np.outer(np.diagonal(h), np.diagonal(h)) + h**2) / 4000)
    assert np.abs((drawn @ drawn.T / 4000 - h) / spread).max() <= 6
    scale = rng.uniform(0.5, 2.0, n)
    largest = np.linalg.eigvalsh(np.sqrt(scale)[:, None] * h * np.sqrt(scale))[-1]
    assert largest <= powers.top(scale) <= 1.05 * largest


def test_the_first_powers_are_most_of_all() -> None:
    w = sparse.csr_array(cases()["symmetric"])
    powers = Powers(mixing=w, counts=np.arange(32.0, 0.0, -1.0))
    kept = powers.first(0.05, np.random.default_rng(0))
    assert 1 < len(kept.counts) < 32
    assert np.linalg.eigvalsh(powers.dense - kept.dense)[0] >= -1e-12
    assert np.trace(kept.dense) >= 0.85 * np.trace(powers.dense)
    assert len(powers.first(0.0, np.random.default_rng(0)).counts) == 32


@pytest.mark.parametrize("kind", ["symmetric", "ring"])
def test_fewer_products_stand_for_many_steps_from_below(kind: str) -> None:
    """H of symmetric W, and a factor whose square is at most H and has nearly its trace."""
    w = oracles.metropolis(nx.cycle_graph(30)) if kind == "ring" else cases()[kind]
    powers = Powers(mixing=sparse.csr_array(w), counts=np.arange(32.0, 0.0, -1.0))
    assert powers.symmetric
    assert powers.fourth_root is not None
    factor = w @ powers.times_fourth_root(powers.times_fourth_root(np.eye(len(w))))
    h = sum((33 - t) * np.linalg.matrix_power(w, 2 * t) for t in range(1, 33))
    np.testing.assert_allclose(powers.dense, h, atol=1e-10)
    assert np.linalg.eigvalsh(h - factor.T @ factor)[0] >= -1e-9
    assert np.sum(factor**2) >= (1 - 4e-3) * np.trace(h)


def test_nothing_stands_for_few_steps_or_other_w() -> None:
    many = np.arange(32.0, 0.0, -1.0)
    for kind, counts in (("symmetric", POWERS), ("one-sided", many), ("one node", many)):
        powers = Powers(mixing=sparse.csr_array(cases()[kind]), counts=counts)
        assert powers.fourth_root is None
