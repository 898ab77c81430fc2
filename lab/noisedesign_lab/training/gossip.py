"""Mixing of models: W fixed, in turn, or drawn anew every round; and a trusted server's average."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array
from noisedesign.system.random_mixing import RandomMixing
from noisedesign_lab.training.seeding import Use, generator

Rounds = Callable[[int], Array]
"""Function from K to the product of K rounds of one step: (n, n), or (S, n, n) by seed."""


class Gossip(ABC):
    """Who mixes with whom at every step."""

    @property
    @abstractmethod
    def nodes(self) -> int:
        """n."""

    @abstractmethod
    def at(self, step: int, seeds: Sequence[int]) -> Rounds:
        """The mixing of zero-based ``step`` for each seed."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FixedGossip(Gossip):
    """W at every step and round, shape (n, n), or P matrices (P, n, n) that come round; W_uv is the
    weight node u gives to what comes from node v."""

    mixing: Any

    def __post_init__(self) -> None:
        given = self.mixing if _checks.is_stack(self.mixing) else [self.mixing]
        stack = _checks.square_matrices(given, field="mixing")
        object.__setattr__(self, "mixing", stack)

    @property
    def nodes(self) -> int:
        return int(self.mixing.shape[-1])

    @cached_property
    def _powers(self) -> dict[int, Array]:
        return {}

    def at(self, step: int, seeds: Sequence[int]) -> Rounds:
        def power(rounds: int) -> Array:
            if rounds not in self._powers:
                self._powers[rounds] = np.linalg.matrix_power(self.mixing, rounds)
            return np.asarray(self._powers[rounds][step % len(self.mixing)])

        return power


@dataclass(frozen=True, kw_only=True, eq=False)
class RandomGossip(Gossip):
    """W drawn from a distribution, anew at every step and, with K rounds, at every round."""

    random: RandomMixing

    @property
    def nodes(self) -> int:
        return len(self.random.mean)

    def at(self, step: int, seeds: Sequence[int]) -> Rounds:
        streams = [generator(seed, Use.GOSSIP, step) for seed in seeds]
        drawn: list[Array] = []

        def product(rounds: int) -> Array:
            while len(drawn) < rounds:
                drawn.append(np.stack([self.random.sample(rng) for rng in streams]))
            return reduce(lambda before, after: after @ before, drawn[:rounds])

        return product
