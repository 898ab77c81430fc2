"""What all coalitions are told of one step, with every rounding accounted for, many at once.

R is proved positive definite as a whole, and so is every K = R_SS. With any Y, and E = I - K Y,

    diag(K^-1) = diag( Y + Y E (I - E)^-1 ) <= diag(Y) + |Y_u| e / (1 - e),   |E|_F <= e < 1.

What is computed of E errs by at most (m + 2) u (|K| |Y| + I), m the size of K.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from noisedesign.base.checks import Array
from noisedesign.base.enclosures import U, up
from noisedesign.families.observers.pools import Indices, Pools


def told_above(pools: Pools, noise: Array, budget: Array) -> Array:
    """Upper bounds on the largest squared sensitivity over its budget, shape (coalitions,);
    infinite where rounding is too large to tell.

    Args:
        pools: the coalitions.
        noise: R, shape (n, n), proved positive definite, of these very numbers.
        budget: tau, shape (n,).
    """
    worst = np.zeros(len(pools.members))
    for places, heard, inside in pools.together():
        above = _diagonals_above(noise[heard[:, :, None], heard[:, None, :]])
        ratio = np.asarray(up(above / budget[heard], 1))
        worst[places] = np.where(inside, 0.0, ratio).max(axis=1)
    return worst


def by_need(worst: Array) -> Iterator[int]:
    """Places of those whose bound is not at most 1, the largest first: worth a better one."""
    order: Indices = np.argsort(-worst, kind="stable")
    yield from (int(place) for place in order if not worst[place] <= 1)


def _diagonals_above(k: Array) -> Array:
    """Upper bounds on diag(K^-1) of each, shape (g, m)."""
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
