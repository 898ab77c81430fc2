"""Shares of steps to begin with: of prefix sums at one participation they are found in O(T)."""

from __future__ import annotations

import numpy as np

from noisedesign.base.checks import Array
from noisedesign.families.worst.program import WorstProgram
from noisedesign.system.workloads.factorization_norm import best_shares

LONG = 128  # steps from which finding them takes less than a problem of one q
NEAR = 1e-6  # relative gap of the ends of gamma at which they are taken


def first_logs(program: WorstProgram) -> Array:
    """Logarithms of shares, even ones where none are known, shape (T,)."""
    alone = program.grams is None and program.participation.largest_size == 1
    if not alone or program.size < LONG or not program.weights.min() > 0:
        return np.zeros(program.size)
    return np.asarray(np.log(best_shares(program.weights, gap=NEAR).steps))
