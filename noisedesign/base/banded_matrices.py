"""Banded matrices by their columns; tr(H X^-1) and its gradient for a banded C, X = C^T C.

C is kept by its columns: ``columns[t, d]`` is C[t + d, t], shape (T, p). Every triangular solve is
a recursion over blocks of rows, two matrix products each, O(T^2 p); nothing of size T is
factorised.
"""

from __future__ import annotations

import numpy as np

from noisedesign.base.checks import Array

BLOCK_ROWS = 32
"""Fewest rows of a block: below it matrix products do not pay."""


def dense(columns: Array) -> Array:
    """C, shape (T, T), from its columns, shape (T, p)."""
    c = np.zeros((len(columns),) * 2)
    _write(c, columns)
    return c


def _write(c: Array, columns: Array) -> None:
    horizon, bands = columns.shape
    flat = c.reshape(-1)
    for d in range(bands):
        flat[d * horizon :: horizon + 1][: horizon - d] = columns[: horizon - d, d]


def banded_product(a: Array, reach: int, b: Array) -> Array:
    """A B for A, shape (T, T), with A[i, j] = 0 where |i - j| > reach, and B, shape (T, n)."""
    product = np.empty((len(a), b.shape[1]))
    rows = max(reach, BLOCK_ROWS)
    for first in range(0, len(a), rows):
        last = min(first + rows, len(a))
        near = slice(max(first - reach, 0), last + reach)
        np.matmul(a[first:last, near], b[near], out=product[first:last])
    return product


class BandedSolver:
    """C^-1 B and C^-T B for dense B, shape (T, n)."""

    def __init__(self, columns: Array) -> None:
        self.c = dense(columns)
        horizon, self.bands = columns.shape
        self.rows = max(self.bands, min(BLOCK_ROWS, horizon))
        starts = range(0, horizon, self.rows)
        self.spans = [slice(a, min(a + self.rows, horizon)) for a in starts]
        self.inverse = _inverse_blocks(self.c, self.rows)

    def solve(self, b: Array) -> Array:
        """C^-1 B."""
        solution = np.empty(b.shape)
        for rows, inverse in zip(self.spans, self.inverse, strict=True):
            above = slice(max(rows.start - self.bands + 1, 0), rows.start)
            rest = b[rows] - self.c[rows, above] @ solution[above]
            np.matmul(inverse[: len(rest), : len(rest)], rest, out=solution[rows])
        return solution

    def solve_transposed(self, b: Array) -> Array:
        """C^-T B."""
        solution = np.empty(b.shape)
        for rows, inverse in zip(self.spans[::-1], self.inverse[::-1], strict=True):
            below = slice(rows.stop, rows.stop + self.bands - 1)
            rest = b[rows] - self.c[below, rows].T @ solution[below]
            np.matmul(inverse[: len(rest), : len(rest)].T, rest, out=solution[rows])
        return solution


def _inverse_blocks(c: Array, rows: int) -> Array:
    """Inverses of the diagonal blocks of C; the last is padded with the identity."""
    starts = range(0, len(c), rows)
    blocks = np.tile(np.eye(rows), (len(starts), 1, 1))
    for block, a in zip(blocks, starts, strict=True):
        part = c[a : a + rows, a : a + rows]
        block[: len(part), : len(part)] = part
    return np.asarray(np.linalg.inv(blocks), dtype=np.float64)


class BandedError:
    """tr(H C^-1 C^-T) and its derivative by the entries of C, for one H and number of bands.

    M = C^-T H C^-1 has that trace, and the derivative by C is -2 M C^-T. Two solves give M, of
    which half is enough as it is symmetric, and a third the band of (M C^-T)^T = C^-1 M. Arrays of
    shape (T, T) are kept between calls: making them anew takes as long as the arithmetic.
    """

    def __init__(self, gram: Array, bands: int) -> None:
        self.gram, self.bands, self.horizon = gram, bands, len(gram)
        self.rows = max(bands, min(BLOCK_ROWS, self.horizon))
        self.starts = range(0, self.horizon, self.rows)
        self.c, self.once, self.lower, self.last = (np.zeros_like(gram) for _ in range(4))

    def __call__(self, columns: Array) -> tuple[float, Array]:
        """The error, and its gradient by ``columns``, both of shape (T, p)."""
        _write(self.c, columns)
        inverse = _inverse_blocks(self.c, self.rows)
        self._solve_transposed(inverse)
        self._solve_for_lower(inverse)
        return float(np.trace(self.lower)), -2 * self._band(inverse)

    def _solve_transposed(self, inverse: Array) -> None:
        """``once`` = C^-T H."""
        for number in reversed(range(len(self.starts))):
            a, e, below = self._spans(number)
            rest = self.c[below, a:e].T @ self.once[below]
            np.subtract(self.gram[a:e], rest, out=rest)
            np.matmul(inverse[number, : e - a, : e - a].T, rest, out=self.once[a:e])

    def _solve_for_lower(self, inverse: Array) -> None:
        """``lower`` = M = C^-T once^T, in the blocks on and below its diagonal."""
        for number in reversed(range(len(self.starts))):
            a, e, below = self._spans(number)
            rest = self.c[below, a:e].T @ self.lower[below, :e]
            np.subtract(self.once[:e, a:e].T, rest, out=rest)
            np.matmul(inverse[number, : e - a, : e - a].T, rest, out=self.lower[a:e, :e])

    def _band(self, inverse: Array) -> Array:
        """(C^-1 M)[t, t + d], shape (T, p)."""
        for number in range(len(self.starts)):
            a, e, _ = self._spans(number)
            above = slice(max(a - self.bands + 1, 0), a)
            rest = self.c[a:e, above] @ self.last[above, a:]
            # Blocks on the diagonal of ``lower`` are whole.
            np.subtract(self.lower[a:, a:e].T, rest, out=rest)
            np.matmul(inverse[number, : e - a, : e - a], rest, out=self.last[a:e, a:])
        band = np.zeros((self.horizon, self.bands))
        for d in range(self.bands):
            band[: self.horizon - d, d] = np.diagonal(self.last, d)
        return band

    def _spans(self, number: int) -> tuple[int, int, slice]:
        """First and last row of a block, and the rows below that its columns reach."""
        a = self.starts[number]
        e = min(a + self.rows, self.horizon)
        return a, e, slice(e, e + self.bands - 1)
