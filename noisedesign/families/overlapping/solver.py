"""Overlapping patterns: a barrier method on the multiplier blocks of all of them.

    maximise  2 tr( (L U L^T)^1/2 ) - sum of q_pi + mu sum of log det U_pi,   U = sum of U_pi,

over positive definite blocks with constant diagonals q_pi, for mu -> 0. At its maximum
X(U) restricted to a pattern is Diag(y) - mu U_pi^-1 with sum y = 1: strictly feasible. Patterns
overlap, so single blocks do become singular on the way to the optimum, as they do not under (k, b)
participation, and the barrier is needed.

With D the inverse Hessian of - log det, block by block, A the sum over blocks and F the curvature
of the first term on the pairs of steps that meet in some pattern, a Newton step solves

    (mu D^-1 + A^T F A) x = g,   so   x = D (g - A^T w) / mu,   (mu F^-1 + A D A^T) w = A D g:

one Cholesky factorisation of the order of the number of pairs. It loses digits as mu falls, which
conjugate gradients, preconditioned with it, win back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from noisedesign.base import linalg as _linalg, settings
from noisedesign.base.checks import Array, InputError
from noisedesign.base.machine import one_thread
from noisedesign.base.monitor import REACHED, Monitor, Search, Stop
from noisedesign.families.disjoint.solver.pattern_pairs import (
    Blocks,
    ConstantDiagonal,
    Pairs,
    inner,
    onto_constant_diagonal,
)
from noisedesign.families.overlapping.bound import PatternBlocks
from noisedesign.privacy.sensitivity import listed, squared_sensitivity
from noisedesign.program.temporal import TemporalProgram

MAX_PAIRS = 6000
"""Most pairs of steps that meet in patterns: matrices of this order take 0.3 GB each."""
MAX_ITERATIONS = 300
FIRST_BARRIER = 0.1
"""The barrier's share of the objective at the start."""
FALL = 0.1
"""Factor between barriers."""
DROP_BELOW = 1e-3
"""Share of the barrier in the objective below which patterns with slack are recognised..."""
DROP_SLACK = 0.02
"""...by this much of it. A fiftieth of that leaves out patterns that turn out to be tight."""
CENTRED = 1.0
"""Newton decrement over mu below which a point is near enough to the central path to move on."""
TO_BOUNDARY = 0.9
ROUNDING = 64 * settings.EPS


@dataclass(frozen=True, kw_only=True, eq=False)
class OverlappingAnswer:
    """What was found.

    Attributes:
        gram: X, shape (T, T), whose squared sensitivity is near 1: scale it before use.
        multipliers: for :func:`noisedesign.families.overlapping.bound.overlapping_lower_bound`;
            patterns that are not tight are left out.
        evaluations: Newton steps.
    """

    stop: Stop
    gram: Array
    multipliers: Sequence[PatternBlocks]
    evaluations: int


