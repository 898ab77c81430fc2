"""Observers of equal shape side by side, so that one call looks at all of them."""

from __future__ import annotations

from collections.abc import Sequence
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
    a ``run`` and who of it is ``heard`` (g, m / T) in the place of both; ``signals`` G_a (g, m, c);
    ``victims`` (g, c).
    """

    places: NDArray[np.intp]
    support: NDArray[np.intp]
    responses: Array | None
    basis: Array | None
    run: lagged.Run | None
    heard: NDArray[np.intp]
    signals: Array
    victims: NDArray[np.intp]

    def covariance(self, noise: Array) -> Array:
        """K_a(R), shape (g, m, m), where they hear no run."""
        seen = noise[self.support[:, :, None], self.support[:, None, :]]
        if self.responses is None:
            return np.asarray(seen)
        return np.asarray(
            (self.responses @ seen[:, None] @ self.responses.swapaxes(2, 3)).sum(axis=1)
        )

    def response(self, index: int) -> Array:
        """B_a of one of them on its support, shape (k, m, s), in these coordinates."""
        if self.run is not None:
            return lagged.unrolled(self.run.lags(self.heard[index]))
        if self.responses is None:
            return np.eye(self.support.shape[1])[None]
        return np.asarray(self.responses[index])

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
            alone = seen.run is None
            shape = seen.local.shape if alone else seen.heard.shape
            key = (alone, *shape, seen.signals.shape[1])
            shapes.setdefault(key, []).append(place)
        self.stacks = [_stacked(program, places) for places in shapes.values()]
        self.owners = np.concatenate([stack.places for stack in self.stacks])
        self.pairs = sum(stack.signals.shape[0] * stack.signals.shape[2] for stack in self.stacks)
        runs = [stack.run for stack in self.stacks if stack.run is not None]
        self.run = runs[0] if runs else None
        cells = [
            (stack.support[:, :, None] * self.size + stack.support[:, None, :]).ravel()
            for stack in self.stacks
            if stack.run is None
        ]
        self._cells = np.concatenate([*cells, np.zeros(0, dtype=np.intp)])

    def evenly(self) -> list[Array]:
        """Weights that sum to one."""
        return self.all_equal(1 / self.pairs)

    def all_equal(self, value: float) -> list[Array]:
        """A number for every observer and gradient."""
        return [np.full(stack.victims.shape, value) for stack in self.stacks]

    def split(self, numbers: Array) -> list[Array]:
        """Numbers of all gradients, one stack after another, stack by stack."""
        shapes = [stack.victims.shape for stack in self.stacks]
        ends = np.cumsum([rows * columns for rows, columns in shapes])[:-1]
        parts = zip(np.split(numbers, ends), shapes, strict=True)
        return [part.reshape(shape) for part, shape in parts]

    def covariances(self, noise: Array) -> list[Array]:
        """K_a(R) stack by stack, shape (g, m, m)."""
        heard = [stack.heard for stack in self.stacks if stack.run is not None]
        long = iter(self.run.covariances(noise, heard) if self.run is not None else ())
        return [
            stack.covariance(noise) if stack.run is None else next(long) for stack in self.stacks
        ]

    def look(self, noise: Array) -> Sight:
        """At noise, in one call a stack."""
        told, solved = [], []
        for stack, covariance in zip(self.stacks, self.covariances(noise), strict=True):
            inverse = np.asarray(np.linalg.solve(covariance, stack.signals), np.float64)
            solved.append(inverse)
            told.append(np.einsum("gmc,gmc->gc", stack.signals, inverse))
        return Sight(told, solved)

    def used(self, sight: Sight, weights: Sequence[Array]) -> Array:
        """S = sum_a K_a*(Q_a diag(v_a) Q_a^T), shape (p, p)."""
        parts = [np.zeros(0)]
        for stack, solved, own in zip(self.stacks, sight.solved, weights, strict=True):
            if stack.run is None:
                rows = _rows(stack, solved, own)
                parts.append((rows.swapaxes(1, 2) @ rows).ravel())
        found = np.bincount(
            self._cells, weights=np.concatenate(parts), minlength=self.size * self.size
        )
        total = found.reshape(self.size, self.size)
        return np.asarray(total + self._used_of_run(sight, weights) if self.run else total)

    def _used_of_run(
        self, sight: Sight, weights: Sequence[Array], some: NDArray[np.bool_] | None = None
    ) -> Array:
        """The same of those who hear a run, or ``some``, in the order of ``owners``."""
        assert self.run is not None
        multipliers, heard, start = [], [], 0
        for stack, solved, own in zip(self.stacks, sight.solved, weights, strict=True):
            which = slice(None) if some is None else some[start : start + len(own)]
            start += len(own)
            if stack.run is not None:
                factors = solved[which] * np.sqrt(own[which])[:, None, :]
                multipliers.append(factors @ factors.swapaxes(1, 2))
                heard.append(stack.heard[which])
        return self.run.used(multipliers, heard)

    def grouped(self, sight: Sight, weights: Sequence[Array], groups: NDArray[np.intp]) -> Array:
        """The same of groups of observers, which are in the order of ``owners``, shape
        (groups, p, p)."""
        found, start = np.zeros((int(groups.max()) + 1, self.size, self.size)), 0
        for stack, solved, own in zip(self.stacks, sight.solved, weights, strict=True):
            group = groups[start : start + len(own)]
            start += len(own)
            if stack.run is not None:
                continue
            rows = _rows(stack, solved, own)
            where = (group[:, None, None], stack.support[:, :, None], stack.support[:, None, :])
            np.add.at(found, where, rows.swapaxes(1, 2) @ rows)
        if self.run is not None:
            for one in np.unique(groups):
                found[one] += self._used_of_run(sight, weights, groups == one)
        return found

    def rows(self, sight: Sight, weights: Sequence[Array]) -> list[Array]:
        """F_a B_a, N_a = F_a^T F_a = Q_a diag(v_a) Q_a^T, shape (g, rows, s), of no run."""
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
    if seen[0].run is None:
        responses = np.array([one.local for one in seen])
        blocks, rows, columns = responses.shape[1:]
        if (blocks, rows) == (1, columns):
            basis, responses = responses[:, 0], None
    return _Stack(
        places=np.array(places),
        support=np.array([one.support for one in seen]),
        responses=responses,
        basis=basis,
        run=seen[0].run,
        heard=np.array([one.heard for one in seen]),
        signals=signals if basis is None else basis.swapaxes(1, 2) @ signals,
        victims=np.array([one.victims for one in seen], dtype=np.intp).reshape(signals[:, 0].shape),
    )
