"""Both directions by importance samples, with a one-sided confidence: what is averaged lies in [0,
1], a direction's integrand over a bound of known integral (docs/mathematics.md, "Samples, with a
confidence"). One failure probability holds for an epsilon found, whichever it is."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_ndtr

from noisedesign.base import settings
from noisedesign.base.checks import Array
from noisedesign.privacy.amplification.mixture import Order, Tuples, log_kappa, log_mean, log_sum

SAMPLES = 2**17  # of each direction: a few per cent of delta, in a fraction of a second
RESOLVED = 30.0  # sum of integrand over bound of all samples below which an estimate is none
ROUNDING = 1e-9  # relative rounding of a ratio, with exponents up to thousands


def samples_for(bins: int) -> int:
    """Default number of samples of each direction, which each take b^2 products."""
    return min(max(2**33 // bins**2, 2**12), SAMPLES)


def mean_upper(values: Array, failure: float) -> float:
    """Upper bound of the mean of variables of one law in [0, 1] (Hoeffding 1963, theorem 1)."""
    return coin_upper(min(float(values.mean()), 1.0), len(values), failure)


def coin_upper(mean: float, samples: int, failure: float) -> float:
    """The largest q with n KL(mean, q) <= log(1 / failure) for n samples, rounded up."""
    most = -math.log(failure) / samples
    most += 32 * settings.EPS * (1 + most)  # rounding of a divergence, a difference of logarithms

    def divergence(q: float) -> float:
        first = mean * math.log(mean / q) if mean > 0 else 0.0
        second = (1 - mean) * (math.log1p(-mean) - math.log1p(-q)) if mean < 1 else 0.0
        return first + second

    low, high = mean, 1.0
    while True:
        middle = (low + high) / 2
        if middle in (low, high):
            return high
        low, high = (middle, high) if middle < 1 and divergence(middle) <= most else (low, middle)


@dataclass(frozen=True)
class Sampled:
    """A direction by samples, with the integral exp(log_bound - slope epsilon) of its bound."""

    log_ratio: Array
    log_weight: Array
    log_bound: float
    slope: float
    log_constant: float
    remove: bool

    @property
    def size(self) -> int:
        return len(self.log_ratio)

    def mean(self, epsilon: float) -> float:
        """Mean of integrand over bound, in [0, 1]."""
        excess = self.log_ratio - epsilon if self.remove else -epsilon - self.log_ratio
        held = excess > 0
        excess, weight = excess[held], self.log_weight[held]
        # (L - K)_+ = L (1 - K / L), and (1 - K L)_+ as it stands.
        base = self.log_ratio[held] if self.remove else 0.0
        logs = base - weight - self.log_constant + self.slope * epsilon
        logs += np.log(-np.expm1(-excess))
        found = float(np.exp(np.minimum(logs, 0.0)).sum())
        return min(found / self.size * (1 + ROUNDING), 1.0)

    def resolved(self, epsilon: float, *, samples: int | None = None) -> bool:
        """Whether enough samples matter at epsilon for an estimate, were there so many."""
        return self.mean(epsilon) * (samples or self.size) >= RESOLVED

    def log_integral(self, epsilon: float) -> float:
        """Logarithm of the integral of the bound at epsilon."""
        return self.log_bound - self.slope * epsilon

    def estimate(self, epsilon: float) -> float:
        """The direction, estimated without bias."""
        return math.exp(min(self.log_integral(epsilon), 700.0)) * self.mean(epsilon)

    def upper(self, epsilon: float, failure: float, *, samples: int | None = None) -> float:
        """The direction, bounded with that failure, or forecast for so many ``samples``."""
        bound = coin_upper(self.mean(epsilon), samples or self.size, failure)
        return math.exp(min(self.log_integral(epsilon) + math.log(bound), 700.0)) * (1 + ROUNDING)


class Proposal:
    """The laws that samples are drawn from, by moments, for the least bounds at two epsilons."""

    def __init__(
        self,
        gram: Array,
        orders: list[tuple[Order, Tuples, float]],
        *,
        remove_at: float,
        add_at: float,
    ) -> None:
        self.gram = gram
        values, vectors = np.linalg.eigh(gram)
        self.root = vectors * np.sqrt(np.maximum(values, 0.0))
        _, self.tuples, self.theta = min(orders, key=lambda one: one[0].log_bound(remove_at))
        self.shift = self._shift(add_at)

    def _log_shifted(self, s: float) -> float:
        """log E M^-s."""
        half = float(np.trace(self.gram)) / (2 * len(self.gram))
        return s * half + s * s / 2 * float(self.gram.mean())

    def _shift(self, epsilon: float) -> float:
        """s of the least bound of add; 0 where that is 1."""

        def bound(s: float) -> float:
            return self._log_shifted(s) - s * epsilon + _log_kappa_add(s)

        found = minimize_scalar(bound, bounds=(0.0, 1e3), method="bounded")
        return float(found.x) if found.fun < 0 else 0.0

    def remove(self, samples: int, generator: np.random.Generator) -> Sampled:
        """Draw samples of the direction remove."""
        tuples, theta, size = self.tuples, self.theta, self.tuples.size
        alpha = size * theta
        log_terms = tuples.log_terms(theta)
        log_moment = log_sum(log_terms)
        chances = np.exp(log_terms - log_moment)
        chosen = generator.choice(len(chances), size=samples, p=chances / chances.sum())
        shifts = theta * (tuples.counts @ self.gram)
        log_ratio, log_weight = np.empty(samples), np.empty(samples)
        for span in self._spans(samples):
            logs = self._logs(shifts[chosen[span]], generator)
            log_ratio[span] = log_mean(logs)
            log_weight[span] = size * log_mean(theta * logs)
        kappa = log_kappa(alpha)
        return Sampled(log_ratio, log_weight, log_moment + kappa, alpha - 1, kappa, True)

    def add(self, samples: int, generator: np.random.Generator) -> Sampled:
        """Draw samples of the direction add."""
        s = self.shift
        shift = -s * self.gram.mean(axis=1)
        log_ratio, log_weight = np.empty(samples), np.empty(samples)
        for span in self._spans(samples):
            size = span.stop - span.start
            logs = self._logs(np.broadcast_to(shift, (size, len(shift))), generator)
            log_ratio[span] = log_mean(logs)
            log_weight[span] = -s * logs.mean(axis=1)
        kappa = _log_kappa_add(s)
        return Sampled(log_ratio, log_weight, self._log_shifted(s) + kappa, s, kappa, False)

    def _spans(self, samples: int) -> list[slice]:
        length = max(2**22 // len(self.gram), 1)  # so many numbers at once
        return [slice(i, min(i + length, samples)) for i in range(0, samples, length)]

    def _logs(self, shifts: Array, generator: np.random.Generator) -> Array:
        """log w_j of samples whose x has the mean ``shifts``."""
        noise = generator.standard_normal(shifts.shape)
        logs: Array = shifts + noise @ self.root.T - np.diagonal(self.gram) / 2
        return logs


def log_geometric(gram: Array, epsilon: float) -> float:
    """log E (1 - e^epsilon M)_+, a bound of add: M <= L is the geometric mean."""
    mean, root = -float(np.trace(gram)) / (2 * len(gram)), math.sqrt(float(gram.mean()))
    if root == 0:
        return -math.inf if epsilon + mean >= 0 else 0.0
    end = -(epsilon + mean) / root
    first = float(log_ndtr(end))
    second = epsilon + mean + root * root / 2 + float(log_ndtr(end - root))
    # A difference: rounded up by its rounding.
    return first + math.log(max(-math.expm1(min(second - first, 0.0)), 0.0) + ROUNDING)


def _log_kappa_add(s: float) -> float:
    """log of the least kappa with (1 - u)_+ <= kappa u^-s."""
    return s * math.log(s) - (s + 1) * math.log(s + 1) if s > 0 else 0.0
