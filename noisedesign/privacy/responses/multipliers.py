"""Multipliers that prove a bound on the energy of shifts, and the search for good ones.

P, S and sigma are Pi, Lambda and varkappa of docs/mathematics/views.md, theorem F. A barrier keeps
L-BFGS away from where I - Sbar^(1/2) P Sbar^(1/2) is singular; :mod:`.proof` evaluates what is
found again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from noisedesign.base.checks import Array
from noisedesign.privacy.responses.game import Game, Stage

FLOOR = 1e-7  # least multiplier over the least variance of what is seen: a bound gains no more
EDGE = 1e-7  # least pivot of I - Sbar^(1/2) P Sbar^(1/2): below it an inverse loses too many digits


class Multipliers(NamedTuple):
    """S, (T, nodes), and sigma, (T,), zero where they do not matter any more."""

    nodes: Array
    record: Array

    def lifted(self, share: float) -> Multipliers:
        """The same with those of nodes at least so much of the largest of their step."""
        least = share * self.nodes.max(axis=1, keepdims=True)
        return self._replace(nodes=np.where(self.nodes > 0, np.maximum(self.nodes, least), 0.0))


class Evaluated(NamedTuple):
    """The bound; with the barrier, its gradient by logarithms, and a + b of a exp(x) + b
    exp(-x)."""

    bound: float
    value: float
    slope: Array
    curvature: Array


class _Link(NamedTuple):
    """One step: Sbar, the factor of I - Sbar^(1/2) P Sbar^(1/2), (P^-1 - Sbar)^-1, closed loop."""

    step: int
    slack: Array
    pivots: Array
    full: Array
    closed: Array


@dataclass(frozen=True, kw_only=True)
class Recursion:
    """The recursion P_t of multipliers, and its derivatives, for one victim and pattern."""

    game: Game
    stages: list[Stage]
    victim: int
    pattern: Sequence[int]
    rho: float
    radius: float

    @cached_property
    def places(self) -> NDArray[np.bool_]:
        """Multipliers of nodes that there are, shape (T, nodes)."""
        found = self.game.active.copy()
        found[: self.pattern[0] + 1] = False
        return found

    @cached_property
    def unit(self) -> float:
        """Least variance of what is seen at a step, of one node's message."""
        nodes = len(self.game.nodes)
        return float(min(1 / max(s.seen.diagonal()[:nodes].max(), 1e-300) for s in self.stages))

    def start(self, share: float) -> Array | None:
        """Logarithms of feasible multipliers: rows of Sbar |P| sum to a share of one; or None."""
        nodes, record = np.zeros(self.places.shape), np.zeros(self.game.horizon)
        information = self.stages[-1].seen
        for t in range(self.game.horizon - 1, self.pattern[0], -1):
            most = share / np.maximum(np.abs(information).sum(axis=1), 1e-300)
            nodes[t] = np.where(self.places[t], most[: len(self.game.nodes)], 0.0)
            if t in self.pattern:
                record[t] = most[self.victim] / 2
                nodes[t][self.victim] /= 2
            before = self._before(t, information, Multipliers(nodes, record))
            if before is None:
                return None
            information = before[1]
        found = np.concatenate([nodes[self.places], record[list(self.pattern[1:])]])
        return np.asarray(np.log(found))

    def multipliers(self, x: Array) -> Multipliers:
        """The multipliers of a vector of logarithms."""
        nodes, record = np.zeros(self.places.shape), np.zeros(self.game.horizon)
        count = int(self.places.sum())
        nodes[self.places] = FLOOR * self.unit + np.exp(x[:count])
        record[list(self.pattern[1:])] = np.exp(x[count:])
        return Multipliers(nodes, record)

    def evaluate(self, x: Array, weight: float) -> Evaluated | None:
        """The bound of multipliers with its derivatives; None where infeasible."""
        found = self.multipliers(x)
        links = self._links(found)
        if links is None:
            return None
        information, chain, barrier = links
        later, nodes = list(self.pattern[1:]), len(self.game.nodes)
        prices = 1 / found.record[later]
        value = float(information[self.victim, self.victim] + prices.sum())
        slope = np.zeros((len(information), len(information)))
        slope[self.victim, self.victim] = 1.0
        rising, falling = np.zeros(found.nodes.shape), np.zeros(found.nodes.shape)
        by_record = np.zeros(len(found.record))
        for link in chain:  # the way of the recursion back: derivatives by P
            ahead = link.closed @ slope @ link.closed.T
            active = found.nodes[link.step] > 0
            ratio = self.radius / found.nodes[link.step][active]
            falling[link.step][active] = ahead.diagonal()[:nodes][active] * ratio**2
            slope = self._carried(ahead)
            moved = slope @ link.full
            gain = np.einsum("ij,ij->j", link.full, moved)
            through = slope + link.slack[:, None] * moved.T
            slope = through + (through @ link.full) * link.slack
            if weight:
                root = np.diag(np.sqrt(link.slack))
                half = scipy.linalg.solve_triangular(
                    link.pivots, root, lower=True, check_finite=False
                )
                slope = slope + weight * (half.T @ half)
                gain = gain + weight * link.full.diagonal()
            rising[link.step], by_record[link.step] = gain[:nodes], gain[self.victim]
        grown = found.nodes[self.places] - FLOOR * self.unit
        up = np.concatenate([rising[self.places] * grown, (by_record * found.record)[later]])
        down = np.concatenate([falling[self.places] * grown, prices])
        return Evaluated(value, value + weight * barrier, up - down, up + down)

    def worst_responses(self, x: Array) -> Array:
        """The responses D that these multipliers hold to be worst, shape (T, nodes)."""
        found, nodes = self.multipliers(x), len(self.game.nodes)
        links = self._links(found)
        responses = np.full(found.nodes.shape, self.rho + self.radius)
        if links is None:
            return responses
        information, chain, _ = links
        after = np.zeros(len(information))
        after[self.victim] = 1.0
        for link in chain:
            before = link.closed @ after
            carried = before * self._carry(len(before))
            price = link.full @ carried
            after = carried + link.slack * price
            with np.errstate(all="ignore"):
                share = found.nodes[link.step] * price[:nodes] / before[:nodes]
            share = np.nan_to_num(share, nan=self.radius)
            responses[link.step] = self.rho + np.clip(share, -self.radius, self.radius)
        return responses

    def _carry(self, size: int) -> Array:
        """rho for models, 1 for remembered noise."""
        found = np.ones(size)
        found[: len(self.game.nodes)] = self.rho
        return found

    def _carried(self, a: Array) -> Array:
        carry = self._carry(len(a))
        return np.asarray(carry[:, None] * a * carry)

    def _links(self, found: Multipliers) -> tuple[Array, list[_Link], float] | None:
        """P of the first step, what leads there, in the order of time, and the barrier."""
        chain, barrier, information = [], 0.0, self.stages[-1].seen
        for t in range(self.game.horizon - 1, self.pattern[0], -1):
            before = self._before(t, information, found)
            if before is None:
                return None
            link, information = before
            barrier -= 2 * float(np.log(link.pivots.diagonal()).sum())
            chain.append(link)
        return information, chain[::-1], barrier

    def _before(self, t: int, information: Array, found: Multipliers) -> tuple[_Link, Array] | None:
        """P of the step before t from that of t; None where multipliers are not feasible."""
        nodes = len(self.game.nodes)
        slack = np.zeros(len(information))
        slack[:nodes] = found.nodes[t]
        slack[self.victim] += found.record[t]
        root = np.sqrt(slack)
        inner = np.eye(len(slack)) - root[:, None] * information * root
        try:
            pivots = np.asarray(np.linalg.cholesky(inner), np.float64)
        except np.linalg.LinAlgError:
            return None
        if not pivots.diagonal().min() > math.sqrt(EDGE):
            return None
        half = scipy.linalg.solve_triangular(
            pivots, root[:, None] * information, lower=True, check_finite=False
        )
        full = information + half.T @ half
        ahead = self._carried(full)
        active = np.flatnonzero(found.nodes[t])
        ahead[active, active] += self.radius**2 / found.nodes[t][active]
        stage = self.stages[t - 1]
        loop = np.eye(len(slack)) + stage.free @ ahead
        closed = np.asarray(np.linalg.solve(loop, stage.through), np.float64)
        before = stage.seen + stage.through.T @ (ahead @ closed)
        if not np.isfinite(before).all():
            return None
        return _Link(t, slack, pivots, full, closed), (before + before.T) / 2


