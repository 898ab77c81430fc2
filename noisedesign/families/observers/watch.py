"""The gradients that a search looks at: all that observers see, or those that come near a budget.

Of very many coalitions, and of what nodes hear over many steps, few budgets bind. The optimum
against some of them is a lower bound of that against all, and what their multipliers prove holds
for all; noise is judged before every one of them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from noisedesign.base.checks import Array
from noisedesign.families.observers.bound import Multipliers, arrays_of
from noisedesign.families.observers.lagged import Run
from noisedesign.families.observers.pools import Indices
from noisedesign.families.observers.program import ObservedNoise, ObserverProblem, ObserverProgram
from noisedesign.families.observers.stacks import Stacks
from noisedesign.program.family import Arrays

FEW = 500
"""Coalitions that are all watched."""

FEW_PAIRS = 2**12
"""Gradients of observers one by one that are all watched."""

MOST = 8
"""Gradients that are watched in addition at a time, per node."""

NEAR = 0.5
"""Squared sensitivity over its budget, relative to the largest, from which on those of observers
one by one are watched at first, at independent noise."""

QUIET = 0.5
"""The same, over its budget, below which they need not be watched."""

LITTLE = 0.9
"""That below which a gradient need not be watched before coalitions, which are very many."""

MANY = 0.2
"""Share of those that are watched for whom that must be so."""

SOME = 0.04
"""Share of those that are watched, of which so few are new that the next look may wait."""

FIRST_STEPS = 2
"""Of several steps, that are watched at first: the optimum against what is heard of them is not far
from that against all, and a sweep takes a fraction of the time."""

LONGEST = 4
"""Looks of the search to which everything is compared at least once."""

LIKELY = 0.8
"""Squared sensitivity over its budget, at the last look at all coalitions, from which on they are
looked at in between."""

WHOLE = 4
"""Looks at coalitions of which one is at all of them."""


class Watch:
    """Gradients before observers of a problem: those of ``program``, and more once noise is near
    telling them.

    Gradients are known by ``keys``, (place of the observer) n + victim, ascending; ``places`` are
    those of the observers of the program.

    Args:
        problem: of any observers.
        gradients: whether to watch some gradients of an observer alone, not all or none.
    """

    def __init__(self, problem: ObserverProblem, *, gradients: bool = False) -> None:
        self.problem, self.gradients = problem, gradients
        self.waits = self.patience = 1
        self.looks = 0
        self.likely: NDArray[np.bool_] | None = None
        self._known: dict[int, ObservedNoise] = {}
        self._everything: Stacks | None = None
        self.run: Run | None = None
        if problem.pooled:
            members = problem.pools.members
            few = len(members) <= FEW
            places = np.arange(len(members)) if few else _covering(members)
            self.some = not few
            self.whole = problem.among(members[:1]).normalized
            self.keys = self._all_keys(places)
        else:
            self.whole = problem.normalized
            self._known = dict(enumerate(self.whole.observers))
            pairs = sum(len(seen.victims) for seen in self.whole.observers)
            self.some = gradients and pairs > FEW_PAIRS and not problem.correlated_over_time
            self.keys = np.zeros(0, dtype=np.intp)
            run = self.whole.observers[0].run
            if self.some and run is not None and run.steps > FIRST_STEPS:
                self.run = run.of_first(FIRST_STEPS)
            if self.some:
                self._everything = self._all_stacks()
                keys, told = self._told(np.diag(np.minimum(1.0, self.whole.cap)))
                self.keys = np.sort(keys[told > NEAR * told.max()])
        self.places, self.program = self._program()

    def _all_stacks(self) -> Stacks:
        places = np.arange(len(self.whole.observers))
        return Stacks(replace(self.whole, observers=tuple(self._heard_by(places))))

    def lengthen(self) -> bool:
        """Watch twice as many steps from now on; whether that was not all of them."""
        if self.run is None:
            return False
        run = self.whole.observers[0].run
        assert run is not None
        steps = 2 * self.run.steps
        self.run = run.of_first(steps) if steps < run.steps else None
        self._everything = self._all_stacks()
        self.places, self.program = self._program()
        self.waits = self.patience = 1
        return True

    @property
    def size(self) -> int:
        return self.problem.size

    def _all_keys(self, places: Indices) -> Indices:
        seen = zip(places, self._seen(places), strict=True)
        parts = [place * self.size + np.array(one.victims) for place, one in seen]
        return np.sort(np.concatenate([*parts, np.zeros(0)])).astype(np.intp)

    def _seen(self, places: Indices) -> list[ObservedNoise]:
        """With all their gradients."""
        new = [place for place in places.tolist() if place not in self._known]
        if new:
            found = self.problem.among(self.problem.pools.members[new]).seen
            self._known.update(zip(new, found, strict=True))
        return [self._known[place] for place in places.tolist()]

    def _heard_by(self, places: Indices) -> list[ObservedNoise]:
        """Of the steps that are watched."""
        seen = self._seen(places)
        return seen if self.run is None else [one.early(self.run) for one in seen]

    def _program(self) -> tuple[Indices, ObserverProgram]:
        if not self.some and not self.problem.pooled:
            return np.arange(len(self.whole.observers)), self.whole
        places, starts = np.unique(self.keys // self.size, return_index=True)
        victims = np.split(self.keys % self.size, starts[1:])
        observers = []
        for seen, some in zip(self._heard_by(places), victims, strict=True):
            few = len(some) < len(seen.victims)
            own = np.searchsorted(np.array(seen.victims), some) if few else None
            observers.append(seen if own is None else seen.only(own))
        return places, replace(self.whole, observers=tuple(observers))

    def keys_of(self, stacks: Stacks) -> Indices:
        """Those of the gradients of stacks of the program, in their order."""
        return _flat(
            [self.places[s.places][:, None] * self.size + s.victims for s in stacks.stacks]
        )

    def due(self) -> bool:
        """Whether to compare everything now: each time the question is put, but less often while
        few are new."""
        if not self.some:
            return False
        self.waits -= 1
        return self.waits <= 0

    def renewed(self, noise: Array, told: Array | None = None) -> bool:
        """Watch those too that are told more than they may be at R, in units of the program, the
        worst first; whether those watched are others than before.

        Args:
            noise: R, in units of the program.
            told: squared sensitivities over their budgets of those that are watched, in the order
                of ``keys``; those that are told little are watched no longer then, where they are
                many. None: all are watched on.
        """
        if not self.some:
            return False
        keys, amount = self._told(noise)
        fresh = (amount > 1) & ~np.isin(keys, self.keys)
        keys, amount = keys[fresh], amount[fresh]
        new = keys[np.argsort(-amount)[: MOST * self.size]]
        if not self.gradients:
            new = np.setdiff1d(self._all_keys(np.unique(new // self.size)), self.keys)
        kept = self.keys
        little = LITTLE if self._everything is None else QUIET
        if told is not None and MANY < np.mean(told < little) < 1:
            kept = kept[told >= little]
        quiet = len(new) < SOME * len(self.keys)
        self.patience = min(2 * self.patience, LONGEST) if quiet else 1
        self.waits = self.patience
        if not len(new) and len(kept) == len(self.keys):
            return False
        self.keys = np.union1d(kept, new)
        self.places, self.program = self._program()
        return True

    def _told(self, noise: Array) -> tuple[Indices, Array]:
        """Gradients that are told something, by their keys, and how much: of coalitions those that
        are told more than they may be."""
        if self._everything is None:
            pools = self.problem.pools
            whole = self.likely is None or self.looks % WHOLE == 0
            self.looks += 1
            found = pools.told(noise, level=1.0, among=None if whole else self.likely)
            if whole:
                self.likely = found.by_coalition > LIKELY
            return found.places * self.size + found.victims, found.amounts
        stacks = self._everything
        keys = [s.places[:, None] * self.size + s.victims for s in stacks.stacks]
        return _flat(keys), np.concatenate([told.ravel() for told in stacks.look(noise).told])

    def largest(self, noise: Array) -> Array | None:
        """The largest squared sensitivity of every node before all of them; None where all are
        watched."""
        if self._everything is not None:
            return self._everything.largest(self._everything.look(noise))
        return self.problem.pools.told(noise).of_node if self.problem.pooled else None

    def proof(self, multipliers: Multipliers) -> Arrays:
        """Multipliers as they are stored: of all observers, or of coalitions that have any."""
        given = dict(zip(self.places.tolist(), range(len(self.places)), strict=True))
        if self.problem.pooled:
            order = [p for p, i in given.items() if len(multipliers.factors[i])]
        else:
            order = list(range(len(self.whole.observers)))
        factors, weights, seen = [], [], self._seen(np.array(order, dtype=np.intp))
        for place, one in zip(order, seen, strict=True):
            whole, factor = np.zeros(len(one.victims)), np.zeros((0, len(one.signals)))
            if place in given:
                watched = self.program.observers[given[place]]
                factor = multipliers.factors[given[place]]
                own = multipliers.weights[given[place]]
                if len(own) == len(whole):
                    whole = own
                else:
                    whole[np.searchsorted(one.victims, watched.victims)] = own
            factors.append(factor)
            weights.append(whole)
        kept = Multipliers(factors=tuple(factors), weights=tuple(weights), cap=multipliers.cap)
        program = replace(self.program, observers=tuple(seen))
        if not self.problem.pooled:
            return arrays_of(program, kept)
        members = self.problem.pools.members[order]
        return arrays_of(program, kept, coalitions=members.astype(np.float64))


def _covering(members: Indices) -> Indices:
    """Places of a coalition for every node that may look: the first that begins with it."""
    return np.asarray(np.unique(members[:, 0], return_index=True)[1])


def _flat(parts: list[Indices]) -> Indices:
    return np.concatenate([part.ravel() for part in parts])
