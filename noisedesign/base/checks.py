"""Validators: one clear error that names the field, what was expected and what was got.

Arrays come back as float64, C-contiguous and read-only."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisedesign.base import settings

Array = NDArray[np.float64]

ROWS_AT_ONCE = 64  # rows of a large matrix looked at together, so that they stay in the cache
SMALLEST, LARGEST = 1e-100, 1e100  # of numbers with a unit: products of three are doubles
LEAST_OF_MANY, MOST_OF_MANY = 1e-50, 1e50  # of values of several nodes, which solvers square
LARGEST_ENTRY = 1e200  # largest entry of a matrix: sums of its entries are doubles
UNITS = "Choose units in which numbers are nearer to 1."
WIDENED = "Convert the data at its source; widening float32 does not restore its digits."

LARGEST_INT = 2**53  # counts beyond it are no doubles any more, and far beyond any memory
PLAIN = (bool, int, float, complex, str, bytes, list, tuple, dict, set, type(None), np.generic)


class InputError(ValueError):
    """Bad input from the user: ``field: expected ..., got ...``.

    Args:
        field: what is wrong: a dotted key of a file, or an argument.
        expected: what would be right.
        got: what was given.
        remedy: what to do about it; may be empty.

    Examples:
        >>> import noisedesign as nd
        >>> try:
        ...     nd.participation.single(0)
        ... except nd.InputError as error:
        ...     print(error.field)
        ...     print(error)
        horizon
        horizon: expected an integer >= 1, got 0 (int)
    """

    def __init__(self, field: str, *, expected: str, got: str, remedy: str = "") -> None:
        self.field, self.expected, self.got, self.remedy = field, expected, got, remedy
        text = f"{field}: expected {expected}, got {got}"
        super().__init__(f"{text}. {remedy}" if remedy else text)

    def __reduce__(self) -> tuple[Any, ...]:
        said = {"expected": self.expected, "got": self.got, "remedy": self.remedy}
        return partial(type(self), self.field, **said), ()

    def told(
        self, *, field: str | None = None, got: str | None = None, remedy: str | None = None
    ) -> InputError:
        """The same error under another field, or in other words.

        Args:
            field: the other field; None: the same.
            got: what came, in other words; None: the same.
            remedy: the other remedy; None: the same.

        Returns:
            A new error.
        """
        field, got = field or self.field, got or self.got
        remedy = self.remedy if remedy is None else remedy
        return type(self)(field, expected=self.expected, got=got, remedy=remedy)


def describe(value: object) -> str:
    """A short, honest description of a rejected value."""
    if isinstance(value, np.ndarray):
        return f"an array of dtype {value.dtype} and shape {value.shape}"
    kind = type(value).__name__
    try:
        text = repr(value)
    except Exception:  # integers of thousands of digits have none, nor have some objects of others
        if isinstance(value, int):
            return f"an integer of about {int(math.log10(abs(value))) + 1:,} digits"
        return f"a value of type {kind}"
    if not isinstance(value, PLAIN) and ("\n" in text or " at 0x" in text or len(text) > 80):
        return f"a value of type {kind}"
    if len(text) > 80:
        text = text[:77] + "..."
    return f"{text} ({kind})" if not isinstance(value, str) else text


def as_array(value: Any, *, field: str, ndim: int) -> NDArray[Any]:
    """Return NumPy's array of ``value``, refusing masked, sparse, textual and unordered values."""
    expected, remedy = f"a float64 array with {ndim} ax{'es' if ndim != 1 else 'is'}", ""
    if isinstance(value, np.ma.MaskedArray):
        remedy = "Fill the entries that are masked: a design has no missing values."
    elif hasattr(value, "toarray"):
        remedy = "Use its toarray()."
    elif isinstance(value, (str, bytes, dict, set, frozenset)):
        remedy = "Give a NumPy array."
    else:
        try:
            return np.asarray(value)
        except Exception as error:  # whatever foreign objects raise, and ragged lists
            raise InputError(field, expected=expected, got=describe(value)) from error
    got = f"a masked array of shape {value.shape}" if np.ma.isMA(value) else describe(value)
    raise InputError(field, expected=expected, got=got, remedy=remedy)


