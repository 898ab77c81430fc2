"""(k, b) participation: Newton-CG on the positive semidefinite multiplier blocks.

The multiplier U has one k x k block a pattern, positive semidefinite with a constant diagonal p_j.
On that linear space 2 tr( (L U L^T)^1/2 ) - sum p_j is concave, and its gradient blows up where a
block becomes singular, so an ordinary damped Newton method that stays inside the cone is enough:
no factorised variables, nothing to overflow.

With M = L U L^T = Q diag(r^2) Q^T and P = L^T Q, the primal is X = P diag(1/r) P^T, and its change
along dU is -P (E o F) P^T with E = P^T dU P and F_kl = 1 / (r_k r_l (r_k + r_l)): two full matrix
products a conjugate-gradient step, because dU is block diagonal and only diagonal blocks of the
result are wanted.

Coordinates are ordered pattern by pattern here, so blocks are contiguous.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisedesign import _linalg, repair, settings
from noisedesign._checks import Array
from noisedesign.backends.base import Answer, Monitor, Stop
from noisedesign.formulations import DualPoint, Program
from noisedesign.participation import FixedEpoch

MAX_EVALUATIONS = 300
REACHED = 0.8
"""Share of the gap asked for at which to stop: the rest is left to the exact rescaling."""
MAX_CG_STEPS = 150
CG_FORCING = 0.2
FARTHEST = 10.0
"""Longest Newton step, as the root mean square relative change of U. It binds where H is singular
and the quadratic model flat; TO_BOUNDARY then does the rest."""
TO_BOUNDARY = 0.9
"""Fraction of the way to a singular block that one step may go."""
SUFFICIENT_ASCENT = 1e-4
VALUE_ROUNDING = 64 * settings.EPS
BOUND_WORTHWHILE = 0.05
"""Bounds cost a Cholesky factorisation: computed only where the predicted relative change of the
objective is below this, because above it they cannot stop the iteration."""


class Blocks(NamedTuple):
    """A program ordered pattern by pattern: factor L, shape (r, m), and its shape (b, k)."""

    factor: Array
    patterns: int
    epochs: int
    order: NDArray[np.intp]


class Point(NamedTuple):
    blocks: Array  # U, (b, k, k)
    root: Array  # r
    spread: Array  # P = L^T Q, (m, rank)
    gram_blocks: Array  # diagonal blocks of X, (b, k, k)
    value: float  # 2 t - sum p
    trace: float  # t
    price: float  # sum p


def _evaluate(shape: Blocks, blocks: Array) -> Point:
    """Value, gradient and spectral data; one eigendecomposition.

    Raises:
        numpy.linalg.LinAlgError: a block is not positive definite.
    """
    rows = len(shape.factor)
    split = shape.factor.reshape(rows, shape.patterns, shape.epochs).transpose(1, 0, 2)
    half = np.matmul(split, np.linalg.cholesky(blocks))
    half = np.ascontiguousarray(half.transpose(1, 0, 2)).reshape(rows, -1)
    squared, basis = np.linalg.eigh(half @ half.T)
    root = np.sqrt(np.maximum(squared, settings.EPS**2 * squared[-1]))
    spread = shape.factor.T @ basis
    panel = spread.reshape(shape.patterns, shape.epochs, -1)
    gram_blocks = np.matmul(panel / root, panel.transpose(0, 2, 1))
    trace, price = float(root.sum()), float(blocks[:, 0, 0].sum())
    return Point(blocks, root, spread, gram_blocks, 2 * trace - price, trace, price)


def _onto_constant_diagonal(blocks: Array) -> Array:
    """Orthogonal projection onto blocks whose diagonal is constant."""
    projected = blocks.copy()
    diagonal = np.einsum("jii->ji", projected)
    diagonal[:] = diagonal.mean(axis=1, keepdims=True)
    return projected


class _Preconditioner:
    """R -> U (R + diag(m)) U, with m chosen to keep the diagonal constant.

    The Hessian of the concave objective behaves like U^-1 (.) U^-1 near the boundary of the cone;
    m is the multiplier of the diagonal constraint in that metric.
    """

    def __init__(self, blocks: Array) -> None:
        self.blocks = blocks
        k = blocks.shape[1]
        bordered = np.zeros((len(blocks), k + 1, k + 1))
        bordered[:, :k, :k] = np.square(blocks)
        bordered[:, :k, k] = -1.0
        bordered[:, k, :k] = 1.0
        self.multiplier = np.linalg.inv(bordered)[:, :k, :k]

    def __call__(self, residual: Array) -> Array:
        scaled = self.blocks @ residual @ self.blocks
        shift = -np.matmul(self.multiplier, np.einsum("jii->ji", scaled)[..., None])[..., 0]
        # The multiplier makes the diagonal constant up to rounding, which would build up.
        return _onto_constant_diagonal(scaled + (self.blocks * shift[:, None, :]) @ self.blocks)


def _newton_direction(shape: Blocks, point: Point, gradient: Array) -> tuple[Array, float]:
    """Direction from the Newton system, and the ascent it predicts."""
    size = len(point.spread)
    panel = point.spread.reshape(shape.patterns, shape.epochs, -1)
    transposed = np.ascontiguousarray(panel.transpose(0, 2, 1))
    root = point.root
    curvature = 1 / (np.multiply.outer(root, root) * np.add.outer(root, root))

    def product(direction: Array) -> Array:
        inner = point.spread.T @ np.matmul(direction, panel).reshape(size, -1)
        inner *= curvature
        outer = (point.spread @ inner).reshape(shape.patterns, shape.epochs, -1)
        return _onto_constant_diagonal(np.matmul(outer, transposed))

    precondition = _Preconditioner(point.blocks)
    x = np.zeros_like(gradient)
    residual = gradient.copy()
    step = precondition(residual)
    size_now = start = float(np.vdot(residual, step))
    if not start > 0:
        return x, 0.0
    # start is the squared Newton decrement in the preconditioned metric: relative to the price it
    # tells how far the optimum is, and so how accurate a step is worth paying for.
    forcing = min(CG_FORCING, float(np.sqrt(start / point.price)))
    # Squared norms in that metric, where they are relative changes of U: of x, of the step, and
    # their inner product, by recursion (Steihaug 1983).
    radius = FARTHEST**2 * size
    of_x, of_step, between = 0.0, start, 0.0
    for _ in range(MAX_CG_STEPS):
        image = product(step)
        along = float(np.vdot(step, image))
        length = size_now / along if along > 0 else np.inf
        if not of_x + 2 * length * between + length**2 * of_step <= radius:
            root = np.sqrt(between**2 + of_step * (radius - of_x))
            x += (root - between) / of_step * step
            break
        x += length * step
        of_x += 2 * length * between + length**2 * of_step
        residual -= length * image
        preconditioned = precondition(residual)
        previous, size_now = size_now, float(np.vdot(residual, preconditioned))
        if size_now <= forcing**2 * start:
            break
        ratio = size_now / previous
        step = preconditioned + ratio * step
        between = ratio * (between + length * of_step)
        of_step = size_now + ratio**2 * of_step
    return x, float(np.vdot(gradient, x))


def _longest_step(blocks: Array, direction: Array) -> float:
    """Step to the boundary of the cone, times TO_BOUNDARY, at most 1."""
    inverse = np.linalg.inv(np.linalg.cholesky(blocks))
    relative = inverse @ direction @ inverse.transpose(0, 2, 1)
    lowest = float(np.linalg.eigvalsh(relative).min())
    return 1.0 if lowest >= -TO_BOUNDARY else -TO_BOUNDARY / lowest


def _gram(shape: Blocks, point: Point) -> Array:
    """X(U), pattern by pattern."""
    return np.asarray((point.spread / point.root) @ point.spread.T)


def _bounds(shape: Blocks, point: Point) -> tuple[float, float]:
    """t^2 / sum(p), and the objective of X made feasible.

    Forbidden entries are dropped and patterns rescaled; where H is singular X is lifted instead,
    because dropping takes it out of the range of H.
    """
    if len(shape.factor) < len(point.spread):
        gram = _lifted(shape, point)
    else:
        gram = _gram(shape, point)
        for j in range(shape.patterns):
            span = slice(j * shape.epochs, (j + 1) * shape.epochs)
            gram[span, span] = np.diag(np.diagonal(gram)[span])
        per_pattern = np.diagonal(gram).reshape(shape.patterns, shape.epochs).sum(axis=1)
        scale = 1 / np.sqrt(np.repeat(per_pattern, shape.epochs))
        gram = gram * scale[:, None] * scale
    try:
        inverse = np.linalg.inv(np.linalg.cholesky(gram))
    except np.linalg.LinAlgError:
        return point.trace**2 / point.price, np.inf
    upper = float(np.square(shape.factor @ inverse.T).sum())
    return point.trace**2 / point.price, upper


def _lifted(shape: Blocks, point: Point) -> Array:
    """X(U) with every pattern raised to a diagonal, by the repair that is used on the answer."""
    program = Program(
        gram=shape.factor.T @ shape.factor,
        participation=FixedEpoch(epochs=shape.epochs, separation=shape.patterns),
        budget=np.ones(shape.patterns),
    )
    by_step = np.argsort(program.participation.patterns.ravel())
    gram = _gram(shape, point)[np.ix_(by_step, by_step)]
    lifted = repair.lifted(program, gram, dual=DualPoint(blocks=point.blocks))
    order = program.participation.patterns.ravel()
    return np.asarray(lifted[np.ix_(order, order)])


def _start(shape: Blocks) -> Array:
    """Diagonal blocks p_j proportional to the mean root of the workload's diagonal."""
    weights = np.sqrt(np.square(shape.factor).sum(axis=0))
    p = weights.reshape(shape.patterns, shape.epochs).mean(axis=1)
    p = np.maximum(p, settings.EPS * p.max())  # a pattern that costs nothing is still positive
    return np.asarray(p[:, None, None] * np.eye(shape.epochs))


