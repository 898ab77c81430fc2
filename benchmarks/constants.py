"""The factorization norms of prefix sums as intervals: ``python -m benchmarks.constants``.

gamma_2 is the root of the least largest error of a step at one participation, gamma_F that of the
least mean error. With A the lower triangular matrix of ones, shares q and v of sum 1, and s the
singular values of M = Q^1/2 A V^1/2, U s P^T,

    sum s  <=  gamma_2  <=  ( max_t dl_t / q_t  max_t dr_t / v_t )^1/2,
    dl = diag(U s U^T),  dr = diag(P s P^T),

and gamma_F has q = 1/T and a mean in the place of the first maximum. M^-1 is bidiagonal, so that
dl and dr are found in O(T) (:mod:`noisedesign.system.workloads.factorization_norm`). Shares follow
the fixed point q <- dl, v <- dr in logarithms, mixed by Anderson's method; by symmetry v is q
reversed for gamma_2. Intervals are widened by ``ROUNDING`` for what is not accounted for: they are
computed in float64, and are no proofs.

Published bounds, up to o(1): ln T / pi + .701 <= gamma_F, gamma_2; gamma_F <= ln T / pi + .748 and
gamma_2 <= ln T / pi + .846 (Henzinger, Kalinin and Upadhyay 2025); gamma_2 <= ln T / pi + 1
(Mathias 1993). ``--quick`` leaves out what takes minutes."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence

import numpy as np

from noisedesign.base.checks import Array
from noisedesign.base.linalg import inverse_of_triangular
from noisedesign.mechanisms.baselines import column_normalized_square_root
from noisedesign.system.workloads.factorization_norm import right_diagonal

QUICK = (16, 256, 1024, 4096)
"""Numbers of steps, of seconds."""

LONG = (16_384, 65_536, 262_144, 1_000_000)

GAP = 1e-5
"""Relative width of an interval at which the search stops."""

ROUNDING = 1e-5
"""By what an interval is widened on both sides, relative; dense decompositions at 1024 steps agree
to 1e-8, and rounding grows like the square of T."""

MEMORY, MOST = 12, 120
"""Steps of the past that a step mixes, and steps, at most."""


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
