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

from noisedesign.base.checks import Array
from noisedesign.base.enclosures import EPS

NEAR = Fraction(1, 2**44)  # half width of the interval that a zero is proved in, of its room
ALLOWANCE = 1e-8
"""Relative allowance for roundings, on squares: thousands of operations of 2^-52 each, 1e6 in
running sums, and powers up to 745 * 2^-50; what exp(-745) leaves of a term is no number."""


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
        """|c + c moved by b + ...|^2 over all time for k participations b apart, rounded up."""
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
        # 1 - l_i l_j is known to a rounding of 1 over the smallest of them.
        loose = EPS / float(1 - self.decays[-1] ** 2)
        return squared * (1 + ALLOWANCE + 4 * loose)

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

    def noising(self, steps: int, *, proved: bool = False) -> Array:
        """-d_1, -d_2, ... of the column d of C^-1, d_0 = 1; positive, shape (steps,)."""
        losses, residues = self.proved_zeros() if proved else self.zeros
        return _powers(losses, steps) @ residues

    def sums(self, steps: int, *, proved: bool = False) -> Array:
        """Prefix sums of the column of C^-1, shape (steps,); from above where ``proved``."""
        losses, residues = self.proved_zeros() if proved else self.zeros
        last = 1 / (1 + float((self.scales / (1 - self.decays)).sum()))
        return last + _powers(losses, steps) @ (residues / losses)

    def variances(self, poles: Array, weights: Array, *, steps: int, proved: bool = False) -> Array:
        """sum_j weight_j sum_(s<=t) r_js^2 for t < steps, r_j the column of C^-1 behind a pole."""
        total = np.zeros(steps)
        inner = None
        for pole, weight in zip(poles.tolist(), weights.tolist(), strict=True):
            if pole == 1.0:
                response = self.sums(steps, proved=proved)
            else:
                if inner is None:
                    inner = np.concatenate([[1.0], -self.noising(steps - 1)])
                response = scipy.signal.lfilter([1.0], [1.0, -pole], inner)
            total += weight * np.square(response)
        found = np.cumsum(total)
        return np.asarray(found * (1 + ALLOWANCE) if proved else found)


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
