"""Noise of Toeplitz strategies: unit vectors in place of draws give the rows of C^-1."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings, strategies as st

from noisedesign.base.checks import InputError
from noisedesign.forms import (
    BandedInverse,
    BufferedToeplitz,
    Noise,
    StationaryStrategy,
    ToeplitzStrategy,
)
from noisedesign.forms.streams import time_noise_stream

BANDS = np.array([2.0, -0.5, 0.3, 0.1])
SCALES, DECAYS = np.array([0.3, 0.2, 0.1]), np.array([0.5, 0.95, 0.0])

INVERSE = BandedInverse(coefficients=BANDS)
BANDED = ToeplitzStrategy(coefficients=BANDS)
BUFFERED = BufferedToeplitz(scales=SCALES, decays=DECAYS)


def stream(
    strategy: StationaryStrategy, *, horizon: int, nodes: int, dimension: int, seed: int
) -> Iterator[np.ndarray]:
    noise = Noise.of_strategy(strategy.at(horizon))
    return noise.stream(nodes=nodes, dimension=dimension, seed=seed)


def toeplitz(column: np.ndarray, horizon: int) -> np.ndarray:
    padded = np.zeros(horizon)
    padded[: len(column)] = column[:horizon]
    return np.asarray(scipy.linalg.toeplitz(padded, np.zeros(horizon)))


def buffered(horizon: int) -> np.ndarray:
    """C entry by entry."""
    column = [1.0] + [float(SCALES @ DECAYS**j) for j in range(horizon - 1)]
    return toeplitz(np.array(column), horizon)


def unit_vectors(horizon: int) -> Iterator[np.ndarray]:
    """Draw t is the t-th of T coordinates: what comes out at t is row t of C^-1."""
    return iter(np.eye(horizon))


@pytest.mark.parametrize("horizon", [1, 2, 3, 4, 5, 30])
def test_rows_of_the_noising_matrix(horizon: int) -> None:
    for strategy, noising in (
        (INVERSE, toeplitz(BANDS, horizon)),
        (BANDED, np.linalg.inv(toeplitz(BANDS, horizon))),
        (BUFFERED, np.linalg.inv(buffered(horizon))),
    ):
        rows = np.array(list(strategy.at(horizon).noise_of(unit_vectors(horizon))))
        np.testing.assert_allclose(rows, noising, atol=1e-14)
        # Hence the covariance of the noise is C^-1 C^-T.
        np.testing.assert_allclose(rows @ rows.T, noising @ noising.T, atol=1e-13)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(seed=st.integers(0, 1000), bands=st.integers(1, 12), horizon=st.integers(1, 12))
def test_any_band_at_any_horizon(seed: int, bands: int, horizon: int) -> None:
    column = np.random.default_rng(seed).standard_normal(bands) * 0.4
    column[0] = 1.5
    matrix = toeplitz(column, horizon)
    inverse = BandedInverse(coefficients=column, steps=horizon)
    rows = np.array(list(inverse.noise_of(unit_vectors(horizon))))
    np.testing.assert_allclose(rows, matrix, atol=1e-15)
    banded = ToeplitzStrategy(coefficients=column, steps=horizon)
    rows = np.array(list(banded.noise_of(unit_vectors(horizon))))
    np.testing.assert_allclose(matrix @ rows, np.eye(horizon), atol=1e-12)


@pytest.mark.parametrize("kind", ["banded inverse", "banded", "full", "buffered"])
def test_streams_draw_what_the_dense_stream_draws(kind: str) -> None:
    shape = {"horizon": 40, "nodes": 2, "dimension": 3, "seed": 9}
    full = 0.8 ** np.arange(40.0)
    strategy, noising = {
        "banded inverse": (INVERSE, toeplitz(BANDS, 40)),
        "banded": (BANDED, np.linalg.inv(toeplitz(BANDS, 40))),
        "full": (ToeplitzStrategy(coefficients=full), np.linalg.inv(toeplitz(full, 40))),
        "buffered": (BUFFERED, np.linalg.inv(buffered(40))),
    }[kind]
    expected = list(time_noise_stream(np.tril(noising), nodes=2, dimension=3, seed=9))
    noise = list(stream(strategy, **shape))
    assert [z.shape for z in noise] == [(2, 3)] * 40
    np.testing.assert_allclose(noise, expected, atol=1e-12)


def test_noise_that_is_overwritten_changes_nothing_later() -> None:
    shape = {"horizon": 12, "nodes": 1, "dimension": 2, "seed": 1}
    for strategy in (INVERSE, BANDED, BUFFERED):
        untouched = [z.copy() for z in stream(strategy, **shape)]
        spoiled = []
        for z in stream(strategy, **shape):
            spoiled.append(z.copy())
            z[:] = np.nan
        np.testing.assert_array_equal(spoiled, untouched)


def test_streams_end_with_their_horizon() -> None:
    shape = {"horizon": 3, "nodes": 1, "dimension": 1, "seed": 0}
    for strategy in (INVERSE, BANDED, BUFFERED):
        noise = stream(strategy, **shape)
        assert len([next(noise) for _ in range(3)]) == 3
        with pytest.raises(StopIteration):
            next(noise)


def test_memory_does_not_grow_with_the_horizon() -> None:
    width, steps = 10_000, 300
    for strategy in (INVERSE, BANDED, BUFFERED):
        tracemalloc.start()
        for _ in stream(strategy, horizon=steps, nodes=1, dimension=width, seed=0):
            pass
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        # Three vectors kept and a handful in use, out of the 300 that were drawn.
        assert peak < 16 * width * 8


def test_bad_input_is_refused_before_the_first_step() -> None:
    shape = {"horizon": 3, "nodes": 1, "dimension": 1, "seed": 0}
    for kind in (BandedInverse, ToeplitzStrategy):
        for bad in (np.array([0.0, 1.0]), np.ones(2, dtype=np.float32), np.ones((2, 2)), []):
            with pytest.raises(InputError, match="coefficients"):
                kind(coefficients=bad)
        for name in ("horizon", "nodes", "dimension"):
            with pytest.raises(InputError, match=name):
                stream(kind(coefficients=BANDS), **{**shape, name: 0})
        with pytest.raises(InputError, match="seed"):
            stream(kind(coefficients=BANDS), **{**shape, "seed": -1})
    with pytest.raises(InputError, match="decays: expected 3, one per scale, got 1"):
        BufferedToeplitz(scales=SCALES, decays=DECAYS[:1])
    with pytest.raises(InputError, match=r"decays: expected values in \[0, 1\]"):
        BufferedToeplitz(scales=SCALES, decays=-DECAYS)
