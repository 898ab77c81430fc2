"""The map from white noise to noise, taken column by column, against dense linear algebra."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from noisedesign.base.checks import InputError
from noisedesign.forms import (
    BandedInverse,
    BandedStrategy,
    BufferedToeplitz,
    DenseStrategy,
    Noise,
    SignedBuffers,
    Strategy,
    ToeplitzStrategy,
    noise_of_arrays,
    strategy_of_arrays,
)
from noisedesign.privacy.seeds import SeedPlan, SharedSeed

T = 7
CLOSE = {"rtol": 1e-12, "atol": 1e-13}


def map_of(noise: Noise, *, steps: int, nodes: int | None = None) -> np.ndarray:
    """L, shape (steps n, steps draws), of the linear map, from unit vectors, time-major."""
    draws = noise.draws(nodes)
    unit = np.eye(steps * draws).reshape(steps, draws, steps * draws)
    return np.concatenate(list(noise.of_white(iter(unit))))


def lower_toeplitz(column: Any) -> np.ndarray:
    """Entry by entry."""
    full = [*column, *[0.0] * (T - len(column))]
    return np.array([[full[t - s] if t >= s else 0.0 for s in range(T)] for t in range(T)])


SCALES, DECAYS = np.array([0.3, 0.2]), np.array([0.9, 0.25])
BUFFERED = [1.0, *(float(SCALES @ DECAYS ** (j - 1)) for j in range(1, T))]
TURNING = [1.0, -0.125, -0.5625, -0.34375, -0.140625, 0.0703125, 0.12109375]
"""Of scales 1/4, -1/2 and powers of (1 + i) / 2, whose Re - Im is 1, 0, -1/2, -1/2, -1/4, 0 and
Re + Im is 1, 1, 1/2, 0, -1/4, -1/4; and of the scale 1/8 and powers of -1/2."""
FIVE_BANDS = np.array([[1.0, 2, 3, 4, 5, 6, 7], [0.5, -1, 2, 0.25, 3, 1, 0]])


def bands_by_hand() -> np.ndarray:
    found = np.zeros((T, T))
    for t in range(T):
        found[t, t] = FIVE_BANDS[0, t]
        if t + 1 < T:
            found[t + 1, t] = FIVE_BANDS[1, t]
    return found


def dense() -> np.ndarray:
    return np.tril(np.random.default_rng(5).normal(size=(T, T))) + 3 * np.eye(T)


FORMS: dict[str, tuple[Strategy, Callable[[], np.ndarray]]] = {
    "dense": (DenseStrategy(strategy=dense()), dense),
    "banded": (BandedStrategy(bands=FIVE_BANDS), bands_by_hand),
    "toeplitz": (
        ToeplitzStrategy(coefficients=np.array([2.0, 1.0, -0.5]), steps=T),
        lambda: lower_toeplitz([2.0, 1.0, -0.5]),
    ),
    "banded-inverse": (
        BandedInverse(coefficients=np.array([2.0, -1.0, -0.5]), steps=T),
        lambda: np.linalg.inv(lower_toeplitz([2.0, -1.0, -0.5])),
    ),
    "blt": (
        BufferedToeplitz(scales=SCALES, decays=DECAYS, diagonal=4.0, steps=T),
        lambda: 4 * lower_toeplitz(BUFFERED),
    ),
    "signed-blt": (
        SignedBuffers(
            scales=[0.25, -0.5, 0.125], decays=[0.5, 0.5, -0.5], turns=[0.5, -0.5, 0.0], steps=T
        ),
        lambda: lower_toeplitz(TURNING),
    ),
}


@pytest.mark.parametrize("kind", FORMS)
def test_a_form_is_its_strategy(kind: str) -> None:
    form, by_hand = FORMS[kind]
    expected = by_hand()
    assert (form.kind, form.horizon) == (kind, T)
    np.testing.assert_allclose(form.dense(), expected, **CLOSE)
    np.testing.assert_allclose(form.dense_noising(), np.linalg.inv(expected), **CLOSE)
    np.testing.assert_allclose(form.scaled(3.0).dense(), expected / 3, **CLOSE)
    assert set(form.arrays()) == set(form.names)


@pytest.mark.parametrize("kind", FORMS)
def test_a_form_draws_the_noise_of_its_strategy(kind: str) -> None:
    form, by_hand = FORMS[kind]
    inverse = np.linalg.inv(by_hand())
    for factor in (1.0, 0.5):
        noise = Noise(steps=T, strategy=form).scaled(factor)
        np.testing.assert_allclose(map_of(noise, steps=T), factor * inverse, **CLOSE)
    # Nodes draw for themselves.
    two = map_of(Noise(steps=T, strategy=form), steps=T, nodes=2)
    np.testing.assert_allclose(two, np.kron(inverse, np.eye(2)), **CLOSE)


@pytest.mark.parametrize("kind", FORMS)
def test_a_form_comes_back_from_its_arrays(kind: str) -> None:
    form, _ = FORMS[kind]
    again = strategy_of_arrays(form.arrays() | {"mixing": np.eye(2)}, horizon=T, field="f")
    assert type(again) is type(form)
    np.testing.assert_array_equal(again.dense(), form.dense())


R = np.array([[2.0, 0.5, 0.0], [0.5, 1.0, -0.25], [0.0, -0.25, 1.5]])
SEEDS = SeedPlan(
    nodes=3,
    seeds=(
        SharedSeed(members=(0, 2), coefficients=np.array([1.0, -2.0])),
        SharedSeed(members=(1,), coefficients=np.array([3.0])),
        SharedSeed(members=(2, 1), coefficients=np.array([0.5, 0.25])),
    ),
)
FROM_SEEDS = np.array(
    [[1, 0, -2], [0, 9 + 0.25**2, 0.125], [-2, 0.125, 4 + 0.25]], dtype=np.float64
)


@pytest.mark.parametrize("kind", FORMS)
@pytest.mark.parametrize(("space", "expected"), [(R, R), (SEEDS, FROM_SEEDS)], ids=["R", "seeds"])
def test_both_factors(kind: str, space: Any, expected: np.ndarray) -> None:
    form, by_hand = FORMS[kind]
    noise = Noise(steps=T, nodes=3, strategy=form, space=space)
    made = map_of(noise, steps=T)
    strategy = by_hand()
    covariance = np.kron(np.linalg.inv(strategy.T @ strategy), expected)
    np.testing.assert_allclose(made @ made.T, covariance, **CLOSE)
    twice = map_of(noise.scaled(2.0), steps=T)
    np.testing.assert_allclose(twice, 2 * made, **CLOSE)
    assert noise.axes == "space-time"


def test_independent_steps() -> None:
    for space, expected in ((R, R), (SEEDS, FROM_SEEDS)):
        noise = Noise(steps=None, nodes=3, space=space)
        made = map_of(noise, steps=2)
        np.testing.assert_allclose(made @ made.T, np.kron(np.eye(2), expected), **CLOSE)
        assert noise.axes == "space"
        with pytest.raises(InputError, match="steps: expected how many steps"):
            noise.stream(dimension=1, seed=0)


def test_independent_steps_end_with_their_horizon_too() -> None:
    noise = Noise(steps=2, nodes=3, space=R)
    assert len(list(noise.of_white(iter(np.zeros((5, 3, 1)))))) == 2
    assert len(list(noise.stream(dimension=1, seed=0))) == 2


def test_a_singular_covariance_is_drawn() -> None:
    ones = np.ones((3, 3))
    made = map_of(Noise(steps=None, nodes=3, space=ones), steps=1)
    np.testing.assert_allclose(made @ made.T, ones, atol=1e-12)


def test_a_full_design() -> None:
    size = 3 * T
    strategy = np.tril(np.random.default_rng(1).normal(size=(size, size))) + 4 * np.eye(size)
    noise = Noise(steps=T, nodes=3, strategy=DenseStrategy(strategy=strategy), full=True)
    np.testing.assert_allclose(map_of(noise, steps=T), np.linalg.inv(strategy), **CLOSE)
    assert noise.axes == "space-time"
    again = noise_of_arrays(noise.arrays(), steps=T, nodes=3, full=True, field="f")
    np.testing.assert_allclose(map_of(again, steps=T), np.linalg.inv(strategy), **CLOSE)


@pytest.mark.parametrize("kind", FORMS)
def test_a_stream_is_the_map_of_white_noise_and_ends_with_the_horizon(kind: str) -> None:
    form, by_hand = FORMS[kind]
    noise = Noise(steps=T, nodes=3, strategy=form, space=R)
    drawn = np.array(list(noise.stream(dimension=2, seed=4)))
    assert drawn.shape == (T, 3, 2)
    np.testing.assert_array_equal(drawn, np.array(list(noise.stream(dimension=2, seed=4))))
    assert not np.allclose(drawn, np.array(list(noise.stream(dimension=2, seed=5))))
    # The white noise of a space design of the identity is that of the stream.
    white = np.array(list(Noise(steps=T, nodes=3, space=np.eye(3)).stream(dimension=2, seed=4)))
    root = np.linalg.cholesky(R)
    expected = np.einsum("ts,ij,sjd->tid", np.linalg.inv(by_hand()), root, white)
    np.testing.assert_allclose(drawn, expected, **CLOSE)
    assert len(list(noise.stream(dimension=1, seed=0, steps=2))) == 2
    with pytest.raises(InputError, match=f"steps: expected at most {T}.*got {T + 1}"):
        noise.stream(dimension=1, seed=0, steps=T + 1)
    more = np.zeros((T + 5, 3, 1))
    assert len(list(noise.of_white(iter(more)))) == T


@pytest.mark.parametrize("kind", ["toeplitz", "banded-inverse", "blt", "signed-blt"])
def test_noise_without_a_horizon_has_no_last_step(kind: str) -> None:
    form, by_hand = FORMS[kind]
    white = np.random.default_rng(6).normal(size=(T, 3))
    endless = (white[t % T] for t in itertools.count())
    drawn = list(itertools.islice(replace(form, steps=None).noise_of(endless), 3 * T))
    assert len(drawn) == 3 * T
    np.testing.assert_allclose(drawn[:T], np.linalg.solve(by_hand(), white), **CLOSE)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"strategy": np.eye(6)}, r"f\.strategy: expected shape \(7, 7\)"),
        ({"strategy_bands": np.ones((2, 7))}, "zeros past the end"),
        ({"strategy_bands": np.ones(7)}, r"shape \(bands, 7\)"),
        ({"strategy_bands": np.zeros((1, 7))}, "a positive diagonal"),
        ({"strategy_coefficients": np.ones(8)}, "1 to 7 coefficients"),
        ({"noising_coefficients": np.array([-1.0, 2])}, "a first coefficient > 0"),
        ({"strategy_coefficients": np.array([1.0, np.nan])}, "finite entries"),
        (
            {"buffer_scales": SCALES, "buffer_decays": DECAYS, "strategy_diagonal": np.zeros(1)},
            "one positive number",
        ),
        (
            {"buffer_scales": SCALES, "buffer_decays": 2 * DECAYS, "strategy_diagonal": np.ones(1)},
            r"values in \[0, 1\]",
        ),
        ({"covariance": np.eye(2)}, r"f\.covariance: expected shape \(3, 3\)"),
        ({"covariance": -np.eye(3)}, "positive semidefinite"),
        ({"mixing": np.eye(3)}, "a strategy or a covariance"),
    ],
)
def test_arrays_that_are_no_noise(arrays: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(InputError, match=message):
        noise_of_arrays(arrays, steps=T, nodes=3, full=False, field="f")


@pytest.mark.parametrize("form", FORMS)
def test_steps_that_fit_no_memory_are_refused_before_anything_is_drawn(form: str) -> None:
    """How many nodes there are may be no more than a number that a file states."""
    strategy = FORMS[form][0]
    many = Noise(steps=T, nodes=10**15, strategy=strategy)
    with pytest.raises(InputError, match=r"^nodes: expected at most \d+ nodes, which fit"):
        many.stream(dimension=1, seed=0)
    few = Noise(steps=T, nodes=4, strategy=strategy)
    with pytest.raises(InputError, match=r"^dimension: expected at most \d+ coordinates of 4 n"):
        few.stream(dimension=10**15, seed=0)
    assert next(few.stream(dimension=2, seed=0)).shape == (4, 2)
