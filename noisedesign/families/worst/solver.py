"""The shares q of errors whose problem has the largest optimum, on a path to it.

At the optimum of H(q) with errors e_i = tr(H_i cov(z)) the derivative of its value along q_i is
e_i. With mu > 0 the best q of that value + mu sum log q_i has q_i (l - e_i) = mu for one l, so that
no error exceeds the value by more than r mu, and H(q) is no nearer to singular than mu makes it. It
is the fixed point of q_i <- (q_i e_i + mu) / l; Anderson's mixing of log q takes some ten problems
where the fixed point takes hundreds. mu falls from one level to the next, as does the gap of the
problem of one q: far from the end both are large, which is quick and well conditioned."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from scipy.optimize import linprog

from noisedesign.base import settings
from noisedesign.base.checks import Array
from noisedesign.base.linalg import inverse_of_positive
from noisedesign.base.monitor import REACHED, Monitor, Search, Stop
from noisedesign.certify.program import Program
from noisedesign.certify.repair import feasible_gram, strategy_of
from noisedesign.families.disjoint.program import dual_of
from noisedesign.families.family import Answer
from noisedesign.families.worst.program import WorstProgram
from noisedesign.families.worst.start import first_logs
from noisedesign.forms import DenseStrategy, Noise

MEMORY = 30
"""Steps of the past that a step mixes. More take fewer problems, until differences are rounding."""

FIRST, FALL = 0.1, 0.1
"""Gap of the first level, and what it falls by: r mu is half of it."""

SHARPER, LEAST_GAP = 1e-3, 1e-11
"""Gap of the problem of one q over that of the level, and the least asked, above rounding. Errors
with small shares are known to the root of it over their share."""

SLACK, LONGEST = 0.9, 2.0
"""Errors below this share of the value are not among the largest: log q_i goes to its end at once,
by ``LONGEST`` at most."""

REACH = 3.0
"""The most that mixing moves log q_i."""

PATIENCE = 4
"""Problems without progress after which steps begin anew from the best, without a past."""

FLAT = 1e-3  # range of log q below which shares are even, and no flatter ones may help

MOST = 300
"""Problems solved, at most."""


def solve(program: WorstProgram, *, monitor: Monitor) -> Answer:
    """The best noise met, and the multipliers and shares of the best bound, not the same."""
    size, family = program.size, program.inner
    known, scheme = None, program.problem.use
    if program.grams is None and scheme is not None:
        known = first_logs(program.weights, scheme)
    logs = np.zeros(size) if known is None else known
    past: list[tuple[Array, Array]] = []
    met: list[tuple[Array, Noise]] = []
    best: tuple[float, Noise] | None = None
    at: tuple[float, Array, Array] | None = None  # value, log q and change of the best of a level
    lower, proof, start, count, idle = 0.0, {}, None, 0, 0
    level = max(FIRST if known is None else 0.0, monitor.gap)
    with Search(monitor) as search:
        while count < MOST:
            count += 1
            mu = level / (2 * size)
            shares = np.exp(logs - logs.max())
            shares = np.maximum(shares / shares.sum(), 1e-3 * mu)
            shares /= shares.sum()
            asked = Monitor(gap=max(SHARPER * level, LEAST_GAP), time_limit=monitor.time_left)
            inner, asked.start = program.at(shares), start
            answer = family.solve(inner, monitor=asked)
            if answer.stop is Stop.INTERRUPTED:
                raise KeyboardInterrupt
            noise = next(iter(answer.noises), None)
            if noise is None:  # H(q) is singular to the last digit where some shares are tiny
                if np.ptp(logs) < FLAT:
                    break
                logs, past, start = logs / 2, [], None
                continue
            dual = dual_of(answer.proof)
            if dual is not None and isinstance(inner, Program):  # of one with unit budgets
                start = dual.blocks * inner.budget[:, None, None]
            bound = family.bound(inner, answer.proof).value
            if bound > lower:
                lower, proof = bound, {"target_shares": shares, **answer.proof}
            errors = program.errors(noise)
            met = [*met[-MEMORY:], (errors, noise)]
            for other in (noise, _between(family, inner, met)):
                if other is not None:
                    largest = float(program.errors(other).max())
                    best = min(best or (np.inf, other), (largest, other), key=lambda pair: pair[0])
            assert best is not None
            monitor.report(lower=lower, upper=best[0])
            if search.ended(solved=best[0] <= lower * (1 + REACHED * monitor.gap)):
                break
            value = float(shares @ errors)
            logs, merit = np.log(shares), bound + value * mu * float(np.log(shares).sum())
            if best[0] <= lower * (1 + 2 * level) and level > monitor.gap:
                level = max(FALL * level, monitor.gap)
                past, at, idle, mu = [], None, 0, level / (2 * size)
            change = _change(errors / value, shares, mu)
            idle = idle + 1 if at is not None and merit < at[0] else 0
            if not idle:
                at = merit, logs, change
            if at is not None and idle >= PATIENCE:
                past, idle, logs = [], 0, at[1] + at[2]
                at = at[0], at[1], at[2] / 2
                continue
            past = [*past[-MEMORY:], (logs, change)]
            logs = logs + _mixed(past, np.sqrt(shares + mu))
    noises = () if best is None else (best[1],)
    return Answer(stop=search.stop, noises=noises, proof=proof, evaluations=count)


def _change(errors: Array, shares: Array, mu: float) -> Array:
    """Errors over their mean by q say how the fixed point changes log q."""
    largest = 1 + len(shares) * mu
    change = np.log((errors + mu / shares) / largest)
    end = np.log(mu / np.maximum(largest - errors, settings.EPS) / shares)
    return np.where((errors < SLACK) & (end < change), np.maximum(end, -LONGEST), change)


def _between(family: Any, inner: Any, met: list[tuple[Array, Noise]]) -> Noise | None:
    """The noise of least largest error, at most, among means of X: budgets are linear in X, caps
    and errors convex, so that means of feasible ones keep what the means of their errors are."""
    if len(met) < 2:
        return None
    errors = np.array([one for one, _ in met])
    count = len(met)
    found = linprog(
        np.r_[np.zeros(count), 1.0],
        A_ub=np.c_[errors.T / errors.max(), -np.ones(errors.shape[1])],
        b_ub=np.zeros(errors.shape[1]),
        A_eq=np.r_[np.ones(count), 0.0][None],
        b_eq=[1.0],
    )
    if found.x is None or found.x[:count].max() > 1 - 1e-9:
        return None
    shares = found.x[:count]
    gram = np.asarray(
        sum(share * _gram_of(noise) for share, (_, noise) in zip(shares, met, strict=True))
    )
    try:
        if isinstance(inner, Program):
            # Means of noise at its budgets or caps may be a rounding above them.
            feasible = feasible_gram(inner, gram)
            return None if feasible is None else cast(Noise, family.noise(inner, feasible))
        return Noise.of_strategy(DenseStrategy(strategy=strategy_of(inner, gram)))
    except np.linalg.LinAlgError:
        return None


def _gram_of(noise: Noise) -> Array:
    """X of a noise."""
    if noise.strategy is None:
        return inverse_of_positive(noise.covariance)
    strategy = noise.dense_strategy
    return np.asarray(strategy.T @ strategy)


def _mixed(past: list[tuple[Array, Array]], weights: Array) -> Array:
    """Anderson's step from the last of some points, of what the fixed point adds to them."""
    points, changes = (np.array(each) for each in zip(*past, strict=True))
    if len(past) == 1:
        return np.asarray(changes[0])
    less = np.diff(changes, axis=0).T
    by = np.linalg.lstsq(weights[:, None] * less, weights * changes[-1], rcond=1e-8)[0]
    step = changes[-1] - (np.diff(points, axis=0).T + less) @ by
    return np.asarray(np.clip(step, -REACH, REACH))
