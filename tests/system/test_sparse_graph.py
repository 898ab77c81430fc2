"""W as a sparse array: the same numbers as by hand, in memory by the links of the graph."""

from __future__ import annotations

import tracemalloc
from typing import Any

import networkx as nx
import numpy as np
import pytest
from scipy import sparse

from noisedesign.base import settings
from noisedesign.base.checks import InputError
from noisedesign.problem.problem import SpaceProblem
from noisedesign.system.graph import build_graph, check_sparse_mixing, mixing_matrix
from noisedesign.system.rules import WEIGHTS, sparse_mixing_matrix


def by_hand(graph: nx.Graph, weights: str) -> np.ndarray:
    """W from its definition, an entry at a time."""
    nodes, n = list(graph.nodes), len(graph)
    d = dict(graph.degree)
    w = np.zeros((n, n))
    for i, a in enumerate(nodes):
        for j, b in enumerate(nodes):
            if graph.has_edge(a, b):
                share = {
                    "metropolis-hastings": 1 / (1 + max(d[a], d[b])),
                    "lazy-metropolis-hastings": 1 / (1 + max(d[a], d[b])) / 2,
                    "max-degree": 1 / (1 + max(d.values())),
                    "row-normalized": 1 / (1 + d[a]),
                }
                w[i, j] = share[weights]
        w[i, i] = 1 - w[i].sum()
    return w


@pytest.mark.parametrize("weights", WEIGHTS)
def test_weights_are_those_of_their_definition(weights: str) -> None:
    graph = nx.relabel_nodes(nx.barabasi_albert_graph(30, 2, seed=1), lambda i: f"node {29 - i}")
    found = sparse_mixing_matrix(graph, weights=weights)
    np.testing.assert_allclose(found.toarray(), by_hand(graph, weights), rtol=0, atol=1e-15)
    np.testing.assert_array_equal(mixing_matrix(graph, weights=weights), found.toarray())
    assert found.nnz <= 2 * graph.number_of_edges() + len(graph)


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("dtype", [np.int8, np.float64, bool])
def test_links_in_a_sparse_array_are_the_graph_that_they_make(weights: str, dtype: Any) -> None:
    graph = nx.barabasi_albert_graph(30, 2, seed=1)
    links = nx.to_scipy_sparse_array(graph, nodelist=range(30), dtype=np.int8)
    found = sparse_mixing_matrix(links.astype(dtype), weights=weights)
    whole = nx.relabel_nodes(graph, str)  # in the order in which it has its nodes
    expected = sparse_mixing_matrix(whole, weights=weights).toarray()
    places = np.array([int(name) for name in whole])
    np.testing.assert_allclose(
        found.toarray()[np.ix_(places, places)], expected, rtol=0, atol=1e-15
    )


def path_of(*entries: tuple[int, int, float]) -> sparse.coo_array:
    rows, columns, data = zip(*entries, strict=True)
    return sparse.coo_array((data, (rows, columns)), shape=(3, 3))


BOTH = ((0, 1, 1.0), (1, 0, 1.0))


@pytest.mark.parametrize(
    ("links", "got"),
    [
        (path_of(*BOTH, (1, 2, 1.0)), "an array that is not symmetric"),
        (path_of(*BOTH, (1, 2, 2.0), (2, 1, 2.0)), "2"),
        (path_of(*BOTH, (1, 2, 1.0), (2, 1, 1.0), (1, 1, 1.0)), "a self-loop at node 1"),
        (path_of(*BOTH), "2 components"),
        (sparse.csr_array(np.ones((2, 3))), r"shape \(2, 3\)"),
        (sparse.csr_array((0, 0)), r"shape \(0, 0\)"),
        (path_of(*BOTH, (1, 2, np.nan), (2, 1, np.nan)), "nan"),
    ],
)
def test_links_that_are_no_graph_are_refused(links: Any, got: str) -> None:
    with pytest.raises(InputError, match=f"graph: expected a symmetric .*, got {got}"):
        sparse_mixing_matrix(links)


