"""Weights of edges: W by hand, in exact fractions, and where they are asked for."""

from __future__ import annotations

import warnings
from fractions import Fraction
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

import noisedesign as nd
from noisedesign.base.checks import InputError
from noisedesign.problem.problem import SpaceProblem, SpaceTimeProblem, TimeProblem
from noisedesign.system.directed import directed_mixing
from noisedesign.system.graph import check_mixing, mixing_matrix, read_edges
from noisedesign.system.rules import WEIGHTS, sparse_mixing_matrix
from tests.support.command_line import call
from tests.support.endless import endless as endless

PATH = nx.Graph()
PATH.add_edge("a", "b", weight=1.0)
PATH.add_edge("b", "c", weight=3.0)
"""Over their mean, 2, the weights are 1/2 and 3/2, and weighted degrees 1/2, 2 and 3/2."""

BY_HAND: dict[str, list[list[float]]] = {
    # a-b: 1/2 / (1 + 2) = 1/6, b-c: 3/2 / (1 + 2) = 1/2.
    "metropolis-hastings": [[5 / 6, 1 / 6, 0], [1 / 6, 1 / 3, 1 / 2], [0, 1 / 2, 1 / 2]],
    # I - L / 3: the largest degree is 2, that of b, and all shares are as above.
    "max-degree": [[5 / 6, 1 / 6, 0], [1 / 6, 1 / 3, 1 / 2], [0, 1 / 2, 1 / 2]],
    "lazy-metropolis-hastings": [[11 / 12, 1 / 12, 0], [1 / 12, 2 / 3, 1 / 4], [0, 1 / 4, 3 / 4]],
    # Rows (1, 1/2, 0), (1/2, 1, 3/2), (0, 3/2, 1) over 3/2, 3 and 5/2.
    "row-normalized": [[2 / 3, 1 / 3, 0], [1 / 6, 1 / 3, 1 / 2], [0, 3 / 5, 2 / 5]],
}


@pytest.mark.parametrize("weights", WEIGHTS)
def test_by_hand(weights: str) -> None:
    found = mixing_matrix(PATH, weights=weights, weight="weight")
    np.testing.assert_allclose(found, BY_HAND[weights], rtol=1e-15)
    sparse = sparse_mixing_matrix(PATH, weights=weights, weight="weight")
    np.testing.assert_array_equal(sparse.toarray(), found)


