"""Covariances in blocks on cliques: the program, its dual and its bound. Plain numpy, no solver.

    (L)  minimise  tr(H R),   R = sum_c E_c P_c E_c^T,  P_c >= 0 on clique c,
         subject to  [R^-1]_ii <= budget_i  for every node i,  and optionally  R_ii <= cap_i.

Where coalitions of f nodes know the seeds they hold (SecLDP), what hides a node from coalition A
are the blocks that A does not touch, R_A = sum of those, and the budgets of the nodes outside A
are asked of R_A. A smaller coalition sees less: Schur complements only grow with the blocks that
are added back, so coalitions of exactly f nodes are enough.

Dual: any v_A >= 0 and N_A >= 0, one pair per coalition, and w >= 0 with

    sum of N_A over the coalitions that leave c alone, restricted to c   <=   (H + diag(w))_cc

for every clique c prove  tr(H R) >= sum_A (tr (V_A^1/2 N_A V_A^1/2)^1/2)^2 / <budget, v_A> -
<cap, w>, because <N, R> + <v, diag(R^-1)> >= 2 tr((V^1/2 N V^1/2)^1/2) for every R > 0 and the
scale of v is free. Entries of N between nodes that share no clique are free too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base import linalg as _linalg
from noisedesign.base import settings
from noisedesign.base.checks import Array, InputError
from noisedesign.families.shared_seeds.sets import Clique, Cliques, by_size, maximal
from noisedesign.program.certificate import Certificate

ROUNDING = 8
"""Multiple of the rank tolerance allowed to the rounding of an eigenvalue or an inverse."""

LEAST_PRICE = 1e-12
"""Price of noise, relative to the mean of diag(H), that a cap's multiplier is raised to where a
clique's block of H is singular: the bound loses about that much, and division stays defined."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CliqueProgram:
    """Data of (L), checked.

    Args:
        gram: H, shape (n, n), symmetric positive semidefinite.
        cliques: sets of nodes that may share a seed; every node is in one. Kept as they matter:
            sorted, those within another dropped; with ``known_seeds`` every node has a seed of its
            own, and cliques that every coalition touches are dropped.
        budget: tau, shape (n,): squared sensitivity to a unit change, in inverse squared noise.
        cap: largest variance R_ii, shape (n,), or None.
        known_seeds: f, how many nodes may pool the seeds they hold.

    Raises:
        InputError: wrong shapes; a node in no clique; budget <= 0; cap <= 1 / budget, which no
            noise meets; known_seeds not in 0..n-1; without a cap, a clique on which some noise is
            free of cost, so that it would grow without bound.
    """

    gram: Array
    cliques: Cliques
    budget: Array
    cap: Array | None = None
    known_seeds: int = 0

    def __post_init__(self) -> None:
        gram = _checks.symmetric_matrix(
            self.gram, field="gram", tolerance=settings.SYMMETRY_TOLERANCE
        )
        n = len(gram)
        object.__setattr__(self, "gram", gram)
        budget = _checks.positive_vector(self.budget, field="budget.tau", length=n)
        object.__setattr__(self, "budget", budget)
        known = _checks.positive_int(self.known_seeds, field="structure.known_seeds", minimum=0)
        if known >= n:
            raise InputError(
                "structure.known_seeds", expected=f"less than the {n} nodes", got=str(known)
            )
        object.__setattr__(self, "cliques", _canonical(self.cliques, n, known))
        if self.cap is None:
            self._refuse_free_noise()
            return
        cap = _checks.positive_vector(self.cap, field="limits.max_variance", length=n)
        object.__setattr__(self, "cap", cap)
        worst = int((cap * budget).argmin())
        if cap[worst] * budget[worst] <= 1:
            raise InputError(
                "limits.max_variance",
                expected=f"more than 1 / tau = {1 / budget[worst]:.6g} (node {worst}), since "
                "[R^-1]_ii R_ii >= 1 for every covariance",
                got=f"{cap[worst]:.6g}",
            )

    def _refuse_free_noise(self) -> None:
        for _, members in by_size(self.cliques):
            values, vectors = np.linalg.eigh(self.gram[members[:, :, None], members[:, None, :]])
            floor = ROUNDING * settings.rank_tolerance(self.size) * values[:, -1]
            free = np.flatnonzero(values[:, 0] <= floor)
            if free.size:
                nodes, direction = members[free[0]], vectors[free[0], :, 0]
                terms = ", ".join(f"{i}: {x:+.3f}" for i, x in zip(nodes, direction, strict=True))
                cap = f"{settings.SUGGESTED_CAP / self.budget.min():.2g}"
                raise InputError(
                    "mixing",
                    expected="a matrix W under which all noise of a clique has a cost",
                    got=f"noise along {{{terms}}}, which is cancelled by mixing and grows without "
                    "bound",
                    remedy=f"Cap diag(R) by limits.max_variance: max_variance={cap} in Python, "
                    f"[limits] max_variance = {cap} in a problem file. Or use other weights: those "
                    "of lazy-metropolis-hastings never make W singular.",
                )

    @property
    def size(self) -> int:
        """n, the number of nodes."""
        return len(self.gram)

    @cached_property
    def coalitions(self) -> tuple[Clique, ...]:
        """The sets of nodes whose seeds are to be taken as known; one empty set where f = 0."""
        return tuple(combinations(range(self.size), self.known_seeds))

    def normalized(self) -> CliqueProgram:
        """The same program with unit budgets: R = D^-1/2 R' D^-1/2, D = diag(budget)."""
        root = np.sqrt(self.budget)
        return replace(
            self,
            gram=self.gram / root[:, None] / root,
            budget=np.ones_like(self.budget),
            cap=None if self.cap is None else self.cap * self.budget,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class CliqueWitness:
    """Multipliers: N_A = F_A^T F_A, so that it is positive semidefinite whatever F_A is.

    Shapes: ``factors`` (coalitions, n, n), ``weights`` v (coalitions, n), ``cap`` w (n,) or None.
    """

    factors: Array
    weights: Array
    cap: Array | None = None


def lower_bound(program: CliqueProgram, witness: CliqueWitness) -> float:
    """What the multipliers prove once repaired; 0 where they prove nothing.

    Repair: weights and w are clipped at 0, columns of known nodes dropped, and all N_A divided by
    the largest generalised eigenvalue against (H + diag(w))_cc over the cliques c. Rounding is
    subtracted.
    """
    finite = np.isfinite(witness.factors).all() and np.isfinite(witness.weights).all()
    if not finite or (witness.cap is not None and not np.isfinite(witness.cap).all()):
        return 0.0
    prices = np.zeros(program.size)
    if program.cap is not None and witness.cap is not None:
        prices = np.maximum(witness.cap, 0.0)
    outside = _outside(program)
    factors, weights = witness.factors * outside[:, None], np.maximum(witness.weights, 0) * outside
    worst = _largest_eigenvalue(program, factors, prices)
    if worst is None and program.cap is not None:
        prices = np.maximum(prices, LEAST_PRICE * float(np.diagonal(program.gram).mean()))
        worst = _largest_eigenvalue(program, factors, prices)
    if worst is None or not 0 < worst < np.inf:
        return 0.0
    bound = 0.0
    for factor, v in zip(factors, weights, strict=True):
        if v.max() > 0:
            share = v / v.max()
            trace = _linalg.nuclear_norm(factor * np.sqrt(share))
            bound += trace**2 / float(program.budget @ share) / worst
    if program.cap is not None:
        bound -= float(program.cap @ prices)
    return bound * (1 - ROUNDING * settings.rank_tolerance(program.size)) if bound > 0 else 0.0


def _outside(program: CliqueProgram) -> Array:
    """1 where a node is outside the coalition, shape (coalitions, n)."""
    outside = np.ones((len(program.coalitions), program.size))
    for row, coalition in zip(outside, program.coalitions, strict=True):
        row[list(coalition)] = 0.0
    return outside


def _largest_eigenvalue(program: CliqueProgram, factors: Array, prices: Array) -> float | None:
    """max over cliques of lambda_max of N_c against (H + diag(w))_cc, rounding added.

    None where some (H + diag(w))_cc is singular to working precision.
    """
    outside, worst = _outside(program), 0.0
    gram = program.gram + np.diag(prices)
    for _, members in by_size(program.cliques):
        blocks = gram[members[:, :, None], members[:, None, :]]
        values, vectors = np.linalg.eigh(blocks)
        tolerance = ROUNDING * settings.rank_tolerance(members.shape[1])
        if (values[:, 0] <= tolerance * values[:, -1]).any():
            return None
        total = np.zeros_like(blocks)
        for factor, free in zip(factors, outside, strict=True):
            kept = free[members].all(axis=1)
            square = factor.T @ factor
            total[kept] += square[members[kept][:, :, None], members[kept][:, None, :]]
        root = vectors / np.sqrt(values)[:, None, :]
        largest = np.linalg.eigvalsh(root.transpose(0, 2, 1) @ total @ root)[:, -1]
        error = (tolerance + settings.rank_tolerance(program.size)) * values[:, -1] / values[:, 0]
        # Rounding of N_c and of its whitening is relative to the largest entries of either.
        scale = np.abs(total).max(axis=(1, 2)) / values[:, -1]
        worst = max(worst, float((largest + error * np.maximum(largest, scale)).max()))
    return worst


def covariance(program: CliqueProgram, blocks: Sequence[Array]) -> Array:
    """R = sum_c E_c P_c E_c^T, shape (n, n), exactly symmetric.

    Args:
        blocks: P_c, shape (k, k), in the order of ``program.cliques``.
    """
    return _restricted(program, blocks, ())


def judge(program: CliqueProgram, blocks: Sequence[Any], *, bound: float) -> Certificate:
    """Certificate of a design: its objective, and its squared sensitivity over the budget.

    The largest over the coalitions and the nodes outside them; infinite where a block is not
    positive semidefinite or R_A is singular.
    """
    total = covariance(program, blocks)
    worst = _worst_ratio(program, blocks) if _semidefinite(blocks) else float("inf")
    ratio = None if program.cap is None else float((np.diagonal(total) / program.cap).max())
    return Certificate(
        objective=float(np.sum(program.gram * total)),
        lower_bound=bound,
        sensitivity_squared=worst,
        variance_ratio=ratio,
    )


def _worst_ratio(program: CliqueProgram, blocks: Sequence[Array]) -> float:
    worst = 0.0
    for coalition in program.coalitions:
        rest = np.setdiff1d(np.arange(program.size), coalition)
        unknown = _restricted(program, blocks, coalition)[np.ix_(rest, rest)]
        try:
            precision = np.diagonal(_linalg.inverse_of_positive(unknown))
        except np.linalg.LinAlgError:
            return float("inf")
        worst = max(worst, float((precision / program.budget[rest]).max()))
    return worst


def _restricted(program: CliqueProgram, blocks: Sequence[Array], known: Clique) -> Array:
    """Sum of the blocks that no node of ``known`` shares."""
    total = np.zeros((program.size, program.size))
    for clique, block in zip(program.cliques, blocks, strict=True):
        if not set(known) & set(clique):
            total[np.ix_(clique, clique)] += (block + block.T) / 2
    return total


def _semidefinite(blocks: Sequence[Array]) -> bool:
    for block in blocks:
        values = np.linalg.eigvalsh(block)
        if values[0] < -ROUNDING * settings.rank_tolerance(len(block)) * values[-1]:
            return False
    return True


def _canonical(cliques: Cliques, size: int, known: int) -> Cliques:
    checked = []
    for clique in cliques:
        nodes = tuple(sorted(_checks.positive_int(i, field="cliques", minimum=0) for i in clique))
        if not nodes or len(set(nodes)) != len(nodes) or nodes[-1] >= size:
            raise InputError(
                "cliques", expected=f"distinct nodes out of 0..{size - 1}", got=str(tuple(clique))
            )
        checked.append(nodes)
    if known:
        private = [(node,) for node in range(size)]
        return tuple(sorted({*private, *(c for c in checked if len(c) + known <= size)}))
    missing = sorted(set(range(size)).difference(*checked))
    if missing:
        raise InputError(
            "cliques", expected="every node in a clique", got=f"none with {missing[0]}"
        )
    return maximal(checked)
