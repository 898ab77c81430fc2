"""Work on rows that may lie in several processes, each of which runs the same code over its own.

By default all rows are here, and each function below is what it says in one process. Where somebody
else has the others, :func:`among` puts one in place who asks them (``noisedesign.distributed``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, Generic, TypeVar

import numpy as np

from noisedesign.base.checks import Array

Value = TypeVar("Value")


class once(Generic[Value]):  # noqa: N801 (it is written as ``cached_property`` is)
    """A ``cached_property`` without the lock that Python has around it before 3.12: of several
    parts in threads of one process each waits within it for what the others find."""

    def __init__(self, find: Callable[[Any], Value]) -> None:
        self._find, self.__doc__ = find, find.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type | None = None) -> Value:
        if instance is None:  # of the class, as documentation asks for it
            return self  # type: ignore[return-value]
        found = instance.__dict__[self._name] = self._find(instance)
        return found


Argument = TypeVar("Argument")


def of_last(find: Callable[[Argument], Value]) -> Callable[[Argument], Value]:
    """Keep what a function finds of a thread's last argument: parts in threads have their own."""
    last: ContextVar[tuple[Argument, Value] | None] = ContextVar(find.__name__, default=None)

    @wraps(find)
    def found(argument: Argument) -> Value:
        known = last.get()
        if known is None or known[0] is not argument:
            last.set(known := (argument, find(argument)))
        return known[1]

    return found


class Alone:
    """All rows are here."""

    def count(self, rows: int) -> int:
        """Count all rows, of which so many are here."""
        return rows

    def here(self, rows: int) -> range:
        """Tell which of all rows are here, so many of them."""
        return range(rows)

    def total(self, part: Any) -> Any:
        """The sum of what each process has, a number or an array."""
        return part

    def largest(self, rows: Array) -> float:
        """The largest entry of an array that is cut by rows."""
        return float(rows.max())

    def least_squares(self, basis: Array, images: Array) -> Array:
        """Coefficients of the columns of ``basis``, (n, k), nearest to ``images``, (n,)."""
        return np.asarray(np.linalg.lstsq(basis, images, rcond=None)[0])

    def drawn(self, draw: Callable[[tuple[int, int]], Array], rows: int, columns: int) -> Array:
        """The rows that are here of an array that is drawn as a whole."""
        return draw((rows, columns))

    def kept(self, work: Callable[[], Any]) -> Any:
        """Find what long work does, an array or a tuple of arrays; a checkpoint may know it."""
        return work()


_ALONE = Alone()
_CURRENT: ContextVar[Alone] = ContextVar("together", default=_ALONE)


@contextmanager
def among(others: Alone) -> Iterator[None]:
    """Ask ``others`` within this thread."""
    token = _CURRENT.set(others)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def alone() -> bool:
    """Whether all rows are here."""
    return _CURRENT.get() is _ALONE


def count(rows: int) -> int:
    return _CURRENT.get().count(rows)


def here(rows: int) -> range:
    return _CURRENT.get().here(rows)


def total(part: Any) -> Any:
    return _CURRENT.get().total(part)


def largest(rows: Array) -> float:
    return _CURRENT.get().largest(rows)


def least(rows: Array) -> float:
    """The least entry of an array that is cut by rows."""
    return -largest(-rows)


def least_squares(basis: Array, images: Array) -> Array:
    return _CURRENT.get().least_squares(basis, images)


def drawn(draw: Callable[[tuple[int, int]], Array], rows: int, columns: int) -> Array:
    return _CURRENT.get().drawn(draw, rows, columns)


def kept(work: Callable[[], Any]) -> Any:
    return _CURRENT.get().kept(work)
