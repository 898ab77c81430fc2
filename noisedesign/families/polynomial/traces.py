"""A trace, from products with Gaussian vectors, within bounds of a stated confidence.

For Gaussian z, z^T E z - tr E is below 2 |E|_F sqrt(s) + 2 e s but with probability e^-s, e the
largest positive eigenvalue (Laurent and Massart 2000, Lemma 1; negative eigenvalues add to |E|_F
only). |E|_F is unknown; |E z|^2 estimates its square, and the same lemma for -E^2, with
|E^2|_F <= |E|_2 |E|_F, bounds it from above.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.polynomial import Chebyshev

from noisedesign.families.polynomial.operator import Weighted
from noisedesign.families.polynomial.polynomials import proved_range


@dataclass(frozen=True)
class Trace:
    """An estimate; the trace is at most ``above`` larger, and at most ``below`` smaller, each but
    with the probability that was asked for."""

    value: float
    above: float = 0.0
    below: float = 0.0


def trace(
    operator: Weighted,
    h: Chebyshev,
    *,
    outer: Any = None,
    ends: tuple[float, float] | None = None,
    probes: int,
    failure: float,
    rng: np.random.Generator,
) -> Trace:
    """tr(Y h(B) Y^T).

    Args:
        operator: B.
        h: a polynomial on [0, b].
        outer: Y, sparse; the identity if not given.
        ends: of and 0, what encloses the eigenvalues of Y h(B) Y^T; by default the range of h,
            which is right without a Y alone.
        probes: how many Gaussian vectors; from n on, unit vectors give the trace itself.
        failure: probability that either side is exceeded, one side at a time.
        rng: of the vectors, which nothing else depends on.
    """
    n = operator.mixing.shape[1]
    if probes >= n:
        values, vectors = operator.eigen
        y = vectors if outer is None else outer @ vectors
        return Trace(float(np.sum(y**2, axis=0) @ h(values)))
    z = rng.standard_normal((n, probes))
    y = z if outer is None else outer.T @ z
    image = operator.apply(h, y)
    value = float(np.sum(y * image)) / probes
    seen = image if outer is None else outer @ image
    squared = float(np.sum(seen**2)) / probes
    low, high = ends or proved_range(h)
    above, below = (
        deviation(squared, low, high, probes=probes, failure=failure)
        for low, high in ((-high, -low), (low, high))
    )
    return Trace(value, above, below)


def deviation(squared: float, low: float, high: float, *, probes: int, failure: float) -> float:
    """How far the mean of z^T E z is above tr E at most, but with ``failure``.

    Args:
        squared: the mean of |E z|^2.
        low, high: of them and 0, what encloses the eigenvalues of E.
        probes: how many z.
        failure: half of it for |E|_F, half for the mean.
    """
    share = math.log(2 / failure) / probes
    largest = max(abs(low), abs(high))
    shift = largest * math.sqrt(share)
    frobenius = shift + math.sqrt(shift**2 + squared)
    return 2 * frobenius * math.sqrt(share) + 2 * max(high, 0.0) * share
