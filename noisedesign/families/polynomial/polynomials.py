"""Polynomials on [0, b] whose ranges are bounded: of precisions, and of noise.

A polynomial of degree d is known on an interval from its values at N > d Chebyshev points: with
their mid-range c and half-range h, |p - c| <= h / cos(pi d / (2 N)) everywhere (Ehlich and Zeller,
1964). So no polynomial here is positive, or small, because a grid says so."""

from __future__ import annotations

import math

import numpy as np
from numpy.polynomial import Chebyshev
from scipy.optimize import linprog

from noisedesign.base import settings
from noisedesign.base.checks import Array

LOST = 3e-4  # share of the mean of a root that a polynomial below it may lose


def proved_range(p: Chebyshev, *, points: int = 32) -> tuple[float, float]:
    """An interval that holds all values of ``p``: 32 points a degree tell it to 1.3e-3."""
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


def precision(points: Array, gain: Array, prices: Array, *, top: float) -> Chebyshev:
    """A polynomial, positive by a bound, that nearly minimises the sum of gain / p at points, and
    of its coefficients times ``prices``, as many as there are."""
    degree = len(prices) - 1
    # A uniform part of the measure keeps p away from 0 where the spectrum seems to have nothing.
    many, floor = 40 * (degree + 1), 1e-3
    even = _points(many, top)
    x = np.concatenate([points, even])
    seen = np.concatenate([gain, (even + top / (4 * degree + 4) ** 2) * floor / many])
    basis = np.polynomial.chebyshev.chebvander(2 * x / top - 1, degree)
    w = prices + floor * basis[len(points) :].mean(axis=0)

    def value(coefficients: Array) -> float:
        p = basis @ coefficients
        # Where nothing counts for 1 / p, p goes to 0, and its cube is not to vanish.
        if p.min() <= settings.EPS**4 * p.max():
            return math.inf
        return float(seen @ (1 / p) + w @ coefficients)

    found = np.zeros(degree + 1)
    found[0] = math.sqrt(float(seen.sum()) / float(w[0]))
    current = value(found)
    for _ in range(100):  # it takes about ten
        p = basis @ found
        gradient = w - basis.T @ (seen / p**2)
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
    if low < 1e-3 * high:  # noise takes products by the root of their ratio
        result = result + (1e-3 * high - low)
    return result


def inverse_root(p: Chebyshev, *, slack: float = 1e-4) -> Chebyshev:
    """A polynomial r > 0 with 1 <= r^2 p <= 1 + ``slack`` on the domain of ``p``."""
    degree = 4 * (p.degree() + 1)
    while True:
        r = Chebyshev.interpolate(lambda x: p(x) ** -0.5, degree, domain=p.domain)
        low, high = proved_range(r * r * p)
        if low > 0 and high / low - 1 < slack:
            return r / math.sqrt(low)
        degree += max(4, degree // 3)


def fourth_root_below(
    k: Chebyshev, points: Array, weights: Array, *, degree: int
) -> Chebyshev | None:
    """A polynomial s with s^4 <= k on [0, 1], k positive and least at 0, and a mean of s^2 over
    weighted points that is nearly that of the root of k; None where that takes more than
    ``degree``."""
    least = float(k(0.0))
    mean = float(weights @ np.sqrt(k(points)))
    for tried in range(2, degree + 1):
        grid = _points(64 * tried, 1.0)
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
        above = max(proved_range(s**4 - k, points=512)[1], 0.0) / least
        s = s / (1 + above) ** 0.25
        if weights @ s(points) ** 2 >= (1 - LOST) * mean:
            return s
    return None


def root(points: Array, weights: Array, *, degree: int, top: float) -> Chebyshev:
    """A polynomial near sqrt(x), of least squares in a measure on [0, ``top``] and uniformly."""
    grid = _points(8 * degree, top)
    x = np.concatenate([points, grid])
    even = np.full(len(grid), 2e-2 / len(grid))  # a few dozen points are not the spectrum
    rows = np.sqrt(np.concatenate([weights / weights.sum(), even]))
    basis = np.polynomial.chebyshev.chebvander(2 * x / top - 1, degree)
    found = np.linalg.lstsq(basis * rows[:, None], np.sqrt(x) * rows, rcond=None)[0]
    return Chebyshev(found, domain=[0.0, top])
