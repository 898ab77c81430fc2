"""Every threshold of the toolkit, with its name and its reason."""

from __future__ import annotations

import math

import numpy as np

EPS = float(np.finfo(np.float64).eps)

DEFAULT_GAP = 1e-6  # relative gap that a design is solved to, and judged by, unless asked otherwise
DENSE_NODES = 8192  # up to which W becomes an array: a solve there takes 4 GB and some hours
STOCHASTIC_TOLERANCE = 1e-12  # error of a row sum of W: hundreds of roundings, no typing error
SYMMETRY_TOLERANCE = 1e-12  # relative asymmetry that is rounding rather than another matrix
STRUCTURE_TOLERANCE = 1e-9  # relative size of forbidden entries; inverses leave about 1e-13
GRAM_NEGATIVITY = 1e-10  # negative eigenvalues that forming A^T A may leave, over the largest
NEGLIGIBLE = 1e-11  # relative rounding of a bound not worth a dearer one, where no gap is known
NEGLIGIBLE_PER_GAP = 1e-2  # the same, as a share of a known gap
SLACK_FLOOR = 1e-4  # relative slack of a budget inactive at the optimum; active ones show 1e-6
ACTIVE_SLACK = 1e-2  # the same in a repair; no validity depends on it
CLUSTER_SECONDS = (
    5.0  # to wait for a scheduler and a worker; a longer one tells a wrong address late
)
SUGGESTED_CAP = 10.0  # cap where W is singular, in variances of independent noise


def rank_tolerance(size: int) -> float:
    """Relative size below which a singular value of a size x size matrix is rounding."""
    return size * EPS


def sqrt_eps() -> float:
    """sqrt(EPS): where a second-order error reaches the last digit."""
    return math.sqrt(EPS)
