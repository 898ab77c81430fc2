"""Nuclear norms from below, by a matrix Z near the polar factor, whoever computed it.

||A||_* >= <A, Z> / ||Z||_2 for any Z at all, so that how Z was found costs nothing but time.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator

import numpy as np

from noisedesign.base.checks import Array
from noisedesign.base.enclosures import (
    EPS,
    Contraction,
    Enclosure,
    Interval,
    Outer,
    Rounded,
    contraction,
    inner,
)

ROUNDED = 1e-8
"""Relative loss of a bound by rounding alone that a better polar factor would not mend."""

STEPS = 5
"""Most iterations that make a guess of a polar factor orthogonal; one or two are usual."""

ORTHOGONAL = 1e-7
"""How far from orthogonal, in the Frobenius norm, a guess may be before the last of them."""

ALMOST = 1e-4
"""The same of a polar factor of a matrix itself: what one more step would add is the square."""

CONDITION = 1e-10
"""Least eigenvalue of A^T A, relative to the largest, from which its inverse root is good enough to
start from."""

HOPED = 10
"""Times the mean square of what is missing of orthogonality: what a guess may gain by it."""


def nuclear_norm(
    a: Enclosure | Outer | Rounded, *, guess: Array | None = None, enough: float = 0.0
) -> Interval:
    """The sum of singular values from below, and about what it is.

    Args:
        guess: about the polar factor of A, of A's shape.
        enough: from where on a better bound is not worth the singular values of A.
    """
    best, least = Interval(0.0, 0.0), min(a.mid.shape)
    for steps in _polar_factors(a.mid, guess):
        for z, away in steps:
            found = inner(a, z.matrix)
            lower, upper = found.lower / z.norm * (1 - 4 * EPS), found.upper * z.norm
            if lower > best.lower:
                best = Interval(lower, upper * (1 + 4 * EPS))
            if best.upper >= enough and best.lower >= enough * (1 - ROUNDED):
                return best
            if upper < enough * (1 - HOPED * away**2 / least):
                break
    return best


def polar_factor(a: Array) -> Contraction:
    """About that of A, as far as floating point goes; where A has no numbers, 0."""
    for steps in _polar_factors(a, None):
        for z, away in steps:
            if away < ALMOST:
                return z
    return Contraction(np.zeros_like(a), 1.0)


Steps = Iterator[tuple[Contraction, float]]


def _polar_factors(a: Array, guess: Array | None) -> Iterator[Steps]:
    """Better and better ones, the cheap ones first, each by the steps that make it orthogonal."""
    if guess is not None:
        yield _orthogonalised(guess)
    with contextlib.suppress(np.linalg.LinAlgError):
        # At half the cost of singular values, and as good unless A is nearly singular.
        tall = a.shape[0] >= a.shape[1]
        values, vectors = np.linalg.eigh(a.T @ a if tall else a @ a.T)
        if values[0] > CONDITION * values[-1]:
            quarter = vectors / np.sqrt(np.sqrt(values))
            inverse = quarter @ quarter.T  # half a product
            yield _orthogonalised(a @ inverse if tall else inverse @ a)
        left, _, right = np.linalg.svd(a, full_matrices=False)
        yield _orthogonalised(left @ right)


def _orthogonalised(z: Array) -> Steps:
    """By the iteration of Newton and Schulz, which squares what is missing; with how far from
    orthogonal it was before."""
    # The scale of multipliers is free, and so is that of a guess.
    norm = float(np.linalg.norm(z))
    if not 0 < norm < np.inf:
        return
    scale = math.sqrt(min(z.shape)) / norm
    for _ in range(STEPS):
        if (found := contraction(z, scale=scale)) is None:
            return
        yield found
        if found[1] < ORTHOGONAL:
            return
        z, scale = found[0].matrix, 1.0
