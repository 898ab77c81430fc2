"""The low-rank search: stationary points by hand, saddles left behind, limits kept."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse

from noisedesign.privacy.sensitivity.elliptope import ascend, first_guess, widened
from tests.support import oracles
from tests.support.sensitivity_cases import TRIANGLE, cycle, random_gram

MANY = 10_000


def value(m: np.ndarray, vectors: np.ndarray) -> float:
    return float(np.sum(m * (vectors @ vectors.T)))


def test_three_vectors_turn_to_120_degrees() -> None:
    found = ascend(TRIANGLE, first_guess(3, 2), products=MANY)
    assert found.settled
    np.testing.assert_allclose(found.vectors @ found.vectors.T, TRIANGLE, atol=1e-7)
    np.testing.assert_allclose(found.y, 1.5, rtol=1e-8)


@pytest.mark.parametrize("size", [4, 9, 40])
@pytest.mark.parametrize("seed", range(3))
def test_it_comes_to_rest_where_the_gradient_vanishes(size: int, seed: int) -> None:
    m = random_gram(size, seed, rank=3)
    start = first_guess(size, 3)
    found = ascend(m, start, products=MANY)
    assert found.settled
    np.testing.assert_allclose(np.linalg.norm(found.vectors, axis=1), 1, rtol=1e-14)
    pull = m @ found.vectors
    across = pull - np.sum(pull * found.vectors, axis=1)[:, None] * found.vectors
    assert np.linalg.norm(across) <= 1e-6 * np.linalg.norm(pull)
    assert float(found.y.sum()) == pytest.approx(value(m, found.vectors), rel=1e-13)
    assert value(m, found.vectors) >= value(m, start)


@pytest.mark.parametrize("size", [5, 12])
@pytest.mark.parametrize("seed", range(4))
def test_with_columns_enough_it_finds_the_maximum(size: int, seed: int) -> None:
    """From rank r with r (r + 1) / 2 > k on (Boumal, Voroninski and Bandeira 2016), generically."""
    m = random_gram(size, seed, rank=size)
    lower, upper = oracles.elliptope(m)
    found = ascend(m, first_guess(size, 5), products=MANY)
    assert lower * (1 - 1e-9) <= float(found.y.sum()) <= upper * (1 + 1e-9)


@pytest.mark.parametrize("size", [3, 9])
def test_sparse_and_dense_agree(size: int) -> None:
    m = cycle(size)
    dense = ascend(m, first_guess(size, 2), products=MANY)
    sparse = ascend(scipy.sparse.csr_array(m), first_guess(size, 2), products=MANY)
    np.testing.assert_allclose(sparse.y, dense.y, rtol=1e-9)


def test_nothing_to_gain_moves_nothing() -> None:
    start = first_guess(4, 2)
    for m in (np.eye(4), np.zeros((4, 4)), np.diag([1.0, -2, 0, 3])):
        found = ascend(m, start, products=MANY)
        np.testing.assert_allclose(found.vectors, start)
        np.testing.assert_allclose(found.y, np.diagonal(m), atol=1e-15)


def test_steps_against_negative_curvature_go_to_the_rim() -> None:
    """Of -I + ones the first curvature is negative, so the step is as long as allowed."""
    m = 1 - np.eye(3)
    opposed = np.array([[1.0, 1e-3], [-1, 1e-3], [1, 1e-3]])
    opposed /= np.linalg.norm(opposed, axis=1)[:, None]
    found = ascend(m, opposed, products=MANY)
    assert float(found.y.sum()) == pytest.approx(6, rel=1e-12)


@pytest.mark.parametrize("size", [5, 21])
def test_a_column_more_leaves_a_saddle(size: int) -> None:
    """Alternating signs are the best of one column; a second lets the vectors turn."""
    m = cycle(size)
    signs = np.resize([1.0, -1.0], size)[:, None]
    stuck = ascend(m, signs, products=MANY)
    assert float(stuck.y.sum()) == pytest.approx(4 * (size - 1))
    _, directions = np.linalg.eigh(np.diag(stuck.y) - m)
    wider = widened(stuck.vectors, directions[:, 0])
    assert wider.shape == (size, 2)
    np.testing.assert_allclose(np.linalg.norm(wider, axis=1), 1, rtol=1e-14)
    left = ascend(m, wider, products=MANY)
    assert float(left.y.sum()) == pytest.approx(oracles.odd_cycle_elliptope(size), rel=1e-9)


def test_the_limit_on_products_is_kept() -> None:
    m = random_gram(60, seed=0, rank=60)
    counted = 0

    class Counting(np.ndarray):
        def __matmul__(self, other: np.ndarray) -> np.ndarray:  # type: ignore[override]
            nonlocal counted
            counted += 1
            return np.asarray(self) @ other

    full = ascend(m.view(Counting), first_guess(60, 4), products=MANY)
    needed, counted = counted, 0
    assert full.settled
    cut = ascend(m.view(Counting), first_guess(60, 4), products=needed // 3)
    assert not cut.settled
    assert counted < needed
    assert value(m, first_guess(60, 4)) < float(cut.y.sum()) <= float(full.y.sum())


def test_the_first_guess_is_the_same_at_every_call() -> None:
    guess = first_guess(7, 3)
    assert guess.shape == (7, 3)
    np.testing.assert_array_equal(guess, first_guess(7, 3))
    assert math.isclose(float(np.linalg.norm(guess)) ** 2, 7, rel_tol=1e-14)
