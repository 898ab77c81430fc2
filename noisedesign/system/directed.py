"""Mixing on directed graphs: who listens to whom need not be mutual.

An edge (j, i) of a digraph says that j sends to i; W_ij is the weight of what i receives from j,
and every node also keeps a share of its own. Two conventions converge:

- row stochastic (W 1 = 1): nodes weigh what they receive. Models agree on pi^T x, pi the left
  Perron vector (pi^T W = pi^T). It is the mean in ``Objective(average=pi)``; loss and gradients
  of node i count n pi_i times what they would on an undirected graph.
- column stochastic (1^T W = 1^T): nodes split what they send, as in push-sum (Kempe, Dobra and
  Gehrke 2003; stochastic gradient push, Assran et al. 2019). The sum of the states is kept, and
  node i's model is x_i / y_i with y_{t+1} = W y_t, y_1 = 1: ``Objective(push_sum_weights=y)``.
  The mean is the plain one, 1^T x / n.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

import networkx as nx
import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from noisedesign.base import checks as _checks
from noisedesign.base import settings
from noisedesign.base.checks import Array, InputError
from noisedesign.system.graph import built_by, check_mixing, erdos_renyi, mixing_array, require_room

STOCHASTIC = ("row", "column")
DirectedWeights = Literal["row-stochastic", "column-stochastic"]
DIRECTED_WEIGHTS: tuple[str, ...] = get_args(DirectedWeights)


def build_digraph(kind: str, **params: Any) -> nx.DiGraph:
    """A named digraph: "ring" (nodes; each sends to the next) or "erdos-renyi" (nodes, p, seed).

    The latter has every one-way link with probability p, and is the first strongly connected one
    of networkx's generator under the seeds seed, seed + 1000, seed + 2000, ...

    Raises:
        InputError: naming ``graph.<key>``.
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


def directed_mixing(digraph: nx.DiGraph, *, weights: str) -> Array:
    """W of a digraph, shape (n, n), "row-stochastic" or "column-stochastic".

    Raises:
        InputError: unknown weights; see :func:`row_stochastic_mixing`.
    """
    _checks.one_of(weights, field="weights", allowed=DIRECTED_WEIGHTS)
    make = row_stochastic_mixing if weights == "row-stochastic" else column_stochastic_mixing
    return make(digraph)


def row_stochastic_mixing(digraph: nx.DiGraph) -> Array:
    """W_ij = 1 / (1 + in-degree of i) for i itself and for every j that sends to i.

    Shape (n, n), rows and columns in the order of ``digraph.nodes``; edge weights are ignored.

    Raises:
        InputError: not a DiGraph, empty, with self-loops or parallel edges, or not strongly
            connected.
    """
    heard = _closed_adjacency(digraph).T
    return np.asarray(heard / heard.sum(axis=1, keepdims=True))


def column_stochastic_mixing(digraph: nx.DiGraph) -> Array:
    """W_ij = 1 / (1 + out-degree of j) for j itself and for every i that j sends to.

    Shape (n, n), rows and columns in the order of ``digraph.nodes``; edge weights are ignored.

    Raises:
        InputError: not a DiGraph, empty, with self-loops or parallel edges, or not strongly
            connected.
    """
    heard = _closed_adjacency(digraph).T
    return np.asarray(heard / heard.sum(axis=0, keepdims=True))


def check_directed(mixing: Any, *, stochastic: str) -> Array:
    """W as a read-only float64 array, shape (n, n), once models converge under it.

    Nonnegative, rows or columns (``stochastic``) summing to 1, every node reaching every other,
    and a positive share kept by every node, without which W may only permute.

    Raises:
        InputError: naming the first entry, row, column or node at fault.
    """
    w = _checked(mixing, stochastic=stochastic)
    kept = np.diagonal(w)
    if kept.min() <= 0:
        raise InputError(
            "mixing",
            expected="a positive self weight at every node",
            got=f"{kept.min():.6g} at node {int(kept.argmin())}",
            remedy="Mix I into W: (I + W) / 2 has the same Perron vector.",
        )
    return w


