"""Covariances in blocks on cliques: a primal-dual interior-point method.

The blocks P_c follow the central path P_c S_c = mu I together with the multipliers S_c of the
cliques, v of the budgets and w of the caps, S_c = (H + diag(w) - N)_cc, N = R^-1 diag(v) R^-1.
Steps are Nesterov-Todd, their systems solved by conjugate gradients, loosely as long as mu is large
and to the end where the multipliers are to prove the gap. A step that overdraws budgets, which are
not linear in R, is followed by a rescaling of the rows concerned: it keeps every clique and meets
each budget on its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg

from noisedesign._checks import Array
from noisedesign.backends.base import Monitor, Stop
from noisedesign.backends.native.clique_blocks import longest_step
from noisedesign.backends.native.clique_newton import Change, NewtonSystem, newton_step
from noisedesign.backends.native.clique_repair import feasible_blocks
from noisedesign.backends.native.clique_state import Point, Setting, bounds, start
from noisedesign.clique_certificate import CliqueProgram, CliqueWitness

MAX_STEPS = 120
REACHED = 0.8
"""Share of the gap asked for at which to stop: the rest is left to rounding of the certificate."""
TO_BOUNDARY = 0.98
CENTERING = 0.3
"""Share of the present mu that the next step aims for, where steps are long."""
CENTERING_SLOW = 0.8
"""The same where steps are short."""
LAST_SHARE = 0.03
"""Share of the gap asked for that is left on the central path at the last mu."""
NEAR_LAST = 3.0
"""Ratio to the last mu below which systems are solved more and more tightly, where what is left of
their residuals cannot be moved into N."""
LOOSE, TIGHTER, TIGHTEST = 1e-2, 0.1, 1e-5
"""Residual a system is solved to; what it is multiplied by at every step near the last mu; and its
least value, after which mu itself is lowered."""
MAX_PRODUCTS = 1000
OVERDRAWN, REFILL_LEAST, REFILL_MOST = 0.1, 0.02, 0.5
"""A budget is overdrawn when its slack falls below the first share of mu / v, which is what its row
is then rescaled to, kept between the second share of the slack before and the third of the budget.
"""
FAR = 0.1
GROWTH = float(__import__("os").environ.get("GR", "1"))
"""Largest relative growth of R in a step, in any direction: N = R^-1 diag(v) R^-1 is linearised."""
SHORTER = 0.7
MAX_SHORTENINGS = 60


@dataclass(frozen=True, kw_only=True, eq=False)
class CliqueAnswer:
    """What was found, for the program as it was given.

    ``blocks`` P_c, shape (k, k), in the order of ``program.cliques``, feasible by construction, or
    None; ``witness`` is not necessarily feasible: the certificate repairs it. ``evaluations``
    counts interior-point steps, ``products`` those of all conjugate gradients.
    """

    stop: Stop
    blocks: tuple[Array, ...] | None
    witness: CliqueWitness | None
    evaluations: int = 0
    products: int = 0


@dataclass
class _Best:
    """The best of either side so far."""

    lower: float = 0.0
    upper: float = float("inf")
    blocks: Array | None = None
    witness: CliqueWitness | None = None

    def update(self, setting: Setting, point: Point) -> float:
        """Record a point; the gap of the best two bounds."""
        lower, upper, proof = bounds(setting, point)
        if upper < self.upper:
            self.upper, self.blocks = upper, point.blocks
        if lower > self.lower:
            self.lower, self.witness = lower, _witness(point, proof)
        return self.upper / self.lower - 1 if self.lower > 0 else float("inf")


def solve(program: CliqueProgram, *, monitor: Monitor) -> CliqueAnswer:
    """Solve (L) to ``monitor.gap``, or until time is over or the user interrupts."""
    normal = program.normalized()
    unit = float(np.diagonal(normal.gram).mean())
    setting = Setting(replace(normal, gram=normal.gram / unit))
    best, steps, products, stop = _Best(), 0, 0, Stop.INACCURATE
    try:
        point, centering, tolerance, share = start(setting), CENTERING, LOOSE, LAST_SHARE
        while steps < MAX_STEPS:
            gap = best.update(setting, point)
            monitor.report(lower=best.lower * unit, upper=best.upper * unit)
            if gap <= REACHED * monitor.gap:
                stop = Stop.SOLVED
                break
            if monitor.expired:
                stop = Stop.TIME_LIMIT
                break
            present = point.complementarity() / setting.order
            last = share * monitor.gap * best.upper / setting.order
            system = NewtonSystem(setting, point, mu=max(centering * present, last))
            if system.correction is not None or present > NEAR_LAST * last:
                tolerance = LOOSE
            else:
                tolerance *= TIGHTER
            if present <= NEAR_LAST * last and tolerance <= TIGHTEST:
                share, tolerance = share * CENTERING, LOOSE
            change = newton_step(
                system, tolerance=tolerance, most=MAX_PRODUCTS, expired=lambda: monitor.expired
            )
            products += change.products
            point, length = _step(setting, system, change, far=gap > FAR)
            centering = min(CENTERING_SLOW, max(CENTERING, 1 - length))
            steps += 1
    except KeyboardInterrupt:
        stop = Stop.INTERRUPTED
    except np.linalg.LinAlgError:
        stop = Stop.INACCURATE
    return _answer(program, setting, best, unit, stop, steps, products)


def _step(
    setting: Setting, system: NewtonSystem, change: Change, *, far: bool
) -> tuple[Point, float]:
    """The next point, and the shorter of the lengths of the primal and the dual step.

    N = R^-1 diag(v) R^-1 ties v to R, so v takes the primal step; w and S take the dual one.
    """
    point, layout = system.point, setting.layout
    dual_change = system.barrier - system.scaled_back(change.blocks) - point.dual
    dual_change = layout.symmetrized(dual_change)
    along = min(1.0, TO_BOUNDARY * longest_step(layout, point.blocks, change.blocks))
    dual_along = min(1.0, TO_BOUNDARY * longest_step(layout, point.dual, dual_change))
    weights = []
    for index, (v, s) in enumerate(zip(point.weights, point.slacks, strict=True)):
        precision = point.precisions[index]
        moved = layout.assemble(setting.restrict(change.blocks, index))
        pulled = precision @ moved
        gained = np.einsum("ij,ij->i", pulled, precision)
        if far:
            nodes = setting.hidden[index].nodes
            inside = np.ix_(nodes, nodes)
            along = min(along, GROWTH / max(_growth(precision[inside], moved[inside]), GROWTH))
        weights.append(np.where(v > 0, (system.mu - v * gained) / s - v, 0.0))
        along = min(along, _fraction(v, weights[-1]))
    prices = None
    if point.prices is not None and point.room is not None:
        taken = setting.variances(change.blocks)
        prices = (system.mu + point.prices * taken) / point.room - point.prices
        along = min(along, _fraction(point.room, -taken))
        dual_along = min(dual_along, _fraction(point.prices, prices))
    for _ in range(MAX_SHORTENINGS):
        moved_weights = [v + along * d for v, d in zip(point.weights, weights, strict=True)]
        new = _moved(setting, point, point.blocks + along * change.blocks, moved_weights, system.mu)
        if new is not None:
            break
        along *= SHORTER
    else:
        raise np.linalg.LinAlgError("no step within the caps")
    if prices is not None and point.prices is not None:
        new.prices = point.prices + dual_along * prices
    if change.curvature is not None and point.curvature is not None:
        new.curvature = point.curvature + dual_along * (change.curvature - point.curvature)
    new.dual = point.dual + dual_along * dual_change
    return new, min(along, dual_along)


def _moved(
    setting: Setting, point: Point, blocks: Array, weights: list[Array], mu: float
) -> Point | None:
    """The point at new blocks, overdrawn rows rescaled; None where that breaks a cap."""
    layout, row = setting.layout, np.ones(setting.layout.size)
    precisions = setting.precisions(blocks)
    for precision, v, before in zip(precisions, weights, point.slacks, strict=True):
        on = v > 0
        wanted = np.zeros(layout.size)
        wanted[on] = np.clip(mu / v[on], REFILL_LEAST * before[on], None)
        wanted = np.minimum(wanted, REFILL_MOST)
        used = np.diagonal(precision)
        overdrawn = on & (1 - used < OVERDRAWN * wanted)
        row[overdrawn] = np.maximum(row, np.sqrt(used / (1 - wanted)))[overdrawn]
    blocks = layout.scaled(blocks, row)
    precisions = [x / row[:, None] / row for x in precisions]
    room = None
    if setting.cap is not None:
        room = setting.cap - setting.variances(blocks)
        if not room.min() > 0:
            return None
    return Point(
        blocks=blocks, dual=point.dual, weights=weights, prices=point.prices,
        precisions=precisions, slacks=setting.slacks(precisions), room=room,
        curvature=point.curvature,
    )  # fmt: skip


def _growth(precision: Array, change: Array) -> float:
    """Largest eigenvalue of R^-1/2 dR R^-1/2."""
    return float(scipy.linalg.eigvalsh(change, precision, type=3)[-1])


def _fraction(values: Array, change: Array) -> float:
    """Longest step that keeps values positive, times TO_BOUNDARY."""
    falling = change < 0
    if not falling.any():
        return float("inf")
    return TO_BOUNDARY * float((-values[falling] / change[falling]).min())


def _witness(point: Point, curvatures: list[Array]) -> CliqueWitness:
    factors = []
    for curvature in curvatures:
        values, vectors = np.linalg.eigh(curvature)
        factors.append((vectors * np.sqrt(np.maximum(values, 0.0))).T)
    return CliqueWitness(
        factors=np.stack(factors), weights=np.stack(point.weights), cap=point.prices
    )


def _answer(
    program: CliqueProgram, setting: Setting, best: _Best, unit: float, stop: Stop, steps: int,
    products: int,
) -> CliqueAnswer:  # fmt: skip
    """Back in the units of ``program``, the blocks made feasible."""
    root, blocks, witness = np.sqrt(program.budget), None, None
    found = None if best.blocks is None else feasible_blocks(setting, best.blocks)
    if found is not None:
        blocks = tuple(setting.layout.listed(setting.layout.scaled(found, 1 / root)))
    if best.witness is not None:
        cap = best.witness.cap
        witness = CliqueWitness(
            factors=best.witness.factors * root * np.sqrt(unit),
            weights=best.witness.weights / program.budget * unit,
            cap=None if cap is None else cap * program.budget * unit,
        )  # fmt: skip
    return CliqueAnswer(
        stop=stop, blocks=blocks, witness=witness, evaluations=steps, products=products
    )
