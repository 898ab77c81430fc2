"""Symmetries of H, and the blocks that H falls into because of them.

Where P^T H P = H for a permutation P, some optimal multipliers are equal on the orbits of P, as the
dual is concave. Then D = diag(v) commutes with P, and a basis adapted to it, the same for every v,
splits D^1/2 H D^1/2 into blocks. Commuting involutions, permutations of order two, split it in
halves, and halves of halves: the vectors that each of them preserves or reverses, at most one of an
orbit in each block. Tried are those that the order of the nodes suggests: an axis of it is reversed
(paths, rings, grids, tori, hypercubes), or nodes that look alike are, all of them, in halves, in
quarters and so on (stars, trees, cliques). Only those that were seen to preserve H are used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisedesign.base import settings
from noisedesign.base.checks import Array

Labels = NDArray[np.intp]
"""Numbers of nodes, or of their colours or images, shape (n,)."""
HANDLING = 50  # size of a matrix that is decomposed in the time it takes to handle any block
WORTHWHILE = 0.8
"""Work on the blocks, over that on H, up to which H is split: what is left of memory then is enough
for the blocks beside H."""
ROUNDS = 20  # rounds of refinement, a product with H each; colours may be too coarse after them
LEVELS = 6  # times that nodes of a colour are halved: smaller blocks take no less time to handle


class Symmetry(NamedTuple):
    """The number of each node's orbit, shape (n,), and the signs of each node in each block, shape
    (blocks, n): the vectors of a block are, for every orbit, the signs there over the root of its
    size, or nothing where they are 0."""

    orbit: Labels
    signs: Array


def symmetry_of(gram: Array) -> Symmetry | None:
    """Symmetries of H, shape (n, n), or None where none are found that make blocks much smaller;
    without any this mostly costs a few products of H with vectors, and no other H."""
    n = len(gram)
    labels = colours(gram)
    if int(labels.max() + 1) ** 3 > WORTHWHILE * n**3:  # one block has a vector of every colour
        return None
    found: list[Labels] = []
    orbit, signs = np.arange(n), np.ones((1, n))
    for p in reversals(labels):
        if (orbit[p] == orbit).all() or any((p[q] != q[p]).any() for q in found):
            continue
        if not preserves(gram, p):
            continue
        halved = halves(orbit, signs, p)
        if _work(*halved) < _work(orbit, signs):
            found.append(p)
            orbit, signs = halved
    if _work(orbit, signs) > WORTHWHILE * (n**3 + HANDLING**3):
        return None
    return Symmetry(np.unique(orbit, return_inverse=True)[1].reshape(-1), signs)


def _work(orbit: Labels, signs: Array) -> float:
    """The cost of a decomposition of every block, up to a factor."""
    sizes = np.count_nonzero(signs[:, np.unique(orbit, return_index=True)[1]], axis=1)
    return float((sizes.astype(np.float64) ** 3 + HANDLING**3).sum())


def colours(gram: Array) -> Labels:
    """Colours of nodes, shape (n,), by the entries of H on the diagonal and the sums of each row
    over every colour, compared by random weights; of different ones no symmetry makes the same."""
    squares = np.einsum("ij,ij->i", gram, gram)
    # An upper bound on sums of absolute values, which would take a copy of H. Far above rounding,
    # as colours that are too coarse only make more permutations worth a trial.
    same = 1e-12 * float(np.sqrt(len(gram) * squares.max()))
    labels, count = _split(np.zeros(len(gram), dtype=np.intp), np.diagonal(gram), same), 0
    random = np.random.default_rng(0)  # the same weights make solves repeatable
    for _ in range(ROUNDS):
        before, count = count, int(labels.max()) + 1
        if count == before:
            break
        labels = _split(labels, gram @ random.uniform(-1, 1, count)[labels], same)
    return labels


def _split(labels: Labels, values: Array, same: float) -> Labels:
    """Colours 0, 1, ... of nodes of one colour whose sorted values are no further apart than
    ``same``."""
    order = np.lexsort((values, labels))
    begins = (np.diff(labels[order]) != 0) | (np.diff(values[order]) > same)
    result = np.empty_like(labels)
    result[order] = np.concatenate([[0], np.cumsum(begins)])
    return result


def reversals(labels: Labels) -> Iterator[Labels]:
    """Involutions of nodes, shape (n,), that may preserve an H with these colours."""
    nodes = np.arange(len(labels))
    for length in (k for k in range(len(nodes), 0, -1) if len(nodes) % k == 0):
        rows = nodes.reshape(-1, length)
        yield rows[:, ::-1].ravel()
        yield rows[::-1].ravel()
    pieces = np.split(np.argsort(labels, kind="stable"), np.cumsum(np.bincount(labels))[:-1])
    for _ in range(LEVELS):
        p = nodes.copy()
        for piece in pieces:
            p[piece] = piece[::-1]
        yield p
        ends = [(piece, len(piece) // 2) for piece in pieces if len(piece) > 3]
        pieces = [half for piece, k in ends for half in (piece[:k], piece[-k:])]


def preserves(gram: Array, permutation: Labels) -> bool:
    """Whether H[p(i), p(j)] = H[i, j] up to rounding, H of shape (n, n)."""
    # Sums of products in another order differ by rounding. As X keeps the symmetry, tr(H X^-1) does
    # not see the rest.
    tolerance = 64 * settings.EPS * float(np.diagonal(gram).max())
    for start in range(0, len(gram), 64):  # a few rows at a time, so that no second H is formed
        rows = slice(start, start + 64)
        moved = gram[permutation[rows]][:, permutation]
        if np.abs(moved - gram[rows]).max() > tolerance:
            return False
    return True


def halves(orbit: Labels, signs: Array, p: Labels) -> tuple[Labels, Array]:
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
