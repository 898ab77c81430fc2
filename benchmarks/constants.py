"""The factorization norms of prefix sums as intervals: ``python -m benchmarks.constants``.

gamma_2 is the root of the least largest error of a step at one participation, gamma_F that of the
least mean error. With A the lower triangular matrix of ones, shares q and v of sum 1, and s the
singular values of M = Q^1/2 A V^1/2, U s P^T,

    sum s  <=  gamma_2  <=  ( max_t dl_t / q_t  max_t dr_t / v_t )^1/2,
    dl = diag(U s U^T),  dr = diag(P s P^T),

and gamma_F has q = 1/T and a mean in the place of the first maximum. M^-1 is bidiagonal, so that
dl and dr are diagonals of the inverse roots of tridiagonal matrices: by the trapezoidal rule of
(2/pi) int (X + y^2)^-1 dy in log y, X + y^2 is factored from both ends, in O(T). Shares follow the
fixed point q <- dl, v <- dr in logarithms, mixed by Anderson's method; by symmetry v is q reversed
for gamma_2. Intervals are widened by ``ROUNDING`` for what is not accounted for: they are computed
in float64, and are no proofs.

Published bounds, up to o(1): ln T / pi + .701 <= gamma_F, gamma_2; gamma_F <= ln T / pi + .748 and
gamma_2 <= ln T / pi + .846 (Henzinger, Kalinin and Upadhyay 2025); gamma_2 <= ln T / pi + 1
(Mathias 1993). ``--quick`` leaves out what takes minutes."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence

import numpy as np
from scipy.linalg.lapack import dpttrf

from noisedesign.base.checks import Array
from noisedesign.base.linalg import inverse_of_triangular
from noisedesign.mechanisms.baselines import column_normalized_square_root

QUICK = (16, 256, 1024, 4096)
"""Numbers of steps, of seconds."""

LONG = (16_384, 65_536, 262_144, 1_000_000)

GAP = 1e-5
"""Relative width of an interval at which the search stops."""

STEP, MARGIN = 0.45, 10.0
"""Of the trapezoidal rule in log y: distance of nodes, whose error is about exp(-pi^2 / it), and
how far they go beyond the spectrum, where integrands are their leading terms to exp(-2 x it)."""

ROUNDING = 1e-5
"""By what an interval is widened on both sides, relative; dense decompositions at 1024 steps agree
to 1e-8, and rounding grows like the square of T."""

MEMORY, MOST = 12, 120
"""Steps of the past that a step mixes, and steps, at most."""


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


def interval(steps: int, *, worst: bool) -> tuple[float, float]:
    """Ends of gamma_2 where ``worst``, else of gamma_F."""
    even = np.full(steps, 1 / steps)
    logs, low, high = np.log(even), 0.0, math.inf
    points: list[Array] = []
    changes: list[Array] = []
    for _ in range(MOST):
        v = np.exp(logs - logs.max())
        v /= v.sum()
        dr = right_diagonal(v[::-1].copy() if worst else even, v)
        total, largest = float(dr.sum()), float((dr / v).max())
        low = max(low, total)
        high = min(high, largest if worst else math.sqrt(total * largest))
        if high <= low * (1 + GAP):
            break
        points, changes = points[-MEMORY:], changes[-MEMORY:]
        points.append(np.log(v))
        changes.append(np.log(dr / (total * v)))
        logs = points[-1] + changes[-1]
        if len(points) > 1:
            less = np.diff(changes, axis=0).T
            by = np.linalg.lstsq(less, changes[-1], rcond=1e-8)[0]
            logs = logs - (np.diff(points, axis=0).T + less) @ by
    return low * (1 - ROUNDING), high * (1 + ROUNDING)


def normalized_square_root(steps: int) -> tuple[float, float]:
    """Upper ends for gamma_F and gamma_2 by C, the Toeplitz square root with columns of norm 1."""
    strategy = column_normalized_square_root(horizon=steps)
    rows = np.square(np.cumsum(inverse_of_triangular(strategy), axis=0)).sum(axis=1)
    return math.sqrt(float(rows.mean())), math.sqrt(float(rows.max()))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="up to 4096 steps")
    quick = parser.parse_args(arguments).quick
    print(f"{'steps':9}{'norm':10}{'at least':11}{'at most':10}less ln T / pi  square root over it")
    for steps in QUICK if quick else QUICK + LONG:
        closed = normalized_square_root(steps) if steps in QUICK else None
        for place, name in enumerate(("gamma_F", "gamma_2")):
            low, high = interval(steps, worst=name == "gamma_2")
            over = "-" if closed is None else f"{closed[place] / low:.4f}"
            less = low - math.log(steps) / math.pi
            print(
                f"{steps:<9}{name:8}{low:10.5f}{high:10.5f}  {less:14.4f}  {over:>19}", flush=True
            )


if __name__ == "__main__":
    main()
