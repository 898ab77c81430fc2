"""Every threshold of the toolkit, with its name and its reason."""

from __future__ import annotations

import math

import numpy as np

EPS = float(np.finfo(np.float64).eps)

DEFAULT_GAP = 1e-6
"""Relative duality gap a design is solved to, and judged by, unless asked otherwise."""

DENSE_NODES = 8192
"""Nodes up to which graphs and sparse W become arrays: a solve there takes 4 GB and some hours."""

STOCHASTIC_TOLERANCE = 1e-12
"""Error allowed in a row or column sum of W: some hundred roundings, and no typing error."""

SYMMETRY_TOLERANCE = 1e-12
"""Relative asymmetry that counts as rounding rather than as a different matrix."""

STRUCTURE_TOLERANCE = 1e-9
"""Relative size of entries that a structure forbids; inverses leave about 1e-13."""

GRAM_NEGATIVITY = 1e-10
"""Negative eigenvalues that forming A^T A may leave, relative to the largest."""

NEGLIGIBLE = 1e-11
"""Relative rounding of a bound not worth a dearer computation, where no gap is known."""

NEGLIGIBLE_PER_GAP = 1e-2  # the same, as a share of a known gap
SLACK_FLOOR = 1e-4
"""Relative slack from which a budget is inactive at the optimum; active ones show 1e-6."""

ACTIVE_SLACK = 1e-2
"""Relative slack from which a repair treats a budget as inactive; no validity depends on it."""


def rank_tolerance(size: int) -> float:
    """Relative size below which a singular value of a size x size matrix is rounding."""
    return size * EPS


def sqrt_eps() -> float:
    """sqrt(EPS): where a second-order error reaches the last digit."""
    return math.sqrt(EPS)


SUGGESTED_CAP = 10.0  # suggested where W is singular, in variances of independent noise
