"""The observers that a search looks at: all of them, or coalitions as they come near their budgets.

Of very many coalitions few bind. The optimum against some of them is a lower bound of that against
all, and what their multipliers prove holds for all; noise is judged before every one of them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from noisedesign.base.checks import Array
from noisedesign.families.observers.bound import Multipliers, arrays_of
from noisedesign.families.observers.pools import Indices
from noisedesign.families.observers.program import ObserverProblem, ObserverProgram
from noisedesign.program.family import Arrays

FEW = 500
"""Coalitions that are all watched."""

MOST = 4
"""Coalitions that are watched in addition at a time, per node."""

LITTLE = 0.9
"""Squared sensitivity over its budget below which a coalition need not be watched."""

MANY = 0.2
"""Share of those that are watched for whom that must be so."""

SOME = 0.01
"""Share of those that are watched, of which so few are new that the next look may wait."""

LONGEST = 4
"""Looks of the search to which all coalitions are compared at least once."""


class Watch:
    """Observers of a problem: those of ``program``, and more once noise is near telling them."""

    def __init__(self, problem: ObserverProblem) -> None:
        self.problem = problem
        self.places: Indices | None = None
        if problem.pooled:
            members = problem.pools.members
            few = len(members) <= FEW
            self.places = np.arange(len(members)) if few else _covering(members)
        self.program = self._program()
        self.came_from: Indices = np.zeros(0, dtype=np.intp)
        self.waits = self.patience = 1

    def _program(self) -> ObserverProgram:
        if self.places is None:
            return self.problem.normalized
        return self.problem.among(self.problem.pools.members[self.places]).normalized

    def due(self) -> bool:
        """Whether to compare all coalitions now: each time the question is put, but less often
        while few are new."""
        if self.places is None or len(self.places) == len(self.problem.pools.members):
            return False
        self.waits -= 1
        return self.waits <= 0

    def renewed(self, noise: Array, told: Array | None = None) -> bool:
        """Watch those too who are told more than they may be at R, in units of the program, the
        worst first; whether those watched are others than before.

        Args:
            noise: R, in units of the program.
            told: the largest squared sensitivity over its budget of each that is watched; those
                who are told little are watched no longer then, where they are many. None: all are
                watched on.
        """
        if self.places is None or len(self.places) == len(self.problem.pools.members):
            return False
        everybody = self.problem.pools.told(noise).by_coalition
        everybody[self.places] = 0.0
        new = np.argsort(-everybody)[: MOST * self.problem.size]
        new = new[everybody[new] > 1]
        kept = np.arange(len(self.places))
        if told is not None and np.mean(told < LITTLE) > MANY:
            kept = np.flatnonzero(told >= LITTLE)
        quiet = len(new) < SOME * len(self.places)
        self.patience = min(2 * self.patience, LONGEST) if quiet else 1
        self.waits = self.patience
        if not len(new) and len(kept) == len(self.places):
            return False
        self.places = np.concatenate([self.places[kept], new])
        self.came_from = np.concatenate([kept, np.full(len(new), -1)])
        self.program = self._program()
        return True

    def largest(self, noise: Array) -> Array | None:
        """The largest squared sensitivity of every node before all of them; None where all are
        watched."""
        return None if self.places is None else self.problem.pools.told(noise).of_node

    def proof(self, multipliers: Multipliers) -> Arrays:
        """Multipliers as they are stored, those of coalitions that have any."""
        if self.places is None:
            return arrays_of(self.program, multipliers)
        some = [i for i, factor in enumerate(multipliers.factors) if len(factor)]
        kept = Multipliers(
            factors=tuple(multipliers.factors[i] for i in some),
            weights=tuple(multipliers.weights[i] for i in some),
            cap=multipliers.cap,
        )
        members = self.problem.pools.members[self.places[some]]
        program = replace(self.program, observers=tuple(self.program.observers[i] for i in some))
        return arrays_of(program, kept, coalitions=members.astype(np.float64))


def _covering(members: Indices) -> Indices:
    """Places of a coalition for every node that may look: the first that begins with it."""
    return np.asarray(np.unique(members[:, 0], return_index=True)[1])
