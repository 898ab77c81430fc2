"""Nodes that all look alike, closed form: H that is circulant, along one axis or several.

Where H_ij depends on the difference of i and j alone, in a product of cyclic groups, all budgets
cost the same and X(v) at equal multipliers is optimal: X is H^1/2 with a diagonal of ones. Fourier
transforms over that group diagonalise both: O(n log n), and no eigendecomposition. Rings, tori,
hypercubes and complete graphs are of this kind, their nodes in the order of rows of a grid.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from noisedesign.base import settings
from noisedesign.base.checks import Array
from noisedesign.families.disjoint.native.symmetry.involutions import same_entry

CANDIDATES = 8
"""Shapes that one row admits which are tried on all of them."""


class Transitive(NamedTuple):
    """X, shape (n, n), with a diagonal of ones; the optimum, squared noise; how far X is from it,
    relatively, by rounding of small eigenvalues."""

    gram: Array
    optimum: float
    error: float


def shape_of(gram: Array) -> tuple[int, ...] | None:
    """Lengths of the axes along which H is circulant, the last one the fastest; or None.

    Told from one row in O(n) for every divisor, and then confirmed by all of them.
    """
    tolerance = same_entry(gram)
    for shape in itertools.islice(_axes(gram, 1, tolerance), CANDIDATES):
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
