"""b-min-sep sampling: every pattern enumerated, quadrature, and the schemes it contains."""

from __future__ import annotations

import itertools

import mpmath
import numpy as np
import pytest

import noisedesign as nd
from noisedesign.base.checks import InputError
from noisedesign.privacy.amplification import amplified, min_separation
from noisedesign.privacy.amplification.min_separation import Chain, Tilt, chosen, sampled
from noisedesign.privacy.amplification.mixture import mean_upper
from tests.support.direction_oracles import b_min_sep_law, directions, log_ratio, means_of

CASES = [(6, 2, 0.3, True), (6, 2, 0.7, False), (5, 3, 0.4, True), (4, 1, 0.2, True)]


def banded(horizon: int, bands: int) -> np.ndarray:
    strategy = np.zeros((horizon, horizon))
    for step, k in itertools.product(range(horizon), range(bands)):
        if step + k < horizon:
            strategy[step + k, step] = 0.8 / (1 + k) + 0.05 * step
    return strategy


def case(
    horizon: int, separation: int, rate: float, warm: bool
) -> tuple[Chain, np.ndarray, list[float]]:
    """The chain, and the means and probabilities of all patterns."""
    strategy = banded(horizon, separation)
    scheme = nd.participation.BMinSepSampling(
        horizon=horizon, separation=separation, rate=rate, warm_start=warm
    )
    law = b_min_sep_law(horizon, separation, rate, warm=warm)
    return Chain(strategy, scheme), means_of(strategy, list(law)), list(law.values())


@pytest.mark.parametrize(("horizon", "separation", "rate", "warm"), CASES)
def test_the_recursion_is_the_sum_over_patterns(
    horizon: int, separation: int, rate: float, warm: bool
) -> None:
    chain, means, chances = case(horizon, separation, rate, warm)
    assert sum(chances) == pytest.approx(1)
    y = np.random.default_rng(0).standard_normal((40, horizon)) * 2
    found = chain.log_ratio(chain.rows.T @ y.T - chain.squares[:, None] / 2)
    np.testing.assert_allclose(found, log_ratio(y, means, chances), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("horizon", "separation", "rate", "warm"), CASES)
@pytest.mark.parametrize(("chains", "theta"), [(1, 2.5), (2, 1.5), (3, 1.0)])
def test_the_moment_is_the_sum_over_tuples_of_patterns(
    horizon: int, separation: int, rate: float, warm: bool, chains: int, theta: float
) -> None:
    chain, means, chances = case(horizon, separation, rate, warm)
    total = 0.0
    for tuple_ in itertools.product(range(len(means)), repeat=chains):
        own = means[list(tuple_)]
        exponent = theta**2 / 2 * (own.sum(axis=0) ** 2).sum() - theta / 2 * (own**2).sum()
        total += np.prod([chances[j] for j in tuple_]) * np.exp(exponent)
    assert Tilt(chain, chains, theta).log_mean == pytest.approx(np.log(total), abs=1e-11)


@pytest.mark.parametrize(("chains", "theta"), [(1, 2.5), (2, 1.5), (3, 1.0)])
def test_the_bound_by_a_moment_is_rounded_up(chains: int, theta: float) -> None:
    """kappa K^(1 - alpha) Z over all tuples of patterns in 30 digits, with half of the allowance to
    spare."""
    chain, _, _ = case(4, 2, 0.3, True)
    tilt, alpha = Tilt(chain, chains, theta), mpmath.mpf(chains * theta)
    gram = [[mpmath.mpf(x) for x in row] for row in chain.gram.tolist()]
    law = list(b_min_sep_law(4, 2, 0.3, warm=True))
    held = [mpmath.mpf(x) for x in chain.participation.held_back.tolist()]
    rate = mpmath.mpf(0.3)

    def chance(pattern: tuple[int, ...]) -> mpmath.mpf:
        """Over who is held back at first, by the coins of the steps that are not."""
        total = mpmath.mpf(0)
        for first, share in enumerate(held):
            free, here = first, share
            for t in range(4):
                taken = t in pattern
                here *= 0 if taken and t < free else 1
                if t >= free:
                    here *= rate if taken else 1 - rate
                    free = t + 2 if taken else free
            total += here
        return total

    with mpmath.workdps(30):
        chances, moment = [chance(pattern) for pattern in law], mpmath.mpf(0)
        for drawn in itertools.product(range(len(law)), repeat=chains):
            exponent = mpmath.mpf(0)
            for i, j in itertools.product(range(chains), repeat=2):
                both = mpmath.fsum(gram[s][t] for s in law[drawn[i]] for t in law[drawn[j]])
                exponent += theta**2 / 2 * both - (theta / 2 * both if i == j else 0)
            moment += mpmath.fprod(chances[k] for k in drawn) * mpmath.exp(exponent)
        kappa = (alpha - 1) ** (alpha - 1) / alpha**alpha
        spare = 1 + mpmath.mpf(0.5e-10)
        for epsilon in (0.1, 1.0, 3.0, 10.0):
            exact = kappa * mpmath.exp((1 - alpha) * epsilon) * moment
            assert exact * spare <= tilt.bound(epsilon) <= exact * (1 + 1e-9)


