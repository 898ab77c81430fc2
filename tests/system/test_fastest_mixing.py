"""Fastest mixing: closed forms, bounds against any W, and search on grids."""

from __future__ import annotations

import itertools
import math

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from noisedesign.base.checks import InputError
from noisedesign.base.monitor import Monitor
from noisedesign.program.problem import SpaceProblem
from noisedesign.system.fastest_mixing import fastest_mixing, norm_lower_bound
from tests.support import oracles
from tests.support.weight_cases import PAW, norm_by_svd, with_weights


def edge_transitive(graph: nx.Graph) -> float:
    """All weights alike: 1 - w l_2 = w l_n - 1 at the best w, so (l_n - l_2) / (l_n + l_2)."""
    values = np.linalg.eigvalsh(nx.laplacian_matrix(graph).toarray().astype(float))
    return float((values[-1] - values[1]) / (values[-1] + values[1]))


@pytest.mark.parametrize(
    "graph",
    [
        nx.cycle_graph(6),
        nx.complete_graph(5),
        nx.star_graph(5),
        nx.hypercube_graph(3),
        nx.complete_bipartite_graph(2, 3),
        nx.path_graph(2),
    ],
)
def test_edge_transitive_graphs_with_any_weights(graph: nx.Graph) -> None:
    found = fastest_mixing(graph, nonnegative=False)
    expected = edge_transitive(graph)
    assert found.norm == pytest.approx(expected, abs=1e-7)
    assert found.lower_bound <= expected + 1e-13
    assert found.norm - found.lower_bound < 1e-6


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        # Boyd, Diaconis, Sun and Xiao (2006): half on every link of a path.
        *((nx.path_graph(n), math.cos(math.pi / n)) for n in (2, 3, 5, 8)),
        # A star's centre shares one unit among m leaves.
        *((nx.star_graph(m), 1 - 1 / m) for m in (2, 5)),
        (nx.cycle_graph(6), 3 / 5),
        (nx.path_graph(1), 0.0),
    ],
)
def test_nonnegative_weights_in_closed_form(graph: nx.Graph, expected: float) -> None:
    found = fastest_mixing(graph)
    assert found.norm == pytest.approx(expected, abs=1e-7)
    assert found.lower_bound <= expected + 1e-13
    assert found.norm - found.lower_bound < 1e-6
    assert found.spectral_gap == 1 - found.norm


@pytest.mark.parametrize("nonnegative", [True, False])
@pytest.mark.parametrize("graph", [nx.florentine_families_graph(), PAW])
def test_the_matrix_is_exactly_allowed(graph: nx.Graph, nonnegative: bool) -> None:
    found = fastest_mixing(graph, nonnegative=nonnegative)
    w = found.mixing
    np.testing.assert_array_equal(w, w.T)
    np.testing.assert_allclose(w.sum(axis=1), 1, atol=1e-15)
    linked = nx.to_numpy_array(graph, weight=None) + np.eye(len(graph))
    assert not w[linked == 0].any()
    assert found.norm == pytest.approx(norm_by_svd(w), rel=1e-13)
    assert found.lower_bound <= found.norm < found.lower_bound + 1e-6
    assert found.norm < norm_by_svd(oracles.metropolis(graph)) - 0.01
    if nonnegative:
        assert w.min() >= 0
        SpaceProblem(mixing=w)  # it is what a design asks for


def test_negative_weights_can_be_faster() -> None:
    star = nx.star_graph(5)
    free, held = fastest_mixing(star, nonnegative=False), fastest_mixing(star)
    assert free.norm < held.lower_bound
    assert free.mixing.min() < 0


def test_no_weights_on_a_grid_are_faster() -> None:
    found, edges = fastest_mixing(PAW), list(PAW.edges)
    best = 1.0
    for weights in itertools.product(np.linspace(0, 0.6, 13), repeat=4):
        w = with_weights(4, edges, weights)
        if np.diagonal(w).min() >= 0:
            best = min(best, norm_by_svd(w))
    assert found.lower_bound <= best
    assert best - found.norm < 0.05  # the grid is not so coarse that this says nothing


