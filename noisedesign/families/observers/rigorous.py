"""Noise against chosen observers, judged and bounded with every rounding accounted for.

What an observer has is written anew, in rows that are independent by construction
(docs/methods/proofs.md, "Against chosen observers"). With B_0, B_1, ... these rows by their lag,
K_ts = sum_r B_(t-r) R B_(s-r)^T is known with its error, and the squared sensitivities are
diag(G^T K^-1 G), G of the columns of all gradients of all steps. Noises that it knows are rows that
no gradient moves."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisedesign.base.checks import Array
from noisedesign.base.enclosures import (
    EPS,
    TINY,
    Enclosure,
    Interval,
    U,
    exactly,
    finer_product,
    gram,
    product,
    products_up,
    up,
)
from noisedesign.certify.polar import nuclear_norm
from noisedesign.certify.rigorous import (
    SHIFTS,
    Judged,
    NotProvedError,
    error_of,
    factor_below,
    forms_above,
    gram_of,
    precisions_above,
    raised,
    ratio_above,
    squared_over,
)
from noisedesign.families.observers.bound import SCALES, Multipliers
from noisedesign.families.observers.observed import told_above
from noisedesign.families.observers.program import ObserverProgram, heard_by, known_by_nodes
from noisedesign.privacy.views import Observer

MOST_NODES = 64
"""Nodes up to which rows are eliminated: numbers grow to thousands of digits."""


def judge(program: ObserverProgram, covariance: Array) -> Judged:
    """:func:`bound.judge` with every rounding accounted for, of all gradients of all steps. Where
    R is only proved positive semidefinite once its diagonal is raised, what is said holds of both.
    """
    if not (covariance == covariance.T).all():
        raise NotProvedError("R is not symmetric")
    # More noise tells less: of the two R itself, of which every K is then proved to be definite.
    noise, r = raised(covariance), exactly(covariance)
    definite = program.pooled and bool((noise == covariance).all())
    worst = _worst_of_coalitions(program, r) if definite else _worst_of(program, r)
    own, most = (error_of(program.anywhere, each)[0] for each in (covariance, noise))
    return Judged(
        objective=Interval(min(own.lower, most.lower), max(own.upper, most.upper)),
        sensitivity_squared=worst,
        variance_ratio=ratio_above(np.diagonal(noise), program.cap),
    )


def _worst_of(program: ObserverProgram, r: Enclosure) -> float:
    """Bound the largest squared sensitivity over its budget, observer by observer."""
    worst = 0.0
    for observer, budgets in zip(program.observers, program.pair_budgets, strict=True):
        if len((seen := seen_by(program, observer)).victims):
            worst = max(worst, ratio_above(seen.told(r), budgets[seen.victims]))
    return worst


def _worst_of_coalitions(program: ObserverProgram, r: Enclosure) -> float:
    """Bound it for all coalitions together, then one by one where that proves too little."""
    told = told_above(program.every_coalition, r.mid, program.budget)
    for place in np.argsort(-told, kind="stable"):
        if told[place] <= 1:
            continue
        one = program.among(program.every_coalition.members[place : place + 1])
        told[place] = _worst_of(one, r)
        if not told[place] <= 1:
            break
    return float(told.max())


def lower_bound(program: ObserverProgram, multipliers: Multipliers) -> Interval:
    """:func:`bound.lower_bound` with every rounding accounted for. N_a is carried over to the rows
    here, and what sum_a K_a*(N_a) exceeds H + diag(w) by added to w, until the rest is positive."""
    if not multipliers.finite:
        raise NotProvedError("the multipliers are no numbers")
    gains = []
    mid, rad, count = (np.zeros_like(program.gram) for _ in range(3))
    unit, error = program.unit, program.unit_error
    pairs = zip(program.observers, program.seen, program.pair_budgets, strict=True)
    reached = [each for each in pairs if each[1].signals.size]
    parts = zip(reached, multipliers.factors, multipliers.weights, strict=True)
    for (observer, found, budgets), given, weights in parts:
        shares = np.maximum(weights, 0.0)
        if not shares.max(initial=0.0) > 0:
            continue
        seen = seen_by(program, observer)
        wanted = np.sqrt(error) * np.concatenate(list(given @ found.responses / unit), axis=1)
        factor = seen.factor(wanted)
        at = np.ix_(seen.rows, seen.rows) if seen.local else np.ix_(*[np.arange(len(mid))] * 2)
        for part in seen.used(factor):
            mid[at] += part.mid
            rad[at] += part.rad + U * np.abs(mid[at])
            count[at] += 1
        budget = budgets[list(found.victims)]
        roots = np.sqrt(shares / shares.max() / budget)
        where = np.searchsorted(seen.victims, found.victims)
        signals = seen.signals(0)
        half = product(factor, Enclosure(signals.mid[:, where], signals.rad[:, where]))
        scaled = half.mid * roots
        spread = np.asarray(up(half.rad * roots + U * np.abs(scaled), 2))
        price = products_up(budget, up(np.square(roots), 1))
        norm = nuclear_norm(Enclosure(scaled, spread))
        gains.append(squared_over(norm, price))
    if not gains:
        raise NotProvedError("the multipliers prove nothing")
    prices = np.maximum(multipliers.cap, 0.0) * error / np.square(unit)
    used = Enclosure((mid + mid.T) / 2, np.asarray(up((rad + rad.T) / 2 + U * np.abs(mid), 4)))
    used = Enclosure(used.mid, used.rad * (1 + float(count.max() + 2) * EPS))
    return _within(program, used, gains, prices)


def _within(
    program: ObserverProgram, used: Enclosure, gains: list[Interval], prices: Array
) -> Interval:
    """Bound the error once the cap's multipliers pay for excess, by a few scales of N."""
    h = gram_of(program.anywhere)
    root = np.sqrt(program.cap)
    units = np.multiply.outer(root, root)
    gained = math.fsum(gain.lower for gain in gains)

    def excess(scale: float) -> float:
        left = (scale * used.mid - h.mid - np.diag(prices)) * units
        return max(0.0, float(np.linalg.eigvalsh((left + left.T) / 2)[-1]))

    def worth(scale: float) -> float:
        return scale * gained - float(program.cap @ prices) - len(root) * excess(scale)

    scale = max(SCALES, key=worth)
    total = used.scaled_by(scale)
    over = excess(scale)
    # What a factorisation has to leave, with the radii, in units of the cap.
    left = h.plus(exactly(np.diag(prices))).minus(total)
    share = 8 * len(root) * U * float((np.diagonal(left.largest) * program.cap).max())
    share += 2 * float((left.rad * units).sum(axis=1).max())
    for _ in range(SHIFTS):
        paid = np.asarray(up(prices + (over + share) / program.cap, 4))
        try:
            factor_below(h.plus(exactly(np.diag(paid))).minus(total))
        except NotProvedError:
            share *= 2
            continue
        price = products_up(program.cap, paid)
        low = gained * scale * (1 - 4 * EPS)
        high = math.fsum(gain.upper for gain in gains) * scale * (1 + 4 * EPS)
        least = float(program.cap @ prices) + len(root) * over
        room = 4 * EPS * (abs(low) + price)
        return Interval(low - price - room, high - least + room)
    raise NotProvedError("the multipliers are not proved feasible")


