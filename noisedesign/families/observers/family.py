"""Noise in space against chosen observers, judged by the account of every one of them.

Small problems are solved by Newton's method, others by sweeps along a central path, and any by a
conic search where a solver is named. What a search proves is kept per node of the noise, not per
message of its own whitening, whose basis another machine may choose otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from noisedesign.base.enclosures import Interval
from noisedesign.base.monitor import Monitor
from noisedesign.certify.certificate import NOTHING, Certificate, ProvedBound
from noisedesign.certify.rigorous import Judged, NotProvedError
from noisedesign.families.family import (
    ANY,
    Answer,
    Arrays,
    ArraySpec,
    Ask,
    Costly,
    Family,
    Form,
    Model,
    Modelled,
    Remarked,
    named_shares,
    work_of_gram,
)
from noisedesign.families.observers import bound as judging, rigorous
from noisedesign.families.observers.program import FINE, GAP, ObserverProgram
from noisedesign.forms import Noise
from noisedesign.privacy.views import Observer
from noisedesign.problem.problem import SpaceProblem

MEDIUM = 64
"""Nodes up to which Newton's method takes some ten seconds, and is worth it for a ``FINE`` gap."""

_REQUIRED = {"dual_cap", "observer_ranks", "observer_factors", "observer_weights"}
"""The arrays that every proof holds."""


class Observers(
    Family[SpaceProblem, ObserverProgram],
    Costly[SpaceProblem, ObserverProgram],
    Modelled[ObserverProgram],
    Remarked[SpaceProblem, ObserverProgram],
):
    name = "observers"
    trust = "observers"
    gap = GAP
    formulations: ClassVar[tuple[str, ...]] = ("covariance",)
    proof: ClassVar[Mapping[str, ArraySpec]] = {
        "dual_cap": ArraySpec("w", "n"),
        "observer_ranks": ArraySpec("rows of every F", ANY),
        "observer_factors": ArraySpec("F B, N = F^T F", ANY),
        "observer_weights": ArraySpec("v of every observer", ANY),
        "dual_coalitions": ArraySpec("coalitions with multipliers", ANY),
    }

    def program(self, problem: SpaceProblem) -> ObserverProgram:
        return ObserverProgram.of(problem)

    def default_gap(self, program: ObserverProgram) -> float:
        return GAP if program.size <= MEDIUM else 1e-2

    def solve(self, program: ObserverProgram, *, monitor: Monitor) -> Answer:
        from noisedesign.families.observers import newton, sweeps

        # Newton's method takes about a second for 30 nodes, to any gap.
        fine = program.size <= MEDIUM and monitor.gap < FINE
        search = newton.search if fine or program.size <= 30 else sweeps.search
        return search(program, monitor=monitor)

    def answer_by(
        self, program: ObserverProgram, ask: Ask, form: Form, *, monitor: Monitor
    ) -> Answer:
        from noisedesign.families.observers import model

        monitor.tolerance = min(1e-9, monitor.tolerance or 1e-9)
        return model.search(program, ask, monitor=monitor)

    def model(self, program: ObserverProgram, form: Form) -> Model:
        from noisedesign.families.observers import model

        form.only("covariance")
        return model.in_units(program) if form.scaled else model.stated(program)

    def bound(self, program: ObserverProgram, proof: Arrays, **_: Any) -> ProvedBound:
        if not set(proof) >= _REQUIRED:
            return NOTHING
        watched, found = judging.proved(program, proof)
        value = program.unit_error * judging.lower_bound(watched.normalized, found)
        return ProvedBound(value, 0.0)

    def prices(self, problem: SpaceProblem, noise: Noise, proof: Arrays) -> dict[str, float]:
        if not set(proof) >= _REQUIRED:
            return {}
        watched, found = judging.proved(self.program(problem), proof)
        shares = judging.prices(watched.normalized, found, size=watched.size)
        return named_shares(problem.nodes, shares, float(shares.sum()))

    def judge(
        self, program: ObserverProgram, noise: Noise, proof: Arrays, *, bound: float
    ) -> Certificate:
        return judging.judge(program, noise.covariance, bound=bound)

    def rigorous_judge(self, program: ObserverProgram, noise: Noise, proof: Arrays) -> Judged:
        return rigorous.judge(program, noise.covariance)

    def rigorous_bound(self, program: ObserverProgram, proof: Arrays, **_: Any) -> Interval:
        if not set(proof) >= _REQUIRED:
            raise NotProvedError("there are no multipliers")
        return rigorous.lower_bound(*judging.proved(program, proof))

    def independent(self, program: ObserverProgram) -> Noise:
        return Noise.of_covariance(np.diag(1 / program.budget))

    def foremost(self, problem: SpaceProblem, noise: Noise) -> Sequence[Observer]:
        program = self.program(problem)
        if not program.pooled:
            return problem.observers
        return program.among(program.foremost(noise.covariance)).observers

    def independent_error(self, problem: SpaceProblem) -> float:
        """The error of noise that keeps the least budget of every node before all messages."""
        return float(np.sum(np.diagonal(problem.gram) / problem.budget_range[0]))

    def work(self, problem: SpaceProblem) -> float:
        coordinates = problem.horizon * len(problem.nodes)
        return work_of_gram(problem) + 100 * len(problem.observers) * float(coordinates) ** 2

    def sizes(self, problem: SpaceProblem) -> dict[str, int]:
        return {"n": len(problem.nodes)}


FAMILY = Observers()