def _float64(value: Any, *, field: str, ndim: int) -> Array:
    array = as_array(value, field=field, ndim=ndim)
    # Integers convert exactly; a float32 array has already lost the digits that a gap of
    # 1e-6 or 1e-9 is made of, so it is refused instead of widened.
    if array.dtype != np.float64 and not np.issubdtype(array.dtype, np.integer):
        expected = f"a float64 array with {ndim} axes"
        got = describe(value if array.dtype == object else array)
        raise InputError(field, expected=expected, got=got, remedy=WIDENED)
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


def square_matrices(value: Any, *, field: str) -> Array:
    """The matrices of a schedule, shape (P, n, n), read-only; P = 1 for one matrix."""
    if not is_stack(value):
        return matrix(value, field=field, square=True)[None]
    if not len(value):
        raise InputError(field, expected="at least one matrix", got="an empty schedule")
    checked = []
    for number, one in enumerate(value):
        try:
            checked.append(matrix(one, field=field, square=True))
        except InputError as error:
            raise error.told(got=f"{error.got} (number {number} of a schedule)") from error
        if checked[-1].shape != checked[0].shape:
            got = f"{checked[-1].shape} (number {number} of a schedule)"
            raise InputError(field, expected=f"matrices of one shape, {checked[0].shape}", got=got)
    found = np.stack(checked)
    found.flags.writeable = False
    return found


def is_stack(value: Any) -> bool:
    """Whether these are several matrices."""
    if isinstance(value, list | tuple):
        rows = [row for one in value if isinstance(one, list | tuple) for row in one]
        several = any(isinstance(row, list | tuple | np.ndarray) for row in rows)
        return not value or several or any(getattr(one, "ndim", None) == 2 for one in value)
    return getattr(value, "ndim", None) == 3


def asymmetry(a: Array) -> float:
    """Largest |a_ij - a_ji| of a square matrix, a few rows at a time."""
    spans = (slice(start, start + ROWS_AT_ONCE) for start in range(0, len(a), ROWS_AT_ONCE))
    return float(np.max([np.abs(a[span] - a.T[span]).max() for span in spans]))  # NaN stays NaN


def symmetric_matrix(value: Any, *, field: str, tolerance: float) -> Array:
    """A square matrix that is symmetric to ``tolerance`` relative to its largest entry."""
    array = matrix(value, field=field, square=True)
    if (peak := max(float(array.max()), -float(array.min()))) > LARGEST_ENTRY:
        expected = f"entries up to {LARGEST_ENTRY:g}"
        raise InputError(field, expected=expected, got=f"{peak:g}", remedy=UNITS)
    if asymmetry(array) > tolerance * max(1.0, peak):
        gap = np.abs(array - array.T)
        i, j = (int(k) for k in np.unravel_index(gap.argmax(), gap.shape))
        got = f"entry ({i}, {j}) = {array[i, j]:.6g} but ({j}, {i}) = {array[j, i]:.6g}"
        raise InputError(field, expected="a symmetric matrix", got=got)
    return array


def semidefinite_matrix(value: Any, *, field: str, nonzero: bool = False) -> Array:
    """A symmetric matrix without negative eigenvalues, but for the rounding of A^T A."""
    array = symmetric_matrix(value, field=field, tolerance=settings.SYMMETRY_TOLERANCE)
    allowed = settings.GRAM_NEGATIVITY * float(np.diagonal(array).max())
    try:  # a tenth of the time that eigenvalues take
        np.linalg.cholesky(array + allowed * np.eye(len(array)))
        return array
    except np.linalg.LinAlgError:
        values = np.linalg.eigvalsh((array + array.T) / 2)
    most = float(values[-1])
    if values[0] < -settings.GRAM_NEGATIVITY * max(most, 0.0) or (nonzero and most <= 0):
        expected = f"a {'nonzero ' if nonzero else ''}positive semidefinite matrix"
        got = f"eigenvalues from {values[0]:.3g} to {most:.3g}"
        raise InputError(field, expected=expected, got=got)
    return array


