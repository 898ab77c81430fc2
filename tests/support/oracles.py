"""Closed forms and slow, independent routes to the numbers the library computes.

Nothing here imports the library: a number that a test compares with must not come from the code
under test. Notation: H is the Gram matrix of the error workload, tau the budgets, W the mixing
matrix, R the covariance in space, X = R^-1 or C^T C. Patterns are lists of coordinates.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import mpmath
import networkx as nx
import numpy as np
import scipy.linalg
import scipy.optimize
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """Proved bounds on an optimum, and the X = R^-1 that attains the upper one."""

    lower: float
    upper: float
    gram: Array | None = None

    @property
    def width(self) -> float:
        return self.upper / self.lower - 1

    def meets(self, lower: float, upper: float, *, rounding: float = 1e-11) -> bool:
        """Whether [lower, upper] holds a point in common, up to rounding of the four ends."""
        room = 1 + rounding
        return lower <= self.upper * room and self.lower <= upper * room


# --- graphs and weights, written again ------------------------------------------------------------


def metropolis(graph: nx.Graph) -> Array:
    """Metropolis-Hastings weights entry by entry."""
    nodes = list(graph.nodes)
    w = np.zeros((len(nodes), len(nodes)))
    for i, a in enumerate(nodes):
        for j, b in enumerate(nodes):
            if i != j and graph.has_edge(a, b):
                w[i, j] = 1 / (1 + max(graph.degree[a], graph.degree[b]))
        w[i, i] = 1 - w[i].sum()
    return w


def karate() -> nx.Graph:
    """Zachary's club without its counts of meetings."""
    graph = nx.karate_club_graph()
    nx.set_edge_attributes(graph, 1, "weight")
    return graph


def row_normalized(graph: nx.Graph) -> Array:
    """Rows of A + I divided by their sums: not symmetric unless the graph is regular."""
    closed = nx.to_numpy_array(graph, weight=None) + np.eye(len(graph))
    return np.asarray(closed / closed.sum(axis=1, keepdims=True))


def erdos_renyi(nodes: int, p: float) -> nx.Graph:
    """The first connected of networkx's graphs under the seeds 0, 1000, 2000, ..."""
    for seed in itertools.count(0, 1000):
        graph = nx.gnp_random_graph(nodes, p, seed=seed)
        if nx.is_connected(graph):
            return graph
    raise AssertionError


# --- workloads ------------------------------------------------------------------------------------


def stacked_gram(w: Array, horizon: int) -> Array:
    """H of Mafalda-SGD, equation (10), with every nT x nT matrix written out."""
    n, size = len(w), len(w) * horizon
    w_t = np.zeros((size, size))
    for t in range(horizon):
        for s in range(t + 1):
            w_t[t * n : (t + 1) * n, s * n : (s + 1) * n] = np.linalg.matrix_power(w, t - s)
    commutation = np.zeros((size, size))
    for t in range(horizon):
        for i in range(n):
            commutation[t * n + i, i * horizon + t] = 1
    a = np.kron(np.eye(horizon), w) @ w_t @ commutation
    columns = [a[:, i * horizon : (i + 1) * horizon] for i in range(n)]
    return np.asarray(sum(a_i.T @ a_i for a_i in columns))


def gram_of_powers(w: Array, horizon: int) -> Array:
    """H_ss' = sum_t <W^(t-s+1), W^(t-s'+1)>, from all powers of W kept at once."""
    powers = np.empty((horizon + 1, w.size))
    power = np.eye(len(w))
    for a in range(horizon + 1):
        powers[a] = power.ravel()
        power = w @ power
    inner = powers @ powers.T
    gram = np.zeros((horizon, horizon))
    for t in range(horizon):
        # Steps s = 0 .. t (from zero) reach iterate t with exponent t - s + 1.
        exponents = t - np.arange(t + 1) + 1
        gram[: t + 1, : t + 1] += inner[np.ix_(exponents, exponents)]
    return gram


def prefix_workload(horizon: int) -> Array:
    """Lower triangular ones."""
    return np.tril(np.ones((horizon, horizon)))


# --- closed forms ---------------------------------------------------------------------------------


