"""Floors under diag(X^-1), and caps: a smoothed dual interior-point method.

With N = H + diag(w - u), w of caps and u of floors, and S = (V^1/2 N V^1/2)^1/2, the dual is
g(v, w, u) = 2 tr(S) - sum v - <cap, w> + <floor, u>. Floors pull N, and budgets that they leave
slack V, to where they are singular. A barrier of [[V, Q], [Q^T, N]] >= 0 keeps Newton's method away
from there: an eigenvalue r of S becomes q = (sqrt(mu^2 + 4 r^2) - mu) / 2, and with mu log of v, w
and u X = V^-1/2 (S_q + mu) V^-1/2 > R^-1 and R = V^1/2 S_q^-1 V^1/2 are in its gradient
(docs/methods/solvers.md, "Floor").

Newton's equations are formed: systems this close to singular are beyond conjugate gradients, and
want kernels to many digits. R to first order along a step gives the upper bound. Only y = w - u
enters H: of a node with both limits w + u is eliminated from the barrier. Matrices are those of a
device, vectors NumPy's."""

from __future__ import annotations

from typing import NamedTuple

import array_api_compat
import numpy as np

from noisedesign.base import eigenvalue_pairs as pairs, linalg as _linalg, settings
from noisedesign.base.checks import Array
from noisedesign.base.device import (
    CPU,
    Device,
    DeviceArray,
    cholesky_of,
    identity,
    namespace,
    on_host,
    solution_of,
)
from noisedesign.base.monitor import REACHED, Monitor, Search, Stop
from noisedesign.certify import repair
from noisedesign.certify.program import DualPoint, Program, diagonal_dual
from noisedesign.families.disjoint.program import Found
from noisedesign.families.disjoint.solver.frame import longest

MAX_EVALUATIONS = 500
ACCURACY = 1e-7  # relative accuracy of the kernels of sums over pairs


class Point(NamedTuple):
    """One decomposition S = Q diag(r) Q^T at multipliers x = (v, y), y those of the limits."""

    x: Array
    factor: DeviceArray  # L^T L = N
    root: DeviceArray  # r
    basis: DeviceArray  # Q
    lower: float  # the dual value at the best scale of v


class Dual:
    """The dual of a program, H on the device that computes, and its limits: every cap, and floors
    that ask for more than the (unit) budgets do. ``node``, ``cap`` and ``floor``, each of shape
    (k,), are nodes whose variance is limited, with one multiplier y = w - u; ``sign`` is that of y
    where there is but a cap or a floor, else 0."""

    def __init__(self, program: Program, device: Device = CPU) -> None:
        self.program, self.size, self.put = program, program.size, device.put
        cap = np.full(self.size, np.inf) if program.cap is None else program.cap
        floor = np.zeros(self.size) if program.floor is None else program.floor
        floor = np.where(floor > 1, floor, 0.0)
        self.node = np.flatnonzero((cap < np.inf) | (floor > 0))
        self.cap, self.floor = cap[self.node], floor[self.node]
        self.sign = 1.0 * (self.floor == 0) - 1.0 * np.isinf(self.cap)
        self.gram = device.put(program.gram)
        self.eye = identity(self.size, like=self.gram)
        place = array_api_compat.device(self.gram)
        self.place = namespace(self.gram).asarray(self.node, device=place)

    def net(self, y: Array) -> Array:
        """The diagonal that multipliers add to H, shape (n,)."""
        net = np.zeros(self.size)
        net[self.node] = y
        return net

    def cost(self, y: Array) -> float:
        """<cap, w> - <floor, u>."""
        return float(np.where(y > 0, self.cap, self.floor)[y != 0] @ y[y != 0])

    def barrier(self, y: Array, mu: float) -> tuple[Array, Array]:
        """Minus the first and minus the second derivative along y of the largest

            -<cap, w> + mu log w + <floor, u> + mu log u    with w - u = y.

        The first is the variance at which y is in balance. Where a node has both limits, the slack
        to its cap and that to its floor, mu / w and mu / u, add up to the room between them.
        Without room they vanish, w and u grow without bound, and what is left of y is linear."""
        both = self.sign == 0
        one = np.where(both, 1.0, y)
        aim = np.where(self.sign > 0, self.cap, self.floor) - mu / one
        bend = mu / np.square(one)
        room = np.where(both, self.cap - self.floor, 0.0)
        nearest = 2 * mu * room / (2 * mu + room * np.abs(y) + np.hypot(room * y, 2 * mu))
        aim = np.where(both, np.where(y > 0, self.cap - nearest, self.floor + nearest), aim)
        far = np.where(room > 0, room - nearest, 1.0)
        share = np.square(nearest) / (np.square(nearest) + np.square(far))
        return aim, np.where(both, share * np.square(far) / mu, bend)

    def at(self, x: Array) -> Point | None:
        """The point x, or None where N is not positive definite."""
        v, y = np.split(x, [self.size])
        try:
            factor = cholesky_of(self.gram + self.eye * self.put(self.net(y))).T
        except np.linalg.LinAlgError:
            return None
        xp = namespace(factor)
        # Singular values of L V^1/2: where N and v both vanish, eigenvalues have lost them.
        _, values, right = xp.linalg.svd(factor * self.put(np.sqrt(v)))
        root = xp.maximum(values, settings.EPS * float(values[0]))
        lower = float(xp.sum(root)) ** 2 / float(v.sum()) - self.cost(y)
        return Point(x, factor, root, right.T, lower)

    def start(self) -> Point | None:
        """Multipliers inside; None where H is singular and no cap adds to it."""
        gram = self.program.gram
        diagonal = np.diagonal(gram)
        y = np.where(np.isinf(self.cap), 0.0, 0.05 * float(diagonal.mean()))
        root = np.sqrt(diagonal + self.net(y))
        unit = (gram + np.diag(self.net(y))) / root[:, None] / root
        # Floors start at half of what would leave N singular.
        room = max(float(np.linalg.eigvalsh(unit)[0]), settings.EPS) / 2
        y = np.where(self.sign < 0, -room * np.square(root)[self.node], y)
        v = np.sqrt(diagonal + self.net(y))
        point = self.at(np.concatenate([v, y]))
        if point is None:
            return None
        # One rescaling of v balances the price of the two groups of multipliers.
        trace = float(namespace(point.root).sum(point.root))
        return self.at(np.concatenate([v * (trace / float(v.sum())) ** 2, y]))

    def longest(self, point: Point, d: Array) -> float:
        """A safe share of the longest step along d that stays inside, at most 1."""
        xp = namespace(point.factor)
        sign = np.concatenate([np.ones(self.size), self.sign])
        length = longest(sign * point.x, sign * d)
        half = xp.linalg.inv(point.factor)
        seen = (half.T * self.put(self.net(d[self.size :]))) @ half
        least = float(xp.linalg.eigvalsh(seen)[0])
        if least < 0:
            length = min(length, -1 / least)
        # A barrier is no guide near its end: an eigenvalue of N that each of a few steps makes ten
        # times smaller takes as many doublings to come back.
        return min(1.0, 0.6 * length)