def test_draws_follow_the_tilted_law() -> None:
    """E_Q f = Z E_S f / M: for f = 1, for f = L, and for how often each step is taken."""
    chain, means, chances = case(6, 2, 0.3, True)
    tilt = Tilt(chain, 2, 1.0)
    likelihood, powers = tilt.draws(50_000, np.random.default_rng(1))
    for of in (0 * likelihood, likelihood):
        values = np.exp(of - powers + tilt.log_mean)
        assert abs(values.mean() - 1) < 6 * values.std() / 50_000**0.5
    taken = tilt._patterns(50_000, np.random.default_rng(2)).mean(axis=1)
    weights, often = 0.0, np.zeros(6)
    law = list(b_min_sep_law(6, 2, 0.3, warm=True))
    for i, j in itertools.product(range(len(law)), repeat=2):
        weight = chances[i] * chances[j] * np.exp(means[i] @ means[j])
        weights += weight
        for step in (*law[i], *law[j]):
            often[step] += weight
    np.testing.assert_allclose(taken, often / weights, atol=0.02)


@pytest.mark.parametrize("warm", [True, False])
def test_both_directions_by_quadrature(warm: bool) -> None:
    """Three steps, two apart: estimates agree, bounds are above, those without samples too."""
    scheme = nd.participation.BMinSepSampling(horizon=3, separation=2, rate=0.3, warm_start=warm)
    strategy = banded(3, 2)
    law = b_min_sep_law(3, 2, 0.3, warm=warm)
    chain = Chain(strategy, scheme)
    tilt = Tilt(chain, 3, 1.0)
    rng = np.random.default_rng(3)
    removed, added = sampled(tilt, largest=4.0, failure=1e-6, samples=40_000, rng=rng)
    assert removed.estimate is not None
    for epsilon in (0.4, 1.2, 2.0):
        remove, add = directions(
            means_of(strategy, list(law)), list(law.values()), epsilon, points=91
        )
        assert removed.estimate(epsilon) == pytest.approx(remove, rel=0.12)
        assert remove < removed.delta(epsilon) < 1.5 * remove
        assert remove <= tilt.bound(epsilon)
        assert add <= chain.add_by_tangents(epsilon)
        assert add < added.delta(epsilon) < add + 1e-2


