"""Mixing on directed graphs, where an edge (j, i) says that j sends to i, with the weight W_ij.

Row stochastic W agree on pi^T x, pi the left Perron vector; under column stochastic ones, as in
push-sum (Kempe, Dobra and Gehrke 2003; Assran et al. 2019), node i's model is x_i / y_i with
y_{t+1} = W y_t, y_1 = 1 (docs/methods/workloads.md)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

import networkx as nx
import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array, InputError
from noisedesign.system.graph import LEAST_NOISE, built_by, check_mixing, chosen_links, erdos_renyi
from noisedesign.system.least_noise import least_noise
from noisedesign.system.links import doubly_stochastic
from noisedesign.system.rules import UNSAID, adjacency, require_room

DirectedWeights = Literal["row-stochastic", "column-stochastic", "doubly-stochastic"]
DIRECTED_WEIGHTS: tuple[str, ...] = get_args(DirectedWeights)


def build_digraph(kind: str, **params: Any) -> nx.DiGraph:
    """A named digraph: "ring" (nodes; each sends to the next) or "erdos-renyi" (nodes, p, seed).

    The latter has every one-way link with probability p, and is the first strongly connected one
    under the seeds seed, seed + 1000, seed + 2000, ...

    Args:
        kind: one of these.
        **params: those in brackets, all of them.

    Returns:
        A digraph that is strongly connected, simple and without weights.

    Raises:
        InputError: naming ``graph.<key>``.

    Examples:
        >>> from noisedesign.system.directed import build_digraph
        >>> sorted(build_digraph("ring", nodes=3).edges)
        [(0, 1), (1, 2), (2, 0)]
    """
    return built_by(_BUILDERS, kind, params)


def _ring(nodes: int) -> nx.DiGraph:
    nodes = _checks.positive_int(nodes, field="graph.nodes", minimum=3)
    require_room(nodes)
    return nx.cycle_graph(nodes, create_using=nx.DiGraph)


_BUILDERS: dict[str, Callable[..., nx.DiGraph]] = {
    "ring": _ring,
    "erdos-renyi": lambda nodes, p, seed: erdos_renyi(nodes, p, seed, directed=True),
}
DIGRAPH_KINDS: tuple[str, ...] = tuple(_BUILDERS)


def directed_mixing(digraph: nx.DiGraph, *, weights: str, weight: str | None = UNSAID) -> Array:
    """W of a digraph.

    - ``row-stochastic``: W_ij = 1 / (1 + in-degree of i) where j sends to i or is i;
    - ``column-stochastic``: W_ij = 1 / (1 + out-degree of j), for push-sum;
    - ``doubly-stochastic``: the same entries scaled by rows and by columns until both sum to 1
      (Sinkhorn and Knopp 1967), so that models keep their mean;
    - ``least-noise``: doubly stochastic, no slower than that, and of least error of optimal noise
      after one step at equal budgets.

    Args:
        digraph: strongly connected and simple; an edge (j, i) says that j sends to i.
        weights: one of these.
        weight: as of :func:`noisedesign.mixing_matrix`: 1 of a link is then its weight over the
            mean, and in- and out-degrees are sums of these.

    Returns:
        W, shape (n, n), rows and columns in the order of ``digraph.nodes``.

    Raises:
        InputError: unknown weights; not a DiGraph, empty, with self-loops, parallel edges or edges
            without a positive weight, or not strongly connected.

    Examples:
        >>> from noisedesign.system.directed import build_digraph, directed_mixing
        >>> directed_mixing(build_digraph("ring", nodes=3), weights="row-stochastic").tolist()
        [[0.5, 0.0, 0.5], [0.5, 0.5, 0.0], [0.0, 0.5, 0.5]]
    """
    _checks.one_of(weights, field="weights", allowed=(*DIRECTED_WEIGHTS, LEAST_NOISE))
    if weights == LEAST_NOISE:
        links = chosen_links(digraph, weight)
        return least_noise(links, budget=np.ones(len(digraph)), symmetric=False).mixing
    if weights == "doubly-stochastic":
        return doubly_stochastic(digraph, weight=weight)
    heard = adjacency(digraph, directed=True, weight=weight).T + np.eye(len(digraph))
    return np.asarray(heard / heard.sum(axis=int(weights == "row-stochastic"), keepdims=True))


def check_directed(mixing: Any, *, stochastic: str) -> Array:
    """W as a read-only array, (n, n), under which models converge: every node keeps a share."""
    _checks.one_of(stochastic, field="stochastic", allowed=("row", "column"))
    w = check_mixing(mixing, stochastic=stochastic)
    kept = np.diagonal(w)
    if kept.min() <= 0:
        expected = "a positive self weight at every node"
        got = f"{kept.min():.6g} at node {int(kept.argmin())}"
        remedy = "Mix I into W: (I + W) / 2 has the same Perron vector."
        raise InputError("mixing", expected=expected, got=got, remedy=remedy)
    return w


def perron_vector(mixing: Any, *, stochastic: str) -> Array:
    """The pi > 0 of sum 1 with pi^T W = pi^T (row) or W pi = pi (column): Grassmann et al. 1985."""
    _checks.one_of(stochastic, field="stochastic", allowed=("row", "column"))
    w = check_mixing(mixing, stochastic=stochastic)
    chain = np.array(w if stochastic == "row" else w.T)
    for k in range(len(chain) - 1, 0, -1):
        chain[:k, k] /= chain[k, :k].sum()
        chain[:k, :k] += np.multiply.outer(chain[:k, k], chain[k, :k])
    pi = np.ones(len(chain))
    for k in range(1, len(chain)):
        pi[k] = pi[:k] @ chain[:k, k]
    return np.asarray(pi / pi.sum())


def push_sum_weights(mixing: Any, *, horizon: int) -> Array:
    """y after steps 1..T, shape (T, n): row t is W^t 1, and tends to n pi, pi the Perron vector."""
    w = check_directed(mixing, stochastic="column")
    y = np.empty((_checks.positive_int(horizon, field="horizon"), len(w)))
    current = np.ones(len(w))
    for step in range(horizon):
        current = w @ current
        y[step] = current
    return y
