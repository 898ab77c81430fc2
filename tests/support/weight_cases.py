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


def balanced(digraph: nx.DiGraph) -> np.ndarray:
    """The scaling of A + I with rows and columns that sum to 1, by many rounds."""
    w = nx.to_numpy_array(digraph, nodelist=sorted(digraph)).T + np.eye(len(digraph))
    for _ in range(5000):
        w /= w.sum(axis=1, keepdims=True)
        w /= w.sum(axis=0)
    return np.asarray(w)


def norm_by_svd(w: np.ndarray) -> float:
    """||W - J||_2 as the largest singular value."""
    return float(np.linalg.svd(w - np.full_like(w, 1 / len(w)), compute_uv=False)[0])


def least_noise_by_conic(
    graph: nx.Graph,
    *,
    norm: float,
    budget: np.ndarray,
    cap: np.ndarray | None = None,
    node_weights: np.ndarray | None = None,
    symmetric: bool = True,
) -> float:
    """The least error of one step over W, R^-1 and R together, as a program, by Clarabel."""
    import cvxpy as cp

    n = len(graph)
    q = np.ones(n) if node_weights is None else node_weights
    allowed = nx.to_numpy_array(graph).T + np.eye(n) > 0
    mixing = cp.Variable((n, n), symmetric=symmetric)
    x, p = cp.Variable((n, n), PSD=True), cp.Variable((n, n), PSD=True)
    held = [mixing >= 0, mixing[~allowed] == 0] if (~allowed).any() else [mixing >= 0]
    held += [cp.sum(mixing, axis=0) == 1, cp.sum(mixing, axis=1) == 1, cp.diag(x) <= budget]
    held += [cp.sigma_max(mixing - 1 / n) <= norm]
    seen = np.diag(np.sqrt(q)) @ mixing
    held += [cp.bmat([[p, seen], [seen.T, x]]) >> 0]
    if cap is not None:
        r = cp.Variable((n, n), PSD=True)
        held += [cp.bmat([[r, np.eye(n)], [np.eye(n), x]]) >> 0, cp.diag(r) <= cap]
    return float(cp.Problem(cp.Minimize(cp.trace(p)), held).solve(solver=cp.CLARABEL))
