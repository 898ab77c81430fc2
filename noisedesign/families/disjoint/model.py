"""(P) in matrix inequalities, and X and the multipliers read back from an answer.

compact
    minimise tr(Y)  subject to  [[Y, L], [L^T, X]] >= 0, H = L^T L, X diagonal on every pattern of
    participation, and the sum of diag(X) over pattern j at most budget_j.
covariance (patterns of one coordinate)
    minimise <H, R>  subject to  [[R, I], [I, X]] >= 0,  diag(X) <= budget  and, if asked,
    floor <= diag(R) <= cap.
paper (patterns of one coordinate)
    as published with Whisper D-SGD, problem (10): R = s I + R_cor, s >= 0, R_cor >= 0, and one
    block [[R, e_i], [e_i^T, budget_i]] >= 0 for every node, which says [R^-1]_ii <= budget_i.
balanced
    the first two in coordinates near those of the optimum, :mod:`.balanced`: for solvers only.

Files hold them in the units of the problem. Solvers get unit budgets and an H scaled to a bound of
about one, so that absolute tolerances mean the same everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from noisedesign.base import linalg as _linalg
from noisedesign.base.checks import Array
from noisedesign.conic.data import Point, slacks
from noisedesign.conic.program import (
    CONSTANT,
    Assembly,
    ConicProgram,
    ModelSize,
    Numbers,
    Piece,
    constant,
    lower_triangle,
    on_diagonal,
    require_size,
    triangle,
)
from noisedesign.program.program import DualPoint, Program, diagonal_dual

BALANCED, COMPACT, COVARIANCE, PAPER = "balanced", "compact", "covariance", "paper"
FORMULATIONS = (BALANCED, COMPACT, COVARIANCE, PAPER)
STATED = FORMULATIONS[1:]
"""Those of files."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Formulation:
    """A conic program of (P) put together, and what its blocks say.

    ``gram`` returns X, shape (m, m), from the matrices F_0 + x_1 F_1 + ... of the blocks and may
    raise ``LinAlgError``; ``dual`` the multipliers of (P) from those of the blocks, symmetric, and
    of the linear rows.
    """

    assembly: Assembly
    gram: Callable[[Sequence[Array]], Array]
    dual: Callable[[Sequence[Array], Array], DualPoint]


@dataclass(frozen=True, kw_only=True, eq=False)
class ConicModel:
    """A conic program, and how to read X and the multipliers out of a point.

    ``scale`` is what H was divided by.
    """

    conic: ConicProgram
    formulation: Formulation
    scale: float

    def gram(self, point: Point) -> Array | None:
        """X of the program the model was built for; None where there is none."""
        try:
            return _linalg.symmetrized(self.formulation.gram(slacks(self.conic, point.variables)))
        except np.linalg.LinAlgError:
            return None

    def dual(self, point: Point) -> DualPoint:
        """The multipliers of the program the model was built for, in its own units."""
        found = self.formulation.dual(point.blocks, point.rows)
        cap, floor = (
            None if limit is None else limit * self.scale for limit in (found.cap, found.floor)
        )
        return DualPoint(blocks=found.blocks * self.scale, cap=cap, floor=floor)


def unable(program: Program, formulation: str) -> str | None:
    """Why a formulation cannot hold a program, or None."""
    if formulation in (COVARIANCE, PAPER) and program.participation.epochs > 1:
        return f"several epochs in formulation {formulation!r}; 'compact' can"
    if program.limited and program.participation.epochs > 1:
        return "a limit on variances (cap or floor) together with several epochs"
    return None


def build(program: Program, *, formulation: str, parts: int = 1, scaled: bool = True) -> ConicModel:
    """The model of a program; ``compact`` gives way to ``covariance`` under limits.

    Args:
        parts: how many inequalities ``balanced`` is cut into.
        scaled: divide H by :func:`lower_bound_scale`.

    Raises:
        InputError: a model of too many coefficients.
    """
    from noisedesign.families.disjoint.balanced import balanced

    scale, remarks = 1.0, tuple[str, ...]()
    if scaled:
        scale = lower_bound_scale(program.factor)
        root = np.sqrt(scale)
        program = replace(program, gram=program.gram / scale, exact_factor=program.factor / root)
    elif program.cap is None and program.null_space.shape[1]:
        remarks = ("H is singular and nothing caps the noise: the infimum may not be attained.",)
    if formulation == COMPACT and program.limited:
        formulation = COVARIANCE
    made = {COMPACT: compact, COVARIANCE: covariance, PAPER: paper}.get(formulation)
    found = balanced(program, parts=parts) if made is None else made(program)
    conic = found.assembly.finished(
        formulation=formulation,
        remarks=remarks,
        balanced=formulation == BALANCED,
        flat=not program.limited,  # repairs under limits cost the first order
    )
    return ConicModel(conic=conic, formulation=found, scale=scale)


