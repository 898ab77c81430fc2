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
nuclear
    the first without limits on variances, its inequality a penalty on a nuclear norm: for SCS.
balanced
    the first two in coordinates near those of the optimum: for solvers only.

Files hold them in the units of the problem. Solvers get unit budgets and an H scaled to a bound of
about one, so that absolute tolerances mean the same everywhere. In balanced coordinates

    X' = K X K^T,  U' = K^-T U K^-1,      Y' = G Y G^T  (or R' = G R G^T, with H' = G^-T H G^-1)

multipliers are of the size of their partners, as K K = U # X^-1 and G G = Y^-1/2 (or H # R^-1), #
the geometric mean, where X, R and U are those of a design nearby: the feasible design from H^1/2,
and U = X^-1 H X^-1 of it on every pattern (docs/methods/solvers.md, "Our own solvers"). Only the
trace of Y is asked for, so it may be cut into parts, each with an inequality of its own; under
limits R is needed whole, and X is cut, of which only diag(X) is."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from noisedesign.base import linalg as _linalg, settings
from noisedesign.base.checks import Array
from noisedesign.certify import repair
from noisedesign.certify.program import DualPoint, Program, diagonal_dual
from noisedesign.conic.data import Point, slacks
from noisedesign.conic.nuclear import NUCLEAR
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
from noisedesign.families.disjoint.program import independent_gram

