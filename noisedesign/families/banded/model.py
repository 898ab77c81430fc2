"""Banded strategies in matrix inequalities: [[Y, L], [L^T, X]] >= 0, X zero outside the band."""

from __future__ import annotations

import numpy as np

from noisedesign.conic.program import CONSTANT, Assembly, on_diagonal, require_size, triangle
from noisedesign.families.banded.bound import BandedProgram, allowance
from noisedesign.families.disjoint.model import gram_under_factor, sums_at_most


def compact(program: BandedProgram) -> Assembly:
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
