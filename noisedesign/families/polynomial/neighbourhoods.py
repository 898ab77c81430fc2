"""Diagonals of polynomials of B by Gauss quadrature: another route to them than that of solvers.

k Lanczos steps from e_i give a tridiagonal T with [p(B)]_ii = [p(T)]_11 for every p of degree up to
2k - 1 (Golub and Meurant 1994, "Matrices, moments and quadrature"), up to 2k - 2 whatever the last
entry of T is. So a polynomial of degree d takes d products with A or its transpose, and touches
d-hop neighbourhoods alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.polynomial import Chebyshev
from scipy import sparse

from noisedesign.base.checks import Array

ENTRIES_AT_ONCE = 1 << 25
"""Numbers of a block of columns, 256 MB where it is full: some four are held at once."""

FULL = 0.1
"""Share of entries from which a block is an array."""


def diagonal(p: Chebyshev, factor: Any) -> Array:
    """The diagonal of p(A^T A), shape (n,).

    Args:
        p: the polynomial.
        factor: A, sparse, shape (n, n).
    """
    a, n = factor.tocsr(), factor.shape[1]
    transposed = a.T.tocsr()
    steps = p.degree() // 2 + 1
    k = np.arange(steps)
    found = np.empty(n)
    width = max(1, ENTRIES_AT_ONCE // n)
    for first in range(0, n, width):
        places = np.arange(first, min(first + width, n))
        own, beside = _lanczos(a, transposed, places, steps, last=p.degree() % 2 == 1)
        matrices = np.zeros((len(places), steps, steps))
        matrices[:, k, k] = own.T
        matrices[:, k[1:], k[:-1]] = beside.T
        values, vectors = np.linalg.eigh(matrices)
        found[places] = np.sum(vectors[:, 0, :] ** 2 * p(values), axis=1)
    return found


def _lanczos(
    a: Any, transposed: Any, places: Any, steps: int, *, last: bool
) -> tuple[Array, Array]:
    """Of A^T A from unit vectors: what is on the diagonals of T, (steps, m), 0 in place of its
    ``last`` entry if that is not needed, and beside them."""
    m = len(places)
    at = (places, np.arange(m))
    current: Any = sparse.csr_array((np.ones(m), at), shape=(a.shape[1], m))
    previous: Any = None
    own, beside = np.zeros((steps, m)), np.zeros((steps - 1, m))
    for k in range(steps if last else steps - 1):
        seen = _filled(a @ current)
        own[k] = _squares(seen)
        if k == steps - 1:
            break
        following = _less(_filled(transposed @ seen), current, own[k])
        if previous is not None:
            following = _less(following, previous, beside[k - 1])
        beside[k] = np.sqrt(_squares(following))
        length = np.where(
            beside[k] > 0, beside[k], 1.0
        )  # of an invariant subspace, nothing is left
        previous, current = current, _times(following, 1 / length)
    return own, beside


def _filled(block: Any) -> Any:
    """As an array, once it is full enough."""
    if isinstance(block, np.ndarray) or block.nnz < FULL * block.shape[0] * block.shape[1]:
        return block
    return block.toarray()


def _times(block: Any, factors: Array) -> Any:
    """Every column times its factor."""
    if isinstance(block, np.ndarray):
        return block * factors
    return (block @ sparse.diags_array(factors)).tocsr()


def _less(block: Any, other: Any, factors: Array) -> Any:
    """The block less the columns of another times factors."""
    taken = _times(other, factors)
    if isinstance(block, np.ndarray) and not isinstance(taken, np.ndarray):
        rows, columns = taken.nonzero()
        block[rows, columns] -= taken.data if len(taken.data) == len(rows) else taken[rows, columns]
        return block
    if not isinstance(block, np.ndarray) and isinstance(taken, np.ndarray):
        return block.toarray() - taken
    return block - taken


def _squares(block: Any) -> Array:
    """Squared lengths of columns."""
    if isinstance(block, np.ndarray):
        return np.asarray(np.einsum("ij,ij->j", block, block))
    squares = np.bincount(block.indices, weights=block.data**2, minlength=block.shape[1])
    return np.asarray(squares, dtype=np.float64)
