"""Points of the unit circle at fractions of a turn, with a proved error.

No sine or cosine of the machine is asked for, whose errors no standard bounds: a few points come
from integer arithmetic, and all others are products of these."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from noisedesign.base.enclosures import U

BITS = 128
PI = 0x3_243F6A88_85A308D3_13198A2E_03707344  # pi in units of 2^-BITS, rounded down
_LOW = 4096  # points in the finer of the two tables whose products are all others
ERROR = 128 * U
"""A product of two complex numbers is off by less than 3 U of its size, a point from integers by U
(Brent, Percival and Zimmermann 2007): 4 U for each of 12 and at most 18 doublings, and 3 U."""


def turned(n: NDArray[np.int64], half: int) -> NDArray[np.complex128]:
    """exp(i pi n / half) for n >= 0, within ``ERROR``; half is at most 2^29."""
    n = n % (2 * half)
    fine = _points(min(_LOW, 2 * half), 1, half)
    coarse = _points(2 * half // _LOW + 1, _LOW, half)
    return np.asarray(coarse[n // _LOW] * fine[n % _LOW])


def _points(count: int, step: int, half: int) -> NDArray[np.complex128]:
    """exp(i pi step n / half) for n < ``count``, by doubling."""
    found = np.ones(1, dtype=np.complex128)
    while len(found) < count:
        found = np.concatenate([found, found * _point(step * len(found), half)])
    return found[:count]


def _point(n: int, half: int) -> complex:
    """exp(i pi n / half) by Taylor's series in integers, each part rounded once."""
    n %= 2 * half
    angle, term, parts, degree = PI * n // half, 1 << BITS, [0, 0], 0
    while term:
        parts[degree % 2] += -term if degree % 4 > 1 else term
        degree += 1
        term = (term * angle >> BITS) // degree
    return complex(parts[0] / (1 << BITS), parts[1] / (1 << BITS))
