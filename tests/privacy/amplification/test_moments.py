"""Moments of the likelihood ratio: by enumeration, by hand, and as bounds of what is integrated."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from noisedesign.privacy.amplification.mixture import (
    ORDERS,
    Multisets,
    even_orders,
    log_kappa,
    renyi_remove,
    sizes_for,
    tuples_of,
)
from tests.support import mixtures

GRAM = np.array([[1.0, 0.4, 0.1], [0.4, 0.8, 0.3], [0.1, 0.3, 1.2]])


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("theta", [1.0, 1.7])
def test_multisets_sum_up_to_all_tuples(size: int, theta: float) -> None:
    total = 0.0
    for chosen in itertools.product(range(3), repeat=size):
        pairs = sum(GRAM[i, j] for i in chosen for j in chosen)
        singles = sum(GRAM[i, i] for i in chosen)
        total += math.exp(theta**2 / 2 * pairs - theta / 2 * singles) / 3**size
    terms = np.exp(tuples_of(GRAM, size).log_terms(theta))
    assert terms.sum() == pytest.approx(total, rel=1e-12)
    assert len(terms) == math.comb(3 + size - 1, size)


def test_the_second_moment_by_hand() -> None:
    """E L^2 is the mean of e^(G_ij) over all pairs."""
    exact = math.log(np.exp(GRAM).mean())
    found = [order for order, _, theta in Multisets(GRAM).orders(1.0) if order.alpha == 2]
    assert min(order.log_moment for order in found) == pytest.approx(exact, rel=1e-9)
    assert min(order.log_moment for order in found) >= exact


@pytest.mark.parametrize(("bins", "common"), [(1, 0.0), (3, 0.0), (4, 0.2)])
def test_series_and_multisets_agree(bins: int, common: float) -> None:
    c = 0.7
    orders = even_orders(c, bins, common=common)
    assert [order.alpha for order in orders] == ORDERS.tolist()
    for order in orders[:5]:
        size = int(order.alpha)
        terms = tuples_of(c * np.eye(bins) + common, size).log_terms(1.0)
        exact = math.log(np.exp(terms).sum())
        assert exact <= order.log_moment <= exact + 1e-8


def test_one_bin_has_the_moments_of_a_normal() -> None:
    for order in even_orders(0.3, 1):  # Mironov 2017: alpha (alpha - 1) mu^2 / 2
        assert order.log_moment == pytest.approx(order.alpha * (order.alpha - 1) * 0.15, rel=1e-8)


@pytest.mark.parametrize("alpha", [1.2, 2.0, 7.5, 30.0])
def test_kappa_is_the_least_constant(alpha: float) -> None:
    grid = np.exp(np.linspace(-3, 8, 200_001))
    ratio = np.maximum(grid - 1, 0) / np.exp(np.minimum(alpha * np.log(grid), 700))
    assert ratio.max() == pytest.approx(math.exp(log_kappa(alpha)), rel=1e-3)
    assert ratio.max() <= math.exp(log_kappa(alpha)) * (1 + 1e-12)


@pytest.mark.parametrize("factor", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("epsilon", [0.3, 1.5, 4.0])
def test_it_bounds_the_integral(factor: float, epsilon: float) -> None:
    exact, _ = mixtures.deltas(factor * GRAM, epsilon)
    orders = [order for order, _, _ in Multisets(GRAM).orders(factor)]
    bound = renyi_remove(orders, epsilon)
    assert exact <= bound
    if exact > 1e-9:  # a moment loses a factor, not orders of magnitude
        assert bound <= 60 * exact


def test_large_signals_do_not_overflow() -> None:
    orders = [order for order, _, _ in Multisets(GRAM).orders(1e5)]
    assert all(np.isfinite(order.log_moment) for order in orders + even_orders(1e5, 64))
    assert renyi_remove(orders, 1e6) < 1e-300


@pytest.mark.parametrize("bins", [2, 16, 64, 5000])
def test_multisets_are_few(bins: int) -> None:
    sizes = sizes_for(bins)
    assert sizes[0] == 1
    assert all(math.comb(bins + size - 1, size) <= 60_000 for size in sizes)
