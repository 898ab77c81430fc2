"""A graph's symmetric W as a function of edge weights, in numpy and in cvxpy."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from noisedesign.base.checks import Array


class EdgeWeights:
    """The edges of a graph and W as a function of their weights."""

    def __init__(self, mixing: Array) -> None:
        self.nodes = len(mixing)
        self.edges = np.argwhere(np.triu(mixing, 1) > 0)

    @cached_property
    def incidence(self) -> Array:
        """b_e as columns, shape (n, m)."""
        columns = np.arange(len(self.edges))
        result = np.zeros((self.nodes, len(self.edges)))
        result[self.edges[:, 0], columns], result[self.edges[:, 1], columns] = 1, -1
        return result

    def mixing(self, w: Array, *, nonnegative: bool) -> Array:
        """W, exactly symmetric and within a rounding of W 1 = 1; made >= 0 where asked."""
        i, j = self.edges.T
        mixing = np.zeros((self.nodes, self.nodes))
        mixing[i, j] = mixing[j, i] = np.maximum(w, 0.0) if nonnegative else w
        if nonnegative:
            mixing /= max(1.0, float(mixing.sum(axis=1).max()))
        kept = 1 - mixing.sum(axis=1)
        np.fill_diagonal(mixing, np.maximum(kept, 0.0) if nonnegative else kept)
        return mixing


def affine(weights: EdgeWeights, w: Any, *, nonnegative: bool) -> tuple[Any, list[Any]]:
    """W - J in cvxpy, and the constraints w >= 0 and W_ii >= 0 where asked."""
    import cvxpy as cp

    b = weights.incidence
    distance = np.eye(weights.nodes) - 1 / weights.nodes - b @ cp.diag(w) @ b.T
    return distance, [w >= 0, np.abs(b) @ w <= 1] if nonnegative else []
