"""Excess risk of private gossip averaging (Koskela and Kulkarni, Theorem 17), as a calculator.

The theorem hides constants and logarithms, so its terms are a *scale*, no bound: they tell which
part of the error dominates and how it moves with n, T and the graph.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from noisedesign.base import checks as _checks
from noisedesign.tasks.papers.bounds import _arguments, gossip


@dataclass(frozen=True, kw_only=True)
class UtilityScale:
    """Theorem 17 with every hidden constant and logarithm set to 1: a scale, not a bound.

    Attributes:
        noise_stddev: noise per step that equation (5.5) asks for, standard deviation, not squared.
        squared_sensitivity_as_claimed: equation (5.4), squared, by which noise_stddev is chosen. As
            it is no upper bound (``gossip``), noise_stddev certifies nothing.
        gap: gamma = 1 - rho.
        consensus: p = 1 - rho^2.
        central: d log(1/delta) / (eps^2 n^2 mu), what a central server would pay as well.
        mixing: d log(1/delta) / (eps^2 n mu) / (gamma^2 sqrt(T)).
        transient: d log(1/delta) / (eps^2 n mu) / (gamma^4 T).
        heterogeneity: L zeta^2 / (mu^2 gamma^2 T^2).
        start: L |theta^0 - theta*|^2 / gamma exp(-c gamma mu T / L).
        dropped: d L log(1/delta) / (eps^2 mu^2 n gamma T), which the proof derives (J.10) and the
            theorem leaves out. It exceeds ``transient`` where L / mu > gamma^-3.
    """

    noise_stddev: float
    squared_sensitivity_as_claimed: float
    gap: float
    consensus: float
    central: float
    mixing: float
    transient: float
    heterogeneity: float
    start: float
    dropped: float

    @property
    def total(self) -> float:
        """Sum of the five terms of the theorem."""
        return self.central + self.mixing + self.transient + self.heterogeneity + self.start


def consensus_parameter(*, mixing: Any) -> float:
    """Largest p with |X W - X J/n|_F^2 <= (1 - p) |X - X J/n|_F^2 for all X: p = 1 - rho^2.

    Lemma J.1. Equation (5.3) prints 1 - gamma^2 with gamma = 1 - rho, which no slowly mixing W
    satisfies; the proof of Theorem 17 repeats it.

    Raises:
        InputError: W is not symmetric and row stochastic.
    """
    return 1 - gossip.second_eigenvalue(mixing=mixing) ** 2


def dwork_roth_stddev(*, sensitivity: float, epsilon: float, delta: float) -> float:
    """Noise standard deviation D sqrt(2 log(1.25 / delta)) / epsilon, not squared; equation (5.5).

    Sufficient for (epsilon, delta)-DP where epsilon < 1 (Dwork and Roth 2014, Theorem A.1), and
    only there. ``accounting`` calibrates exactly.

    Args:
        sensitivity: D, not squared.

    Raises:
        InputError: epsilon or delta outside (0, 1), sensitivity not positive.
    """
    sensitivity = _checks.real(sensitivity, field="sensitivity", low=0)
    epsilon = _checks.real(epsilon, field="epsilon", low=0, high=1)
    delta = _checks.real(delta, field="delta", low=0, high=1)
    return sensitivity * math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def theorem_17(
    *,
    mixing: Any,
    horizon: int,
    dimension: int,
    epsilon: float,
    delta: float,
    smoothness: float,
    strong_convexity: float,
    heterogeneity_squared: float,
    start_distance_squared: float,
    rate: float = 1.0,
) -> UtilityScale:
    """The five terms of Theorem 17 and the noise they assume.

    Args:
        mixing: W, symmetric, doubly stochastic, primitive.
        horizon: T, full-batch gradient steps.
        dimension: d, number of parameters.
        smoothness: L.
        strong_convexity: mu, the convexity constant, at most L.
        heterogeneity_squared: zeta^2, mean of |grad f_i(theta*)|^2, squared; 0 is allowed.
        start_distance_squared: |theta^0 - theta*|^2, squared; 0 is allowed.
        rate: c of the exponent, a universal constant the theorem does not give.

    Raises:
        InputError: W is none of these, epsilon or delta outside (0, 1), strong_convexity above
            smoothness, or a number out of range.
    """
    w = _arguments.primitive_mixing(mixing, source="Theorem 17")
    n, steps = len(w), _checks.positive_int(horizon, field="horizon")
    d = _checks.positive_int(dimension, field="dimension")
    L = _checks.real(smoothness, field="smoothness", low=0)
    mu = _checks.real(strong_convexity, field="strong_convexity", low=0)
    if mu > L:
        raise _checks.InputError(
            "strong_convexity", expected=f"at most smoothness = {L:g}", got=f"{mu:g}"
        )
    zeta2 = _nonnegative(heterogeneity_squared, field="heterogeneity_squared")
    start2 = _nonnegative(start_distance_squared, field="start_distance_squared")
    rate = _checks.real(rate, field="rate", low=0)
    squared = gossip.theorem_15_squared_sensitivity(mixing=w, observers=(0,), horizon=steps)
    noise_stddev = dwork_roth_stddev(sensitivity=math.sqrt(squared), epsilon=epsilon, delta=delta)
    gap = 1 - gossip.second_eigenvalue(mixing=w)
    privacy = d * math.log(1 / delta) / epsilon**2
    return UtilityScale(
        noise_stddev=noise_stddev,
        squared_sensitivity_as_claimed=squared,
        gap=gap,
        consensus=consensus_parameter(mixing=w),
        central=privacy / (n**2 * mu),
        mixing=privacy / (n * mu) / (gap**2 * math.sqrt(steps)),
        transient=privacy / (n * mu) / (gap**4 * steps),
        heterogeneity=L * zeta2 / (mu * gap * steps) ** 2,
        start=L * start2 / gap * math.exp(-rate * gap * mu / L * steps),
        dropped=privacy * L / (mu**2 * n * gap * steps),
    )


def _nonnegative(value: Any, *, field: str) -> float:
    number = _checks.real(value, field=field)
    if number < 0:
        raise _checks.InputError(field, expected="a number >= 0", got=f"{number:g}")
    return number
