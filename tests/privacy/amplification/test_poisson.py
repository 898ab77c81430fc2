"""Cyclic and truncated Poisson sampling: every pattern enumerated, and dp_accounting's events."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.stats import norm

import noisedesign as nd
from noisedesign.base.checks import InputError
from noisedesign.privacy.amplification import amplified, losses
from tests.support.direction_oracles import directions, means_of, orthogonal, patterns

dp_accounting = pytest.importorskip("dp_accounting", reason="dp-accounting: .[ledger] brings it")


def coins(turns: int, rate: float) -> list[float]:
    return [rate ** len(s) * (1 - rate) ** (turns - len(s)) for s in patterns(turns)]


@pytest.mark.parametrize(("rate", "scale"), [(0.3, 1.0), (0.1, 2.0), (0.8, 0.7)])
def test_two_turns_by_quadrature(rate: float, scale: float) -> None:
    scheme = nd.participation.CyclicPoisson(epochs=2, separation=1, rate=rate)
    for delta in (1e-2, 1e-5):
        found = amplified(scheme, scale * np.eye(2), delta=delta, adjacency="zero-out")
        for way, epsilon in enumerate((found.remove, found.add)):
            nearby = [
                orthogonal(scale, patterns(2), coins(2, rate), e, horizon=2, points=4001)[way]
                for e in (epsilon, 0.999 * epsilon - 1e-3)
            ]
            assert nearby[0] <= delta
            assert nearby[1] >= delta or epsilon == 0


def test_three_turns_whose_columns_overlap_by_quadrature() -> None:
    """Bands longer than b: an upper bound, above that of b bands, and below no amplification."""
    scheme = nd.participation.CyclicPoisson(epochs=3, separation=1, rate=0.25)
    strategy = np.array([[1.0, 0.0, 0.0], [0.3, 1.0, 0.0], [0.1, 0.3, 1.0]])
    means = means_of(strategy, patterns(3))
    delta = 1e-3
    found = amplified(scheme, strategy, delta=delta, adjacency="zero-out")
    remove, _ = directions(means, coins(3, 0.25), found.remove, points=91)
    _, add = directions(means, coins(3, 0.25), found.add, points=91)
    assert remove <= delta
    assert add <= delta
    orthogonal = np.diag(np.sqrt((strategy**2).sum(axis=0)))
    least = amplified(scheme, orthogonal, delta=delta, adjacency="zero-out").epsilon
    sensitivity = np.sqrt((strategy.sum(axis=1) ** 2).sum())
    assert least < found.epsilon <= nd.privacy.epsilon_of(mu=float(sensitivity), delta=delta)


@pytest.mark.parametrize("epochs", [2, 4, 9])
@pytest.mark.parametrize("rate", [0.9, 0.999])
def test_turns_that_overlap_are_a_gaussian_mechanism_of_their_sum(rate: float, epochs: int) -> None:
    """C of ones, k turns: where all coins fall for a record, its mean is that of (k, ..., 1), and
    they do with probability rate^k, so remove is at least that of the Gaussian mechanism of mu^2 =
    k^2 + ... + 1 at an epsilon larger by -k log rate, times rate^k."""
    scheme = nd.participation.CyclicPoisson(epochs=epochs, separation=1, rate=rate)
    strategy, all_of_them = np.tril(np.ones((epochs, epochs))), rate**epochs
    c, d, top = losses.cyclic_products(strategy, scheme)
    assert (c, d, top) == (epochs, epochs - 1, sum(k * k for k in range(1, epochs + 1)))
    pair = losses.cyclic_poisson(c / top, d / top, scheme)
    for epsilon in (0.5, 2.0, 4.0):
        least = nd.privacy.delta_of(mu=1.0, epsilon=epsilon - math.log(all_of_them))
        assert all_of_them * least <= pair.remove.delta(epsilon)


@pytest.mark.parametrize("bands", [1, 3, 4])
def test_bands_up_to_the_separation_are_poisson_sampled_gaussians(bands: int) -> None:
    """Against dp_accounting's own accountant, on a finer grid."""
    horizon, separation, rate, noise = 40, 4, 0.2, 1.3
    column = np.arange(bands, 0, -1) / np.linalg.norm(np.arange(1, bands + 1))
    strategy = sum(np.diag(np.full(horizon - k, column[k]), -k) for k in range(bands))
    scheme = nd.participation.CyclicPoisson(epochs=10, separation=separation, rate=rate)
    event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise))
    accountant = dp_accounting.pld.PLDAccountant(value_discretization_interval=3e-4)
    expected = accountant.compose(event, 10).get_epsilon(1e-6)
    found = amplified(scheme, strategy, delta=1e-6, noise_multiplier=noise, adjacency="add-remove")
    assert found.which == "composition"
    assert found.confidence is None
    assert expected * (1 - 1e-6) <= found.epsilon <= 1.002 * expected


def truncated_step(other: float, rate: float) -> tuple[list[float], list[float]]:
    """Means and their chances, of sums of one step, with the record (1) and with it zeroed.

    Two records, a limit of one: where both are drawn, either takes part with probability 1 / 2.
    """
    weights = []
    for mine in (1.0, 0.0):
        sums: dict[float, float] = {}
        for me, it in itertools.product((False, True), repeat=2):
            chance = (rate if me else 1 - rate) * (rate if it else 1 - rate)
            choices = [mine] * me + [other] * it or [0.0]
            for value in choices:
                sums[value] = sums.get(value, 0.0) + chance / len(choices)
        weights.append(sums)
    means = sorted(set(weights[0]) | set(weights[1]))
    return means, [[w.get(m, 0.0) for m in means] for w in weights]  # type: ignore[return-value]


