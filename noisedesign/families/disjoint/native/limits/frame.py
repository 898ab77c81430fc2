"""Coordinates in which X, R = X^-1, diag(v) and N are diagonal at once, and how they change.

Stationarity is N = X diag(v) X. With X = T T^T and T^T diag(v) T = diag(r), both N and R are
diagonal in the dual coordinates B = T^-T: B^T N B = diag(r) and R = B B^T. A change of X is written
T F T^T there. To first order R changes by -B F B^T, and stationarity reads, entry by entry,

    (r_k + r_l) F_kl = [B^T dN B - T^T dV T]_kl:

no equation to solve but one division. What comes next is as explicit, which is what a corrector
step wants to know.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from noisedesign.base.checks import Array


class Frame(NamedTuple):
    """T and B = T^-T, shape (n, n), and r = diag(T^T diag(v) T), shape (n,), positive."""

    outer: Array
    inner: Array
    root: Array

    @property
    def precision(self) -> Array:
        """diag(X), shape (n,)."""
        return _row_products(self.outer, self.outer)

    @property
    def variance(self) -> Array:
        """diag(R), shape (n,)."""
        return _row_products(self.inner, self.inner)

    @property
    def gram(self) -> Array:
        """X, shape (n, n)."""
        return np.asarray(self.outer @ self.outer.T)

    def of_budgets(self, dv: Array) -> Array:
        """T^T diag(dv) T."""
        return np.asarray((self.outer.T * dv) @ self.outer)

    def of_limits(self, dy: Array) -> Array:
        """B^T diag(dy) B, of a change of N on its diagonal."""
        return np.asarray((self.inner.T * dy) @ self.inner)

    def shared(self, change: Array) -> Array:
        """The F with (r_k + r_l) F_kl = change_kl."""
        return np.asarray(change / np.add.outer(self.root, self.root))

    def precision_along(self, f: Array) -> Array:
        """diag(T F T^T)."""
        return _row_products(self.outer @ f, self.outer)

    def variance_along(self, f: Array) -> Array:
        """diag(B F B^T)."""
        return _row_products(self.inner @ f, self.inner)


def _row_products(a: Array, b: Array) -> Array:
    """diag(A B^T)."""
    return np.asarray(np.einsum("ij,ij->i", a, b))


def longest(x: Array, d: Array) -> float:
    """How much of a step d leaves x >= 0; infinite where nothing falls."""
    falling = d < 0
    return float(np.min(-x[falling] / d[falling], initial=np.inf))
