"""One iterate of the interior-point method for covariances of shared seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisedesign.base import linalg as _linalg, settings
from noisedesign.base.checks import Array
from noisedesign.base.monitor import Stop
from noisedesign.families.shared_seeds.bound import Multipliers, covariance
from noisedesign.families.shared_seeds.coalitions import Coalitions
from noisedesign.families.shared_seeds.layout import (
    Coordinates,
    Layout,
    Places,
    congruence,
    inverses,
)
from noisedesign.families.shared_seeds.program import Nodes, SeedProgram
from noisedesign.program.family import Answer
from noisedesign.program.noise import Noise

NEAR = 1e-3
"""Relative gap below which N of the multipliers is the better one, where there is one."""
FEW_COORDINATES, MOST_EXPLICIT = 300, 4000
"""Entries of all blocks up to which the matrices of Newton systems are formed from the start, and
once conjugate gradients take too many products; with coalitions they would at once."""
START_SHIFT = 1e-2
"""Added to the blocks of H, relative to their mean diagonal, before they are inverted to start."""
START_SHARE = 0.5
"""Share of the largest feasible N to start from."""
NO_PRICES = np.zeros(0)
MARGIN = 16
"""Multiple of size * EPS * condition that R is enlarged by, so that budgets hold after rounding,
and are proved to."""


class Hidden(NamedTuple):
    """What one coalition leaves: ``nodes`` outside it and ``kept`` entries of the flat vector; the
    nodes whose budgets are ``watched``, not below what others leave of them."""

    coalition: Nodes
    nodes: Places
    kept: NDArray[np.bool_] | None  # None: all of them
    watched: Places
    lost: Places
    """Coordinates of the blocks that are not kept, of nodes outside."""


Watched = Mapping[Nodes, Places]
"""Coalitions that come near a budget, and the nodes whose budgets those are."""


class Setting:
    """What stays the same from iterate to iterate. The program has unit budgets.

    All budgets are watched before all coalitions at first.
    """

    def __init__(self, program: SeedProgram) -> None:
        self.program = program
        self.gram = program.gram
        self.cap = np.zeros(0) if program.cap is None else program.cap
        """Empty where nothing is capped, and so are prices and room of every point."""
        self.layout = layout = Layout(program.sets, program.size)
        self.gram_blocks = layout.gather(program.gram)
        self.every = Coalitions(program, layout)
        size = sum(m.shape[0] * m.shape[1] * (m.shape[1] + 1) // 2 for m in layout.members)
        self.explicit = size <= (MOST_EXPLICIT if program.known_seeds else FEW_COORDINATES)
        """Whether the matrices of Newton systems are formed."""
        largest = max(members.shape[1] for members in layout.members)
        self.of_pairs = largest == 2 and not len(self.cap) and not program.known_seeds
        """Whether all sets are pairs or nodes alone, nothing is capped and nobody knows seeds."""
        everyone = np.arange(program.size)
        self._watch({one: np.setdiff1d(everyone, one) for one in program.coalitions})

    @cached_property
    def coordinates(self) -> Coordinates:
        return Coordinates(self.layout)

    def form(self, needed: bool) -> None:
        """Form the matrices of Newton systems from now on, where that is needed and affordable."""
        if needed and len(self.coordinates.entry) <= MOST_EXPLICIT:
            self.explicit = True

    def _watch(self, watched: Watched) -> None:
        self.hidden = [self._hidden(*one) for one in watched.items()]
        constraints = sum(len(h.watched) for h in self.hidden)
        self.order = self.layout.order_of_cone + constraints + len(self.cap)
        """Order of the barrier: the gap on the central path is this many times mu."""

    def watching(self, watched: Watched) -> Setting:
        """The same with these budgets watched and no others."""
        found = copy(self)
        found._watch(watched)
        return found

    def _hidden(self, coalition: Nodes, watched: Places) -> Hidden:
        nodes = np.setdiff1d(np.arange(self.program.size), coalition)
        if not coalition:
            return Hidden(coalition, nodes, None, watched, nodes[:0])
        masks = []
        for members in self.layout.members:
            free = ~np.isin(members, coalition).any(axis=1)
            masks.append(np.repeat(free, members.shape[1] ** 2))
        kept = np.concatenate(masks)
        return Hidden(coalition, nodes, kept, watched, self.coordinates.lost(kept, nodes))

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
        for hidden in self.hidden:
            nodes, kept = hidden.nodes, hidden.kept
            total = self.layout.assemble(flat if kept is None else flat * kept)
            if kept is None:
                found.append(_linalg.inverse_of_positive(total))
                continue
            inside = np.ix_(nodes, nodes)
            precision = np.zeros_like(total)
            precision[inside] = _linalg.inverse_of_positive(total[inside])
            found.append(precision)
        return found

    def spent(self, point: Point) -> Array:
        """[R_A^-1]_ii of all coalitions, watched or not, shape (coalitions, n)."""
        if not self.program.known_seeds:
            return np.diagonal(point.precisions[0])[None]
        return self.every.spent(point.blocks)

    def slacks(self, precisions: list[Array]) -> list[Array]:
        """1 - [R_A^-1]_ii; 1 where that is not watched, with multipliers of 0."""
        found = []
        for hidden, precision in zip(self.hidden, precisions, strict=True):
            found.append(np.ones(self.program.size))
            found[-1][hidden.watched] -= np.diagonal(precision)[hidden.watched]
        return found

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
        """The dual bound but for the price of the caps, every N_A scaled down to be feasible.

        0, which holds of any noise, where all of them vanish.
        """
        pairs = zip(traces, weights, strict=True)
        bound = sum(trace**2 / float(v.sum()) for trace, v in pairs)
        share = self.largest_share(curvatures, prices)
        return bound / share if share > 0 else 0.0

    def independent(self, variance: Array) -> Array:
        """Independent noise as blocks, within the budgets where ``variance`` is above 1.

        A node's variance is in equal shares on its sets. Where coalitions look, those shares
        are of half of what is above 1: the rest is on the seed of its own, which nobody knows.
        """
        layout = self.layout
        shares = self._equal_shares(variance)
        if self.program.known_seeds:
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
        return curvatures(self.precisions, self.weights)


def first_blocks(setting: Setting) -> Array:
    """Noise that is larger where it costs less, well within every constraint.

    With caps, independent noise halfway between budget and cap.
    """
    layout = setting.layout
    if len(setting.cap):
        return setting.independent(np.minimum(2.0, (1 + setting.cap) / 2))
    costs = layout.split(setting.gram_blocks)
    unit = float(np.diagonal(setting.gram).mean())
    shifted = [cost + START_SHIFT * unit * np.eye(cost.shape[1]) for cost in costs]
    blocks = inverses(layout, layout.join(shifted))
    return layout.scaled(blocks, np.sqrt(2) * rescaling(setting.every.spent(blocks)))


def start(setting: Setting, blocks: Array) -> Point:
    """The point of these blocks, S and v to match."""
    layout = setting.layout
    precisions = setting.precisions(blocks)
    slacks = setting.slacks(precisions)
    mu = float(setting.gram_blocks @ blocks) / setting.order
    room = setting.room(blocks)
    prices = mu / room
    weights = []
    for hidden, s in zip(setting.hidden, slacks, strict=True):
        weights.append(np.zeros(layout.size))
        weights[-1][hidden.watched] = mu / s[hidden.watched]
    dual, curvature = mu * inverses(layout, blocks), None
    if not setting.program.known_seeds:
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


def rescaling(spent: Array) -> Array:
    """Factors of the rows that make every node meet the tightest of its budgets exactly."""
    return np.asarray(np.sqrt(spent.max(axis=0)))


class Found(NamedTuple):
    """What a search ends with: blocks, flat, in the units of the setting; multipliers likewise."""

    blocks: Array | None
    multipliers: Multipliers | None
    gap: float
    stop: Stop
    steps: int


def bounds(setting: Setting, point: Point, spent: Array) -> tuple[float, float, list[Array]]:
    """Lower bound and the F_A that prove it, N_A = F_A^T F_A; objective, with rows rescaled or not.

    Args:
        spent: [R_A^-1]_ii of all coalitions.
    """
    scaled = setting.layout.scaled(point.blocks, rescaling(spent))
    upper = float(setting.gram_blocks @ scaled)
    if spent.max() <= 1:
        upper = min(upper, float(setting.gram_blocks @ point.blocks))
    best, proof = proved_by(
        setting,
        curvature=point.curvature,
        precisions=point.precisions,
        weights=point.weights,
        prices=point.prices,
        upper=upper,
    )
    return best, upper, proof


def proved_by(
    setting: Setting,
    *,
    curvature: Array | None,
    precisions: list[Array],
    weights: list[Array],
    prices: Array = NO_PRICES,
    upper: float,
) -> tuple[float, list[Array]]:
    """Lower bound and the F_A that prove it, by N_A of the multipliers, or computed from R where
    that may prove more of ``upper``."""
    cost = float(setting.cap @ prices)
    best, proof = 0.0, [np.zeros_like(setting.gram)] * len(weights)
    if curvature is not None:
        # Only its entries on the sets are feasible: as a whole it may be indefinite.
        values, vectors = np.linalg.eigh(curvature)
        half = (vectors * np.sqrt(np.maximum(values, 0.0))).T
        trace = _linalg.nuclear_norm(half * np.sqrt(weights[0]))
        proof = [half]
        best = setting.proved([half.T @ half], [trace], weights, prices) - cost
    if curvature is None or upper - best > NEAR * upper:
        traces = [float(v @ np.diagonal(x)) for v, x in zip(weights, precisions, strict=True)]
        matrices = curvatures(precisions, weights)
        other = setting.proved(matrices, traces, weights, prices) - cost
        if other > best:
            best = other
            proof = [np.sqrt(v)[:, None] * x for v, x in zip(weights, precisions, strict=True)]
    return best, proof


def curvatures(precisions: list[Array], weights: list[Array]) -> list[Array]:
    """R_A^-1 diag(v_A) R_A^-1."""
    return [(x * v) @ x for x, v in zip(precisions, weights, strict=True)]


# --- exactly feasible ---------------------------------------------------------------------------


def feasible_blocks(setting: Setting, blocks: Array, program: SeedProgram) -> list[Array] | None:
    """Blocks of the least objective found that keep budgets and caps; None where none do.

    They are given in the normalised units of ``setting``, flat, and come back in those of
    ``program``, in the order of its sets.

    Rows rescaled to use up budgets exactly, or not, where some budget is better left slack; where
    a cap is in the way, blended with independent noise. Variances and diag(R_A^-1) are convex in
    R, so a blend with noise strictly within them gets there.
    """
    layout = setting.layout
    try:
        row = rescaling(setting.every.spent(blocks))
    except np.linalg.LinAlgError:
        return None
    kept = [blocks, layout.scaled(blocks, row)]
    found = [made for one in kept if (made := _enlarged(setting, one)) is not None]
    if not found:
        return None
    best = min(found, key=lambda made: float(setting.gram_blocks @ made))
    return layout.listed(layout.scaled(best, 1 / np.sqrt(program.budget)))


def _enlarged(setting: Setting, blocks: Array) -> Array | None:
    layout, share = setting.layout, 0.0
    variance = (1 + setting.cap) / 2 if len(setting.cap) else np.full(layout.size, 2.0)
    inside = setting.independent(variance)
    while share <= 1:
        blend = (1 - share) * blocks + share * inside
        try:
            spent = setting.every.spent(blend).max(axis=0)
        except np.linalg.LinAlgError:
            return None
        variance = setting.variances(blend)
        condition = float((spent * variance).max())
        margin = MARGIN * settings.rank_tolerance(layout.size) * max(1.0, condition)
        enlarged = blend * (1 + margin)
        within = not len(setting.cap) or (variance * (1 + 2 * margin) <= setting.cap).all()
        if spent.max() <= 1 + margin / 2 and within:
            return np.asarray(enlarged)
        share = max(2 * share, settings.EPS)
    return None


def answer_of(
    program: SeedProgram, blocks: Sequence[Array], multipliers: Multipliers | None, **of: Any
) -> Answer:
    """Noise of these blocks; they are kept one after the other and row by row. ``of``: what else
    there is to say of the answer."""
    proof = {"clique_blocks": np.concatenate([block.ravel() for block in blocks])}
    if multipliers is not None:
        proof |= {"dual_factors": multipliers.factors, "dual_prices": multipliers.weights}
        if multipliers.coalitions is not None:
            proof["dual_coalitions"] = np.array(multipliers.coalitions, dtype=np.float64)
        if multipliers.cap is not None:
            proof["dual_cap"] = multipliers.cap
    noise = Noise.of_covariance(covariance(program, blocks))
    return Answer(noises=[noise], proof=proof, **of)
