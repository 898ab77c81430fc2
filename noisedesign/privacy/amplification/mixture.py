"""The mixture that a record of random participation is: one of b means, which one is secret. L is
the mean of w_j = exp(x_j - G_jj / 2), x ~ N(0, G) (docs/mathematics/random.md).

Importance samples bound both directions with a one-sided confidence: what is averaged lies in [0,
1], a direction's integrand over a bound of known integral ("Samples, with a confidence"). One
failure probability holds for an epsilon found, whichever it is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import gammaln, log_ndtr

from noisedesign.base import checks as _checks, settings
from noisedesign.base.checks import Array, InputError
from noisedesign.privacy.runs import LEMMA
from noisedesign.system.participation import Participation

MOST_MULTISETS = 60_000  # multisets of bins that are listed: a few hundredths of a second each
THETAS = (1.0, 1.2, 1.45, 1.75, 2.1, 2.5, 3.0, 3.7, 4.5, 6.0, 8.0, 11.0, 16.0, 32.0, 128.0, 1024.0)
ORDERS = np.arange(2, 61)  # orders of the moments of bins that are alike


@dataclass(frozen=True, kw_only=True, eq=False)
class Mixture:
    """The Gram matrix of the means of b equally likely bins, nonnegative, for a unit change of
    every gradient and unit noise: the pair P = (1/b) sum_j N(m_j, I), Q = N(0, I) dominates what an
    observer learns; ``upper`` names G where it is larger than the observer's own."""

    gram: Array
    upper: str = ""

    def __post_init__(self) -> None:
        gram = _checks.semidefinite_matrix(self.gram, field="gram")
        if gram.min() < 0:
            i, j = (int(k) for k in np.unravel_index(gram.argmin(), gram.shape))
            expected = f"entries >= 0, as in {LEMMA}"
            got = f"{gram[i, j]:.3g} at {(i, j)}"
            remedy = "Give the Gram matrix of the absolute values of the rows: it is a bound."
            raise InputError("gram", expected=expected, got=got, remedy=remedy)
        _checks.text(self.upper, field="upper")
        symmetric = np.maximum(gram, gram.T)
        symmetric.flags.writeable = False
        object.__setattr__(self, "gram", symmetric)

    @property
    def bins(self) -> int:
        return len(self.gram)

    @property
    def sensitivity_squared(self) -> float:
        """Largest squared norm of a mean: the squared sensitivity without randomness."""
        return float(np.diagonal(self.gram).max())

    @property
    def common(self) -> float:
        """Largest inner product of two bins, squared units; 0 where it is rounding."""
        if self.bins == 1:
            return 0.0
        largest = float((self.gram - np.diag(np.diagonal(self.gram))).max())
        return largest if largest > 64 * settings.EPS * self.sensitivity_squared else 0.0

    @property
    def even(self) -> bool:
        """Whether G is a multiple of the identity: bins orthogonal and alike, to rounding."""
        least = float(np.diagonal(self.gram).min())
        return self.common == 0 and least >= (1 - 1e-9) * self.sensitivity_squared

    @property
    def known(self) -> Mixture:
        """The largest bin alone, as if it were known: an upper bound."""
        return Mixture(gram=np.array([[self.sensitivity_squared]]), upper=self.upper)

    def scaled(self, factor: float) -> Mixture:
        factor = _checks.scale(factor, field="noise_multiplier")
        return Mixture(gram=self.gram / factor / factor, upper=self.upper)


def bins_of(rows: Any, participation: Participation) -> Mixture:
    """The mixture of a nonnegative strategy, or of whitened rows, (m, T), for unit noise."""
    # Equal gradients of norm 1 are worst, adaptive ones included (docs/mathematics/random.md,
    # theorem H).
    array = _checks.matrix(rows, field="strategy")
    if array.shape[1] != participation.horizon:
        expected = f"{participation.horizon} columns, one a step of the participation"
        raise InputError("strategy", expected=expected, got=f"shape {array.shape}")
    largest = float(np.abs(array).max())
    if array.min() < -settings.STOCHASTIC_TOLERANCE * largest:
        i, j = (int(k) for k in np.unravel_index(array.argmin(), array.shape))
        got = f"{array[i, j]:.3g} at {(i, j)}"
        remedy = "Design with nonnegative = true, or account for fixed participation."
        raise InputError("strategy", expected=f"entries >= 0: {LEMMA}", got=got, remedy=remedy)
    array = np.abs(array)  # of what is negative by rounding: a bound (T2)
    means = np.stack([array[:, list(pattern)].sum(axis=1) for pattern in participation.bins])
    gram = means @ means.T
    gram *= 1 + 4 * settings.EPS * (math.sqrt(array.shape[0]) + array.shape[0])
    return Mixture(gram=np.maximum(gram, gram.T))


# --- sums of exponentials; SciPy's take ten times as long on short arrays -------------------------


def log_sum(logs: Array) -> float:
    """Logarithm of a sum of exponentials, one exponent at least being finite, shape (n,)."""
    top = float(logs.max())
    return top + math.log(float(np.exp(logs - top).sum()))


def log_mean(logs: Array) -> Array:
    """Logarithm of the mean of exponentials over each row, shape (n, b) to (n,)."""
    top = logs.max(axis=1)
    found: Array = top + np.log(np.exp(logs - top[:, None]).mean(axis=1))
    return found


# --- moments of the likelihood ratio --------------------------------------------------------------


