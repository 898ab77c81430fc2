"""Covariances of seeds that pairs share: an interior-point method in the entries of R.

Of the path of :mod:`noisedesign.families.shared_seeds.comparison`. Steps are Nesterov-Todd in M
and D, W M W = D, with a predictor and a corrector as in :mod:`...shared_seeds.solver`,
and in y as of Chan, Golub and Mulet (1999, "A nonlinear primal-dual method for total
variation-based image restoration"). With s the linear map that takes dR to dM, kinks
k_ij = 2 D_ij (1 - y_ij R_ij / t_ij) / t_ij and theta = v / slack, a change of R satisfies on the
entries of pairs and nodes

    X dR N + N dR X + X diag(theta * diag(X dR X)) X + s^T(W s(dR) W) + k * dR = right-hand side.

Conjugate gradients are preconditioned by what undoes the first two terms. They are K = X (.) N +
N (.) X, restricted to the entries, and ill conditioned, for some noise hardly costs anything; but
without the restriction they are diagonal in the basis F of X = F F^T, N = F diag(l) F^T, and T, the
restriction of that inverse, is within a small factor of the inverse of the restriction. Kinks are
added to T^-1 exactly, by a matrix as large as there are stiff ones, for few R_ij vanish; its
entries take a few matrix products, as 1 / (l_k + l_l) is a short sum of products h(l_k) h(l_l) but
for a small error. Row scalings, dR = diag(t) R + R diag(t), are what moves one budget and no other:
a projection keeps the rest off the stiff directions of budgets, and the system among row scalings
is solved as a matrix as large as there are nodes. s^T(W s(.) W) is left out: next to K it has but a
few large eigenvalues.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from noisedesign.base import linalg as _linalg, settings
from noisedesign.base.checks import Array
from noisedesign.base.device import conjugate_gradients
from noisedesign.base.monitor import Monitor, Search
from noisedesign.families.disjoint.solver.limits.pairs import shifts, values as shifted
from noisedesign.families.shared_seeds.bound import Multipliers
from noisedesign.families.shared_seeds.comparison import (
    MOST_SLACK,
    SHORTER,
    Pattern,
    Point,
    blocks_of,
    feasible_curvature,
    start,
)
from noisedesign.families.shared_seeds.layout import Places
from noisedesign.families.shared_seeds.state import Found, Setting, first_blocks, proved_by

MAX_STEPS, MAX_PRODUCTS = 60, 1000
CHUNK_FLOATS = 1 << 22
"""Floats of the squares of a precision that are kept: 32 MB."""
OVERDRAWN = 0.2
"""A row is scaled when the slack of its budget falls below this share of mu / v."""
TO_BOUNDARY = 0.95
CENTERING_LEAST, CENTERING_MOST = 1e-2, 0.9
"""Share of the present mu that a step aims for: the cube of what the predictor would leave, within
these bounds."""
DRIFT, CENTERING_ASTRAY = 0.3, 1.0
"""Relative distance of N from R^-1 diag(v) R^-1 beyond which a step aims for this share or more."""
ROUGH, LOOSE = 0.3, 0.05
"""Residual the system of a predictor is solved to, and that of a corrector."""
TIGHTER, FINEST = 0.3, 1e-8
"""What the second is multiplied by at every step that goes astray; its least value."""
SLOW, LAG = 0.7, 3.0
"""A step goes astray where it leaves more than the first share of the gap on the path, or where
what it proves is further away than the second multiple of that gap."""
REACHED, ROOM = 0.8, 5e-8
"""Share of the gap asked for at which to stop, but for no more room than the second: what is left
is for the rounding of the certificate."""
LAST_SHARE, LOWER, NEAR_LAST = 0.3, 0.3, 3.0
"""Share of the gap asked for that is left on the path at the last mu, and as much by e; what it is
multiplied by where less than the third times that does not prove the gap."""
WORTH_PROVING = 4.0
"""Multiple of the gap asked for from which on a bound is computed at every step."""
ACCURACY = 0.05
"""Of the kernel that takes the place of 1 / (l_k + l_l)."""
KINKED, MOST_KINKED = 1.0, 1500
"""Stiffness of a kink, relative to the restricted inverse, from which on the preconditioner takes
it as it is; how many at most."""
MAX_SHORTENINGS = 60


class _Bend(NamedTuple):
    """What a step leaves out to second order: of M D in the units of D, of dv ds, of s and N."""

    dual: Array
    products: Array
    slacks: Array
    curvature: Array


class _Solved(NamedTuple):
    """Entries of dR, and what the system takes them to."""

    entries: Array
    image: Array


class _Change(NamedTuple):
    """Changes of the entries, M, D, y and v; of s to first order; the N it leads to."""

    solved: _Solved
    comparison: Array
    dual: Array
    signs: Array
    weights: Array
    slacks: Array
    curvature: Array


class System:
    """The Newton system at one point, its preconditioner and what steps need of it."""

    def __init__(self, point: Point, gram: Array, monitor: Monitor) -> None:
        self.pattern, self.point = point.pattern, point
        self.gram, self.monitor = gram, monitor
        self.stiffness = point.weights / point.slacks
        on, _ = self.pattern.split(point.entries)
        ratio = on / point.roots
        self.signs_short = ratio - point.signs
        self.signs_rate = np.maximum(1 - point.signs * ratio, 0.0) / point.roots
        self.kinks = 2 * np.maximum(point.dual_pairs, 0.0) * self.signs_rate
        self._scale()
        self._prepare_entries()
        self._prepare_rows()

    def _scale(self) -> None:
        """G with G^T M G = G^-1 D G^-T = diag(values), and W = G G^T."""
        lower = np.linalg.cholesky(self.point.comparison)
        squared, vectors = np.linalg.eigh(lower.T @ self.point.dual @ lower)
        self.values = np.sqrt(np.maximum(squared, settings.EPS * squared[-1]))
        inverse, right = _linalg.inverse_of_triangular(lower.copy()), vectors.T
        root = np.sqrt(self.values)
        self.to_dual = (right @ inverse).T * root
        self.to_comparison = (right / root[:, None]) @ lower.T
        self.scaling = self.to_dual @ self.to_dual.T
        self.comparison_inverse = inverse.T @ inverse

    # --- product ------------------------------------------------------------------------------

    def product(self, z: Array) -> Array:
        point, x = self.point, self.point.precision
        moved = x @ self.pattern.matrix(z) @ x
        stiff = self.stiffness * np.diagonal(moved) / 2
        half = (moved * point.weights + x * stiff) @ x
        compared = self.pattern.compared(z, point.signs)
        barrier = self.scaling @ compared @ self.scaling
        result = 2 * self.pattern.adjoint(half) + self.pattern.pulled(barrier, point.signs)
        result[: len(self.kinks)] += self.kinks * z[: len(self.kinks)]
        return result

    # --- preconditioner -----------------------------------------------------------------------

    def _prepare_entries(self) -> None:
        """F^-1 and 1 / (l_k + l_l) of the restricted inverse; its entries on kinks, and weights."""
        pattern, point = self.pattern, self.point
        lower = np.linalg.cholesky(point.precision)
        values, vectors = np.linalg.eigh((lower.T * point.weights) @ lower)
        values = np.maximum(values, settings.EPS * values[-1])
        self._basis = basis = vectors.T @ _linalg.inverse_of_triangular(lower)
        middle = float(np.sqrt(values[0] * values[-1]))
        poles = shifts(float(values[-1] / values[0]), accuracy=ACCURACY)
        terms = shifted(values / middle, poles)[: len(poles)] / np.sqrt(middle)
        self._energies = terms.T @ terms
        parts = [(basis.T * term) @ basis for term in terms]

        def restricted(i: Places, j: Places, u: Places, v: Places) -> Array:
            """Of the matrix with ones at (i, j) and (j, i), halved: its entries (u, v)."""
            both = [part[i, u] * part[j, v] + part[i, v] * part[j, u] for part in parts]
            return np.asarray(sum(both) / 2)

        i, j = pattern.first, pattern.second
        stiffness = self.kinks * restricted(i, j, i, j)
        self._kinked = np.flatnonzero(stiffness > KINKED)
        if len(self._kinked) > MOST_KINKED:
            self._kinked = np.sort(np.argsort(stiffness)[-MOST_KINKED:])
        self._weights = np.concatenate([1 / np.sqrt(1 + stiffness), np.ones(pattern.size)])
        self._weights[self._kinked] = 1.0
        i, j = i[self._kinked], j[self._kinked]
        self._kinked_basis = basis[:, i], basis[:, j]
        eased = np.diag(1 / self.kinks[self._kinked])
        if len(i):
            eased += restricted(i[:, None], j[:, None], i, j)
        self._kinked_inverse = _linalg.inverse_of_positive(eased) if len(i) else eased

    def _prepare_rows(self) -> None:
        """The system among row scalings t, dR = diag(t) R + R diag(t)."""
        pattern, point = self.pattern, self.point
        x, v = point.precision, point.weights
        self._spent = np.diagonal(x)
        self._squares: Array | None = None
        if len(point.entries) * pattern.size <= CHUNK_FLOATS:
            self._squares = x[pattern.row]
            self._squares *= x[pattern.column]
        compared = pattern.compared(point.entries, point.signs)
        image = self.scaling @ compared
        matrix = (x * v) @ x * pattern.matrix(point.entries)
        matrix += image * image.T + self.scaling * (compared @ image)
        matrix *= 2
        on, diagonal = pattern.split(point.entries)
        bent = np.concatenate([self.kinks * on**2, np.zeros_like(diagonal)])
        own = pattern.node_sums(bent) + (6 * v + 4 * self.stiffness * self._spent) * self._spent
        matrix += pattern.matrix(bent) + np.diag(own)
        self._row_inverse = _linalg.inverse_of_positive(_linalg.symmetrized(matrix))

    def precondition(self, residual: Array) -> Array:
        pattern, entries = self.pattern, self.point.entries
        along = pattern.node_sums(residual * entries)
        flat = residual - self._spread(along / (2 * self._spent))
        basis = self._basis
        inner = basis @ pattern.matrix(flat * self._weights / pattern.twice) @ basis.T
        inner *= self._energies
        if len(self._kinked):
            at_first, at_second = self._kinked_basis
            seen = np.einsum("ik,ik->k", inner @ at_first, at_second)
            pull = (at_first * (self._kinked_inverse @ seen / 2)) @ at_second.T
            inner -= (pull + pull.T) * self._energies
        found = pattern.entries(basis.T @ inner @ basis) * self._weights
        row = self._row_inverse @ along - self._used(found) / (2 * self._spent)
        return np.asarray(found + pattern.row_sums(row) * entries)

    def _spread(self, values: Array) -> Array:
        """The adjoint of what follows."""
        if self._squares is not None:
            return self.pattern.twice * (self._squares @ values)
        x = self.point.precision
        return self.pattern.adjoint((x * values) @ x)

    def _used(self, z: Array) -> Array:
        """diag(X dR X)."""
        if self._squares is not None:
            return np.asarray((self.pattern.twice * z) @ self._squares)
        x = self.point.precision
        return np.asarray(np.einsum("ij,ij->i", x @ self.pattern.matrix(z), x))

    def solve(self, right: Array, near: _Solved | None, *, tolerance: float) -> _Solved:
        """Entries of dR by conjugate gradients, from what solves a system nearby on."""
        start = np.zeros_like(right)
        residual = right
        if near is not None:
            start, residual = near.entries, right - near.image
        preconditioned = self.precondition(residual)
        size = float(residual @ preconditioned)
        target = tolerance**2 * self.point.complementarity()
        if near is None:
            target = min(target, tolerance**2 * size)
        if not size > target or self.monitor.expired:
            return _Solved(start, right - residual)
        solved = conjugate_gradients(
            self.product,
            self.precondition,
            right=residual,
            preconditioned=preconditioned,
            target=target,
            most=MAX_PRODUCTS,
            expired=lambda: self.monitor.expired,
        )
        return _Solved(start + solved.x, right - solved.residual)

    # --- steps --------------------------------------------------------------------------------

    def change(
        self, *, mu: float, bend: _Bend | None = None, near: _Solved | None = None, tolerance: float
    ) -> _Change:
        """The change towards products of mu."""
        pattern, point = self.pattern, self.point
        x, v = point.precision, point.weights
        ahead, barrier = np.full_like(v, mu), mu * self.comparison_inverse
        more = np.zeros_like(x)
        if bend is not None:
            ahead -= v * bend.slacks + bend.products
            barrier += bend.dual
            more = bend.curvature
        ahead /= point.slacks
        right = pattern.pulled(barrier, point.signs)
        right[: pattern.pairs] -= 2 * point.dual_pairs * self.signs_short
        right += pattern.twice * pattern.entries((x * ahead) @ x + more - self.gram)
        solved = self.solve(right, near, tolerance=tolerance)
        z = solved.entries
        moved = x @ pattern.matrix(z) @ x
        slacks = np.diagonal(moved).copy()
        after = ahead - self.stiffness * slacks
        half = (x * (after / 2) - moved * v) @ x
        compared = pattern.compared(z, point.signs)
        return _Change(
            solved=solved,
            comparison=compared,
            dual=_linalg.symmetrized(barrier - self.scaling @ compared @ self.scaling - point.dual),
            signs=self.signs_short + self.signs_rate * z[: pattern.pairs],
            weights=after - v,
            slacks=slacks,
            curvature=half + half.T + more,
        )

    def scaled(self, step: _Change) -> tuple[Array, Array]:
        """dM and dD where both M and D are diag(values)."""
        first = self.to_dual.T @ step.comparison @ self.to_dual
        return first, self.to_comparison @ step.dual @ self.to_comparison.T

    def lengths(self, step: _Change, scaled: tuple[Array, Array]) -> tuple[float, float]:
        """Longest steps that keep M, to first order, and the multipliers positive."""
        root = np.sqrt(self.values)
        longest = []
        for change in scaled:
            least = np.linalg.eigvalsh(change / root / root[:, None])[0]
            longest.append(1 / max(-float(least), TO_BOUNDARY))
        falling = step.weights < 0
        if falling.any():
            most = float((-self.point.weights[falling] / step.weights[falling]).min())
            longest[1] = min(longest[1], most)
        return longest[0], longest[1]

    def bend(self, step: _Change, scaled: tuple[Array, Array], share: float) -> _Bend:
        point, x = self.point, self.point.precision
        moved = x @ self.pattern.matrix(step.solved.entries)
        first = moved @ x
        second = moved @ first
        half = (second * point.weights - first * step.weights) @ x
        both = scaled[0] @ scaled[1]
        both = (both + both.T) / (self.values[:, None] + self.values)
        return _Bend(
            dual=-share * (self.to_dual @ both @ self.to_dual.T),
            products=share * step.weights * step.slacks,
            slacks=-share * np.diagonal(second),
            curvature=share * (half + half.T + (first * point.weights) @ first),
        )


def advance(point: Point, gram: Array, monitor: Monitor, *, last: float, tolerance: float) -> Point:
    """A point of less mu, but no less than ``last``."""
    system = System(point, gram, monitor)
    present = point.complementarity()
    drift = np.linalg.norm(point.curvature - (point.precision * point.weights) @ point.precision)
    if drift > DRIFT * np.linalg.norm(point.curvature):
        mu = max(CENTERING_ASTRAY * present / point.order, last)
        return _taken(system, system.change(mu=mu, tolerance=tolerance), mu)
    predictor = system.change(mu=0.0, tolerance=ROUGH)
    scaled = system.scaled(predictor)
    along, dual_along = (min(1.0, x) for x in system.lengths(predictor, scaled))
    ahead = point.comparison + along * predictor.comparison
    left = float(np.vdot(ahead, point.dual + dual_along * predictor.dual))
    slacks = np.maximum(point.slacks + along * predictor.slacks, 0.0)
    left += float((point.weights + dual_along * predictor.weights) @ slacks)
    share = min(max(max(left / present, 0.0) ** 3, CENTERING_LEAST), CENTERING_MOST)
    mu = max(share * present / point.order, last)
    bend = system.bend(predictor, scaled, along * dual_along)
    step = system.change(mu=mu, bend=bend, near=predictor.solved, tolerance=tolerance)
    return _taken(system, step, mu)


def _taken(system: System, step: _Change, mu: float) -> Point:
    """The point that a step towards mu leads to, short of the boundary."""
    pattern, point = system.pattern, system.point
    lengths = system.lengths(step, system.scaled(step))
    along, dual_along = (min(1.0, TO_BOUNDARY * x) for x in lengths)
    v = point.weights + dual_along * step.weights
    for _ in range(MAX_SHORTENINGS):
        entries = point.entries + along * step.solved.entries
        if _linalg.is_positive(pattern.comparison(entries, point.epsilon)):
            break
        along *= SHORTER
    else:
        raise np.linalg.LinAlgError("no step keeps the comparison matrix positive definite")
    precision = _linalg.inverse_of_positive(pattern.matrix(entries))
    used, wanted = np.diagonal(precision), np.minimum(mu / v, MOST_SLACK)
    row = np.where(1 - used < OVERDRAWN * wanted, np.sqrt(used / (1 - wanted)), 1.0)
    return replace(
        point,
        entries=pattern.scaled(entries, row),
        precision=precision / row / row[:, None],
        weights=v,
        dual=point.dual + dual_along * step.dual,
        signs=np.clip(point.signs + dual_along * step.signs, -1.0, 1.0),
        curvature=point.curvature + dual_along * (step.curvature - point.curvature),
    )


# --- the path -----------------------------------------------------------------------------------


@dataclass
class Best:
    """The best of either side so far."""

    setting: Setting
    lower: float = 0.0
    upper: float = float("inf")
    entries: Array | None = None
    multipliers: Multipliers | None = None

    @property
    def gap(self) -> float:
        return self.upper / self.lower - 1 if self.lower > 0 else float("inf")

    def take(self, point: Point) -> float:
        """The objective of a point, rows rescaled to use up budgets or not."""
        cost = self.setting.gram * point.pattern.matrix(point.entries)
        row = np.sqrt(np.diagonal(point.precision))
        found = float(row @ cost @ row)
        if point.slacks.min() >= 0:
            found = min(found, float(cost.sum()))
        if found < self.upper:
            self.upper, self.entries = found, point.entries
        return found

    def prove(self, point: Point) -> float:
        """What a point proves."""
        found, proof = proved_by(
            self.setting,
            curvature=feasible_curvature(point, self.setting.gram),
            precisions=[point.precision],
            weights=[point.weights],
            upper=self.upper,
        )
        if found > self.lower:
            self.lower = found
            self.multipliers = Multipliers.of_factors(proof, weights=[point.weights])
        return found


def search(setting: Setting, monitor: Monitor, *, unit: float) -> Found:
    """Follow the path of a setting of pairs; ``unit`` is that of what is reported."""
    best, steps = Best(setting), 0
    with Search(monitor) as ended:
        first = setting.layout.assemble(first_blocks(setting))
        point = start(Pattern(setting.layout), setting.gram, first)
        tolerance, share, proved, previous = LOOSE, LAST_SHARE, 0.0, np.inf
        while True:
            objective = best.take(point)
            path = point.complementarity() + point.smoothing()
            wanted = monitor.gap * best.upper
            near = path <= WORTH_PROVING * wanted
            if near or monitor.expired or steps == MAX_STEPS:
                proved = best.prove(point)
            monitor.report(lower=best.lower * unit, upper=best.upper * unit)
            solved = best.gap <= max(REACHED * monitor.gap, monitor.gap - ROOM)
            if ended.ended(solved=solved) or steps == MAX_STEPS:
                break
            astray = path > SLOW * previous or (near and objective - proved > LAG * path)
            previous = path
            tolerance = max(tolerance * TIGHTER, FINEST) if astray else LOOSE
            if path <= NEAR_LAST * 2 * share * wanted and not astray:
                share *= LOWER
            last = share * wanted / point.order
            before = point.complementarity()
            point = advance(point, setting.gram, monitor, last=last, tolerance=tolerance)
            fading = np.sqrt(min(point.complementarity() / before, 1.0))
            most = share * wanted / point.smoothing()
            point = replace(point, epsilon=point.epsilon * max(fading, min(most, 1.0)))
            steps += 1
    if not best.lower and best.entries is not None:
        best.prove(point)
    blocks = (
        None if best.entries is None else blocks_of(setting.layout, point.pattern, best.entries)
    )
    return Found(blocks, best.multipliers, gap=best.gap, stop=ended.stop, steps=steps)
