"""What every conic solver makes of the model of a problem in time, judged by the family."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from noisedesign.base.monitor import Monitor
from noisedesign.certify.certificate import Certificate
from noisedesign.conic import solvers
from noisedesign.conic.program import ConicProgram
from noisedesign.families.family import Answer, Form, certified, family_of

TOLERANCE = 1e-6
"""Absolute and relative, of every solver: models are scaled so that it means the same."""

SOLVERS: dict[str, Callable[[ConicProgram], solvers.Outcome]] = {
    "scs": lambda conic: solvers.through_scs(conic)({"eps_abs": TOLERANCE, "eps_rel": TOLERANCE}),
    "clarabel": lambda conic: solvers.through_clarabel(conic)(
        dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), TOLERANCE)
    ),
    "cvxopt": lambda conic: solvers.through_cvxpy(conic, "CVXOPT")(
        dict.fromkeys(("abstol", "reltol", "feastol"), TOLERANCE)
    ),
    "sdpa": lambda conic: solvers.through_cvxpy(conic, "SDPA")(
        dict.fromkeys(("epsilonStar", "epsilonDash"), TOLERANCE) | {"numThreads": 1}
    ),
}


def through(problem: Any, solver: str) -> Certificate:
    """The certificate of what a conic solver found."""
    family = family_of(problem)
    program = family.program(problem)
    model = family.model(program, Form(scaled=True))
    outcome = SOLVERS[solver](model.conic)
    assert outcome.point is not None
    return judged(problem, model.read(outcome.point))


def native(problem: Any) -> Certificate:
    """The certificate of what our own solver found."""
    family = family_of(problem)
    return judged(problem, family.solve(family.program(problem), monitor=Monitor(gap=TOLERANCE)))


def judged(problem: Any, answer: Answer) -> Certificate:
    """Of the first noise of an answer, by its own proof."""
    family = family_of(problem)
    program, noise = family.program(problem), next(iter(answer.noises))
    bound = family.bound(program, answer.proof, noise=noise)
    return certified(family, program, noise, answer.proof, bound=bound, everywhere=None)
