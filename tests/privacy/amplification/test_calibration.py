"""The noise that a target asks for, by closed forms of one participation and by accounts anew."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import optimize, stats

import noisedesign as nd
from noisedesign.base.checks import InputError
from noisedesign.privacy.amplification import (
    Amplified,
    account,
    amplified,
    amplified_noise,
    amplified_noise_of,
    bins_of,
)
from noisedesign.system.participation import Participation

pytest.importorskip("dp_accounting", reason="dp-accounting: .[ledger] brings it")


def delta_of_a_coin(noise: float, epsilon: float, rate: float) -> float:
    """The larger direction of one Poisson-subsampled Gaussian, in closed form."""

    def call(level: float) -> float:
        """E (w - level)_+, w a lognormal of mean 1 and variance 1 / noise^2 of its logarithm."""
        if level <= 0:
            return 1 - level
        up = -noise * math.log(level) + 1 / (2 * noise)
        return float(stats.norm.cdf(up) - level * stats.norm.cdf(up - 1 / noise))

    large = math.exp(epsilon)
    remove = rate * call((large - 1 + rate) / rate)
    left = 1 - large * (1 - rate)  # 1 - e^eps (1 - rate + rate w) = left - e^eps rate w
    strike = left / (large * rate)
    add = large * rate * (strike - 1 + call(strike)) if left > 0 else 0.0
    return max(remove, add)


ONCE: list[Participation] = [
    nd.participation.CyclicPoisson(epochs=1, separation=3, rate=0.4),
    nd.participation.TruncatedPoisson(
        epochs=1, separation=3, rate=0.4, batch_size_limit=29, group_size=30
    ),
    nd.participation.BMinSepSampling(horizon=1, separation=1, rate=0.4, warm_start=False),
]
GOAL = {"epsilon": 1.0, "delta": 1e-3}


def kind(scheme: Participation) -> str:
    return scheme.kind


@pytest.mark.parametrize("scheme", ONCE, ids=kind)
def test_one_coin_by_its_closed_form(scheme: Participation) -> None:
    """Under truncation as well that next to never comes about."""
    size = 3.0
    exact = size * optimize.brentq(
        lambda noise: delta_of_a_coin(noise, 1.0, 0.4) - 1e-3, 0.3, 10, xtol=1e-12
    )
    rows = size * np.eye(scheme.horizon)
    noise, found = amplified_noise_of(scheme, rows, adjacency="zero-out", samples=2000, **GOAL)
    loose = 0.02 if scheme.kind == "b-min-sep" else 2e-3
    assert exact * (1 - 1e-9) <= noise <= exact * (1 + loose)
    assert GOAL["epsilon"] * (1 - loose) <= found.epsilon <= GOAL["epsilon"]


CASES: list[tuple[Participation, str]] = [
    (nd.participation.CyclicPoisson(epochs=3, separation=4, rate=0.3), "zero-out"),
    (nd.participation.CyclicPoisson(epochs=3, separation=4, rate=0.3), "replace"),
    (nd.participation.RandomAllocation(horizon=12, participations=3), "zero-out"),
]


@pytest.mark.parametrize(("scheme", "adjacency"), CASES)
def test_an_account_anew_meets_the_target_and_less_noise_does_not(
    scheme: Participation, adjacency: str
) -> None:
    rows = np.eye(12) + 0.5 * np.eye(12, k=-1)
    noises = []
    for epsilon in (0.3, 2.0):
        noise, found = amplified_noise_of(
            scheme, rows, epsilon=epsilon, delta=1e-3, adjacency=adjacency
        )
        options = {"delta": 1e-3, "adjacency": adjacency}
        anew = amplified(scheme, rows, noise_multiplier=noise, **options)  # type: ignore[arg-type]
        assert anew.epsilon == found.epsilon
        assert found.epsilon <= epsilon
        less = amplified(scheme, rows, noise_multiplier=0.999 * noise, **options)  # type: ignore[arg-type]
        assert less.epsilon > epsilon
        noises.append(noise)
    assert noises[0] > 2 * noises[1]


def test_by_samples() -> None:
    """Samples that the search did not see agree, and the fixed account asks for more noise."""
    scheme = nd.participation.BMinSepSampling(horizon=6, separation=3, rate=0.2)
    rows = np.eye(6) + 0.5 * np.eye(6, k=-1)
    goal = {"epsilon": 1.0, "delta": 0.01}
    noise, found = amplified_noise_of(scheme, rows, adjacency="zero-out", samples=4000, **goal)
    assert found.confidence == 1 - 1e-6
    assert 0.95 < found.epsilon <= 1
    fresh = amplified(
        scheme, rows, delta=0.01, noise_multiplier=noise, adjacency="zero-out", seed=9, samples=4000
    )
    assert fresh.epsilon == pytest.approx(1.0, rel=0.1)
    assert noise < 0.9 * math.sqrt(2 * 1.25) / nd.privacy.mu_of(**goal)


@pytest.mark.parametrize("confidence", [0.9, pytest.param(1 - 1e-6, marks=pytest.mark.slow)])
def test_every_account_of_a_search_has_samples_and_a_failure_of_its_own(
    confidence: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever it ends with is a proof: here the last that there may be."""
    seeds, failures = [], []

    def spied(*args: object, confidence: float, seed: int, **how: object) -> Amplified:
        seeds.append(seed)
        failures.append(1 - confidence)
        found = amplified(*args, confidence=confidence, seed=seed, **how)  # type: ignore[arg-type]
        return replace(found, epsilon=1.001 if len(seeds) < account.MOST_ACCOUNTS else 0.999)

    monkeypatch.setattr(account, "amplified", spied)
    scheme = nd.participation.BMinSepSampling(horizon=4, separation=2, rate=0.3)
    how = {"epsilon": 1.0, "delta": 0.01, "samples": 100, "confidence": confidence}
    _, found = amplified_noise_of(scheme, np.eye(4), **how)  # type: ignore[arg-type]
    assert found.confidence in (None, confidence)
    assert len(set(seeds)) == len(seeds) == account.MOST_ACCOUNTS
    assert sum(failures) <= (1 - confidence) * (1 + 1e-9)


def test_bins_go_by_their_own_search() -> None:
    scheme = nd.participation.BallsInBins(epochs=2, separation=4)
    found = amplified_noise_of(scheme, np.eye(8), **GOAL)
    assert found == amplified_noise(bins_of(np.eye(8), scheme), **GOAL)
    once = nd.participation.RandomAllocation(horizon=4, participations=1)
    noise, told = amplified_noise_of(once, np.eye(4), adjacency="zero-out", **GOAL)
    best, _ = amplified_noise(bins_of(np.eye(4), once), adjacency="zero-out", **GOAL)
    assert noise == pytest.approx(best, rel=1e-3)
    assert told.epsilon <= GOAL["epsilon"]


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        ({"rows": np.zeros((3, 3))}, "rows"),
        ({"rows": -np.eye(3)}, "rows"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"delta": 0.0}, "delta"),
        ({"adjacency": "none"}, "adjacency"),
        ({"participation": nd.participation.FixedEpoch(epochs=1, separation=3)}, "participation"),
    ],
)
def test_what_is_refused(bad: dict[str, object], field: str) -> None:
    given = {"participation": ONCE[0], "rows": np.eye(3), **GOAL, **bad}
    with pytest.raises(InputError, match=f"^{field}"):
        amplified_noise_of(given.pop("participation"), given.pop("rows"), **given)  # type: ignore[arg-type]
