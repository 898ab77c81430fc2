"""Colour refinement of a matrix: which of its rows might be carried onto which by a symmetry.

Rows keep the same colour while the sums of their entries over every colour agree. A permutation P
with P^T H P = H preserves the colours that come of it, so rows of different colours are told apart
for certain, and rows of one colour may or may not be alike. Sums are compared by random weights,
one a colour: one product of H with a vector a round, and of its few rows whose colour is new.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from noisedesign.base.checks import Array

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