@pytest.mark.parametrize("other", [-1.0, -0.5, 0.0, 0.5, 1.0])
def test_truncated_step_by_quadrature(other: float) -> None:
    """Whatever the other record's gradient is, one step stays within the account."""
    rate, noise, delta = 0.4, 0.8, 1e-3
    scheme = nd.participation.TruncatedPoisson(
        epochs=1, separation=1, rate=rate, batch_size_limit=1, group_size=2
    )
    found = amplified(scheme, np.eye(1), delta=delta, noise_multiplier=noise, adjacency="zero-out")
    means, (with_it, without) = truncated_step(other, rate)
    x = np.linspace(-12, 12, 20001)
    densities = norm.pdf(x[:, None], loc=means, scale=noise)
    present, zeroed = densities @ with_it, densities @ without
    for one, two in ((present, zeroed), (zeroed, present)):
        excess = np.maximum(one - np.exp(found.epsilon) * two, 0).sum() * (x[1] - x[0])
        assert excess <= delta


def test_truncated_run_is_that_of_dp_accounting() -> None:
    scheme = nd.participation.TruncatedPoisson(
        epochs=20, separation=4, rate=0.1, batch_size_limit=15, group_size=100
    )
    event = dp_accounting.TruncatedSubsampledGaussianDpEvent(
        dataset_size=100, sampling_probability=0.1, truncated_batch_size=15, noise_multiplier=1.5
    )
    accountant = dp_accounting.pld.PLDAccountant(value_discretization_interval=3e-4)
    expected = accountant.compose(event, 20).get_epsilon(1e-6)
    found = amplified(scheme, np.eye(80), delta=1e-6, noise_multiplier=1.5, adjacency="zero-out")
    assert expected * (1 - 1e-6) <= found.epsilon <= 1.005 * expected
    free = nd.participation.CyclicPoisson(epochs=20, separation=4, rate=0.1)
    less = amplified(free, np.eye(80), delta=1e-6, noise_multiplier=1.5, adjacency="zero-out")
    assert less.epsilon < found.epsilon


def test_truncated_batches_tell_how_many_records_there_are() -> None:
    scheme = nd.participation.TruncatedPoisson(
        epochs=2, separation=1, rate=0.1, batch_size_limit=2, group_size=9
    )
    with pytest.raises(InputError, match="adjacency.*zero-out or replace"):
        amplified(scheme, np.eye(2), delta=1e-6, adjacency="add-remove")


def test_truncated_batches_and_longer_bands_are_refused() -> None:
    scheme = nd.participation.TruncatedPoisson(
        epochs=3, separation=2, rate=0.1, batch_size_limit=2, group_size=9
    )
    strategy = np.eye(6) + 0.5 * np.eye(6, k=-1) + 0.2 * np.eye(6, k=-2)
    with pytest.raises(InputError, match="participation.*separation = 2 bands.*balls-in-bins"):
        amplified(scheme, strategy, delta=1e-5)
    assert amplified(scheme, strategy - 0.2 * np.eye(6, k=-2), delta=1e-5).epsilon > 0


def test_replacement_is_a_removal_and_an_addition() -> None:
    """Quadrature of the pair of two records: one drawn by the coin gives +1 or -1."""
    rate, delta = 0.3, 1e-3
    scheme = nd.participation.CyclicPoisson(epochs=1, separation=1, rate=rate)
    found = amplified(scheme, np.eye(1), delta=delta, noise_multiplier=1.5, adjacency="replace")
    x = np.linspace(-20, 20, 40001)
    one = (1 - rate) * norm.pdf(x, scale=1.5) + rate * norm.pdf(x, 1, 1.5)
    two = (1 - rate) * norm.pdf(x, scale=1.5) + rate * norm.pdf(x, -1, 1.5)
    excess = np.maximum(one - np.exp(found.epsilon) * two, 0).sum() * (x[1] - x[0])
    assert excess <= delta
    assert found.epsilon <= nd.privacy.epsilon_of(mu=2 / 1.5, delta=delta)


def test_monotone_in_noise_rate_and_delta() -> None:
    def epsilon(rate: float = 0.2, noise: float = 1.0, delta: float = 1e-5) -> float:
        scheme = nd.participation.CyclicPoisson(epochs=5, separation=2, rate=rate)
        return amplified(
            scheme, np.eye(10), delta=delta, noise_multiplier=noise, adjacency="zero-out"
        ).epsilon

    assert epsilon(noise=2.0) < epsilon() < epsilon(noise=0.7)
    assert epsilon(rate=0.1) < epsilon() < epsilon(rate=0.5)
    assert epsilon(delta=1e-4) < epsilon() < epsilon(delta=1e-7)


def test_a_delta_that_is_lost_in_rounding_is_refused() -> None:
    scheme = nd.participation.CyclicPoisson(epochs=50, separation=1, rate=0.2)
    with pytest.raises(InputError, match="delta.*doubles"):
        amplified(scheme, np.eye(50), delta=1e-14)


def test_negative_rows_are_refused_by_the_name_of_the_lemma() -> None:
    scheme = nd.participation.CyclicPoisson(epochs=2, separation=1, rate=0.2)
    with pytest.raises(InputError, match="Near exact privacy amplification"):
        amplified(scheme, np.array([[1.0, 0.0], [-0.1, 1.0]]), delta=1e-5)


def test_a_scheme_that_an_adversary_chooses_is_refused() -> None:
    with pytest.raises(InputError, match="balls-in-bins, random-allocation, cyclic-poisson"):
        amplified(nd.participation.FixedEpoch(epochs=2, separation=2), np.eye(4), delta=1e-5)
