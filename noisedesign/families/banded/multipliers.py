"""What proves how good a banded C is: a factor V of multipliers, V V^T nearly X^-1 H X^-1.

At the optimum X^-1 H X^-1 vanishes in the band off its diagonal and generators in use have equal
rates. Near it V = X^-1 L^T, H = L^T L, misses both by R, the first-order error of a bound. Half of
R taken off on one side, V - R V^-T / 2, cancels it, and V^-T = X L^-1 is a product of bands where
L^-1 is one: all in O(T^2 p).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from noisedesign.base import settings
from noisedesign.base.banded_matrices import BandedSolver, banded_product, dense
from noisedesign.base.checks import Array
from noisedesign.base.linalg import inverse_of_triangular
from noisedesign.families.banded.bound import (
    Allowance,
    BandedProgram,
    allowance,
    diagonal_above,
    factored_lower_bound,
    gram_band,
    multipliers_above,
)

ROUNDS = 2
"""The first cancels R, the second what the change of V V^T has left in the band. A third gains
nothing; far from the optimum fewer may prove more."""

IN_USE = 1e-6
"""Share of its budget above which a generator is in use, so that its rate has to be the price."""


def multipliers_of_bands(program: BandedProgram, *, bands: Array, shares: Array) -> Array:
    """U, shape (T, T), that C itself proves its bound with: nothing of size T x T need be kept.

    Args:
        bands: of C, shape (p, T), [d, t] = C[t + d, t], at any scale.
        shares: z, shape (m,), of the diagonal of X (see :mod:`noisedesign.families.banded.bound`).

    Raises:
        numpy.linalg.LinAlgError: H is not positive definite.
    """
    inverse = inverse_of_triangular(program.factor.copy())
    columns = np.ascontiguousarray(bands.T)
    return multipliers_above(
        program, witness(program, columns=columns, shares=shares, inverse=inverse)[0]
    )


def witness(
    program: BandedProgram, *, columns: Array, shares: Array, inverse: Array
) -> tuple[Array, float]:
    """V, shape (T, T), and the bound it proves.

    ``columns`` of C, shape (T, p), zero beyond the horizon; ``shares`` z, shape (m,), with
    diag(X) = P z; ``inverse`` is L^-1, shape (T, T).
    """
    solver, reach = BandedSolver(columns), program.bands - 1
    factor = solver.solve(solver.solve_transposed(program.factor.T))
    gram = banded_product(solver.c.T, reach, solver.c)
    across = banded_product(gram, reach, inverse)
    allowed = allowance(program.participation)
    band = gram_band(factor, program.bands)
    found = [(_proves(program, factor, band, allowed), factor)]
    for _ in range(ROUNDS):
        target = balanced(allowed, band[:, 0], shares)
        missed = dense(np.column_stack([(band[:, 0] - target) / 2, band[:, 1:]]))
        factor = factor - banded_product(missed + missed.T, reach, across) / 2
        band = gram_band(factor, program.bands)
        found.append((_proves(program, factor, band, allowed), factor))
    _, best = max(found, key=lambda pair: pair[0])
    return best, factored_lower_bound(program, best)


def _proves(program: BandedProgram, factor: Array, band: Array, allowed: Allowance) -> float:
    """The bound of V with that band of V V^T, but for rounding; negative where tr(L V) is."""
    trace = float(np.sum(program.factor * factor.T))
    return trace / allowed.price(diagonal_above(band)) * abs(trace)


def balanced(allowed: Allowance, v: Array, shares: Array) -> Array:
    """v, shape (T,), moved so that generators in use all have the rate <v, x> of their budget.

    At the optimum they do (complementary slackness). A price is the largest rate, so a diagonal
    that only nearly does would make the bound worse by a first-order error. The least change
    weighted by 1 / v; generators that come to exceed the rate are added to those in use. Far from
    the optimum there may be no such diagonal: v is kept where moving it does not help.
    """
    cost = allowed.cost
    rate = allowed.per_budget(shares * allowed.rates(v))[allowed.budget]
    in_use = shares * cost > IN_USE
    moved = np.array(v)
    for _ in range(len(cost)):
        missing = (cost * rate - allowed.rates(v))[in_use]
        moved = v + v * allowed.diagonal(_spread(allowed, v, missing, in_use))
        over = (allowed.rates(moved) / cost > rate * (1 + settings.sqrt_eps())) & ~in_use
        if not over.any():
            break
        in_use |= over
    x = allowed.diagonal(shares)
    better = moved.min() > 0 and allowed.price(moved) * (v @ x) < allowed.price(v) * (moved @ x)
    return moved if better else np.array(v)


def _spread(allowed: Allowance, v: Array, missing: Array, in_use: NDArray[np.bool_]) -> Array:
    """y, shape (m,), zero where not in use, with P^T (v * P y) = ``missing`` where in use."""
    y = np.zeros(len(in_use))
    if allowed.single_steps is not None:
        y[in_use] = missing / allowed.rates(v)[in_use]
        return y
    used = allowed.generators[:, in_use]
    system = used.T @ (used * v[:, None])
    system[np.diag_indices(len(system))] *= 1 + settings.rank_tolerance(len(system))
    y[in_use] = np.linalg.solve(system, missing)
    return y
