"""(k, b) participation: Newton-CG on the positive semidefinite multiplier blocks.

The multiplier U has one k x k block a pattern, positive semidefinite with a constant diagonal p_j.
On that linear space 2 tr( (L U L^T)^1/2 ) - sum p_j is concave, and its gradient blows up where a
block becomes singular, so an ordinary damped Newton method that stays inside the cone is enough:
no factorised variables, nothing to overflow.

Coordinates are ordered pattern by pattern here, so blocks are contiguous.

Newton's step for (k, b) participation: the curvature of the dual along multiplier blocks.

With M = L U L^T = Q diag(r^2) Q^T and P = L^T Q, the primal is X = P diag(1/r) P^T, and its change
along dU is -P (E o F) P^T with E = P^T dU P and F_kl = 1 / (r_k r_l (r_k + r_l)): two full matrix
products a conjugate-gradient step, because dU is block diagonal and only diagonal blocks of the
result are wanted.

Since F_kl <= (r_k r_l)^-3/2 / 2, that is at most Z dU Z / 2 with Z = P diag(r)^-3/2 P^T. The
diagonal blocks of Z make a preconditioner that serves as well where blocks of U are all but
singular, as those of many epochs are.
"""

from __future__ import annotations

from typing import NamedTuple

import array_api_compat
import numpy as np

from noisedesign.base import linalg as _linalg, settings
from noisedesign.base.device import (
    CPU,
    Device,
    DeviceArray,
    cholesky,
    cholesky_of,
    eigh,
    identity,
    inner_product,
    namespace,
    on_host,
    squared_norm,
)
from noisedesign.base.monitor import REACHED, Monitor, Search
from noisedesign.families.disjoint.program import Found
from noisedesign.families.disjoint.solver.pattern_pairs import (
    ConstantDiagonal,
    onto_constant_diagonal,
)
from noisedesign.program import repair
from noisedesign.program.program import DualPoint, Program
from noisedesign.system.participation import FixedEpoch

MAX_EVALUATIONS = 300
CG_FLOOR = 0.02
"""Share of the gap asked for below which a Newton system is solved well enough."""
TO_BOUNDARY = 0.9
"""Fraction of the way to a singular block that one step may go."""
SUFFICIENT_ASCENT = 1e-4
VALUE_ROUNDING = 64 * settings.EPS
CORRELATED = 0.95
"""Share of those correlations that the first multipliers have: the rest keeps them away from the
boundary of the cone, where one block of H may be as good as singular."""
BOUND_WORTHWHILE = 5.0
"""Bounds cost matrix products: computed only where a step predicted at most this many roots of the
gap asked for, relative; after longer ones they cannot stop the iteration."""


def _evaluate(shape: Blocks, blocks: DeviceArray) -> Point:
    """Value, gradient and spectral data; one eigendecomposition.

    Raises:
        numpy.linalg.LinAlgError: a block is not positive definite.
    """
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
    """Step to the boundary of the cone, times TO_BOUNDARY, at most 1."""
    xp = namespace(blocks, direction)
    inverse = xp.linalg.inv(cholesky_of(blocks))
    relative = inverse @ direction @ xp.permute_dims(inverse, (0, 2, 1))
    lowest = float(xp.min(xp.linalg.eigvalsh(relative)))
    return 1.0 if lowest >= -TO_BOUNDARY else -TO_BOUNDARY / lowest


def _gram(point: Point) -> DeviceArray:
    """X(U), pattern by pattern."""
    return (point.spread / point.root) @ point.spread.T


def _bounds(shape: Blocks, point: Point) -> tuple[float, float]:
    """t^2 / sum(p), and the objective of X made feasible.

    Forbidden entries are dropped and patterns rescaled; where H is singular X is lifted instead,
    because dropping takes it out of the range of H.
    """
    xp = namespace(point.spread)
    if shape.factor.shape[0] < point.spread.shape[0]:
        gram = _lifted(shape, point)
    else:
        gram = _gram(point)
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


def _lifted(shape: Blocks, point: Point) -> DeviceArray:
    """X(U) with every pattern raised to a diagonal, by the repair that is used on the answer."""
    factor, xp = on_host(shape.factor), namespace(point.spread)
    program = Program(
        gram=factor.T @ factor,
        participation=FixedEpoch(epochs=shape.epochs, separation=shape.patterns),
        budget=np.ones(shape.patterns),
    )
    order = program.participation.patterns.ravel()
    by_step = np.argsort(order)
    gram = on_host(_gram(point))[np.ix_(by_step, by_step)]
    lifted = repair.lifted(program, gram, dual=DualPoint(blocks=on_host(point.blocks)))
    return xp.asarray(lifted[np.ix_(order, order)], device=array_api_compat.device(point.spread))


def _start(shape: Blocks) -> DeviceArray:
    """Near the correlations of each pattern's block of H, the optimum where H is block diagonal.

    Prices p_j are proportional to the mean root of the workload's diagonal.
    """
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
    scale = (point.trace / point.price) ** 2
    root_scale = float(np.sqrt(scale))
    trace = point.trace * root_scale
    blocks, root = point.blocks * scale, point.root * root_scale
    gram_blocks = point.gram_blocks / root_scale
    return Point(blocks, root, point.spread, gram_blocks, trace, trace, trace)


