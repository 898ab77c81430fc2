"""All blocks in one flat vector, batches of one size, and the linear algebra of batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisedesign.base.checks import Array
from noisedesign.families.shared_seeds.program import SeedSets, by_size

Places = NDArray[np.intp]


class Layout:
    """The places of the blocks of all sets in a flat vector, those of one size next to another."""

    def __init__(self, sets: SeedSets, size: int) -> None:
        self.size = size
        groups = by_size(sets)
        self.order = [which for which, _ in groups]
        self.members = [members for _, members in groups]
        entries = [m[:, :, None] * size + m[:, None, :] for m in self.members]
        self.entry = np.concatenate([e.ravel() for e in entries])
        self._shapes = [e.shape for e in entries]
        self._ends = np.cumsum([e.size for e in entries])
        self.length = int(self._ends[-1])
        self.order_of_cone = sum(m.size for m in self.members)

    def split(self, flat: Array) -> list[Array]:
        """Views of the blocks, shapes (m, k, k), one array for every size."""
        starts = [0, *self._ends[:-1]]
        parts = zip(starts, self._ends, self._shapes, strict=True)
        return [flat[start:end].reshape(shape) for start, end, shape in parts]

    def join(self, blocks: Sequence[Array]) -> Array:
        return np.concatenate([block.ravel() for block in blocks])

    def assemble(self, flat: Array) -> Array:
        """sum_c E_c P_c E_c^T, shape (n, n)."""
        total = np.bincount(self.entry, flat, self.size**2)
        return np.asarray(total.reshape(self.size, self.size))

    def untouched(self, nodes: Sequence[int]) -> NDArray[np.bool_]:
        """Say which entries of a flat vector are of sets without any of these nodes."""
        masks = [np.repeat(~np.isin(m, nodes).any(axis=1), m.shape[1] ** 2) for m in self.members]
        return np.concatenate(masks)

    def gather(self, matrix: Array) -> Array:
        """The principal submatrices of the sets."""
        return np.asarray(np.ascontiguousarray(matrix).ravel()[self.entry])

    def node_sums(self, values: Sequence[Array]) -> Array:
        """Sum over the sets of every node, of values of shapes (m, k)."""
        total = np.zeros(self.size)
        for members, value in zip(self.members, values, strict=True):
            total += np.bincount(members.ravel(), value.ravel(), self.size)
        return total

    def scaled(self, flat: Array, row: Array) -> Array:
        """Blocks D P D with D = diag(row)."""
        parts = zip(self.split(flat), self.members, strict=True)
        return self.join([p * row[m][:, :, None] * row[m][:, None, :] for p, m in parts])

    def symmetrized(self, flat: Array) -> Array:
        """(P + P^T) / 2: antisymmetric rounding is nothing the method could damp."""
        return self.join([(block + transposed(block)) / 2 for block in self.split(flat)])

    def flat(self, blocks: Sequence[Array]) -> Array:
        """Blocks given one by one, in the order of the sets."""
        return self.join([np.stack([blocks[c] for c in which]) for which in self.order])

    def listed(self, flat: Array) -> list[Array]:
        """The blocks one by one, in the order of the sets."""
        found: dict[int, Array] = {}
        for which, blocks in zip(self.order, self.split(flat), strict=True):
            found.update(zip(which.tolist(), blocks, strict=True))
        return [found[c] for c in range(len(found))]


def transposed(blocks: Array) -> Array:
    return blocks.transpose(0, 2, 1)


def congruence(factor: Array, blocks: Array) -> Array:
    """F B F^T of symmetric B."""
    return np.asarray(factor @ blocks @ transposed(factor))


def roots(blocks: Array) -> tuple[Array, Array]:
    """Square root and its inverse of positive definite blocks."""
    values, vectors = np.linalg.eigh(blocks)
    if not values.min() > 0:
        raise np.linalg.LinAlgError("a block is not positive definite")
    half = np.sqrt(values)[:, None, :]
    return (vectors * half) @ transposed(vectors), (vectors / half) @ transposed(vectors)


def inverses(layout: Layout, flat: Array) -> Array:
    """P^-1, exactly symmetric."""
    found = [np.linalg.inv(np.linalg.cholesky(block)) for block in layout.split(flat)]
    return layout.join([transposed(half) @ half for half in found])


def longest_step(layout: Layout, flat: Array, step: Array) -> float:
    """Largest t with P + t dP >= 0, infinite where dP >= 0."""
    most = 0.0
    for block, change in zip(layout.split(flat), layout.split(step), strict=True):
        inverse = np.linalg.inv(np.linalg.cholesky(block))
        most = max(most, float(-np.linalg.eigvalsh(congruence(inverse, change))[:, 0].min()))
    return 1 / most if most > 0 else float("inf")


def scaling(layout: Layout, primal: Array, dual: Array) -> tuple[list[Array], list[Array]]:
    """Nesterov-Todd scaling points W with W S W = P: W and W^-1."""
    points, inverses = [], []
    for p, s in zip(layout.split(primal), layout.split(dual), strict=True):
        half, inverse_half = roots(p)
        middle, inverse_middle = roots(half @ s @ half)
        points.append(half @ inverse_middle @ half)
        inverses.append(inverse_half @ middle @ inverse_half)
    return points, inverses


class Coordinates:
    """The places of coordinates of blocks in a flat vector, and the entry of R each is of."""

    def __init__(self, layout: Layout) -> None:
        self._length = layout.length
        upper, lower, self.ends = [], [], [0]
        numbers: Any = np.arange(layout.length)
        parts: list[Any] = [*layout.split(numbers)]
        for places in parts:
            i, j = np.triu_indices(places.shape[1])
            upper.append(places[:, i, j].ravel())
            lower.append(places[:, j, i].ravel())
            self.ends.append(self.ends[-1] + len(upper[-1]))
        self.upper, self.lower = np.concatenate(upper), np.concatenate(lower)
        self._weight = np.where(self.upper == self.lower, 1.0, np.sqrt(2))
        entries, self.entry = np.unique(layout.entry[self.upper], return_inverse=True)
        self.row, self.column = np.divmod(entries, layout.size)
        self._ends_of = np.concatenate([self.row, self.column])
        self._share = _share(self.row, self.column)

    def lost(self, kept: NDArray[np.bool_], nodes: Places) -> Places:
        """Coordinates that are not kept, of entries of R on these nodes."""
        here = np.isin(self.row, nodes) & np.isin(self.column, nodes)
        return np.flatnonzero(~kept[self.upper] & here[self.entry])

    def read(self, flat: Array) -> Array:
        return np.asarray(flat[self.upper] * self._weight)

    def write(self, values: Array) -> Array:
        flat = np.empty(self._length)
        flat[self.upper] = flat[self.lower] = values / self._weight
        return flat

    def curvature(self, x: Array, v: Array) -> Array:
        """K, N = X diag(v) X."""
        both, size = self._ends_of, len(self.row)
        x, n = x[both][:, both], ((x * v) @ x)[both][:, both]
        found = x[:size, :size] * n[size:, size:]
        found += x[size:, size:] * n[:size, :size]
        found += x[:size, size:] * n[size:, :size]
        found += x[size:, :size] * n[:size, size:]
        found *= 2 * self._share
        found *= self._share[:, None]
        return np.asarray(found)

    def squares(self, x: Array, on: Places) -> Array:
        """Columns u of Z."""
        return np.asarray(2 * self._share[:, None] * x[self.row][:, on] * x[self.column][:, on])


def _share(row: Places, column: Places) -> Array:
    """w in E = w (e_i e_j^T + e_j e_i^T)."""
    return np.where(row == column, 0.5, np.sqrt(0.5))


def products(factors: Array) -> Array:
    """The maps of coordinates B -> F B F^T, shape (m, q, q), of F, shape (m, k, k)."""
    i, j = np.triu_indices(factors.shape[1])
    fi, fj = factors[:, i], factors[:, j]
    both = fi[:, :, i] * fj[:, :, j] + fi[:, :, j] * fj[:, :, i]
    share = _share(i, j)
    return np.asarray(both * (2 * share[:, None] * share))
