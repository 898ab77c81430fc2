"""Nuclear norms from below, by a matrix Z near the polar factor, whoever computed it.

||A||_* >= <A, Z> / ||Z||_2 for any Z at all, so that how Z was found costs nothing but time."""

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

STEPS = 5  # most iterations that make a guess of a polar factor orthogonal; one or two are usual
HOPED = 10  # gain to expect of a guess, in mean squares of what is missing of orthogonality


def nuclear_norm(
    a: Enclosure | Outer | Rounded, *, guess: Array | None = None, enough: float = 0.0
) -> Interval:
    """The sum of singular values from below, by a guessed polar factor, and about what it is."""
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
    """The polar factor of A, about, as far as floating point goes; 0 where A has no numbers."""
    for steps in _polar_factors(a, None):
        for z, away in steps:
            if away < 1e-4:  # one more step would add the square
                return z
    return Contraction(np.zeros_like(a), 1.0)


Steps = Iterator[tuple[Contraction, float]]


def _polar_factors(a: Array, guess: Array | None) -> Iterator[Steps]:
    """Yield better guesses, the cheap ones first, by the steps that make each orthogonal."""
    if guess is not None:
        yield _orthogonalised(guess)
    with contextlib.suppress(np.linalg.LinAlgError):
        # At half the cost of singular values, and as good unless A is nearly singular.
        tall = a.shape[0] >= a.shape[1]
        values, vectors = np.linalg.eigh(a.T @ a if tall else a @ a.T)
        if values[0] > 1e-10 * values[-1]:
            quarter = vectors / np.sqrt(np.sqrt(values))
            inverse = quarter @ quarter.T  # half a product
            yield _orthogonalised(a @ inverse if tall else inverse @ a)
        left, _, right = np.linalg.svd(a, full_matrices=False)
        yield _orthogonalised(left @ right)


def _orthogonalised(z: Array) -> Steps:
    """Yield the steps of Newton and Schulz, and how far from orthogonal each began."""
    # The scale of multipliers is free, and so is that of a guess.
    norm = float(np.linalg.norm(z))
    if not 0 < norm < np.inf:
        return
    scale = math.sqrt(min(z.shape)) / norm
    for _ in range(STEPS):
        if (found := contraction(z, scale=scale)) is None:
            return
        yield found
        if found[1] < 1e-7:  # what was just found is off by the square
            return
        z, scale = found[0].matrix, 1.0
