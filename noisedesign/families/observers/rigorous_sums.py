"""What is had of sums of messages, or of several rounds a step, in rows that are independent.

Before the K rounds of a step the models are s_t = x_t + W^K s_(t-1), x = z + g, and an observer
has O s_t, O of the rows A, A W, ..., A W^(K-1) for the sums A of one round; who only gets the mean
after a step has 1^T W^K s_t. A coalition that knows its own noise knows what it sends: W is then
that of the others, and its noise, which nothing moves, comes besides. So the rows of a step are
O W^(K l) on x_(t-l), l = 0, 1, ..., and those of all steps are independent if those of O are.

Rows of O that are sums of others tell nothing. That they are so is no matter of rounding: floats
are integers over powers of two, and rows are eliminated in integers. What is left is multiplied by
a T that makes it nearly orthonormal; T is regular, as T K T^T is proved to be.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisedesign.base.checks import Array
from noisedesign.base.enclosures import TINY, Enclosure, U, exactly, finer_product, up

MOST_NODES = 64
"""That rows are eliminated for: numbers grow to thousands of digits."""

Whole = list[int]
"""A row of integers."""


class Rows(NamedTuple):
    """Rows on the noise of each lag, shape (rows, n), those of known noise last; its nodes."""

    lags: tuple[Enclosure, ...]
    known: NDArray[np.intp]


def rows_of(
    w: Array, start: Array, *, known: NDArray[np.intp], rounds: int, steps: int, after: bool = False
) -> Rows:
    """The rows of an observer.

    Args:
        w: W, shape (n, n).
        start: A, shape (any, n).
        known: nodes whose noise it knows, and whose messages it knows therefore.
        rounds: K.
        steps: T.
        after: whether it sees A only after the rounds of a step, and not before each.
    """
    n = len(w)
    others = np.setdiff1d(np.arange(n), known)
    mixing = _whole(w[np.ix_(others, others)])
    told, found, kept = _whole(start[:, others]), Eliminated(), []
    for k in range(rounds + 1 if after else rounds):
        if not after or k == rounds:
            kept += [Scaled([row], told.scale) for row in told.rows if found.adds(row)]
        told = told.times(mixing)
    mid = _orthonormal(kept, len(others))
    reach = Enclosure(mid, np.asarray(up(U * np.abs(mid) + TINY, 1)))
    among, lags = exactly(np.ascontiguousarray(w[np.ix_(others, others)])), []
    for lag in range(steps):
        lags.append(_with_known(reach, others, known, n, first=not lag))
        for _ in range(rounds if lag + 1 < steps else 0):
            reach = finer_product(reach, among)
    return Rows(tuple(lags), known)


def _with_known(
    reach: Enclosure, others: NDArray[np.intp], known: NDArray[np.intp], n: int, *, first: bool
) -> Enclosure:
    """Rows on the noise of all nodes, and below them those of known noise, of its own step."""
    mid, rad = (np.zeros((len(reach.mid) + len(known), n)) for _ in range(2))
    mid[: len(reach.mid), others] = reach.mid
    rad[: len(reach.mid), others] = reach.rad
    if first:
        mid[np.arange(len(known)) + len(reach.mid), known] = 1.0
    return Enclosure(mid, rad)


class Scaled(NamedTuple):
    """Rows of integers, over a power of two."""

    rows: list[Whole]
    scale: int

    def times(self, other: Scaled) -> Scaled:
        """The product."""
        columns = list(zip(*other.rows, strict=True))
        found = [[sum(map(int.__mul__, row, c)) for c in columns] for row in self.rows]
        return Scaled(found, self.scale + other.scale)

    def nearest(self) -> Array:
        """The nearest floats, row by row."""
        return np.array([[float(Fraction(x, 2**self.scale)) for x in row] for row in self.rows])


def _orthonormal(kept: list[Scaled], columns: int) -> Array:
    """About T O for a T that makes its rows orthonormal: but for one rounding, of some T."""
    if not kept:
        return np.zeros((0, columns))
    scale = max(one.scale for one in kept)
    rows = Scaled([[x << (scale - one.scale) for x in one.rows[0]] for one in kept], scale)
    left, values, _ = np.linalg.svd(rows.nearest(), full_matrices=False)
    with np.errstate(divide="ignore", invalid="ignore"):
        turned = left.T / values[:, None]
    return _whole(turned).times(rows).nearest() if np.isfinite(turned).all() else rows.nearest()


def _whole(a: Array) -> Scaled:
    """A itself: every float is an integer over a power of two."""
    fractions = [[Fraction(x) for x in row] for row in a.tolist()]
    scale = max((x.denominator.bit_length() - 1 for row in fractions for x in row), default=0)
    return Scaled([[int(x * 2**scale) for x in row] for row in fractions], scale)


class Eliminated:
    """Rows that are independent of one another, each without the first entries of those before."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, Whole]] = []

    def adds(self, row: Whole) -> bool:
        """Whether a row is no sum of multiples of those before; it is kept then."""
        for first, before in self.rows:
            if row[first]:
                ours, theirs = before[first], row[first]
                row = [ours * x - theirs * y for x, y in zip(row, before, strict=True)]
                if (common := math.gcd(*row)) > 1:
                    row = [x // common for x in row]
        place = next((i for i, x in enumerate(row) if x), None)
        if place is None:
            return False
        self.rows.append((place, row))
        return True
