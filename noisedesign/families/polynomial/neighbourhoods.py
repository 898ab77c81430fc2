"""Diagonals of polynomials of B by Gauss quadrature: another route to them than that of solvers.

k Lanczos steps from e_i give a tridiagonal T with [p(B)]_ii = [p(T)]_11 for every p of degree up to
2k - 1 (Golub and Meurant 1994, "Matrices, moments and quadrature"), up to 2k - 2 whatever the last
entry of T is. So polynomials of degree d take d products with A or its transpose, and touch d-hop
neighbourhoods alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from noisedesign.base.checks import Array
from noisedesign.base.threads import in_threads

ENTRIES_AT_ONCE = 1 << 24
"""Numbers of a block of vectors, 128 MB where it is full: some four are held at once, in every
thread."""

FULL = 0.1
"""Share of entries from which a block is an array."""


def moments(degree: int, factor: Any, top: float) -> Array:
    """The diagonals of T_j(2 B / b - 1) of B = A^T A, j <= degree, shape (degree + 1, n).

    Args:
        degree: of the last.
        factor: A, sparse, shape (n, n).
        top: b.
    """
    a, n = factor.tocsr(), factor.shape[1]
    transposed = a.T.tocsr()
    less_two = sparse.vstack([a, *2 * [sparse.eye_array(n)]], format="csr")
    steps = degree // 2 + 1
    k = np.arange(steps)
    width = max(1, ENTRIES_AT_ONCE // n)

    def found(first: int) -> Array:
        places = np.arange(first, min(first + width, n))
        factors = a, transposed, less_two
        own, beside = _lanczos(factors, places, steps, last=degree % 2 == 1)
        if degree % 2 == 0:
            own[-1] = top / 2
        matrices = np.zeros((len(places), steps, steps))
        matrices[:, k, k] = own.T
        matrices[:, k[1:], k[:-1]] = beside.T
        values, vectors = np.linalg.eigh(matrices)
        seen = np.polynomial.chebyshev.chebvander(2 * values / top - 1, degree)
        return np.asarray(np.einsum("ms,msj->jm", vectors[:, 0, :] ** 2, seen))

    return np.concatenate(list(in_threads(found, range(0, n, width))), axis=1)


def _lanczos(
    factors: tuple[Any, Any, Any], places: Any, steps: int, *, last: bool
) -> tuple[Array, Array]:
    """Of A^T A from unit vectors: what is on the diagonals of T, (steps, m), 0 in place of its
    ``last`` entry if that is not needed, and beside them.

    Vectors are rows while they are sparse: products with A^T from the right and then with A, above
    two identities that take away multiples of the last two vectors. Where they are not, columns.
    """
    a, transposed, less_two = factors
    m = len(places)
    at = (np.arange(m), places)
    current: Any = sparse.csr_array((np.ones(m), at), shape=(m, a.shape[1]))
    previous: Any = current * 0.0
    own, beside = np.zeros((steps, m)), np.zeros((steps - 1, m))
    before = np.zeros(m)
    for k in range(steps if last else steps - 1):
        if not isinstance(current, np.ndarray) and current.nnz > FULL * m * a.shape[1]:
            current, previous = current.T.toarray(), previous.T.toarray()
        dense = isinstance(current, np.ndarray)
        seen = a @ current if dense else current @ transposed
        own[k] = _squares(seen)
        if k == steps - 1:
            break
        if dense:
            following = transposed @ seen
            following -= current * own[k]
            following -= previous * before
        else:
            taken = [_times(current, -own[k]), _times(previous, -before)]
            following = sparse.hstack([seen, *taken], format="csr") @ less_two
        before = beside[k] = np.sqrt(_squares(following))
        length = np.where(before > 0, before, 1.0)  # of an invariant subspace, nothing is left
        previous, current = current, _times(following, 1 / length)
    return own, beside


def _times(block: Any, factors: Array) -> Any:
    """Every sparse row, or every column of an array, times its factor."""
    if isinstance(block, np.ndarray):
        block *= factors
        return block
    data = block.data * np.repeat(factors, np.diff(block.indptr))
    return sparse.csr_array((data, block.indices, block.indptr), shape=block.shape)


def _squares(block: Any) -> Array:
    """Squared lengths of sparse rows, or of columns of an array."""
    if isinstance(block, np.ndarray):
        return np.asarray(np.einsum("ij,ij->j", block, block))
    rows = np.repeat(np.arange(block.shape[0]), np.diff(block.indptr))
    squares = np.bincount(rows, weights=block.data**2, minlength=block.shape[0])
    return np.asarray(squares, dtype=np.float64)
