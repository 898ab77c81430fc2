"""Lower triangular Toeplitz matrices as truncated power series, O(T log T) and no T x T array.

A lower triangular Toeplitz matrix is its first column; products of such matrices are convolutions
of their columns cut to length T, and inverses are reciprocals of power series."""

from __future__ import annotations

from typing import Any

import numpy as np

from noisedesign.base import checks as _checks, settings
from noisedesign.base.checks import Array, InputError, describe


def checked(value: Any, *, field: str) -> Array:
    """First column of a Toeplitz matrix: finite float64, shape (p,), its first entry > 0."""
    array = np.asarray(value)
    if array.ndim != 1 or not array.size:
        raise InputError(field, expected="a non-empty vector of coefficients", got=describe(array))
    column = _checks.vector(array, field=field, length=len(array))
    if column[0] <= 0:
        expected = "a first coefficient > 0 (the diagonal)"
        raise InputError(field, expected=expected, got=f"{column[0]:.6g}")
    return column


def resized(column: Array, length: int) -> Array:
    """The same power series, cut or continued with zeros to ``length`` coefficients."""
    result = np.zeros(length)
    result[: len(column)] = column[:length]
    return result


def convolve(a: Array, b: Array) -> Array:
    """(a * b)_t = sum_s a_s b_{t-s} for t < T, both of shape (T,): product of the two matrices."""
    import scipy.fft  # late: it takes longer to load than most designs take to draw

    length = len(a)
    size = scipy.fft.next_fast_len(2 * length - 1, real=True)
    product = scipy.fft.rfft(a, size) * scipy.fft.rfft(b, size)
    return np.asarray(scipy.fft.irfft(product, size)[:length])


def correlate(a: Array, g: Array) -> Array:
    """sum_t a_{t-s} g_t for s < T: the adjoint of convolution by ``a``."""
    return convolve(a, g[::-1])[::-1]


def fast_reciprocal(column: Array) -> Array:
    """Coefficients (T,) of 1 / column by Newton's iteration; errors relative to the largest."""
    length = len(column)
    result = np.array([1 / column[0]])
    while len(result) < length:
        size = min(2 * len(result), length)
        known = resized(result, size)
        correction = -convolve(column[:size], known)
        correction[0] += 2
        result = convolve(known, correction)
    return result


def reciprocal(column: Array) -> Array:
    """Coefficients of 1 / column, shape (T,): first column of the inverse matrix."""
    # Where coefficients grow, Fourier transforms lose the small ones, and the recursion does not.
    support = int(np.flatnonzero(column)[-1]) + 1
    if support > 64:  # fewer terms are as fast by recursion, which rounds less
        with np.errstate(over="ignore", invalid="ignore"):
            result = fast_reciprocal(column)
            residual = convolve(column, result)
        residual[0] -= 1
        # The exact reciprocal differs by its product with the residual.
        if np.abs(residual).sum() <= settings.sqrt_eps():
            return result
    return filtered(np.eye(1, len(column))[0], by=column[:support])


def filtered(values: Array, *, by: Array) -> Array:
    """``values`` times the reciprocal of the polynomial ``by``, by recursion."""
    from scipy.signal import lfilter  # late: it loads all of scipy.stats

    return np.asarray(lfilter([1.0], by, values), dtype=np.float64)


def strided_sums(column: Array, *, stride: int, count: int) -> Array:
    """v_t = sum_{i < count} column_{t - i stride}, the sum of columns 0, stride, ..., in O(T)."""
    length = len(column)
    rows = -(-length // stride)
    table = resized(column, rows * stride).reshape(rows, stride)
    sums = np.cumsum(table, axis=0)
    if count < rows:
        sums[count:] -= sums[:-count].copy()
    return sums.ravel()[:length]


def strided_sums_adjoint(values: Array, *, stride: int, count: int) -> Array:
    """Adjoint of :func:`strided_sums`: sum_{i < count} values_{t + i stride}."""
    return strided_sums(values[::-1], stride=stride, count=count)[::-1]


def dense(column: Array) -> Array:
    """The lower triangular Toeplitz matrix with this first column, shape (T, T)."""
    steps = np.arange(len(column))
    lags = np.subtract.outer(steps, steps)
    return np.where(lags >= 0, column[np.maximum(lags, 0)], 0.0)
