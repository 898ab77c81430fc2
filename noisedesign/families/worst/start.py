"""Shares of steps to begin with: of prefix sums at one participation they are found in O(T)."""

from __future__ import annotations

import numpy as np

from noisedesign.base.checks import Array
from noisedesign.system.participation import Participation
from noisedesign.system.workloads.factorization_norm import best_shares

LONG = 128  # steps from which finding them takes less than a problem of one q
NEAR = 1e-6  # relative gap of the ends of gamma at which they are taken


def first_logs(weights: Array, participation: Participation) -> Array | None:
    """Logarithms of shares of prefix sums, shape (T,), where they are found so."""
    known = participation.largest_size == 1 and len(weights) >= LONG
    if not known or not weights.min() > 0:
        return None
    return np.asarray(np.log(best_shares(weights, gap=NEAR).steps))
