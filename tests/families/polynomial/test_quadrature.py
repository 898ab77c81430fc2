"""Rules from few steps, against dense eigenvectors: on which side of the root they are."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from noisedesign.base.checks import Array
from noisedesign.families.polynomial import quadrature
from noisedesign.families.polynomial.quadrature import Bidiagonal
from tests.support import oracles

STAR = oracles.metropolis(nx.star_graph(29))
"""Four distinct singular values: the process comes to an end."""

CASES: dict[str, Array] = {
    "scale-free": oracles.metropolis(nx.barabasi_albert_graph(80, 2, seed=1)),
    "singular": oracles.metropolis(nx.path_graph(40)) @ oracles.metropolis(nx.star_graph(39)),
    "few values": STAR,
    "one value": np.eye(9),
    "oblong": np.random.default_rng(0).random((7, 30)),
}


@pytest.fixture(params=list(CASES))
def a(request: pytest.FixtureRequest) -> Array:
    return CASES[request.param]


def process_of(a: Array, steps: int, columns: int = 3) -> tuple[Bidiagonal, Array]:
    starts = np.random.default_rng(1).standard_normal((a.shape[1], columns))
    process = Bidiagonal(lambda x: a @ x, lambda y: a.T @ y, starts)
    process.extend(steps)
    return process, starts


def spectral(a: Array, starts: Array) -> tuple[Array, Array]:
    """Eigenvalues of A^T A, and what every column has in each squared."""
    _, s, vectors = np.linalg.svd(a, full_matrices=True)
    values = np.concatenate([s**2, np.zeros(len(vectors) - len(s))])
    return values, (vectors @ starts) ** 2


@pytest.mark.parametrize("steps", [1, 2, 5, 12, 60])
def test_half_powers_lie_between_both_rules(a: Array, steps: int) -> None:
    process, starts = process_of(a, steps)
    values, masses = spectral(a, starts)
    for column in range(3):
        low, high = (process.rule(column, below=below) for below in (True, False))
        assert np.all(low.nodes >= 0)
        room = 1e-12 * masses[:, column].sum()
        root = np.sqrt(values) @ masses[:, column]
        assert low(np.sqrt(low.nodes)) <= root + room
        assert high(np.sqrt(high.nodes)) >= root - room
        if steps >= 60:
            assert low(np.sqrt(low.nodes)) == pytest.approx(root, rel=2e-3)


@pytest.mark.parametrize("steps", [3, 6])
def test_polynomials_are_integrated_exactly(a: Array, steps: int) -> None:
    process, starts = process_of(a, steps)
    values, masses = spectral(a, starts)
    for power in range(2 * steps):
        for below in (True, False):
            rule = process.rule(1, below=below)
            assert rule(rule.nodes**power) == pytest.approx(values**power @ masses[:, 1], rel=1e-9)


@pytest.mark.parametrize("steps", [4, 9, 40])
def test_roots_are_known_on_either_side(a: Array, steps: int) -> None:
    process, starts = process_of(a, steps)
    values, masses = spectral(a, starts)
    low, high = process.roots()
    room = 1e-7 * masses.sum(axis=0)  # a root of rounding, at 0
    assert np.all(low <= np.sqrt(values) @ masses + room)
    assert np.all(high >= np.sqrt(values) @ masses - room)
    if steps == 40:
        np.testing.assert_allclose(low, high, rtol=5e-3, atol=float(room.max()))


def rooted(a: Array, steps: int) -> tuple[Bidiagonal, Array]:
    """A process, and the root of A^T A times its starts."""
    process, starts = process_of(a, steps)
    values, vectors = np.linalg.eigh(a.T @ a)
    root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    return process, root @ starts


@pytest.mark.parametrize("steps", [1, 2, 3, 5, 12, 60])
def test_a_root_times_vectors_is_off_by_no_more_than_told(a: Array, steps: int) -> None:
    process, true = rooted(a, steps)
    found, off = process.root_times()
    assert np.all(off >= np.linalg.norm(found - true, axis=0) - 1e-6)


def test_what_is_told_of_a_root_times_vectors_is_close() -> None:
    process, true = rooted(CASES["scale-free"], 60)
    found, off = process.root_times()
    np.testing.assert_allclose(found, true, atol=0.02 * np.linalg.norm(true))
    assert np.all(off <= 0.03 * np.linalg.norm(true, axis=0))


@pytest.mark.parametrize("first", [3, 9, 20])
def test_steps_from_a_later_vector_are_read_off(first: int) -> None:
    """Its rule, with 0 among the nodes, has the moments of that vector in A^T A."""
    a = CASES["scale-free"]
    process, _ = process_of(a, first, columns=1)
    later = np.array(process._right[:, 0])
    process.extend(7)
    rest = quadrature._interior(*process._tridiagonal(0), first)
    assert rest is not None
    assert rest.nodes.min() <= 1e-12 < np.sort(rest.nodes)[1]
    values, masses = spectral(a, later[:, None])
    for power in range(1, 2 * 6 + 1):
        assert rest(rest.nodes**power) == pytest.approx(values**power @ masses[:, 0], rel=1e-8)


def test_a_root_times_a_block(a: Array) -> None:
    starts = np.random.default_rng(1).standard_normal((a.shape[1], 3))
    process = Bidiagonal(lambda x: a @ x, lambda y: a.T @ y, starts)
    process.extend(64)
    found, _ = process.root_times()
    _, s, vectors = np.linalg.svd(a, full_matrices=True)
    roots = np.append(s, np.zeros(len(vectors) - len(s)))
    expected = vectors.T @ (roots[:, None] * (vectors @ starts))
    assert np.linalg.norm(found - expected) <= 2e-2 * np.linalg.norm(expected)


def test_steps_end_where_the_rules_are_close(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quadrature, "STEPS_AT_ONCE", 1)
    a = CASES["scale-free"]
    close, _ = process_of(a + np.eye(80), 0)  # far from 0 the rules meet at once
    close.until_close()
    far, _ = process_of(a, 0)
    far.until_close()
    assert 0 < close.steps < far.steps / 2
    ends = np.zeros(2)
    for column in range(3):
        for k, below in enumerate((True, False)):
            rule = far.rule(column, below=below)
            ends[k] += rule(np.sqrt(rule.nodes))
    assert ends[1] - ends[0] <= 2 * quadrature.APART * ends[1]


def test_a_start_of_zeros_has_no_weight() -> None:
    process = Bidiagonal(lambda x: STAR @ x, lambda y: STAR.T @ y, np.zeros((30, 1)))
    process.extend(3)
    assert process.rule(0, below=True).weights.sum() == 0