# --- what one observer has ------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class Seen:
    """One observer: the nodes of the ``rows`` of one step, ascending; whether each is ``known``
    noise; ``lags`` B_0, B_1, ..., each (rows, n); and its ``victims``. ``nodes`` says that rows are
    messages of nodes, one each, and not sums of them."""

    rows: NDArray[np.intp]
    known: NDArray[np.bool_]
    lags: tuple[Enclosure, ...]
    victims: NDArray[np.intp]
    nodes: bool = True

    @property
    def local(self) -> bool:
        """Whether it has no more than some messages of one step."""
        return self.nodes and len(self.lags) == 1

    def covariance(self, r: Enclosure) -> Enclosure:
        """K_ts = sum_r B_(t-r) R B_(s-r)^T, shape (m T, m T)."""
        if self.local:
            at = np.ix_(self.rows, self.rows)
            return Enclosure(r.mid[at], r.rad if r.exact else r.rad[at])
        steps, m, stacked = len(self.lags), len(self.rows), _stacked(self.lags)
        by_lag = finer_product(finer_product(stacked, r), stacked.transposed())
        mid, rad = by_lag.mid.copy(), np.array(np.broadcast_to(by_lag.rad, by_lag.mid.shape))
        for t in range(1, steps):
            for s in range(1, steps):
                here = slice(t * m, t * m + m), slice(s * m, s * m + m)
                before = slice(t * m - m, t * m), slice(s * m - m, s * m)
                total = Enclosure(mid[here], rad[here]).plus(Enclosure(mid[before], rad[before]))
                mid[here], rad[here] = total
        rad += U * np.abs(mid)
        return Enclosure((mid + mid.T) / 2, np.asarray(up((rad + rad.T) / 2, 4)))

    def signals(self, step: int) -> Enclosure:
        """The columns of G of the gradients of one step, shape (m T, victims)."""
        before = [exactly(np.zeros_like(self.lags[0].mid))] * step
        moved = [*before, *self.lags[: len(self.lags) - step]]
        whole = _stacked(moved)
        known = np.tile(self.known, len(moved))[:, None]
        mid, rad = np.where(known, 0.0, whole.mid), np.broadcast_to(whole.rad, whole.mid.shape)
        return Enclosure(mid[:, self.victims], rad[:, self.victims])

    def told(self, r: Enclosure) -> Array:
        """Bound the squared sensitivities from above, each the largest of all steps: (victims,)."""
        k = self.covariance(r)
        if not self.local:
            steps = range(len(self.lags))
            told = [forms_above(k, self.signals(step)) for step in steps]
            return np.asarray(np.max(told, axis=0))
        *_, worst = precisions_above(k)
        found = np.zeros(len(r.mid))
        found[self.rows] = np.where(self.known, 0.0, worst)
        return np.asarray(found[self.victims])

    def used(self, factor: Array) -> Iterator[Enclosure]:
        """K*(F^T F), F of shape (any, m T), as a sum of matrices of shape (n, n)."""
        if self.local:
            yield gram(factor)
            return
        steps, m = len(self.lags), len(self.rows)
        for r in range(steps):
            lags = _stacked(self.lags[: steps - r])
            rows = product(np.ascontiguousarray(factor[:, r * m :]), lags)
            yield product(rows.transposed(), rows)

    def factor(self, wanted: Array) -> Array:
        """F with F S about ``wanted``, the rows that N takes of the noise of all steps."""
        n = self.lags[0].mid.shape[1]
        if self.local:
            return np.ascontiguousarray(wanted[:, self.rows])
        steps, m = len(self.lags), len(self.rows)
        whole = np.zeros((steps * m, steps * n))
        for r in range(steps):
            whole[r * m :, r * n : r * n + n] = np.vstack([x.mid for x in self.lags[: steps - r]])
        return np.asarray(np.linalg.lstsq(whole.T, wanted.T, rcond=None)[0].T)


