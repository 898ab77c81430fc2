"""Floors under diag(X^-1), and caps: a smoothed dual interior-point method that always arrives.

It takes several times the decompositions of :mod:`floored`, and its turn where that goes astray.

With N = H + diag(w - u), w of caps and u of floors, and S = (V^1/2 N V^1/2)^1/2, the dual is
g(v, w, u) = 2 tr(S) - sum v - <cap, w> + <floor, u>. Floors pull N to where it is singular, and
where a floor leaves a budget slack an entry of v vanishes with it. Barriers on v and u alone do not
keep Newton's method away from there. But tr(S) is itself an optimum,

    2 tr(S) = max over Q of  2 tr(Q)  subject to  [[V, Q], [Q^T, N]] >= 0,

and with the barrier mu log det of that matrix Q can still be eliminated: an eigenvalue r of S
becomes q = (sqrt(mu^2 + 4 r^2) - mu) / 2, and for r -> 0 its derivatives are those of the log det
of V and of N. With mu log of v, w and u the whole is a self-concordant barrier of (D), with
X = V^-1/2 (S_q + mu) V^-1/2 > R^-1 and R = V^1/2 S_q^-1 V^1/2 in its gradient.

Newton's equations are formed, by the products of :mod:`pairs`, and solved: systems this close to
singular are beyond conjugate gradients, and want kernels to many digits. R to first order along a
Newton step is feasible but for higher orders, wherever the step starts, and gives the upper bound.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from noisedesign.base import linalg as _linalg, settings
from noisedesign.base.checks import Array
from noisedesign.base.monitor import REACHED, Monitor, Search, Stop
from noisedesign.families.disjoint.program import Found
from noisedesign.families.disjoint.solver.limits import pairs
from noisedesign.families.disjoint.solver.limits.frame import Limits, limits_of
from noisedesign.program import repair as floor_repair
from noisedesign.program.program import DualPoint, Program, diagonal_dual

MAX_EVALUATIONS = 500
ACCURACY = 1e-7
"""Of the kernels of sums over pairs."""
REDUCTION = 0.05
"""What is left of mu after a full step along the central path."""
CENTRED = 1.0
"""Squared Newton decrement, over mu, below which one full step ends near the central path."""
TO_BOUNDARY = 0.6
"""Share of the longest step inside: a barrier is no guide near its end, and what is made ten times
smaller by each of a few steps, as an eigenvalue of N, takes as many doublings to come back."""
OVERSHOOT = 0.5
"""Downward slope at the end of a step towards the central path, over the slope at its start, that
is still accepted: the barrier is concave, so the step has passed its maximum and not by far."""
SHORTEST = 1e-9
"""Share of a Newton step below which rounding is what forbids it."""
STALLS = 40
"""Steps without the gap being halved after which rounding is in the way; a twentieth of mu takes
about five."""
EASE = 0.05
"""Starting multipliers of caps, and of caps with floors, as a share of the mean diagonal of H."""
START = 0.5
"""Starting multipliers of floors, as a share of what would leave N singular."""


class Point(NamedTuple):
    """One decomposition S = Q diag(r) Q^T at multipliers x = (v, y), y those of the limits."""

    x: Array
    net: Array
    factor: Array  # L^T L = N
    root: Array  # r
    basis: Array  # Q


def evaluate(program: Program, limits: Limits, x: Array) -> Point | None:
    """The point x, or None where N is not positive definite."""
    net = limits.net(x[program.size :], size=program.size)
    try:
        factor = np.linalg.cholesky(program.gram + np.diag(net)).T
    except np.linalg.LinAlgError:
        return None
    # Singular values of L V^1/2: where N and v both vanish, eigenvalues have lost them.
    _, values, right = np.linalg.svd(factor * np.sqrt(x[: program.size]))
    root: Array = np.maximum(values, settings.EPS * values[0]).astype(np.float64)
    return Point(x, net, np.asarray(factor), root, np.asarray(right.T))


def lower_bound(program: Program, limits: Limits, point: Point) -> float:
    """The dual value at the best scale of v."""
    v, y = np.split(point.x, [program.size])
    return float(point.root.sum()) ** 2 / float(v.sum()) - limits.cost(y)


class Smoothed:
    """The barrier of (D) at a point and a mu: gradient and curvature."""

    def __init__(self, limits: Limits, point: Point, mu: float) -> None:
        self.limits, self.point, self.mu = limits, point, mu
        self.size = len(point.root)
        self.v = point.x[: self.size]
        squares = np.square(point.root)
        self.q = 2 * squares / (mu + np.sqrt(mu**2 + 4 * squares))
        # Sums of q_k and q_l, mu added, and of the eigenvalues of V^1/2 N V^1/2, halved.
        self.shifted = self.q + mu / 2
        self.sums = np.add.outer(self.shifted, self.shifted)
        self.half_sums = np.add.outer(squares, squares) / 2
        weights = np.square(point.basis)
        self.precision = (weights @ (self.q + mu)) / self.v
        self.variance = (weights @ (1 / self.q)) * self.v
        self.aim, self.bend = limits.barrier(point.x[self.size :], mu)

    def slope(self) -> Array:
        """Gradient along (v, y)."""
        along_v = self.precision - 1 + self.mu / self.v
        return np.concatenate([along_v, self.variance[self.limits.node] - self.aim])

    def curvature(self) -> Array:
        """Minus the Hessian along (v, y).

        With p = q + mu / 2 the kernels of its blocks, derivatives of S_q, are
        (r_k^2 + r_l^2) / 2 / (p_k + p_l) = (p_k + p_l) / 2 - (p_k p_l + mu^2 / 4) / (p_k + p_l),
        whose first term adds up to a diagonal, 1 / (p_k + p_l) and 1 / (q_k q_l (p_k + p_l)).
        """
        limits, v, basis = self.limits, self.v, self.point.basis
        root = v[limits.node]
        product, inverse = pairs.sums(basis, self.shifted, (1, 0), accuracy=ACCURACY)
        some = basis / np.sqrt(self.q)
        (bent,) = pairs.sums(some[limits.node], self.shifted, (0,), accuracy=ACCURACY)
        vv = (product + self.mu**2 / 4 * inverse) / np.multiply.outer(v, v)
        vv[np.diag_indices(self.size)] += self.mu / 2 / np.square(v)
        vn = -inverse[:, limits.node] * root / v[:, None]
        nn = bent * np.multiply.outer(root, root)
        barrier = np.concatenate([self.mu / np.square(v), self.bend])
        return np.block([[vv, vn], [vn.T, nn]]) + np.diag(barrier)

    def covariance_along(self, d: Array) -> Array:
        """R a step d ahead, to first order."""
        q, v = self.point.basis, self.v
        relative = d[: self.size] / v
        net = self.limits.net(d[self.size :], size=self.size)
        change = ((q.T * relative) @ q) * self.half_sums + (q.T * (v * net)) @ q
        bent = change / (self.sums * np.multiply.outer(self.q, self.q))
        now = (q / self.q) @ q.T
        moved = (relative[:, None] * now + now * relative) / 2 - q @ bent @ q.T
        root = np.sqrt(v)
        return np.asarray((now + moved) * root[:, None] * root)


def _longest(limits: Limits, point: Point, d: Array) -> float:
    """TO_BOUNDARY of the longest step along d that stays inside, at most 1."""
    sign = np.concatenate([np.ones(len(point.root)), limits.sign])
    falling = sign * d < 0
    length = float(np.min(-point.x[falling] / d[falling], initial=np.inf))
    half = np.linalg.inv(point.factor)
    net = limits.net(d[len(point.root) :], size=len(point.root))
    least = float(np.linalg.eigvalsh((half.T * net) @ half)[0])
    if least < 0:
        length = min(length, -1 / least)
    return min(1.0, TO_BOUNDARY * length)


def _start(program: Program, limits: Limits) -> Point | None:
    """Multipliers inside; None where H is singular and no cap adds to it."""
    n, diagonal = program.size, np.diagonal(program.gram)
    y = np.where(np.isinf(limits.cap), 0.0, EASE * float(diagonal.mean()))
    net = limits.net(y, size=n)
    root = np.sqrt(diagonal + net)
    unit = (program.gram + np.diag(net)) / root[:, None] / root
    room = START * max(float(np.linalg.eigvalsh(unit)[0]), settings.EPS)
    y = np.where(limits.sign < 0, -room * np.square(root)[limits.node], y)
    v = np.sqrt(diagonal + limits.net(y, size=n))
    point = evaluate(program, limits, np.concatenate([v, y]))
    if point is None:
        return None
    # One rescaling of v balances the price of the two groups of multipliers.
    v = v * (float(point.root.sum()) / float(v.sum())) ** 2
    return evaluate(program, limits, np.concatenate([v, y]))


class Best:
    """The best dual point and the best feasible R so far, which need not belong together."""

    def __init__(self, program: Program) -> None:
        assert program.floor is not None
        self.program = program
        independent = np.maximum(1.0, program.floor)
        self.gram: Array = np.diag(1 / independent)
        self.upper = float(np.diagonal(program.gram) @ independent)
        self.x, self.lower = np.zeros(0), 0.0

    @property
    def gap(self) -> float:
        return self.upper / self.lower - 1 if self.lower > 0 else np.inf

    def see_dual(self, x: Array, lower: float) -> None:
        if not len(self.x) or lower > self.lower:
            self.x, self.lower = x, max(lower, 0.0)

    def see_covariance(self, covariance: Array) -> None:
        """A guess at R, made feasible."""
        try:
            found = floor_repair.raised(self.program, covariance)
            upper = float(np.sum(self.program.gram * found))
            if upper < self.upper:
                self.gram, self.upper = _linalg.inverse_of_positive(found), upper
        except np.linalg.LinAlgError:
            pass  # not positive definite: the step was too long for a first order


def dual_of(program: Program, limits: Limits, x: Array) -> DualPoint:
    """v, w and u of x = (v, y)."""
    net = limits.net(x[program.size :], size=program.size)
    cap = None if program.cap is None else np.maximum(net, 0.0)
    return diagonal_dual(x[: program.size], cap=cap, floor=np.maximum(-net, 0.0))


def _step(
    program: Program, limits: Limits, here: Smoothed, d: Array, *, ahead: float
) -> tuple[Point | None, float, int]:
    """The point at the end of a step along d, the share of d it took and the decompositions that
    took; no point where none is safe.

    Along the central path, where ``ahead`` is below mu, a step ends anywhere inside.
    """
    rise = float(here.slope() @ d)
    length, used = _longest(limits, here.point, d), 1
    while length > SHORTEST:
        found = evaluate(program, limits, here.point.x + length * d)
        used += found is not None
        if found is not None and (
            ahead < here.mu
            or float(Smoothed(limits, found, here.mu).slope() @ d) >= -OVERSHOOT * rise
        ):
            return found, length, used
        length /= 2
    return None, length, used


def _direction(here: Smoothed, right: Array) -> Array:
    """The Newton direction for a gradient, multipliers in units of their own curvature."""
    matrix = here.curvature()
    scale = 1 / np.sqrt(np.diagonal(matrix))
    return np.asarray(scale * np.linalg.solve(matrix * scale[:, None] * scale, scale * right))


def solve(program: Program, *, monitor: Monitor, best: Best | None = None, spent: int = 0) -> Found:
    """Solve a normalised program of single participation with floors above what budgets ask for.

    Args:
        best: what is known already, found with ``spent`` decompositions.
    """
    limits, point = limits_of(program), _start(program, limits_of(program))
    if point is None:
        return Found(stop=Stop.FAILED, message="H is singular, and nothing caps the noise")
    fresh = Best(program)
    fresh.see_dual(point.x, lower_bound(program, limits, point))
    # Near the central path the gap is about mu for every multiplier and every row of [V, Q].
    mu = (fresh.upper - fresh.lower) / (program.size + len(point.x))
    best = fresh if best is None else best
    best.see_dual(fresh.x, fresh.lower)
    evaluations, centred, stalls, halved = spent + 3, False, 0, np.inf
    with Search(monitor) as search:
        while evaluations < spent + MAX_EVALUATIONS:
            monitor.report(lower=best.lower, upper=best.upper)
            if search.ended(solved=best.gap <= REACHED * monitor.gap):
                break
            # Those who know better already wait until this has had time to tell more.
            stalls += mu * (program.size + len(point.x)) < best.upper - best.lower
            if best.lower <= 0 or best.gap < halved / 2:
                stalls, halved = 0, best.gap
            if stalls > STALLS:
                break
            here, ahead = Smoothed(limits, point, mu), REDUCTION * mu if centred else mu
            right = Smoothed(limits, point, ahead).slope()
            d = _direction(here, right)
            best.see_covariance(here.covariance_along(d))
            taken, length, used = _step(program, limits, here, d, ahead=ahead)
            evaluations += used
            if taken is None:
                break
            point = taken
            best.see_dual(point.x, lower_bound(program, limits, point))
            centred = ahead == mu and length == 1.0 and float(right @ d) <= CENTRED * mu
            mu += length * (ahead - mu)
    dual = dual_of(program, limits, best.x)
    return Found(stop=search.stop, gram=best.gram, dual=dual, evaluations=evaluations)
