"""Solving space-time problems: the statement of a user in, a judged pair of matrices out."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from noisedesign._checks import Array, InputError
from noisedesign._linalg import inverse_of_positive
from noisedesign.backends.base import Monitor, ProgressCallback, Stop
from noisedesign.certificate import Certificate
from noisedesign.formulations import DualPoint
from noisedesign.joint_program import joint_program
from noisedesign.problem import SpaceTimeProblem
from noisedesign.space_time_certificate import Witness
from noisedesign.space_time_design import design_full, design_kronecker
from noisedesign.structured_space import solve_space
from noisedesign.structured_time import solve_time


@dataclass(frozen=True, kw_only=True, eq=False)
class JointAnswer:
    """C and, of a Kronecker design, R; their certificate, and what proves its bound."""

    strategy: Array
    covariance: Array | None
    certificate: Certificate
    stop: Stop
    evaluations: int
    dual: DualPoint | None = None
    witness: dict[str, Array] = field(default_factory=dict)


def solve_joint(
    problem: SpaceTimeProblem, *, gap: float, time_limit: float | None = None,
    progress: ProgressCallback | None = None,
) -> JointAnswer:  # fmt: skip
    """The best noise of a space-time problem, judged.

    Raises:
        InputError: too many coordinates for a full design; noise in a null direction of W is free,
            and nothing caps it; a structure that cannot hold the constraints.
    """
    program = joint_program(problem)
    if problem.joint == "full":
        full = design_full(
            program, gap=gap, time_limit=time_limit, progress=progress,
            max_variance=problem.max_variance,
        )  # fmt: skip
        return JointAnswer(
            strategy=full.strategy, covariance=None, certificate=full.certificate, stop=full.stop,
            evaluations=len(full.history), dual=full.dual,
        )  # fmt: skip

    def time_step(gram: Array) -> Array:
        found = solve_time(
            gram, participation=problem.participation, structure=problem.time,
            monitor=Monitor(gap=gap, time_limit=time_limit),
        )  # fmt: skip
        return inverse_of_positive(found.matrix.T @ found.matrix)

    def space_step(gram: Array) -> Array:
        found = solve_space(
            gram, mixing=problem.mixing, structure=problem.space, budget=problem.budget,
            cap=problem.max_variance, monitor=Monitor(gap=gap, time_limit=time_limit),
        )  # fmt: skip
        return found.matrix

    if problem.space.known_seeds:
        raise InputError(
            "structure.known_seeds", expected='0 for design = "space-time"',
            got=str(problem.space.known_seeds),
        )  # fmt: skip
    found = design_kronecker(
        program, gap=gap, time_limit=time_limit, progress=progress,
        max_space_variance=problem.max_variance,
        time_step=time_step if problem.time.restricts else None,
        space_step=space_step if problem.space.restricts else None,
    )  # fmt: skip
    # The bound of a Kronecker design holds for all designs.
    judged = replace(found.certificate, unrestricted_lower_bound=found.certificate.lower_bound)
    return JointAnswer(
        strategy=found.strategy, covariance=found.covariance, certificate=judged, stop=found.stop,
        evaluations=len(found.history), witness=_arrays(found.witness),
    )  # fmt: skip


def _arrays(witness: Witness) -> dict[str, Array]:
    return {"dual_blocks": witness.blocks, "dual_weights": witness.weights}
