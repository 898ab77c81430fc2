"""Noise in space against chosen observers: by Newton's method while small, else by sweeps along a
central path; by a conic search where one is named. Judged by the account.

What the search proves is kept in coordinates of the noise, not in those of its own whitened
messages, whose basis another machine may choose otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np

from noisedesign.base.checks import InputError
from noisedesign.base.enclosures import Interval
from noisedesign.base.monitor import Monitor
from noisedesign.families.observers import bound as judging, rigorous
from noisedesign.families.observers.program import FINE, GAP, TOLERANCE, ObserverProblem
from noisedesign.privacy.views import Observer
from noisedesign.program.certificate import NOTHING, Certificate, ProvedBound
from noisedesign.program.family import (
    ANY,
    Answer,
    Arrays,
    ArraySpec,
    Ask,
    Family,
    Form,
    Model,
    work_of_gram,
)
from noisedesign.program.noise import Noise
from noisedesign.program.problem import SpaceProblem
from noisedesign.program.rigorous import Judged, NotProvedError

SMALL = 30
"""Coordinates of the noise up to which Newton's method takes about a second, to any gap."""

MEDIUM = 64
"""Coordinates up to which it takes some ten seconds, and is worth it for a ``FINE`` gap."""

COARSE = 1e-2
"""Relative gap asked for beyond ``MEDIUM`` coordinates unless the monitor says otherwise."""

_KEYS = {
    "max_variance": "limits.max_variance",
    "horizon": "observers.horizon",
    "budget": "budget.tau",
}
"""Arguments of the search and the fields of a problem that set them."""

_REQUIRED = {"dual_cap", "observer_ranks", "observer_factors", "observer_weights"}
"""What every proof holds."""


class Observers(Family):
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

    def program(self, problem: SpaceProblem) -> ObserverProblem:
        with _fields_of_the_problem():
            return ObserverProblem(
                mixing=problem.mixing,
                horizon=problem.horizon,
                observers=problem.observers,
                max_variance=problem.max_variance,
                budget=problem.budget,
                pair_factors=problem.pair_factors,
                error=problem.error,
                rounds=problem.rounds,
            )

    def default_gap(self, program: ObserverProblem) -> float:
        return GAP if program.size <= MEDIUM else COARSE

    def without_options(self, program: ObserverProblem) -> str | None:
        return "those against observers"

    def solve(self, program: ObserverProblem, *, monitor: Monitor) -> Answer:
        from noisedesign.families.observers import native, newton

        fine = program.size <= MEDIUM and monitor.gap < FINE
        search = newton.search if fine or program.size <= SMALL else native.search
        with _fields_of_the_problem():
            return search(program, monitor=monitor)

    def answer_by(
        self, program: ObserverProblem, ask: Ask, form: Form, *, monitor: Monitor
    ) -> Answer:
        from noisedesign.families.observers.solver import search

        monitor.tolerance = min(TOLERANCE, monitor.tolerance or TOLERANCE)
        with _fields_of_the_problem():
            return search(program, ask, monitor=monitor)

    def model(self, program: ObserverProblem, form: Form) -> Model:
        from noisedesign.families.observers import model

        form.only("covariance")
        with _fields_of_the_problem():
            return model.in_units(program) if form.scaled else model.stated(program)

    def bound(self, program: ObserverProblem, proof: Arrays, **_: Any) -> ProvedBound:
        if not set(proof) >= _REQUIRED:
            return NOTHING
        watched, found = judging.proved(program, proof)
        value = program.unit_error * judging.lower_bound(watched.normalized, found)
        return ProvedBound(value, 0.0)

    def judge(
        self, program: ObserverProblem, noise: Noise, proof: Arrays, *, bound: float
    ) -> Certificate:
        """By the account of every observer."""
        return judging.judge(program, noise.covariance, bound=bound)

    def rigorous_judge(self, program: ObserverProblem, noise: Noise, proof: Arrays) -> Judged:
        return rigorous.judge(program, noise.covariance)

    def rigorous_bound(self, program: ObserverProblem, proof: Arrays, **_: Any) -> Interval:
        if not set(proof) >= _REQUIRED:
            raise NotProvedError("there are no multipliers")
        return rigorous.lower_bound(*judging.proved(program, proof))

    def independent(self, program: ObserverProblem) -> Noise:
        return Noise.of_covariance(np.diag(1 / program.budget))

    def foremost(self, problem: SpaceProblem, noise: Noise) -> Sequence[Observer]:
        program = self.program(problem)
        if not program.pooled:
            return problem.observers
        return program.among(program.foremost(noise.covariance)).observers

    def independent_error(self, problem: SpaceProblem) -> float:
        """Of noise that keeps the least budget of every node before a reader of all messages."""
        return float(np.sum(np.diagonal(problem.gram) / problem.budget_range[0]))

    def work(self, problem: SpaceProblem) -> float:
        coordinates = problem.horizon * len(problem.nodes)
        return work_of_gram(problem) + 100 * len(problem.observers) * float(coordinates) ** 2

    def sizes(self, problem: SpaceProblem) -> dict[str, int]:
        return {"n": len(problem.nodes)}


@contextmanager
def _fields_of_the_problem() -> Iterator[None]:
    try:
        yield
    except InputError as error:
        if error.field not in _KEYS:
            raise
        raise error.told(field=_KEYS[error.field]) from error


FAMILY = Observers()