def vertex_transitive_optimum(w: Array, *, tau: float = 1.0) -> float:
    """Optimum of one-step Whisper where every node looks alike: (nuclear norm of W)^2 / (n tau).

    The multipliers are equal by symmetry, and equal multipliers are feasible for any W.
    """
    return float(np.linalg.svd(w, compute_uv=False).sum() ** 2 / (len(w) * tau))


def complete_graph_capped(n: int, *, cap: float, tau: float = 1.0) -> float:
    """Optimum for W = J / n with diag(R) <= cap.

    By symmetry R = a I + b J, with eigenvalues x = a + n b (once, the objective) and a. Both
    constraints bind: (x + (n - 1) a) / n = cap and (1/x + (n - 1) / a) / n = tau, which is
    n tau x^2 - (n^2 tau cap - n (n - 2)) x + n cap = 0; the smaller root.
    """
    middle = n**2 * tau * cap - n * (n - 2)
    return (middle - math.sqrt(middle**2 - 4 * n**2 * tau * cap)) / (2 * n * tau)


PREFIX_TWO_STEPS = (3 + math.sqrt(5)) / 2
"""Optimum of the prefix workload, T = 2, one participation: (3 - 2x) / (1 - x^2) is least at
x^2 - 3x + 1 = 0. The golden ratio squared."""


def every_step_optimum(gram: Array) -> float:
    """Optimum where one record takes part in every step (b = 1): (sum sqrt(H_tt))^2.

    X is diagonal with trace one without loss, and sum h_t / x_t is least at x_t ~ sqrt(h_t).
    """
    return float(np.sqrt(np.diagonal(gram)).sum() ** 2)


def diagonal_workload_optimum(h: Array, patterns: Sequence[Sequence[int]], budget: Array) -> float:
    """Optimum for H = diag(h): each pattern for itself, (sum over it of sqrt(h))^2 / budget."""
    pairs = zip(patterns, budget, strict=True)
    return float(sum(np.sqrt(h[list(p)]).sum() ** 2 / tau for p, tau in pairs))


def fixed_epoch_patterns(epochs: int, separation: int) -> list[list[int]]:
    """Residue classes of the steps, one step at a time."""
    horizon = epochs * separation
    return [[t for t in range(horizon) if t % separation == j] for j in range(separation)]


# --- sensitivity ----------------------------------------------------------------------------------


def best_signs(m: Array) -> float:
    """max c^T M c over signs, all of them tried: exact for scalar contributions."""
    signs = itertools.product((-1.0, 1.0), repeat=len(m))
    return max(float(np.array(c) @ m @ np.array(c)) for c in signs)


