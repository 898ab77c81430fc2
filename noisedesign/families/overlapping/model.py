"""Strategies under overlapping patterns in matrix inequalities: [[Y, L], [L^T, X]] >= 0."""

from __future__ import annotations

import numpy as np

from noisedesign.conic.program import (
    Assembly,
    listed,
    on_diagonal,
    positive,
    require_size,
    triangle,
)
from noisedesign.families.disjoint.model import gram_under_factor, sums_at_most
from noisedesign.program.temporal import TemporalProgram


def compact(program: TemporalProgram) -> Assembly:
    """Without a structure: Diag(y) - X >= 0 and <1, y> <= 1 on every maximal pattern.

    The least <1, y> is the squared sensitivity of X on the pattern to vector gradients.
    """
    participation = program.participation
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
        y = assembly.vector("y", len(steps), meaning=f"prices of the steps {listed(steps)}")
        i, j = np.tril_indices(len(steps))
        members = np.array(steps)
        positive(assembly, len(steps), [on_diagonal(y), (x[members[i], members[j]], i, j, -1.0)])
        sums_at_most(assembly, y[None, :], np.ones(1))
    return assembly
