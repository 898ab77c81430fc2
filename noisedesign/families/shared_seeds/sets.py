"""Who may share noise with whom: structures of a covariance as lists of cliques.

A covariance R = sum_c E_c P_c E_c^T with one positive semidefinite block P_c for every clique c is
noise that small groups can draw from shared seeds, without a dealer and without a network-wide
secret. Cliques here are sets of nodes that may share a seed; they need not be cliques of the graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisedesign.base import checks as _checks
from noisedesign.base.checks import InputError, describe

Clique = tuple[int, ...]
Cliques = tuple[Clique, ...]
Members = NDArray[np.intp]


def edge_local(mixing: Any) -> Cliques:
    """The two ends of every edge; an isolated node alone.

    Args:
        mixing: W, shape (n, n); i and j are joined where W_ij or W_ji is not zero.

    Raises:
        InputError: mixing is not a finite square float64 matrix.
    """
    return _pairs(_adjacency(mixing))


def hops(mixing: Any, *, within: int) -> Cliques:
    """Any two nodes at most ``within`` edges apart; ``within`` = n - 1 joins all pairs.

    Raises:
        InputError: see :func:`edge_local`; ``within`` is not an integer >= 1.
    """
    adjacency = _adjacency(mixing)
    steps = _checks.positive_int(within, field="structure.hops")
    step = adjacency | np.eye(len(adjacency), dtype=bool)
    reached = step
    for _ in range(min(steps, len(adjacency)) - 1):
        further = reached.astype(np.float64) @ step > 0
        if (further == reached).all():
            break
        reached = further
    return _pairs(reached)


def neighbourhoods(mixing: Any) -> Cliques:
    """Every node together with its neighbours.

    Raises:
        InputError: see :func:`edge_local`.
    """
    adjacency = _adjacency(mixing)
    closed = adjacency | np.eye(len(adjacency), dtype=bool)
    return maximal(tuple(int(j) for j in np.flatnonzero(row)) for row in closed)


def clusters(labels: Sequence[int], *, mixing: Any = None) -> Cliques:
    """The nodes of every cluster together and, given ``mixing``, the two ends of every edge.

    Args:
        labels: the number of the cluster of every node.

    Raises:
        InputError: labels are not integers; see :func:`edge_local`; W of another size.
    """
    found: dict[int, list[int]] = {}
    for node, label in enumerate(labels):
        if isinstance(label, bool) or not isinstance(label, (int, np.integer)):
            raise InputError(
                "structure.clusters",
                expected="an integer for every node",
                got=f"{describe(label)} for node {node}",
            )
        found.setdefault(int(label), []).append(node)
    blocks = [tuple(nodes) for nodes in found.values()]
    if mixing is None:
        return maximal(blocks)
    adjacency = _adjacency(mixing)
    if len(adjacency) != len(labels):
        raise InputError(
            "structure.clusters",
            expected=f"{len(adjacency)} values, one per node",
            got=str(len(labels)),
        )
    return maximal([*blocks, *_pairs(adjacency)])


def independent(size: int) -> Cliques:
    """Every node alone."""
    return tuple((node,) for node in range(_checks.positive_int(size, field="size")))


def maximal(cliques: Iterable[Sequence[int]]) -> Cliques:
    """Sorted, without repetitions and without cliques that lie within another.

    A block on a smaller clique is a block on the larger one, so nothing is lost - unless coalitions
    know seeds: then a smaller clique outlives coalitions that a larger one does not.
    """
    kept: list[frozenset[int]] = []
    at: dict[int, list[frozenset[int]]] = {}
    for clique in sorted({frozenset(clique) for clique in cliques}, key=len, reverse=True):
        rarest = min((at.get(node, []) for node in clique), key=len, default=[])
        if any(clique <= other for other in rarest):
            continue
        kept.append(clique)
        for node in clique:
            at.setdefault(node, []).append(clique)
    return tuple(sorted(tuple(sorted(clique)) for clique in kept))


def by_size(cliques: Cliques) -> list[tuple[Members, Members]]:
    """Cliques of each size: (which of ``cliques``, shape (m,); their nodes, shape (m, k))."""
    sizes = np.array([len(clique) for clique in cliques])
    groups = []
    for size in np.unique(sizes):
        which = np.flatnonzero(sizes == size)
        groups.append((which, np.array([cliques[c] for c in which], dtype=np.intp)))
    return groups


def _adjacency(mixing: Any) -> NDArray[np.bool_]:
    joined = _checks.matrix(mixing, field="mixing", square=True) != 0
    joined = joined | joined.T
    np.fill_diagonal(joined, False)
    return np.asarray(joined)


def _pairs(joined: NDArray[np.bool_]) -> Cliques:
    """Joined pairs, and nodes joined to no other alone."""
    off = joined & ~np.eye(len(joined), dtype=bool)
    rows, columns = np.nonzero(np.triu(off))
    alone = np.flatnonzero(~off.any(axis=1))
    pairs = [(int(i), int(j)) for i, j in zip(rows, columns, strict=True)]
    return tuple(sorted([*pairs, *((int(i),) for i in alone)]))
