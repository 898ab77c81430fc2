"""Banded strategies in matrix inequalities: [[Y, L], [L^T, X]] >= 0, X zero outside the band."""

from __future__ import annotations

import numpy as np

from noisedesign.base.checks import Array
from noisedesign.base.linalg import reversed_cholesky
from noisedesign.base.monitor import Stop
from noisedesign.conic.data import Point, slacks
from noisedesign.conic.program import (
    CONSTANT,
    Assembly,
    Numbers,
    on_diagonal,
    require_size,
    triangle,
)
from noisedesign.families.banded.bound import lower_bound
from noisedesign.families.banded.program import BandedProgram
from noisedesign.families.disjoint.model import gram_under_factor, lower_bound_scale, sums_at_most
from noisedesign.families.family import Answer, Model
from noisedesign.families.temporal import unit_form
from noisedesign.forms import BandedStrategy, Noise


def compact(program: BandedProgram, *, scaled: bool = False) -> Model:
    """X_ij = 0 for |i - j| >= bands; where patterns overlap diag(X) <= P z, <cost, z> <= 1."""
    size, rank = program.size, len(program.factor)
    free = ~program.outside()
    scheme, allowed = program.participation, program.allowance
    sums = size + allowed.budgets
    if not scheme.disjoint:
        sums += 2 * len(allowed.cost) + int(np.count_nonzero(allowed.generators))
    require_size(
        triangle(rank) + int(np.count_nonzero(np.triu(free))) + rank * size + sums,
        of=f"one block of {rank} + {size} rows",
    )
    scale = lower_bound_scale(program.factor) if scaled else 1.0
    assembly = Assembly()
    x = gram_under_factor(assembly, program.factor / np.sqrt(scale), free=free)
    diagonal = np.diagonal(x)
    windows: Numbers | None = None
    if scheme.disjoint:
        sums_at_most(assembly, diagonal[np.asarray(scheme.patterns)], np.ones(allowed.budgets))
    else:
        windows = assembly.vector(
            "z", len(allowed.cost), meaning="shares of the budget, one of every window of steps"
        )
        step, window = np.nonzero(allowed.generators)
        assembly.at_least_zero(
            size, [on_diagonal(diagonal, -1.0), (windows[window], step, step, 1.0)]
        )
        assembly.at_least_zero(len(windows), [on_diagonal(windows)])
        assembly.at_least_zero(1, [(CONSTANT, 0, 0, 1.0), (windows, 0, 0, -allowed.cost)])
    conic = assembly.finished(formulation="compact")

    def read(point: Point) -> Answer:
        gram = slacks(conic, point.variables)[0][rank:, rank:]
        if windows is None:
            shares = np.diagonal(gram)[allowed.single_steps]
        else:
            shares = point.variables[windows - 1]
        return _answer(program, gram, shares, scale * point.blocks[0][rank:, rank:])

    return Model(conic=conic, read=read)


def _answer(program: BandedProgram, gram: Array, shares: Array, multipliers: Array) -> Answer:
    """The answer of X and U, (T, T), and z, (m,): rows are scaled until diag(X) = P z."""
    allowed = program.allowance
    shares = allowed.normalized(np.maximum(shares, 0.0))
    strategy = reversed_cholesky(gram)
    strategy *= np.sqrt(allowed.diagonal(shares) / np.diagonal(gram))
    noise = Noise.of_strategy(
        unit_form(program, BandedStrategy.of_dense(strategy, bands=program.bands))
    )
    proofs = [{"dual_shares": shares}, {"dual_matrix": multipliers}]
    best = max(proofs, key=lambda proof: lower_bound(program, proof, noise=noise))
    return Answer(stop=Stop.SOLVED, noises=[noise], proof=best)
