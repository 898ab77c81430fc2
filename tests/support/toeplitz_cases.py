"""Toeplitz matrices and first columns, by scipy alone."""

from __future__ import annotations

import numpy as np
import scipy.linalg


def toeplitz(column: np.ndarray) -> np.ndarray:
    """By scipy, independently of the package."""
    return np.asarray(scipy.linalg.toeplitz(column, np.zeros(len(column))))


def decaying(rng: np.random.Generator, length: int) -> np.ndarray:
    """A first column whose reciprocal stays bounded."""
    column = rng.standard_normal(length) * 0.7 ** np.arange(length) * 0.2
    column[0] = 1.0 + rng.random()
    return column
