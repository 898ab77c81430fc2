"""Mixing between two gradient steps: several gossip rounds, x <- W_t^K m, and a W that changes by
step: it comes round in a *schedule* of P matrices, or is drawn for every round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from noisedesign.base import checks as _checks, linalg as _linalg
from noisedesign.base.checks import Array, InputError
from noisedesign.system.graph import check_mixing
from noisedesign.system.random_mixing import RandomMixing

MOST_ROUNDS = 10_000  # most gossip rounds a step; models that mix at all agree long before


def checked_rounds(rounds: Any, *, field: str = "workload.rounds") -> int:
    count: int = _checks.positive_int(rounds, field=field)
    if count > MOST_ROUNDS:
        expected = f"at most {MOST_ROUNDS} gossip rounds a step"
        raise InputError(field, expected=expected, got=str(count))
    return count


def check_schedule(
    mixing: Any, *, stochastic: str, connected: bool = True
) -> tuple[Array, Array | None]:
    """(W, None), or the average of a schedule and its matrices, shape (P, n, n)."""
    if not _checks.is_stack(mixing):
        return check_mixing(mixing, stochastic=stochastic, connected=connected), None
    stack = _checks.square_matrices(mixing, field="mixing")
    for number, one in enumerate(stack):
        try:
            check_mixing(one, stochastic=stochastic, connected=False)
        except InputError as error:
            raise error.told(got=f"{error.got} (number {number} of a schedule)") from error
    mean = stack[0] if len(stack) == 1 else stack.mean(axis=0)
    mean = check_mixing(mean, stochastic=stochastic, connected=connected)
    return mean, stack if (stack != stack[0]).any() else None


def of_every_step(mixing: Array, *, rounds: int, schedule: Array | None = None) -> Array:
    """W^K, shape (n, n), or those of a schedule, shape (P, n, n)."""
    found = mixing if schedule is None else schedule
    if rounds == 1:
        return found
    power = np.linalg.matrix_power(found, rounds)
    turned = found.swapaxes(-1, -2)
    return _linalg.symmetrized(power) if found.ndim == 2 and (found == turned).all() else power


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RepeatedMixing(RandomMixing):
    """W_K ... W_1 of K independent gossip rounds: no longer symmetric."""

    mixing: RandomMixing
    rounds: int

    @property
    def outcomes(self) -> int:
        return self.rounds * self.mixing.outcomes

    @property
    def mean(self) -> Array:
        return np.linalg.matrix_power(self.mixing.mean, self.rounds)

    @property
    def mean_laplacian(self) -> Array:
        return np.asarray(np.eye(len(self.mixing.mean)) - self.mean)

    def expected(self, gram: Any) -> Array:
        for _ in range(self.rounds):
            gram = self.mixing.expected(gram)
        return np.asarray(gram)

    def sample(self, rng: np.random.Generator) -> Array:
        found = self.mixing.sample(rng)
        for _ in range(self.rounds - 1):
            found = self.mixing.sample(rng) @ found
        return found


def repeated(random: RandomMixing | None, *, rounds: int) -> RandomMixing | None:
    """The distribution of all rounds of a step; None where W is what it is."""
    if random is None or rounds == 1:
        return random
    return RepeatedMixing(mixing=random, rounds=rounds)
