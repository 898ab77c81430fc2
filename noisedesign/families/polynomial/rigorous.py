"""Budgets of polynomial noise, proved with every rounding accounted for, of any number of nodes.

R^-1 is at most D^(-1/2) p(B) D^(-1/2) / c, c the least r^2 p on [0, b], if b is above all
eigenvalues of B; docs/methods/large-graphs.md says how all three are proved."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.polynomial.chebyshev import chebmul

from noisedesign.base.checks import Array
from noisedesign.base.enclosures import EPS, TINY, U, up
from noisedesign.base.workers import in_threads
from noisedesign.certify.rigorous import NotProvedError
from noisedesign.families.polynomial.bound import POWER_STEPS
from noisedesign.families.polynomial.operator import Weighted, power_steps, squares
from noisedesign.families.polynomial.reach import Piece
from noisedesign.forms import PolynomialCovariance

MOST_DEGREE = 600  # degree of r^2 p that is covered; that of noise of a solve is below 150


def squared_sensitivity(noise: PolynomialCovariance, budget: Array) -> float:
    """Bound the largest [R^-1]_ii over its budget, all numbers taken for what they are."""
    given = noise.mixing.data, noise.weights, noise.scale, np.array([noise.bound])
    if not all(np.isfinite(array).all() and (array >= 0).all() for array in given):
        raise NotProvedError("it has entries that are negative or not finite")
    operator = Weighted(mixing=noise.mixing, weights=noise.weights, bound=noise.bound)
    if len(noise.precision) + 2 * len(noise.noise) - 3 > MOST_DEGREE:
        raise NotProvedError(f"polynomials of more than degree {MOST_DEGREE} are not covered")
    if not _within(operator):
        raise NotProvedError("eigenvalues of B are not proved to be within what the noise says")
    p, r = (
        np.array([Fraction(float(c)) for c in coefficients], object)
        for coefficients in (noise.precision, noise.noise)
    )
    slack = least(list(chebmul(chebmul(r, r), p)))  # exactly, in fractions
    if not slack > 0:
        raise NotProvedError("the variance is not proved to be positive at every eigenvalue")
    above = diagonal_above(operator, noise.precision)
    with np.errstate(over="ignore", divide="ignore"):
        ratios = up(above / (noise.scale * budget), 2) / slack
    return float(up(ratios.max(), 1)) if np.isfinite(ratios).all() else math.inf


def _longest(array: Any) -> int:
    return int(np.diff(array.indptr).max(initial=0))


def _within(operator: Weighted) -> bool:
    """Whether b is above every eigenvalue of B: (B x)_i <= b x_i for some x > 0 proves it."""
    roundings = _longest(operator.factor) + _longest(operator.transposed) + 8
    for x, image in power_steps(operator.squared, len(operator.weights), steps=POWER_STEPS):
        if (x > TINY).all() and (up(image, roundings) <= operator.top * x * (1 - EPS)).all():
            return True
    return False


def least(series: list[Fraction]) -> float:
    """Bound a Chebyshev series on [-1, 1] from below, rounded down: the nearest point of a grid is
    off by at most half its squared distance times a bound on the second derivative."""
    constant, a = series[0], np.array([float(c) for c in series[1:]])
    degree = len(a)
    if not degree:
        return math.nextafter(float(constant), -math.inf)
    points = 512 * degree
    x = np.cos((np.arange(points) + 0.5) * (math.pi / points))
    sizes = np.abs(a)
    error, seen = float(sizes.sum()) * EPS, np.zeros((2, points))
    largest = np.zeros(2)
    for k in range(degree, 0, -1):  # Clenshaw, by what every step may be off by
        following = 2 * x * seen[0] - seen[1] + a[k - 1]
        error += (k + 1) * 4 * EPS * float(2 * largest[0] + largest[1] + sizes[k - 1])
        seen = np.stack([following, seen[0]])
        largest = np.abs(seen).max(axis=1)
    values = x * seen[0] - seen[1]
    error += 4 * EPS * float(largest.sum()) + TINY
    curvature = float(np.arange(1, degree + 1) ** 2 @ sizes)
    apart = math.pi / (2 * points) + 1e-7  # more than the angle of a cosine is off by
    error += curvature * apart**2 / 2
    below = Fraction(float(values.min())) - Fraction(error * (1 + degree * 8 * EPS))
    return math.nextafter(float(constant + below), -math.inf)


def diagonal_above(operator: Weighted, coefficients: Array) -> Array:
    """The diagonal of p(B), rounded up, if A / sqrt(b) has a norm of at most 1; shape (n,)."""
    degree = len(coefficients) - 1
    longest = max(_longest(operator.factor), _longest(operator.transposed))
    once = (longest + 12) * U * (1 + 1e-9)  # of a product, A itself being off by five roundings
    made = [once]
    off = [0.0]  # of T_j e_i, by its length
    for j in range(1, degree + 1):
        off.append(sum((j - i) * made[i] for i in range(j)) * (1 + 1e-12))
        made.append(once * (2 * (1 + off[j]) + 1 + off[j - 1]))
    sizes = np.abs(coefficients)

    around = operator.around(degree)

    def found(run: slice) -> Array:
        return np.concatenate([above(piece) for piece in around.pieces(run)])

    def above(piece: Piece) -> Array:
        m = piece.nodes.stop - piece.nodes.start
        total = np.full(m, coefficients[0])
        error = np.full(m, sizes[0] * (degree + 4) * EPS)
        for j, block in enumerate(operator.walk(piece, degree), start=1):
            lengths = squares(block)
            # Lengths are sums over the entries of sparse rows, or of columns of an array.
            terms = len(block) if isinstance(block, np.ndarray) else np.diff(block.indptr)
            rounded = lengths * (terms + 2) * U
            wrong = 2 * (2 * (1 + off[j]) * off[j] + rounded) + 4 * U
            total += coefficients[j] * (2 * lengths - 1)
            error += sizes[j] * (wrong + (degree + 4) * EPS)
        return np.asarray(total + error * (1 + 1e-9))

    return np.concatenate(list(in_threads(found, around.runs)))
