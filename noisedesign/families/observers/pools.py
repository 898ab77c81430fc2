"""What all coalitions of a problem see of one step, without writing all of them out.

A coalition A that receives and pools the messages of one step has the noise of the nodes S that it
hears, its own among them, and

    diag( [R_SS]^-1 )_u

is what it is told of node u in S outside A. It is computed of all coalitions, those who hear
equally many nodes side by side.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisedesign.base.checks import Array
from noisedesign.privacy.views import Coalitions

CERTAIN = 1e-8
"""Least pivot of what an observer sees, relative to its largest variance, from which on what it
tells is known to eight digits without the account."""

TOGETHER = 2**22
"""Numbers in the matrices that are inverted in one call."""

AT_ONCE = 512
"""Of these, how many are inverted side by side: what fits a cache."""

Indices = NDArray[np.intp]


class _Equal(NamedTuple):
    """Coalitions that hear equally many nodes: their ``places`` among all, shape (g,); the nodes
    ``heard``, ascending, (g, m); and who of these is no victim, ``inside``, (g, m)."""

    places: Indices
    heard: NDArray[np.int32]
    inside: NDArray[np.bool_]


class Told(NamedTuple):
    """Of every coalition the largest squared sensitivity, shape (coalitions,), infinite where what
    it sees is nearly linear in itself, 0 where it was left out; and of every node, shape (n,),
    before those where it is not. And single ones that are above a level: ``places`` of the
    coalitions, ``victims`` and ``amounts``."""

    by_coalition: Array
    of_node: Array
    places: Indices
    victims: Indices
    amounts: Array


class Pools:
    """All of them, on a graph of n nodes."""

    def __init__(self, coalitions: Coalitions, mixing: Array) -> None:
        self.coalitions, self.size = coalitions, len(mixing)
        self.members = coalitions.members()
        self.hears = (mixing != 0) | np.eye(self.size, dtype=bool)
        self._equal = list(self._by_size())

    def _by_size(self) -> Iterator[_Equal]:
        count = max(1, TOGETHER // self.size)
        sizes = np.empty(len(self.members), dtype=np.intp)
        starts = range(0, len(self.members), count)
        for start in starts:
            part = self.members[start : start + count]
            sizes[start : start + count] = self._heard_by(part).sum(axis=1)
        for size in np.unique(sizes):
            places = np.flatnonzero(sizes == size)
            for start in range(0, len(places), count):
                some = places[start : start + count]
                members = self.members[some]
                nodes = self._heard_by(members).nonzero()[1]
                heard = nodes.reshape(len(some), size).astype(np.int32)
                inside = (heard[:, :, None] == members[:, None, :]).any(axis=2)
                yield _Equal(some, heard, inside)

    def _heard_by(self, members: Indices) -> NDArray[np.bool_]:
        """Shape (coalitions, n)."""
        return np.asarray(self.hears[members].any(axis=1))

    def together(self) -> Iterator[_Equal]:
        """All of them, so many at a time as their matrices may have numbers together."""
        for places, heard, inside in self._equal:
            step = max(1, TOGETHER // heard.shape[1] ** 2)
            for start in range(0, len(places), step):
                part = slice(start, start + step)
                yield _Equal(places[part], heard[part], inside[part])

    def told(
        self, noise: Array, *, level: float = np.inf, among: NDArray[np.bool_] | None = None
    ) -> Told:
        """At noise R, shape (n, n), in units in which all budgets are 1; of those ``among``, shape
        (coalitions,), alone."""
        worst, of_node = np.zeros(len(self.members)), np.zeros(self.size)
        above: list[tuple[Indices, Indices, Array]] = []
        for places, heard, inside in self.together():
            if among is not None:
                some = among[places]
                places, heard, inside = places[some], heard[some], inside[some]
            if not len(places):
                continue
            squared = _squared(noise, heard)
            squared[inside] = 0.0
            worst[places] = squared.max(axis=1)
            known = np.isfinite(squared)
            np.maximum.at(of_node, heard[known], squared[known])
            if level < np.inf:
                row, column = np.nonzero(squared > level)
                victims = heard[row, column].astype(np.intp)
                above.append((places[row], victims, squared[row, column]))
        parts = zip(*above, strict=True) if above else ([np.zeros(0)],) * 3
        own, whose, amounts = (np.concatenate(list(part)) for part in parts)
        return Told(worst, of_node, own.astype(np.intp), whose.astype(np.intp), amounts)


def _squared(noise: Array, heard: NDArray[np.int32]) -> Array:
    """diag([R_SS]^-1) of the nodes S in every row, shape (g, m); infinite where R_SS is nearly
    singular.

    L of R_SS = L L^T and L^-1, row by row of all matrices at once: they are so small that calls for
    one at a time take several times as long.
    """
    count, m = heard.shape
    if count > AT_ONCE:
        starts = range(0, count, AT_ONCE)
        return np.concatenate([_squared(noise, heard[at : at + AT_ONCE]) for at in starts])
    rows = heard.T.astype(np.intp)
    covariance = np.take(noise, rows[:, None] * len(noise) + rows)
    lower, inverse = np.zeros((m, m, count)), np.zeros((m, m, count))
    found, least = np.zeros((m, count)), np.full(count, np.inf)
    for k in range(m):
        column = covariance[k:, k]
        if k:
            column = column - np.einsum("rig,ig->rg", lower[k:, :k], lower[k, :k])
        least = np.minimum(least, column[0])
        root = np.sqrt(np.where(column[0] > 0, column[0], 1.0))
        lower[k:, k] = column / root
        inverse[k, k] = 1 / root
        if k:
            inverse[k, :k] = -np.einsum("ig,icg->cg", lower[k, :k], inverse[:k, :k]) / root
        found[: k + 1] += np.square(inverse[k, : k + 1])
    largest = np.diagonal(covariance).max(axis=1)
    return np.where(least > CERTAIN * largest, found, np.inf).T
