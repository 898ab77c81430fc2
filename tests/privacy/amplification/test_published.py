"""Accounts of random participation that others publish, against ours.

Opaque (github.com/JetBrains-Research/opaque) was read at commit 2a2c5de of 22 August 2026 and,
where it says so, before; its formulas are written anew in ``tests/support/published_accounts.py``.
jax_privacy is run itself where it is installed (version 2.0.0 was read).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import binom

import noisedesign as nd
from noisedesign.base.checks import InputError
from noisedesign.privacy.amplification import amplified, bins_of
from noisedesign.privacy.amplification.convolution import even_add, even_remove
from noisedesign.privacy.amplification.min_separation import Chain
from tests.support.direction_oracles import b_min_sep_law, log_ratio, means_of, normal_grid
from tests.support.mixtures import removal_by_samples
from tests.support.published_accounts import (
    buffered,
    opaque_b_min_sep_ratio,
    opaque_gram,
    point_epsilon,
    removal_losses,
    surely_above,
    toeplitz,
)

HORIZON, BINS, EPOCHS = 320, 16, 20

BUFFERED = buffered([0.9259551825732577], [0.5434618786494947], HORIZON)
"""What ``jax_privacy.matrix_factorization.buffered_toeplitz.optimize`` finds for (k, b) = (20, 16)
and T = 320 with at most two buffers (it takes one). Its norm is 1.75."""


@pytest.fixture
def jax_privacy() -> Any:
    return pytest.importorskip("jax_privacy", reason="JAX Privacy: make test-trainers")


# --- Opaque -------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [8.0, pytest.param(24.0, marks=pytest.mark.slow)])
def test_opaque_understated_epsilon_of_buffered_toeplitz(noise: float) -> None:
    """Opaque up to v0.12.0 took the Gram matrix of columns of norm 1 for noise through raw C^-1.

    ``BltStrategy.gram_matrix`` and ``BallsInBins.pld_at`` passed normalized = True, while the noise
    has the raw multiplier and ``streaming_matrix`` is the inverse of the raw strategy. Put right by
    pull request 316 of 2 August 2026 (commit aa922b31), in v0.13.1.
    """
    delta = 1e-4
    used = opaque_gram(BUFFERED, HORIZON, BINS, normalized=True)
    claimed = point_epsilon(removal_losses(used, noise, 100_000, 1), delta)
    gram = opaque_gram(BUFFERED, HORIZON, BINS, normalized=False)
    losses = removal_losses(gram, noise, 100_000, 2)
    assert 1.6 < point_epsilon(losses, delta) / claimed < 2.1
    assert surely_above(losses, claimed, failure=1e-9) > 10 * delta
    scheme = nd.participation.BallsInBins(epochs=EPOCHS, separation=BINS)
    ours = amplified(
        scheme,
        toeplitz(BUFFERED, HORIZON),
        delta=delta,
        noise_multiplier=noise,
        adjacency="zero-out",
    )
    assert ours.epsilon > 1.6 * claimed
    assert surely_above(losses, ours.remove, failure=1e-9) <= delta


@pytest.mark.parametrize(
    "column",
    [BUFFERED, BUFFERED[:8], binom(2 * np.arange(40), np.arange(40)) / 4.0 ** np.arange(40)],
)
def test_gram_matrix_of_opaque_since_then_is_ours(column: np.ndarray) -> None:
    """Buffered, banded and square root, not normalized."""
    scheme = nd.participation.BallsInBins(epochs=EPOCHS, separation=BINS)
    ours = bins_of(toeplitz(column, HORIZON), scheme).gram
    np.testing.assert_allclose(
        opaque_gram(column, HORIZON, BINS, normalized=False), ours, rtol=1e-12
    )


@pytest.mark.parametrize("draws", [100_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_monte_carlo_below_its_resolution_understates_epsilon(draws: int) -> None:
    """A point estimate of delta 1e-8 by 1e5 samples (Opaque's default) or 1e6.

    ``samples_to_pmf`` of Opaque is a histogram with no mass beyond its largest sample, whatever
    delta ``epsilon_at`` is asked for, and it refuses none. Its documents call that an estimate. The
    bound below is deterministic.
    """
    delta, bins, noise = 1e-8, 16, 1.0
    claimed = point_epsilon(removal_losses(np.eye(bins), noise, draws, 3), delta)
    assert removal_by_samples(np.eye(bins) / noise**2, claimed) > 3 * delta
    scheme = nd.participation.BallsInBins(epochs=1, separation=bins)
    ours = amplified(
        scheme, np.eye(bins), delta=delta, noise_multiplier=noise, adjacency="zero-out"
    )
    assert removal_by_samples(np.eye(bins) / noise**2, 0.99 * ours.remove) > delta
    assert ours.epsilon > 1.02 * claimed


def test_opaque_b_min_sep_ratio_is_not_a_ratio() -> None:
    """``likelihood_ratio_warm`` adds f_1 + p (f_2 + ...) / (1 + (b - 1) p), where all is divided.

    Under Q it has mean 1 + (b - 1) p / (1 + (b - 1) p) and not 1, so that addition is understated,
    removal overstated. jax_privacy divides the sum.
    """
    horizon, separation, rate = 3, 2, 0.4
    column = np.array([0.9, 0.5])
    law = b_min_sep_law(horizon, separation, rate, warm=True)
    means = means_of(toeplitz(column, horizon), list(law))
    y, weights = normal_grid(horizon, 71)
    theirs = opaque_b_min_sep_ratio(y, column, separation, rate)
    exact = np.exp(log_ratio(y, means, list(law.values())))
    assert weights @ exact == pytest.approx(1)
    assert weights @ theirs == pytest.approx(1 + rate / (1 + rate))
    strike = np.exp(0.2)
    added = [float(weights @ np.maximum(1 - strike * ratio, 0)) for ratio in (theirs, exact)]
    assert added[0] < 0.6 * added[1]
    chain = Chain(
        toeplitz(column, horizon),
        nd.participation.BMinSepSampling(horizon=horizon, separation=separation, rate=rate),
    )
    ours = np.exp(chain.log_ratio(chain.rows.T @ y.T - chain.squares[:, None] / 2))
    np.testing.assert_allclose(ours, exact, rtol=1e-12)


def test_balls_in_bins_is_not_poisson_sampling() -> None:
    """Opaque's balls_in_bins/mod.rs: "reduces exactly to Poisson-subsampled Gaussian composed
    num_bins * num_epochs times" for independent noise. A bin that is kept for all epochs does not:
    its epsilon is 1.9 times as large here. (The code there does not use the sentence.)"""
    pytest.importorskip("dp_accounting", reason="dp-accounting: .[ledger] brings it")
    noise, delta = 4.0, 1e-5
    poisson = nd.participation.CyclicPoisson(epochs=HORIZON, separation=1, rate=1 / BINS)
    claimed = amplified(
        poisson, np.eye(HORIZON), delta=delta, noise_multiplier=noise, adjacency="zero-out"
    ).epsilon
    assert removal_by_samples(EPOCHS / noise**2 * np.eye(BINS), 1.9 * claimed) > delta


# --- jax_privacy --------------------------------------------------------------------------------


def exported(name: str) -> np.ndarray:
    """First column of a strategy that jax_privacy makes, for b = 8 and T = 48."""
    import jax
    from jax_privacy.matrix_factorization import buffered_toeplitz, toeplitz as mechanism

    jax.config.update("jax_enable_x64", True)
    if name == "buffered":
        found = buffered_toeplitz.optimize(n=48, min_sep=8, max_participations=6, max_buffers=2)
        return np.asarray(found.toeplitz_coefs(48), dtype=np.float64)
    if name == "banded":
        return np.asarray(mechanism.optimize_banded_toeplitz(48, bands=4), dtype=np.float64)
    return np.asarray(mechanism.optimal_max_error_strategy_coefs(48), dtype=np.float64)


@pytest.mark.parametrize("name", ["buffered", "banded", "square-root"])
def test_balls_in_bins_losses_of_jax_privacy(jax_privacy: Any, name: str) -> None:
    """Its loss of a draw is the logarithm of our mixture's likelihood ratio."""
    from jax_privacy import batch_selection
    from jax_privacy.experimental.monte_carlo import sample_generation

    column, noise = exported(name), 2.5
    scheme = nd.participation.BallsInBins(epochs=6, separation=8)
    strategy = batch_selection.BallsInBinsSampling(cycle_length=8, iterations=48)
    losses, y = sample_generation.get_privacy_loss_sample(
        strategy, noise, column, seed=5, num_samples=300
    )
    means = means_of(toeplitz(column, 48), scheme.bins) / noise
    np.testing.assert_allclose(
        losses, log_ratio(y.T / noise, means, [1 / 8] * 8), rtol=0, atol=1e-6
    )
    gram = bins_of(toeplitz(column, 48), scheme).scaled(noise).gram
    np.testing.assert_allclose(gram, means @ means.T, rtol=1e-6, atol=1e-9)


def reversed_norms(chain: Chain, bands: int) -> np.ndarray:
    """Squared norms of columns with the last bands - 1 of them in the wrong order."""
    squares = np.array(chain.squares)
    squares[len(squares) - bands + 1 :] = squares[len(squares) - bands + 1 :][::-1]
    return squares


def test_balls_in_bins_estimate_of_jax_privacy(jax_privacy: Any) -> None:
    """Its estimate of delta for independent noise, within five standard errors of the exact one."""
    from jax_privacy import batch_selection
    from jax_privacy.experimental.monte_carlo import delta_calculation, sample_generation

    strategy = batch_selection.BallsInBinsSampling(cycle_length=8, iterations=16)
    for positive, exact in ((True, even_remove), (False, even_add)):
        losses, _ = sample_generation.get_privacy_loss_sample(
            strategy, 1.2, np.ones(1), seed=7, positive_sample=positive, num_samples=20_000
        )
        for epsilon in (0.2, 0.8):
            found = delta_calculation.delta_from_epsilon_and_samples(epsilon, losses)
            spread = np.maximum(-np.expm1(epsilon - losses), 0).std() / 20_000**0.5
            assert abs(found - exact(2 / 1.2**2, 8, epsilon)) < 5 * spread


@pytest.mark.parametrize("warm", [True, False])
def test_b_min_sep_losses_of_jax_privacy(jax_privacy: Any, warm: bool) -> None:
    """Its losses are ours if the norms of the last bands - 1 columns are put in the wrong order.

    ``_compute_b_min_sep_privacy_loss_no_truncation`` fills the end of ``squared_norms`` with
    ascending sums, ``np.cumsum(c_col**2)[:-1]``; the columns get shorter, so theirs descend. It is
    so in version 2.0.0 and in commit 8967688 of 20 August 2026.
    """
    from jax_privacy import batch_selection
    from jax_privacy.experimental.monte_carlo import sample_generation

    column, noise = exported("banded"), 2.0
    strategy = batch_selection.BMinSepSampling(
        sampling_prob=0.3, min_sep=8, iterations=48, warm_start=warm
    )
    losses, y = sample_generation.get_privacy_loss_sample(
        strategy, noise, column, seed=6, num_samples=500
    )
    scheme = nd.participation.BMinSepSampling(horizon=48, separation=8, rate=0.3, warm_start=warm)
    chain = Chain(toeplitz(column, 48) / noise, scheme)
    x = chain.rows.T @ y / noise
    swapped = chain.log_ratio(x - reversed_norms(chain, len(column))[:, None] / 2)
    np.testing.assert_allclose(losses, swapped, rtol=0, atol=1e-6)
    right = chain.log_ratio(x - chain.squares[:, None] / 2)
    assert np.abs(losses - right).max() > 1e-3


def test_norms_in_the_wrong_order_give_no_likelihood_ratio() -> None:
    """What that order does, every pattern of a short run enumerated: its total is not 1.

    Removal is overstated, which is safe; addition is understated, by 2 per cent here. Long runs
    change less: b - 1 columns are wrong, whatever T is.
    """
    column, horizon = np.array([0.8, 0.5, 0.3]), 3
    scheme = nd.participation.BMinSepSampling(
        horizon=horizon, separation=3, rate=0.5, warm_start=False
    )
    chain = Chain(toeplitz(column, horizon), scheme)
    y, weights = normal_grid(horizon, 81)
    x = chain.rows.T @ y.T
    theirs = np.exp(chain.log_ratio(x - reversed_norms(chain, 3)[:, None] / 2))
    law = b_min_sep_law(horizon, 3, 0.5, warm=False)
    exact = np.exp(log_ratio(y, means_of(toeplitz(column, horizon), list(law)), list(law.values())))
    assert weights @ exact == pytest.approx(1)
    assert weights @ theirs == pytest.approx(1.0186, abs=1e-4)
    strike = np.exp(0.3)
    removed, added = (
        [float(weights @ values) for values in pair]
        for pair in (
            [exact * np.maximum(1 - strike / ratio, 0) for ratio in (theirs, exact)],
            [np.maximum(1 - strike * ratio, 0) for ratio in (theirs, exact)],
        )
    )
    assert removed[0] > 1.02 * removed[1]
    assert 0.97 * added[1] < added[0] < 0.99 * added[1]


@pytest.mark.parametrize("limit", [None, 12])
def test_cyclic_poisson_accounts_of_jax_privacy(jax_privacy: Any, limit: int | None) -> None:
    """Its accountant for a strategy of at most ``cycle_length`` bands, columns of norm 1."""
    from jax_privacy import accounting

    column, delta = exported("banded"), 1e-6
    column = column / np.linalg.norm(column)
    config = accounting.PldAccountantConfig(value_discretization_interval=1e-4)
    params = accounting.DpParams(
        noise_multipliers=1.4,
        num_samples=800,
        delta=delta,
        batch_size=8,
        cycle_length=8,
        truncated_batch_size=limit,
    )
    expected = accounting.DpsgdTrainingAccountant(config).compute_epsilon(48, params)
    sizes = {"epochs": 6, "separation": 8, "rate": 0.08}
    scheme = (
        nd.participation.CyclicPoisson(**sizes)
        if limit is None
        else nd.participation.TruncatedPoisson(**sizes, batch_size_limit=limit, group_size=100)
    )
    found = amplified(
        scheme, toeplitz(column, 48), delta=delta, noise_multiplier=1.4, adjacency="zero-out"
    )
    assert expected * (1 - 1e-6) <= found.epsilon <= 1.01 * expected


def test_monte_carlo_of_jax_privacy_refuses_what_it_cannot_resolve(jax_privacy: Any) -> None:
    from jax_privacy.experimental.monte_carlo import delta_calculation

    assert 0 < delta_calculation.get_base_delta(10**6, 1e-4) < 1e-4
    with pytest.raises(ValueError, match="base_delta"):
        delta_calculation.get_base_delta(10**6, 1e-8)


def test_dense_strategies_of_jax_privacy_have_negative_entries(jax_privacy: Any) -> None:
    """So no account under balls in bins holds for them: refused by the lemma's name."""
    from jax_privacy.matrix_factorization import dense

    strategy = np.asarray(dense.optimize(48, epochs=6), dtype=np.float64)
    scheme = nd.participation.BallsInBins(epochs=6, separation=8)
    with pytest.raises(InputError, match="Near exact privacy amplification"):
        amplified(scheme, strategy, delta=1e-5)