def exact(graph: nx.Graph, weights: str) -> np.ndarray:
    """W in fractions, straight from the definition."""
    each = {frozenset(edge): Fraction(graph.edges[edge]["weight"]) for edge in graph.edges}
    mean = sum(each.values(), Fraction(0)) / len(each)
    share = {edge: weight / mean for edge, weight in each.items()}
    degree = {u: sum((s for e, s in share.items() if u in e), Fraction(0)) for u in graph}
    most = max(degree.values())
    rows = []
    for u in graph:
        row = {}
        for v in graph:
            if v == u or frozenset((u, v)) not in share:
                continue
            below = 1 + max(degree[u], degree[v])
            if weights == "max-degree":
                below = 1 + most
            elif weights == "row-normalized":
                below = 1 + degree[u]
            row[v] = share[frozenset((u, v))] / below
            row[v] /= 2 if weights.startswith("lazy") else 1
        rows.append([row.get(v, Fraction(0)) if v != u else 1 - sum(row.values()) for v in graph])
    return np.array([[float(entry) for entry in row] for row in rows])


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("seed", range(4))
def test_any_graph_in_fractions(weights: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = nx.connected_watts_strogatz_graph(7, 4, 0.5, seed=seed)
    for edge in graph.edges:
        graph.edges[edge]["weight"] = float(rng.integers(1, 1000)) / 8
    found = mixing_matrix(graph, weights=weights, weight="weight")
    np.testing.assert_allclose(found, exact(graph, weights), rtol=1e-13, atol=1e-15)
    assert (np.diagonal(found) > 0).all()
    doubly = weights != "row-normalized"
    check_mixing(found, stochastic="both" if doubly else "row")
    if doubly:
        np.testing.assert_array_equal(found, found.T)
    # No unit changes anything; heavier links mix more.
    for edge in graph.edges:
        graph.edges[edge]["other"] = graph.edges[edge]["weight"] * 1e6
    np.testing.assert_allclose(mixing_matrix(graph, weights=weights, weight="other"), found)


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("every", [1, 0.1, 3.0, 10**9])
def test_weights_that_are_alike_are_none_to_the_last_bit(weights: str, every: float) -> None:
    graph = nx.karate_club_graph()
    nx.set_edge_attributes(graph, every, "weight")
    plain = nx.Graph(nx.to_dict_of_lists(graph))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        unsaid = mixing_matrix(graph, weights=weights)
    expected = mixing_matrix(plain, weights=weights)
    np.testing.assert_array_equal(unsaid, expected)
    np.testing.assert_array_equal(mixing_matrix(graph, weights=weights, weight="weight"), expected)


def test_ignoring_them_is_said() -> None:
    with pytest.warns(UserWarning, match='weight="weight" makes W of them, weight=None'):
        dropped = mixing_matrix(PATH)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(mixing_matrix(PATH, weight=None), dropped)
        np.testing.assert_array_equal(dropped, mixing_matrix(nx.path_graph(3)))


def test_directed_graphs_by_hand() -> None:
    """Arcs a -> b (1), b -> a (3), b -> c (2), c -> a (2): mean 2, and weights 1/2, 3/2, 1, 1."""
    arcs = nx.DiGraph()
    arcs.add_nodes_from("abc")
    arcs.add_weighted_edges_from([("a", "b", 1), ("b", "a", 3), ("b", "c", 2), ("c", "a", 2)])
    # Row a hears b by 3/2, c by 1 and itself by 1; row b hears a by 1/2; row c hears b by 1.
    by_row = directed_mixing(arcs, weights="row-stochastic", weight="weight")
    expected = [[2 / 7, 3 / 7, 2 / 7], [1 / 3, 2 / 3, 0], [0, 1 / 2, 1 / 2]]
    np.testing.assert_allclose(by_row, expected, rtol=1e-15)
    by_column = directed_mixing(arcs, weights="column-stochastic", weight="weight")
    expected = [[2 / 3, 3 / 7, 1 / 2], [1 / 3, 2 / 7, 0], [0, 2 / 7, 1 / 2]]
    np.testing.assert_allclose(by_column, expected, rtol=1e-15)
    both = directed_mixing(arcs, weights="doubly-stochastic", weight="weight")
    np.testing.assert_allclose(both.sum(axis=0), 1)
    np.testing.assert_allclose(both.sum(axis=1), 1)
    # Sinkhorn's scaling keeps ratios around cycles: (W_ab W_ba) / (W_aa W_bb) = 3/2 * 1/2.
    assert both[0, 1] * both[1, 0] / (both[0, 0] * both[1, 1]) == pytest.approx(3 / 4, rel=1e-9)


@pytest.mark.parametrize("make", [SpaceProblem, TimeProblem, SpaceTimeProblem])
def test_problems_take_them(make: Any) -> None:
    more = {} if make is SpaceProblem else {"participation": nd.participation.single(2)}
    found = make.from_graph(PATH, weight="weight", **more)
    np.testing.assert_allclose(found.mixing, BY_HAND["metropolis-hastings"], rtol=1e-15)
    with pytest.warns(UserWarning, match="weights of edges differ"):
        make.from_graph(PATH, **more)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (None, "none at edge"),
        (0.0, "0.0"),
        (-1, "-1"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        ("3", "3"),
        (True, "True"),
    ],
)
def test_weights_that_are_no_positive_numbers(given: Any, said: str) -> None:
    graph = nx.path_graph(3)
    graph.edges[0, 1]["strength"] = 1.0
    if given is not None:
        graph.edges[1, 2]["strength"] = given
    with pytest.raises(InputError, match="^weight: expected a positive number 'strength'") as wrong:
        mixing_matrix(graph, weight="strength")
    assert said in wrong.value.got
    assert "(1, 2)" in wrong.value.got
    with pytest.raises(InputError, match="^weight: expected a text"):
        mixing_matrix(graph, weight=3)  # type: ignore[arg-type]


def test_weights_that_are_chosen_take_none() -> None:
    with pytest.raises(InputError, match='weight: expected none beside weights = "least-noise"'):
        mixing_matrix(PATH, weights="least-noise", weight="weight")
    with pytest.warns(UserWarning, match="not used"):
        mixing_matrix(PATH, weights="least-noise")
    arcs = PATH.to_directed()
    with pytest.raises(InputError, match='weight: expected none beside weights = "least-noise"'):
        directed_mixing(arcs, weights="least-noise", weight="weight")


