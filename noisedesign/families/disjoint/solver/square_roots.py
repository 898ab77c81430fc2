"""S = (D^1/2 H D^1/2)^1/2 by one eigendecomposition, and the dual around it.

With S = Q diag(r) Q^T the curvature of 2 tr(S) along dv = v x is x^T G x with

    G x = diag( Q (F o Q^T diag(x) Q) Q^T ),   F_kl = r_k r_l / (r_k + r_l):

two matrix products. It lies below the Schur product of S^1/2 with itself, halved, which has the
same row sums and preconditions it (docs/mathematics.md, "Native solvers": Diagonal budgets).

Where H falls into blocks by its symmetries, :class:`Split` tells the same from the blocks. The
multipliers of an orbit are one unknown, p = its size times v. A block is, for any two orbits that
have a vector in it, the mean of H with the signs of those vectors; X is put together in the same
way, and has exactly the symmetries, so that tr(H X^-1) does not see what rounding leaves H without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from noisedesign.base import linalg as _linalg, settings
from noisedesign.base.checks import Array
from noisedesign.base.device import DeviceArray, Workload, eigh, identity, namespace
from noisedesign.certify.program import Program
from noisedesign.families.disjoint.solver.symmetry import Labels, Symmetry

TINY = float(np.finfo(np.float64).tiny)
"""Keeps divisions by what vanishes with r defined: the quotients vanish as well."""


class SquareRoot(NamedTuple):
    """S = Q diag(r) Q^T, shape (n, n), by ``root`` r, ascending, and ``basis`` Q."""

    root: DeviceArray
    basis: DeviceArray
    diag: DeviceArray  # diag(S)
    xp: Any  # the functions of the library these arrays are of

    @property
    def trace(self) -> float:
        return float(self.xp.sum(self.root))

    def curvature(self, *, trace: float) -> Callable[[DeviceArray], DeviceArray]:
        """The map of x to G x / ``trace``, both of shape (n,)."""
        weights = self.root[:, None] * self.root
        sums = self.xp.maximum(self.root[:, None] + self.root, TINY)
        sums *= trace
        weights /= sums

        def product(x: DeviceArray) -> DeviceArray:
            inner = (self.basis.T * x) @ self.basis
            inner *= weights
            return self.xp.vecdot(self.basis @ inner, self.basis)

        return product

    def curvature_above(self, *, trace: float) -> DeviceArray:
        """The Schur product of S^1/2 with itself over 2 ``trace``, (n, n): above G / trace."""
        half = self.basis * self.root**0.25
        schur = half @ half.T
        del half  # freed early: peak memory
        schur *= schur
        schur /= 2 * trace
        return schur

    def rescaled(self, ratio: DeviceArray) -> float:
        """tr(H X^-1) of X(v) with row and column i divided by ratio_i^1/2, shape (n,); infinite
        where S is singular."""
        if not float(self.root[0]) > 0:
            return float("inf")
        mixed = (self.basis.T * self.xp.sqrt(ratio)) @ self.basis
        return float((self.xp.square(mixed) @ self.xp.square(self.root)) @ (1 / self.root))

    def gram(self, v: DeviceArray) -> DeviceArray:
        """X(v) = D^-1/2 S D^-1/2, shape (n, n)."""
        half = self.basis / self.xp.sqrt(v)[:, None]
        half *= self.xp.sqrt(self.root)
        return half @ half.T


def square_root(workload: Workload, v: DeviceArray, *, largest: float = 0.0) -> SquareRoot:
    """S for D = diag(v), v of shape (n,): one eigendecomposition. Where H is one block of a matrix,
    the ``largest`` eigenvalue of all of it sets the rounding."""
    xp = namespace(workload.gram, v)
    root_v = xp.sqrt(v)
    scaled = workload.gram * root_v
    scaled *= root_v[:, None]
    squared, basis = eigh(scaled)
    del scaled  # freed early: peak memory
    root = xp.sqrt(xp.maximum(squared, 0.0))
    weights = xp.square(basis)
    diag = weights @ root
    noise = 8 * settings.EPS * max(float(squared[-1]), largest)
    error = weights @ (noise / xp.maximum(2 * root, float(np.sqrt(noise))))
    del weights
    # Singular values are dearer, but nothing is squared. Bounds see the square of an error, but for
    # a singular W, where there is only the bound of first order.
    if bool(xp.any(error > (1e-8 if float(squared[0]) <= noise else 1e-6) * diag)):
        root, basis = singular_values(workload.factor * root_v, largest=float(np.sqrt(largest)))
        diag = xp.square(basis) @ root
    return SquareRoot(root, basis, diag, xp)


def singular_values(half: DeviceArray, *, largest: float = 0.0) -> tuple[DeviceArray, DeviceArray]:
    """Eigenvalues, ascending, and basis of (half^T half)^1/2, half of shape (r, n), without
    squaring; small is relative to the ``largest`` singular value where there are others."""
    xp = namespace(half)
    _, values, right = xp.linalg.svd(half)
    size = half.shape[1]
    small = values < settings.rank_tolerance(size) * max(float(values[0]), largest)
    values = xp.where(small, xp.zeros_like(values), values)
    missing = xp.zeros_like(half[0, : size - values.shape[0]])
    return xp.flip(xp.concat([values, missing])), xp.flip(right, axis=0).T


class Preconditioner:
    """The inverse of a ``curvature_above``, or of a sum of such; ``above`` is overwritten."""

    def __init__(self, above: DeviceArray, *, xp: Any) -> None:
        # With a unit diagonal, as what multipliers of no weight leave is no larger than rounding.
        self.scale = 1 / xp.sqrt(xp.maximum(xp.linalg.diagonal(above), TINY))
        above *= self.scale[:, None]
        above *= self.scale
        size = above.shape[0]
        # The diagonal is one. A ridge keeps the matrix positive definite where H is singular;
        # directions that are flatter are left to the limit on a step.
        above += max(1e-10, 8 * settings.rank_tolerance(size)) * identity(size, like=above)
        lower = xp.linalg.cholesky(above)
        self.inverse = _linalg.inverse_of_triangular(lower, invert=xp.linalg.inv)

    def __call__(self, right: DeviceArray) -> DeviceArray:
        """Solution of the system, shape (n,)."""
        return self.scale * (self.inverse.T @ (self.inverse @ (self.scale * right)))


class Block:
    """One block: which ``orbits`` have a vector in it, shape (k,); H on these vectors, ``gram``."""

    def __init__(self, program: Program, signs: Array, orbit: Labels, sizes: Labels) -> None:
        self.program = program
        self.nodes = np.flatnonzero(signs)
        self.signs = signs[self.nodes]
        self.orbits, self.place = np.unique(orbit[self.nodes], return_inverse=True)
        entries = self.signs / sizes[orbit[self.nodes]]
        shape = (len(self.orbits), program.size)
        self.vectors = scipy.sparse.csr_array((entries, (self.place, self.nodes)), shape=shape)
        self.gram = self._gathered(self._gathered(program.gram).T)

    @cached_property
    def factor(self) -> Array:
        """L with L^T L = ``gram``, shape (at most k, k)."""
        return np.asarray(np.linalg.qr(self._gathered(self.program.factor.T).T, mode="r"))

    def _gathered(self, matrix: Array) -> Array:
        return np.asarray(self.vectors @ matrix)


class SplitRoot(NamedTuple):
    """S by its blocks, each with the roots of its own."""

    split: Split
    parts: list[SquareRoot]
    diag: Array  # of S, summed over every orbit

    @property
    def trace(self) -> float:
        return float(self.diag.sum())

    @property
    def _each(self) -> Iterator[tuple[Block, SquareRoot]]:
        return zip(self.split.blocks, self.parts, strict=True)

    def curvature(self, *, trace: float) -> Callable[[Array], Array]:
        """The same for changes that are alike all over an orbit, shape (orbits,)."""
        parts = [(block.orbits, part.curvature(trace=trace)) for block, part in self._each]

        def product(x: Array) -> Array:
            total = np.zeros_like(x)
            for orbits, part in parts:
                total[orbits] += part(x[orbits])
            return total

        return product

    def curvature_above(self, *, trace: float) -> Array:
        total = np.zeros((len(self.diag), len(self.diag)))
        for block, part in self._each:
            total[np.ix_(block.orbits, block.orbits)] += part.curvature_above(trace=trace)
        return total

    def rescaled(self, ratio: Array) -> float:
        return sum(part.rescaled(ratio[block.orbits]) for block, part in self._each)

    def gram(self, p: Array) -> Array:
        """X(v), shape (n, n), of all nodes."""
        x = np.zeros((self.split.size, self.split.size))
        for block, part in self._each:
            spread = np.asarray(part.gram(p[block.orbits]))[np.ix_(block.place, block.place)]
            spread *= block.signs
            spread *= block.signs[:, None]
            if len(block.nodes) == len(x):
                x += spread
            else:
                x[np.ix_(block.nodes, block.nodes)] += spread
            del spread  # freed early: peak memory
        return x


class Split:
    """H, of unit budgets, in the blocks of its symmetry."""

    def __init__(self, program: Program, symmetry: Symmetry) -> None:
        self.size, self.orbit = program.size, symmetry.orbit
        self.sizes = np.bincount(self.orbit)
        self.blocks = [Block(program, signs, self.orbit, self.sizes) for signs in symmetry.signs]
        self.diagonal = np.bincount(self.orbit, np.diagonal(program.gram)) / self.sizes

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
        return SplitRoot(self, parts, diag)
