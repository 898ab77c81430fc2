"""Exact sensitivity Grams by factoring the covariance of the observations.

For noise with long memory. With K = B B^T on the observed rows only,

    A_u^T (B B^T)^+ A_u = |K^(-1/2) A_u|^2:

no row that nobody sees is formed, nor any array with one axis a noise and another an observation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import scipy.fft
from scipy.linalg import solve_triangular

from noisedesign.base import settings
from noisedesign.base.checks import Array, InputError
from noisedesign.privacy.views._spectral import whitening
from noisedesign.privacy.views.gram import VictimGram
from noisedesign.privacy.views.mechanism import LinearMechanism

LARGEST = 30_000
"""Observations whose covariance is factored: 7 GB. Beyond it a shorter horizon is asked for."""


def grams(mechanism: LinearMechanism, victims: Sequence[int]) -> Iterator[tuple[int, VictimGram]]:
    """Squared sensitivity Grams of the victims, in their order.

    Raises:
        InputError: more than 30,000 numbers are observed.
    """
    horizon = mechanism.horizon
    count = horizon * len(mechanism.output)
    if count > LARGEST:
        raise InputError(
            "participation",
            expected=f"at most {LARGEST} observed messages for noise with memory",
            got=f"{count} ({len(mechanism.output)} a step over {horizon} steps)",
            remedy="Ask for a shorter horizon or an observer with fewer neighbours.",
        )
    responses = _output_powers(mechanism)
    lower = _cholesky(_covariance(mechanism))
    # Near rounding a square root decides better than the covariance, at more than twice the memory.
    split = None if lower is not None else whitening(_root(mechanism), loudness=mechanism.loudness)
    for victim in victims:
        signal = _victim_columns(responses, victim)
        if split is None:
            assert lower is not None
            scaled = solve_triangular(lower, signal, lower=True, check_finite=False)
            exposed = np.zeros(horizon, dtype=bool)
        else:
            scaled, exposed = split.scaled @ signal, split.leaks(signal)
        yield victim, VictimGram(np.asarray(scaled.T @ scaled), exposed)


def _cholesky(covariance: Array) -> Array | None:
    """Its factor, or None where a pivot is of the size of rounding."""
    if not len(covariance):
        return None
    try:
        lower = np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        return None
    pivots = np.square(lower.diagonal()) / np.maximum(covariance.diagonal(), 1e-300)
    singular = pivots.min() <= settings.sqrt_eps() ** 1.5
    return None if singular else np.asarray(lower)


def _output_powers(mechanism: LinearMechanism) -> Array:
    """H F^k, k = 0 .. T - 1, shape (T, m, n)."""
    powers = np.empty((mechanism.horizon, *mechanism.output.shape))
    row = mechanism.output
    for k in range(mechanism.horizon):
        powers[k] = row
        row = row @ mechanism.transition
    return powers


def _victim_columns(responses: Array, victim: int) -> Array:
    """A_u, shape (T m, T): block (t, s) is column u of H F^(t - s)."""
    horizon, m, _ = responses.shape
    columns = np.zeros((horizon, m, horizon))
    for s in range(horizon):
        columns[s:, :, s] = responses[: horizon - s, :, victim]
    return columns.reshape(horizon * m, horizon)


def _noise_responses(mechanism: LinearMechanism) -> Array:
    """Observation k steps after unit noise, shape (T, m, p): first directly, then through F."""
    responses = np.empty((mechanism.horizon, *mechanism.output_noise.shape))
    responses[0] = mechanism.output_noise
    row = mechanism.output
    for k in range(1, mechanism.horizon):
        responses[k] = row @ mechanism.state_noise
        row = row @ mechanism.transition
    return responses


def _root(mechanism: LinearMechanism) -> Array:
    """B, shape (T m, q)."""
    return mechanism.dense()[1]


def _covariance(mechanism: LinearMechanism) -> Array:
    """K, shape (T m, T m), rows in the order t * m + observation."""
    responses = _noise_responses(mechanism)
    horizon = mechanism.horizon
    if mechanism.joint is not None:
        root = _root(mechanism)
        return np.asarray(root @ root.T)
    noising = (
        np.linalg.inv(mechanism.strategy) if mechanism.strategy is not None else np.eye(horizon)
    )
    return _filtered(responses, noising @ noising.T)


def _filtered(responses: Array, temporal: Array) -> Array:
    """K[t, t'] = sum_ij <response_i, response_j> temporal[t - i, t' - j]: a convolution in time."""
    horizon, m, _ = responses.shape
    size = scipy.fft.next_fast_len(2 * horizon - 1, real=True)
    spectrum = scipy.fft.rfft2(temporal, s=(size, size))
    covariance = np.empty((horizon, m, horizon, m))
    for a in range(m):
        # One row of pairs at a time, and each pair once: the rest is the transpose.
        for b in range(a, m):
            inner = responses[:, a] @ responses[:, b].T
            product = scipy.fft.rfft2(inner, s=(size, size)) * spectrum
            block = scipy.fft.irfft2(product, s=(size, size))[:horizon, :horizon]
            covariance[:, a, :, b] = block
            covariance[:, b, :, a] = block.T
    return covariance.reshape(horizon * m, horizon * m)
