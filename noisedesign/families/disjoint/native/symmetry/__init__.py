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
from numpy.typing import NDArray

from noisedesign.base.checks import Array
from noisedesign.families.disjoint.native.symmetry.involutions import (
    SAME_SUM,
    Labels,
    Permutation,
    Refiner,
    grouped,
    involutions_of,
    same_entry,
)

SQUARED_NODES_PER_ROUND = 1500
"""Rounds of refinement that may go into a search are the square of the nodes over this: a tenth of
the time of a solve or less, whatever comes of it."""
HANDLING = 50
"""Size of a matrix that is decomposed in the time it takes to handle a block of any size."""
FRUITLESS = 8
"""Comparisons in a row without twins after which there are taken to be no more: many nodes of one
colour may be no twins at all."""
WORTHWHILE = 0.8
"""Work on the blocks, over that on H, up to which H is split: one more involution must not lift it,
and what is left of memory then is enough for the blocks beside H."""


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


def symmetry_of(gram: Array) -> Symmetry | None:
    """Symmetries of H, shape (n, n), or None where none are found that make blocks much smaller.

    Without symmetries this costs a few products of H with vectors, as a rule, and no other H.
    """
    n = len(gram)
    refiner = Refiner(gram, rounds=n**2 // SQUARED_NODES_PER_ROUND)
    labels = refiner.first()
    if int(labels.max() + 1) ** 3 > WORTHWHILE * n**3:  # one block has a vector of every colour
        return None
    twins, difference = twins_of(refiner, labels)
    if int(twins.max()) + 1 < n:
        refiner, labels = one_of_each(refiner, labels, twins, difference)
    orbit, signs = np.arange(len(labels)), np.ones((1, len(labels)))
    for p in involutions_of(refiner, labels):
        halved = halves(orbit, signs, p)
        if _work(*halved) < _work(orbit, signs):
            orbit, signs = halved
    if _work(orbit, signs) > WORTHWHILE * (n**3 + HANDLING**3):
        return None
    orbit = np.unique(orbit, return_inverse=True)[1].reshape(-1)
    return Symmetry(orbit=orbit[twins], twins=twins, signs=signs[:, twins])


def _work(orbit: Labels, signs: Array) -> float:
    """Of a decomposition of every block, in those of one number."""
    sizes = np.count_nonzero(signs[:, np.unique(orbit, return_index=True)[1]], axis=1)
    return float((sizes.astype(np.float64) ** 3 + HANDLING**3).sum())


def twins_of(refiner: Refiner, labels: Labels) -> tuple[Labels, Array]:
    """Classes of twins, numbered by their first nodes, and H_ii - H_ij of each node and its twins.

    Both of shape (n,); a node without a twin has the difference 0. The first node of every colour
    that has not been looked at is compared with all others of its colour, in one go.
    """
    gram, diagonal = refiner.gram, refiner.diagonal
    n = len(gram)
    twins, difference = np.arange(n), np.zeros(n)
    z = np.cos(np.arange(n) ** 2.0)
    sums = gram @ z
    rest = np.argsort(labels, kind="stable")
    fruitless = 0
    while fruitless < FRUITLESS and len(rest) > 1:
        begins = np.append(True, np.diff(labels[rest]) != 0)
        pivots = rest[begins][np.cumsum(begins) - 1]
        nodes, pivots, later = rest[~begins], pivots[~begins], ~begins
        if not len(nodes):
            break
        # Rows of twins differ in two places: (H z)_i - (H z)_j = (H_ii - H_ij) (z_i - z_j).
        gaps = diagonal[pivots] - gram[pivots, nodes]
        apart = np.abs(sums[pivots] - sums[nodes] - gaps * (z[pivots] - z[nodes]))
        alike = apart <= SAME_SUM * refiner.scale
        alike[alike] = _are_twins(gram, pivots[alike], nodes[alike])
        twins[nodes[alike]] = pivots[alike]
        difference[nodes[alike]] = gaps[alike]
        fruitless = 0 if alike.any() else fruitless + 1
        rest = rest[later][~alike]
    members = np.bincount(twins, minlength=n)
    mean = np.bincount(twins, difference, minlength=n) / np.maximum(members - 1, 1)
    return np.unique(twins, return_inverse=True)[1].reshape(-1), mean[twins]


def one_of_each(
    refiner: Refiner, labels: Labels, twins: Labels, difference: Array
) -> tuple[Refiner, Labels]:
    """H, and colours, of the first node of every class of twins.

    A permutation of those that keeps colours is one of all nodes, so that colours tell sizes of
    classes, and differences, apart.
    """
    _, first, sizes = np.unique(twins, return_index=True, return_counts=True)
    labels = grouped(labels[first], sizes.astype(np.float64), tolerance=0.0)
    labels = grouped(labels, difference[first], tolerance=same_entry(refiner.gram))
    return Refiner(refiner.gram[np.ix_(first, first)], rounds=refiner.rounds), labels


def _are_twins(gram: Array, first: Labels, second: Labels) -> NDArray[np.bool_]:
    """Which pairs of nodes, two arrays of shape (k,), are twins up to rounding."""
    tolerance = same_entry(gram)
    result = np.zeros(len(first), dtype=np.bool_)
    for number, (i, j) in enumerate(zip(first, second, strict=True)):
        apart = np.abs(gram[i] - gram[j])
        apart[[i, j]] = abs(gram[i, i] - gram[j, j])
        result[number] = apart.max() <= tolerance
    return result


def halves(orbit: Labels, signs: Array, p: Permutation) -> tuple[Labels, Array]:
    """Orbits, named by their first nodes, shape (n,), and signs in each block, shape (blocks, n),
    with one more involution, which commutes with those before."""
    image = orbit[p]
    blocks = []
    for block in signs:
        moved = block[p]
        for parity in (1.0, -1.0):
            # Two orbits that are exchanged share a vector in each half; one that stays has its own
            # in one of them.
            shared = np.where(orbit < image, block, parity * moved)
            stays = np.where(moved == parity * block, block, 0.0)
            half = np.where(orbit == image, stays, shared)
            if half.any():
                blocks.append(half)
    return np.minimum(orbit, image), np.stack(blocks)