# --- files and shell ------------------------------------------------------------------------------

LIST = "a b 1  # light\nb c 3\nc b 3.0\n"


def problem(folder: Path, more: str = "") -> Path:
    (folder / "edges.txt").write_text(LIST)
    path = folder / "p.toml"
    text = f'name = "p"\ndesign = "space"\n[graph]\nkind = "edges"\nfile = "edges.txt"\n{more}'
    path.write_text(text)
    return path


def test_files_of_edges_have_a_third_column(tmp_path: Path) -> None:
    used = nd.load(problem(tmp_path, "weight = true\n")).problem
    assert used.nodes == ("a", "b", "c")
    np.testing.assert_allclose(used.mixing, BY_HAND["metropolis-hastings"], rtol=1e-15)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        left = nd.load(problem(tmp_path, "weight = false\n")).problem
    np.testing.assert_array_equal(left.mixing, mixing_matrix(nx.path_graph(3)))
    with pytest.warns(UserWarning, match=r"graph\.weight = true makes W of them, false"):
        unsaid = nd.load(problem(tmp_path)).problem
    np.testing.assert_array_equal(unsaid.mixing, left.mixing)
    for rule in ("fastest-mixing", "least-noise"):
        with pytest.raises(InputError, match=r"graph\.weight: .* beside weights = "):
            nd.load(problem(tmp_path, f'weight = true\nweights = "{rule}"\n'))
    path = problem(tmp_path, "weight = true\n")
    (tmp_path / "edges.txt").write_text("a b\nb c\n")
    with pytest.raises(InputError, match=r"graph\.weight: expected a positive number"):
        nd.load(path)


def test_the_shell_says_so_in_a_line(tmp_path: Path) -> None:
    outcome = call("solve", problem(tmp_path))
    assert outcome.code == 0
    (line,) = [line for line in outcome.err.splitlines() if "warning" in line]
    assert line.startswith("noisedesign: warning: weights of edges differ, 1.0 (float) of edge")
    assert "graph.weight = true makes W of them" in line
    assert "warning" not in call("solve", problem(tmp_path, "weight = true\n")).err


RUN = ("--records", 8, "--batch-size", 4, "--epochs", 1, "--epsilon", 1.0, "--fixed-batches")


@pytest.mark.usefixtures("endless")
def test_recommend_takes_them(tmp_path: Path) -> None:
    problem(tmp_path)
    run: dict[str, Any] = {"records": 8, "batch_size": 4, "epochs": 1, "epsilon": 1.0}
    found = nd.recommend(
        PATH, weight="weight", weights="metropolis-hastings", random_batches=False, **run
    )
    mixing = found.situation.mixing
    np.testing.assert_allclose(mixing, BY_HAND["metropolis-hastings"], rtol=1e-15)
    assert "weight='weight'" in found.situation.code(found.first.kind)
    rule = ("--weights", "metropolis-hastings")
    weighted = call("recommend", tmp_path / "edges.txt", *RUN, *rule, "--weight", "--json")
    least = found.values["candidates"][0]["error"]
    assert weighted.json()["candidates"][0]["error"] == pytest.approx(least, rel=1e-9)
    unsaid = call("recommend", tmp_path / "edges.txt", *RUN, *rule, "--json")
    assert "weights of edges differ" in unsaid.err
    ignored = call("recommend", tmp_path / "edges.txt", *RUN, *rule, "--no-weight", "--json")
    assert "warning" not in ignored.err
    assert ignored.json()["candidates"][0]["error"] == unsaid.json()["candidates"][0]["error"]
    assert ignored.json()["candidates"][0]["error"] != pytest.approx(least, rel=1e-3)


def test_nodes_that_do_not_reach_the_others_are_told(tmp_path: Path) -> None:
    path = tmp_path / "two.edges"
    path.write_text("a b\nc d\nd e\n")
    with pytest.warns(UserWarning, match="2 of 5 nodes do not reach the others"):
        graph = read_edges(path)
    assert set(graph) == {"c", "d", "e"}
    path.write_text("c d\nd e\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_edges(path)
