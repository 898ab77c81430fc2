"""(k, b) participation: Newton-CG on the positive semidefinite multiplier blocks.

The multiplier U has one k x k block a pattern, positive semidefinite with a constant diagonal p_j.
2 tr( (L U L^T)^1/2 ) - sum p_j is concave, and its gradient blows up where a block is singular, so
a damped Newton method that stays inside the cone is enough. Coordinates are ordered pattern by
pattern. With M = L U L^T = Q diag(r^2) Q^T and P = L^T Q, X is P diag(1/r) P^T and its change along
dU -P (E o F) P^T with E = P^T dU P and F_kl = 1 / (r_k r_l (r_k + r_l)); the diagonal blocks of Z =
P diag(r)^-3/2 P^T make the preconditioner (docs/methods/solvers.md, "Blocks")."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from noisedesign.base import linalg as _linalg, settings
from noisedesign.base.device import (
    CPU,
    Device,
    DeviceArray,
    cholesky,
    cholesky_of,
    conjugate_gradients,
    eigh,
    identity,
    inner_product,
    namespace,
    on_host,
    squared_norm,
)
from noisedesign.base.monitor import REACHED, Monitor, Search
from noisedesign.certify.program import DualPoint, Program
from noisedesign.families.disjoint.program import Found
from noisedesign.families.disjoint.solver.pattern_pairs import (
    ConstantDiagonal,
    onto_constant_diagonal,
)

MAX_EVALUATIONS = 300
TO_BOUNDARY = 0.9
SUFFICIENT_ASCENT = 1e-4
CORRELATED = 0.95
CG_FORCING = 0.2  # relative accuracy of a Newton system at most; else the decrement


class Blocks(NamedTuple):
    """A program ordered pattern by pattern: factor L, shape (r, m), and its shape (b, k)."""

    factor: DeviceArray
    patterns: int
    epochs: int


class Point(NamedTuple):
    blocks: DeviceArray  # U, (b, k, k)
    root: DeviceArray  # r
    spread: DeviceArray  # P = L^T Q, (m, rank)
    gram_blocks: DeviceArray  # diagonal blocks of X, (b, k, k)
    value: float  # 2 t - sum p
    trace: float  # t
    price: float  # sum p


def _evaluate(shape: Blocks, blocks: DeviceArray) -> Point:
    """Value, gradient, spectral data; LinAlgError where a block is not positive definite."""
    xp = namespace(shape.factor, blocks)
    rows = shape.factor.shape[0]
    split = xp.reshape(shape.factor, (rows, shape.patterns, shape.epochs))
    half = xp.permute_dims(split, (1, 0, 2)) @ cholesky_of(blocks)
    half = xp.reshape(xp.permute_dims(half, (1, 0, 2)), (rows, -1))
    squared = half @ half.T
    del half  # freed early: peak memory
    squared, basis = eigh(squared)
    root = xp.sqrt(xp.maximum(squared, settings.EPS**2 * float(squared[-1])))
    spread = shape.factor.T @ basis
    del basis
    panel = xp.reshape(spread, (shape.patterns, shape.epochs, -1))
    gram_blocks = (panel / root) @ xp.permute_dims(panel, (0, 2, 1))
    trace, price = float(xp.sum(root)), float(xp.sum(blocks[:, 0, 0]))
    return Point(blocks, root, spread, gram_blocks, 2 * trace - price, trace, price)


def _longest_step(blocks: DeviceArray, direction: DeviceArray) -> float:
    """The step to a singular block, less a margin, at most 1."""
    xp = namespace(blocks, direction)
    inverse = xp.linalg.inv(cholesky_of(blocks))
    relative = inverse @ direction @ xp.permute_dims(inverse, (0, 2, 1))
    lowest = float(xp.min(xp.linalg.eigvalsh(relative)))
    return 1.0 if lowest >= -TO_BOUNDARY else -TO_BOUNDARY / lowest


def _gram(point: Point) -> DeviceArray:
    """X(U), pattern by pattern."""
    return (point.spread / point.root) @ point.spread.T


def _bounds(shape: Blocks, point: Point) -> tuple[float, float]:
    """t^2 / sum(p), and the objective of X with forbidden entries dropped and patterns rescaled."""
    xp, gram = namespace(point.spread), _gram(point)
    diagonal = xp.reshape(xp.linalg.diagonal(gram), (shape.patterns, shape.epochs))
    scale = 1 / xp.sqrt(xp.sum(diagonal, axis=1))
    kept = diagonal[:, :, None] * identity(shape.epochs, like=gram)
    for j in range(shape.patterns):
        span = slice(j * shape.epochs, (j + 1) * shape.epochs)
        gram[span, span] = kept[j, :, :]
    each = xp.reshape(scale[:, None] + 0 * diagonal, (-1,))
    gram *= each
    gram *= each[:, None]
    try:
        lower = cholesky(gram)
    except np.linalg.LinAlgError:
        return point.trace**2 / point.price, np.inf
    del gram
    inverse = _linalg.inverse_of_triangular(lower, invert=xp.linalg.inv).T
    return point.trace**2 / point.price, squared_norm(shape.factor, inverse)


def _start(shape: Blocks) -> DeviceArray:
    """Multipliers near the correlations of patterns' blocks of H, best for a block diagonal H."""
    xp = namespace(shape.factor)
    split = xp.reshape(shape.factor, (-1, shape.patterns, shape.epochs))
    split = xp.permute_dims(split, (1, 0, 2))
    grams = xp.matmul(xp.matrix_transpose(split), split)
    weights = xp.sqrt(xp.linalg.diagonal(grams))
    # What costs nothing is still positive: a step as well as a pattern.
    weights = xp.maximum(weights, settings.EPS * xp.max(weights))
    grams = grams / weights[:, :, None] / weights[:, None, :]
    unit = identity(shape.epochs, like=shape.factor)
    correlations = grams * (1 - unit) + unit
    p = xp.mean(weights, axis=1)
    return p[:, None, None] * (CORRELATED * correlations + (1 - CORRELATED) * unit)


