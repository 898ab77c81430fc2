"""Lower bounds by multipliers on covariances of shared seeds, and their judge: no solver.

Any v_A >= 0 and N_A >= 0, one pair per coalition, and w >= 0 with

    sum of N_A over the coalitions that leave c alone, restricted to c   <=   (H + diag(w))_cc

for every set c prove  tr(H R) >= sum_A (tr (V_A^1/2 N_A V_A^1/2)^1/2)^2 / <budget, v_A> -
<cap, w>, because <N, R> + <v, diag(R^-1)> >= 2 tr((V^1/2 N V^1/2)^1/2) for every R > 0 and the
scale of v is free. Entries of N between nodes that share no set are free too."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisedesign.base import linalg as _linalg, settings
from noisedesign.base.checks import Array, InputError
from noisedesign.base.enclosures import (
    EPS,
    TINY,
    Enclosure,
    Interval,
    Rounded,
    U,
    gram,
    inner,
    products_up,
    symmetric_part,
    up,
)
from noisedesign.base.linalg import symmetrized
from noisedesign.certify.certificate import Certificate
from noisedesign.certify.polar import nuclear_norm
from noisedesign.certify.rigorous import (
    NEGLIGIBLE_SHIFT,
    Judged,
    NotProvedError,
    factor_below,
    judge_covariance,
    precisions_above,
    ratio_above,
    squared_over,
)
from noisedesign.families.shared_seeds.layout import Layout
from noisedesign.families.shared_seeds.program import (
    ROUNDING,
    Members,
    Nodes,
    SeedProgram,
    SeedSets,
    by_size,
)

# Least multiplier of a cap, relative to the mean of diag(H), where a set's block of H is singular:
# the bound loses about that much.
LEAST_PRICE = 1e-12


@dataclass(frozen=True, kw_only=True, eq=False)
class Multipliers:
    """Multipliers: N_A = F_A^T F_A, F = ``factors`` (coalitions, rows, n), v = ``weights``
    (coalitions, n), w = ``cap`` (n,), of these ``coalitions``, by default all."""

    factors: Array
    weights: Array
    cap: Array | None = None
    coalitions: tuple[Nodes, ...] | None = None

    @classmethod
    def of_factors(cls, factors: Iterable[Array], *, weights: Any, **of: Any) -> Multipliers:
        """The multipliers of F_A; rows of zeros are left out as far as they can be."""
        kept = [factor[factor.any(axis=1)] for factor in factors]
        rows = np.zeros((len(kept), max(map(len, kept)), kept[0].shape[1]))
        for own, factor in zip(rows, kept, strict=True):
            own[: len(factor)] = factor
        return cls(factors=rows, weights=np.stack(weights), **of)

    def denormalized(self, budget: Array, *, unit: float) -> Multipliers:
        """Undo a division of budgets by ``budget`` and of H by ``unit``."""
        return replace(
            self,
            factors=self.factors * np.sqrt(budget) * np.sqrt(unit),
            weights=self.weights / budget * unit,
            cap=None if self.cap is None else self.cap * budget * unit,
        )


def lower_bound(program: SeedProgram, multipliers: Multipliers) -> float:
    """Repair the multipliers and return what they prove, less rounding; 0 if nothing."""
    repaired = _repaired(program, multipliers)
    if repaired is None:
        return 0.0
    bound = sum(gain for gain, _ in _gains(program, repaired))
    if program.cap is not None:
        bound -= float(program.cap @ repaired.prices)
    return bound * (1 - ROUNDING * settings.rank_tolerance(program.size)) if bound > 0 else 0.0


def prices(program: SeedProgram, multipliers: Multipliers) -> Array:
    """Elasticity of the bound to every budget, shape (n,); zeros where it proves nothing."""
    bound, repaired = lower_bound(program, multipliers), _repaired(program, multipliers)
    found = np.zeros(program.size)
    if repaired is not None and bound > 0:
        for gain, share in _gains(program, repaired):
            paid = program.budget * share
            found += gain / bound * paid / paid.sum()
    return found


def _gains(program: SeedProgram, repaired: _Repaired) -> Iterator[tuple[float, Array]]:
    """The part of the bound of every coalition that has a price, and v, the largest being 1."""
    for factor, v in zip(repaired.factors, repaired.weights, strict=True):
        if v.max() > 0:
            share = v / v.max()
            trace = _linalg.nuclear_norm(factor * np.sqrt(share))
            yield trace**2 / float(program.budget @ share) / repaired.worst, share


class _Repaired(NamedTuple):
    """Multipliers without what is out of place, and the factor by which they exceed the program."""

    factors: Array
    weights: Array
    outside: Array
    prices: Array
    worst: float


def _repaired(program: SeedProgram, multipliers: Multipliers) -> _Repaired | None:
    """None where they are no numbers, or prove nothing."""
    prices = np.zeros(program.size)
    if program.cap is not None and multipliers.cap is not None:
        prices = np.maximum(multipliers.cap, 0.0)
    given = (multipliers.factors, multipliers.weights, prices)
    if not all(np.isfinite(array).all() for array in given):
        return None
    outside = np.ones(multipliers.weights.shape)  # 0 where a node is of the coalition
    coalitions = program.coalitions if multipliers.coalitions is None else multipliers.coalitions
    for row, coalition in zip(outside, coalitions, strict=True):
        row[list(coalition)] = 0.0
    factors = multipliers.factors * outside[:, None]
    weights = np.maximum(multipliers.weights, 0) * outside
    worst = largest_eigenvalue(program, factors, outside, prices)
    if worst is None and program.cap is not None:
        prices = np.maximum(prices, LEAST_PRICE * float(np.diagonal(program.gram).mean()))
        worst = largest_eigenvalue(program, factors, outside, prices)
    if worst is None or not 0 < worst < np.inf:
        return None
    return _Repaired(factors, weights, outside, prices, worst)


def largest_eigenvalue(
    program: SeedProgram, factors: Array, outside: Array, prices: Array
) -> float | None:
    """max over sets of lambda_max of N_c against (H + diag(w))_cc; None if one is singular."""
    worst, gram = 0.0, program.gram + (np.diag(prices) if len(prices) else 0.0)
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
    """R = sum_c E_c P_c E_c^T, shape (n, n), exactly symmetric, without sets of ``known`` nodes."""
    layout, flat = _flat(program, blocks)
    return layout.assemble(flat * layout.untouched(known))


def _flat(program: SeedProgram, blocks: Sequence[Array]) -> tuple[Layout, Array]:
    layout = Layout(program.sets, program.size)
    return layout, layout.symmetrized(layout.flat(blocks))


def judge(program: SeedProgram, blocks: Sequence[Array], *, bound: float) -> Certificate:
    """Certificate of a design; an R_A or a block that is not positive has infinite sensitivity."""
    total, cap = covariance(program, blocks), program.cap
    return Certificate(
        objective=float(np.sum(program.gram * total)),
        lower_bound=bound,
        sensitivity_squared=_worst_ratio(program, blocks),
        variance_ratio=None if cap is None else float((np.diagonal(total) / cap).max()),
    )


def _worst_ratio(program: SeedProgram, blocks: Sequence[Array]) -> float:
    worst, (layout, flat) = 0.0, _flat(program, blocks)
    for own in layout.split(flat):
        values = np.linalg.eigvalsh(own)
        least = -ROUNDING * settings.rank_tolerance(own.shape[1]) * values[:, -1]
        if (values[:, 0] < least).any():
            return float("inf")
    for coalition in program.coalitions:
        rest = np.setdiff1d(np.arange(program.size), coalition)
        unknown = layout.assemble(flat * layout.untouched(coalition))[np.ix_(rest, rest)]
        try:
            precision = np.diagonal(_linalg.inverse_of_positive(unknown))
        except np.linalg.LinAlgError:
            return float("inf")
        worst = max(worst, float((precision / program.budget[rest]).max()))
    return worst


def blocks_of(sets: SeedSets, flat: Array) -> tuple[Array, ...]:
    """The blocks P_c, shape (k, k), from how they are stored: one after the other, row by row."""
    ends = np.cumsum([len(nodes) ** 2 for nodes in sets])
    if flat.shape != (int(ends[-1]),):
        expected, got = f"{ends[-1]} entries", f"shape {flat.shape}"
        raise InputError("design file.clique_blocks", expected=expected, got=got)
    pairs = zip(np.split(flat, ends[:-1]), map(len, sets), strict=True)
    return tuple(part.reshape(k, k) for part, k in pairs)


def multipliers_of(program: SeedProgram, proof: Mapping[str, Array]) -> Multipliers:
    """The multipliers of a design file, once their shapes and coalitions are checked."""
    size, known = program.size, program.known_seeds
    factors, weights = proof["dual_factors"], proof["dual_prices"]
    coalitions = None
    if "dual_coalitions" in proof:
        stored = proof["dual_coalitions"]
        whole = stored.ndim == 2 and stored.shape[1] == known
        of_nodes = whole and np.isin(stored, np.arange(size)).all()
        coalitions = tuple(map(tuple, stored.astype(np.intp).tolist())) if of_nodes else ()
        ascending = of_nodes and (np.diff(stored, axis=1) > 0).all()
        if not ascending or len(set(coalitions)) < len(coalitions):
            raise InputError(
                "design file.dual_coalitions",
                expected=f"rows of {known} different nodes in ascending order, none twice",
                got=f"shape {stored.shape}",
            )
    count = math.comb(size, known) if coalitions is None else len(coalitions)
    for name, shape in (
        ("dual_factors", (count, *factors.shape[1:2], size)),
        ("dual_prices", (count, size)),
    ):
        if proof[name].shape != shape:
            expected, got = f"{count} coalitions of {size} nodes", f"shape {proof[name].shape}"
            raise InputError(f"design file.{name}", expected=expected, got=got)
    return Multipliers(
        factors=factors, weights=weights, cap=proof.get("dual_cap"), coalitions=coalitions
    )


def rigorous_bound(
    program: SeedProgram, multipliers: Multipliers, *, enough: float = 0.0
) -> Interval:
    """The bound of :func:`lower_bound` with every rounding accounted for."""
    repaired = _repaired(program, multipliers)
    if repaired is None:
        raise NotProvedError("the multipliers prove nothing")
    factors, weights, outside, prices, worst = repaired
    scale = _proved_scale(program, factors, outside, prices, worst)
    norms = []
    for factor, v in zip(factors, weights, strict=True):
        if v.max() > 0:
            roots = np.sqrt(v / v.max())
            half = factor * roots
            price = products_up(program.budget, up(np.square(roots), 1))
            bounds = nuclear_norm(Rounded(half, 1))
            norms.append(squared_over(bounds, price))
    paid = 0.0 if program.cap is None else products_up(program.cap, prices)
    lower = math.fsum(norm.lower for norm in norms) / scale * (1 - 4 * EPS)
    upper = math.fsum(norm.upper for norm in norms) / scale * (1 + 4 * EPS)
    room = 4 * EPS * (lower + paid)
    return Interval(lower - paid - room, upper - paid + room)


def _proved_scale(
    program: SeedProgram, factors: Array, outside: Array, prices: Array, worst: float
) -> float:
    """s, hardly above ``worst``, for which s (H + diag(w)) is proved to be above on every set."""
    squares = [gram(factor) for factor in factors]
    h = symmetric_part(program.gram)
    if prices.any():
        h = h.plus(Enclosure(np.diag(prices), np.zeros(())))
    margin = ROUNDING * settings.rank_tolerance(1)
    while margin < settings.sqrt_eps():
        scale = worst * (1 + margin)
        if all(_above(scale, h, squares, outside, members) for _, members in by_size(program.sets)):
            return scale
        margin *= 4
    raise NotProvedError("the multipliers are not proved feasible")


def _above(
    scale: float, h: Enclosure, squares: Sequence[Enclosure], outside: Array, members: Members
) -> bool:
    """Whether s H_c is above the sum of the N_A, A outside of c, on all of these sets c."""
    rows, columns = members[:, :, None], members[:, None, :]
    mid = scale * h.mid[rows, columns]
    rad = scale * np.broadcast_to(h.rad, h.mid.shape)[rows, columns] + 2 * U * np.abs(mid)
    for square, free in zip(squares, outside, strict=True):
        kept = free[members].all(axis=1)[:, None, None]
        mid = mid - np.where(kept, square.mid[rows, columns], 0.0)
        rad = rad + np.where(kept, square.rad[rows, columns], 0.0) + 2 * U * np.abs(mid)
    rad = np.asarray(up(rad, 4 * len(squares) + 4))
    return bool(semidefinite(mid, rad).all())


def semidefinite(mid: Array, rad: Array) -> NDArray[np.bool_]:
    """Say which symmetric blocks, shape (p, k, k), are proved positive semidefinite, shape (p,)."""
    least = np.einsum("pii->pi", mid) - np.einsum("pii->pi", rad)
    least = least * (1 - 2 * EPS)
    proved: NDArray[np.bool_] = np.asarray((least >= 0).all(axis=1), dtype=np.bool_)
    if mid.shape[1] == 1:
        return proved
    if mid.shape[1] == 2:
        off = up(np.abs(mid[:, 0, 1]) + rad[:, 0, 1], 1)
        return np.asarray(proved & (up(off * off, 1) <= least[:, 0] * least[:, 1] * (1 - 2 * EPS)))
    for j in np.flatnonzero(proved):
        try:
            factor_below(Enclosure(mid[j], rad[j]))
        except NotProvedError:
            proved[j] = False
    return proved


def rigorous_judge(program: SeedProgram, blocks: Sequence[Array], stored: Array) -> Judged:
    """:func:`judge` with every rounding accounted for, of raised blocks and of ``stored`` R."""
    layout, flat = _flat(program, raised_blocks(blocks))
    total, worst = _sum_of(layout, flat), 0.0
    for coalition in program.coalitions:
        rest = np.setdiff1d(np.arange(program.size), coalition)
        seen = total if not coalition else _sum_of(layout, flat, coalition)
        block = np.ix_(rest, rest)
        for above in precisions_above(Enclosure(seen.mid[block], seen.rad[block])):
            ratio = ratio_above(above, program.budget[rest])
            if ratio <= 1:
                break
        worst = max(worst, ratio)
    alone = judge_covariance(program, stored)
    over_cap = alone.variance_ratio
    if program.cap is not None and over_cap is not None:
        over_cap = max(over_cap, ratio_above(np.diagonal(total.largest), program.cap))
    objectives = inner(total, program.gram), alone.objective
    return Judged(
        objective=Interval(min(o.lower for o in objectives), max(o.upper for o in objectives)),
        sensitivity_squared=max(worst, alone.sensitivity_squared),
        variance_ratio=over_cap,
    )


def raised_blocks(blocks: Sequence[Array]) -> list[Array]:
    """The blocks, with the least multiple of EPS on their diagonals that proves them >= 0."""
    found = []
    for block in blocks:
        middle = symmetrized(block)
        size = max(float(np.abs(middle).max()), TINY)
        for share in (0.0, *(4.0**j * EPS for j in range(20) if 4.0**j * EPS < NEGLIGIBLE_SHIFT)):
            raised = middle + share * size * np.eye(len(middle))
            if semidefinite(raised[None], np.zeros((1, *raised.shape)))[0]:
                found.append(raised)
                break
        else:
            raise NotProvedError("a block is not positive semidefinite")
    return found


def _sum_of(layout: Layout, flat: Array, known: Nodes = ()) -> Enclosure:
    """R = sum_c E_c P_c E_c^T without the sets of known nodes, with its rounding."""
    parts, kept = (flat, np.abs(flat), np.ones(len(flat))), layout.untouched(known)
    total, absolute, count = (layout.assemble(part * kept) for part in parts)
    rad = np.where(count > 1, count * U * absolute, 0.0)  # the first is added to zero
    return Enclosure(total, np.asarray(up(rad, int(count.max()))))
