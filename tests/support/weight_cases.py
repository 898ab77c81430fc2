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


def least_noise_by_conic(
    graph: nx.Graph, *, norm: float, budget: np.ndarray, cap: np.ndarray | None = None
) -> float:
    """The least error of one step over W, R^-1 and R together, as a program, by Clarabel."""
    import cvxpy as cp

    n, edges = len(graph), list(nx.convert_node_labels_to_integers(graph).edges)
    w, x, p = cp.Variable(len(edges)), cp.Variable((n, n), PSD=True), cp.Variable((n, n), PSD=True)
    b = np.array([np.eye(n)[i] - np.eye(n)[j] for i, j in edges]).T
    mixing = np.eye(n) - b @ cp.diag(w) @ b.T
    held = [w >= 0, np.abs(b) @ w <= 1, cp.diag(x) <= budget]
    held += [norm * np.eye(n) - sign * (mixing - 1 / n) >> 0 for sign in (1, -1)]
    held += [cp.bmat([[p, mixing], [mixing, x]]) >> 0]
    if cap is not None:
        r = cp.Variable((n, n), PSD=True)
        held += [cp.bmat([[r, np.eye(n)], [np.eye(n), x]]) >> 0, cp.diag(r) <= cap]
    return float(cp.Problem(cp.Minimize(cp.trace(p)), held).solve(solver=cp.CLARABEL))
