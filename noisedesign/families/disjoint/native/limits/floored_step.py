"""One step towards the optimum under floors and caps: a predictor, a corrector, and how far to go.

Unknown are X, multipliers x = (v, z) and slacks. In the coordinates of :mod:`frame`, with
E = X diag(v) X - N what is missing of stationarity, X moves to T (1 + F) T^T, and to first order

    (r_k + r_l) F_kl = [B^T (dN - E) B - T^T dV T]_kl.

So F is had by one division, and what is limited, the diagonals of X and of R, is linear in x. The
second order of R is B F F B^T, that of stationarity F diag(r) F + F T^T dV T and its transpose.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from noisedesign.base import settings
from noisedesign.base.checks import Array
from noisedesign.families.disjoint.native.limits.frame import Frame, longest
from noisedesign.families.disjoint.native.limits.variance_limits import Sides
from noisedesign.program.program import Program

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
        bound = self.bound
        return (
            longest(self.x[bound], step.x[bound]),
            longest(self.slack[bound], step.slack[bound]),
        )


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
        # B^T E B. What may be rounding of it counts for nothing: along the null space of N it would
        # be divided by as little.
        self.excess = np.diag(frame.root) - frame.inner.T @ there @ frame.inner
        size = np.abs(frame.inner)
        rounding = settings.rank_tolerance(n) * (size.T @ (np.abs(there) @ size))
        self.excess[np.abs(self.excess) <= rounding] = 0.0
        self.missing = sides.limit(n) - sides.held(frame.precision, frame.variance) - state.slack
        budgets, across, limits = _sums_over_pairs(frame)
        across = -across[:, node] * sides.sign
        limits = limits[np.ix_(node, node)] * np.multiply.outer(sides.sign, sides.sign)
        matrix = np.block([[budgets, across], [across.T, limits]])
        self.per_multiplier = np.divide(1.0, state.x, out=np.zeros_like(state.x), where=state.bound)
        matrix += np.diag(state.slack * self.per_multiplier)
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
        frame, n = self.state.frame, self.size
        given = -frame.shared(self.excess + curved)
        known = self.missing - self.along(given) - bent
        right = self.scale * (aim * self.per_multiplier - self.state.slack - known)
        d = self.scale * scipy.linalg.cho_solve(self.factor, right)
        seen = frame.of_budgets(d[:n])
        f = given + frame.shared(frame.of_limits(self.sides.net(d, n)) - seen)
        # Of two ways to say it the one in which rounding is small against slacks that vanish.
        slack = (aim - self.state.slack * d) * self.per_multiplier - self.state.slack
        return Step(d, slack, f, seen)


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


def newton(system: System, *, enough: float) -> Step:
    """What a predictor and a corrector step advise, for a mu of no less than ``enough``."""
    state, frame = system.state, system.state.frame
    none = np.zeros_like(state.x)
    first = system.step(aim=none, curved=np.zeros_like(system.excess), bent=none)
    reach = [min(1.0, whole) for whole in state.reach(first)]
    ahead = float((state.x + reach[0] * first.x) @ (state.slack + reach[1] * first.slack))
    left = float(np.clip(ahead / float(state.x @ state.slack), settings.sqrt_eps(), 1.0))
    aim = max(left**3 * state.mu, enough)
    # Second-order terms are told by a step that went so far only; they may mislead at its end.
    trust, f = min(reach), first.f
    mixed = f @ first.seen
    variance = frame.variance_along(f @ f)
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
        return None
    if not frame.root.min() > 0:
        return None
    true = sides.limit(n) - sides.held(frame.precision, frame.variance)
    slack = np.where(state.bound & (true > TRUE_SLACK * slack), true, slack)
    return state._replace(frame=frame, x=x, slack=slack)


def _positive(a: Array) -> bool:
    try:
        np.linalg.cholesky(a)
    except np.linalg.LinAlgError:
        return False
    return True
