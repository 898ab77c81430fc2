"""Error workloads of noise that is correlated across nodes and steps, as Gram matrices.

Noise has one coordinate a step and node, in time-major order (step * n + node). Of the workload A
a joint design needs H = A^T A, shape (nT, nT), and a Kronecker design with noise covariance S x R
(S in time, R in space) only its two partial Grams,

    tr(H (S x R)) = tr(time_gram(R) S) = tr(space_gram(S) R),

for which nothing of size nT is formed.

Any workload that gives these three serves. One that splits over fixed orthonormal directions of
the nodes, H = sum_j H_j x q_j q_j^T, also tells its modes, and lower bounds follow from them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base import settings
from noisedesign.base.checks import Array


@dataclass(frozen=True, kw_only=True, eq=False)
class Modes:
    """H = sum_j factor(j)^T factor(j) x q_j q_j^T.

    ``basis`` has the orthonormal q_j as columns, shape (n, n); ``factor(j)`` has shape (T, T).
    """

    basis: Array
    factor: Callable[[int], Array]


class Workload(Protocol):
    """What a space-time design needs of an error workload; squared error per squared noise."""

    @property
    def nodes(self) -> int: ...

    @property
    def horizon(self) -> int: ...

    @property
    def modes(self) -> Modes | None:
        """The workload of every mode, or None where it does not split."""

    def factor(self) -> Array | None:
        """A, shape (rows, nT), with A^T A = :meth:`gram`, or None where only that is known."""

    def gram(self) -> Array:
        """H, shape (nT, nT)."""

    def time_gram(self, covariance: Array) -> Array:
        """H_time(R), shape (T, T), for noise of spatial covariance R, shape (n, n)."""

    def space_gram(self, covariance: Array) -> Array:
        """H_space(S), shape (n, n), for noise of temporal covariance S, shape (T, T)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class AllIterates:
    """The error of all iterates of all nodes under gossip, theta_{t+1} = W (theta_t + z_t).

    Step s enters iterate t >= s with exponent t - s + 1, so A has blocks W^(t-s+1). With
    G_ab = tr(W^a R (W^b)^T), exponents a, b = 1 .. T, the Gram matrix of the time factor is

        H_ss' = sum_{t >= max(s, s')} G_(t-s+1)(t-s'+1):

    sums along the diagonals of G, read from the last step backwards. Sums along diagonals are
    their own adjoint up to that reversal, so the same K = sums of S turns the other Gram matrix
    into sum_ab K_ab (W^a)^T W^b. Powers of a symmetric W share eigenvectors, and all of this
    happens on its eigenvalues.

    Equals Mafalda-SGD, Lemma 10, for R = I and S = C^-1 C^-T.

    Args:
        mixing: W, shape (n, n), symmetric or not.
        horizon: T.

    Raises:
        InputError: W is not a finite square float64 matrix, or horizon < 1.
    """

    mixing: Array
    horizon: int
    nodes: int = field(init=False)

    def __post_init__(self) -> None:
        mixing = _checks.matrix(self.mixing, field="mixing", square=True)
        object.__setattr__(self, "mixing", mixing)
        object.__setattr__(self, "nodes", len(mixing))
        _checks.positive_int(self.horizon, field="horizon")

    @cached_property
    def _spectrum(self) -> tuple[Array, Array] | None:
        """Eigenvalues and eigenvectors of a symmetric W."""
        asymmetry = np.abs(self.mixing - self.mixing.T).max()
        if asymmetry > settings.SYMMETRY_TOLERANCE * np.abs(self.mixing).max():
            return None
        values, vectors = np.linalg.eigh((self.mixing + self.mixing.T) / 2)
        # What rounding leaves of a zero eigenvalue would be a direction with a price.
        values[np.abs(values) <= settings.rank_tolerance(self.nodes) * np.abs(values).max()] = 0.0
        return values, vectors

    @property
    def modes(self) -> Modes | None:
        """One-pole workloads: lower triangular with entries lambda_j^(t-s+1)."""
        if self._spectrum is None:
            return None
        values, vectors = self._spectrum
        steps = np.arange(self.horizon)
        lag = np.maximum(steps[:, None] - steps, -1)

        def factor(j: int) -> Array:
            powers = np.append(values[j] ** (steps + 1.0), 0.0)
            return np.asarray(powers[lag])

        return Modes(basis=vectors, factor=factor)

    def factor(self) -> Array:
        n, horizon = self.nodes, self.horizon
        result = np.zeros((horizon, n, horizon, n))
        for a, power in enumerate(_powers(self.mixing, np.eye(n), horizon)):
            late = np.arange(a, horizon)
            result[late, :, late - a] = power
        return result.reshape(n * horizon, n * horizon)

    def gram(self) -> Array:
        n, horizon = self.nodes, self.horizon
        powers = _powers(self.mixing, np.eye(n), horizon)
        stacked = powers.transpose(1, 0, 2).reshape(n, -1)
        products = (stacked.T @ stacked).reshape(horizon, n, horizon, n)
        _sum_along_diagonals(products.transpose(0, 2, 1, 3))
        return np.ascontiguousarray(products[::-1, :, ::-1]).reshape(n * horizon, n * horizon)

    def time_gram(self, covariance: Array) -> Array:
        if self._spectrum is not None:
            values, vectors = self._spectrum
            seen = np.einsum("ij,ik,kj->j", vectors, covariance, vectors, optimize=True)
            exponents = values ** np.arange(1.0, self.horizon + 1)[:, None]
            products = (exponents * seen) @ exponents.T
        else:
            left = _powers(self.mixing, covariance, self.horizon)
            right = _powers(self.mixing, np.eye(self.nodes), self.horizon)
            products = np.tensordot(left, right, axes=((1, 2), (1, 2)))
        _sum_along_diagonals(products)
        return np.asarray((products + products.T) / 2)[::-1, ::-1]

    def space_gram(self, covariance: Array) -> Array:
        sums = covariance.copy()
        _sum_along_diagonals(sums)
        sums = sums[::-1, ::-1]
        if self._spectrum is not None:
            values, vectors = self._spectrum
            exponents = values ** np.arange(1.0, self.horizon + 1)[:, None]
            weights = (exponents * (sums @ exponents)).sum(axis=0)
            return np.asarray((vectors * weights) @ vectors.T)
        powers = _powers(self.mixing, np.eye(self.nodes), self.horizon)
        weighted = np.tensordot(sums, powers, axes=1)
        gram = np.tensordot(powers, weighted, axes=((0, 1), (0, 1)))
        return np.asarray((gram + gram.T) / 2)


def _powers(mixing: Array, start: Array, count: int) -> Array:
    """W F, W^2 F, ..., shape (count, n, n), for F = start."""
    powers = np.empty((count, *start.shape))
    for a in range(count):
        start = mixing @ start
        powers[a] = start
    return powers


def _sum_along_diagonals(products: Array) -> None:
    """P_ab <- P_ab + P_(a-1)(b-1) + ..., in place, along the first two axes."""
    for a in range(1, len(products)):
        products[a, 1:] += products[a - 1, :-1]
