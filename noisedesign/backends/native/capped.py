"""Diagonal budgets with a cap on diag(X^-1): a primal-dual interior-point method on the dual.

The dual g(v, w) = 2 tr( (V^1/2 (H + diag(w)) V^1/2)^1/2 ) - sum v - <cap, w> is concave on
v, w > 0, with gradient (diag(X) - 1, diag(R) - cap) for X = V^-1/2 S V^-1/2 and its inverse
R = V^1/2 S^-1 V^1/2. A cap is inactive exactly where its multiplier vanishes, so the boundary
matters here and Newton steps follow the central path x s = mu instead of logarithms. Each Newton
system is solved by conjugate gradients: four matrix products a step, one eigendecomposition a
Newton step.

A singular H needs no special care: w > 0 keeps H + diag(w) positive definite.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from noisedesign import settings
from noisedesign._checks import Array
from noisedesign.backends.base import Answer, Monitor, Stop
from noisedesign.backends.native.conjugate_gradients import conjugate_gradients
from noisedesign.formulations import Program, diagonal_dual

MAX_EVALUATIONS = 200
MAX_CG_STEPS = 200
CG_RELATIVE = 1e-2
TO_BOUNDARY = 0.98
CENTERING = 0.1
"""Share of the present complementarity that the next step aims for, where steps are long."""
REACHED = 0.8
"""Share of the gap asked for at which to stop: the rest is left to the exact rescaling."""
EASE = 0.05
"""Starting cap multipliers, as a share of the mean diagonal of H."""


class Point(NamedTuple):
    """One eigendecomposition S = Q diag(r) Q^T at x = (v, w)."""

    x: Array
    root: Array
    basis: Array
    gradient: Array  # (diag(X) - 1, diag(R) - cap)
    value: float  # g
    trace: float


def evaluate(program: Program, x: Array) -> Point:
    """Dual value and gradient at x = (v, w); one eigendecomposition."""
    assert program.cap is not None
    v, w = np.split(x, 2)
    root_v = np.sqrt(v)
    shifted = program.gram * root_v[:, None] * root_v + np.diag(w * v)
    squared, basis = np.linalg.eigh(shifted)
    root = np.sqrt(np.maximum(squared, settings.EPS**2 * squared[-1]))
    weights = np.square(basis)
    gradient = np.concatenate([(weights @ root) / v - 1, (weights @ (1 / root)) * v - program.cap])
    trace = float(root.sum())
    value = 2 * trace - float(v.sum() + program.cap @ w)
    return Point(x, root, basis, gradient, value, trace)


def _newton_direction(point: Point, right: Array, barrier: Array, cap: Array) -> Array:
    """Solve (-Hessian + diag(barrier)) d = right by preconditioned conjugate gradients."""
    v = point.x[: len(cap)]
    r, q = point.root, point.basis
    sums = np.add.outer(r, r)
    squares = np.square(r)
    half_sum = np.add.outer(squares, squares) / (2 * sums)
    products = np.multiply.outer(r, r)
    precision, variance = point.gradient[: len(v)] + 1, point.gradient[len(v) :] + cap

    def product(d: Array) -> Array:
        along_v, along_w = np.split(d, 2)
        relative = along_v / v
        change = ((q.T * relative) @ q) * half_sum + ((q.T * (v * along_w)) @ q) / sums
        root_change = np.einsum("ij,ij->i", q @ change, q)
        inverse_change = -np.einsum("ij,ij->i", q @ (change / products), q)
        first = root_change / v - precision * relative
        second = relative * variance + v * inverse_change
        return np.asarray(barrier * d - np.concatenate([first, second]))

    # The scalar case of the Hessian: X / 2v along v, and R^2 (R / v) / 2 along w.
    scale = 1 / (barrier + np.concatenate([precision / v, variance**3 / v]) / 2)
    preconditioned = scale * right
    solved = conjugate_gradients(
        product, lambda residual: scale * residual, right=right, preconditioned=preconditioned,
        target=CG_RELATIVE**2 * float(right @ preconditioned), most=MAX_CG_STEPS,
    )  # fmt: skip
    return np.asarray(solved.x)


def _fraction(x: Array, d: Array) -> float:
    """Longest step that keeps x positive, times TO_BOUNDARY, at most 1."""
    falling = d < 0
    if not falling.any():
        return 1.0
    return min(1.0, TO_BOUNDARY * float(np.min(-x[falling] / d[falling])))


def bounds(program: Program, point: Point) -> tuple[float, float, Array]:
    """Lower bound at the best scale of v; objective of X made feasible; and that X."""
    assert program.cap is not None
    v, w = np.split(point.x, 2)
    lower = point.trace**2 / float(v.sum()) - float(program.cap @ w)
    scaled = point.basis / np.sqrt(v)[:, None]
    gram = (scaled * point.root) @ scaled.T
    # Budgets overdrawn are met by rescaling rows; slack ones are filled, which tilts nothing.
    rescale = 1 / np.sqrt(np.maximum(np.diagonal(gram), 1.0))
    gram *= rescale[:, None] * rescale
    np.fill_diagonal(gram, 1.0)
    inverse = np.linalg.inv(gram)
    variance = np.diagonal(inverse)
    over = variance > program.cap
    share = 0.0
    if over.any():
        # diag(X^-1) is convex in X and equals 1 at X = I.
        share = float(((variance - program.cap)[over] / (variance - 1)[over]).max())
        gram = (1 - share) * gram + share * np.eye(len(gram))
        inverse = np.linalg.inv(gram)
    return lower, float(np.sum(program.gram * inverse)), gram


def solve(program: Program, *, monitor: Monitor) -> Answer:
    """Solve a normalised program of single participation with a cap."""
    assert program.cap is not None
    diagonal = np.diagonal(program.gram)
    w = np.full(program.size, EASE * float(diagonal.mean()))
    point = evaluate(program, np.concatenate([np.sqrt(diagonal + w), w]))
    # One rescaling of v balances the price of the two groups of multipliers at the start.
    v = point.x[: program.size] * (point.trace / point.x[: program.size].sum()) ** 2
    point = evaluate(program, np.concatenate([v, w]))
    slack = np.maximum(-point.gradient, 0.1 * np.concatenate([np.ones_like(v), program.cap]))
    best, best_gram, best_gap = point, np.eye(program.size), np.inf
    evaluations, stalls, stop = 2, 0, Stop.INACCURATE
    try:
        while evaluations < MAX_EVALUATIONS:
            lower, upper, gram = bounds(program, point)
            monitor.report(lower=lower, upper=upper)
            gap = upper / lower - 1 if lower > 0 else np.inf
            stalls = 0 if gap < best_gap / 2 or not np.isfinite(gap) else stalls + 1
            if gap < best_gap:
                best, best_gram, best_gap = point, gram, gap
            if gap <= REACHED * monitor.gap:
                stop = Stop.SOLVED
                break
            if monitor.expired:
                stop = Stop.TIME_LIMIT
                break
            if stalls > 20:
                break
            mu = CENTERING * float(point.x @ slack) / len(slack)
            right = point.gradient + mu / point.x
            d = _newton_direction(point, right, slack / point.x, program.cap)
            d_slack = mu / point.x - slack - slack / point.x * d
            length = _fraction(point.x, d)
            point = evaluate(program, point.x + length * d)
            slack = slack + _fraction(slack, d_slack) * d_slack
            evaluations += 1
    except KeyboardInterrupt:
        stop = Stop.INTERRUPTED
    v, w = np.split(best.x, 2)
    return Answer(
        stop=stop, gram=best_gram, dual=diagonal_dual(v, cap=w), evaluations=evaluations
    )  # fmt: skip
