"""Symmetries of H, and the blocks that H falls into because of them.

Where P^T H P = H for a permutation P, some optimal multipliers are equal on the orbits of P, as the
dual is concave. Then D = diag(v) commutes with P, and a basis adapted to it, the same for every v,
splits D^1/2 H D^1/2 into blocks. Only permutations that were seen to preserve H are used.

Twins are nodes that may be exchanged without further ado: H_ii = H_jj, and H_ik = H_jk for every
other k. On what sums to zero over twins H is a multiple of the identity. Commuting involutions,
permutations of order two, split the rest in halves, and halves of halves: the vectors that each of
them preserves or reverses, at most one of an orbit in each block. First those that the order of the
nodes suggests: reversing it, or one axis of it. Where there are none, two nodes of one colour are
swapped, and colour refinement tells what has to be swapped with them: rows keep the same colour
while the sums of their entries over every colour, compared by random weights, agree.

Where H_ij depends on the difference of i and j alone, in a product of cyclic groups (rings, tori,
hypercubes, complete graphs), X is H^1/2 with a diagonal of ones, by Fourier transforms over that
group: O(n log n), and no eigendecomposition.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisedesign.base import settings
from noisedesign.base.checks import Array

Labels = NDArray[np.intp]
"""Numbers of nodes, or of their colours or images, shape (n,)."""
SQUARED_NODES_PER_ROUND = 1500
"""Nodes squared for one round of refinement: the search takes a tenth of the time of a solve or
less."""
HANDLING = 50
"""Size of a matrix that is decomposed in the time it takes to handle a block of any size."""
MISSES = 3
"""Swaps tried in vain after which the search is given up: a symmetric graph has few of them."""
WORTHWHILE = 0.8
"""Work on the blocks, over that on H, up to which H is split: one more involution must not lift it,
and what is left of memory then is enough for the blocks beside H."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Symmetry:
    """The number of each node's orbit and class of twins, shape (n,), orbits being unions of
    classes, and the signs of each node in each block, shape (blocks, n): the vectors of a block
    are, for every orbit, the signs there over the root of its size, or nothing where they are 0."""

    orbit: Labels
    twins: Labels
    signs: Array


def symmetry_of(gram: Array) -> Symmetry | None:
    """Symmetries of H, shape (n, n), or None where none are found that make blocks much smaller;
    without any this mostly costs a few products of H with vectors, and no other H."""
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
    """The cost of a decomposition of every block, up to a factor."""
    sizes = np.count_nonzero(signs[:, np.unique(orbit, return_index=True)[1]], axis=1)
    return float((sizes.astype(np.float64) ** 3 + HANDLING**3).sum())


def twins_of(refiner: Refiner, labels: Labels) -> tuple[Labels, Array]:
    """Classes of twins, numbered by their first nodes, and H_ii - H_ij of each node and its twins,
    0 without a twin, both of shape (n,). The first node of every colour not looked at yet is
    compared with all others of its colour at once."""
    gram, diagonal = refiner.gram, refiner.diagonal
    n = len(gram)
    twins, difference = np.arange(n), np.zeros(n)
    z = np.cos(np.arange(n) ** 2.0)
    sums = gram @ z
    rest = np.argsort(labels, kind="stable")
    fruitless = 0
    # Many nodes of one colour may be no twins at all.
    while fruitless < 8 and len(rest) > 1:
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
    """H, and colours, of the first node of every class of twins. Colours tell sizes of classes, and
    differences, apart, so that a permutation that keeps them is one of all nodes."""
    _, first, sizes = np.unique(twins, return_index=True, return_counts=True)
    labels = grouped(labels[first], sizes.astype(np.float64), tolerance=0.0)
    labels = grouped(labels, difference[first], tolerance=same_entry(refiner.gram))
    return Refiner(refiner.gram[np.ix_(first, first)], rounds=refiner.rounds), labels


