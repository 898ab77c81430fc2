"""Epsilon, delta and noise under random participation: closed forms, other packages, audits."""

from __future__ import annotations

import itertools
import math
from functools import cache

import numpy as np
import pytest
from scipy import optimize, stats

import noisedesign as nd
from noisedesign.base.checks import InputError
from noisedesign.privacy.amplification import (
    Amplified,
    Mixture,
    amplified_delta,
    amplified_epsilon,
    amplified_noise,
    bins_of,
)
from noisedesign.privacy.target import ADJACENCIES
from tests.support import mixtures
from tests.support.oracles import Array

CORRELATED = np.array([[1.0, 0.4, 0.1], [0.4, 0.8, 0.3], [0.1, 0.3, 1.2]])
FLORENTINE = {"epsilon": 2.0, "delta": 1e-4}
"""With b = 16 bins of k = 20 epochs: the setting that documents measure."""


def banded(epochs: int, separation: int, bands: int) -> Mixture:
    horizon = epochs * separation
    strategy = sum(np.diag([0.9**j] * (horizon - j), -j) for j in range(bands))
    return bins_of(strategy, nd.participation.BallsInBins(epochs=epochs, separation=separation))


def epsilon_by_quadrature(gram: Array, delta: float) -> tuple[float, float]:
    return tuple(  # type: ignore[return-value]
        optimize.brentq(lambda e, way=way: mixtures.deltas(gram, e)[way] - delta, 0, 20)
        for way in (0, 1)
    )


@cache
def correlated_truth() -> tuple[float, float]:
    """Of three correlated bins, at delta 1e-4."""
    return epsilon_by_quadrature(CORRELATED, 1e-4)


@pytest.mark.parametrize("gram", [0.5 * np.eye(2), 2.0 * np.eye(2), np.array([[1, 0.5], [0.5, 1]])])
@pytest.mark.parametrize("delta", [1e-2, 1e-5])
def test_two_bins_by_quadrature(gram: Array, delta: float) -> None:
    remove, add = epsilon_by_quadrature(gram, delta)
    found = amplified_epsilon(Mixture(gram=gram), delta=delta, adjacency="zero-out")
    assert remove * (1 - 1e-9) <= found.remove <= remove * 1.02
    assert add * (1 - 1e-9) <= found.add <= add * 1.02
    assert found.epsilon == max(found.remove, found.add)


@pytest.mark.parametrize("method", ["auto", "proved", "monte-carlo"])
def test_three_correlated_bins_by_quadrature(method: str) -> None:
    remove, add = correlated_truth()
    found = amplified_epsilon(
        Mixture(gram=CORRELATED), delta=1e-4, adjacency="zero-out", method=method
    )
    slack = {"auto": 1.02, "proved": 1.2, "monte-carlo": 1.02}[method]
    assert remove <= found.remove <= remove * slack
    assert add <= found.add <= add * slack
    if method == "proved":
        assert (found.confidence, found.epsilon_estimate) == (None, None)
    else:
        assert found.confidence == pytest.approx(1 - 1e-6)
        assert found.which == "monte-carlo"
        assert found.epsilon_estimate == pytest.approx(max(remove, add), rel=0.01)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("gram", [0.2, 5.0])
def test_one_bin_is_no_secret(adjacency: str, gram: float) -> None:
    found = amplified_epsilon(Mixture(gram=[[gram]]), delta=1e-6, adjacency=adjacency)
    steps = 2 if adjacency == "replace" else 1
    assert found.epsilon == nd.privacy.epsilon_of(mu=steps * math.sqrt(gram), delta=1e-6)
    assert found.which == "unamplified"
    goal = {"epsilon": 1.5, "delta": 1e-6}
    noise, _ = amplified_noise(Mixture(gram=[[gram]]), adjacency=adjacency, **goal)
    assert noise == pytest.approx(steps * math.sqrt(gram) / nd.privacy.mu_of(**goal), rel=1e-5)


def test_nothing_released_is_nothing_lost() -> None:
    found = amplified_epsilon(Mixture(gram=np.zeros((3, 3))), delta=1e-6)
    assert found.epsilon == 0
    with pytest.raises(InputError, match=r"gram: expected a nonzero matrix"):
        amplified_noise(Mixture(gram=np.zeros((3, 3))), epsilon=1.0, delta=1e-6)


def test_a_large_delta_is_enough_alone() -> None:
    assert amplified_epsilon(Mixture(gram=0.01 * np.eye(4)), delta=0.3).epsilon == 0


