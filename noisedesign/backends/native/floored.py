"""Diagonal budgets with floors under diag(X^-1), and caps: a primal-dual predictor-corrector method.

With N = H + diag(w - u), w of caps and u of floors, the optimum has N = X diag(v) X. Where a floor
leaves a budget slack an entry of v vanishes, N becomes singular with it, and X as a function of the
multipliers is 0 / 0. So X is an unknown of its own here, for which the multipliers need not be the
right ones: what is missing of stationarity, E = X diag(v) X - N, vanishes with mu and the rest.

X moves to T (1 + F) T^T in the coordinates of :mod:`frame`, in which F is had by one division, and
v, w and u are left to solve for: a dense system, formed by n matrix products. It serves a predictor
and a corrector step, as in :mod:`capped`, and a singular value decomposition finds the next frame.
The start is a point near the optimum without limits, its noise scaled up until all floors are met:
the multipliers that belong to that are known, and next to centred.

Nothing says that these steps arrive, as floors are not convex in X. Where they do not, as happens
with high floors under few nodes, :mod:`smoothed` takes over.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg

from noisedesign import settings
from noisedesign._checks import Array
from noisedesign.backends.base import Answer, Monitor, Stop
from noisedesign.backends.native import smoothed
from noisedesign.backends.native.frame import Frame, longest
from noisedesign.backends.native.variance_limits import Sides, limits_of, sides_of
from noisedesign.formulations import Program

TO_BOUNDARY = 0.99
"""Share of the longest step that keeps multipliers and slacks positive; what is left is multiplied
by the share of mu that the predictor leaves, so that the end is quick."""
SHRINK, GROW = 0.9, 2.0
"""How much of X, in its own coordinates, a step may take away or add: first orders of 1 / (1 + F)
say little beyond."""
APART = 0.6
"""Steps of X and of the multipliers shorter than this are taken alike: with one of them far ahead
stationarity is lost."""
BACKTRACK = 0.8
TRUE_SLACK = 0.5
"""Share of what a slack was to be above which its true value replaces it."""
REACHED = 0.8
"""Share of the gap asked for at which to stop: the rest is left to the exact repair."""
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
GIVING_WAY = 0.3
"""Starting multipliers of floors at most, as a share of the diagonal of N."""
PATIENCE = 6
"""Steps in which neither mu nor the gap is halved after which the method has gone astray."""
ROUNDING = 1e-7
"""A gap that stops shrinking below this is held up by rounding, not by the method."""


class State(NamedTuple):
    """The frame of X; multipliers x = (v, z) and slacks, shape (n + k,), in the order of Sides."""

    frame: Frame
    x: Array
    slack: Array

    @property
    def mu(self) -> float:
        return float(self.x @ self.slack) / len(self.x)


class Step(NamedTuple):
    """Changes of multipliers and slacks; F of X, and T^T diag(dv) T; the share of the longest step
    to take."""

    x: Array
    slack: Array
    f: Array
    seen: Array
    share: float = TO_BOUNDARY


class System:
    """Newton's equations at a state, formed and factored."""

    def __init__(self, program: Program, sides: Sides, state: State) -> None:
        self.sides, self.state, self.size = sides, state, program.size
        frame, n, node = state.frame, program.size, sides.node
        net = np.diagonal(program.gram) + sides.net(state.x, n)
        there = program.gram.copy()
        np.fill_diagonal(there, net)
        self.excess = np.diag(frame.root) - frame.inner.T @ there @ frame.inner  # B^T E B
        self.missing = (
            sides.limit(n) - sides.held(frame.precision, frame.variance) - state.slack
        )  # fmt: skip
        budgets, across, limits = _sums_over_pairs(frame)
        across = -across[:, node] * sides.sign
        limits = limits[np.ix_(node, node)] * np.multiply.outer(sides.sign, sides.sign)
        matrix = np.block([[budgets, across], [across.T, limits]])
        matrix += np.diag(state.slack / state.x)
        self.scale = 1 / np.sqrt(np.diagonal(matrix))
        matrix *= self.scale[:, None] * self.scale
        self.factor = scipy.linalg.cho_factor(matrix)

    def along(self, f: Array) -> Array:
        """How what is held changes along F, to first order."""
        frame = self.state.frame
        return self.sides.held(frame.precision_along(f), -frame.variance_along(f))

    def step(self, *, aim: Array, curved: Array, bent: Array) -> Step:
        """The step after which x s is ``aim``, to first order and as far as second orders are told.

        Args:
            curved: of B^T X diag(v) X B. bent: of what is held.
        """
        frame, n, x = self.state.frame, self.size, self.state.x
        given = -frame.shared(self.excess + curved)
        known = self.missing - self.along(given) - bent
        right = self.scale * (aim / x - self.state.slack - known)
        d = self.scale * scipy.linalg.cho_solve(self.factor, right)
        seen = frame.of_budgets(d[:n])
        f = given + frame.shared(frame.of_limits(self.sides.net(d, n)) - seen)
        # Of two ways to say it the one in which rounding is small against slacks that vanish.
        return Step(d, (aim - self.state.slack * d) / x - self.state.slack, f, seen)


