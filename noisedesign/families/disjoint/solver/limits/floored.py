"""Floors under diag(X^-1), and caps: a primal-dual predictor-corrector method.

With N = H + diag(w - u), w of caps and u of floors, the optimum has N = X diag(v) X. Where a floor
leaves a budget slack an entry of v vanishes, N becomes singular with it, and X as a function of the
multipliers is 0 / 0. So X is an unknown of its own here, for which the multipliers need not be the
right ones: what is missing of stationarity vanishes with mu and the rest.

v, w and u are solved for in a dense system, formed by some fifteen matrix products. It serves a
predictor and a corrector step, as in :mod:`capped` (below), and a singular value decomposition
finds the next frame. The start is a point near the optimum without limits, its noise scaled up
until all floors are met: the multipliers that belong to that are known, and nearly centred.

Nothing says that these steps arrive, as floors are not convex in X. Where they do not, which is
rare, :mod:`smoothed` takes over.

One step towards the optimum under floors and caps: a predictor, a corrector, and how far to go.

Unknown are X, multipliers x = (v, z) and slacks. In the coordinates of :mod:`frame`, with
E = X diag(v) X - N what is missing of stationarity, X moves to T (1 + F) T^T, and to first order

    (r_k + r_l) F_kl = [B^T (dN - E) B - T^T dV T]_kl.

So F is had by one division, and what is limited, the diagonals of X and of R, is linear in x. The
second order of R is B F F B^T, that of stationarity F diag(r) F + F T^T dV T and its transpose.
"""

from __future__ import annotations

from typing import NamedTuple

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from noisedesign.base import settings
from noisedesign.base.checks import Array
from noisedesign.base.device import (
    CPU,
    Device,
    DeviceArray,
    cholesky_of,
    eigh,
    identity,
    namespace,
    on_host,
    solver_of_positive,
)
from noisedesign.base.linalg import is_positive
from noisedesign.base.monitor import REACHED, Monitor, Search, Stop
from noisedesign.families.disjoint.program import Found
from noisedesign.families.disjoint.solver.limits import pairs, smoothed
from noisedesign.families.disjoint.solver.limits.frame import (
    Frame,
    Sides,
    limits_of,
    longest,
    sides_of,
)
from noisedesign.program.program import Program

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