BALANCED, COMPACT, COVARIANCE, PAPER = "balanced", "compact", "covariance", "paper"
FORMULATIONS = (BALANCED, COMPACT, COVARIANCE, PAPER)
"""Formulations of every solver, the default first."""
STATED = FORMULATIONS[1:]
"""Formulations of files."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Formulation:
    """A conic program of (P) put together: ``gram`` gives X, shape (m, m), from the matrices F_0 +
    x_1 F_1 + ... of the blocks, or raises ``LinAlgError``; ``dual`` the multipliers of (P) from
    those of the blocks and rows."""

    assembly: Assembly
    gram: Callable[[Sequence[Array]], Array]
    dual: Callable[[Sequence[Array], Array], DualPoint]


@dataclass(frozen=True, kw_only=True, eq=False)
class ConicModel:
    """A conic program, and how to read X and the multipliers out of a point; H was divided by
    ``scale``."""

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
        return self.formulation.dual(point.blocks, point.rows).times(self.scale, self.scale)


def unable(program: Program, formulation: str) -> str | None:
    """Why a formulation cannot hold a program, or None."""
    if formulation in (COVARIANCE, PAPER) and program.participation.epochs > 1:
        return f"several epochs in formulation {formulation!r}; 'compact' can"
    if program.limited and formulation == NUCLEAR:
        return f"a limit on variances (cap or floor) in formulation {formulation!r}"
    if program.limited and program.participation.epochs > 1:
        return "a limit on variances (cap or floor) together with several epochs"
    return None


def build(program: Program, *, formulation: str, parts: int = 1, scaled: bool = True) -> ConicModel:
    """The model of a program, "balanced" in ``parts``; under limits "compact" is "covariance"."""
    scale, remarks = 1.0, tuple[str, ...]()
    if scaled:
        scale = lower_bound_scale(program.factor)
        root = np.sqrt(scale)
        program = replace(program, gram=program.gram / scale, exact_factor=program.factor / root)
    elif program.cap is None and program.null_space.shape[1]:
        remarks = ("H is singular and nothing caps the noise: the infimum may not be attained.",)
    if formulation == COMPACT and program.limited:
        formulation = COVARIANCE
    if formulation == BALANCED:
        found = balanced(program, parts=parts)
    else:
        found = {COVARIANCE: covariance, PAPER: paper}.get(formulation, compact)(program)
    conic = found.assembly.finished(
        formulation=formulation,
        remarks=remarks,
        balanced=formulation == BALANCED,
        flat=not program.limited,  # repairs under limits cost the first order
        penalty=largest_multiplier(program) if formulation == NUCLEAR else 0.0,
    )
    return ConicModel(conic=conic, formulation=found, scale=scale)


def largest_multiplier(program: Program) -> float:
    """A number above every eigenvalue of the multiplier of "compact" at an optimum: those of [[I,
    .], [., U]] >= 0 are at most the sum of those of its diagonal blocks; and sum_j budget_j
    tr(U_j) / k is the optimum, no more than the error of independent noise."""
    independent = np.diagonal(independent_gram(program))
    worst = float(np.sum(np.diagonal(program.gram) / independent))
    return 1 + program.participation.epochs * worst / float(program.budget.min())


def lower_bound_scale(factor: Array) -> float:
    """The bound of uniform multipliers, (tr H^1/2)^2 / m for L = ``factor``, (r, m)."""
    return float(_linalg.nuclear_norm(factor) ** 2 / factor.shape[1])


def model_size(
    size: int, *, epochs: int, rank: int, formulation: str, limited: bool, parts: int
) -> ModelSize:
    """The size of a model of m = ``size`` and an H of that ``rank``, without building it."""
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
    """X, (m, m), zero where not ``free``, at the cost tr(Y), [[Y, L], [L^T, X]] >= 0."""
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


def precision_within(assembly: Assembly, r: Sequence[Piece], budget: Array) -> None:
    """Require diag(R^-1) <= budget, (n,): [[R, I], [I, X]] >= 0, diag(X) <= budget."""
    size = len(budget)
    x = assembly.symmetric("X", size, meaning="precision, R^-1 where it is optimal")
    assembly.block(2 * size, [*r, constant(np.eye(size), row=size), lower_triangle(x, at=size)])
    sums_at_most(assembly, np.diagonal(x)[:, None], budget)


def variances_within(
    assembly: Assembly, r: Sequence[Piece], *, cap: Array | None, floor: Array | None = None
) -> None:
    """Require floor <= diag(R) <= cap, shape (n,), squared noise, where they are given."""
    diagonal: list[Piece] = []
    for piece in r:
        variable, row, column, value = np.broadcast_arrays(*piece)
        on = row == column
        diagonal.append((variable[on], row[on], row[on], value[on]))
    _within(assembly, diagonal, cap, floor)


def _within(assembly: Assembly, held: list[Piece], cap: Array | None, floor: Array | None) -> None:
    """Require floor <= diag(R) <= cap, diag(R) given as pieces of linear rows."""
    for limit, sign in ((cap, -1.0), (floor, 1.0)):
        if limit is not None:
            node = np.arange(len(limit))
            signed = [(variable, i, j, sign * value) for variable, i, j, value in held]
            assembly.at_least_zero(len(limit), [(CONSTANT, node, node, -sign * limit), *signed])


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
        column, value = np.array([node, size]), np.array([1.0, program.budget[node]])
        assembly.block(size + 1, [*r, (CONSTANT, np.array([size, size]), column, value)])
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


# Shares of the mean multiplier that are added to all of them, which are guesses: a scale that is
# wrong by a small factor costs less than one of nothing. Prices of limits add to H, not known here.
PRICE_LIFT, OBJECTIVE_LIFT = 0.03, 1e-2


def balanced(program: Program, *, parts: int = 1) -> Formulation:
    """(P) at unit budgets with Y, or under limits with X, cut into ``parts`` inequalities."""
    near = _near(program)
    covariance = _linalg.inverse_of_positive(near)
    nodes = _node_scale(program, near, covariance)
    if program.limited:
        return _limited(program, near, nodes, parts)
    return _unlimited(program, covariance, nodes, parts)


def _near(program: Program) -> Array:
    """X of equal multipliers, H^1/2, made feasible; of independent noise where it cannot be."""
    values, vectors = np.linalg.eigh(program.gram)
    root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    found = None
    with contextlib.suppress(np.linalg.LinAlgError):  # H may be singular
        found = repair.feasible_gram(program, root)
    if found is None:
        return independent_gram(program)
    return _linalg.symmetrized(found)


def _node_scale(program: Program, near: Array, covariance: Array) -> Array:
    """K, shape (m, m), block diagonal over the patterns."""
    patterns, k = program.participation.patterns, program.participation.epochs
    multiplier = covariance @ program.gram @ covariance
    blocks = multiplier[patterns[:, :, None], patterns[:, None, :]]
    prices = np.trace(blocks, axis1=1, axis2=2) / k
    # At the optimum the prices add up to the objective.
    blocks *= np.sum(program.gram * covariance) / prices.sum()
    blocks += PRICE_LIFT * np.trace(blocks, axis1=1, axis2=2).mean() / k * np.eye(k)
    scale = np.zeros_like(near)
    shares = np.diagonal(near)[patterns]
    for pattern, block, share in zip(patterns, blocks, shares, strict=True):
        scale[np.ix_(pattern, pattern)] = _power(_mean(block, np.diag(1 / share)), 0.5)
    return scale


def _unlimited(program: Program, covariance: Array, nodes: Array, parts: int) -> Formulation:
    """[[Y', G L K^T], [., X']] >= 0, Y' in its basis and in parts."""
    size, patterns = program.size, program.participation.patterns
    _, values, right = np.linalg.svd(program.factor, full_matrices=False)
    kept = values > settings.rank_tolerance(size) * values[0]
    factor = values[kept, None] * right[kept]
    error, basis = np.linalg.eigh(factor @ covariance @ factor.T)
    # Large and small errors in every part: parts alike take alike many iterations.
    cuts = _cuts(len(error), parts)
    # Eigenvalues of the error Y below this share of their mean are scaled like it.
    error = np.maximum(error, 1e-8 * error.mean()) ** -0.25
    scaled = error[:, None] * (basis.T @ factor) @ nodes.T
    require_size(
        len(cuts) * triangle(size) + triangle(len(error)) + len(error) * size,
        of=f"{len(cuts)} blocks of up to {size + len(cuts[0])} rows",
    )
    assembly = Assembly()
    free = np.ones((size, size), dtype=bool)
    for pattern in patterns:
        free[np.ix_(pattern, pattern)] = False
    across = assembly.symmetric("X'", size, free=free, meaning="scaled precision across patterns")
    own = assembly.vector("diag(X)", size, meaning="precision, C^T C, on its diagonal")
    for cut in cuts:
        y = assembly.symmetric(
            "Y'", len(cut), cost=np.diag(error[cut] ** -2), meaning="scaled error of the noise"
        )
        below = len(cut)
        assembly.block(
            below + size,
            [
                lower_triangle(y),
                lower_triangle(across, at=below),
                *_on_patterns(patterns, own, nodes, at=below),
                constant(scaled[cut].T, row=below),
            ],
        )
    sums_at_most(assembly, own[patterns], program.budget)

    def gram(slacks: Sequence[Array]) -> Array:
        whole = slacks[0][len(cuts[0]) :, len(cuts[0]) :]
        return np.asarray(np.linalg.solve(nodes, np.linalg.solve(nodes, whole).T))

    def dual(blocks: Sequence[Array], rows: Array) -> DualPoint:
        whole = sum(z[len(cut) :, len(cut) :] for z, cut in zip(blocks, cuts, strict=True))
        return pattern_dual(program, nodes.T @ np.asarray(whole) @ nodes, rows)

    return Formulation(assembly=assembly, gram=gram, dual=dual)


