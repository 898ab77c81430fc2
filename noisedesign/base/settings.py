"""Every threshold of the toolkit, with its name and its reason."""

from __future__ import annotations

import math

import numpy as np

EPS = float(np.finfo(np.float64).eps)

DEFAULT_GAP = 1e-6
"""Relative duality gap a design is solved to, and judged by, unless asked otherwise."""

DENSE_NODES = 8192
"""Nodes up to which a graph, or a sparse W, is made an array: a solve takes 4 GB and, on one core,
some hours there. Above it W stays sparse, and with it whatever is computed."""

STOCHASTIC_TOLERANCE = 1e-12
"""How far a row (or column) sum of a mixing matrix may be from 1: a few hundred roundings of
size EPS, so sums of a thousand weights pass and a typing error of 1e-9 does not."""

SYMMETRY_TOLERANCE = 1e-12
"""Relative asymmetry that counts as rounding rather than as a different matrix."""

STRUCTURE_TOLERANCE = 1e-9
"""Relative entries that a structure forbids: a stream that leaves them out changes objective and
sensitivity by no more than these are compared to. Inverses and alternations leave about 1e-13."""

GRAM_NEGATIVITY = 1e-10
"""Eigenvalues of a supplied Gram matrix may be this far below zero, relative to the largest:
what forming A^T A in float64 leaves behind. Below it the matrix is not a Gram matrix."""

NEGLIGIBLE = 1e-11
"""Relative rounding of a bound that is not worth a dearer computation, where the gap it is for is
not known: a hundredth of the tightest gap one asks for."""

NEGLIGIBLE_PER_GAP = 1e-2
"""The same, as a share of a known gap."""

SLACK_FLOOR = 1e-4
"""A node whose budget keeps this relative slack at the optimum is inactive, and noise in a null
direction of W may be bounded by it. Solutions are at gaps of 1e-6 and below, where active
budgets show slack of that order; inactive ones show slack of order one."""

ACTIVE_SLACK = 1e-2
"""A budget with more relative slack than this is treated as inactive when an answer is repaired.
Only the choice of a repair depends on it, never its validity."""


def rank_tolerance(size: int) -> float:
    """Relative size below which a singular value of a size x size matrix is rounding."""
    return size * EPS


def sqrt_eps() -> float:
    """sqrt(EPS): where a second-order error reaches the last digit."""
    return math.sqrt(EPS)


SUGGESTED_CAP = 10.0
"""The cap on variances that is suggested where W is singular, over the variance of independent
noise at the smallest budget."""
