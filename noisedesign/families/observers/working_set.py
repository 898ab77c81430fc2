"""The gradients that a search looks at: all that observers see, or those that come near a budget.

The optimum against some budgets is a lower bound of that against all, and what their multipliers
prove holds for all; noise is judged before every one of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from noisedesign.base.checks import Array
from noisedesign.families.family import Arrays
from noisedesign.families.observers.batches import Batches
from noisedesign.families.observers.bound import Multipliers, arrays_of
from noisedesign.families.observers.observed import Indices, ObservedNoise
from noisedesign.families.observers.program import ObserverProgram, UnitProgram

FEW = 500  # coalitions that are all looked at
FEW_PAIRS = 2**12  # gradients of observers one by one that are all looked at
MOST = 8  # gradients that are added at a time, per node
# Squared sensitivity over its budget, relative to the largest, from which on gradients of observers
# one by one are looked at first, at independent noise.
NEAR = 0.5


class WorkingSet:
    """Gradients before observers of a problem: those of ``program``, and more once noise is near
    telling them, known by ascending ``keys``, (place of the observer) n + victim; ``places`` are
    those of the observers of the program. Without ``gradients`` all of an observer or none."""

    def __init__(self, problem: ObserverProgram, *, gradients: bool = False) -> None:
        self.problem, self.gradients, self.size = problem, gradients, problem.size
        self._wait = self._patience = 1
        self._looks = 0
        self._likely: NDArray[np.bool_] | None = None
        self._known: dict[int, ObservedNoise] = {}
        self._everything: Batches | None = None
        if problem.pooled:
            members = problem.every_coalition.members
            self.some = len(members) > FEW
            # One coalition for every node that may look: the first that begins with it.
            first = np.unique(members[:, 0], return_index=True)[1]
            self._whole = problem.among(members[:1]).normalized
            self.keys = self._all_keys(first if self.some else np.arange(len(members)))
        else:
            self._whole = problem.normalized
            self._known = dict(enumerate(self._whole.observers))
            pairs = sum(len(seen.victims) for seen in self._whole.observers)
            self.some = gradients and pairs > FEW_PAIRS
            self.keys = np.zeros(0, dtype=np.intp)
            if self.some:
                self._everything = Batches(self._whole)
                keys, told = self._told(np.diag(np.minimum(1.0, self._whole.cap)))
                self.keys = np.sort(keys[told > NEAR * told.max()])
        self.places, self.program = self._program()

    def _all_keys(self, places: Indices) -> Indices:
        seen = zip(places, self._seen(places), strict=True)
        parts = [place * self.size + np.array(one.victims) for place, one in seen]
        return np.sort(np.concatenate([*parts, np.zeros(0)])).astype(np.intp)

    def _seen(self, places: Indices) -> list[ObservedNoise]:
        """The observers at these places, with all their gradients."""
        new = [place for place in places.tolist() if place not in self._known]
        if new:
            found = self.problem.among(self.problem.every_coalition.members[new]).seen
            self._known.update(zip(new, found, strict=True))
        return [self._known[place] for place in places.tolist()]

    def _program(self) -> tuple[Indices, UnitProgram]:
        if not self.some and not self.problem.pooled:
            return np.arange(len(self._whole.observers)), self._whole
        places, starts = np.unique(self.keys // self.size, return_index=True)
        victims = np.split(self.keys % self.size, starts[1:])
        observers = []
        for seen, some in zip(self._seen(places), victims, strict=True):
            if len(some) < len(seen.victims):
                seen = seen.only(np.searchsorted(np.array(seen.victims), some))
            observers.append(seen)
        return places, replace(self._whole, observers=tuple(observers))

    def keys_of(self, batches: Batches) -> Indices:
        """The keys of the gradients of batches of the program, in their order."""
        return _keys(batches, self.places, self.size)

    def due(self) -> bool:
        """Whether to compare everything now: less often while few gradients are new."""
        self._wait -= 1
        return self.some and self._wait <= 0

    def renewed(self, noise: Array, told: Array | None = None) -> bool:
        """Add those that are told more than they may be at R, the worst first; whether those looked
        at are others than before. Of ``told``, squared sensitivities over budgets of those looked
        at, by ``keys``, little ones are dropped, where they are many."""
        if not self.some:
            return False
        keys, amount = self._told(noise)
        fresh = (amount > 1) & ~np.isin(keys, self.keys)
        keys, amount = keys[fresh], amount[fresh]
        new = keys[np.argsort(-amount)[: MOST * self.size]]
        if not self.gradients:
            new = np.setdiff1d(self._all_keys(np.unique(new // self.size)), self.keys)
        kept = self.keys
        little = 0.9 if self._everything is None else 0.5  # coalitions are very many
        if told is not None and 0.2 < np.mean(told < little) < 1:
            kept = kept[told >= little]
        # While few are new the next look may wait, up to four times as long.
        quiet = len(new) < 0.04 * len(self.keys)
        self._patience = min(2 * self._patience, 4) if quiet else 1
        self._wait = self._patience
        if not len(new) and len(kept) == len(self.keys):
            return False
        self.keys = np.union1d(kept, new)
        self.places, self.program = self._program()
        return True

    def _told(self, noise: Array) -> tuple[Indices, Array]:
        """Keys of gradients and how much they are told; of coalitions only what is too much."""
        if self._everything is None:
            # One look in four is at all coalitions, the others at those that were told much then.
            whole = self._likely is None or self._looks % 4 == 0
            self._looks += 1
            found = self.problem.every_coalition.told(
                noise, level=1.0, among=None if whole else self._likely
            )
            if whole:
                self._likely = found.by_coalition > 0.8
            return found.places * self.size + found.victims, found.amounts
        told = np.concatenate([told.ravel() for told in self._everything.look(noise).told])
        return _keys(self._everything, np.arange(len(self._whole.observers)), self.size), told

    def largest(self, noise: Array, batches: Batches) -> Array:
        """The largest squared sensitivity of every node; ``batches`` are those of the program."""
        if self._everything is None and self.problem.pooled:
            return self.problem.every_coalition.told(noise).of_node
        return (self._everything or batches).largest(noise)

    def proof(self, multipliers: Multipliers) -> Arrays:
        """Multipliers as they are stored: of all observers, or of coalitions that have any."""
        given = {place: i for i, place in enumerate(self.places.tolist())}
        if self.problem.pooled:
            order = [p for p, i in given.items() if len(multipliers.factors[i])]
        else:
            order = list(range(len(self._whole.observers)))
        factors, weights, seen = [], [], self._seen(np.array(order, dtype=np.intp))
        for place, one in zip(order, seen, strict=True):
            whole, factor = np.zeros(len(one.victims)), np.zeros((0, len(one.signals)))
            if place in given:
                looked_at = self.program.observers[given[place]]
                factor = multipliers.factors[given[place]]
                own = multipliers.weights[given[place]]
                whole[np.searchsorted(one.victims, looked_at.victims)] = own
            factors.append(factor)
            weights.append(whole)
        kept = Multipliers(factors=tuple(factors), weights=tuple(weights), cap=multipliers.cap)
        program = replace(self.program, observers=tuple(seen))
        if not self.problem.pooled:
            return arrays_of(program, kept)
        members = self.problem.every_coalition.members[order]
        return arrays_of(program, kept, coalitions=members.astype(np.float64))


def _keys(batches: Batches, places: Indices, size: int) -> Indices:
    """The keys of gradients of batches whose observers have these ``places``."""
    keys = [places[one.places][:, None] * size + one.victims for one in batches.batches]
    return np.concatenate([part.ravel() for part in keys])
