"""Observers of equal shape side by side, and the error shared out among them.

With S_a = K_a*(N_a) and g_a what it proves, the best t, w >= 0 for sum_a t_a g_a - <cap, w> with
Z = H + diag(w) - sum_a t_a S_a >= 0 are found by Newton's method on the barrier nu ( log det Z +
sum log t + sum log w ); see docs/methods/observers.md."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse
from numpy.typing import NDArray
from scipy.sparse.csgraph import reverse_cuthill_mckee

from noisedesign.base import linalg as _linalg
from noisedesign.base.checks import Array
from noisedesign.families.observers.bound import Multipliers
from noisedesign.families.observers.observed import Indices, Run
from noisedesign.families.observers.program import UnitProgram

DENSE = 2**22  # numbers in all S_a together up to which they are kept as matrices
MOST = 2**13  # rows of all observers up to which they are compared with one another
CHUNK = 512  # rows of messages that are compared with all others at once


class Sight(NamedTuple):
    """The squared sensitivities ``told``, diag(G_a^T K_a(R)^-1 G_a), shape (g, c), and ``solved``,
    Q_a = K_a(R)^-1 G_a, shape (g, m, c), batch by batch."""

    told: list[Array]
    solved: list[Array]


class _Batch(NamedTuple):
    """Observers with as many messages, nodes and gradients.

    They have ``places`` among all observers (g,); ``support``, nodes whose noise is seen (g, s);
    ``responses`` B_a on it (g, k, m, s), or None where they are orthogonal and square: messages are
    then in coordinates of the noise, and turned back by ``basis``, (g, m, m); a ``run`` and who of
    it is ``heard`` (g, m / T) instead; ``signals`` G_a (g, m, c); ``victims`` (g, c)."""

    places: Indices
    support: Indices
    responses: Array | None
    basis: Array | None
    run: Run | None
    heard: Indices
    signals: Array
    victims: Indices

    def covariance(self, noise: Array) -> Array:
        """K_a(R), shape (g, m, m), where they hear no run."""
        seen = noise[self.support[:, :, None], self.support[:, None, :]]
        if self.responses is not None:
            seen = (self.responses @ seen[:, None] @ self.responses.swapaxes(2, 3)).sum(axis=1)
        return np.asarray(seen)

    def response(self, index: int) -> Array:
        """B_a of one of them on its support, shape (k, m, s), in these coordinates."""
        if self.run is not None:
            return self.run.responses(self.heard[index])
        if self.responses is None:
            return np.eye(self.support.shape[1])[None]
        return np.asarray(self.responses[index])

    def rows(self, solved: Array, weights: Array) -> Array:
        """F_a B_a on the support, F_a^T F_a = Q_a diag(v_a) Q_a^T, shape (g, rows, s)."""
        factors = (solved * np.sqrt(weights)[:, None, :]).swapaxes(1, 2)
        if self.responses is None:
            return factors
        found = factors[:, None] @ self.responses
        return np.asarray(found.reshape(len(found), -1, found.shape[-1]))


class Batches:
    """The observers of a program. ``owners`` are the places of observers in the order of the
    batches; ``pairs`` their number of gradients, all together."""

    def __init__(self, program: UnitProgram) -> None:
        self.size = program.size
        shapes: dict[tuple[int, ...], list[int]] = {}
        for place, seen in enumerate(program.observers):
            alone = seen.run is None
            shape = seen.local.shape if alone else seen.heard.shape
            key = (alone, *shape, seen.signals.shape[1])
            shapes.setdefault(key, []).append(place)
        self.batches = [_batch_of(program, places) for places in shapes.values()]
        self.owners = np.concatenate([batch.places for batch in self.batches])
        self.pairs = sum(batch.victims.size for batch in self.batches)
        self.run = next((batch.run for batch in self.batches if batch.run is not None), None)

    def all_equal(self, value: float) -> list[Array]:
        """A number for every observer and gradient."""
        return [np.full(batch.victims.shape, value) for batch in self.batches]

    def split(self, numbers: Array) -> list[Array]:
        """Numbers of all gradients, one batch after another, batch by batch."""
        parts = np.split(numbers, np.cumsum([one.victims.size for one in self.batches])[:-1])
        pairs = zip(parts, self.batches, strict=True)
        return [part.reshape(batch.victims.shape) for part, batch in pairs]

    def by_batch(self, numbers: Any) -> list[Any]:
        """Numbers of observers in the order of ``owners``, batch by batch."""
        return np.split(numbers, np.cumsum([len(one.places) for one in self.batches])[:-1])

    def covariances(self, noise: Array) -> list[Array]:
        """K_a(R) batch by batch, shape (g, m, m)."""
        heard = [batch.heard for batch in self.batches if batch.run is not None]
        long = iter(self.run.covariances(noise, heard) if self.run is not None else ())
        return [
            next(long) if one.run is not None else one.covariance(noise) for one in self.batches
        ]

    def look(self, noise: Array) -> Sight:
        """Find what is told at R, in one call a batch."""
        told, solved = [], []
        for batch, covariance in zip(self.batches, self.covariances(noise), strict=True):
            inverse = np.asarray(np.linalg.solve(covariance, batch.signals), np.float64)
            solved.append(inverse)
            told.append(np.einsum("gmc,gmc->gc", batch.signals, inverse))
        return Sight(told, solved)

    def used(self, sight: Sight, weights: Sequence[Array]) -> Array:
        """S = sum_a K_a*(Q_a diag(v_a) Q_a^T), shape (n, n)."""
        together = np.zeros(len(self.owners), dtype=np.intp)
        return np.asarray(self.grouped(sight, weights, together)[0])

    def grouped(self, sight: Sight, weights: Sequence[Array], groups: Indices) -> Array:
        """:meth:`used` of groups of observers, in the order of ``owners``, (groups, n, n)."""
        shape = (int(groups.max()) + 1, self.size, self.size)
        found, long = np.zeros(shape), []
        places, squares = [np.zeros(0, dtype=np.intp)], [np.zeros(0)]
        parts = zip(self.batches, sight.solved, weights, self.by_batch(groups), strict=True)
        for batch, solved, own, group in parts:
            if batch.run is not None:
                long.append((solved * np.sqrt(own)[:, None, :], batch.heard, group))
                continue
            rows, support = batch.rows(solved, own), batch.support
            cells = (group[:, None, None] * self.size + support[:, :, None]) * self.size
            places.append((cells + support[:, None, :]).ravel())
            squares.append((rows.swapaxes(1, 2) @ rows).ravel())
        if len(places) > 1:
            whole = np.bincount(np.concatenate(places), np.concatenate(squares), found.size)
            found += whole.reshape(shape)
        if self.run is not None:
            for one in np.unique(groups):
                some = [(rows[group == one], heard[group == one]) for rows, heard, group in long]
                used = [rows @ rows.swapaxes(1, 2) for rows, _ in some]
                found[one] += self.run.used(used, [heard for _, heard in some])
        return found

    def gained(self, sight: Sight, weights: Sequence[Array]) -> Array:
        """The gain that each N_a proves, in the order of ``owners``. V^1/2 G^T N G V^1/2 is the
        square of V^1/2 G^T K^-1 G V^1/2 >= 0, whose trace is <v, told>."""
        parts = zip(sight.told, weights, strict=True)
        found = [(own * told).sum(axis=1) ** 2 / own.sum(axis=1) for told, own in parts]
        return np.concatenate(found)

    def largest(self, noise: Array) -> Array:
        """The largest squared sensitivity of every node, shape (n,), 0 for whom nobody sees."""
        found = np.zeros(self.size)
        for batch, told in zip(self.batches, self.look(noise).told, strict=True):
            np.maximum.at(found, batch.victims, told)
        return found

    def multipliers(
        self, sight: Sight, weights: Sequence[Array], shares: Array, prices: Array
    ) -> Multipliers:
        """N_a times ``shares``, in the order of ``owners``; observer by observer."""
        factors: list[Array] = [np.empty(0)] * len(self.owners)
        split: list[Array] = [np.empty(0)] * len(self.owners)
        # Lighter gradients are not worth storing.
        least = 1e-7 * max(float(own.max()) for own in weights)
        parts = zip(self.batches, sight.solved, weights, self.by_batch(shares), strict=True)
        for batch, solved, own, share in parts:
            found = (solved * np.sqrt(share[:, None] * own)[:, None, :]).swapaxes(1, 2)
            if batch.basis is not None:
                found = found @ batch.basis.swapaxes(1, 2)
            for place, factor, weight in zip(batch.places, found, own, strict=True):
                some = weight > least
                factors[place], split[place] = factor[some], np.where(some, weight, 0.0)
        return Multipliers(factors=tuple(factors), weights=tuple(split), cap=prices)


def _batch_of(program: UnitProgram, places: list[int]) -> _Batch:
    seen = [program.observers[place] for place in places]
    signals = np.array([one.signals for one in seen])
    responses = np.array([one.local for one in seen]) if seen[0].run is None else None
    basis: Array | None = None
    if responses is not None and responses.shape[1:3] == (1, responses.shape[3]):
        basis, responses = responses[:, 0], None
    return _Batch(
        places=np.array(places),
        support=np.array([one.support for one in seen]),
        responses=responses,
        basis=basis,
        run=seen[0].run,
        heard=np.array([one.heard for one in seen]),
        signals=signals if basis is None else basis.swapaxes(1, 2) @ signals,
        victims=np.array([one.victims for one in seen], dtype=np.intp).reshape(signals[:, 0].shape),
    )


# --- shares of the error --------------------------------------------------------------------------


def feasible(
    program: UnitProgram,
    batches: Batches,
    sight: Sight,
    weights: list[Array],
    prices: Array,
    *,
    barrier: float,
) -> Multipliers:
    """Scale N_a by factors of their own, so that the bound is largest; see :func:`shared_out`."""
    found = shared_out(program, batches, sight, weights, prices, barrier=barrier)
    return batches.multipliers(sight, weights, *found)


def shared_out(
    program: UnitProgram,
    batches: Batches,
    sight: Sight,
    weights: list[Array],
    prices: Array,
    *,
    barrier: float,
) -> tuple[Array, Array]:
    """Find t, (observers,), and w, (n,), strictly feasible for N_a = Q_a diag(v_a) Q_a^T."""
    lower = np.linalg.cholesky(program.gram + np.diag(prices))
    largest = max(1.0, largest_in(lower, batches.used(sight, weights)))
    groups: Indices = np.arange(len(batches.owners))
    observers: _Matrices | _Rows
    few = batches.pairs <= MOST and len(groups) <= 2**10 and batches.run is None
    if few and len(groups) * program.size**2 > DENSE:
        observers = _Rows(batches, sight, weights)
    else:
        groups = _regions(program, batches, sight, weights)
        observers = _Matrices(batches.grouped(sight, weights, groups))
    gained, nu = np.bincount(groups, batches.gained(sight, weights)), barrier
    t, w = np.full(len(gained), 0.998 / largest), prices.copy()
    slack = program.gram + np.diag(w) - observers.sum(t)
    with suppress(np.linalg.LinAlgError):  # what is feasible so far stays
        for _ in range(9):  # the first few find the path, each later one a smaller nu
            inverse = _linalg.inverse_of_positive(slack)
            traces, among, across = observers.curvature(inverse)
            ahead = np.concatenate(
                [t * (gained / nu - traces) + 1, w * (np.diagonal(inverse) - program.cap / nu) + 1]
            )
            curvature = np.block([[among, -across], [-across.T, inverse**2]])
            scale = np.concatenate([t, w])
            curvature *= np.multiply.outer(scale, scale)
            curvature[np.diag_indices_from(curvature)] += 1
            step = scipy.linalg.cho_solve(scipy.linalg.cho_factor(curvature), ahead)
            more, paid = t * step[: len(t)], w * step[len(t) :]
            change = observers.sum(more) - np.diag(paid)
            lower = np.linalg.cholesky(slack)
            fastest = max(largest_in(lower, change), -float(step.min()))
            length = min(1.0, 0.9 / fastest) if fastest > 0 else 1.0
            t, w, slack = t + length * more, w + length * paid, slack - length * change
            if length > 0.3:  # of Newton's step: it went far
                nu *= 0.15
    return t[groups], w


def _regions(
    program: UnitProgram, batches: Batches, sight: Sight, weights: list[Array]
) -> NDArray[np.intp]:
    """Group observers, where they are many, by the region of whom they are told most."""
    count = max(1, DENSE // program.size**2)
    if len(batches.owners) <= count:
        return np.arange(len(batches.owners))
    order = reverse_cuthill_mckee(scipy.sparse.csr_array(program.gram != 0), symmetric_mode=True)
    region = np.empty(program.size, dtype=np.intp)
    region[order] = np.arange(program.size) * count // program.size
    found = []
    for batch, told, own in zip(batches.batches, sight.told, weights, strict=True):
        worst = (told * own).argmax(axis=1)
        found.append(region[batch.victims[np.arange(len(worst)), worst]])
    return np.asarray(np.unique(np.concatenate(found), return_inverse=True)[1])


class _Matrices:
    """S_a as matrices, or sums of them, shape (groups, n, n)."""

    def __init__(self, used: Array) -> None:
        self.used = used

    def sum(self, shares: Array) -> Array:
        return np.asarray(np.tensordot(shares, self.used, axes=1))

    def curvature(self, inverse: Array) -> tuple[Array, Array, Array]:
        """tr(Z^-1 S_a), tr(Z^-1 S_a Z^-1 S_b) and (Z^-1 S_a Z^-1)_ii, of Z^-1."""
        half = inverse @ self.used
        count = len(half)
        across = np.einsum("aij,ji->ai", half, inverse)
        among = half.reshape(count, -1) @ half.swapaxes(1, 2).reshape(count, -1).T
        return np.trace(half, axis1=1, axis2=2), among, across


class _Rows:
    """S_a = A_a^T A_a as the few rows A_a, of few entries each."""

    def __init__(self, batches: Batches, sight: Sight, weights: list[Array]) -> None:
        rows, counts = [], []
        for batch, *each in zip(batches.batches, sight.solved, weights, strict=True):
            own = batch.rows(*each)
            columns = np.broadcast_to(batch.support[:, None, :], own.shape).ravel()
            starts = np.arange(0, own.size + 1, own.shape[2])
            shape = (len(starts) - 1, batches.size)
            rows.append(scipy.sparse.csr_array((own.ravel(), columns, starts), shape=shape))
            counts += [own.shape[1]] * len(own)
        self.rows: Any = scipy.sparse.vstack(rows, format="csr")
        self.counts = np.array(counts)
        self.first = np.cumsum(self.counts) - self.counts

    def sum(self, shares: Array) -> Array:
        weighted = self.rows.multiply(np.repeat(shares, self.counts)[:, None]).tocsr()
        return np.asarray((self.rows.T @ weighted).toarray())

    def curvature(self, inverse: Array) -> tuple[Array, Array, Array]:
        half = self.rows @ inverse
        traces = np.asarray(self.rows.multiply(half).sum(axis=1)).ravel()
        by_rows = np.empty((half.shape[0], len(self.first)))
        for start in range(0, len(half), CHUNK):
            part = slice(start, start + CHUNK)
            squares = (self.rows @ np.ascontiguousarray(half[part].T)) ** 2
            by_rows[part] = np.add.reduceat(squares, self.first, axis=0).T
        return (
            np.add.reduceat(traces, self.first),
            np.add.reduceat(by_rows, self.first, axis=0),
            np.add.reduceat(half**2, self.first, axis=0),
        )


def largest_in(lower: Any, change: Any) -> float:
    """The largest eigenvalue of L^-1 E L^-T."""
    half = scipy.linalg.solve_triangular(lower, change, lower=True)
    return float(_linalg.eigenvalues(scipy.linalg.solve_triangular(lower, half.T, lower=True))[-1])
