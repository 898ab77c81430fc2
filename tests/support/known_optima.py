"""Small problems of shared seeds and of observers with their least error, and noise and multipliers
of it as designs store them; from what (L) and (O) say, and not from how the package solves them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tests.support.balls import arb, arb_mat, diagonal, inner, kron, mat, part, powers
from tests.support.least_error import Inside, Least, Limit, least_error

Array = np.ndarray
ROOM = 1.5  # variance of the noise of a start, over what its budget asks, or less under a cap


class Known(NamedTuple):
    """The least squared error, and arrays of a design that has it but for their rounding."""

    error: Any
    proof: dict[str, Array]
    covariance: Array


def floats(values: Iterable[Any]) -> Array:
    return np.array([float(x.mid()) for x in values])


def combined(x: Sequence[Any], parts: Sequence[Any]) -> Any:
    return sum((part * y for part, y in zip(parts[1:], x[1:], strict=True)), parts[0] * x[0])


def basis(nodes: Sequence[int], size: int) -> list[Any]:
    """Of symmetric matrices of a size, zero but between these nodes."""
    found = []
    for i, j in itertools.combinations_with_replacement(nodes, 2):
        found.append(arb_mat(size, size))
        found[-1][i, j] = found[-1][j, i] = arb(1)
    return found


def definite(parts: Sequence[Any], columns: Sequence[Any] = (), tau: Iterable[float] = ()) -> Limit:
    size = parts[0].nrows()
    return Limit(arb_mat(size, size), parts, columns, [arb(float(y)) for y in tau])


def within(cap: Array, units: Sequence[Any]) -> list[Limit]:
    """What the variances are below their cap, R = sum of x_j ``units``_j."""
    return [Limit(mat([[y]]), [part(one, [i]) * -1 for one in units]) for i, y in enumerate(cap)]


def multipliers(found: Least, inside: Inside) -> tuple[list[Any], Array]:
    """The rows of F, N = F^T F, and the prices v of a limit with columns."""
    prices = [found.mu / rest for _, rest in inside.columns]
    pairs = zip(inside.columns, prices, strict=True)
    return [y.transpose() * v.sqrt() for (y, _), v in pairs], floats(prices)


def of_caps(found: Least, size: int) -> Array:
    return floats(found.mu * inside.inverse[0, 0] for inside in found.limits[-size:])


def least_of_seeds(program: Any, h: Any) -> Known | None:
    """Over blocks P_c >= 0, before all coalitions."""
    n, sets, tau = program.size, program.sets, program.budget
    of = [c for c, nodes in enumerate(sets) for _ in basis(nodes, n)]
    units = [one for nodes in sets for one in basis(nodes, n)]

    def left(nodes: Sequence[int], kept: Iterable[int]) -> list[Any]:
        """R between nodes, of the seeds of some sets."""
        return [part(one, nodes) * int(c in kept) for c, one in zip(of, units, strict=True)]

    limits = [definite(left(nodes, [c])) for c, nodes in enumerate(sets)]
    outside = [[i for i in range(n) if i not in coalition] for coalition in program.coalitions]
    for rest in outside:
        kept = [c for c, nodes in enumerate(sets) if set(nodes) <= set(rest)]
        limits.append(definite(left(rest, kept), basis_columns(len(rest)), tau[rest]))
    # Nearly all noise of a start is of seeds that a node has alone, where there are such.
    share = np.array([1.0 if len(nodes) == 1 else 0.01 for nodes in sets])
    whole = [sum(y for y, nodes in zip(share, sets, strict=True) if i in nodes) for i in range(n)]
    start = [
        float(share[c]) * ROOM / whole[i] / tau[i] if i == j else 0.0
        for c, nodes in enumerate(sets)
        for i, j in itertools.combinations_with_replacement(nodes, 2)
    ]
    cost = [inner(h, one) for one in units]
    found = least_error(cost, limits + within(program.cap, units), list(map(arb, start)))
    if found is None:
        return None
    factors, prices = np.zeros((len(outside), n, n)), np.zeros((len(outside), n))
    for a, rest in enumerate(outside):
        rows, prices[a, rest] = multipliers(found, found.limits[len(sets) + a])
        factors[np.ix_([a], range(len(rows)), rest)] = [floats(row.entries()) for row in rows]
    blocks = [floats(combined(found.x, limit.parts).entries()) for limit in limits[: len(sets)]]
    r = floats(combined(found.x, units).entries()).reshape(n, n)
    proof = {"dual_factors": factors, "dual_prices": prices, "dual_cap": of_caps(found, n)}
    proof["clique_blocks"] = np.concatenate(blocks)
    return Known(inner(arb_mat(1, len(cost), cost), arb_mat(1, len(cost), found.x)), proof, r)


def basis_columns(n: int) -> list[Any]:
    return [part(diagonal([arb(1)] * n), range(n), [i]) for i in range(n)]


def messages(observer: Any, w: Array, steps: int) -> Any:
    """All that an observer hears, stacked, and the noise that its nodes know, in the noise of all
    steps; where all messages are heard those of one step tell as much."""
    n = len(w)
    inside = sorted(observer.coalition)
    heard = sorted({j for i in inside for j in range(n) if w[i, j]} | set(inside))
    if observer.sees == "all":
        heard, steps = list(range(n)), 1
    before = [diagonal([arb(1)] * n), *powers(mat(w), steps)]
    seen = arb_mat(steps * len(heard), steps * n)
    for t, s in itertools.combinations_with_replacement(range(steps), 2):
        for (a, j), i in itertools.product(enumerate(heard), range(n)):
            seen[s * len(heard) + a, t * n + i] = before[s - t][j, i]
    return seen


def least_of_observers(program: Any, h: Any) -> Known | None:
    """Over all R, before the gradients of the first step: of later ones messages tell no more."""
    n, tau = program.size, program.budget
    units = basis(range(n), n)
    limits, watched = [definite(units)], []
    for observer in program.observers:
        seen = messages(observer, program.mixing, program.horizon)
        rows, times = range(seen.nrows()), seen.ncols() // n
        columns = {i: part(seen, rows, [i]) for i in range(n) if i not in observer.coalition}
        columns = {i: g for i, g in columns.items() if inner(g, g) > 0}
        if columns:
            each = diagonal([arb(1)] * times)
            parts = [seen * kron(each, one) * seen.transpose() for one in units]
            limits.append(definite(parts, list(columns.values()), tau[list(columns)]))
            watched.append((seen, times, list(columns)))
    room = min(ROOM, math.sqrt((program.cap * tau).min()))
    pairs = itertools.combinations_with_replacement(range(n), 2)
    start = [arb(room / tau[i] if i == j else 0.0) for i, j in pairs]
    cost = [inner(h, one) for one in units]
    found = least_error(cost, limits + within(program.cap, units), start)
    if found is None:
        return None
    unit_error = float(np.sum(floats(h[i, i] for i in range(n)) / tau))
    factors, weights = [], []
    for (seen, times, victims), inside in zip(watched, found.limits[1:], strict=False):
        rows, prices = multipliers(found, inside)
        whole = np.array([floats((row * seen).entries()) for row in rows])
        factors.append(whole / np.sqrt(np.tile(tau, times) * unit_error))
        weights.append(prices * tau[victims] / unit_error)
    proof = {
        "observer_ranks": np.array([float(len(rows)) for rows in factors]),
        "observer_factors": np.concatenate([rows.ravel() for rows in factors]),
        "observer_weights": np.concatenate(weights),
        "dual_cap": of_caps(found, n) / tau / unit_error,
    }
    r = floats(combined(found.x, units).entries()).reshape(n, n)
    return Known(inner(arb_mat(1, len(cost), cost), arb_mat(1, len(cost), found.x)), proof, r)
