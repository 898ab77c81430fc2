"""Buffers over all time: sensitivity and error of C with c_0 = 1, c_k = sum_i s_i l_i^(k-1).

As a function of x = 1 / z, C is f(x) = 1 + sum_i s_i / (x - l_i): with s_i > 0 its zeros p_i lie
one below each l_i, and 1 / f = 1 - sum_i r_i / (x - p_i) has all r_i > 0. So C^-1 has poles p_i,
and its prefix sums are sums of positive terms, as every number below is: a relative error of what
goes in stays one of what comes out. Zeros are found in floating point, and f is shown to have
opposite signs on both sides of each in rational arithmetic, which rounds nothing."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
import scipy.signal
from numpy.typing import NDArray

from noisedesign.base.checks import Array
from noisedesign.base.enclosures import EPS

NEAR = Fraction(1, 2**44)  # half width of the interval that a zero is proved in, of its room
BITS = 256  # of fractions in fixed point, which are rounded up: far finer than any float
ONE = 1 << BITS


@dataclass(frozen=True, kw_only=True, eq=False)
class Buffers:
    """C with unit diagonal: ``scales`` s > 0 and ``decays`` l in (0, 1), ascending, shape (m,)."""

    scales: Array
    decays: Array

    @property
    def _pairs(self) -> list[tuple[float, float]]:
        return list(zip(self.scales.tolist(), self.decays.tolist(), strict=True))

    @property
    def falling(self) -> bool:
        """Whether coefficients of C are nonnegative and fall and no zero p is below 0, which
        sum s / l <= 1 says; then participations at equal distances are the worst."""
        return bool(
            (self.scales > 0).all()
            and (np.diff(self.decays) > 0).all()
            and self.decays[0] > 0
            and self.decays[-1] < 1
            and sum(Fraction(s) / Fraction(x) for s, x in self._pairs) <= 1
        )

    def squared_sensitivity(self, *, participations: int, separation: int) -> float:
        """|c + c moved by b + ...|^2 over all time for k participations b apart, if not rounded."""
        products = np.multiply.outer(self.scales, self.scales)
        norms = products / (1 - np.multiply.outer(self.decays, self.decays))
        squared = participations * (1 + float(norms.sum()))
        counts = np.arange(1, participations)
        with np.errstate(under="ignore"):
            for start in range(0, len(counts), 4096):
                far = counts[start : start + 4096]
                later = np.exp(np.multiply.outer(far * separation - 1.0, np.log(self.decays)))
                found = later @ (self.scales + self.decays * norms.sum(axis=1))
                squared += 2 * float((participations - far) @ found)
        return squared

    def proved_sensitivity(self, *, participations: int, separation: int) -> float:
        """The same from above, in integers that are rounded up."""
        scales, decays = ([_fixed(x) for x in of.tolist()] for of in (self.scales, self.decays))
        total = participations * ONE
        for scale, decay in zip(scales, decays, strict=True):
            norm = sum(
                _over(_times(scale, s), ONE - _times(decay, x))
                for s, x in zip(scales, decays, strict=True)
            )
            total += participations * norm
            power, step = _power(decay, separation - 1), _power(decay, separation)
            seen = scale + _times(decay, norm)
            for count in range(participations - 1, 0, -1):
                total += 2 * count * _times(power, seen)
                power = _times(power, step)
        return _float(total)

    @cached_property
    def zeros(self) -> tuple[Array, Array]:
        """1 - p and the residues r of :mod:`.buffers`, ascending in p, shape (m,)."""
        roots = np.sqrt(self.scales)
        losses, vectors = np.linalg.eigh(np.diag(1 - self.decays) + np.multiply.outer(roots, roots))
        order = np.argsort(-losses)
        return losses[order], np.square(roots @ vectors)[order]

    def proved_zeros(self) -> tuple[Array, Array]:
        """Lower bounds on 1 - p and upper bounds on r, with every rounding."""
        terms = [(Fraction(s), Fraction(x)) for s, x in self._pairs]
        losses, residues = [], []
        poles = [Fraction(0), *(x for _, x in terms)]
        for room, loss in zip(itertools.pairwise(poles), self.zeros[0].tolist(), strict=True):
            low, high = _around(1 - Fraction(loss), room, terms)
            losses.append(math.nextafter(float(1 - high), 0.0))
            slope = sum(s / max(abs(low - pole), abs(high - pole)) ** 2 for s, pole in terms)
            residues.append(math.nextafter(float(1 / slope), math.inf))
        return np.array(losses), np.array(residues)

    def proved_variances(self, ends: NDArray[np.int64]) -> Array:
        """sum_(s<t) r_s^2, r the prefix sums of the column of C^-1, at t in ``ends``, from above:
        r_s = sum_i r_i p_i^s / (1 - p_i) + 1 / C(1) has positive terms, which rise with p and r."""
        losses, residues = ([Fraction(x) for x in of.tolist()] for of in self.proved_zeros())
        poles = [ONE, *(_fixed(1 - loss) for loss in losses)]
        stays = 1 / (1 + sum(Fraction(s) / (1 - Fraction(x)) for s, x in self._pairs))
        values = [stays, *(r / loss for r, loss in zip(residues, losses, strict=True))]
        gains = [_fixed(value) for value in values]
        pairs = itertools.combinations_with_replacement(range(len(poles)), 2)
        found = [0] * len(ends)
        for i, j in pairs:
            gain = _times(gains[i], gains[j]) * (1 if i == j else 2)
            pole = _times(poles[i], poles[j])
            for at, end in enumerate(ends.tolist()):
                found[at] += _times(gain, _geometric(pole, end))
        return np.array([_float(x) for x in found])

    def noising(self, steps: int) -> Array:
        """-d_1, -d_2, ... of the column d of C^-1, d_0 = 1; positive, shape (steps,)."""
        losses, residues = self.zeros
        return _powers(losses, steps) @ residues

    def sums(self, steps: int) -> Array:
        """Prefix sums of the column of C^-1, shape (steps,)."""
        losses, residues = self.zeros
        last = 1 / (1 + float((self.scales / (1 - self.decays)).sum()))
        return last + _powers(losses, steps) @ (residues / losses)

    def variances(self, poles: Array, weights: Array, *, steps: int) -> Array:
        """sum_j weight_j sum_(s<=t) r_js^2 for t < steps, r_j the column of C^-1 behind a pole."""
        total = np.zeros(steps)
        inner = None
        for pole, weight in zip(poles.tolist(), weights.tolist(), strict=True):
            if pole == 1.0:
                response = self.sums(steps)
            else:
                if inner is None:
                    inner = np.concatenate([[1.0], -self.noising(steps - 1)])
                response = scipy.signal.lfilter([1.0], [1.0, -pole], inner)
            total += weight * np.square(response)
        return np.cumsum(total)


def buffer_sums(scales: Array, decays: Array, steps: int) -> Array:
    """sum_i s_i l_i^(k-1) for 0 < k < ``steps``, from what a filter would keep."""
    found = np.zeros(steps - 1)
    for scale, decay in zip(scales.tolist(), decays.tolist(), strict=True):
        with np.errstate(under="ignore"):
            found += scale * np.exp(np.arange(steps - 1.0) * math.log(decay))
    return found


def _around(
    root: Fraction, room: tuple[Fraction, Fraction], terms: list[tuple[Fraction, Fraction]]
) -> tuple[Fraction, Fraction]:
    """Enclose the zero of f between two poles, about ``root``, by its signs at both ends."""
    spread = NEAR * (room[1] - room[0])
    while True:
        low, high = max(root - spread, room[0]), min(root + spread, room[1])
        # f falls from plus infinity, or f(0) >= 0, to minus infinity.
        signs = [
            1 + sum(s / (x - pole) for s, pole in terms) if x not in room else None
            for x in (low, high)
        ]
        if (signs[0] is None or signs[0] >= 0) and (signs[1] is None or signs[1] <= 0):
            return low, high
        spread *= 16


def _powers(losses: Array, steps: int) -> Array:
    """p^t for t < steps, shape (steps, m)."""
    with np.errstate(under="ignore"):
        logs = np.log1p(-np.minimum(losses, 1 - EPS))
        return np.asarray(np.exp(np.multiply.outer(np.arange(steps, dtype=np.float64), logs)))


# --- numbers in units of 2^-BITS, rounded up -----------------------------------------------------


def _fixed(x: float | Fraction) -> int:
    return math.ceil(Fraction(x) * ONE)


def _float(x: int) -> float:
    return math.nextafter(x / ONE, math.inf)


def _times(a: int, b: int) -> int:
    return -(-a * b >> BITS)


def _over(a: int, b: int) -> int:
    return -((-a << BITS) // b)


def _power(x: int, count: int) -> int:
    found = ONE
    for digit in bin(count)[2:]:
        found = _times(found, found)
        if digit == "1":
            found = _times(found, x)
    return found


def _geometric(x: int, count: int) -> int:
    """1 + x + ... + x^(count - 1), by doubling."""
    total, power = 0, ONE
    for digit in bin(count)[2:]:
        total += _times(power, total)
        power = _times(power, power)
        if digit == "1":
            total += power
            power = _times(power, x)
    return total
