"""Overlapping patterns: a barrier method on the multiplier blocks of all of them.

    maximise  2 tr( (L U L^T)^1/2 ) - sum of q_pi + mu sum of log det U_pi,   U = sum of U_pi,

over positive definite blocks with constant diagonals q_pi, for mu -> 0. With D the inverse Hessian
of - log det, block by block, A the sum over blocks and F the curvature of the first term on the
pairs of steps that meet in some pattern, a Newton step solves

    (mu D^-1 + A^T F A) x = g,   so   x = D (g - A^T w) / mu,   (mu F^-1 + A D A^T) w = A D g:

one Cholesky factorisation of the order of the number of pairs. Blocks are singular up to mu and H
may be up to rounding, so that no product that squares either is formed: roots are singular values
of L K with K K^T = U, and D is applied through factors of the blocks."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from noisedesign.base import linalg as _linalg, settings
from noisedesign.base.checks import Array, InputError
from noisedesign.base.device import solver_of_positive
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
from noisedesign.families.temporal import TemporalProgram
from noisedesign.privacy.sensitivity import listed, squared_sensitivity

MAX_PAIRS = 6000  # of steps that meet in patterns: matrices of this order take 0.3 GB each
TO_BOUNDARY = 0.9


@dataclass(frozen=True, kw_only=True, eq=False)
class OverlappingAnswer:
    """X, shape (T, T), whose squared sensitivity is near 1, and multipliers of patterns that are
    tight; ``evaluations`` counts Newton steps."""

    stop: Stop
    gram: Array
    multipliers: Sequence[PatternBlocks]
    evaluations: int


class _Search:
    def __init__(self, program: TemporalProgram, monitor: Monitor) -> None:
        groups, got = listed(program.participation), str(program.participation)
        if groups is None:
            expected = "a scheme with fewer patterns"
            remedy = (
                "Every pattern has a multiplier of its own here; a banded strategy, with at most "
                "as many bands as steps of separation, needs none."
            )
            raise InputError("participation", expected=expected, got=got, remedy=remedy)
        self.pairs = Pairs(program.size, [group.steps for group in groups])
        if self.pairs.count > MAX_PAIRS:
            expected = f"at most {MAX_PAIRS} pairs of steps that meet in patterns"
            got = f"{self.pairs.count} ({got})"
            remedy = "Ask for a banded strategy, with at most as many bands as steps of separation."
            raise InputError("participation", expected=expected, got=got, remedy=remedy)
        self.participation, self.monitor = program.participation, monitor
        self.scale = float(np.diagonal(program.gram).max())
        self.factor = program.factor / np.sqrt(self.scale)
        self.size = sum(steps.size for steps in self.pairs.groups)
        self.iterations = 0
        self.point = self._start()
        self.feasible = self.point.gram
        self.proof = self.point.blocks
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
        """The point of blocks. Raises LinAlgError where one is not positive definite."""
        roots = [np.linalg.cholesky(u) for u in blocks]
        log_det = 2 * sum(float(np.log(np.einsum("jii->ji", r)).sum()) for r in roots)
        basis, root, _ = np.linalg.svd(self.factor @ np.linalg.cholesky(self.pairs.scatter(blocks)))
        root = np.maximum(root, settings.EPS * root[0])
        spread = self.factor.T @ basis
        return Point(
            blocks=blocks,
            root=root,
            spread=spread,
            gram=(spread / root) @ spread.T,
            trace=float(root.sum()),
            price=_price(blocks),
            log_det=log_det,
        )

    def bound(self, barrier: float) -> None:
        """Improve the bounds t^2 / sum q, and t = tr(H X^-1) times the squared sensitivity of X."""
        point = self.point
        gram = _linalg.symmetrized(point.gram)
        upper = point.trace * squared_sensitivity(gram, self.participation).squared
        if upper <= self.upper:
            self.feasible, self.upper = gram, upper
        # On the path <U_pi, X_pi> = q_pi - k mu: a pattern with slack costs more than it proves.
        tight = [
            np.where(u.shape[1] * barrier <= 0.02 * u[:, :1, :1], u, 0.0) for u in point.blocks
        ]
        for blocks in (point.blocks, tight):
            if (lower := self._proved(blocks)) >= self.lower:
                self.proof, self.lower = blocks, lower
        self.monitor.report(lower=self.lower * self.scale, upper=self.upper * self.scale)

    def _proved(self, blocks: Blocks) -> float:
        """The bound of some blocks, which may be zero; 0 where they leave out a step."""
        try:
            half = self.factor @ np.linalg.cholesky(self.pairs.scatter(blocks))
        except np.linalg.LinAlgError:
            return 0.0
        return float(np.linalg.svd(half, compute_uv=False).sum()) ** 2 / _price(blocks)

    def run(self, search: Search) -> None:
        """Follow the central path; bounds are taken where it is met, and at the end."""
        barrier = 0.1 * self.point.trace / self.size
        while self.iterations < 300:
            decrement = self._advance(barrier)
            if decrement is None:
                break
            # With a decrement below mu a point is near enough to the central path to move on.
            if decrement <= 1.0 * barrier:
                self.bound(barrier)
                barrier *= 0.1
            if search.ended(solved=self.solved):
                break
        if not self.solved:
            self.bound(barrier)
            search.ended(solved=self.solved)

    @property
    def solved(self) -> bool:
        return self.upper - self.lower <= REACHED * self.monitor.gap * self.lower

    def _advance(self, barrier: float) -> float | None:
        """One Newton step; its decrement, squared, or None where rounding leaves none."""
        self.iterations += 1
        try:
            newton = Newton(self.pairs, self.point, barrier)
        except np.linalg.LinAlgError:
            return None
        gradient = newton.gradient()
        direction = newton.direction(gradient)
        decrement = inner(gradient, direction)
        if not decrement > 0:
            return None
        length = self._longest_step(direction)
        wanted = self.point.value(barrier) * (1 - (64 * settings.EPS))
        while length > settings.EPS:
            blocks = [
                onto_constant_diagonal(u + length * d)
                for u, d in zip(self.point.blocks, direction, strict=True)
            ]
            with suppress(np.linalg.LinAlgError):  # outside the cone
                trial = self._evaluate(blocks)
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
            length = min(length, TO_BOUNDARY / max(-lowest, TO_BOUNDARY))
        return length

    def answer(self, stop: Stop) -> OverlappingAnswer:
        multipliers = []
        for steps, blocks in zip(self.pairs.groups, self.proof, strict=True):
            used = blocks[:, 0, 0] > 0
            multipliers.append(PatternBlocks(steps=steps[used], blocks=blocks[used] * self.scale))
        return OverlappingAnswer(
            stop=stop, gram=self.feasible, multipliers=multipliers, evaluations=self.iterations
        )


def solve(program: TemporalProgram, *, monitor: Monitor) -> OverlappingAnswer:
    """Solve (P) without a structure under any participation whose patterns can be listed and whose
    pairs of steps are not too many."""
    path = _Search(program, monitor)
    with one_thread(), Search(monitor) as search:  # most matrices are single patterns
        path.run(search)
    return path.answer(search.stop)


def _price(blocks: Blocks) -> float:
    """The sum of the q_pi."""
    return sum(float(u[:, 0, 0].sum()) for u in blocks)


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


class Inverse(ConstantDiagonal):
    """The same map from a factorisation U = K K^T: its errors grow with the condition number of U,
    not with its square. K^T (.) K takes what is symmetric to where the metric is the identity, and
    the map a projection off the span of k_i k_i^T - k_j k_j^T, the rows of K being k_i."""

    def __init__(self, blocks: Array) -> None:
        self.blocks = blocks
        self.half = np.linalg.cholesky(blocks)
        self.places = np.tril_indices(blocks.shape[1])
        self.weight = np.where(self.places[0] == self.places[1], 1.0, np.sqrt(2.0))
        rows = self.half / np.sqrt(blocks[:, :1, :1])
        squares = self._flat(rows[:, :, :, None] * rows[:, :, None, :])
        self.basis = np.linalg.qr(np.diff(squares, axis=1).transpose(0, 2, 1))[0]

    def _flat(self, matrices: Array) -> Array:
        return np.asarray(matrices[..., self.places[0], self.places[1]] * self.weight)

    def __call__(self, right: Array) -> Array:
        i, j = self.places
        across = self.half.transpose(0, 2, 1)
        flat = self._flat(across @ right @ self.half)[:, :, None]
        for _ in range(2):  # once more takes out what rounding left
            flat = flat - self.basis @ (self.basis.transpose(0, 2, 1) @ flat)
        local = np.empty_like(right)
        local[:, i, j] = local[:, j, i] = flat[:, :, 0] / self.weight
        return np.asarray(onto_constant_diagonal(self.half @ local @ across))


class Newton:
    """The system of one Newton step at a point."""

    def __init__(self, pairs: Pairs, point: Point, barrier: float) -> None:
        self.pairs, self.point, self.barrier = pairs, point, barrier
        self.scaled = [Inverse(u) for u in point.blocks]
        root = point.root
        weights = 1 / (np.multiply.outer(root, root) * np.add.outer(root, root))
        curvature = pairs.curvature(point.spread, weights)
        diagonal = np.einsum("ii->i", curvature)
        diagonal *= 1 + settings.rank_tolerance(len(curvature))  # H may be singular to rounding
        self.half = np.linalg.cholesky(curvature)
        system = self.half.T @ pairs.metric(self.scaled) @ self.half
        system[np.diag_indices(len(system))] += barrier
        self.solve = solver_of_positive(system)

    def gradient(self) -> Blocks:
        """The gradient of the objective with its barrier, by every block."""
        gram = self.pairs.gather(self.point.gram)
        slopes = [
            x + self.barrier * np.linalg.inv(u)
            for x, u in zip(gram, self.point.blocks, strict=True)
        ]
        return [onto_constant_diagonal(x - np.eye(len(x[0])) / len(x[0])) for x in slopes]

    def direction(self, gradient: Blocks) -> Blocks:
        """The direction that minus the Hessian takes to ``gradient``."""
        summed = self.pairs.pack(self.pairs.scatter(self._scale(gradient)))
        w = self.half @ self.solve(self.half.T @ summed)
        across = self.pairs.gather(self.pairs.unpack(w))
        rest = [g - a for g, a in zip(gradient, across, strict=True)]
        return [d / self.barrier for d in self._scale(rest)]

    def _scale(self, right: Blocks) -> Blocks:
        return [d(g) for d, g in zip(self.scaled, right, strict=True)]
