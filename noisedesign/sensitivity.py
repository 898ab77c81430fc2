"""Squared sensitivity of a strategy to unit-norm vector gradients, over a participation scheme.

For one pattern and M = (C^T C) restricted to it, gradients of norm at most one can move C G by

    max <M, Y>  over positive semidefinite Y with unit diagonal   (the elliptope),

exactly, when the gradient dimension is at least the size of the pattern. Every number here is
squared.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from noisedesign import settings
from noisedesign._checks import Array
from noisedesign.participation import FixedEpoch

ASCENT_SWEEPS = 200

EXACT = "vector-exact"
UPPER_BOUND = "vector-upper-bound"


@dataclass(frozen=True, kw_only=True, eq=False)
class Sensitivity:
    """Squared sensitivity of every pattern, and which number it is.

    ``kind`` is "vector-exact" where entries of M are nonnegative, so that aligned gradients attain
    the sum of all entries, or "vector-upper-bound" where a dual certificate of the elliptope
    problem bounds it.
    """

    per_pattern: Array
    kind: str

    @property
    def squared(self) -> float:
        """The largest squared sensitivity over the patterns."""
        return float(self.per_pattern.max())


def worst_directions(blocks: Array) -> Array:
    """Unit gradients that (locally) maximise <M, V V^T>, shape (patterns, k, k).

    Cyclic ascent v_i <- normalised sum_{j != i} M_ij v_j, started from aligned gradients plus a
    fixed perturbation; every sweep raises the value.
    """
    patterns, k, _ = blocks.shape
    rng = np.random.default_rng(0)
    start = np.zeros((k, k))
    start[:, 0] = 1.0
    v = np.tile(start + 0.1 * rng.standard_normal((k, k)), (patterns, 1, 1))
    v /= np.linalg.norm(v, axis=2, keepdims=True)
    scale = float(np.abs(blocks).max()) or 1.0
    for _ in range(ASCENT_SWEEPS):
        moved = 0.0
        for i in range(k):
            pull = np.einsum("pj,pjd->pd", blocks[:, i], v) - blocks[:, i, i, None] * v[:, i]
            norm = np.linalg.norm(pull, axis=1, keepdims=True)
            new = np.where(norm > settings.EPS * scale, pull / np.maximum(norm, 1e-300), v[:, i])
            moved = max(moved, float(np.abs(new - v[:, i]).max()))
            v[:, i] = new
        if moved < settings.sqrt_eps():
            break
    return v


def elliptope_upper_bound(blocks: Array) -> Array:
    """Upper bound on max <M, Y> per pattern: sum(y) for some diag(y) >= M, shape (patterns,).

    y is read off the ascent and shifted until diag(y) - M is positive semidefinite, which makes
    the bound valid whether or not the ascent has converged.
    """
    v = worst_directions(blocks)
    y = np.einsum("pij,pid,pjd->pi", blocks, v, v)
    slack = -blocks.copy()
    np.einsum("pii->pi", slack)[:] += y
    shift = np.maximum(0.0, -np.linalg.eigvalsh(slack)[:, 0])
    return np.asarray(y.sum(axis=1) + blocks.shape[1] * shift)


def squared_sensitivity(gram: Array, participation: FixedEpoch) -> Sensitivity:
    """Squared sensitivity under ``participation`` of a strategy with gram = C^T C, shape (T, T).

    Source: Choquette-Choo et al. (2023), with the bound on the square (Mafalda-SGD, equation (8),
    prints it without one) and vector gradients through the elliptope.
    """
    patterns = participation.patterns
    blocks = gram[patterns[:, :, None], patterns[:, None, :]]
    absolute = np.abs(blocks).sum(axis=(1, 2))
    # Where the negative part is rounding, the sum of absolute values is the exact number up to
    # rounding, and it errs upwards.
    negative = (absolute - blocks.sum(axis=(1, 2))) / 2
    if negative.max() <= settings.rank_tolerance(len(gram)) * absolute.max():
        return Sensitivity(per_pattern=absolute, kind=EXACT)
    largest = np.linalg.eigvalsh(blocks)[:, -1] * blocks.shape[1]
    tightest = np.minimum(elliptope_upper_bound(blocks), np.minimum(absolute, largest))
    return Sensitivity(per_pattern=tightest, kind=UPPER_BOUND)
