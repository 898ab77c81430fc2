"""The least errors of single steps of prefix sums at one participation, by shares, in O(T).

With A the lower triangular matrix of ones, weights a of steps, shares q and v of sum 1, and s the
singular values of M = diag(q a)^1/2 A diag(v)^1/2, U s P^T,

    sum s  <=  gamma  <=  ( max_t dl_t / q_t  max_t dr_t / v_t )^1/2,
    dl = diag(U s U^T),  dr = diag(P s P^T),

gamma^2 the least of the largest weighted squared error of a step; with a = 1 it is gamma_2, the
factorization norm. M^-1 is bidiagonal, so that dl and dr are diagonals of the inverse roots of
tridiagonal matrices: by the trapezoidal rule of (2/pi) int (X + y^2)^-1 dy in log y, X + y^2 is
factored from both ends. Shares follow the fixed point q <- dl, v <- dr in logarithms, mixed by
Anderson's method. All is float64: dense decompositions at 1024 steps agree to 1e-8."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.linalg.lapack import dpttrf

from noisedesign.base.checks import Array, InputError

LONGEST = 4096  # steps of the longest run whose least errors are listed, in some 20 s
A_DOUBLING = 8  # horizons a doubling whose best shares are found; those between are blended
STEP, MARGIN = 0.45, 10.0
"""The trapezoidal rule in log y has this distance of nodes, for an error of about exp(-pi^2 / it);
nodes go this far beyond the spectrum, where integrands are their leading terms to exp(-2 x it)."""
ROUNDING = 1e-8  # relative, by which least errors are lowered for what is not accounted for
MEMORY, MOST = 12, 200  # steps of the past that a step mixes, and steps, at most
LEAST_SHARE, IDLE = 1e-7, 3.0
"""Least share over the mean, of steps that are never the worst; and logarithm of a share over the
least one below which a step just follows the fixed point."""


class Shares(NamedTuple):
    """Shares of steps and of participations, shape (T,) each, and both ends of gamma."""

    steps: Array
    participations: Array
    lower: float
    upper: float


def best_shares(weights: Array, *, gap: float, start: tuple[Array, Array] | None = None) -> Shares:
    """The shares that were best where the ends are within ``gap``, or after ``MOST`` steps."""
    size = len(weights)
    even = np.full(size, 1 / size)
    logs = np.log(np.concatenate(start or (even, even)))
    floor = math.log(LEAST_SHARE / size)
    found = Shares(even, even, 0.0, math.inf)
    points: list[Array] = []
    changes: list[Array] = []
    for _ in range(MOST):
        q, v = (np.exp(part - part.max()) for part in (logs[:size], logs[size:]))
        q, v = q / q.sum(), v / v.sum()
        dl, dr = left_diagonal(q * weights, v), right_diagonal(q * weights, v)
        total = float(dr.sum())
        upper = min(found.upper, math.sqrt(float((dl / q).max() * (dr / v).max())))
        found = Shares(q, v, total, upper) if total > found.lower else found._replace(upper=upper)
        if found.upper <= found.lower * (1 + gap):
            break
        now = np.log(np.concatenate([q, v]))
        change = np.maximum(np.log(np.concatenate([dl / q, dr / v]) / total), floor - now)
        points, changes = [*points[-MEMORY:], now], [*changes[-MEMORY:], change]
        logs = now + change
        if len(points) > 1:
            less, active = np.diff(changes, axis=0).T, now > floor + IDLE
            by = np.linalg.lstsq(less[active], change[active], rcond=1e-8)[0]
            logs = logs - np.where(active, (np.diff(points, axis=0).T + less) @ by, 0.0)
        logs = np.maximum(logs, floor)
    return found


@lru_cache(maxsize=4)
def least_errors(steps: int) -> Array:
    """gamma_2 of 1 to ``steps`` from below, read-only: none is more than 1e-6 too small."""
    if steps > LONGEST:
        expected = f'at most {LONGEST} steps for step_weights = "unknown-horizon"'
        raise InputError("horizon", expected=expected, got=f"{steps}")
    count = A_DOUBLING * math.ceil(math.log2(max(steps, 2)))
    known = np.unique(np.round(np.geomspace(2, max(steps, 2), count)).astype(int)).tolist()
    found, before = np.ones(known[-1]), best_shares(np.ones(2), gap=1e-7)
    for horizon in known:
        best = best_shares(np.ones(horizon), gap=1e-7, start=_stretched(before, horizon))
        found[horizon - 1] = best.lower
        for between in range(len(before.steps) + 1, horizon):
            ends = _stretched(before, between), _stretched(best, between)
            late = math.log(between / len(before.steps)) / math.log(horizon / len(before.steps))
            q, v = (
                np.exp((1 - late) * np.log(x) + late * np.log(y))
                for x, y in zip(*ends, strict=True)
            )
            found[between - 1] = right_diagonal(q / q.sum(), v / v.sum()).sum()
        before = best
    found = found[:steps] * (1 - ROUNDING)
    found.flags.writeable = False
    return found


def _stretched(shares: Shares, steps: int) -> tuple[Array, Array]:
    """The same shares at the same parts of another horizon."""
    here, there = ((np.arange(n) + 0.5) / n for n in (len(shares.steps), steps))
    q, v = (np.exp(np.interp(there, here, np.log(x))) for x in shares[:2])
    return q / q.sum(), v / v.sum()


def inverse_root_diagonal(diagonal: Array, beside: Array) -> Array:
    """diag(X^-1/2) of a positive definite tridiagonal X."""
    spread = np.abs(np.r_[beside, 0.0]) + np.abs(np.r_[0.0, beside])
    top = float((diagonal + spread).max())
    # The trace of X^-1 is above its largest eigenvalue.
    inverse = inverse_diagonal(diagonal, beside)
    low, high = -math.log(float(inverse.sum())) / 2 - MARGIN, math.log(top) / 2 + MARGIN
    nodes = np.exp(np.arange(low, high + STEP, STEP))
    rest = STEP / math.expm1(STEP)
    found = rest * (nodes[0] * inverse + 1 / nodes[-1])
    for y in nodes:
        found += STEP * y * inverse_diagonal(diagonal + y * y, beside)
    return np.asarray(found * (2 / math.pi))


def inverse_diagonal(diagonal: Array, beside: Array) -> Array:
    """diag(X^-1) by the pivots of X from both ends."""
    forward, _, failed = dpttrf(diagonal, beside)
    backward, _, failed_too = dpttrf(diagonal[::-1], beside[::-1])
    if failed or failed_too:
        raise np.linalg.LinAlgError("X is not positive definite in float64")
    return np.asarray(1 / (forward + backward[::-1] - diagonal))


def right_diagonal(q: Array, v: Array) -> Array:
    """diag((M^T M)^1/2), M = Q^1/2 A V^1/2: of the inverse V^-1/2 D Q^-1 D^T V^-1/2, D = A^-1."""
    within = 1 / q
    within[1:] += 1 / q[:-1]
    return inverse_root_diagonal(within / v, -1 / (q[:-1] * np.sqrt(v[:-1] * v[1:])))


def left_diagonal(q: Array, v: Array) -> Array:
    """diag((M M^T)^1/2): the transpose of A is A from the last step to the first."""
    return right_diagonal(v[::-1].copy(), q[::-1].copy())[::-1]