@pytest.mark.parametrize(
    ("noise", "bins", "delta", "low", "high"),
    [
        (1.0, 16, 1e-5, 1.78668, 1.79474),
        (0.5, 16, 1e-4, 6.10414, 6.11383),
        (2.0, 10, 1e-6, 0.72674, 0.73320),
        (1.0, 100, 1e-6, 0.85609, 0.86395),
    ],
)
def test_random_allocation_of_another_package(
    noise: float, bins: int, delta: float, low: float, high: float
) -> None:
    """One step of b at random, add and remove, enclosed by privacy loss distributions.

    PLD_accounting 2.0, gaussian_allocation_epsilon_range
    with num_steps = b and epsilon_accuracy=1e-2.
    """
    found = amplified_epsilon(
        Mixture(gram=np.eye(bins)), delta=delta, noise_multiplier=noise, adjacency="add-remove"
    )
    assert low <= found.epsilon <= high


@pytest.mark.slow
def test_hundreds_of_bins_take_seconds() -> None:
    """Fewer samples, and bounds that need none where they see too little."""
    bins = 400
    gram = 0.2 * np.eye(bins) + 0.02 * np.exp(-np.abs(np.subtract.outer(range(bins), range(bins))))
    found = amplified_epsilon(Mixture(gram=gram), delta=1e-5, adjacency="zero-out")
    plain = nd.privacy.epsilon_of(mu=math.sqrt(gram.max()), delta=1e-5)
    even = amplified_epsilon(Mixture(gram=0.22 * np.eye(bins)), delta=1e-5, adjacency="zero-out")
    assert 0.9 * even.epsilon <= found.epsilon <= 0.6 * plain


def test_florentine_needs_a_quarter_of_the_variance() -> None:
    mixture = Mixture(gram=20 * np.eye(16))
    fixed = math.sqrt(20) / nd.privacy.mu_of(**FLORENTINE)
    noise, found = amplified_noise(mixture, adjacency="zero-out", **FLORENTINE)
    # Monte Carlo of 1e7 samples, remove: .2396 +- .0005, add below 1e-9 there.
    assert noise**2 / fixed**2 == pytest.approx(0.2396, abs=0.001)
    assert found.which == "convolution"
    assert found.confidence is None
    assert found.epsilon <= 2
    assert found.add < found.remove
    replaced, _ = amplified_noise(mixture, **FLORENTINE)
    assert noise < replaced < 2 * noise
    less = amplified_epsilon(
        mixture, delta=1e-4, noise_multiplier=0.999 * noise, adjacency="zero-out"
    )
    assert less.epsilon > 2


@pytest.mark.parametrize("adjacency", ["zero-out", pytest.param("replace", marks=pytest.mark.slow)])
def test_noise_of_correlated_bins_meets_its_target(adjacency: str) -> None:
    mixture = banded(4, 8, 3)
    noise, found = amplified_noise(mixture, adjacency=adjacency, **FLORENTINE)
    assert found.epsilon <= 2
    assert found.confidence == pytest.approx(1 - 1e-6)
    # Other samples agree, and a little less noise is too little by far more than their error.
    again = amplified_epsilon(
        mixture, delta=1e-4, noise_multiplier=noise, adjacency=adjacency, seed=5
    )
    assert again.epsilon == pytest.approx(2, rel=0.02)
    less = amplified_epsilon(
        mixture, delta=1e-4, noise_multiplier=0.95 * noise, adjacency=adjacency, method="auto"
    )
    assert less.epsilon_estimate is not None
    assert less.epsilon_estimate > 2


@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
@pytest.mark.parametrize("method", ["auto", "proved"])
def test_never_above_fixed_participation(adjacency: str, method: str) -> None:
    steps = 2 if adjacency == "replace" else 1
    for gram, delta in ((30 * CORRELATED, 0.1), (np.ones((2, 2)), 1e-9), (300 * np.eye(2), 1e-5)):
        found = amplified_epsilon(
            Mixture(gram=gram), delta=delta, adjacency=adjacency, method=method, samples=2**14
        )
        assert found.epsilon <= nd.privacy.epsilon_of(mu=steps * math.sqrt(gram.max()), delta=delta)


def test_what_is_known_by_everyone_amplifies_nothing() -> None:
    """All bins alike: no secret, and no bound below the Gaussian mechanism."""
    found = amplified_epsilon(Mixture(gram=np.ones((4, 4))), delta=1e-5, adjacency="zero-out")
    assert found.epsilon == pytest.approx(nd.privacy.epsilon_of(mu=1.0, delta=1e-5), rel=1e-3)


def test_more_bins_and_more_noise_lose_less() -> None:
    for adjacency in ("zero-out", "replace"):
        over_bins = [
            amplified_epsilon(Mixture(gram=np.eye(b)), delta=1e-6, adjacency=adjacency).epsilon
            for b in (1, 2, 4, 9, 20)
        ]
        assert all(later < earlier for earlier, later in itertools.pairwise(over_bins))
        over_noise = [
            amplified_epsilon(
                Mixture(gram=np.eye(8)), delta=1e-6, noise_multiplier=s, adjacency=adjacency
            ).epsilon
            for s in (0.5, 0.8, 0.81, 1.3, 2.5, 2.51)
        ]
        assert all(later < earlier for earlier, later in itertools.pairwise(over_noise))