class _Search:
    def __init__(self, program: TemporalProgram, monitor: Monitor) -> None:
        groups = listed(program.participation)
        if groups is None:
            raise InputError(
                "participation",
                expected="a scheme with fewer patterns",
                got=str(program.participation),
                remedy="Every pattern has a multiplier of its own here; a banded strategy, with at "
                "most as many bands as steps of separation, needs none.",
            )
        self.pairs = Pairs(program.size, [group.steps for group in groups])
        if self.pairs.count > MAX_PAIRS:
            raise InputError(
                "participation",
                expected=f"at most {MAX_PAIRS} pairs of steps that meet in patterns",
                got=f"{self.pairs.count} ({program.participation})",
                remedy="Ask for a banded strategy, with at most as many bands as steps of "
                "separation.",
            )
        self.participation, self.monitor = program.participation, monitor
        self.scale = float(np.diagonal(program.gram).max())
        self.factor = program.factor / np.sqrt(self.scale)
        self.size = sum(steps.size for steps in self.pairs.groups)
        self.iterations = 0
        self.point = self._start()
        self.feasible = self.point.gram
        self.proof = self.pairs.groups, self.point.blocks
        self.upper, self.lower = np.inf, 0.0

    def _start(self) -> Point:
        weights = np.sqrt(np.square(self.factor).sum(axis=0)) / self.pairs.times_covered
        blocks = [
            weights[steps].mean(axis=1)[:, None, None] * np.eye(steps.shape[1])
            for steps in self.pairs.groups
        ]
        point = self._evaluate(blocks)
        return self._evaluate([u * (point.trace / point.price) ** 2 for u in blocks])

    def _evaluate(self, blocks: Blocks) -> Point:
        """Raises: numpy.linalg.LinAlgError: a block is not positive definite."""
        roots = [np.linalg.cholesky(u) for u in blocks]
        log_det = 2 * sum(float(np.log(np.einsum("jii->ji", r)).sum()) for r in roots)
        squared, basis = np.linalg.eigh(self.factor @ self.pairs.scatter(blocks) @ self.factor.T)
        root = np.sqrt(np.maximum(squared, settings.EPS**2 * squared[-1]))
        spread = self.factor.T @ basis
        return Point(
            blocks=blocks,
            root=root,
            spread=spread,
            gram=(spread / root) @ spread.T,
            trace=float(root.sum()),
            price=sum(float(u[:, 0, 0].sum()) for u in blocks),
            log_det=log_det,
        )

    def bound(self) -> None:
        """t^2 / sum q, and t = tr(H X^-1) times the squared sensitivity of X."""
        point = self.point
        gram = _linalg.symmetrized(point.gram)
        upper = point.trace * squared_sensitivity(gram, self.participation).squared
        if upper <= self.upper:
            self.feasible, self.upper = gram, upper
        lower = point.trace**2 / point.price
        if lower >= self.lower:
            self.proof, self.lower = (self.pairs.groups, point.blocks), lower
        self.monitor.report(lower=self.lower * self.scale, upper=self.upper * self.scale)

    def run(self, search: Search) -> None:
        """Follow the central path; bounds are taken where it is met, and at the end."""
        barrier = FIRST_BARRIER * self.point.trace / self.size
        while self.iterations < MAX_ITERATIONS:
            decrement = self._advance(barrier)
            if decrement is None:
                break
            if decrement <= CENTRED * barrier:
                self.bound()
                if self.size * barrier <= DROP_BELOW * self.point.trace:
                    self._drop(barrier)
                barrier *= FALL
            if search.ended(solved=self.solved):
                break
        if not self.solved:
            self.bound()
            search.ended(solved=self.solved)

    @property
    def solved(self) -> bool:
        return self.upper - self.lower <= REACHED * self.monitor.gap * self.lower

    def _drop(self, barrier: float) -> None:
        """Leave out patterns with slack: on the central path <U_pi, X_pi> = q_pi - k mu.

        Each adds to the gap and to rounding and nothing else. Were one of them to become tight
        again the upper bound, which is over all patterns, would show it.
        """
        kept = [
            steps.shape[1] * barrier <= DROP_SLACK * u[:, 0, 0]
            for steps, u in zip(self.pairs.groups, self.point.blocks, strict=True)
        ]
        if all(k.all() for k in kept):
            return
        groups = [g[k] for g, k in zip(self.pairs.groups, kept, strict=True)]
        blocks = [u[k] for u, k in zip(self.point.blocks, kept, strict=True)]
        left = [(g, u) for g, u in zip(groups, blocks, strict=True) if len(g)]
        self.pairs = Pairs(self.pairs.horizon, [g for g, _ in left])
        self.size = sum(steps.size for steps in self.pairs.groups)
        self.point = self._evaluate([u for _, u in left])

    def _advance(self, barrier: float) -> float | None:
        """One Newton step; its decrement, squared, or None where rounding leaves none."""
        self.iterations += 1
        try:
            newton = Newton(self.pairs, self.point, barrier)
        except np.linalg.LinAlgError:
            return None
        direction, decrement = newton.direction(newton.gradient())
        if not decrement > 0:
            return None
        length = self._longest_step(direction)
        wanted = self.point.value(barrier) * (1 - ROUNDING)
        while length > settings.EPS:
            blocks = [
                onto_constant_diagonal(u + length * d)
                for u, d in zip(self.point.blocks, direction, strict=True)
            ]
            try:
                trial = self._evaluate(blocks)
            except np.linalg.LinAlgError:
                pass  # outside the cone
            else:
                if trial.value(barrier) >= wanted:
                    self.point = trial
                    return decrement
            length /= 2
        return None

    def _longest_step(self, direction: Blocks) -> float:
        length = 1.0
        for u, d in zip(self.point.blocks, direction, strict=True):
            inverse = np.linalg.inv(np.linalg.cholesky(u))
            lowest = float(np.linalg.eigvalsh(inverse @ d @ inverse.transpose(0, 2, 1)).min())
            if lowest < -TO_BOUNDARY:
                length = min(length, -TO_BOUNDARY / lowest)
        return length

    def answer(self, stop: Stop) -> OverlappingAnswer:
        multipliers = [
            PatternBlocks(steps=steps, blocks=blocks * self.scale)
            for steps, blocks in zip(*self.proof, strict=True)
        ]
        return OverlappingAnswer(
            stop=stop, gram=self.feasible, multipliers=multipliers, evaluations=self.iterations
        )


def solve(program: TemporalProgram, *, monitor: Monitor) -> OverlappingAnswer:
    """Solve (P) under any participation whose patterns can be listed, without a structure.

    Raises:
        InputError: there are too many patterns, or pairs of steps in them.
    """
    path = _Search(program, monitor)
    with one_thread(), Search(monitor) as search:  # most matrices are single patterns
        path.run(search)
    return path.answer(search.stop)


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
