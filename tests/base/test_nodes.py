"""Nodes as users name them, wherever one is asked for: Python, files and shell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

import noisedesign as nd
from noisedesign.base.checks import InputError
from noisedesign.base.nodes import row_of
from noisedesign.noise import noise
from noisedesign.privacy import views
from noisedesign.tasks.deploy import deploy
from tests.support.command_line import call

# A path whose names are numbers in another order: an integer is a row, and no name.
GRAPH = nx.path_graph(4)
NAMES = ["ann", "bob", "2", "eve"]
FAMILY = nx.relabel_nodes(GRAPH, dict(enumerate(NAMES)))
TARGET = nd.PrivacyTarget(epsilon=1.0, steps=3)
SECRET = bytes(range(32))
DESIGN = nd.baseline(nd.SpaceProblem.from_graph(FAMILY, privacy=TARGET), "ldp")

MAKERS: dict[str, Any] = {
    "pndp": nd.observers.pndp,
    "secldp": nd.observers.secldp,
    "insider": nd.observers.insider,
    "shared-seed": nd.observers.shared_seed,
    "secure-sum": nd.observers.secure_sum,
    "tap": nd.observers.tap,
}


def test_an_integer_is_a_row_and_a_text_a_name() -> None:
    assert [row_of(node, NAMES, field="node") for node in ("eve", 3, np.int64(3), "2", 2)] == [
        *(3, 3, 3, 2, 2)
    ]
    assert row_of("1", ["1", "0"], field="node") == 0
    for wrong, said in (
        ("evee", r"one of the 4 nodes ann, bob, 2, eve, got 'evee'. Did you mean eve\?"),
        (4, "row numbers 0 to 3, got 4. A node's name is given as a string"),
        (-1, "row numbers 0 to 3"),
        (1.0, "the name of a node, or the number of its row"),
        (True, "the name of a node, or the number of its row"),
    ):
        with pytest.raises(InputError, match=said):
            row_of(wrong, NAMES, field="node")


@pytest.mark.parametrize("name", MAKERS)
def test_observers_by_name_learn_what_those_by_row_do(name: str) -> None:
    algorithm = views.dp_d_sgd(mixing=nd.mixing_matrix(FAMILY), horizon=2).named(
        "it", nodes=tuple(NAMES)
    )
    use: dict[str, Any] = {"participation": nd.participation.single(2), "delta": None}
    by_row = nd.account(algorithm, MAKERS[name](nodes=[0, 3]), **use)
    by_name = nd.account(algorithm, MAKERS[name](nodes=["ann", "eve"]), **use)
    mixed = nd.account(algorithm, MAKERS[name](nodes=["ann", 3]), **use)
    assert by_row == by_name == mixed
    assert [one.node for one in by_name][-1] == ("eve" if name == "tap" else "2")
    with pytest.raises(InputError, match=r"observer\.nodes: .*Did you mean ann\?"):
        nd.account(algorithm, MAKERS[name](nodes=["anne"]), **use)
    with pytest.raises(InputError, match="one or more different nodes"):
        nd.account(algorithm, MAKERS[name](nodes=["ann", 0]), **use)
    with pytest.raises(InputError, match="One node is a list of one"):
        MAKERS[name](nodes="ann")
    assert str(MAKERS[name](nodes=["eve"])) == f"{name} eve"


def test_seeds_by_name() -> None:
    mixing = nd.mixing_matrix(FAMILY)
    plain = views.decor(mixing=mixing, horizon=1, node_variance=1.0, edge_variance=4.0)
    algorithm = plain.named("it", nodes=tuple(NAMES))
    use: dict[str, Any] = {"participation": nd.participation.single(1), "delta": None}
    named = nd.account(algorithm, nd.observers.secldp(known_seeds=[("ann", "bob"), "eve"]), **use)
    assert named == nd.account(algorithm, nd.observers.secldp(known_seeds=[(0, 1), 3]), **use)
    with pytest.raises(InputError, match="a node by row and by name"):
        nd.account(algorithm, nd.observers.secldp(known_seeds=[("ann", 0)]), **use)


def test_victims_by_name() -> None:
    algorithm = views.dp_d_sgd(mixing=nd.mixing_matrix(FAMILY), horizon=1).named(
        "it", nodes=tuple(NAMES)
    )
    use: dict[str, Any] = {"participation": nd.participation.single(1), "delta": None}
    found = nd.account(algorithm, nd.observers.pndp(nodes=["bob"]), victims=["eve", 0], **use)
    assert [one.node for one in found] == ["eve", "ann"]
    with pytest.raises(InputError, match="bob, who looks"):
        nd.account(algorithm, nd.observers.pndp(nodes=["bob"]), victims=["bob"], **use)
    with pytest.raises(InputError, match="victims: expected one of the 4 nodes"):
        nd.account(algorithm, nd.observers.ldp(), victims=["Eve!"], **use)


def test_designs_against_observers_by_name() -> None:
    """Observers meet their network in a problem: rows from there on, and names in print."""
    watch = (nd.observers.pndp(nodes=["bob"]), nd.observers.pndp(nodes=("2", 3)))
    problem = nd.SpaceProblem.from_graph(FAMILY, observers=watch, max_variance=10.0)
    assert [one.coalition for one in problem.observers] == [(1,), (2, 3)]
    assert [str(one) for one in problem.observers] == ["pndp bob", "pndp 2, eve"]
    rows = nd.SpaceProblem.from_graph(
        FAMILY,
        observers=(nd.observers.pndp(nodes=[1]), nd.observers.pndp(nodes=[2, 3])),
        max_variance=10.0,
    )
    assert problem.observers == rows.observers
    pairs = nd.observers.coalitions(nodes=["eve", "ann", 1], size=2)
    pooled = nd.SpaceProblem.from_graph(FAMILY, observers=pairs, max_variance=10.0).observers
    assert [(str(one), one.coalition) for one in pooled] == [
        ("pndp eve, ann", (3, 0)),
        ("pndp eve, bob", (3, 1)),
        ("pndp ann, bob", (0, 1)),
    ]
    with pytest.raises(InputError, match="Did you mean bob"):
        nd.SpaceProblem.from_graph(
            FAMILY, observers=(nd.observers.pndp(nodes=["bobb"]),), max_variance=10.0
        )
    with pytest.raises(InputError, match=r"observer\.nodes: .*different nodes"):
        nd.SpaceProblem.from_graph(
            FAMILY, observers=(nd.observers.pndp(nodes=["bob", 1]),), max_variance=9
        )


def test_errors_say_names() -> None:
    for limit in (
        {"max_variance": [9.0, 9, 9, 0.5]},
        {"budget": [1, 1, 1, 1e40], "max_variance": 1e20},
    ):
        with pytest.raises(InputError, match=r"\(node eve\)"):
            nd.SpaceProblem.from_graph(FAMILY, **limit)
    with pytest.raises(InputError, match="for node eve before pndp bob"):
        nd.SpaceProblem.from_graph(
            FAMILY,
            observers=(nd.observers.pndp(nodes=["bob"]),),
            max_variance=10.0,
            pair_factors=[[1, 1, 1, 0.5]],
        )


def test_plans_and_noise_by_name() -> None:
    assert DESIGN.node_plan("eve").name == "eve"
    assert DESIGN.node_plan("2").node == 2
    sources = [noise(DESIGN, node=u, record=False, secret=SECRET) for u in ("eve", 3)]
    np.testing.assert_array_equal(*(source.step(0, 2) for source in sources))
    with pytest.raises(InputError, match="node: .*Did you mean eve"):
        noise(DESIGN, node="evie", record=False)
    # A node's file is that of one node.
    plan = DESIGN.node_plan("eve")
    assert plan.node_plan("eve") is plan
    assert plan.node_plan(3) is plan
    with pytest.raises(InputError, match="expected eve, whose file this is, got 'bob'"):
        plan.node_plan("bob")
    unnamed = nd.TimeProblem.prefix(
        participation=nd.participation.single(2), privacy=nd.PrivacyTarget(epsilon=1)
    )
    with pytest.raises(InputError, match="nodes have no names here"):
        nd.solve(unnamed).design.node_plan("eve")  # type: ignore[union-attr]


@pytest.mark.slow
def test_runs_without_an_end_by_name() -> None:
    problem = nd.UnboundedProblem(
        mixing=nd.mixing_matrix(FAMILY, weights="lazy-metropolis-hastings"),
        nodes=tuple(NAMES),
        privacy=nd.PrivacyTarget(epsilon=1.0),
    )
    design = nd.solve(problem)
    assert (design.node_plan("eve").node, design.node_plan(3).name) == (3, "eve")
    assert design.node_plan().node == 0
    with pytest.raises(InputError, match="Did you mean eve"):
        design.node_plan("Eve")


def test_the_shell_asks_about_victims_by_name(tmp_path: Path) -> None:
    path = tmp_path / "d.npz"
    nd.save(DESIGN, path)
    for name in ("ann", "eve"):
        rows = call("account", path, "--victim", name, "--json").json()
        assert {row["victim"] for row in rows} == {name}
    two = call("account", path, "--victim", "ann", "--victim", "eve", "--node", "bob", "--json")
    pndp = next(row for row in two.json() if row["model"] == "pndp")
    assert pndp["observer"].startswith("node bob: ")
    assert pndp["victim"] == "ann"  # who is nearer learns of more: of eve nothing in one step
    # Without --node the busiest of the others looks; bob and "2" have two neighbours each.
    looks = call("account", path, "--victim", "bob")
    assert looks.code == 0
    assert "the observer is 2 (most neighbours" in looks.err
    for arguments, said in (
        (["--victim", "anna"], "Did you mean ann?"),
        (["--victim", "ann", "--node", "ann"], "ann, who looks"),
    ):
        outcome = call("account", path, *arguments)
        assert outcome.code == 2
        assert said in outcome.err


def test_account_files_take_victims_of_the_shell_instead() -> None:
    found = call("account", "accounts/ring-decor-secldp", "--victim", "5", "--json").json()
    assert [row["node"] for row in found] == ["5"]
    outcome = call("account", "accounts/ring-decor-secldp", "--victim", "0")
    assert outcome.code == 2
    assert "0, who looks" in outcome.err


def test_a_number_that_is_the_name_of_another_row_is_refused(tmp_path: Path) -> None:
    """A loop over the nodes 2, 0, 1 of a graph must not give each the noise of another."""
    graph = nx.Graph([(2, 0), (0, 1)])
    target = nd.PrivacyTarget(epsilon=1.0)
    once = nd.participation.single(1)
    problem = nd.SpaceProblem.from_graph(graph, participation=once, privacy=target)
    design = nd.baseline(problem, "ldp")
    for node in graph:
        with pytest.raises(InputError, match=f"row {node} is node .*Give '{node}'"):
            design.node_plan(node)
        row = list(graph).index(node)
        plan = design.node_plan(str(node))
        assert (plan.node, plan.name) == (row, str(node))
        assert dict(plan.weights)[row] == problem.mixing[row, row]
    with pytest.raises(InputError, match="Give '2'"):
        nd.observers.pndp(nodes=[2]).among(tuple(map(str, graph)))
    deployed = deploy(nd.baseline(problem, "ldp"), tmp_path / "nodes")
    assert [(one.plan.node, one.plan.name) for one in deployed] == [(0, "2"), (1, "0"), (2, "1")]
    counted = nx.Graph([(1, 2), (2, 3)])  # a row past the end is a name, too
    late = nd.SpaceProblem.from_graph(counted, participation=once, privacy=target)
    with pytest.raises(InputError, match="no row 3.*Give '3'"):
        nd.baseline(late, "ldp").node_plan(3)
