"""The shares q of steps whose problem has the largest optimum: q_t <- q_t e_t, mixed.

At the optimum of H(q) with errors e_t = a_t tr(H_t X^-1) the derivative of its value along q_t is
e_t, so that q is best where the e_t of all steps with a share are alike. The fixed point ascends
slowly; Anderson's mixing of log q takes some twenty problems where it takes hundreds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from noisedesign.base.checks import Array
from noisedesign.base.monitor import REACHED, Monitor, Search, Stop
from noisedesign.families.family import Answer
from noisedesign.families.worst.program import WorstProgram
from noisedesign.forms import Noise

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

MOST = 300
"""Problems solved, at most."""


def solve(program: WorstProgram, *, monitor: Monitor) -> Answer:
    """The best strategy met, and the multipliers and shares of the best bound, not the same."""
    size, family = program.size, program.inner
    logs = np.zeros(size)
    past: list[tuple[Array, Array]] = []
    noises: list[tuple[float, Noise]] = []
    lower, proof, start, count = 0.0, {}, None, 0
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
            noises = [min(noises, key=lambda pair: pair[0])]
            monitor.report(lower=lower, upper=noises[0][0])
            if search.ended(solved=noises[0][0] <= lower * (1 + REACHED * monitor.gap)):
                break
            change = np.log(errors / float(shares @ errors))
            change = np.maximum(change, least - np.log(shares))
            past = [*past[-MEMORY:], (np.log(shares), change)]
            logs = np.maximum(_mixed(past, np.log(shares) > least + IDLE), least)
    return Answer(
        stop=search.stop, noises=[noise for _, noise in noises], proof=proof, evaluations=count
    )


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
