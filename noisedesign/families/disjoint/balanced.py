"""(P) in the coordinates in which conic solvers need the fewest iterations.

At the optimum of [[Y, L], [L^T, X]] >= 0 the multiplier of the block is [[I, .], [., U]], and that
of [[X, I], [I, R]] >= 0 is [[U, .], [., H]]: solvers move between a pair of matrices that differ by
orders of magnitude, in every direction by another. Congruences change that. With

    X' = K X K^T,  U' = K^-T U K^-1,      Y' = G Y G^T  (or R' = G R G^T, with H' = G^-T H G^-1),

K K = U # X^-1 and G G = Y^-1/2 (or H # R^-1), # the geometric mean, both are of the same size. X,
R and U are not known, but those of a design nearby are: the feasible design from H^1/2, which is
optimal for equal multipliers, and U = X^-1 H X^-1 of it on every pattern.

K is block diagonal over the patterns of participation, so entries that have to vanish still do. Y
is taken in the basis in which it is nearly diagonal. Only its trace is asked for, so it may be
cut into parts, each with an inequality of its own: smaller ones, whose factors interior-point
methods find sooner. Under limits R is needed whole, and X is cut, of which only diag(X) is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from noisedesign.base import linalg as _linalg
from noisedesign.base import settings
from noisedesign.base.checks import Array
from noisedesign.conic.program import (
    CONSTANT,
    Assembly,
    Numbers,
    Piece,
    constant,
    lower_triangle,
    require_size,
    triangle,
)
from noisedesign.families.disjoint.model import Formulation, limits_dual, pattern_dual, sums_at_most
from noisedesign.program import repair
from noisedesign.program.program import DualPoint, Program

PRICE_LIFT = 0.03
"""Share of the mean multiplier that is added to all of them: they are guesses, and a scale that
is wrong by a small factor costs less than one of nothing."""

OBJECTIVE_LIFT = 1e-2
"""The same for H where it is scaled itself: prices of limits add to it, which are not known."""

VANISHING = 1e-8
"""Eigenvalues of the error Y below this share of their mean are scaled like it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Balanced(Formulation):
    """``nodes`` is K, shape (m, m); ``rest`` is G^-1, shape (m, m), under limits, else None;
    ``cuts`` are the rows of the parts, of Y or of X."""

    nodes: Array
    rest: Array | None
    cuts: tuple[Numbers, ...]


def balanced(program: Program, *, parts: int = 1) -> Balanced:
    """(P) at unit budgets, limits on variances included where patterns have one coordinate.

    Args:
        parts: how many inequalities Y, or under limits X, is cut into.

    Raises:
        InputError: a model of too many coefficients.
    """
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
    found = repair.feasible_gram(program, root)
    if found is None:
        return np.diag(program.coordinate_budget / program.participation.epochs)
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


def _unlimited(program: Program, covariance: Array, nodes: Array, parts: int) -> Balanced:
    """[[Y', G L K^T], [., X']] >= 0, Y' in its basis and in parts."""
    size, patterns = program.size, program.participation.patterns
    _, values, right = np.linalg.svd(program.factor, full_matrices=False)
    kept = values > settings.rank_tolerance(size) * values[0]
    factor = values[kept, None] * right[kept]
    error, basis = np.linalg.eigh(factor @ covariance @ factor.T)
    # Large and small errors in every part: parts alike take alike many iterations.
    cuts = _cuts(len(error), parts)
    error = np.maximum(error, VANISHING * error.mean()) ** -0.25
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

    return Balanced(assembly=assembly, gram=gram, dual=dual, nodes=nodes, rest=None, cuts=cuts)


def _on_patterns(patterns: Numbers, own: Numbers, nodes: Array, *, at: int) -> list[Piece]:
    """K diag(x) K^T on every pattern, where X has nothing but its diagonal x."""
    i, j = np.tril_indices(patterns.shape[1])
    pieces: list[Piece] = []
    for pattern in patterns:
        block = nodes[np.ix_(pattern, pattern)]
        pieces.append(
            (own[pattern][:, None], pattern[i] + at, pattern[j] + at, block[i].T * block[j].T)
        )
    return pieces


def _limited(program: Program, near: Array, nodes: Array, parts: int) -> Balanced:
    """[[X', K G^T], [., R']] >= 0, X' in parts, and rows for budgets and limits."""
    size, scale = program.size, np.diagonal(nodes)
    price = np.trace(program.gram @ _linalg.inverse_of_positive(near)) / size
    rest = _power(_mean(program.gram + OBJECTIVE_LIFT * price * near, near), 0.5)
    inverse = _linalg.inverse_of_positive(rest)
    cuts = _cuts(size, parts)
    require_size(
        len(cuts) * triangle(size) + 2 * size * triangle(size), of="limits on every variance"
    )
    assembly = Assembly()
    r = assembly.symmetric(
        "R'", size, cost=inverse @ program.gram @ inverse, meaning="scaled covariance of the noise"
    )
    budgets: list[Piece] = [(CONSTANT, np.arange(size), np.arange(size), program.budget)]
    for cut in cuts:
        x = assembly.symmetric("X'", len(cut), meaning="scaled precision of some nodes")
        below = len(cut)
        coupling = rest[:, cut] * scale[cut]
        assembly.block(
            below + size,
            [lower_triangle(x), lower_triangle(r, at=below), constant(coupling, row=below)],
        )
        budgets.append((np.diagonal(x), cut, cut, -(scale[cut] ** -2)))
    assembly.at_least_zero(size, budgets)
    i, j = np.tril_indices(size)
    variance = inverse[:, i] * inverse[:, j] * np.where(i == j, 1.0, 2.0)
    node = np.arange(size)
    for limit, sign in ((program.cap, -1.0), (program.floor, 1.0)):
        if limit is not None:
            of = node[:, None]
            assembly.at_least_zero(
                size, [(CONSTANT, node, node, -sign * limit), (r[i, j], of, of, sign * variance)]
            )
    below = len(cuts[0])
    return Balanced(
        assembly=assembly,
        gram=lambda slacks: np.asarray(
            np.linalg.inv(inverse @ slacks[0][below:, below:] @ inverse.T)
        ),
        dual=lambda blocks, rows: limits_dual(program, rows),
        nodes=nodes,
        rest=inverse,
        cuts=cuts,
    )


def _cuts(size: int, parts: int) -> tuple[Numbers, ...]:
    """The numbers below ``size``, dealt to parts in turn."""
    return tuple(np.arange(first, size, parts) for first in range(min(parts, size)))


def _power(a: Array, exponent: float) -> Array:
    """Of a positive semidefinite matrix, its rounding lifted to the least number above it."""
    values, vectors = np.linalg.eigh(_linalg.symmetrized(a))
    values = np.maximum(values, settings.rank_tolerance(len(a)) * values[-1])
    return np.asarray((vectors * values**exponent) @ vectors.T)


def _mean(a: Array, b: Array) -> Array:
    """The geometric mean a # b = a^1/2 (a^-1/2 b a^-1/2)^1/2 a^1/2 of positive matrices."""
    root, inverse = _power(a, 0.5), _power(a, -0.5)
    return np.asarray(root @ _power(inverse @ b @ inverse, 0.5) @ root)
