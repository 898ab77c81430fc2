"""The witness of the lower bound on all space-time designs, improved by L-BFGS.

Maximises the logarithm of the bound of :mod:`noisedesign.families.kronecker.bound`,

    2 log || diag(v)^1/2 Q diag(c) ||_* - log <budget, v> - log sum_j p_j,
    c_i = || A_i F ||_*,   F F^T = P,

over log v, log p_j and unit rows V_j with P_j = p_j V_j V_j^T, so that every point is feasible.
A nuclear norm has its polar factor for gradient. An evaluation costs one eigendecomposition of
size T a mode, and one singular value decomposition of size n.
"""

from __future__ import annotations

import contextlib

import numpy as np
import scipy.optimize

from noisedesign.base import settings
from noisedesign.base.checks import Array
from noisedesign.base.monitor import Monitor
from noisedesign.families.kronecker.bound import Witness, on_patterns
from noisedesign.program.space_time import SpaceTimeProgram

MAX_EVALUATIONS = 60
MEMORY = 20
"""Pairs that L-BFGS remembers: the variables are many and the evaluations few."""
SMALLEST_WEIGHT = 1e-12
"""A relative multiplier below which its logarithm is not started: at zero it could not move."""


class _Enough(Exception):  # noqa: N818 - not an error: the way out of the minimiser
    pass


def _split(x: Array, program: SpaceTimeProgram) -> tuple[Array, Array, Array, Array]:
    """v, p, the unit rows of every V_j, shape (b, k, k), and the lengths they had."""
    n, b, k = len(program.budget), program.participation.separation, program.participation.epochs
    log_weights, log_prices, rows = np.split(x, [n, n + b])
    rows = rows.reshape(b, k, k)
    lengths = np.linalg.norm(rows, axis=2, keepdims=True)
    return np.exp(log_weights), np.exp(log_prices), rows / lengths, lengths


def _polar(a: Array) -> tuple[float, Array]:
    """Nuclear norm and polar factor of a tall or square matrix, from the Gram matrix of it."""
    squared, basis = np.linalg.eigh(a.T @ a)
    root = np.sqrt(np.maximum(squared, settings.EPS * max(squared[-1], np.finfo(np.float64).tiny)))
    return float(root.sum()), np.asarray(((a @ basis) / root) @ basis.T)


def log_bound(x: Array, program: SpaceTimeProgram) -> tuple[float, Array]:
    """Logarithm of the bound, and its gradient in x = (log v, log p, rows)."""
    modes, budget, participation = program.workload.modes, program.budget, program.participation
    assert modes is not None
    weights, prices, unit, lengths = _split(x, program)
    roots = np.sqrt(prices)[:, None, None] * unit
    root = on_patterns(roots, participation)
    patterns = participation.patterns
    per_mode = np.empty(len(budget))
    slopes = np.empty((len(budget), *roots.shape))
    for j in range(len(budget)):
        factor = modes.factor(j)
        per_mode[j], polar = _polar(factor @ root)
        slopes[j] = (factor.T @ polar)[patterns[:, :, None], patterns[:, None, :]]
    mixed = np.sqrt(weights)[:, None] * modes.basis
    left, values, right = np.linalg.svd(mixed * per_mode)
    polar, trace = left @ right, float(values.sum())
    by_mode = np.einsum("uj,uj->j", polar, mixed)  # of the norm, along c
    by_weight = np.einsum("uj,uj->u", polar, mixed * per_mode) / 2  # along log v
    by_root = np.tensordot(by_mode, slopes, axes=1)
    by_unit = np.sqrt(prices)[:, None, None] * by_root
    radial = np.sum(by_unit * unit, axis=2, keepdims=True)
    priced = float(budget @ weights)
    gradient = np.concatenate(
        [
            2 * by_weight / trace - budget * weights / priced,
            np.einsum("jkl,jkl->j", by_root, roots) / trace - prices / prices.sum(),
            (2 / trace * (by_unit - radial * unit) / lengths).ravel(),
        ]
    )
    return 2 * np.log(trace) - float(np.log(priced) + np.log(prices.sum())), gradient


def improved(witness: Witness, program: SpaceTimeProgram, *, monitor: Monitor) -> Witness:
    """A witness with a bound at least as large, up to rounding, for a workload with modes.

    Stops when an iteration gains less than the relative ``monitor.gap``, and returns the best
    witness so far when time is up or the user interrupts.
    """
    best = _start(witness)
    best_value, first = -np.inf, None

    def negative(x: Array) -> tuple[float, Array]:
        nonlocal best_value, best, first
        value, gradient = log_bound(x, program)
        if value > best_value:
            best_value, best = value, x.copy()
        if monitor.expired:
            raise _Enough
        # The minimiser stops on changes relative to the value: it is kept near zero.
        first = value if first is None else first
        return first - value, -gradient

    with contextlib.suppress(_Enough, KeyboardInterrupt):
        scipy.optimize.minimize(
            negative,
            best,
            jac=True,
            method="L-BFGS-B",
            options={"maxcor": MEMORY, "maxfun": MAX_EVALUATIONS, "ftol": monitor.gap, "gtol": 0.0},
        )
    weights, prices, unit, _ = _split(best, program)
    blocks = unit @ unit.transpose(0, 2, 1) * prices[:, None, None]
    return Witness(blocks=blocks, weights=weights)


def _start(witness: Witness) -> Array:
    """Variables of a witness, moved off the boundary, each scale normalised."""
    prices = witness.blocks[:, 0, 0] / witness.blocks[:, 0, 0].max()
    prices = np.maximum(prices, SMALLEST_WEIGHT)
    values, vectors = np.linalg.eigh(witness.blocks)
    values = np.maximum(values, SMALLEST_WEIGHT * values[:, -1:])
    root = (vectors * np.sqrt(values)[:, None, :]) @ vectors.transpose(0, 2, 1)
    weights = np.maximum(witness.weights / witness.weights.max(), SMALLEST_WEIGHT)
    return np.concatenate([np.log(weights), np.log(prices), root.ravel()])
