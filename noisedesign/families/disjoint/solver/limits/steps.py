"""One step towards the optimum under floors and caps: a predictor, a corrector, and how far to go.

Unknown are X, multipliers x = (v, z) and slacks. In the coordinates of :mod:`frame`, with
E = X diag(v) X - N what is missing of stationarity, X moves along T F T^T, and to first order

    (r_k + r_l) F_kl = [B^T (dN - E) B - T^T dV T]_kl.

So F is had by one division, and what is limited, the diagonals of X and of R, is linear in x.

How X moves along F decides how long steps may be. Budgets are linear in X and limits on variances
in R, and where one of them has to grow many times over, the other shrinks to next to nothing. X
becomes T phi(F) T^T with phi(F) = F + (1 + F^2)^1/2, and R, as phi(F) phi(-F) = 1, is
B phi(-F) B^T: whichever grows is linear in F, none is ever indefinite, and nothing has to be
shortened. The second order is F^2 / 2 for both, so that of stationarity is
F diag(r) F + F T^T dV T + F^2 diag(r) / 2 with the transpose of the latter two.
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
from noisedesign.base.linalg import inverse_of_triangular
from noisedesign.families.disjoint.solver.limits import pairs
from noisedesign.families.disjoint.solver.limits.frame import Frame, Sides, longest
from noisedesign.program.program import Program

TO_BOUNDARY = 0.95
"""Share of the longest step that keeps multipliers and slacks positive; what is left is multiplied
by the share of mu that the predictor leaves, so that the end is quick."""
SHORT = 0.5
"""Frobenius norm of F up to which the first terms of phi do."""
MOST = 1.75
"""Eigenvalues of F up to which it is followed: far from stationarity, whose terms are squares of X,
first orders ask for too much, and X would swing to and fro."""
SHRINK, GROW = 0.9, 2.0
"""How much of X, in its own coordinates, a wary step may take away or add."""
APART = 0.6
"""Wary steps of X and of the multipliers shorter than this are taken alike: with one of them far
ahead stationarity is lost."""
SMALL = 64
"""Nodes up to which sums over pairs are exact, as they cost little."""
ACCURACY = 1e-6
"""Of the kernel of sums over pairs. With 1e-2 a step is a quarter cheaper, but what is left of
slacks grows where N is near singular, and from a hundred nodes on many floors go astray."""
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
        # B^T E B. What may be rounding of it counts for nothing: along the null space of N it would
        # be divided by as little.
        eye = identity(n, like=frame.root)
        there = self.put(program.gram) + eye * self.put(sides.net(state.x, n))
        seen = there @ frame.inner
        excess = eye * frame.root - frame.inner.T @ seen
        norms = xp.sqrt(xp.sum(xp.square(frame.inner), axis=0))
        rounding = settings.EPS * float(xp.linalg.matrix_norm(there)) * norms
        self.excess = xp.where(xp.abs(excess) <= rounding * norms[:, None], 0.0, excess)
        self.node = xp.asarray(sides.node, device=array_api_compat.device(eye))
        self.limited = xp.take(frame.inner, self.node, axis=0)
        self.missing = sides.limit(n) - held(sides, frame) - state.slack
        sign = self.put(np.concatenate([np.ones(n), -sides.sign]))
        matrix = sums_over_pairs(frame, self.limited)
        self.per_multiplier = np.divide(1.0, state.x, out=np.zeros_like(state.x), where=state.bound)
        own = self.put(state.slack * self.per_multiplier)
        matrix += identity(len(state.x), like=own) * own
        scale = 1 / xp.sqrt(xp.linalg.diagonal(matrix))
        matrix *= (sign * scale)[:, None]
        matrix *= sign * scale
        self.scale = on_host(scale)
        self.solved = solver_of_positive(matrix)

    def along(self, f: DeviceArray, g: DeviceArray) -> Array:
        """diag(T F T^T) and signed diag(B G B^T) where there are limits, shape (n + k,)."""
        xp, outer = self.xp, self.state.frame.outer
        variance = xp.vecdot(self.limited @ g, self.limited)
        return np.concatenate(
            [on_host(xp.vecdot(outer @ f, outer)), self.sides.sign * on_host(variance)]
        )

    def step(
        self, *, aim: Array, curved: DeviceArray, bent: tuple[DeviceArray, DeviceArray]
    ) -> Step:
        """The step after which x s is ``aim``, to first order and as far as second orders are told.

        Args:
            curved: the second order of B^T X diag(v) X B. bent: those of X and of R, all in the
                coordinates of the frame.
        """
        frame, n = self.state.frame, self.size
        given = -frame.shared(self.excess + curved)
        known = self.missing - self.along(bent[0] + given, bent[1] - given)
        right = self.scale * (aim * self.per_multiplier - self.state.slack - known)
        d = self.scale * on_host(self.solved(self.put(right)))
        seen = frame.of_budgets(self.put(d[:n]))
        limits = (self.limited.T * self.put(self.sides.sign * d[n:])) @ self.limited
        f = given + frame.shared(limits - seen)
        # Of two ways to say it the one in which rounding is small against slacks that vanish.
        slack = (aim - self.state.slack * d) * self.per_multiplier - self.state.slack
        return Step(d, slack, f, seen)


def held(sides: Sides, frame: Frame) -> Array:
    return sides.held(on_host(frame.precision), on_host(frame.variance))


def sums_over_pairs(frame: Frame, limited: DeviceArray) -> DeviceArray:
    """sum_kl P_ik P_il P_jk P_jl / (r_k + r_l), P the rows of T and, below them, those of B that
    are ``limited``."""
    n, xp = frame.root.shape[0], namespace(frame.outer)
    rows = xp.concat([frame.outer, limited])
    if n <= SMALL and isinstance(rows, np.ndarray):
        return exact_sums_over_pairs(frame, limited)
    return pairs.sums(rows, frame.root, (0,), accuracy=ACCURACY)[0]


def exact_sums_over_pairs(frame: Frame, limited: Array) -> Array:
    """The same by a product for every row."""
    rows = np.concatenate([frame.outer, limited])
    kernel = 1 / np.add.outer(frame.root, frame.root)
    sums = np.empty((len(rows), len(rows)))
    for i, row in enumerate(rows):
        pair = rows * row
        sums[i] = np.einsum("jk,jk->j", pair @ kernel, pair)
    return sums


def newton(system: System, *, enough: float, wary: bool = False) -> Step:
    """What a predictor and a corrector step advise, for a mu of no less than ``enough``.

    Args:
        wary: whether X is to move to T (1 + F) T^T, whose second order is another.
    """
    state, frame = system.state, system.state.frame
    none = 0 * system.excess
    first = system.step(aim=np.zeros_like(state.x), curved=none, bent=(none, none))
    reach = [min(1.0, whole) for whole in state.reach(first)]
    ahead = float((state.x + reach[0] * first.x) @ (state.slack + reach[1] * first.slack))
    left = float(np.clip(ahead / float(state.x @ state.slack), settings.sqrt_eps(), 1.0))
    aim = max(left**3 * state.mu, enough)
    # Second-order terms are told by a step that went so far only; they may mislead at its end.
    trust, f = min(reach), first.f
    square = f @ f.T  # F is symmetric, and this half the work
    mixed = f @ first.seen
    if not wary:
        mixed = mixed + square * (frame.root / 2)
    step = system.step(
        aim=aim - trust * first.x * first.slack,
        curved=trust * ((f * frame.root) @ f + mixed + mixed.T),
        bent=(none, trust * square) if wary else (trust / 2 * square, trust / 2 * square),
    )
    return step._replace(share=1 - (1 - TO_BOUNDARY) * left)


def taken(system: System, step: Step, *, wary: bool = False) -> tuple[State | None, int]:
    """The state a step leads to, and the decompositions that took; None where X is lost to
    rounding.

    Args:
        wary: whether to go as far only as first orders of X say something, and X and the
            multipliers alike.
    """
    state, sides, n = system.state, system.sides, system.size
    along_x, along = (min(1.0, step.share * whole) for whole in state.reach(step))
    xp, used = system.xp, 0
    try:
        if wary:
            along, used = _trusted(along, step.f), 1
            if min(along_x, along) < APART:
                along_x = along = min(along_x, along)
        x, slack = state.x + along_x * step.x, state.slack + along * step.slack
        outer, inner, more = moved(state.frame, along * step.f, wary=wary)
        root, basis = eigh((outer.T * system.put(x[:n])) @ outer)
    except np.linalg.LinAlgError:
        return None, used
    used += more + 1
    frame = Frame(outer @ basis, inner @ basis, xp.maximum(root, settings.EPS * float(root[-1])))
    if not bool(xp.all(xp.isfinite(frame.inner))):
        return None, used
    true = sides.limit(n) - held(sides, frame)
    slack = np.where(state.bound & (true > TRUE_SLACK * slack), true, slack)
    return state._replace(frame=frame, x=x, slack=slack), used


def _trusted(along: float, f: DeviceArray) -> float:
    """How much of F, at most ``along``, takes away and adds what first orders tell; one
    decomposition."""
    values = namespace(f).linalg.eigvalsh((f + f.T) / 2)
    least, most = float(values[0]), float(values[-1])
    return min(along, SHRINK / max(-least, SHRINK), GROW / max(most, GROW))


def moved(
    frame: Frame, f: DeviceArray, *, wary: bool = False
) -> tuple[DeviceArray, DeviceArray, int]:
    """T and B = T^-T of X = T phi(F) T^T, in no particular basis, and decompositions.

    Args:
        wary: 1 + F is positive definite, and serves as phi.
    """
    xp = namespace(f)
    if wary or float(xp.linalg.matrix_norm(f)) <= SHORT:
        change = identity(f.shape[0], like=f) + f
        lower = cholesky_of(change if wary else change + f @ f.T / 2)
        outer = frame.outer @ lower
        return outer, frame.inner @ inverse_of_triangular(lower, invert=xp.linalg.inv).T, 0
    values, basis = eigh((f + f.T) / 2)
    # phi(x) phi(-x) = 1, and for x > 0 nothing cancels.
    size = xp.minimum(xp.abs(values), MOST * xp.ones_like(values))
    larger = xp.sqrt(size + xp.sqrt(1 + size**2))
    change = xp.where(values > 0, larger, 1 / larger)
    return (frame.outer @ basis) * change, (frame.inner @ basis) / change, 1
