"""Messages that observers receive, by the noise in them, in one step or over a run of many.

Covariances of the states x_t = W x_(t-1) + z_t + g_t, which nodes send, are found once for all
observers: K_ts of one is the rows and columns of C_ts that it hears (docs/methods/observers.md,
"Many steps"). A coalition in one step has the noise of the nodes S that it hears, and
diag( [R_SS]^-1 )_u is what it is told of node u in S outside of it: of all coalitions, those who
hear equally many nodes side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from noisedesign.base.checks import Array
from noisedesign.base.enclosures import U, up
from noisedesign.privacy.views import Coalitions

CERTAIN = 1e-8
"""Least pivot of what an observer sees, relative to its largest variance, from which on what it is
told is known to eight digits without the account."""

TOGETHER = 2**22  # numbers in the matrices that are inverted in one call
AT_ONCE = 512  # matrices that are inverted side by side: what fits a cache

Indices = NDArray[np.intp]


class Run:
    """A run of T steps, of noise z = U y with U = diag(unit) and y of covariance R."""

    def __init__(self, mixing: Array, unit: Array, steps: int) -> None:
        self.unit, self.steps, self.size = unit, steps, len(mixing)
        self.mixing = scipy.sparse.csr_array(mixing)
        self.back = scipy.sparse.csr_array(mixing.T)

    @cached_property
    def powers(self) -> Array:
        """W^t, shape (T, n, n)."""
        found = [np.eye(self.size)]
        for _ in range(1, self.steps):
            found.append(np.asarray(self.mixing @ found[-1]))
        return np.array(found)

    def responses(self, heard: Indices) -> Array:
        """Return what the messages of all steps have of the noise of each, shape (T, T m, n)."""
        lags = self.powers[:, heard] * self.unit
        found = np.zeros((self.steps, *lags.shape))
        for step in range(self.steps):
            found[step, step:] = lags[: self.steps - step]
        return found.reshape(self.steps, -1, self.size)

    def of_new(self, heard: Indices) -> Array:
        """Return T with messages = T times what each adds to those before, shape (T m, T m): unit
        lower triangular, of blocks (W^l)_NN, N the nodes that are heard."""
        blocks = self.powers[:, heard[:, None], heard]
        m = len(heard)
        found = np.zeros((self.steps * m, self.steps * m))
        for step in range(self.steps):
            for lag in range(step + 1):
                rows, columns = step * m, (step - lag) * m
                found[rows : rows + m, columns : columns + m] = blocks[lag]
        return found

    def covariances(self, noise: Array, heard: Sequence[Indices]) -> list[Array]:
        """K(R) by groups of observers, who hear (g, m) nodes, ascending; each (g, T m, T m)."""
        drawn = noise * np.multiply.outer(self.unit, self.unit)
        where = self._cells(heard)
        cells = np.empty((self.steps, self.steps, len(where)))
        states: list[Array] = []
        for t in range(self.steps):
            states = [np.asarray(self.mixing @ state) for state in states]
            states.append(drawn + self.mixing @ states[-1].T if states else drawn)
            for s, state in enumerate(states):
                np.take(state, where, out=cells[t, s])
        found, sizes = [], [nodes.size * nodes.shape[1] for nodes in heard]
        parts = np.split(cells, np.cumsum(sizes)[:-1], axis=2)
        for part, (count, m) in zip(parts, (nodes.shape for nodes in heard), strict=True):
            blocks = part.reshape(self.steps, self.steps, count, m, m)
            whole = np.empty((count, self.steps, m, self.steps, m))
            for t in range(self.steps):
                for s in range(t + 1):
                    whole[:, t, :, s] = blocks[t, s]
                    whole[:, s, :, t] = blocks[t, s].swapaxes(1, 2)
            found.append(whole.reshape(count, self.steps * m, self.steps * m))
        return found

    def used(self, multipliers: Sequence[Array], heard: Sequence[Indices]) -> Array:
        """Sum K*(N) over all observers; N (g, T m, T m), symmetric, result (n, n)."""
        n, where = self.size, self._cells(heard)
        cells = np.concatenate(
            [
                given.reshape(len(nodes), self.steps, nodes.shape[1], self.steps, nodes.shape[1])
                .transpose(1, 3, 0, 2, 4)
                .reshape(self.steps, self.steps, -1)
                for given, nodes in zip(multipliers, heard, strict=True)
            ],
            axis=2,
        )
        total = np.zeros((n, n))
        states = [np.zeros((n, n)) for _ in range(self.steps)]
        for t in range(self.steps - 1, -1, -1):
            for s in range(t + 1):
                added = np.bincount(where, weights=cells[t, s], minlength=n * n).reshape(n, n)
                states[s] += added if s == t else 2 * added
            own = states.pop()
            total += own
            if states:
                states[-1] += np.asarray(self.back @ own.T).T
                states = [np.asarray(self.back @ state) for state in states]
        return np.asarray((total + total.T) / 2 * np.multiply.outer(self.unit, self.unit))

    def _cells(self, heard: Sequence[Indices]) -> Indices:
        """Flat places in an (n, n) array of all pairs of nodes that each observer hears."""
        parts = [(nodes[:, :, None] * self.size + nodes[:, None, :]).ravel() for nodes in heard]
        return np.concatenate(parts)


@dataclass(frozen=True, kw_only=True, eq=False)
class ObservedNoise:
    """One observer: B_a, (k, m, n), of full row rank with its k blocks side by side, and G_a.

    ``support`` are the s nodes of whose noise it has anything, ascending, and ``blocks`` the
    columns of B_a there, (k, m, s); or, of many steps, it is what nodes ``heard``, (m / T,), send
    of a ``run``. ``signals`` is G_a, (m, c), one column for each of the ``victims`` whose gradient
    is limited. ``hidden`` says that noise unknown to it is in whatever tells of them."""

    size: int
    support: Indices
    blocks: Array | None = None
    run: Run | None = None
    heard: Indices = field(default_factory=lambda: np.zeros(0, dtype=np.intp))
    signals: Array
    victims: tuple[int, ...] = ()
    hidden: bool = False

    @classmethod
    def of(cls, responses: Array, **fields: Any) -> Self:
        """Make one of B_a with all its columns."""
        support = np.flatnonzero((responses != 0).any(axis=(0, 1)))
        local = np.ascontiguousarray(responses[:, :, support])
        return cls(size=responses.shape[2], support=support, blocks=local, **fields)

    @property
    def local(self) -> Array:
        """The columns of B_a on its support, shape (k, m, s)."""
        if self.run is not None:
            return self.run.responses(self.heard)
        assert self.blocks is not None
        return self.blocks

    @property
    def responses(self) -> Array:
        """B_a, shape (k, m, n)."""
        local = self.local
        found = np.zeros((*local.shape[:2], self.size))
        found[:, :, self.support] = local
        return found

    def only(self, gradients: Indices) -> Self:
        """Limit some gradients alone, by their columns of G_a."""
        victims = tuple(self.victims[c] for c in gradients)
        return replace(self, signals=self.signals[:, gradients], victims=victims)

    def told(self, covariance: Array) -> Array:
        """diag(G_a^T K_a(R)^-1 G_a) of K_a(R), (c,): squared sensitivities over their budgets;
        of a run the largest of those of all steps."""
        lower = np.linalg.cholesky(covariance)
        least, largest = np.diagonal(lower).min() ** 2, np.diagonal(covariance).max()
        if not least > CERTAIN * largest:
            raise np.linalg.LinAlgError("what is seen is nearly linear in itself")
        if self.run is None:
            return np.asarray((np.linalg.solve(lower, self.signals) ** 2).sum(axis=0))
        inverse, found = np.tril(np.linalg.inv(lower)), np.zeros(len(self.victims))
        for start in range(0, len(lower), len(self.heard)):
            # A change at a later step moves later messages alike, and fewer of them.
            late = inverse[start:, start:] @ self.signals[: len(lower) - start]
            found = np.maximum(found, np.einsum("mc,mc->c", late, late))
        return found


def covariances(observers: Sequence[ObservedNoise], noise: Array) -> list[Array]:
    """K_a(R) of each observer, shape (m, m), squared noise."""
    found = [np.zeros((0, 0))] * len(observers)
    for place, seen in enumerate(observers):
        if seen.run is None:
            at = noise[np.ix_(seen.support, seen.support)]
            local = seen.local
            found[place] = np.asarray((local @ at @ local.transpose(0, 2, 1)).sum(axis=0))
    run, places, heard = _run_of(observers)
    if run is not None:
        for place, one in zip(places, run.covariances(noise, heard), strict=True):
            found[place] = one[0]
    return found


def used_by(observers: Sequence[ObservedNoise], factors: Sequence[Array], *, size: int) -> Array:
    """Sum K_a*(F^T F) over all observers, F of shape (any, m); result (size, size)."""
    total = np.zeros((size, size))
    for seen, factor in zip(observers, factors, strict=True):
        if seen.run is None:
            rows = np.concatenate(list(factor @ seen.local))
            total[np.ix_(seen.support, seen.support)] += rows.T @ rows
    run, places, heard = _run_of(observers)
    if run is not None:
        total += run.used([(factors[place].T @ factors[place])[None] for place in places], heard)
    return total


def _run_of(observers: Sequence[ObservedNoise]) -> tuple[Run | None, list[int], list[Indices]]:
    """The run that some hear, if any do, their places, and whom each hears, shape (1, m)."""
    places = [place for place, seen in enumerate(observers) if seen.run is not None]
    run = observers[places[0]].run if places else None
    return run, places, [observers[place].heard[None] for place in places]


# --- all coalitions in one step, without what each sees written out -------------------------------


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
        """Find what is told at noise R, (n, n), at unit budgets; of those ``among``, alone."""
        worst, of_node = np.zeros(len(self.members)), np.zeros(self.size)
        above: list[tuple[Any, ...]] = [(np.zeros(0),) * 3]
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
                above.append((places[row], heard[row, column], squared[row, column]))
        own, whose, amounts = (np.concatenate(part) for part in zip(*above, strict=True))
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


def told_above(coalitions: EveryCoalition, noise: Array, budget: Array) -> Array:
    """Bound the largest squared sensitivity over its budget, (coalitions,), with every rounding
    accounted for; infinite where it is too large to tell. R is proved positive definite as a whole,
    and E = I - K Y is computed but for (m + 2) u (|K| |Y| + I), m the size of K
    (docs/methods/observers.md, "Coalitions")."""
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
