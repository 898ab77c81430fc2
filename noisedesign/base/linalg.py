"""Spectral and triangular kernels. Nothing here knows of noise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from noisedesign.base import settings
from noisedesign.base.checks import Array, asymmetry

SMALL_BLOCK = 96  # rows below which a general inverse is as quick as one by halves


def symmetrized(a: Array) -> Array:
    """(A + A^T) / 2."""
    return np.asarray((a + a.T) / 2)


def inner(a: Array, b: Array) -> float:
    """Sum of a_ij b_ij, row by row, without the array of products."""
    return float(np.einsum("ij,ij->i", a, b).sum())


def symmetric(a: Array) -> Array:
    """The symmetric part of a; a itself where that is what it is."""
    return a if asymmetry(a) == 0 else symmetrized(a)


def eigenvalues(a: Array) -> Array:
    """Ascending eigenvalues of the symmetric part of a."""
    return np.asarray(np.linalg.eigvalsh(symmetrized(a)), dtype=np.float64)


def is_positive(a: Array) -> bool:
    """Whether a is positive definite to working precision: its Cholesky factorisation ends."""
    try:
        np.linalg.cholesky(a)
    except np.linalg.LinAlgError:
        return False
    return True


def reversed_cholesky(gram: Array) -> Array:
    """Lower triangular C with C^T C = gram, by Cholesky of the order-reversed matrix."""
    lower = np.linalg.cholesky(gram[::-1, ::-1])
    return np.ascontiguousarray(lower.T[::-1, ::-1])


def gram_factor(gram: Array) -> Array:
    """L, shape (r, m), with L^T L = gram; r < m where gram is singular to working precision."""
    try:
        return reversed_cholesky(gram)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(gram)
        keep = values > settings.rank_tolerance(len(gram)) * values[-1]
        return np.ascontiguousarray(np.sqrt(values[keep])[:, None] * vectors[:, keep].T)


def without_rounding(factor: Array, *, gram: Array) -> Array:
    """``factor`` of ``gram``, with fewer rows where some of its pivots may be rounding alone."""
    size, diagonal = len(gram), np.diagonal(gram)
    rounding = 8 * settings.rank_tolerance(size)
    if len(factor) < size or (np.square(np.diagonal(factor)) > rounding * diagonal).all():
        return factor
    unit = 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    values, vectors = np.linalg.eigh(symmetrized(gram * np.multiply.outer(unit, unit)))
    keep = values > rounding * values[-1]
    return np.ascontiguousarray(np.sqrt(values[keep])[:, None] * vectors[:, keep].T / unit)


def null_space(factor: Array, *, gram: Array) -> Array:
    """Orthonormal basis of the null space of a factor of ``gram``, (m, dim), in any units."""
    size, diagonal = len(gram), np.diagonal(gram)
    least = (settings.rank_tolerance(size)) ** 2 * float(diagonal.max())
    if not least > 0:
        return np.eye(size)
    # Powers of two round nothing, and leave what cancels to do so.
    unit = np.ldexp(1.0, -(np.frexp(np.maximum(diagonal, least))[1] // 2))
    scaled = gram * unit
    scaled *= unit[:, None]
    # Eight times what rounding can leave of a zero eigenvalue.
    scaled[np.diag_indices(size)] -= (
        8 * settings.rank_tolerance(size) * float(np.abs(scaled).sum(axis=1).max())
    )
    if is_positive(scaled):  # at a tenth of the cost of singular vectors, and mostly it is
        return np.zeros((size, 0))
    _, values, right = np.linalg.svd(factor * unit)
    full = np.zeros(size)
    full[: len(values)] = values
    null = right[full <= settings.rank_tolerance(size) * full.max()].T
    if (unit != unit[0]).any():
        null = np.linalg.qr(unit[:, None] * null)[0]
    return np.ascontiguousarray(null)


def nuclear_norm(a: Array, *, negligible: float = settings.NEGLIGIBLE) -> float:
    """Sum of singular values, tr (A^T A)^1/2, less the rounding of how it was computed."""
    return nuclear_norm_and_rounding(a, negligible=negligible)[0]


def nuclear_norm_and_rounding(
    a: Array, *, negligible: float = settings.NEGLIGIBLE
) -> tuple[float, float]:
    """Bound as :func:`nuclear_norm`, and the rounding that was taken off it."""
    # Eigenvalues of A^T A are cheapest; singular values where their rounding is not ``negligible``.
    values = np.linalg.eigvalsh(a.T @ a)
    error = settings.rank_tolerance(len(values)) * values[-1]
    if values[0] > error:
        roots = np.sqrt(values)
        total = float(roots.sum())
        rounding = float((error / (2 * roots)).sum())
        if rounding <= negligible * total:
            return total - rounding, rounding
    singular = np.linalg.svd(a, compute_uv=False)
    total = float(singular.sum())
    rounding = settings.rank_tolerance(len(singular)) * total
    return total - rounding, rounding


def inversion_margin(a: Array, inverse: Array) -> float:
    """Relative head room for the rounding of an inverse, by both diagonals, (m,)."""
    condition = float((a * inverse).max())
    return 8 * settings.rank_tolerance(len(a)) * max(1.0, condition)


def inverse_of_triangular(lower: Any, *, invert: Callable[[Any], Any] = np.linalg.inv) -> Any:
    """Invert a lower triangular matrix (n, n) of any array library in its place, by halves."""
    size = lower.shape[0]
    if size <= SMALL_BLOCK:
        lower[...] = invert(lower)
        return lower
    half = size // 2
    first = inverse_of_triangular(lower[:half, :half], invert=invert)
    last = inverse_of_triangular(lower[half:, half:], invert=invert)
    lower[half:, :half] = -(last @ (lower[half:, :half] @ first))
    return lower


def solved_by_triangular(upper: Array, right: Array) -> Array:
    """U^-1 B for upper triangular U (n, n), in the place of B (n, m), by halves."""
    size = len(upper)
    if size <= SMALL_BLOCK // 2:
        right[...] = np.linalg.inv(upper) @ right
        return right
    half = size // 2
    last = solved_by_triangular(upper[half:, half:], right[half:])
    right[:half] -= upper[:half, half:] @ last
    solved_by_triangular(upper[:half, :half], right[:half])
    return right


def inverse_of_positive(a: Array) -> Array:
    """Inverse of a positive definite matrix, exactly symmetric; LinAlgError for any other."""
    diagonal = np.diagonal(a)
    if not diagonal.min() > 0:
        raise np.linalg.LinAlgError("a diagonal entry is not positive")
    # With a diagonal of about one nothing depends on the units of the rows; powers of two round
    # nothing, and so keep the symmetry.
    root = np.ldexp(1.0, -(np.frexp(diagonal)[1] // 2))
    unit = a * root
    unit *= root[:, None]
    lower = np.linalg.cholesky(unit)
    del unit  # freed early: peak memory
    inverse_of_triangular(lower)
    inverse: Array = lower.T @ lower  # numpy makes a product with one's own transpose symmetric
    inverse *= root
    inverse *= root[:, None]
    return inverse
