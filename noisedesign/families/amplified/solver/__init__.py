"""The best C >= 0 that a search finds, for records that take part at random or by an adversary.

What is minimised is log tr(H (C^T C)^-1) + log sigma^2(G), which no scaling of C changes, over
strategies of a form (:mod:`.forms`). The variance that a target takes has no closed form; each
round replaces it by a model that agrees with samples at the round's first point
(:mod:`.variance`), and minimises that, smooth and free of noise, by L-BFGS. Corrections are
averaged over the rounds, so that their noise falls. In the end the start and what the last rounds
found are compared by samples of their own. Nothing here is convex, and no start is the best for
sure: the answer is a local optimum, judged by its account.

Under fixed participation sigma^2 = max_j G_jj for C >= 0, and the rounds are norms of the diagonal
of growing power.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from noisedesign.base.checks import Array
from noisedesign.base.machine import one_thread
from noisedesign.base.monitor import Monitor, Search, Stop
from noisedesign.families.amplified.solver.forms import Form, FreeBands, Stationary
from noisedesign.families.amplified.solver.variance import (
    Corrected,
    Goal,
    Peak,
    Value,
    Variance,
    sampled,
)
from noisedesign.families.toeplitz.solver import minimized
from noisedesign.program.noise import Strategy

if TYPE_CHECKING:
    from noisedesign.families.amplified.program import NonnegativeProgram

ROUNDS = 8
"""Two come within a per cent of where the others end; these average the noise of corrections."""

UNSETTLED = 2
"""First rounds, whose corrections are of points too far away to average."""

SAMPLES = 2**16
"""A round: log sigma^2 to a few thousandths."""

LAST_SAMPLES = 2**17
"""For the choice among the last rounds and the start."""

MOST_DRAWN = 2**22
"""Normals a sampling, bins times samples."""

LAST = 3
"""Rounds among which the last choice is."""

FLAT = 1e-9
"""Relative change of the objective below which a round ends: far below what its model is off."""

MOST = 400
"""Evaluations a round; about thirty are usual."""

SETTLED = 1e-4
"""What a round gains by its model where no further one is made: less than samples tell."""

POWERS = (4.0, 32.0, 256.0, 2048.0)
"""Norms of fixed participation: the last is above the maximum by log(b) / 2048 at most."""

EXACT = 1e7
"""The norm that is the maximum to seven digits."""

MOST_ENTRIES = 2**15
"""Free entries of a C without a structure. It has as many diagonals as bins, where so many are
allowed: in all instances tried, diagonals beyond the separation came out as zeros."""

FEWEST_BANDS = 16

REPLACE_SHARE = 0.5
"""Share of epsilon at which "remove" stands for replacing a record, in a search: accounts split
epsilon nearly evenly between the record that goes and the one that comes."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Found:
    """A strategy of any scale, why the search stopped, and its evaluations of the objective."""

    form: Strategy
    stop: Stop
    evaluations: int
    message: str = ""


def solve(program: NonnegativeProgram, *, monitor: Monitor) -> Found:
    """The best strategy of the program's structure that the search found."""
    scheme = program.fixed.participation
    form = _form(program, bins=scheme.separation)
    goal, unit = None, 1.0
    if program.target is not None and not program.known:
        target = program.target
        share = REPLACE_SHARE if target.adjacency == "replace" else 1.0
        goal = Goal(epsilon=share * target.epsilon, delta=target.delta)
        unit = program.noise_multiplier
    run = _Run(form, goal, monitor, unit)
    with one_thread(), Search(monitor) as search:
        run.run(search)
    return Found(form=form.strategy(run.best), stop=search.stop, evaluations=run.evaluations)


def _form(program: NonnegativeProgram, *, bins: int) -> Form:
    structure, horizon = program.structure, program.size
    if structure.kind in ("dense", "banded"):
        bands = min(bins, max(MOST_ENTRIES // horizon, FEWEST_BANDS))
        bands = min(structure.bands or bands, horizon)
        banded = structure.kind == "banded"
        return FreeBands(program.gram, bins=bins, bands=bands, banded=banded)
    return Stationary(program.gram, bins=bins, bands=structure.bands, buffers=structure.buffers)


class _Run:
    """The points so far, and the best of them."""

    def __init__(self, form: Form, goal: Goal | None, monitor: Monitor, unit: float) -> None:
        self.form, self.goal, self.monitor, self.unit = form, goal, monitor, unit
        self.evaluations = 0
        self.best = form.starts[0]

    def run(self, search: Search) -> None:
        self.best = self._best_of(self.form.starts, samples=SAMPLES, seed=0)
        points = [self.best]
        if search.ended(solved=False):
            return
        for model in self._models(points):
            x, gain = self._minimized(model, points[-1])
            points.append(x)
            settled = self.goal is not None and gain < SETTLED
            if search.ended(solved=settled and not self.monitor.expired):
                break
        if search.stop is Stop.INACCURATE:  # the rounds are over
            search.stop = Stop.SOLVED
        last = [points[0], *points[1:][-LAST:]]
        self.best = self._best_of(last, samples=LAST_SAMPLES, seed=ROUNDS + 1)

    def _models(self, points: list[Array]) -> Iterator[Variance]:
        """One a round, made for the last of the points when it is asked for."""
        if self.goal is None:
            yield from (Peak(power=power) for power in POWERS)
            return
        corrections: list[Array] = []
        for number in range(ROUNDS):
            gram = self.form.gram(points[-1])
            truth = sampled(gram, self.goal, samples=self._few(SAMPLES), seed=number + 1)
            if number <= UNSETTLED:
                tilt = truth.tilt
                corrections.clear()
            self._report(
                self.form.objective(points[-1], lambda _, truth=truth: Value(*truth[:2]))[0]
            )
            corrections.append(Corrected.to(tilt, gram, truth.gradient).correction)
            yield Corrected(model=tilt, correction=np.mean(corrections, axis=0))

    def _minimized(self, model: Variance, start: Array) -> tuple[Array, float]:
        """The best point of a model, and what it gains by it."""
        before = self.form.objective(start, model)[0]
        found = minimized(
            lambda x: self.form.objective(x, model),
            start,
            monitor=Monitor(gap=self.monitor.gap, time_limit=self.monitor.time_left),
            lower=0.0,
            nonnegative=self.form.nonnegative,
            flat=FLAT,
            most=MOST,
        )
        self.evaluations += found.evaluations
        if found.stop is Stop.INTERRUPTED:
            raise KeyboardInterrupt
        return found.x, before - found.value

    def _best_of(self, points: list[Array], *, samples: int, seed: int) -> Array:
        """By the same samples, those of the seed."""

        def variance(gram: Array) -> Value:
            if self.goal is None:
                return Peak(power=EXACT)(gram)
            found = sampled(gram, self.goal, samples=self._few(samples), seed=seed)
            return Value(found.log, found.gradient)

        values = [self.form.objective(x, variance)[0] for x in points]
        best = int(np.argmin(np.where(np.isfinite(values), values, np.inf)))
        self._report(values[best])
        return points[best]

    def _few(self, samples: int) -> int:
        return min(samples, MOST_DRAWN // self.form.bins)

    def _report(self, value: float) -> None:
        self.monitor.report(lower=0.0, upper=math.exp(value) / self.unit**2)
