"""(P) itself in matrix inequalities: the three formulations, in the units of the problem.

compact
    minimise tr(Y)  subject to  [[Y, L], [L^T, X]] >= 0, H = L^T L, X diagonal on every pattern of
    participation, and the sum of diag(X) over pattern j at most budget_j.
covariance (patterns of one coordinate)
    minimise <H, R>  subject to  [[R, I], [I, X]] >= 0,  diag(X) <= budget  and, if asked,
    floor <= diag(R) <= cap.
paper (patterns of one coordinate)
    as published with Whisper D-SGD, problem (10): R = s I + R_cor, s >= 0, R_cor >= 0, and one
    block [[R, e_i], [e_i^T, budget_i]] >= 0 for every node, which says [R^-1]_ii <= budget_i.

The conic backends solve the same, scaled to unit budgets and an objective of about one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from noisedesign.base.checks import Array
from noisedesign.conic.program import (
    CONSTANT,
    Assembly,
    Numbers,
    Piece,
    constant,
    lower_triangle,
    on_diagonal,
    require_size,
    triangle,
)
from noisedesign.program.program import Program

Covariance = Sequence[Piece]
"""R as a linear function of the variables: pieces of its lower triangle."""


def compact(program: Program) -> Assembly:
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
    return assembly


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


def covariance(program: Program) -> Assembly:
    """(P) of single participation, limits on variances included."""
    size = program.size
    require_size(2 * triangle(size) + 7 * size, of=f"one block of {2 * size} rows")
    assembly = Assembly()
    r = [lower_triangle(covariance_variables(assembly, program.gram))]
    precision_within(assembly, r, program.budget)
    variances_within(assembly, r, cap=program.cap, floor=program.floor)
    return assembly


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


def paper(program: Program) -> Assembly:
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
    return assembly


def _diagonal(r: Covariance, sign: float) -> list[Piece]:
    """The entries of diag(R), times a sign, as pieces of linear rows."""
    found: list[Piece] = []
    for piece in r:
        variable, row, column, value = np.broadcast_arrays(*piece)
        on = row == column
        found.append((variable[on], row[on], row[on], sign * value[on]))
    return found
