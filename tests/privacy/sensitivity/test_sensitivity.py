"""Squared sensitivity: bounds in one order, every pattern, no pattern but those."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings, strategies as st

from noisedesign.base.checks import InputError
from noisedesign.privacy import sensitivity as sensitivities
from noisedesign.privacy.sensitivity import (
    ABS_SUM_UPPER_BOUND,
    EXACT,
    UPPER_BOUND,
    squared_sensitivity,
)
from noisedesign.system.participation import FixedEpoch, Participation, Patterns, every_step, single
from tests.support import oracles
from tests.support.sensitivity_cases import (
    PENTAGON,
    ROUNDING,
    SHARP,
    TRIANGLE,
    min_separation,
    random_gram,
)


def block_diagonal(*blocks: np.ndarray) -> np.ndarray:
    return np.asarray(scipy.sparse.block_diag(blocks).toarray())


def brute_force(gram: np.ndarray, epochs: int, separation: int) -> list[float]:
    """Sum of all entries of each pattern: what aligned gradients reach."""
    patterns = oracles.fixed_epoch_patterns(epochs, separation)
    return [sum(gram[s, t] for s in p for t in p) for p in patterns]


# --- patterns -------------------------------------------------------------------------------------


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
@given(epochs=st.integers(1, 4), separation=st.integers(1, 4), seed=st.integers(0, 10**6))
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


def test_patterns_of_one_s_own_keep_their_order() -> None:
    gram = block_diagonal(TRIANGLE, np.diag([1.0, 7]))
    scheme = Patterns(horizon=5, steps=((4,), (0, 1, 2), (3,), (0, 2, 3), (3, 4)))
    found = squared_sensitivity(gram, scheme)
    assert found.kind == EXACT
    # 1 + 1 + 2 * 1/2, and the diagonal; the triangle, 9/2, cannot be the worst and is left at 6.
    np.testing.assert_allclose(found.per_pattern, [7, 6, 1, 4, 8], rtol=ROUNDING)
    without = Patterns(horizon=5, steps=((0, 1, 2), (3,), (0, 2, 3)))
    assert squared_sensitivity(gram, without).squared == pytest.approx(4.5, rel=SHARP)


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize(("other", "expected"), [(4.4, 4.5), (4.6, 4.6), (5.9, 5.9), (6.1, 6.1)])
def test_a_loose_bound_hides_no_pattern(other: float, expected: float, order: int) -> None:
    """The triangle's sum of absolute values is 6, its sensitivity 9/2."""
    gram = block_diagonal(TRIANGLE, np.array([[other]]))
    found = squared_sensitivity(gram, Patterns(horizon=4, steps=((0, 1, 2), (3,))[::order]))
    assert found.squared == pytest.approx(expected, rel=SHARP)
    assert found.kind == EXACT


def test_patterns_that_cannot_be_the_worst_are_not_looked_into(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sensitivities, "block_bounds", None)
    gram = block_diagonal(TRIANGLE, np.array([[6.5]]))
    assert squared_sensitivity(gram, Patterns(horizon=4, steps=((0, 1, 2), (3,)))).squared == 6.5


