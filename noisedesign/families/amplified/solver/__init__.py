"""A search for the best C >= 0, for records that take part at random or by an adversary.

docs/methods/random-participation.md, "The search for nonnegative strategies", says how. Each round
replaces the variance that a target takes by a smooth model that agrees with samples at its first
point (:mod:`.variance`), and minimises that by L-BFGS over a form (:mod:`.forms`). Under fixed
participation sigma^2 = max_j G_jj, and the rounds are norms of the diagonal of growing power."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
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
from noisedesign.forms import Strategy

if TYPE_CHECKING:
    from noisedesign.families.amplified.program import NonnegativeProgram

ROUNDS, UNSETTLED = 8, 2  # their corrections are averaged but for the first ones, too far away
SAMPLES = 2**16  # samples a round: log sigma^2 to a few thousandths
LAST_SAMPLES = 2**17  # samples of the last choice


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
        # Accounts split epsilon nearly evenly between the record that goes and the one that comes.
        share = 0.5 if target.adjacency == "replace" else 1.0
        goal = Goal(epsilon=share * target.epsilon, delta=target.delta)
        unit = program.noise_multiplier
    run = _Run(form, goal, monitor, unit)
    with one_thread(), Search(monitor) as search:
        run.run(search)
    return Found(form=form.strategy(run.best), stop=search.stop, evaluations=run.evaluations)


def _form(program: NonnegativeProgram, *, bins: int) -> Form:
    structure, horizon = program.structure, program.size
    if structure.kind in ("dense", "banded"):
        # In all instances tried diagonals beyond the bins came out as zeros.
        bands = structure.bands or min(bins, max(2**15 // horizon, 16))
        banded = structure.kind == "banded"
        return FreeBands(program.gram, bins=bins, bands=min(bands, horizon), banded=banded)
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
            settled = self.goal is not None and gain < 1e-4  # less than samples tell
            if search.ended(solved=settled and not self.monitor.expired):
                break
        if search.stop is Stop.INACCURATE:  # the rounds are over
            search.stop = Stop.SOLVED
        last = [points[0], *points[1:][-3:]]
        self.best = self._best_of(last, samples=LAST_SAMPLES, seed=ROUNDS + 1)

    def _models(self, points: list[Array]) -> Iterator[Variance]:
        """One model a round, made for the last of the points when it is asked for."""
        if self.goal is None:
            # The last is above the maximum by log(b) / 2048 at most.
            yield from (Peak(power=power) for power in (4.0, 32.0, 256.0, 2048.0))
            return
        corrections: list[Array] = []
        for number in range(ROUNDS):
            gram = self.form.gram(points[-1])
            truth = sampled(gram, self.goal, samples=self._few(SAMPLES), seed=number + 1)
            if number <= UNSETTLED:
                tilt = truth.tilt
                corrections.clear()
            known = partial(lambda value, _: value, Value(truth.log, truth.gradient))
            self._report(self.form.objective(points[-1], known)[0])
            corrections.append(Corrected.to(tilt, gram, truth.gradient).correction)
            yield Corrected(model=tilt, correction=np.mean(corrections, axis=0))

    def _minimized(self, model: Variance, start: Array) -> tuple[Array, float]:
        """The best point of a model, and its gain."""
        before = self.form.objective(start, model)[0]
        found = minimized(
            lambda x: self.form.objective(x, model),
            start,
            monitor=Monitor(gap=self.monitor.gap, time_limit=self.monitor.time_left),
            lower=0.0,
            nonnegative=self.form.nonnegative,
            flat=1e-9,  # far below what the model is off
            most=400,  # about thirty evaluations are usual
        )
        self.evaluations += found.evaluations
        if found.stop is Stop.INTERRUPTED:
            raise KeyboardInterrupt
        return found.x, before - found.value

    def _best_of(self, points: list[Array], *, samples: int, seed: int) -> Array:
        """The best of these points by the same samples, those of the seed."""

        def variance(gram: Array) -> Value:
            if self.goal is None:
                return Peak(power=1e7)(gram)  # the maximum to seven digits
            found = sampled(gram, self.goal, samples=self._few(samples), seed=seed)
            return Value(found.log, found.gradient)

        values = [self.form.objective(x, variance)[0] for x in points]
        best = int(np.argmin(np.where(np.isfinite(values), values, np.inf)))
        self._report(values[best])
        return points[best]

    def _few(self, samples: int) -> int:
        return min(samples, 2**22 // self.form.bins)  # at most as many normals

    def _report(self, value: float) -> None:
        self.monitor.report(lower=0.0, upper=math.exp(value) / self.unit**2)
