"""Programs that restrict the noise, or whose patterns overlap, in matrix inequalities.

In time [[Y, L], [L^T, X]] >= 0 is kept and X restricted; in space [[R, I], [I, X]] >= 0 is kept
and R built from what its structure allows. Whatever is convex fits.
"""

from __future__ import annotations

from itertools import islice
from math import comb

import numpy as np

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
from noisedesign.families.banded.bound import BandedProgram, allowance
from noisedesign.families.decor import program as decor
from noisedesign.families.disjoint.formulations import (
    covariance_variables,
    gram_under_factor,
    precision_within,
    sums_at_most,
    variances_within,
)
from noisedesign.families.observers import ObserverProgram
from noisedesign.families.observers.bound import ObservedNoise
from noisedesign.families.shared_seeds.bound import CliqueProgram
from noisedesign.families.shared_seeds.sets import Clique
from noisedesign.program.problem import SpaceProblem
from noisedesign.program.temporal import TemporalProgram
from noisedesign.system.participation import Participation


def banded(program: BandedProgram) -> Assembly:
    """X_ij = 0 for |i - j| >= bands, so that C has that many diagonals.

    Where patterns overlap, diag(X) <= P z with z >= 0 and <cost, z> <= 1, P the windows of
    :func:`noisedesign.families.banded.bound.allowance`; else every pattern is a sum of its own.
    """
    size, rank = program.size, len(program.factor)
    free = ~program.outside()
    scheme, allowed = program.participation, allowance(program.participation)
    sums = size + allowed.budgets
    if not scheme.disjoint:
        sums += 2 * len(allowed.cost) + int(np.count_nonzero(allowed.generators))
    require_size(
        triangle(rank) + int(np.count_nonzero(np.triu(free))) + rank * size + sums,
        of=f"one block of {rank} + {size} rows",
    )
    assembly = Assembly()
    diagonal = np.diagonal(gram_under_factor(assembly, program.factor, free=free))
    if scheme.disjoint:
        sums_at_most(assembly, diagonal[np.asarray(scheme.patterns)], np.ones(allowed.budgets))
        return assembly
    windows = assembly.vector(
        "z", len(allowed.cost), meaning="shares of the budget, one of every window of steps"
    )
    step, window = np.nonzero(allowed.generators)
    assembly.at_least_zero(size, [on_diagonal(diagonal, -1.0), (windows[window], step, step, 1.0)])
    assembly.at_least_zero(len(windows), [on_diagonal(windows)])
    assembly.at_least_zero(1, [(CONSTANT, 0, 0, 1.0), (windows, 0, 0, -allowed.cost)])
    return assembly


def every_pattern(program: TemporalProgram, participation: Participation) -> Assembly:
    """Without a structure: Diag(y) - X >= 0 and <1, y> <= 1 on every maximal pattern.

    The least <1, y> is the squared sensitivity of X on the pattern to vector gradients.
    """
    size, rank = program.size, len(program.factor)
    count, largest = participation.count(), participation.largest_size
    of_pattern = triangle(largest) + 2 * largest + 1
    require_size(
        triangle(rank) + triangle(size) + rank * size + count * of_pattern,
        of=f"{count:,} patterns of up to {largest} steps",
    )
    assembly = Assembly()
    x = gram_under_factor(assembly, program.factor)
    for steps in participation.maximal_patterns():
        y = assembly.vector("y", len(steps), meaning=f"prices of the steps {_listed(steps)}")
        i, j = np.tril_indices(len(steps))
        members = np.array(steps)
        _positive(assembly, len(steps), [on_diagonal(y), (x[members[i], members[j]], i, j, -1.0)])
        sums_at_most(assembly, y[None, :], np.ones(1))
    return assembly