def _rescaled(point: Point) -> Point:
    """The point at its best scale, where t equals the price."""
    root = point.trace / point.price
    trace = point.trace * root
    return point._replace(
        blocks=point.blocks * root**2,
        root=point.root * root,
        gram_blocks=point.gram_blocks / root,
        value=trace,
        trace=trace,
        price=trace,
    )


def _advance(
    shape: Blocks, point: Point, direction: DeviceArray, predicted: float
) -> tuple[Point | None, int]:
    """Backtrack along a direction; None where no step ascends. Also counts evaluations. Where H
    spans many magnitudes, the rounding of a value is larger than what is left to gain, and slopes
    still tell: a concave function with a slope of -s there has lost at most s a unit."""
    length, evaluations = _longest_step(point.blocks, direction), 0
    free = identity(shape.epochs, like=direction) / shape.epochs
    while length > settings.EPS:
        evaluations += 1
        wanted = point.value + SUFFICIENT_ASCENT * length * predicted
        try:
            trial = _evaluate(shape, point.blocks + length * direction)
            slope = float(namespace(direction).sum((trial.gram_blocks - free) * direction))
            higher = trial.value >= wanted - 64 * settings.EPS * abs(point.value)
            if higher or slope >= -SUFFICIENT_ASCENT * predicted:
                return _rescaled(trial), evaluations
        except np.linalg.LinAlgError:
            pass  # outside the cone
        length /= 4
    return None, evaluations


def _preconditioner(shape: Blocks, point: Point) -> ConstantDiagonal:
    """The inverse of Z_jj (.) Z_jj / 2 on blocks, or, of a nearly singular H, of U^-1 (.) U^-1."""
    xp = namespace(point.blocks)
    size, rank = point.spread.shape
    rounding = settings.rank_tolerance(size) * float(point.root[-1]) ** 2
    if float(point.root[0]) ** 2 <= rounding:
        mean = point.trace / (2 * rank)
        return ConstantDiagonal(point.blocks / float(np.sqrt(mean)))
    panel = xp.reshape(point.spread, (shape.patterns, shape.epochs, -1))
    curvature = (panel / point.root**1.5) @ xp.permute_dims(panel, (0, 2, 1))
    share = xp.sum(curvature * point.blocks, axis=(1, 2)) / shape.epochs
    # A share of the curvature of the boundary of the cone holds where that of the objective
    # vanishes.
    curvature += 0.03 * share[:, None, None] * xp.linalg.inv(point.blocks)
    return ConstantDiagonal(2**0.5 * xp.linalg.inv(curvature))


