"""Banded matrices by their columns; tr(H X^-1) and its gradient for a banded C, X = C^T C.

C is kept by its columns: ``columns[t, d]`` is C[t + d, t], shape (T, p). Every triangular solve is
a recursion over blocks of rows, two matrix products each, O(T^2 p); nothing of size T is
factorised."""

from __future__ import annotations

import numpy as np

from noisedesign.base.checks import Array

BLOCK_ROWS = 32  # fewest rows of a block: below it matrix products do not pay


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
    product, rows = np.empty((len(a), b.shape[1])), max(reach, BLOCK_ROWS)
    for first in range(0, len(a), rows):
        near = slice(max(first - reach, 0), first + rows + reach)
        np.matmul(a[first : first + rows, near], b[near], out=product[first : first + rows])
    return product


class BandedSolver:
    """C^-1 B and C^-T B for dense B, shape (T, n); C is written ``into`` a given array."""

    def __init__(self, columns: Array, *, into: Array | None = None) -> None:
        horizon, self.bands = columns.shape
        self.c = np.zeros((horizon, horizon)) if into is None else into
        _write(self.c, columns)
        rows = max(self.bands, min(BLOCK_ROWS, horizon))
        self.spans = [slice(a, min(a + rows, horizon)) for a in range(0, horizon, rows)]
        # Inverses of the diagonal blocks of C; the last is padded with the identity.
        blocks = np.tile(np.eye(rows), (len(self.spans), 1, 1))
        for block, span in zip(blocks, self.spans, strict=True):
            part = self.c[span, span]
            block[: len(part), : len(part)] = part
        self.inverse = np.asarray(np.linalg.inv(blocks), dtype=np.float64)

    def above(self, rows: slice) -> slice:
        """The columns left of a diagonal block that its rows reach."""
        return slice(max(rows.start - self.bands + 1, 0), rows.start)

    def below(self, rows: slice) -> slice:
        """The rows below a diagonal block that its columns reach."""
        return slice(rows.stop, rows.stop + self.bands - 1)

    def solve(self, b: Array) -> Array:
        """C^-1 B."""
        solution = np.empty(b.shape)
        for rows, inverse in zip(self.spans, self.inverse, strict=True):
            above = self.above(rows)
            rest = b[rows] - self.c[rows, above] @ solution[above]
            np.matmul(inverse[: len(rest), : len(rest)], rest, out=solution[rows])
        return solution

    def solve_transposed(self, b: Array, *, out: Array | None = None) -> Array:
        """C^-T B."""
        solution = np.empty(b.shape) if out is None else out
        for rows, inverse in zip(self.spans[::-1], self.inverse[::-1], strict=True):
            below = self.below(rows)
            rest = self.c[below, rows].T @ solution[below]
            np.subtract(b[rows], rest, out=rest)
            np.matmul(inverse[: len(rest), : len(rest)].T, rest, out=solution[rows])
        return solution


class BandedError:
    """tr(H C^-1 C^-T) and its derivative by the entries of C, for one H and number of bands.

    M = C^-T H C^-1 has that trace, and the derivative by C is -2 M C^-T. Two solves give half of M,
    a third the band of C^-1 M. Arrays (T, T) are kept between calls: making them costs as much."""

    def __init__(self, gram: Array, bands: int) -> None:
        self.gram, self.bands = gram, bands
        self.c, self.once, self.lower, self.last = (np.zeros_like(gram) for _ in range(4))

    def __call__(self, columns: Array) -> tuple[float, Array]:
        """The error, and its gradient by ``columns``, both of shape (T, p)."""
        solver = BandedSolver(columns, into=self.c)
        solver.solve_transposed(self.gram, out=self.once)
        self._solve_for_lower(solver)
        return float(np.trace(self.lower)), -2 * self._band(solver)

    def _solve_for_lower(self, solver: BandedSolver) -> None:
        """``lower`` = M = C^-T once^T, in the blocks on and below its diagonal."""
        for rows, inverse in zip(solver.spans[::-1], solver.inverse[::-1], strict=True):
            below = solver.below(rows)
            rest = self.c[below, rows].T @ self.lower[below, : rows.stop]
            np.subtract(self.once[: rows.stop, rows].T, rest, out=rest)
            inverse = inverse[: len(rest), : len(rest)].T
            np.matmul(inverse, rest, out=self.lower[rows, : rows.stop])

    def _band(self, solver: BandedSolver) -> Array:
        """(C^-1 M)[t, t + d], shape (T, p)."""
        for rows, inverse in zip(solver.spans, solver.inverse, strict=True):
            above, a = solver.above(rows), rows.start
            rest = self.c[rows, above] @ self.last[above, a:]
            # Blocks on the diagonal of ``lower`` are whole.
            np.subtract(self.lower[a:, rows].T, rest, out=rest)
            np.matmul(inverse[: len(rest), : len(rest)], rest, out=self.last[rows, a:])
        band = np.zeros((len(self.gram), self.bands))
        for d in range(self.bands):
            band[: len(band) - d, d] = np.diagonal(self.last, d)
        return band
