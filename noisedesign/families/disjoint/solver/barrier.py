"""Diagonal budgets and a singular H: the central path of the dual, on matrices of the rank of H.

With H = L^T L, L of full row rank r < n, and K = L D L^T, D = diag(v), the dual is

    maximise  2 tr(K^1/2) - sum(v),  slopes x_i - 1,  x = diag(X(v)),  X(v) = L^T K^-1/2 L.

Budgets that stay slack have v_i = 0 at the optimum, where log v runs away: mu sum(log v) is added.
The best v then satisfies v_i (1 - x_i(v)) = mu, and X(v) + diag(1 - x) is feasible and positive
definite (docs/methods/solvers.md, "Singular H"). One eigendecomposition, of size r, gives the
slopes d_i = v_i (1 - x_i) and the curvature J of t = tr(K^1/2) in log v. The model d + J (z - 1) =
mu / z in z = v_new / v is solved by a primal-dual interior-point method that needs no further one.
Steps are straight in v as K is, so that the model is exact where K stays the same."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg

from noisedesign.base import eigenvalue_pairs as pairs, settings
from noisedesign.base.checks import Array
from noisedesign.base.monitor import REACHED, Monitor, Search
from noisedesign.certify.program import Program, diagonal_dual
from noisedesign.families.disjoint.program import Found
from noisedesign.families.disjoint.solver.frame import longest

MAX_EVALUATIONS = 40
AIM = 0.5  # share of the gap asked for at the end of the path: a smaller one takes larger noise
START_SHARE = 0.1  # slack the model starts from, over that on the path at the present gap
CENTRED = 0.3  # relative error of the complementarity products at which a model is solved
ROUNDING_PER_GAP = 1e-2  # rounding of x, over the gap, above which nothing is squared
CURVED = 1e-5  # relative error of the curvature; of the answer there is none
TINY = float(np.finfo(np.float64).tiny)


class Point(NamedTuple):
    """One decomposition K = P diag(s^2) P^T and what follows: B = P^T L and x."""

    v: Array
    root: Array  # s, shape (r,)
    base: Array  # B, shape (r, n)
    used: Array  # x, shape (n,)

    @property
    def trace(self) -> float:
        return float(self.root.sum())

    @property
    def lower(self) -> float:
        return self.trace**2 / float(self.v.sum())

    @property
    def distance(self) -> float:
        """Relative gap of X(v) / max x, which is feasible where singular noise is."""
        return max(0.0, float(self.used.max() * self.v.sum()) / self.trace - 1)

    def scaled(self, factor: float) -> Point:
        """The same at ``factor`` times v."""
        half = factor**0.5
        return Point(self.v * factor, self.root * half, self.base, self.used / half)


def factor_of(program: Program) -> Array:
    """L of full row rank r with L^T L = H, shape (r, n)."""
    rank, factor = program.size - program.null_space.shape[1], program.factor
    if len(factor) == rank:
        return factor
    return np.asarray(np.linalg.svd(factor)[0][:, :rank].T @ factor)


def evaluate(factor: Array, v: Array, *, negligible: float) -> Point:
    """x(v) and the decomposition it takes; its rounding is kept below ``negligible``."""
    squared, basis = np.linalg.eigh((factor * v) @ factor.T)
    noise = 8 * settings.EPS * squared[-1]
    if squared[0] > noise:
        root, base = np.sqrt(squared), basis.T @ factor
        shares = np.square(base) / root[:, None]
        error = (noise / (2 * squared)) @ shares
        if error.max() <= negligible:
            return Point(v, root, base, shares.sum(axis=0))
    left, root, _ = np.linalg.svd(factor * np.sqrt(v), full_matrices=False)
    base, root = left.T @ factor, np.maximum(root, settings.EPS * root[0])
    return Point(v, root, base, (np.square(base) / root[:, None]).sum(axis=0))


def curvature(point: Point) -> Array:
    """J_ij = v_i v_j sum_ab B_ai B_bi B_aj B_bj / (s_a s_b (s_a + s_b)), shape (n, n)."""
    (found,) = pairs.sums(point.base.T, point.root, (-1,), accuracy=CURVED)
    return np.asarray(found * point.v * point.v[:, None])


def room(point: Point, *, gap: float) -> tuple[float, Array]:
    """theta and 1 - x / theta > 0: X(v) / theta + diag(1 - x / theta) is feasible."""
    largest = float(point.used.max())
    theta = 1.0 if largest < 1 else largest * (1 + ROUNDING_PER_GAP * gap + 4 * settings.EPS)
    return theta, 1 - point.used / theta


def upper_bound(point: Point, *, gap: float) -> float:
    """tr(H X^-1) = tr(S) - tr(S (S + G)^-1 S), G = B diag(slack)^-1 B^T, S = theta diag(s)."""
    theta, slack = room(point, gap=gap)
    scaled = theta * point.root
    inner = (point.base / slack) @ point.base.T + np.diag(scaled)
    saved = np.linalg.solve(np.linalg.cholesky(inner), np.diag(scaled))
    return float(scaled.sum() - np.square(saved).sum())


def gram_of(point: Point, *, gap: float) -> Array:
    """X(v) / theta + diag(1 - x / theta), shape (n, n), of unit diagonal."""
    theta, _ = room(point, gap=gap)
    half = point.base / np.sqrt(theta * point.root)[:, None]
    gram = half.T @ half
    np.fill_diagonal(gram, 1.0)
    return np.asarray(gram)


def modelled(curved: Array, slopes: Array, *, mu: float, slack: Array) -> Array:
    """z > 0 with d + J (z - 1) = mu / z, nearly, J ``curved`` and d ``slopes``, by Mehrotra's
    predictor and corrector, from z = 1 and a positive ``slack`` in the place of the left side."""
    n = len(slopes)
    z = np.ones(n)

    for _ in range(30):
        missing = slopes + curved @ (z - 1) - slack
        mean = float(z @ slack) / n
        if mean <= (1 + CENTRED) * mu and np.abs(z * (slack + missing) / mu - 1).max() < CENTRED:
            break
        system = curved.copy()
        system[np.diag_indices(n)] += slack / z
        unit = 1 / np.sqrt(np.diagonal(system))
        system *= unit
        system *= unit[:, None]
        system[np.diag_indices(n)] += 8 * settings.rank_tolerance(n)
        lower = scipy.linalg.cholesky(system, lower=True, overwrite_a=True, check_finite=False)

        def solution(right: Array, unit: Array = unit, lower: Array = lower) -> Array:
            return unit * scipy.linalg.cho_solve((lower, True), unit * right, check_finite=False)

        dz = solution(-missing - slack)
        ds = missing + curved @ dz
        length = min(1.0, longest(z, dz), longest(slack, ds))
        left = float((z + length * dz) @ (slack + length * ds)) / n
        aim = max(mu, mean * min(1.0, left / mean) ** 3)
        second = dz * ds if length > START_SHARE else 0.0
        dz = solution(-missing - slack + (aim - second) / z)
        ds = missing + curved @ dz
        length = min(1.0, 0.99 * min(longest(z, dz), longest(slack, ds)))
        z, slack = z + length * dz, slack + length * ds
    return z


def placed(point: Point, *, gap: float) -> Point:
    """The point at a scale of v near the path; itself where it comes from there."""
    slack = max(point.distance / 2, AIM * gap)
    if point.used.max() < 1 and point.v.sum() <= point.trace * (1 + 4 * slack):
        return point
    return point.scaled((float(point.used.max()) * (1 + slack)) ** 2)


def _end(point: Point, *, gap: float) -> float:
    """mu of a point on the path with AIM of the gap, were K the same there: G = K^1/2 / mu."""
    n, t, root = len(point.v), point.trace, point.root
    mu = AIM * gap * t / max(n - len(root), 1)
    while float((root / (1 + mu / root)).sum()) * (t + n * mu) > t**2 * (1 + AIM * gap):
        mu /= 2
    return mu


def _step(point: Point, *, gap: float, found: float) -> tuple[Array, Array, float]:
    """z = v_new / v from a point at the gap ``found``, a more careful z, and the mu of both."""
    n, t = len(point.v), point.trace
    # The model is in error by about the square of the gap.
    mu = max(_end(point, gap=gap), 0.05 * min(found, 1.0) ** 2 * t / n)
    slopes = point.v * (1 - point.used)
    slack = np.maximum(slopes, max(mu, START_SHARE * found * t / n))
    curved = curvature(point)
    z = np.maximum(modelled(curved, slopes, mu=mu, slack=slack), _alone(point, curved))
    # A quadratic model of -v^1/2 overshoots where v is to shrink: for a diagonal H v_i x_i^2 is the
    # end.
    return z, np.maximum(z, 0.3 * np.minimum(np.square(point.used), 1.0)), mu


def _alone(point: Point, curved: Array) -> Array:
    """The least z of nodes far from using their budgets up exactly, did no other v change: x_i goes
    as z^-a/2, where a = 2 J_ii / (v_i x_i) is at most 1 and falls with z."""
    own = np.clip(2 * np.diagonal(curved) / np.maximum(point.v * point.used, TINY), 1e-3, 1.0)
    log_used = np.log(np.maximum(point.used, TINY))
    least = np.exp(np.where(log_used < 0, 2 * log_used / own, 2 * log_used))
    # Nodes nearer than that are left to the model.
    near = np.abs(log_used) < 0.1
    return np.where(near | ((log_used > 0) & (own < 0.5)), 0.0, least)


def _advance(factor: Array, point: Point, *, gap: float, found: float) -> tuple[Point, int]:
    """The next point and the decompositions it took."""
    z, careful, mu = _step(point, gap=gap, found=found)

    def value(at: Point) -> float:
        """The dual with its barrier: no step may lower it."""
        return float(2 * at.trace - at.v.sum() + mu * np.log(at.v).sum())

    # A sum of rounded terms that is lower by less than this has not failed.
    least = value(point) - 32 * settings.EPS * point.trace
    # Far from the optimum the model is not trusted with making a multiplier as small as it likes.
    shares = [careful if point.distance > 0.1 else z]  # the best first
    shares += [1 + (careful - 1) / 4**quarterings for quarterings in range(5)]
    used, trial = 0, point
    for share in shares:
        v = np.maximum(point.v * share, TINY)
        trial = evaluate(factor, v, negligible=ROUNDING_PER_GAP * gap)
        used += 1
        if value(trial) >= least:
            break
    return trial, used


def search(program: Program, start: Array, *, monitor: Monitor) -> Found:
    """Solve a normalised program of single participation, H singular, from v of shape (n,) on."""
    gap = monitor.gap
    factor = factor_of(program)
    negligible = ROUNDING_PER_GAP * gap
    point = placed(evaluate(factor, start, negligible=negligible), gap=gap)
    best, best_gap, evaluations, stalls = point, np.inf, 1, 0
    with Search(monitor) as search:
        while True:
            lower, upper = point.lower, upper_bound(point, gap=gap)
            found = upper / lower - 1
            # A gap that stops shrinking this late is held up by rounding, not by the method.
            stalls = stalls + 1 if found < 1e-7 and found > best_gap / 2 else 0
            if found < best_gap:
                best, best_gap = point, found
            monitor.report(lower=lower, upper=upper)
            if monitor.due:
                monitor.keep(program, diagonal_dual(best.v).blocks)
            if search.ended(solved=found <= REACHED * gap):
                break
            if stalls > 2 or evaluations >= MAX_EVALUATIONS:
                break
            point, used = _advance(factor, point, gap=gap, found=found)
            evaluations += used
    gram, dual = gram_of(best, gap=gap), diagonal_dual(best.v)
    return Found(stop=search.stop, gram=gram, dual=dual, evaluations=evaluations)
