"""Importance samples: unbiased, bounded with confidence, and good at any delta."""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest
from scipy import stats

from noisedesign.privacy.amplification.convolution import even_deltas
from noisedesign.privacy.amplification.mixture import (
    ROUNDING,
    Multisets,
    Proposal,
    Sampled,
    coin_upper,
    log_geometric,
    mean_upper,
)
from tests.support import mixtures
from tests.support.oracles import Array

GRAM = np.array([[1.0, 0.4, 0.1], [0.4, 0.8, 0.3], [0.1, 0.3, 1.2]])
FAILURE = 1e-7


def drawn(
    gram: Array, epsilon: float, *, samples: int = 2**16, seed: int = 0
) -> tuple[Sampled, Sampled]:
    orders = Multisets(gram).orders(1.0)
    proposal = Proposal(gram, orders, remove_at=epsilon, add_at=epsilon)
    rng = np.random.default_rng(seed)
    return proposal.remove(samples, rng), proposal.add(samples, rng)


@pytest.mark.parametrize("scale", [0.05, 0.3, 1.0])
@pytest.mark.parametrize("epsilon", [0.3, 1.5])
def test_both_directions_against_quadrature(scale: float, epsilon: float) -> None:
    exact = mixtures.deltas(scale * GRAM, epsilon)
    for sampled, value in zip(drawn(scale * GRAM, epsilon), exact, strict=True):
        upper = sampled.upper(epsilon, FAILURE)
        assert value <= upper  # fails with probability 1e-7
        hits = sampled.mean(epsilon) * sampled.size
        assert sampled.estimate(epsilon) == pytest.approx(value, rel=8 / math.sqrt(hits))


@pytest.mark.parametrize(
    ("c", "bins", "epsilon", "delta"), [(1.0, 8, 4.0, 1e-8), (0.5, 8, 4.0, 1e-12)]
)
def test_any_delta_is_seen(c: float, bins: int, epsilon: float, delta: float) -> None:
    remove, _ = even_deltas(c, bins, epsilon)
    assert remove < delta
    sampled, _ = drawn(c * np.eye(bins), epsilon)
    assert sampled.estimate(epsilon) == pytest.approx(remove, rel=0.1)
    assert remove * (1 - 1e-3) <= sampled.upper(epsilon, FAILURE) <= 1.5 * remove


def test_variables_lie_in_the_unit_interval() -> None:
    for sampled in drawn(GRAM, 1.0, samples=4096):
        for epsilon in (0.0, 0.5, 1.0, 3.0):
            sign = 1 if sampled.remove else -1
            ratio, strike = np.exp(sampled.log_ratio), math.exp(epsilon)
            integrand = ratio - strike if sampled.remove else 1 - strike * ratio
            scale = np.exp(sampled.log_weight + sampled.log_constant - sampled.slope * epsilon)
            values = np.maximum(integrand, 0) / scale
            assert values.max() <= 1 + 1e-9, sign
            assert sampled.mean(epsilon) == pytest.approx(values.mean(), rel=1e-6)


@pytest.mark.parametrize("remove", [True, False])
def test_sums_of_samples_are_rounded_up(remove: bool) -> None:
    """Means and bounds in 40 digits, of a few samples, with half of the allowance to spare: it is
    for the logarithms, too."""
    rng = np.random.default_rng(9)
    with mpmath.workdps(40):
        spare = 1 + mpmath.mpf(ROUNDING) / 2
        for size in (1, 3, 50):
            logs, weights = rng.normal(0, 2, size), rng.uniform(1.0, 4.0, size)
            sampled = Sampled(logs, weights, 0.3, 1.2, 0.1, remove)
            for epsilon in (0.1, 0.7, 2.0):
                total, strike = mpmath.mpf(0), mpmath.exp(epsilon)
                for x, weight in zip(logs.tolist(), weights.tolist(), strict=True):
                    ratio = mpmath.exp(x)
                    excess = ratio - strike if remove else 1 - strike * ratio
                    over = mpmath.exp(weight + mpmath.mpf(0.1) - mpmath.mpf(1.2) * epsilon)
                    total += min(max(excess, 0) / over, 1)
                mean = sampled.mean(epsilon)
                assert min(total / size * spare, 1) <= mean
                bound = mpmath.mpf(coin_upper(mean, size, FAILURE))
                least = bound * mpmath.exp(mpmath.mpf(0.3) - mpmath.mpf(1.2) * epsilon)
                assert least * spare <= sampled.upper(epsilon, FAILURE) <= least * (1 + 1e-8)


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 5.0])
def test_what_cancels_in_the_bound_without_samples_is_allowed_for(epsilon: float) -> None:
    """E (1 - e^epsilon M)_+ of a lognormal M in 50 digits, however little is left; down to 1e-300,
    below which nothing is told."""
    with mpmath.workdps(50):
        for scale in (1e-12, 1e-6, 1e-2, 1.0):
            gram = scale * GRAM
            mean = -sum(map(mpmath.mpf, np.diagonal(gram).tolist())) / 6
            root = mpmath.sqrt(sum(map(mpmath.mpf, gram.ravel().tolist())) / 9)
            end = -(epsilon + mean) / root
            first = mpmath.ncdf(end)
            second = mpmath.exp(epsilon + mean + root**2 / 2) * mpmath.ncdf(end - root)
            found = log_geometric(gram, epsilon)
            if first > 1e-300:
                assert first - second + first * mpmath.mpf(ROUNDING) / 2 <= mpmath.exp(found)


