"""Epsilon from two curves of delta, and the share of the confidence that each direction gets."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import rel_entr

import noisedesign as nd
from noisedesign.privacy.accounting import delta_above
from noisedesign.privacy.amplification import (
    Mixture,
    account,
    amplified_delta,
    amplified_epsilon,
    amplified_noise,
)
from noisedesign.privacy.amplification.directions import (
    Bins,
    Remembered,
    best_share,
    best_split,
    least_delta,
    least_epsilon,
)

QUIET, LOUD = (lambda epsilon, mu=mu: delta_above(mu, epsilon) for mu in (0.5, 1.0))


@pytest.mark.parametrize("adjacency", ["zero-out", "add-remove"])
@pytest.mark.parametrize(("remove", "add"), [(QUIET, LOUD), (LOUD, QUIET)])
def test_the_larger_direction_counts_whichever_it_is(remove, add, adjacency: str) -> None:  # type: ignore[no-untyped-def]
    found = least_epsilon(remove, add, delta=1e-5, adjacency=adjacency)
    assert found.epsilon == pytest.approx(nd.privacy.epsilon_of(mu=1.0, delta=1e-5), rel=1e-5)
    assert found.epsilon == max(found.remove, found.add)
    assert least_delta(remove, add, epsilon=1.0, adjacency=adjacency) == LOUD(1.0)


STEEP = {
    "gaussian": lambda epsilon: delta_above(1.0, epsilon),
    "quiet": lambda epsilon: delta_above(1e-3, epsilon),
    "loud": lambda epsilon: delta_above(5.0, epsilon),
    "cliff": lambda epsilon: math.exp(-1e6 * epsilon) + 1e-30,
    "step": lambda epsilon: 1e-3 if epsilon < math.pi else 1e-20,
    "stairs": lambda epsilon: math.exp(-math.floor(300 * epsilon)),
}


@pytest.mark.parametrize("name", STEEP)
def test_the_bound_at_epsilon_is_delta_or_less_with_no_tolerance(name: str) -> None:
    """And a few parts in 1e6 before it is not, however steeply it falls."""
    curve = STEEP[name]
    for delta in (0.3, 1e-2, 1e-5, 1e-9, 1e-15):
        for found in (
            Remembered(curve).epsilon(delta),
            least_epsilon(curve, curve, delta=delta, adjacency="zero-out").epsilon,
        ):
            assert curve(found) <= delta
            before = found - 8e-6 * max(found, 1.0)
            assert before < 0 or curve(before) > delta
        parts = least_epsilon(curve, curve, delta=delta, adjacency="replace", share=0.4)
        spent = curve(parts.remove) + math.exp(parts.remove) * curve(parts.add)
        assert spent <= delta * (1 + 1e-12)
        assert parts.epsilon >= parts.remove + parts.add


def test_each_direction_may_fail_with_half_of_the_probability() -> None:
    failure = 1e-3
    mixture = Mixture(gram=np.array([[1.0, 0.4], [0.4, 0.8]]))
    generator = np.random.default_rng(0)
    found = Bins(mixture).sampled(1.0, (1.0, 1.0), 5000, failure, generator)
    for remove in (True, False):
        sampled, told = found.samples[remove], found.bounds(1.0, remove=remove)["monte-carlo"]
        mean, most = sampled.mean(1.0), told / math.exp(sampled.log_integral(1.0))
        divergence = rel_entr(mean, most) + rel_entr(1 - mean, 1 - most)
        # Hoeffding: n KL(mean, q) = log(1 / p).
        assert 5000 * divergence == pytest.approx(math.log(2 / failure), rel=1e-4)


def test_more_confidence_costs_more() -> None:
    mixture = Mixture(gram=np.array([[1.0, 0.4], [0.4, 0.8]]))

    def epsilon(confidence: float) -> float:
        how = {"method": "monte-carlo", "samples": 5000, "adjacency": "zero-out"}
        found = amplified_epsilon(mixture, delta=1e-4, confidence=confidence, **how)  # type: ignore[arg-type]
        assert found.confidence == confidence
        return found.epsilon

    assert epsilon(0.5) * 1.002 < epsilon(1 - 1e-3) < epsilon(1 - 1e-12) / 1.002


def test_delta_is_shared_as_one_is_told() -> None:
    how = {"delta": 1e-5, "adjacency": "replace"}
    best = least_epsilon(QUIET, LOUD, **how)  # type: ignore[arg-type]
    same = least_epsilon(QUIET, LOUD, share=best_share(QUIET, LOUD, delta=1e-5), **how)  # type: ignore[arg-type]
    assert same == pytest.approx(best, rel=1e-5)
    given = least_epsilon(QUIET, LOUD, share=0.3, **how)  # type: ignore[arg-type]
    first = nd.privacy.epsilon_of(mu=0.5, delta=0.3e-5)
    assert given.remove == pytest.approx(first, rel=1e-5)
    second = nd.privacy.epsilon_of(mu=1.0, delta=0.7e-5 * math.exp(-first))
    assert given.add == pytest.approx(second, rel=1e-5)
    assert given.epsilon > best.epsilon


def test_epsilon_is_split_as_one_is_told() -> None:
    how = {"epsilon": 8.0, "adjacency": "replace"}
    best = least_delta(QUIET, LOUD, **how)  # type: ignore[arg-type]
    split = best_split(QUIET, LOUD, epsilon=8.0)
    assert least_delta(QUIET, LOUD, split=split, **how) == best  # type: ignore[arg-type]
    given = least_delta(QUIET, LOUD, split=1.5, **how)  # type: ignore[arg-type]
    assert given == pytest.approx(QUIET(1.5) + math.exp(1.5) * LOUD(6.5), rel=1e-9)
    assert given > best


def test_the_samples_that_prove_do_not_choose_the_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each share has its own probability to fail: one is chosen, by samples that prove nothing."""
    chosen = []

    def fixed(remove: object, add: object, *, delta: float) -> float:
        chosen.append((remove, add))
        return 0.3

    monkeypatch.setattr(account, "best_share", fixed)
    mixture = Mixture(gram=np.array([[1.0, 0.4], [0.4, 0.8]]))
    how = {"method": "monte-carlo", "samples": 20_000, "delta": 1e-3}
    found = amplified_epsilon(mixture, adjacency="replace", **how)  # type: ignore[arg-type]
    assert len(chosen) == 1
    # Its part of a removal alone, but for other samples.
    alone = amplified_epsilon(mixture, adjacency="zero-out", **(how | {"delta": 0.3e-3}))  # type: ignore[arg-type]
    assert found.remove == pytest.approx(alone.remove, rel=0.02)


