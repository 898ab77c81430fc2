"""DECOR noise in matrix inequalities: two numbers make up R."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from noisedesign.base import linalg as _linalg
from noisedesign.base.monitor import Stop
from noisedesign.certify.repair import covariance_of
from noisedesign.conic.data import Point
from noisedesign.conic.program import Assembly, Piece, constant, on_diagonal, require_size, triangle
from noisedesign.families.decor.program import DecorProgram
from noisedesign.families.decor.solver import decor_precision
from noisedesign.families.disjoint.model import precision_within, variances_within
from noisedesign.families.family import Answer, Model
from noisedesign.forms import Noise


def scaled(program: DecorProgram) -> Model:
    """The model at budgets of at most one, H such that their multipliers are about one."""
    unit = (_linalg.nuclear_norm(program.normalized().factor) / program.size) ** 2
    largest = float(program.budget.max())
    own = replace(
        program,
        gram=program.gram / (unit * largest),
        budget=program.budget / largest,
        cap=None if program.cap is None else program.cap * largest,
    )
    return replace(stated(own), read=stated(program).read)


def stated(program: DecorProgram) -> Model:
    """R = s I + c Laplacian with s, c >= 0 (DECOR, Allouah et al. 2024)."""
    size = program.size
    laplacian = program.laplacian
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

    def read(point: Point) -> Answer:
        own, shared = np.maximum(point.variables[scales - 1], 0.0)
        if not own + shared > 0:
            return Answer(stop=Stop.FAILED)
        with np.errstate(divide="ignore"):
            near = float(np.log(shared) - np.log(own))
        precision = decor_precision(program, laplacian, near=near)
        noise = Noise.of_covariance(covariance_of(program, precision))
        return Answer(stop=Stop.SOLVED, noises=[noise])

    return Model(conic=assembly.finished(formulation="covariance"), read=read)
