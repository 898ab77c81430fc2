"""A primal-dual interior-point method for covariances of shared seeds.

The blocks P_c follow the central path P_c S_c = mu I together with the multipliers S_c of the
sets, v of the budgets and w of the caps, S_c = (H + diag(w) - N)_cc, N = R^-1 diag(v) R^-1.
Steps are Nesterov-Todd with a predictor and a corrector (Mehrotra 1992), which allows for what the
predictor leaves to second order (docs/methods/solvers.md, "Shared seeds"). A step that overdraws
budgets, which are not linear in R, is followed by a rescaling of the rows concerned."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace

import numpy as np

from noisedesign.base import linalg as _linalg
from noisedesign.base.checks import Array, InputError
from noisedesign.base.machine import one_thread
from noisedesign.base.monitor import Monitor, Search, Stop
from noisedesign.families.family import Answer
from noisedesign.families.shared_seeds import pairs
from noisedesign.families.shared_seeds.layout import (
    Layout,
    congruence,
    inverses,
    longest_step,
    transposed,
)
from noisedesign.families.shared_seeds.newton import MANY_PRODUCTS, Bend, NewtonSystem, Solved
from noisedesign.families.shared_seeds.program import SeedProgram
from noisedesign.families.shared_seeds.state import (
    CENTERING_LEAST,
    CENTERING_MOST,
    MAX_SHORTENINGS,
    SHORTER,
    Best,
    Mask,
    Point,
    Setting,
    answer_of,
    bounds,
    curvatures,
    diagonals,
    enough,
    feasible_blocks,
    first_blocks,
    fraction,
    start,
)

MAX_STEPS, TO_BOUNDARY = 120, 0.9
# Relative distance of N from R^-1 diag(v) R^-1 beyond which a step aims for this share or more.
DRIFT, CENTERING_ASTRAY = 0.3, 0.3
# Share of the gap asked for that is left on the path at the last mu, and its factor where that does
# not prove the gap.
LAST_SHARE, LOWER = 0.3, 0.1
LAG = 50.0  # multiple of the gap on the central path beyond which a point is off it
# Steps in a row off the path after which to go back to a larger mu, where the gap on the path is
# this share of what the bounds of the point are apart.
PATIENCE, RETREAT = 3, 0.1
# Residual of a corrector; its factor at every step that only centres; the value below which the
# last mu is lowered instead.
LOOSE, TIGHTER, TIGHTEST = 0.1, 0.5, 1e-4
# A budget is overdrawn when its slack is below the first share of mu / v, to which its row is then
# rescaled, between the second share of the slack before and the third of the budget.
OVERDRAWN, REFILL_LEAST, REFILL_MOST = 0.2, 0.02, 0.5
# A budget is watched before coalitions that leave at most this share more of it than the worst one,
# so many of each node at every step.
NEARNESS, FEW = 0.2, 4


def solve(program: SeedProgram, *, monitor: Monitor) -> Answer:
    """Solve (L) to ``monitor.gap``, until time is over or the user interrupts."""
    normal = program.normalized()
    unit = float(np.diagonal(normal.gram).mean())
    setting = Setting(replace(normal, gram=normal.gram / unit))
    search = pairs.search if setting.of_pairs else _search
    # Products of matrices alternate with batches of small blocks, which threads do not help.
    with one_thread() if program.size < 400 else nullcontext():
        best, stop, steps = search(setting, monitor, unit=unit)
        # The path of pairs went astray, and not into rounding.
        if setting.of_pairs and stop is Stop.INACCURATE and best.gap > 10 * monitor.gap:
            other = _search(setting, monitor, unit=unit)
            best, stop, steps = min((best, stop, steps), other, key=lambda one: one[0].gap)
    feasible = None if best.noise is None else feasible_blocks(setting, best.noise, program)
    if feasible is None:
        raise InputError(
            "limits.max_variance",
            expected="a cap that noise of the structure can keep",
            got="no such noise of these shared seeds",
            remedy="Raise the cap, or let more nodes share seeds.",
        )
    multipliers = best.multipliers
    if multipliers is not None:
        multipliers = multipliers.denormalized(program.budget, unit=unit)
    return answer_of(program, feasible, multipliers, stop=stop, evaluations=steps)


def _search(setting: Setting, monitor: Monitor, *, unit: float) -> tuple[Best, Stop, int]:
    """Follow the path of blocks; ``unit`` is that of what is reported. Count the steps."""
    best, steps = Best(), 0
    with Search(monitor) as search:
        first = first_blocks(setting)
        # With caps, whose room they would take, rows cannot be raised for a budget that comes late.
        generating = setting.program.known_seeds > 0 and not len(setting.cap)
        if generating:
            none = np.zeros_like(setting.budgets)
            setting = setting.watching(_near(setting, setting.spent(first), none))
        point, tolerance, share, astray = start(setting, first), LOOSE, LAST_SHARE, 0
        while steps < MAX_STEPS:
            spent = setting.spent(point.blocks)
            lower, upper, proof = bounds(setting, point, spent)
            best.take(upper, point.blocks)
            best.prove(lower, proof)
            monitor.report(lower=best.lower * unit, upper=best.upper * unit)
            if search.ended(solved=enough(best.gap, monitor)):
                break
            setting.form(best.gap < 1e-5 and monitor.gap < 1e-7)
            if generating:
                setting, point = _wider(setting, point, spent)
            last = share * monitor.gap * best.upper / setting.order
            present = point.complementarity() / setting.order
            lagging = upper - lower > LAG * present * setting.order
            astray = astray + 1 if lagging else 0
            if present > 3 * last and not lagging:
                point = _descend(setting, point, last, monitor)
                tolerance = LOOSE
            else:
                system = NewtonSystem(setting, point, monitor)
                mu = max(present, last)
                if astray > PATIENCE:
                    mu = max(mu, RETREAT * (upper - lower) / setting.order)
                if setting.explicit:
                    tolerance = min(tolerance, 1e-3)  # a product more costs next to nothing
                point = _taken(system, _change(system, mu=mu, tolerance=tolerance), mu)
                tolerance = max(tolerance * TIGHTER, 1e-8)
                if tolerance < TIGHTEST and not lagging:
                    share, tolerance = share * LOWER, LOOSE
            steps += 1
    return best, search.stop, steps


def _near(setting: Setting, spent: Array, watched: Mask) -> Mask:
    """Add to the watched budgets a few more of each node that are nearly the tightest."""
    left = np.where(setting.inside, np.inf, 1 - spent)
    least = left.min(axis=0)
    left[watched] = np.inf
    few = min(FEW, len(left)) - 1
    few_th = np.partition(left, few, axis=0)[few]
    tight = left <= np.minimum(few_th, least + NEARNESS * np.maximum(least, 0.0))
    return np.asarray(watched | tight)


def _wider(setting: Setting, point: Point, spent: Array) -> tuple[Setting, Point]:
    """Watch the budgets that have come near, and raise rows for those that are overdrawn."""
    mu = point.complementarity() / setting.order
    wider = setting.watching(_near(setting, spent, setting.budgets))
    if wider.order == setting.order:
        return setting, point
    row = np.sqrt(np.maximum(spent.max(axis=0) / (1 - REFILL_LEAST * mu), 1.0))
    blocks = setting.layout.scaled(point.blocks, row)
    precisions = wider.precisions(blocks)
    slacks = wider.slacks(precisions)
    every = np.zeros(wider.budgets.shape)
    every[setting.index] = point.weights
    weights = every[wider.index]
    weights = np.where(wider.watched & (weights == 0), mu / slacks, weights)
    point = replace(point, blocks=blocks, precisions=precisions, slacks=slacks, weights=weights)
    return wider, point


def _descend(setting: Setting, point: Point, last: float, monitor: Monitor) -> Point:
    """A point of less mu."""
    system = NewtonSystem(setting, point, monitor)
    predictor = _change(system, mu=0.0, tolerance=0.1)
    lengths = _lengths(system, predictor)
    share = _centering(point, predictor, lengths)
    mu = max(share * point.complementarity() / setting.order, last)
    bend = Bend.of(
        point.precisions,
        setting.assembled(predictor.blocks),
        point.weights,
        predictor,
        dual=_product(setting.layout, system, predictor),
        share=lengths[0] * lengths[1],
    )
    corrector = _change(system, mu=mu, bend=bend, near=predictor.solved, tolerance=LOOSE)
    return _taken(system, corrector, mu)


def _taken(system: NewtonSystem, step: _Change, mu: float) -> Point:
    """The point that a step towards mu leads to, short of the boundary."""
    setting, point = system.setting, system.point
    along, dual_along = (min(1.0, TO_BOUNDARY * x) for x in _lengths(system, step))
    weights = point.weights + dual_along * step.weights
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
    """Longest steps of P and multipliers, up to 1 / TO_BOUNDARY; rows are rescaled for budgets."""
    point, layout, longest = system.point, system.setting.layout, 1 / TO_BOUNDARY
    along = min(longest, longest_step(layout, point.blocks, step.blocks))
    dual_along = min(longest, longest_step(layout, point.dual, step.dual))
    dual_along = min(dual_along, fraction(point.weights, step.weights))
    dual_along = min(dual_along, fraction(point.prices, step.prices))
    return min(along, fraction(point.room, step.room)), dual_along


def _centering(point: Point, predictor: _Change, lengths: tuple[float, float]) -> float:
    """Share of the present mu to aim for."""
    along, dual_along = (min(1.0, x) for x in lengths)
    along = min(along, fraction(point.slacks, predictor.slacks))
    blocks, dual = point.blocks + along * predictor.blocks, point.dual + dual_along * predictor.dual
    weights = point.weights + dual_along * predictor.weights
    left = float(blocks @ dual) + float(np.vdot(weights, point.slacks + along * predictor.slacks))
    prices = point.prices + dual_along * predictor.prices
    left += float(prices @ (point.room + along * predictor.room))
    share, least = max(left, 0.0) / point.complementarity(), CENTERING_LEAST
    if point.curvature is not None:
        drift = np.linalg.norm(point.curvature - curvatures(point.precisions, point.weights)[0])
        if drift > DRIFT * np.linalg.norm(point.curvature):
            least = CENTERING_ASTRAY
    return min(max(share**3, least), CENTERING_MOST)


def _moved(
    setting: Setting, point: Point, blocks: Array, weights: Array, mu: float
) -> Point | None:
    """The point at new blocks, overdrawn rows rescaled; None where a cap or row breaks."""
    several, before, on = setting.program.known_seeds > 0, point.slacks, weights > 0
    precisions = setting.precisions(blocks)
    most = np.minimum(before, REFILL_MOST) if several else REFILL_MOST
    aim = np.divide(mu, weights, out=np.zeros_like(weights), where=on)
    wanted = np.where(on, np.clip(aim, REFILL_LEAST * before, most), 0.0)
    used = diagonals(precisions)
    overdrawn = on & (1 - used < OVERDRAWN * wanted)
    row = np.where(overdrawn, np.sqrt(used / (1 - wanted)), 1.0).max(axis=0)
    # More would give away slack that the multipliers of others have come to count on.
    tightest = np.where(on, before, 1.0).min(axis=0)
    if several and (np.square(row) - 1 > 30 * tightest).any():
        return None
    blocks = setting.layout.scaled(blocks, row)
    precisions = precisions / row[:, None] / row
    room = setting.room(blocks)
    if not (room > 0).all():
        return None
    slacks = setting.slacks(precisions)
    return replace(
        point, blocks=blocks, weights=weights, precisions=precisions, slacks=slacks, room=room
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Change:
    """Changes of P and S, flat; of v and, to first order, s of every coalition; of w and the room
    under the caps; the N it leads to, where there are no coalitions."""

    solved: Solved
    blocks: Array
    dual: Array
    weights: Array
    slacks: Array
    prices: Array
    room: Array
    curvature: Array | None


def _change(
    system: NewtonSystem,
    *,
    mu: float,
    bend: Bend | None = None,
    near: Solved | None = None,
    tolerance: float,
) -> _Change:
    """The change towards products of mu; what is left unsolved moves into free entries of N."""
    setting, point = system.setting, system.point
    layout, x, v = setting.layout, point.precisions, point.weights
    barrier, wanted = mu * inverses(layout, point.blocks), np.full_like(v, mu)
    more, prices = np.zeros_like(x), mu / point.room
    if bend is not None:
        barrier -= bend.dual
        wanted -= v * bend.slacks + bend.products
        more, prices = bend.curvatures, (mu - bend.room) / point.room
    # v + dv but for what the change of s takes.
    ahead = np.where(v > 0, wanted / point.slacks, 0.0)
    right = barrier - setting.gram_blocks + setting.gathered(curvatures(x, ahead) + more)
    if len(prices):
        right -= layout.gather(np.diag(prices))
    solved = system.solve(right, near, tolerance=tolerance)
    setting.form(solved.products > MANY_PRODUCTS)
    blocks = layout.symmetrized(solved.change)
    moved = x @ setting.assembled(blocks) @ x
    slacks = np.where(v > 0, diagonals(moved), 0.0)
    after, curvature = ahead - system.stiffness * slacks, None
    if point.curvature is not None:
        count = layout.assemble(np.ones_like(right))
        left = layout.assemble(solved.residual) / np.maximum(count, 1.0)
        half = (x[0] * (after[0] / 2) - moved[0] * v[0]) @ x[0]
        curvature = _linalg.symmetrized(half + half.T + more[0] - left)
    room = -setting.variances(blocks)[: len(setting.cap)]
    dual = layout.symmetrized(barrier - system.scaled_back(blocks) - point.dual)
    return _Change(
        solved=solved,
        blocks=blocks,
        dual=dual,
        weights=after - v,
        slacks=slacks,
        prices=prices - system.cap_stiffness * room - point.prices,
        room=room,
        curvature=curvature,
    )


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
