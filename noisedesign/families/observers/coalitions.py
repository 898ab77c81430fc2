"""All coalitions of a problem in one step, without what each sees written out.

A coalition A has the noise of the nodes S that it hears, its own among them, and
diag( [R_SS]^-1 )_u is what it is told of node u in S outside A: of all coalitions, those who hear
equally many nodes side by side. :func:`told_above` accounts for every rounding ("Coalitions" in
docs/mathematics.md): E = I - K Y is computed but for (m + 2) u (|K| |Y| + I), m the size of K.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisedesign.base.checks import Array
from noisedesign.base.enclosures import U, up
from noisedesign.families.observers.observed import CERTAIN, Indices
from noisedesign.privacy.views import Coalitions

TOGETHER = 2**22  # numbers in the matrices that are inverted in one call
AT_ONCE = 512  # matrices that are inverted side by side: what fits a cache


class _Equal(NamedTuple):
    """Coalitions that hear equally many nodes: their ``places`` among all, shape (g,); the nodes
    ``heard``, ascending, (g, m); and who of these is no victim, ``inside``, (g, m)."""

    places: Indices
    heard: NDArray[np.int32]
    inside: NDArray[np.bool_]


class Told(NamedTuple):
    """The largest squared sensitivities: ``by_coalition``, infinite where what one sees is nearly
    linear in itself, 0 where it was left out; ``of_node`` before the others. ``places`` of the
    coalitions, ``victims`` and ``amounts`` are single ones above a level."""

    by_coalition: Array
    of_node: Array
    places: Indices
    victims: Indices
    amounts: Array


class EveryCoalition:
    """All coalitions on a graph of n nodes; ``members``, shape (coalitions, size)."""

    def __init__(self, coalitions: Coalitions, mixing: Array) -> None:
        self.size = len(mixing)
        self.members = coalitions.members()
        self._hears = (mixing != 0) | np.eye(self.size, dtype=bool)
        self._equal = list(self._by_size())

    def _by_size(self) -> Iterator[_Equal]:
        count = max(1, TOGETHER // self.size)
        for start in range(0, len(self.members), count):
            members = self.members[start : start + count]
            hears = self._hears[members].any(axis=1)
            sizes = hears.sum(axis=1)
            for size in np.unique(sizes):
                some = np.flatnonzero(sizes == size)
                heard = hears[some].nonzero()[1].reshape(len(some), size).astype(np.int32)
                inside = (heard[:, :, None] == members[some][:, None, :]).any(axis=2)
                yield _Equal(start + some, heard, inside)

    def together(self) -> Iterator[_Equal]:
        """Yield all of them, as many at a time as have ``TOGETHER`` numbers in their matrices."""
        for places, heard, inside in self._equal:
            step = max(1, TOGETHER // heard.shape[1] ** 2)
            for start in range(0, len(places), step):
                part = slice(start, start + step)
                yield _Equal(places[part], heard[part], inside[part])

    def told(
        self, noise: Array, *, level: float = np.inf, among: NDArray[np.bool_] | None = None
    ) -> Told:
        """Find what is told at noise R, shape (n, n), in units in which all budgets are 1; of those
        ``among``, shape (coalitions,), alone."""
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
    """diag([R_SS]^-1) of the nodes S in every row, (g, m); infinite where R_SS is nearly singular.
    L of R_SS = L L^T and L^-1, row by row of all matrices at once: they are so small that calls for
    one at a time take several times as long."""
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


# --- every rounding accounted for -----------------------------------------------------------------


def told_above(coalitions: EveryCoalition, noise: Array, budget: Array) -> Array:
    """Bound the largest squared sensitivity over its budget from above, shape (coalitions,);
    infinite where rounding is too large to tell. R is proved positive definite as a whole."""
    worst = np.zeros(len(coalitions.members))
    for places, heard, inside in coalitions.together():
        above = _diagonals_above(noise[heard[:, :, None], heard[:, None, :]])
        ratio = np.asarray(up(above / budget[heard], 1))
        worst[places] = np.where(inside, 0.0, ratio).max(axis=1)
    return worst


def _diagonals_above(k: Array) -> Array:
    """Bound diag(K^-1) of each K from above, shape (g, m)."""
    size = k.shape[1]
    try:
        y = np.asarray(np.linalg.inv(k), np.float64)
    except np.linalg.LinAlgError:
        return np.full(k.shape[:2], np.inf)
    left = np.asarray(np.eye(size) - k @ y, np.float64)
    rounded = (size + 2) * U * (_norms(k) * _norms(y) + size)
    e = up(_norms(left) + up(rounded, 8), 4)[:, None]
    rows = up(np.sqrt(up(np.square(y).sum(axis=2), size)), 2)
    with np.errstate(invalid="ignore", divide="ignore"):
        error = up(rows * e / (1 - e), 8)
        diagonal = np.diagonal(y, axis1=1, axis2=2)
        found = diagonal + up(error + 4 * U * np.abs(diagonal), 8)
        return np.where(e < 1 / 2, found, np.inf)


def _norms(a: Array) -> Array:
    """Frobenius norms, rounded up."""
    squares = up(np.square(a).sum(axis=(1, 2)), a.shape[1] ** 2 + 1)
    return np.asarray(up(np.sqrt(squares), 1))