def lower_bound_scale(factor: Array) -> float:
    """The bound of uniform multipliers, (tr H^1/2)^2 / m, H = L^T L of L = ``factor``, (r, m): the
    size of the objective to expect."""
    return float(_linalg.nuclear_norm(factor) ** 2 / factor.shape[1])


def model_size(
    size: int, *, epochs: int, rank: int, formulation: str, limited: bool, parts: int
) -> ModelSize:
    """The model of a program, told without building it.

    Args:
        size: m, the number of coordinates; ``epochs`` of them belong to one pattern.
        rank: of H; the error Y has as many rows.
        limited: whether variances are limited, which turns "compact" into "covariance".
        parts: how many inequalities "balanced" is cut into.
    """
    if formulation == PAPER:
        return ModelSize(variables=triangle(size) + 1, blocks=(size, *(size + 1,) * size))
    if formulation == COVARIANCE or (formulation == COMPACT and limited):
        return ModelSize(variables=2 * triangle(size), blocks=(2 * size,))
    error = size if limited else rank
    parts = min(parts, error) if formulation == BALANCED else 1
    cuts = [len(range(first, error, parts)) for first in range(parts)] or [0]
    vanishing = size // epochs * triangle(epochs - 1)
    return ModelSize(
        variables=sum(map(triangle, cuts)) + triangle(size) - vanishing,
        blocks=tuple(size + cut for cut in cuts),
    )


def pattern_dual(program: Program, multiplier: Array, rows: Array) -> DualPoint:
    """U from the multiplier of X, shape (m, m), and its diagonal, those of the budgets."""
    patterns, k = program.participation.patterns, program.participation.epochs
    blocks = multiplier[patterns[:, :, None], patterns[:, None, :]]
    blocks[:, np.arange(k), np.arange(k)] = rows[:, None]
    return DualPoint(blocks=blocks)


def limits_dual(program: Program, rows: Array) -> DualPoint:
    """Multipliers of single participation: rows of budgets first, then cap, then floor."""
    given = iter(np.split(rows, np.arange(program.size, len(rows), program.size)))
    budgets = next(given)
    cap = None if program.cap is None else next(given)
    return diagonal_dual(budgets, cap=cap, floor=None if program.floor is None else next(given))


# --- the formulations of the literature -------------------------------------------------------

Covariance = Sequence[Piece]
"""R as a linear function of the variables: pieces of its lower triangle."""


def compact(program: Program) -> Formulation:
    """(P) without limits on variances, whatever the number of epochs."""
    size, rank = program.size, len(program.factor)
    patterns = program.participation.patterns
    vanishing = len(patterns) * triangle(program.participation.epochs - 1)
    require_size(
        triangle(rank) + triangle(size) - vanishing + rank * size + size + len(patterns),
        of=f"one block of {rank} + {size} rows",
    )
    free = np.ones((size, size), dtype=bool)
    for pattern in patterns:
        free[np.ix_(pattern, pattern)] = np.eye(len(pattern), dtype=bool)
    assembly = Assembly()
    x = gram_under_factor(assembly, program.factor, free=free)
    sums_at_most(assembly, np.diagonal(x)[patterns], program.budget)
    return Formulation(
        assembly=assembly,
        gram=lambda slack: slack[0][rank:, rank:],
        dual=lambda blocks, rows: pattern_dual(program, blocks[0][rank:, rank:], rows),
    )


def gram_under_factor(
    assembly: Assembly, factor: Array, *, free: NDArray[np.bool_] | None = None
) -> Numbers:
    """X, shape (m, m), at the cost tr(Y), [[Y, L], [L^T, X]] >= 0, of L = ``factor``, (r, m).

    ``free`` says where X may be other than zero; by default everywhere.
    """
    rank, size = factor.shape
    y = assembly.symmetric(
        "Y", rank, cost=np.eye(rank), meaning="error of the noise, L X^-1 L^T where it is optimal"
    )
    x = assembly.symmetric("X", size, free=free, meaning="precision of the noise, C^T C")
    assembly.block(
        rank + size, [lower_triangle(y), lower_triangle(x, at=rank), constant(factor.T, row=rank)]
    )
    return x


