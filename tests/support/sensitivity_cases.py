"""Grams whose sensitivities are known, or drawn at random, and how close numbers have to be."""

from __future__ import annotations

import numpy as np

from noisedesign.system.participation import MinSeparation

ROUNDING = 1e-12
SHARP = 1e-8
"""How close a number that is called exact has to be."""


def cycle(size: int) -> np.ndarray:
    """Laplacian of a cycle: 4 (size - 1) for alternating signs, more for vectors that turn."""
    shift = np.roll(np.eye(size), 1, axis=0)
    return np.asarray(2 * np.eye(size) - shift - shift.T)


PENTAGON = cycle(5)
"""Signs reach 16, unit vectors 5 (2 + 2 cos 36 degrees) = 18.09."""

TRIANGLE = 1.5 * np.eye(3) - 0.5
"""Gram of three unit vectors at 120 degrees: they turn against each other to reach 9/2, signs 4."""


def random_gram(k: int, seed: int, *, rank: int | None = None) -> np.ndarray:
    root = np.random.default_rng(seed).standard_normal((rank or k, k))
    return np.asarray(root.T @ root)


def min_separation(horizon: int, separation: int, most: int) -> MinSeparation:
    return MinSeparation(horizon=horizon, separation=separation, max_participations=most)
