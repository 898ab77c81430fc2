"""Workloads, strategies and patterns of banded problems, written out."""

from __future__ import annotations

import numpy as np

from noisedesign.system.participation import FixedEpoch, MinSeparation, Participation
from tests.support import oracles

Array = oracles.Array


def min_sep(horizon: int, separation: int, most: int) -> MinSeparation:
    return MinSeparation(horizon=horizon, separation=separation, max_participations=most)


def summation(horizon: int) -> Array:
    return np.tril(np.ones((horizon, horizon)))


def prefix(horizon: int) -> Array:
    return summation(horizon).T @ summation(horizon)


def random_gram(size: int, seed: int) -> Array:
    a = np.random.default_rng(seed).standard_normal((size + 1, size))
    return a.T @ a


def by_columns(matrix: Array, diagonals: int) -> Array:
    """[t, d] at (t + d, t), written out."""
    horizon = len(matrix)
    columns = np.zeros((horizon, diagonals))
    for t in range(horizon):
        for d in range(min(diagonals, horizon - t)):
            columns[t, d] = matrix[t + d, t]
    return columns


def random_band(horizon: int, bands: int, seed: int) -> Array:
    """A well-conditioned lower triangle of so many diagonals, shape (T, T)."""
    rng = np.random.default_rng(seed)
    c = np.tril(rng.standard_normal((horizon, horizon)) * 0.3 / bands, -1)
    c += np.diag(rng.uniform(0.5, 2, size=horizon))
    return np.asarray(np.triu(c, 1 - bands))


def patterns_of(participation: Participation) -> list[list[int]]:
    """Every pattern, listed without the library."""
    if isinstance(participation, FixedEpoch):
        return oracles.fixed_epoch_patterns(participation.epochs, participation.separation)
    steps = oracles.min_separation_patterns(
        participation.horizon, participation.separation, participation.max_participations
    )
    return [list(pattern) for pattern in steps]