def test_a_graph_of_twenty_thousand_nodes_takes_memory_by_its_links() -> None:
    graph = build_graph("ring", nodes=20_000)
    tracemalloc.start()
    problem = SpaceProblem.from_graph(graph)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert problem.sparse
    assert problem.structure.kind == "polynomial"
    assert peak < 20_000**2 * 8 / 100


@pytest.mark.parametrize("kind", ["erdos-renyi", "random-geometric"])
def test_graphs_of_an_expected_degree_have_all_their_nodes_and_about_that_degree(kind: str) -> None:
    graph = build_graph(kind, nodes=3000, degree=6.0, seed=3)
    assert len(graph) == 3000
    assert nx.is_connected(graph)
    mean = 2 * graph.number_of_edges() / len(graph)
    # Six standard deviations of 9000 links; points at the border of the square have fewer.
    assert abs(mean - 6.0) < 0.4
    again = build_graph(kind, nodes=3000, degree=6.0, seed=3)
    assert set(again.edges) == set(graph.edges)
    assert set(build_graph(kind, nodes=3000, degree=6.0, seed=4).edges) != set(graph.edges)


def test_links_of_a_geometric_graph_are_the_short_ones() -> None:
    """Where it is connected by itself, every pair within reach is linked and no other."""
    graph = build_graph("random-geometric", nodes=150, degree=20.0, seed=0)
    places = np.random.default_rng(0).random((150, 2))
    reach = np.sqrt(20.0 / (np.pi * 150))
    far = np.linalg.norm(places[:, None] - places, axis=2)
    pairs = {(i, j) for i, j in np.argwhere(far <= reach).tolist() if i < j}
    assert {tuple(sorted(edge)) for edge in graph.edges} == pairs


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"seed": 0}, "graph.p"),
        ({"p": 0.5, "degree": 3.0, "seed": 0}, "graph.degree"),
        ({"degree": 10.0, "seed": 0}, "graph.degree"),
        ({"degree": 0.0, "seed": 0}, "graph.degree"),
        ({"degree": 3.0}, "graph.seed"),
    ],
)
def test_a_random_graph_has_either_a_probability_or_a_degree(params: Any, field: str) -> None:
    with pytest.raises(InputError) as error:
        build_graph("erdos-renyi", nodes=10, **params)
    assert error.value.field == field


def test_a_sparse_w_is_checked() -> None:
    ring = sparse_mixing_matrix(nx.cycle_graph(5))
    for mixing, words in (
        (ring.toarray(), "a scipy sparse array"),
        (ring.astype(np.float32), "float64"),
        (ring[:4], "square"),
        (-1 * ring, "nonnegative"),
        (2 * ring, "rows that sum to 1"),
        (sparse.eye_array(3, format="csr"), "every node to reach every other"),
        (ring * np.nan, "finite"),
    ):
        with pytest.raises(InputError) as error:
            check_sparse_mixing(mixing)
        assert error.value.field == "mixing"
        assert words in error.value.expected


def test_components_are_named() -> None:
    two = sparse.block_diag([sparse_mixing_matrix(nx.cycle_graph(k)) for k in (3, 5)])
    with pytest.raises(InputError) as error:
        check_sparse_mixing(sparse.csr_array(two))
    assert error.value.got == "2 components, of 5 nodes (3, 4, 5, ...) and 3 nodes (0, 1, 2)"


def test_a_checked_w_is_nobody_elses(monkeypatch: pytest.MonkeyPatch) -> None:
    given = sparse.coo_array(sparse_mixing_matrix(nx.cycle_graph(5)))
    found = check_sparse_mixing(given)
    given.data[:] = 7.0
    assert found.sum(axis=1) == pytest.approx(np.ones(5))
    with pytest.raises(ValueError, match="read-only"):
        found.data[0] = 0.0
    monkeypatch.setattr(settings, "DENSE_NODES", 4)
    assert SpaceProblem(mixing=given / 7.0 * found.data[0]).sparse