def sums_at_most(assembly: Assembly, variables: Numbers, budget: Array) -> None:
    """Require that row j of ``variables``, shape (rows, k), adds up to at most budget_j."""
    row = np.arange(len(budget))
    assembly.at_least_zero(
        len(row), [(CONSTANT, row, row, budget), (variables, row[:, None], row[:, None], -1.0)]
    )


def covariance(program: Program) -> Formulation:
    """(P) of single participation, limits on variances included."""
    size = program.size
    require_size(2 * triangle(size) + 7 * size, of=f"one block of {2 * size} rows")
    assembly = Assembly()
    r = [lower_triangle(covariance_variables(assembly, program.gram))]
    precision_within(assembly, r, program.budget)
    variances_within(assembly, r, cap=program.cap, floor=program.floor)
    return Formulation(
        assembly=assembly,
        gram=lambda slack: np.asarray(np.linalg.inv(slack[0][:size, :size])),
        dual=lambda blocks, rows: limits_dual(program, rows),
    )


def covariance_variables(assembly: Assembly, gram: Array) -> Numbers:
    """R at the cost <H, R>, H = ``gram``, shape (n, n)."""
    return assembly.symmetric("R", len(gram), cost=gram, meaning="covariance of the noise")


def precision_within(assembly: Assembly, r: Covariance, budget: Array) -> None:
    """Require diag(R^-1) <= budget, shape (n,): [[R, I], [I, X]] >= 0, diag(X) <= budget."""
    size = len(budget)
    x = assembly.symmetric("X", size, meaning="precision, R^-1 where it is optimal")
    assembly.block(2 * size, [*r, constant(np.eye(size), row=size), lower_triangle(x, at=size)])
    sums_at_most(assembly, np.diagonal(x)[:, None], budget)


def variances_within(
    assembly: Assembly, r: Covariance, *, cap: Array | None, floor: Array | None = None
) -> None:
    """Require floor <= diag(R) <= cap, shape (n,), squared noise, where they are given."""
    for limit, sign in ((cap, -1.0), (floor, 1.0)):
        if limit is not None:
            node = np.arange(len(limit))
            assembly.at_least_zero(
                len(limit), [(CONSTANT, node, node, -sign * limit), *_diagonal(r, sign)]
            )


def paper(program: Program) -> Formulation:
    """(P) of single participation with one matrix inequality for every node."""
    size = program.size
    blocks = triangle(size) + 2 * size + 2
    require_size(
        size * blocks + triangle(size) + 6 * size + 1, of=f"{size} blocks of {size + 1} rows"
    )
    assembly = Assembly()
    nodes = np.arange(size)
    own = assembly.vector(
        "s", 1, cost=np.array([np.trace(program.gram)]), meaning="variance of independent noise"
    )
    correlated = assembly.symmetric(
        "R_cor", size, cost=program.gram, meaning="covariance of the rest: R = s I + R_cor"
    )
    rest = lower_triangle(correlated)
    r = [(own, nodes, nodes, 1.0), rest]
    assembly.block(size, [rest])
    assembly.at_least_zero(1, [on_diagonal(own)])
    for node in nodes:
        corner = (
            CONSTANT,
            np.array([size, size]),
            np.array([node, size]),
            np.array([1.0, program.budget[node]]),
        )
        assembly.block(size + 1, [*r, corner])
    variances_within(assembly, r, cap=program.cap, floor=program.floor)

    def dual(blocks: Sequence[Array], rows: Array) -> DualPoint:
        """The first block is R_cor >= 0, the first row s >= 0."""
        budgets = np.array([block[size, size] for block in blocks[1:]])
        return limits_dual(program, np.concatenate([budgets, rows[1:]]))

    return Formulation(
        assembly=assembly,
        gram=lambda slack: np.asarray(np.linalg.inv(slack[1][:size, :size])),
        dual=dual,
    )


def _diagonal(r: Covariance, sign: float) -> list[Piece]:
    """The entries of diag(R), times a sign, as pieces of linear rows."""
    found: list[Piece] = []
    for piece in r:
        variable, row, column, value = np.broadcast_arrays(*piece)
        on = row == column
        found.append((variable[on], row[on], row[on], sign * value[on]))
    return found