def _start(program: Program, sides: Sides, device: Device) -> tuple[State, Array, float]:
    """A feasible X, but for caps, and the multipliers that go with it; multipliers of budgets and
    caps alone, and the bound that they prove.

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
    there, basis = eigh(device.put(shifted * np.sqrt(v)[:, None] * np.sqrt(v)))
    squared = on_host(there)
    trace = float(np.sqrt(np.maximum(squared, 0.0)).sum())
    lower = trace**2 / float(v.sum()) - float(sides.level @ price)
    root = np.sqrt(np.maximum(squared, LEAST_CONDITION * squared[-1]))
    scale = (float(root.sum()) / float(v.sum())) ** 2  # at which the sum of v is that of r
    v, root = v * scale, root * np.sqrt(scale)
    half, side = device.put(np.sqrt(v))[:, None], device.put(np.sqrt(root))
    frame = Frame(basis / half * side, basis * half / side, device.put(root))
    wanted = np.where(caps & ~sides.tied, 0.0, ABOVE * sides.level)
    louder = max(1.0, float(np.max(wanted / on_host(frame.variance)[sides.node])))
    more = float(np.sqrt(louder))
    frame = Frame(frame.outer / more, frame.inner * more, frame.root * louder)
    v = v * louder**2
    limit = sides.limit(n)
    slack = limit - _held(sides, frame)
    bound = np.concatenate([np.full(n, True), ~sides.tied])
    slack = np.where(bound, np.maximum(slack, LEAST_SLACK * np.abs(limit)), 0.0)
    mu = float(v @ slack[:n]) / n
    z = np.divide(mu, slack[n:], out=price.copy(), where=bound[n:])
    z = np.where(caps, z, np.minimum(z, GIVING_WAY * diagonal[sides.node]))
    state = State(frame, np.concatenate([v, z]), slack, bound)
    return state, np.concatenate([v, price]), lower


def _held(sides: Sides, frame: Frame) -> Array:
    return sides.held(on_host(frame.precision), on_host(frame.variance))


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
        x, xp = system.state.x, system.xp
        trace = float(xp.sum(system.state.frame.root)) - float(xp.linalg.trace(system.excess)) / 2
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


def solve(program: Program, *, monitor: Monitor, device: Device = CPU) -> Found:
    """Solve a normalised program of single participation with floors above what budgets ask for.

    Matrices are those of ``device``, vectors and what is proved NumPy's.
    """
    if program.cap is None and program.null_space.shape[1]:
        return Found(stop=Stop.FAILED, message="H is singular, and nothing caps the noise")
    sides = sides_of(limits_of(program), room=TIED * monitor.gap)
    known = _Bounds(program, sides)
    state: State | None
    best, (state, x, lower) = known.best, _start(program, sides, device)
    best.see_dual(known.multipliers(x), lower)
    evaluations, waited, least, closest = 1, 0, np.inf, np.inf
    with Search(monitor) as search:
        while state is not None and waited < PATIENCE:
            best.see_covariance(on_host(state.frame.inner @ state.frame.inner.T))
            system = System(program, sides, state, device)
            estimate = known.estimate(system)
            # Far from stationarity an estimate may be above the optimum, and means nothing.
            gap = abs(best.upper / estimate - 1) if estimate > 0 else np.inf
            if gap <= REACHED * monitor.gap:
                evaluations += known.prove(state.x)
            monitor.report(lower=best.lower, upper=best.upper)
            if search.ended(solved=best.gap <= REACHED * monitor.gap):
                break
            waited += 1
            if state.mu < least / 2 or gap < closest / 2:
                waited, least, closest = 0, min(least, state.mu), min(closest, gap)
            enough = ENOUGH * monitor.gap * abs(estimate) / len(state.x)
            state = taken(system, newton(system, enough=enough))
            evaluations += 1
    if search.stop is Stop.INACCURATE and best.gap > ROUNDING:
        return smoothed.solve(program, monitor=monitor, best=best, spent=evaluations)
    dual = smoothed.dual_of(program, known.limits, best.x)
    return Found(stop=search.stop, gram=best.gram, dual=dual, evaluations=evaluations)


TO_BOUNDARY = 0.99
"""Share of the longest step that keeps multipliers and slacks positive; what is left is multiplied
by the share of mu that the predictor leaves, so that the end is quick."""
SHRINK, GROW = 0.9, 2.0
"""How much of X, in its own coordinates, a step may take away or add: first orders of 1 / (1 + F)
say little beyond."""
APART = 0.6
"""Steps of X and of the multipliers shorter than this are taken alike: with one of them far ahead
stationarity is lost."""
BACKTRACK = 0.95
"""By how much a step is shortened until X stays within these limits."""
SMALL = 64
"""Nodes up to which sums over pairs are exact, as they cost little."""
SPACING = 1.3
"""Of the times of a sum of exponentials: an error of a hundredth, which costs a step in ten."""
TRUE_SLACK = 0.5
"""Share of what a slack was to be above which its true value replaces it."""


class State(NamedTuple):
    """The frame of X; multipliers x = (v, z) and slacks, shape (n + k,), in the order of Sides.

    Those that are ``bound`` by a sign, multiplier and slack, have a product of mu in the end.
    """

    frame: Frame
    x: Array
    slack: Array
    bound: NDArray[np.bool_]

    @property
    def mu(self) -> float:
        return float(self.x @ self.slack) / float(self.bound.sum())

    def reach(self, step: Step) -> tuple[float, float]:
        """How much of a step leaves multipliers and slacks positive, but for rounding at most 1."""
        x, slack, bound = self.x, self.slack, self.bound
        return longest(x[bound], step.x[bound]), longest(slack[bound], step.slack[bound])


class Step(NamedTuple):
    """Changes of multipliers and slacks; F of X, and T^T diag(dv) T; the share of the longest step
    to take."""

    x: Array
    slack: Array
    f: DeviceArray
    seen: DeviceArray
    share: float = TO_BOUNDARY


class System:
    """Newton's equations at a state, formed and factored."""

    def __init__(self, program: Program, sides: Sides, state: State, device: Device = CPU) -> None:
        self.sides, self.state, self.size, self.put = sides, state, program.size, device.put
        frame, n = state.frame, program.size
        self.xp = xp = namespace(frame.outer)
        there = self.put(program.gram + np.diag(sides.net(state.x, n)))
        # B^T E B. What may be rounding of it counts for nothing: along the null space of N it would
        # be divided by as little.
        eye = identity(n, like=frame.root)
        excess = eye * frame.root - frame.inner.T @ there @ frame.inner
        size = xp.abs(frame.inner)
        rounding = settings.rank_tolerance(n) * (size.T @ (xp.abs(there) @ size))
        self.excess = xp.where(xp.abs(excess) <= rounding, xp.zeros_like(excess), excess)
        self.missing = sides.limit(n) - _held(sides, frame) - state.slack
        budgets, across, limits = _sums_over_pairs(frame)
        node, sign = (
            xp.asarray(sides.node, device=array_api_compat.device(eye)),
            self.put(sides.sign),
        )
        across = -xp.take(across, node, axis=1) * sign
        limits = xp.take(xp.take(limits, node, axis=0), node, axis=1) * sign * sign[:, None]
        sides_of_it = xp.concat([budgets, across], axis=1), xp.concat([across.T, limits], axis=1)
        matrix = xp.concat(sides_of_it)
        self.per_multiplier = np.divide(1.0, state.x, out=np.zeros_like(state.x), where=state.bound)
        own = self.put(state.slack * self.per_multiplier)
        matrix += identity(len(state.x), like=own) * own
        scale = 1 / xp.sqrt(xp.linalg.diagonal(matrix))
        matrix *= scale[:, None] * scale
        self.scale = on_host(scale)
        self.solved = solver_of_positive(matrix)

    def along(self, f: DeviceArray) -> Array:
        """How what is held changes along F, to first order."""
        frame = self.state.frame
        return self.sides.held(on_host(frame.precision_along(f)), -on_host(frame.variance_along(f)))

    def step(self, *, aim: Array, curved: DeviceArray, bent: Array) -> Step:
        """The step after which x s is ``aim``, to first order and as far as second orders are told.

        Args:
            curved: of B^T X diag(v) X B. bent: of what is held.
        """
        frame, n = self.state.frame, self.size
        given = -frame.shared(self.excess + curved)
        known = self.missing - self.along(given) - bent
        right = self.scale * (aim * self.per_multiplier - self.state.slack - known)
        d = self.scale * on_host(self.solved(self.put(right)))
        seen = frame.of_budgets(self.put(d[:n]))
        f = given + frame.shared(frame.of_limits(self.put(self.sides.net(d, n))) - seen)
        # Of two ways to say it the one in which rounding is small against slacks that vanish.
        slack = (aim - self.state.slack * d) * self.per_multiplier - self.state.slack
        return Step(d, slack, f, seen)