@settings(derandomize=True, deadline=None, max_examples=25)
@given(number=st.integers(1, 6), seed=st.integers(0, 10**6))
def test_the_worst_of_many_is_the_worst_of_each(number: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    m = random_gram(7, seed, rank=3)
    rows = [tuple(rng.permutation(7)[: rng.integers(1, 8)].tolist()) for _ in range(number)]
    alone = [squared_sensitivity(m, Patterns(horizon=7, steps=(p,))) for p in rows]
    found = squared_sensitivity(m, Patterns(horizon=7, steps=tuple(rows)))
    assert found.kind == EXACT
    assert found.squared == pytest.approx(max(each.squared for each in alone), rel=SHARP)
    for bound, each in zip(found.per_pattern, alone, strict=True):
        assert bound >= each.squared * (1 - SHARP)


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
    assert squared_sensitivity(9 * gram, scheme).squared == pytest.approx(9 * base, rel=SHARP)


@pytest.mark.parametrize("size", [1, 2, 7])
def test_identity_and_ones_by_hand(size: int) -> None:
    for gram, expected in ((np.eye(size), size), (np.ones((size, size)), size**2)):
        found = squared_sensitivity(gram, every_step(size))
        assert found.kind == EXACT
        assert found.squared == pytest.approx(expected, rel=ROUNDING)


def test_nothing_is_never_seen() -> None:
    found = squared_sensitivity(np.zeros((4, 4)), every_step(4))
    assert (found.squared, found.kind) == (0, EXACT)
    assert squared_sensitivity(np.zeros((4, 4)), every_step(4), ceiling=0.0).squared == 0


@pytest.mark.parametrize("a", [0.25, 0.7, 1.0])
def test_two_steps_of_opposite_sign_by_hand(a: float) -> None:
    # Y_12 = -1 is the worst correlation, and flipping one gradient attains it: 2 + 2 a.
    found = squared_sensitivity(np.array([[1, -a], [-a, 1]]), FixedEpoch(epochs=2, separation=1))
    assert found.kind == EXACT
    assert found.squared == pytest.approx(2 + 2 * a, rel=ROUNDING)


def test_vectors_do_more_than_signs_on_a_triangle() -> None:
    found = squared_sensitivity(TRIANGLE, every_step(3))
    assert found.kind == EXACT
    assert oracles.best_signs(TRIANGLE) == pytest.approx(4, rel=ROUNDING)
    assert found.squared == pytest.approx(4.5, rel=SHARP)


def test_vectors_do_more_than_signs_on_a_pentagon() -> None:
    exact = oracles.odd_cycle_elliptope(5)
    assert oracles.best_signs(PENTAGON) == pytest.approx(16)
    found = squared_sensitivity(PENTAGON, FixedEpoch(epochs=5, separation=1))
    assert exact * (1 - ROUNDING) <= found.squared <= exact * (1 + SHARP)
    assert found.kind == EXACT


# --- one order ------------------------------------------------------------------------------------


@settings(derandomize=True, deadline=None, max_examples=30)
@given(k=st.integers(2, 6), rank=st.integers(1, 6), seed=st.integers(0, 10**6))
def test_signs_then_elliptope_then_the_smaller_bound(k: int, rank: int, seed: int) -> None:
    m = random_gram(k, seed, rank=rank)
    lower, upper = oracles.elliptope(m)
    found = squared_sensitivity(m, every_step(k))
    assert found.kind == EXACT
    assert oracles.best_signs(m) <= found.squared * (1 + ROUNDING)
    assert lower <= found.squared * (1 + ROUNDING)
    assert found.squared <= upper * (1 + SHARP)
    spectral = k * sensitivities.largest_eigenvalue(m)
    assert found.squared <= min(spectral, np.abs(m).sum()) * (1 + SHARP)


# --- signs that make M nonnegative ----------------------------------------------------------------


@settings(derandomize=True, deadline=None, max_examples=30)
@given(k=st.integers(1, 30), density=st.floats(0, 1), seed=st.integers(0, 10**6))
def test_balanced_signs_are_exact(k: int, density: float, seed: int) -> None:
    """Flipping signs of rows and columns changes nothing, in however many pieces M falls."""
    rng = np.random.default_rng(seed)
    root = rng.exponential(size=(k, k)) * (rng.random((k, k)) < density)
    hidden = rng.choice([-1.0, 1.0], k)
    gram = (root.T @ root) * hidden[:, None] * hidden
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sensitivities, "block_bounds", None)  # not needed, so never called
        found = squared_sensitivity(gram, every_step(k))
    assert found.kind == EXACT
    assert found.squared == pytest.approx(np.abs(gram).sum(), rel=ROUNDING)


def test_rounding_below_zero_is_still_exact_and_errs_upwards() -> None:
    gram = np.ones((4, 4))
    gram[0, 1] = gram[1, 0] = -1e-17
    found = squared_sensitivity(gram, FixedEpoch(epochs=4, separation=1))
    assert found.kind == EXACT
    assert found.squared >= gram.sum()


# --- which number it is ---------------------------------------------------------------------------


def test_a_bound_is_not_called_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noisedesign.privacy.sensitivity.elliptope.NEWTON_STEPS", 4)
    found = squared_sensitivity(PENTAGON, every_step(5))
    assert found.kind == UPPER_BOUND
    assert oracles.odd_cycle_elliptope(5) < found.squared < 20
    monkeypatch.setattr("noisedesign.privacy.sensitivity.elliptope.NEWTON_STEPS", 0)
    found = squared_sensitivity(PENTAGON, every_step(5))
    assert found.squared == pytest.approx(20)
    assert found.kind == ABS_SUM_UPPER_BOUND


