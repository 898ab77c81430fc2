"""Squared sensitivity: four numbers in one order, every pattern, no pattern but those."""

from __future__ import annotations

import math

import numpy as np
import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noisedesign.participation import FixedEpoch, single
from noisedesign.sensitivity import (
    EXACT,
    UPPER_BOUND,
    elliptope_upper_bound,
    squared_sensitivity,
    worst_directions,
)

ROUNDING = 1e-12
SHARP = 1e-6
"""How close the bound should come to the elliptope: the ascent stops at moves of 1e-8."""

PENTAGON = 2 * np.eye(5) - np.roll(np.eye(5), 1, axis=0) - np.roll(np.eye(5), -1, axis=0)
"""Laplacian of a 5-cycle: signs reach 16, unit vectors 5 (2 + 2 cos 36 degrees) = 18.09."""


def random_gram(k: int, seed: int, *, rank: int | None = None) -> np.ndarray:
    root = np.random.default_rng(seed).standard_normal((rank or k, k))
    return np.asarray(root.T @ root)


def brute_force(gram: np.ndarray, epochs: int, separation: int) -> list[float]:
    """Sum of all entries of each pattern: what aligned gradients reach."""
    patterns = oracles.fixed_epoch_patterns(epochs, separation)
    return [sum(gram[s, t] for s in p for t in p) for p in patterns]


# --- patterns -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("epochs", "separation"), [(1, 1), (1, 6), (6, 1), (2, 3), (3, 2), (4, 5)])
def test_patterns_are_the_residue_classes(epochs: int, separation: int) -> None:
    scheme = FixedEpoch(epochs=epochs, separation=separation)
    assert scheme.patterns.tolist() == oracles.fixed_epoch_patterns(epochs, separation)
    assert scheme.horizon == epochs * separation
    assert single(6) == FixedEpoch(epochs=1, separation=6)


@pytest.mark.parametrize("j", range(4))
def test_the_worst_pattern_is_found_wherever_it_is(j: int) -> None:
    # Three epochs of four steps; only steps j, j + 4, j + 8 are loud, and they are aligned.
    strategy = 0.1 * np.eye(12)
    strategy[11, [j, j + 4, j + 8]] += 1.0
    gram = strategy.T @ strategy
    found = squared_sensitivity(gram, FixedEpoch(epochs=3, separation=4))
    assert int(found.per_pattern.argmax()) == j
    assert found.squared == pytest.approx(max(brute_force(gram, 3, 4)), rel=ROUNDING)


@settings(derandomize=True, deadline=None, max_examples=40)
@given(
    epochs=st.integers(1, 4), separation=st.integers(1, 4), seed=st.integers(0, 10**6)
)  # fmt: skip
def test_nonnegative_entries_are_exact(epochs: int, separation: int, seed: int) -> None:
    strategy = np.abs(
        np.tril(np.random.default_rng(seed).standard_normal((epochs * separation,) * 2))
    )
    gram = strategy.T @ strategy
    found = squared_sensitivity(gram, FixedEpoch(epochs=epochs, separation=separation))
    assert found.kind == EXACT
    np.testing.assert_allclose(
        found.per_pattern, brute_force(gram, epochs, separation), rtol=ROUNDING
    )


def test_entries_between_patterns_do_not_matter() -> None:
    gram = np.eye(6)
    gram[0, 1] = gram[1, 0] = -0.9  # steps 0 and 1 never meet under b = 2
    found = squared_sensitivity(gram, FixedEpoch(epochs=3, separation=2))
    assert found.kind == EXACT
    np.testing.assert_allclose(found.per_pattern, [3, 3], rtol=ROUNDING)


# --- closed cases ---------------------------------------------------------------------------------


def test_single_participation_is_the_largest_squared_column_norm() -> None:
    strategy = np.tril(np.random.default_rng(3).standard_normal((7, 7)))
    found = squared_sensitivity(strategy.T @ strategy, single(7))
    assert found.kind == EXACT
    assert found.squared == pytest.approx(
        max(np.linalg.norm(strategy[:, t]) ** 2 for t in range(7)), rel=ROUNDING
    )


def test_diagonal_blocks_add_up() -> None:
    gram = np.diag([1.0, 2, 3, 4, 5, 6])
    found = squared_sensitivity(gram, FixedEpoch(epochs=3, separation=2))
    assert found.kind == EXACT
    np.testing.assert_allclose(found.per_pattern, [1 + 3 + 5, 2 + 4 + 6], rtol=ROUNDING)


def test_it_is_squared() -> None:
    gram = random_gram(6, seed=0)
    scheme = FixedEpoch(epochs=3, separation=2)
    base = squared_sensitivity(gram, scheme).squared
    assert squared_sensitivity(9 * gram, scheme).squared == pytest.approx(9 * base, rel=1e-9)


