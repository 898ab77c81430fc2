"""How nearly a conic program is solved: the six DIMACS error measures, from its data alone.

They are those of Mittelmann, "An independent benchmarking of SDP and SOCP solvers" (Mathematical
Programming 95, 2003): relative errors, computed from the program and the answer and from nothing
that a solver reports about itself. A program here is

    minimise <c, x>  subject to  s_k = b_k + F_k x in the cone K_k, for every block k,

which is the dual of that paper: its X are our multipliers z_k, in the cones dual to K_k, which have
to meet sum_k F_k^T z_k = c. Slacks s_k are computed, as that paper asks where a solver does not
keep them. |b| and |c| are largest absolute entries, there written as a norm with index one.

err1   |sum_k F_k^T z_k - c|_2 / (1 + |c|): how far multipliers are from their equations
err2   max(0, -lambda_min(z)) / (1 + |c|): how far they are outside their cones
err3   0: the norms of s_k, summed over equations, of which our programs have none
err4   max(0, -lambda_min(s)) / (1 + |b|): how far the design is outside its cones
err5   (<c, x> + <b, z>) / (1 + |<c, x>| + |<b, z>|): the gap, negative where one was overdone
err6   <s, z> / (1 + |<c, x>| + |<b, z>|): complementarity, given even where err2 or err4 is not 0
"""

from __future__ import annotations

import numpy as np

from noisedesign.base import linalg as _linalg
from noisedesign.base.checks import Array
from noisedesign.conic.data import Point, rows_of, slack
from noisedesign.conic.program import CONSTANT, ConicProgram, Entries

NAMES = ("err1", "err2", "err3", "err4", "err5", "err6")

Errors = tuple[float, float, float, float, float, float]


def errors(program: ConicProgram, point: Point) -> Errors:
    """The six errors of an answer; all are 0 at an exact one, up to rounding."""
    products = np.zeros(1 + program.variables)  # <b, z>, then F^T z
    outside_dual = outside = complementarity = largest = 0.0
    found = [
        (block.entries, slack(block, point.variables), z, _entries(block.entries, z))
        for block, z in zip(program.blocks, point.blocks, strict=True)
    ]
    if program.rows.size:
        matrix, offset = rows_of(program)
        entries = program.rows.entries
        left = offset + matrix @ point.variables
        found.append((entries, left, point.rows, point.rows[entries.row]))
    for entries, s, z, at in found:
        products += np.bincount(
            entries.variable, weights=entries.value * at, minlength=len(products)
        )
        known = np.abs(entries.value[entries.variable == CONSTANT])
        largest = max(largest, float(known.max(initial=0.0)))
        outside = max(outside, -_least(s))
        outside_dual = max(outside_dual, -_least(z))
        complementarity += float(np.sum(s * z))
    cost, bound = float(program.cost @ point.variables), float(products[0])
    by_objective = 1 + float(np.abs(program.cost).max())
    by_values = 1 + abs(cost) + abs(bound)
    return (
        float(np.linalg.norm(products[1:] - program.cost)) / by_objective,
        outside_dual / by_objective,
        0.0,
        outside / (1 + largest),
        (cost + bound) / by_values,
        complementarity / by_values,
    )


def _entries(entries: Entries, z: Array) -> Array:
    """What every coefficient of the lower triangle is multiplied by in <F, z>."""
    return np.where(entries.row == entries.column, 1.0, 2.0) * z[entries.row, entries.column]


def _least(s: Array) -> float:
    """Of a vector its least entry, of a matrix its least eigenvalue."""
    return float(s.min() if s.ndim == 1 else _linalg.eigenvalues(s)[0])