def _are_twins(gram: Array, first: Labels, second: Labels) -> NDArray[np.bool_]:
    """Whether pairs of nodes, two arrays of shape (k,), are twins up to rounding."""
    tolerance = same_entry(gram)
    result = np.zeros(len(first), dtype=np.bool_)
    for number, (i, j) in enumerate(zip(first, second, strict=True)):
        apart = np.abs(gram[i] - gram[j])
        apart[[i, j]] = abs(gram[i, i] - gram[j, j])
        result[number] = apart.max() <= tolerance
    return result


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


class Transitive(NamedTuple):
    """X, shape (n, n), with a diagonal of ones; the optimum, squared noise; and how far X is from
    it, relatively, by rounding of small eigenvalues."""

    gram: Array
    optimum: float
    error: float


def shape_of(gram: Array) -> tuple[int, ...] | None:
    """Lengths of the axes along which H is circulant, the last one the fastest, or None; told from
    one row in O(n) for every divisor, and then confirmed by all rows."""
    tolerance = same_entry(gram)
    for shape in itertools.islice(_axes(gram, 1, tolerance), 8):
        blocks = _translated(gram[0].reshape(shape or (1,)))
        if all(np.abs(block - gram[rows]).max() <= tolerance for rows, block in blocks):
            return shape
    return None


def _axes(gram: Array, stride: int, tolerance: float) -> Iterator[tuple[int, ...]]:
    """Lengths of the axes of steps ``stride`` and above that one row admits, long ones first."""
    n = len(gram)
    rest = n // stride
    if rest == 1:
        yield ()
    for length in (k for k in range(rest, 1, -1) if rest % k == 0):
        moved = np.roll(np.arange(n).reshape(-1, length, stride), -1, axis=1).ravel()
        # The node one step from the first sees each as the first sees the one before.
        if np.abs(gram[stride, moved] - gram[0]).max() <= tolerance:
            for outer in _axes(gram, stride * length, tolerance):
                yield (*outer, length)


def transitive(gram: Array) -> Transitive | None:
    """The optimum of unit budgets for H, shape (n, n), where all nodes look alike so; else None."""
    diagonal = np.diagonal(gram)
    if not diagonal.max() > 0 or np.ptp(diagonal) > same_entry(gram):
        return None
    shape = shape_of(gram)
    if shape is None:
        return None
    n = len(gram)
    squared = np.fft.fftn(gram[0].reshape(shape or (1,))).real
    noise = 8 * settings.EPS * float(squared.max())
    root = np.sqrt(np.maximum(squared, 0.0))
    error = float((noise / np.maximum(2 * root, np.sqrt(noise))).mean() / root.mean())
    first = np.fft.ifftn(root / root.mean()).real
    x = np.empty((n, n))
    for rows, block in _translated(first):
        x[rows] = block
    return Transitive(x, float(n * root.mean() ** 2), error)


def _translated(first: Array) -> Iterator[tuple[slice, Array]]:
    """All rows of a matrix from the first one, laid out on its axes, some at a time."""
    n, rows = first.size, first[None]
    for axis in range(first.ndim - 1, 0, -1):
        shifts = range(first.shape[axis])
        rows = np.concatenate([np.roll(rows, k, axis=1 + axis) for k in shifts])
    for k in range(first.shape[0]):
        start = k * len(rows)
        yield slice(start, start + len(rows)), np.roll(rows, k, axis=1).reshape(-1, n)


ROWS = 64
"""Rows compared at a time, so that no second H is formed."""


def same_entry(gram: Array) -> float:
    """The distance of entries of H, shape (n, n), that are the same but for rounding."""
    # Sums of products in another order differ by rounding. As X keeps the symmetry, tr(H X^-1) does
    # not see the rest.
    return 64 * settings.EPS * float(np.diagonal(gram).max())


def preserves(gram: Array, permutation: Labels) -> bool:
    """Whether H[p(i), p(j)] = H[i, j] up to rounding, H of shape (n, n)."""
    tolerance = same_entry(gram)
    for start in range(0, len(gram), ROWS):
        rows = slice(start, start + ROWS)
        moved = gram[permutation[rows]][:, permutation]
        if np.abs(moved - gram[rows]).max() > tolerance:
            return False
    return True