def cliques(program: CliqueProgram) -> Assembly:
    """R = sum_c E_c P_c E_c^T, P_c >= 0; the budgets hold before every coalition that knows seeds.

    A coalition knows the blocks of the cliques it touches: [[R_A, I], [I, X_A]] >= 0 on the nodes
    outside, R_A the sum of the others.
    """
    size, outside = program.size, program.size - program.known_seeds
    coalitions = comb(size, program.known_seeds)
    entries = sum(triangle(len(clique)) for clique in program.cliques)
    require_size(
        (1 + coalitions) * entries
        + coalitions * (triangle(outside) + 3 * outside)
        + size
        + sum(len(clique) for clique in program.cliques),
        of=f"{len(program.cliques):,} cliques, {coalitions:,} coalitions",
    )
    assembly = Assembly()
    blocks: list[tuple[Clique, Numbers]] = []
    for clique in program.cliques:
        p = assembly.symmetric(
            "P",
            len(clique),
            cost=program.gram[np.ix_(clique, clique)],
            meaning=f"covariance of the seed shared by nodes {_listed(clique)}",
        )
        _positive(assembly, len(clique), [lower_triangle(p)])
        blocks.append((clique, p))
    for known in program.coalitions:
        rest = np.setdiff1d(np.arange(size), known)
        # Nodes outside the coalition, renumbered; cliques are in ascending order, so that lower
        # triangles stay lower triangles.
        r = [
            _moved(lower_triangle(p), np.searchsorted(rest, clique))
            for clique, p in blocks
            if not set(clique) & set(known)
        ]
        precision_within(assembly, r, program.budget[rest])
    everything = [_moved(lower_triangle(p), np.array(clique)) for clique, p in blocks]
    variances_within(assembly, everything, cap=program.cap)
    return assembly


def decor_family(problem: SpaceProblem) -> Assembly:
    """R = s I + c Laplacian with s, c >= 0 (DECOR, Allouah et al. 2024)."""
    size = len(problem.mixing)
    laplacian = decor.graph_laplacian(problem.mixing)
    require_size(
        triangle(size) + int(np.count_nonzero(laplacian)) + 8 * size,
        of=f"one block of {2 * size} rows",
    )
    assembly = Assembly()
    prices = np.array([np.trace(problem.gram), np.sum(problem.gram * laplacian)])
    scales = assembly.vector(
        "scales", 2, cost=prices, meaning="s of each node's own noise, c of each edge's"
    )
    assembly.at_least_zero(2, [on_diagonal(scales)])
    nodes = np.arange(size)
    _, row, column, value = constant(np.tril(laplacian))
    r: list[Piece] = [(scales[:1], nodes, nodes, 1.0), (scales[1:], row, column, value)]
    precision_within(assembly, r, problem.budget)
    variances_within(assembly, r, cap=problem.max_variance)
    return assembly


def against_observers(program: ObserverProgram) -> Assembly:
    """[[K_a(R), G_a], [G_a^T, X_a]] >= 0 and diag(X_a) <= 1 for every observer a, diag(R) <= cap,
    R >= 0; K_a(R) is the covariance of what observer a sees."""
    size = program.size
    require_size(
        2 * triangle(size)
        + 2 * size
        + sum(
            triangle(rows) * triangle(size) + rows * signals + triangle(signals) + 2 * signals
            for rows, signals in (seen.signals.shape for seen in program.observers)
        ),
        of=f"{len(program.observers)} observers of noise of {size} coordinates",
    )
    assembly = Assembly()
    r = covariance_variables(assembly, program.gram)
    assembly.block(size, [lower_triangle(r)])
    for seen in program.observers:
        rows, signals = seen.signals.shape
        told = assembly.symmetric("X", signals, meaning="what one observer can tell, squared")
        assembly.block(
            rows + signals,
            [*_seen(seen, r), constant(seen.signals.T, row=rows), lower_triangle(told, at=rows)],
        )
        sums_at_most(assembly, np.diagonal(told)[:, None], np.ones(signals))
    variances_within(assembly, [lower_triangle(r)], cap=program.cap)
    return assembly


def _seen(seen: ObservedNoise, r: Numbers) -> list[Piece]:
    """The lower triangle of K(R) = sum_j B_j R B_j^T, row by row."""
    p, q = np.tril_indices(len(r))
    found: list[Piece] = []
    for row in range(seen.responses.shape[1]):
        own, others = seen.responses[:, row], seen.responses[:, : row + 1]
        products = np.einsum("jp,jnq->npq", own, others)
        # R_pq and R_qp are one variable.
        weights = products[:, p, q] + np.where(p == q, 0.0, products[:, q, p])
        found.append((r[p, q], row, np.arange(row + 1)[:, None], weights))
    return found


def _positive(assembly: Assembly, size: int, pieces: list[Piece]) -> None:
    """A positive semidefinite matrix, which of one entry is a linear row."""
    if size == 1:
        assembly.at_least_zero(1, pieces)
    else:
        assembly.block(size, pieces)


def _moved(piece: Piece, to: Numbers) -> Piece:
    """Rows and columns of a piece, renumbered."""
    variable, row, column, value = piece
    return variable, to[row], to[column], value


def _listed(numbers: tuple[int, ...], *, most: int = 12) -> str:
    shown = ", ".join(str(number) for number in islice(numbers, most))
    return f"{shown}, ..." if len(numbers) > most else shown
