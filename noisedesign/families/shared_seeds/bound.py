"""What multipliers prove of covariances of shared seeds, and the judge of one. No solver.

Any v_A >= 0 and N_A >= 0, one pair per coalition, and w >= 0 with

    sum of N_A over the coalitions that leave c alone, restricted to c   <=   (H + diag(w))_cc

for every set c prove  tr(H R) >= sum_A (tr (V_A^1/2 N_A V_A^1/2)^1/2)^2 / <budget, v_A> -
<cap, w>, because <N, R> + <v, diag(R^-1)> >= 2 tr((V^1/2 N V^1/2)^1/2) for every R > 0 and the
scale of v is free. Entries of N between nodes that share no set are free too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from noisedesign.base import linalg as _linalg, settings
from noisedesign.base.checks import Array, InputError
from noisedesign.families.shared_seeds.program import (
    ROUNDING,
    Nodes,
    SeedProgram,
    SeedSets,
    by_size,
)
from noisedesign.program.certificate import Certificate

LEAST_PRICE = 1e-12
"""Price of noise, relative to the mean of diag(H), that a cap's multiplier is raised to where a
set's block of H is singular: the bound loses about that much, and division stays defined."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Multipliers:
    """Multipliers: N_A = F_A^T F_A, so that it is positive semidefinite whatever F_A is.

    Shapes: ``factors`` (coalitions, n, n), ``weights`` v (coalitions, n), ``cap`` w (n,) or None.
    """

    factors: Array
    weights: Array
    cap: Array | None = None

    @classmethod
    def of_matrices(
        cls, matrices: Sequence[Array], *, weights: Sequence[Array], cap: Array | None
    ) -> Multipliers:
        """Of N_A, whose negative eigenvalues are rounding."""
        factors = []
        for matrix in matrices:
            values, vectors = np.linalg.eigh(matrix)
            factors.append((vectors * np.sqrt(np.maximum(values, 0.0))).T)
        return cls(factors=np.stack(factors), weights=np.stack(weights), cap=cap)

    def denormalized(self, budget: Array, *, unit: float) -> Multipliers:
        """Those of a program from those with its budgets divided by ``budget``, H by ``unit``."""
        return Multipliers(
            factors=self.factors * np.sqrt(budget) * np.sqrt(unit),
            weights=self.weights / budget * unit,
            cap=None if self.cap is None else self.cap * budget * unit,
        )


def lower_bound(program: SeedProgram, multipliers: Multipliers) -> float:
    """What the multipliers prove once repaired; 0 where they prove nothing.

    Repair: weights and w are clipped at 0, columns of known nodes dropped, and all N_A divided by
    the largest generalised eigenvalue against (H + diag(w))_cc over the sets c. Rounding is
    subtracted.
    """
    prices = np.zeros(program.size)
    if program.cap is not None and multipliers.cap is not None:
        prices = np.maximum(multipliers.cap, 0.0)
    given = (multipliers.factors, multipliers.weights, prices)
    if not all(np.isfinite(array).all() for array in given):
        return 0.0
    outside = np.ones(multipliers.weights.shape)  # 0 where a node is of the coalition
    for row, coalition in zip(outside, program.coalitions, strict=True):
        row[list(coalition)] = 0.0
    factors = multipliers.factors * outside[:, None]
    weights = np.maximum(multipliers.weights, 0) * outside
    worst = _largest_eigenvalue(program, factors, outside, prices)
    if worst is None and program.cap is not None:
        prices = np.maximum(prices, LEAST_PRICE * float(np.diagonal(program.gram).mean()))
        worst = _largest_eigenvalue(program, factors, outside, prices)
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


def _largest_eigenvalue(
    program: SeedProgram, factors: Array, outside: Array, prices: Array
) -> float | None:
    """max over sets of lambda_max of N_c against (H + diag(w))_cc, rounding added.

    None where some (H + diag(w))_cc is singular to working precision.
    """
    worst, gram = 0.0, program.gram + np.diag(prices)
    for _, members in by_size(program.sets):
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


def covariance(program: SeedProgram, blocks: Sequence[Array], known: Nodes = ()) -> Array:
    """R = sum_c E_c P_c E_c^T, shape (n, n), exactly symmetric.

    Args:
        blocks: P_c, shape (k, k), in the order of ``program.sets``.
        known: nodes whose seeds are left out.
    """
    total = np.zeros((program.size, program.size))
    for nodes, block in zip(program.sets, blocks, strict=True):
        if not set(known) & set(nodes):
            total[np.ix_(nodes, nodes)] += (block + block.T) / 2
    return total


def judge(program: SeedProgram, blocks: Sequence[Array], *, bound: float) -> Certificate:
    """Certificate of a design: its objective, and its squared sensitivity over the budget.

    The largest over the coalitions and the nodes outside them; infinite where a block is not
    positive semidefinite or R_A is singular.
    """
    total = covariance(program, blocks)
    return Certificate(
        objective=float(np.sum(program.gram * total)),
        lower_bound=bound,
        sensitivity_squared=_worst_ratio(program, blocks),
        variance_ratio=None
        if program.cap is None
        else float((np.diagonal(total) / program.cap).max()),
    )


def _worst_ratio(program: SeedProgram, blocks: Sequence[Array]) -> float:
    worst = 0.0
    for block in blocks:
        values = np.linalg.eigvalsh(block)
        if values[0] < -ROUNDING * settings.rank_tolerance(len(block)) * values[-1]:
            return float("inf")
    for coalition in program.coalitions:
        rest = np.setdiff1d(np.arange(program.size), coalition)
        unknown = covariance(program, blocks, coalition)[np.ix_(rest, rest)]
        try:
            precision = np.diagonal(_linalg.inverse_of_positive(unknown))
        except np.linalg.LinAlgError:
            return float("inf")
        worst = max(worst, float((precision / program.budget[rest]).max()))
    return worst


def blocks_of(sets: SeedSets, flat: Array) -> tuple[Array, ...]:
    """The blocks P_c, shape (k, k), of sets of nodes that may share seeds, from how they are
    stored: one after the other and row by row.

    Raises:
        InputError: their number of entries is not that of the sets.
    """
    lengths = [len(nodes) for nodes in sets]
    ends = np.cumsum([length**2 for length in lengths])
    if flat.shape != (int(ends[-1]),):
        raise InputError(
            "design file.clique_blocks", expected=f"{ends[-1]} entries", got=f"shape {flat.shape}"
        )
    split = np.split(flat, ends[:-1])
    return tuple(part.reshape(k, k) for part, k in zip(split, lengths, strict=True))
