"""Covariances of shared seeds: a primal-dual interior-point method.

The blocks P_c follow the central path P_c S_c = mu I together with the multipliers S_c of the
sets, v of the budgets and w of the caps, S_c = (H + diag(w) - N)_cc, N = R^-1 diag(v) R^-1.
Steps are Nesterov-Todd with a predictor and a corrector, their systems solved by conjugate
gradients, loosely. A step that overdraws budgets, which are not linear in R, is followed by a
rescaling of the rows concerned: it keeps every set and meets each budget on its own.

The system linearises P_c S_c = mu I (scaled by W), v_i s_i = mu and N = R^-1 diag(v) R^-1. What a
first step, the predictor, leaves out to second order is known once it is, and the second step, the
corrector, allows for it (Mehrotra 1992): products of the changes, and in X = R^-1 the next term of
its series, (R + dR)^-1 = X - X dR X + X dR X dR X - ..., in the slacks as well as in N.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace

import numpy as np

from noisedesign.base import linalg as _linalg
from noisedesign.base.checks import Array, InputError
from noisedesign.base.machine import one_thread
from noisedesign.base.monitor import Monitor, Search, Stop
from noisedesign.families.shared_seeds import pairs
from noisedesign.families.shared_seeds.bound import Multipliers
from noisedesign.families.shared_seeds.layout import (
    Layout,
    congruence,
    inverses,
    longest_step,
    transposed,
)
from noisedesign.families.shared_seeds.newton import NewtonSystem
from noisedesign.families.shared_seeds.program import SeedProgram
from noisedesign.families.shared_seeds.state import (
    Found,
    Point,
    Setting,
    Watched,
    answer_of,
    bounds,
    feasible_blocks,
    first_blocks,
    start,
)
from noisedesign.program.family import Answer

MANY_NODES = 400
"""Nodes from which on products of matrices are worth more than one BLAS thread: between them are
batches of small blocks."""
MAX_STEPS = 120
REACHED, ROOM = 0.8, 5e-8
"""Share of the gap asked for at which to stop, but for no more room than the second: what is left
is for the rounding of the certificate."""
TO_BOUNDARY = 0.9
CENTERING_LEAST, CENTERING_MOST = 1e-2, 0.9
"""Share of the present mu that a step aims for: the cube of what the predictor would leave, within
these bounds."""
DRIFT, CENTERING_ASTRAY = 0.3, 0.3
"""Relative distance of N from R^-1 diag(v) R^-1 beyond which a step aims for this share or more."""
LAST_SHARE, LOWER = 0.3, 0.1
"""Share of the gap asked for that is left on the central path at the last mu; what it is multiplied
by where that does not prove the gap."""
LAG = 50.0
"""Multiple of the gap on the central path beyond which a point is off it."""
PATIENCE, RETREAT = 3, 0.1
"""Steps off the central path in a row after which to go back to a larger mu, for the way back may
be too bent at the present one; the share of what the bounds of the point are apart that the gap on
the path is to be there."""
NEAR_LAST = 3.0
"""Ratio to the last mu below which a point is only brought nearer to the central path."""
ROUGH = 0.1
"""Residual the system of a predictor is solved to."""
LOOSE, TIGHTER, TIGHTEST, FINEST = 0.1, 0.5, 1e-4, 1e-8
"""Residual that of a corrector is solved to; what it is multiplied by at every step that only
centres; its value below which the last mu is lowered instead; and its least value."""
FORMED = 1e-3
"""The same where the matrix is formed, and a product more costs next to nothing."""
OVERDRAWN, REFILL_LEAST, REFILL_MOST = 0.2, 0.02, 0.5
"""A budget is overdrawn when its slack falls below the first share of mu / v, which is what its row
is then rescaled to, kept between the second share of the slack before and the third of the budget.
"""
MOST_GROWTH = 30.0
"""Share of the tightest slack of a node, before any coalition, that its row may be raised by: more
would give away slack that the multipliers of others have come to count on."""
NEARNESS, FEW = 0.2, 4
"""A budget is watched before a coalition that leaves little more of it than the worst one does, by
this share; so many more of each node at every step."""
CLOSE, FINE = 1e-5, 1e-7
"""Gap reached, and asked for, below which conjugate gradients are left for the matrix itself."""
ASTRAY = 10.0
"""Multiple of the gap asked for beyond which the path of pairs went astray, not into rounding."""
SHORTER = 0.7
MAX_SHORTENINGS = 60


@dataclass
class _Best:
    """The best of either side so far."""

    lower: float = 0.0
    upper: float = float("inf")
    blocks: Array | None = None
    multipliers: Multipliers | None = None
    spread: float = 0.0  # between the bounds of the last point alone

    def update(self, setting: Setting, point: Point, spent: Array) -> float:
        """Record a point; the gap of the best two bounds."""
        lower, upper, proof = bounds(setting, point, spent)
        self.spread = upper - lower
        if upper < self.upper:
            self.upper, self.blocks = upper, point.blocks
        if lower > self.lower:
            self.lower = lower
            self.multipliers = Multipliers.of_factors(
                proof,
                weights=point.weights,
                cap=point.prices if len(point.prices) else None,
                coalitions=tuple(hidden.coalition for hidden in setting.hidden),
            )
        return self.upper / self.lower - 1 if self.lower > 0 else float("inf")


def solve(program: SeedProgram, *, monitor: Monitor) -> Answer:
    """Solve (L) to ``monitor.gap``, or until time is over or the user interrupts; ``evaluations``
    counts interior-point steps.

    Raises:
        InputError: caps that no noise of the structure can keep.
    """
    with one_thread() if program.size < MANY_NODES else nullcontext():
        return _solve(program, monitor)


def _solve(program: SeedProgram, monitor: Monitor) -> Answer:
    normal = program.normalized()
    unit = float(np.diagonal(normal.gram).mean())
    setting = Setting(replace(normal, gram=normal.gram / unit))
    search = pairs.search if setting.of_pairs else _search
    found = search(setting, monitor, unit=unit)
    if setting.of_pairs and found.stop is Stop.INACCURATE and found.gap > ASTRAY * monitor.gap:
        found = min(found, _search(setting, monitor, unit=unit), key=lambda one: one.gap)
    blocks, multipliers = found.blocks, found.multipliers
    feasible = None if blocks is None else feasible_blocks(setting, blocks, program)
    if feasible is None:
        raise InputError(
            "limits.max_variance",
            expected="a cap that noise of the structure can keep",
            got="no such noise of these shared seeds",
            remedy="Raise the cap, or let more nodes share seeds.",
        )
    if multipliers is not None:
        multipliers = multipliers.denormalized(program.budget, unit=unit)
    return answer_of(program, feasible, multipliers, stop=found.stop, evaluations=found.steps)


def _search(setting: Setting, monitor: Monitor, *, unit: float) -> Found:
    """Follow the path of blocks; ``unit`` is that of what is reported."""
    best, steps = _Best(), 0
    with Search(monitor) as search:
        first = first_blocks(setting)
        # With caps, whose room they would take, rows cannot be raised for a budget that comes late.
        generating = setting.program.known_seeds > 0 and not len(setting.cap)
        if generating:
            setting = setting.watching({})
            setting = setting.watching(_near(setting, setting.every.spent(first)))
        point, tolerance, share, astray = start(setting, first), LOOSE, LAST_SHARE, 0
        while steps < MAX_STEPS:
            spent = setting.spent(point)
            gap = best.update(setting, point, spent)
            monitor.report(lower=best.lower * unit, upper=best.upper * unit)
            if search.ended(solved=gap <= max(REACHED * monitor.gap, monitor.gap - ROOM)):
                break
            setting.form(gap < CLOSE and monitor.gap < FINE)
            if generating:
                setting, point = _wider(setting, point, spent)
            last = share * monitor.gap * best.upper / setting.order
            present = point.complementarity() / setting.order
            lagging = best.spread > LAG * present * setting.order
            astray = astray + 1 if lagging else 0
            if present > NEAR_LAST * last and not lagging:
                point = _descend(setting, point, last, monitor)
                tolerance = LOOSE
            else:
                system = NewtonSystem(setting, point, monitor)
                mu = max(present, last)
                if astray > PATIENCE:
                    mu = max(mu, RETREAT * best.spread / setting.order)
                if setting.explicit:
                    tolerance = min(tolerance, FORMED)
                point = _taken(system, _change(system, mu=mu, tolerance=tolerance), mu)
                tolerance = max(tolerance * TIGHTER, FINEST)
                if tolerance < TIGHTEST and not lagging:
                    share, tolerance = share * LOWER, LOOSE
            steps += 1
    gap = best.upper / best.lower - 1 if best.lower > 0 else float("inf")
    return Found(best.blocks, best.multipliers, gap=gap, stop=search.stop, steps=steps)


def _near(setting: Setting, spent: Array) -> Watched:
    """What is watched already and, of every node, a few budgets more that are nearly the tightest.

    Most coalitions leave every budget slack, and nearly all are never watched.
    """
    every = setting.every.coalitions
    places = {coalition: at for at, coalition in enumerate(every)}
    left = 1 - spent
    for coalition, row in zip(every, left, strict=True):
        row[list(coalition)] = np.inf
    least = left.min(axis=0)
    watched = np.zeros(left.shape, dtype=bool)
    for hidden in setting.hidden:
        watched[places[hidden.coalition], hidden.watched] = True
    left[watched] = np.inf
    few = min(FEW, len(left)) - 1
    few_th = np.partition(left, few, axis=0)[few]
    watched |= left <= np.minimum(few_th, least + NEARNESS * np.maximum(least, 0.0))
    pairs = zip(every, watched, strict=True)
    return {coalition: np.flatnonzero(row) for coalition, row in pairs if row.any()}


def _wider(setting: Setting, point: Point, spent: Array) -> tuple[Setting, Point]:
    """With the budgets watched that have come near, rows raised for those that are overdrawn."""
    watched, mu = _near(setting, spent), point.complementarity() / setting.order
    wider = setting.watching(watched)
    if wider.order == setting.order:
        return setting, point
    before = {h.coalition: v for h, v in zip(setting.hidden, point.weights, strict=True)}
    row = np.sqrt(np.maximum(spent.max(axis=0) / (1 - REFILL_LEAST * mu), 1.0))
    blocks = setting.layout.scaled(point.blocks, row)
    precisions = wider.precisions(blocks)
    slacks = wider.slacks(precisions)
    weights = []
    for hidden, s in zip(wider.hidden, slacks, strict=True):
        v = before.get(hidden.coalition, np.zeros(len(s))).copy()
        new = hidden.watched[v[hidden.watched] == 0]
        v[new] = mu / s[new]
        weights.append(v)
    point = replace(point, blocks=blocks, precisions=precisions, slacks=slacks, weights=weights)
    return wider, point


def _descend(setting: Setting, point: Point, last: float, monitor: Monitor) -> Point:
    """A point of less mu."""
    system = NewtonSystem(setting, point, monitor)
    predictor = _change(system, mu=0.0, tolerance=ROUGH)
    lengths = _lengths(system, predictor)
    share = _centering(point, predictor, lengths)
    mu = max(share * point.complementarity() / setting.order, last)
    bend = _bend(system, predictor, lengths[0] * lengths[1])
    corrector = _change(system, mu=mu, bend=bend, start=predictor.blocks, tolerance=LOOSE)
    return _taken(system, corrector, mu)


def _taken(system: NewtonSystem, step: _Change, mu: float) -> Point:
    """The point that a step towards mu leads to, short of the boundary."""
    setting, point = system.setting, system.point
    along, dual_along = (min(1.0, TO_BOUNDARY * x) for x in _lengths(system, step))
    weights = [v + dual_along * dv for v, dv in zip(point.weights, step.weights, strict=True)]
    for _ in range(MAX_SHORTENINGS):
        new = _moved(setting, point, point.blocks + along * step.blocks, weights, mu)
        if new is not None:
            break
        along *= SHORTER
    else:
        raise np.linalg.LinAlgError("no step within caps and budgets")
    new.dual = point.dual + dual_along * step.dual
    new.prices = point.prices + dual_along * step.prices
    if step.curvature is not None and point.curvature is not None:
        new.curvature = point.curvature + dual_along * (step.curvature - point.curvature)
    return new


def _lengths(system: NewtonSystem, step: _Change) -> tuple[float, float]:
    """Longest steps of P and of the multipliers, up to 1 / TO_BOUNDARY, that keep them positive.

    Budgets are left out: rows are rescaled to meet them.
    """
    point, layout, longest = system.point, system.setting.layout, 1 / TO_BOUNDARY
    along = min(longest, longest_step(layout, point.blocks, step.blocks))
    dual_along = min(longest, longest_step(layout, point.dual, step.dual))
    pairs = zip([*point.weights, point.prices], [*step.weights, step.prices], strict=True)
    dual_along = min(dual_along, *(_fraction(v, dv) for v, dv in pairs))
    return min(along, _fraction(point.room, step.room)), dual_along


def _centering(point: Point, predictor: _Change, lengths: tuple[float, float]) -> float:
    """Share of the present mu to aim for."""
    along, dual_along = (min(1.0, x) for x in lengths)
    pairs = [*zip(point.weights, predictor.weights, point.slacks, predictor.slacks, strict=True)]
    for *_, s, ds in pairs:
        along = min(along, _fraction(s, ds))
    blocks, dual = point.blocks + along * predictor.blocks, point.dual + dual_along * predictor.dual
    left = float(blocks @ dual)
    for v, dv, s, ds in pairs:
        left += float((v + dual_along * dv) @ (s + along * ds))
    prices = point.prices + dual_along * predictor.prices
    left += float(prices @ (point.room + along * predictor.room))
    share = max(left, 0.0) / point.complementarity()
    least = CENTERING_LEAST
    if point.curvature is not None:
        drift = np.linalg.norm(point.curvature - point.curvatures()[0])
        if drift > DRIFT * np.linalg.norm(point.curvature):
            least = CENTERING_ASTRAY
    return min(max(share**3, least), CENTERING_MOST)


def _moved(
    setting: Setting, point: Point, blocks: Array, weights: list[Array], mu: float
) -> Point | None:
    """The point at new blocks, overdrawn rows rescaled; None where that breaks a cap, or takes
    more of a row than the coalitions that leave it least can bear."""
    layout, row = setting.layout, np.ones(setting.layout.size)
    several = setting.program.known_seeds > 0
    tightest = np.ones(layout.size)
    precisions = setting.precisions(blocks)
    for precision, v, before in zip(precisions, weights, point.slacks, strict=True):
        on = v > 0
        most = np.minimum(before[on], REFILL_MOST) if several else REFILL_MOST
        wanted = np.zeros(layout.size)
        wanted[on] = np.clip(mu / v[on], REFILL_LEAST * before[on], most)
        used = np.diagonal(precision)
        overdrawn = on & (1 - used < OVERDRAWN * wanted)
        row[overdrawn] = np.maximum(row, np.sqrt(used / (1 - wanted)))[overdrawn]
        tightest[on] = np.minimum(tightest, before)[on]
    if several and (np.square(row) - 1 > MOST_GROWTH * tightest).any():
        return None
    blocks = layout.scaled(blocks, row)
    precisions = [x / row[:, None] / row for x in precisions]
    room = setting.room(blocks)
    if not (room > 0).all():
        return None
    slacks = setting.slacks(precisions)
    return replace(
        point, blocks=blocks, weights=weights, precisions=precisions, slacks=slacks, room=room
    )


def _fraction(values: Array, change: Array) -> float:
    """Longest step that keeps values positive."""
    falling = change < 0
    if not falling.any():
        return float("inf")
    return float((-values[falling] / change[falling]).min())


# --- where to go from a point -------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class _Bend:
    """What a step leaves out to second order, of every equation, from its own change.

    ``blocks`` of P S in the units of S, flat; for every coalition ``products`` dv ds, ``slacks``
    and ``curvatures``, what s and N gain; ``room`` dw times the change of the room under the caps.
    """

    blocks: Array
    products: list[Array]
    slacks: list[Array]
    curvatures: list[Array]
    room: Array


@dataclass(frozen=True, kw_only=True, eq=False)
class _Change:
    """Changes dP and dS, flat; dv and, to first order, ds of every coalition; dw and the change of
    the room under the caps; the N it all leads to, where there are no coalitions."""

    blocks: Array
    dual: Array
    weights: list[Array]
    slacks: list[Array]
    prices: Array
    room: Array
    curvature: Array | None


def _change(
    system: NewtonSystem,
    *,
    mu: float,
    bend: _Bend | None = None,
    start: Array | None = None,
    tolerance: float,
) -> _Change:
    """The change towards products of mu, solved for by conjugate gradients.

    What they leave of the residual is moved into N, whose entries are free as long as those of the
    sets match: so the multipliers stay feasible however loosely the system is solved.
    """
    setting, point = system.setting, system.point
    layout = setting.layout
    barrier = mu * inverses(layout, point.blocks)
    if bend is not None:
        barrier -= bend.blocks
    ahead = [_weights(system, index, mu, bend) for index in range(len(point.weights))]
    right = barrier - setting.gram_blocks
    for index, (precision, v) in enumerate(zip(point.precisions, ahead, strict=True)):
        pull = (precision * v) @ precision
        if bend is not None:
            pull = pull + bend.curvatures[index]
        right += setting.restrict(layout.gather(pull), index)
    prices = (mu if bend is None else mu - bend.room) / point.room
    if len(prices):
        right -= layout.gather(np.diag(prices))
    found, residual = system.solve(right, start, tolerance=tolerance)
    left = None
    if point.curvature is not None:
        found, left = _settled(system, found, residual)
    blocks = layout.symmetrized(found)
    weights, slacks, curvature = [], [], None
    for index, (x, v) in enumerate(zip(point.precisions, point.weights, strict=True)):
        moved = (x @ layout.assemble(setting.restrict(blocks, index))) @ x
        slacks.append(np.where(point.weights[index] > 0, np.diagonal(moved), 0.0))
        after = ahead[index] - system.stiffness[index] * slacks[-1]
        weights.append(after - v)
        if left is not None:
            half = (x * (after / 2) - moved * v) @ x
            more = 0.0 if bend is None else bend.curvatures[index]
            curvature = _linalg.symmetrized(half + half.T + more - left)
    room = -setting.variances(blocks)[: len(setting.cap)]
    dual = layout.symmetrized(barrier - system.scaled_back(blocks) - point.dual)
    return _Change(
        blocks=blocks,
        dual=dual,
        weights=weights,
        slacks=slacks,
        prices=prices - system.cap_stiffness * room - point.prices,
        room=room,
        curvature=curvature,
    )


def _bend(system: NewtonSystem, step: _Change, share: float) -> _Bend:
    """What a step would leave out, times ``share``: it is not going to be taken whole."""
    setting, point = system.setting, system.point
    products, slacks, curvatures = [], [], []
    parts = zip(point.precisions, point.weights, step.weights, step.slacks, strict=True)
    for index, (x, v, dv, ds) in enumerate(parts):
        moved = x @ setting.layout.assemble(setting.restrict(step.blocks, index))
        first = moved @ x
        second = moved @ first
        half = ((second * v) - (first * dv)) @ x
        curvatures.append(share * (half + half.T + (first * v) @ first))
        slacks.append(-share * np.diagonal(second))
        products.append(share * dv * ds)
    return _Bend(
        blocks=share * _product(setting.layout, system, step),
        products=products,
        slacks=slacks,
        curvatures=curvatures,
        room=share * step.prices * step.room,
    )


def _weights(system: NewtonSystem, index: int, mu: float, bend: _Bend | None) -> Array:
    """v + dv but for what the change of s takes."""
    v, s = system.point.weights[index], system.point.slacks[index]
    wanted = np.full_like(v, mu)
    if bend is not None:
        wanted -= v * bend.slacks[index] + bend.products[index]
    return np.where(v > 0, wanted / s, 0.0)


def _settled(system: NewtonSystem, found: Array, residual: Array) -> tuple[Array, Array]:
    """A change after which the residual is G_cc, and G."""
    layout = system.setting.layout
    count = layout.assemble(np.ones_like(residual))
    left = layout.assemble(residual) / np.maximum(count, 1.0)
    return found, left


def _product(layout: Layout, system: NewtonSystem, step: _Change) -> Array:
    """dP dS, made symmetric where P and S are the same diagonal matrix, as blocks of S."""
    found = []
    parts = (layout.split(flat) for flat in (system.point.dual, step.blocks, step.dual))
    for w, s, dp, ds in zip(system.scalings, *parts, strict=True):
        root = np.asarray(np.linalg.cholesky(w))
        values, vectors = np.linalg.eigh(congruence(transposed(root), s))
        root = root @ vectors
        inverse = np.linalg.inv(root)
        both = congruence(inverse, dp) @ congruence(transposed(root), ds)
        both = (both + transposed(both)) / (values[:, :, None] + values[:, None, :])
        found.append(congruence(transposed(inverse), both))
    return layout.join(found)
