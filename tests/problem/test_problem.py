"""Problems made from graphs keep the names of the nodes."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest

import noisedesign as nd
from noisedesign.system.directed import directed_mixing

GRAPH = nx.florentine_families_graph()
SCHEME = nd.participation.FixedEpoch(epochs=2, separation=3)

MAKERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "space": (nd.SpaceProblem, {}),
    "time": (nd.TimeProblem, {"participation": SCHEME}),
    "space-time": (nd.SpaceTimeProblem, {"participation": SCHEME}),
}


@pytest.mark.parametrize(("problem", "fields"), list(MAKERS.values()), ids=list(MAKERS))
def test_names_and_weights_are_those_of_the_graph(problem: Any, fields: dict[str, Any]) -> None:
    made = problem.from_graph(GRAPH, weights="max-degree", name="families", **fields)
    assert type(made) is problem
    assert made.nodes == tuple(GRAPH)
    assert made.name == "families"
    np.testing.assert_array_equal(made.mixing, nd.mixing_matrix(GRAPH, weights="max-degree"))


@pytest.mark.parametrize(("problem", "fields"), list(MAKERS.values()), ids=list(MAKERS))
def test_weights_default_to_metropolis_hastings(problem: Any, fields: dict[str, Any]) -> None:
    made = problem.from_graph(GRAPH, **fields)
    np.testing.assert_array_equal(made.mixing, nd.mixing_matrix(GRAPH))


def test_further_arguments_go_through() -> None:
    target = nd.PrivacyTarget(epsilon=3.0, delta=1e-6)
    consensus = nd.ErrorMeasure(horizon=6, of="consensus")
    made = nd.TimeProblem.from_graph(GRAPH, participation=SCHEME, error=consensus, privacy=target)
    by_hand = nd.TimeProblem.decentralized(
        mixing=nd.mixing_matrix(GRAPH), participation=SCHEME, error=consensus
    )
    assert made.privacy is target
    assert made.workload == "decentralized"
    np.testing.assert_array_equal(made.gram, by_hand.gram)


def test_names_can_be_others_and_nodes_need_not_be_texts() -> None:
    grid = nx.grid_2d_graph(2, 2)
    assert nd.SpaceProblem.from_graph(grid).nodes == ("(0, 0)", "(0, 1)", "(1, 0)", "(1, 1)")
    assert nd.SpaceProblem.from_graph(grid, nodes=["a", "b", "c", "d"]).nodes == tuple("abcd")
    ring = nx.cycle_graph(5)
    assert nd.SpaceProblem(mixing=nd.mixing_matrix(ring), nodes=tuple(ring)).nodes == tuple("01234")


def test_digraphs_in_time() -> None:
    digraph = nx.DiGraph([(0, 1), (1, 2), (2, 0), (0, 2)])
    made = nd.TimeProblem.from_graph(digraph, weights="row-stochastic", participation=SCHEME)
    np.testing.assert_array_equal(made.mixing, directed_mixing(digraph, weights="row-stochastic"))
    with pytest.raises(nd.InputError, match=r"^graph: .*directed graph"):
        nd.TimeProblem.from_graph(digraph, participation=SCHEME)


def test_the_design_of_a_graph_keeps_its_names(tmp_path: Any) -> None:
    design = nd.solve(nd.SpaceProblem.from_graph(nx.path_graph(["a", "b", "c"]))).design
    assert design is not None
    stored = nd.load(nd.save(design, tmp_path / "d.npz"))
    assert stored.design.problem.nodes == ("a", "b", "c")


@pytest.mark.parametrize("axes", ["space", "time", "space-time"])
def test_a_consensus_error_that_is_zero_is_refused(axes: str) -> None:
    """On a complete graph W = J / n: after one round all models are their mean."""
    error = nd.ErrorMeasure(horizon=4, of="consensus")
    mixing = nd.mixing_matrix(nx.complete_graph(4))
    steps = nd.participation.FixedEpoch(epochs=2, separation=2)
    make: dict[str, Any] = {
        "space": lambda: nd.SpaceProblem(mixing=mixing, error=error),
        "time": lambda: nd.TimeProblem.decentralized(
            mixing=mixing, error=error, participation=steps
        ),
        "space-time": lambda: nd.SpaceTimeProblem(mixing=mixing, error=error, participation=steps),
    }
    with pytest.raises(nd.InputError, match="averages exactly"):
        nd.solve(make[axes]())
