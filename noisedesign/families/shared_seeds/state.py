"""One iterate of the interior-point method for covariances of shared seeds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisedesign.base import linalg as _linalg
from noisedesign.base import settings
from noisedesign.base.checks import Array
from noisedesign.families.shared_seeds.blocks import Layout, congruence, inverses
from noisedesign.families.shared_seeds.program import SeedProgram

NEAR = 1e-3
"""Relative gap below which N of the multipliers is the better one, where there is one."""
START_SHIFT = 1e-2
"""Added to the blocks of H, relative to their mean diagonal, before they are inverted to start."""
START_SHARE = 0.5
"""Share of the largest feasible N to start from."""
MARGIN = 4
"""Multiple of size * EPS * condition that R is enlarged by, so that budgets hold after rounding."""


class Hidden(NamedTuple):
    """What one coalition leaves: ``nodes`` outside it and ``kept`` entries of the flat vector."""

    nodes: NDArray[np.intp]
    kept: NDArray[np.bool_] | None  # None: all of them


class Setting:
    """What stays the same from iterate to iterate. The program has unit budgets."""

    def __init__(self, program: SeedProgram) -> None:
        self.program = program
        self.gram = program.gram
        self.cap = np.zeros(0) if program.cap is None else program.cap
        """Empty where nothing is capped, and so are prices and room of every point."""
        self.layout = layout = Layout(program.sets, program.size)
        self.gram_blocks = layout.gather(program.gram)
        self.hidden = [self._hidden(coalition) for coalition in program.coalitions]
        constraints = sum(len(h.nodes) for h in self.hidden)
        self.order = layout.order_of_cone + constraints + len(self.cap)
        """Order of the barrier: the gap on the central path is this many times mu."""

    def _hidden(self, coalition: tuple[int, ...]) -> Hidden:
        nodes = np.setdiff1d(np.arange(self.program.size), coalition)
        if not coalition:
            return Hidden(nodes, None)
        masks = []
        for members in self.layout.members:
            free = ~np.isin(members, coalition).any(axis=1)
            k = members.shape[1]
            masks.append(np.repeat(free, k * k))
        return Hidden(nodes, np.concatenate(masks))

    def restrict(self, flat: Array, index: int) -> Array:
        """The blocks that coalition ``index`` does not touch, zeros elsewhere."""
        kept = self.hidden[index].kept
        return flat if kept is None else flat * kept

    def precisions(self, flat: Array) -> list[Array]:
        """R_A^-1 for every coalition, zero in the rows and columns of A.

        Raises:
            numpy.linalg.LinAlgError: some R_A is not positive definite.
        """
        found = []
        for index, (nodes, kept) in enumerate(self.hidden):
            total = self.layout.assemble(self.restrict(flat, index))
            if kept is None:
                found.append(_linalg.inverse_of_positive(total))
                continue
            inside = np.ix_(nodes, nodes)
            precision = np.zeros_like(total)
            precision[inside] = _linalg.inverse_of_positive(total[inside])
            found.append(precision)
        return found

    def slacks(self, precisions: list[Array]) -> list[Array]:
        """1 - [R_A^-1]_ii; 1 for the nodes of A, whose multipliers are 0."""
        return [1 - np.diagonal(precision) for precision in precisions]

    def room(self, flat: Array) -> Array:
        """cap - R_ii."""
        return self.cap - self.variances(flat) if len(self.cap) else self.cap

    def priced(self, prices: Array) -> Array:
        """(H + diag(w))_cc."""
        return self.layout.gather(self.gram + np.diag(prices)) if len(prices) else self.gram_blocks

    def largest_share(self, curvatures: list[Array], prices: Array) -> float:
        """Largest eigenvalue of sum_A (N_A)_cc against (H + diag(w))_cc over the sets c."""
        layout = self.layout
        total = np.zeros_like(self.gram_blocks)
        for index, curvature in enumerate(curvatures):
            total += self.restrict(layout.gather(curvature), index)
        worst = 0.0
        for block, part in zip(layout.split(self.priced(prices)), layout.split(total), strict=True):
            half = np.linalg.inv(np.linalg.cholesky(block))
            worst = max(worst, float(np.linalg.eigvalsh(congruence(half, part))[:, -1].max()))
        return worst

    def proved(
        self, curvatures: list[Array], traces: list[float], weights: list[Array], prices: Array
    ) -> float:
        """The dual bound but for the price of the caps, every N_A scaled down to be feasible."""
        pairs = zip(traces, weights, strict=True)
        bound = sum(trace**2 / float(v.sum()) for trace, v in pairs)
        return bound / self.largest_share(curvatures, prices)

    def independent(self, variance: Array) -> Array:
        """Independent noise as blocks, within the budgets where ``variance`` is above 1.

        A node's variance is in equal shares on its sets. Where coalitions look, those shares
        are of half of what is above 1: the rest is on the seed of its own, which nobody knows.
        """
        layout = self.layout
        shares = self._equal_shares(variance)
        if len(self.hidden) > 1:
            shares = self._equal_shares((variance - 1) / 2)
            alone = (1 + variance) / 2
            for share, members in zip(shares, layout.members, strict=True):
                if members.shape[1] == 1:
                    share += alone[members]
        return layout.join([share[:, :, None] * np.eye(share.shape[1]) for share in shares])

    def _equal_shares(self, variance: Array) -> list[Array]:
        layout = self.layout
        share = variance / layout.node_sums([np.ones(m.shape) for m in layout.members])
        return [share[m] for m in layout.members]

    def variances(self, flat: Array) -> Array:
        diagonals = [np.einsum("mii->mi", block) for block in self.layout.split(flat)]
        return self.layout.node_sums(diagonals)


@dataclass(kw_only=True, eq=False)
class Point:
    """Blocks P and their multipliers S; v of every budget, w of every cap; what follows from P.

    ``curvature`` is N of the multipliers, (H + diag(w) - N)_cc = S but for what the start and
    rounding leave; it meets R^-1 diag(v) R^-1 at the optimum. None with coalitions.
    """

    blocks: Array
    dual: Array
    weights: list[Array]
    prices: Array
    precisions: list[Array]
    slacks: list[Array]
    room: Array  # cap - R_ii
    curvature: Array | None

    def complementarity(self) -> float:
        total = float(self.blocks @ self.dual)
        total += sum(float(v @ s) for v, s in zip(self.weights, self.slacks, strict=True))
        return total + float(self.prices @ self.room)

    def curvatures(self) -> list[Array]:
        """R_A^-1 diag(v_A) R_A^-1."""
        pairs = zip(self.precisions, self.weights, strict=True)
        return [(precision * v) @ precision for precision, v in pairs]


def start(setting: Setting) -> Point:
    """Noise that is larger where it costs less, well within every constraint; S and v to match.

    With caps, independent noise halfway between budget and cap.
    """
    layout = setting.layout
    if not len(setting.cap):
        costs = layout.split(setting.gram_blocks)
        unit = float(np.diagonal(setting.gram).mean())
        shifted = [cost + START_SHIFT * unit * np.eye(cost.shape[1]) for cost in costs]
        blocks = inverses(layout, layout.join(shifted))
        blocks = layout.scaled(blocks, np.sqrt(2) * rescaling(setting.precisions(blocks)))
    else:
        blocks = setting.independent(np.minimum(2.0, (1 + setting.cap) / 2))
    precisions = setting.precisions(blocks)
    slacks = setting.slacks(precisions)
    mu = float(setting.gram_blocks @ blocks) / setting.order
    room = setting.room(blocks)
    prices = mu / room
    weights = []
    for (nodes, _), s in zip(setting.hidden, slacks, strict=True):
        weights.append(np.zeros(layout.size))
        weights[-1][nodes] = mu / s[nodes]
    dual, curvature = mu * inverses(layout, blocks), None
    if len(setting.hidden) == 1:
        # Multipliers that are feasible from the start.
        square = precisions[0] @ precisions[0]
        share = START_SHARE / setting.largest_share([square], prices)
        curvature, weights = share * square, [np.full(layout.size, share)]
        dual = setting.priced(prices) - layout.gather(curvature)
    return Point(
        blocks=blocks,
        dual=dual,
        weights=weights,
        prices=prices,
        precisions=precisions,
        slacks=slacks,
        room=room,
        curvature=curvature,
    )


def rescaling(precisions: list[Array]) -> Array:
    """Factors of the rows that make every node meet the tightest of its budgets exactly."""
    return np.asarray(np.sqrt(np.max([np.diagonal(x) for x in precisions], axis=0)))


def bounds(setting: Setting, point: Point) -> tuple[float, float, list[Array]]:
    """Lower bound and the N_A that prove it; objective, with rows rescaled or not.

    N_A is of the multipliers, or computed from R where that may prove more.
    """
    scaled = setting.layout.scaled(point.blocks, rescaling(point.precisions))
    upper = min(float(setting.gram_blocks @ point.blocks), float(setting.gram_blocks @ scaled))
    cost = float(setting.cap @ point.prices)
    best, proof = 0.0, [np.zeros_like(setting.gram)] * len(point.weights)
    if point.curvature is not None:
        # Only its entries on the sets are feasible: as a whole it may be indefinite.
        values, vectors = np.linalg.eigh(point.curvature)
        half = vectors * np.sqrt(np.maximum(values, 0.0))
        trace = _linalg.nuclear_norm(np.sqrt(point.weights[0])[:, None] * half)
        proof = [half @ half.T]
        best = setting.proved(proof, [trace], point.weights, point.prices) - cost
    if point.curvature is None or upper - best > NEAR * upper:
        computed = point.curvatures()
        pairs = zip(point.weights, point.precisions, strict=True)
        traces = [float(v @ np.diagonal(x)) for v, x in pairs]
        other = setting.proved(computed, traces, point.weights, point.prices) - cost
        if other > best:
            best, proof = other, computed
    return best, upper, proof


# --- exactly feasible ---------------------------------------------------------------------------


def feasible_blocks(
    setting: Setting, blocks: Array, program: SeedProgram
) -> tuple[Array, ...] | None:
    """Blocks of the least objective found that keep budgets and caps; None where none do.

    They are given in the normalised units of ``setting``, flat, and come back in those of
    ``program``, in the order of its sets.

    Rows rescaled to use up budgets exactly, or not, where some budget is better left slack; where
    a cap is in the way, blended with independent noise. Variances and diag(R_A^-1) are convex in
    R, so a blend with noise strictly within them gets there.
    """
    layout = setting.layout
    try:
        row = rescaling(setting.precisions(blocks))
    except np.linalg.LinAlgError:
        return None
    kept = [blocks, layout.scaled(blocks, row)]
    found = [
        made for made in (_enlarged(setting, candidate) for candidate in kept) if made is not None
    ]
    if not found:
        return None
    best = min(found, key=lambda made: float(setting.gram_blocks @ made))
    return tuple(layout.listed(layout.scaled(best, 1 / np.sqrt(program.budget))))


def _enlarged(setting: Setting, blocks: Array) -> Array | None:
    layout, share = setting.layout, 0.0
    variance = (1 + setting.cap) / 2 if len(setting.cap) else np.full(layout.size, 2.0)
    inside = setting.independent(variance)
    while share <= 1:
        blend = (1 - share) * blocks + share * inside
        try:
            precisions = setting.precisions(blend)
        except np.linalg.LinAlgError:
            return None
        variance = setting.variances(blend)
        condition = max(float((np.diagonal(x) * variance).max()) for x in precisions)
        margin = MARGIN * settings.rank_tolerance(layout.size) * max(1.0, condition)
        used = max(float(np.diagonal(x).max()) for x in precisions)
        enlarged = blend * (1 + margin)
        within = not len(setting.cap) or (variance * (1 + 2 * margin) <= setting.cap).all()
        if used <= 1 + margin / 2 and within:
            return np.asarray(enlarged)
        share = max(2 * share, settings.EPS)
    return None
