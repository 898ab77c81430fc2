"""Sensitivity of Toeplitz strategies against every pattern, every sign vector, the elliptope."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings, strategies as st

from noisedesign.base.checks import InputError
from noisedesign.privacy.sensitivity import (
    ABS_SUM_UPPER_BOUND,
    EXACT,
    UPPER_BOUND,
    toeplitz as sensitivity,
)
from noisedesign.privacy.sensitivity.toeplitz import sensitivity_above, squared_sensitivity
from noisedesign.system.participation import FixedEpoch, MinSeparation, Patterns, every_step, single
from tests.support import oracles

ROUNDING = 1e-12


def gram_of(coefficients: np.ndarray, horizon: int) -> np.ndarray:
    column = np.zeros(horizon)
    column[: len(coefficients)] = coefficients[:horizon]
    c = scipy.linalg.toeplitz(column, np.zeros(horizon))
    return np.asarray(c.T @ c)


def patterns_of(scheme: FixedEpoch | MinSeparation) -> list[tuple[int, ...]]:
    if isinstance(scheme, FixedEpoch):
        return [tuple(p) for p in oracles.fixed_epoch_patterns(scheme.epochs, scheme.separation)]
    return oracles.min_separation_patterns(
        scheme.horizon, scheme.separation, scheme.max_participations
    )


def elliptope_maximum(gram: np.ndarray, patterns: list[tuple[int, ...]]) -> tuple[float, float]:
    """Proved lower and upper bounds on the largest over the patterns."""
    bounds = []
    for p in patterns:
        m = gram[np.ix_(p, p)]
        # For one or two steps, signs attain the elliptope maximum.
        exact = oracles.best_signs(m) if len(p) <= 2 else None
        bounds.append((exact, exact) if exact is not None else oracles.elliptope(m))
    return max(lower for lower, _ in bounds), max(upper for _, upper in bounds)


SCHEMES = [
    single(6),
    every_step(4),
    FixedEpoch(epochs=3, separation=2),
    FixedEpoch(epochs=2, separation=3),
    MinSeparation(horizon=6, separation=2, max_participations=3),
    MinSeparation(horizon=6, separation=2, max_participations=2),
    MinSeparation(horizon=7, separation=3, max_participations=9),
    MinSeparation(horizon=5, separation=1, max_participations=5),
    MinSeparation(horizon=5, separation=4, max_participations=1),
]


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_no_sensitivity_is_above_what_is_proved(scheme: FixedEpoch | MinSeparation) -> None:
    """Exactly, in fractions, of all signs equal where no entry is negative; of a pattern's signs
    where some are."""
    rng = np.random.default_rng(3)
    for c in (rng.random(scheme.horizon), rng.standard_normal(scheme.horizon)):
        column = [Fraction(x) for x in c.tolist()]
        found = Fraction(sensitivity_above(c, scheme))
        for pattern in patterns_of(scheme):
            for signs in itertools.product((1, -1), repeat=len(pattern) - 1):
                total = [Fraction(0)] * scheme.horizon
                for step, sign in zip(pattern, (1, *signs), strict=True):
                    for at in range(step, scheme.horizon):
                        total[at] += sign * column[at - step]
                assert sum(x * x for x in total) <= found
    c = np.sort(rng.random(scheme.horizon))[::-1]
    assert sensitivity_above(c, scheme) <= squared_sensitivity(c, scheme).squared
    assert sensitivity_above(c, Patterns(horizon=scheme.horizon, steps=((0,),))) == np.inf


def test_three_steps_by_hand() -> None:
    # c = (2, 1, 1). Columns (2,1,1), (0,2,1), (0,0,2): squares 6, 5, 4; products 3, 2, 2.
    c = np.array([2.0, 1.0, 1.0])
    cases = {
        single(3): 6.0,
        every_step(3): 6 + 5 + 4 + 2 * (3 + 2 + 2),
        MinSeparation(horizon=3, separation=2, max_participations=2): 6 + 4 + 2 * 2,
        MinSeparation(horizon=3, separation=1, max_participations=2): 6 + 5 + 2 * 3,
    }
    for scheme, expected in cases.items():
        found = squared_sensitivity(c, scheme)
        assert found.kind == EXACT
        assert expected <= found.squared <= expected * (1 + ROUNDING)


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@pytest.mark.parametrize("seed", range(4))
def test_nonincreasing_coefficients_are_exact_over_every_pattern(
    scheme: FixedEpoch | MinSeparation, seed: int
) -> None:
    c = np.sort(np.random.default_rng(seed).random(scheme.horizon))[::-1]
    gram = gram_of(c, scheme.horizon)
    # Entries are nonnegative, so signs and elliptope agree, all signs equal.
    expected = max(gram[np.ix_(p, p)].sum() for p in patterns_of(scheme))
    found = squared_sensitivity(c, scheme)
    assert found.kind == EXACT
    assert expected <= found.squared <= expected * (1 + ROUNDING)


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_signs_and_bumps_are_never_understated(
    scheme: FixedEpoch | MinSeparation, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    for c in (rng.standard_normal(scheme.horizon), rng.random(scheme.horizon)):
        c[0] = abs(c[0]) / 4 + 0.01
        lower, upper = elliptope_maximum(gram_of(c, scheme.horizon), patterns_of(scheme))
        found = squared_sensitivity(c, scheme)
        assert found.squared >= lower * (1 - ROUNDING)
        if found.kind == EXACT:
            assert found.squared <= upper * (1 + 1e-7)


def test_fixed_epochs_need_no_order_and_say_exact() -> None:
    # c_2 > c_1: pattern {0, 2} still is the worst of {0, 2}, {1, 3}; its columns sum to
    # (1, 0.3, 3, 0.8).
    c = np.array([1.0, 0.3, 2.0, 0.5])
    found = squared_sensitivity(c, FixedEpoch(epochs=2, separation=2))
    assert found.kind == EXACT
    assert found.squared == pytest.approx(1 + 0.09 + 9 + 0.64, rel=1e-14)


def test_a_bump_is_no_exact_answer_under_min_separation() -> None:
    # The worst pattern is {0, 3}, not {0, 2}: the sum of columns 0, 2 must not be called exact.
    c = np.array([1.0, 0.0, 0.0, 1.0])
    scheme = MinSeparation(horizon=4, separation=2, max_participations=2)
    found = squared_sensitivity(c, scheme)
    # {0, 3}: (1, 0, 0, 2) has 5; {0, 2}: (1, 0, 1, 1) has 3.
    assert (found.kind, found.squared) == (EXACT, pytest.approx(5, rel=1e-7))
    assert found.squared >= 5


def test_beyond_the_dense_horizon_the_bound_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sensitivity, "DENSE_HORIZON", 3)
    c = np.array([1.0, 0.0, 0.0, -1.0])
    scheme = MinSeparation(horizon=4, separation=2, max_participations=2)
    found = squared_sensitivity(c, scheme)
    # Squares 2 and 1 of columns 0 and 2, twice the correlation 1 at lag 3.
    assert found.kind == UPPER_BOUND
    assert found.squared == pytest.approx(5)
    monkeypatch.setattr(sensitivity, "CORRELATED_FLOATS", 3)
    found = squared_sensitivity(c, scheme)
    # The least nonincreasing vector above |c| is all ones: columns 0 and 2 sum to (1, 1, 2, 2).
    assert found.kind == UPPER_BOUND
    assert found.squared == pytest.approx(10)


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_coefficients_that_rise_and_fall(
    seed: int, dense: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A pulse every other step: correlations are largest at even lags, multiples of b = 2.
    rng = np.random.default_rng(seed)
    horizon = 9
    c = np.sort(rng.random(horizon))[::-1] * np.where(np.arange(horizon) % 2, 0.1, 1.0)
    if not dense:
        monkeypatch.setattr(sensitivity, "DENSE_HORIZON", 0)
    for b, k in ((2, 5), (2, 2), (3, 3), (4, 2)):
        scheme = MinSeparation(horizon=horizon, separation=b, max_participations=k)
        gram = gram_of(c, horizon)
        expected = max(gram[np.ix_(p, p)].sum() for p in patterns_of(scheme))
        found = squared_sensitivity(c, scheme)
        assert found.squared >= expected
        if found.kind == EXACT:
            assert found.squared <= expected * (1 + 1e-7)
        if b == 2:
            assert found.kind == EXACT


def test_orthogonal_columns_are_exact_whatever_the_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("DENSE_HORIZON", "CORRELATED_FLOATS"):
        monkeypatch.setattr(sensitivity, limit, 0)
    # Two coefficients, two steps apart: (1, -3, 1, -3) + ... squares add up: 10 + 10.
    c = np.array([1.0, -3.0])
    scheme = MinSeparation(horizon=4, separation=2, max_participations=2)
    found = squared_sensitivity(c, scheme)
    assert (found.kind, found.squared) == (EXACT, pytest.approx(20, rel=1e-14))
    # One step more: a pattern may start later, its last column then keeps one row.
    found = squared_sensitivity(c, MinSeparation(horizon=5, separation=2, max_participations=3))
    assert (found.kind, found.squared) == (EXACT, pytest.approx(10 + 10 + 1, rel=1e-14))


def test_signs_cancel_in_the_exact_answer_for_fixed_epochs() -> None:
    # Columns (1, -1) and (0, 1): gradients of opposite signs add 1 + 1 + 1 + 2, equal ones 1.
    found = squared_sensitivity(np.array([1.0, -1.0]), every_step(2))
    assert found.kind == EXACT
    assert found.squared == pytest.approx(5, rel=1e-7)


def test_patterns_one_by_one() -> None:
    # c = (1, 1, 0): columns (1,1,0), (0,1,1), (0,0,1).
    scheme = Patterns(horizon=3, steps=((0,), (0, 1), (1, 2), (2,)))
    found = squared_sensitivity(np.array([1.0, 1.0]), scheme)
    np.testing.assert_allclose(found.per_pattern, [2, 1 + 4 + 1, 1 + 4, 1])
    assert found.kind == EXACT
    found = squared_sensitivity(np.array([1.0, -1.0]), scheme)
    np.testing.assert_allclose(found.per_pattern, [2, 1 + 4 + 1, 1 + 4, 1], rtol=1e-7)
    assert found.kind == EXACT


def test_large_patterns_with_signs_get_a_bound_that_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sensitivity, "DENSE_FLOATS", 8)
    c = np.array([1.0, 0.5, -1.0])
    found = squared_sensitivity(c, every_step(3))
    # Absolute columns sum to (1, 1.5, 2.5).
    assert (found.kind, found.squared) == (ABS_SUM_UPPER_BOUND, pytest.approx(1 + 2.25 + 6.25))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10_000),
    horizon=st.integers(1, 8),
    separation=st.integers(1, 9),
    most=st.integers(1, 9),
    zeros=st.integers(0, 7),
)
def test_scalar_contributions_never_exceed_it(
    seed: int, horizon: int, separation: int, most: int, zeros: int
) -> None:
    rng = np.random.default_rng(seed)
    c = rng.standard_normal(horizon) * (rng.random(horizon) > zeros / 8)
    c[0] = 0.1 + rng.random()
    scheme = MinSeparation(horizon=horizon, separation=separation, max_participations=most)
    gram = gram_of(c, horizon)
    attained = max(oracles.best_signs(gram[np.ix_(p, p)]) for p in patterns_of(scheme))
    assert squared_sensitivity(c, scheme).squared >= attained * (1 - ROUNDING)


def test_scale_is_squared_and_zeros_past_the_horizon_do_not_count() -> None:
    c = np.array([1.0, 0.7, 0.1, 0.05])
    scheme = FixedEpoch(epochs=2, separation=2)
    one = squared_sensitivity(c, scheme).squared
    for scale in (1e-120, 3.0, 1e120):
        scaled = squared_sensitivity(scale * c, scheme).squared
        assert scaled == pytest.approx(scale**2 * one, rel=1e-14)
    longer = np.concatenate([c, [100.0]])
    assert squared_sensitivity(longer, scheme).squared == one


@pytest.mark.parametrize("bad", [np.array([0.0, 1.0]), np.ones(2, dtype=np.float32), [np.nan]])
def test_bad_coefficients_are_refused(bad: object) -> None:
    with pytest.raises(InputError, match="coefficients"):
        squared_sensitivity(bad, single(2))
