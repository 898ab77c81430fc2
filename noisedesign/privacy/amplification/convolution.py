"""Mixtures whose bins are orthogonal and alike: sums of independent lognormals, on a grid.

With the Gram matrix c I the likelihood ratio is L = (w_1 + ... + w_b) / b, w independent lognormals
of mean 1, and both directions are options on the sum: E(L - K)_+, a call, and K E(1/K - L)_+, a
put. Three steps make an upper bound of them (docs/mathematics.md, "Random participation"):

1. The mass of each cell of a grid goes to the ends of the cell, its mean kept. The sum grows in
   convex order, so options grow. What is above the grid is capped, and the cost of the cap added.
2. The law is tilted by exp(t w), t > 0 for the call and t < 0 for the put, so that the sum lies
   near the strike. Its b-fold convolution by FFT then has a small error *relative* to the option,
   however small that is, and the a priori bound of that error is added.
3. Sums beyond the window of the FFT come back into it. They only add to the option but for those
   beyond the far end, whose value is bounded by the tilt.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import ndtr, ndtri

from noisedesign.base import settings
from noisedesign.base.checks import Array
from noisedesign.privacy.accounting import LEAST, delta_above
from noisedesign.privacy.amplification.logs import log_sum

TOLERANCE = 1e-4
"""Relative growth of the option that the spread of cells is to cost, about."""

FAR = 32.0
"""Units of 1 / t behind the strike that the window holds; e^-32 is 1e-14."""

CUT = 1e-6
"""Share of the option that what is cut off the law of one bin may cost, about."""

RARE = 0.02
"""Expected number of bins beyond half the strike that a tilt is to have, if it need not halve."""

OUTSIDE = 1e-12
"""Tilted mass beyond the far end of the window, about."""

DEEP, MOST_POINTS_DEEP = 1e-40, 2**15
"""Options below that have at most so many points: nobody needs their digits."""

TINY, MOST_POINTS_TINY = 1e-6, 2**17
"""c below which there are no more than these: the window, of the size of the strike, is wide
beside what a bin varies, and epsilon is less than a thousandth."""

POINTS = 600
"""Of the law of one bin, from which a tilt is chosen."""

MOST_POINTS = 2**21
"""Of the grid and of the window; a wider one has a coarser grid."""

SPAN = 0.4
"""Logarithm of strikes, up to which one law serves options of several."""

COARSE = 1e-3
"""The tolerance of several strikes at once, whose strikes are spread already."""

NEGLIGIBLE = 1e-3
"""Share of a sum of options that is bounded by the largest bin alone."""

MOST_NODES = 1000
"""Of the law of the common factor."""

REACH = 10.0
"""The nodes end so many standard deviations from its mean: more leave out less, and lie apart."""

MOST_COMMON = 64
"""Bins of a mixture with a common factor, whose strikes are many; beyond, it is one of these."""

LARGEST_STRIKE = 1e130
"""Of options on the mean of the bins, and its inverse the least."""

LARGEST_GRAM = 100.0
"""c up to which lognormals and strikes are doubles with room to spare; beyond, bins gain little."""

RESOLUTION = 1e-100
"""delta of the largest bin alone below which nothing more is computed."""

LARGEST_EPSILON = 90.0
"""The same of epsilon."""

FFT_ERROR = 16 * settings.EPS
"""Of a transform, relative in the Euclidean norm, for every factor 2 of its length: Higham 2002,
theorem 24.2, has 7 unit roundoffs (3.5 EPS) for radix 2 with accurate twiddles."""

TAILS = 1e-11
"""Relative rounding of the normal distribution function, up to 40 standard deviations."""

LARGEST_EXPONENT = 700.0
"""Of what is a double; exp(709.8) is the largest."""

LOST = 1e-322
"""More than products lose that are below the least normal double: each loses half a least double of
5e-324, and is a sum of three."""

UNDERFLOW = 1e-290
"""What masses below the least double can come to."""


def even_remove(c: float, bins: int, epsilon: float, *, common: float = 0.0) -> float:
    """Upper bound of the direction remove at epsilon, for the Gram matrix c I + common J.

    Args:
        c: squared norm of what is a bin's own, for unit noise, at least 0.
        bins: b, how many.
        epsilon: at least 0.
        common: inner product of any two bins, squared units; J has ones everywhere.

    Returns:
        delta, at most 1 and at least 1e-300, within about 1e-3 of the truth (a few per cent where
        ``common`` is not 0 and bins are at most 64), and never above that of the largest bin alone,
        which it is where that is below 1e-100.
    """
    return _direction(c, bins, epsilon, common, remove=True)


def even_add(c: float, bins: int, epsilon: float, *, common: float = 0.0) -> float:
    """Upper bound of the direction add; see :func:`even_remove`."""
    return _direction(c, bins, epsilon, common, remove=False)


def even_deltas(c: float, bins: int, epsilon: float, *, common: float = 0.0) -> tuple[float, float]:
    """Both directions, (remove, add); see :func:`even_remove`."""
    return (even_remove(c, bins, epsilon, common=common), even_add(c, bins, epsilon, common=common))


def _direction(c: float, bins: int, epsilon: float, common: float, *, remove: bool) -> float:
    if c + common == 0:
        return LEAST
    plain = delta_above(math.sqrt(c + common), epsilon)
    if bins == 1 or c == 0 or c > LARGEST_GRAM or epsilon > LARGEST_EPSILON or plain < RESOLUTION:
        return plain
    strike = math.exp(epsilon)
    if common:  # fewer bins are a bound: more of them are a mixture of such mixtures
        found = _with_common(c, min(bins, MOST_COMMON), strike, common, remove=remove)
    elif remove:
        found = _Sum(c, bins, bins * strike, 1).option(bins * strike)
    else:
        found = strike * _Sum(c, bins, bins / strike, -1).option(bins / strike)
    return min(max(found, LEAST), plain)


def even_remove_lower(c: float, bins: int, epsilon: float) -> float:
    """Lower bound of the direction remove at epsilon, for the Gram matrix c I.

    Bins are rounded down to the grid.

    Args:
        c: squared sensitivity of a bin for unit noise, at least 0.
        bins: b, how many.
        epsilon: at least 0.

    Returns:
        At least 0; within about a per cent of the truth for tens of bins, a tenth for thousands.
    """
    if c == 0 or c > LARGEST_GRAM or epsilon > LARGEST_EPSILON:
        return 0.0
    level = bins * math.exp(epsilon)
    return _Sum(c, bins, level, 1, spread=False, tolerance=TOLERANCE / 100).option(level)


def _with_common(c: float, bins: int, strike: float, common: float, *, remove: bool) -> float:
    """A direction of the ratio v (w_1 + ... + w_b) / b, v the lognormal of the common factor.

    The law of v is spread over nodes, its mean kept, and capped at the last of them; options grow.
    """
    root = math.sqrt(common)
    order = math.log(strike) / (c + common) + 1  # by which options change with the strike
    z = np.linspace(-REACH, REACH + root, min(max(int(60 * root * order), 80), MOST_NODES))
    nodes = np.exp(root * z - common / 2)
    mass, mass_error = _differences(z)
    mean, mean_error = _differences(z - root)
    width = np.diff(nodes)
    error = (mean_error + nodes[1:] * mass_error) / width + mass_error
    upper = np.clip((mean - nodes[:-1] * mass) / width, 0, mass)
    chances = np.zeros(len(z))
    chances[:-1] += mass - upper + error
    chances[1:] += upper + error
    chances[0] += float(ndtr(z[0] - root)) / nodes[0]
    chances[-1] += float(ndtr(-z[-1]))
    chances *= 1 + 1e-12
    if remove:
        cap = delta_above(root, max(math.log(nodes[-1]), 0.0))
        return _options(c, bins, strike / nodes, 1, chances * nodes) + cap
    zero = float(ndtr(z[0])) * (1 + 1e-12)
    return _options(c, bins, 1 / (strike * nodes), -1, chances * strike * nodes) + zero


def _options(c: float, bins: int, strikes: Array, sign: int, weights: Array) -> float:
    """Upper bound of a sum of calls or puts at several strikes, strikes close to others together.

    What is in the money is its parity, S - k, and the opposite option. Groups come in the order of
    what they may be at most, by the largest bin alone, until the rest may be neglected; that is
    added too.
    """
    root = math.sqrt(c)
    logs = np.log(strikes)
    total = float(weights @ np.maximum(sign * (1 - strikes), 0.0))
    plain = np.array([delta_above(root, abs(float(log))) for log in logs])
    most = weights * plain * np.minimum(strikes, 1.0)  # of the option out of the money
    span = min(SPAN, 2 * root / math.sqrt(bins))
    groups = np.where(logs > 0, np.ceil(logs / span), np.floor(logs / span)).astype(int)
    parts = [np.flatnonzero(groups == group) for group in np.unique(groups)]
    parts.sort(key=lambda part: -most[part].sum())
    left = float(most.sum())
    for part in parts:
        if left <= NEGLIGIBLE * total:
            break
        share = float(most[part].sum())
        left -= share
        levels = bins * strikes[part]
        if 1 / LARGEST_STRIKE < strikes[part].max() < LARGEST_STRIKE:
            way = 1 if strikes[part].max() > 1 else -1
            law = _Sum(
                c, bins, float(levels.max()), way, lowest=float(levels.min()), tolerance=COARSE
            )
            options = np.array([law.option(float(level)) for level in levels])
            share = float(np.minimum(weights[part] * options, most[part]).sum())
        total += share
    return (total + max(left, 0.0)) * (1 + 1e-9)


class _Tilt(NamedTuple):
    """What is known of the tilted law before there is a grid: nothing rests on it but accuracy."""

    t: float
    scale: float  # over which the law of the sum changes near the strike
    lowest: float  # ends of the grid of one bin
    highest: float
    low: float  # ends of the window of the sum
    high: float
    log_option: float  # about


class _Coarse:
    """One bin at some points up to a quantile, from which the tilt is chosen."""

    def __init__(self, root: float, bins: int, sign: int, bottom: float, top: float) -> None:
        self.bins, self.sign = bins, sign
        z = np.linspace(bottom, max(top, -11.0), POINTS)
        self.values = np.exp(root * z - root * root / 2)
        self.logs = -z * z / 2 - math.log(math.sqrt(2 * math.pi) / (z[1] - z[0]))

    def moment(self, t: float) -> float:
        """log E exp(sign t w)."""
        return log_sum(self.logs + self.sign * t * self.values)

    def law(self, t: float) -> Array:
        """Tilted chances of the points."""
        exponents = self.logs + self.sign * t * self.values
        chances: Array = np.exp(exponents - log_sum(exponents))
        return chances

    def slope(self, level: float) -> float:
        """t at which the a priori error, E exp(t sum) exp(-t level) / t^2, is least."""
        low, high = -80.0, 80.0  # log t
        for _ in range(26):
            middle = (low + high) / 2
            t = math.exp(middle)
            mean = self.bins * float(self.law(t) @ self.values)
            low, high = (middle, high) if self.sign * (mean - level) < 2 / t else (low, middle)
        return math.exp(low)

    def log_option(self, t: float, level: float) -> float:
        """Logarithm of a tenth of the option over b, by the saddle point."""
        p = self.law(t)
        variance = float(p @ (self.values - p @ self.values) ** 2)
        width = math.sqrt(2 * math.pi * self.bins * variance) + 1 / t
        exponent = self.bins * self.moment(t) - self.sign * t * level
        return exponent - math.log(t * t * width * self.bins * 10)

    def above(self, t: float, share: float) -> int:
        """How many points have more than that share of the tilted mass above them."""
        behind = np.cumsum(np.exp(self.logs)[::-1])[::-1]
        with np.errstate(divide="ignore"):  # no mass that doubles hold
            exponents = np.log(behind) + self.sign * t * self.values - self.moment(t)
        tilted = np.exp(np.minimum(exponents, 0.0))
        return int(np.sum(self.bins * tilted > share))

    def lowest(self, t: float) -> float:
        """Largest point below which mass, moved to the point and to 0, still counts for little."""
        ends = self.values if self.sign > 0 else np.zeros(len(self.values))
        with np.errstate(divide="ignore"):  # no mass that doubles hold
            exponents = np.log(np.cumsum(np.exp(self.logs))) + self.sign * t * ends - self.moment(t)
        below = int(np.sum(self.bins * np.exp(np.minimum(exponents, 0.0)) < CUT))
        return float(self.values[below - 1]) if below else 0.0

    def reach(self, t: float) -> float:
        """Where the tilted mass above is at most OUTSIDE (Chernoff)."""
        slopes = t * np.array([0.05, 0.1, 0.2, 0.4, 0.8, 1.6])
        growth = self.bins * np.array([self.moment(t + slope) - self.moment(t) for slope in slopes])
        return float(np.min((growth - math.log(OUTSIDE)) / slopes))


class _Law(NamedTuple):
    """Masses at h (first + i), and at 0."""

    masses: Array
    at_zero: float
    first: int


class _Sum:
    """The law of w_1 + ... + w_b on a grid, tilted so that options near ``level`` keep digits.

    Args:
        level: strike of the sum; options at it and a little below are close to the truth.
        sign: 1 for calls, -1 for puts.
        lowest: the least strike that will be asked for; None: ``level``.
        spread: whether options are rounded up; else calls are rounded down.
        tolerance: relative cost of the spread of cells, about.
    """

    def __init__(
        self,
        c: float,
        bins: int,
        level: float,
        sign: int,
        *,
        lowest: float | None = None,
        spread: bool = True,
        tolerance: float = TOLERANCE,
    ) -> None:
        self.c, self.root, self.bins, self.sign = c, math.sqrt(c), bins, sign
        self.level, self.spread = level, spread
        self.tilt = tilt = self._tilt()
        step = math.sqrt(8 * tolerance / bins) * tilt.scale
        most = MOST_POINTS if c >= TINY else MOST_POINTS_TINY
        if tilt.log_option <= math.log(DEEP):
            most = MOST_POINTS_DEEP
        width = max(tilt.highest - tilt.lowest, (tilt.high - tilt.low) / 2)
        self.step = h = max(step, width / most)
        # The window holds every strike, and what is between it and the far end.
        lowest = level if lowest is None else lowest
        low, high = tilt.low, tilt.high
        low = min(low, lowest) if sign > 0 else max(low - (level - lowest), 0.0)
        self.size = next_fast_len(min(int((high - low) / h) + 2, 2 * MOST_POINTS), real=True)
        if sign > 0:
            self.start = min(max(math.floor(high / h) - self.size, 0), math.floor(lowest / h))
        else:
            self.start = max(math.ceil(low / h), math.ceil(level / h) - self.size + 1)
        self.last = self.start + self.size - 1
        self._convolve(self._bin())

    def _tilt(self) -> _Tilt:
        """t that makes the a priori error least, and where the law of a bin is cut off."""
        bins, sign, root, c = self.bins, self.sign, self.root, self.c
        top = (math.log(self.level) + c / 2) / root if sign > 0 else 12.0
        # Puts lie where every bin is below its share of the strike.
        share = (math.log(self.level / bins) + c / 2) / root
        bottom = -12.0 if sign > 0 else min(-12.0, share - 6.0)
        coarse = _Coarse(root, bins, sign, bottom, top)
        t = coarse.slope(self.level)
        if sign > 0:  # above the cut a bin counts for little
            guess = min(coarse.log_option(t, self.level), 0.0)
            cut = root - float(ndtri(min(max(CUT * math.exp(max(guess, -640.0)), 1e-280), 0.4)))
            cut = max(cut, root / 2)
            if cut < top:
                coarse = _Coarse(root, bins, sign, bottom, cut)
                t = coarse.slope(self.level)
            highest = max(min(math.exp(root * min(cut, top) - c / 2), self.level), 1.0)
        else:
            highest = coarse.values[min(coarse.above(t, CUT), len(coarse.values) - 1)]
        scale, least = 1 / t, t / 2
        if sign > 0:  # large bins stay rare under the tilt: sums of several leave the window
            large = 2 * coarse.values > self.level
            while t > least and bins * float(coarse.law(t)[large].sum()) > RARE:
                t *= 0.95
        p = coarse.law(t)
        mean = float(p @ coarse.values)
        reach = 10 * math.sqrt(bins * float(p @ (coarse.values - mean) ** 2))
        lowest = coarse.lowest(t)
        if sign > 0:
            low = min(bins * mean - reach, self.level)
            high = max(self.level + FAR / t, coarse.reach(t))
        else:
            low, high = self.level - FAR / t, max(bins * mean + reach, self.level)
        ends = min(lowest, highest / 2), float(highest)
        return _Tilt(t, scale, *ends, max(low, 0.0), high, coarse.log_option(t, self.level))

    def _bin(self) -> _Law:
        """One bin on the grid, capped at its end; sets the cost of the cap."""
        h, c, root = self.step, self.c, self.root
        first = int(self.tilt.lowest / h)
        last = max(math.ceil(self.tilt.highest / h), first + 1)
        ends = h * np.arange(first, last + 1)
        with np.errstate(divide="ignore"):
            of_mass = (np.log(ends) + c / 2) / root
        of_mean = of_mass - root
        mass, mass_error = _differences(of_mass)
        mean, mean_error = _differences(of_mean)
        below, below_mean = float(ndtr(of_mass[0])), float(ndtr(of_mean[0]))
        self.end = float(ends[-1])
        self.cap = delta_above(root, math.log(self.end)) if self.sign > 0 else 0.0
        masses = np.zeros(len(ends))
        masses[-1] = float(ndtr(-of_mass[-1]))
        if not self.spread:
            masses[:-1] += np.maximum(mass - mass_error, 0)
            return _Law(masses * (1 - TAILS), below * (1 - TAILS), first)
        upper = np.clip((mean - ends[:-1] * mass) / h, 0, mass)  # to the upper ends of the cells
        error = (mean_error + ends[:-1] * mass_error) / h + mass_error
        masses[:-1] += mass - upper + error
        masses[1:] += upper + error
        if first:
            masses[0] += below_mean / ends[0]
        return _Law(masses * (1 + TAILS), below if first else 0.0, first)

    def _convolve(self, law: _Law) -> None:
        """The tilted law of the sum on the window, with bounds of its errors."""
        bins, size, t = self.bins, self.size, self.sign * self.tilt.t
        # Tilted about its share of the strike, so that exponents stay small.
        self.centre = self.level / bins
        points: Array = (
            self.step * (law.first + np.arange(len(law.masses), dtype=np.float64)) - self.centre
        )
        with np.errstate(divide="ignore"):
            logs: Array = np.log(law.masses) + t * points
            zero = math.log(law.at_zero) if law.at_zero > 0 else -math.inf
            log_zero = zero - t * self.centre
        self.log_sum = log_sum(np.append(logs, log_zero))
        masses = np.exp(logs - self.log_sum)
        p = np.bincount(np.arange(len(logs)) % size, weights=masses, minlength=size)
        p[-law.first % size] += math.exp(log_zero - self.log_sum)
        transform = rfft(p)
        before = _power(transform, bins - 1)
        power = before * transform
        doublings = math.log2(size) + 1
        error = (
            FFT_ERROR
            * doublings
            * bins
            * math.sqrt(float(np.square(p).sum()))
            * _norm(before, size)
        )
        error += (FFT_ERROR * doublings + 4 * bins * settings.EPS) * _norm(power, size)
        error *= 2 if self.spread else -2
        found = np.roll(irfft(power, size), -(self.start - bins * law.first) % size)
        self.chances = np.maximum(found + error, 0)
        self.sums = self.step * (self.start + np.arange(size, dtype=np.float64))
        self.outside = 0.0 if self.spread else self._outside(points, logs, log_zero)

    def _outside(self, points: Array, logs: Array, log_zero: float) -> float:
        """Bound of the tilted mass outside the window (Chernoff)."""
        total = 0.0
        for end, way in ((self.start, -1), (self.last, 1)):
            if end == 0:
                continue
            bounds = [0.0]
            for share in (0.1, 0.3, 0.5, 1.0, 2.0, 4.0):
                slope = way * share * self.tilt.t
                zero = log_zero - slope * self.centre
                moment = log_sum(np.append(logs + slope * points, zero))
                growth = self.bins * (moment - self.log_sum)
                bounds.append(growth - slope * (self.step * end - self.level))
            total += math.exp(min(bounds))
        return total

    def option(self, level: float) -> float:
        """E(sign (w_1 + ... + w_b - level))_+ / b, rounded up, or down where nothing is spread.

        Where no double holds what is known of the tilted law it is the mean of the sum, for a
        call, or the strike.
        """
        t, sign = self.tilt.t, self.sign
        gain = sign * (self.sums - level)
        held = slice(int(np.searchsorted(self.sums, level)), None)
        if sign < 0:
            held = slice(None, held.start)
        value = float(self.chances[held] @ (gain[held] * np.exp(-t * gain[held])))
        if self.spread:
            value += self._beyond(level) + LOST * float(gain[held].sum() + len(gain))
        else:
            value -= self.outside / (math.e * t)
        exponent = self.bins * self.log_sum - sign * t * (level - self.level)
        size = self.bins * (abs(self.log_sum) + 1000) + abs(exponent) + t * self.level
        rounding = 8 * settings.EPS * size
        exponent += rounding if self.spread else -rounding
        if self.spread and exponent > LARGEST_EXPONENT:
            return max(1.0, level / self.bins)
        value = max(value, 0.0) * math.exp(min(exponent, LARGEST_EXPONENT)) / self.bins
        if self.spread:
            return (value + self.cap) * (1 + 1e-9) + UNDERFLOW
        value += self.cap if self.end >= level else 0.0
        return max(value * (1 - 1e-9) - UNDERFLOW, 0.0)

    def _beyond(self, level: float) -> float:
        """Largest tilted gain beyond the far end of the window, which holds less than mass 1."""
        if self.sign < 0 and self.start == 0:  # no sum is below 0
            return 0.0
        far = self.step * (self.last + 1) - level
        if self.sign < 0:
            far = level - self.step * (self.start - 1)
        t = self.tilt.t
        return far * math.exp(-t * far) if far * t > 1 else 1 / (math.e * t)


def _differences(z: Array) -> tuple[Array, Array]:
    """Normal masses between neighbouring points, and bounds of their rounding errors."""
    lower, upper = ndtr(z), ndtr(-z)
    high = z[:-1] > 0
    found = np.where(high, upper[:-1] - upper[1:], lower[1:] - lower[:-1])
    size = np.where(high, upper[:-1], lower[1:])
    with np.errstate(invalid="ignore"):
        reach = np.where(np.isfinite(z), np.minimum(np.abs(z), 40.0), 0.0)
    reach = np.maximum(reach[:-1], reach[1:])
    return np.maximum(found, 0), settings.EPS * (8 + 4 * reach * (reach + 1)) * size


def _power(values: np.ndarray, exponent: int) -> np.ndarray:
    """Entries to a power, by products."""
    result = np.ones_like(values)
    while exponent:
        if exponent & 1:
            result = result * values
        exponent >>= 1
        if exponent:
            values = values * values
    return result


def _norm(half: np.ndarray, size: int) -> float:
    """At least the Euclidean norm of a real transform, over the root of its length."""
    return math.sqrt(2 * float(np.vdot(half, half).real) / size) * (1 + 1e-9)