def _sums_over_pairs(frame: Frame) -> tuple[Array, Array, Array]:
    """sum_kl P_ik P_il Q_jk Q_jl / (r_k + r_l) for P, Q of T, B: (T, T), (T, B) and (B, B)."""
    outer, inner = frame.outer, frame.inner
    n = len(outer)
    kernel = 1 / np.add.outer(frame.root, frame.root)
    sums = np.empty((3, n, n))
    for i in range(n):
        side = np.concatenate(
            [kernel * np.multiply.outer(row, row) for row in (outer[i], inner[i])], axis=1
        )
        seen = (inner @ side).reshape(n, 2, n)
        sums[0, i] = np.einsum("jk,jk->j", outer @ side[:, :n], outer)
        sums[1:, i] = np.einsum("jfk,jk->fj", seen, inner)
    return sums[0], sums[1], sums[2]


def _newton(system: System, *, enough: float) -> Step:
    """What a predictor and a corrector step advise, for a mu of no less than ``enough``."""
    state, frame = system.state, system.state.frame
    nothing = np.zeros_like(system.excess)
    first = system.step(
        aim=np.zeros_like(state.x), curved=nothing, bent=np.zeros_like(state.x)
    )  # fmt: skip
    reach = min(1.0, longest(state.x, first.x)), min(1.0, longest(state.slack, first.slack))
    ahead = float((state.x + reach[0] * first.x) @ (state.slack + reach[1] * first.slack))
    left = min(1.0, ahead / len(state.x) / state.mu)
    aim = max(left**3 * state.mu, enough)
    # Second-order terms are told by a step that went so far only; they may mislead at its end.
    trust, f = min(reach), first.f
    mixed = f @ first.seen
    step = system.step(
        aim=aim - trust * first.x * first.slack,
        curved=trust * ((f * frame.root) @ f + mixed + mixed.T),
        bent=trust
        * system.sides.held(np.zeros(system.size), frame.variance_along(f @ f)),
    )  # fmt: skip
    return step._replace(share=1 - (1 - TO_BOUNDARY) * left)


def _taken(system: System, step: Step) -> tuple[State | None, float]:
    """The state a step leads to, one decomposition, and the shorter of its two lengths.

    No state where X has lost its definiteness to rounding.
    """
    state, sides, n = system.state, system.sides, system.size
    along_x = min(1.0, step.share * longest(state.x, step.x))
    along = min(1.0, step.share * longest(state.slack, step.slack))
    eye = np.eye(n)
    while along > settings.EPS and not (
        _positive(eye + along / SHRINK * step.f) and _positive(eye - along / GROW * step.f)
    ):
        along *= BACKTRACK
    shorter = min(along_x, along)
    if shorter < APART:
        along_x = along = shorter
    x, slack = state.x + along_x * step.x, state.slack + along * step.slack
    try:
        root = state.frame.outer @ np.linalg.cholesky(eye + along * step.f)
        _, values, right = np.linalg.svd(np.sqrt(x[:n])[:, None] * root)
        frame = Frame(root @ right.T, np.linalg.solve(root.T, right.T), np.square(values))
    except np.linalg.LinAlgError:
        return None, shorter
    true = sides.limit(n) - sides.held(frame.precision, frame.variance)
    return State(frame, x, np.where(true > TRUE_SLACK * slack, true, slack)), shorter


