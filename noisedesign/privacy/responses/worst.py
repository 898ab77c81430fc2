"""Responses that cost shifts much: what an observer does learn of some quadratic losses.

With symmetric responses D_t of models in the plane, fixed in advance, and gradients g_t of the
record, unit vectors there, the observer faces one Gaussian mechanism whose squared sensitivity M is
exact:

    zeta_t = D_t xi_t + g_t e_v,    M = min sum |u_t|^2.

M is convex in g, so unit vectors are enough; a local search climbs over D, with eigenvalues in an
interval, and over g. All of it is a lower bound on what any account of such responses may say. On
the line signs take the place of unit vectors; the plane reaches more where several ways meet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize

from noisedesign.base.checks import Array
from noisedesign.privacy.responses.game import Game, Stage

CLIMBS = 100
"""Iterations of L-BFGS-B from one start; the bounds of the shipped accounts change by less than
.1 % after that."""

PLANE = 150
"""Largest state for which models in the plane are tried: their steps take eight times as many
operations."""


class _Linear(NamedTuple):
    """Responses and gradients: blocks of D, shape (p, p, T, nodes), and g, shape (p, T)."""

    responses: Array
    gradients: Array


@dataclass(frozen=True, kw_only=True)
class Worst:
    """The search of one victim and pattern.

    Args:
        game, stages: of the observer.
        victim: its place in a state.
        pattern: its steps.
        low, high: between which eigenvalues of responses are.
    """

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

    def climbed(self, starts: Sequence[Array]) -> float:
        """The largest M found from some D on the line, shape (T, nodes)."""
        best, responses, turned = self.on_the_line(starts)
        if 2 * self.stages[0].seen.shape[0] <= PLANE:
            best = max(best, self._in_the_plane(responses, turned))
        return best

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

    def _in_the_plane(self, responses: Array, signs: Array) -> float:
        """From the line, with directions turned a little at random."""
        shape, size = responses.shape, responses.size
        rng = np.random.default_rng(0)
        steps = np.flatnonzero(signs)

        def linear(x: Array) -> tuple[_Linear, Array, Array]:
            upper, lower, angle = x[: 3 * size].reshape(3, *shape)
            middle, spread = (upper + lower) / 2, (upper - lower) / 2
            blocks = np.array(
                [
                    [middle + spread * np.cos(angle), spread * np.sin(angle)],
                    [spread * np.sin(angle), middle - spread * np.cos(angle)],
                ]
            )
            gradients = np.zeros((2, shape[0]))
            gradients[:, steps] = np.cos(x[3 * size :]), np.sin(x[3 * size :])
            return _Linear(blocks, gradients), spread, angle

        def loss(x: Array) -> tuple[float, Array]:
            now, spread, angle = linear(x)
            value, by = self.value(now)
            (xx, xy), (yx, yy) = by.responses
            cos, sin = np.cos(angle), np.sin(angle)
            along = (xx - yy) * cos + (xy + yx) * sin
            across = spread * ((yy - xx) * sin + (xy + yx) * cos)
            both = xx + yy
            gx, gy = by.gradients[:, steps]
            turned = -gx * np.sin(x[3 * size :]) + gy * np.cos(x[3 * size :])
            slope = [(both + along) / 2, (both - along) / 2, across]
            return -value, -np.concatenate([*(part.ravel() for part in slope), turned])

        least = responses.ravel() + 0.1 * (self.high - self.low) * rng.uniform(-1, 1, size)
        start = np.concatenate(
            [
                responses.ravel(),
                np.clip(least, self.low, self.high),
                rng.uniform(-0.5, 0.5, size),
                np.where(signs[steps] > 0, 0.0, np.pi) + rng.uniform(-0.5, 0.5, len(steps)),
            ]
        )
        box: list[tuple[float | None, float | None]] = [(self.low, self.high)] * (2 * size)
        box += [(None, None)] * (size + len(steps))
        return -loss(_climb(loss, start, box))[0]


def _climb(loss: Any, start: Array, box: Sequence[tuple[float | None, float | None]]) -> Array:
    found = minimize(
        loss, start, jac=True, method="L-BFGS-B", bounds=box, options={"maxiter": CLIMBS}
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
