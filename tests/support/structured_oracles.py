"""Slow, independent routes to the optima of structured and joint designs.

As in :mod:`oracles`, nothing here imports the library. H is the Gram matrix of the error workload,
C a lower triangular strategy, X = C^T C, R a covariance of nodes, W a mixing matrix; everything is
dense, and patterns are lists of coordinates.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import networkx as nx
import numpy as np
import scipy.linalg
import scipy.optimize

from tests.support import dense_views, oracles
from tests.support.oracles import Array, Interval
from tests.support.space_time_cases import stacked_workload

Patterns = Sequence[Sequence[int]]


# --- strategies -----------------------------------------------------------------------------------


def sensitivity_bound(strategy: Array, patterns: Patterns) -> float:
    """Largest sum of |X_st| over a pattern: no less than the squared sensitivity, equal for C >= 0.

    For C >= 0 all gradients alike attain it.
    """
    x = np.abs(strategy.T @ strategy)
    return max(float(x[np.ix_(p, p)].sum()) for p in patterns)


def value(gram: Array, strategy: Array, patterns: Patterns) -> float:
    """tr(H X^-1) of C scaled to squared sensitivity 1, at most."""
    noising = np.linalg.inv(strategy)
    return float(np.trace(noising.T @ gram @ noising)) * sensitivity_bound(strategy, patterns)


def toeplitz(column: Array) -> Array:
    return np.tril(scipy.linalg.toeplitz(column))


def toeplitz_strategy(x: Array) -> Array:
    """C with first column (1, x)."""
    return toeplitz(np.concatenate([[1.0], x]))


def banded_inverse(x: Array, horizon: int) -> Array:
    """C whose inverse is Toeplitz with first column (1, x, 0, ...)."""
    column = np.zeros(horizon)
    column[: len(x) + 1] = [1.0, *x]
    return np.asarray(np.linalg.inv(toeplitz(column)))


def buffered(x: Array, horizon: int) -> Array:
    """C_0 = 1 and C_j = sum_i scale_i decay_i^(j - 1), of nonnegative scales and decays.

    Scales are the exponentials of the first half of x, decays the logistic of the second.
    """
    scales, decays = np.split(x, 2)
    scales, decays = np.exp(scales), 1 / (1 + np.exp(-decays))
    lags = np.arange(horizon - 1)
    return toeplitz(np.concatenate([[1.0], (scales * decays ** lags[:, None]).sum(axis=1)]))


def searched(
    gram: Array, patterns: Patterns, family: Callable[[Array], Array], starts: Sequence[Array]
) -> float:
    """The least :func:`value` in a family that scipy finds: an upper bound on its optimum."""

    def logarithm(x: Array) -> float:
        return float(np.log(value(gram, family(x), patterns)))

    found = []
    for start in starts:
        if len(start) > 8:
            best = scipy.optimize.minimize(logarithm, start, method="BFGS")
        else:
            best = scipy.optimize.minimize(
                logarithm,
                start,
                method="Nelder-Mead",
                options={"xatol": 1e-9, "fatol": 1e-13, "maxiter": 4000, "maxfev": 4000},
            )
        found.append(float(np.exp(best.fun)))
    return min(found)


# --- banded strategies ----------------------------------------------------------------------------


def banded_interval(gram: Array, patterns: Patterns, bands: int) -> Interval:
    """Optimum over X with X_ij = 0 for |i - j| >= bands and sum of X_tt <= 1 over every pattern.

    Clarabel's X, zeroed outside the band and scaled, gives the upper bound. At the optimum
    X^-1 H X^-1 has no entries inside the band but the diagonal; without them, and with its
    diagonal raised until it is positive semidefinite, it is a multiplier U that proves
    (tr (H^1/2 U H^1/2)^1/2)^2 / price; the price, max <diag U, x> over allowed x, is a linear
    program.
    """
    import cvxpy as cp

    size = len(gram)
    x, y = (cp.Variable((size, size), symmetric=True) for _ in range(2))
    root = np.linalg.cholesky(gram).T
    limits = [cp.bmat([[y, root], [root.T, x]]) >> 0]
    limits += [x[i, j] == 0 for i in range(size) for j in range(i + bands, size)]
    limits += [sum(x[t, t] for t in p) <= 1 for p in patterns]
    problem = cp.Problem(cp.Minimize(cp.trace(y)), limits)
    problem.solve(solver="CLARABEL", tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    outside = np.abs(np.subtract.outer(np.arange(size), np.arange(size))) >= bands
    solved = np.where(outside, 0.0, np.asarray(x.value))
    solved = (solved + solved.T) / 2
    solved /= max(float(np.diagonal(solved)[list(p)].sum()) for p in patterns)
    upper = float(np.trace(gram @ np.linalg.inv(solved)))
    inverse = np.linalg.inv(solved)
    full = inverse @ gram @ inverse
    u = np.where(outside | np.eye(size, dtype=bool), full, 0.0)
    v = np.diagonal(u)
    unit = u / np.sqrt(np.outer(v, v))
    unit += max(0.0, -float(np.linalg.eigvalsh(unit)[0])) * np.eye(size)
    u = unit * np.sqrt(np.outer(v, v))
    rows = np.array([[float(t in p) for t in range(size)] for p in patterns])
    price = -scipy.optimize.linprog(-np.diagonal(u), A_ub=rows, b_ub=np.ones(len(rows))).fun
    trace = np.sqrt(np.maximum(np.linalg.eigvals(gram @ u).real, 0)).sum()
    return Interval(float(trace**2 / price), upper, solved)


# --- joint designs --------------------------------------------------------------------------------


def full_interval(gram: Array, nodes: int, epochs: int, separation: int) -> Interval:
    """Optimum over all noise of nT coordinates in time-major order, unit budgets."""
    if epochs == 1:
        return oracles.diagonal_interval(gram, width=1e-9)
    return oracles.fixed_epoch_interval(gram, epochs, separation * nodes, width=1e-7)


def time_part(w: Array, covariance: Array, horizon: int) -> Array:
    """H_time(R): traces of R with the n x n blocks of the stacked H."""
    blocks = _blocks(w, horizon)
    return np.einsum("sitj,ij->st", blocks, covariance)


def space_part(w: Array, covariance: Array, horizon: int) -> Array:
    """H_space(S): the n x n blocks of the stacked H weighed by S, shape (n, n)."""
    return np.einsum("sitj,st->ij", _blocks(w, horizon), covariance)


def _blocks(w: Array, horizon: int) -> Array:
    a = stacked_workload(w, horizon)
    return np.asarray((a.T @ a).reshape(horizon, len(w), horizon, len(w)))


def kronecker_value(
    w: Array,
    horizon: int,
    *,
    time: Callable[[Array], Array],
    space: Callable[[Array], Array],
    sweeps: int = 8,
) -> float:
    """tr(H (S x R)) after so many sweeps from independent nodes: an upper bound on the optimum.

    ``time`` and ``space`` are from a Gram matrix to a covariance within the budgets.
    """
    r = np.eye(len(w))
    for _ in range(sweeps):
        s = time(time_part(w, r, horizon))
        r = space(space_part(w, s, horizon))
    return float(np.sum(time_part(w, r, horizon) * s))


def decor_covariance(gram: Array, w: Array) -> Array:
    """The best R = s I + c Laplacian with diag(R^-1) <= 1, by scalar minimisation over c / s."""
    linked = (w != 0).astype(float) - np.eye(len(w))
    laplacian = np.diag(linked.sum(axis=1)) - linked

    def scaled(log_ratio: float) -> Array:
        r = np.eye(len(w)) + np.exp(log_ratio) * laplacian
        return np.asarray(r * np.diagonal(np.linalg.inv(r)).max())

    def objective(log_ratio: float) -> float:
        return float(np.sum(gram * scaled(log_ratio)))

    grid = np.linspace(-10, 8, 73)
    best = int(np.argmin([objective(x) for x in grid]))
    around = (grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)])
    found = scipy.optimize.minimize_scalar(
        objective, bounds=around, method="bounded", options={"xatol": 1e-10}
    )
    return scaled(float(found.x))


# --- random mixing, outcome by outcome ------------------------------------------------------------


def node_dropouts(w: Array, p: float) -> Iterator[tuple[float, Array]]:
    """Every set of nodes that are out, with its probability."""
    for out in itertools.product((0, 1), repeat=len(w)):
        there = 1 - np.array(out, dtype=float)
        kept = w * np.outer(there, there)
        np.fill_diagonal(kept, 0.0)
        chance = p ** sum(out) * (1 - p) ** (len(w) - sum(out))
        yield chance, kept + np.diag(1 - kept.sum(axis=1))


def edge_failures(w: Array, p: float) -> Iterator[tuple[float, Array]]:
    """Every set of failed edges, with its probability."""
    edges = [(i, j) for i, j in zip(*np.nonzero(np.triu(w, 1)), strict=True)]
    for down in itertools.product((0, 1), repeat=len(edges)):
        kept = w.copy()
        np.fill_diagonal(kept, 0.0)
        for (i, j), failed in zip(edges, down, strict=True):
            if failed:
                kept[i, j] = kept[j, i] = 0.0
        chance = p ** sum(down) * (1 - p) ** (len(edges) - sum(down))
        yield chance, kept + np.diag(1 - kept.sum(axis=1))


def one_pair(graph: nx.Graph) -> Iterator[tuple[float, Array]]:
    """Every edge as the one that averages."""
    for i, j in graph.edges:
        w = np.eye(len(graph))
        w[[i, i, j, j], [i, j, i, j]] = 0.5
        yield 1 / graph.number_of_edges(), w


def maximal_matchings(graph: nx.Graph) -> Iterator[tuple[float, Array]]:
    """Every set of disjoint edges that no edge can be added to, all equally likely."""
    edges = list(graph.edges)
    sets = [s for k in range(len(edges) + 1) for s in itertools.combinations(edges, k)]
    matchings = [frozenset(s) for s in sets if len({i for e in s for i in e}) == 2 * len(s)]
    maximal = [m for m in matchings if not any(m < other for other in matchings)]
    for matching in maximal:
        w = np.eye(len(graph))
        for i, j in matching:
            w[[i, i, j, j], [i, j, i, j]] = 0.5
        yield 1 / len(maximal), w


# --- other objectives -----------------------------------------------------------------------------


def noise_to_state(
    w: Array,
    horizon: int,
    *,
    momentum: float = 0.0,
    rates: Array | None = None,
    curvature: float = 0.0,
) -> Iterator[Array]:
    """x after every step as a linear map of all noise, shape (n, nT), time-major.

    x <- W (x + eta m), m <- momentum m - curvature x + z, both from 0; W that of the step where it
    has three axes.
    """
    n = w.shape[-1]
    eta = np.ones(horizon) if rates is None else rates
    state = velocity = np.zeros((n, n * horizon))
    for t in range(horizon):
        velocity = momentum * velocity - curvature * state
        velocity[:, t * n : (t + 1) * n] += np.eye(n)
        state = (w if w.ndim == 2 else w[t]) @ (state + eta[t] * velocity)
        yield state


def modes_of_mixing(grams: Array, basis: Array, *, width: float) -> float:
    """The least error of noise that is independent along the eigenvectors of W, (n, n), for their
    H_m, (n, T, T), each record in one of the steps, by the fixed point of its multipliers v of
    nodes and steps; at unit budgets, which it keeps.

    With V_mu = basis_um^2, X_m = U_m^-1/2 (U_m^1/2 H_m U_m^1/2)^1/2 U_m^-1/2, U_m = diag(V v)_m.
    """
    shares = np.square(basis).T
    v = np.ones((len(basis), grams.shape[1]))
    best = np.inf
    while True:
        error, used, trace = 0.0, np.zeros_like(v), 0.0
        for gram, share in zip(grams, shares, strict=True):
            root = np.sqrt(share @ v)
            values, vectors = np.linalg.eigh(root[:, None] * gram * root)
            roots = np.sqrt(values)
            x = (vectors * roots) @ vectors.T / root[:, None] / root
            used += np.multiply.outer(share, np.diagonal(x))
            error += float(np.sum(gram * np.linalg.inv(x)))
            trace += float(roots.sum())
        best = min(best, error * float(used.max()))
        if best <= trace**2 / v.sum() * (1 + width):
            return best
        v = v * used


def random_gram(outcomes: Sequence[tuple[float, Array]], horizon: int) -> Array:
    """E of the stacked H of all iterates, shape (nT, nT), W drawn afresh at every step.

    Second moments E[x_i x_j] of the state, quadratic in all noise, are carried through the steps,
    one outcome after another.
    """
    n = len(outcomes[0][1])
    size = n * horizon
    moments, mean = np.zeros((n, n, size, size)), np.zeros((n, size))
    result = np.zeros((size, size))
    for t in range(horizon):
        noise = np.zeros((n, size))
        noise[:, t * n : (t + 1) * n] = np.eye(n)
        for a, b in ((mean, noise), (noise, mean), (noise, noise)):
            moments = moments + np.einsum("ia,jb->ijab", a, b)
        moments = np.sum(
            [
                chance * np.einsum("ki,lj,ijab->klab", w, w, moments, optimize=True)
                for chance, w in outcomes
            ],
            axis=0,
        )
        mean = np.sum([chance * w for chance, w in outcomes], axis=0) @ (mean + noise)
        result += np.einsum("iiab->ab", moments)
    return result


# --- chosen observers -----------------------------------------------------------------------------


def observed_interval(
    w: Array, coalitions: Sequence[tuple[int, ...]], *, horizon: int, cap: float
) -> Interval:
    """Least noise, fresh at every step, against coalitions that hear their neighbours.

    What a coalition has is stacked: the messages it hears and its own noise, both linear in the
    noise of all, so its covariance is linear in R.
    """
    import cvxpy as cp

    n = len(w)
    stacked = dense_views.messages(w, horizon=horizon)
    powers = [np.linalg.matrix_power(w, t + 1) for t in range(horizon)]
    gram = sum((horizon - t) * power.T @ power for t, power in enumerate(powers))
    noise = cp.Variable((n, n), PSD=True)
    every = cp.kron(np.eye(horizon), noise)
    constraints = [cp.diag(noise) <= cap]
    known: list[tuple[Array, Array]] = []
    for coalition in coalitions:
        own = [t * n + v for t in range(horizon) for v in coalition]
        heard = [u for u in range(n) if u not in coalition and w[list(coalition), u].any()]
        rows = stacked[[t * n + u for t in range(horizon) for u in heard]]
        has = np.vstack([rows, np.eye(n * horizon)[own]])
        others = [t * n + u for t in range(horizon) for u in range(n) if u not in coalition]
        signal = np.vstack([rows, np.zeros((len(own), n * horizon))])[:, others]
        told = cp.Variable((len(others),) * 2, symmetric=True)
        covariance = has @ every @ has.T
        constraints += [cp.bmat([[covariance, signal], [signal.T, told]]) >> 0, cp.diag(told) <= 1]
        known.append((has, signal))
    problem = cp.Problem(cp.Minimize(cp.trace(gram @ noise)), constraints)
    problem.solve(solver="SCS", eps_abs=1e-9, eps_rel=1e-9, max_iters=400_000)

    def largest(covariance: Array) -> float:
        found = np.kron(np.eye(horizon), covariance)
        return max(
            float(np.diagonal(g.T @ np.linalg.solve(b @ found @ b.T, g)).max()) for b, g in known
        )

    values, vectors = np.linalg.eigh(noise.value)
    covariance = (vectors * np.maximum(values, 1e-12)) @ vectors.T
    covariance *= min(1.0, cap / float(np.diagonal(covariance).max()))
    share = 0.0
    while largest((1 - share) * covariance + share * cap * np.eye(n)) > 1:
        share = max(2 * share, 1e-12)
    made = (1 - share) * covariance + share * cap * np.eye(n)
    value = float(problem.value)
    return Interval(value * (1 - 4e-6), float(np.sum(gram * made)))