def involutions_of(refiner: Refiner, labels: Labels) -> list[Labels]:
    """Commuting involutions that preserve H and colours, each of shape (n,); none where all nodes
    have one colour, as the optimum mostly has equal multipliers and is found at once."""
    if labels.max() == 0:
        return []
    involutions = Involutions(refiner, labels)
    nodes = np.arange(len(labels))
    for length in (k for k in range(len(nodes), 0, -1) if len(nodes) % k == 0):
        rows = nodes.reshape(-1, length)  # those that reverse an axis of the nodes come first
        involutions.accept(rows[:, ::-1].ravel())
        involutions.accept(rows[::-1].ravel())
    if not involutions.found:
        involutions.search()
    return involutions.found


class Involutions:
    """Commuting involutions found so far, and the orbits of the nodes under them, shape (n,)."""

    def __init__(self, refiner: Refiner, labels: Labels) -> None:
        self.refiner, self.labels = refiner, labels
        self.found: list[Labels] = []
        self.orbits = np.arange(len(labels))

    def search(self) -> None:
        """Accept those that swap two nodes of one colour, as far as they are found quickly."""
        refined = self.refiner.refined(self.labels[None])
        if refined is None:
            return
        self.labels = refined[0]
        sizes = np.bincount(self.labels)
        misses = 0
        several = np.flatnonzero(sizes > 1)
        for colour in several[np.argsort(sizes[several], kind="stable")]:
            cell = np.flatnonzero(self.labels == colour)
            for first in cell:
                for second in cell[(cell > first) & self._may_go(int(first))[cell]]:
                    if not self._may_go(int(first))[second]:  # by now
                        continue
                    if self.accept(self._swapping(int(first), int(second))):
                        misses = 0
                        continue
                    misses += 1
                    if misses == MISSES:
                        return

    def _may_go(self, node: int) -> NDArray[np.bool_]:
        """Whether nodes are in another orbit than ``node``, of the same size, shape (n,)."""
        sizes = np.bincount(self.orbits)[self.orbits]
        return np.asarray((self.orbits != self.orbits[node]) & (sizes == sizes[node]))

    def accept(self, candidate: Labels | None) -> bool:
        """Keep a candidate that is a new involution, commutes with the others and preserves H."""
        if candidate is None or (self.labels[candidate] != self.labels).any():
            return False
        merged = np.minimum(self.orbits, self.orbits[candidate])
        if (merged == self.orbits).all():
            return False
        if (candidate[candidate] != np.arange(len(candidate))).any():
            return False
        if any((p[candidate] != candidate[p]).any() for p in self.found):
            return False
        if not preserves(self.refiner.gram, candidate):
            return False
        self.found.append(candidate)
        # Orbits go to orbits, as all of them commute: the least name of each pair is its name.
        self.orbits = merged
        return True

    def _swapping(self, first: int, second: int) -> Labels | None:
        """An involution that swaps two nodes and commutes with those found, if refinement ends in
        one; nodes that may stay where they are mostly do."""
        colours = np.stack([self.labels, self.labels])
        pair = (first, second)
        while True:
            self._mark(colours, *pair)
            refined = self.refiner.refined(colours)
            if refined is None:
                return None
            colours = refined
            sizes = np.bincount(colours[0])
            if sizes.max() == 1:
                break
            node = int(np.flatnonzero(sizes[colours[0]] > 1)[0])
            images = np.flatnonzero(colours[1] == colours[0, node])
            pair = (node, int(images[0]))
        permutation = np.empty(colours.shape[1], dtype=np.intp)
        permutation[np.argsort(colours[0])] = np.argsort(colours[1])
        return permutation

    def _mark(self, colours: Labels, first: int, second: int) -> None:
        """Colour ``first`` on the left as ``second`` on the right, the other way round, and so the
        images of both under every involution found."""
        waiting, seen = [(first, second), (second, first)], set()
        while waiting:
            left, right = pair = waiting.pop()
            if pair in seen:
                continue
            seen.add(pair)
            waiting.extend((int(p[left]), int(p[right])) for p in self.found)
        fresh = int(colours.max()) + 1
        for offset, (left, right) in enumerate(sorted(seen)):
            colours[0, left] = colours[1, right] = fresh + offset


