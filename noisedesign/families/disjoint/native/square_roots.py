"""S = (D^1/2 H D^1/2)^1/2 by one eigendecomposition, and what the dual is told by it.

Where the diagonal of S would suffer from the squares in H, singular values of L D^1/2, L^T L = H,
are taken in the place of eigenvalues.

Curvature of the dual in the multipliers of diagonal budgets, and a matrix close to it.

With S = (D^1/2 H D^1/2)^1/2 = Q diag(r) Q^T, D = diag(v), the trace of S is concave in v. Along
dv = v x minus the second derivative of 2 tr(S) is x^T G x with

    G x = diag( Q (F o Q^T diag(x) Q) Q^T ),   F_kl = r_k r_l / (r_k + r_l):

two matrix products and no eigendecomposition. G has no negative entry and is positive semidefinite
whatever H is, as G_ij is the integral of ([S e^(-aS)]_ij)^2 over a > 0. Its rows add up to
diag(S) / 2.

Since F_kl <= (r_k r_l)^1/2 / 2, it lies below the Schur product of S^1/2 with itself, halved, which
takes one matrix product, has the same row sums and equals G where H is diagonal. Conjugate
gradients preconditioned with it take one or two steps, and far from the optimum none.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import array_api_compat
import numpy as np

from noisedesign.base import linalg as _linalg
from noisedesign.base import settings
from noisedesign.base.device import DeviceArray, Workload, eigh, namespace

DIAGONAL_TRUSTED = 1e-6
DIAGONAL_TRUSTED_SINGULAR = 1e-8
"""Relative error of diag(S) above which singular values of L D^1/2 replace eigenvalues of
D^1/2 H D^1/2: dearer, but nothing is squared. It takes a W that is nearly singular along a
direction that some vanishing multiplier singles out. Bounds see the square of that error, but for
a singular one, where there is only the bound of first order."""


class SquareRoot(NamedTuple):
    """S = Q diag(r) Q^T, shape (n, n), by ``root`` r, ascending, and ``basis`` Q."""

    root: DeviceArray
    basis: DeviceArray
    diag: DeviceArray  # diag(S)
    xp: Any  # the functions of the library these arrays are of

    @property
    def trace(self) -> float:
        return float(self.xp.sum(self.root))

    def curvature(self, *, trace: float) -> Curvature:
        """G / ``trace``."""
        return Curvature(self.root, self.basis, trace=trace, xp=self.xp)

    def curvature_above(self, *, trace: float) -> DeviceArray:
        """A matrix above G / ``trace``, shape (n, n)."""
        return curvature_above(self.root, self.basis, trace=trace)

    def rescaled(self, ratio: DeviceArray) -> float:
        """tr(H X^-1) of X(v) with row and column i divided by ratio_i^1/2, shape (n,).

        Infinite where S is singular.
        """
        if not float(self.root[0]) > 0:
            return float("inf")
        mixed = (self.basis.T * self.xp.sqrt(ratio)) @ self.basis
        return float((self.xp.square(mixed) @ self.xp.square(self.root)) @ (1 / self.root))

    def gram(self, v: DeviceArray) -> DeviceArray:
        """X(v) = D^-1/2 S D^-1/2, shape (n, n)."""
        half = self.basis / self.xp.sqrt(v)[:, None]
        half *= self.xp.sqrt(self.root)
        return half @ half.T


def square_root(workload: Workload, v: DeviceArray, *, largest: float = 0.0) -> SquareRoot:
    """S for D = diag(v), v of shape (n,): one eigendecomposition.

    Args:
        largest: of all eigenvalues where H is one block of a matrix: it sets what is rounding.

    Raises:
        InputError: arrays that are not of float64.
    """
    xp = namespace(workload.gram, v)
    root_v = xp.sqrt(v)
    scaled = workload.gram * root_v
    scaled *= root_v[:, None]
    squared, basis = eigh(scaled)
    del scaled  # as whatever has n^2 entries, once it is used
    root = xp.sqrt(xp.maximum(squared, 0.0))
    weights = xp.square(basis)
    diag = weights @ root
    noise = 8 * settings.EPS * max(float(squared[-1]), largest)
    error = weights @ rounding_of(root, noise=noise, xp=xp)
    del weights
    singular = float(squared[0]) <= noise
    if bool(xp.any(error > trusted(singular=singular) * diag)):
        root, basis = singular_values(workload.factor * root_v, largest=float(np.sqrt(largest)))
        diag = xp.square(basis) @ root
    return SquareRoot(root, basis, diag, xp)


def trusted(*, singular: bool) -> float:
    """The relative error of diag(S) to put up with."""
    return DIAGONAL_TRUSTED_SINGULAR if singular else DIAGONAL_TRUSTED


def rounding_of(root: DeviceArray, *, noise: float, xp: Any) -> DeviceArray:
    """Errors of roots, shape (k,), of eigenvalues that are known to ``noise``."""
    return noise / xp.maximum(2 * root, float(np.sqrt(noise)))


def singular_values(half: DeviceArray, *, largest: float = 0.0) -> tuple[DeviceArray, DeviceArray]:
    """Eigenvalues, ascending, and basis of (half^T half)^1/2, without squaring.

    Args:
        half: shape (r, n).
        largest: of all singular values, where there are others.
    """
    xp = namespace(half)
    _, values, right = xp.linalg.svd(half)
    size = half.shape[1]
    small = values < settings.rank_tolerance(size) * max(float(values[0]), largest)
    values = xp.where(small, xp.zeros_like(values), values)
    missing = xp.zeros_like(half[0, : size - values.shape[0]])
    return xp.flip(xp.concat([values, missing])), xp.flip(right, axis=0).T


RIDGE = 1e-10
"""Added to the diagonal of the Schur product, scaled to ones: what keeps it positive definite where
H is singular. Directions that are flatter than that are left to the limit on a step."""
TINY = float(np.finfo(np.float64).tiny)
"""Keeps divisions by what vanishes with r defined: the quotients vanish as well."""


class Curvature:
    """G / ``trace`` at one eigendecomposition: ``root`` r, shape (n,), and ``basis`` Q."""

    def __init__(self, root: DeviceArray, basis: DeviceArray, *, trace: float, xp: Any) -> None:
        self.basis, self.xp = basis, xp
        self.weights = root[:, None] * root
        sums = xp.maximum(root[:, None] + root, TINY)
        sums *= trace
        self.weights /= sums

    def product(self, x: DeviceArray) -> DeviceArray:
        """G x / trace, shape (n,)."""
        inner = (self.basis.T * x) @ self.basis
        inner *= self.weights
        return self.xp.vecdot(self.basis @ inner, self.basis)


def curvature_above(root: DeviceArray, basis: DeviceArray, *, trace: float) -> DeviceArray:
    """The Schur product of S^1/2 with itself over 2 ``trace``, shape (n, n): above G / trace."""
    half = basis * root**0.25
    schur = half @ half.T
    del half  # as whatever has n^2 entries, once it is used
    schur *= schur
    schur /= 2 * trace
    return schur


class Preconditioner:
    """The inverse of :func:`curvature_above`, or of a sum of such; ``above`` is overwritten."""

    def __init__(self, above: DeviceArray, *, xp: Any) -> None:
        # With a unit diagonal, as what multipliers of no weight leave is no larger than rounding.
        self.scale = 1 / xp.sqrt(xp.maximum(xp.linalg.diagonal(above), TINY))
        above *= self.scale[:, None]
        above *= self.scale
        size = above.shape[0]
        ridge = max(RIDGE, 8 * settings.rank_tolerance(size))
        place = array_api_compat.device(above)
        above += ridge * xp.eye(size, dtype=above.dtype, device=place)
        lower = xp.linalg.cholesky(above)
        self.inverse = _linalg.inverse_of_triangular(lower, invert=xp.linalg.inv)

    def __call__(self, right: DeviceArray) -> DeviceArray:
        """Solution of the system, shape (n,)."""
        return self.scale * (self.inverse.T @ (self.inverse @ (self.scale * right)))
