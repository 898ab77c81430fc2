"""One Newton step of the barrier method for overlapping patterns.

The objective is 2 tr( (L U L^T)^1/2 ) - sum of q_pi + mu sum of log det U_pi, U the sum of blocks
U_pi with constant diagonals q_pi. With D the inverse Hessian of - log det, block by block, A the
sum over blocks and F the curvature of the first term on the pairs of steps that meet in some
pattern, the step solves

    (mu D^-1 + A^T F A) x = g,   so   x = D (g - A^T w) / mu,   (mu F^-1 + A D A^T) w = A D g:

one Cholesky factorisation of the order of the number of pairs. It loses digits as mu falls, which
conjugate gradients, preconditioned with it, win back.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from noisedesign.base.checks import Array
from noisedesign.families.disjoint.native.pattern_pairs import (
    Blocks,
    ConstantDiagonal,
    Pairs,
    inner,
    onto_constant_diagonal,
)

SYSTEM_FLOOR = 1e-8
"""Least barrier, as a share of the price, that the factorised system is built with: below it the
factor has no digits left. What is built with a larger one is still a good preconditioner."""
CG_STEPS = 60
CG_ACCURACY = 1e-2
"""Error of a Newton step, squared and relative, in the metric of the Hessian."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Point:
    """Blocks and what follows from them with one eigendecomposition."""

    blocks: Blocks
    root: Array  # r, L U L^T = Q diag(r^2) Q^T
    spread: Array  # P = L^T Q
    gram: Array  # X = P diag(1 / r) P^T
    trace: float  # t = sum r
    price: float  # sum of q
    log_det: float

    def value(self, barrier: float) -> float:
        return 2 * self.trace - self.price + barrier * self.log_det


class Newton:
    """The system of one Newton step at a point."""

    def __init__(self, pairs: Pairs, point: Point, barrier: float) -> None:
        self.pairs, self.point, self.barrier = pairs, point, barrier
        self.inverse = [np.linalg.inv(u) for u in point.blocks]
        root = point.root
        self.weights = 1 / (np.multiply.outer(root, root) * np.add.outer(root, root))
        self.scaled = [ConstantDiagonal(u) for u in point.blocks]
        self.half = np.linalg.cholesky(pairs.curvature(point.spread, self.weights))
        system = self.half.T @ pairs.metric(self.scaled) @ self.half
        system[np.diag_indices(len(system))] += max(barrier, SYSTEM_FLOOR * point.price)
        self.factor = np.linalg.cholesky(system)

    def gradient(self) -> Blocks:
        """Of the objective with its barrier, by every block."""
        gram = self.pairs.gather(self.point.gram)
        return [
            onto_constant_diagonal(x + self.barrier * v - np.eye(x.shape[1]) / x.shape[1])
            for x, v in zip(gram, self.inverse, strict=True)
        ]

    def product(self, direction: Blocks) -> Blocks:
        """Minus the Hessian times a direction."""
        spread = self.point.spread
        change = self.pairs.scatter(direction)
        change = spread @ ((spread.T @ change @ spread) * self.weights) @ spread.T
        return [
            onto_constant_diagonal(c + self.barrier * (v @ d @ v))
            for c, v, d in zip(self.pairs.gather(change), self.inverse, direction, strict=True)
        ]

    def solve(self, right: Blocks) -> Blocks:
        """The direction whose product is ``right``, up to rounding."""
        summed = self.pairs.pack(self.pairs.scatter(self._scale(right)))
        lower = np.linalg.solve(self.factor, self.half.T @ summed)
        w = np.asarray(self.half @ np.linalg.solve(self.factor.T, lower), dtype=np.float64)
        rest = self.pairs.gather(self.pairs.unpack(w))
        return [
            d / self.barrier for d in self._scale([g - a for g, a in zip(right, rest, strict=True)])
        ]

    def _scale(self, right: Blocks) -> Blocks:
        return [d(g) for d, g in zip(self.scaled, right, strict=True)]

    def direction(self, gradient: Blocks) -> tuple[Blocks, float]:
        """Newton direction and decrement, squared: the ascent it predicts, twice."""
        x = [np.zeros_like(g) for g in gradient]
        residual = [g.copy() for g in gradient]
        step = self.solve(residual)
        size = start = inner(residual, step)
        for _ in range(CG_STEPS):
            image = self.product(step)
            along = inner(step, image)
            if not (size > 0 and along > 0):
                break
            length = size / along
            x = [a + length * b for a, b in zip(x, step, strict=True)]
            residual = [a - length * b for a, b in zip(residual, image, strict=True)]
            preconditioned = self.solve(residual)
            previous, size = size, inner(residual, preconditioned)
            if size <= CG_ACCURACY * start:
                break
            step = [a + size / previous * b for a, b in zip(preconditioned, step, strict=True)]
        return x, inner(gradient, x)
