"""The shares q of steps whose problem has the largest optimum: q_t <- q_t e_t, mixed.

At the optimum of H(q) with errors e_t = a_t tr(H_t X^-1) the derivative of its value along q_t is
e_t, so that q is best where the e_t of all steps with a share are alike. The fixed point ascends
slowly; Anderson's mixing of log q takes some twenty problems where it takes hundreds."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from noisedesign.base.checks import Array
from noisedesign.base.monitor import REACHED, Monitor, Search, Stop
from noisedesign.certify.repair import strategy_of
from noisedesign.families.family import Answer
from noisedesign.families.worst.program import WorstProgram
from noisedesign.families.worst.start import first_logs
from noisedesign.forms import DenseStrategy, Noise

MEMORY = 12
"""Steps of the past that a step mixes. More take fewer problems, until differences are rounding."""

SHARPER = 1e-4
"""Gap of the problem of one q over the gap asked for. Errors of steps are wrong by about its root,
those of shares by less."""

LEAST_GAP = 1e-11
"""Least gap asked of it, above what rounding leaves."""

LEAST_SHARE = 0.1
"""Least share of a step over the mean, times the gap asked for: those of steps that never are the
worst go to 0, and H(q) would become singular. More costs a part of the gap."""

IDLE = 3.0
"""Logarithm of a share over the least one below which a step follows the fixed point."""

PATIENCE, PATIENCE_NEAR, NEAR = 6, 15, 1e-8
"""Problems without a better bound after which steps begin anew from the best, without a past; and
the same where at most a gap of ``NEAR`` is asked for, which bounds near rounding need."""

MOST = 300
"""Problems solved, at most."""


def solve(program: WorstProgram, *, monitor: Monitor) -> Answer:
    """The best strategy met, and the multipliers and shares of the best bound, not the same."""
    size, family = program.size, program.inner
    prefix = program.grams is None
    logs = first_logs(program.weights, program.participation, prefix=prefix)
    past: list[tuple[Array, Array]] = []
    noises: list[tuple[float, Noise]] = []
    met: list[tuple[Array, Noise]] = []
    lower, proof, start, count, since = 0.0, {}, None, 0, 0
    best = (logs, logs)
    least = np.log(LEAST_SHARE * monitor.gap / size)
    sharper = max(SHARPER * monitor.gap, LEAST_GAP)
    with Search(monitor) as search:
        while count < MOST:
            count += 1
            shares = np.exp(logs - logs.max())
            shares /= shares.sum()
            inner, asked = program.at(shares), Monitor(gap=sharper, time_limit=monitor.time_left)
            asked.start = start
            answer = family.solve(inner, monitor=asked)
            if answer.stop is Stop.INTERRUPTED:
                raise KeyboardInterrupt
            noise = next(iter(answer.noises), None)
            if noise is None:
                break
            start = answer.proof.get("dual_blocks")
            bound = family.bound(inner, answer.proof).value
            if bound > lower:
                lower, proof = bound, {"step_shares": shares, **answer.proof}
            errors = program.errors(noise.dense_strategy)
            noises.append((float(errors.max()), noise))
            met = [*met[-MEMORY:], (errors, noise)]
            if (between := _between(inner, met)) is not None:
                noises.append((float(program.errors(between.dense_strategy).max()), between))
            noises = [min(noises, key=lambda pair: pair[0])]
            monitor.report(lower=lower, upper=noises[0][0])
            if search.ended(solved=noises[0][0] <= lower * (1 + REACHED * monitor.gap)):
                break
            change = np.log(errors / float(shares @ errors))
            change = np.maximum(change, least - np.log(shares))
            if bound >= lower:
                best, since = (np.log(shares), change), count
            if count - since >= (
                PATIENCE_NEAR if monitor.gap <= NEAR else PATIENCE
            ):  # mixed steps have lost their way
                past, since = [], count
                logs = np.maximum(best[0] + best[1], least)
                continue
            past = [*past[-MEMORY:], (np.log(shares), change)]
            logs = np.maximum(_mixed(past, np.log(shares) > least + IDLE), least)
    return Answer(
        stop=search.stop, noises=[noise for _, noise in noises], proof=proof, evaluations=count
    )


def _between(program: Any, met: list[tuple[Array, Noise]]) -> Noise | None:
    """The noise of least largest error, at most, among means of C^T C: budgets are linear in C^T C
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
    gram = sum(
        share * noise.dense_strategy.T @ noise.dense_strategy
        for share, (_, noise) in zip(shares, met, strict=True)
    )
    try:
        strategy = strategy_of(program, np.asarray(gram))
    except np.linalg.LinAlgError:
        return None
    return Noise.of_strategy(DenseStrategy(strategy=strategy))


def _mixed(past: list[tuple[Array, Array]], active: NDArray[np.bool_]) -> Array:
    """Anderson's step from the last of some points and what the fixed point adds to them; others
    than the ``active`` steps just follow it."""
    points, changes = (np.array(each) for each in zip(*past, strict=True))
    found = points[-1] + changes[-1]
    if len(past) > 1:
        less = np.diff(changes, axis=0).T
        by = np.linalg.lstsq(less[active], changes[-1][active], rcond=1e-8)[0]
        found -= np.where(active, (np.diff(points, axis=0).T + less) @ by, 0.0)
    return np.asarray(found)
