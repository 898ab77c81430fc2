"""A search for responses that cost shifts much: a lower bound, by some quadratic losses.

With symmetric responses D_t, fixed in advance, and unit gradients g_t the observer faces one
Gaussian mechanism of squared sensitivity M = min sum |u_t|^2 (docs/runs.md, "How good the bound
is"). A search climbs over both, on the line, with signs, and in three dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize

from noisedesign.base.checks import Array
from noisedesign.privacy.responses.game import Game, Stage


class _Linear(NamedTuple):
    """Responses and gradients: blocks of D, shape (p, p, T, nodes), and g, shape (p, T)."""

    responses: Array
    gradients: Array


@dataclass(frozen=True, kw_only=True)
class Worst:
    """The search of one victim and pattern, eigenvalues of responses being in [low, high]."""

    game: Game
    stages: list[Stage]
    victim: int
    pattern: Sequence[int]
    low: float
    high: float

    def value(self, linear: _Linear) -> tuple[float, _Linear]:
        """M, and its derivatives."""
        horizon = self.game.horizon  # from the start: shifts may come before the record does
        nodes, p = len(self.game.nodes), len(linear.gradients)
        ahead: Array = np.zeros((0, 0))
        stack = []
        for t in range(horizon - 1, -1, -1):
            stage = self.stages[t]
            size = stage.seen.shape[0]
            cost = _copies(stage.seen, p, corner=0.0)
            closed = np.zeros((0, len(cost)))
            if t < horizon - 1:
                through = _copies(stage.through, p, corner=1.0)
                free = _copies(stage.free, p, corner=0.0)
                closed = np.asarray(
                    np.linalg.solve(np.eye(len(ahead)) + free @ ahead, through), np.float64
                )
                cost += through.T @ (ahead @ closed)
                cost = (cost + cost.T) / 2
            answer = np.eye(len(cost))
            for a in range(p):
                for b in range(p):
                    rows, columns = a * size + np.arange(nodes), b * size + np.arange(nodes)
                    answer[rows, columns] = linear.responses[a, b, t]
                answer[a * size + self.victim, -1] = linear.gradients[a, t]
            ahead = answer.T @ cost @ answer
            stack.append((t, size, cost, answer, closed))
        by = _Linear(np.zeros_like(linear.responses), np.zeros_like(linear.gradients))
        state = np.zeros(len(ahead))
        state[-1] = 1.0
        for t, size, cost, answer, closed in reversed(stack):
            after = answer @ state
            price = (2 * (cost @ after))[:-1].reshape(p, size)
            before = state[:-1].reshape(p, size)
            by.responses[:, :, t] = price[:, None, :nodes] * before[None, :, :nodes]
            by.gradients[:, t] = price[:, self.victim]
            if len(closed):
                state = closed @ after
        return float(ahead[-1, -1]), by

    def first_look(self) -> float:
        """M where all responses are the largest and all gradients alike: a first look."""
        signs = np.zeros((1, self.game.horizon))
        signs[:, list(self.pattern)] = 1.0
        largest = np.full((1, 1, *self.game.active.shape), self.high)
        return self.value(_Linear(largest, signs))[0]

    def on_the_line(self, starts: Sequence[Array]) -> tuple[float, Array, Array]:
        """The largest M found on the line, its D, shape (T, nodes), and its signs, shape (T,)."""
        signs = np.zeros(self.game.horizon)
        signs[list(self.pattern)] = 1.0
        found = [self._from(start, signs) for start in starts]
        return max(found, key=lambda one: one[0])

    def _from(self, start: Array, signs: Array) -> tuple[float, Array, Array]:
        shape, responses = start.shape, np.clip(start, self.low, self.high)
        for _ in range(4):

            def loss(x: Array, now: Array = signs) -> tuple[float, Array]:
                value, by = self.value(_Linear(x.reshape(1, 1, *shape), now[None]))
                return -value, -by.responses.ravel()

            box = [(self.low, self.high)] * responses.size
            found = _climb(loss, responses.ravel(), box)
            responses = found.reshape(shape)
            value, by = self.value(_Linear(responses[None, None], signs[None]))
            turned = np.where(signs != 0, np.where(by.gradients[0] >= 0, 1.0, -1.0), 0.0)
            other = self.value(_Linear(responses[None, None], turned[None]))[0]
            if not other > value * (1 + 1e-9):
                break
            signs = turned
        return value, responses, signs

    def in_space(self) -> float:
        """The largest M from drawn responses center + radius sin(A) and gradients h / |h|."""
        if self.stages[0].seen.shape[0] > 75:  # a step takes 27 times as many operations
            return 0.0
        rng = np.random.default_rng(0)
        return max(self._from_drawn(rng) for _ in range(2))

    def _from_drawn(self, rng: np.random.Generator) -> float:
        p, steps = 3, list(self.pattern)  # dimensions of models
        shape = (*self.game.active.shape, p, p)
        center, radius = (self.low + self.high) / 2, (self.high - self.low) / 2
        split = math.prod(shape)

        def loss(x: Array) -> tuple[float, Array]:
            a, h = x[:split].reshape(shape), x[split:].reshape(p, -1)
            angles, frame = np.linalg.eigh(a + a.swapaxes(-1, -2))
            turned = frame.swapaxes(-1, -2)
            responses = (
                center * np.eye(p) + radius * (frame * np.sin(angles)[..., None, :]) @ turned
            )
            norms = np.linalg.norm(h, axis=0)
            gradients = np.zeros((p, shape[0]))
            gradients[:, steps] = h / norms
            value, by = self.value(_Linear(responses.transpose(2, 3, 0, 1), gradients))
            # Derivatives of the sine of a matrix by divided differences of the sine.
            half = (angles[..., :, None] - angles[..., None, :]) / 2
            mean = (angles[..., :, None] + angles[..., None, :]) / 2
            slope = by.responses.transpose(2, 3, 0, 1)
            slope = turned @ (slope + slope.swapaxes(-1, -2)) @ frame
            slope = frame @ (slope * radius * np.cos(mean) * np.sinc(half / np.pi)) @ turned
            along = by.gradients[:, steps]
            across = (
                along - gradients[:, steps] * (gradients[:, steps] * along).sum(axis=0)
            ) / norms
            return -value, -np.concatenate([slope.ravel(), across.ravel()])

        start = np.concatenate([rng.uniform(-1, 1, split), rng.standard_normal(p * len(steps))])
        return -loss(_climb(loss, start, None, most=200))[0]


def _climb(
    loss: Any, start: Array, box: Sequence[tuple[float, float]] | None, *, most: int = 100
) -> Array:
    """A local minimum; more iterations change the shipped bounds by less than .1 %."""
    found = minimize(
        loss, start, jac=True, method="L-BFGS-B", bounds=box, options={"maxiter": most}
    )
    return np.asarray(found.x)


def _copies(a: Array, p: int, *, corner: float) -> Array:
    """A for each of p coordinates, and a constant."""
    rows, columns = a.shape
    found = np.zeros((p * rows + 1, p * columns + 1))
    for k in range(p):
        found[k * rows : (k + 1) * rows, k * columns : (k + 1) * columns] = a
    found[-1, -1] = corner
    return found
