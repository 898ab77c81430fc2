"""The bound on all linear mechanisms, against quadrature and closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.optimize
import scipy.stats

import noisedesign as nd
from noisedesign.families.amplified.bound import (
    Region,
    best_region,
    largest_alone,
    largest_price,
    leveled,
    relief,
)
from tests.support.oracles import Array
from tests.support.random_oracles import two_bin_deltas


def target(epsilon: float, delta: float, adjacency: str = "zero-out") -> nd.PrivacyTarget:
    return nd.PrivacyTarget(epsilon=epsilon, delta=delta, adjacency=adjacency)


def bins(count: int) -> nd.participation.BallsInBins:
    return nd.participation.BallsInBins(epochs=3, separation=count)


def largest_scale(direction: Array, *, epsilon: float, delta: float) -> float:
    """The largest f for which two orthogonal bins of squared sensitivities f ``direction`` keep
    ``remove`` within delta; by quadrature."""

    def excess(log: float) -> float:
        strategy = np.diag(np.sqrt(math.exp(log) * direction))
        return two_bin_deltas(strategy, noise=1.0, epsilon=epsilon)[0] - delta

    return math.exp(scipy.optimize.brentq(excess, -12, 6, xtol=1e-6))


@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-6), (2.0, 1e-4), (8.0, 1e-10)])
def test_one_bin_gains_nothing(epsilon: float, delta: float, replaced: bool) -> None:
    """The worst of one bin is a Gaussian mechanism, for which there is an exact conversion."""
    region = best_region(1, epsilon=epsilon, delta=delta, replaced=replaced)
    assert region is not None
    allowed = (nd.privacy.mu_of(epsilon=epsilon, delta=delta) / (2 if replaced else 1)) ** 2
    found = largest_price(np.array([5.0]), region, delta=delta)
    assert 1 - 1e-8 <= found / (5 * allowed) < 1.001


@pytest.mark.parametrize(("epsilon", "delta"), [(2.0, 1e-4), (4.0, 1e-6), (8.0, 1e-10)])
def test_relief_of_two_even_bins_is_that_of_the_even_point(epsilon: float, delta: float) -> None:
    """No separable bound could be smaller: two bins of squared sensitivity c are private."""
    c = largest_scale(np.ones(2), epsilon=epsilon, delta=delta)
    exact = c / nd.privacy.mu_of(epsilon=epsilon, delta=delta) ** 2
    found = relief(np.ones(2), participation=bins(2), target=target(epsilon, delta))
    assert exact <= found < 1.003 * exact


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [
        *(pytest.param(*one, marks=pytest.mark.slow) for one in [(0.5, 1e-6), (2.0, 1e-4)]),
        (6.0, 1e-8),
    ],
)
def test_no_private_pair_of_bins_is_worth_more(epsilon: float, delta: float) -> None:
    mu = nd.privacy.mu_of(epsilon=epsilon, delta=delta)
    shares = np.array([0.02, 0.2, 0.4, 0.5])
    directions = np.column_stack([shares, 1 - shares])
    allowed = [largest_scale(d, epsilon=epsilon, delta=delta) * d for d in directions]
    for prices in np.exp(np.random.default_rng(0).normal(scale=0.7, size=(3, 2))):
        found = relief(prices, participation=bins(2), target=target(epsilon, delta))
        assert np.max([allowed @ prices, allowed @ prices[::-1]]) <= found * mu**2 * prices.sum()


@pytest.mark.parametrize(
    ("epsilon", "delta", "replaced"), [(0.5, 1e-6, False), (2.0, 1e-4, True), (2.0, 1e-2, False)]
)
def test_no_two_bins_that_a_region_allows_are_worth_more(
    epsilon: float, delta: float, replaced: bool
) -> None:
    """Of all pairs on a fine grid: what bins add to delta is negative where they have little, which
    leaves the more to others. However uneven prices are."""
    region = best_region(2, epsilon=epsilon, delta=delta, replaced=replaced)
    assert region is not None
    assert region.chi(0.0) < 0
    s = np.linspace(0.0, largest_alone(2, epsilon=epsilon, delta=delta), 100)
    chi = np.array([region.chi(value) for value in s])
    allowed = np.add.outer(chi, chi) <= 2 * delta
    assert allowed.any(axis=1).mean() > 0.5
    for prices in ([1.0, 0.0], [1.0, 1e-3], [1.0, 1.0]):
        worth = np.add.outer(prices[0] * s, prices[1] * s)[allowed].max()
        assert worth <= largest_price(np.array(prices), region, delta=delta)


def test_probability_of_a_region_by_sampling() -> None:
    """Its cells are those of the lognormals themselves, five standard errors."""
    region = Region(bins=3, epsilon=0.5, gram=0.8, log_level=0.5, replaced=False, cells=64)
    rng = np.random.default_rng(1)
    y = rng.standard_normal((400_000, 3))
    y[:, 1] += 1.3
    cell = 3 * math.exp(0.5) / 64.5
    rounded = np.ceil(np.exp(math.sqrt(0.8) * y - 0.4) / cell - 0.5)
    inside = rounded.sum(axis=1) > 64
    assert abs(inside.mean() - region.chance(1.3)) < 5 * inside.std() / math.sqrt(len(y))


def test_terms_of_bins_increase() -> None:
    """On which the grid of the bound rests."""
    for replaced in (False, True):
        region = Region(bins=7, epsilon=1.0, gram=1.1, log_level=1.0, replaced=replaced, cells=128)
        terms = [region.chi(s) for s in np.linspace(0, 20, 50)]
        assert (np.diff(terms) > 0).all()


def test_delta_that_shows_a_bin_proves_nothing() -> None:
    """One bin in a hundred may be seen without noise where delta = .02."""
    assert relief(np.ones(100), participation=bins(100), target=target(1.0, 0.02)) == math.inf
    found = relief(np.ones(100), participation=bins(100), target=target(1.0, 0.009))
    assert found < math.inf


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-6), (2.0, 1e-4)])
def test_most_of_one_bin_of_two(epsilon: float, delta: float) -> None:
    """By quadrature, which leaves the other bin next to nothing."""
    alone = largest_alone(2, epsilon=epsilon, delta=delta)
    near = largest_scale(np.array([1.0, 1e-4]), epsilon=epsilon, delta=delta)
    assert 0.99 * alone < near <= alone


def test_relief_grows_with_the_bins() -> None:
    found = [
        relief(np.ones(b), participation=bins(b), target=target(2.0, 1e-4)) for b in (2, 4, 16)
    ]
    assert (np.diff(found) > 0).all()


def test_leveled_blocks_have_even_prices() -> None:
    rng = np.random.default_rng(2)
    factor = rng.standard_normal((4, 3, 3))
    factor /= np.linalg.norm(factor, axis=2, keepdims=True)
    blocks = factor @ factor.transpose(0, 2, 1) * np.array([1.0, 3.0, 0.0, 0.2])[:, None, None]
    found = leveled(blocks)
    diagonals = np.einsum("jii->ji", found)
    assert diagonals[[0, 1, 3]] == pytest.approx(np.ones((3, 3)))
    assert not found[2].any()
