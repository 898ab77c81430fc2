"""Sums over neighbourhoods, of which every part has its own rows: blocks of unit vectors, sparse.

A block has some nodes of every part. Walks bound what each reaches, so that no part holds more of a
block than it has room for; every product takes the rows of the halo from other parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from noisedesign.distributed.mail import Array
from noisedesign.distributed.world import World
from noisedesign.families.polynomial.operator import DENSE_FROM, squares

if TYPE_CHECKING:
    from noisedesign.distributed.rows import Rows, Scaled

ENTRIES_AT_ONCE = 1 << 22
"""Entries that the nodes of one part in a block reach at most, unless one node alone reaches more:
about 50 MB an array of a block a part, of which there are four. More means fewer messages."""

COLUMNS_AT_ONCE = 4096  # nodes of a part in a block, at most

Found = Callable[[Any], Iterator[Array]]  # from unit vectors, sums over rows here, a column each


def by_halves(factor: Scaled, top: float, degree: int) -> Array:
    """The diagonals of T_j(2 B / b - 1) of B = A^T A, j <= ``degree``, of the nodes of this part,
    shape (degree + 1, n): 2 |T_j(A / sqrt(b)) e|^2 - 1, A and A^T by turns. The search's."""
    a = factor / np.sqrt(top)
    rows, pair = factor.rows, (a.T, a)

    def found(starts: Any) -> Iterator[Array]:
        before, current = starts, _written(a @ starts, rows.world)
        for j in range(1, degree + 1):
            yield _lengths(current)
            if j < degree:
                following = 2 * (pair[(j + 1) % 2] @ current) - _like(before, current)
                before, current = current, _written(following, rows.world)

    lengths = _of_all(rows, degree, found)
    return np.concatenate([np.ones((1, lengths.shape[1])), 2 * lengths - 1])


def by_steps(factor: Scaled, top: float, degree: int) -> Array:
    """The same by steps in B, as the judge finds it. With y = T_j(X) e, X = 2 B / b - 1, and T_j^2
    = (T_2j + 1) / 2, |y|^2 tells the diagonal of T_2j, and y^T X y that of T_2j+1."""
    a = factor / np.sqrt(top)
    back, rows = a.T, factor.rows

    def found(starts: Any) -> Iterator[Array]:
        before, current = None, starts
        for j in range(degree // 2 + 1):
            own = _lengths(current)
            yield own
            if 2 * j == degree:
                break
            half = _written(a @ current, rows.world)
            yield 2 * _lengths(half) - own
            if 2 * j + 1 < degree:
                image = _written(2 * (back @ half), rows.world)
                image = image - _like(current, image)
                following = image if before is None else 2 * image - _like(before, image)
                before, current = _like(current, following), following

    raw = _of_all(rows, degree, found)
    for j in range(degree // 2 + 1):
        raw[2 * j] = 2 * raw[2 * j] - 1
        if 0 < 2 * j < degree:
            raw[2 * j + 1] = 4 * raw[2 * j + 1] - raw[2 * j - 1] - 2 * raw[1]
    return raw


def _written(block: Any, world: World) -> Any:
    """A block as an array where much of it is there, in all parts or in none."""
    if isinstance(block, np.ndarray):
        return block
    there, room = world.total(np.array([block.nnz, block.shape[0] * block.shape[1]], dtype=float))
    return block.toarray() if there > DENSE_FROM * room else block


def _like(block: Any, other: Any) -> Any:
    """A block as an array where the other is one."""
    both = isinstance(other, np.ndarray) and not isinstance(block, np.ndarray)
    return block.toarray() if both else block


def _lengths(block: Any) -> Array:
    """Squared lengths of columns, of the rows that are here."""
    if isinstance(block, np.ndarray):
        return squares(block)
    return np.bincount(block.indices, weights=block.data**2, minlength=block.shape[1])


def walks(rows: Rows, hops: int) -> Array:
    """Bound how many nodes each node here reaches by so many products, shape (n,)."""
    ones, most = rows.pattern(), float(rows.world.count(0))
    count = np.ones((rows.shape[0], 1))
    for _ in range(hops):
        count = np.minimum(ones.times(count), most)
    return np.asarray(count[:, 0])


def _runs(reached: Array) -> Array:
    """Ends of runs of nodes that reach ``ENTRIES_AT_ONCE`` together at most, or are one node."""
    sums, ends = np.cumsum(reached), [0]
    while ends[-1] < len(sums):
        room = (sums[ends[-1] - 1] if ends[-1] else 0.0) + ENTRIES_AT_ONCE
        end = int(np.searchsorted(sums, room, side="right"))
        ends.append(min(max(end, ends[-1] + 1), ends[-1] + COLUMNS_AT_ONCE))
    return np.array(ends)


def _of_all(rows: Rows, hops: int, found: Found) -> Array:
    """Gather what ``found`` sums up over the rows of all parts, for the nodes of this one."""
    world, n = rows.world, rows.shape[0]
    widths = world.each(np.diff(_runs(walks(rows, hops))))
    blocks = []
    first = 0
    for number in range(max(map(len, widths))):
        # Columns: nodes of part 0, then of part 1, ...; a part may have none left.
        columns = np.array([int(w[number]) if number < len(w) else 0 for w in widths])
        cuts = np.concatenate([[0], np.cumsum(columns)])
        mine = np.arange(first, first + columns[world.index])
        at = cuts[world.index] + np.arange(len(mine))
        starts = sparse.csr_array((np.ones(len(mine)), (mine, at)), shape=(n, int(cuts[-1])))
        blocks.append(world.to_owners(np.stack(list(found(starts))), cuts))
        first += len(mine)
    return np.concatenate(blocks, axis=1)