class Tuples(NamedTuple):
    """All multisets of m bins: counts, logarithms of their numbers, two sums in the exponent."""

    counts: Array
    log_number: Array
    pairs: Array
    singles: Array

    @property
    def size(self) -> int:
        return int(self.counts[0].sum())

    def scaled(self, factor: float) -> Tuples:
        return self._replace(pairs=self.pairs * factor, singles=self.singles * factor)

    def log_terms(self, theta: float) -> Array:
        """Logarithms of the terms of E (mean_j w_j^theta)^m, one a multiset."""
        exponents: Array = theta * theta / 2 * self.pairs - theta / 2 * self.singles
        return exponents + self.log_number - self.size * math.log(self.counts.shape[1])


class Multisets:
    """All multisets that are few enough to list, of one Gram matrix and its multiples."""

    def __init__(self, gram: Array) -> None:
        self.sizes = [tuples_of(gram, size) for size in sizes_for(len(gram))]

    def orders(self, factor: float) -> list[tuple[Order, Tuples, float]]:
        """Moments of the Gram matrix times a factor, each with its multisets and theta."""
        found = []
        for unscaled in self.sizes:
            tuples = unscaled.scaled(factor)
            for theta in THETAS:
                if (alpha := tuples.size * theta) > 1:
                    moment = log_sum(tuples.log_terms(theta))
                    found.append((Order(alpha, moment + _slack(1, moment)), tuples, theta))
        return found


class Order(NamedTuple):
    """A moment of L, bounded from above: log E L^alpha <= log_moment."""

    alpha: float
    log_moment: float

    def log_bound(self, epsilon: float) -> float:
        """Logarithm of the bound of E (L - e^epsilon)_+."""
        return self.log_moment + log_kappa(self.alpha) - (self.alpha - 1) * epsilon


def log_kappa(alpha: float) -> float:
    """log of the least kappa with (L - K)_+ <= kappa K^(1 - alpha) L^alpha, alpha > 1."""
    return (alpha - 1) * math.log(alpha - 1) - alpha * math.log(alpha)


def tuples_of(gram: Array, size: int) -> Tuples:
    """The multisets of ``size`` bins with what their moments need."""
    bins = len(gram)
    chosen = _multisets(bins, size)
    counts = np.zeros((len(chosen), bins))
    np.add.at(counts, (np.arange(len(chosen))[:, None], chosen), 1.0)
    log_number = gammaln(size + 1) - gammaln(counts + 1).sum(axis=1)
    pairs = np.einsum("ti,ti->t", counts @ gram, counts)
    return Tuples(counts, log_number, pairs, counts @ np.diagonal(gram))


def _multisets(bins: int, size: int) -> np.ndarray:
    rows = np.arange(bins)[:, None]
    for _ in range(size - 1):
        more = bins - rows[:, -1]  # what may follow
        starts = np.repeat(rows[:, -1], more)
        within = np.arange(len(starts)) - np.repeat(np.cumsum(more) - more, more)
        rows = np.column_stack([np.repeat(rows, more, axis=0), starts + within])
    return rows


def sizes_for(bins: int) -> range:
    """The m, at most 24, whose multisets of b bins are few enough to list."""
    size = 1
    while size < 24 and math.comb(bins + size, size + 1) <= MOST_MULTISETS:
        size += 1
    return range(1, size + 1)


def even_orders(c: float, bins: int, *, common: float = 0.0) -> list[Order]:
    """Moments of L for c I + common J, rounded up."""
    # m! times a coefficient of a power (Mironov 2017).
    n = np.arange(ORDERS[-1] + 1.0)
    series: Array = c * n * (n - 1) / 2 - gammaln(n + 1)
    power = _log_power(series, bins)
    of_sum = power[ORDERS] + gammaln(ORDERS + 1.0) - ORDERS * math.log(bins)
    moments = of_sum + common * ORDERS * (ORDERS - 1) / 2
    return [
        Order(float(alpha), float(moment) + _slack(bins, float(moment)))
        for alpha, moment in zip(ORDERS, moments, strict=True)
    ]


def _log_power(series: Array, exponent: int) -> Array:
    """Logarithms of the coefficients of a power of a series, cut off at its length."""
    result = np.full(len(series), -np.inf)
    result[0] = 0.0
    while exponent:
        if exponent & 1:
            result = _log_product(result, series)
        exponent >>= 1
        if exponent:
            series = _log_product(series, series)
    return result


def _log_product(first: Array, second: Array) -> Array:
    return np.array([log_sum(first[: n + 1] + second[n::-1]) for n in range(len(first))])


def _slack(bins: int, log_moment: float) -> float:
    """Rounding of sums of exponentials with exponents up to thousands, 1e-11 relatively."""
    return 1e-11 * (1 + bins + abs(log_moment))


def renyi_remove(orders: list[Order], epsilon: float) -> float:
    """Upper bound of the direction remove at epsilon by the best of the moments; may be above 1."""
    return math.exp(min(min(order.log_bound(epsilon) for order in orders), 700.0))


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
        # s of the least bound of add; 0 where that is 1.
        found = minimize_scalar(
            lambda s: self._log_shifted(s) - s * add_at + _log_kappa_add(s),
            bounds=(0.0, 1e3),
            method="bounded",
        )
        self.shift = float(found.x) if found.fun < 0 else 0.0

    def _log_shifted(self, s: float) -> float:
        """log E M^-s."""
        half = float(np.trace(self.gram)) / (2 * len(self.gram))
        return s * half + s * s / 2 * float(self.gram.mean())

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
