"""Coordinates in which X, R = X^-1, diag(v) and N are diagonal at once, and how they change.

With X = T T^T and T^T diag(v) T = diag(r), both N = X diag(v) X and R are diagonal in the dual
coordinates B = T^-T: B^T N B = diag(r) and R = B B^T. To first order X changes by T F T^T and R by
-B F B^T with (r_k + r_l) F_kl = [B^T dN B - T^T dV T]_kl, no equation but one division. The second
order is as explicit (docs/methods/solvers.md, "Cap")."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from noisedesign.base.checks import Array
from noisedesign.base.device import DeviceArray, namespace


class Frame(NamedTuple):
    """T and B = T^-T, shape (n, n), and r = diag(T^T diag(v) T) > 0, shape (n,), of any library."""

    outer: DeviceArray
    inner: DeviceArray
    root: DeviceArray

    @property
    def precision(self) -> DeviceArray:
        """diag(X), shape (n,)."""
        return _row_products(self.outer, self.outer)

    @property
    def variance(self) -> DeviceArray:
        """diag(R), shape (n,)."""
        return _row_products(self.inner, self.inner)

    @property
    def gram(self) -> DeviceArray:
        """X, shape (n, n)."""
        return self.outer @ self.outer.T

    def of_budgets(self, dv: DeviceArray) -> DeviceArray:
        """T^T diag(dv) T."""
        return (self.outer.T * dv) @ self.outer

    def of_limits(self, dy: DeviceArray) -> DeviceArray:
        """B^T diag(dy) B, dy a change of the diagonal of N."""
        return (self.inner.T * dy) @ self.inner

    def shared(self, change: DeviceArray) -> DeviceArray:
        """The F with (r_k + r_l) F_kl = change_kl."""
        return change / (self.root[:, None] + self.root)

    def precision_along(self, f: DeviceArray) -> DeviceArray:
        """diag(T F T^T)."""
        return _row_products(self.outer @ f, self.outer)

    def variance_along(self, f: DeviceArray) -> DeviceArray:
        """diag(B F B^T)."""
        return _row_products(self.inner @ f, self.inner)

    def second(self, f: DeviceArray, seen: DeviceArray) -> tuple[DeviceArray, DeviceArray]:
        """G and F^2 - G: in second order X changes by T G T^T and R by B (F^2 - G) B^T."""
        half = f @ (self.root[:, None] * f / 2 + seen)
        g = -self.shared(half + half.T)
        return g, f @ f.T - g  # F is symmetric, and this half the work


def _row_products(a: DeviceArray, b: DeviceArray) -> DeviceArray:
    """diag(A B^T)."""
    return namespace(a, b).vecdot(a, b)


def longest(x: Array, d: Array) -> float:
    """The length of a step along d that leaves x >= 0; infinite where nothing falls."""
    falling = d < 0
    return float(np.min(-x[falling] / d[falling], initial=np.inf))
