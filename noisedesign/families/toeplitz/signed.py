"""Toeplitz strategies whose coefficients and buffers may have any sign, under (k, b) participation.

A record takes part in steps j, j + b, ..., and G is the Gram matrix of the columns of C there,
shape (k, k), largest for j = 0. Where entries of G are negative the sum of all of them may be too
small, so the search minimises an upper bound. For every y with Diag(y) - G positive semidefinite
the squared sensitivity is at most sum(y), and y_i = (G 1)_i + l is one where l is at least the
largest eigenvalue of M = G - Diag(G 1), which is 0 where the sum is the sensitivity itself. The
largest eigenvalue is made smooth by t log tr exp(M / t), which is above it by t log k at most.

Buffers of any sign begin as the balanced realisation of fewer states (Kung 1978) of the best
coefficients, and descend from there."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from noisedesign.base import memory
from noisedesign.base.checks import Array
from noisedesign.forms import SignedBuffers
from noisedesign.system.participation import FixedEpoch

SHARPNESS = (1e-3, 3e-5)
"""t over the mean of the entries' sum over a column, of one search after the other. Searches with
less alone end early at a kink; with t = 3e-5 the bound is within 3e-5 log k of the sum."""

SPAN = 0.02
"""A unit of what is searched over, in scales and in logarithms and angles of decays: the first step
of a search is as long."""

CLOSEST = 1e-6
"""Least distance of a start's decays from the unit circle."""


def log_sensitivity(
    participation: FixedEpoch, *, sharpness: float
) -> Callable[[Array], tuple[float, Array]]:
    """The logarithm of that bound for the first column of C, and its gradient."""
    count, stride, horizon = (
        participation.largest_size,
        participation.stride,
        participation.horizon,
    )
    memory.require(
        lambda steps: 16 * count * steps, horizon, field="participation", of="steps of all epochs"
    )

    def log_size(column: Array) -> tuple[float, Array]:
        columns = np.zeros((count, horizon))
        for i, row in enumerate(columns):
            row[i * stride :] = column[: horizon - i * stride]
        gram = columns @ columns.T
        rows = gram.sum(axis=1)
        total = float(rows.sum())
        t = sharpness * total / count
        values, basis = np.linalg.eigh((gram - np.diag(rows)) / t)
        weights = np.exp(values - values[-1])
        log = math.log(weights.sum()) + float(values[-1])
        weights /= weights.sum()
        bound = total + count * t * log
        density = (basis * weights) @ basis.T
        own = np.diagonal(density)
        # d bound = d total + k (<density, dM> + (log - <weights, values>) dt)
        of_gram = 1 + sharpness * (log - float(weights @ values))
        of_gram = of_gram + count * (density - (own[:, None] + own) / 2)
        of_columns = 2 * of_gram @ columns / bound
        gradient = np.zeros(horizon)
        for i, row in enumerate(of_columns):
            gradient[: horizon - i * stride] += row[i * stride :]
        return math.log(bound), gradient

    return log_size


@dataclass(frozen=True, kw_only=True)
class Turning:
    """C of buffers of any sign, ``pairs`` of which turn: x is, in units of ``SPAN``, their scales,
    the atanh of decays of those that do not, and of moduli of pairs, and angles of pairs."""

    horizon: int
    pairs: int
    is_noising = False

    def _parts(self, x: Array) -> tuple[Array, Array, Array, Array]:
        """Scales, decays of single buffers, moduli of pairs and their units exp(i angle)."""
        x = SPAN * x
        buffers = (len(x)) // 2
        decays, angles = np.split(x[buffers:], [buffers - self.pairs])
        single, moduli = np.split(np.tanh(decays), [buffers - 2 * self.pairs])
        return x[:buffers], single, moduli, np.exp(1j * angles)

    def _decays(self, x: Array) -> Array:
        """Complex decays, conjugates side by side."""
        _, single, moduli, units = self._parts(x)
        pairs = moduli * units
        return np.concatenate([single, np.column_stack([pairs, pairs.conj()]).ravel()])

    def strategy(self, x: Array) -> SignedBuffers:
        """C, whose diagonal is 1."""
        decays = self._decays(x)
        return SignedBuffers(scales=self._parts(x)[0], decays=decays.real, turns=decays.imag)

    def column(self, x: Array) -> Array:
        powers = np.power.outer(self._decays(x), np.arange(self.horizon - 1))
        return np.concatenate([[1.0], self._parts(x)[0] @ ((1 + 1j) * powers).real])

    def pull_back(self, x: Array, gradient: Array) -> Array:
        scales, single, moduli, units = self._parts(x)
        ages = np.arange(self.horizon - 1)
        powers = (1 + 1j) * np.power.outer(self._decays(x), ages)
        slopes = scales * (powers[:, :-1] @ (ages[1:] * gradient[2:]))
        own, pairs = np.split(slopes, [len(single)])
        # Of the second of a pair the conjugate is what the first one's decay moves.
        moved = (pairs[::2] + pairs[1::2].conj()) * units
        return SPAN * np.concatenate(
            [
                powers.real @ gradient[1:],
                own.real * (1 - single**2),
                moved.real * (1 - moduli**2),
                -(moved * moduli).imag,
            ]
        )

    @staticmethod
    def reduced(column: Array, *, buffers: int) -> tuple[Turning, Array]:
        """Fewer buffers for coefficients: the balanced realisation of their Hankel matrix."""
        coefficients, rows = column[1:], len(column) // 2
        memory.require(memory.squares, rows, field="participation", of="half the steps")
        hankel = scipy.linalg.hankel(coefficients[:rows], coefficients[rows - 1 :])
        buffers = max(1, min(buffers, rows - 1))
        left, values, right = np.linalg.svd(hankel, full_matrices=False)
        roots = np.sqrt(values[:buffers])
        seen, fed = left[:, :buffers] * roots, right[:buffers, 0] * roots
        moved = np.linalg.lstsq(seen[:-1], seen[1:], rcond=None)[0]
        decays, basis = np.linalg.eig(moved)
        gains = (seen[0] @ basis) * np.linalg.solve(basis, fed.astype(complex))
        single, pairs = (np.flatnonzero(decays.imag == 0), np.flatnonzero(decays.imag > 0))
        # 2 Re(gain decay^j) by scales of the parts Re - Im and Re + Im of decay^j.
        scales = np.column_stack([(gains.real + gains.imag), (gains.real - gains.imag)])[pairs]
        most = np.arctanh(1 - CLOSEST)
        sizes = np.concatenate([decays.real[single], np.abs(decays[pairs])])
        limited = np.clip(np.arctanh(np.clip(sizes, -1 + CLOSEST, 1 - CLOSEST)), -most, most)
        x = [gains.real[single], scales.ravel(), limited, np.angle(decays[pairs])]
        family = Turning(horizon=len(column), pairs=len(pairs))
        return family, np.concatenate(x) / SPAN
