"""What is known exactly of a trace that is estimated: K = G q(B) G, G a diagonal, q of low degree.

Its own trace is a finite sum, by diagonals of polynomials of B that the noise needs anyway. Whoever
probes E - K in place of E has the less to estimate the nearer K is to E; that it is near, nobody
needs to prove. q is chosen from vectors that no estimate uses.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.polynomial import Chebyshev

from noisedesign.base.checks import Array
from noisedesign.families.polynomial.operator import Weighted
from noisedesign.families.polynomial.polynomials import proved_range


@dataclass(frozen=True, kw_only=True, eq=False)
class Known:
    """K = G q(B) G.

    Attributes:
        operator: B.
        factor: the diagonal of G, shape (n,), positive.
        q: a polynomial on [0, b].
    """

    operator: Weighted
    factor: Array
    q: Chebyshev

    @property
    def diagonal(self) -> Array:
        """That of K, shape (n,): finite sums."""
        return np.asarray(self.factor**2 * self.operator.diagonal(self.q))

    def apply(self, block: Array) -> Array:
        """K times a block, shape (n, m)."""
        g = self.factor[:, None]
        return np.asarray(g * self.operator.apply(self.q, g * block))

    @property
    def ends(self) -> tuple[float, float]:
        """Of and 0, what encloses the eigenvalues of K."""
        low, high = proved_range(self.q)
        largest = float(self.factor.max()) ** 2
        return largest * min(low, 0.0), largest * max(high, 0.0)


def near(operator: Weighted, factor: Array, *, degree: int, starts: Array, images: Array) -> Known:
    """The K of that degree nearest to E, of which ``images`` are the products with ``starts``.

    Least squares: for Gaussian starts those of E - K, all entries, on average.
    """
    g = factor[:, None]
    basis = []
    for j in range(degree + 1):
        t = Chebyshev.basis(j, domain=[0.0, operator.top])
        basis.append((g * operator.apply(t, g * starts)).ravel())
    found = np.linalg.lstsq(np.stack(basis, axis=1), images.ravel(), rcond=None)[0]
    return Known(operator=operator, factor=factor, q=Chebyshev(found, domain=[0.0, operator.top]))