def _positive(a: Array) -> bool:
    try:
        np.linalg.cholesky(a)
    except np.linalg.LinAlgError:
        return False
    return True


def _start(program: Program, sides: Sides) -> tuple[State, float]:
    """A feasible X with multipliers to go with it, and the bound that those of budgets and caps
    prove.

    X and v are those of the dual without floors, at a v near its maximum. Where the noise is
    multiplied by some number and v by its square N stays as it is.
    """
    n, caps = program.size, sides.sign > 0
    gram = program.gram.copy()
    price = np.where(caps, EASE * float(np.sqrt(np.diagonal(gram)).mean()) / sides.level, 0.0)
    gram[np.diag_indices(n)] += sides.net(np.concatenate([np.zeros(n), price]), n)
    diagonal = np.diagonal(gram)
    v = np.sqrt(diagonal)
    squared, basis = np.linalg.eigh(gram * np.sqrt(v)[:, None] * np.sqrt(v))
    root = np.sqrt(np.maximum(squared, LEAST_CONDITION * squared[-1]))
    trace = float(np.sqrt(np.maximum(squared, 0.0)).sum())
    lower = trace**2 / float(v.sum()) - float(sides.level @ price)
    scale = (float(root.sum()) / float(v.sum())) ** 2  # at which the sum of v is that of r
    v, root = v * scale, root * np.sqrt(scale)
    half = np.sqrt(v)[:, None] / np.sqrt(root)
    variance = np.einsum("ij,ij->i", half * basis, half * basis)
    above = float(np.max(np.where(caps, 0.0, ABOVE * sides.level) / variance[sides.node]))
    louder = max(1.0, above)
    frame = Frame(basis / half / np.sqrt(louder), basis * half * np.sqrt(louder), root * louder)
    v = v * louder**2
    limit = sides.limit(n)
    slack = limit - sides.held(frame.precision, frame.variance)
    slack = np.maximum(slack, LEAST_SLACK * np.abs(limit))
    mu = float(v @ slack[:n]) / n
    z = mu / slack[n:]
    z = np.where(caps, z, np.minimum(z, GIVING_WAY * diagonal[sides.node]))
    return State(frame, np.concatenate([v, z]), slack), lower


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


def solve(program: Program, *, monitor: Monitor) -> Answer:
    """Solve a normalised program of single participation with floors above what budgets ask for."""
    sides = sides_of(limits_of(program))
    known = _Bounds(program, sides)
    best = known.best
    if program.cap is None and program.null_space.shape[1]:
        return Answer(stop=Stop.FAILED, message="H is singular, and nothing caps the noise")
    state: State | None
    state, lower = _start(program, sides)
    none = np.where(sides.sign > 0, state.x[program.size :], 0.0)
    best.see_dual(known.multipliers(np.concatenate([state.x[: program.size], 0 * none])), lower)
    evaluations, waited, least, closest, stop = 1, 0, np.inf, np.inf, Stop.INACCURATE
    try:
        while state is not None and waited < PATIENCE:
            best.see_covariance(state.frame.inner @ state.frame.inner.T)
            system = System(program, sides, state)
            estimate = known.estimate(system)
            gap = best.upper / estimate - 1 if estimate > 0 else np.inf
            if gap <= REACHED * monitor.gap:
                evaluations += known.prove(state.x)
            monitor.report(lower=best.lower, upper=best.upper)
            if best.gap <= REACHED * monitor.gap:
                stop = Stop.SOLVED
                break
            if monitor.expired:
                stop = Stop.TIME_LIMIT
                break
            waited = 0 if state.mu < least / 2 or gap < closest / 2 else waited + 1
            least, closest = min(least, state.mu), min(closest, gap)
            enough = ENOUGH * monitor.gap * abs(estimate) / len(state.x)
            state, length = _taken(system, _newton(system, enough=enough))
            evaluations += 1
    except KeyboardInterrupt:
        stop = Stop.INTERRUPTED
    except np.linalg.LinAlgError:
        pass  # so singular that rounding hides it
    if stop is Stop.INACCURATE and best.gap > ROUNDING:
        return smoothed.solve(program, monitor=monitor, best=best, spent=evaluations)
    return Answer(
        stop=stop, gram=best.gram, dual=smoothed.dual_of(program, known.limits, best.x),
        evaluations=evaluations,
    )  # fmt: skip