@pytest.mark.parametrize("failure", [0.3, 1e-3, 1e-9])
def test_all_bounds_of_both_directions_share_one_failure(
    failure: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bounds of samples at every epsilon of the grid may fail, each with its own probability: a
    spy adds up what they are told, for one account and for the public call."""
    told: list[float] = []

    def spied(values: np.ndarray, share: float) -> float:
        told.append(share)
        return mean_upper(values, share)

    monkeypatch.setattr(min_separation, "mean_upper", spied)
    chain, _, _ = case(6, 2, 0.3, True)
    rng = np.random.default_rng(3)
    sampled(Tilt(chain, 2, 1.0), largest=4.0, failure=failure, samples=100, rng=rng)
    assert len(told) == 2 * (min_separation.GRID + 1)
    assert 0.99 * failure < sum(told) <= failure * (1 + 1e-9)
    told.clear()
    how = {"delta": 1e-3, "samples": 100, "confidence": 1 - failure}
    amplified(chain.participation, chain.rows, **how)  # type: ignore[arg-type]
    assert 0.99 * failure < sum(told) <= failure * (1 + 1e-6)


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 5.0])
def test_tangents_of_one_pattern_are_the_gaussian_mechanism(epsilon: float) -> None:
    """log L is affine where a record takes part all but surely, and every tangent is L itself."""
    for scale in (0.05, 1.0, 4.0):
        scheme = nd.participation.BMinSepSampling(
            horizon=6, separation=2, rate=1 - 1e-13, warm_start=False
        )
        chain = Chain(scale * banded(6, 2), scheme)
        with mpmath.workdps(40):
            mu = mpmath.sqrt(mpmath.fsum(chain.squares[::2]))
            low, high = (mpmath.mpf(epsilon) / mu + way * mu / 2 for way in (-1, 1))
            exact = mpmath.ncdf(-low) - mpmath.exp(epsilon) * mpmath.ncdf(-high)
        found = chain.add_by_tangents(epsilon)
        assert exact * (1 - 1e-9) <= found <= max(exact * (1 + 1e-6), 1e-300)


@pytest.mark.parametrize(("horizon", "separation", "rate", "warm"), CASES)
def test_steps_taken_given_what_was_seen(
    horizon: int, separation: int, rate: float, warm: bool
) -> None:
    """Which steps are likely, by Bayes' rule over all patterns: the slope of log L."""
    chain, means, chances = case(horizon, separation, rate, warm)
    y = np.random.default_rng(8).standard_normal(horizon)
    weights = np.array(chances) * np.exp(means @ y - (means * means).sum(axis=1) / 2)
    law = b_min_sep_law(horizon, separation, rate, warm=warm)
    expected = [sum(w for s, w in zip(law, weights, strict=True) if t in s) for t in range(horizon)]
    total, taking = chain.taking_part(chain.rows.T @ y - chain.squares / 2)
    assert total == pytest.approx(np.log(weights.sum()), abs=1e-12)
    np.testing.assert_allclose(taking, np.array(expected) / weights.sum(), atol=1e-12)


def test_rare_events_are_resolved_by_few_samples() -> None:
    """delta 1e-9 from 2e4 draws, which sampling from P could not see, by a fifth of an epsilon."""
    scheme = nd.participation.BMinSepSampling(horizon=3, separation=2, rate=0.3)
    law = b_min_sep_law(3, 2, 0.3, warm=True)
    strategy = banded(3, 2)
    chain = Chain(strategy, scheme)
    _, tilt = chosen(chain, 1e-9, 20_000)
    rng = np.random.default_rng(4)
    removed, _ = sampled(tilt, largest=10.0, failure=1e-6, samples=20_000, rng=rng)
    grid = np.linspace(0, 10, min_separation.GRID + 1)
    epsilon = next(float(point) for point in grid if removed.delta(float(point)) <= 1e-9)
    remove, _ = directions(means_of(strategy, list(law)), list(law.values()), epsilon, points=101)
    assert 0.3e-9 < remove <= 1e-9


def test_rate_one_from_a_warm_start_is_balls_in_bins() -> None:
    strategy = np.eye(8)
    bins = amplified(
        nd.participation.BallsInBins(epochs=2, separation=4),
        strategy,
        delta=1e-4,
        adjacency="zero-out",
    )
    scheme = nd.participation.BMinSepSampling(horizon=8, separation=4, rate=1.0)
    found = amplified(scheme, strategy, delta=1e-4, adjacency="zero-out")
    assert bins.remove < found.remove < 1.1 * bins.remove
    assert found.confidence == 1 - 1e-6
    assert found.epsilon_estimate is not None


def test_one_step_apart_is_poisson_sampling() -> None:
    pytest.importorskip("dp_accounting", reason="dp-accounting: .[ledger] brings it")
    steps = {"delta": 1e-4, "noise_multiplier": 1.5, "adjacency": "zero-out"}
    scheme = nd.participation.BMinSepSampling(horizon=12, separation=1, rate=0.1)
    poisson = nd.participation.CyclicPoisson(epochs=12, separation=1, rate=0.1)
    found = amplified(scheme, np.eye(12), **steps)
    assert found.epsilon <= amplified(poisson, np.eye(12), **steps).epsilon * (1 + 1e-6)
    assert found.which == "composition"
    assert found.confidence is None


@pytest.mark.parametrize("delta", [1e-3, 1e-12])
def test_never_above_no_amplification(delta: float) -> None:
    scheme = nd.participation.BMinSepSampling(horizon=6, separation=2, rate=0.9)
    strategy = banded(6, 2)
    found = amplified(scheme, strategy, delta=delta, samples=2000)
    mu = max(
        float(np.sqrt((strategy[:, list(s)].sum(axis=1) ** 2).sum()))
        for s in b_min_sep_law(6, 2, 0.9, warm=True)
    )
    assert found.epsilon <= nd.privacy.epsilon_of(mu=2 * mu, delta=delta)


def test_more_bands_than_the_separation_are_refused() -> None:
    scheme = nd.participation.BMinSepSampling(horizon=6, separation=2, rate=0.3)
    with pytest.raises(InputError, match=r"participation.*2 bands.*steps 3 and 5.*balls-in-bins"):
        amplified(scheme, banded(6, 3), delta=1e-5)


def test_the_same_seed_gives_the_same_account() -> None:
    scheme = nd.participation.BMinSepSampling(horizon=6, separation=2, rate=0.3)
    first, second, third = (
        amplified(scheme, banded(6, 2), delta=1e-3, samples=5000, seed=seed) for seed in (7, 7, 8)
    )
    assert first == second
    assert first != third
