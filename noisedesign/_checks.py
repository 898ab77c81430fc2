"""Validators: one clear error that names the field, what was expected and what was got.

Everything here knows nothing of noise. Arrays come back as float64, C-contiguous and
read-only, so that a validated matrix stays the matrix that was validated.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

ROWS_AT_ONCE = 64
"""Rows of a large matrix that are looked at together: what is computed of them stays in the cache,
and takes no memory of the matrix's own size."""


class InputError(ValueError):
    """Bad input from the user: ``field: expected ..., got ...``."""

    def __init__(self, field: str, *, expected: str, got: str, remedy: str = "") -> None:
        self.field, self.expected, self.got, self.remedy = field, expected, got, remedy
        text = f"{field}: expected {expected}, got {got}"
        super().__init__(f"{text}. {remedy}" if remedy else text)


def describe(value: object) -> str:
    """A short, honest description of a rejected value."""
    if isinstance(value, np.ndarray):
        return f"an array of dtype {value.dtype} and shape {value.shape}"
    text = repr(value)
    if len(text) > 80:
        text = text[:77] + "..."
    return f"{text} ({type(value).__name__})" if not isinstance(value, str) else text


def _float64(value: Any, *, field: str, ndim: int) -> Array:
    array = np.asarray(value)
    # Integers convert exactly; a float32 array has already lost the digits that a gap of
    # 1e-6 or 1e-9 is made of, so it is refused instead of widened.
    if array.dtype != np.float64 and not np.issubdtype(array.dtype, np.integer):
        raise InputError(
            field, expected=f"a float64 array with {ndim} axes", got=describe(array),
            remedy="Convert the data at its source; widening float32 does not restore its digits.",
        )  # fmt: skip
    if array.ndim != ndim:
        raise InputError(field, expected=f"an array with {ndim} axes", got=describe(array))
    if array.size == 0:
        raise InputError(field, expected="a non-empty array", got=describe(array))
    result = np.array(array, dtype=np.float64, order="C")
    if not np.isfinite(result).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(result))[0])
        raise InputError(field, expected="finite entries", got=f"{result[where]} at index {where}")
    result.flags.writeable = False
    return result


def matrix(value: Any, *, field: str, square: bool = False) -> Array:
    """A finite float64 matrix, shape (m, n), or (n, n) where ``square``."""
    array = _float64(value, field=field, ndim=2)
    if square and array.shape[0] != array.shape[1]:
        raise InputError(field, expected="a square matrix", got=f"shape {array.shape}")
    return array


def asymmetry(a: Array) -> float:
    """Largest |a_ij - a_ji| of a square matrix, a few rows at a time."""
    spans = (slice(start, start + ROWS_AT_ONCE) for start in range(0, len(a), ROWS_AT_ONCE))
    return float(np.max([np.abs(a[span] - a.T[span]).max() for span in spans]))  # NaN stays NaN


def symmetric_matrix(value: Any, *, field: str, tolerance: float) -> Array:
    """A square matrix that is symmetric to ``tolerance`` relative to its largest entry."""
    array = matrix(value, field=field, square=True)
    if asymmetry(array) > tolerance * max(1.0, float(array.max()), -float(array.min())):
        gap = np.abs(array - array.T)
        i, j = (int(k) for k in np.unravel_index(gap.argmax(), gap.shape))
        raise InputError(
            field, expected="a symmetric matrix",
            got=f"entry ({i}, {j}) = {array[i, j]:.6g} but ({j}, {i}) = {array[j, i]:.6g}",
        )  # fmt: skip
    return array


def array_of_shape(value: Any, *, field: str, shape: tuple[int, ...]) -> Array:
    """A finite float64 array of that shape."""
    array = _float64(value, field=field, ndim=len(shape))
    if array.shape != shape:
        raise InputError(field, expected=f"an array of shape {shape}", got=f"shape {array.shape}")
    return array


def vector(value: Any, *, field: str, length: int) -> Array:
    """A finite float64 vector of the given length; a scalar is repeated."""
    array = np.asarray(value)
    if array.ndim == 0:
        array = np.repeat(array, length)
    result = _float64(array, field=field, ndim=1)
    if len(result) != length:
        raise InputError(field, expected=f"{length} values, one per node", got=f"{len(result)}")
    return result


def positive_vector(value: Any, *, field: str, length: int) -> Array:
    """As :func:`vector`, every entry > 0."""
    result = vector(value, field=field, length=length)
    if result.min() <= 0:
        raise InputError(
            field, expected="values > 0", got=f"{result.min():.6g} at index {int(result.argmin())}"
        )
    return result


def positive_int(value: Any, *, field: str, minimum: int = 1) -> int:
    """An integer of at least ``minimum``; booleans and floats are refused."""
    is_int = isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.bool_))
    if not is_int or value < minimum:
        raise InputError(field, expected=f"an integer >= {minimum}", got=describe(value))
    return int(value)


def real(value: Any, *, field: str, low: float = -math.inf, high: float = math.inf) -> float:
    """A finite number in the open interval (low, high)."""
    numbers = (int, float, np.floating, np.integer)
    numeric = isinstance(value, numbers) and not isinstance(value, bool)
    if not numeric or not math.isfinite(value) or not low < value < high:
        wanted = "a finite number"
        if low > -math.inf or high < math.inf:
            wanted = f"a number in ({low:g}, {high:g})"
        raise InputError(field, expected=wanted, got=describe(value))
    return float(value)


def one_of(value: Any, *, field: str, allowed: tuple[str, ...]) -> str:
    """A string out of ``allowed``."""
    if value not in allowed:
        raise InputError(field, expected="one of " + ", ".join(allowed), got=describe(value))
    return str(value)
