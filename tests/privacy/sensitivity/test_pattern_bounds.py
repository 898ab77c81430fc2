"""Sensitivity over many patterns, long horizons and sparse grams: against every pattern tried."""

from __future__ import annotations

import itertools
import math
from typing import Any

import mpmath
import numpy as np
import pytest
import scipy.linalg
import scipy.sparse
from hypothesis import given, settings, strategies as st

from noisedesign.privacy import sensitivity as sensitivities
from noisedesign.privacy.sensitivity import (
    ABS_SUM_UPPER_BOUND,
    EXACT,
    SPECTRAL_UPPER_BOUND,
    UPPER_BOUND,
    squared_sensitivity,
)
from noisedesign.system.participation import FixedEpoch, Participation, Patterns, every_step, single
from tests.support import oracles
from tests.support.sensitivity_cases import PENTAGON, ROUNDING, SHARP, min_separation, random_gram

# --- min separation -------------------------------------------------------------------------------


def unlisted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sensitivities, "MAX_LISTED", 0)


@settings(derandomize=True, deadline=None, max_examples=12)
@given(
    horizon=st.integers(2, 6),
    separation=st.integers(1, 4),
    most=st.integers(2, 4),
    seed=st.integers(0, 10**6),
)
def test_min_separation_is_the_worst_of_all_its_patterns(
    horizon: int, separation: int, most: int, seed: int
) -> None:
    m = random_gram(horizon, seed, rank=2)
    patterns = oracles.min_separation_patterns(horizon, separation, most)
    values = [oracles.elliptope(m[np.ix_(p, p)]) for p in patterns]
    found = squared_sensitivity(m, min_separation(horizon, separation, most))
    assert found.kind == EXACT
    assert found.squared >= max(lower for lower, _ in values) * (1 - ROUNDING)
    assert found.squared <= max(upper for _, upper in values) * (1 + SHARP)
    bounds = sensitivities.listed_bounds(
        m, sensitivities.listed(min_separation(horizon, separation, most))
    )
    assert bounds.absolute.max() == pytest.approx(oracles.abs_sum(m, patterns), rel=ROUNDING)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(
    horizon=st.integers(2, 9),
    separation=st.integers(1, 5),
    most=st.integers(1, 6),
    band=st.integers(0, 9),
    positive=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_too_many_patterns_are_bounded_row_by_row(
    horizon: int, separation: int, most: int, band: int, positive: bool, seed: int
) -> None:
    distance = np.abs(np.subtract.outer(np.arange(horizon), np.arange(horizon)))
    m = np.where(distance <= band, random_gram(horizon, seed, rank=3), 0.0)
    m = np.abs(m) if positive else m
    scheme = min_separation(horizon, separation, most)
    patterns = oracles.min_separation_patterns(horizon, separation, most)
    known = squared_sensitivity(m, scheme)
    with pytest.MonkeyPatch.context() as patch:
        unlisted(patch)
        patch.setattr(sensitivities, "CHUNK", 3 * horizon)  # three rows at a time
        found = squared_sensitivity(m, scheme)
        if sum(1 for _ in scheme.maximal_patterns()) > 1:
            by_rows = sensitivities.unlisted_bounds(m, scheme).absolute.max()
            assert by_rows >= oracles.abs_sum(m, patterns) * (1 - ROUNDING)
            assert by_rows == pytest.approx(oracles.row_bound(m, patterns), rel=ROUNDING)
            assert found.squared <= by_rows * (1 + SHARP)
    assert found.squared >= known.squared * (1 - SHARP)
    if found.kind == EXACT:
        assert found.squared == pytest.approx(known.squared, rel=2 * SHARP)
    if band < separation:
        assert found.kind == EXACT


def test_the_unlisted_bound_says_which_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    unlisted(monkeypatch)
    # Rows of an odd cycle sum to 4, lambda_max is 2 + 2 cos 36 degrees: with three of five steps,
    # 3 * 3.62 = 10.85 < 12 = the sum over rows.
    found = squared_sensitivity(PENTAGON, min_separation(5, 1, 3))
    assert found.kind == SPECTRAL_UPPER_BOUND
    assert found.squared == pytest.approx(3 * (2 + 2 * math.cos(math.pi / 5)))
    # One loud step: lambda_max > 10, rows 10 and 2.
    loud = PENTAGON + np.diag([8.0, 0, 0, 0, 0])
    found = squared_sensitivity(loud, min_separation(5, 1, 3))
    assert found.kind == ABS_SUM_UPPER_BOUND
    assert found.squared == pytest.approx(12 + 4 + 4)
    found = squared_sensitivity(loud, min_separation(5, 1, 3), ceiling=19.0)
    assert (found.squared, found.kind) == (19.0, UPPER_BOUND)


def test_bounds_that_all_but_agree_are_not_called_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neighbours on a 5-cycle correlated by e: three steps in a row attain 3 + 4 e, and the bound
    is 3 lambda_max = 3 (1 + 2 e cos 36 degrees). Steps two apart attain 2, and by rows 2 + 2 e."""
    unlisted(monkeypatch)
    e = 1e-5
    gram = np.eye(5) + e * (PENTAGON - 2 * np.eye(5))
    for scheme, squared, kind in (
        (min_separation(5, 1, 3), 3 * (1 + 2 * e * math.cos(math.pi / 5)), SPECTRAL_UPPER_BOUND),
        (min_separation(5, 2, 2), 2 + 2 * e, ABS_SUM_UPPER_BOUND),
    ):
        found = squared_sensitivity(gram, scheme)
        assert found.squared == pytest.approx(squared, rel=ROUNDING)
        assert found.kind == kind


@pytest.mark.parametrize("size", [2, 5, 20])
def test_the_largest_eigenvalue_is_bounded_without_any_tolerance(size: int) -> None:
    for seed in range(20):
        gram = random_gram(size, seed)
        with mpmath.workdps(40):
            exact = max(mpmath.eigsy(mpmath.matrix(gram.tolist()), eigvals_only=True))
            found = sensitivities.largest_eigenvalue(gram)
            assert exact <= mpmath.mpf(found) <= exact * (1 + mpmath.mpf("1e-12"))


def test_densest_patterns_attain_the_row_bound_where_they_can(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unlisted(monkeypatch)
    distance = np.abs(np.subtract.outer(np.arange(9), np.arange(9)))
    hidden = np.random.default_rng(0).choice([-1.0, 1.0], 9)
    m = 0.5**distance * np.outer(hidden, hidden)
    # Three of nine steps two apart: rows in the middle are 1 + 2/4, those of 0, 2, 4 sum to less.
    assert squared_sensitivity(m, min_separation(9, 2, 3)).kind == ABS_SUM_UPPER_BOUND
    # Two steps: each row is 1 + 1/4, and steps 0, 2 attain both.
    found = squared_sensitivity(m, min_separation(9, 2, 2))
    assert (found.squared, found.kind) == (2.5, EXACT)


def test_a_band_within_the_separation_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    # Steps of one pattern never meet: the heaviest of the diagonal, 5 + 4 (steps 1 and 3), though
    # 5 + 4 + 3 would be within reach of three participations at b = 1.
    unlisted(monkeypatch)
    m = np.diag([1.0, 5, 3, 4, 2]) - 0.5 * (np.eye(5, k=1) + np.eye(5, k=-1))
    found = squared_sensitivity(m, min_separation(5, 2, 2))
    assert (found.squared, found.kind) == (9, EXACT)
    assert squared_sensitivity(m, min_separation(5, 2, 3)).squared == 9


@settings(derandomize=True, deadline=None, max_examples=20)
@given(seed=st.integers(0, 10**6), horizon=st.integers(3, 8))
def test_more_participations_are_worse_and_more_separation_is_better(
    seed: int, horizon: int
) -> None:
    m = random_gram(horizon, seed, rank=3)
    value = {
        (k, b): squared_sensitivity(m, min_separation(horizon, b, k)).squared
        for k, b in itertools.product(range(1, horizon + 1), repeat=2)
    }
    for k, b in itertools.product(range(1, horizon), repeat=2):
        assert value[k, b] <= value[k + 1, b] * (1 + SHARP)
        assert value[k, b] >= value[k, b + 1] * (1 - SHARP)
    assert value[horizon, 1] == pytest.approx(
        squared_sensitivity(m, every_step(horizon)).squared, rel=SHARP
    )
    assert value[1, 1] == pytest.approx(squared_sensitivity(m, single(horizon)).squared)
    epochs = FixedEpoch(epochs=2, separation=horizon // 2)
    rows = 2 * (horizon // 2)
    inner = squared_sensitivity(m[:rows, :rows], epochs).squared
    assert value[2, horizon // 2] >= inner * (1 - SHARP)


# --- sparse and large -----------------------------------------------------------------------------


SCHEMES: list[Participation] = [
    single(12),
    every_step(12),
    FixedEpoch(epochs=3, separation=4),
    min_separation(12, 3, 3),
    Patterns(horizon=12, steps=((0, 1, 2, 3, 7), (5,), (4, 6, 8, 9, 10, 11))),
]


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@pytest.mark.parametrize("positive", [True, False])
@pytest.mark.parametrize("listed", [True, False])
def test_sparse_is_dense(
    scheme: Participation, positive: bool, listed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    strategy = np.tril(np.triu(np.random.default_rng(5).standard_normal((12, 12))), k=5)
    m = strategy.T @ strategy
    m = np.abs(m) if positive else m
    if not listed:
        unlisted(monkeypatch)
    dense = squared_sensitivity(m, scheme)
    for form in (scipy.sparse.csr_array, scipy.sparse.coo_array, scipy.sparse.dia_array):
        found = squared_sensitivity(form(m), scheme)
        assert found.kind == dense.kind
        np.testing.assert_allclose(found.per_pattern, dense.per_pattern, rtol=ROUNDING)


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@pytest.mark.parametrize("form", [np.array, scipy.sparse.csr_array])
@pytest.mark.parametrize("positive", [True, False])
def test_large_patterns_are_treated_as_small_ones(
    scheme: Participation, form: Any, positive: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    m = random_gram(12, seed=5)
    m = np.abs(m) if positive else m
    small, largest = squared_sensitivity(m, scheme), sensitivities.largest_eigenvalue(m)
    monkeypatch.setattr(sensitivities, "BLOCK_LIMIT", 2)
    found = squared_sensitivity(form(m), scheme)
    assert small.squared * (1 - SHARP) <= found.squared <= small.squared * (1 + 1e-5)
    if positive:
        assert found.kind == EXACT
    assert sensitivities.largest_eigenvalue(form(m)) == pytest.approx(largest, rel=1e-8)


def test_ten_thousand_steps_of_opposite_signs() -> None:
    """A path of steps with M_st < 0 between neighbours: signs alternate, the sum is exact."""
    size = 10_000
    m = scipy.sparse.diags_array(
        [np.full(size, 2.0), -np.ones(size - 1), -np.ones(size - 1)], offsets=[0, 1, -1]
    )
    found = squared_sensitivity(m, every_step(size))
    assert found.kind == EXACT
    assert found.squared == pytest.approx(2 * size + 2 * (size - 1), rel=ROUNDING)
    # Two steps b apart: neighbours meet only for b = 1.
    assert squared_sensitivity(m, min_separation(size, 1, 2)).squared == pytest.approx(6)
    apart = squared_sensitivity(m, min_separation(size, 2, 5))
    assert (apart.squared, apart.kind) == (10, EXACT)


@pytest.mark.parametrize("above", [1e-7, 1e-4, 1e-3, 1e-2, 0.2])
@pytest.mark.parametrize("first", [True, False])
def test_patterns_that_are_hardly_above_the_worst_are_looked_at_too(
    above: float, first: bool
) -> None:
    """A pattern of two steps of sum 1, and one of three whose signs no vectors fit: its absolute
    sum is above 1 by little, and what vectors reach, by a conic solver, is not."""
    pair = np.full((2, 2), 0.25)
    frustrated = np.array([[1.0, -0.5, -0.5], [-0.5, 1.0, -0.5], [-0.5, -0.5, 1.0]])
    _, reached = oracles.elliptope(frustrated)
    scale = (1 + above) / np.abs(frustrated).sum()
    assert reached * scale < 1
    parts = (pair, scale * frustrated)
    gram = scipy.linalg.block_diag(*(parts if first else parts[::-1]))
    steps = ((0, 1), (2, 3, 4)) if first else ((0, 1, 2), (3, 4))
    found = squared_sensitivity(gram, Patterns(horizon=5, steps=steps))
    assert found.squared == pytest.approx(1.0, rel=1e-9)
    assert found.kind == EXACT
