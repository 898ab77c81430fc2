"""DECOR noise in matrix inequalities: two numbers make up R."""

from __future__ import annotations

import numpy as np

from noisedesign.conic.program import Assembly, Piece, constant, on_diagonal, require_size, triangle
from noisedesign.families.decor.family import DecorProgram
from noisedesign.families.decor.program import graph_laplacian
from noisedesign.families.disjoint.model import precision_within, variances_within


def covariance(program: DecorProgram) -> Assembly:
    """R = s I + c Laplacian with s, c >= 0 (DECOR, Allouah et al. 2024)."""
    size = program.size
    laplacian = graph_laplacian(program.mixing)
    require_size(
        triangle(size) + int(np.count_nonzero(laplacian)) + 8 * size,
        of=f"one block of {2 * size} rows",
    )
    assembly = Assembly()
    prices = np.array([np.trace(program.gram), np.sum(program.gram * laplacian)])
    scales = assembly.vector(
        "scales", 2, cost=prices, meaning="s of each node's own noise, c of each edge's"
    )
    assembly.at_least_zero(2, [on_diagonal(scales)])
    nodes = np.arange(size)
    _, row, column, value = constant(np.tril(laplacian))
    r: list[Piece] = [(scales[:1], nodes, nodes, 1.0), (scales[1:], row, column, value)]
    precision_within(assembly, r, program.budget)
    variances_within(assembly, r, cap=program.cap)
    return assembly
