"""Graphs and mixing matrices against hand computation, exact fractions and definitions."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from noisedesign.base.checks import InputError
from noisedesign.system.directed import directed_mixing
from noisedesign.system.graph import (
    build_graph,
    check_mixing,
    mixing_matrix,
    node_names,
    read_edges,
)
from noisedesign.system.random_mixing import maximal_matchings, pairwise_gossip
from noisedesign.system.rules import WEIGHTS, sparse_mixing_matrix

DOUBLY_STOCHASTIC = ("metropolis-hastings", "max-degree", "lazy-metropolis-hastings")
ONE_ROUNDING = 4 * np.finfo(float).eps


# --- W by hand -----------------------------------------------------------------------------------


def test_path_of_three_by_hand() -> None:
    # Degrees 1, 2, 1: both links weigh 1 / 3.
    graph = build_graph("path", nodes=3)
    mh = np.array([[2, 1, 0], [1, 1, 1], [0, 1, 2]]) / 3
    np.testing.assert_allclose(mixing_matrix(graph), mh, atol=ONE_ROUNDING)
    np.testing.assert_allclose(
        mixing_matrix(graph, weights="lazy-metropolis-hastings"),
        np.array([[5, 1, 0], [1, 4, 1], [0, 1, 5]]) / 6,
        atol=ONE_ROUNDING,
    )
    np.testing.assert_allclose(
        mixing_matrix(graph, weights="row-normalized"),
        [[1 / 2, 1 / 2, 0], [1 / 3, 1 / 3, 1 / 3], [0, 1 / 2, 1 / 2]],
        atol=ONE_ROUNDING,
    )


def test_star_of_four_by_hand() -> None:
    # Centre 0 of degree 3: every link weighs 1 / 4.
    expected = np.array([[1, 1, 1, 1], [1, 3, 0, 0], [1, 0, 3, 0], [1, 0, 0, 3]]) / 4
    np.testing.assert_allclose(
        mixing_matrix(build_graph("star", nodes=4)), expected, atol=ONE_ROUNDING
    )


def test_max_degree_differs_from_metropolis_hastings_away_from_the_hub() -> None:
    # Hub 0 of degree 3 and a tail 3 - 4, whose link MH weighs by its own larger degree, 2.
    graph = nx.Graph([(0, 1), (0, 2), (0, 3), (3, 4)])
    mh, md = mixing_matrix(graph), mixing_matrix(graph, weights="max-degree")
    np.testing.assert_allclose(mh[3], [1 / 4, 0, 0, 5 / 12, 1 / 3], atol=ONE_ROUNDING)
    np.testing.assert_allclose(md[3], [1 / 4, 0, 0, 1 / 2, 1 / 4], atol=ONE_ROUNDING)


@pytest.mark.parametrize("weights", ["metropolis-hastings", "max-degree", "row-normalized"])
def test_complete_graph_averages_at_once(weights: str) -> None:
    mixing = mixing_matrix(build_graph("complete", nodes=7), weights=weights)
    np.testing.assert_allclose(mixing, np.full((7, 7), 1 / 7), atol=ONE_ROUNDING)


@pytest.mark.parametrize("weights", WEIGHTS)
def test_one_node_keeps_everything(weights: str) -> None:
    graph = build_graph("path", nodes=1)
    np.testing.assert_array_equal(mixing_matrix(graph, weights=weights), [[1.0]])


def test_ring_with_three_dividing_its_size_has_a_null_direction() -> None:
    # Eigenvalues (1 + 2 cos(2 pi k / n)) / 3 vanish at k = n / 3.
    singular = mixing_matrix(build_graph("ring", nodes=6))
    wave = np.cos(2 * np.pi * np.arange(6) / 3)
    np.testing.assert_allclose(singular @ wave, 0, atol=1e-15)


# --- W by definition, in exact fractions ---------------------------------------------------------


@st.composite
def connected_graphs(draw: st.DrawFn) -> nx.Graph:
    n = draw(st.integers(1, 9))
    graph = nx.Graph()
    graph.add_nodes_from(draw(st.permutations(range(n))))
    for node in range(1, n):
        graph.add_edge(node, draw(st.integers(0, node - 1)))
    pairs = list(itertools.combinations(range(n), 2))
    graph.add_edges_from(draw(st.lists(st.sampled_from(pairs), max_size=12)) if pairs else [])
    return graph


def exact_mixing(graph: nx.Graph, weights: str) -> list[list[Fraction]]:
    nodes = list(graph.nodes)
    degree = dict(graph.degree)
    largest = max(degree.values())

    def link(i: object, j: object) -> Fraction:
        if not graph.has_edge(i, j):
            return Fraction(0)
        if weights == "row-normalized":
            return Fraction(1, 1 + degree[i])
        if weights == "max-degree":
            return Fraction(1, 1 + largest)
        share = Fraction(1, 1 + max(degree[i], degree[j]))
        return share / 2 if weights == "lazy-metropolis-hastings" else share

    rows = [[link(i, j) if i != j else Fraction(0) for j in nodes] for i in nodes]
    for position, row in enumerate(rows):
        row[position] = Fraction(1) - sum(row, Fraction(0))
    return rows


@pytest.mark.parametrize("weights", WEIGHTS)
@given(graph=connected_graphs())
@settings(derandomize=True, max_examples=60, deadline=None)
def test_mixing_equals_its_definition(graph: nx.Graph, weights: str) -> None:
    mixing = mixing_matrix(graph, weights=weights)
    exact = np.array([[float(entry) for entry in row] for row in exact_mixing(graph, weights)])
    np.testing.assert_allclose(mixing, exact, atol=ONE_ROUNDING)
    checked = check_mixing(mixing, stochastic="both" if weights in DOUBLY_STOCHASTIC else "row")
    np.testing.assert_array_equal(checked, mixing)
    assert not checked.flags.writeable
    if weights in DOUBLY_STOCHASTIC:
        np.testing.assert_array_equal(mixing, mixing.T)
        eigenvalues = np.linalg.eigvalsh(mixing)
        assert eigenvalues[0] > (0 if weights.startswith("lazy") else -1)
        assert eigenvalues[-1] == pytest.approx(1, abs=1e-14)


def test_rows_follow_the_nodes_and_weights_that_say_nothing_are_ignored() -> None:
    graph = nx.Graph()
    graph.add_nodes_from(["leaf", "hub"])
    graph.add_edge("hub", "other", weight=5.0)
    graph.add_edge("hub", "leaf", weight=5.0)
    assert node_names(graph) == ("leaf", "hub", "other")
    expected = np.array([[2, 1, 0], [1, 1, 1], [0, 1, 2]]) / 3
    np.testing.assert_allclose(mixing_matrix(graph), expected, atol=ONE_ROUNDING)


@pytest.mark.parametrize(
    ("use", "kind"),
    [
        (mixing_matrix, nx.Graph),
        (sparse_mixing_matrix, nx.Graph),
        (pairwise_gossip, nx.Graph),
        (maximal_matchings, nx.Graph),
        (lambda graph: directed_mixing(graph, weights="row-stochastic"), nx.DiGraph),
    ],
)
def test_weights_of_edges_that_nobody_asked_for_are_a_warning(
    use: Callable[[nx.Graph], object], kind: type[nx.Graph]
) -> None:
    """Links alone count then, and the warning says which weights, and how to have none."""
    graph = kind([("a", "b"), ("b", "a"), ("b", "c"), ("c", "a")])
    plain = use(graph)
    for weights in ({("b", "c"): 2.0}, dict.fromkeys(graph.edges, 0.1) | {("b", "c"): 0.2}):
        nx.set_edge_attributes(graph, weights, "weight")
        with pytest.warns(UserWarning, match="weights of edges differ, .* not used: ") as caught:
            assert str(use(graph)) == str(plain)
        (told,) = caught
        assert all(word in str(told.message) for word in (f"{weights['b', 'c']}", "b, c"))
        assert told.filename == __file__
    nx.set_edge_attributes(graph, 1, "weight")
    assert str(use(graph)) == str(plain)


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        (nx.DiGraph([(0, 1), (1, 0)]), ["directed", "to_undirected"]),
        (nx.MultiGraph([(0, 1), (0, 1)]), ["multigraph", "nx.Graph(graph)"]),
        (nx.Graph(), ["no nodes"]),
        (nx.Graph([(0, 1), (1, 1)]), ["self-loop at node 1", "remove_edges_from"]),
        (nx.Graph([(0, 1), (2, 3), (3, 4)]), ["2 components", "3 nodes", "2 nodes", "largest"]),
        (np.eye(3), ["array"]),
    ],
)
def test_graphs_that_cannot_gossip_are_refused(graph: object, words: list[str]) -> None:
    with pytest.raises(InputError, match="^graph: ") as caught:
        mixing_matrix(graph)
    assert all(word in str(caught.value) for word in words)


def test_unknown_weights_are_refused() -> None:
    with pytest.raises(InputError, match="^weights: expected one of metropolis-hastings, "):
        mixing_matrix(nx.path_graph(3), weights="metropolis")


# --- check_mixing --------------------------------------------------------------------------------

HALVES = [[0.5, 0.5], [0.5, 0.5]]


@pytest.mark.parametrize(
    ("mixing", "words"),
    [
        ([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0]], ["square", "(2, 3)"]),
        ([[np.nan, 0.5], [0.5, 0.5]], ["finite", "(0, 0)"]),
        ([[0.5, 0.5], [np.inf, 0.5]], ["finite", "(1, 0)"]),
        (np.array(HALVES, dtype=np.float32), ["float64", "float32"]),
        (np.array(HALVES, dtype=complex), ["float64", "complex"]),
        (np.array([["a"]]), ["float64"]),
        (np.empty((0, 0)), ["non-empty"]),
        ([0.5, 0.5], ["2 axes"]),
        ([[0.5, 0.5], [1.5, -0.5]], ["nonnegative", "-0.5", "(1, 1)"]),
        ([[0.5, 0.5], [0.5, 0.4]], ["rows", "0.9", "row 1"]),
        ([[0.5, 0.5 + 1e-9], [0.5, 0.5]], ["rows", "row 0"]),
    ],
)
@pytest.mark.parametrize("doubly_stochastic", [True, False])
def test_what_no_design_accepts(mixing: object, words: list[str], doubly_stochastic: bool) -> None:
    with pytest.raises(InputError, match="^mixing: ") as caught:
        check_mixing(mixing, stochastic="both" if doubly_stochastic else "row")
    assert all(word in str(caught.value) for word in words)


def test_row_stochastic_is_enough_except_where_w_is_drawn_anew() -> None:
    mixing = np.array([[0.5, 0.5], [1.0, 0.0]])
    np.testing.assert_array_equal(check_mixing(mixing, stochastic="row"), mixing)
    with pytest.raises(
        InputError, match="columns that sum to 1, got sum 1.5 in column 0"
    ) as caught:
        check_mixing(mixing, stochastic="both")
    assert "drawn anew" in caught.value.remedy
    assert 'weights = "metropolis-hastings"' in caught.value.remedy


def test_asymmetric_but_doubly_stochastic_is_fine_in_space() -> None:
    # A directed ring: everyone keeps half and passes half on.
    mixing = (np.eye(4) + np.roll(np.eye(4), 1, axis=1)) / 2
    np.testing.assert_array_equal(check_mixing(mixing, stochastic="both"), mixing)


def test_rounding_of_sums_is_forgiven() -> None:
    mixing = np.full((2, 2), 0.5) + 1e-14
    assert check_mixing(mixing, stochastic="both").shape == (2, 2)


@pytest.mark.parametrize("doubly_stochastic", [True, False])
def test_disconnected_mixing_names_its_components(doubly_stochastic: bool) -> None:
    mixing = np.zeros((5, 5))
    mixing[:2, :2] = 1 / 2
    mixing[2:, 2:] = 1 / 3
    with pytest.raises(InputError, match=r"2 components, of 3 nodes \(2, 3, 4\) and 2 .* \(0, 1\)"):
        check_mixing(mixing, stochastic="both" if doubly_stochastic else "row")


def test_one_way_influence_is_not_connected() -> None:
    with pytest.raises(InputError, match="every node to reach every other"):
        check_mixing([[1.0, 0.0], [0.5, 0.5]], stochastic="row")


def test_many_components_are_counted_not_listed() -> None:
    with pytest.raises(InputError, match="50 components") as caught:
        check_mixing(np.eye(50), stochastic="both")
    assert "and 46 more" in str(caught.value)


def test_one_node_is_a_mixing_matrix() -> None:
    np.testing.assert_array_equal(check_mixing([[1.0]], stochastic="both"), [[1.0]])


# --- generators ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "params", "nodes", "edges"),
    [
        ("florentine", {}, 15, 20),
        ("karate", {}, 34, 78),
        ("ring", {"nodes": 5}, 5, 5),
        ("path", {"nodes": 5}, 5, 4),
        ("complete", {"nodes": 5}, 5, 10),
        ("star", {"nodes": 5}, 5, 4),
        ("grid", {"rows": 2, "columns": 3}, 6, 7),
        ("torus", {"rows": 3, "columns": 4}, 12, 24),
        ("hypercube", {"dimension": 3}, 8, 12),
        ("erdos-renyi", {"nodes": 6, "p": 1.0, "seed": 0}, 6, 15),
        ("erdos-renyi", {"nodes": 6, "p": 1, "seed": 0}, 6, 15),
        ("random-regular", {"nodes": 8, "degree": 3, "seed": 0}, 8, 12),
        ("barabasi-albert", {"nodes": 8, "links": 2, "seed": 0}, 8, 12),
        ("small-world", {"nodes": 9, "neighbours": 4, "p": 0.5, "seed": 0}, 9, 18),
        ("barbell", {"clique": 4, "bridge": 2}, 10, 15),
        ("barbell", {"clique": 3, "bridge": 0}, 6, 7),
        ("caveman", {"cliques": 3, "members": 4}, 12, 18),
    ],
)
def test_counts(kind: str, params: dict[str, object], nodes: int, edges: int) -> None:
    graph = build_graph(kind, **params)
    assert (len(graph), graph.number_of_edges()) == (nodes, edges)
    assert nx.is_connected(graph)
    assert all(not data for *_, data in graph.edges(data=True))
    assert len(set(node_names(graph))) == nodes


def test_degrees() -> None:
    assert {d for _, d in build_graph("torus", rows=3, columns=4).degree} == {4}
    assert max(d for _, d in build_graph("star", nodes=6).degree) == 5
    assert {d for _, d in build_graph("random-regular", nodes=8, degree=3, seed=1).degree} == {3}


def test_a_barbell_and_caves_are_held_by_few_links() -> None:
    assert len(nx.minimum_edge_cut(build_graph("barbell", clique=4, bridge=3))) == 1
    caves = build_graph("caveman", cliques=4, members=5)
    assert len(nx.minimum_edge_cut(caves)) == 2
    assert sum(len(clique) == 4 for clique in nx.find_cliques(caves)) == 8


def test_node_names() -> None:
    assert "Medici" in node_names(build_graph("florentine"))
    assert node_names(build_graph("karate"))[3] == "3"
    assert node_names(build_graph("grid", rows=1, columns=2)) == ("(0, 0)", "(0, 1)")


def test_random_graph_is_the_first_connected_of_its_seeds() -> None:
    tried = [nx.gnp_random_graph(20, 0.1, seed=seed) for seed in range(0, 100_000, 1000)]
    first = next(i for i, graph in enumerate(tried) if nx.is_connected(graph))
    assert first > 0, "the case must need a second seed to test anything"
    built = build_graph("erdos-renyi", nodes=20, p=0.1, seed=0)
    assert nx.utils.graphs_equal(built, tried[first])


def test_random_regular_graphs_are_connected_too() -> None:
    # Matchings of degree 1 on more than two nodes never are.
    with pytest.raises(InputError, match="graph.seed: expected a connected graph within 1000"):
        build_graph("random-regular", nodes=4, degree=1, seed=0)


@pytest.mark.parametrize(
    ("kind", "params", "key"),
    [
        ("rings", {}, "kind"),
        ("ring", {}, "nodes"),
        ("ring", {"nodes": 2}, "nodes"),
        ("ring", {"nodes": 5.0}, "nodes"),
        ("ring", {"nodes": True}, "nodes"),
        ("ring", {"nodes": 5, "seed": 0}, "seed"),
        ("karate", {"nodes": 34}, "nodes"),
        ("path", {"nodes": 0}, "nodes"),
        ("grid", {"rows": 0, "columns": 3}, "rows"),
        ("torus", {"rows": 3, "columns": 2}, "columns"),
        ("hypercube", {"dimension": -1}, "dimension"),
        ("erdos-renyi", {"nodes": 5, "p": 0.0, "seed": 0}, "p"),
        ("erdos-renyi", {"nodes": 5, "p": 1.1, "seed": 0}, "p"),
        ("erdos-renyi", {"nodes": 5, "p": "0.5", "seed": 0}, "p"),
        ("erdos-renyi", {"nodes": 5, "p": float("nan"), "seed": 0}, "p"),
        ("erdos-renyi", {"nodes": 5, "p": 0.5, "seed": -1}, "seed"),
        ("erdos-renyi", {"nodes": 20, "p": 1e-4, "seed": 0}, "seed"),
        ("random-regular", {"nodes": 4, "degree": 4, "seed": 0}, "degree"),
        ("random-regular", {"nodes": 5, "degree": 3, "seed": 0}, "degree"),
        ("barabasi-albert", {"nodes": 3, "links": 3, "seed": 0}, "links"),
        ("small-world", {"nodes": 6, "neighbours": 3, "p": 0.1, "seed": 0}, "neighbours"),
        ("small-world", {"nodes": 6, "neighbours": 6, "p": 0.1, "seed": 0}, "neighbours"),
        ("small-world", {"nodes": 6, "neighbours": 2, "p": 1.5, "seed": 0}, "p"),
        ("barbell", {"clique": 1, "bridge": 2}, "clique"),
        ("barbell", {"clique": 3, "bridge": -1}, "bridge"),
        ("caveman", {"cliques": 1, "members": 3}, "cliques"),
        ("caveman", {"cliques": 3, "members": 2}, "members"),
    ],
)
def test_wrong_parameters_name_their_key(kind: str, params: dict[str, object], key: str) -> None:
    with pytest.raises(InputError) as caught:
        build_graph(kind, **params)
    assert caught.value.field == f"graph.{key}"


# --- edge lists ----------------------------------------------------------------------------------


def write(folder: Path, text: str) -> Path:
    path = folder / "some.edges"
    path.write_text(text)
    return path


def test_edge_list_is_cleaned_and_sorted_as_numbers(tmp_path: Path) -> None:
    path = write(tmp_path, "# comment\n10 9\n\n9\t10  # again\n9 2\n2 2\n7 8\n")
    graph = read_edges(path)
    assert list(graph.nodes) == [2, 9, 10]
    assert {frozenset(edge) for edge in graph.edges} == {frozenset({9, 10}), frozenset({2, 9})}


def test_names_that_are_not_all_integers_are_sorted_as_text(tmp_path: Path) -> None:
    graph = read_edges(write(tmp_path, "10 9\n9 b\n"))
    assert list(graph.nodes) == ["10", "9", "b"]


def test_equally_large_components_go_to_the_first_node(tmp_path: Path) -> None:
    assert list(read_edges(write(tmp_path, "5 6\n1 9\n3 4\n")).nodes) == [1, 9]


def test_two_spellings_of_one_number_are_one_node(tmp_path: Path) -> None:
    assert list(read_edges(write(tmp_path, "1 01\n1 2\n")).nodes) == [1, 2]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1 2\n3\n", ["line 2", "'3'", "two node names"]),
        ("1 2 zero\n", ["line 1", "two node names", "positive weight"]),
        ("1 2 0\n", ["line 1", "positive weight"]),
        ("1 2 -1\n", ["line 1", "positive weight"]),
        ("1 2 inf\n", ["line 1", "positive weight"]),
        ("1 2 1 1\n", ["line 1", "two node names"]),
        ("1 2 1\n2 1 3\n", ["line 2", "another weight of edge (1, 2)"]),
        ("1 2 1\n2 3\n", ["none of edge (2, 3)"]),
        ("", ["at least one edge"]),
        ("# nothing\n", ["at least one edge"]),
        ("3 3\n", ["at least one edge"]),
    ],
)
def test_malformed_edge_lists(tmp_path: Path, text: str, words: list[str]) -> None:
    with pytest.raises(InputError, match="^graph.file: ") as caught:
        read_edges(write(tmp_path, text))
    assert all(word in str(caught.value) for word in ["some.edges", *words])


def test_unreadable_edge_lists(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"graph\.file: .*none\.edges: No such file"):
        read_edges(tmp_path / "none.edges")
    with pytest.raises(InputError, match="directory"):
        read_edges(tmp_path)
    (tmp_path / "latin.edges").write_bytes(b"M\xe9dicis Strozzi\n")
    with pytest.raises(InputError, match="UTF-8"):
        read_edges(tmp_path / "latin.edges")
