"""Convergence of Zip-DL as its paper states it: Theorem 4.5 and Corollary 4.6.

As noise cancels in the mean model (Corollary 3.2), it slows training down only by keeping models
apart: it is in the second term, of order 1 / T^2, and not in the first. Constants are hidden, so
the terms are a *scale*. Three readings of the noise in A' differ:

- ``printed``: (d/n) (16 - 4p) / (16 - 7p) sum_av d_a (d_a - 1)^2 / d_v zeta_a^2, section 4;
- ``appendix``: the same with (d_v - 1)^2 and zeta_v^2 (appendix D);
- ``proof``: (d/n) (16 - 4p) / (6p) times the sum of the appendix, which is what its own choice
  beta = 3p / (16 - 7p) gives, as 1 + 1 / beta = (16 - 4p) / (3p). It is larger, at least 1.5 times
  and without limit as p goes to 0.

Beside them :func:`consensus_noise` is the exact distance of the models that noise alone makes. All
readings are above it, since (1 - 1 / d_a) sum_v W_va^2 <= (d_a - 1)^2, by margins that grow with n
and the degrees: on a ring of 6 with weights 1/3 one round is 2/9, and Lemma 4.7 says 24.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array, InputError
from noisedesign_lab.papers import bounds
from noisedesign_lab.papers.bounds import second_eigenvalue


def consensus_parameter(*, mixing: Any) -> float:
    """Return p = 1 - rho^2, the largest with |X W - X J/n|_F^2 <= (1 - p) |X - X J/n|_F^2 for all X
    (Lemma J.1). Equation (5.3) prints 1 - (1 - rho)^2, which no slowly mixing W satisfies."""
    return 1 - second_eigenvalue(mixing=mixing) ** 2


STATEMENTS = ("printed", "appendix", "proof")

Statement = Literal["printed", "appendix", "proof"]

RATE = 192 * math.sqrt(3)
"""Decay of the last term, exp(-mu p (T + 1) / (RATE L))."""


@dataclass(frozen=True, kw_only=True)
class ConvergenceScale:
    """The quantities of Theorem 4.5, and its terms with the hidden constant set to 1: p of
    Assumption 4.4, the parts of A' (squared) that gradients and noise make, omega^2, L, mu, |x^0 -
    x*|^2 and n."""

    consensus: float
    gradients: float
    noise: float
    sampling_variance: float
    smoothness: float
    strong_convexity: float
    start_distance_squared: float
    nodes: int

    @property
    def spread(self) -> float:
        """A', squared."""
        return self.gradients + self.noise

    def terms(self, horizon: int) -> tuple[float, float, float]:
        """Return the terms after T steps: omega^2 / (n mu T), L A' / (mu T)^2, and that of the
        start."""
        steps = _checks.positive_int(horizon, field="horizon")
        L, mu, p = self.smoothness, self.strong_convexity, self.consensus
        return (
            self.sampling_variance / (self.nodes * mu * steps),
            L * self.spread / (mu * steps) ** 2,
            self.start_distance_squared * L / p * math.exp(-mu * p * (steps + 1) / (RATE * L)),
        )

    def bound(self, horizon: int) -> float:
        """Theorem 4.5 after T steps, up to its constant."""
        return sum(self.terms(horizon))

    def steps_for(self, accuracy: float, *, constant: float = 1.0) -> float:
        """Return the steps after which the theorem is at most ``accuracy`` (Corollary 4.6), each
        term at most a third of it; ``constant`` is the kappa that the theorem hides."""
        rho = _checks.real(accuracy, field="accuracy", low=0)
        kappa = _checks.real(constant, field="constant", low=0)
        L, mu, p = self.smoothness, self.strong_convexity, self.consensus
        start = 3 * kappa * self.start_distance_squared * L / (rho * p)
        return (
            3 * kappa * self.sampling_variance / (self.nodes * mu * rho)
            + math.sqrt(3 * kappa * L * self.spread / (rho * mu**2))
            + RATE * L / (mu * p) * max(0.0, math.log(start) if start > 0 else 0.0)
        )


