"""Designs against chosen observers by one conic solver, with what is proved of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from noisedesign.base.monitor import Monitor, Stop
from noisedesign.conic.solvers import conic_solver
from noisedesign.families.observers import model
from noisedesign.families.observers.bound import Multipliers, judge, lower_bound, multipliers_of
from noisedesign.families.observers.program import GAP, TOLERANCE, ObserverProblem
from noisedesign.families.observers.solver import search
from noisedesign.program.certificate import Certificate
from noisedesign.program.family import Answer, Model


@dataclass(frozen=True, kw_only=True, eq=False)
class ObserverDesign:
    """A covariance and what is proved about it; no ``witness`` where the solver found nothing, and
    the noise is independent."""

    problem: ObserverProblem
    covariance: np.ndarray
    certificate: Certificate
    witness: Multipliers | None
    stop: Stop


def designed(
    *, backend: str = "clarabel", monitor: Monitor | None = None, **asked: Any
) -> ObserverDesign:
    """The design of ``ObserverProblem(**asked)``."""
    problem = ObserverProblem(**asked)
    monitor = Monitor(gap=GAP, tolerance=TOLERANCE) if monitor is None else monitor
    solver = conic_solver(backend)

    def ask(model: Model) -> Answer:
        found = solver.solve(model.conic, monitor=monitor)
        if found.point is None:
            return Answer(stop=found.stop, message=found.message)
        return replace(model.read(found.point), stop=found.stop)

    answer, bound, witness = search(problem, ask, monitor=monitor), 0.0, None
    noises = [noise.covariance for noise in answer.noises]
    if answer.proof:
        witness = multipliers_of(problem.normalized, answer.proof)
        bound = problem.unit_error * lower_bound(problem.normalized, witness)
    covariance = noises[0] if noises else model.independent(problem)
    return ObserverDesign(
        problem=problem,
        covariance=covariance,
        certificate=judge(problem, covariance, bound=bound),
        witness=witness,
        stop=answer.stop,
    )