@pytest.mark.parametrize("scheme", [every_step(5), min_separation(5, 1, 5)])
@pytest.mark.parametrize(
    ("ceiling", "squared", "kind"),
    [
        (19.0, 18.0901699, EXACT),
        (math.inf, 18.0901699, EXACT),
        (18.0901700, 18.0901699, EXACT),
        (17.0, 18.0901699, EXACT),
        (0.0, 18.0901699, EXACT),
    ],
)
def test_a_ceiling_does_not_undercut_what_is_attained(
    scheme: Participation, ceiling: float, squared: float, kind: str
) -> None:
    found = squared_sensitivity(PENTAGON, scheme, ceiling=ceiling)
    assert found.squared == pytest.approx(squared, rel=1e-8)
    assert found.kind == kind


def test_a_ceiling_that_rounds_below_what_is_attained_does_not_lower_it() -> None:
    """Three aligned steps attain 9 exactly; a ceiling that is less by 5e-9 of it was rounded."""
    found = squared_sensitivity(np.ones((3, 3)), every_step(3), ceiling=9 * (1 - 5e-9))
    assert (found.kind, found.squared >= 9) == (EXACT, True)


def test_a_ceiling_below_a_loose_bound_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = oracles.odd_cycle_elliptope(5)
    monkeypatch.setattr("noisedesign.privacy.sensitivity.elliptope.NEWTON_STEPS", 0)
    found = squared_sensitivity(PENTAGON, every_step(5), ceiling=19.0)
    assert (found.squared, found.kind) == (19.0, UPPER_BOUND)
    assert squared_sensitivity(PENTAGON, every_step(5), ceiling=21.0).squared == 20
    # Signs attain 16, so a ceiling below 16 is wrong, and nothing is made of it.
    signed = np.diag([1.0, -1, 1, -1, 1])
    turned = signed @ PENTAGON @ signed  # all but one edge positive
    found = squared_sensitivity(turned, every_step(5), ceiling=exact)
    assert (found.squared, found.kind) == (exact, UPPER_BOUND)
    assert squared_sensitivity(turned, every_step(5), ceiling=15.9).squared == pytest.approx(20)
    # Patterns other than the worst are cut as well.
    both = block_diagonal(PENTAGON, np.diag([19.5]))
    two = Patterns(horizon=6, steps=(tuple(range(5)), (5,)))
    found = squared_sensitivity(both, two, ceiling=19.5)
    np.testing.assert_allclose(found.per_pattern, [19.5, 19.5])
    assert found.kind == EXACT


# --- input ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [np.array, scipy.sparse.csr_array])
@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda m: np.where(np.eye(4) == 1, np.nan, m), "finite"),
        (lambda m: np.where(np.eye(4) == 1, np.inf, m), "finite"),
        (lambda m: m.astype(np.float32), "float64"),
        (lambda m: m + np.triu(np.ones((4, 4)), k=1), "symmetric"),
        (lambda m: m[:, :3], "square"),
        (lambda m: m[:3, :3], r"shape \(4, 4\)"),
        (lambda m: m - 9 * np.diag([0, 0, 1.0, 0]), "nonnegative diagonal, got -8 at step 2"),
    ],
)
def test_what_is_no_gram_matrix_is_refused(form: Any, edit: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        squared_sensitivity(form(edit(np.eye(4))), every_step(4))
    assert error.value.field == "gram"


@pytest.mark.parametrize("bad", [-1.0, math.nan, True, "1"])
def test_what_is_no_ceiling_is_refused(bad: Any) -> None:
    with pytest.raises(InputError, match="ceiling"):
        squared_sensitivity(np.eye(2), every_step(2), ceiling=bad)


@pytest.mark.parametrize("scale", [1e-150, 1e150])
def test_scale_does_not_matter(scale: float) -> None:
    m = random_gram(4, seed=1)
    scheme = FixedEpoch(epochs=4, separation=1)
    assert squared_sensitivity(scale * m, scheme).squared == pytest.approx(
        scale * squared_sensitivity(m, scheme).squared, rel=SHARP
    )