def test_two_steps_of_opposite_sign_by_hand() -> None:
    # Y_12 = -1 is the worst correlation: a + b + 2 |m|.
    gram = np.array([[2.0, -0.7], [-0.7, 3.0]])
    found = squared_sensitivity(gram, FixedEpoch(epochs=2, separation=1))
    assert found.kind == UPPER_BOUND
    assert found.squared == pytest.approx(5 + 2 * 0.7, rel=SHARP)


def test_vectors_do_more_than_signs_on_a_pentagon() -> None:
    exact = 5 * (2 + 2 * math.cos(math.pi / 5))
    assert oracles.best_signs(PENTAGON) == pytest.approx(16)
    found = squared_sensitivity(PENTAGON, FixedEpoch(epochs=5, separation=1))
    assert exact * (1 - ROUNDING) <= found.squared <= exact * (1 + SHARP)
    # Here k lambda_max is the exact number as well; the sum of absolute values, 20, is not.
    assert found.squared < 20 - 1


def test_three_unit_vectors_by_search_over_angles() -> None:
    for seed in range(5):
        m = random_gram(3, seed, rank=2) - 0.2 * np.eye(3)
        m += max(0.0, -np.linalg.eigvalsh(m)[0]) * np.eye(3)
        searched = oracles.elliptope_by_angles(m)
        bound = float(elliptope_upper_bound(m[None])[0])
        assert searched <= bound * (1 + ROUNDING)
        assert bound <= searched * (1 + 1e-5)


# --- one order ------------------------------------------------------------------------------------


@settings(derandomize=True, deadline=None, max_examples=30)
@given(k=st.integers(2, 6), rank=st.integers(1, 6), seed=st.integers(0, 10**6))
def test_signs_then_elliptope_then_reported(k: int, rank: int, seed: int) -> None:
    m = random_gram(k, seed, rank=rank)
    lower, upper = oracles.elliptope(m)
    reported = squared_sensitivity(m, FixedEpoch(epochs=k, separation=1)).squared
    room = 1 + ROUNDING
    assert oracles.best_signs(m) <= upper * room
    assert oracles.best_signs(m) <= reported * room
    assert lower <= reported * room
    assert reported <= upper * (1 + 1e-4)
    assert reported <= k * np.linalg.eigvalsh(m)[-1] * room
    assert reported <= np.abs(m).sum() * room


@pytest.mark.parametrize("seed", range(6))
def test_the_bound_is_sharp(seed: int) -> None:
    m = random_gram(5, seed)
    lower, upper = oracles.elliptope(m)
    assert upper <= lower * (1 + 1e-5)
    assert float(elliptope_upper_bound(m[None])[0]) == pytest.approx(lower, rel=1e-5)


@settings(derandomize=True, deadline=None, max_examples=40)
@given(k=st.integers(1, 8), seed=st.integers(0, 10**6))
def test_the_bound_holds_for_any_symmetric_matrix(k: int, seed: int) -> None:
    """Indefinite ones too: no correlation matrix passes it, however it was drawn."""
    rng = np.random.default_rng(seed)
    m = rng.standard_normal((k, k))
    m = (m + m.T) / 2
    bound = float(elliptope_upper_bound(m[None])[0])
    for dimension in (1, k, 2 * k):
        v = rng.standard_normal((20, k, dimension))
        v /= np.linalg.norm(v, axis=2, keepdims=True)
        assert np.einsum("ij,nid,njd->n", m, v, v).max() <= bound + ROUNDING * k * np.abs(m).max()


def test_an_unfinished_ascent_still_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noisedesign.sensitivity.ASCENT_SWEEPS", 1)
    for seed in range(10):
        m = random_gram(6, seed)
        lower, _ = oracles.elliptope(m)
        assert float(elliptope_upper_bound(m[None])[0]) >= lower * (1 - ROUNDING)


def test_worst_directions_are_unit_vectors_that_attain_the_bound() -> None:
    blocks = np.stack([random_gram(4, seed) for seed in range(3)])
    v = worst_directions(blocks)
    np.testing.assert_allclose(np.linalg.norm(v, axis=2), 1, rtol=ROUNDING)
    attained = np.einsum("jkl,jkd,jld->j", blocks, v, v)
    np.testing.assert_allclose(attained, elliptope_upper_bound(blocks), rtol=1e-5)


def test_rounding_below_zero_is_still_exact_and_errs_upwards() -> None:
    gram = np.ones((4, 4))
    gram[0, 1] = gram[1, 0] = -1e-17
    found = squared_sensitivity(gram, FixedEpoch(epochs=4, separation=1))
    assert found.kind == EXACT
    assert found.squared >= gram.sum()


@pytest.mark.parametrize("scale", [1e-150, 1e150])
def test_scale_does_not_matter(scale: float) -> None:
    m = random_gram(4, seed=1)
    scheme = FixedEpoch(epochs=4, separation=1)
    assert squared_sensitivity(scale * m, scheme).squared == pytest.approx(
        scale * squared_sensitivity(m, scheme).squared, rel=1e-5
    )