def perron_vector(mixing: Any, *, stochastic: str) -> Array:
    """pi > 0, shape (n,), summing to 1: pi^T W = pi^T (row) or W pi = pi (column).

    By the elimination of Grassmann, Taksar and Heyman (1985), which subtracts nothing: every
    entry is accurate relative to itself, however small.

    Raises:
        InputError: W is negative somewhere, not stochastic as said, or some node does not reach
            another.
    """
    w = _checked(mixing, stochastic=stochastic)
    chain = np.array(w if stochastic == "row" else w.T)
    for k in range(len(chain) - 1, 0, -1):
        chain[:k, k] /= chain[k, :k].sum()
        chain[:k, :k] += np.multiply.outer(chain[:k, k], chain[k, :k])
    pi = np.ones(len(chain))
    for k in range(1, len(chain)):
        pi[k] = pi[:k] @ chain[:k, k]
    return np.asarray(pi / pi.sum())


def push_sum_weights(mixing: Any, *, horizon: int) -> Array:
    """y after steps 1..T, shape (T, n): row t is W^t 1, the sums that push-sum divides by.

    They tend to n pi, pi the Perron vector; rows (or that limit, shape (n,)) are what
    ``Objective(push_sum_weights=...)`` takes.

    Raises:
        InputError: W is not column stochastic, keeps nothing at some node, or is not strongly
            connected; horizon < 1.
    """
    w = check_directed(mixing, stochastic="column")
    y = np.empty((_checks.positive_int(horizon, field="horizon"), len(w)))
    current = np.ones(len(w))
    for step in range(horizon):
        current = w @ current
        y[step] = current
    return y


def _closed_adjacency(digraph: nx.DiGraph) -> Array:
    """Adjacency with self-loops: entry (j, i) is 1 where j sends to i, or is i."""
    got, remedy = "", ""
    if not isinstance(digraph, nx.Graph) or not digraph.is_directed():
        got = "an undirected graph" if isinstance(digraph, nx.Graph) else _checks.describe(digraph)
        remedy = "Use graph.to_directed() where every link goes both ways."
    elif digraph.is_multigraph():
        got, remedy = "a multigraph", "Use nx.DiGraph(graph), which merges parallel edges."
    elif len(digraph) == 0:
        got = "no nodes"
    elif loop := next(nx.selfloop_edges(digraph), None):
        got = f"a self-loop at node {loop[0]}"
        remedy = "Remove self-loops; W adds self weights."
    elif not nx.is_strongly_connected(digraph):
        parts = nx.number_strongly_connected_components(digraph)
        got = f"{parts} strongly connected components"
        remedy = "Keep the largest, or add the links that lead back."
    if got:
        raise InputError(
            "graph", expected="a strongly connected, simple, directed graph", got=got, remedy=remedy
        )
    require_room(len(digraph), field="graph")
    adjacency = nx.to_numpy_array(digraph, weight=None, dtype=np.float64)
    return np.asarray(adjacency + np.eye(len(adjacency)))


def _checked(mixing: Any, *, stochastic: str) -> Array:
    """As :func:`check_directed`, without the self weights."""
    _checks.one_of(stochastic, field="stochastic", allowed=STOCHASTIC)
    if stochastic == "row":
        return check_mixing(mixing, doubly_stochastic=False)
    w = mixing_array(mixing)
    if w.min() < 0:
        i, j = (int(k) for k in np.argwhere(w < 0)[0])
        raise InputError(
            "mixing", expected="nonnegative weights", got=f"{w[i, j]:.6g} at index ({i}, {j})"
        )
    wrong = np.flatnonzero(np.abs(w.sum(axis=0) - 1) > settings.STOCHASTIC_TOLERANCE)
    if wrong.size:
        first = int(wrong[0])
        raise InputError(
            "mixing",
            expected="columns that sum to 1",
            got=f"sum {w[:, first].sum():.15g} in column {first}",
            remedy="Push-sum needs W column stochastic; row stochastic W averages by itself.",
        )
    count, _ = connected_components(csr_array(w), directed=True, connection="strong")
    if count > 1:
        raise InputError(
            "mixing",
            expected="every node to reach every other along nonzero weights",
            got=f"{count} strongly connected components",
        )
    return w
