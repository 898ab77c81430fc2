"""S = (D^1/2 H D^1/2)^1/2 by one eigendecomposition, and what the dual is told by it.

Where the diagonal of S would suffer from the squares in H, singular values of L D^1/2, L^T L = H,
are taken in the place of eigenvalues.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from noisedesign.base import settings
from noisedesign.base.device import DeviceArray, Workload, namespace
from noisedesign.base.in_place import eigh
from noisedesign.families.disjoint.native.diagonal_curvature import Curvature, curvature_above

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
