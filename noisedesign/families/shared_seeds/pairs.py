"""An interior-point method in the entries of R, for covariances of seeds that pairs share.

With M the comparison matrix of R, |R_ij| replaced by t_ij = (R_ij^2 + e^2)^1/2, D, y and v
multipliers of M, t and the budgets (docs/methods/solvers.md, "Shared seeds"), the path is

    M D = mu I,    y_ij t_ij = R_ij,    v_i s_i = mu,    N = X diag(v) X,    X = R^-1.

Steps are Nesterov-Todd in M and D, W M W = D, and in y those of Chan, Golub and Mulet (1999, "A
nonlinear primal-dual method for total variation-based image restoration"). With s the linear map
that takes dR to dM, kinks k_ij = 2 D_ij (1 - y_ij R_ij / t_ij) / t_ij and theta = v / slack, dR
satisfies on the entries

    X dR N + N dR X + X diag(theta * diag(X dR X)) X + s^T(W s(dR) W) + k * dR = right-hand side.

The preconditioner inverts the first two terms without the restriction to entries, diagonal in the
basis F of X = F F^T, N = F diag(l) F^T; stiff kinks are added exactly, 1 / (l_k + l_l) being a
short sum of products h(l_k) h(l_l); row scalings dR = diag(t) R + R diag(t), the stiff directions
of budgets, are projected out and solved for as a matrix of order n."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from noisedesign.base import linalg as _linalg, settings
from noisedesign.base.checks import Array
from noisedesign.base.eigenvalue_pairs import shifts, values as shifted
from noisedesign.base.monitor import Monitor, Search, Stop
from noisedesign.families.shared_seeds import newton
from noisedesign.families.shared_seeds.layout import Layout, Places
from noisedesign.families.shared_seeds.newton import Bend, Solved
from noisedesign.families.shared_seeds.state import (
    CENTERING_LEAST,
    CENTERING_MOST,
    MAX_SHORTENINGS,
    SHORTER,
    Best,
    Setting,
    enough,
    first_blocks,
    fraction,
    proved_by,
)

MAX_STEPS, TO_BOUNDARY = 60, 0.95
OVERDRAWN = 0.2  # of mu / v: a row is scaled when the slack of its budget falls below that
# Relative distance of N from R^-1 diag(v) R^-1 beyond which a step aims for this share or more.
DRIFT, CENTERING_ASTRAY = 0.3, 1.0
ROUGH, LOOSE = 0.3, 0.05  # residuals to which systems of predictor and corrector are solved
TIGHTER, FINEST = 0.3, 1e-8  # factor of the second where a step goes astray, and its least value
# A step goes astray that leaves more than this share of the gap on the path, or proves a bound
# further away than this multiple of it.
SLOW, LAG = 0.7, 3.0
# Share of the gap asked for that is left on the path at the last mu, and as much by e; its factor
# where less than the third times that does not prove the gap.
LAST_SHARE, LOWER, NEAR_LAST = 0.3, 0.3, 3.0
WORTH_PROVING = 4.0  # multiple of the gap asked for from which on every step proves a bound
ACCURACY = 0.05  # relative error of 1 / (l_k + l_l) in the preconditioner
# Stiffness relative to the restricted inverse from which on the preconditioner takes a kink as it
# is, and the most that are.
KINKED, MOST_KINKED = 1.0, 1500
START_GAP, START_EPSILON = 2e-2, 1e-2  # over the objective, and in units of the budgets
LEAST_WEIGHT, MOST_SLACK = 1e-2, 0.5  # over their mean at the start; wherever rows are scaled


class Pattern:
    """The entries of R that may differ from zero: those of pairs, and the diagonal after them."""

    def __init__(self, layout: Layout) -> None:
        self.size = n = layout.size
        pairs = [m for m in layout.members if m.shape[1] == 2]
        self.first, self.second = pairs[0].T if pairs else np.zeros((2, 0), dtype=np.intp)
        self.pairs = len(self.first)
        self._upper, self._lower = self.first * n + self.second, self.second * n + self.first
        nodes = np.arange(n)
        self.row = np.concatenate([self.first, nodes])
        self.column = np.concatenate([self.second, nodes])
        self._at = self.row * n + self.column
        self.twice = np.where(self.row == self.column, 1.0, 2.0)

    def split(self, values: Array) -> tuple[Array, Array]:
        """Separate the entries of pairs from those of nodes."""
        return values[: self.pairs], values[self.pairs :]

    def matrix(self, values: Array) -> Array:
        """The symmetric matrix of these entries."""
        total = np.zeros(self.size**2)
        on, diagonal = self.split(values)
        total[self._upper] = total[self._lower] = on
        total[:: self.size + 1] = diagonal
        return total.reshape(self.size, self.size)

    def entries(self, matrix: Array) -> Array:
        return np.asarray(np.ascontiguousarray(matrix).ravel()[self._at])

    def adjoint(self, matrix: Array) -> Array:
        """g with <g, z> = <matrix, matrix of z>, of any matrix."""
        flat = np.ascontiguousarray(matrix).ravel()
        values = flat[self._at]
        values[: self.pairs] += flat[self._lower]
        return np.asarray(values)

    def scaled(self, values: Array, row: Array) -> Array:
        """The entries of D R D, D = diag(row)."""
        return np.asarray(values * row[self.row] * row[self.column])

    def comparison(self, values: Array, epsilon: float) -> Array:
        """M, with t = (R^2 + e^2)^1/2 in the place of |R|."""
        on, diagonal = self.split(values)
        return self.matrix(np.append(-np.hypot(on, epsilon), diagonal))

    def node_sums(self, values: Array) -> Array:
        """Sums over the pairs of every node, and its own entry twice: what D R + R D takes."""
        on, diagonal = self.split(values)
        ends = np.bincount(self.first, on, self.size) + np.bincount(self.second, on, self.size)
        return np.asarray(ends + 2 * diagonal)

    def compared(self, values: Array, signs: Array) -> Array:
        """The matrix with - signs_ij z_ij off the diagonal."""
        return self.matrix(np.append(-signs, np.ones(self.size)) * values)

    def pulled(self, matrix: Array, signs: Array) -> Array:
        """The adjoint of :meth:`compared`, applied to a symmetric matrix."""
        return np.append(-2 * signs, np.ones(self.size)) * self.entries(matrix)


@dataclass(frozen=True, kw_only=True, eq=False)
class Point:
    """Entries of R, e, and the multipliers D, y, v and N; what follows from R and e."""

    pattern: Pattern
    entries: Array
    epsilon: float
    precision: Array
    dual: Array
    signs: Array
    weights: Array
    curvature: Array

    @cached_property
    def comparison(self) -> Array:
        return self.pattern.comparison(self.entries, self.epsilon)

    @cached_property
    def roots(self) -> Array:
        """t of every pair."""
        return np.hypot(self.pattern.split(self.entries)[0], self.epsilon)

    @cached_property
    def slacks(self) -> Array:
        return np.asarray(1 - np.diagonal(self.precision))

    @cached_property
    def dual_pairs(self) -> Array:
        """D_ij of every pair."""
        return self.pattern.split(self.pattern.entries(self.dual))[0]

    def complementarity(self) -> float:
        return float(np.vdot(self.comparison, self.dual) + self.weights @ self.slacks)

    def smoothing(self) -> float:
        """The part of the gap that e adds."""
        on, _ = self.pattern.split(self.entries)
        return 2 * float(self.dual_pairs @ (self.roots - self.signs * on))


def start(pattern: Pattern, gram: Array, covariance: Array) -> Point:
    """The point of a sum of positive definite blocks, multipliers to match."""
    size, cost = pattern.size, float(np.vdot(gram, covariance))
    mu = START_GAP * cost / (2 * size)
    v = np.maximum(np.sum(gram * covariance, axis=1), LEAST_WEIGHT * cost / size)
    spent = np.diagonal(_linalg.inverse_of_positive(covariance))
    row = np.sqrt(spent / (1 - np.minimum(mu / v, MOST_SLACK)))
    entries, epsilon = pattern.scaled(pattern.entries(covariance), row), START_EPSILON
    while not _linalg.is_positive(comparison := pattern.comparison(entries, epsilon)):
        epsilon *= SHORTER
    precision = _linalg.inverse_of_positive(pattern.matrix(entries))
    on, _ = pattern.split(entries)
    return Point(
        pattern=pattern,
        entries=entries,
        epsilon=epsilon,
        precision=precision,
        dual=mu * _linalg.inverse_of_positive(comparison),
        signs=on / np.hypot(on, epsilon),
        weights=v,
        curvature=(precision * v) @ precision,
    )


def feasible_curvature(point: Point, gram: Array) -> Array:
    """N with the entries of H - S on pairs and nodes: what D and y prove."""
    pattern, left = point.pattern, point.pattern.entries(gram - point.curvature)
    slack = pattern.compared(pattern.entries(point.dual), point.signs)
    return point.curvature + pattern.matrix(left) - slack


def blocks_of(layout: Layout, pattern: Pattern, entries: Array) -> Array:
    """Blocks that sum to R, flat: with M d > 0 that of a pair has |R_ij| d_j / d_i at i."""
    d = np.linalg.solve(pattern.comparison(entries, 0.0), np.ones(pattern.size))
    d = np.maximum(d, settings.EPS * d.max())
    on, left = pattern.split(entries.copy())
    on_first = np.abs(on) * d[pattern.second] / d[pattern.first]
    on_second = np.abs(on) * d[pattern.first] / d[pattern.second]
    left -= np.bincount(pattern.first, on_first, pattern.size)
    left -= np.bincount(pattern.second, on_second, pattern.size)
    share = np.maximum(left, 0.0) / layout.node_sums([np.ones(m.shape) for m in layout.members])
    found = []
    for members in layout.members:
        if members.shape[1] == 1:
            found.append(share[members][:, :, None])
            continue
        block = np.empty((len(members), 2, 2))
        block[:, 0, 0] = on_first + share[pattern.first]
        block[:, 1, 1] = on_second + share[pattern.second]
        block[:, 0, 1] = block[:, 1, 0] = on
        found.append(block)
    return layout.join(found)


class _Change(NamedTuple):
    """Changes of the entries, M, D, y and v; of s to first order; the N it leads to."""

    solved: Solved
    comparison: Array
    dual: Array
    signs: Array
    weights: Array
    slacks: Array
    curvature: Array
    prices: Array = np.zeros(0)  # nothing is capped
    room: Array = np.zeros(0)


class System(newton.System):
    """The Newton system in the entries, and what steps need of it."""

    def __init__(self, point: Point, gram: Array, monitor: Monitor) -> None:
        super().__init__(point.complementarity(), monitor)
        self.pattern, self.point, self.gram = point.pattern, point, gram
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
            """Entries (u, v) of the image of the matrix with halves at (i, j) and (j, i)."""
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
        pattern, entries, x = self.pattern, self.point.entries, self.point.precision
        along = pattern.node_sums(residual * entries)
        flat = residual - pattern.adjoint((x * (along / (2 * self._spent))) @ x)
        basis = self._basis
        inner = basis @ pattern.matrix(flat * self._weights / pattern.twice) @ basis.T
        inner *= self._energies
        if len(self._kinked):
            at_first, at_second = self._kinked_basis
            seen = np.einsum("ik,ik->k", inner @ at_first, at_second)
            pull = (at_first * (self._kinked_inverse @ seen / 2)) @ at_second.T
            inner -= (pull + pull.T) * self._energies
        found = pattern.entries(basis.T @ inner @ basis) * self._weights
        used = np.einsum("ij,ij->i", x @ pattern.matrix(found), x)
        row = self._row_inverse @ along - used / (2 * self._spent)
        return np.asarray(found + (row[pattern.row] + row[pattern.column]) * entries)

    def change(
        self, *, mu: float, bend: Bend | None = None, near: Solved | None = None, tolerance: float
    ) -> _Change:
        """The change towards products of mu."""
        pattern, point = self.pattern, self.point
        x, v = point.precision, point.weights
        ahead, barrier = np.full_like(v, mu), mu * self.comparison_inverse
        more = np.zeros_like(x)
        if bend is not None:
            ahead -= v * bend.slacks + bend.products
            barrier -= bend.dual
            more = bend.curvatures
        ahead /= point.slacks
        right = pattern.pulled(barrier, point.signs)
        right[: pattern.pairs] -= 2 * point.dual_pairs * self.signs_short
        right += pattern.twice * pattern.entries((x * ahead) @ x + more - self.gram)
        solved = self.solve(right, near, tolerance=tolerance)
        z = solved.change
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
        return longest[0], min(longest[1], fraction(self.point.weights, step.weights))

    def bend(self, step: _Change, scaled: tuple[Array, Array], share: float) -> Bend:
        both = scaled[0] @ scaled[1]
        both = (both + both.T) / (self.values[:, None] + self.values)
        change, point = self.pattern.matrix(step.solved.change), self.point
        dual = self.to_dual @ both @ self.to_dual.T
        return Bend.of(point.precision, change, point.weights, step, dual=dual, share=share)


def advance(point: Point, gram: Array, monitor: Monitor, *, last: float, tolerance: float) -> Point:
    """A point of less mu, but no less than ``last``."""
    system = System(point, gram, monitor)
    present, order = point.complementarity(), 2 * point.pattern.size  # of M and the budgets
    drift = np.linalg.norm(point.curvature - (point.precision * point.weights) @ point.precision)
    if drift > DRIFT * np.linalg.norm(point.curvature):
        mu = max(CENTERING_ASTRAY * present / order, last)
        return _taken(system, system.change(mu=mu, tolerance=tolerance), mu)
    predictor = system.change(mu=0.0, tolerance=ROUGH)
    scaled = system.scaled(predictor)
    along, dual_along = (min(1.0, x) for x in system.lengths(predictor, scaled))
    ahead = point.comparison + along * predictor.comparison
    left = float(np.vdot(ahead, point.dual + dual_along * predictor.dual))
    slacks = np.maximum(point.slacks + along * predictor.slacks, 0.0)
    left += float((point.weights + dual_along * predictor.weights) @ slacks)
    share = min(max(max(left / present, 0.0) ** 3, CENTERING_LEAST), CENTERING_MOST)
    mu = max(share * present / order, last)
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
        entries = point.entries + along * step.solved.change
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


def _error(point: Point, gram: Array) -> float:
    """The objective of a point, rows rescaled to use up budgets or not."""
    cost = gram * point.pattern.matrix(point.entries)
    row = np.sqrt(np.diagonal(point.precision))
    found = float(row @ cost @ row)
    return min(found, float(cost.sum())) if point.slacks.min() >= 0 else found


def _prove(best: Best, setting: Setting, point: Point) -> float:
    """Record the bound that a point proves."""
    curvature = feasible_curvature(point, setting.gram)
    multipliers = curvature, point.precision[None], point.weights[None], setting.cap
    found, proof = proved_by(setting, *multipliers, upper=best.upper)
    best.prove(found, proof)
    return found


def search(setting: Setting, monitor: Monitor, *, unit: float) -> tuple[Best, Stop, int]:
    """Follow the path of pairs; ``unit`` is that of what is reported. Count the steps."""
    best, steps = Best(), 0
    with Search(monitor) as ended:
        first = setting.layout.assemble(first_blocks(setting))
        point = start(Pattern(setting.layout), setting.gram, first)
        tolerance, share, proved, previous = LOOSE, LAST_SHARE, 0.0, np.inf
        while True:
            objective = _error(point, setting.gram)
            best.take(objective, point.entries)
            path = point.complementarity() + point.smoothing()
            wanted = monitor.gap * best.upper
            near = path <= WORTH_PROVING * wanted
            if near or monitor.expired or steps == MAX_STEPS:
                proved = _prove(best, setting, point)
            monitor.report(lower=best.lower * unit, upper=best.upper * unit)
            if ended.ended(solved=enough(best.gap, monitor)) or steps == MAX_STEPS:
                break
            astray = path > SLOW * previous or (near and objective - proved > LAG * path)
            previous = path
            tolerance = max(tolerance * TIGHTER, FINEST) if astray else LOOSE
            if path <= NEAR_LAST * 2 * share * wanted and not astray:
                share *= LOWER
            last = share * wanted / (2 * point.pattern.size)
            before = point.complementarity()
            point = advance(point, setting.gram, monitor, last=last, tolerance=tolerance)
            fading = np.sqrt(min(point.complementarity() / before, 1.0))
            most = share * wanted / point.smoothing()
            point = replace(point, epsilon=point.epsilon * max(fading, min(most, 1.0)))
            steps += 1
    if best.noise is not None:
        if not best.lower:
            _prove(best, setting, point)
        best.noise = blocks_of(setting.layout, point.pattern, best.noise)
    return best, ended.stop, steps
