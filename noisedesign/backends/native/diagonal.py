"""Diagonal budgets: Newton-CG on the logarithm of the multipliers.

With D = diag(v) and S = (D^1/2 H D^1/2)^1/2 = Q diag(r) Q^T, the dual bound is t^2 / sum(v),
t = tr S. In u = log v its logarithm is

    phi(u) = 2 log t - log sum(v),     gradient  diag(S) / t - v / sum(v),

and its curvature along x is diag(dS) / t less rank-one terms, where

    dS = Q (F o Q^T diag(x) Q) Q^T,    F_kl = (r_k^2 + r_l^2) / (2 (r_k + r_l)),

so that a conjugate-gradient step costs two matrix products and no eigendecomposition. A singular
H is harmless: r_k = 0 only makes entries of F vanish.

The fixed point v <- diag(S) needs no curvature and always makes sense; it is the safeguard where
a Newton step does not ascend, and the oracle the tests compare with.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from noisedesign import _linalg, repair, settings
from noisedesign._checks import Array
from noisedesign.backends.base import Answer, Monitor, Stop
from noisedesign.formulations import Program, diagonal_dual

MAX_EVALUATIONS = 500
MAX_CG_STEPS = 200
REACHED = 0.8
"""Share of the gap asked for at which to stop: the rest is left to the exact rescaling."""
FIXED_POINT_ABOVE = 0.7
"""Gap above which the quadratic model is no guide: the fixed point is as good and costs no
products."""
SLACK_CLEAR = 0.05
SLACK_OVER_ERROR = 100.0
"""How far, in itself and over the present gap, a budget has to stay
from being used up to count as slack and not as unfinished."""
RESCALING_PAYS = 0.01
"""Gap of the cheap bound below which the dear one, about its square, is worth a matrix product."""
STALL_BELOW = 1e-7
"""A gap that stops shrinking below this is held up by rounding, not by the method."""
CG_FORCING = 0.3
"""A Newton system is solved to min(this, sqrt of the gradient norm): superlinear, not wasteful."""
CG_FLOOR = 0.1
"""Share of the gap asked for below which a Newton system is solved well enough, once every budget
is active. A multiplier that is to vanish has a vanishing share in the residual and needs more."""
MAX_LOG_STEP = 3.0
"""Longest move of one log v in one step: beyond e^3 the quadratic model means nothing."""
DIAGONAL_TRUSTED = 1e-8
"""Relative error of diag(S) above which singular values of L D^1/2 replace eigenvalues of
D^1/2 H D^1/2: dearer, but nothing is squared. It takes a W that is nearly singular along a
direction that some vanishing multiplier singles out."""
ASCENT_SLACK = 32 * settings.EPS
"""phi is a sum of rounded terms; a step that lowers it by less than this has not failed."""


class Point(NamedTuple):
    """One eigendecomposition and what follows from it."""

    log_v: Array
    v: Array
    root: Array  # r, eigenvalues of S
    basis: Array  # Q
    diag: Array  # diag(S)
    trace: float  # t
    phi: float


def evaluate(program: Program, log_v: Array) -> Point:
    """Value and gradient data at v = exp(log_v): one eigendecomposition."""
    log_v = log_v - log_v.max()
    v = np.exp(log_v)
    root_v = np.sqrt(v)
    squared, basis = np.linalg.eigh(program.gram * root_v[:, None] * root_v)
    root = np.sqrt(np.maximum(squared, 0.0))
    weights = np.square(basis)
    diag = weights @ root
    noise = 8 * settings.EPS * squared[-1]
    error = weights @ (noise / np.maximum(2 * root, np.sqrt(noise)))
    if (error > DIAGONAL_TRUSTED * diag).any():
        root, basis = _singular(program.factor * root_v)
        diag = np.square(basis) @ root
    trace = float(root.sum())
    return Point(log_v, v, root, basis, diag, trace, 2 * np.log(trace) - np.log(v.sum()))


def _singular(half: Array) -> tuple[Array, Array]:
    """Eigenvalues and basis of (half^T half)^1/2, ascending, without squaring."""
    _, values, right = np.linalg.svd(half)
    root = np.zeros(half.shape[1])
    root[: len(values)] = values
    root[root < settings.rank_tolerance(len(root)) * root[0]] = 0.0
    return root[::-1], right[::-1].T


def bounds(program: Program, point: Point) -> tuple[float, float]:
    """Lower bound t^2 / sum(v) and the objective of X(v) made feasible, the cheapest way first."""
    ratio = point.diag / point.v  # X_ii, up to scale
    lower = point.trace**2 / float(point.v.sum())
    upper = point.trace * float(ratio.max())  # X / max X_ii, valid whatever the rank of H
    if point.root[0] > 0 and upper < lower * (1 + RESCALING_PAYS):
        # Rows rescaled one by one: second order in the error of v, where the above is first.
        mixed = (point.basis.T * np.sqrt(ratio)) @ point.basis
        upper = min(upper, float((np.square(mixed) @ np.square(point.root)) @ (1 / point.root)))
    if _slack(point) and program.null_space.shape[1] == 0:
        # Rescaling uses up budgets that are slack; the repair of the answer knows better. With H
        # singular a looser bound is wanted: whether noise diverges is read off a tight v.
        gram = repair.feasible_gram(program, _gram(point))
        if gram is not None:
            inverse = _linalg.inverse_of_positive(gram)
            upper = min(upper, float(np.sum(program.gram * inverse)))
    return lower, upper


def _slack(point: Point) -> bool:
    """Whether some budget is far from used up at X(v), and not because v is."""
    ratio = point.diag / point.v
    largest = float(ratio.max())
    error = largest * float(point.v.sum()) / point.trace - 1  # gap of X / max X_ii
    unused = 1 - float(ratio.min()) / largest
    return unused > max(SLACK_CLEAR, SLACK_OVER_ERROR * error)


def _gram(point: Point) -> Array:
    """X(v) = D^-1/2 S D^-1/2, with a positive diagonal.

    Where nothing has a price X vanishes; the slack that leaves is filled by whoever repairs it.
    """
    scaled = point.basis / np.sqrt(point.v)[:, None]
    gram = np.asarray((scaled * point.root) @ scaled.T)
    diagonal = np.diagonal(gram)
    np.fill_diagonal(gram, np.maximum(diagonal, settings.EPS * diagonal.max()))
    return gram


def _newton_direction(point: Point, gradient: Array, *, enough: float) -> Array | None:
    """Approximate solution of -Hessian x = gradient, or None on negative curvature at once."""
    r, q, t = point.root, point.basis, point.trace
    squares = np.square(r)
    # Where r_k = r_l = 0 so is F_kl: the floor only keeps the division defined.
    sums = np.maximum(r[:, None] + r, np.finfo(np.float64).tiny)
    curvature = (squares[:, None] + squares) / (2 * t * sums)
    share, weight = point.diag / t, point.v / point.v.sum()

    def product(x: Array) -> Array:
        inner = ((q.T * x) @ q) * curvature
        second = np.einsum("ij,ij->i", q @ inner, q)
        return np.asarray(
            weight * x - weight * (weight @ x) + share * (share @ x) / 2 - second
        )  # fmt: skip

    x = np.zeros_like(gradient)
    residual = gradient.copy()
    scale = 1 / np.maximum(
        share, settings.EPS
    )  # the Hessian is near -diag(share) / 2 where H is near diagonal
    step = scale * residual
    size = start = float(residual @ step)
    # In the metric of the preconditioner sqrt(start) is the relative change of v still to make, and
    # its square the relative gap: below ``enough`` of it nothing more is asked for.
    target = max(min(CG_FORCING, float(np.sqrt(start))) ** 2 * start, enough)
    for _ in range(MAX_CG_STEPS):
        image = product(step)
        along = float(step @ image)
        if along <= 0:
            break
        length = size / along
        x += length * step
        residual -= length * image
        preconditioned = scale * residual
        previous, size = size, float(residual @ preconditioned)
        if size <= target:
            break
        step = preconditioned + size / previous * step
    return x if x.any() else None


def _advance(program: Program, point: Point, *, gap: float) -> tuple[Point, int]:
    """The next point and the eigendecompositions it took."""
    gradient = point.diag / point.trace - point.v / point.v.sum()
    enough = 0.0 if _slack(point) else CG_FLOOR * gap
    direction = _newton_direction(point, gradient, enough=enough)
    if direction is not None:
        direction *= min(1.0, MAX_LOG_STEP / float(np.abs(direction).max()))
        for quarterings in range(3):
            trial = evaluate(program, point.log_v + direction / 4**quarterings)
            if trial.phi >= point.phi - ASCENT_SLACK * abs(point.phi):
                return trial, quarterings + 1
    return _fixed_point_step(program, point), 1 if direction is None else 4


def _fixed_point_step(program: Program, point: Point) -> Point:
    """v <- diag(S)."""
    positive = np.maximum(point.diag, settings.EPS * point.diag.max())
    return evaluate(program, np.log(positive))


def _start(program: Program) -> Array:
    """log v for v = diag(H)^1/2; a coordinate that costs nothing gets next to no weight."""
    diagonal = np.diagonal(program.gram)
    return np.asarray(np.log(np.maximum(diagonal, settings.EPS**2 * diagonal.max())) / 2)


def fixed_point(program: Program, *, gap: float, max_evaluations: int = 10_000) -> Array:
    """Multipliers v by v <- diag(S) alone, shape (n,): slow, short and hard to get wrong."""
    point = evaluate(program, _start(program))
    for _ in range(max_evaluations):
        lower, upper = bounds(program, point)
        if upper <= lower * (1 + gap):
            break
        point = _fixed_point_step(program, point)
    return point.v


def solve(program: Program, *, monitor: Monitor) -> Answer:
    """Solve a normalised program of single participation without a cap."""
    point = evaluate(program, _start(program))
    best, best_gap, evaluations, stop = point, np.inf, 1, Stop.INACCURATE
    stalls = 0
    try:
        while evaluations < MAX_EVALUATIONS:
            lower, upper = bounds(program, point)
            monitor.report(lower=lower, upper=upper)
            gap = upper / lower - 1
            if gap <= REACHED * monitor.gap:
                best, stop = point, Stop.SOLVED
                break
            if monitor.expired:
                stop = Stop.TIME_LIMIT
                break
            # Newton at least halves a small gap unless rounding is in its way.
            stalls = stalls + 1 if gap < STALL_BELOW and gap > best_gap / 2 else 0
            if stalls > 2:
                break
            if gap < best_gap:
                best, best_gap = point, gap
            if gap > FIXED_POINT_ABOVE:
                point, used = _fixed_point_step(program, point), 1
            else:
                point, used = _advance(program, point, gap=monitor.gap)
            evaluations += used
    except KeyboardInterrupt:
        stop = Stop.INTERRUPTED
    return Answer(
        stop=stop, gram=_gram(best), dual=diagonal_dual(best.v), evaluations=evaluations
    )  # fmt: skip
