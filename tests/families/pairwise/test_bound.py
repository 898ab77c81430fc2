"""Diagonals of inverses between their bounds, against dense inverses and by hand."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from scipy import sparse

from noisedesign.base.checks import Array
from noisedesign.families.pairwise import bound
from noisedesign.families.polynomial import quadrature, reach
from noisedesign.families.polynomial.program import SparseProgram
from noisedesign.forms import PairwiseCovariance
from tests.support import oracles


def coupling_of(graph: nx.Graph, *, radius: float, signs: bool = False, seed: int = 3) -> Array:
    """N on a graph: random, with that spectral radius of |N|."""
    rng = np.random.default_rng(seed)
    upper = np.triu(nx.to_numpy_array(graph, weight=None), 1)
    upper *= rng.uniform(0.1, 1.0, upper.shape)
    found = upper + upper.T
    found *= radius / np.linalg.eigvalsh(found)[-1]
    if signs:
        flips = np.triu(rng.choice([-1.0, 1.0], size=found.shape), 1)
        found *= flips + flips.T
    return np.asarray(found)


GRAPHS = {
    "scale-free": nx.barabasi_albert_graph(70, 3, seed=1),
    "clustered": nx.watts_strogatz_graph(60, 6, 0.1, seed=2),
    "path": nx.path_graph(9),
    "star": nx.star_graph(12),
}


@pytest.mark.parametrize("signs", [False, True])
@pytest.mark.parametrize("name", GRAPHS)
def test_the_inverse_is_between_its_bounds_which_close_with_the_steps(
    name: str, signs: bool
) -> None:
    n = coupling_of(GRAPHS[name], radius=0.9, signs=signs)
    exact = np.diagonal(np.linalg.inv(np.eye(len(n)) - n))
    rho, _ = bound.contraction(sparse.csr_array(n))
    apart = []
    for steps in (1, 2, 3, 5, 8):
        found = bound.inverse_diagonal(sparse.csr_array(n), rho, steps=steps)
        assert np.all(found.lower <= exact)
        assert np.all(exact <= found.upper)
        apart.append(bound.looseness(found))
    assert apart == sorted(apart, reverse=True)
    assert apart[-1] < 0.05 * apart[0]
    assert apart[-1] < 2e-2


def test_two_nodes_by_hand() -> None:
    """(I - N)^-1 has 1 / (1 - a^2) on its diagonal; one step knows the moments 1, 0 and a^2.

    Of the measures with these on [1 - rho, inf) the one of Radau has the largest integral of 1/x:
    1 / (1 - a^2 / (1 - rho + a^2 / rho)).
    """
    a, rho = 0.4, 0.5
    n = sparse.csr_array([[0.0, a], [a, 0.0]])
    found = bound.inverse_diagonal(n, rho, steps=1)
    assert found.lower == pytest.approx([1.0, 1.0], rel=1e-9)
    assert found.upper == pytest.approx([1 / (1 - a**2 / (1 - rho + a**2 / rho))] * 2, rel=1e-9)
    # A second step ends at once: nothing is left.
    for steps in (2, 7):
        both = np.array(bound.inverse_diagonal(n, rho, steps=steps))
        assert both == pytest.approx(1 / (1 - a**2), rel=1e-9)


def test_some_nodes_and_dense_blocks_have_the_same_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    n = sparse.csr_array(coupling_of(GRAPHS["scale-free"], radius=0.8))
    monkeypatch.setattr(quadrature, "FULL", np.inf)
    known = np.array(bound.inverse_diagonal(n, 0.81, steps=4))
    monkeypatch.setattr(quadrature, "FULL", 0.0)
    monkeypatch.setattr(reach, "ENTRIES_AT_ONCE", 1)  # a node at a time
    nodes = np.array([5, 0, 69])
    assert np.array(bound.inverse_diagonal(n, 0.81, steps=4, nodes=nodes)) == pytest.approx(
        known[:, nodes], rel=1e-13
    )


@pytest.mark.parametrize("name", GRAPHS)
def test_the_contraction_is_proved_by_its_vector_and_near_the_radius(name: str) -> None:
    n = coupling_of(GRAPHS[name], radius=0.7, signs=True)
    rho, z = bound.contraction(sparse.csr_array(n))
    assert z.min() > 0
    assert np.all(np.abs(n) @ z <= rho * z)
    assert 0.7 <= rho <= 0.72


def random_noise(seed: int = 4) -> PairwiseCovariance:
    """Of seeds of any signs on a wheel; two share a pair."""
    rng = np.random.default_rng(seed)
    pairs = np.array([*nx.wheel_graph(9).edges, (3, 0)])
    return PairwiseCovariance(
        own=rng.uniform(0.5, 1.5, 9), pairs=pairs, shares=rng.uniform(-1, 1, pairs.shape)
    )


def dense(noise: PairwiseCovariance) -> Array:
    """Seed after seed."""
    found = np.diag(noise.own**2)
    for (i, j), (a, b) in zip(noise.pairs, noise.shares, strict=True):
        found[i, i] += a * a
        found[j, j] += b * b
        found[i, j] += a * b
        found[j, i] += a * b
    return found


def test_the_sensitivity_is_just_above_that_of_the_dense_inverse() -> None:
    budget = np.linspace(0.5, 2.0, 9)
    for seed in range(5):
        noise = random_noise(seed)
        exact = float((np.diagonal(np.linalg.inv(dense(noise))) / budget).max())
        loose = bound.squared_sensitivity(noise, budget, steps=2)
        tight = bound.squared_sensitivity(noise, budget, steps=9)
        chosen = bound.squared_sensitivity(noise, budget, steps=None)
        assert exact < tight <= (1 + 1e-8) * exact
        assert tight < loose
        assert exact < chosen <= 1.1 * exact


@pytest.mark.parametrize(
    "own",
    [np.array([0.0, 0.0]), np.array([0.0, 1e-200]), np.array([np.inf, 1.0])],
    ids=["singular", "nearly singular", "infinite"],
)
def test_nothing_bounds_noise_that_cancels(own: Array) -> None:
    pairs, shares = np.array([[0, 1]]), np.array([[1.0, -1.0]])
    noise = PairwiseCovariance(own=own, pairs=pairs, shares=shares)
    assert bound.squared_sensitivity(noise, np.ones(2), steps=2) == np.inf


def test_the_error_is_the_trace_for_any_w() -> None:
    for w in (oracles.metropolis(nx.wheel_graph(9)), oracles.row_normalized(nx.wheel_graph(9))):
        program = SparseProgram(mixing=sparse.csr_array(w))
        noise = random_noise()
        expected = float(np.trace(w @ dense(noise) @ w.T))
        assert bound.error(program, noise) == pytest.approx(expected, rel=1e-13)


def test_covariance_between_nodes_without_a_link_is_told() -> None:
    ring = SparseProgram(mixing=sparse.csr_array(oracles.metropolis(nx.cycle_graph(4))))
    pairs = np.array([[0, 1], [0, 2]])
    noise = PairwiseCovariance(
        own=np.ones(4), pairs=pairs, shares=np.array([[1.0, -1.0], [2.0, -0.5]])
    )
    assert bound.outside(ring, noise) == pytest.approx(1.0 / 6.0)  # of R_00 = 1 + 1 + 4
    linked = PairwiseCovariance(own=np.ones(4), pairs=pairs[:1], shares=noise.shares[:1])
    assert bound.outside(ring, linked) == 0
    none = PairwiseCovariance(own=np.ones(4), pairs=pairs[:0], shares=noise.shares[:0])
    assert bound.outside(ring, none) == 0


def test_steps_are_few_where_bounds_are_near_and_where_they_are_dear(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    n = sparse.csr_array(coupling_of(GRAPHS["scale-free"], radius=0.9))
    rho, _ = bound.contraction(n)
    many = bound.chosen_steps(n, rho)
    assert bound.looseness(bound.inverse_diagonal(n, rho, steps=many)) <= 1e-3
    assert bound.looseness(bound.inverse_diagonal(n, rho, steps=many - 1)) > 1e-3
    monkeypatch.setattr(bound, "MOST_PRODUCTS", 0.0)
    assert bound.chosen_steps(n, rho) == 1
    assert bound.chosen_steps(sparse.csr_array((3, 3)), 1e-6) == 1
