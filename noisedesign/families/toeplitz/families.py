"""Families of strategies as smooth maps from unconstrained numbers, each with its adjoint.

A family turns a vector x into the first column of C or of C^-1 and back-propagates a gradient.
What makes sensitivity exact under fixed epochs (coefficients >= 0) holds for every x by
construction where a family says so, and a search over x cannot leave it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import scipy.special

from noisedesign.base.checks import Array
from noisedesign.base.power_series import resized


class Family(Protocol):
    """Columns of shape (T,) that depend smoothly on x."""

    @property
    def is_noising(self) -> bool:
        """Whether the column is that of C^-1 rather than of C."""

    def column(self, x: Array) -> Array:
        """First column, its first entry 1, shape (T,)."""

    def pull_back(self, x: Array, gradient: Array) -> Array:
        """Gradient in x, from the gradient in the column."""


@dataclass(frozen=True, kw_only=True)
class Coefficients:
    """C with free coefficients c_1, ..., c_{p-1}: x itself."""

    bands: int
    horizon: int
    is_noising = False

    def column(self, x: Array) -> Array:
        return resized(np.concatenate([[1.0], x]), self.horizon)

    def pull_back(self, x: Array, gradient: Array) -> Array:
        return gradient[1 : self.bands]


@dataclass(frozen=True, kw_only=True)
class NoisingShares:
    """C^-1 with d_i = -q_i, q > 0 of sum below 1, so c = 1 + q * c >= 0: q are shares of a whole,
    softmax of x and one more zero."""

    horizon: int
    is_noising = True

    def column(self, x: Array) -> Array:
        return resized(np.concatenate([[1.0], -shares(x)]), self.horizon)

    def pull_back(self, x: Array, gradient: Array) -> Array:
        return shares_pull_back(shares(x), -gradient[1 : len(x) + 1])

    @staticmethod
    def start(column: Array) -> Array:
        """x of a column with d_0 = 1 > sum of the -d_i > 0."""
        return np.asarray(np.log(-column[1:]) - np.log(column.sum()))


@dataclass(frozen=True, kw_only=True)
class Buffers:
    """C of m decaying exponentials: scales are shares of a whole (first half of x), decays are
    logistic functions of the second half. C is nonnegative and nonincreasing."""

    horizon: int
    is_noising = False

    def parameters(self, x: Array) -> tuple[Array, Array]:
        """Scales and decays."""
        buffers = len(x) // 2
        return shares(x[:buffers]), np.asarray(scipy.special.expit(x[buffers:]))

    def column(self, x: Array) -> Array:
        return np.concatenate([[1.0], shares(x[: len(x) // 2]) @ self._powers(x)])

    def pull_back(self, x: Array, gradient: Array) -> Array:
        scales, _ = self.parameters(x)
        powers, tail = self._powers(x), gradient[1:]
        losses = scipy.special.expit(-x[len(scales) :])
        of_scales = powers @ tail
        of_logits = scales * losses * (powers @ (np.arange(self.horizon - 1) * tail))
        return np.concatenate([shares_pull_back(scales, of_scales), of_logits])

    def _powers(self, x: Array) -> Array:
        # log theta = -log(1 + exp(-x)) keeps the digits of 1 - theta.
        logs = -np.logaddexp(0.0, -x[len(x) // 2 :])
        return np.asarray(np.exp(np.multiply.outer(logs, np.arange(self.horizon - 1))))

    @staticmethod
    def start(scales: Array, losses: Array) -> Array:
        """x of scales > 0 of sum below 1 and decays 1 - losses."""
        return np.concatenate(
            [np.log(scales) - np.log1p(-scales.sum()), np.log1p(-losses) - np.log(losses)]
        )


def shares(x: Array) -> Array:
    """exp(x_i) / (1 + sum exp(x)): positive, of sum below 1."""
    largest = max(0.0, float(x.max(initial=0.0)))
    weights = np.exp(x - largest)
    return np.asarray(weights / (np.exp(-largest) + weights.sum()))


def shares_pull_back(q: Array, gradient: Array) -> Array:
    """Adjoint of the derivative of :func:`shares` where its value is ``q``."""
    return q * (gradient - q @ gradient)