class Smoothed:
    """The barrier of (D) at a point and a mu: gradient and curvature."""

    def __init__(self, dual: Dual, point: Point, mu: float) -> None:
        self.dual, self.point, self.mu = dual, point, mu
        self.xp = xp = namespace(point.root)
        self.v, y = np.split(point.x, [dual.size])
        squares = xp.square(point.root)
        self.q = 2 * squares / (mu + xp.sqrt(mu**2 + 4 * squares))
        # Sums of q_k and q_l, mu added, and of the eigenvalues of V^1/2 N V^1/2, halved.
        self.shifted = self.q + mu / 2
        self.sums = self.shifted[:, None] + self.shifted
        self.half_sums = (squares[:, None] + squares) / 2
        weights = xp.square(point.basis)
        self.precision = on_host(weights @ (self.q + mu)) / self.v
        self.variance = on_host(weights @ (1 / self.q)) * self.v
        self.aim, self.bend = dual.barrier(y, mu)

    def slope(self) -> Array:
        """Gradient along (v, y)."""
        along_v = self.precision - 1 + self.mu / self.v
        return np.concatenate([along_v, self.variance[self.dual.node] - self.aim])

    def curvature(self) -> DeviceArray:
        """Minus the Hessian along (v, y).

        With p = q + mu / 2 the kernels of its blocks, derivatives of S_q, are
        (r_k^2 + r_l^2) / 2 / (p_k + p_l) = (p_k + p_l) / 2 - (p_k p_l + mu^2 / 4) / (p_k + p_l),
        whose first term adds up to a diagonal, 1 / (p_k + p_l) and 1 / (q_k q_l (p_k + p_l))."""
        xp, node, basis, v = self.xp, self.dual.place, self.point.basis, self.dual.put(self.v)
        at = xp.take(v, node)
        product, inverse = pairs.sums(basis, self.shifted, (1, 0), accuracy=ACCURACY)
        some = xp.take(basis / xp.sqrt(self.q), node, axis=0)
        (bent,) = pairs.sums(some, self.shifted, (0,), accuracy=ACCURACY)
        vv = (product + self.mu**2 / 4 * inverse) / v / v[:, None]
        vn = -xp.take(inverse, node, axis=1) * at / v[:, None]
        nn = bent * at * at[:, None]
        own = np.concatenate([1.5 * self.mu / np.square(self.v), self.bend])
        rows = [xp.concat([vv, vn], axis=1), xp.concat([vn.T, nn], axis=1)]
        return xp.concat(rows) + identity(len(own), like=vv) * self.dual.put(own)

    def direction(self, right: Array) -> Array:
        """The Newton direction for a gradient, multipliers in units of their own curvature."""
        matrix = self.curvature()
        scale = 1 / self.xp.sqrt(self.xp.linalg.diagonal(matrix))
        matrix = matrix * scale[:, None] * scale
        return on_host(scale * solution_of(matrix, scale * self.dual.put(right)))

    def covariance_along(self, d: Array) -> Array:
        """R a step d ahead, to first order."""
        q, put = self.point.basis, self.dual.put
        dv, dy = np.split(d, [self.dual.size])
        relative = put(dv / self.v)
        net = put(self.v * self.dual.net(dy))
        change = ((q.T * relative) @ q) * self.half_sums + (q.T * net) @ q
        bent = change / (self.sums * self.q[:, None] * self.q)
        now = (q / self.q) @ q.T
        moved = (relative[:, None] * now + now * relative) / 2 - q @ bent @ q.T
        root = put(np.sqrt(self.v))
        return on_host((now + moved) * root[:, None] * root)

    def step(self, d: Array, *, ahead: float) -> tuple[Point | None, float, int]:
        """The point after a step along d, or None; the share of d taken; the decompositions."""
        rise = float(self.slope() @ d)
        length, used = self.dual.longest(self.point, d), 1
        while length > 1e-9:  # below it is rounding that forbids a step
            found = self.dual.at(self.point.x + length * d)
            used += found is not None
            # The barrier is concave: a slope turned downwards, but less steep than at the start by
            # half, says that the step has passed the maximum and not by far.
            if found is not None and (
                ahead < self.mu
                or float(Smoothed(self.dual, found, self.mu).slope() @ d) >= -rise / 2
            ):
                return found, length, used
            length /= 2
        return None, length, used


