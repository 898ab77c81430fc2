"""Mixtures whose bins are orthogonal and alike: sums of independent lognormals, on a grid.

Both directions are options on the sum. Its law is tilted, so that the error of a convolution by FFT
is small *relative* to the option (docs/methods/random-participation.md, "Bins that are orthogonal
and alike")."""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import ndtr, ndtri

from noisedesign.base import settings
from noisedesign.base.checks import Array
from noisedesign.privacy.accounting import LEAST, delta_above
from noisedesign.privacy.amplification.mixture import log_sum

TOLERANCE = 1e-4  # relative growth of the option that the spread of cells is to cost, about
FAR = 32.0  # units of 1 / t behind the strike that the window holds; e^-32 is 1e-14
CUT = 1e-6  # share of the option that what is cut off the law of one bin may cost, about
OUTSIDE = 1e-12  # tilted mass beyond the far end of the window, about
MOST_POINTS = 2**21  # points of the grid and of the window; a wider one has a coarser grid
NEGLIGIBLE = 1e-3  # share of a sum of options that is bounded by the largest bin alone
REACH = 10.0  # standard deviations where the nodes end: more leave out less, and lie apart
LARGEST_STRIKE = 1e130  # strike of options on the mean of the bins; the least is its inverse
LARGEST_GRAM = 100.0  # c up to which lognormals and strikes are doubles; beyond, bins gain little
FFT_ERROR = 16 * settings.EPS  # of a transform, for a factor 2 of its length: Higham 2002, th. 24.2
LARGEST_EXPONENT = 700.0  # exponents whose exponential surely is a double; exp(709.8) is the last
LOST = 1e-322  # what products below the least normal double lose, each three times half a least one


def even_deltas(c: float, bins: int, epsilon: float, *, common: float = 0.0) -> tuple[float, float]:
    return (even_remove(c, bins, epsilon, common=common), even_add(c, bins, epsilon, common=common))


def _direction(c: float, bins: int, epsilon: float, *, common: float = 0.0, remove: bool) -> float:
    """Upper bound of a direction at epsilon, for the Gram matrix c I + common J."""
    if c + common == 0:
        return LEAST
    plain = delta_above(math.sqrt(c + common), epsilon)
    if bins == 1 or c == 0 or c > LARGEST_GRAM or epsilon > 90 or plain < 1e-100:
        return plain
    strike = math.exp(epsilon)
    if common:  # fewer bins are a bound: more of them are a mixture of such mixtures
        found = _with_common(c, min(bins, 64), strike, common, remove=remove)
    elif remove:
        found = _Sum(c, bins, bins * strike, 1).option(bins * strike)
    else:
        found = strike * _Sum(c, bins, bins / strike, -1).option(bins / strike)
    return min(max(found, LEAST), plain)


even_remove, even_add = partial(_direction, remove=True), partial(_direction, remove=False)


def _with_common(c: float, bins: int, strike: float, common: float, *, remove: bool) -> float:
    """A direction of v (w_1 + ... + w_b) / b, the common factor v spread over nodes."""
    root = math.sqrt(common)
    order = math.log(strike) / (c + common) + 1  # by which options change with the strike
    z = np.linspace(-REACH, REACH + root, min(max(int(60 * root * order), 80), 1000))
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
    """Upper bound of a sum of calls or puts: close strikes share a law, the least are plain."""
    root = math.sqrt(c)
    logs = np.log(strikes)
    total = float(weights @ np.maximum(sign * (1 - strikes), 0.0))
    plain = np.array([delta_above(root, abs(float(log))) for log in logs])
    most = weights * plain * np.minimum(strikes, 1.0)  # of the option out of the money
    span = min(0.4, 2 * root / math.sqrt(bins))  # one law serves options of several strikes
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
            law = _Sum(  # more coarsely, as the strikes are spread already
                c, bins, float(levels.max()), way, lowest=float(levels.min()), tolerance=1e-3
            )
            options = np.array([law.option(float(level)) for level in levels])
            share = float(np.minimum(weights[part] * options, most[part]).sum())
        total += share
    return (total + max(left, 0.0)) * (1 + 1e-9)


