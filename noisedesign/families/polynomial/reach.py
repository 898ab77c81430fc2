"""Neighbourhoods in sparse graphs, cut out: sums over them touch nothing that they do not reach.

A block of unit vectors reaches more nodes with every product. A piece is as wide as the entries
that it reaches allow, and its products take rows and columns of the nodes that are reached, under
numbers of their own: what a piece takes in time and memory grows with no number of nodes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import reverse_cuthill_mckee

from noisedesign.base.checks import Array

ENTRIES_AT_ONCE = (
    1 << 22
)  # that a piece of more than one node reaches at most (50 MB), four a thread
NUMBERS_AT_ONCE = (
    16_000_000  # of a block that is written out at most (130 MB), three of them a thread
)
RUN = 2048  # nodes that a thread takes at once: fewer have more in common, more are shared out less
FIRST = (
    128  # nodes of the first piece of a run, at most; the next has four times as many, if it may
)
ORDERED_FROM = 5000  # nodes from which their order matters: fewer are in the cache in any
DEEP = 32  # links from a node beyond which a graph has an order with neighbours near each other
NEARER = 8  # times nearer that neighbours have to be in another order, or nodes stay in their own


class Piece(NamedTuple):
    """Some nodes, by their places among all that are asked for, and A and A^T around them.

    Rows and columns are those that products with A and A^T by turns reach; the nodes are the first.
    x A^T and y A of sparse rows are right where that many products take them: rows of either array
    that none takes are empty."""

    nodes: slice
    factor: Any
    transposed: Any


@dataclass(frozen=True, kw_only=True, eq=False)
class Neighbourhoods:
    """All that ``hops`` products with a sparse A, ``factor``, and its transpose by turns reach from
    ``nodes``. Both are one array on one set of nodes where they are the same object."""

    factor: Any
    transposed: Any
    hops: int
    nodes: Array
    walks: Array = field(init=False)
    """Bounds on the entries that each node reaches: walks, one of which ends at each of them."""

    @property
    def runs(self) -> list[slice]:
        """Runs of nodes, which threads may share."""
        n = len(self.nodes)
        return [slice(first, min(first + RUN, n)) for first in range(0, n, RUN)]

    def __post_init__(self) -> None:
        arrays = (self.transposed, self.factor)
        ones = [sparse.csr_array((np.ones(x.nnz), x.indices, x.indptr), x.shape) for x in arrays]
        count = np.ones(arrays[(self.hops + 1) % 2].shape[1])
        for hop in range(self.hops - 1, -1, -1):
            count = np.minimum(ones[hop % 2] @ count, float(max(self.factor.shape)))
        object.__setattr__(self, "walks", count[self.nodes])

    def pieces(self, run: slice) -> Iterator[Piece]:
        """Yield the pieces of a run."""
        first, width = run.start, FIRST
        while first < run.stop:
            within = slice(first, min(first + width, run.stop))
            factor, transposed = self._around(self.nodes[within])
            # None reaches more than all of them do together.
            each = np.minimum(self.walks[within], max(factor.shape))
            room = int(np.searchsorted(np.cumsum(each), ENTRIES_AT_ONCE, side="right"))
            taken = min(max(room, 1), len(each))
            yield Piece(slice(first, first + taken), factor, transposed)
            first, width = first + taken, taken if taken < len(each) else 4 * taken

    def _around(self, nodes: Array) -> tuple[Any, Any]:
        alike = self.factor is self.transposed
        columns = _Reached(self.factor.shape[1], nodes)
        rows = columns if alike else _Reached(self.factor.shape[0], nodes[:0])
        taken: tuple[list[Any], list[Any]] = ([self.transposed[:0]], [self.factor[:0]])
        fresh = nodes
        for hop in range(self.hops):
            into, matrix = (columns, self.factor) if hop % 2 else (rows, self.transposed)
            part = matrix[fresh]
            taken[0 if alike else hop % 2].append(part)
            fresh = into.add(part.indices)
        transposed = columns.cut(taken[0], rows)
        return transposed if alike else rows.cut(taken[1], columns), transposed


class _Reached:
    """Nodes in the order in which they are reached, each once."""

    def __init__(self, size: int, nodes: Array) -> None:
        # Neither array is touched but at nodes that are reached, and so takes no time at others.
        self._seen, self._place = np.zeros(size, dtype=bool), np.empty(size, dtype=np.int32)
        self._count = 0
        self.add(nodes)

    def add(self, candidates: Array) -> Array:
        """Add nodes and return those that are new."""
        found = candidates[~self._seen[candidates]]
        order = np.arange(len(found), dtype=np.int32)
        self._place[found] = order
        fresh = found[self._place[found] == order]  # one of equals
        self._seen[fresh] = True
        self._place[fresh] = order[: len(fresh)] + self._count
        self._count += len(fresh)
        return np.asarray(fresh)

    def cut(self, parts: list[Any], columns: _Reached) -> Any:
        """The sparse rows of the first of these nodes, of which all columns are reached."""
        rows = sparse.vstack(parts, format="csr")
        ends = np.full(self._count + 1, rows.nnz, dtype=np.int32)
        ends[: len(rows.indptr)] = rows.indptr
        places = columns._place[rows.indices]
        return sparse.csr_array((rows.data, places, ends), (self._count, columns._count))


def nearer(mixing: Any) -> Array | None:
    """Nodes in the order of reverse Cuthill and McKee, if neighbours are much nearer to each other
    in it than they are: products of such arrays find in the cache what they take."""
    n = mixing.shape[0]
    if n < ORDERED_FROM or not _is_deep(mixing):
        return None
    order = reverse_cuthill_mckee(sparse.csr_array(mixing))
    place = np.empty_like(order)
    place[order] = np.arange(n, dtype=order.dtype)
    rows = np.repeat(np.arange(n), np.diff(mixing.indptr))
    before, after = (
        float(np.abs(a - b).mean())
        for a, b in ((rows, mixing.indices), (place[rows], place[mixing.indices]))
    )
    return np.asarray(order) if after * NEARER <= before else None


def _is_deep(mixing: Any) -> bool:
    """Whether some node is more than ``DEEP`` links from the first: no order has neighbours nearer
    than n over that on all ways to it."""
    reached, fresh = _Reached(mixing.shape[0], np.array([0])), np.array([0])
    for _ in range(DEEP):
        fresh = reached.add(mixing[fresh].indices)
    return len(fresh) > 0


def is_full(block: Any, share: float) -> bool:
    """Whether a sparse block is quicker written out: more than that share of it is there, and there
    is room for the rest."""
    numbers = block.shape[0] * block.shape[1]
    return bool(block.nnz > share * numbers and numbers <= NUMBERS_AT_ONCE)
