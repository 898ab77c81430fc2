"""Noise against chosen observers in matrix inequalities."""

from __future__ import annotations

import numpy as np

from noisedesign.conic.program import (
    Assembly,
    Numbers,
    Piece,
    constant,
    lower_triangle,
    require_size,
    triangle,
)
from noisedesign.families.disjoint.formulations import (
    covariance_variables,
    sums_at_most,
    variances_within,
)
from noisedesign.families.observers.bound import ObservedNoise, ObserverProgram
from noisedesign.families.observers.problem import ObserverProblem


def covariance(program: ObserverProgram) -> Assembly:
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


def in_own_units(asked: ObserverProblem) -> ObserverProgram:
    """The program against observers, its noise no longer in units of each node's budget."""
    scaled = asked.program()
    return ObserverProgram(
        gram=asked.gram,
        cap=asked.cap,
        observers=tuple(
            ObservedNoise(responses=seen.responses / asked.unit, signals=seen.signals)
            for seen in scaled.observers
        ),
    )
