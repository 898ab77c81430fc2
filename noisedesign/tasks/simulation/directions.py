"""The gradient change an audit looks for: the worst one a participation pattern allows.

A strategy of Gram matrix X = C^T C moves, under changes v_i of norm 1 at the steps i of a pattern,
by sum_ij X_ij <v_i, v_j> (squared). Its maximum over vectors is the squared sensitivity; signs
alone understate it. Maximised here by block coordinate ascent over vectors of low rank, where
local maxima are global once rank (rank + 1) / 2 exceeds the number of steps, but for exceptional X
(Boumal, Voroninski and Bandeira, 2016). Any ascent point is a real attack, so an audit stays
valid where it stops short.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisedesign.base import settings
from noisedesign.base.checks import Array, InputError, describe

_MAX_SWEEPS = 500
"""Sweeps over the steps of a pattern; tens suffice away from ties."""

_SWEEP_TOLERANCE = 1e-10
"""Relative gain of a sweep that ends the ascent: far below what any number of runs resolves."""

_WORTHWHILE_GAIN = 1e-9
"""Relative gain for which vectors of higher rank are preferred: each rank is one more coordinate to
simulate, and where X is diagonal on the pattern any directions are as good as equal ones."""

_START_SEED = 0
"""Fixed, so that the difference audited does not depend on the seed of the runs."""


def check_patterns(patterns: Any, *, horizon: int) -> NDArray[np.intp]:
    """Integer array of shape (patterns, k): distinct zero-based steps in each row.

    Raises:
        InputError: not a non-empty integer array with two axes, a step outside the horizon, or
            a step named twice in a pattern.
    """
    array = np.asarray(patterns)
    if array.ndim != 2 or array.size == 0 or not np.issubdtype(array.dtype, np.integer):
        raise InputError(
            "patterns",
            expected="an integer array of shape (patterns, steps in each)",
            got=describe(array),
        )
    if array.min() < 0 or array.max() >= horizon:
        raise InputError(
            "patterns",
            expected=f"zero-based steps below the horizon {horizon}",
            got=f"steps from {array.min()} to {array.max()}",
        )
    ordered = np.sort(array, axis=1)
    repeated = (np.diff(ordered, axis=1) == 0).any(axis=1)
    if repeated.any():
        row = int(repeated.argmax())
        raise InputError(
            "patterns",
            expected="distinct steps in every pattern",
            got=f"pattern {row}: {array[row].tolist()}",
        )
    return array.astype(np.intp)


def worst_difference(gram: Array, patterns: NDArray[np.intp]) -> tuple[NDArray[np.intp], Array]:
    """Pattern and changes of largest squared effect.

    Args:
        gram: X, shape (T, T), symmetric positive definite.
        patterns: shape (patterns, k), see :func:`check_patterns`.

    Returns:
        The pattern's steps, shape (k,), and v, shape (k, rank), rows of norm 1 up to rounding, in
        as few coordinates as they need.
    """
    grams = gram[patterns[:, :, None], patterns[:, None, :]]
    count, k = patterns.shape
    rank = min(k, math.isqrt(2 * k) + 1)
    start = np.random.default_rng(_START_SEED).standard_normal((count, k, rank))
    start /= np.linalg.norm(start, axis=2, keepdims=True)
    aligned = _ascend(grams, np.ones((count, k, 1)))
    spread = _ascend(grams, start)
    best, best_spread = _effects(grams, aligned), _effects(grams, spread)
    if best_spread.max() > best.max() * (1 + _WORTHWHILE_GAIN):
        worst = int(best_spread.argmax())
        return patterns[worst], _in_fewest_coordinates(spread[worst])
    worst = int(best.argmax())
    return patterns[worst], aligned[worst]


def _effects(grams: Array, directions: Array) -> Array:
    """sum_ij X_ij <v_i, v_j> of every pattern, shape (patterns,)."""
    return np.asarray(((grams @ directions) * directions).sum(axis=(1, 2)))


def _ascend(grams: Array, start: Array) -> Array:
    """v_i <- the unit vector along sum_{j != i} X_ij v_j, step by step, all patterns at once."""
    directions, effects = start, _effects(grams, start)
    others = grams * (1 - np.eye(grams.shape[1]))
    for _ in range(_MAX_SWEEPS):
        for i in range(grams.shape[1]):
            pull = (others[:, None, i] @ directions)[:, 0]
            length = np.linalg.norm(pull, axis=1, keepdims=True)
            moved = pull / np.where(length > 0, length, 1.0)
            directions[:, i] = np.where(length > 0, moved, directions[:, i])
        before, effects = effects, _effects(grams, directions)
        if (effects - before <= _SWEEP_TOLERANCE * effects).all():
            break
    return directions


def _in_fewest_coordinates(directions: Array) -> Array:
    """The same inner products with the coordinates that carry none dropped."""
    left, values, _ = np.linalg.svd(directions, full_matrices=False)
    kept = values > settings.sqrt_eps() * values[0]
    return np.asarray(left[:, kept] * values[kept])
