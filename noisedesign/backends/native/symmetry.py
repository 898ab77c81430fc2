"""Symmetries of H, and the blocks that H falls into because of them.

Where P^T H P = H for a permutation P, some optimal multipliers are equal on the orbits of P, as the
dual is concave. Then D = diag(v) commutes with P, and a basis adapted to it, the same for every v,
splits D^1/2 H D^1/2 into blocks. Two kinds of symmetries are looked for.

Twins are nodes that may be exchanged without further ado: H_ii = H_jj, and H_ik = H_jk for every
other k. On what sums to zero over twins H is a multiple of the identity, and there is nothing to
decompose. Leaves of one node are twins, and nodes of one clique without other neighbours.

Commuting involutions (:mod:`involutions`) split what is left in halves, and halves of halves: the
vectors that each of them preserves or reverses. An orbit has at most one vector in each block.

Only permutations that were seen to preserve H are used: multipliers that are equal on their orbits
lose nothing, and whatever else H may have in store is left alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from noisedesign._checks import Array
from noisedesign.backends.native.involutions import SAME_ENTRY, Involutions, Permutation
from noisedesign.backends.native.refinement import SAME_SUM, Labels, Refiner, grouped

ROUNDS_PER_NODE = 0.5
"""Rounds of refinement, over n, that may go into a search: a path, where colours travel slowest,
needs a quarter of a round for every node, and all of them cost a small part of one decomposition
of H."""
WORTHWHILE = 0.8
"""Sum of the cubes of the sizes of blocks, over that of H, up to which it is worth splitting H."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Symmetry:
    """Orbits and blocks of n nodes.

    Attributes:
        orbit: number of each node's orbit, from 0, shape (n,).
        twins: number of each node's class of twins, from 0, shape (n,); orbits are unions of them.
        signs: of each node in each block, shape (blocks, n): the vectors of a block are, for every
            orbit, the signs there over the root of the size of the orbit, or nothing where they
            are 0. What sums to zero over each class of twins is in none of them.
    """

    orbit: Labels
    twins: Labels
    signs: Array

    @property
    def sizes(self) -> Labels:
        """Number of vectors in each block, shape (blocks,)."""
        first = np.unique(self.orbit, return_index=True)[1]
        return np.count_nonzero(self.signs[:, first], axis=1)


def symmetry_of(gram: Array) -> Symmetry | None:
    """Symmetries of H, shape (n, n), or None where none are found that make blocks much smaller.

    Without symmetries this costs a few products of H with vectors, as a rule, and no other H.
    """
    refiner = Refiner(gram, rounds=int(ROUNDS_PER_NODE * len(gram)))
    labels = refiner.first()
    if int(labels.max()) + 1 == len(gram):
        return None
    twins, difference = twins_of(refiner, labels)
    _, first, sizes = np.unique(twins, return_index=True, return_counts=True)
    if len(first) < len(gram):
        refiner = Refiner(gram[np.ix_(first, first)], rounds=refiner.rounds)
        labels = grouped(labels[first], sizes, tolerance=0.0)
        labels = grouped(labels, difference[first], tolerance=SAME_SUM * refiner.scale)
    involutions = Involutions(refiner, labels)
    involutions.reversals()
    if not involutions.found:
        involutions.search()
    orbit, signs = split(involutions.found, size=len(first))
    found = Symmetry(orbit=orbit[twins], twins=twins, signs=signs[:, twins])
    work = float(((found.sizes / len(gram)) ** 3).sum())
    return found if work <= WORTHWHILE else None


def twins_of(refiner: Refiner, labels: Labels) -> tuple[Labels, Array]:
    """Classes of twins, numbered by their first nodes, and H_ii - H_ij of each node and its twins.

    Both of shape (n,); a node without a twin has the difference 0.
    """
    gram, scale = refiner.gram, refiner.scale
    n = len(gram)
    twins, difference = np.full(n, -1, dtype=np.intp), np.zeros(n)
    z = np.cos(np.arange(n) ** 2.0)
    sums = gram @ z
    tolerance = SAME_ENTRY * float(refiner.diagonal.max())
    cells = np.split(np.argsort(labels, kind="stable"), np.cumsum(np.bincount(labels))[:-1])
    for cell in cells:
        rest = cell
        while len(rest) > 1:
            i, others = int(rest[0]), rest[1:]
            # Rows of twins differ in two places: (H z)_i - (H z)_j = (H_ii - H_ij) (z_i - z_j).
            gaps = refiner.diagonal[i] - gram[i, others]
            close = np.abs(sums[i] - sums[others] - gaps * (z[i] - z[others])) <= SAME_SUM * scale
            close[close] = [_are_twins(gram, i, int(j), tolerance) for j in others[close]]
            if close.any():
                members = np.append(i, others[close])
                twins[members] = i
                difference[members] = gaps[close].mean()
            rest = others[~close]
    alone = twins < 0
    twins[alone] = np.flatnonzero(alone)
    return np.unique(twins, return_inverse=True)[1].reshape(-1), difference


def _are_twins(gram: Array, i: int, j: int, tolerance: float) -> bool:
    apart = np.abs(gram[i] - gram[j])
    apart[[i, j]] = 0.0
    return bool(
        apart.max() <= tolerance
        and abs(gram[i, i] - gram[j, j]) <= tolerance
    )


def split(involutions: list[Permutation], *, size: int) -> tuple[Labels, Array]:
    """Orbits, shape (size,), and signs in each block, shape (blocks, size), of commuting ones."""
    orbit = np.arange(size)
    blocks = [np.ones(size)]
    for p in involutions:
        image = orbit[p]
        halves = []
        for signs in blocks:
            moved = signs[p]
            for parity in (1.0, -1.0):
                # Two orbits that are exchanged share a vector in each half; one that stays has
                # its own in one of them.
                second = np.where(orbit < image, signs, parity * moved)
                stays = np.where(moved == parity * signs, signs, 0.0)
                half = np.where(orbit == image, stays, second)
                if half.any():
                    halves.append(half)
        blocks, orbit = halves, np.minimum(orbit, image)
    return np.unique(orbit, return_inverse=True)[1].reshape(-1), np.stack(blocks)
