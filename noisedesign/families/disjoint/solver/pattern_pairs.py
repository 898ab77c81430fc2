"""Blocks on overlapping patterns, their sum, and the pairs of steps that meet in a pattern.

A symmetric matrix that vanishes off those pairs is packed into a vector whose inner product is that
of the matrices: an entry off the diagonal stands twice, and is multiplied by sqrt(2)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from noisedesign.base.checks import Array
from noisedesign.base.device import DeviceArray, namespace

Steps = NDArray[np.intp]
Blocks = Sequence[Array]
"""One array, shape (n, k, k), for the patterns of every size k."""


def onto_constant_diagonal(blocks: DeviceArray) -> DeviceArray:
    """Orthogonal projection onto symmetric blocks of constant diagonals, on their device."""
    # Rounding leaves an antisymmetric part, whose growth nothing else would stop.
    xp = namespace(blocks)
    projected = (blocks + xp.permute_dims(blocks, (0, 2, 1))) / 2
    mean = xp.mean(xp.linalg.diagonal(projected), axis=1)
    mask = _diagonal(blocks.shape[1], xp, array_api_compat.device(blocks))
    return xp.where(mask, mean[:, None, None], projected)


def inner(left: Blocks, right: Blocks) -> float:
    """Sum of the inner products of all blocks."""
    return sum(float(np.vdot(a, b)) for a, b in zip(left, right, strict=True))


class ConstantDiagonal:
    """R -> U (R + diag(m)) U, with m such that the diagonal is constant: the inverse of U^-1 (.)
    U^-1, the Hessian of -log det, on blocks with constant diagonals."""

    def __init__(self, blocks: DeviceArray) -> None:
        xp = namespace(blocks)
        self.blocks = blocks
        # Columns scaled to order one: the blocks of patterns that do not matter are tiny.
        size = xp.max(xp.linalg.diagonal(blocks), axis=1)[:, None, None]
        squared = xp.square(blocks) / size**2
        ones = xp.ones_like(blocks[:, :, :1])
        rows = ([squared, -ones], [xp.permute_dims(ones, (0, 2, 1)), 0 * size])
        bordered = xp.concat([xp.concat(row, axis=2) for row in rows], axis=1)
        k = blocks.shape[1]
        self.multiplier = xp.linalg.inv(bordered)[:, :k, :k] / size**2

    def __call__(self, right: DeviceArray) -> DeviceArray:
        xp = namespace(right)
        scaled = self.blocks @ right @ self.blocks
        shift = -(self.multiplier @ xp.linalg.diagonal(scaled)[:, :, None])
        shifted = self.blocks * xp.permute_dims(shift, (0, 2, 1))
        return onto_constant_diagonal(scaled + shifted @ self.blocks)


@lru_cache(maxsize=8)
def _diagonal(size: int, xp: Any, place: Any) -> DeviceArray:
    """The mask of the diagonal of a block, shape (size, size)."""
    number = xp.arange(size, device=place)
    return number[:, None] == number[None, :]


class Pairs:
    """The patterns by size, ``groups``, and the pairs s <= t that meet in them."""

    def __init__(self, horizon: int, groups: Sequence[Steps]) -> None:
        self.horizon, self.groups = horizon, groups
        meet = np.zeros((horizon, horizon), dtype=np.bool_)
        for steps in groups:
            first, second = np.triu_indices(steps.shape[1])
            meet[steps[:, first], steps[:, second]] = True
        self.first, self.second = np.nonzero(meet)
        self.count = len(self.first)
        self.weight = np.where(self.first == self.second, 1.0, np.sqrt(2.0))
        covered = np.concatenate([steps.ravel() for steps in groups])
        self.times_covered = np.bincount(covered, minlength=horizon)
        number = np.zeros((horizon, horizon), dtype=np.intp)
        number[self.first, self.second] = np.arange(self.count)
        number = np.maximum(number, number.T)
        self._flat = [steps[:, :, None] * horizon + steps[:, None, :] for steps in groups]
        self._number = []
        for steps in groups:
            i, j = np.triu_indices(steps.shape[1])
            self._number.append(number[steps[:, i], steps[:, j]])

    def scatter(self, blocks: Blocks) -> Array:
        """The sum of all blocks at their places, shape (T, T)."""
        total = np.zeros(self.horizon**2)
        for u, flat in zip(blocks, self._flat, strict=True):
            total += np.bincount(flat.ravel(), u.ravel(), len(total))
        return total.reshape(self.horizon, self.horizon)

    def gather(self, matrix: Array) -> list[Array]:
        """The blocks of a matrix on all patterns."""
        return [np.asarray(matrix.ravel()[flat]) for flat in self._flat]

    def pack(self, matrix: Array) -> Array:
        """Entries of a symmetric matrix on the pairs, shape (count,)."""
        return np.asarray(matrix[self.first, self.second] * self.weight)

    def unpack(self, packed: Array) -> Array:
        """The symmetric matrix, shape (T, T), that vanishes off the pairs."""
        matrix = np.zeros((self.horizon, self.horizon))
        matrix[self.first, self.second] = packed / self.weight
        matrix[self.second, self.first] = packed / self.weight
        return matrix

    def curvature(self, spread: Array, weights: Array) -> Array:
        """The map of packed E to P (P^T E P o weights) P^T, packed; shape (count, count)."""
        result = np.empty((self.count, self.count))
        # Pairs are taken a few at a time: 16 MB of working space.
        length = max(1, 2**21 // self.horizon**2)
        for start in range(0, self.count, length):
            part = slice(start, start + length)
            outer = spread[self.first[part], :, None] * spread[self.second[part], None, :]
            scale = weights / self.weight[part, None, None]  # (E_st + E_ts) / sqrt(2), or E_ss
            symmetric = (outer + outer.transpose(0, 2, 1)) * scale
            symmetric[self.first[part] == self.second[part]] /= 2
            images = spread @ symmetric @ spread.T
            result[:, part] = images[:, self.first, self.second].T * self.weight[:, None]
        return (result + result.T) / 2

    def metric(self, scaled: Sequence[ConstantDiagonal]) -> Array:
        """The sum over patterns of their maps of X_pi to a change of U, shape (count, count)."""
        total = np.zeros((self.count, self.count))
        for apply, number in zip(scaled, self._number, strict=True):
            k = apply.blocks.shape[1]
            i, j = np.triu_indices(k)
            root = np.where(i == j, 1.0, np.sqrt(2.0))
            for column in range(len(i)):
                unit = np.zeros((len(number), k, k))
                unit[:, i[column], j[column]] = unit[:, j[column], i[column]] = 1 / root[column]
                images = apply(unit)[:, i, j] * root
                np.add.at(total, (number, number[:, column, None]), images)
        return np.asarray((total + total.T) / 2)
