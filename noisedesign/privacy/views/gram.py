"""Squared sensitivity Gram matrices: what an account computes for every victim."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, eye_array

from noisedesign.base.checks import Array

Gram = Array | csr_array
"""A symmetric T x T matrix: dense, or sparse where it is banded and the horizon long."""

DENSE_HORIZON = 2048
"""Longest horizon whose T x T Gram matrices are dense arrays (32 MB each)."""


class VictimGram(NamedTuple):
    """Squared sensitivity Gram of one victim, A_u^T (B B^T)^+ A_u, shape (T, T).

    ``exposed`` marks the steps at which its gradient is seen without noise, shape (T,): a pattern
    with one of them has no finite sensitivity.
    """

    gram: Gram
    exposed: NDArray[np.bool_]


def identity(horizon: int) -> Gram:
    """I, in the form for its size."""
    return np.eye(horizon) if horizon <= DENSE_HORIZON else eye_array(horizon, format="csr")


def zeros(horizon: int) -> Gram:
    """The Gram of a victim of whom nothing is seen."""
    square = (horizon, horizon)
    return np.zeros(square) if horizon <= DENSE_HORIZON else csr_array(square, dtype=np.float64)
