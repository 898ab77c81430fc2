"""Observers of equal shape side by side, so that one call looks at all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisedesign.base.checks import Array
from noisedesign.families.observers import lagged
from noisedesign.families.observers.bound import Multipliers
from noisedesign.families.observers.program import ObserverProgram

LEAST = 1e-7
"""Weight of a gradient, relative to the largest, below which it is not worth storing."""


class Sight(NamedTuple):
    """What observers tell of R, stack by stack: ``told``, the squared sensitivities
    diag(G_a^T K_a(R)^-1 G_a), shape (g, c), and ``solved``, Q_a = K_a(R)^-1 G_a, shape (g, m, c).
    """

    told: list[Array]
    solved: list[Array]


class _Stack(NamedTuple):
    """Observers with as many messages, coordinates and gradients.

    Shapes: ``places`` among all observers (g,); ``support``, coordinates of the noise (g, s);
    ``responses`` B_a on it (g, k, m, s), or None where they are orthogonal and square: the
    messages are then taken in coordinates of the noise, and turned back by ``basis``, (g, m, m);
    ``lags`` (g, T, m / T, n) in the place of both; ``signals`` G_a (g, m, c); ``victims`` (g, c).
    """

    places: NDArray[np.intp]
    support: NDArray[np.intp]
    responses: Array | None
    basis: Array | None
    lags: Array | None
    signals: Array
    victims: NDArray[np.intp]

    def covariance(self, noise: Array) -> Array:
        """K_a(R), shape (g, m, m)."""
        if self.lags is not None:
            return lagged.covariances(self.lags, noise)
        seen = noise[self.support[:, :, None], self.support[:, None, :]]
        if self.responses is None:
            return np.asarray(seen)
        return np.asarray(
            (self.responses @ seen[:, None] @ self.responses.swapaxes(2, 3)).sum(axis=1)
        )

    def response(self, index: int) -> Array:
        """B_a of one of them on its support, shape (k, m, s), in these coordinates."""
        if self.lags is not None:
            return lagged.unrolled(self.lags[index])
        if self.responses is None:
            return np.eye(self.support.shape[1])[None]
        return np.asarray(self.responses[index])

    def used(self, solved: Array, weights: Array, some: NDArray[np.bool_]) -> Array:
        """The sum of K_a*(Q_a diag(v_a) Q_a^T) over ``some`` of them that have lags."""
        assert self.lags is not None
        factors = solved[some] * np.sqrt(weights[some])[:, None, :]
        return lagged.used(self.lags[some], factors @ factors.swapaxes(1, 2))

    def rows(self, factors: Array) -> Array:
        """F_a B_a on the support, shape (g, rows, s), of ``factors`` (g, c, m)."""
        if self.responses is None:
            return factors
        found = factors[:, None] @ self.responses
        return np.asarray(found.reshape(len(found), -1, found.shape[-1]))


class Stacks:
    """The observers of a program.

    ``owners`` are the places of observers in the order of the stacks; ``pairs`` their number of
    gradients, all together.
    """

    def __init__(self, program: ObserverProgram) -> None:
        self.size = program.size
        shapes: dict[tuple[int, ...], list[int]] = {}
        for place, seen in enumerate(program.observers):
            shape = seen.local.shape if seen.lags is None else seen.lags.shape
            key = (seen.lags is None, *shape, seen.signals.shape[1])
            shapes.setdefault(key, []).append(place)
        self.stacks = [_stacked(program, places) for places in shapes.values()]
        self.owners = np.concatenate([stack.places for stack in self.stacks])
        self.pairs = sum(stack.signals.shape[0] * stack.signals.shape[2] for stack in self.stacks)
        self.lagged = any(stack.lags is not None for stack in self.stacks)
        cells = [
            (stack.support[:, :, None] * self.size + stack.support[:, None, :]).ravel()
            for stack in self.stacks
            if stack.lags is None
        ]
        self._cells = np.concatenate([*cells, np.zeros(0, dtype=np.intp)])

    def evenly(self) -> list[Array]:
        """Weights that sum to one."""
        return self.all_equal(1 / self.pairs)

    def all_equal(self, value: float) -> list[Array]:
        """A number for every observer and gradient."""
        return [np.full(stack.victims.shape, value) for stack in self.stacks]

    def by_place(self, weights: Sequence[Array]) -> dict[int, Array]:
        """Such numbers observer by observer."""
        parts = zip(self.stacks, weights, strict=True)
        return {
            int(place): one
            for stack, own in parts
            for place, one in zip(stack.places, own, strict=True)
        }

    def of_places(
        self, known: Mapping[int, Array], came_from: NDArray[np.intp], *, others: float
    ) -> list[Array]:
        """Numbers stack by stack, of observers that were at places ``came_from``; of those that
        were at none, below 0, ``others`` each."""
        found = self.all_equal(others)
        for stack, own in zip(self.stacks, found, strict=True):
            for row, place in enumerate(stack.places):
                if came_from[place] >= 0:
                    own[row] = known[int(came_from[place])]
        return found

    def look(self, noise: Array) -> Sight:
        """At noise, in one call a stack."""
        told, solved = [], []
        for stack in self.stacks:
            inverse = np.asarray(
                np.linalg.solve(stack.covariance(noise), stack.signals), np.float64
            )
            solved.append(inverse)
            told.append(np.einsum("gmc,gmc->gc", stack.signals, inverse))
        return Sight(told, solved)

    def used(self, sight: Sight, weights: Sequence[Array]) -> Array:
        """S = sum_a K_a*(Q_a diag(v_a) Q_a^T), shape (p, p)."""
        parts, long = [np.zeros(0)], np.zeros((self.size, self.size))
        for stack, solved, own in zip(self.stacks, sight.solved, weights, strict=True):
            if stack.lags is None:
                rows = _rows(stack, solved, own)
                parts.append((rows.swapaxes(1, 2) @ rows).ravel())
            else:
                long += stack.used(solved, own, np.ones(len(own), dtype=bool))
        total = np.bincount(
            self._cells, weights=np.concatenate(parts), minlength=self.size * self.size
        )
        return np.asarray(total.reshape(self.size, self.size) + long)

    def grouped(self, sight: Sight, weights: Sequence[Array], groups: NDArray[np.intp]) -> Array:
        """The same of groups of observers, which are in the order of ``owners``, shape
        (groups, p, p)."""
        found, start = np.zeros((int(groups.max()) + 1, self.size, self.size)), 0
        for stack, solved, own in zip(self.stacks, sight.solved, weights, strict=True):
            group = groups[start : start + len(own)]
            start += len(own)
            if stack.lags is not None:
                for one in np.unique(group):
                    found[one] += stack.used(solved, own, group == one)
                continue
            rows = _rows(stack, solved, own)
            where = (group[:, None, None], stack.support[:, :, None], stack.support[:, None, :])
            np.add.at(found, where, rows.swapaxes(1, 2) @ rows)
        return found

    def rows(self, sight: Sight, weights: Sequence[Array]) -> list[Array]:
        """F_a B_a, N_a = F_a^T F_a = Q_a diag(v_a) Q_a^T, shape (g, rows, s), none with lags."""
        return [_rows(*each) for each in zip(self.stacks, sight.solved, weights, strict=True)]

    def gained(self, sight: Sight, weights: Sequence[Array]) -> Array:
        """What each N_a proves, in the order of ``owners``: V^1/2 G^T N G V^1/2 is the square of
        the positive semidefinite V^1/2 G^T K^-1 G V^1/2, whose trace is <v, told>."""
        parts = zip(sight.told, weights, strict=True)
        found = [(own * told).sum(axis=1) ** 2 / own.sum(axis=1) for told, own in parts]
        return np.concatenate(found)

    def largest(self, sight: Sight) -> Array:
        """The largest squared sensitivity of every node, shape (n,), 0 for whom nobody sees."""
        nodes = 1 + max(int(stack.victims.max(initial=0)) for stack in self.stacks)
        found = np.zeros(max(nodes, self.size))
        for stack, told in zip(self.stacks, sight.told, strict=True):
            np.maximum.at(found, stack.victims, told)
        return found

    def multipliers(
        self, sight: Sight, weights: Sequence[Array], shares: Array, prices: Array
    ) -> Multipliers:
        """N_a times ``shares``, in the order of ``owners``; observer by observer."""
        factors: list[Array] = [np.empty(0)] * len(self.owners)
        split: list[Array] = [np.empty(0)] * len(self.owners)
        start = 0
        heaviest = max(float(own.max()) for own in weights)
        for stack, solved, own in zip(self.stacks, sight.solved, weights, strict=True):
            part = shares[start : start + len(own), None] * own
            found = (solved * np.sqrt(part)[:, None, :]).swapaxes(1, 2)
            if stack.basis is not None:
                found = found @ stack.basis.swapaxes(1, 2)
            for place, factor, weight in zip(stack.places, found, own, strict=True):
                some = weight > LEAST * heaviest
                factors[place], split[place] = factor[some], np.where(some, weight, 0.0)
            start += len(own)
        return Multipliers(factors=tuple(factors), weights=tuple(split), cap=prices)


def _rows(stack: _Stack, solved: Array, weights: Array) -> Array:
    return stack.rows((solved * np.sqrt(weights)[:, None, :]).swapaxes(1, 2))


def _stacked(program: ObserverProgram, places: list[int]) -> _Stack:
    seen = [program.observers[place] for place in places]
    signals = np.array([one.signals for one in seen])
    basis: Array | None = None
    responses: Array | None = None
    lags: Array | None = None
    if seen[0].lags is not None:
        lags = np.array([one.lags for one in seen])
    else:
        responses = np.array([one.local for one in seen])
        blocks, rows, columns = responses.shape[1:]
        if (blocks, rows) == (1, columns):
            basis, responses = responses[:, 0], None
    return _Stack(
        places=np.array(places),
        support=np.array([one.support for one in seen]),
        responses=responses,
        basis=basis,
        lags=lags,
        signals=signals if basis is None else basis.swapaxes(1, 2) @ signals,
        victims=np.array([one.victims for one in seen], dtype=np.intp).reshape(signals[:, 0].shape),
    )