@settings(derandomize=True, deadline=None, max_examples=60)
@given(seed=st.integers(0, 10_000), held=st.booleans(), rank=st.integers(1, 4))
def test_any_multipliers_bound_any_weights(seed: int, held: bool, rank: int) -> None:
    rng = np.random.default_rng(seed)
    edges = np.array(PAW.edges)
    root = rng.normal(size=(4, rank))
    y = (root * rng.choice([-1, 1], size=rank)) @ root.T
    z = rng.normal(size=4) if held else None
    bound = norm_lower_bound(
        edges, nodes=4, distance=y * 10.0 ** rng.integers(-9, 9), self_weights=z
    )
    for _ in range(20):
        weights = rng.uniform(0 if held else -0.5, 0.5, size=4)
        w = with_weights(4, edges, weights)
        if held:
            w = with_weights(4, edges, weights / max(1.0, 1 - np.diagonal(w).min()))
            assert w.min() >= -1e-15
        assert bound <= norm_by_svd(w) + 1e-12


def test_the_bound_is_tight_for_the_right_multipliers() -> None:
    # Star of 2 leaves, free: 1 - w = 3w - 1, w = 1/2. Half on each of the two extreme eigenvectors.
    leaves, centre = np.array([0, 1, -1]) / np.sqrt(2), np.array([2, -1, -1]) / np.sqrt(6)
    edges = np.array([[0, 1], [0, 2]])
    # y_e = t (1/2) - (1 - t) (3/2) = 0 at t = 3/4; tr Y = 3/4 - 1/4.
    y = 0.75 * np.outer(leaves, leaves) - 0.25 * np.outer(centre, centre)
    found = norm_lower_bound(edges, nodes=3, distance=y, self_weights=None)
    assert found == pytest.approx(0.5, abs=1e-14)
    # Entries on edges are implied by the others: wrong ones are put right.
    off = y.copy()
    off[0, 1] = off[1, 0] = 7.0
    assert norm_lower_bound(edges, nodes=3, distance=off, self_weights=None) == found
    # Multipliers that prove nothing.
    for useless in (np.zeros((3, 3)), np.full((3, 3), np.nan), -y):
        assert norm_lower_bound(edges, nodes=3, distance=useless, self_weights=None) == 0


def test_other_bad_input_is_named() -> None:
    for bad in (nx.Graph([(0, 1), (2, 3)]), nx.DiGraph([(0, 1)])):
        with pytest.raises(InputError, match=r"^graph"):
            fastest_mixing(bad)
    for backend in ("native", "no-such-solver"):
        with pytest.raises(InputError, match=r"^backend"):
            fastest_mixing(PAW, backend=backend)


@pytest.mark.parametrize("nonnegative", [True, False])
@pytest.mark.parametrize("graph", [oracles.karate(), nx.lollipop_graph(5, 4), PAW])
def test_conic_solvers_agree(graph: nx.Graph, nonnegative: bool) -> None:
    ours = fastest_mixing(graph, nonnegative=nonnegative)
    theirs = fastest_mixing(graph, nonnegative=nonnegative, backend="clarabel")
    assert ours.norm - ours.lower_bound <= 1e-9
    assert ours.lower_bound <= theirs.norm
    assert theirs.lower_bound <= ours.norm <= theirs.norm + 1e-9


@pytest.mark.parametrize(
    ("graph", "most"),
    [
        (nx.gnp_random_graph(100, 0.08, seed=2), 40),
        (nx.path_graph(100), 25),
        (nx.grid_2d_graph(6, 6), 40),
        (nx.barbell_graph(10, 5), 40),
    ],
)
def test_a_hundred_nodes_in_some_twenty_steps(graph: nx.Graph, most: int) -> None:
    monitor = Monitor(gap=1e-6)
    found = fastest_mixing(graph, monitor=monitor)
    assert found.norm - found.lower_bound <= 1e-8
    assert len(monitor.history) <= most
    assert found.norm == pytest.approx(norm_by_svd(found.mixing), rel=1e-12)
    norms = [bounds.upper for bounds in monitor.history]
    assert norms == sorted(norms, reverse=True)


def test_out_of_time_it_returns_what_it_has() -> None:
    graph = nx.florentine_families_graph()
    found = fastest_mixing(graph, monitor=Monitor(gap=1e-6, time_limit=0.0))
    np.testing.assert_array_equal(found.mixing, oracles.metropolis(graph))
    best = fastest_mixing(graph)
    assert 0 < found.lower_bound <= best.norm < found.norm


def test_more_edges_than_fit_the_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noisedesign.base.memory.physical", lambda: 48 * 14**2)
    assert fastest_mixing(nx.complete_graph(5)).norm < 1e-9  # ten edges
    with pytest.raises(InputError, match=r"^graph: expected at most 14 edges"):
        fastest_mixing(nx.complete_graph(6))


def test_an_interrupt_is_not_taken_for_an_answer() -> None:
    def stop(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fastest_mixing(PAW, monitor=Monitor(gap=1e-6, progress=stop))