def minimized(
    recursion: Recursion, start: Array, *, weight: float, most: int, enough: float = 0.0
) -> Array:
    """Logarithms of multipliers of about the least bound, by L-BFGS (Nocedal and Wright, 7.2)."""
    x, first = start, recursion.evaluate(start, 0.0)
    assert first is not None
    # Relative decrease at which the search ends; with a barrier the minimum is another one anyway.
    enough_gained = max(1e-8, 1e-5 * weight)
    weight *= first.bound / max(len(x), 1)
    found = recursion.evaluate(x, weight)
    assert found is not None
    pairs: list[tuple[Array, Array, float]] = []
    evaluations = 2
    while evaluations < most and found.bound > enough:
        direction = -_inverse_product(pairs, found)
        rate = float(found.slope @ direction)
        # No logarithm changes by more than 2 in one step.
        scale = min(1.0, 2.0 / float(np.abs(direction).max(initial=1e-300)))
        following = None
        while rate < -enough_gained * found.value and evaluations < most and scale > 1e-8:
            step = scale * direction
            following = recursion.evaluate(x + step, weight)
            evaluations += 1
            if following is not None and following.value <= found.value + 1e-4 * scale * rate:
                break
            following, scale = None, scale / 2
        if following is None:
            if not pairs:
                break
            pairs = []
            continue
        change = following.slope - found.slope
        curvature = float(step @ change)
        if curvature > 1e-12 * float(np.linalg.norm(step) * np.linalg.norm(change)):
            pairs = [*pairs[-29:], (step, change, 1 / curvature)]
        x, before, found = x + step, found.value, following
        if before - found.value <= enough_gained * before and len(pairs) > 1:
            break
    return x


def _inverse_product(pairs: list[tuple[Array, Array, float]], at: Evaluated) -> Array:
    """The two loops of L-BFGS about a diagonal, that of the curvature."""
    found, coefficients = at.slope.copy(), []
    diagonal = 1 / np.maximum(at.curvature, 1e-12 * at.curvature.max(initial=1e-300))
    for step, change, inverse in reversed(pairs):
        coefficients.append(inverse * float(step @ found))
        found -= coefficients[-1] * change
    if pairs:
        step, change, inverse = pairs[-1]
        found /= inverse * float(change @ (diagonal * change))
    found *= diagonal
    for (step, change, inverse), coefficient in zip(pairs, reversed(coefficients), strict=True):
        found += step * (coefficient - inverse * float(change @ found))
    return found
