"""Weights of the edges of small graphs, and how fast they mix, written out."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np

PAW = nx.Graph([(0, 1), (1, 2), (2, 0), (2, 3)])
"""A triangle with a tail."""


def with_weights(n: int, edges: Any, weights: Any) -> np.ndarray:
    w = np.eye(n)
    for (i, j), weight in zip(edges, weights, strict=True):
        across = np.eye(n)[i] - np.eye(n)[j]
        w -= weight * np.outer(across, across)
    return w


def norm_by_svd(w: np.ndarray) -> float:
    """||W - J||_2 as the largest singular value."""
    return float(np.linalg.svd(w - np.full_like(w, 1 / len(w)), compute_uv=False)[0])
