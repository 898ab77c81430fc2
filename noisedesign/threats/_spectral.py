"""Noise that may be singular: what it hides, and the directions it does not reach at all."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from noisedesign import settings
from noisedesign._checks import Array

SILENT = 8.0
"""Multiple of the rounding of a decomposition below which a singular value of the noise is zero."""

QUIET = 1e-12
"""Standard deviation relative to the noise it is left of that counts as none: rounding leaves 1e-16
of terms that cancel."""

LEAK = 1e-10
"""Relative part of a unit signal that has to fall on a noiseless direction to count as seen.
Signals that miss such directions leave 1e-15 there; those that are seen, parts of order one."""


class Whitening(NamedTuple):
    """Observations split into those with noise, scaled to unit variance, and those without.

    ``scaled`` @ covariance @ ``scaled``^T = I on the noisy part; ``silent`` spans the null space.
    """

    scaled: Array
    silent: Array


def whitening(covariance: Array, *, loudness: float) -> Whitening:
    """Split of a positive semidefinite covariance, shape (m, m); rows of both results have m.

    Args:
        loudness: standard deviation of the noise the covariance was computed from. What is left of
            it by cancellation counts as no noise.
    """
    m = len(covariance)
    if m == 0:
        return Whitening(np.zeros((0, 0)), np.zeros((0, 0)))
    # Units of single observations must not decide what counts as zero.
    root = np.sqrt(np.maximum(np.diagonal(covariance), 0.0))
    units = 1 / np.where(root > QUIET * loudness, root, loudness or 1.0)
    values, vectors = np.linalg.eigh(covariance * np.multiply.outer(units, units))
    noisy = values > SILENT * settings.rank_tolerance(m) * max(float(values[-1]), QUIET**2)
    scaled = (vectors[:, noisy] / np.sqrt(values[noisy])).T * units
    silent = vectors[:, ~noisy].T * units
    return Whitening(np.ascontiguousarray(scaled), np.ascontiguousarray(silent))


def precision_along(factor: Array, signals: Array) -> Array:
    """s^T (F F^T)^+ s for every column s of ``signals``, infinite where s leaves the range of F.

    Args:
        factor: F, shape (m, q).
        signals: shape (m, k).

    Returns:
        Squared signal to noise ratios, shape (k,).
    """
    left, values, _ = np.linalg.svd(factor, full_matrices=True)
    full = np.zeros(len(factor))
    full[: len(values)] = values
    noisy = full > SILENT * settings.rank_tolerance(len(factor)) * full.max(initial=0.0)
    parts = left.T @ signals
    result = np.square(parts[noisy] / full[noisy, None]).sum(axis=0)
    seen = np.abs(parts[~noisy]).max(axis=0, initial=0.0) > LEAK * np.abs(signals).max(axis=0)
    return np.where(seen, np.inf, result)


def row_space_projected_out(factor: Array, rows: list[int]) -> Array:
    """F (I - P) with P the projector on the span of some rows of F, those rows exactly zero."""
    if not rows:
        return factor
    _, values, right = np.linalg.svd(factor[rows], full_matrices=False)
    spanned = right[values > SILENT * settings.rank_tolerance(max(factor.shape)) * values.max()]
    rest = factor - (factor @ spanned.T) @ spanned
    rest[rows] = 0.0
    return np.asarray(rest)


def orthonormal_rows(rows: Array, *, against: Array) -> Array:
    """Orthonormal basis of what ``rows`` span beyond the orthonormal rows ``against``.

    Directions are kept down to rounding: one too many only makes an observer know more.
    """
    scale = float(np.linalg.norm(rows, axis=1).max(initial=0.0))
    for _ in range(2):  # once more cleans up what the first pass leaves by cancellation
        rows = rows - (rows @ against.T) @ against
    if not len(rows) or scale == 0:
        return np.zeros((0, rows.shape[1]))
    _, values, right = np.linalg.svd(rows, full_matrices=False)
    return np.ascontiguousarray(
        right[values > SILENT * settings.rank_tolerance(rows.shape[1]) * scale]
    )
