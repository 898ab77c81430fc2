"""One iterate of the interior-point method for covariances of shared seeds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisedesign.base import linalg as _linalg, settings
from noisedesign.base.checks import Array
from noisedesign.base.monitor import Monitor
from noisedesign.families.family import Answer
from noisedesign.families.shared_seeds.bound import (
    Multipliers,
    covariance,
    largest_eigenvalue,
    lower_bound,
)
from noisedesign.families.shared_seeds.layout import Coordinates, Layout, inverses
from noisedesign.families.shared_seeds.program import SeedProgram
from noisedesign.forms import Noise

# Entries of all blocks up to which the matrices of Newton systems are formed from the start, and
# once conjugate gradients take too many products; with coalitions they would at once.
FEW_COORDINATES, MOST_EXPLICIT = 300, 4000
Mask = NDArray[np.bool_]
# Bounds of the share of mu that a step aims for, the cube of what the predictor would leave.
CENTERING_LEAST, CENTERING_MOST = 1e-2, 0.9
# Steps that leave the cone of R are cut so often at most, by this factor each time.
MAX_SHORTENINGS, SHORTER = 60, 0.7
MARGIN = 16  # of size * EPS * condition, by which R is enlarged: budgets hold


class Setting:
    """The data that stay the same from iterate to iterate, at unit budgets.

    ``inside``, shape (all coalitions, n), says who is in which coalition. ``watched``, shape
    (A, n), says which budgets are watched before ``coalitions``, all of them at first; ``kept``,
    shape (A, length), which entries of the blocks a coalition leaves, and ``outside`` which nodes.
    """

    def __init__(self, program: SeedProgram) -> None:
        self.program = program
        self.gram = program.gram
        # Empty where nothing is capped, and so are prices and room of every point.
        self.cap = np.zeros(0) if program.cap is None else program.cap
        self.layout = layout = Layout(program.sets, program.size)
        self.gram_blocks = layout.gather(program.gram)
        known = program.coalitions
        self.inside = np.array([np.isin(np.arange(program.size), one) for one in known])
        self._every_kept = np.array([layout.untouched(one) for one in known])
        # Whether the matrices of Newton systems are formed.
        size = sum(m.shape[0] * m.shape[1] * (m.shape[1] + 1) // 2 for m in layout.members)
        self.explicit = size <= (MOST_EXPLICIT if program.known_seeds else FEW_COORDINATES)
        # Whether all sets are pairs or nodes alone, nothing is capped and nobody knows seeds.
        largest = max(members.shape[1] for members in layout.members)
        self.of_pairs = largest == 2 and not len(self.cap) and not program.known_seeds
        self._watch(~self.inside)

    @cached_property
    def coordinates(self) -> Coordinates:
        return Coordinates(self.layout)

    def form(self, needed: bool) -> None:
        """Form the matrices of Newton systems from now on, where that is needed and affordable."""
        if needed and len(self.coordinates.entry) <= MOST_EXPLICIT:
            self.explicit = True

    def _watch(self, budgets: Mask) -> None:
        """Watch these of all budgets, shape (all coalitions, n)."""
        self.budgets, self.index = budgets, np.flatnonzero(budgets.any(axis=1))
        self.coalitions = tuple(self.program.coalitions[i] for i in self.index)
        self.watched, self.kept = budgets[self.index], self._every_kept[self.index]
        self.outside = [np.flatnonzero(~inside) for inside in self.inside[self.index]]
        # On the central path the gap is this many times mu.
        self.order = self.layout.order_of_cone + int(self.watched.sum()) + len(self.cap)

    def watching(self, budgets: Mask) -> Setting:
        """The same with these budgets watched and no others."""
        found = copy(self)
        found._watch(budgets)
        return found

    def assembled(self, flat: Array) -> Array:
        """The sum of the blocks that each coalition leaves, shape (A, n, n)."""
        return np.array([self.layout.assemble(flat * kept) for kept in self.kept])

    def gathered(self, matrices: Array) -> Array:
        """Blocks sum_A (M_A)_cc over the coalitions that leave c alone, flat, of (A, n, n)."""
        pairs = zip(self.kept, matrices, strict=True)
        return np.asarray(sum(kept * self.layout.gather(matrix) for kept, matrix in pairs))

    def precisions(self, flat: Array) -> Array:
        """R_A^-1 of the watched, shape (A, n, n), zero in the rows and columns of A."""
        return np.array([self._precision(flat, which) for which in self.index.tolist()])

    def spent(self, flat: Array) -> Array:
        """[R_A^-1]_ii of all coalitions, watched or not, shape (all coalitions, n)."""
        return np.array([np.diagonal(self._precision(flat, i)) for i in range(len(self.inside))])

    def _precision(self, flat: Array, which: int) -> Array:
        total = self.layout.assemble(flat * self._every_kept[which])
        nodes = np.flatnonzero(~self.inside[which])
        found, here = np.zeros_like(total), np.ix_(nodes, nodes)
        found[here] = _linalg.inverse_of_positive(total[here])
        return found

    def slacks(self, precisions: Array) -> Array:
        """1 - [R_A^-1]_ii; 1 where that is not watched, with multipliers of 0."""
        return np.where(self.watched, 1 - diagonals(precisions), 1.0)

    def room(self, flat: Array) -> Array:
        """cap - R_ii."""
        return np.asarray(self.cap - self.variances(flat)[: len(self.cap)])

    def independent(self, variance: Array) -> Array:
        """Independent noise as blocks in equal shares, half of its excess alone with coalitions."""
        layout, several = self.layout, self.program.known_seeds > 0
        count = layout.node_sums([np.ones(m.shape) for m in layout.members])
        share = ((variance - 1) / 2 if several else variance) / count
        found = []
        for members in layout.members:
            alone = (1 + variance[members]) / 2 if several and members.shape[1] == 1 else 0.0
            found.append((share[members] + alone)[:, :, None] * np.eye(members.shape[1]))
        return layout.join(found)

    def variances(self, flat: Array) -> Array:
        diagonals = [np.einsum("mii->mi", block) for block in self.layout.split(flat)]
        return self.layout.node_sums(diagonals)


@dataclass(kw_only=True, eq=False)
class Point:
    """Blocks P, multipliers S, v and w, and what follows from P. ``curvature`` is the N of the
    multipliers, (H + diag(w) - N)_cc = S but for rounding, R^-1 diag(v) R^-1 at the optimum; None
    with coalitions."""

    blocks: Array
    dual: Array
    weights: Array
    prices: Array
    precisions: Array
    slacks: Array
    room: Array  # cap - R_ii
    curvature: Array | None

    def complementarity(self) -> float:
        total = float(self.blocks @ self.dual) + float(np.vdot(self.weights, self.slacks))
        return total + float(self.prices @ self.room)


def first_blocks(setting: Setting) -> Array:
    """Noise well within every constraint, larger where it costs less."""
    layout = setting.layout
    if len(setting.cap):
        return setting.independent(np.minimum(2.0, (1 + setting.cap) / 2))
    costs = layout.split(setting.gram_blocks)
    unit = float(np.diagonal(setting.gram).mean())
    shifted = [cost + 1e-2 * unit * np.eye(cost.shape[1]) for cost in costs]  # invertible
    blocks = inverses(layout, layout.join(shifted))
    return layout.scaled(blocks, np.sqrt(2 * setting.spent(blocks).max(axis=0)))


def start(setting: Setting, blocks: Array) -> Point:
    """The point of these blocks, S and v to match."""
    layout = setting.layout
    precisions = setting.precisions(blocks)
    slacks = setting.slacks(precisions)
    mu = float(setting.gram_blocks @ blocks) / setting.order
    room = setting.room(blocks)
    prices = mu / room
    weights = np.where(setting.watched, mu / slacks, 0.0)
    dual, curvature = mu * inverses(layout, blocks), None
    if not setting.program.known_seeds:
        # Multipliers that are feasible from the start.
        square = precisions @ precisions
        worst = largest_eigenvalue(setting.program, precisions, ~setting.inside, prices)
        if worst is None:
            raise np.linalg.LinAlgError("H + diag(w) is singular on a set")
        curvature, weights = square[0] / (2 * worst), np.full(weights.shape, 0.5 / worst)
        priced = setting.gram + np.diag(prices) if len(prices) else setting.gram
        dual = layout.gather(priced - curvature)
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


@dataclass
class Best:
    """The best of either side so far: flat blocks, or the entries of R, and multipliers."""

    lower: float = 0.0
    upper: float = float("inf")
    noise: Array | None = None
    multipliers: Multipliers | None = None

    @property
    def gap(self) -> float:
        return self.upper / self.lower - 1 if self.lower > 0 else float("inf")

    def take(self, upper: float, noise: Array) -> None:
        """Record noise and its error."""
        if upper < self.upper:
            self.upper, self.noise = upper, noise

    def prove(self, lower: float, multipliers: Multipliers) -> None:
        """Record a bound and what proves it."""
        if lower > self.lower:
            self.lower, self.multipliers = lower, multipliers


def bounds(setting: Setting, point: Point, spent: Array) -> tuple[float, float, Multipliers]:
    """Lower bound, objective with rows rescaled or not, and multipliers that prove the bound."""
    scaled = setting.layout.scaled(point.blocks, np.sqrt(spent.max(axis=0)))
    upper = float(setting.gram_blocks @ scaled)
    if spent.max() <= 1:
        upper = min(upper, float(setting.gram_blocks @ point.blocks))
    multipliers = point.curvature, point.precisions, point.weights, point.prices
    best, proof = proved_by(setting, *multipliers, upper=upper)
    return best, upper, proof


def proved_by(
    setting: Setting,
    curvature: Array | None,
    precisions: Array,
    weights: Array,
    prices: Array,
    *,
    upper: float,
) -> tuple[float, Multipliers]:
    """Lower bound and the multipliers that prove it, by N or by R where that may prove more."""

    cap = prices if len(prices) else None
    coalitions = setting.coalitions if setting.program.known_seeds else None

    def proved(factors: Iterable[Array]) -> tuple[float, Multipliers]:
        of = {"weights": weights, "cap": cap, "coalitions": coalitions}
        found = Multipliers.of_factors(factors, **of)
        return lower_bound(setting.program, found), found

    followed = np.sqrt(weights)[:, :, None] * precisions
    if curvature is None:
        return proved(followed)
    # Only its entries on the sets are feasible: as a whole it may be indefinite.
    values, vectors = np.linalg.eigh(curvature)
    best = proved([(vectors * np.sqrt(np.maximum(values, 0.0))).T])
    if upper - best[0] <= 1e-3 * upper:  # N of the multipliers is better
        return best
    return max(best, proved(followed), key=lambda one: one[0])


def curvatures(precisions: Array, weights: Array) -> Array:
    """R_A^-1 diag(v_A) R_A^-1."""
    return np.asarray((precisions * weights[:, None]) @ precisions)


def enough(gap: float, monitor: Monitor) -> bool:
    """Say whether a search may stop: what is left of the gap is for rounding, 5e-8 at most."""
    return gap <= max(0.8 * monitor.gap, monitor.gap - 5e-8)


def fraction(values: Array, change: Array) -> float:
    """Longest step that keeps values positive."""
    falling = change < 0
    return float((-values[falling] / change[falling]).min(initial=np.inf))


def diagonals(matrices: Array) -> Array:
    """The diagonals of an array of matrices, shape (A, n)."""
    return np.asarray(np.einsum("aii->ai", matrices))


def feasible_blocks(setting: Setting, blocks: Array, program: SeedProgram) -> list[Array] | None:
    """Blocks of least objective that keep budgets and caps, as they are or rescaled; or None."""
    layout = setting.layout
    try:
        row = np.sqrt(setting.spent(blocks).max(axis=0))
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
            spent = setting.spent(blend).max(axis=0)
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
    """Noise of these blocks, which are kept one after the other and row by row."""
    proof = {"clique_blocks": np.concatenate([block.ravel() for block in blocks])}
    if multipliers is not None:
        proof |= {"dual_factors": multipliers.factors, "dual_prices": multipliers.weights}
        if multipliers.coalitions is not None:
            proof["dual_coalitions"] = np.array(multipliers.coalitions, dtype=np.float64)
        if multipliers.cap is not None:
            proof["dual_cap"] = multipliers.cap
    noise = Noise.of_covariance(covariance(program, blocks))
    return Answer(noises=[noise], proof=proof, **of)