def newton_direction(
    shape: Blocks, point: Point, gradient: DeviceArray, *, enough: float
) -> tuple[DeviceArray, float]:
    """Direction from the Newton system, and the ascent it predicts."""
    xp = namespace(gradient)
    size, rank = point.spread.shape
    panel = xp.reshape(point.spread, (shape.patterns, shape.epochs, rank))
    transposed, root = xp.permute_dims(panel, (0, 2, 1)), point.root
    curvature = root[:, None] + root
    curvature *= root
    curvature *= root[:, None]
    curvature **= -1.0

    def product(direction: DeviceArray) -> DeviceArray:
        inner = point.spread.T @ xp.reshape(direction @ panel, (size, rank))
        inner *= curvature
        outer = xp.reshape(point.spread @ inner, (shape.patterns, shape.epochs, rank))
        return onto_constant_diagonal(outer @ transposed)

    precondition = _preconditioner(shape, point)
    step = precondition(gradient)
    start = inner_product(gradient, step)
    if not start > 0:
        return xp.zeros_like(gradient), 0.0
    # start is the squared Newton decrement in the preconditioned metric: relative to the price it
    # tells how far the optimum is, and so how accurate a step is worth paying for.
    forcing = min(CG_FORCING, float(np.sqrt(start / point.price)))

    def flat(of: Callable[[DeviceArray], DeviceArray]) -> Callable[[DeviceArray], DeviceArray]:
        return lambda x: xp.reshape(of(xp.reshape(x, gradient.shape)), (-1,))

    x = conjugate_gradients(
        flat(product),
        flat(precondition),
        right=xp.reshape(gradient, (-1,)),
        preconditioned=xp.reshape(step, (-1,)),
        target=max(forcing**2 * start, enough * point.price),
        most=150,
    ).x
    x = xp.reshape(x, gradient.shape)
    return x, inner_product(gradient, x)


def solve(program: Program, *, monitor: Monitor, device: Device = CPU) -> Found:
    """Solve a normalised program under (k, b) participation, H regular, on ``device``."""
    k, b = program.participation.epochs, program.participation.separation
    order = program.participation.patterns.ravel()
    factor = np.ascontiguousarray(program.factor[:, order])
    shape = Blocks(device.put(factor), b, k)
    least, solved = k * float(np.square(factor).sum()), False  # independent noise, X = I / k
    del factor
    kept = monitor.resumed(program)
    point = _rescaled(_evaluate(shape, _start(shape) if kept is None else device.put(kept)))
    best, best_ratio, evaluations = point, np.inf, 1
    predicted = np.inf if kept is None else 0.0  # multipliers that were kept may be good already
    with Search(monitor) as search:  # singular: a block met the boundary of the cone
        while evaluations < MAX_EVALUATIONS:
            # Bounds cost matrix products, and cannot stop the iteration after a longer step.
            near = predicted <= 5.0 * np.sqrt(monitor.gap) * point.price
            if near or monitor.expired:
                lower, upper = _bounds(shape, point)
                if upper / lower <= best_ratio:
                    best, best_ratio = point, upper / lower
                least = min(least, upper)
                solved = upper - lower <= REACHED * monitor.gap * lower
            monitor.report(lower=point.trace**2 / point.price, upper=least)
            if not solved and monitor.due:
                monitor.keep(program, on_host(best.blocks))
            if search.ended(solved=solved):
                break
            free = identity(k, like=point.blocks) / k
            gradient = onto_constant_diagonal(point.gram_blocks - free)
            close = predicted <= monitor.gap * point.price  # and yet the bounds are not
            direction, predicted = newton_direction(
                shape, point, gradient, enough=0.0 if close else 0.02 * monitor.gap
            )
            if predicted <= settings.EPS * point.price:
                if near:
                    break
                continue  # the optimum from the start, whose bounds are still to be computed
            advanced, used = _advance(shape, point, direction, predicted)
            evaluations += used
            if advanced is None:
                break
            point = advanced
            if best_ratio == np.inf:
                best = point
    # X in the order of the steps; the blocks already are pattern by pattern.
    gram = np.empty((len(order), len(order)))
    gram[np.ix_(order, order)] = on_host(_gram(best))
    dual = DualPoint(blocks=on_host(best.blocks))
    return Found(stop=search.stop, gram=_linalg.symmetric(gram), dual=dual, evaluations=evaluations)