def array_of_shape(value: Any, *, field: str, shape: tuple[int, ...]) -> Array:
    """A finite float64 array of that shape."""
    array = _float64(value, field=field, ndim=len(shape))
    if array.shape != shape:
        raise InputError(field, expected=f"an array of shape {shape}", got=f"shape {array.shape}")
    return array


def vector(value: Any, *, field: str, length: int, each: str = "node") -> Array:
    """A finite float64 vector, one number ``each``, of the given length; a scalar is repeated."""
    array = as_array(value, field=field, ndim=1)
    if array.ndim == 0:
        if not _is_number(value):
            expected, remedy = f"a number, or {length} of them", lost(value)
            raise InputError(field, expected=expected, got=describe(value), remedy=remedy)
        array = np.repeat(np.float64(real(value, field=field)), length)
    result = _float64(array, field=field, ndim=1)
    if len(result) != length:
        expected = "1 value" if length == 1 else f"{length} values"
        raise InputError(field, expected=f"{expected}, one per {each}", got=f"{len(result)}")
    return result


def positive_vector(
    value: Any,
    *,
    field: str,
    length: int,
    each: str = "node",
    least: float = LEAST_OF_MANY,
    most: float = MOST_OF_MANY,
) -> Array:
    """A :func:`vector` with every entry > 0 and of a size that can be computed with."""
    result = vector(value, field=field, length=length, each=each)
    if result.min() <= 0:
        got = f"{result.min():.6g} at index {int(result.argmin())}"
        raise InputError(field, expected="values > 0", got=got)
    for worst in (int(result.argmin()), int(result.argmax())):
        check_size(result, worst, field=field, least=least, most=most)
    return result


def check_size(
    values: Array,
    index: int,
    *,
    field: str,
    least: float = LEAST_OF_MANY,
    most: float = MOST_OF_MANY,
) -> None:
    """Check that the entry at ``index`` is of a size that can be computed with."""
    if not least <= values[index] <= most:
        expected = f"values between {least:g} and {most:g}"
        got = f"{values[index]:.6g} at index {index}"
        raise InputError(field, expected=expected, got=got, remedy=UNITS)


def positive_int(value: Any, *, field: str, minimum: int = 1) -> int:
    """An integer from ``minimum`` to LARGEST_INT; booleans and floats are refused."""
    if seed(value, field=field, minimum=minimum) > LARGEST_INT:
        raise InputError(field, expected=f"an integer <= {LARGEST_INT}", got=describe(value))
    return int(value)


def seed(value: Any, *, field: str, minimum: int = 0) -> int:
    """An integer from ``minimum`` on, of any size."""
    is_int = isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.bool_))
    if not is_int or value < minimum:
        whole = isinstance(value, float | np.floating) and float(value).is_integer()
        remedy = f"Write {int(value)}." if whole and value >= minimum else ""
        expected = f"an integer >= {minimum}"
        raise InputError(field, expected=expected, got=describe(value), remedy=remedy)
    return int(value)


def nonnegative(value: Any, *, field: str, expected: str = "a number >= 0") -> float:
    """A finite number that is not below zero."""
    number = real(value, field=field)
    if number < 0:
        raise InputError(field, expected=expected, got=f"{number:g}")
    return number


def real(value: Any, *, field: str, low: float = -math.inf, high: float = math.inf) -> float:
    """A finite number in the open interval (low, high)."""
    try:
        number = float(value) if _is_number(value) else math.nan
    except OverflowError:  # an integer beyond all doubles
        number = math.inf
    if not math.isfinite(number) or not low < number < high:
        wanted = "a finite number"
        if low > -math.inf or high < math.inf:
            wanted = f"a number in ({low:g}, {high:g})"
        raise InputError(field, expected=wanted, got=describe(value), remedy=lost(value))
    return number


