"""Curvature of the dual in the multipliers of diagonal budgets, and a matrix close to it.

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

from typing import Any

import array_api_compat
import numpy as np

from noisedesign.base import linalg as _linalg
from noisedesign.base import settings
from noisedesign.base.device import DeviceArray

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
