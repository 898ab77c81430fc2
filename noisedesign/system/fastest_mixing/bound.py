"""Judging how fast a mixing is: plain numpy, from the matrix and from multipliers alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisedesign.base import settings
from noisedesign.base.checks import Array

LARGEST_WEIGHT = 2.0
"""Bound on |w_e| wherever ||W - J||_2 <= 1, which W = I attains: |w_e| <= 1 + 1/n. It prices what
rounding leaves of constraints that a dual point has to meet exactly."""


def mixing_norm(mixing: Array) -> float:
    """||W - J||_2, not squared, of a symmetric W, shape (n, n)."""
    return float(np.abs(np.linalg.eigvalsh(mixing - 1 / len(mixing))).max())


def norm_lower_bound(
    edges: NDArray[np.integer[Any]], *, nodes: int, distance: Array, self_weights: Array | None
) -> float:
    """A bound below ||W - J||_2 for every symmetric W on the edges with W 1 = 1, from multipliers.

    For symmetric Y of nuclear norm 1, ||W - J|| >= <Y, W - J> = tr(Y (I - J)) - sum_e w_e y_e with
    y_e = b_e^T Y b_e. Without ``self_weights`` w is free and y_e has to vanish; with z >= 0 for
    W_ii >= 0, w >= 0 and y_e <= z_i + z_j, at the price sum z. What is left of either is paid at
    the largest weight that matters.

    Args:
        edges: pairs of zero-based nodes, shape (m, 2), integers.
        nodes: n.
        distance: Y, shape (n, n), of any scale.
        self_weights: z, shape (n,), at the scale of Y, or None where W may be negative.

    Returns:
        The bound, at least 0; multipliers that are not finite prove nothing.
    """
    if not np.isfinite(distance).all():
        return 0.0
    i, j = edges[:, 0], edges[:, 1]
    y = (distance + distance.T) / 2
    if self_weights is None:
        y[i, j] = y[j, i] = (y[i, i] + y[j, j]) / 2
    nuclear = float(np.abs(np.linalg.eigvalsh(y)).sum()) * (1 + settings.rank_tolerance(nodes))
    if not 0 < nuclear < np.inf:
        return 0.0
    y = y / nuclear
    left = y[i, i] + y[j, j] - 2 * y[i, j]
    bound = float(np.trace(y) - y.mean() * nodes) - settings.rank_tolerance(nodes)
    if self_weights is None:
        return max(0.0, bound - LARGEST_WEIGHT * float(np.abs(left).sum()))
    z = np.maximum(self_weights / nuclear, 0.0)
    excess = np.maximum(left - z[i] - z[j], 0.0)
    return max(0.0, bound - float(z.sum()) - LARGEST_WEIGHT * float(excess.sum()))
