"""Noise of polynomial precision, by the operator that it is a polynomial of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.polynomial import Chebyshev

from noisedesign.base.checks import Array
from noisedesign.families.polynomial.operator import Weighted


@dataclass(frozen=True, kw_only=True, eq=False)
class PolynomialNoise:
    """Noise z = D^(1/2) r(B) g, known by two polynomials and two diagonals.

    Attributes:
        operator: B, of W and the diagonal of V.
        precision: p, on [0, b].
        scale: the diagonal of D, shape (n,).
        root: r, with r^2 >= 1 / p on [0, b].
    """

    operator: Weighted
    precision: Chebyshev
    scale: Array
    root: Chebyshev

    def draw(self, rng: np.random.Generator, count: int = 1) -> Array:
        """Independent samples of all nodes' noise, shape (n, count)."""
        g = rng.standard_normal((len(self.scale), count))
        return np.sqrt(self.scale)[:, None] * self.operator.apply(self.root, g)
