"""Coordinates in which X, R = X^-1, diag(v) and N are diagonal at once, and how they change.

Stationarity is N = X diag(v) X. With X = T T^T and T^T diag(v) T = diag(r), both N and R are
diagonal in the dual coordinates B = T^-T: B^T N B = diag(r) and R = B B^T. A change of X is written
T F T^T there. To first order R changes by -B F B^T, and stationarity reads, entry by entry,

    (r_k + r_l) F_kl = [B^T dN B - T^T dV T]_kl:

no equation to solve but one division. What comes next is as explicit, which is what a corrector
step wants to know.

Limits on the variance of single nodes, from above and below, with one multiplier each.

A cap has a multiplier w >= 0 and a floor u >= 0; only w - u enters H. Where a node has both, w + u
is eliminated from the barrier, so that a cap and a floor next to each other, or in one, are no
worse conditioned than others.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisedesign.base.checks import Array
from noisedesign.base.device import DeviceArray, namespace
from noisedesign.program.program import Program


class Frame(NamedTuple):
    """T and B = T^-T, shape (n, n), and r = diag(T^T diag(v) T), shape (n,), positive; of any array
    library."""

    outer: DeviceArray
    inner: DeviceArray
    root: DeviceArray

    @property
    def precision(self) -> DeviceArray:
        """diag(X), shape (n,)."""
        return _row_products(self.outer, self.outer)

    @property
    def variance(self) -> DeviceArray:
        """diag(R), shape (n,)."""
        return _row_products(self.inner, self.inner)

    @property
    def gram(self) -> DeviceArray:
        """X, shape (n, n)."""
        return self.outer @ self.outer.T

    def of_budgets(self, dv: DeviceArray) -> DeviceArray:
        """T^T diag(dv) T."""
        return (self.outer.T * dv) @ self.outer

    def of_limits(self, dy: DeviceArray) -> DeviceArray:
        """B^T diag(dy) B, of a change of N on its diagonal."""
        return (self.inner.T * dy) @ self.inner

    def shared(self, change: DeviceArray) -> DeviceArray:
        """The F with (r_k + r_l) F_kl = change_kl."""
        return change / (self.root[:, None] + self.root)

    def precision_along(self, f: DeviceArray) -> DeviceArray:
        """diag(T F T^T)."""
        return _row_products(self.outer @ f, self.outer)

    def variance_along(self, f: DeviceArray) -> DeviceArray:
        """diag(B F B^T)."""
        return _row_products(self.inner @ f, self.inner)

    def second(self, f: DeviceArray, seen: DeviceArray) -> tuple[DeviceArray, DeviceArray]:
        """What a change of multipliers does to diag(X) and diag(R) in the second order.

        Args:
            f: what it does in the first, where stationarity holds. seen: T^T diag(dv) T.
        """
        half = f @ (self.root[:, None] * f / 2 + seen)
        g = -self.shared(half + half.T)
        square = f @ f.T  # F is symmetric, and this half the work
        return self.precision_along(g), self.variance_along(square - g)


def _row_products(a: DeviceArray, b: DeviceArray) -> DeviceArray:
    """diag(A B^T)."""
    return namespace(a, b).vecdot(a, b)


def longest(x: Array, d: Array) -> float:
    """How much of a step d leaves x >= 0; infinite where nothing falls."""
    falling = d < 0
    return float(np.min(-x[falling] / d[falling], initial=np.inf))


class Limits(NamedTuple):
    """Nodes whose variance is limited: node, cap and floor, each of shape (k,).

    Each has one multiplier y = w - u, positive or negative where it has but a cap or a floor.
    """

    node: NDArray[np.intp]
    cap: Array  # infinite where there is none
    floor: Array  # zero where there is none

    @property
    def sign(self) -> Array:
        """Of a multiplier that has one, else 0."""
        return np.asarray(1.0 * (self.floor == 0) - 1.0 * np.isinf(self.cap))

    def net(self, y: Array, *, size: int) -> Array:
        """The diagonal that multipliers add to H."""
        net = np.zeros(size)
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
        Without room they vanish, w and u grow without bound, and what is left of y is linear.
        """
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


def limits_of(program: Program) -> Limits:
    """Every cap, and floors that ask for more than the (unit) budgets do."""
    n = program.size
    cap = np.full(n, np.inf) if program.cap is None else program.cap
    floor = np.zeros(n) if program.floor is None else program.floor
    floor = np.where(floor > 1, floor, 0.0)
    node = np.flatnonzero((cap < np.inf) | (floor > 0))
    return Limits(node=node, cap=cap[node], floor=floor[node])


class Sides(NamedTuple):
    """Limits one by one: sign_k R_ii <= sign_k level_k, i = node_k, +1 for caps, -1 for floors.

    Where both are ``tied`` they are one, R_ii = level_k, whose multiplier may have any sign.
    """

    node: NDArray[np.intp]
    sign: Array
    level: Array
    tied: NDArray[np.bool_]

    def of(self, place: NDArray[np.intp]) -> Sides:
        """Some of them."""
        return Sides(self.node[place], self.sign[place], self.level[place], self.tied[place])

    def limit(self, size: int) -> Array:
        """What is held is at most this, budgets first, shape (n + k,)."""
        return np.concatenate([np.ones(size), self.sign * self.level])

    def held(self, precision: Array, variance: Array) -> Array:
        """Whatever is limited, shape (n + k,); linear, so that it serves changes as well."""
        return np.concatenate([precision, self.sign * variance[self.node]])

    def net(self, x: Array, size: int) -> Array:
        """w - u of multipliers x = (v, z), shape (n,)."""
        net = np.zeros(size)
        np.add.at(net, self.node, self.sign * x[size:])
        return net


def sides_of(limits: Limits, *, room: float) -> Sides:
    """Caps, then floors; both as one where a cap is no more than ``room``, relative, above a floor.

    That is a little off where they differ. A bound that is proved with both of them allows for it.
    """
    both = (limits.floor > 0) & (limits.cap <= limits.floor * (1 + room))
    caps = np.flatnonzero(limits.cap < np.inf)
    floors = np.flatnonzero((limits.floor > 0) & ~both)
    return Sides(
        node=limits.node[np.concatenate([caps, floors])],
        sign=np.concatenate([np.ones(len(caps)), -np.ones(len(floors))]),
        level=np.concatenate([limits.cap[caps], limits.floor[floors]]),
        tied=np.concatenate([both[caps], np.zeros(len(floors), dtype=bool)]),
    )
