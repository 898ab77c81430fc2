"""H in blocks, by its symmetries, and all that the diagonal solver asks of S from the blocks.

The multipliers of an orbit are one unknown, p = its size times v, so that prices, slopes and Newton
steps are those of :mod:`diagonal` with an orbit in the place of a node. A block is, for any two
orbits that have a vector in it, the mean of H with the signs of those vectors; X is put together in
the same way, and has exactly the symmetries, so that tr(H X^-1) does not see what rounding leaves H
without.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.sparse

from noisedesign.base import settings
from noisedesign.base.checks import Array
from noisedesign.families.disjoint.native.square_roots import (
    Curvature,
    SquareRoot,
    rounding_of,
    square_root,
    trusted,
)
from noisedesign.families.disjoint.native.symmetry import Symmetry
from noisedesign.families.disjoint.native.symmetry.involutions import Labels
from noisedesign.program.program import Program


class Block:
    """One block: which ``orbits`` have a vector in it, shape (k,); H on these vectors, ``gram``."""

    def __init__(self, program: Program, signs: Array, orbit: Labels, sizes: Labels) -> None:
        self.program = program
        self.nodes = np.flatnonzero(signs)
        self.signs = signs[self.nodes]
        self.orbits, self.place = np.unique(orbit[self.nodes], return_inverse=True)
        entries = self.signs / sizes[orbit[self.nodes]]
        self.vectors = scipy.sparse.csr_array(
            (entries, (self.place, self.nodes)), shape=(len(self.orbits), program.size)
        )
        self.gram = self._gathered(self._gathered(program.gram).T)

    @cached_property
    def factor(self) -> Array:
        """L with L^T L = ``gram``, shape (at most k, k)."""
        return np.asarray(np.linalg.qr(self._gathered(self.program.factor.T).T, mode="r"))

    def _gathered(self, matrix: Array) -> Array:
        return np.asarray(self.vectors @ matrix)


class Twins:
    """The vectors that sum to zero over every class of twins: one multiple of the identity for each
    orbit, ``gram``, ``count`` times; both of shape (orbits,)."""

    def __init__(self, program: Program, symmetry: Symmetry, sizes: Labels) -> None:
        self.program = program
        members = np.bincount(symmetry.twins)
        order = np.argsort(symmetry.twins, kind="stable")
        classes = np.split(order, np.cumsum(members)[:-1])
        self.classes = [nodes for nodes in classes if len(nodes) > 1]
        self.orbits = np.array([symmetry.orbit[nodes[0]] for nodes in self.classes], dtype=np.intp)
        self.sizes = sizes
        self.count = np.zeros(len(sizes))
        np.add.at(self.count, self.orbits, [len(nodes) - 1.0 for nodes in self.classes])

    def _mean(self, of_classes: list[float]) -> Array:
        """Traces on the vectors of every class to means over orbits, on the scale of blocks."""
        total = np.bincount(self.orbits, of_classes, minlength=len(self.sizes))
        return np.asarray(total / np.maximum(self.count, 1) / self.sizes)

    @cached_property
    def gram(self) -> Array:
        blocks = (self.program.gram[np.ix_(nodes, nodes)] for nodes in self.classes)
        means = self._mean([float(np.trace(h) - h.sum() / len(h)) for h in blocks])
        return np.maximum(means, 0.0)

    @cached_property
    def exact(self) -> Array:
        """The root of ``gram``, from L, by nothing that is squared."""
        columns = (self.program.factor[:, nodes] for nodes in self.classes)
        deviations = (part - part.mean(axis=1, keepdims=True) for part in columns)
        return np.sqrt(self._mean([float(np.square(part).sum()) for part in deviations]))


class SplitRoot(NamedTuple):
    """S in blocks: the roots of all of them, and those of twins, shape (orbits,)."""

    split: Split
    parts: list[SquareRoot]
    alone: Array
    diag: Array  # of S, summed over every orbit
    trace: float

    def curvature(self, *, trace: float) -> SplitCurvature:
        return SplitCurvature(self, trace)

    def curvature_above(self, *, trace: float) -> Array:
        total = np.diag(self.split.twins.count * self.alone / (2 * trace))
        for block, part in zip(self.split.blocks, self.parts, strict=True):
            total[np.ix_(block.orbits, block.orbits)] += part.curvature_above(trace=trace)
        return total

    def rescaled(self, ratio: Array) -> float:
        twins = self.split.twins
        if not (self.alone[twins.count > 0] > 0).all():
            return float("inf")
        blocks = zip(self.split.blocks, self.parts, strict=True)
        total = sum(part.rescaled(ratio[block.orbits]) for block, part in blocks)
        return total + float(twins.count @ (ratio * self.alone))

    def gram(self, p: Array) -> Array:
        """X(v), shape (n, n), of all nodes."""
        n = self.split.size
        x = np.zeros((n, n))
        for block, part in zip(self.split.blocks, self.parts, strict=True):
            spread = np.asarray(part.gram(p[block.orbits]))[np.ix_(block.place, block.place)]
            spread *= block.signs
            spread *= block.signs[:, None]
            if len(block.nodes) == n:
                x += spread
            else:
                x[np.ix_(block.nodes, block.nodes)] += spread
            del spread  # as whatever has n^2 entries, once it is used
        twins = self.split.twins
        multiple = twins.sizes * self.alone / p
        for nodes, orbit in zip(twins.classes, twins.orbits, strict=True):
            x[np.ix_(nodes, nodes)] += multiple[orbit] * (np.eye(len(nodes)) - 1 / len(nodes))
        return x


class SplitCurvature:
    """G / ``trace`` for changes that are the same all over an orbit."""

    def __init__(self, root: SplitRoot, trace: float) -> None:
        self.twins: Array = root.split.twins.count * root.alone / (2 * trace)
        self.parts: list[tuple[Labels, Curvature]] = [
            (block.orbits, part.curvature(trace=trace))
            for block, part in zip(root.split.blocks, root.parts, strict=True)
        ]

    def product(self, x: Array) -> Array:
        """G x / trace, shape (orbits,)."""
        total = self.twins * x
        for orbits, part in self.parts:
            total[orbits] += part.product(x[orbits])
        return total


class Split:
    """H, of unit budgets, in the blocks of its symmetry."""

    def __init__(self, program: Program, symmetry: Symmetry) -> None:
        self.size, self.orbit = program.size, symmetry.orbit
        self.sizes = np.bincount(symmetry.orbit)
        self.blocks = [
            Block(program, signs, symmetry.orbit, self.sizes) for signs in symmetry.signs
        ]
        self.twins = Twins(program, symmetry, self.sizes)
        self.diagonal = np.bincount(symmetry.orbit, np.diagonal(program.gram)) / self.sizes

    def collected(self, v: Array) -> Array:
        """Prices of orbits, shape (orbits,), for multipliers of nodes, shape (n,)."""
        return np.bincount(self.orbit, v).astype(np.float64)

    def spread(self, p: Array) -> Array:
        """Multipliers of nodes, shape (n,), for prices of orbits, shape (orbits,)."""
        return np.asarray((p / self.sizes)[self.orbit])

    def square_root(self, p: Array) -> SplitRoot:
        """S at prices of orbits, shape (orbits,): one eigendecomposition a block."""
        largest = float((p * self.diagonal / self.sizes).max())
        parts, diag = [], np.zeros(len(p))
        for block in self.blocks:
            part = square_root(block, p[block.orbits], largest=largest)
            largest = max(largest, float(part.root[-1]) ** 2)
            parts.append(part)
            diag[block.orbits] += part.diag
        alone = self._of_twins(p, diag, largest)
        diag += self.twins.count * alone
        return SplitRoot(self, parts, alone, diag, float(diag.sum()))

    def _of_twins(self, p: Array, others: Array, largest: float) -> Array:
        count = self.twins.count
        if not count.any():
            return np.zeros(len(p))
        squared = p * self.twins.gram
        alone = np.sqrt(squared)
        noise = 8 * settings.EPS * largest
        error = count * rounding_of(alone, noise=noise, xp=np)
        singular = bool((squared[count > 0] <= noise).any())
        if (error > trusted(singular=singular) * (others + count * alone)).any():
            alone = np.sqrt(p) * self.twins.exact
            alone[alone < settings.rank_tolerance(self.size) * np.sqrt(largest)] = 0.0
        return np.asarray(alone)
