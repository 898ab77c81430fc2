"""Schemes whose steps are drawn: their laws enumerated, and the safe side they are on."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from fractions import Fraction
from math import comb
from typing import Any

import numpy as np
import pytest

import noisedesign as nd
from noisedesign.base.checks import InputError
from noisedesign.privacy.sensitivity import squared_sensitivity
from noisedesign.system.participation import SCHEMES, Participation, Patterns, participation_of
from tests.support.laws import laws

BALLS = nd.participation.BallsInBins(epochs=2, separation=3)
ALLOCATION = nd.participation.RandomAllocation(horizon=6, participations=2)
CYCLIC = nd.participation.CyclicPoisson(epochs=3, separation=2, rate=0.25)
TRUNCATED = nd.participation.TruncatedPoisson(
    epochs=3, separation=2, rate=0.25, batch_size_limit=3, group_size=5
)
WARM = nd.participation.BMinSepSampling(horizon=6, separation=3, rate=0.25)
COLD = nd.participation.BMinSepSampling(horizon=6, separation=3, rate=0.25, warm_start=False)
SAMPLED: list[Participation] = [BALLS, ALLOCATION, CYCLIC, TRUNCATED, WARM, COLD]
WITH_A_LAW = [scheme for scheme in SAMPLED if scheme is not TRUNCATED]

Exact = dict[tuple[int, ...], Fraction]


def coins(turns: tuple[int, ...], rate: Fraction) -> Exact:
    """Every subset of the turns, by a coin for each."""
    sizes = range(len(turns) + 1)
    subsets = itertools.chain.from_iterable(itertools.combinations(turns, n) for n in sizes)
    return {s: rate ** len(s) * (1 - rate) ** (len(turns) - len(s)) for s in subsets}


def window(horizon: int, separation: int, rate: Fraction, *, before: int) -> Exact:
    """Of a process that began ``before`` steps earlier with nobody held back, its last T steps."""
    law: dict[tuple[tuple[int, ...], int], Fraction] = {((), 0): Fraction(1)}
    for t in range(-before, horizon):
        following: dict[tuple[tuple[int, ...], int], Fraction] = {}
        for (steps, wait), chance in law.items():
            ways = [(steps, wait - 1, chance)]
            if wait == 0:
                joined = (*steps, t) if t >= 0 else steps
                ways = [(steps, 0, chance * (1 - rate)), (joined, separation - 1, chance * rate)]
            for *state, share in ways:
                key: Any = tuple(state)
                following[key] = following.get(key, Fraction(0)) + share
        law = following
    found: Exact = {}
    for (steps, _), chance in law.items():
        found[steps] = found.get(steps, Fraction(0)) + chance
    return found


def expected_laws(scheme: Participation) -> list[Exact]:
    quarter = Fraction(1, 4)
    if scheme is BALLS:
        return [{(0, 3): Fraction(1, 3), (1, 4): Fraction(1, 3), (2, 5): Fraction(1, 3)}]
    if scheme is ALLOCATION:
        return [dict.fromkeys(itertools.combinations(range(6), 2), Fraction(1, comb(6, 2)))]
    if scheme is CYCLIC:
        return [coins((0, 2, 4), quarter), coins((1, 3, 5), quarter)]
    # The second eigenvalue of the chain of waits is about .8 at rate 1/4: .8^200 < 1e-19.
    return [window(6, 3, quarter, before=200 if scheme is WARM else 0)]


@pytest.mark.parametrize("scheme", WITH_A_LAW, ids=str)
def test_laws_are_those_enumerated_by_hand(scheme: Participation) -> None:
    for law, expected in zip(laws(scheme), expected_laws(scheme), strict=True):
        found = dict(zip(law.patterns, law.probabilities.tolist(), strict=True))
        expected = {steps: chance for steps, chance in expected.items() if chance}
        assert found.keys() == expected.keys()
        for steps, chance in expected.items():
            assert found[steps] == pytest.approx(float(chance), rel=1e-13)


def test_a_warm_start_has_the_same_share_in_every_step() -> None:
    (law,) = laws(WARM)
    shares = [
        sum(p for steps, p in zip(*law, strict=True) if t in steps) for t in range(WARM.horizon)
    ]
    # One in b - 1 + 1/p steps: the mean distance of two participations.
    assert shares == pytest.approx([1 / (2 + 4)] * 6, rel=1e-13)


def test_a_warm_start_at_rate_one_is_balls_in_bins() -> None:
    (law,) = laws(nd.participation.BMinSepSampling(horizon=6, separation=3, rate=1.0))
    assert sorted(law.patterns) == BALLS.bins
    assert law.probabilities.tolist() == pytest.approx([1 / 3] * 3, rel=1e-14)


@pytest.mark.parametrize("scheme", SAMPLED, ids=str)
def test_fixed_patterns_contain_all_that_is_drawn(scheme: Participation) -> None:
    """So that an account that knows no randomness is on the safe side."""
    maximal = [set(pattern) for pattern in scheme.maximal_patterns()]
    assert maximal == [set(pattern) for pattern in scheme.fixed.maximal_patterns()]
    if scheme is not TRUNCATED:
        for law in laws(scheme):
            for steps in law.patterns:
                assert any(set(steps) <= pattern for pattern in maximal)
                assert scheme.rule.broken(steps) == ""
    factor = np.random.default_rng(4).normal(size=(6, 6))
    gram = factor.T @ factor
    listed = Patterns(horizon=6, steps=tuple(scheme.maximal_patterns()))
    found = squared_sensitivity(gram, scheme).squared
    assert found == pytest.approx(squared_sensitivity(gram, scheme.fixed).squared, rel=1e-12)
    assert found >= squared_sensitivity(gram, listed).squared * (1 - 1e-9)


def random_kinds() -> Iterator[str]:
    return (kind for kind, scheme in SCHEMES.items() if scheme.random)


@pytest.mark.parametrize("scheme", SAMPLED, ids=str)
def test_it_is_told_from_what_is_fixed(scheme: Participation) -> None:
    assert scheme.random
    assert not scheme.fixed.random
    assert scheme.fixed.rule.random is None
    assert scheme != scheme.fixed
    assert scheme.fixed.fixed == scheme.fixed
    assert scheme.rule.random is not None
    assert scheme.rule.random.kind == scheme.kind
    assert str(scheme) != str(scheme.fixed)


def test_every_random_kind_is_tried_here() -> None:
    assert set(random_kinds()) == {scheme.kind for scheme in SAMPLED}


@pytest.mark.parametrize("scheme", SAMPLED, ids=str)
def test_it_comes_back_from_numbers_and_from_its_rule(scheme: Participation) -> None:
    entry = scheme.entry()
    assert set(entry) == set(scheme.keys())
    again = SCHEMES[scheme.kind].of(entry)
    assert again == scheme
    assert hash(again) == hash(scheme)
    assert participation_of(scheme.rule, scheme.horizon) == scheme


def test_the_bins_of_what_is_equally_likely() -> None:
    assert BALLS.bins == [(0, 3), (1, 4), (2, 5)]
    assert len(ALLOCATION.bins) == 15
    for scheme in (CYCLIC, TRUNCATED, WARM, BALLS.fixed, Patterns(horizon=2, steps=((0,), (1,)))):
        with pytest.raises(InputError, match="^participation: expected random participation in"):
            _ = scheme.bins


def test_too_many_patterns_are_not_listed() -> None:
    with pytest.raises(InputError, match="participation: expected at most 65536 patterns"):
        _ = nd.participation.RandomAllocation(horizon=100, participations=5).bins


# --- the first steps ------------------------------------------------------------------------------


def test_whole_rounds_keep_their_law() -> None:
    assert BALLS.until(6) == BALLS
    assert BALLS.until(3) == nd.participation.BallsInBins(epochs=1, separation=3)
    assert CYCLIC.until(4) == nd.participation.CyclicPoisson(epochs=2, separation=2, rate=0.25)
    assert ALLOCATION.until(6) == ALLOCATION
    assert WARM.until(4) == nd.participation.BMinSepSampling(horizon=4, separation=3, rate=0.25)


@pytest.mark.parametrize("scheme", [BALLS, ALLOCATION, CYCLIC, TRUNCATED], ids=str)
@pytest.mark.parametrize("steps", [1, 5])
def test_parts_of_a_round_are_an_adversarys_to_choose(scheme: Participation, steps: int) -> None:
    first = scheme.until(steps)
    assert first.horizon == steps
    assert first == scheme.fixed.until(steps)
    assert not first.random


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "field", "remedy"),
    [
        (lambda: nd.participation.BallsInBins(epochs=3, separation=1), "separation", "every-step"),
        (lambda: nd.participation.BallsInBins(epochs=0, separation=4), "epochs", ""),
        (
            lambda: nd.participation.RandomAllocation(horizon=4, participations=4),
            "participations",
            "every-step",
        ),
        (
            lambda: nd.participation.RandomAllocation(horizon=1, participations=1),
            "participations",
            "every-step",
        ),
        (
            lambda: nd.participation.RandomAllocation(horizon=4, participations=0),
            "participations",
            "",
        ),
        (
            lambda: nd.participation.CyclicPoisson(epochs=2, separation=2, rate=1.0),
            "rate",
            "fixed-epoch",
        ),
        (lambda: nd.participation.CyclicPoisson(epochs=2, separation=2, rate=0), "rate", ""),
        (lambda: nd.participation.CyclicPoisson(epochs=2, separation=2, rate=1.5), "rate", ""),
        (
            lambda: nd.participation.CyclicPoisson(epochs=2, separation=2, rate=float("nan")),
            "rate",
            "",
        ),
        (
            lambda: nd.participation.TruncatedPoisson(
                epochs=2, separation=2, rate=0.5, batch_size_limit=9, group_size=9
            ),
            "batch_size_limit",
            "cyclic-poisson",
        ),
        (
            lambda: nd.participation.BMinSepSampling(horizon=4, separation=1, rate=1.0),
            "rate",
            "fixed-epoch",
        ),
        (
            lambda: nd.participation.BMinSepSampling(
                horizon=4, separation=2, rate=1.0, warm_start=False
            ),
            "rate",
            "warm_start",
        ),
        (lambda: nd.participation.BMinSepSampling(horizon=4, separation=2, rate=-0.1), "rate", ""),
    ],
)
def test_what_leaves_nothing_to_chance_is_refused(make: Any, field: str, remedy: str) -> None:
    with pytest.raises(InputError) as caught:
        make()
    assert caught.value.field == f"participation.{field}"
    assert remedy in caught.value.remedy