def _rescaled(point: Point) -> Point:
    """The point at its best scale, where t equals the price."""
    scale = (point.trace / point.price) ** 2
    root_scale = np.sqrt(scale)
    trace = point.trace * float(root_scale)
    return Point(
        point.blocks * scale, point.root * root_scale, point.spread,
        point.gram_blocks / root_scale, trace, trace, trace,
    )  # fmt: skip


def _advance(
    shape: Blocks, point: Point, direction: Array, predicted: float
) -> tuple[Point | None, int]:
    """Backtrack along a direction; None where no step ascends. Also counts evaluations."""
    length, evaluations = _longest_step(point.blocks, direction), 0
    while length > settings.EPS:
        evaluations += 1
        wanted = point.value + SUFFICIENT_ASCENT * length * predicted
        try:
            trial = _evaluate(shape, point.blocks + length * direction)
            if trial.value >= wanted - VALUE_ROUNDING * abs(point.value):
                return _rescaled(trial), evaluations
        except np.linalg.LinAlgError:
            pass  # outside the cone
        length /= 4
    return None, evaluations


def solve(program: Program, *, monitor: Monitor) -> Answer:
    """Solve a normalised program under (k, b) participation.

    Raises:
        InputError: a checkpoint of another program, or a damaged one.
    """
    k, b = program.participation.epochs, program.participation.separation
    order = program.participation.patterns.ravel()
    shape = Blocks(np.ascontiguousarray(program.factor[:, order]), b, k, order)
    kept = monitor.resumed(program)
    point = _rescaled(_evaluate(shape, _start(shape) if kept is None else kept))
    best, best_ratio, evaluations, stop = point, np.inf, 1, Stop.INACCURATE
    predicted = np.inf if kept is None else 0.0  # multipliers that were kept may be good already
    try:
        while evaluations < MAX_EVALUATIONS:
            if predicted <= BOUND_WORTHWHILE * point.price or monitor.expired:
                lower, upper = _bounds(shape, point)
                if upper / lower <= best_ratio:
                    best, best_ratio = point, upper / lower
                monitor.report(lower=lower, upper=upper)
                if upper - lower <= REACHED * monitor.gap * lower:
                    stop = Stop.SOLVED
                    break
            if monitor.due:
                monitor.keep(program, best.blocks)
            if monitor.expired:
                stop = Stop.TIME_LIMIT
                break
            gradient = point.gram_blocks.copy()
            np.einsum("jii->ji", gradient)[:] -= 1.0 / k
            gradient = _onto_constant_diagonal(gradient)
            direction, predicted = _newton_direction(shape, point, gradient)
            if predicted <= settings.EPS * point.price:
                break
            advanced, used = _advance(shape, point, direction, predicted)
            evaluations += used
            if advanced is None:
                break
            point = advanced
            if best_ratio == np.inf:
                best = point
    except KeyboardInterrupt:
        stop = Stop.INTERRUPTED
    except np.linalg.LinAlgError:
        stop = Stop.INACCURATE  # a block met the boundary of the cone: H is singular
    return _answer(shape, best, stop, evaluations)


def _answer(shape: Blocks, point: Point, stop: Stop, evaluations: int) -> Answer:
    """X in the order of the steps; the blocks already are pattern by pattern."""
    gram = np.empty((len(point.spread), len(point.spread)))
    gram[np.ix_(shape.order, shape.order)] = _gram(shape, point)
    return Answer(
        stop=stop, gram=_linalg.symmetrized(gram), dual=DualPoint(blocks=point.blocks),
        evaluations=evaluations,
    )  # fmt: skip
