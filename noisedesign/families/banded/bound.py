"""Lower bounds of banded strategies: multipliers of (B), the bound they prove, and those of a C.

Multipliers of (B) are U >= 0 with free entries outside the band, zeros in it off the diagonal, and
a diagonal v, whose price is max <v, x> over allowed x. docs/methods/structures.md has the bounds by
them and by a factor, U >= V V^T:

    tr(H X^-1)  >=  ( tr (H^1/2 U H^1/2)^1/2 )^2 / price(v)  >=  tr(L V)^2 / price(v),   H = L^T L.

At the optimum X^-1 H X^-1 vanishes in the band off its diagonal and generators in use have equal
rates. Near it V = X^-1 L^T misses both by R, the first-order error of a bound. Half of R taken off
on one side, V - R V^-T / 2, cancels it, and V^-T = X L^-1 is a product of bands where L^-1 is one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from noisedesign.base import linalg as _linalg, settings
from noisedesign.base.banded_matrices import BLOCK_ROWS, BandedSolver, banded_product, dense
from noisedesign.base.checks import Array
from noisedesign.base.enclosures import Interval, exactly, up
from noisedesign.certify.rigorous import Judged, NotProvedError
from noisedesign.families.banded.program import Allowance, BandedProgram
from noisedesign.families.family import Arrays
from noisedesign.families.temporal import bound_by, rigorous_bound_by
from noisedesign.forms import BandedStrategy, Noise


def lower_bound(
    program: BandedProgram,
    proof: Arrays,
    *,
    noise: Noise | None = None,
    negligible: float = settings.NEGLIGIBLE,
) -> float:
    """The bound by the multipliers of :func:`multipliers_of`; 0 without any."""
    if (multipliers := multipliers_of(program, proof, noise=noise)) is None:
        return 0.0
    return banded_lower_bound(program, multipliers, negligible=negligible)


def multipliers_of(program: BandedProgram, proof: Arrays, *, noise: Noise | None) -> Array | None:
    """U, (T, T), as stored or from C, at any scale, and the shares z, (m,), of diag(X); or None."""
    multipliers, shares = proof.get("dual_matrix"), proof.get("dual_shares")
    if multipliers is not None:
        return multipliers
    if shares is None or noise is None or shares.shape != program.allowance.cost.shape:
        return None
    bands = BandedStrategy.of_dense(noise.dense_strategy, bands=program.bands).bands
    columns = np.ascontiguousarray(bands.T)
    try:  # unless H is singular
        inverse = _linalg.inverse_of_triangular(program.factor.copy())
        factor, _ = witness(program, columns=columns, shares=shares, inverse=inverse)
    except np.linalg.LinAlgError:
        return None
    return multipliers_above(program, factor)


def rigorous_lower_bound(
    program: BandedProgram,
    proof: Arrays,
    *,
    noise: Noise | None = None,
    judged: Judged | None = None,
    enough: float = 0.0,
) -> Interval:
    """:func:`lower_bound` with every rounding accounted for: that U >= 0, and its price."""
    multipliers = multipliers_of(program, proof, noise=noise)
    u = None if multipliers is None else repaired_multipliers(program, multipliers)
    if u is None:
        raise NotProvedError("there are no multipliers")
    u = _linalg.symmetrized(u)  # exactly, and zero where it was
    price = program.allowance.price(np.diagonal(u).copy())
    price = float(up(np.float64(price), 2 * program.size))
    return rigorous_bound_by(program, exactly(u), price, judged=judged, enough=enough)


def repaired_multipliers(program: BandedProgram, multipliers: Array) -> Array | None:
    """Feasible U from any matrix, (T, T): entries outside the band are shrunk until U >= 0."""
    if multipliers.shape != program.gram.shape or not np.isfinite(multipliers).all():
        return None
    scale = float(np.abs(multipliers).max())
    if scale == 0:
        return None
    v = np.diagonal(multipliers) / scale
    if v.max() <= 0:
        return None
    v = np.maximum(v, settings.EPS * v.max())
    unit = _linalg.symmetrized(np.where(program.outside(), multipliers / scale, 0.0))
    root = np.sqrt(v)
    unit = unit / root[:, None] / root
    # The smallest eigenvalue of the scaled multipliers keeps twice what a Cholesky factorisation
    # can go wrong by.
    margin = 8 * settings.rank_tolerance(program.size)
    if not _linalg.is_positive(unit + (1 - margin) * np.eye(program.size)):
        # Finite: the trace of ``unit`` is 0, so its smallest eigenvalue is negative here.
        lowest = float(np.linalg.eigvalsh(unit)[0])
        unit *= (1 - margin) / (-lowest + margin * max(1.0, float(np.abs(unit).sum(axis=1).max())))
    return np.asarray((unit + np.eye(program.size)) * root[:, None] * root)


def banded_lower_bound(
    program: BandedProgram, multipliers: Array, *, negligible: float = settings.NEGLIGIBLE
) -> float:
    """The bound on tr(H X^-1) by multipliers U, shape (T, T), of whoever, after repair; or 0."""
    u = repaired_multipliers(program, multipliers)
    if u is None:
        return 0.0
    price = program.allowance.price(np.diagonal(u).copy())
    return bound_by(program, u, price, negligible=negligible)


def factored_lower_bound(program: BandedProgram, factor: Array) -> float:
    """The bound on tr(H X^-1) by V = ``factor``, (T, T), or 0, in O(T^2 p), rounding taken off."""
    if factor.shape != program.gram.shape or not np.isfinite(factor).all():
        return 0.0
    scale = float(np.abs(factor).max())
    if scale == 0:
        return 0.0
    v = factor / scale
    norms = float(np.linalg.norm(program.factor)) * float(np.linalg.norm(v))
    trace = float(np.sum(program.factor * v.T)) - settings.rank_tolerance(program.size) * norms
    price = program.allowance.price(diagonal_above(gram_band(v, program.bands)))
    bound = trace / price * trace
    return bound if trace > 0 and 0 < bound < np.inf else 0.0


def multipliers_above(program: BandedProgram, factor: Array) -> Array:
    """U >= V V^T with zeros in the band off its diagonal, shape (T, T), for V of the same shape."""
    u = np.where(program.outside(), factor @ factor.T, 0.0)
    np.fill_diagonal(u, diagonal_above(gram_band(factor, program.bands)))
    return u


def gram_band(factor: Array, bands: int) -> Array:
    """The band of V V^T by its columns, [t, d] at (t + d, t), shape (T, bands)."""
    horizon = len(factor)
    band = np.zeros((horizon, bands))
    rows = max(bands, BLOCK_ROWS)
    for first in range(0, horizon, rows):
        block = factor[first : first + rows + bands - 1] @ factor[first : first + rows].T
        for d in range(bands):
            below = np.diagonal(block, -d)
            band[first : first + len(below), d] = below
    return band


def diagonal_above(band: Array) -> Array:
    """u, shape (T,), with Diag(u) >= the symmetric matrix of that band, a diagonal g its first, by
    diagonal dominance: 2 x_i x_j <= x_i^2 r + x_j^2 / r with r = (g_i / g_j)^1/2, right in any
    units of the steps. Entries are known to T EPS / 2 times (g_i g_j)^1/2."""
    horizon, bands = band.shape
    g = np.maximum(band[:, 0], np.finfo(np.float64).tiny)
    root, above = np.sqrt(g), g.copy()
    for d in range(1, bands):
        size, ratio = np.abs(band[: horizon - d, d]), root[d:] / root[: horizon - d]
        above[d:] += size * ratio
        above[: horizon - d] += size / ratio
    return np.asarray(above * (1 + 2 * bands * settings.rank_tolerance(horizon + bands)))


def witness(
    program: BandedProgram, *, columns: Array, shares: Array, inverse: Array
) -> tuple[Array, float]:
    """V, (T, T), and its bound, of columns of C, (T, p), shares z with diag(X) = P z, and L^-1."""
    solver, reach = BandedSolver(columns), program.bands - 1
    factor = solver.solve(solver.solve_transposed(program.factor.T))
    gram = banded_product(solver.c.T, reach, solver.c)
    across = banded_product(gram, reach, inverse)
    allowed = program.allowance
    band = gram_band(factor, program.bands)
    found = [(factored_lower_bound(program, factor), factor)]
    # The first round cancels R, the second what the change of V V^T has left in the band. A third
    # gains nothing; far from the optimum fewer may prove more.
    for _ in range(2):
        target = balanced(allowed, band[:, 0], shares)
        missed = dense(np.column_stack([(band[:, 0] - target) / 2, band[:, 1:]]))
        factor = factor - banded_product(missed + missed.T, reach, across) / 2
        band = gram_band(factor, program.bands)
        found.append((factored_lower_bound(program, factor), factor))
    bound, best = max(found, key=lambda pair: pair[0])
    return best, bound


def balanced(allowed: Allowance, v: Array, shares: Array) -> Array:
    """v, shape (T,), moved the least, weighted by 1 / v, so that generators in use all have the
    rate <v, x> of their budget, as at the optimum: else the bound is worse by a first-order error.
    Where moving v does not help, it is kept."""
    cost = allowed.cost
    rate = allowed.per_budget(shares * allowed.rates(v))[allowed.budget]
    # From there on a generator is in use, so that its rate has to be the price.
    in_use = shares * cost > 1e-6
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
