"""Squared sensitivity of gossip averaging as the run gets longer, for single observed nodes.

The setting of Koskela and Kulkarni, section 4.1: two random graphs with Metropolis-Hastings
weights, one observed node i, one victim j that is its neighbour and one that is not, all drawn at
random. Every number is squared, for unit noise and gradients of norm at most 1 at every step, and
divided by the number of steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import networkx as nx
import numpy as np

from noisedesign.base.checks import Array
from noisedesign.privacy import views as threats
from noisedesign.privacy.sensitivity import squared_sensitivity
from noisedesign.privacy.views.distances import distances
from noisedesign.system.graph import build_graph, mixing_matrix
from noisedesign.system.participation import every_step
from noisedesign.tasks.papers.bounds import gossip

SEED = 0

SINGLE_NODE, SECURE_SUM = "single-node", "secure-sum"

HORIZONS = (
    1, 2, 3, 4, 6, 8, 11, 15, 20, 30, 45, 65, 100, 150, 220, 330, 500, 700, 1000,
)  # fmt: skip
QUICK_HORIZONS = (1, 2, 4, 8, 15, 30)


class Row(NamedTuple):
    """Squared sensitivity per step of one victim to one observer over ``horizon`` steps.

    Attributes:
        view: "single-node", all messages of the observed node, whose noise counts (S = e_i^T);
            or "secure-sum", the weighted sums it receives, its own noise known to it.
        pair: "neighbours" or "not neighbours".
        constant: of gradients that are the same at every step (c = 1), a lower bound.
        exact: of any gradients; ``kind`` says whether it is exact.
        spectral_upper_bound: T lambda_max(M_T), per step.
        constant_limit: the limit of ``constant`` for long runs.
    """

    graph: str
    view: str
    pair: str
    observer: int
    victim: int
    distance: int
    horizon: int
    constant: float
    exact: float
    kind: str
    spectral_upper_bound: float
    constant_limit: float


@dataclass(frozen=True, kw_only=True)
class Case:
    """A graph, an observed node and its victims, by the name of their relation."""

    name: str
    graph: nx.Graph
    observer: int
    victims: dict[str, int]


def cases(*, quick: bool) -> Iterator[Case]:
    """The graphs of the publication, or smaller ones of the same kinds."""
    n, p = (20, 0.3) if quick else (100, 0.15)
    yield random_case(
        f"Erdős–Rényi G({n}, {p})", build_graph("erdos-renyi", nodes=n, p=p, seed=SEED)
    )
    yield random_case(
        f"preferential attachment, n = {n}",
        nx.barabasi_albert_graph(n, 3, seed=SEED, initial_graph=nx.complete_graph(5)),
    )


def random_case(name: str, graph: nx.Graph, *, seed: int = SEED) -> Case:
    """Draw the observed node, then one of its neighbours and one other node.

    Nodes are numbered in the order of ``graph.nodes``; the relation that does not occur is left
    out.
    """
    rng = np.random.default_rng(seed)
    adjacency = nx.to_numpy_array(graph, weight=None)
    observer = int(rng.integers(len(adjacency)))
    near = adjacency[observer] != 0
    far = ~near
    far[observer] = False
    groups = {"neighbours": np.flatnonzero(near), "not neighbours": np.flatnonzero(far)}
    victims = {pair: int(rng.choice(nodes)) for pair, nodes in groups.items() if len(nodes)}
    return Case(name=name, graph=graph, observer=observer, victims=victims)


def rows_for(case: Case, *, view: str, horizons: Sequence[int]) -> Iterator[Row]:
    """Rows of a case before one kind of observer, horizon by horizon.

    Raises:
        InputError: as :func:`noisedesign.system.graph.mixing_matrix`.
    """
    w = mixing_matrix(case.graph)
    one = (case.observer,)
    observer = threats.tap(nodes=one) if view == SINGLE_NODE else threats.secure_sum(nodes=one)
    hops = distances(w, observer)
    limit = (
        gossip.theorem_13_slope(mixing=w)
        if view == SINGLE_NODE
        else gossip.theorem_16_slope(
            mixing=w, observers=one, victim=next(iter(case.victims.values()))
        )
    )
    for horizon in horizons:
        mechanism = threats.view(threats.dp_d_sgd(mixing=w, horizon=horizon), observer)
        found = threats.grams(mechanism, list(case.victims.values()))
        for (pair, victim), (_, seen) in zip(case.victims.items(), found, strict=True):
            distance = hops[victim]
            assert distance is not None  # Metropolis-Hastings weights are of connected graphs
            yield Row(
                case.name,
                view,
                pair,
                case.observer,
                victim,
                distance,
                horizon,
                *_numbers(np.asarray(seen.gram)),
                limit,
            )


def _numbers(gram: Array) -> tuple[float, float, str, float]:
    """Lower bound, exact number, its kind and upper bound for a Gram, shape (T, T), per step."""
    horizon = len(gram)
    exact = squared_sensitivity(gram, every_step(horizon))
    spectral = gossip.spectral_upper_bound(gram=gram)
    return (float(gram.sum()) / horizon, exact.squared / horizon, exact.kind, spectral / horizon)
