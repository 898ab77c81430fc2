"""Optima of covariances made of shared seeds, by a conic model and proofs of its own.

As in :mod:`oracles`, nothing here imports the library. H is the Gram matrix of the error workload,
R = sum_c E_c P_c E_c^T a covariance of nodes with P_c >= 0 on the clique c.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from itertools import combinations

import numpy as np

from tests.support.oracles import Array, Interval

Clique = tuple[int, ...]


def near(w: Array, hops: int = 1) -> list[Clique]:
    """Every node, and every pair of nodes at most so many edges apart, by powers of W's pattern."""
    reached = np.linalg.matrix_power((w != 0) + np.eye(len(w)), hops) > 0
    pairs = [(i, j) for i, j in combinations(range(len(w)), 2) if reached[i, j]]
    return [(i,) for i in range(len(w))] + pairs


def neighbourhoods(w: Array) -> list[Clique]:
    """Every node, and every node with its neighbours."""
    linked = (w != 0) | np.eye(len(w), dtype=bool)
    alone: list[Clique] = [(i,) for i in range(len(w))]
    return alone + [tuple(int(j) for j in np.flatnonzero(row)) for row in linked]


def clique_interval(
    gram: Array, cliques: Sequence[Clique], *, cap: float | None = None, known_seeds: int = 0
) -> Interval:
    """Optimum of tr(H R) with diag(R^-1) <= 1, or with that of R without the seeds of any few.

    Clarabel's blocks, projected and scaled, give the upper bound; of its dual variables the blocks
    N of [[R, I], [I, Y]] >= 0 and the prices v of diag(Y) <= 1, scaled until N <= H + diag(cap
    prices) on every clique, the lower: sum (tr (V^1/2 N V^1/2)^1/2)^2 / sum v - cap sum w.
    """
    import cvxpy as cp

    n = len(gram)
    blocks = [cp.Variable((len(c), len(c)), PSD=True) for c in cliques]
    total = _spread(n, cliques, blocks)
    hidden, budgets = [], []
    for known in combinations(range(n), known_seeds):
        kept = [(c, p) for c, p in zip(cliques, blocks, strict=True) if not set(c) & set(known)]
        rest = [i for i in range(n) if i not in known]
        unknown = _spread(n, *zip(*kept, strict=True))[rest][:, rest]
        precision = cp.Variable((len(rest), len(rest)), symmetric=True)
        eye = np.eye(len(rest))
        hidden.append(cp.bmat([[unknown, eye], [eye, precision]]) >> 0)
        budgets.append(cp.diag(precision) <= 1)
    caps = [] if cap is None else [cp.diag(total) <= cap]
    problem = cp.Problem(cp.Minimize(cp.trace(gram @ total)), [*hidden, *budgets, *caps])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of inaccuracy: what is used of the answer is proved below
        whole = {"chordal_decomposition_enable": False}  # else Clarabel 0.9 ends at 6e-7
        problem.solve(solver="CLARABEL", tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9, **whole)
    solved = [_projected(np.asarray(p.value)) for p in blocks]
    duals = [
        (
            _projected(np.asarray(h.dual_value)[: n - known_seeds, : n - known_seeds]),
            np.maximum(np.asarray(b.dual_value), 0),
        )
        for h, b in zip(hidden, budgets, strict=True)
    ]
    prices = np.maximum(np.asarray(caps[0].dual_value), 0) if caps else np.zeros(n)
    lower = _proved(gram, cliques, duals, prices, known_seeds) - (cap or 0) * float(prices.sum())
    covariance = _feasible(n, cliques, solved, cap, known_seeds)
    return Interval(lower, float(np.sum(gram * covariance)), np.linalg.inv(covariance))


def _spread(n: int, cliques: Sequence[Clique], blocks: Sequence[Array]) -> Array:
    """sum_c E_c P_c E_c^T, of numbers or of variables."""
    picks = [np.eye(n)[:, list(c)] for c in cliques]
    return sum(e @ p @ e.T for e, p in zip(picks, blocks, strict=True))  # type: ignore[return-value]


def _projected(p: Array) -> Array:
    values, vectors = np.linalg.eigh((p + p.T) / 2)
    return np.asarray((vectors * np.maximum(values, 0)) @ vectors.T)


def _feasible(
    n: int, cliques: Sequence[Clique], blocks: Sequence[Array], cap: float | None, known_seeds: int
) -> Array:
    """R scaled to the budgets, and blended with independent noise until it keeps the cap."""
    worst = 0.0
    for known in combinations(range(n), known_seeds):
        kept = [(c, p) for c, p in zip(cliques, blocks, strict=True) if not set(c) & set(known)]
        rest = [i for i in range(n) if i not in known]
        unknown = _spread(n, *zip(*kept, strict=True))[np.ix_(rest, rest)]
        worst = max(worst, float(np.diagonal(np.linalg.inv(unknown)).max()))
    covariance = _spread(n, cliques, blocks) * worst
    if cap is not None:
        over = np.diagonal(covariance).max()
        share = min(1.0, (cap * (1 - 1e-12) - 1) / (over - 1)) if over > 1 else 1.0
        covariance = share * covariance + (1 - share) * np.eye(n)
    return covariance


def _proved(
    gram: Array,
    cliques: Sequence[Clique],
    duals: Sequence[tuple[Array, Array]],
    prices: Array,
    known_seeds: int,
) -> float:
    n = len(gram)
    whole, bound = [], 0.0
    for known, (multiplier, v) in zip(combinations(range(n), known_seeds), duals, strict=True):
        rest = [i for i in range(n) if i not in known]
        whole.append((set(known), np.zeros((n, n))))
        whole[-1][1][np.ix_(rest, rest)] = multiplier
        root = np.sqrt(v)
        values = np.linalg.eigvalsh(multiplier * root[:, None] * root)
        bound += float(np.sqrt(np.maximum(values, 0)).sum() ** 2 / v.sum())
    worst = 0.0
    for clique in cliques:
        at = np.ix_(clique, clique)
        total = sum(m[at] for known, m in whole if not known & set(clique))
        if np.ndim(total):
            factor = np.linalg.cholesky((gram + np.diag(prices))[at])
            whitened = np.linalg.solve(factor, np.linalg.solve(factor, np.asarray(total)).T)
            worst = max(worst, float(np.linalg.eigvalsh((whitened + whitened.T) / 2)[-1]))
    return bound / worst
