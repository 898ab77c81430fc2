"""Programs and designs against chosen observers, with what is proved of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from noisedesign.base.monitor import Monitor, Stop
from noisedesign.certify.certificate import Certificate
from noisedesign.conic.solvers import conic_solver
from noisedesign.families.family import Answer, Model
from noisedesign.families.observers.bound import Multipliers, judge, lower_bound, multipliers_of
from noisedesign.families.observers.family import FAMILY
from noisedesign.families.observers.model import search
from noisedesign.families.observers.program import GAP, ObserverProgram
from noisedesign.problem.problem import SpaceProblem
from noisedesign.system.workloads import ErrorMeasure


def observer_program(
    *, horizon: int = 1, error: ErrorMeasure | None = None, **asked: Any
) -> ObserverProgram:
    """The program of ``SpaceProblem(**asked)`` over some steps."""
    if error is None and horizon > 1:
        error = ErrorMeasure(horizon=horizon)
    return FAMILY.program(SpaceProblem(error=error, responses="fixed", **asked))


@dataclass(frozen=True, kw_only=True, eq=False)
class ObserverDesign:
    """A covariance and what is proved about it; no ``witness`` where the solver found nothing, and
    the noise is independent."""

    problem: ObserverProgram
    covariance: np.ndarray
    certificate: Certificate
    witness: Multipliers | None
    stop: Stop


def designed(
    *, backend: str = "clarabel", monitor: Monitor | None = None, **asked: Any
) -> ObserverDesign:
    """The design of ``observer_program(**asked)`` by one conic solver."""
    problem = observer_program(**asked)
    monitor = Monitor(gap=GAP, tolerance=1e-9) if monitor is None else monitor
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
    covariance = noises[0] if noises else problem.independent()
    return ObserverDesign(
        problem=problem,
        covariance=covariance,
        certificate=judge(problem, covariance, bound=bound),
        witness=witness,
        stop=answer.stop,
    )
