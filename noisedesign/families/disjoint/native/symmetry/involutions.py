"""Permutations of order two that leave a matrix as it is, any two of them commuting.

First those that the order of the nodes suggests: reversing it (persymmetry: paths, barbells), or
one axis of it (grids). Where there are none, two nodes of one colour are swapped, and colour
refinement tells what has to be swapped with them.

Colour refinement of a matrix: which of its rows might be carried onto which by a symmetry.

Rows keep the same colour while the sums of their entries over every colour agree. A permutation P
with P^T H P = H preserves the colours that come of it, so rows of different colours are told apart
for certain, and rows of one colour may or may not be alike. Sums are compared by random weights,
one a colour: one product of H with a vector a round, and of its few rows whose colour is new.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from noisedesign.base import settings
from noisedesign.base.checks import Array

Permutation = NDArray[np.intp]

SAME_ENTRY = 64 * settings.EPS
"""Entries of H closer than this, over its largest, are the same: sums of products in another order.
As X keeps the symmetry, tr(H X^-1) does not see what of H does not."""
MISSES = 3
"""Swaps tried in vain after which the search is given up: a symmetric graph has few of them, and a
regular one without symmetries nothing else."""
ROWS = 64
"""Rows compared at a time, so that no second H is formed."""


def same_entry(gram: Array) -> float:
    """How far entries of H, shape (n, n), may be apart that are the same but for rounding."""
    return SAME_ENTRY * float(np.diagonal(gram).max())


def preserves(gram: Array, permutation: Permutation) -> bool:
    """Whether H[p(i), p(j)] = H[i, j] up to rounding, H of shape (n, n)."""
    tolerance = same_entry(gram)
    for start in range(0, len(gram), ROWS):
        rows = slice(start, start + ROWS)
        moved = gram[permutation[rows]][:, permutation]
        if np.abs(moved - gram[rows]).max() > tolerance:
            return False
    return True


def involutions_of(refiner: Refiner, labels: Labels) -> list[Permutation]:
    """Commuting involutions that preserve H and colours, shape (n,), each of shape (n,).

    None where all nodes have one colour: mostly the optimum has equal multipliers then, and is
    found at once.
    """
    if labels.max() == 0:
        return []
    involutions = Involutions(refiner, labels)
    involutions.reversals()
    if not involutions.found:
        involutions.search()
    return involutions.found


class Involutions:
    """Commuting involutions found so far, and the orbits of the nodes under them, shape (n,)."""

    def __init__(self, refiner: Refiner, labels: Labels) -> None:
        self.refiner, self.labels = refiner, labels
        self.found: list[Permutation] = []
        self.orbits = np.arange(len(labels))

    def reversals(self) -> None:
        """Those that reverse an axis of the nodes laid out in rows of equal length."""
        n = len(self.labels)
        nodes = np.arange(n)
        for length in (k for k in range(n, 0, -1) if n % k == 0):
            rows = nodes.reshape(-1, length)
            for candidate in (rows[:, ::-1].ravel(), rows[::-1].ravel()):
                self._accept(candidate)

    def search(self) -> None:
        """Those that swap two nodes of one colour, as far as they are found quickly."""
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
                    if self._accept(self._swapping(int(first), int(second))):
                        misses = 0
                        continue
                    misses += 1
                    if misses == MISSES:
                        return

    def _may_go(self, node: int) -> NDArray[np.bool_]:
        """Which nodes are in another orbit than ``node``, of the same size, shape (n,)."""
        sizes = np.bincount(self.orbits)[self.orbits]
        return np.asarray((self.orbits != self.orbits[node]) & (sizes == sizes[node]))

    def _accept(self, candidate: Permutation | None) -> bool:
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
        if not self._plausible(candidate) or not preserves(self.refiner.gram, candidate):
            return False
        self.found.append(candidate)
        # Orbits go to orbits, as all of them commute: the least name of each pair is its name.
        self.orbits = merged
        return True

    def _plausible(self, candidate: Permutation) -> bool:
        """Whether H P z = P H z for some z: what a wrong candidate does not survive."""
        z = np.cos(np.arange(len(candidate)) ** 2.0)
        gram = self.refiner.gram
        difference = gram @ z[candidate] - (gram @ z)[candidate]
        return bool(np.abs(difference).max() <= SAME_SUM * self.refiner.scale)

    def _swapping(self, first: int, second: int) -> Permutation | None:
        """An involution that swaps two nodes and commutes with those found, if refinement ends in
        one. Nodes that may stay where they are mostly do."""
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


Labels = NDArray[np.intp]

SAME_SUM = 1e-12
"""Sums closer than this, over the scale of a row, count as one. Far above rounding, as colours that
are too coarse only make more permutations worth a trial."""
SEED = 0
"""Of the weights; any will do, and the same ones make solves repeatable."""


def grouped(labels: Labels, values: Array, *, tolerance: float) -> Labels:
    """Colours split where sorted ``values`` of one colour are further apart than ``tolerance``.

    Args:
        labels, values: of any one shape.

    Returns:
        Colours 0, 1, ..., in the order of ``labels`` and then of ``values``.
    """
    flat, y = labels.ravel(), values.ravel()
    order = np.lexsort((y, flat))
    begins = (np.diff(flat[order]) != 0) | (np.diff(y[order]) > tolerance)
    result = np.empty(len(flat), dtype=np.intp)
    result[order] = np.concatenate([[0], np.cumsum(begins)])
    return result.reshape(labels.shape)


class Refiner:
    """Colours of the rows of H, shape (n, n) and symmetric; ``rounds`` are what may be spent."""

    def __init__(self, gram: Array, *, rounds: int) -> None:
        self.gram, self.rounds = gram, rounds
        self.diagonal = np.diagonal(gram)
        self.squares = np.einsum("ij,ij->i", gram, gram)
        # An upper bound on sums of absolute values, which would take a copy of H.
        self.scale = float(np.sqrt(len(gram) * self.squares.max()))
        self._random = np.random.default_rng(SEED)

    def first(self) -> Labels:
        """Colours by diagonal, sums and sums of squares, shape (n,): no product of H but one."""
        labels = np.zeros(len(self.gram), dtype=np.intp)
        labels = grouped(labels, self.diagonal, tolerance=SAME_SUM * self.scale)
        labels = grouped(labels, self.squares, tolerance=SAME_SUM * self.scale**2)
        x = self._random.uniform(-1, 1, int(labels.max()) + 1)[labels]
        return grouped(labels, self.gram @ x, tolerance=SAME_SUM * self.scale)

    def refined(self, labels: Labels) -> Labels | None:
        """Colourings split until nothing changes, in step where there are two of them.

        Args:
            labels: shape (1, n), or (2, n) with two colourings of the same colours.

        Returns:
            The same shape; None where two colourings turn out to differ or rounds are used up.
        """
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
