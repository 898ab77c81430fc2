"""Models of the noise that a target takes, as smooth functions of the bins' Gram matrix G.

With m_j the sum of the columns of bin j and G_ij = <m_i, m_j>, sigma^2(G) is the least variance
at which the mixture of N(m_j, sigma^2 I) against N(0, sigma^2 I) is (epsilon, delta)-private in the
direction remove: delta = E (L - K)_+ with K = e^epsilon and the likelihood ratio L = mean_j w_j,
w_j = exp(y_j), y = x - diag(G) / 2, x normal of covariance G. Each model gives log sigma^2 and its
gradient by G, of inner product 1 with G, and serves a search alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.optimize

from noisedesign.base import settings
from noisedesign.base.checks import Array
from noisedesign.families.amplified.bound import largest_alone
from noisedesign.privacy.accounting import mu_of

CHUNK = 2**18  # entries of the arrays of samples worked on at a time: 2 MB stay in the cache
REACHED = 0.1  # share of the pilots to be above the strike; until then a tilt is for the highest
BACK = 0.5  # largest step of log sigma^2, and the one taken where no sample counts
EVEN = 0.1  # share of the samples of all pairs of bins alike, so that no weight is large
LARGEST_LOG = 700.0  # of a double; a strike beyond it is one that no sample reaches


@dataclass(frozen=True, kw_only=True)
class Goal:
    """epsilon and delta, of one record that is there or not."""

    epsilon: float
    delta: float


class Value(NamedTuple):
    """log sigma^2, and its gradient by G, shape (b, b)."""

    log: float
    gradient: Array


Variance = Callable[[Array], Value]  # a model of log sigma^2, from G


@dataclass(frozen=True, kw_only=True)
class Peak:
    """max_j G_jj, as of fixed participation, smoothly: a norm of the diagonal of that ``power``."""

    power: float

    def __call__(self, gram: Array) -> Value:
        diagonal = np.diagonal(gram)
        largest = float(diagonal.max())
        weights = (diagonal / largest) ** self.power
        total = float(weights.sum())
        return Value(
            math.log(largest) + math.log(total) / self.power, np.diag(weights / total / diagonal)
        )


@dataclass(frozen=True, kw_only=True)
class Tilt:
    """The variance at which log mean_ij exp(E_ij) is ``total``, a closed form; theta >= 1, tau >=
    0. Normals with the density e^(tau sum_j x_j) (mean_j w_j^theta)^2 to the usual one are a
    mixture of b^2 shifts of the weights exp(E_ij), E_ij linear in G."""

    theta: float
    tau: float
    total: float

    def __call__(self, gram: Array) -> Value:
        """Newton's method in 1 / sigma^2, from the right of the root of a convex function."""
        exponents = log_weights(gram, self.theta, self.tau)
        precision = self.total / float(exponents.mean())
        for _ in range(60):  # many more than any takes
            powers = precision * exponents
            log_sum = _log_sum(powers)
            weights = np.exp(powers - log_sum)
            excess = log_sum - 2 * math.log(len(gram)) - self.total
            step = excess / float(np.vdot(weights, exponents))
            precision -= step
            if step <= settings.sqrt_eps() * precision:
                break
        theta, tau, of_bins = self.theta, self.tau, weights.sum(axis=1)
        gradient = theta * theta * weights + tau * tau / 2  # of the mean of E_ij by the weights
        gradient += theta * tau * (of_bins[:, None] + of_bins)
        gradient[np.diag_indices(len(weights))] += (theta * theta - theta) * of_bins
        return Value(-math.log(precision), gradient / np.vdot(gradient, gram))


def log_weights(gram: Array, theta: float, tau: float) -> Array:
    """E_ij, shape (b, b)."""
    diagonal = np.diagonal(gram)
    of_bins = (theta * theta - theta) / 2 * diagonal + theta * tau * gram.sum(axis=1)
    common = tau * tau / 2 * float(gram.sum())
    return np.asarray(of_bins[:, None] + of_bins + theta * theta * gram + common)


def _log_sum(logs: Array) -> float:
    """log of the sum of exponentials."""
    top = float(logs.max())
    return top + math.log(float(np.exp(logs - top).sum()))


@dataclass(frozen=True, kw_only=True, eq=False)
class Corrected:
    """A model plus <correction, G / sigma^2>, which has the gradient of samples at one point."""

    model: Variance
    correction: Array

    @classmethod
    def to(cls, model: Variance, gram: Array, gradient: Array) -> Corrected:
        """The model with that gradient at G."""
        value = model(gram)
        return cls(model=model, correction=math.exp(value.log) * (gradient - value.gradient))

    def __call__(self, gram: Array) -> Value:
        log, gradient = self.model(gram)
        correction = self.correction * math.exp(-log)
        moved = float(np.vdot(correction, gram))
        return Value(log + moved, gradient + correction - moved * gradient)


