"""Floors under diag(X^-1), and caps: a primal-dual predictor-corrector method.

With N = H + diag(w - u), w of caps and u of floors, the optimum has N = X diag(v) X. Where a floor
leaves a budget slack an entry of v vanishes, N becomes singular with it, and X as a function of the
multipliers is 0 / 0. So X is an unknown of its own here, for which the multipliers need not be the
right ones: what is missing of stationarity vanishes with mu and the rest.

v, w and u are solved for in a dense system, formed by n matrix products. It serves a predictor and
a corrector step, as in :mod:`capped` (see :mod:`floored_step`), and a singular value decomposition
finds the next frame. The start is a point near the optimum without limits, its noise scaled up
until all floors are met: the multipliers that belong to that are known, and nearly centred.

Nothing says that these steps arrive, as floors are not convex in X. Where they do not, which is
rare, :mod:`smoothed` takes over.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from noisedesign.base import settings
from noisedesign.base.checks import Array
from noisedesign.base.monitor import Monitor, Stop
from noisedesign.families.disjoint.native.limits import smoothed
from noisedesign.families.disjoint.native.limits.floored_step import State, System, newton, taken
from noisedesign.families.disjoint.native.limits.frame import Frame
from noisedesign.families.disjoint.native.limits.variance_limits import Sides, limits_of, sides_of
from noisedesign.families.disjoint.program import Found
from noisedesign.program.program import Program

REACHED = 0.8
"""Share of the gap asked for at which to stop: the rest is left to the exact repair."""
TIED = 0.01
"""Room between a cap and a floor, over the gap asked for, below which they count as one."""
ENOUGH = 0.1
"""Share of the gap asked for below which there is no point in aiming: rounding is next."""
EASE = 0.1
"""Starting price of the caps, as a share of that of the budgets."""
LEAST_SLACK = 0.1
"""Starting slacks at least, as a share of the limit."""
ABOVE = 1.1
"""Variance of the noise to start from over its floor, at the least."""
LEAST_CONDITION = 1e-8
"""Eigenvalues of N at the start at least, over the largest: it need not be optimal for it."""
GIVING_WAY = 0.9
"""Starting multipliers of floors at most, as a share of the diagonal of N."""
PATIENCE = 6
"""Steps in which neither mu nor the gap is halved after which the method has gone astray."""
ROUNDING = 1e-7
"""A gap that stops shrinking below this is held up by rounding, not by the method."""


class Beginning(NamedTuple):
    """A state; multipliers of budgets and caps alone, and the bound that they prove."""

    state: State
    x: Array
    lower: float


def _start(program: Program, sides: Sides) -> Beginning:
    """A feasible X, but for caps, and the multipliers that go with it.

    X and v are those of the dual without floors, at a v near its maximum. Where the noise is
    multiplied by some number and v by its square N stays as it is.
    """
    n, caps = program.size, sides.sign > 0
    shifted = program.gram.copy()
    price = EASE * float(np.sqrt(np.diagonal(shifted)).mean()) / sides.level
    price = np.where(caps, price, 0.0)
    shifted[np.diag_indices(n)] += sides.net(np.concatenate([np.zeros(n), price]), n)
    diagonal = np.diagonal(shifted)
    v = np.sqrt(np.maximum(diagonal, LEAST_CONDITION * diagonal.max()))
    squared, basis = np.linalg.eigh(shifted * np.sqrt(v)[:, None] * np.sqrt(v))
    trace = float(np.sqrt(np.maximum(squared, 0.0)).sum())
    lower = trace**2 / float(v.sum()) - float(sides.level @ price)
    root = np.sqrt(np.maximum(squared, LEAST_CONDITION * squared[-1]))
    scale = (float(root.sum()) / float(v.sum())) ** 2  # at which the sum of v is that of r
    v, root = v * scale, root * np.sqrt(scale)
    half = np.sqrt(v)[:, None] / np.sqrt(root)
    frame = Frame(basis / half, basis * half, root)
    wanted = np.where(caps & ~sides.tied, 0.0, ABOVE * sides.level)
    louder = max(1.0, float(np.max(wanted / frame.variance[sides.node])))
    frame = Frame(frame.outer / np.sqrt(louder), frame.inner * np.sqrt(louder), root * louder)
    v = v * louder**2
    limit = sides.limit(n)
    slack = limit - sides.held(frame.precision, frame.variance)
    bound = np.concatenate([np.full(n, True), ~sides.tied])
    slack = np.where(bound, np.maximum(slack, LEAST_SLACK * np.abs(limit)), 0.0)
    mu = float(v @ slack[:n]) / n
    z = np.divide(mu, slack[n:], out=price.copy(), where=bound[n:])
    z = np.where(caps, z, np.minimum(z, GIVING_WAY * diagonal[sides.node]))
    state = State(frame, np.concatenate([v, z]), slack, bound)
    return Beginning(state, np.concatenate([v, price]), lower)


class _Bounds:
    """Estimates of the dual value, and the bounds that are proved when they promise enough."""

    def __init__(self, program: Program, sides: Sides) -> None:
        self.program, self.sides, self.limits = program, sides, limits_of(program)
        self.best = smoothed.Best(program)

    def multipliers(self, x: Array) -> Array:
        """(v, w - u), one for every limited node."""
        net = self.sides.net(x, self.program.size)
        return np.concatenate([x[: self.program.size], net[self.limits.node]])

    def estimate(self, system: System) -> float:
        """The dual value to first order in E."""
        x, root = system.state.x, system.state.frame.root
        trace = float(root.sum()) - float(np.trace(system.excess)) / 2
        y = self.multipliers(x)[self.program.size :]
        return trace**2 / float(x[: self.program.size].sum()) - self.limits.cost(y)

    def prove(self, x: Array) -> int:
        """Take note of what x proves, and of how many decompositions that took.

        Multipliers of floors are lowered, all of them by one factor, until N is positive definite.
        """
        x, share = self.multipliers(x), 0.0
        floors = x < 0
        while share < 1:
            moved = np.where(floors, (1 - share) * x, x)
            point = smoothed.evaluate(self.program, self.limits, moved)
            if point is not None:
                lower = smoothed.lower_bound(self.program, self.limits, point)
                self.best.see_dual(moved, lower)
                return 1
            share = max(4 * share, settings.EPS)
        return 0


def solve(program: Program, *, monitor: Monitor) -> Found:
    """Solve a normalised program of single participation with floors above what budgets ask for."""
    if program.cap is None and program.null_space.shape[1]:
        return Found(stop=Stop.FAILED, message="H is singular, and nothing caps the noise")
    sides = sides_of(limits_of(program), room=TIED * monitor.gap)
    known = _Bounds(program, sides)
    best, beginning = known.best, _start(program, sides)
    best.see_dual(known.multipliers(beginning.x), beginning.lower)
    state: State | None = beginning.state
    evaluations, waited, least, closest, stop = 1, 0, np.inf, np.inf, Stop.INACCURATE
    try:
        while state is not None and waited < PATIENCE:
            best.see_covariance(state.frame.inner @ state.frame.inner.T)
            system = System(program, sides, state)
            estimate = known.estimate(system)
            # Far from stationarity an estimate may be above the optimum, and means nothing.
            gap = abs(best.upper / estimate - 1) if estimate > 0 else np.inf
            if gap <= REACHED * monitor.gap:
                evaluations += known.prove(state.x)
            monitor.report(lower=best.lower, upper=best.upper)
            if best.gap <= REACHED * monitor.gap:
                stop = Stop.SOLVED
                break
            if monitor.expired:
                stop = Stop.TIME_LIMIT
                break
            waited += 1
            if state.mu < least / 2 or gap < closest / 2:
                waited, least, closest = 0, min(least, state.mu), min(closest, gap)
            enough = ENOUGH * monitor.gap * abs(estimate) / len(state.x)
            state = taken(system, newton(system, enough=enough))
            evaluations += 1
    except np.linalg.LinAlgError:
        pass  # a system so singular that rounding hides it
    except KeyboardInterrupt:
        stop = Stop.INTERRUPTED
    if stop is Stop.INACCURATE and best.gap > ROUNDING:
        return smoothed.solve(program, monitor=monitor, best=best, spent=evaluations)
    return Found(
        stop=stop,
        gram=best.gram,
        dual=smoothed.dual_of(program, known.limits, best.x),
        evaluations=evaluations,
    )