SAME_SUM = 1e-12
"""Sums closer than this, over the scale of a row, count as one. Far above rounding, as colours that
are too coarse only make more permutations worth a trial."""


def grouped(labels: Labels, values: Array, *, tolerance: float) -> Labels:
    """Colours 0, 1, ..., in the order of ``labels`` and then of ``values``, of any one shape, split
    where sorted values of one colour are further apart than ``tolerance``."""
    flat, y = labels.ravel(), values.ravel()
    order = np.lexsort((y, flat))
    begins = (np.diff(flat[order]) != 0) | (np.diff(y[order]) > tolerance)
    result = np.empty(len(flat), dtype=np.intp)
    result[order] = np.concatenate([[0], np.cumsum(begins)])
    return result.reshape(labels.shape)


class Refiner:
    """Colours of the rows of H, shape (n, n) and symmetric; ``rounds`` may be spent."""

    def __init__(self, gram: Array, *, rounds: int) -> None:
        self.gram, self.rounds = gram, rounds
        self.diagonal = np.diagonal(gram)
        self.squares = np.einsum("ij,ij->i", gram, gram)
        # An upper bound on sums of absolute values, which would take a copy of H.
        self.scale = float(np.sqrt(len(gram) * self.squares.max()))
        # Any weights will do, and the same ones make solves repeatable.
        self._random = np.random.default_rng(0)

    def first(self) -> Labels:
        """Colours by diagonal, sums and sums of squares, shape (n,): no product of H but one."""
        labels = np.zeros(len(self.gram), dtype=np.intp)
        labels = grouped(labels, self.diagonal, tolerance=SAME_SUM * self.scale)
        labels = grouped(labels, self.squares, tolerance=SAME_SUM * self.scale**2)
        x = self._random.uniform(-1, 1, int(labels.max()) + 1)[labels]
        return grouped(labels, self.gram @ x, tolerance=SAME_SUM * self.scale)

    def refined(self, labels: Labels) -> Labels | None:
        """Colourings, shape (1, n) or (2, n), split until nothing changes, two of the same colours
        in step; None where two turn out to differ or rounds are used up."""
        labels = grouped(labels, np.zeros(labels.shape), tolerance=0.0)  # without gaps
        touched = np.ones(labels.shape, dtype=np.bool_)
        while self.rounds > 0:
            self.rounds -= 1
            count = int(labels.max()) + 1
            weights = np.where(touched, self._random.uniform(-1, 1, count)[labels], 0.0)
            sums = np.stack([self._product(x) for x in weights])
            finer = grouped(labels, sums, tolerance=SAME_SUM * self.scale)
            sizes = np.stack([np.bincount(row, minlength=int(finer.max()) + 1) for row in finer])
            if (sizes != sizes[0]).any():
                return None
            if sizes.shape[1] == count:
                return finer
            # Where a colour was split, what is known of all of it and its other parts tells of the
            # largest.
            parent = np.empty(sizes.shape[1], dtype=np.intp)
            parent[finer[0]] = labels[0]
            new = np.bincount(parent, minlength=count)[parent] > 1
            largest = np.lexsort((-sizes[0], parent))
            new[largest[np.append(True, np.diff(parent[largest]) != 0)]] = False
            labels, touched = finer, new[finer]
        return None

    def _product(self, x: Array) -> Array:
        """H x, by the rows of H where x has few entries."""
        rows = np.flatnonzero(x)
        if 4 * len(rows) > len(x):
            return np.asarray(self.gram @ x)
        return np.asarray(x[rows] @ self.gram[rows])
