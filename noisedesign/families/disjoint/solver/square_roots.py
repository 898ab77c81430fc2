"""S = (D^1/2 H D^1/2)^1/2 by one eigendecomposition, and the dual around it.

With S = Q diag(r) Q^T the curvature of 2 tr(S) along dv = v x is x^T G x with

    G x = diag( Q (F o Q^T diag(x) Q) Q^T ),   F_kl = r_k r_l / (r_k + r_l):

two matrix products. It lies below the Schur product of S^1/2 with itself, halved, which has the
same row sums and preconditions it (docs/methods/solvers.md, "Diagonal budgets")."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from noisedesign.base import linalg as _linalg, settings
from noisedesign.base.device import DeviceArray, Workload, eigh, identity, namespace

TINY = float(np.finfo(np.float64).tiny)
"""Keeps divisions by what vanishes with r defined: the quotients vanish as well."""


class SquareRoot(NamedTuple):
    """S = Q diag(r) Q^T, shape (n, n), by ``root`` r, ascending, and ``basis`` Q."""

    root: DeviceArray
    basis: DeviceArray
    diag: DeviceArray  # diag(S)
    xp: Any  # the functions of the library these arrays are of

    @property
    def trace(self) -> float:
        return float(self.xp.sum(self.root))

    def curvature(self, *, trace: float) -> Callable[[DeviceArray], DeviceArray]:
        """The map of x to G x / ``trace``, both of shape (n,)."""
        weights = self.root[:, None] * self.root
        sums = self.xp.maximum(self.root[:, None] + self.root, TINY)
        sums *= trace
        weights /= sums

        def product(x: DeviceArray) -> DeviceArray:
            inner = (self.basis.T * x) @ self.basis
            inner *= weights
            return self.xp.vecdot(self.basis @ inner, self.basis)

        return product

    def curvature_above(self, *, trace: float) -> DeviceArray:
        """The Schur product of S^1/2 with itself over 2 ``trace``, (n, n): above G / trace."""
        half = self.basis * self.root**0.25
        schur = half @ half.T
        del half  # freed early: peak memory
        schur *= schur
        schur /= 2 * trace
        return schur

    def rescaled(self, ratio: DeviceArray) -> float:
        """tr(H X^-1), row and column i of X divided by ratio_i^1/2; infinite for singular S."""
        if not float(self.root[0]) > 0:
            return float("inf")
        mixed = (self.basis.T * self.xp.sqrt(ratio)) @ self.basis
        return float((self.xp.square(mixed) @ self.xp.square(self.root)) @ (1 / self.root))

    def gram(self, v: DeviceArray) -> DeviceArray:
        """X(v) = D^-1/2 S D^-1/2, shape (n, n)."""
        half = self.basis / self.xp.sqrt(v)[:, None]
        half *= self.xp.sqrt(self.root)
        return half @ half.T


def square_root(workload: Workload, v: DeviceArray) -> SquareRoot:
    """S for D = diag(v), v of shape (n,): one eigendecomposition."""
    xp = namespace(workload.gram, v)
    root_v = xp.sqrt(v)
    scaled = workload.gram * root_v
    scaled *= root_v[:, None]
    squared, basis = eigh(scaled)
    del scaled  # freed early: peak memory
    root = xp.sqrt(xp.maximum(squared, 0.0))
    weights = xp.square(basis)
    diag = weights @ root
    noise = 8 * settings.EPS * max(float(squared[-1]), 0.0)
    error = weights @ (noise / xp.maximum(2 * root, float(np.sqrt(noise))))
    del weights
    # Singular values are dearer, but nothing is squared. Bounds see the square of an error, but for
    # a singular W, where there is only the bound of first order.
    if bool(xp.any(error > (1e-8 if float(squared[0]) <= noise else 1e-6) * diag)):
        root, basis = singular_values(workload.factor * root_v)
        diag = xp.square(basis) @ root
    return SquareRoot(root, basis, diag, xp)


def singular_values(half: DeviceArray) -> tuple[DeviceArray, DeviceArray]:
    """Eigenvalues, ascending, and basis of (half^T half)^1/2, half of shape (r, n), unsquared."""
    xp = namespace(half)
    _, values, right = xp.linalg.svd(half)
    size = half.shape[1]
    small = values < settings.rank_tolerance(size) * float(values[0])
    values = xp.where(small, xp.zeros_like(values), values)
    missing = xp.zeros_like(half[0, : size - values.shape[0]])
    return xp.flip(xp.concat([values, missing])), xp.flip(right, axis=0).T


class Preconditioner:
    """The inverse of a ``curvature_above``, which is overwritten."""

    def __init__(self, above: DeviceArray, *, xp: Any) -> None:
        # With a unit diagonal, as what multipliers of no weight leave is no larger than rounding.
        self.scale = 1 / xp.sqrt(xp.maximum(xp.linalg.diagonal(above), TINY))
        above *= self.scale[:, None]
        above *= self.scale
        size = above.shape[0]
        # The diagonal is one. A ridge keeps the matrix positive definite where H is singular;
        # directions that are flatter are left to the limit on a step.
        above += max(1e-10, 8 * settings.rank_tolerance(size)) * identity(size, like=above)
        lower = xp.linalg.cholesky(above)
        self.inverse = _linalg.inverse_of_triangular(lower, invert=xp.linalg.inv)

    def __call__(self, right: DeviceArray) -> DeviceArray:
        """Solution of the system, shape (n,)."""
        return self.scale * (self.inverse.T @ (self.inverse @ (self.scale * right)))