def _advance(
    shape: Blocks, point: Point, direction: DeviceArray, predicted: float
) -> tuple[Point | None, int]:
    """Backtrack along a direction; None where no step ascends. Also counts evaluations.

    Where H spans many magnitudes, the rounding of a value is larger than what is left to gain, and
    slopes still tell: a concave function with a slope of -s there has lost at most s a unit.
    """
    length, evaluations = _longest_step(point.blocks, direction), 0
    free = identity(shape.epochs, like=direction) / shape.epochs
    while length > settings.EPS:
        evaluations += 1
        wanted = point.value + SUFFICIENT_ASCENT * length * predicted
        try:
            trial = _evaluate(shape, point.blocks + length * direction)
            slope = float(namespace(direction).sum((trial.gram_blocks - free) * direction))
            higher = trial.value >= wanted - VALUE_ROUNDING * abs(point.value)
            if higher or slope >= -SUFFICIENT_ASCENT * predicted:
                return _rescaled(trial), evaluations
        except np.linalg.LinAlgError:
            pass  # outside the cone
        length /= 4
    return None, evaluations


def solve(program: Program, *, monitor: Monitor, device: Device = CPU) -> Found:
    """Solve a normalised program under (k, b) participation, on ``device``.

    Raises:
        InputError: a checkpoint of another program, or a damaged one.
    """
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
            near = predicted <= BOUND_WORTHWHILE * np.sqrt(monitor.gap) * point.price
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
                shape, point, gradient, enough=0.0 if close else CG_FLOOR * monitor.gap
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


MAX_CG_STEPS = 150
CG_FORCING = 0.2
FLAT = 0.03
"""Share of U^-1, the curvature of the boundary of the cone, in the preconditioner: it holds where
that of the objective all but vanishes."""
SQRT_2 = 2.0**0.5
FARTHEST = 10.0
"""Longest Newton step, as the root mean square relative change of U. It binds where H is singular
and the quadratic model flat; the distance to the boundary then does the rest."""


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


def _preconditioner(shape: Blocks, point: Point) -> ConstantDiagonal:
    """The inverse of Z_jj (.) Z_jj / 2 on blocks with constant diagonals.

    Where H is singular Z has no say in some directions, and the boundary of the cone has it all: of
    U^-1 (.) U^-1 then, scaled alike.
    """
    xp = namespace(point.blocks)
    size, rank = point.spread.shape
    rounding = settings.rank_tolerance(size) * float(point.root[-1]) ** 2
    if rank < size or float(point.root[0]) ** 2 <= rounding:
        mean = point.trace / (2 * rank)
        return ConstantDiagonal(point.blocks / float(np.sqrt(mean)))
    panel = xp.reshape(point.spread, (shape.patterns, shape.epochs, -1))
    curvature = (panel / point.root**1.5) @ xp.permute_dims(panel, (0, 2, 1))
    share = xp.sum(curvature * point.blocks, axis=(1, 2)) / shape.epochs
    curvature += FLAT * share[:, None, None] * xp.linalg.inv(point.blocks)
    return ConstantDiagonal(SQRT_2 * xp.linalg.inv(curvature))


def newton_direction(
    shape: Blocks, point: Point, gradient: DeviceArray, *, enough: float
) -> tuple[DeviceArray, float]:
    """Direction from the Newton system, and the ascent it predicts."""
    xp = namespace(gradient)
    size, rank = point.spread.shape
    panel = xp.reshape(point.spread, (shape.patterns, shape.epochs, rank))
    transposed = xp.permute_dims(panel, (0, 2, 1))
    root = point.root
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
    x = xp.zeros_like(gradient)
    residual = gradient
    step = precondition(residual)
    size_now = start = inner_product(residual, step)
    if not start > 0:
        return x, 0.0
    # start is the squared Newton decrement in the preconditioned metric: relative to the price it
    # tells how far the optimum is, and so how accurate a step is worth paying for.
    forcing = min(CG_FORCING, float(np.sqrt(start / point.price)))
    target = max(forcing**2 * start, enough * point.price)
    # Squared norms in that metric, of x, of the step, and their inner product, by recursion
    # (Steihaug 1983). There r_k / 2 weighs the squares of relative changes of U.
    radius = FARTHEST**2 * point.trace / 2
    of_x, of_step, between = 0.0, start, 0.0
    for _ in range(MAX_CG_STEPS):
        image = product(step)
        along = inner_product(step, image)
        length = size_now / along if along > 0 else np.inf
        if not of_x + 2 * length * between + length**2 * of_step <= radius:
            to_radius = float(np.sqrt(between**2 + of_step * (radius - of_x)))
            x = x + (to_radius - between) / of_step * step
            break
        x = x + length * step
        of_x += 2 * length * between + length**2 * of_step
        residual = residual - length * image
        preconditioned = precondition(residual)
        previous, size_now = size_now, inner_product(residual, preconditioned)
        if size_now <= target:
            break
        ratio = size_now / previous
        step = preconditioned + ratio * step
        between = ratio * (between + length * of_step)
        of_step = size_now + ratio**2 * of_step
    return x, inner_product(gradient, x)
