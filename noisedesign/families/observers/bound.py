"""Noise against chosen observers: the program, its dual and its bound. Plain numpy, no solver.

What observer a has of the noise z = (z_1, ..., z_k), drawn independently with one covariance R, are
the numbers y_a = sum_j B_aj z_j; a unit change of gradient c moves them by column c of G_a. How
well it tells the change is matrix-fractional in R, so that

    (O)  minimise  tr(H R)  subject to  diag( G_a^T K_a(R)^-1 G_a ) <= 1 for every observer a,
         diag(R) <= cap,   K_a(R) = sum_j B_aj R B_aj^T,

is convex. Noise values known to an observer are rows of B_a that no gradient moves: stacking them
says the same as conditioning on them, and the conditional covariance, which is no linear function
of R, is never written down.

Dual: any v_a >= 0, N_a >= 0 and w >= 0 with sum_a K_a*(N_a) <= H + diag(w), where
K_a*(N) = sum_j B_aj^T N B_aj, prove

    tr(H R) >= sum_a ( tr (V_a^1/2 G_a^T N_a G_a V_a^1/2)^1/2 )^2 / sum(v_a) - <cap, w>,

because <N, K> + <v, diag(G^T K^-1 G)> >= 2 tr((V^1/2 G^T N G V^1/2)^1/2) for every K > 0, and the
scale of v_a is free.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from noisedesign.base import linalg as _linalg
from noisedesign.base import settings
from noisedesign.base.checks import Array

ROUNDING = 8
"""Multiple of the rank tolerance allowed to the rounding of an eigenvalue or a sum."""

SCALES = (1.0, *(1 - 10.0**-k for k in range(10, 2, -1)))
"""Factors tried on all N_a: a slightly smaller one may cost less than the multipliers of the cap
that would make the whole feasible. Interior-point answers miss feasibility by 1e-10 to 1e-5."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ObservedNoise:
    """What one observer has: B_a, shape (k, m, p), of full row rank when its k blocks are put side
    by side, and G_a, shape (m, c), one column per gradient that is limited."""

    responses: Array
    signals: Array

    def covariance(self, noise: Array) -> Array:
        """K_a(R), shape (m, m), squared noise."""
        return np.asarray(np.einsum("jmp,pq,jnq->mn", self.responses, noise, self.responses))


@dataclass(frozen=True, kw_only=True, eq=False)
class ObserverProgram:
    """Data of (O), the budgets scaled to 1.

    Attributes:
        gram: H, shape (p, p), symmetric positive semidefinite, squared error per squared noise.
        observers: what each of them has.
        cap: largest variance R_ii, shape (p,), squared noise.
    """

    gram: Array
    observers: tuple[ObservedNoise, ...]
    cap: Array

    @property
    def size(self) -> int:
        """p, the number of coordinates of the noise."""
        return len(self.gram)


@dataclass(frozen=True, kw_only=True, eq=False)
class ObserverWitness:
    """Multipliers, observer by observer: N_a = F_a^T F_a, positive semidefinite whatever F_a is.

    Shapes: ``factors`` F_a (any, m), ``weights`` v_a (c,), ``cap`` w (p,).
    """

    factors: tuple[Array, ...]
    weights: tuple[Array, ...]
    cap: Array


def lower_bound(program: ObserverProgram, witness: ObserverWitness) -> float:
    """What the multipliers prove once repaired, in squared error; 0 where they prove nothing.

    Repair: negative weights are clipped, and what sum_a K_a*(N_a) exceeds H + diag(w) by is paid
    for: noise within the cap is D^1/2 Q D^1/2, D = diag(cap), with tr Q <= p, so an excess E costs
    at most p lambda_max(D^1/2 E D^1/2). Rounding is subtracted.
    """
    arrays = (*witness.factors, *witness.weights, witness.cap)
    if not all(np.isfinite(array).all() for array in arrays):
        return 0.0
    prices = np.maximum(witness.cap, 0.0)
    used, gained = np.zeros_like(program.gram), 0.0
    for seen, factor, weights in zip(
        program.observers, witness.factors, witness.weights, strict=True
    ):
        v = np.maximum(weights, 0.0)
        if v.max(initial=0.0) > 0:
            # Observers without a price on any gradient gain nothing, whatever their N_a.
            share = v / v.max()
            trace = _linalg.nuclear_norm(factor @ seen.signals * np.sqrt(share))
            gained += trace**2 / float(share.sum())
            rows = np.concatenate(list(factor @ seen.responses))
            used += rows.T @ rows
    paid = float(program.cap @ prices)
    best = max(scale * gained - paid - _excess(program, scale * used, prices) for scale in SCALES)
    rounding = ROUNDING * settings.rank_tolerance(program.size) * (gained + paid)
    return max(0.0, best - rounding)


def _excess(program: ObserverProgram, used: Array, prices: Array) -> float:
    """A bound on <used - H - diag(w), R> over all noise R within the cap."""
    root = np.sqrt(program.cap)
    scale = np.multiply.outer(root, root)
    largest = float(_linalg.eigenvalues((used - program.gram - np.diag(prices)) * scale)[-1])
    terms = float(program.cap @ np.diagonal(used + program.gram + np.diag(prices)))
    rounding = ROUNDING * settings.rank_tolerance(program.size) * terms
    return program.size * max(0.0, largest + rounding)
