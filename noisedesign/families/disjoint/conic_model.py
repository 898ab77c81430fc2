"""(P) as a conic program, and X and the multipliers read back from its answer.

All formulations are of one normalised program whose H is scaled to a bound of about one, so that
absolute tolerances mean the same everywhere. ``compact``, ``covariance`` and ``paper`` are those of
:mod:`noisedesign.families.disjoint.formulations`; ``balanced`` is the first two in coordinates near
those of the optimum (:mod:`noisedesign.families.disjoint.balanced`). What is read back are
matrices of the blocks: X or R where the slack has it, and the multipliers of (P) where those of
the block have them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from noisedesign.base import linalg as _linalg
from noisedesign.base.checks import Array, InputError
from noisedesign.conic.data import Point, slacks
from noisedesign.conic.program import Assembly, ConicProgram
from noisedesign.families.disjoint import formulations as standard
from noisedesign.families.disjoint.balanced import balanced, limits_dual, pattern_dual
from noisedesign.program.program import DualPoint, Program, diagonal_dual

BALANCED, COMPACT, COVARIANCE, PAPER = "balanced", "compact", "covariance", "paper"
FORMULATIONS = (BALANCED, COMPACT, COVARIANCE, PAPER)


@dataclass(frozen=True, kw_only=True, eq=False)
class ConicModel:
    """A conic program, and how to read X and the multipliers out of a point.

    ``precision`` takes the matrices of the blocks and may raise ``LinAlgError``; ``multipliers``
    takes those of their multipliers and the multipliers of the linear rows. ``scale`` is what H was
    divided by.
    """

    conic: ConicProgram
    precision: Callable[[Sequence[Array]], Array]
    multipliers: Callable[[Sequence[Array], Array], DualPoint]
    scale: float

    def gram(self, point: Point) -> Array | None:
        """X of the program the model was built for; None where there is none."""
        if not np.isfinite(point.variables).all():
            return None
        try:
            return _linalg.symmetrized(self.precision(slacks(self.conic, point.variables)))
        except np.linalg.LinAlgError:
            return None

    def dual(self, point: Point) -> DualPoint:
        """The multipliers of the program the model was built for, in its own units."""
        found = self.multipliers(point.blocks, point.rows)
        cap, floor = (
            None if limit is None else limit * self.scale for limit in (found.cap, found.floor)
        )
        return DualPoint(blocks=found.blocks * self.scale, cap=cap, floor=floor)


def refusal(program: Program, formulation: str) -> str | None:
    """Why a formulation cannot hold a program, or None."""
    if formulation in (COVARIANCE, PAPER) and program.participation.epochs > 1:
        return f"several epochs in formulation {formulation!r}; 'compact' can"
    if program.limited and program.participation.epochs > 1:
        return "a limit on variances (cap or floor) together with several epochs"
    return None


def build(program: Program, *, formulation: str, parts: int = 1) -> ConicModel:
    """The model of a normalised program; ``compact`` gives way to ``covariance`` under limits.

    Args:
        parts: how many inequalities ``balanced`` is cut into.
    """
    scale = lower_bound_scale(program)
    scaled = replace(
        program, gram=program.gram / scale, exact_factor=program.factor / np.sqrt(scale)
    )
    if formulation == BALANCED:
        read = _balanced(scaled, parts)
    elif formulation == PAPER:
        read = _paper(scaled)
    elif formulation == COVARIANCE or program.limited:
        read = _covariance(scaled)
    else:
        read = _compact(scaled)
    assembly, precision, multipliers = read
    conic = assembly.finished(name="", formulation=formulation, remarks=())
    return ConicModel(conic=conic, precision=precision, multipliers=multipliers, scale=scale)


def lower_bound_scale(program: Program) -> float:
    """The bound of uniform multipliers, (tr H^1/2)^2 / m: the size of the objective to expect."""
    return _linalg.nuclear_norm(program.factor) ** 2 / program.size


Read = tuple[
    Assembly, Callable[[Sequence[Array]], Array], Callable[[Sequence[Array], Array], DualPoint]
]


def _balanced(program: Program, parts: int) -> Read:
    found = balanced(program, parts=parts)
    return found.assembly, found.gram, found.dual


def _compact(program: Program) -> Read:
    below = len(program.factor)
    return (
        standard.compact(program),
        lambda slack: slack[0][below:, below:],
        lambda blocks, rows: pattern_dual(program, blocks[0][below:, below:], rows),
    )


def _covariance(program: Program) -> Read:
    n = program.size
    return (
        standard.covariance(program),
        lambda slack: np.asarray(np.linalg.inv(slack[0][:n, :n]), dtype=np.float64),
        lambda blocks, rows: limits_dual(program, rows),
    )


def _paper(program: Program) -> Read:
    n = program.size

    def multipliers(blocks: Sequence[Array], rows: Array) -> DualPoint:
        """The first block is R_cor >= 0, the first row s >= 0."""
        budgets = np.array([block[n, n] for block in blocks[1:]])
        found = limits_dual(program, np.concatenate([budgets, rows[1:]]))
        return diagonal_dual(budgets, cap=found.cap, floor=found.floor)

    return (
        standard.paper(program),
        lambda slack: np.asarray(np.linalg.inv(slack[1][:n, :n]), dtype=np.float64),
        multipliers,
    )


def stated(program: Program, formulation: str | None) -> ConicProgram:
    """A program in its own units, ``compact`` unless another formulation is asked for.

    Raises:
        InputError: a formulation that cannot hold it; a model of too many coefficients.
    """
    chosen = formulation or COMPACT
    if (reason := refusal(program, chosen)) is not None:
        raise InputError(
            "formulation",
            expected="one that holds this problem",
            got=f"{chosen}, which cannot hold {reason}",
        )
    if chosen == COMPACT and program.limited:
        chosen = COVARIANCE
    build = {COMPACT: standard.compact, COVARIANCE: standard.covariance, PAPER: standard.paper}[
        chosen
    ]
    remarks: tuple[str, ...] = ()
    if program.cap is None and program.null_space.shape[1]:
        remarks = ("H is singular and nothing caps the noise: the infimum may not be attained.",)
    return build(program).finished(name="", formulation=chosen, remarks=remarks)