def test_where_no_share_has_a_finite_epsilon_the_unamplified_one_is_told() -> None:
    found = amplified_epsilon(Mixture(gram=np.eye(4) + 0.3), delta=1e-300, adjacency="replace")
    assert found.which == "unamplified"
    assert found.epsilon == nd.privacy.epsilon_of(mu=2 * math.sqrt(1.3), delta=1e-300)


@pytest.mark.parametrize(
    ("stubborn", "adjacency"),
    [
        pytest.param(False, "zero-out", id="proved soon, zero-out"),
        pytest.param(False, "replace", id="proved soon, replace", marks=pytest.mark.slow),
        pytest.param(True, "zero-out", id="never proved, zero-out", marks=pytest.mark.slow),
        pytest.param(True, "replace", id="never proved, replace"),
    ],
)
def test_whatever_is_proved_by_samples_fails_with_the_stated_probability_together(
    adjacency: str, stubborn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All bounds that an account or a search may rest on, added up; and each is of samples that
    nothing was looked for with, whose state of the generator no other had."""
    proofs, looked = [], []
    real = Bins.sampled

    def spied(
        self: Bins,
        noise: float,
        at: tuple[float, float],
        samples: int,
        failure: float,
        generator: np.random.Generator,
        **how: object,
    ) -> object:
        state = str(generator.bit_generator.state)
        (looked if samples == account.PILOT else proofs).append((state, failure))
        return real(self, noise, at, samples, failure, generator, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(Bins, "sampled", spied)
    if stubborn:
        monkeypatch.setattr(account, "_meets", lambda *_: False)
    mixture = Mixture(gram=np.diag(np.linspace(1, 1.1, 12)))
    for confidence in (0.9, 1 - 1e-6):
        how = {"adjacency": adjacency, "confidence": confidence, "samples": 2000, "seed": 3}
        for account_of, target in (
            (amplified_epsilon, {"delta": 1e-2}),
            (amplified_delta, {"epsilon": 1.0}),
            (amplified_noise, {"epsilon": 1.0, "delta": 1e-2}),
        ):
            proofs.clear()
            looked.clear()
            account_of(mixture, **target, **how)  # type: ignore[operator]
            assert 0 < sum(failure for _, failure in proofs) <= (1 - confidence) * (1 + 1e-9)
            states = [state for state, _ in proofs]
            assert len(set(states)) == len(states)
            assert not set(states) & {state for state, _ in looked}
    assert len(proofs) == (account.ATTEMPTS + 1 if stubborn else 1)