def _on_patterns(patterns: Numbers, own: Numbers, nodes: Array, *, at: int) -> list[Piece]:
    """K diag(x) K^T on every pattern, where X has nothing but its diagonal x."""
    i, j = np.tril_indices(patterns.shape[1])
    pieces: list[Piece] = []
    for pattern in patterns:
        block = nodes[np.ix_(pattern, pattern)]
        value = block[i].T * block[j].T
        pieces.append((own[pattern][:, None], pattern[i] + at, pattern[j] + at, value))
    return pieces


def _limited(program: Program, near: Array, nodes: Array, parts: int) -> Formulation:
    """[[X', K G^T], [., R']] >= 0, X' in parts, and rows for budgets and limits."""
    size, scale = program.size, np.diagonal(nodes)
    price = np.trace(program.gram @ _linalg.inverse_of_positive(near)) / size
    rest = _power(_mean(program.gram + OBJECTIVE_LIFT * price * near, near), 0.5)
    inverse = _linalg.inverse_of_positive(rest)
    cuts = _cuts(size, parts)
    require_size(
        len(cuts) * triangle(size) + 2 * size * triangle(size), of="limits on every variance"
    )
    assembly, cost = Assembly(), inverse @ program.gram @ inverse
    r = assembly.symmetric("R'", size, cost=cost, meaning="scaled covariance of the noise")
    budgets: list[Piece] = [(CONSTANT, np.arange(size), np.arange(size), program.budget)]
    for cut in cuts:
        x = assembly.symmetric("X'", len(cut), meaning="scaled precision of some nodes")
        below = len(cut)
        coupling = constant(rest[:, cut] * scale[cut], row=below)
        pieces = [lower_triangle(x), lower_triangle(r, at=below), coupling]
        assembly.block(below + size, pieces)
        budgets.append((np.diagonal(x), cut, cut, -(scale[cut] ** -2)))
    assembly.at_least_zero(size, budgets)
    i, j = np.tril_indices(size)
    variance = inverse[:, i] * inverse[:, j] * np.where(i == j, 1.0, 2.0)
    node = np.arange(size)[:, None]
    _within(assembly, [(r[i, j], node, node, variance)], program.cap, program.floor)
    below = len(cuts[0])
    return Formulation(
        assembly=assembly,
        gram=lambda slacks: np.asarray(
            np.linalg.inv(inverse @ slacks[0][below:, below:] @ inverse.T)
        ),
        dual=lambda blocks, rows: limits_dual(program, rows),
    )


def _cuts(size: int, parts: int) -> tuple[Numbers, ...]:
    """The numbers below ``size``, dealt to parts in turn."""
    return tuple(np.arange(first, size, parts) for first in range(min(parts, size)))


def _power(a: Array, exponent: float) -> Array:
    """A power of a positive semidefinite matrix, whose rounding is lifted to above zero."""
    values, vectors = np.linalg.eigh(_linalg.symmetrized(a))
    values = np.maximum(values, settings.rank_tolerance(len(a)) * values[-1])
    return np.asarray((vectors * values**exponent) @ vectors.T)


def _mean(a: Array, b: Array) -> Array:
    """The geometric mean a # b = a^1/2 (a^-1/2 b a^-1/2)^1/2 a^1/2 of positive matrices."""
    root, inverse = _power(a, 0.5), _power(a, -0.5)
    return np.asarray(root @ _power(inverse @ b @ inverse, 0.5) @ root)
