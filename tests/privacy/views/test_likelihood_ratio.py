"""The game itself: algorithms run with drawn noise, and an observer that decides by likelihoods.

The observer tests "the victim's gradients were zero" against "they were the worst pulses" with the
likelihood ratio of its transcript. Its statistic is Gaussian with unit separation in mu, so what it
achieves shows the mu it was given: mu-GDP (Dong et al. 2022) bounds every operating point by
TPR <= Phi(Phi^-1(FPR) + mu), and the likelihood ratio attains it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import networkx as nx
import numpy as np
import pytest
from scipy import stats

from noisedesign.privacy import views as threats
from noisedesign.privacy.exposure import account
from noisedesign.system.participation import Patterns
from tests.support import oracles, transcripts
from tests.support.transcripts import Observer, Protocol, Sampled, Traced

TRIALS = 40_000
WRONG = 1e-9
"""Probability that a confidence statement of this file fails for a correct mu (seeds are fixed)."""
RATES = (1e-3, 1e-2, 0.1, 0.5)
TRIANGLE = np.full((3, 3), 1 / 3)
STAR = oracles.metropolis(nx.star_graph(3))
PATH = oracles.metropolis(nx.path_graph(3))
RING = oracles.metropolis(nx.cycle_graph(4))
MERCEDES = np.eye(3) - np.ones((3, 3)) / 4
"""C^T C whose <M, V V^T> is 3 - |sum of the gradients|^2 / 4: worst are three at 120 degrees."""


@dataclass(frozen=True)
class Case:
    """A victim under an algorithm before an observer, for the library and for the game."""

    algorithm: threats.Algorithm
    observer: threats.Observer
    protocol: Protocol
    twin: Observer
    victim: int
    pattern: tuple[int, ...]
    d: int = 1


def _cases() -> dict[str, Case]:
    strategy = np.linalg.cholesky(MERCEDES[::-1, ::-1]).T[::-1, ::-1]
    counted = {"nodes": (0,), "own_noise": "counted"}
    return {
        "zip-dl, eavesdropper": Case(
            threats.zip_dl(mixing=TRIANGLE, horizon=2, variance=16.0),
            threats.ldp(),
            transcripts.zip_dl(TRIANGLE, horizon=2, variance=16.0),
            Observer(kind="ldp"),
            victim=1,
            pattern=(0, 1),
        ),
        "decor, a leaf and its seeds": Case(
            threats.decor(mixing=STAR, horizon=3, node_variance=2.0, edge_variance=4.0),
            threats.pndp(nodes=(1,)),
            transcripts.decor(STAR, horizon=3, node_variance=2.0, edge_variance=4.0),
            Observer(kind="pndp", nodes=(1,)),
            victim=0,
            pattern=(0, 1, 2),
        ),
        "local strategy, vector gradients": Case(
            threats.mf_d_sgd(mixing=PATH, strategy=strategy),
            threats.ldp(),
            transcripts.local_strategy(PATH, strategy),
            Observer(kind="ldp"),
            victim=2,
            pattern=(0, 1, 2),
            d=2,
        ),
        "muffliato, secure sums": Case(
            threats.muffliato(mixing=RING, horizon=4, rounds=2),
            threats.secure_sum(**counted),
            transcripts.independent(RING, horizon=4, rounds=2),
            Observer(kind="secure_sum", **counted),
            victim=2,
            pattern=(0, 2),
            d=2,
        ),
    }


CASES = _cases()


def worst_pulses(gram: np.ndarray, d: int) -> np.ndarray:
    """Unit vectors (k, d) that maximise <M, V V^T>: cyclic ascent from a hundred starts."""
    rng, best, value = np.random.default_rng(0), np.zeros((len(gram), d)), -math.inf
    for _ in range(100):
        v = rng.standard_normal((len(gram), d))
        v /= np.linalg.norm(v, axis=1, keepdims=True)
        for i in list(range(len(gram))) * 100:
            pull = gram[i] @ v - gram[i, i] * v[i]
            if np.linalg.norm(pull) > 1e-12:
                v[i] = pull / np.linalg.norm(pull)
        if np.sum(gram * (v @ v.T)) > value:
            best, value = v, float(np.sum(gram * (v @ v.T)))
    return best


def pulses_of(case: Case) -> np.ndarray:
    """The worst gradients of the pattern, zero elsewhere, shape (T, d)."""
    gram, exposed = transcripts.look(case.protocol(Traced()), case.twin).gram(case.victim)
    assert not exposed
    pattern = list(case.pattern)
    pulses = np.zeros((len(gram), case.d))
    pulses[pattern] = worst_pulses(gram[np.ix_(pattern, pattern)], case.d)
    return pulses


def library_mu(case: Case) -> float:
    """mu of the pattern for fixed responses as the account states it, vector gradients, unit noise.

    Pulses are of the size of the clip: a record that is there or not.
    """
    pattern = Patterns(horizon=case.algorithm.horizon, steps=(case.pattern,))
    (exposure,) = account(
        case.algorithm,
        case.observer,
        participation=pattern,
        victims=[case.victim],
        adjacency="zero-out",
        responses="fixed",
    )
    return exposure.mu


def play(case: Case) -> tuple[np.ndarray, np.ndarray, float]:
    """The observer's statistic over many runs without and with the pulses, shape (trials,) each.

    The third is the statistic's standard deviation by the account of the noise.
    """
    pulses = pulses_of(case)
    view = transcripts.look(case.protocol(Traced()), case.twin)
    weights = view.weights(case.victim, pulses)
    given = {(t, case.victim): pulse for t, pulse in enumerate(pulses)}

    def statistics(gradients: dict[tuple[int, int], np.ndarray], seed: int) -> np.ndarray:
        draws = Sampled(gradients, trials=TRIALS, d=case.d, seed=seed)
        seen = transcripts.transcript(case.protocol(draws), case.twin)
        return np.sum([o @ w for o, w in zip(seen, weights, strict=True)], axis=0)

    return statistics({}, 1), statistics(given, 2), float(np.linalg.norm(view.B.T @ weights))


def separation(null: np.ndarray, pulsed: np.ndarray) -> tuple[float, float]:
    """Confidence interval of (mean difference) / (standard deviation), Gaussian statistics."""
    deviation = math.sqrt((null.var(ddof=1) + pulsed.var(ddof=1)) / 2)
    estimate = float(pulsed.mean() - null.mean()) / deviation
    # Variance of a difference of two means, and of dividing by the pooled deviation.
    error = math.sqrt(2 / TRIALS + estimate**2 / (4 * TRIALS))
    z = stats.norm.isf(WRONG / 2)
    return estimate - z * error, estimate + z * error


def rate(count: int) -> tuple[float, float]:
    """Clopper-Pearson interval of a probability seen ``count`` times in all trials."""
    low = stats.beta.ppf(WRONG / 2, count, TRIALS - count + 1) if count else 0.0
    high = stats.beta.isf(WRONG / 2, count + 1, TRIALS - count) if count < TRIALS else 1.0
    return float(low), float(high)


def trade_off(false_positives: float, mu: float) -> float:
    """Largest TPR that mu-GDP allows at this FPR."""
    return float(stats.norm.cdf(stats.norm.ppf(false_positives) + mu))


@pytest.mark.parametrize("name", CASES)
def test_the_observer_achieves_mu_and_no_more(name: str) -> None:
    case = CASES[name]
    mu, (null, pulsed, deviation) = library_mu(case), play(case)
    low, high = separation(null, pulsed)
    assert low <= mu <= high
    assert not low <= 0.9 * mu <= high  # the game would tell a tenth less
    assert not low <= 1.1 * mu <= high
    for target in RATES:
        threshold = deviation * stats.norm.isf(target)  # fixed before any run is looked at
        false_low, false_high = rate(int((null > threshold).sum()))
        true_low, true_high = rate(int((pulsed > threshold).sum()))
        assert true_low <= trade_off(false_high, mu)
        assert true_high >= trade_off(false_low, mu)


def test_mu_worked_out_by_hand() -> None:
    """Zip-DL: 6 / variance times the sum 5 of [[2, 1], [1, 1]]. MERCEDES: 3, with signs 3 - 1/4."""
    assert library_mu(CASES["zip-dl, eavesdropper"]) == pytest.approx(math.sqrt(30 / 16))
    assert library_mu(CASES["local strategy, vector gradients"]) == pytest.approx(math.sqrt(3))
    assert oracles.best_signs(MERCEDES) == pytest.approx(11 / 4)
