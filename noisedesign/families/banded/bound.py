"""Banded strategies: the program, its dual and its bound. Plain numpy, and no solver.

    (B)  minimise  tr(H X^-1),  X = C^T C,  C lower triangular with p diagonals,

which are exactly the positive definite X with X_ij = 0 for |i - j| >= p (reversed Cholesky fills
nothing in). Where any two steps of a pattern are at least p apart its block of X is diagonal, so
every notion of sensitivity agrees and the squared one is max over patterns of sum X_ii.

The diagonals x allowed by that are x <= P z with z >= 0 and costs adding up to at most 1:

- (k, b) participation: P = I, one budget for each residue class;
- min separation: one column of P for every window of b consecutive steps, at cost 1, and, where
  at most k participations is a restriction, a column of ones at cost k (linear programming
  duality, see :meth:`noisedesign.system.participation.MinSeparation.cover`).

Multipliers of (B) are U >= 0 with free entries outside the band, zeros in it off the diagonal, and
a diagonal v. Their price, max <v, x> over allowed x, is for every budget the largest cost-weighted
sum (P^T v)_i / cost_i, and

    tr(H X^-1)  >=  ( tr (H^1/2 U H^1/2)^1/2 )^2 / price(v)      for every feasible X.

With a factor of the multipliers at hand, U >= V V^T, no spectrum is needed: H = L^T L and

    tr(H X^-1)  >=  tr(L V)^2 / price(v),       as  || X^-1/2 L^T - X^1/2 V ||_F >= 0,

which is as large where L V is symmetric, and holds for any V at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisedesign.base import linalg as _linalg
from noisedesign.base import settings
from noisedesign.base.checks import Array, InputError, positive_int
from noisedesign.program.temporal import TemporalProgram, temporal_program
from noisedesign.system.participation import Cover, Participation

PSD_MARGIN = 8
"""Multiple of the rank tolerance that the smallest eigenvalue of the scaled multipliers keeps:
twice what a Cholesky factorisation can go wrong by."""

BLOCK_ROWS = 32
"""Fewest rows of a block of a banded product: below it matrix products do not pay."""


class Allowance(Cover):
    """Diagonals of X within the budgets, as :meth:`Participation.cover` has them."""

    @property
    def budgets(self) -> int:
        return int(self.budget[-1]) + 1

    def per_budget(self, values: Array) -> Array:
        """Sums over the generators of every budget, shape (budgets,)."""
        return np.asarray(np.bincount(self.budget, values, self.budgets), dtype=np.float64)

    @cached_property
    def single_steps(self) -> NDArray[np.intp] | None:
        """The step of every generator where it has one only, shape (m,)."""
        if (self.generators.sum(axis=0) != 1).any():
            return None
        return np.asarray(np.argmax(self.generators, axis=0), dtype=np.intp)

    def rates(self, v: Array) -> Array:
        """P^T v, shape (m,), for v of shape (T,)."""
        if self.single_steps is not None:
            return np.asarray(v[self.single_steps])
        return np.asarray(v @ self.generators)

    def diagonal(self, z: Array) -> Array:
        """P z, shape (T,), for z of shape (m,)."""
        if self.single_steps is not None:
            total = np.bincount(self.single_steps, z, len(self.generators))
            return np.asarray(total, dtype=np.float64)
        return np.asarray(self.generators @ z)

    def price(self, v: Array) -> float:
        """max <v, x> over allowed x, for v >= 0, shape (T,)."""
        rates = self.rates(v) / self.cost
        largest = np.zeros(self.budgets)
        np.maximum.at(largest, self.budget, rates)
        return float(largest.sum())


def allowance(participation: Participation) -> Allowance:
    """What the squared sensitivity 1 allows the diagonal of a banded X, shape (T,).

    Raises:
        InputError: that is not known of the participation.
    """
    if (cover := participation.cover()) is None:
        raise InputError(
            "participation",
            expected="FixedEpoch or MinSeparation",
            got=str(participation),
            remedy="Ask for a strategy without a structure.",
        )
    return Allowance(*cover)


@dataclass(frozen=True, kw_only=True, eq=False)
class BandedProgram(TemporalProgram):
    """(B): a :class:`TemporalProgram` whose strategies have ``bands`` diagonals, the main one too.

    Make one with :func:`banded_program`.
    """

    bands: int

    def outside(self) -> NDArray[np.bool_]:
        """Where X must vanish, shape (T, T)."""
        steps = np.arange(self.size)
        return np.asarray(np.abs(np.subtract.outer(steps, steps)) >= self.bands)


def banded_program(*, gram: Any, participation: Participation, bands: int) -> BandedProgram:
    """The program of strategies with ``bands`` diagonals for H = ``gram``, shape (T, T).

    Raises:
        InputError: as :func:`noisedesign.program.temporal.temporal_program`; ``bands`` is not in
            1..T; or it exceeds the separation of a scheme with repeated participations, which the
            structure cannot hold: patterns would no longer be diagonal in X.
    """
    allowance(participation)
    horizon, b = participation.horizon, participation.stride
    bands = positive_int(bands, field="bands")
    if bands > horizon:
        raise InputError("bands", expected=f"at most the horizon, {horizon}", got=str(bands))
    if participation.largest_size > 1 and bands > b:
        raise InputError(
            "bands",
            expected=f"at most the separation, {b}",
            got=str(bands),
            remedy="With more bands two participations of one record meet in one row of C, a "
            "constraint on its sensitivity that this structure cannot hold.",
        )
    program = temporal_program(gram=gram, participation=participation)
    return BandedProgram(gram=program.gram, participation=participation, bands=bands)


def repaired_multipliers(program: BandedProgram, multipliers: Array) -> Array | None:
    """Feasible U from any matrix, shape (T, T), or None where there is nothing to repair.

    In-band entries off the diagonal are dropped, negative diagonal entries raised to next to
    nothing, and the entries outside the band shrunk, where they have to be, until U >= 0.
    """
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
    margin = PSD_MARGIN * settings.rank_tolerance(program.size)
    try:
        np.linalg.cholesky(unit + (1 - margin) * np.eye(program.size))
    except np.linalg.LinAlgError:
        # Finite: the trace of ``unit`` is 0, so its smallest eigenvalue is negative here.
        lowest = float(np.linalg.eigvalsh(unit)[0])
        unit *= (1 - margin) / (-lowest + margin * max(1.0, float(np.abs(unit).sum(axis=1).max())))
    return np.asarray((unit + np.eye(program.size)) * root[:, None] * root)


def banded_lower_bound(
    program: BandedProgram, multipliers: Array, *, negligible: float = settings.NEGLIGIBLE
) -> float:
    """No feasible banded X has a smaller tr(H X^-1), whoever made the multipliers.

    ( tr (H^1/2 U H^1/2)^1/2 )^2 / price(diag U) after repair of U, shape (T, T), through the
    nuclear norm of L K, H = L^T L, U = K K^T. The Cholesky factorisation solves a problem whose
    entries differ by (T + 1) EPS / 2 times (v_i v_j)^1/2, which is worth T times that of the price
    (|X_ij| <= (X_ii X_jj)^1/2), and is taken off; so is the rounding of the nuclear norm.
    0 where the multipliers prove nothing.
    """
    u = repaired_multipliers(program, multipliers)
    if u is None:
        return 0.0
    try:
        half = program.factor @ np.linalg.cholesky(u)
    except np.linalg.LinAlgError:
        return 0.0
    size = program.size
    price = allowance(program.participation).price(np.diagonal(u).copy())
    price *= 1 + size * settings.rank_tolerance(size + 1)
    trace = _linalg.nuclear_norm(half, negligible=negligible)
    bound = trace / price * trace
    return bound if 0 < bound < np.inf else 0.0


def factored_lower_bound(program: BandedProgram, factor: Array) -> float:
    """No feasible banded X has a smaller tr(H X^-1), for any V = ``factor``, shape (T, T).

    tr(L V)^2 / price(diag U), U = :func:`multipliers_above` V V^T, in O(T^2 p). Rounding of the sum
    of products is taken off, that of U is part of it. 0 where V proves nothing.
    """
    if factor.shape != program.gram.shape or not np.isfinite(factor).all():
        return 0.0
    scale = float(np.abs(factor).max())
    if scale == 0:
        return 0.0
    v = factor / scale
    norms = float(np.linalg.norm(program.factor)) * float(np.linalg.norm(v))
    trace = float(np.sum(program.factor * v.T)) - settings.rank_tolerance(program.size) * norms
    price = allowance(program.participation).price(diagonal_above(gram_band(v, program.bands)))
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
    """u, shape (T,), with Diag(u) >= the symmetric matrix of that band, a diagonal g its first.

    Diagonal dominance, 2 x_i x_j <= x_i^2 r + x_j^2 / r with r = (g_i / g_j)^1/2, which is right
    whatever the units of the steps. Entries are known to T EPS / 2 times (g_i g_j)^1/2.
    """
    horizon, bands = band.shape
    g = np.maximum(band[:, 0], np.finfo(np.float64).tiny)
    root = np.sqrt(g)
    above = g.copy()
    for d in range(1, bands):
        size = np.abs(band[: horizon - d, d])
        above[d:] += size * root[d:] / root[: horizon - d]
        above[: horizon - d] += size * root[: horizon - d] / root[d:]
    return np.asarray(above * (1 + 2 * bands * settings.rank_tolerance(horizon + bands)))
