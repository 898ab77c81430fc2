"""(P) of a problem, and its multipliers as a design file keeps them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from noisedesign.base.checks import Array, InputError
from noisedesign.base.monitor import Stop
from noisedesign.certify.program import DualPoint, Program, denormalized_gram, diagonal_dual
from noisedesign.families.family import Arrays
from noisedesign.problem.problem import Problem
from noisedesign.system.participation import single


@dataclass(frozen=True, kw_only=True, eq=False)
class Found:
    """X, shape (m, m), and multipliers of (P) that a solver found, neither of them feasible but for
    a repair; ``evaluations`` are eigendecompositions (of H or of all its blocks)."""

    stop: Stop
    gram: Array | None = None
    dual: DualPoint | None = None
    message: str = ""
    solve_seconds: float = 0.0
    evaluations: int = 0

    def denormalized(self, program: Program) -> Found:
        """The same for ``program``, found for ``program.normalized()``."""
        if program.unit:
            return self
        return replace(
            self,
            gram=None if self.gram is None else denormalized_gram(program, self.gram),
            dual=None if self.dual is None else self.dual.denormalized(program),
        )


def program_of(problem: Problem) -> Program:
    """(P) for a problem of any structure. Source: Whisper D-SGD (10); Mafalda-SGD Lemma 10."""
    if problem.axes == "space":
        if problem.observers:
            raise InputError(
                "observers",
                expected="none, so that every message is protected",
                got=f"{len(problem.observers)} chosen",
            )
        return Program(
            gram=problem.gram,
            participation=single(len(problem.mixing)),
            budget=problem.budget,
            cap=problem.max_variance,
            exact_factor=problem.step_mixing if problem.plain else None,
            floor=problem.min_variance,
            workload=None if problem.plain else problem.error_workload,
            axes="space",
            names=problem.nodes,
        )
    if problem.axes != "time":
        raise InputError("design", expected="space or time", got=problem.axes)
    scheme = problem.fixed_epoch
    return Program(
        gram=problem.gram,
        participation=scheme,
        budget=problem.budgets,
        cap=problem.max_variance,
        workload=problem.error_workload,
    )


def unlimited(program: Program) -> bool:
    """Whether H is singular, over time perhaps nearly so, and nothing caps the noise."""
    if program.cap is not None:
        return False
    return program.singular or (program.axes != "space" and program.nearly_singular)


def may_diverge(program: Program) -> bool:
    """Whether it takes an optimum to tell that it is attained: in space, H singular, no cap."""
    if program.axes != "space" or not unlimited(program):
        return False
    if program.floored:
        raise InputError(
            "limits.max_variance",
            expected="a cap beside limits.min_variance where W is singular",
            got="nothing",
            remedy="A larger variance of one node may let that of others grow without bound: cap "
            "diag(R), generously if you like.",
        )
    return True


def independent_gram(program: Program) -> Array:
    """X of independent noise at full budget: budget_j / k on the diagonal (LDP)."""
    return np.diag(program.coordinate_budget / program.participation.epochs)


def arrays_of(program: Program, dual: DualPoint) -> dict[str, Array]:
    """Multipliers as a design file keeps them: of nodes one number each, else their blocks."""
    found = {"dual_weights": dual.blocks[:, 0, 0]}
    if program.axes != "space":
        found = {"dual_blocks": dual.blocks}
    for name, limit in (("dual_cap", dual.cap), ("dual_floor", dual.floor)):
        if limit is not None:
            found[name] = limit
    return found


def dual_of(arrays: Arrays) -> DualPoint | None:
    """The multipliers of :func:`arrays_of`; None where there are none."""
    if "dual_weights" in arrays:
        weights = arrays["dual_weights"]
        return diagonal_dual(weights, arrays.get("dual_cap"), arrays.get("dual_floor"))
    if "dual_blocks" in arrays:
        return DualPoint(blocks=arrays["dual_blocks"], cap=arrays.get("dual_cap"))
    return None
