"""Noise against chosen observers, judged and bounded with every rounding accounted for.

What an observer has is written anew, in rows that are independent by construction. Let N be the
nodes whose messages it hears and h the others. Messages that it heard before tell what they add to
later ones, and that is taken off: what is left of the message of j in N at step t is

    z_j + g_j  at t,   and   W_jh (W_hh)^(l-1) (z_h + g_h)  at t - l,  l = 1, 2, ...,

with a one in a column of its own. So are the noises that it knows, which no gradient moves. With
B_0, B_1, ... these rows by their lag, K_ts = sum_r B_(t-r) R B_(s-r)^T is known with its error, and
the squared sensitivities are diag(G^T K^-1 G), G of the columns of all gradients of all steps. Rows
of sums of messages, and of several rounds a step, are those of :mod:`.rigorous_sums`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from noisedesign.base.checks import Array
from noisedesign.base.enclosures import (
    EPS,
    Enclosure,
    Interval,
    U,
    exactly,
    finer_product,
    gram,
    inner,
    outer_product,
    product,
    products_up,
    symmetric_part,
    up,
)
from noisedesign.families.observers.bound import SCALES, Multipliers
from noisedesign.families.observers.program import ObserverProblem, known_by_nodes
from noisedesign.families.observers.rigorous_pools import by_need, told_above
from noisedesign.families.observers.rigorous_sums import MOST_NODES, rows_of
from noisedesign.privacy.views import Observer
from noisedesign.program.polar import nuclear_norm
from noisedesign.program.rigorous import (
    SHIFTS,
    Judged,
    NotProvedError,
    factor_below,
    forms_above,
    precisions_above,
    raised,
    ratio_above,
    squared_over,
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Seen:
    """What one observer has.

    Attributes:
        rows: the nodes of the rows of one step, ascending.
        known: of every row, whether it is noise that no gradient moves.
        lags: B_0, B_1, ... without the former, each of shape (rows, n).
        victims: the nodes that it looks at.
        nodes: whether rows of no lag are messages of nodes, one each, and not sums of them.
    """

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
        """K(R), shape (m T, m T)."""
        if self.local:
            at = np.ix_(self.rows, self.rows)
            return Enclosure(r.mid[at], r.rad if r.exact else r.rad[at])
        steps, m = len(self.lags), len(self.rows)
        stacked = _stacked(self.lags)
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
        parts = [
            Enclosure(
                np.where(self.known[:, None], 0.0, lag.mid)[:, self.victims],
                np.broadcast_to(lag.rad, lag.mid.shape)[:, self.victims],
            )
            for lag in moved
        ]
        return _stacked(parts)

    def told(self, r: Enclosure) -> Array:
        """Upper bounds on the squared sensitivities, each the largest of all steps: (victims,).

        Raises:
            NotProvedError: K(R) is not proved positive definite.
        """
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
        """K*(N) for N = F^T F, F of shape (any, m T), as a sum of matrices of shape (n, n); of a
        local observer one of its rows alone."""
        if self.local:
            yield gram(factor)
            return
        steps, m = len(self.lags), len(self.rows)
        for r in range(steps):
            lags = _stacked(self.lags[: steps - r])
            rows = product(np.ascontiguousarray(factor[:, r * m :]), lags)
            yield product(rows.transposed(), rows)


def _stacked(parts: list[Enclosure] | tuple[Enclosure, ...]) -> Enclosure:
    if all(part.exact for part in parts):
        return exactly(np.vstack([part.mid for part in parts]))
    rads = [np.broadcast_to(part.rad, part.mid.shape) for part in parts]
    return Enclosure(np.vstack([part.mid for part in parts]), np.vstack(rads))


def seen_by(problem: ObserverProblem, observer: Observer) -> Seen:
    """What an observer has of noise that nodes draw afresh at every step.

    Raises:
        NotProvedError: it is one that is not covered, or sees a gradient without noise.
    """
    w, n = problem.mixing, len(problem.mixing)
    if not known_by_nodes(observer, n) or problem.correlated_over_time:
        raise NotProvedError(f"what the observer {observer} knows is not covered")
    coalition, known = set(observer.coalition), observer.knows.silenced
    steps = problem.horizon
    if observer.sees == "all":
        heard, steps = set(range(n)), 1  # any round tells the first
    elif problem.rounds > 1 or observer.sees in ("sums", "mean"):
        return _seen_in_sums(problem, observer)
    else:
        heard = _heard(w, observer)
    if (heard & known) - coalition:
        raise NotProvedError(f"the observer {observer} sees a gradient without noise")
    rows = np.array(sorted(heard | known), dtype=np.intp)
    hidden = np.array(sorted(set(range(n)) - heard), dtype=np.intp)
    silent = np.isin(rows, sorted(known))
    if steps > 1 and w[sorted(heard & known)][:, hidden].any():
        raise NotProvedError(f"what the observer {observer} knows is not covered")
    selected = np.zeros((len(rows), n))
    selected[np.arange(len(rows)), rows] = 1.0
    lags = [exactly(selected)]
    reach = exactly(np.where(silent[:, None], 0.0, w[np.ix_(rows, hidden)]))
    for _ in range(1, steps):
        mid, rad = np.zeros((len(rows), n)), np.zeros((len(rows), n))
        mid[:, hidden], rad[:, hidden] = reach
        lags.append(Enclosure(mid, rad))
        if len(hidden):
            reach = finer_product(reach, exactly(w[np.ix_(hidden, hidden)]))
    victims = np.array(sorted(set(range(n)) - coalition), dtype=np.intp)
    return Seen(rows=rows, known=silent, lags=tuple(lags), victims=victims)


def _heard(w: Array, observer: Observer) -> set[int]:
    """The nodes whose messages reach an observer one by one."""
    if observer.sees == "sent":
        return set(observer.listened)
    coalition = list(observer.coalition)
    return set(coalition) | set(np.flatnonzero((w[coalition] != 0).any(axis=0)).tolist())


def _seen_in_sums(problem: ObserverProblem, observer: Observer) -> Seen:
    """:func:`seen_by`, of sums of messages or of several rounds a step."""
    w, n = problem.mixing, len(problem.mixing)
    if n > MOST_NODES:
        raise NotProvedError(
            f"sums and several rounds are covered for at most {MOST_NODES} nodes, of which there "
            f"are {n}"
        )
    coalition, known = sorted(observer.coalition), sorted(observer.knows.silenced)
    if known not in ([], coalition):
        raise NotProvedError(f"what the observer {observer} knows is not covered")
    if mean := observer.sees == "mean":
        start = np.ones((1, n))
    elif observer.sees == "sums":
        start = w[coalition]
    else:
        start = np.eye(n)[sorted(_heard(w, observer) - set(known))]
    lags, silent = rows_of(
        w,
        start,
        known=np.array(known, dtype=np.intp),
        rounds=problem.rounds,
        steps=problem.horizon,
        after=mean,
    )
    count = len(lags[0].mid)
    return Seen(
        rows=np.arange(count),
        known=np.arange(count) >= count - len(silent),
        lags=lags,
        victims=np.array(sorted(set(range(n)) - set(coalition)), dtype=np.intp),
        nodes=False,
    )


def judge(problem: ObserverProblem, covariance: Array) -> Judged:
    """:func:`bound.judge` with every rounding accounted for, of all gradients of all steps.

    Noise may be singular, which no rounded matrix is exactly: what makes R positive definite is
    part of what is judged.

    Raises:
        NotProvedError: R is not near a positive semidefinite matrix; an observer is not covered.
    """
    if not (covariance == covariance.T).all():
        raise NotProvedError("R is not symmetric")
    noise = raised(covariance)
    r = exactly(noise)
    worst = _worst_of_pools(problem, r) if problem.pooled else _worst_of(problem, r)
    factor = problem.exact_factor
    if factor is None:
        objective = inner(r, problem.gram)
    else:
        objective = inner(outer_product(factor, noise), factor)
    return Judged(
        objective=objective,
        sensitivity_squared=worst,
        variance_ratio=ratio_above(np.diagonal(noise), problem.cap),
    )


def _worst_of(problem: ObserverProblem, r: Enclosure) -> float:
    """Of observers one by one."""
    worst = 0.0
    for observer, budgets in zip(problem.observers, problem.pair_budgets, strict=True):
        seen = seen_by(problem, observer)
        if len(seen.victims):
            worst = max(worst, ratio_above(seen.told(r), budgets[seen.victims]))
    return worst


def _worst_of_pools(problem: ObserverProblem, r: Enclosure) -> float:
    """Of all coalitions together, and one by one of those of whom that proves too little."""
    told = told_above(problem.pools, r.mid, problem.budget)
    for place in by_need(told):
        one = problem.among(problem.pools.members[place : place + 1])
        told[place] = _worst_of(one, r)
        if not told[place] <= 1:
            break
    return float(told.max())


def lower_bound(problem: ObserverProblem, multipliers: Multipliers) -> Interval:
    """:func:`bound.lower_bound` with every rounding accounted for.

    N_a is carried over to the rows here, where G and the rows of the noise are known, and what the
    sum of K_a*(N_a) exceeds H + diag(w) by is added to w, until the rest is proved positive.

    Raises:
        NotProvedError: the multipliers are no numbers; an observer is not covered.
    """
    arrays = (*multipliers.factors, *multipliers.weights, multipliers.cap)
    if not all(np.isfinite(array).all() for array in arrays):
        raise NotProvedError("the multipliers are no numbers")
    gains = []
    mid, rad, count = (np.zeros_like(problem.gram) for _ in range(3))
    unit, error = problem.unit, problem.unit_error
    pairs = zip(problem.observers, problem.seen, problem.pair_budgets, strict=True)
    reached = [each for each in pairs if each[1].signals.size]
    parts = zip(reached, multipliers.factors, multipliers.weights, strict=True)
    for (observer, found, budgets), given, weights in parts:
        shares = np.maximum(weights, 0.0)
        if not shares.max(initial=0.0) > 0:
            continue
        seen = seen_by(problem, observer)
        wanted = np.sqrt(error) * np.concatenate(list(given @ found.responses / unit), axis=1)
        factor = _factor(seen, wanted)
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
    return _within(problem, used, gains, prices)


def _factor(seen: Seen, wanted: Array) -> Array:
    """F with F S about ``wanted``, the rows that N takes of the noise of all steps."""
    n = seen.lags[0].mid.shape[1]
    if seen.local:
        return np.ascontiguousarray(wanted[:, seen.rows])
    steps, m = len(seen.lags), len(seen.rows)
    whole = np.zeros((steps * m, steps * n))
    for r in range(steps):
        whole[r * m :, r * n : r * n + n] = np.vstack([x.mid for x in seen.lags[: steps - r]])
    return np.asarray(np.linalg.lstsq(whole.T, wanted.T, rcond=None)[0].T)


def _within(
    problem: ObserverProblem, used: Enclosure, gains: list[Interval], prices: Array
) -> Interval:
    """The bound, once the multipliers of the cap pay for what is exceeded: the better of a few
    scales of N, as :func:`bound.lower_bound`."""
    factor = problem.exact_factor
    h = symmetric_part(problem.gram) if factor is None else gram(factor)
    root = np.sqrt(problem.cap)
    units = np.multiply.outer(root, root)
    gained = math.fsum(gain.lower for gain in gains)

    def excess(scale: float) -> float:
        left = (scale * used.mid - h.mid - np.diag(prices)) * units
        return max(0.0, float(np.linalg.eigvalsh((left + left.T) / 2)[-1]))

    def worth(scale: float) -> float:
        return scale * gained - float(problem.cap @ prices) - len(root) * excess(scale)

    scale = max(SCALES, key=worth)
    total = used.scaled_by(scale)
    over = excess(scale)
    # What a factorisation has to leave, with the radii, in units of the cap.
    left = h.plus(exactly(np.diag(prices))).minus(total)
    share = 8 * len(root) * U * float((np.diagonal(left.largest) * problem.cap).max())
    share += 2 * float((left.rad * units).sum(axis=1).max())
    for _ in range(SHIFTS):
        paid = np.asarray(up(prices + (over + share) / problem.cap, 4))
        try:
            factor_below(h.plus(exactly(np.diag(paid))).minus(total))
        except NotProvedError:
            share *= 2
            continue
        price = products_up(problem.cap, paid)
        low = gained * scale * (1 - 4 * EPS)
        high = math.fsum(gain.upper for gain in gains) * scale * (1 + 4 * EPS)
        least = float(problem.cap @ prices) + len(root) * over
        room = 4 * EPS * (abs(low) + price)
        return Interval(low - price - room, high - least + room)
    raise NotProvedError("the multipliers are not proved feasible")
