"""(B), the program of banded strategies, and the diagonals of X that its budgets allow.

    (B)  minimise  tr(H X^-1),  X = C^T C,  C lower triangular with p diagonals,

which are exactly the positive definite X with X_ij = 0 for |i - j| >= p (reversed Cholesky fills
nothing in). Where any two steps of a pattern are at least p apart its block of X is diagonal, so
every notion of sensitivity agrees and the squared one is max over patterns of sum X_ii.

The diagonals x allowed by that are x <= P z with z >= 0 and costs adding up to at most 1:

- (k, b) participation: P = I, one budget for each residue class;
- min separation: one column of P for every window of b consecutive steps, at cost 1, and, where
  at most k participations is a restriction, a column of ones at cost k (linear programming
  duality, see :meth:`noisedesign.system.participation.MinSeparation.cover`)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisedesign.base.checks import Array, InputError, positive_int
from noisedesign.families.temporal import TemporalProgram, temporal_program
from noisedesign.system.participation import Cover, Participation


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
        if self.single_steps is None:
            return np.asarray(self.generators @ z)
        return np.asarray(np.bincount(self.single_steps, z, len(self.generators)), np.float64)

    def normalized(self, z: Array) -> Array:
        """z >= 0, shape (m,), scaled so that every budget is used up."""
        return np.asarray(z / self.per_budget(self.cost * z)[self.budget])

    def price(self, v: Array) -> float:
        """max <v, x> over allowed x, for v >= 0, shape (T,)."""
        largest = np.zeros(self.budgets)
        np.maximum.at(largest, self.budget, self.rates(v) / self.cost)
        return float(largest.sum())


def allowance(participation: Participation) -> Allowance:
    """The diagonals of a banded X, shape (T,), that the squared sensitivity 1 allows."""
    if (cover := participation.cover()) is None:
        expected = "FixedEpoch or MinSeparation"
        remedy = "Ask for a strategy without a structure."
        raise InputError("participation", expected=expected, got=str(participation), remedy=remedy)
    return Allowance(*cover)


@dataclass(frozen=True, kw_only=True, eq=False)
class BandedProgram(TemporalProgram):
    """(B): a program whose strategies have ``bands`` diagonals, the main one too."""

    bands: int

    @cached_property
    def allowance(self) -> Allowance:
        """The diagonals that X may have."""
        return allowance(self.participation)

    def outside(self) -> NDArray[np.bool_]:
        """The mask, shape (T, T), of entries of X that must vanish."""
        steps = np.arange(self.size)
        return np.asarray(np.abs(np.subtract.outer(steps, steps)) >= self.bands)


def banded_program(*, gram: Any, participation: Participation, bands: int) -> BandedProgram:
    """The program of ``bands`` diagonals for H, (T, T), if patterns are diagonal in X."""
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
