"""Noise of Toeplitz strategies, from a few vectors of the model's size whatever the horizon.

z_t = sum_{s <= t} (C^-1)_ts w_s with white w. Kept between steps, in arrays of shape (n, d):

* banded C^-1 of p coefficients: the last p - 1 draws;
* banded C of p coefficients: the last p - 1 noise vectors (forward substitution of C z = w). A full
  Toeplitz C is the case p = T, with O(T n d) memory: a buffered one approximates it with O(1);
* buffered linear Toeplitz of m buffers: m (McMahan, Xu and Zhang 2024).

The same seed draws the same white noise as :func:`simulate.time_noise_stream`. Every
stream ends with its horizon: what follows was never accounted for. The ``*_filter`` functions do
the same to white noise that is given, and end with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array, InputError
from noisedesign.program.noise.streams import Seed, seed_sequence, space_noise


def banded_inverse_noise_stream(
    noising_coefficients: Any, *, horizon: int, nodes: int, dimension: int, seed: Seed
) -> Iterator[Array]:
    """Noise of the strategy whose inverse is banded Toeplitz.

    Args:
        noising_coefficients: d_0, ..., d_{p-1}, first column of C^-1, shape (p,); d_0 > 0.
        horizon: T.
        nodes: n.
        dimension: d, coordinates of the model.
        seed: the same seed gives the same noise.

    Returns:
        An iterator over T arrays of shape (n, d), in increasing step order; not one more.

    Raises:
        InputError: coefficients that are not a finite float64 vector with a first entry > 0; a
            size not an integer >= 1; seed neither an integer >= 0 nor a SeedSequence.
    """
    white = _white(horizon=horizon, nodes=nodes, dimension=dimension, seed=seed)
    return banded_inverse_filter(white, noising_coefficients)


def banded_noise_stream(
    coefficients: Any, *, horizon: int, nodes: int, dimension: int, seed: Seed
) -> Iterator[Array]:
    """Noise of the strategy C that is banded Toeplitz itself.

    Args:
        coefficients: c_0, ..., c_{p-1}, first column of C, shape (p,); c_0 > 0.

    The other arguments, returns and errors are those of :func:`banded_inverse_noise_stream`.
    """
    white = _white(horizon=horizon, nodes=nodes, dimension=dimension, seed=seed)
    return banded_filter(white, coefficients)


def buffered_noise_stream(
    scales: Any, decays: Any, *, horizon: int, nodes: int, dimension: int, seed: Seed
) -> Iterator[Array]:
    """Noise of the buffered linear Toeplitz strategy c_0 = 1, c_j = sum_i scales_i decays_i^(j-1).

    Args:
        scales: omega, shape (m,).
        decays: theta, shape (m,), in [0, 1].

    The other arguments, returns and errors are those of :func:`banded_inverse_noise_stream`.
    """
    white = _white(horizon=horizon, nodes=nodes, dimension=dimension, seed=seed)
    return buffered_filter(white, scales, decays)


def banded_inverse_filter(white: Iterable[Array], noising_coefficients: Any) -> Iterator[Array]:
    """z_t = sum_{i < p} d_i w_{t-i} for a sequence of float64 arrays w of one shape."""
    taps = _coefficients(noising_coefficients, field="noising_coefficients")
    return _moving_sums(white, taps)


def banded_filter(white: Iterable[Array], coefficients: Any) -> Iterator[Array]:
    """z_t = (w_t - sum_{0 < i < p} c_i z_{t-i}) / c_0 for a sequence of float64 arrays w."""
    return _substitution(white, _coefficients(coefficients, field="coefficients"))


def buffered_filter(white: Iterable[Array], scales: Any, decays: Any) -> Iterator[Array]:
    """z_t = w_t - sum_i scales_i b_i, then b_i <- decays_i b_i + z_t, the buffers b starting at
    zero, for a sequence of float64 arrays w of one shape."""
    scales = _vector(scales, field="scales")
    decays = _vector(decays, field="decays")
    if len(decays) != len(scales):
        raise InputError("decays", expected=f"{len(scales)}, one per scale", got=f"{len(decays)}")
    if decays.min() < 0 or decays.max() > 1:
        raise InputError(
            "decays", expected="values in [0, 1]", got=f"{decays.min():.6g} to {decays.max():.6g}"
        )
    return _buffers(white, scales, decays)


# --- one step after another -----------------------------------------------------------------------


class _Last:
    """The last ``count`` arrays, oldest overwritten first."""

    def __init__(self, taps: Array) -> None:
        self._taps = taps
        self._kept: Array | None = None
        self._step = 0

    def weighted_sum(self) -> Array | float:
        """sum_i taps_i times the array of i + 1 steps ago; zero before there is one."""
        count = min(self._step, len(self._taps))
        if self._kept is None or not count:
            return 0.0
        # Slot s holds the array of (step - 1 - s) mod count + 1 steps ago.
        ages = (self._step - 1 - np.arange(count)) % len(self._taps)
        return np.asarray(np.tensordot(self._taps[ages], self._kept[:count], axes=1))

    def push(self, array: Array) -> None:
        if not len(self._taps):
            return
        if self._kept is None:
            # Untouched pages cost nothing: a stream shorter than its band uses what it reaches.
            self._kept = np.empty((len(self._taps), *array.shape))
        self._kept[self._step % len(self._taps)] = array
        self._step += 1


def _moving_sums(white: Iterable[Array], taps: Array) -> Iterator[Array]:
    last = _Last(taps[1:])
    for draw in white:
        noise = taps[0] * draw + last.weighted_sum()
        last.push(draw)
        yield noise


def _substitution(white: Iterable[Array], taps: Array) -> Iterator[Array]:
    last = _Last(taps[1:])
    for draw in white:
        noise = (draw - last.weighted_sum()) / taps[0]
        last.push(noise)
        yield noise


def _buffers(white: Iterable[Array], scales: Array, decays: Array) -> Iterator[Array]:
    buffers: Array | None = None
    for draw in white:
        if buffers is None:
            buffers = np.zeros((len(scales), *draw.shape))
            fading = decays.reshape(-1, *(1,) * draw.ndim)
        noise = draw - np.tensordot(scales, buffers, axes=1)
        buffers *= fading
        buffers += noise
        yield noise


# --- input ----------------------------------------------------------------------------------------


def _white(*, horizon: int, nodes: int, dimension: int, seed: Seed) -> Iterator[Array]:
    horizon = _checks.positive_int(horizon, field="horizon")
    width = _checks.positive_int(nodes, field="nodes") * _checks.positive_int(
        dimension, field="dimension"
    )
    draws = space_noise(np.eye(1), dimension=width, steps=horizon, root_seed=seed_sequence(seed))
    return (draw.reshape(nodes, dimension) for draw in draws)


def _vector(value: Any, *, field: str) -> Array:
    return _checks.vector(np.atleast_1d(value), field=field, length=max(1, np.size(value)))


def _coefficients(value: Any, *, field: str) -> Array:
    taps = _vector(value, field=field)
    if taps[0] <= 0:
        raise InputError(
            field, expected="a first coefficient > 0 (the diagonal)", got=f"{taps[0]:.6g}"
        )
    return taps