def elliptope_by_angles(m: Array, *, steps: int = 60) -> float:
    """max <M, Y> over 3 x 3 correlation matrices, from unit vectors on a grid, then polished.

    A lower bound by construction: every Y tried is feasible.
    """

    def value(angles: Array) -> float:
        a, b, c = angles
        v = np.array(
            [
                [1, 0, 0],
                [math.cos(a), math.sin(a), 0],
                [math.cos(b), math.sin(b) * math.cos(c), math.sin(b) * math.sin(c)],
            ]
        )
        return float(np.sum(m * (v @ v.T)))

    grid = np.linspace(0, math.pi, steps)
    coarse = grid[:: steps // 12]
    angles = [np.array(x) for x in itertools.product(coarse, coarse, coarse)]
    start = max(angles, key=value)
    polished = scipy.optimize.minimize(
        lambda x: -value(x),
        start,
        method="Nelder-Mead",
        options={"xatol": 1e-12, "fatol": 1e-14, "maxiter": 10_000},
    )
    return value(polished.x)


def elliptope(m: Array) -> tuple[float, float]:
    """Proved lower and upper bounds on max <M, Y>, Y a correlation matrix, from Clarabel.

    Its Y is rescaled to unit diagonal and its multipliers shifted until diag(y) - M is positive
    semidefinite, so neither bound trusts it.
    """
    import cvxpy as cp

    k = len(m)
    y = cp.Variable((k, k), PSD=True)
    unit = cp.diag(y) == 1
    problem = cp.Problem(cp.Maximize(cp.trace(m @ y)), [unit])
    problem.solve(solver="CLARABEL")
    values, vectors = np.linalg.eigh(np.asarray(y.value))
    v = vectors * np.sqrt(np.maximum(values, 0))
    v /= np.linalg.norm(v, axis=1, keepdims=True)
    bounds = []
    for multipliers in (unit.dual_value, -np.asarray(unit.dual_value)):  # signs are a convention
        slack = float(np.linalg.eigvalsh(np.diag(multipliers) - m)[0])
        bounds.append(float(np.sum(multipliers)) + k * max(0.0, -slack))
    return float(np.sum(m * (v @ v.T))), min(bounds)


# --- diagonal budgets: the fixed point ------------------------------------------------------------


def _value(gram: Array, x: Array) -> float:
    """tr(H X^-1), infinite where X is not positive definite to working precision."""
    try:
        root = np.linalg.cholesky(x)
    except np.linalg.LinAlgError:
        return math.inf
    half = scipy.linalg.solve_triangular(root, gram, lower=True)
    return float(np.trace(scipy.linalg.solve_triangular(root, half.T, lower=True)))


def _feasible_pair(x: Array, budget: Array) -> tuple[Array, Array]:
    """X with its rows rescaled to the budgets, and X scaled as a whole with the slack filled.

    The first is second order in the error of v. The second keeps the null space of H in that of X
    but for the filled entries, so it is the one that stays bounded where H is singular.
    """
    used = np.diagonal(x) / budget
    scale = 1 / np.sqrt(used)
    whole = x / used.max()
    return x * scale[:, None] * scale, whole + np.diag(budget - np.diagonal(whole))


def diagonal_interval(
    gram: Array, *, budget: Array | float = 1.0, width: float = 1e-9, sweeps: int = 20_000
) -> Interval:
    """Optimum of tr(H X^-1), X_ii <= budget_i, by v <- diag( (D^1/2 H D^1/2)^1/2 ), D = diag(v).

    Lower bound (tr S)^2 / sum budget_i v_i; upper bound from X = D^-1/2 S D^-1/2 made feasible.
    """
    tau = np.broadcast_to(np.asarray(budget, dtype=float), (len(gram),))
    v = np.sqrt(np.diagonal(gram) / tau)
    lower, upper, best = 0.0, math.inf, None
    for _ in range(sweeps):
        root = np.sqrt(v)
        values, vectors = np.linalg.eigh(gram * root[:, None] * root)
        s = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
        lower = max(lower, float(np.trace(s) ** 2 / (tau @ v)))
        for feasible in _feasible_pair(s / root[:, None] / root, tau):
            value = _value(gram, feasible)
            if value < upper:
                upper, best = value, feasible
        if upper <= lower * (1 + width):
            break
        v = np.diagonal(s) / tau
    return Interval(lower, upper, best)


def diagonal_interval_mp(
    gram: Iterable[Iterable[Any]], *, digits: int = 30, sweeps: int = 5000
) -> tuple[Any, Any]:
    """As :func:`diagonal_interval` with unit budgets, to ``digits`` digits, for small n."""
    with mpmath.workdps(2 * digits):
        h = mpmath.matrix([list(row) for row in gram])
        n = h.rows
        v = [mpmath.sqrt(h[i, i]) for i in range(n)]
        lower, upper = mpmath.mpf(0), mpmath.inf
        for _ in range(sweeps):
            d = mpmath.diag([mpmath.sqrt(x) for x in v])
            values, q = mpmath.eigsy(d * h * d)
            s = q * mpmath.diag([mpmath.sqrt(max(x, 0)) for x in values]) * q.T
            lower = max(lower, sum(s[i, i] for i in range(n)) ** 2 / sum(v))
            x = d**-1 * s * d**-1
            scale = mpmath.diag([1 / mpmath.sqrt(x[i, i]) for i in range(n)])
            inverse = (scale * x * scale) ** -1
            upper = min(upper, sum((h * inverse)[i, i] for i in range(n)))
            if upper / lower - 1 < mpmath.mpf(10) ** -digits:
                break
            v = [s[i, i] for i in range(n)]
        return +lower, +upper


# --- (k, b) participation: L-BFGS on U_j = p_j V_j V_j^T ------------------------------------------


def block_lower_bound(gram: Array, patterns: Sequence[Sequence[int]], blocks: Array) -> float:
    """(tr (L U L^T)^1/2)^2 / sum p_j for feasible blocks, through the nuclear norm of L U^1/2."""
    values, vectors = np.linalg.eigh(gram)
    factor = np.sqrt(np.maximum(values, 0))[:, None] * vectors.T
    halves = [
        factor[:, list(p)] @ scipy.linalg.sqrtm(b).real
        for p, b in zip(patterns, blocks, strict=True)
    ]
    nuclear = np.linalg.svd(np.hstack(halves), compute_uv=False).sum()
    return float(nuclear**2 / sum(b[0, 0] for b in blocks))


def block_upper_bound(
    gram: Array, patterns: Sequence[Sequence[int]], x: Array
) -> tuple[float, Array]:
    """tr(H X^-1) of X made diagonal on the patterns, with unit trace on each."""
    x = x.copy()
    scale = np.empty(len(x))
    for p in patterns:
        rows = np.ix_(p, p)
        x[rows] = np.diag(np.diagonal(x)[p])
        scale[p] = 1 / math.sqrt(np.diagonal(x)[p].sum())
    feasible = x * scale[:, None] * scale
    return _value(gram, feasible), feasible


@dataclass
class _Best:
    lower: float = 0.0
    upper: float = math.inf
    gram: Array | None = None


class _Reached(Exception):  # noqa: N818 - not an error: the way out of the minimiser
    pass


def fixed_epoch_interval(
    gram: Array, epochs: int, separation: int, *, width: float = 1e-6, evaluations: int = 2000
) -> Interval:
    """Optimum under (k, b) participation and unit budgets, by scipy's L-BFGS-B on the dual.

    Variables: log p_j and the rows of V_j, which are normalised inside, so that every point is
    feasible. Maximises 2 log tr (L U L^T)^1/2 - log sum p_j, with d tr = <X, dU> / 2.
    """
    k, b = epochs, separation
    patterns = fixed_epoch_patterns(k, b)
    order = np.concatenate(patterns)
    h = gram[np.ix_(order, order)]
    spans = [list(range(j * k, (j + 1) * k)) for j in range(b)]
    values, vectors = np.linalg.eigh(h)
    keep = values > len(h) * np.finfo(float).eps * values[-1]
    factor = np.sqrt(values[keep])[:, None] * vectors[:, keep].T
    best = _Best()

    def negative(x: Array) -> tuple[float, Array]:
        log_p, raw = x[:b], x[b:].reshape(b, k, k)
        norms = np.linalg.norm(raw, axis=2, keepdims=True)
        v = raw / norms
        p = np.exp(log_p)
        y = v @ v.transpose(0, 2, 1)
        u = scipy.linalg.block_diag(*(p[:, None, None] * y))
        eigenvalues, q = np.linalg.eigh(factor @ u @ factor.T)
        root = np.sqrt(np.maximum(eigenvalues, 1e-28 * eigenvalues[-1]))
        spread = factor.T @ q
        gram_of_u = (spread / root) @ spread.T
        t, price = float(root.sum()), float(p.sum())
        best.lower = max(best.lower, t**2 / price)
        value, feasible = block_upper_bound(h, spans, gram_of_u)
        if value < best.upper:
            best.upper, best.gram = value, feasible
        if best.upper <= best.lower * (1 + width):
            raise _Reached
        x_blocks = np.stack([gram_of_u[np.ix_(s, s)] for s in spans])
        grad_p = p * (np.einsum("jkl,jkl->j", x_blocks, y) / t - 1 / price)
        grad_v = 2 * p[:, None, None] * (x_blocks @ v) / t
        radial = np.sum(grad_v * v, axis=2, keepdims=True)
        grad_raw = (grad_v - radial * v) / norms
        return (math.log(price) - 2 * math.log(t), -np.concatenate([grad_p, grad_raw.ravel()]))

    start_p = np.sqrt(np.diagonal(h)).reshape(b, k).mean(axis=1)
    start = np.concatenate([np.log(start_p), np.tile(np.eye(k).ravel(), b)])
    try:
        for _ in range(5):  # L-BFGS-B may stop early on a flat step; start it afresh there
            found = scipy.optimize.minimize(
                negative,
                start,
                jac=True,
                method="L-BFGS-B",
                options={
                    "maxcor": 30,
                    "maxfun": evaluations,
                    "maxiter": evaluations,
                    "ftol": 1e-16,
                    "gtol": 1e-14,
                },
            )
            start = found.x
    except _Reached:
        pass
    back = np.argsort(order)
    attained = None if best.gram is None else best.gram[np.ix_(back, back)]
    return Interval(best.lower, best.upper, attained)


# --- capped variance: a conic solver, repaired ----------------------------------------------------


def capped_lower_bound(gram: Array, *, budget: Array, cap: Array, v: Array, w: Array) -> float:
    """(tr (V^1/2 (H + diag w) V^1/2)^1/2)^2 / <budget, v> - <cap, w> for v, w >= 0."""
    root = np.sqrt(v)
    shifted = (gram + np.diag(w)) * root[:, None] * root
    trace = np.sqrt(np.maximum(np.linalg.eigvalsh(shifted), 0)).sum()
    return float(trace**2 / (budget @ v) - cap @ w)


def capped_interval(gram: Array, *, budget: Array | float = 1.0, cap: Array | float) -> Interval:
    """Optimum of tr(H R), diag(R^-1) <= budget, diag(R) <= cap, from Clarabel's points, repaired.

    The lower bound puts its multipliers into the dual; the upper one blends its X = R^-1 with
    diag(budget) until both constraints hold.
    """
    import cvxpy as cp

    n = len(gram)
    tau = np.broadcast_to(np.asarray(budget, dtype=float), (n,))
    ceiling = np.broadcast_to(np.asarray(cap, dtype=float), (n,))
    r, x = cp.Variable((n, n), symmetric=True), cp.Variable((n, n), symmetric=True)
    limits = [cp.diag(x) <= tau, cp.diag(r) <= ceiling]
    linked = cp.bmat([[x, np.eye(n)], [np.eye(n), r]]) >> 0
    problem = cp.Problem(cp.Minimize(cp.trace(gram @ r)), [*limits, linked])
    problem.solve(solver="CLARABEL", tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9)
    v, w = (np.maximum(np.asarray(c.dual_value), 0) for c in limits)
    lower = capped_lower_bound(gram, budget=tau, cap=ceiling, v=v, w=w)
    solved = np.linalg.inv(np.asarray(r.value))
    found = Interval(lower, math.inf)
    for candidate in _feasible_pair((solved + solved.T) / 2, tau):
        variance = np.diagonal(np.linalg.inv(candidate))
        room = (ceiling * (1 - 1e-12) - 1 / tau) / np.maximum(variance - 1 / tau, 1e-300)
        share = max(0.0, 1 - float(room.min()))
        feasible = (1 - share) * candidate + share * np.diag(tau)  # diag of an inverse is convex
        upper = _value(gram, feasible)
        if upper < found.upper:
            found = Interval(lower, upper, feasible)
    return found


def floored_interval(
    gram: Array,
    *,
    floor: Array | float,
    budget: Array | float = 1.0,
    cap: Array | float | None = None,
) -> Interval:
    """As :func:`capped_interval`, of diag(R) >= floor as well, or without a cap.

    Lower: the dual function at Clarabel's v, w, u, with u lowered until H + diag(w - u) is positive
    semidefinite. Upper: the cheapest of its R with rows multiplied until budgets and floors hold,
    where caps do then, and of its R with rows multiplied until floors and caps hold and blended
    with independent noise until budgets do.
    """
    import cvxpy as cp

    n = len(gram)
    tau, low = (np.broadcast_to(np.asarray(a, dtype=float), (n,)) for a in (budget, floor))
    high = np.full(n, np.inf) if cap is None else np.broadcast_to(np.asarray(cap, float), (n,))
    r, x = cp.Variable((n, n), symmetric=True), cp.Variable((n, n), symmetric=True)
    limits = [cp.diag(x) <= tau, cp.diag(r) >= low]
    if cap is not None:
        limits.append(cp.diag(r) <= np.maximum(low, high * (1 - 1e-7)))
    linked = cp.bmat([[x, np.eye(n)], [np.eye(n), r]]) >> 0
    problem = cp.Problem(cp.Minimize(cp.trace(gram @ r)), [*limits, linked])
    problem.solve(solver="CLARABEL", tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9)
    v, u, *rest = (np.maximum(np.asarray(c.dual_value), 0) for c in limits)
    w = rest[0] if rest else np.zeros(n)
    raised = gram + np.diag(w)
    u = u * min(1.0, (1 - 1e-9) / scipy.linalg.eigh(np.diag(u), raised, eigvals_only=True)[-1])
    # Singular values of a factor: both v and H + diag(w - u) may be next to singular.
    roots = np.linalg.svd(np.linalg.cholesky(raised - np.diag(u)).T * np.sqrt(v), compute_uv=False)
    lower = float(roots.sum() ** 2 / (tau @ v) + low @ u - np.where(w > 0, high, 0) @ w)
    solved = np.asarray(r.value)
    ratio = np.maximum(np.diagonal(np.linalg.inv(solved)) / tau, low / np.diagonal(solved))
    within = np.clip(np.diagonal(solved), low, high) / np.diagonal(solved)
    # The second leaves slack budgets slack.
    candidates = [_rows_times(solved, squares) for squares in (ratio, np.maximum(ratio, 1))]
    candidates.append(_blended(_rows_times(solved, within), tau, np.clip(2 / tau, low, high)))
    found = Interval(lower, math.inf)
    for feasible in candidates:
        upper = float(np.sum(gram * feasible))
        if (np.diagonal(feasible) <= high * (1 + 1e-14)).all() and upper < found.upper:
            found = Interval(lower, upper, np.linalg.inv(feasible))
    return found


def _rows_times(covariance: Array, squares: Array) -> Array:
    """D R D with D^2 = diag(squares)."""
    root = np.sqrt(squares)
    return np.asarray(covariance * root[:, None] * root)


def _blended(covariance: Array, tau: Array, variance: Array) -> Array:
    """The covariance, with as little of diag(variance) as makes diag(R^-1) <= tau.

    diag(R^-1) is convex in R, so that a share t leaves at most (1 - t) diag(R^-1) + t / variance.
    """
    used = np.diagonal(np.linalg.inv(covariance))
    over = used > tau
    if not over.any():
        return covariance
    share = float(((used - tau)[over] / (used - 1 / variance)[over]).max())
    return np.asarray((1 - share) * covariance + share * np.diag(variance))


def ring_with_variance(w: Array, *, variance: float) -> float:
    """Optimum for a circulant W, or that of the Petersen graph, with R_ii = variance at tau = 1.

    R may be taken as symmetric as W, with eigenvalues x_k beside lambda_k^2 of H: minimise
    sum lambda_k^2 x_k with mean(1/x) <= 1 and mean(x) = variance. Stationarity makes x_k a multiple
    of 1 / s_k, s_k = sqrt(lambda_k^2 - u), and the constraints together mean(s) mean(1/s) =
    variance, an equation in u. A positive u is that of a floor, a negative one of a cap.
    """
    squares = np.square(np.linalg.eigvalsh(w))

    def roots(log_left: float) -> Array:
        return np.asarray(np.sqrt(squares - squares.min() + math.exp(log_left)))

    def excess(log_left: float) -> float:
        s = roots(log_left)
        return float(s.mean() * (1 / s).mean()) - variance

    s = roots(scipy.optimize.brentq(excess, -60, 40, xtol=1e-14))
    return float(squares @ (s.mean() / s))


# --- privacy --------------------------------------------------------------------------------------


def gaussian_delta(mu: float, epsilon: float) -> float:
    """delta(eps) = Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu), to 50 digits."""
    with mpmath.workdps(50):
        m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
        return float(mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m))


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The mu at which :func:`gaussian_delta` is delta, by bisection."""
    return float(
        scipy.optimize.brentq(lambda mu: gaussian_delta(mu, epsilon) - delta, 1e-4, 100, xtol=1e-14)
    )


# --- exact linear algebra -------------------------------------------------------------------------


def exact_inverse(a: Array, *, digits: int = 50) -> list[list[Any]]:
    """Inverse of the very float64 matrix given, in mpmath numbers of ``digits`` digits."""
    with mpmath.workdps(digits):
        inverse = mpmath.matrix(a.tolist()) ** -1
        return [[inverse[i, j] for j in range(inverse.cols)] for i in range(inverse.rows)]


def exact_gram(a: Array, *, digits: int = 50) -> list[list[Any]]:
    """A^T A of the very float64 matrix given, in mpmath numbers of ``digits`` digits."""
    with mpmath.workdps(digits):
        m = mpmath.matrix(a.tolist())
        gram = m.T * m
        return [[gram[i, j] for j in range(gram.cols)] for i in range(gram.rows)]


# --- sensitivity ----------------------------------------------------------------------------------


def min_separation_patterns(horizon: int, separation: int, most: int) -> list[tuple[int, ...]]:
    """Every nonempty set of at most ``most`` steps, any two at least ``separation`` apart."""
    return [
        steps
        for size in range(1, min(most, horizon) + 1)
        for steps in itertools.combinations(range(horizon), size)
        if all(t - s >= separation for s, t in itertools.combinations(steps, 2))
    ]


def row_bound(m: Array, patterns: Sequence[Sequence[int]]) -> float:
    """max over patterns of sum r_s, r_s = max over patterns with s of sum_t |M_st|: all tried."""
    rows = [
        max((sum(abs(m[s, t]) for t in p) for p in patterns if s in p), default=0.0)
        for s in range(len(m))
    ]
    return float(max(sum(rows[s] for s in p) for p in patterns))


def abs_sum(m: Array, patterns: Sequence[Sequence[int]]) -> float:
    """max over patterns of sum |M_st|."""
    return float(max(sum(abs(m[s, t]) for s in p for t in p) for p in patterns))


def odd_cycle_elliptope(size: int) -> float:
    """max <M, Y> of the Laplacian of an odd cycle, M = 2 I - A: every edge turns by pi - pi / size.

    lambda_max(M) = 2 + 2 cos(pi / size), of multiplicity two: its eigenvectors are the two
    coordinates of unit vectors that turn evenly, so size * lambda_max is attained.
    """
    return size * (2 + 2 * math.cos(math.pi / size))


def worst_step_interval(rows: Array, *, width: float = 1e-8, most: int = 5000) -> Interval:
    """Least of max_t |L_t C^-1|_F^2 at one participation, ``rows`` L_t of shape (T, r, T).

    With M the rows of q_t^1/2 L_t V^1/2, and its singular value decomposition U s P^T, the shares q
    become those of diag(U s U^T) and v those of diag(P s P^T); C = (s^1/2 P^T) V^-1/2 over the
    largest norm of its columns has errors |(L_t C^-1)|^2. Lower ends are squared nuclear norms."""
    steps, per_step, size = rows.shape
    q, v = np.full(steps, 1 / steps), np.full(size, 1 / size)
    lower, upper = 0.0, np.inf
    for _ in range(most):
        m = (np.sqrt(q)[:, None, None] * rows * np.sqrt(v)).reshape(-1, size)
        left, s, right = np.linalg.svd(m, full_matrices=False)
        lower = max(lower, float(s.sum()) ** 2)
        by_row = ((left * s) * left).sum(axis=1).reshape(steps, per_step).sum(axis=1)
        by_column = ((right.T * s) * right.T).sum(axis=1)
        upper = min(upper, float((by_row / q).max() * (by_column / v).max()))
        if upper <= lower * (1 + width):
            break
        q, v = by_row / s.sum(), by_column / s.sum()
    return Interval(lower=lower, upper=upper)


def worst_by_cone(
    grams: Array, patterns: list[list[int]], *, budget: Any = None, cap: float | None = None
) -> float:
    """Least s with tr(H_i Y) <= s, Y >= X^-1, diag(Y) <= cap, and 1^T y <= budget (1 each by
    default), Diag(y) >= X on every pattern."""
    import cvxpy as cp

    size, budget = len(grams[0]), np.ones(len(patterns)) if budget is None else budget
    x, y, s = (
        cp.Variable((size, size), symmetric=True),
        cp.Variable((size, size), symmetric=True),
        cp.Variable(),
    )
    held = [cp.bmat([[y, np.eye(size)], [np.eye(size), x]]) >> 0]
    held += [cp.trace(h @ y) <= s for h in grams]
    if cap is not None:
        held += [cp.diag(y) <= cap]
    for pattern, most in zip(patterns, budget, strict=True):
        share = cp.Variable(len(pattern))
        held += [cp.sum(share) <= most, cp.diag(share) - x[np.ix_(pattern, pattern)] >> 0]
    tight = {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}
    return float(cp.Problem(cp.Minimize(s), held).solve(solver=cp.CLARABEL, **tight))
