"""How the error is best shared out among observers whose N_a are known but for their sizes.

    maximise  sum_a t_a g_a - <cap, w>  over t, w >= 0  with  Z = H + diag(w) - sum_a t_a S_a >= 0,

S_a = K_a*(N_a) and g_a what it proves. Newton's method on the barrier
nu ( log det Z + sum log t + sum log w ): as many unknowns as observers and coordinates. What a
search along a path leaves of the bound, since its multipliers are those of the path, is mostly
recovered so.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse
from numpy.typing import NDArray
from scipy.sparse.csgraph import reverse_cuthill_mckee

from noisedesign.base import linalg as _linalg
from noisedesign.base.checks import Array
from noisedesign.families.observers.program import ObserverProgram
from noisedesign.families.observers.stacks import Sight, Stacks

STEPS = 9
"""Of Newton's method. The first few find the barrier's path, and each later one a smaller nu."""

FALL = 0.15
"""Factor on nu where a step went far."""

FAR = 0.3
"""Share of Newton's step that is far."""

INSIDE = 0.9
"""Share of the way to the boundary that a step goes at most."""

ROOM = 0.998
"""Factor on all t_a at the beginning, below what is feasible."""

DENSE = 2**22
"""Numbers in all S_a together up to which they are kept as matrices."""

MOST = 2**13
"""Rows of all observers up to which they are compared with one another."""

EACH = 2**10
"""Observers up to which each has a share of its own."""

CHUNK = 512
"""Rows of messages that are compared with all others at once."""


def shared_out(
    program: ObserverProgram,
    stacks: Stacks,
    sight: Sight,
    weights: list[Array],
    prices: Array,
    *,
    barrier: float,
) -> tuple[Array, Array]:
    """t, shape (observers,), in the order of ``stacks.owners``, and w, shape (p,), from t = 1 and
    w = ``prices`` on; feasible strictly. One t for
    all observers in a region of the graph where they have too much for one each.

    Args:
        program: data of (O).
        stacks: its observers.
        sight: what they tell of the noise at which N_a = Q_a diag(v_a) Q_a^T.
        weights: v_a, stack by stack.
        prices: w > 0 to begin with.
        barrier: nu to begin with; that of the path, in squared error.
    """
    lower = np.linalg.cholesky(program.gram + np.diag(prices))
    largest = max(1.0, _largest(lower, stacks.used(sight, weights)))
    gained, nu = stacks.gained(sight, weights), barrier
    groups: NDArray[np.intp] = np.arange(len(gained))
    observers: _Matrices | _Rows
    if len(stacks.owners) * program.size**2 <= DENSE:
        observers = _Matrices(stacks.grouped(sight, weights, groups))
    elif stacks.pairs <= MOST and len(stacks.owners) <= EACH and stacks.run is None:
        observers = _Rows(stacks, stacks.rows(sight, weights))
    else:
        groups = _regions(program, stacks, sight, weights)
        observers = _Matrices(stacks.grouped(sight, weights, groups))
        gained = np.asarray(np.bincount(groups, gained), np.float64)
    t, w = np.full(len(gained), ROOM / largest), prices.copy()
    slack = program.gram + np.diag(w) - observers.sum(t)
    with suppress(np.linalg.LinAlgError):  # what is feasible so far stays
        for _ in range(STEPS):
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
            fastest = max(_largest(lower, change), -float(step.min()))
            length = min(1.0, INSIDE / fastest) if fastest > 0 else 1.0
            t, w, slack = t + length * more, w + length * paid, slack - length * change
            if length > FAR:
                nu *= FALL
    return t[groups], w


def _regions(
    program: ObserverProgram, stacks: Stacks, sight: Sight, weights: list[Array]
) -> NDArray[np.intp]:
    """A few groups of observers, in the order of ``stacks.owners``: by who is told most of."""
    count = max(1, DENSE // program.size**2)
    order = reverse_cuthill_mckee(scipy.sparse.csr_array(program.gram != 0), symmetric_mode=True)
    region = np.empty(program.size, dtype=np.intp)
    region[order] = np.arange(program.size) * count // program.size
    found = []
    for stack, told, own in zip(stacks.stacks, sight.told, weights, strict=True):
        worst = (told * own).argmax(axis=1)
        found.append(region[stack.victims[np.arange(len(worst)), worst] % program.size])
    return np.asarray(np.unique(np.concatenate(found), return_inverse=True)[1])


class _Curvature(NamedTuple):
    """With Z^-1: ``traces`` tr(Z^-1 S_a); ``among`` observers, tr(Z^-1 S_a Z^-1 S_b); ``across``
    from them to the caps, (Z^-1 S_a Z^-1)_ii, shape (observers, p)."""

    traces: Array
    among: Array
    across: Array


class _Matrices:
    """S_a as matrices, or sums of them, shape (groups, p, p)."""

    def __init__(self, used: Array) -> None:
        self.used = used

    def sum(self, shares: Array) -> Array:
        return np.asarray(np.tensordot(shares, self.used, axes=1))

    def curvature(self, inverse: Array) -> _Curvature:
        half = inverse @ self.used
        count = len(half)
        across = np.einsum("aij,ji->ai", half, inverse)
        among = half.reshape(count, -1) @ half.swapaxes(1, 2).reshape(count, -1).T
        return _Curvature(np.trace(half, axis1=1, axis2=2), among, across)


class _Rows:
    """S_a = A_a^T A_a as the few rows A_a, of few entries each."""

    def __init__(self, stacks: Stacks, rows: list[Array]) -> None:
        columns, counts = [], []
        for stack, own in zip(stacks.stacks, rows, strict=True):
            support = np.broadcast_to(stack.support[:, None, :], own.shape)
            columns.append(support.reshape(-1, own.shape[2]))
            counts += [own.shape[1]] * len(own)
        lengths = np.concatenate([np.full(len(part), part.shape[1]) for part in columns])
        starts = np.concatenate([[0], np.cumsum(lengths)])
        entries = np.concatenate([own.ravel() for own in rows])
        places = np.concatenate([part.ravel() for part in columns])
        shape = (len(lengths), stacks.size)
        self.rows = scipy.sparse.csr_array((entries, places, starts), shape=shape)
        self.counts = np.array(counts)
        self.first = np.concatenate([[0], np.cumsum(self.counts)[:-1]])

    def sum(self, shares: Array) -> Array:
        weighted = self.rows.multiply(np.repeat(shares, self.counts)[:, None]).tocsr()
        return np.asarray((self.rows.T @ weighted).toarray())

    def curvature(self, inverse: Array) -> _Curvature:
        half = self.rows @ inverse
        traces = np.asarray(self.rows.multiply(half).sum(axis=1)).ravel()
        by_rows = np.empty((half.shape[0], len(self.first)))
        for start in range(0, len(half), CHUNK):
            part = slice(start, start + CHUNK)
            squares = (self.rows @ np.ascontiguousarray(half[part].T)) ** 2
            by_rows[part] = np.add.reduceat(squares, self.first, axis=0).T
        return _Curvature(
            np.add.reduceat(traces, self.first),
            np.add.reduceat(by_rows, self.first, axis=0),
            np.add.reduceat(half**2, self.first, axis=0),
        )


def _largest(lower: Any, change: Any) -> float:
    """The largest eigenvalue of L^-1 E L^-T."""
    half = scipy.linalg.solve_triangular(lower, change, lower=True)
    return float(_linalg.eigenvalues(scipy.linalg.solve_triangular(lower, half.T, lower=True))[-1])