def lost(value: object) -> str:
    """Say what to do about a number of fewer digits than float64, or nothing."""
    short = isinstance(value, np.floating) and not isinstance(value, np.float64)
    return "It has lost digits: give a Python number or a float64." if short else ""


def scale(value: Any, *, field: str) -> float:
    """A positive number of a size that can be computed with: a standard deviation, a clip."""
    number = real(value, field=field, low=0)
    if not SMALLEST <= number <= LARGEST:
        expected = f"a number between {SMALLEST:g} and {LARGEST:g}"
        raise InputError(field, expected=expected, got=f"{number:g}", remedy=UNITS)
    return number


def _is_number(value: Any) -> bool:
    """Whether it is a real number without lost digits: a float32 scalar has lost some."""
    value = value[()] if isinstance(value, np.ndarray) and value.ndim == 0 else value
    return isinstance(value, (int, float, np.integer)) and not isinstance(value, bool)


def one_of(value: Any, *, field: str, allowed: tuple[str, ...]) -> str:
    """A string out of ``allowed``."""
    if not isinstance(value, str) or value not in allowed:
        expected, meant = "one of " + ", ".join(allowed), did_you_mean(value, allowed)
        raise InputError(field, expected=expected, got=describe(value), remedy=meant)
    return str(value)


def did_you_mean(word: Any, known: Sequence[str]) -> str:
    """A sentence with the word most like one that is not known, or nothing."""
    if not isinstance(word, str):
        return ""
    short = [name for name in known if len(word) > 1 and name.startswith(word)]
    close = short or difflib.get_close_matches(word, known, n=1)
    return f"Did you mean {close[0]}?" if close else ""


def flag(value: Any, *, field: str) -> bool:
    """True or False: what else has a truth is a mistake, and often the wrong way round."""
    if not isinstance(value, (bool, np.bool_)):
        raise InputError(field, expected="True or False", got=describe(value))
    return bool(value)


def instance(value: Any, kinds: type | tuple[type, ...], *, field: str, expected: str) -> None:
    """A value of one of these types; ``expected`` says how to make one."""
    if not isinstance(value, kinds):
        raise InputError(field, expected=expected, got=describe(value))


def text(value: Any, *, field: str) -> str:
    """A string, such as a name."""
    if not isinstance(value, str):
        raise InputError(field, expected="a text", got=describe(value))
    return str(value)


def path(value: Any, *, field: str) -> Path:
    """The path of a file, given as a text or a path of Python's."""
    if not isinstance(value, (str, Path)) or "\0" in str(value):
        raise InputError(field, expected="the path of a file", got=describe(value))
    return Path(value)


def listed(value: Any, *, field: str, expected: str) -> list[Any]:
    """The members of something that has an order: no text, set, mapping or single number."""
    unordered = isinstance(value, (str, bytes, dict, set, frozenset))
    if unordered or not isinstance(value, Iterable):
        raise InputError(field, expected=expected, got=describe(value))
    try:
        return list(value)
    except TypeError as error:  # an array without axes
        raise InputError(field, expected=expected, got=describe(value)) from error


def node_names(value: Any, *, count: int) -> tuple[str, ...]:
    """Names of the nodes, all different; "0", "1", ... where none are given."""
    expected = f"a list of {count} distinct names"
    given = listed(value, field="nodes", expected=expected)
    if not given:
        return tuple(map(str, range(count)))
    for name in given:
        named = isinstance(name, (str, int, np.integer, tuple)) and not isinstance(name, bool)
        if not named:
            raise InputError("nodes", expected="a text as every name", got=describe(name))
    names = tuple(map(str, given))
    if len(names) != count or len(set(names)) != count:
        got = f"{len(set(names))} in {len(names)}"
        raise InputError("nodes", expected=f"{count} distinct names", got=got)
    return names
