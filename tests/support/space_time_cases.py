"""Stacked matrices of small space-time problems, entry by entry, without the library."""

from __future__ import annotations

import itertools
from typing import Any

import networkx as nx
import numpy as np

from tests.support import oracles

Array = Any

GRAPHS: dict[str, Array] = {
    "path-4": oracles.metropolis(nx.path_graph(4)),
    "lollipop": oracles.metropolis(nx.lollipop_graph(3, 2)),
    "ring-5": oracles.metropolis(nx.cycle_graph(5)),
    "ring-6, singular": oracles.metropolis(nx.cycle_graph(6)),
    "complete-3, singular": oracles.metropolis(nx.complete_graph(3)),
    "star-4, singular": oracles.metropolis(nx.star_graph(3)),
    "directed": oracles.row_normalized(nx.path_graph(4)),
    "one node": np.ones((1, 1)),
}


def stacked_workload(w: Array, horizon: int) -> Array:
    """A, (nT, nT), time-major: column (s, v) of row (t, u) is (W^(t-s+1))_uv for t >= s."""
    n = len(w)
    a = np.zeros((n * horizon, n * horizon))
    for t, s in itertools.product(range(horizon), repeat=2):
        if t >= s:
            power = np.linalg.matrix_power(w, t - s + 1)
            a[t * n : (t + 1) * n, s * n : (s + 1) * n] = power
    return a


def patterns_of(n: int, epochs: int, separation: int) -> list[list[int]]:
    """Coordinates of node u at the steps of each class, class by class and node by node."""
    steps = oracles.fixed_epoch_patterns(epochs, separation)
    return [[t * n + u for t in pattern] for pattern in steps for u in range(n)]


def conic_optimum(w: Array, epochs: int, separation: int, tau: Array) -> float:
    """Optimum by Clarabel: tr Y, [[Y, A], [A^T, X]] >= 0, and X_pi <= diag(y), sum y <= tau."""
    import cvxpy as cp

    n, horizon = len(w), epochs * separation
    a = stacked_workload(w, horizon)
    m = len(a)
    x, y = cp.Variable((m, m), symmetric=True), cp.Variable((m, m), symmetric=True)
    limits = [cp.bmat([[y, a], [a.T, x]]) >> 0]
    for number, pattern in enumerate(patterns_of(n, epochs, separation)):
        share = cp.Variable(len(pattern))
        limits += [cp.diag(share) - x[pattern, :][:, pattern] >> 0]
        limits += [cp.sum(share) <= tau[number % n]]
    problem = cp.Problem(cp.Minimize(cp.trace(y)), limits)
    problem.solve(solver="CLARABEL", tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9)
    return float(problem.value)


def covariance(size: int, seed: int) -> Array:
    """A positive definite matrix."""
    root = np.random.default_rng(seed).normal(size=(size, size + 2))
    return root @ root.T / size
