"""The rows of W that a part has, and their products with vectors of which it has its own rows too.

What a product needs of others, its halo, they send before they multiply their own: one message a
pair of neighbouring parts, 8 bytes a column and node of the halo."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import sparse

from noisedesign.distributed import sums
from noisedesign.distributed.mail import Array
from noisedesign.distributed.world import World
from noisedesign.families.polynomial.operator import narrow

Block = Any  # rows of dense or of sparse columns


class Rows:
    """W, symmetric, of which rows ``world.first`` to ``world.end`` are here; ``source``, ``target``
    and ``values`` are their entries, the diagonal too."""

    def __init__(self, world: World, source: Array, target: Array, values: Array) -> None:
        self.world = world
        first, end, n = world.first, world.end, world.end - world.first
        self.shape = (n, n)  # of vectors here; W itself has world.count rows
        inside = (target >= first) & (target < end)
        row = source - first
        self.inner = _csr(values[inside], row[inside], target[inside] - first, (n, n))
        foreign = target[~inside]
        halo = self.halo_nodes = np.unique(foreign)
        place = np.searchsorted(halo, foreign)
        self.outer = _csr(values[~inside], row[~inside], place, (n, len(halo)))
        cut = np.searchsorted(halo, world.ends)
        self.halo = {k: slice(int(a), int(b)) for k, (a, b) in enumerate(pairwise(cut)) if b > a}
        """Places in the halo of the nodes of each neighbouring part."""
        # W is symmetric: whom a part takes from, it sends to.
        tag = world.tag("halo of whom")
        for k, places in self.halo.items():
            world.mail.send(k, tag, halo[places] - world.ends[k])
        self.sends = {k: world.mail.take(k, tag) for k in self.halo}

    @property
    def entries(self) -> int:
        """Entries of W that are here."""
        return int(self.inner.nnz + self.outer.nnz)

    def seen(self, block: Block, about: str = "halo") -> Block:
        """The rows of the halo, which others have."""
        world = self.world
        tag = world.tag(about)
        for k, nodes in self.sends.items():
            world.mail.send(k, tag, block[nodes])
        taken = [world.mail.take(k, tag) for k in self.halo]
        if isinstance(block, np.ndarray):
            return np.concatenate([np.zeros((0, *block.shape[1:]), block.dtype), *taken])
        empty = sparse.csr_array((0, block.shape[1]))
        return sparse.vstack([empty, *taken], format="csr")

    def times(self, block: Block) -> Block:
        """W times a block."""
        seen = self.seen(block, "halo" if isinstance(block, np.ndarray) else "sums")
        return self.inner @ block + self.outer @ seen

    def squares(self) -> Array:
        """Sums of the squares of the entries of rows, (n,)."""
        return np.asarray(
            self.inner.power(2).sum(axis=1) + self.outer.power(2).sum(axis=1), dtype=np.float64
        )

    def pattern(self) -> Rows:
        """The same with ones for entries."""
        found = object.__new__(Rows)
        found.__dict__.update(self.__dict__)
        for name in ("inner", "outer"):
            matrix = getattr(self, name).copy()
            matrix.data = np.ones_like(matrix.data)
            setattr(found, name, matrix)
        return found

    def __matmul__(self, other: Any) -> Any:
        """W times a block, or times a diagonal as :class:`Weighted` writes it."""
        if isinstance(other, sparse.dia_array):
            return Scaled(self, right=other.diagonal())
        return self.times(other)


def _csr(values: Array, row: Array, column: Array, shape: tuple[int, int]) -> Any:
    return narrow(sparse.coo_array((values, (row, column)), shape=shape).tocsr())


@dataclass(frozen=True, eq=False)
class Scaled:
    """diag(left) W diag(right), which has of a sparse array what :class:`Weighted` asks for."""

    rows: Rows
    left: Any = 1.0
    right: Any = 1.0

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows.shape

    @property
    def T(self) -> Scaled:  # noqa: N802 (the name that arrays have for it)
        return Scaled(self.rows, left=self.right, right=self.left)

    def tocsr(self) -> Scaled:
        return self

    def __truediv__(self, factor: float) -> Scaled:
        return Scaled(self.rows, left=self.left / factor, right=self.right)

    def __rmul__(self, factor: float) -> Scaled:
        return Scaled(self.rows, left=self.left * factor, right=self.right)

    def by_halves(self, top: float, degree: int) -> Array:
        """The diagonals of T_j(2 B / b - 1), as the search finds them."""
        return sums.by_halves(self, top, degree)

    def by_steps(self, top: float, degree: int) -> Array:
        """The same, as the judge finds them."""
        return sums.by_steps(self, top, degree)

    def __matmul__(self, block: Block) -> Block:
        return _times(self.left, self.rows.times(_times(self.right, block)))


def _times(diagonal: Any, block: Block) -> Block:
    """A diagonal, or a number, times a block."""
    if np.ndim(diagonal) == 0:
        return block if diagonal == 1.0 else diagonal * block
    if isinstance(block, np.ndarray):
        return diagonal.reshape(-1, *[1] * (block.ndim - 1)) * block
    found = block.copy()
    found.data = block.data * np.repeat(diagonal, np.diff(block.indptr))
    return found
