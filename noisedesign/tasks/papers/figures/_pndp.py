"""What one node learns of every other under DP-D-SGD: exact, and as published before.

The setting of Mafalda-SGD, Figure 2: a node that sees the messages it receives and knows its own
noise, full participation, the Renyi divergence of order 2 of every victim.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import networkx as nx
import numpy as np

from noisedesign.base.checks import Array
from noisedesign.privacy import views as threats
from noisedesign.privacy.exposure import account
from noisedesign.system.graph import mixing_matrix, node_names
from noisedesign.system.participation import every_step
from noisedesign.tasks.papers.bounds import cyffers, renyi_divergence

HORIZON = 10
ALPHA = 2.0
OBSERVER = 0
"""The node that looks: the first of the graph, as in the published code."""


class Row(NamedTuple):
    """Renyi divergences of order 2 of one victim, for unit noise and gradients of norm <= 1.

    ``kind`` is what the exact account says of its number. ``cyffers_squared`` and
    ``cyffers_unsquared`` are the two readings of the published bound; ``ldp`` is what a reader of
    all messages learns.
    """

    graph: str
    weights: str
    victim: str
    distance: int
    exact: float
    kind: str
    cyffers_squared: float
    cyffers_unsquared: float
    ldp: float


MEASURES = ("exact", "cyffers_squared", "cyffers_unsquared")


class Summary(NamedTuple):
    """Least, mean and greatest divergence over the victims at one distance, shapes (3,)."""

    graph: str
    weights: str
    distance: int
    victims: int
    exact: Array
    cyffers_squared: Array
    cyffers_unsquared: Array
    ldp: float


def rows_for(
    graph: nx.Graph, *, name: str, weights: str, horizon: int = HORIZON, observer: int = OBSERVER
) -> list[Row]:
    """One row for every node but the observer, in the order of ``graph.nodes``.

    Raises:
        InputError: as :func:`noisedesign.system.graph.mixing_matrix` and
            :func:`noisedesign.privacy.exposure.account`.
    """
    w = mixing_matrix(graph, weights=weights)
    algorithm = threats.dp_d_sgd(mixing=w, horizon=horizon).named(
        "dp-d-sgd", nodes=node_names(graph)
    )
    victims = [node for node in range(len(w)) if node != observer]
    exposures = account(
        algorithm,
        threats.pndp(nodes=(observer,)),
        participation=every_step(horizon),
        adjacency="zero-out",
    )

    def published(numerator: cyffers.Numerator) -> Array:
        bound = cyffers.squared_sensitivity(
            mixing=w, observer=observer, horizon=horizon, numerator=numerator
        )
        return renyi_divergence(bound, alpha=ALPHA)

    squared, unsquared = published("squared"), published("unsquared")
    return [
        Row(
            graph=name,
            weights=weights,
            victim=found.node,
            distance=-1 if found.distance is None else found.distance,
            exact=found.renyi(ALPHA),
            kind=found.which,
            cyffers_squared=float(squared[victim]),
            cyffers_unsquared=float(unsquared[victim]),
            ldp=renyi_divergence(float(horizon), alpha=ALPHA),
        )
        for victim, found in zip(victims, exposures, strict=True)
    ]


def summaries(rows: Sequence[Row]) -> list[Summary]:
    """Rows of one graph, weights and distance put together, in the order they first occur."""
    groups: dict[tuple[str, str, int], list[Row]] = {}
    for row in sorted(rows, key=lambda row: row.distance):
        groups.setdefault((row.graph, row.weights, row.distance), []).append(row)
    order = list(dict.fromkeys((row.graph, row.weights) for row in rows))
    found = [_summary(key, group) for key, group in groups.items()]
    return sorted(found, key=lambda item: order.index((item.graph, item.weights)))


def _summary(key: tuple[str, str, int], group: list[Row]) -> Summary:
    def spread(measure: str) -> Array:
        values = np.array([getattr(row, measure) for row in group])
        return np.array([values.min(), values.mean(), values.max()])

    graph, weights, distance = key
    return Summary(
        graph=graph,
        weights=weights,
        distance=distance,
        victims=len(group),
        ldp=group[0].ldp,
        exact=spread("exact"),
        cyffers_squared=spread("cyffers_squared"),
        cyffers_unsquared=spread("cyffers_unsquared"),
    )