def _sums_over_pairs(frame: Frame) -> tuple[DeviceArray, DeviceArray, DeviceArray]:
    """sum_kl P_ik P_il Q_jk Q_jl / (r_k + r_l) for P, Q of T, B: (T, T), (T, B) and (B, B)."""
    n, xp = frame.root.shape[0], namespace(frame.outer)
    if n <= SMALL and isinstance(frame.outer, np.ndarray):
        return _exact_sums_over_pairs(frame)
    rule = pairs.fitted(*pairs.range_of(frame.root), spacing=SPACING)
    both = xp.concat([frame.outer, frame.inner])
    sums = xp.zeros_like(xp.concat([both, both], axis=1))
    for decay in pairs.decays(frame.root, rule):
        half = both * decay
        pairs.add_squares(sums, half, half)
    return sums[:n, :n], sums[:n, n:], sums[n:, n:]


def _exact_sums_over_pairs(frame: Frame) -> tuple[Array, Array, Array]:
    """The same by n products."""
    outer, inner = frame.outer, frame.inner
    n = len(outer)
    kernel = 1 / np.add.outer(frame.root, frame.root)
    sums = np.empty((3, n, n))
    for i in range(n):
        rows = (outer[i], inner[i])
        side = np.concatenate([kernel * np.multiply.outer(row, row) for row in rows], axis=1)
        seen = (inner @ side).reshape(n, 2, n)
        sums[0, i] = np.einsum("jk,jk->j", outer @ side[:, :n], outer)
        sums[1:, i] = np.einsum("jfk,jk->fj", seen, inner)
    return sums[0], sums[1], sums[2]


