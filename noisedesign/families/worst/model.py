"""The largest of some errors in matrix inequalities, of disjoint patterns.

compact
    minimise s  subject to  <H_i, Y> <= s of every error i,  [[Y, I], [I, X]] >= 0,  X diagonal
    on every pattern of participation, and the sum of diag(X) over each at most its budget."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from noisedesign.base.checks import InputError
from noisedesign.base.monitor import Stop
from noisedesign.certify.program import DualPoint, Program
from noisedesign.conic.data import Point, slacks
from noisedesign.conic.program import (
    Assembly,
    Piece,
    constant,
    lower_triangle,
    require_size,
    triangle,
)
from noisedesign.families.disjoint.family import FAMILY as DISJOINT
from noisedesign.families.disjoint.model import sums_at_most
from noisedesign.families.disjoint.program import Found
from noisedesign.families.family import Answer, Model
from noisedesign.families.worst.program import WorstProgram


def compact(program: WorstProgram, *, scaled: bool = False) -> Model:
    """The model; H is divided by the least error that even shares prove where ``scaled``."""
    uniform = program.even
    expected = "(k, b) participation and no limits, for a model of the largest error"
    if not isinstance(uniform, Program):
        raise InputError("participation", expected=expected, got=str(uniform.participation))
    if uniform.limited:
        raise InputError("limits.max_variance", expected=expected, got="a cap or a floor")
    size, count = uniform.size, program.size
    require_size((count + 5) * triangle(size), of=f"{count} errors of {size} x {size} numbers")
    scale = DISJOINT.bound(uniform, {}).value if scaled else 1.0
    patterns = uniform.participation.patterns
    free = np.ones((size, size), dtype=bool)
    free[patterns[:, :, None], patterns[:, None, :]] = False
    np.fill_diagonal(free, True)

    assembly = Assembly()
    s = assembly.vector("s", 1, cost=np.ones(1), meaning="the largest error")
    y = assembly.symmetric("Y", size, meaning="covariance of the noise")
    x = assembly.symmetric("X", size, free=free, meaning="precision of the noise, C^T C")
    identity = constant(np.eye(size), row=size)
    assembly.block(2 * size, [lower_triangle(y), lower_triangle(x, at=size), identity])
    i, j = np.tril_indices(size)
    twice = np.where(i == j, 1.0, 2.0)
    each = np.arange(count)
    pieces: list[Piece] = [(s[0], each, each, 1.0)]
    for one, alone in enumerate(np.eye(count)):
        pieces.append((y[i, j], one, one, -twice * program.gram(alone)[i, j] / scale))
    assembly.at_least_zero(count, pieces)
    sums_at_most(assembly, x[patterns, patterns], uniform.budget)
    conic = assembly.finished(formulation="compact")

    def read(point: Point) -> Answer:
        shares = np.maximum(point.rows[:count], 0.0)
        shares = shares / shares.sum()
        own = point.blocks[0][size:, size:]
        blocks = own[patterns[:, :, None], patterns[:, None, :]]
        gram = slacks(conic, point.variables)[0][size:, size:]
        found = Found(stop=Stop.SOLVED, gram=gram, dual=DualPoint(blocks=blocks))
        family: Any = program.inner
        answer: Answer = family.answer(program.at(shares), found)
        return replace(answer, proof={"target_shares": shares, **answer.proof})

    return Model(conic=conic, read=read)
