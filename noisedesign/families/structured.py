"""Solving problems whose noise has a structure, or that are joint: one function for all of them."""

from __future__ import annotations

import time
from dataclasses import replace

from noisedesign.base.checks import Array, InputError
from noisedesign.families.kronecker.family import solve_joint
from noisedesign.families.shared_seeds.family import solve_space_problem
from noisedesign.families.structured_time import StructuredAnswer, solve_time, unrestricted_dual
from noisedesign.program.backend import Monitor, Stop
from noisedesign.program.certificate import Certificate, lower_bound
from noisedesign.program.design import Design, Provenance
from noisedesign.program.problem import Problem, SpaceProblem, SpaceTimeProblem, TimeProblem
from noisedesign.program.program import program_of
from noisedesign.program.structure import TimeStructure


def solve(problem: Problem, *, monitor: Monitor) -> Design:
    """The certified design of such a problem; its status is how the search stopped.

    The bound on designs of every structure, where there is one, comes from the native backend.

    Raises:
        InputError: the structure cannot hold the constraints; caps that are infeasible; noise in a
            null direction that nothing caps.
        KeyboardInterrupt: interrupted before there was an answer.
    """
    started = time.perf_counter()
    if isinstance(problem, SpaceTimeProblem):
        joint = solve_joint(
            problem, gap=monitor.gap, time_limit=monitor.time_limit, progress=monitor.progress
        )
        return Design(
            problem=problem,
            matrix=joint.strategy,
            certificate=joint.certificate,
            provenance=_provenance(joint.stop, joint.evaluations, monitor, started),
            dual=joint.dual,
            node_covariance=joint.covariance,
            witness=joint.witness,
            local=joint.covariance is not None,
            form=joint.form,
        )
    answer = _answer(problem, monitor)
    certificate, witness = _with_unrestricted_bound(problem, answer, monitor)
    if not certificate.feasible:
        raise InputError(
            "structure",
            expected="one that can hold the constraints",
            got=f"noise whose squared sensitivity is {certificate.sensitivity_squared:.3g} of its "
            "budget",
        )
    return Design(
        problem=problem,
        matrix=answer.matrix,
        certificate=certificate,
        provenance=_provenance(answer.stop, answer.evaluations, monitor, started),
        witness=witness,
        local=answer.local,
        form=answer.form,
    )


def _answer(problem: SpaceProblem | TimeProblem, monitor: Monitor) -> StructuredAnswer:
    if isinstance(problem, SpaceProblem):
        return solve_space_problem(problem, monitor=monitor)
    return solve_time(
        problem.gram,
        participation=problem.participation,
        structure=problem.structure,
        monitor=monitor,
    )


def _with_unrestricted_bound(
    problem: SpaceProblem | TimeProblem, answer: StructuredAnswer, monitor: Monitor
) -> tuple[Certificate, dict[str, Array]]:
    """The certificate of an answer with the bound on all designs, and what proves its bounds.

    A local answer has no other bound than that. None is known under min-separation participation,
    whose patterns overlap, but from the answer itself.
    """
    own = answer.certificate
    if not problem.structure.restricts:
        return own, answer.witness
    if isinstance(problem, TimeProblem) and not problem.participation.disjoint:
        return _with_bound_over_patterns(problem, answer, monitor)
    program = program_of(problem)
    # With a time limit of its own: it is a small share of the work, and the answer lacks it.
    fresh = Monitor(gap=monitor.gap, time_limit=monitor.time_limit)
    dual = unrestricted_dual(program, monitor=fresh)
    bound = 0.0 if dual is None else lower_bound(program, dual)
    judged = replace(own, unrestricted_lower_bound=bound)
    if answer.local:
        judged = replace(judged, lower_bound=bound)
    if dual is None:
        return judged, answer.witness
    found = {"unrestricted_blocks": dual.blocks}
    if isinstance(problem, SpaceProblem):
        found = {"unrestricted_weights": dual.blocks[:, 0, 0]}
    if dual.cap is not None:
        found["unrestricted_cap"] = dual.cap
    return judged, answer.witness | found


def _with_bound_over_patterns(
    problem: TimeProblem, answer: StructuredAnswer, monitor: Monitor
) -> tuple[Certificate, dict[str, Array]]:
    """As above where patterns overlap; 0, which bounds nothing, where they are too many."""
    own = answer.certificate
    try:
        every = solve_time(
            problem.gram,
            participation=problem.participation,
            structure=TimeStructure(),
            monitor=Monitor(gap=monitor.gap, time_limit=monitor.time_limit),
        )
    except InputError:
        bound = own.lower_bound if answer.local else 0.0
        return replace(own, unrestricted_lower_bound=bound), answer.witness
    bound = every.certificate.lower_bound
    judged = replace(own, unrestricted_lower_bound=bound)
    if answer.local:
        judged = replace(judged, lower_bound=bound)
    return judged, answer.witness | every.witness


def _provenance(stop: Stop, evaluations: int, monitor: Monitor, started: float) -> Provenance:
    return Provenance(
        method="optimal",
        backend="native",
        status=stop.value,
        solve_seconds=time.perf_counter() - started,
        evaluations=evaluations,
        history=tuple(monitor.history),
    )