class _Tilt(NamedTuple):
    """The tilted law before there is a grid: nothing rests on it but accuracy."""

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
        z = np.linspace(bottom, max(top, -11.0), 600)
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
        """Number of points that have more than that share of the tilted mass above them."""
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
        """A point above which the tilted mass is at most OUTSIDE (Chernoff)."""
        slopes = t * np.array([0.05, 0.1, 0.2, 0.4, 0.8, 1.6])
        growth = self.bins * np.array([self.moment(t + slope) - self.moment(t) for slope in slopes])
        return float(np.min((growth - math.log(OUTSIDE)) / slopes))


class _Law(NamedTuple):
    """Masses at h (first + i), and at 0."""

    masses: Array
    at_zero: float
    first: int


class _Sum:
    """The law of w_1 + ... + w_b on a grid, tilted so that options near ``level`` keep digits."""

    def __init__(
        self,
        c: float,
        bins: int,
        level: float,
        sign: int,
        *,
        lowest: float | None = None,
        tolerance: float = TOLERANCE,
    ) -> None:
        self.c, self.root, self.bins, self.sign = c, math.sqrt(c), bins, sign
        self.level = level
        self.tilt = tilt = self._tilt()
        step = math.sqrt(8 * tolerance / bins) * tilt.scale
        # For tiny c the window, of the size of the strike, is wide beside what a bin varies, and
        # epsilon less than a thousandth.
        most = MOST_POINTS if c >= 1e-6 else 2**17
        if tilt.log_option <= math.log(1e-40):  # nobody needs the digits of so small an option
            most = 2**15
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
            while t > least and bins * float(coarse.law(t)[large].sum()) > 0.02:
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
        self.cap = delta_above(root, math.log(float(ends[-1]))) if self.sign > 0 else 0.0
        masses = np.zeros(len(ends))
        masses[-1] = float(ndtr(-of_mass[-1]))
        upper = np.clip((mean - ends[:-1] * mass) / h, 0, mass)  # to the upper ends of the cells
        error = (mean_error + ends[:-1] * mass_error) / h + mass_error
        masses[:-1] += mass - upper + error
        masses[1:] += upper + error
        if first:
            masses[0] += below_mean / ends[0]
        return _Law(masses * (1 + 1e-11), below if first else 0.0, first)

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
        error *= 2
        found = np.roll(irfft(power, size), -(self.start - bins * law.first) % size)
        self.chances = np.maximum(found + error, 0)
        self.sums = self.step * (self.start + np.arange(size, dtype=np.float64))

    def option(self, level: float) -> float:
        """E(sign (w_1 + ... + w_b - level))_+ / b, rounded up; plain where doubles overflow."""
        t, sign = self.tilt.t, self.sign
        gain = sign * (self.sums - level)
        held = slice(int(np.searchsorted(self.sums, level)), None)
        if sign < 0:
            held = slice(None, held.start)
        value = float(self.chances[held] @ (gain[held] * np.exp(-t * gain[held])))
        value += self._beyond(level) + LOST * float(gain[held].sum() + len(gain))
        exponent = self.bins * self.log_sum - sign * t * (level - self.level)
        size = self.bins * (abs(self.log_sum) + 1000) + abs(exponent) + t * self.level
        exponent += 8 * settings.EPS * size
        if exponent > LARGEST_EXPONENT:
            return max(1.0, level / self.bins)
        value = max(value, 0.0) * math.exp(exponent) / self.bins
        return (value + self.cap) * (1 + 1e-9) + 1e-290  # what masses below doubles can come to

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
    result = np.ones_like(values)
    while exponent:
        if exponent & 1:
            result = result * values
        exponent >>= 1
        if exponent:
            values = values * values
    return result


def _norm(half: np.ndarray, size: int) -> float:
    """Upper bound of the Euclidean norm of a real transform, over the root of its length."""
    return math.sqrt(2 * float(np.vdot(half, half).real) / size) * (1 + 1e-9)
