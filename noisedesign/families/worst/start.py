"""Shares of steps to begin with: of prefix sums at one participation they are found in O(T)."""

from __future__ import annotations

import numpy as np

from noisedesign.base.checks import Array
from noisedesign.families.worst.program import WorstProgram
from noisedesign.system.workloads.factorization_norm import best_shares

LONG = 128  # steps from which finding them takes less than a problem of one q
NEAR = 1e-6  # relative gap of the ends of gamma at which they are taken


def first_logs(program: WorstProgram) -> Array | None:
    """Logarithms of shares, shape (T,), where they are found so."""
    scheme = program.problem.use
    alone = program.grams is None and scheme is not None and scheme.largest_size == 1
    if not alone or program.size < LONG or not program.weights.min() > 0:
        return None
    return np.asarray(np.log(best_shares(program.weights, gap=NEAR).steps))
