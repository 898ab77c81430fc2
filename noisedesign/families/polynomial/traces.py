"""A trace, from products with Gaussian vectors, within bounds of a stated confidence.

For Gaussian z, z^T E z - tr E is below 2 |E|_F sqrt(s) + 2 |E|_2 s but with probability e^-s
(Laurent and Massart 2000, Lemma 1; indefinite E likewise). |E|_F is unknown; |E z|^2 estimates its
square, and the same lemma for E^2, with |E^2|_F <= |E|_2 |E|_F, bounds it from above.
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
    """An estimate, and how far the trace is from it on either side, but with the probability
    that was asked for."""

    value: float
    deviation: float


def trace(
    operator: Weighted,
    h: Chebyshev,
    *,
    outer: Any = None,
    norm: float = 1.0,
    probes: int,
    failure: float,
    rng: np.random.Generator,
) -> Trace:
    """tr(Y h(B) Y^T).

    Args:
        operator: B.
        h: a polynomial on [0, b].
        outer: Y, sparse; the identity if not given.
        norm: a bound on the eigenvalues of Y^T Y.
        probes: how many Gaussian vectors; from n on, unit vectors give the trace itself.
        failure: probability that either side is exceeded, one side at a time.
        rng: of the vectors, which nothing else depends on.
    """
    n = operator.mixing.shape[1]
    if probes >= n:
        y = np.eye(n) if outer is None else outer.T.toarray()
        return Trace(float(np.sum(y * operator.apply(h, y))), 0.0)
    z = rng.standard_normal((n, probes))
    y = z if outer is None else outer.T @ z
    image = operator.apply(h, y)
    value = float(np.sum(y * image)) / probes
    seen = image if outer is None else outer @ image
    squared = float(np.sum(seen**2)) / probes
    largest = norm * max(abs(end) for end in proved_range(h))
    return Trace(value, deviation(squared, largest, probes=probes, failure=failure))


def deviation(squared: float, largest: float, *, probes: int, failure: float) -> float:
    """How far the mean of z^T E z is from tr E at most, either side, but with ``failure``.

    Args:
        squared: the mean of |E z|^2.
        largest: a bound on |E|_2.
        probes: how many z.
        failure: half of it for |E|_F, half for the side.
    """
    share = math.log(2 / failure) / probes
    shift = largest * math.sqrt(share)
    frobenius = shift + math.sqrt(shift**2 + squared)
    return 2 * frobenius * math.sqrt(share) + 2 * largest * share
