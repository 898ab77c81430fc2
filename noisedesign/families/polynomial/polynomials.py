"""Polynomials on [0, b] whose ranges are proved: of precisions, and of noise.

A polynomial of degree d is known on an interval from its values at N > d Chebyshev points: with
their mid-range c and half-range h, |p - c| <= h / cos(pi d / (2 N)) everywhere (Ehlich and Zeller,
1964). So no polynomial here is positive, or small, because a grid says so.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.polynomial import Chebyshev
from scipy.optimize import linprog

from noisedesign.base import settings
from noisedesign.base.checks import Array

POINTS_PER_DEGREE = 32
"""Points at which a range is proved, a degree: it is known to 1.3e-3 of its width."""

GRID_PER_DEGREE = 8
"""Points of a linear program, a degree."""

FLOOR = 1e-3
"""Weight of the uniform part of the measure that precisions are fitted in. It keeps them away from
0 where the spectrum seems to have nothing."""

SPREAD = 2e-2
"""The same, where polynomials of high degrees are near the square root: a few dozen points are not
the spectrum."""

NEWTON_STEPS = 100
"""At most, for a few coefficients: it takes about ten."""

LEAST = 1e-3
"""Of the largest value of p: noise takes products by the root of their ratio."""

ROOT_SLACK = 1e-4
"""By which a polynomial for noise may be larger than it must be, relative, squared."""


LOST = 3e-4
"""Of the mean of a root, to a polynomial below it."""

GRID_BELOW = 64
"""Points a degree at which that is below."""

FINE = 512
"""Points of a proof, a degree, where 5e-6 of the width of a range matter."""


def proved_range(p: Chebyshev, *, points: int = POINTS_PER_DEGREE) -> tuple[float, float]:
    """An interval that holds all values of ``p`` on its domain.

    Args:
        p: the polynomial.
        points: at which it is evaluated, a degree.
    """
    degree = max(p.degree(), 1)
    count = points * degree
    first, last = p.domain
    values = p(first + _points(count, last - first))
    low, high = float(values.min()), float(values.max())
    widened = (high - low) / 2 * (1 / math.cos(math.pi * degree / (2 * count)) - 1)
    rounding = 1e-14 * degree * float(np.abs(p.coef).sum())
    return low - widened - rounding, high + widened + rounding


def _points(count: int, top: float) -> Array:
    angles = (np.arange(count) + 0.5) * (math.pi / count)
    return np.asarray(top / 2 * (1 + np.cos(angles)))


def fitted(values: Array, points: Array, weights: Array, *, degree: int, top: float) -> Chebyshev:
    """The polynomial on [0, ``top``] of least weighted squares."""
    basis = np.polynomial.chebyshev.chebvander(2 * points / top - 1, degree)
    root = np.sqrt(weights)[:, None]
    coefficients = np.linalg.lstsq(basis * root, values * root[:, 0], rcond=None)[0]
    return Chebyshev(coefficients, domain=[0.0, top])


def precision(points: Array, gain: Array, price: Array, *, degree: int, top: float) -> Chebyshev:
    """A positive polynomial that nearly minimises the sum of gain / p(x) + price * p(x).

    With gain x w and price w in the spectrum of H, that is tr(H X^-1) + tr X of X = p(H); without a
    degree p is the square root.

    Args:
        points: x, in [0, ``top``].
        gain: what 1 / p counts for at each.
        price: what p counts for at each.
        degree: of p.
        top: end of the interval on which p is positive.

    Returns:
        p, with a proved positive minimum.
    """
    many = 40 * (degree + 1)
    even = _points(many, top)
    x = np.concatenate([points, even])
    seen = np.concatenate([gain, (even + top / (4 * degree + 4) ** 2) * FLOOR / many])
    w = np.concatenate([price, np.full(many, FLOOR / many)])
    basis = np.polynomial.chebyshev.chebvander(2 * x / top - 1, degree)

    def value(coefficients: Array) -> float:
        p = basis @ coefficients
        # Where nothing counts for 1 / p, p goes to 0, and its cube is not to vanish.
        return float(seen @ (1 / p) + w @ p) if p.min() > settings.EPS**4 * p.max() else math.inf

    found = np.zeros(degree + 1)
    found[0] = math.sqrt(float(seen.sum()) / float(w.sum()))
    current = value(found)
    for _ in range(NEWTON_STEPS):
        p = basis @ found
        gradient = basis.T @ (w - seen / p**2)
        hessian = (basis.T * (2 * seen / p**3)) @ basis
        step = np.linalg.lstsq(hessian, -gradient, rcond=None)[0]
        if -(gradient @ step) <= 1e-13 * current:
            break
        length = 1.0
        while value(found + length * step) > current + 0.25 * length * (gradient @ step):
            length /= 2
            if length < 1e-12:
                break
        if length < 1e-12:
            break
        found = found + length * step
        current = value(found)
    result = Chebyshev(found, domain=[0.0, top])
    low, high = proved_range(result)
    if low < LEAST * high:  # near 0, where the spectrum seems to have nothing
        result = result + (LEAST * high - low)
    return result


def inverse_root(p: Chebyshev, *, slack: float = ROOT_SLACK) -> Chebyshev:
    """A polynomial r with r > 0 and r^2 >= 1 / p on the domain of ``p``, and hardly more."""
    degree = 4 * (p.degree() + 1)
    while True:
        r = Chebyshev.interpolate(lambda x: p(x) ** -0.5, degree, domain=p.domain)
        low, high = proved_range(r * r * p)
        if low > 0 and high / low - 1 < slack:
            return r / math.sqrt(low)
        degree += max(4, degree // 3)


def quarter_below(
    k: Chebyshev, points: Array, weights: Array, *, degree: int, lost: float = LOST
) -> Chebyshev | None:
    """A polynomial s with s^4 <= k on [0, 1] and a mean of s^2 that is nearly that of the root of
    k, by a linear program; None where that takes a higher degree.

    Args:
        k: a polynomial, positive and least at 0.
        points: where the mean is taken.
        weights: of each, positive.
        degree: of s, at most.
        lost: of the mean, relative.
    """
    least = float(k(0.0))
    mean = float(weights @ np.sqrt(k(points)))
    for tried in range(2, degree + 1):
        grid = _points(GRID_BELOW * tried, 1.0)
        basis, seen = (np.polynomial.chebyshev.chebvander(2 * x - 1, tried) for x in (grid, points))
        found = linprog(
            -((weights * k(points) ** 0.25) @ seen),
            A_ub=np.concatenate([basis, -basis]),
            b_ub=np.concatenate([k(grid) ** 0.25, np.zeros(len(grid))]),
            bounds=(None, None),
        )
        if found.x is None:
            continue
        s: Chebyshev = Chebyshev(found.x, domain=[0.0, 1.0])
        above = max(proved_range(s**4 - k, points=FINE)[1], 0.0) / least
        s = s / (1 + above) ** 0.25
        if weights @ s(points) ** 2 >= (1 - lost) * mean:
            return s
    return None


def root(points: Array, weights: Array, *, degree: int, top: float) -> Chebyshev:
    """A polynomial near sqrt(x), of least squares in a measure on [0, ``top``] and uniformly."""
    grid = _points(GRID_PER_DEGREE * degree, top)
    x = np.concatenate([points, grid])
    even = np.full(len(grid), SPREAD / len(grid))
    w = np.concatenate([weights / weights.sum(), even])
    return fitted(np.sqrt(x), x, w, degree=degree, top=top)
