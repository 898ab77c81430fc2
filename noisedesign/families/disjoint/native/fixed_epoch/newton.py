"""Newton's step for (k, b) participation: the curvature of the dual along multiplier blocks.

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

import numpy as np
from numpy.typing import NDArray

from noisedesign.base import settings
from noisedesign.base.device import DeviceArray, inner_product, namespace
from noisedesign.families.disjoint.native.pattern_pairs import (
    ConstantDiagonal,
    onto_constant_diagonal,
)

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
    order: NDArray[np.intp]


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