class Sampled(NamedTuple):
    """log sigma^2 by samples, its gradient, and the tilt they were drawn by."""

    log: float
    gradient: Array
    tilt: Tilt


def sampled(gram: Array, goal: Goal, *, samples: int, seed: int) -> Sampled:
    """log sigma^2 by so many samples and its gradient; without where they tell nothing."""
    bins = len(gram)
    # No covariance that rounding makes indefinite is factorised.
    gram = gram + np.eye(bins) * (settings.sqrt_eps() * float(np.trace(gram)) / bins)
    log, law = _fitted(gram, goal, np.random.default_rng(seed))
    rows = max(CHUNK // bins, 1)
    rng = np.random.default_rng(seed)
    delta, gradient = 0.0, np.zeros_like(gram)
    for first in range(0, samples, rows):
        count = min(rows, samples - first)
        part = _Draw(law, rng, count).delta(law.gram)
        delta += part[0] * count / samples
        gradient += part[1] * (count / samples)
    gradient = np.maximum(gradient, 0.0)  # an option on L grows with every entry of G
    slope = float(np.vdot(gradient, law.gram))
    if slope > 0:
        log += math.log(delta / goal.delta) * delta / slope
    plain = Peak(power=64.0)(gram)
    most = plain.log - 2 * math.log(mu_of(epsilon=goal.epsilon, delta=goal.delta))
    if not (slope > 0 and log < most + 0.1):
        return Sampled(most, plain.gradient, Tilt(theta=2.0, tau=0.0, total=5.0))
    return Sampled(log, gradient / np.vdot(gradient, gram), law.tilt)


def _fitted(gram: Array, goal: Goal, rng: np.random.Generator) -> tuple[float, _Law]:
    """log sigma^2 by few samples, and the law of samples that suits it (cross-entropy method)."""
    alone = largest_alone(len(gram), epsilon=goal.epsilon, delta=goal.delta)
    log = math.log(float(np.diagonal(gram).max()) / min(alone, 200.0))
    count = min(max(2**17 // len(gram), 2**9), 2**12)
    theta, tau = 1.0, 0.0
    for _ in range(20):  # about six are usual
        law = _Law(gram * math.exp(-log), goal, theta, tau)
        draw = _Draw(law, rng, count)
        reached = draw.reach(law.gram)
        theta, tau = draw.likeliest(law.gram)
        if not reached:
            continue
        law = _Law(law.gram, goal, theta, tau)
        delta, gradient = _Draw(law, rng, count).delta(law.gram)
        slope = float(np.vdot(gradient, law.gram)) / delta if delta > 0 else 0.0
        step = -BACK
        if slope > 0:
            step = min(max(math.log(delta / goal.delta) / slope, -BACK), BACK)
        if abs(step) < 0.02:
            break
        log += step
    return log, law


class _Law:
    """The mixture that samples are drawn from, for the Gram matrix at unit variance."""

    def __init__(self, gram: Array, goal: Goal, theta: float, tau: float) -> None:
        self.gram, self.log_strike = gram, goal.epsilon
        self.theta, self.tau = theta, tau
        logs = log_weights(gram, theta, tau).ravel()
        self.log_total = _log_sum(logs)
        chances = np.exp(logs - self.log_total) * (1 - EVEN) + EVEN / len(logs)
        self.ends, self.log_chances = np.cumsum(chances), np.log(chances)

    @property
    def tilt(self) -> Tilt:
        total = self.log_total - 2 * math.log(len(self.gram))
        return Tilt(theta=self.theta, tau=self.tau, total=total)


class _Draw:
    """Samples: pairs of bins and normals, which make samples for every Gram matrix."""

    def __init__(self, law: _Law, rng: np.random.Generator, samples: int) -> None:
        self.law, bins = law, len(law.gram)
        places = (np.arange(samples) + rng.random(samples)) / samples * law.ends[-1]
        pairs = np.minimum(np.searchsorted(law.ends, places), bins**2 - 1)
        self.pairs = np.divmod(pairs, bins)
        self.log_chances = law.log_chances[pairs]
        self.normals = rng.standard_normal((samples, bins))
        self.shifts = np.zeros((samples, bins))
        self.shifts[np.arange(samples), self.pairs[0]] = 1.0
        self.shifts[np.arange(samples), self.pairs[1]] += 1.0

    def _logs(self, gram: Array, root: Array) -> Array:
        """y, shape (samples, b)."""
        theta, tau, (first, second) = self.law.theta, self.law.tau, self.pairs
        shifts = theta * (gram[first] + gram[second]) + tau * gram.sum(axis=1)
        return np.asarray(self.normals @ root.T + shifts - np.diagonal(gram) / 2)

    def _log_ratios(self, gram: Array, logs: Array, log_mean: Array) -> Array:
        """Logarithms of the usual density over that of the samples."""
        theta, tau, bins = self.law.theta, self.law.tau, len(gram)
        sums = logs.sum(axis=1) + float(np.trace(gram)) / 2
        weights = log_weights(gram, theta, tau)[self.pairs] - self.log_chances
        return np.asarray(weights - 2 * math.log(bins) - tau * sums - 2 * log_mean)

    def reach(self, gram: Array) -> bool:
        """Whether enough samples are above the strike."""
        logs = self._logs(gram, _root(gram))
        return bool(np.mean(_log_mean(logs) > self.law.log_strike) > REACHED)

    def likeliest(self, gram: Array) -> tuple[float, float]:
        """theta and tau under which the samples that count would be likeliest."""
        logs = self._logs(gram, _root(gram))
        height = _log_mean(logs)
        ratios = self._log_ratios(gram, logs, _log_mean(self.law.theta * logs))
        strike = min(self.law.log_strike, float(np.quantile(height, 1 - REACHED)))
        above = height > strike
        logs, height = logs[above], height[above]
        weights = height + np.log(-np.expm1(strike - height)) + ratios[above]
        weights = np.exp(weights - weights.max())
        weights /= weights.sum()
        mean_sum = float(weights @ (logs.sum(axis=1) + float(np.trace(gram)) / 2))

        def unlikely(at: Array) -> float:
            theta, tau = 1 + math.exp(at[0]), math.exp(at[1]) / len(gram)
            likely = tau * mean_sum + 2 * float(weights @ _log_mean(theta * logs))
            return _log_sum(log_weights(gram, theta, tau)) - likely

        bounds = [(-7, math.log(1e4))] * 2  # beyond what any target in doubles asks for
        start = np.log(np.maximum([self.law.theta - 1, self.law.tau * len(gram)], 0.1))
        found = scipy.optimize.minimize(
            unlikely, start, method="Nelder-Mead", bounds=bounds, options={"xatol": 0.02}
        ).x
        return 1 + math.exp(found[0]), math.exp(found[1]) / len(gram)

    def delta(self, gram: Array) -> tuple[float, Array]:
        """E (L - K)_+ for that Gram matrix and its gradient, shape (b, b), of the samples."""
        theta, tau = self.law.theta, self.law.tau
        samples, bins = self.normals.shape
        root = _root(gram)
        logs = self._logs(gram, root)
        top = logs.max(axis=1, keepdims=True)
        powers = np.exp(theta * (logs - top))
        mean = powers.mean(axis=1)
        ratios = self._log_ratios(gram, logs, theta * top[:, 0] + np.log(mean))
        # L and the strike are divided by e^top, and the ratios multiplied by it.
        factor = np.exp(np.minimum(ratios + top[:, 0], LARGEST_LOG)) / samples
        terms = np.exp(logs - top)
        strike = np.exp(np.minimum(self.law.log_strike - top[:, 0], LARGEST_LOG))
        gain = np.maximum(terms.mean(axis=1) - strike, 0.0)
        values = gain * factor
        # What the value of a sample changes by with y, and with x.
        by_y = terms * (factor * (gain > 0) / bins)[:, None]
        by_y -= powers * (2 * theta / bins * values / mean)[:, None]
        by_x = by_y - tau * values[:, None]
        moved = theta * self.shifts + tau
        gradient = moved.T @ by_x
        gradient += moved.T @ (values[:, None] * moved) / 2
        gradient += _through_factor(root, by_x.T @ self.normals)
        of_bins = by_y.sum(axis=0) + theta * (values @ self.shifts)
        gradient[np.diag_indices(bins)] -= of_bins / 2
        return float(values.sum()), np.asarray((gradient + gradient.T) / 2)


def _root(gram: Array) -> Array:
    return np.asarray(np.linalg.cholesky(gram), dtype=np.float64)


def _log_mean(logs: Array) -> Array:
    """log of the mean of exponentials, row by row."""
    top = logs.max(axis=1)
    return np.asarray(top + np.log(np.exp(logs - top[:, None]).mean(axis=1)))


def _through_factor(root: Array, by_root: Array) -> Array:
    """The gradient by a matrix, from that by its Cholesky factor (Murray 2016, equation 10)."""
    inner = np.tril(root.T @ by_root)
    inner[np.diag_indices(len(inner))] /= 2
    inverse = np.linalg.inv(root)
    return np.asarray(inverse.T @ inner @ inverse)
