"""Noise that may be singular: what it hides, and the directions it does not reach at all."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisedesign.base import settings
from noisedesign.base.checks import Array

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

    ``scaled`` @ F has orthonormal rows; ``silent`` @ F = 0, its largest entry in a row being 1.
    Shapes (rank, m) and (m - rank, m). ``shares`` are the orthonormal rows that ``silent`` comes
    from, in units of each observation's own noise.
    """

    scaled: Array
    silent: Array
    shares: Array

    def leaks(self, signals: Array) -> NDArray[np.bool_]:
        """Whether a signal, a column of (m, k), moves a direction without noise, shape (k,)."""
        return np.asarray(np.abs(self.silent @ signals).max(axis=0, initial=0.0) > LEAK)

    def exposed(self) -> NDArray[np.bool_]:
        """Whether a signal in one observation alone moves such a direction, shape (m,).

        However loud that observation is beside the others that cancel its noise.
        """
        return np.asarray(np.abs(self.shares).max(axis=0, initial=0.0) > LEAK)


def whitening(factor: Array, *, loudness: float) -> Whitening:
    """Split of observations with noise F times white noise, F of shape (m, q).

    Singular values of F, not eigenvalues of F F^T, decide what is silent: noise a million times
    quieter than another is still noise.

    Args:
        loudness: standard deviation of the noise F was computed from. What is left of it by
            cancellation counts as no noise.
    """
    m = len(factor)
    if m == 0:
        return Whitening(*[np.zeros((0, 0))] * 3)
    # Units of single observations must not decide what counts as zero.
    deviation = np.linalg.norm(factor, axis=1)
    loud = deviation > QUIET * loudness
    units = 1 / np.where(loud, deviation, loudness or 1.0)
    small = np.asarray(np.linalg.qr((factor * units[:, None]).T, mode="r")).T
    left, values, _ = np.linalg.svd(small, full_matrices=True)
    full = np.zeros(m)
    full[: len(values)] = values[:m]
    noisy = full > max(SILENT * settings.rank_tolerance(m) * float(full[0]), QUIET)
    scaled = (left[:, noisy] / full[noisy]).T * units
    shares = left[:, ~noisy].T
    silent = shares * units
    silent /= np.abs(silent).max(axis=1, initial=0.0, keepdims=True)
    return Whitening(*map(np.ascontiguousarray, (scaled, silent, shares)))


def loudness_of(factor: Array) -> float:
    """Largest standard deviation of the rows of F times white noise."""
    return float(np.linalg.norm(factor, axis=1).max(initial=0.0))


def row_space_projected_out(factor: Array, rows: list[int]) -> Array:
    """F (I - P) with P the projector on the span of some rows of F.

    Those rows, and others that lie in their span, are exactly zero.
    """
    if not rows:
        return factor
    # Units of single rows must not decide what is rounding.
    lengths = np.linalg.norm(factor[rows], axis=1, keepdims=True)
    known = factor[rows] / np.where(lengths > 0, lengths, 1.0)
    _, values, right = np.linalg.svd(known, full_matrices=False)
    noisy = values > SILENT * settings.rank_tolerance(max(factor.shape)) * values.max()
    spanned = right[noisy]
    rest = factor
    for _ in range(2):  # once more cleans up what the first pass leaves by cancellation
        rest = rest - (rest @ spanned.T) @ spanned
    before = np.linalg.norm(factor, axis=1)
    rest[np.linalg.norm(rest, axis=1) <= QUIET * before] = 0.0
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