def newton(system: System, *, enough: float) -> Step:
    """What a predictor and a corrector step advise, for a mu of no less than ``enough``."""
    state, frame = system.state, system.state.frame
    none = np.zeros_like(state.x)
    first = system.step(aim=none, curved=0 * system.excess, bent=none)
    reach = [min(1.0, whole) for whole in state.reach(first)]
    ahead = float((state.x + reach[0] * first.x) @ (state.slack + reach[1] * first.slack))
    left = float(np.clip(ahead / float(state.x @ state.slack), settings.sqrt_eps(), 1.0))
    aim = max(left**3 * state.mu, enough)
    # Second-order terms are told by a step that went so far only; they may mislead at its end.
    trust, f = min(reach), first.f
    mixed = f @ first.seen
    variance = on_host(frame.variance_along(f @ f))
    step = system.step(
        aim=aim - trust * first.x * first.slack,
        curved=trust * ((f * frame.root) @ f + mixed + mixed.T),
        bent=trust * system.sides.held(np.zeros(system.size), variance),
    )
    return step._replace(share=1 - (1 - TO_BOUNDARY) * left)


def taken(system: System, step: Step) -> State | None:
    """The state a step leads to, by one decomposition; None where X is lost to rounding."""
    state, sides, n = system.state, system.sides, system.size
    along_x, along = (min(1.0, step.share * whole) for whole in state.reach(step))
    xp = system.xp
    eye = identity(n, like=step.f)
    while along > settings.EPS and not (
        _is_positive(eye + along / SHRINK * step.f) and _is_positive(eye - along / GROW * step.f)
    ):
        along *= BACKTRACK
    shorter = min(along_x, along)
    if shorter < APART:
        along_x = along = shorter
    x, slack = state.x + along_x * step.x, state.slack + along * step.slack
    try:
        root = state.frame.outer @ cholesky_of(eye + along * step.f)
        _, values, right = xp.linalg.svd(system.put(np.sqrt(x[:n]))[:, None] * root)
        inner = xp.linalg.solve(root.T, right.T)
        frame = Frame(root @ right.T, inner, xp.square(values))
    except np.linalg.LinAlgError:
        return None
    if not float(xp.min(frame.root)) > 0:
        return None
    true = sides.limit(n) - _held(sides, frame)
    slack = np.where(state.bound & (true > TRUE_SLACK * slack), true, slack)
    return state._replace(frame=frame, x=x, slack=slack)


def _is_positive(a: DeviceArray) -> bool:
    if isinstance(a, np.ndarray):
        return is_positive(a)
    try:
        cholesky_of(a)
    except np.linalg.LinAlgError:
        return False
    return True
