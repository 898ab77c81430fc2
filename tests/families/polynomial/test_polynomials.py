"""Ranges that are proved, against fine grids and closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.polynomial import Chebyshev

from noisedesign.base.checks import Array
from noisedesign.families.polynomial import polynomials

TOP = 0.8
FINE = np.concatenate([np.linspace(0, TOP, 40_001), TOP * np.logspace(-12, 0, 2001)])


@pytest.mark.parametrize("degree", [0, 1, 2, 7, 40])
def test_a_proved_range_holds_every_value(degree: int) -> None:
    for seed in range(20):
        coefficients = np.random.default_rng(seed).standard_normal(degree + 1)
        p = Chebyshev(coefficients, domain=[0.0, TOP])
        low, high = polynomials.proved_range(p)
        values = p(FINE)
        assert low <= values.min()
        assert values.max() <= high
        width = values.max() - values.min()
        assert high - low <= 1.003 * width + 1e-9


def test_the_range_of_a_chebyshev_polynomial_is_proved_between_its_samples() -> None:
    # T_32 is +-1 at its extrema, and no sampled point is one of them.
    low, high = polynomials.proved_range(Chebyshev.basis(32), points=2)
    assert low <= -1
    assert high >= 1


def prices(points: Array, weights: Array, *, degree: int) -> Array:
    """Of the coefficients of p, whose values at these points have these prices."""
    angles = np.arccos(2 * points / TOP - 1)
    return np.asarray(np.cos(np.outer(np.arange(degree + 1), angles)) @ weights)


def test_a_precision_of_one_eigenvalue_is_its_root() -> None:
    """Where all of a spectrum is one point x, x / p + p is least for p(x) = sqrt(x)."""
    x = np.array([0.25])
    p = polynomials.precision(x, x, prices(x, np.ones(1), degree=4), top=TOP)
    assert float(p(0.25)) == pytest.approx(0.5, abs=5e-3)


@pytest.mark.parametrize("degree", [1, 2, 4, 8, 12])
def test_a_precision_is_positive_and_better_with_its_degree(degree: int) -> None:
    x = TOP * np.linspace(0.0005, 0.9995, 1000)

    def value(of: int) -> float:
        p = polynomials.precision(x, x / 1000, prices(x, np.full(1000, 1e-3), degree=of), top=TOP)
        assert polynomials.proved_range(p)[0] > 0
        assert p(FINE).min() > 0
        return float(np.mean(p(x)) * np.mean(x / p(x))) / float(np.mean(np.sqrt(x))) ** 2

    assert 1 <= value(degree + 1) < value(degree) < 1.2


def test_noise_is_at_least_what_the_precision_asks_for() -> None:
    x = TOP * np.linspace(0.0005, 0.9995, 1000)
    p = polynomials.precision(x, x / 1000, prices(x, np.full(1000, 1e-3), degree=6), top=TOP)
    r = polynomials.inverse_root(p)
    product = r(FINE) ** 2 * p(FINE)
    assert product.min() >= 1 - 1e-12
    assert product.max() <= 1 + 3e-4


def test_a_precision_follows_what_it_is_paid_for_at_every_point() -> None:
    """Degree 1 and two points: 1 / p counts for g, p for c, each alone: p = sqrt(g / c) at both."""
    x, gain, price = np.array([0.1, 0.7]), np.array([0.2, 1.8]), np.array([0.8, 0.45])
    p = polynomials.precision(x, gain, prices(x, price, degree=1), top=TOP)
    np.testing.assert_allclose(p(x), [0.5, 2.0], rtol=5e-3)


@pytest.mark.parametrize("steps", [12, 32])
def test_a_root_from_below_is_below_and_hardly(steps: int) -> None:
    """k of all iterates: the sum of (T - t) x^t."""
    powers = np.polynomial.Polynomial(np.arange(float(steps), 0.0, -1.0))
    k = Chebyshev.interpolate(powers, steps - 1, domain=[0.0, 1.0])
    points, weights = np.linspace(0.01, 0.8, 30), np.linspace(1.0, 0.1, 30)
    s = polynomials.fourth_root_below(k, points, weights, degree=6)
    assert s is not None
    x = FINE / TOP
    assert np.all(s(x) ** 4 <= powers(x) * (1 + 1e-13))
    seen = weights @ s(points) ** 2 / (weights @ np.sqrt(powers(points)))
    assert 1 - polynomials.LOST <= seen <= 1
    assert polynomials.fourth_root_below(k, points, weights, degree=1) is None
