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

Indices = NDArray[np.intp]


class _Equal(NamedTuple):
    """Coalitions that hear equally many nodes: their ``places`` among all, shape (g,); the nodes
    ``heard``, ascending, (g, m); and who of these is no victim, ``inside``, (g, m)."""

    places: Indices
    heard: NDArray[np.int32]
    inside: NDArray[np.bool_]


class Told(NamedTuple):
    """Of every coalition the largest squared sensitivity, shape (coalitions,), infinite where what
    it sees is nearly linear in itself; and of every node, shape (n,), before those where it is not.
    """

    by_coalition: Array
    of_node: Array


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

    def told(self, noise: Array) -> Told:
        """At noise R, shape (n, n), in units in which all budgets are 1."""
        worst, of_node = np.zeros(len(self.members)), np.zeros(self.size)
        for places, heard, inside in self.together():
            squared = _squared(noise[heard[:, :, None], heard[:, None, :]])
            squared[inside] = 0.0
            worst[places] = squared.max(axis=1)
            known = np.isfinite(squared)
            np.maximum.at(of_node, heard[known], squared[known])
        return Told(worst, of_node)


def _squared(covariances: Array) -> Array:
    """diag(K^-1) of each, shape (g, m); infinite where K is nearly singular."""
    try:
        lower = np.linalg.cholesky(covariances)
    except np.linalg.LinAlgError:
        if len(covariances) == 1:
            return np.full(covariances.shape[:2], np.inf)
        half = len(covariances) // 2
        return np.concatenate([_squared(covariances[:half]), _squared(covariances[half:])])
    pivots = np.diagonal(lower, axis1=1, axis2=2).min(axis=1) ** 2
    sure = pivots > CERTAIN * np.diagonal(covariances, axis1=1, axis2=2).max(axis=1)
    found = np.square(np.linalg.inv(lower)).sum(axis=1)
    return np.where(sure[:, None], found, np.inf)
