"""A trace, from products with Gaussian vectors, within bounds of a stated confidence.

For Gaussian z, z^T E z - tr E is below 2 |E|_F sqrt(s) + 2 e s but with probability e^-s, e the
largest positive eigenvalue (Laurent and Massart 2000, Lemma 1; negative eigenvalues add to |E|_F
only). |E|_F is unknown; |E z|^2 estimates its square, and the same lemma for -E^2, with
|E^2|_F <= |E|_2 |E|_F, bounds it from above.
"""

from __future__ import annotations

import math

import numpy as np

from noisedesign.base.checks import Array

COLUMNS = 16
"""Vectors that are multiplied together: fewer and more take longer each."""

SHARED = 4
"""Blocks come in multiples of it, for as many threads."""


def deviation(squared: float, low: float, high: float, *, probes: int, failure: float) -> float:
    """How far the mean of z^T E z is above tr E at most, but with ``failure``.

    Args:
        squared: the mean of |E z|^2.
        low, high: of them and 0, what encloses the eigenvalues of E.
        probes: how many z.
        failure: half of it for |E|_F, half for the mean.
    """
    enough = math.log(2 / failure)
    share = enough / probes
    shift = max(abs(low), abs(high)) * math.sqrt(share)
    frobenius = shift + math.sqrt(shift**2 + squared)
    return 2 * frobenius * math.sqrt(share) + 2 * max(high, 0.0) * share


class Probes:
    """Gaussian vectors in blocks of about as many columns, each of a stream of its own."""

    def __init__(self, nodes: int, count: int, rng: np.random.Generator) -> None:
        blocks = min(SHARED * -(-count // (SHARED * COLUMNS)), count)
        self._nodes, self._ends = nodes, np.arange(blocks + 1) * count // blocks
        self._seeds = rng.integers(2**63, size=(blocks, 2))

    def __len__(self) -> int:
        """How many blocks."""
        return len(self._seeds)

    def block(self, number: int) -> Array:
        """Of that number, shape (n, m)."""
        columns = int(self._ends[number + 1] - self._ends[number])
        rng = np.random.default_rng(self._seeds[number])
        return rng.standard_normal((self._nodes, columns))