def _stacked(parts: list[Enclosure] | tuple[Enclosure, ...]) -> Enclosure:
    if all(part.exact for part in parts):
        return exactly(np.vstack([part.mid for part in parts]))
    rads = [np.broadcast_to(part.rad, part.mid.shape) for part in parts]
    return Enclosure(np.vstack([part.mid for part in parts]), np.vstack(rads))


def seen_by(program: ObserverProgram, observer: Observer) -> Seen:
    """Find what an observer has of noise that nodes draw afresh at every step."""
    w, n, steps = program.mixing, program.size, program.horizon
    if not known_by_nodes(observer, n):
        raise NotProvedError(f"what the observer {observer} knows is not covered")
    coalition, known = set(observer.coalition), observer.knows.revealed
    if observer.sees == "all":
        heard, steps = set(range(n)), 1  # any round tells the first
    elif program.rounds > 1 or observer.sees in ("sums", "mean"):
        return _seen_in_sums(program, observer)
    else:
        heard = set(heard_by(observer, w).tolist())
    if (heard & known) - coalition:
        raise NotProvedError(f"the observer {observer} sees a gradient without noise")
    rows = np.array(sorted(heard | known), dtype=np.intp)
    hidden = np.array(sorted(set(range(n)) - heard), dtype=np.intp)
    silent = np.isin(rows, sorted(known))
    if steps > 1 and w[sorted(heard & known)][:, hidden].any():
        raise NotProvedError(f"what the observer {observer} knows is not covered")
    reach = exactly(np.where(silent[:, None], 0.0, w[np.ix_(rows, hidden)]))
    later = _lags(reach, w, hidden, rounds=1, steps=steps - 1)
    lags = (exactly(np.eye(n)[rows]), *later)
    return Seen(rows=rows, known=silent, lags=lags, victims=_victims(observer, n))


def _lags(
    reach: Enclosure, w: Array, nodes: NDArray[np.intp], *, rounds: int, steps: int
) -> list[Enclosure]:
    """Rows on the noise of all nodes, one lag after another; ``reach`` is on that of some."""
    found, among = [], exactly(np.ascontiguousarray(w[np.ix_(nodes, nodes)]))
    for left in reversed(range(steps)):
        mid, rad = (np.zeros((len(reach.mid), len(w))) for _ in range(2))
        mid[:, nodes], rad[:, nodes] = reach
        found.append(Enclosure(mid, rad))
        for _ in range(rounds if left and len(nodes) else 0):
            reach = finer_product(reach, among)
    return found


