"""Every set of so many nodes that pool what they see, without writing all of them out."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
from numpy.typing import NDArray

from noisedesign.base import checks as _checks
from noisedesign.base.checks import InputError
from noisedesign.privacy.views.observers import OWN_NOISE, Observer, members_of, pndp

MOST = 2**24
"""Coalitions that anything looks at one by one."""


@dataclass(frozen=True, kw_only=True)
class Coalitions(Sequence[Observer]):
    """Every set of ``size`` of ``nodes``, each an observer as :func:`pndp` makes it, made when it
    is asked for. Make one with :func:`coalitions`."""

    nodes: tuple[int, ...]
    size: int
    own_noise: str = "seeds"

    def __len__(self) -> int:
        return math.comb(len(self.nodes), self.size)

    @overload
    def __getitem__(self, index: int) -> Observer: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Observer, ...]: ...
    def __getitem__(self, index: int | slice) -> Observer | tuple[Observer, ...]:
        if isinstance(index, slice):
            return tuple(self[place] for place in range(*index.indices(len(self))))
        place = range(len(self))[index]
        found: list[int] = []
        first = 0
        for left in range(self.size, 0, -1):
            # Those that begin with ``first`` come before those that begin later.
            while place >= (count := math.comb(len(self.nodes) - first - 1, left - 1)):
                place -= count
                first += 1
            found.append(self.nodes[first])
            first += 1
        return self.of(found)

    def __iter__(self) -> Iterator[Observer]:
        return map(self.of, itertools.combinations(self.nodes, self.size))

    def of(self, members: Sequence[int]) -> Observer:
        """The coalition of these nodes."""
        return pndp(nodes=[int(node) for node in members], own_noise=self.own_noise)

    def members(self) -> NDArray[np.intp]:
        """The nodes of every coalition in this order, shape (coalitions, size)."""
        flat = itertools.chain.from_iterable(itertools.combinations(self.nodes, self.size))
        found = np.fromiter(flat, dtype=np.intp, count=len(self) * self.size)
        return found.reshape(len(self), self.size)


def coalitions(*, nodes: Sequence[int], size: int, own_noise: str = "seeds") -> Coalitions:
    """All sets of honest-but-curious nodes that pool what they receive.

    Smaller sets are covered: what fewer of them see of a node is part of what some set of ``size``
    sees, as there are more nodes than that.

    Args:
        nodes: zero-based: who may collude.
        size: f, how many of them pool what they see.
        own_noise: as of :func:`pndp`.

    Returns:
        The observers, a sequence.

    Raises:
        InputError: a node twice; a size below 1, or not below the number of nodes; more than 2^24
            coalitions; another word for ``own_noise``.

    Examples:
        >>> import noisedesign as nd
        >>> pairs = nd.coalitions(nodes=range(500), size=2)
        >>> len(pairs), str(pairs[0]), str(pairs[-1])
        (124750, 'pndp 0, 1', 'pndp 498, 499')
    """
    members = members_of(nodes)
    count = _checks.positive_int(size, field="observers.pooled")
    _checks.one_of(own_noise, field="observer.own_noise", allowed=OWN_NOISE)
    if count >= len(members):
        raise InputError(
            "observers.pooled",
            expected=f"fewer than the {len(members)} nodes that may look",
            got=str(count),
            remedy="Of nodes that all look together, state one observer.",
        )
    if (number := math.comb(len(members), count)) > MOST:
        raise InputError(
            "observers.pooled",
            expected=f"at most {MOST} coalitions",
            got=f"{number}, those of {count} of {len(members)} nodes",
            remedy="Ask for smaller ones, or name fewer nodes that may collude.",
        )
    return Coalitions(nodes=members, size=count, own_noise=own_noise)
