"""What structures cost: nesting, closed forms, published cases, and a conic model of their own."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Any

import networkx as nx
import numpy as np
import pytest

from noisedesign.design.design import Design
from noisedesign.design.solve import solve
from noisedesign.forms.structure import SpaceStructure, TimeStructure
from noisedesign.problem.problem import Problem, SpaceProblem, SpaceTimeProblem, TimeProblem
from noisedesign.system.participation import FixedEpoch
from noisedesign.system.random_mixing import NodeDropout, RandomMixing, pairwise_gossip
from noisedesign.system.workloads import ErrorMeasure
from tests.support import clique_oracles, oracles, structured_oracles as slow
from tests.support.space_time_cases import stacked_workload

CLOSE = 2e-6
"""Relative: both sides are certified to 1e-6."""

GRAPHS = {
    "path": nx.path_graph(5),
    "star": nx.star_graph(4),
    "lollipop": nx.lollipop_graph(3, 2),
    "wheel": nx.wheel_graph(6),
    "bull": nx.bull_graph(),
}


def mixing(graph: str) -> np.ndarray:
    """Lazy, so that no noise is free."""
    w = oracles.metropolis(GRAPHS[graph])
    return np.asarray((np.eye(len(w)) + w) / 2)


def designed(problem: Problem) -> Design:
    design = solve(problem).design
    assert design is not None
    return design


@cache
def cost(graph: str, kind: str, **how: Any) -> float:
    structure = SpaceStructure(kind=kind, **how)
    return designed(SpaceProblem(mixing=mixing(graph), structure=structure)).objective


# --- nesting ----------------------------------------------------------------------------------


def in_order(values: list[float]) -> bool:
    """None below the next, up to what designs are certified to."""
    return all(less >= more * (1 - CLOSE) for less, more in pairwise(values))


@pytest.mark.parametrize("graph", GRAPHS)
def test_more_sharing_never_costs_more(graph: str) -> None:
    two_hops, everyone = cost(graph, "hops", hops=2), cost(graph, "dense")
    values = [
        cost(graph, "independent"),
        cost(graph, "decor"),
        cost(graph, "edge-local"),
        two_hops,
        everyone,
    ]
    assert in_order(values)
    assert in_order([cost(graph, "edge-local"), cost(graph, "neighbourhood"), everyone])
    assert values[0] > 1.01 * values[-1]
    assert cost(graph, "hops", hops=1) == pytest.approx(cost(graph, "edge-local"), rel=CLOSE)


@pytest.mark.parametrize("graph", GRAPHS)
def test_coarser_clusters_never_cost_more(graph: str) -> None:
    n = len(GRAPHS[graph])
    labels = [tuple(range(n)), (0, 0, *range(1, n - 1)), (0, 0, *[1] * (n - 2)), (0,) * n]
    values = [cost(graph, "clusters", clusters=c) for c in labels]
    assert in_order(values)
    assert values[0] == pytest.approx(cost(graph, "independent"), rel=CLOSE)
    assert values[-1] == pytest.approx(cost(graph, "dense"), rel=CLOSE)


@pytest.mark.parametrize("kind", ["edge-local", "neighbourhood"])
@pytest.mark.parametrize("graph", ["path", "lollipop", "bull"])
def test_more_known_seeds_never_cost_less(graph: str, kind: str) -> None:
    n = len(GRAPHS[graph])
    values = [cost(graph, kind, known_seeds=f) for f in range(n)]
    assert in_order(values[::-1])
    assert values[1] > values[0] * (1 + 1e-3)
    # Before all others nothing hides a node but noise of its own.
    assert values[-1] == pytest.approx(cost(graph, "independent"), rel=CLOSE)


@pytest.mark.parametrize("graph", ["path", "bull"])
def test_more_structure_never_lowers_the_cost_of_a_joint_design(graph: str) -> None:
    w, scheme = mixing(graph), FixedEpoch(epochs=2, separation=2)

    def joint(**how: Any) -> float:
        return designed(SpaceTimeProblem(mixing=w, participation=scheme, **how)).objective

    kinds = ["independent", "edge-local", "dense"]
    in_space = [joint(space=SpaceStructure(kind=kind)) for kind in kinds]
    in_time = [
        joint(time=time)
        for time in (
            TimeStructure(kind="banded", bands=1),
            TimeStructure(kind="banded", bands=2),
            TimeStructure(),
        )
    ]
    full = joint(joint="full")
    assert in_order([*in_space, full])
    assert in_order([*in_time, full])
    assert in_space[0] > in_space[-1] * 1.01
    assert in_time[0] > in_time[-1] * 1.01


# --- closed forms -----------------------------------------------------------------------------


def test_independent_nodes_in_closed_form() -> None:
    """R_ii = 1 / tau_i, whatever the error: sum H_ii / tau_i."""
    w, tau = mixing("wheel"), np.array([0.5, 1.0, 2.0, 1.0, 4.0, 0.1])
    alone = SpaceStructure(kind="independent")
    one_step = designed(SpaceProblem(mixing=w, budget=tau, structure=alone))
    assert one_step.objective == pytest.approx(float(((w**2).sum(axis=0) / tau).sum()), rel=1e-6)
    np.testing.assert_allclose(one_step.covariance, np.diag(1 / tau), rtol=1e-6)
    later = designed(
        SpaceProblem(
            mixing=w, budget=tau, structure=alone, error=ErrorMeasure(horizon=3, momentum=0.5)
        )
    )
    runs = np.array(list(slow.noise_to_state(w, 3, momentum=0.5))).reshape(3, 6, 3, 6)
    expected = float((np.einsum("xisj,xisj->j", runs, runs) / tau).sum())
    assert later.objective == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    "structure",
    [
        SpaceStructure(),
        SpaceStructure(kind="edge-local"),
        SpaceStructure(kind="neighbourhood"),
        SpaceStructure(kind="hops", hops=2),
        SpaceStructure(kind="decor"),
        SpaceStructure(kind="clusters", clusters=(0,) * 6),
    ],
    ids=str,
)
@pytest.mark.parametrize(("cap", "tau"), [(1.5, 1.0), (40.0, 1.0), (2.0, 3.0)])
def test_a_complete_graph_with_a_cap_in_closed_form(
    structure: SpaceStructure, cap: float, tau: float
) -> None:
    """a I + b J is diagonally dominant where b < 0 and J-eigenvalue a + n b > 0: pairs make it."""
    w = oracles.metropolis(nx.complete_graph(6))
    found = designed(SpaceProblem(mixing=w, structure=structure, max_variance=cap, budget=tau))
    expected = oracles.complete_graph_capped(6, cap=cap, tau=tau)
    assert found.objective == pytest.approx(expected, rel=CLOSE)


@pytest.mark.parametrize(
    "graph", [nx.cycle_graph(7), nx.petersen_graph()], ids=["ring", "petersen"]
)
def test_where_edges_look_alike_edge_local_is_decor(graph: nx.Graph) -> None:
    w = (np.eye(len(graph)) + oracles.metropolis(graph)) / 2
    gram = w.T @ w
    expected = float(np.sum(gram * slow.decor_covariance(gram, w)))
    for kind in ("edge-local", "decor"):
        problem = SpaceProblem(mixing=w, structure=SpaceStructure(kind=kind))
        assert designed(problem).objective == pytest.approx(expected, rel=CLOSE)


# --- published special cases ------------------------------------------------------------------


@pytest.mark.parametrize("graph", GRAPHS)
def test_whisper_is_every_structure_that_reaches_everyone(graph: str) -> None:
    w = mixing(graph)
    whisper = oracles.diagonal_interval(w.T @ w, width=1e-9).upper
    diameter = nx.diameter(GRAPHS[graph])
    assert cost(graph, "dense") == pytest.approx(whisper, rel=CLOSE)
    # All pairs are not all covariances, but clusters of everyone are.
    everyone = (0,) * len(w)
    assert cost(graph, "clusters", clusters=everyone) == pytest.approx(whisper, rel=CLOSE)
    assert in_order([cost(graph, "hops", hops=diameter), whisper])
    apart = cost(graph, "hops", hops=diameter + 1)
    assert apart == pytest.approx(cost(graph, "hops", hops=diameter), rel=CLOSE)
    once = FixedEpoch(epochs=1, separation=1)
    for joint in ("full", "kronecker"):
        design = designed(SpaceTimeProblem(mixing=w, participation=once, joint=joint))
        assert design.objective == pytest.approx(whisper, rel=CLOSE)


@pytest.mark.parametrize("hub", ["star", "wheel"])
def test_whisper_is_the_neighbourhood_of_a_hub(hub: str) -> None:
    """Its closed neighbourhood is everyone."""
    assert cost(hub, "neighbourhood") == pytest.approx(cost(hub, "dense"), rel=CLOSE)


@pytest.mark.parametrize(("epochs", "separation"), [(1, 6), (3, 4)])
def test_mafalda_is_all_bands(epochs: int, separation: int) -> None:
    w, scheme = mixing("bull"), FixedEpoch(epochs=epochs, separation=separation)
    gram = oracles.gram_of_powers(w, epochs * separation)
    mafalda = oracles.fixed_epoch_interval(gram, epochs, separation, width=1e-7).upper

    def banded(bands: int) -> float:
        structure = TimeStructure(kind="banded", bands=bands)
        problem = TimeProblem.decentralized(mixing=w, participation=scheme, structure=structure)
        return designed(problem).objective

    values = [banded(bands) for bands in range(1, separation + 1)]
    assert in_order([*values, mafalda])
    if epochs == 1:
        assert values[-1] == pytest.approx(mafalda, rel=CLOSE)
    else:
        assert values[-1] > mafalda * (1 + 1e-4)  # bands end at the separation


def test_mafalda_is_the_joint_design_of_one_node() -> None:
    scheme = FixedEpoch(epochs=2, separation=3)
    workload = np.tril(np.ones((6, 6)))
    expected = oracles.fixed_epoch_interval(workload.T @ workload, 2, 3, width=1e-7).upper
    for joint in ("full", "kronecker"):
        design = designed(
            SpaceTimeProblem(mixing=np.ones((1, 1)), participation=scheme, joint=joint)
        )
        assert design.objective == pytest.approx(expected, rel=CLOSE)


# --- a conic solver, by a model of its own ----------------------------------------------------


def cliques(w: np.ndarray, kind: str) -> list[tuple[int, ...]]:
    if kind == "neighbourhood":
        return clique_oracles.neighbourhoods(w)
    return clique_oracles.near(w, {"edge-local": 1, "two hops": 2}[kind])


def structure_of(kind: str, known_seeds: int) -> SpaceStructure:
    if kind == "two hops":
        return SpaceStructure(kind="hops", hops=2, known_seeds=known_seeds)
    return SpaceStructure(kind=kind, known_seeds=known_seeds)


@pytest.mark.parametrize("known_seeds", [0, 1])
@pytest.mark.parametrize("kind", ["edge-local", "two hops", "neighbourhood"])
@pytest.mark.parametrize("graph", ["path", "lollipop"])
def test_unequal_budgets_and_coalitions_agree(graph: str, kind: str, known_seeds: int) -> None:
    w = mixing(graph)
    tau = np.linspace(0.5, 2.0, len(w))
    found = designed(SpaceProblem(mixing=w, budget=tau, structure=structure_of(kind, known_seeds)))
    gram = (w.T @ w) / np.sqrt(np.outer(tau, tau))
    expected = clique_oracles.clique_interval(gram, cliques(w, kind), known_seeds=known_seeds)
    assert expected.width <= 1e-5
    assert expected.meets(found.lower_bound, found.objective)


def last_models(w: np.ndarray) -> np.ndarray:
    runs = np.array(list(slow.noise_to_state(w, 4))).reshape(4, len(w), 4, len(w))
    return np.asarray(np.einsum("isa,isb->ab", runs[-1], runs[-1]))


def after_dropout(w: np.ndarray) -> np.ndarray:
    return np.asarray(sum(chance * v.T @ v for chance, v in slow.node_dropouts(w, 0.3)))


def after_gossip(w: np.ndarray) -> np.ndarray:
    return np.asarray(sum(chance * v.T @ v for chance, v in slow.one_pair(GRAPHS["bull"])))


OTHERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "last iterate": (last_models, {"error": ErrorMeasure(horizon=4, of="last-iterate")}),
    "dropout": (after_dropout, {"random": lambda w: NodeDropout(mixing=w, probability=0.3)}),
    "pairwise gossip": (after_gossip, {"random": lambda w: pairwise_gossip(GRAPHS["bull"])}),
}


@pytest.mark.parametrize("cap", [None, 1.2])
@pytest.mark.parametrize("kind", ["edge-local", "neighbourhood"])
@pytest.mark.parametrize("error", OTHERS)
def test_other_errors_and_mixings_of_shared_seeds_agree(
    error: str, kind: str, cap: float | None
) -> None:
    w = mixing("bull")
    gram_of, how = OTHERS[error]
    random: RandomMixing | None = how["random"](w) if "random" in how else None
    found = designed(
        SpaceProblem(
            mixing=w,
            structure=structure_of(kind, 0),
            max_variance=cap,
            random=random,
            error=how.get("error"),
        )
    )
    expected = clique_oracles.clique_interval(gram_of(w), cliques(w, kind), cap=cap)
    assert expected.width <= 1e-6
    assert expected.meets(found.lower_bound, found.objective)


@pytest.mark.parametrize("graph", ["path", "bull"])
def test_either_factor_of_a_joint_edge_local_design_is_best_for_the_other(graph: str) -> None:
    """Each is the optimum that an independent route finds, with the other held."""
    w = mixing(graph)
    design = designed(
        SpaceTimeProblem(
            mixing=w,
            participation=FixedEpoch(epochs=2, separation=2),
            space=SpaceStructure(kind="edge-local"),
        )
    )
    r = design.covariance
    noising = np.linalg.inv(design.strategy)
    s = noising @ noising.T
    a = stacked_workload(w, 4)
    value = float(np.sum((a.T @ a) * np.kron(s, r)))
    assert design.objective == pytest.approx(value, rel=1e-10)
    in_space = clique_oracles.clique_interval(slow.space_part(w, s, 4), clique_oracles.near(w))
    in_time = oracles.fixed_epoch_interval(slow.time_part(w, r, 4), 2, 2, width=1e-8)
    # The two sensitivities multiply; at the optimum either factor can be taken at 1.
    scale = float(np.diagonal(np.linalg.inv(r)).max())
    for best, scaled in ((in_space, scale), (in_time, 1 / scale)):
        assert best.lower * (1 - 1e-9) <= value * scaled <= best.upper * (1 + 1e-5)