def test_bounds_decrease_on_the_same_samples() -> None:
    for sampled in drawn(GRAM, 1.0, samples=4096):
        found = [sampled.upper(epsilon, FAILURE) for epsilon in np.linspace(0, 5, 60)]
        assert all(np.diff(found) <= 1e-12)


def test_the_bound_of_a_mean_is_that_of_coins() -> None:
    """Never below Clopper and Pearson's, which is exact for coins, and close to it."""
    for hits, samples in ((0, 50), (3, 1000), (500, 1000), (990, 1000), (1000, 1000)):
        values = np.zeros(samples)
        values[:hits] = 1
        exact = stats.binomtest(hits, samples, alternative="less").proportion_ci(1 - 1e-4).high
        found = mean_upper(values, 1e-4)
        assert exact * (1 - 1e-9) <= found <= min(exact * 1.4, 1)


def test_the_bound_of_a_mean_is_rounded_up() -> None:
    """Its divergence in 60 digits is what the failure asks for or more, with no tolerance, and one
    part in 1e6 below it is not."""
    rng = np.random.default_rng(6)
    means = [0.0, 1e-12, 1e-6, 1e-3, 0.1, 0.5, 0.9, 0.999, 1 - 1e-9, *rng.random(8)]
    means += (10.0 ** rng.uniform(-8, 0, 8)).tolist()
    cases = itertools.product(means, (50, 1000, 2**17), (0.5, 1e-6 / 402, 1e-30))
    with mpmath.workdps(60):

        def divergence(mean: float, q: float) -> mpmath.mpf:
            p, q = mpmath.mpf(mean), mpmath.mpf(q)
            first = p * mpmath.log(p / q) if mean > 0 else 0
            return first + (1 - p) * (mpmath.log1p(-p) - mpmath.log1p(-q))

        for mean, samples, failure in cases:
            found, wanted = coin_upper(mean, samples, failure), -mpmath.log(failure) / samples
            if found < 1:
                assert divergence(mean, found) >= wanted
            nearby = max(found - 1e-6 * (found - mean), mean)
            assert divergence(mean, nearby) < wanted


def test_the_bound_covers() -> None:
    rng = np.random.default_rng(4)
    means = rng.beta(0.05, 2.0, size=(4000, 200)).mean(axis=1)
    exact, failure = 0.05 / 2.05, 0.05
    missed = sum(coin_upper(float(mean), 200, failure) < exact for mean in means)
    assert missed <= stats.binom.isf(1e-9, 4000, failure)


@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_the_geometric_mean_bounds_add(epsilon: float) -> None:
    for scale in (0.02, 0.5):
        gram = scale * GRAM + 0.5
        _, add = mixtures.deltas(gram, epsilon)
        assert add <= math.exp(log_geometric(gram, epsilon))
        samples = np.random.default_rng(0).multivariate_normal(
            np.zeros(3), gram, size=100_000, method="cholesky"
        )
        geometric = np.exp((samples - np.diagonal(gram) / 2).mean(axis=1))
        value = np.maximum(1 - math.exp(epsilon) * geometric, 0)
        error = 6 * value.std() / math.sqrt(len(value))
        assert abs(value.mean() - math.exp(log_geometric(gram, epsilon))) <= error
