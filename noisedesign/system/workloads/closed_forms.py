"""Error workloads as Gram matrices H, in closed form.

H = sum over nodes of A_i^T A_i is all a design needs of the workload A. For decentralised
learning A = (I_T x W) W_T acts on nT coordinates; H is T x T and is summed here directly, so no
array of size nT is ever built.
"""

from __future__ import annotations

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base import linalg as _linalg
from noisedesign.base import settings
from noisedesign.base.checks import Array

_POWER_BLOCK_FLOATS = 4_000_000
"""Working set for powers of a non-symmetric W: 32 MB, whatever n and T are."""


def prefix_gram(*, horizon: int) -> Array:
    """Gram matrix of the prefix-sum workload, shape (T, T): H_ss' = T + 1 - max(s, s').

    A is lower triangular with ones (Mafalda-SGD, equation (2)); steps are counted from 1.
    """
    steps = np.arange(_checks.positive_int(horizon, field="horizon"))
    return (horizon - np.maximum.outer(steps, steps)).astype(np.float64)


def decentralized_gram(mixing: Array, *, horizon: int) -> Array:
    """Gram matrix of all iterates of all nodes under gossip, shape (T, T).

    With theta_{t+1} = W (theta_t + z_t) and every node drawing z from the same temporal
    covariance, the summed squared error of all iterates is tr(H cov(z)) for

        H_ss' = sum_{t >= max(s, s')} tr( (W^(t-s+1))^T W^(t-s'+1) ).

    Equals the Gram matrix of Mafalda-SGD, Lemma 10, equation (10).

    Args:
        mixing: W, shape (n, n), symmetric or not.
        horizon: T.

    Returns:
        H, shape (T, T), symmetric positive semidefinite, in squared error per squared noise.

    Raises:
        InputError: W is not a finite square float64 matrix, or horizon < 1.
    """
    w = _checks.matrix(mixing, field="mixing", square=True)
    horizon = _checks.positive_int(horizon, field="horizon")
    asymmetry = np.abs(w - w.T).max()
    if asymmetry <= settings.SYMMETRY_TOLERANCE * np.abs(w).max():
        return _symmetric_gram(_linalg.eigenvalues(w), horizon)
    return _sum_along_diagonals(_power_inner_products(w, horizon))


def _symmetric_gram(eigenvalues: Array, horizon: int) -> Array:
    """H from the power sums p_q = sum_j lambda_j^q, q = 2 .. 2T: O(T^2 + nT)."""
    power_sums = np.empty(2 * horizon + 1)
    power = np.ones_like(eigenvalues)
    for q in range(2 * horizon + 1):
        power_sums[q] = power.sum()
        power = power * eigenvalues
    gram = np.empty((horizon, horizon))
    for lag in range(horizon):
        # Step s' = s + lag sees exponents lag + 2, lag + 4, ...: one term a remaining step.
        terms = np.cumsum(power_sums[lag + 2 :: 2][: horizon - lag])
        late = np.arange(lag, horizon)
        gram[late, late - lag] = gram[late - lag, late] = terms[horizon - 1 - late]
    return gram


def _power_inner_products(w: Array, horizon: int) -> Array:
    """G_ab = <W^a, W^b> for a, b = 1 .. T, a few columns of the powers at a time."""
    n = len(w)
    width = max(1, min(n, _POWER_BLOCK_FLOATS // (n * horizon)))
    inner = np.zeros((horizon, horizon))
    for start in range(0, n, width):
        columns = np.eye(n)[:, start : start + width]
        powers = np.empty((horizon, columns.size))
        for a in range(horizon):
            columns = w @ columns
            powers[a] = columns.ravel()
        inner += powers @ powers.T
    return inner


def _sum_along_diagonals(inner: Array) -> Array:
    """H_ss' = sum_{i <= T - max(s, s')} G_{1+i+..}: cumulative sums along the diagonals of G."""
    horizon = len(inner)
    gram = np.empty_like(inner)
    for lag in range(horizon):
        terms = np.cumsum(np.diagonal(inner, lag))
        late = np.arange(lag, horizon)
        gram[late, late - lag] = gram[late - lag, late] = terms[horizon - 1 - late]
    return gram
