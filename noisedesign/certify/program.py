"""The one convex program, its dual and its bound, without choosing an algorithm.

    (P)  minimise  tr(H X^-1)   over X > 0
         subject to, for every pattern j of the participation,
             the squared sensitivity of X on pattern j  <=  budget_j,
         and optionally  diag(X^-1) <= cap  and  diag(X^-1) >= floor.

The squared sensitivity of a pattern to unit-norm vector gradients is max <X_jj, Y> over
correlation matrices Y, which makes its multiplier a positive semidefinite block U_j with a constant
diagonal p_j:

    (D)  maximise  2 tr( (N^1/2 U N^1/2)^1/2 ) - sum_j budget_j p_j - <cap, w> + <floor, u>,
         N = H + diag(w) - diag(u) >= 0,  w, u >= 0,  U block diagonal over the patterns.

U may be scaled freely, so any U at all proves  ( tr (N^1/2 U N^1/2)^1/2 )^2 / sum_j budget_j p_j
- <cap, w> + <floor, u>. Restricting X to be diagonal on every pattern gives the same dual, hence
the same optimum: designs here are diagonal on patterns, where every notion of sensitivity agrees
(docs/mathematics/program.md; docs/mathematics/bound.md, theorem A).

In space every node is a pattern of its own and U is a nonnegative diagonal."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from noisedesign.base import linalg as _linalg
from noisedesign.base.checks import Array
from noisedesign.base.shown import Shown
from noisedesign.system.participation import FixedEpoch
from noisedesign.system.workloads import Workload


@dataclass(frozen=True, kw_only=True, eq=False)
class Program:
    """Data of (P). Shapes: gram (m, m); budget (patterns,); cap and floor (m,) or None.

    ``exact_factor`` is L with L^T L = gram where the problem comes with one (L = W in space),
    ``rows`` one of fewer rows up to rounding, and ``workload`` that of H. ``axes`` says what the
    coordinates are ("space": nodes, X = R^-1; "time": steps, X = C^T C; "space-time": pairs of
    both), ``names`` their names."""

    gram: Array
    participation: FixedEpoch
    budget: Array
    cap: Array | None = None
    exact_factor: Array | None = None
    rows: Array | None = None
    floor: Array | None = None
    workload: Workload | None = None
    axes: str = "time"
    names: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """m: number of nodes in space, of steps in time."""
        return len(self.gram)

    @cached_property
    def factor(self) -> Array:
        """L with L^T L = gram, shape (r, m): the workload itself where it is known."""
        if self.exact_factor is not None:
            return self.exact_factor
        return _linalg.gram_factor(self.gram) if self.rows is None else self.rows

    @cached_property
    def factor_below(self) -> Array:
        """The factor without what may be rounding alone, shape (r, m): for bounds."""
        if self.exact_factor is not None:
            return self.exact_factor
        return _linalg.without_rounding(self.factor, gram=self.gram)

    @cached_property
    def null_space(self) -> Array:
        """Orthonormal basis of the null space of gram, shape (m, dim)."""
        return _linalg.null_space(self.factor_below, gram=self.gram)

    @property
    def singular(self) -> bool:
        """Whether gram has a null space."""
        return self.rows is not None or self.null_space.shape[1] > 0

    @cached_property
    def nearly_singular(self) -> bool:
        """Whether lowering its diagonal by 1e-10 of it leaves H indefinite, or nearly so."""
        lowered = self.gram.copy()
        lowered[np.diag_indices(self.size)] *= 1 - 1e-10
        return not _linalg.is_positive(lowered)

    @cached_property
    def coordinate_budget(self) -> Array:
        """budget_j spread over the coordinates of pattern j, shape (m,)."""
        return np.tile(self.budget, self.participation.epochs)

    @property
    def limited(self) -> bool:
        """Whether diag(X^-1) is limited beyond what the budgets say: [X^-1]_ii X_ii >= 1 always."""
        return self.cap is not None or self.floored

    @property
    def floored(self) -> bool:
        """Whether some floor is above what every X within the budgets has anyway."""
        return self.floor is not None and bool((self.floor * self.coordinate_budget > 1).any())

    @cached_property
    def unit(self) -> bool:
        """Whether every budget is 1."""
        return bool((self.budget == 1.0).all())

    def normalized(self) -> Self:
        """The same program with unit budgets: X = D^1/2 X' D^1/2, D = diag(coordinate_budget)."""
        if self.unit:
            return self
        root = np.sqrt(self.coordinate_budget)
        return replace(
            self,
            gram=self.gram / root[:, None] / root,
            budget=np.ones_like(self.budget),
            cap=None if self.cap is None else self.cap * root**2,
            exact_factor=None if self.exact_factor is None else self.exact_factor / root,
            rows=None if self.rows is None else self.rows / root,
            workload=None,
            floor=None if self.floor is None else self.floor * root**2,
        )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class DualPoint(Shown):
    """Multipliers of the convex program, which prove a lower bound.

    Attributes:
        blocks: U, shape (patterns, epochs, epochs).
        cap: w, shape (m,), or None.
        floor: u, shape (m,), or None.
    """

    blocks: Array
    cap: Array | None = None
    floor: Array | None = None

    def times(self, blocks: Array | float, limits: Array | float) -> DualPoint:
        """U, and w and u, times numbers."""
        cap, floor = (None if w is None else w * limits for w in (self.cap, self.floor))
        return DualPoint(blocks=self.blocks * blocks, cap=cap, floor=floor)

    def denormalized(self, program: Program) -> DualPoint:
        """Multipliers of ``program`` from those of ``program.normalized()``."""
        if program.unit:
            return self
        return self.times(1 / program.budget[:, None, None], program.coordinate_budget)


def denormalized_gram(program: Program, gram: Array) -> Array:
    """X of ``program`` from X' of ``program.normalized()``; X' itself at unit budgets."""
    if program.unit:
        return gram
    root = np.sqrt(program.coordinate_budget)
    return gram * root[:, None] * root


def diagonal_dual(
    weights: Array, cap: Array | None = None, floor: Array | None = None
) -> DualPoint:
    """The multipliers of single participation: U = diag(weights), shape (m,)."""
    return DualPoint(blocks=np.asarray(weights)[:, None, None], cap=cap, floor=floor)


def uniform_dual(program: Program) -> DualPoint:
    """The multiplier whose bound is exact for independent noise: U = identity."""
    k, b = program.participation.epochs, program.participation.separation
    return DualPoint(blocks=np.tile(np.eye(k), (b, 1, 1)))
