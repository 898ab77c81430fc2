"""How nearly a conic program is solved: the six DIMACS error measures, from its data alone.

They are those of Mittelmann, "An independent benchmarking of SDP and SOCP solvers" (Mathematical
Programming 95, 2003): relative errors, computed from the program and the answer and from nothing
that a solver reports about itself. A program here is

    minimise <c, x>  subject to  s_k = b_k - A_k x in the cone K_k, for every block k,

which is the dual of that paper: its X are our multipliers z_k, in the cones dual to K_k, which have
to meet sum_k A_k^T z_k + c = 0. Slacks s_k are computed, as that paper asks where a solver does not
keep them. |b| and |c| are largest absolute entries, there written as a norm with index one.

err1   |sum_k A_k^T z_k + c|_2 / (1 + |c|): how far multipliers are from their equations
err2   max(0, -lambda_min(z)) / (1 + |c|): how far they are outside their cones
err3   the norms of s_k, summed over equations / (1 + |b|)
err4   max(0, -lambda_min(s)) / (1 + |b|): how far the design is outside its cones
err5   (<c, x> + <b, z>) / (1 + |<c, x>| + |<b, z>|): the gap, negative where one was overdone
err6   <s, z> / (1 + |<c, x>| + |<b, z>|): complementarity, given even where err2 or err4 is not 0
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from noisedesign.base import linalg as _linalg
from noisedesign.base.checks import Array

NAMES = ("err1", "err2", "err3", "err4", "err5", "err6")

Errors = tuple[float, float, float, float, float, float]


class Cone(StrEnum):
    """Where the slack of a block has to be."""

    ZERO = "zero"
    NONNEGATIVE = "nonnegative"
    SEMIDEFINITE = "semidefinite"


@dataclass(frozen=True, kw_only=True, eq=False)
class Block:
    """Some rows of a conic program, and their multipliers.

    ``offset`` is b, shape (rows,), ``coefficients`` A, shape (rows, unknowns), dense or sparse,
    ``multiplier`` z, shape (rows,). A semidefinite block of size k has k^2 rows, those of its
    matrix one after the other.
    """

    cone: Cone
    offset: Array
    coefficients: Any
    multiplier: Array

    def least(self, values: Array) -> float:
        """The least entry or eigenvalue, which is negative outside the cone."""
        if self.cone is Cone.SEMIDEFINITE:
            size = round(len(values) ** 0.5)
            return float(_linalg.eigenvalues(values.reshape(size, size))[0])
        return float(values.min())


def errors(*, objective: Array, point: Array, blocks: Sequence[Block]) -> Errors:
    """The six errors of an answer; all are 0 at an exact one, up to rounding.

    Args:
        objective: c, shape (unknowns,).
        point: x, shape (unknowns,).
    """
    bound = sum(float(block.offset @ block.multiplier) for block in blocks)
    cost = float(objective @ point)
    residual, outside_dual, equations, outside = np.array(objective), 0.0, 0.0, 0.0
    complementarity, largest = 0.0, 0.0
    for block in blocks:
        slack = block.offset - block.coefficients @ point
        residual = residual + block.coefficients.T @ block.multiplier
        largest = max(largest, float(np.abs(block.offset).max()))
        if block.cone is Cone.ZERO:
            equations += float(np.linalg.norm(slack))
            continue
        outside = max(outside, -block.least(slack))
        outside_dual = max(outside_dual, -block.least(block.multiplier))
        complementarity += float(slack @ block.multiplier)
    by_objective = 1 + float(np.abs(objective).max())
    by_offset = 1 + largest
    by_values = 1 + abs(cost) + abs(bound)
    return (
        float(np.linalg.norm(residual)) / by_objective,
        outside_dual / by_objective,
        equations / by_offset,
        outside / by_offset,
        (cost + bound) / by_values,
        complementarity / by_values,
    )
