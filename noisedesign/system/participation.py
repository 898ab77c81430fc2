"""Participation: at which steps one record may take part.

A scheme is a set of patterns, each a set of steps. Sensitivity (theory: the largest change of
C G over the patterns) is a maximum over patterns, so a scheme only has to name them. It grows with
the pattern (more steps leave every old choice of gradients and add squares), so patterns that can
be extended within the scheme need not be named.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from noisedesign.base import memory
from noisedesign.base.checks import Array, InputError, describe, listed, positive_int


@dataclass(frozen=True, kw_only=True)
class FixedEpoch:
    """(k, b) participation: a record takes part in steps j, j + b, ..., j + (k - 1) b.

    ``epochs`` is k, ``separation`` is b, the horizon T is k * b and the b patterns are the residue
    classes of the steps modulo b. One epoch is single participation: every step is a pattern of
    its own, which is also how the nodes of a spatial design take part.

    Source: Choquette-Choo et al. (2023), "(k, b)-participation".

    Raises:
        InputError: ``epochs`` or ``separation`` is not an integer >= 1.
    """

    epochs: int
    separation: int

    def __post_init__(self) -> None:
        positive_int(self.epochs, field="participation.epochs")
        positive_int(self.separation, field="participation.separation")

    @property
    def horizon(self) -> int:
        """Number of steps T = epochs * separation."""
        return self.epochs * self.separation

    @property
    def largest_size(self) -> int:
        """Number of steps of the largest pattern, k."""
        return self.epochs

    @property
    def patterns(self) -> NDArray[np.intp]:
        """Steps of each pattern, shape (separation, epochs), zero-based."""
        return np.arange(self.horizon).reshape(self.epochs, self.separation).T

    def __str__(self) -> str:
        return f"(k, b) = ({self.epochs}, {self.separation})"


def fixed_epoch(*, records: int, batch_size: int, epochs: int) -> FixedEpoch:
    """The (k, b) of a run over ``records`` in batches: one participation of a record an epoch.

    An epoch has ceil(records / batch_size) steps, the last of them on what is left over, and every
    epoch goes through the batches in the same order: b is the number of steps of an epoch, k that
    of epochs. Batches that are dealt anew every epoch are not of this scheme.

    Raises:
        InputError: one of them is not an integer >= 1; batches larger than the data.
    """
    records = positive_int(records, field="records")
    batch_size = positive_int(batch_size, field="batch_size")
    if batch_size > records:
        raise InputError("batch_size", expected=f"at most records = {records}", got=str(batch_size))
    return FixedEpoch(
        epochs=positive_int(epochs, field="epochs"), separation=-(-records // batch_size)
    )


@dataclass(frozen=True, kw_only=True)
class MinSeparation:
    """Min-separation participation: at most k steps, any two of them at least b apart.

    ``max_participations`` is k, ``separation`` is b (steps s < t of one pattern have t - s >= b).
    With b = 1 and k = T every set of steps is a pattern; with k = 1 it is single participation.

    Source: Choquette-Choo et al. (2023), "(Amplified) banded matrix factorization", b-min-sep.

    Raises:
        InputError: ``horizon``, ``separation`` or ``max_participations`` is not an integer >= 1.
    """

    horizon: int
    separation: int
    max_participations: int

    def __post_init__(self) -> None:
        positive_int(self.horizon, field="participation.horizon")
        positive_int(self.separation, field="participation.separation")
        positive_int(self.max_participations, field="participation.max_participations")

    @property
    def largest_size(self) -> int:
        """Number of steps of the largest pattern, min(k, ceil(T / b))."""
        return min(self.max_participations, -(-self.horizon // self.separation))

    def count(self) -> int:
        """Number of maximal patterns, exact, without listing them.

        Patterns of k steps: T - 1 - (k - 1) b spare steps before, between and after them. Shorter
        ones are maximal where no step fits in: what precedes the first and follows the last is
        below b and gaps are below 2b, so each of the m + 1 spares is below b (inclusion-exclusion).
        """
        b, total = self.separation, 0
        for size in range(1, self.largest_size + 1):
            spare = self.horizon - 1 - (size - 1) * b
            if size == self.max_participations:
                total += math.comb(spare + size, size)
                continue
            total += sum(
                (-1) ** j * math.comb(size + 1, j) * math.comb(spare - j * b + size, size)
                for j in range(min(size + 1, spare // b) + 1)
            )
        return total

    def maximal_patterns(self) -> Iterator[tuple[int, ...]]:
        """The patterns that no further step extends, zero-based, in lexicographic order.

        They are enough for sensitivity, which grows with the pattern. There may be very many of
        them (:meth:`count`); they are made one at a time.
        """
        b, k, last = self.separation, self.max_participations, self.horizon - 1
        steps: list[int] = []
        # For every prefix: what may follow, and whether a step still fits between its steps. Such
        # a pattern is maximal only if it reaches k, so room for the missing ones is kept.
        prefixes = [(iter(range(max(last - (k - 1) * b, min(b - 1, last)) + 1)), False)]
        while prefixes:
            following, roomy = prefixes[-1]
            t = next(following, None)
            if t is None:
                prefixes.pop()
                del steps[-1:]
                continue
            roomy = roomy or t >= (steps[-1] + 2 * b if steps else b)
            steps.append(t)
            if len(steps) == k or t + b > last:
                yield tuple(steps)
                steps.pop()
                continue
            in_time = last - (k - len(steps) - 1) * b
            end = in_time if roomy else max(in_time, min(t + 2 * b - 1, last))
            prefixes.append((iter(range(t + b, end + 1)), roomy))

    def heaviest(self, weights: Array) -> float:
        """Largest sum of nonnegative ``weights``, shape (T,), over a pattern."""
        return float(
            heaviest_sums(weights, separation=self.separation, counts=self.largest_size)[-1]
        )

    def __str__(self) -> str:
        return (
            f"at most {self.max_participations} participations, at least {self.separation} steps "
            f"apart, in {self.horizon} steps"
        )


@dataclass(frozen=True, kw_only=True)
class Patterns:
    """Any list of patterns: ``steps`` holds one tuple of zero-based steps per pattern.

    Patterns may differ in size and overlap. Each is kept in ascending order.

    Raises:
        InputError: ``horizon`` is not an integer >= 1; no pattern, or one that is empty, repeats
            a step, or has a step that is not an integer in [0, horizon).
    """

    horizon: int
    steps: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        positive_int(self.horizon, field="participation.horizon")
        listed = _listed(self.steps, expected="a list of patterns, each a list of steps")
        if not listed:
            raise InputError(
                "participation.patterns", expected="at least one pattern", got="an empty list"
            )
        checked = tuple(self._checked(pattern, number=j) for j, pattern in enumerate(listed))
        object.__setattr__(self, "steps", checked)

    def _checked(self, pattern: object, *, number: int) -> tuple[int, ...]:
        listed = _listed(pattern, expected=f"pattern {number} to be a list of steps")
        if not listed:
            raise InputError(
                "participation.patterns",
                expected="at least one step in every pattern",
                got=f"none in pattern {number}",
            )
        steps = []
        for step in listed:
            if not isinstance(step, (int, np.integer)) or isinstance(step, (bool, np.bool_)):
                raise InputError(
                    "participation.patterns",
                    expected="integer steps",
                    got=f"{describe(step)} in pattern {number}",
                )
            if not 0 <= step < self.horizon:
                raise InputError(
                    "participation.patterns",
                    expected=f"steps 0 to {self.horizon - 1} (horizon {self.horizon}, zero-based)",
                    got=f"step {step} in pattern {number}",
                )
            steps.append(int(step))
        steps.sort()
        for earlier, later in itertools.pairwise(steps):
            if earlier == later:
                raise InputError(
                    "participation.patterns",
                    expected="every step once in a pattern",
                    got=f"step {later} twice in pattern {number}",
                )
        return tuple(steps)

    @property
    def largest_size(self) -> int:
        """Number of steps of the largest pattern."""
        return max(len(pattern) for pattern in self.steps)

    def __str__(self) -> str:
        number = len(self.steps)
        return f"{number} pattern{'s' * (number > 1)} in {self.horizon} steps"


Participation = FixedEpoch | MinSeparation | Patterns
"""All of them have a ``horizon`` T and a ``largest_size``, the most steps of one record."""


def single(horizon: int) -> FixedEpoch:
    """Single participation over ``horizon`` steps (or nodes)."""
    return FixedEpoch(epochs=1, separation=positive_int(horizon, field="horizon"))


def every_step(horizon: int) -> FixedEpoch:
    """One record takes part in all of ``horizon`` steps: full-batch gradients."""
    return FixedEpoch(epochs=positive_int(horizon, field="horizon"), separation=1)


def require_room(
    participation: Participation, *, bytes_of: Callable[[int], int] = memory.squares
) -> None:
    """Refuse a scheme of more steps than what is computed for them has room for.

    Args:
        bytes_of: what so many steps take; by default the dense arrays of a solve.

    Raises:
        InputError: naming the key that makes it so long.
    """
    key, of = "horizon", "steps"
    if isinstance(participation, FixedEpoch):
        key = "epochs" if participation.epochs >= participation.separation else "separation"
        of = "steps, epochs * separation"
    memory.require(
        bytes_of,
        participation.horizon,
        field=f"participation.{key}",
        of=of,
        remedy="Ask for fewer steps, or see noisedesign.families.toeplitz for long runs.",
    )


def heaviest_sums(weights: Array, *, separation: int, counts: int) -> Array:
    """Largest sums of at most 0, 1, ..., ``counts`` weights at positions ``separation`` apart.

    Args:
        weights: nonnegative, shape (..., T); positions are along the last axis.

    Returns:
        Shape (counts + 1, ...), ascending along the first axis. Dynamic programme over prefixes,
        best(i, t) = max(best(i, t - 1), w_t + best(i - 1, t - b)): O(counts * weights.size).
    """
    sums = np.zeros((counts + 1, *weights.shape[:-1]))
    prefix = np.zeros_like(weights)
    for i in range(1, counts + 1):
        reached = weights.copy()
        reached[..., separation:] += prefix[..., :-separation]
        prefix = np.maximum.accumulate(reached, axis=-1)
        sums[i] = prefix[..., -1] if weights.shape[-1] else 0.0
    return sums


def _listed(value: object, *, expected: str) -> list[object]:
    return listed(value, field="participation.patterns", expected=expected)
