"""Strategies under overlapping patterns in matrix inequalities: [[Y, L], [L^T, X]] >= 0."""

from __future__ import annotations

import numpy as np

from noisedesign.base.checks import Array
from noisedesign.base.monitor import Stop
from noisedesign.certify.repair import strategy_of
from noisedesign.conic.data import Point, slacks
from noisedesign.conic.program import (
    Assembly,
    listed,
    on_diagonal,
    positive,
    require_size,
    triangle,
)
from noisedesign.families.disjoint.model import gram_under_factor, lower_bound_scale, sums_at_most
from noisedesign.families.family import Answer, Model
from noisedesign.families.overlapping.bound import PatternBlocks, pattern_arrays
from noisedesign.families.temporal import TemporalProgram
from noisedesign.forms import DenseStrategy, Noise


def compact(program: TemporalProgram, *, scaled: bool = False) -> Model:
    """Diag(y) - X >= 0 and <1, y> <= 1 on every maximal pattern: the least <1, y> is the squared
    sensitivity of X on it to vector gradients. H is divided by its size where ``scaled``."""
    participation = program.participation
    size, rank = program.size, len(program.factor)
    count, largest = participation.count(), participation.largest_size
    of_pattern = triangle(largest) + 2 * largest + 1
    require_size(
        triangle(rank) + triangle(size) + rank * size + count * of_pattern,
        of=f"{count:,} patterns of up to {largest} steps",
    )
    scale = lower_bound_scale(program.factor) if scaled else 1.0
    assembly = Assembly()
    x = gram_under_factor(assembly, program.factor / np.sqrt(scale))
    patterns = [np.array(steps) for steps in participation.maximal_patterns()]
    for steps in patterns:
        y = assembly.vector(
            "y", len(steps), meaning=f"prices of the steps {listed(tuple(steps.tolist()))}"
        )
        i, j = np.tril_indices(len(steps))
        positive(assembly, len(steps), [on_diagonal(y), (x[steps[i], steps[j]], i, j, -1.0)])
        sums_at_most(assembly, y[None, :], np.ones(1))
    conic = assembly.finished(formulation="compact")

    def read(point: Point) -> Answer:
        strategy = strategy_of(program, slacks(conic, point.variables)[0][rank:, rank:])
        # Blocks are in the order of the patterns; that of a single step is a row, before its sum.
        own = iter(point.blocks[1:])
        rows = iter(point.rows)
        multipliers: list[PatternBlocks] = []
        for steps in patterns:
            u: Array = np.array([[next(rows)]]) if len(steps) == 1 else next(own)
            next(rows)
            multipliers.append(PatternBlocks(steps=steps[None], blocks=scale * u[None]))
        return Answer(
            stop=Stop.SOLVED,
            noises=[Noise.of_strategy(DenseStrategy(strategy=strategy))],
            proof=pattern_arrays(multipliers),
        )

    return Model(conic=conic, read=read)