def theorem_4_5(
    *,
    mixing: Any,
    dimension: int,
    zeta: float | Array,
    smoothness: float,
    strong_convexity: float,
    sampling_variance: float,
    heterogeneity_squared: float,
    start_distance_squared: float,
    statement: Statement = "printed",
) -> ConvergenceScale:
    """Return the terms of Theorem 4.5 for a fixed symmetric, primitive W. Algorithm 1 draws noise
    of standard deviation gamma zeta, gamma the step size; ``sampling_variance`` is omega^2 at x*,
    ``heterogeneity_squared`` the mean of |grad f_i(x*)|^2."""
    w = bounds.primitive_mixing(mixing, source="Theorem 4.5")
    n, d = len(w), _checks.positive_int(dimension, field="dimension")
    L = _checks.real(smoothness, field="smoothness", low=0)
    mu = _checks.real(strong_convexity, field="strong_convexity", low=0)
    if mu > L:
        expected = f"at most smoothness = {L:g}"
        raise InputError("strong_convexity", expected=expected, got=f"{mu:g}")
    _checks.one_of(statement, field="statement", allowed=STATEMENTS)
    sampling = _checks.nonnegative(sampling_variance, field="sampling_variance")
    differ = _checks.nonnegative(heterogeneity_squared, field="heterogeneity_squared")
    p = consensus_parameter(mixing=w)
    variance = _checks.positive_vector(zeta, field="zeta", length=n) ** 2
    degree = (w > 0).sum(axis=0).astype(np.float64)  # of closed neighbourhoods
    if statement == "printed":
        total = float((degree * (degree - 1) ** 2 * variance).sum() * (1 / degree).sum())
    else:
        total = float(degree.sum() * ((degree - 1) ** 2 / degree * variance).sum())
    factor = (16 - 4 * p) / (6 * p if statement == "proof" else 16 - 7 * p)
    return ConvergenceScale(
        consensus=p,
        gradients=(16 - 4 * p) / (2 * (16 - 7 * p)) * (sampling + 18 / p * differ),
        noise=d / n * factor * total,
        sampling_variance=sampling,
        smoothness=L,
        strong_convexity=mu,
        start_distance_squared=_checks.nonnegative(
            start_distance_squared, field="start_distance_squared"
        ),
        nodes=n,
    )


def state_covariance(*, mixing: Any, noise_variance: float | Array = 1.0) -> Array:
    """Return the covariance (n, n) of what one round's noise adds to the models, where every
    Y_{a->v} has this variance, a number or one per sender. Its rows sum to 0 (Corollary 3.2).

    Node a draws Y_{a->v} for the nodes v of its closed neighbourhood, d_a with itself, and sends
    its model plus Z_{a->v} = Y_{a->v} - sum_j W_ja Y_{a->j} / (d_a W_va), so that sum_v W_va
    Z_{a->v} = 0.
    """
    w = bounds.symmetric_mixing(mixing, source="Zip-DL")
    variance = _checks.positive_vector(noise_variance, field="noise_variance", length=len(w))
    total = np.zeros_like(w)
    for a, size in enumerate(variance):
        receivers = np.flatnonzero(w[:, a])
        # W_ba Z_{a->b} = W_ba Y_{a->b} less the mean of these products over the neighbourhood.
        centre = np.eye(len(receivers)) - 1 / len(receivers)
        spread = centre * w[receivers, a]
        total[np.ix_(receivers, receivers)] += size * (spread @ spread.T)
    return total


def consensus_noise(*, mixing: Any, horizon: int, noise_variance: float | Array = 1.0) -> float:
    """Return the exact mean squared distance of the models from their mean from T rounds of noise
    alone, per coordinate: (1/n) sum_{k < T} tr(W^k Q W^k). One round is tr(Q) / n, where Lemma 4.7
    has (1/n) sum_av d_a (d_v - 1)^2 / d_v."""
    fresh = state_covariance(mixing=mixing, noise_variance=noise_variance)
    w, total = np.asarray(mixing, dtype=np.float64), 0.0
    for _ in range(_checks.positive_int(horizon, field="horizon")):
        total += float(np.trace(fresh))
        fresh = w @ fresh @ w.T
    return total / len(w)