class Best:
    """The best dual point and the best feasible R so far, which need not belong together."""

    def __init__(self, dual: Dual, start: Point) -> None:
        assert dual.program.floor is not None
        self.dual, self.program = dual, dual.program
        independent = np.maximum(1.0, dual.program.floor)
        self.gram: Array = np.diag(1 / independent)
        self.upper = float(np.diagonal(dual.program.gram) @ independent)
        self.x, self.lower = start.x, max(start.lower, 0.0)

    @property
    def gap(self) -> float:
        """The relative gap between the two."""
        return self.upper / self.lower - 1 if self.lower > 0 else np.inf

    def see(self, point: Point) -> None:
        """Keep the multipliers of a point if they prove more."""
        if point.lower > self.lower:
            self.x, self.lower = point.x, point.lower

    def see_covariance(self, covariance: Array) -> None:
        """Make a guess at R feasible, and keep it if it is better."""
        try:
            found = repair.raised(self.program, covariance)
            upper = float(np.sum(self.program.gram * found))
            if upper < self.upper:
                self.gram, self.upper = _linalg.inverse_of_positive(found), upper
        except np.linalg.LinAlgError:
            pass  # not positive definite: the step was too long for a first order

    def multipliers(self) -> DualPoint:
        """v, w and u."""
        v, y = np.split(self.x, [self.dual.size])
        net = self.dual.net(y)
        cap = None if self.program.cap is None else np.maximum(net, 0.0)
        return diagonal_dual(v, cap=cap, floor=np.maximum(-net, 0.0))


def solve(program: Program, *, monitor: Monitor, device: Device = CPU) -> Found:
    """Solve a normalised program of single participation with floors above what budgets ask for, on
    ``device``."""
    dual = Dual(program, device)
    point = dual.start()
    if point is None:
        return Found(stop=Stop.FAILED, message="H is singular, and nothing caps the noise")
    best = Best(dual, point)
    # Near the central path the gap is about mu for every multiplier and every row of [V, Q].
    count = program.size + len(point.x)
    mu = (best.upper - point.lower) / count
    evaluations, centred, stalls, halved = 3, False, 0, np.inf
    with Search(monitor) as search:
        while evaluations < MAX_EVALUATIONS:
            monitor.report(lower=best.lower, upper=best.upper)
            if search.ended(solved=best.gap <= REACHED * monitor.gap):
                break
            # Rounding is in the way where the gap is not halved in 40 steps; a twentieth of mu
            # takes about five. Where independent noise is better than the path still promises,
            # the path has to come nearer first.
            stalls += mu * count < best.upper - best.lower
            if best.lower <= 0 or best.gap < halved / 2:
                stalls, halved = 0, best.gap
            if stalls > 40:
                break
            # The path ends at less than the gap asked for, and not where mu is lost in rounding.
            least = min(mu, 0.3 * monitor.gap * best.upper / count)
            ahead = max(0.05 * mu, least) if centred else mu
            here = Smoothed(dual, point, mu)
            right = Smoothed(dual, point, ahead).slope()
            d = here.direction(right)
            best.see_covariance(here.covariance_along(d))
            taken, length, used = here.step(d, ahead=ahead)
            evaluations += used
            if taken is None:
                break
            point = taken
            best.see(point)
            # With a squared Newton decrement below mu one full step ends near the central path.
            centred = ahead == mu and length == 1.0 and float(right @ d) <= mu
            mu += length * (ahead - mu)
    return Found(stop=search.stop, gram=best.gram, dual=best.multipliers(), evaluations=evaluations)