def _victims(observer: Observer, n: int) -> NDArray[np.intp]:
    return np.delete(np.arange(n), list(observer.coalition))


# --- sums of messages, and several rounds a step --------------------------------------------------


def _seen_in_sums(program: ObserverProgram, observer: Observer) -> Seen:
    w, n = program.mixing, program.size
    if n > MOST_NODES:
        covered = f"sums and several rounds are covered for at most {MOST_NODES} nodes"
        raise NotProvedError(f"{covered}, of which there are {n}")
    coalition, known = sorted(observer.coalition), sorted(observer.knows.revealed)
    if known not in ([], coalition):
        raise NotProvedError(f"what the observer {observer} knows is not covered")
    if mean := observer.sees == "mean":
        start = np.ones((1, n))
    elif observer.sees == "sums":
        start = w[coalition]
    else:
        start = np.eye(n)[np.setdiff1d(heard_by(observer, w), known)]
    own, of = np.array(known, dtype=np.intp), {"rounds": program.rounds, "steps": program.horizon}
    lags = rows_of(w, start, known=own, after=mean, **of)
    rows, victims = np.arange(len(lags[0].mid)), _victims(observer, n)
    silent = rows >= len(rows) - len(known)
    return Seen(rows=rows, known=silent, lags=lags, victims=victims, nodes=False)


def rows_of(
    w: Array, start: Array, *, known: NDArray[np.intp], rounds: int, steps: int, after: bool = False
) -> tuple[Enclosure, ...]:
    """Rows on the noise of each lag, each (rows, n), those of ``known`` noise last. ``start`` is A,
    shape (any, n), which is seen before each of the ``rounds`` of a step, or ``after`` the last
    alone."""
    others = np.setdiff1d(np.arange(len(w)), known)
    mixing = _whole(w[np.ix_(others, others)])
    told, found, kept = _whole(start[:, others]), Eliminated(), []
    for k in range(rounds + 1 if after else rounds):
        if not after or k == rounds:
            kept += [(row, told.scale) for row in told.rows if found.adds(row)]
        told = told.times(mixing)
    scale = max((own for _, own in kept), default=0)
    whole = np.array([row << (scale - own) for row, own in kept], object)
    mid = _orthonormal(Scaled(whole.reshape(len(kept), len(others)), scale))
    rad = np.asarray(up(U * np.abs(mid) + TINY, 1))
    silent = np.zeros((len(known), len(others)))
    reach = Enclosure(np.vstack([mid, silent]), np.vstack([rad, silent]))
    lags = _lags(reach, w, others, rounds=rounds, steps=steps)
    lags[0].mid[len(kept) + np.arange(len(known)), known] = 1.0
    return tuple(lags)


class Scaled(NamedTuple):
    """Rows of Python's integers, an array of objects, over 2 to the power of ``scale``."""

    rows: Any
    scale: int

    def times(self, other: Scaled) -> Scaled:
        """The product."""
        return Scaled(self.rows @ other.rows, self.scale + other.scale)

    def nearest(self) -> Array:
        """The nearest floats: a quotient of two integers is rounded once."""
        return np.asarray(self.rows / 2**self.scale, dtype=np.float64)


def _orthonormal(rows: Scaled) -> Array:
    """About T O for a T that makes its rows orthonormal: but for one rounding, of some T."""
    if not len(rows.rows):
        return rows.nearest()
    left, values, _ = np.linalg.svd(rows.nearest(), full_matrices=False)
    with np.errstate(divide="ignore", invalid="ignore"):
        turned = left.T / values[:, None]
    return _whole(turned).times(rows).nearest() if np.isfinite(turned).all() else rows.nearest()


def _whole(a: Array) -> Scaled:
    """A itself: every float is an integer over a power of two."""
    ratios = [[x.as_integer_ratio() for x in row] for row in a.tolist()]
    scale = max((below.bit_length() - 1 for row in ratios for _, below in row), default=0)
    rows = np.array([[top * (2**scale // below) for top, below in row] for row in ratios], object)
    return Scaled(rows.reshape(a.shape), scale)


class Eliminated:
    """Rows that are independent of one another, each without the first entries of those before."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, Any]] = []

    def adds(self, row: Any) -> bool:
        """Keep a row of integers unless it is a sum of multiples of those before; whether it is."""
        for first, before in self.rows:
            if row[first]:
                row = before[first] * row - row[first] * before
                row = row // max(math.gcd(*row), 1)
        places = np.flatnonzero(row)
        if not len(places):
            return False
        self.rows.append((int(places[0]), row))
        return True
