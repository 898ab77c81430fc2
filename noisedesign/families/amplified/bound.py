"""A bound on what random participation can save, on all linear mechanisms: plain numpy.

The proof is in docs/mathematics/random.md, theorem I, whose varsigma, Omega and price are the s_j,
A and h of this file. Without randomness h is sum_j p_j, in units in which the target allows s_j =
1: random participation divides an error by the *relief* h / sum_j p_j at most. A is a set of cells,
sum_j round(w_j / cell) > N with w = exp(c^1/2 y - c / 2). h is bounded on a grid of s where chi,
which increases, is taken at the lower end of a cell and s at the upper."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import scipy.optimize
from scipy.special import ndtr

from noisedesign.base import settings
from noisedesign.base.checks import Array
from noisedesign.privacy.accounting import mu_of
from noisedesign.privacy.target import PrivacyTarget
from noisedesign.system.participation import Participation

ROUNDING = 1e-10  # relative, of probabilities of A: more than that of N terms and edges of cells


def relief(prices: Array, *, participation: Participation, target: PrivacyTarget) -> float:
    """The factor, rounded up, that divides the certified bound for fixed participation."""
    bins, epsilon, delta = participation.stride, target.epsilon, target.delta
    replaced = target.adjacency == "replace"
    unit = (2.0 if replaced else 1.0) / mu_of(
        epsilon=epsilon, delta=delta, conversion=target.conversion
    )
    total = float(prices.sum())
    if epsilon > 300.0 or not total > 0:  # e^epsilon, times b, would be no double
        return math.inf
    region = best_region(bins, epsilon=epsilon, delta=delta, replaced=replaced)
    if region is None:
        return math.inf
    h = largest_price(prices, region, delta=delta)
    return max(unit * unit * h / total, 1.0) * (1 + settings.rank_tolerance(bins))


@dataclass(frozen=True, kw_only=True)
class Region:
    """The set A, up to cells: mean_j w_j above e^``log_level``, for squared sensitivities c =
    ``gram``."""

    bins: int
    epsilon: float
    gram: float
    log_level: float
    replaced: bool
    cells: int = 2048  # N: at 1024 the relief is the same to four digits

    @cached_property
    def _edges(self) -> Array:
        # Cell q of a coordinate has w / cell in (q - 1/2, q + 1/2]; ends are exact as they are.
        logs = np.log(np.arange(self.cells + 1) + 0.5) + self.log_level
        logs += math.log(self.bins) - math.log(self.cells + 0.5)
        return np.append(-np.inf, (logs + self.gram / 2) / math.sqrt(self.gram))

    @cached_property
    def _others(self) -> Array:
        """Tails of the sum of the cells of all other coordinates."""
        return _tails_of_sum(_masses(self._edges), ndtr(-self._edges[1:]), self.bins - 1)

    def chance(self, shift: float) -> float:
        """psi: the probability of A where one coordinate is moved by ``shift``."""
        edges = self._edges - shift
        return float(ndtr(-edges[-1]) + _masses(edges) @ self._others[::-1])

    def chi(self, squared: float) -> float:
        """The share of a bin of that squared sensitivity in delta, times b, rounded down."""
        shift = math.sqrt(squared)
        null = self.chance(-shift if self.replaced else 0.0)
        return self.chance(shift) * (1 - ROUNDING) - math.exp(self.epsilon) * null * (1 + ROUNDING)


def _masses(edges: Array) -> Array:
    """Normal masses between neighbouring edges, to relative accuracy in either tail."""
    below, above = ndtr(edges), ndtr(-edges)
    return np.where(edges[:-1] > 0, above[:-1] - above[1:], below[1:] - below[:-1])


def _tails_of_sum(masses: Array, tails: Array, count: int) -> Array:
    """P(q_1 + ... + q_count > n) for n = 0, ..., N, of independent q, without differences."""
    size = len(masses)
    sum_masses, sum_tails = np.eye(1, size)[0], np.zeros(size)
    while count:
        if count & 1:
            sum_tails = tails + np.convolve(masses, sum_tails)[:size]
            sum_masses = np.convolve(masses, sum_masses)[:size]
        count >>= 1
        if count:
            tails = tails + np.convolve(masses, tails)[:size]
            masses = np.convolve(masses, masses)[:size]
    return sum_tails


def best_region(bins: int, *, epsilon: float, delta: float, replaced: bool) -> Region | None:
    """The A that allows bins of one squared sensitivity c the least; None where it allows all."""
    region = partial(Region, bins=bins, epsilon=epsilon, replaced=replaced)

    def allowed(log_level: float) -> float:
        """c, by the A of c itself; infinite where there is none."""

        def excess(log: float) -> float:
            c = math.exp(log)
            return region(gram=c, log_level=log_level, cells=512).chi(c) - delta  # coarse

        low = high = 2 * math.log(mu_of(epsilon=epsilon, delta=delta) / (2 if replaced else 1))
        most = high + 200 * math.log(2.0)
        while excess(high) <= 0:
            low, high = high, high + math.log(2.0)
            if high > most:  # no c is too large
                return math.inf
        while excess(low) > 0:
            low -= math.log(2.0)
        return math.exp(scipy.optimize.brentq(excess, low, high, xtol=1e-4))

    log_level = epsilon
    if replaced:
        found = scipy.optimize.minimize_scalar(
            lambda level: min(allowed(level), 1e300),
            bounds=(-epsilon, epsilon),
            method="bounded",
            options={"xatol": 1e-2 * epsilon},
        )
        log_level = float(found.x)
    gram = allowed(log_level)
    return region(gram=gram, log_level=log_level) if math.isfinite(gram) else None


def largest_alone(bins: int, *, epsilon: float, delta: float) -> float:
    """The largest squared sensitivity of one bin: delta is least with the others at 0."""
    if bins * delta >= 1:
        return math.inf
    other = math.log1p(bins * math.expm1(epsilon))
    return mu_of(epsilon=other, delta=bins * delta) ** 2 * (1 + settings.sqrt_eps())


def largest_price(prices: Array, region: Region, *, delta: float) -> float:
    """An upper bound of sum_j p_j s_j where mean_j chi(s_j) <= delta."""
    bins, c = region.bins, region.gram
    rest = (bins - 1) * region.chi(0.0)
    most = largest_alone(bins, epsilon=region.epsilon, delta=delta)
    if not math.isfinite(most):
        return math.inf
    low = 0.0  # the most that A allows one bin, from above
    for _ in range(20):  # to six digits
        middle = (low + most) / 2
        low, most = (low, middle) if region.chi(middle) + rest > bins * delta else (middle, most)
    near, far = min(0.5 * c, most), min(1.5 * c, most)  # between them the grid of s is fine
    parts = (0.0, near, 200), (near, far, 1200), (far, most, 200)
    s = np.concatenate([np.linspace(*part) for part in parts])
    chi = np.array([region.chi(value) for value in s])
    lower, upper = chi[:-1] / bins, s[1:]

    def lagrange(log_multiplier: float) -> float:
        multiplier = math.exp(log_multiplier)
        best = np.max(np.multiply.outer(prices, upper) - multiplier * lower, axis=1)
        return multiplier * delta + float(best.sum())

    # At the even point the multiplier is the price over the slope of chi, which is of this order.
    centre = math.log(float(prices.sum()) * c / max(delta, float(region.chance(math.sqrt(c)))))
    found = scipy.optimize.minimize_scalar(
        lagrange, bounds=(centre - 10.0, centre + 10.0), method="bounded", options={"xatol": 1e-5}
    )
    return lagrange(float(found.x))


def leveled(blocks: Array) -> Array:
    """Multipliers U_j / p_j, shape (b, k, k): even prices leave randomness the least to gain."""
    prices = blocks[:, :1, :1]
    return np.asarray(np.divide(blocks, prices, out=np.zeros_like(blocks), where=prices > 0))