def test_delta_and_epsilon_are_inverse() -> None:
    mixture = Mixture(gram=np.eye(16))
    for adjacency in ADJACENCIES:
        epsilon = amplified_epsilon(mixture, delta=1e-6, adjacency=adjacency).epsilon
        delta = amplified_delta(mixture, epsilon=epsilon, adjacency=adjacency)
        assert delta == pytest.approx(1e-6, rel=2e-3)


@pytest.mark.parametrize("gram", [np.eye(12), CORRELATED], ids=["even", "correlated"])
def test_an_audit_reaches_and_never_exceeds_it(gram: Array) -> None:
    """The game: runs with and without the record, decided by L, with Clopper-Pearson intervals."""
    samples = 500_000
    with_record, without = mixtures.monte_carlo(gram, samples, seed=3)
    for epsilon in (0.1, 0.4):
        proved = amplified_delta(Mixture(gram=gram), epsilon=epsilon, adjacency="zero-out")
        one = (with_record > epsilon).sum(), (without > epsilon).sum()
        best = 0.0
        for hits, others in (one, ((without < -epsilon).sum(), (with_record < -epsilon).sum())):
            low = stats.binomtest(int(hits), samples).proportion_ci(1 - 1e-9).low
            high = stats.binomtest(int(others), samples).proportion_ci(1 - 1e-9).high
            assert low - math.exp(epsilon) * high <= proved
            best = max(best, (hits - math.exp(epsilon) * others) / samples)
        assert best >= 0.9 * proved


def test_fresh_samples_agree_and_the_same_seed_repeats() -> None:
    mixture = Mixture(gram=CORRELATED)

    def run(seed: int) -> Amplified:
        return amplified_epsilon(mixture, delta=1e-8, adjacency="zero-out", seed=seed)

    first, second = run(0), run(1)
    assert first == run(0)
    assert first.epsilon != second.epsilon
    assert first.epsilon == pytest.approx(second.epsilon, rel=0.01)


def test_samples_that_cannot_see_are_refused() -> None:
    few = {"method": "monte-carlo", "samples": 200, "adjacency": "zero-out"}
    mixture = Mixture(gram=0.05 * np.eye(30) + 0.01)
    with pytest.raises(InputError, match=r"samples: expected .* or more, so that samples see"):
        amplified_epsilon(mixture, delta=1e-12, **few)  # type: ignore[arg-type]
    found = amplified_epsilon(mixture, delta=1e-12, samples=200, adjacency="zero-out")
    assert found.epsilon_estimate is None  # bounded in other ways, and estimated in none


def test_the_bound_is_named_where_bins_are_one() -> None:
    found = amplified_epsilon(Mixture(gram=np.eye(4), upper="absolute values"), delta=1e-5)
    assert found.which == "convolution of absolute values"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"delta": 0.0}, "delta"),
        ({"delta": 1e-301}, "delta"),
        ({"delta": float("nan")}, "delta"),
        ({"noise_multiplier": 0.0}, "noise_multiplier"),
        ({"adjacency": "swap"}, "adjacency"),
        ({"confidence": 1.0}, "confidence"),
        ({"confidence": 0.2}, "confidence"),
        ({"samples": 3}, "samples"),
        ({"seed": -1}, "seed"),
        ({"method": "guess"}, "method"),
    ],
)
def test_wrong_input_is_named(change: dict[str, object], field: str) -> None:
    with pytest.raises(InputError) as caught:
        amplified_epsilon(Mixture(gram=np.eye(2)), **({"delta": 1e-5} | change))  # type: ignore[arg-type]
    assert caught.value.field == field


def test_mixtures_refuse_what_no_lemma_covers() -> None:
    with pytest.raises(InputError, match=r"Choquette-Choo et al. \(2024\)"):
        Mixture(gram=np.array([[1, -0.1], [-0.1, 1]]))
    with pytest.raises(InputError, match="positive semidefinite"):
        Mixture(gram=np.array([[1.0, 2.0], [2.0, 1.0]]))
    scheme = nd.participation.BallsInBins(epochs=1, separation=2)
    with pytest.raises(InputError, match="nonnegative = true"):
        bins_of(np.array([[1, 0], [-0.5, 1]]), scheme)
    with pytest.raises(InputError, match="2 columns"):
        bins_of(np.eye(3), scheme)
    with pytest.raises(InputError, match="random participation"):
        bins_of(np.eye(2), nd.participation.FixedEpoch(epochs=1, separation=2))
