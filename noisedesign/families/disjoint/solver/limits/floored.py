"""Floors under diag(X^-1), and caps: a primal-dual predictor-corrector method.

With N = H + diag(w - u), w of caps and u of floors, the optimum has N = X diag(v) X. Where a floor
leaves a budget slack an entry of v vanishes, N becomes singular with it, and X as a function of the
multipliers is 0 / 0. So X is an unknown of its own here, for which the multipliers need not be the
right ones: what is missing of stationarity vanishes with mu and the rest (:mod:`steps`).

v, w and u are solved for in a dense system, formed by a few matrix products. It serves a predictor
and a corrector step, as in :mod:`capped`. Of limits only those are watched that the variance has
come near to: few floors hold in the end, and none of the others has a price. The start is the
optimum without limits, or near it, whose variances may be far from a limit; they are brought to it
by some factor a step.

Nothing says that these steps arrive, as floors are not convex in X. Where they do not, which is
rare, :mod:`smoothed` takes over.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from noisedesign.base import settings
from noisedesign.base.checks import Array
from noisedesign.base.device import CPU, Device, eigh, on_host
from noisedesign.base.monitor import REACHED, Monitor, Search, Stop
from noisedesign.families.disjoint.program import Found
from noisedesign.families.disjoint.solver import diagonal
from noisedesign.families.disjoint.solver.limits import smoothed
from noisedesign.families.disjoint.solver.limits.frame import Frame, Sides, limits_of, sides_of
from noisedesign.families.disjoint.solver.limits.steps import State, System, held, newton, taken
from noisedesign.program.program import Program

TIED = 0.01
"""Room between a cap and a floor, over the gap asked for, below which they count as one."""
ENOUGH = 0.1
"""Share of the gap asked for below which there is no point in aiming: rounding is next."""
EASE = 0.1
"""Starting price of the caps, as a share of that of the budgets."""
NEAR = 1e-2
"""Gap to which the problem without limits is solved for a start, and the starting slack of a budget
of mean price: from further away there are more steps to take, from closer these are shorter."""
ROOM = 4.0
"""Slack of a limit that comes to be watched, at least, as a share of it."""
LEAST_SLACK = 0.1
"""Starting slacks of budgets, and of limits that are met by loud noise, as a share of them: at most
and at least."""
ABOVE = 1.1
"""Variance of loud noise over its floor, at the least."""
WATCHED = 1.2
"""A limit is watched once the variance is within this factor of it, or beyond."""
NEARER = 2.0
"""By what factor a step is asked to bring variances nearer to limits they are beyond."""
LEAST_CONDITION = 1e-8
"""Eigenvalues of N at the start at least, over the largest: it need not be optimal for it."""
GIVING_WAY = 0.9
"""Starting multipliers of floors at most, as a share of the diagonal of N."""
PATIENCE = 8
"""Steps in which neither mu nor the gap is halved after which the method has gone astray."""
NEARLY = 0.9
"""Of the distance to a limit: what is left of it after a step that got somewhere."""
ROUNDING = 1e-7
"""A gap that stops shrinking below this is held up by rounding, not by the method."""
PROMISING = 100.0
"""Products of multipliers and slacks, in all, over what the gap asked for leaves: from there on the
noise is looked at."""


class Start(NamedTuple):
    """X, but for limits; v of budgets and the price of caps, shape (n + k,), with the bound they
    prove; decompositions."""

    frame: Frame
    x: Array
    lower: float
    evaluations: int


def _start(program: Program, sides: Sides, device: Device, *, wary: bool) -> Start:
    """The optimum without limits, or near it, with a price on caps.

    Args:
        wary: whether a guess at it is enough, as it is where H is singular.
    """
    n, caps = program.size, sides.sign > 0
    gram = program.gram.copy()
    price = EASE * float(np.sqrt(np.diagonal(gram)).mean()) / sides.level
    price = np.where(caps, price, 0.0)
    gram[np.diag_indices(n)] += sides.net(np.concatenate([np.zeros(n), price]), n)
    own = np.diagonal(gram)
    v = np.sqrt(np.maximum(own, LEAST_CONDITION * own.max()))
    evaluations = 1
    if not wary:
        free = replace(program, gram=gram, cap=None, floor=None, exact_factor=None)
        found = diagonal.solve(free, monitor=Monitor(gap=NEAR), device=device)
        evaluations += found.evaluations
        if found.dual is not None:
            prices = found.dual.blocks[:, 0, 0]
            v = np.maximum(prices, LEAST_CONDITION * prices.max())
    squared, basis = eigh(device.put(gram * np.sqrt(v)[:, None] * np.sqrt(v)))
    there = on_host(squared)
    trace = float(np.sqrt(np.maximum(there, 0.0)).sum())
    lower = trace**2 / float(v.sum()) - float(sides.level @ price)
    root = np.sqrt(np.maximum(there, LEAST_CONDITION * there[-1]))
    scale = (float(root.sum()) / float(v.sum())) ** 2  # at which the sum of v is that of r
    v, root = v * scale, root * np.sqrt(scale)
    half, side = device.put(np.sqrt(v))[:, None], device.put(np.sqrt(root))
    frame = Frame(basis / half * side, basis * half / side, device.put(root))
    return Start(frame, np.concatenate([v, price]), lower, evaluations)


class _Watch:
    """Which limits count, and up to where for now."""

    def __init__(self, program: Program, every: Sides) -> None:
        self.program, self.every = program, every
        self.seen = every.tied.copy()
        self.most = GIVING_WAY * np.diagonal(program.gram)[every.node]

    def begun(self, start: Start) -> tuple[Sides, State]:
        """Budgets with a slack that goes with their price, and limits that are near."""
        n, tied = self.program.size, self.seen
        v = start.x[:n]
        least = np.minimum(NEAR * float(v.mean()) / v, LEAST_SLACK)
        slack = np.maximum(1 - on_host(start.frame.precision), least)
        x = np.concatenate([v, start.x[n:][tied]])
        slack = np.concatenate([slack, np.zeros(tied.sum())])
        bound = np.concatenate([np.full(n, True), np.full(tied.sum(), False)])
        return self.updated(State(start.frame, x, slack, bound))

    def louder(self, start: Start) -> tuple[Sides, State]:
        """All limits, and noise so loud that floors are met from the beginning.

        Where the noise is multiplied by some number and v by its square N stays as it is.
        """
        every, n, frame = self.every, self.program.size, start.frame
        wanted = np.where((every.sign > 0) & ~every.tied, 0.0, ABOVE * every.level)
        factor = max(1.0, float(np.max(wanted / on_host(frame.variance)[every.node])))
        more = float(np.sqrt(factor))
        frame = Frame(frame.outer / more, frame.inner * more, frame.root * factor)
        bound = np.concatenate([np.full(n, True), ~every.tied])
        limit = every.limit(n)
        slack = np.maximum(limit - held(every, frame), LEAST_SLACK * np.abs(limit))
        slack = np.where(bound, slack, 0.0)
        v, price = start.x[:n] * factor**2, start.x[n:]
        mu = float(v @ slack[:n]) / n
        z = np.divide(mu, slack[n:], out=price.copy(), where=bound[n:])
        z = np.where(every.sign > 0, z, np.minimum(z, self.most))
        self.seen = np.full(len(every.node), True)
        return every, State(frame, np.concatenate([v, z]), slack, bound)

    def updated(self, state: State) -> tuple[Sides, State]:
        """What is watched from now on, limits of which no more is asked than a step may bring."""
        every, n = self.every, self.program.size
        variance = on_host(state.frame.variance)[every.node]
        floors = every.sign < 0
        level = np.where(
            floors,
            np.minimum(every.level, NEARER * variance),
            np.maximum(every.level, variance / NEARER),
        )
        level = np.where(
            every.tied, np.clip(every.level, variance / NEARER, NEARER * variance), level
        )
        ratio = np.where(floors, variance / every.level, every.level / variance)
        seen = self.seen | (ratio < WATCHED)
        place = np.full((2, len(seen)), np.nan)
        place[:, self.seen] = state.x[n:], state.slack[n:]
        fresh = seen & ~self.seen
        room = np.where(floors, variance - level, level - variance)[fresh]
        slack = np.maximum(room, ROOM * level[fresh])
        price = state.mu / slack
        place[0, fresh] = np.where(floors[fresh], np.minimum(price, self.most[fresh]), price)
        place[1, fresh] = slack
        self.seen = seen
        sides = every._replace(level=level).of(np.flatnonzero(seen))
        x, slack = (
            np.concatenate([old[:n], new[seen]])
            for old, new in zip((state.x, state.slack), place, strict=True)
        )
        bound = np.concatenate([np.full(n, True), ~sides.tied])
        return sides, State(state.frame, x, slack, bound)

    def apart(self, sides: Sides) -> float:
        """The largest factor between a limit and what is asked for instead; 1 in the end."""
        apart = np.log(sides.level / self.every.level[self.seen])
        return float(np.exp(np.max(np.abs(apart), initial=0.0)))


class _Bounds:
    """Estimates of the dual value, and the bounds that are proved when they promise enough."""

    def __init__(self, program: Program) -> None:
        self.program, self.limits = program, limits_of(program)
        self.best = smoothed.Best(program)

    def multipliers(self, sides: Sides, x: Array) -> Array:
        """(v, w - u), one for every limited node."""
        net = sides.net(x, self.program.size)
        return np.concatenate([x[: self.program.size], net[self.limits.node]])

    def estimate(self, system: System) -> float:
        """The dual value to first order in E."""
        x, xp = system.state.x, system.xp
        trace = float(xp.sum(system.state.frame.root)) - float(xp.linalg.trace(system.excess)) / 2
        y = self.multipliers(system.sides, x)[self.program.size :]
        return trace**2 / float(x[: self.program.size].sum()) - self.limits.cost(y)

    def prove(self, sides: Sides, x: Array) -> int:
        """Take note of what x proves, and of how many decompositions that took.

        Multipliers of floors are lowered, all of them by one factor, until N is positive definite.
        """
        x, share = self.multipliers(sides, x), 0.0
        n, floors = self.program.size, x < 0
        while share < 1:
            moved = np.where(floors, (1 - share) * x, x)
            net = self.limits.net(moved[n:], size=n)
            share = max(4 * share, settings.EPS)
            try:
                factor = np.linalg.cholesky(self.program.gram + np.diag(net)).T
            except np.linalg.LinAlgError:
                continue
            v = moved[:n]
            half = factor * np.sqrt(v)
            trace = float(np.linalg.svd(half, compute_uv=False).sum())
            lower = trace**2 / float(v.sum()) - self.limits.cost(moved[n:])
            self.best.see_dual(moved, lower)
            return 1
        return 0


def solve(program: Program, *, monitor: Monitor, device: Device = CPU) -> Found:
    """Solve a normalised program of single participation with floors above what budgets ask for.

    Matrices are those of ``device``, vectors and what is proved NumPy's.
    """
    if program.cap is None and program.null_space.shape[1]:
        return Found(stop=Stop.FAILED, message="H is singular, and nothing caps the noise")
    known, evaluations, stop = _Bounds(program), 0, Stop.INACCURATE
    best = known.best
    for wary in (True,) if program.null_space.shape[1] else (False, True):
        stop, used = _searched(program, known, monitor=monitor, device=device, wary=wary)
        evaluations += used
        if stop is not Stop.INACCURATE or best.gap <= ROUNDING:
            dual = smoothed.dual_of(program, known.limits, best.x)
            return Found(stop=stop, gram=best.gram, dual=dual, evaluations=evaluations)
    return smoothed.solve(program, monitor=monitor, best=best, spent=evaluations)


def _searched(
    program: Program, known: _Bounds, *, monitor: Monitor, device: Device, wary: bool
) -> tuple[Stop, int]:
    """Improve what is known until it is enough; how that ended, and the decompositions it took."""
    every, best = sides_of(known.limits, room=TIED * monitor.gap), known.best
    start = _start(program, every, device, wary=wary)
    best.see_dual(known.multipliers(every, start.x), start.lower)
    watch = _Watch(program, every)
    sides, state = watch.louder(start) if wary else watch.begun(start)
    evaluations, waited, least, closest, furthest = start.evaluations, 0, np.inf, np.inf, np.inf
    with Search(monitor) as search:
        while waited < PATIENCE:
            system = System(program, sides, state, device)
            estimate = known.estimate(system)
            gap = np.inf
            if float(state.x @ state.slack) <= PROMISING * monitor.gap * estimate:
                best.see_covariance(on_host(state.frame.inner @ state.frame.inner.T))
                # Far from stationarity an estimate may be above the optimum, and means nothing.
                gap = abs(best.upper / estimate - 1)
                if gap <= REACHED * monitor.gap:
                    evaluations += known.prove(sides, state.x)
            monitor.report(lower=best.lower, upper=best.upper)
            if search.ended(solved=best.gap <= REACHED * monitor.gap):
                break
            apart = watch.apart(sides)
            waited += 1
            if state.mu < least / 2 or gap < closest / 2 or apart < NEARLY * furthest:
                waited, least, closest = 0, min(least, state.mu), min(closest, gap)
                furthest = min(furthest, apart)
            enough = ENOUGH * monitor.gap * abs(estimate) / len(state.x)
            if apart > 1:
                enough = max(enough, state.mu)
            moved, used = taken(system, newton(system, enough=enough, wary=wary), wary=wary)
            evaluations += used
            if moved is None:
                break
            sides, state = (every, moved) if wary else watch.updated(moved)
    if search.stop is not Stop.SOLVED:
        best.see_covariance(on_host(state.frame.inner @ state.frame.inner.T))
    return search.stop, evaluations
