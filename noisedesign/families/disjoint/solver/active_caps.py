"""Single participation with caps, H regular: Newton's method, its matrix formed.

The dual g(v, w) = 2 tr (V^1/2 N V^1/2)^1/2 - sum v - <cap, w>, N = H + diag(w), is concave with
gradient (diag(X) - 1, diag(R) - cap), and its Hessian consists of sums over pairs of eigenvalues
(:mod:`noisedesign.base.eigenvalue_pairs`). As N is regular all budgets are used up, and the one
question is which caps hold: v is eliminated from the quadratic model of g, and the rest is solved
by guessing the set of caps that hold and mending the guess. Second orders (:mod:`frame`) make it a
method of third order (docs/methods/solvers.md, "Cap"). It may go astray with an H that is nearly
singular: the central path takes over then. Everything here is written against the array API
standard."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import array_api_compat
import numpy as np

from noisedesign.base import eigenvalue_pairs as pairs, settings
from noisedesign.base.checks import Array
from noisedesign.base.device import (
    CPU,
    Device,
    DeviceArray,
    eigh,
    identity,
    inner_product,
    namespace,
    on_host,
    solution_of,
    solver_of_positive,
)
from noisedesign.base.monitor import REACHED, Monitor, Search
from noisedesign.certify.program import Program, diagonal_dual
from noisedesign.families.disjoint.program import Found
from noisedesign.families.disjoint.solver.frame import Frame
from noisedesign.families.disjoint.solver.square_roots import Preconditioner

MAX_EVALUATIONS = 16
ACCURACIES = 2e-2, 1e-3, 1e-4  # of the first matrix and of later ones, where errors count for more


class Point(NamedTuple):
    """Multipliers, shape (n,), at the scale where the sum of v is t, and what they lead to."""

    v: DeviceArray
    w: DeviceArray
    basis: DeviceArray  # Q, of (V^1/2 N V^1/2)^1/2 = Q diag(r) Q^T
    frame: Frame
    precision: DeviceArray  # diag(X)
    variance: DeviceArray  # diag(R)

    def error(self, cap: DeviceArray) -> float:
        """The relative distance of budgets from used up, and of variances from caps that hold."""
        xp = namespace(cap)
        over = self.variance / cap - 1
        missed = xp.where((self.w > 0) | (over > 0), xp.abs(over), 0.0)
        return max(float(xp.max(xp.abs(self.precision - 1))), float(xp.max(missed)))

    @property
    def spread(self) -> float:
        xp, root = namespace(self.v), self.frame.root
        return float(xp.max(root)) / float(xp.min(root))


def _decomposed(
    gram: DeviceArray, v: DeviceArray, w: DeviceArray
) -> tuple[DeviceArray, DeviceArray]:
    """r^2, shape (n,), and the basis in which (V^1/2 N V^1/2)^1/2 is diag(r)."""
    xp = namespace(gram, v, w)
    half = xp.sqrt(v)
    scaled = gram * half
    scaled *= half[:, None]
    scaled += identity(v.shape[0], like=v) * (v * w)
    squared, basis = eigh(scaled)
    return xp.maximum(squared, settings.EPS**2 * float(squared[-1])), basis


def evaluate(gram: DeviceArray, v: DeviceArray, w: DeviceArray) -> Point:
    """The point of multipliers, of which the scale of v is free: one eigendecomposition."""
    xp = namespace(gram, v, w)
    squared, basis = _decomposed(gram, v, w)
    root = xp.sqrt(squared)
    scale = float(xp.sum(root)) / float(xp.sum(v))
    root, v = root * scale, v * scale**2
    half, side = xp.sqrt(v)[:, None], xp.sqrt(root)
    frame = Frame(basis * side / half, basis / side * half, root)
    return Point(v, w, basis, frame, frame.precision, frame.variance)


def bounds(gram: DeviceArray, cap: DeviceArray, point: Point) -> tuple[float, float, float]:
    """Lower bound, the objective of R made feasible, and about what X made feasible may have."""
    # Rows are scaled to use up budgets, then drawn to the identity, which is below any cap: no
    # budget is overdrawn on the way, as inverses are convex.
    xp = namespace(gram, cap)
    trace = float(xp.sum(point.frame.root))
    lower = trace**2 / float(xp.sum(point.v)) - float(cap @ point.w)
    rows = point.frame.inner * xp.sqrt(point.precision)[:, None]
    covariance = rows @ rows.T
    objective = inner_product(gram, covariance)
    variance = xp.linalg.diagonal(covariance)
    over = variance > cap
    apart = xp.where(over, variance - 1, xp.ones_like(variance))
    share = float(xp.max(xp.where(over, (variance - cap) / apart, xp.zeros_like(cap))))
    own = float(xp.sum(xp.linalg.diagonal(gram)))
    price = float(point.w @ (xp.vecdot(covariance, covariance) - variance))
    return lower, (1 - share) * objective + share * own, objective + share * price


def start(
    gram: DeviceArray, cap: DeviceArray, *, put: Callable[[Array], DeviceArray]
) -> tuple[DeviceArray, DeviceArray]:
    """v and w to start from, by one eigendecomposition: with v_i w_i = s for all i the matrix
    (V^1/2 N V^1/2)^1/2 has the same basis for all s, and every node is given the s at which its own
    R_ii X_ii, which no scale of v changes, is at its cap."""
    xp = namespace(gram, cap)
    v = xp.sqrt(xp.linalg.diagonal(gram))
    squared, basis = _decomposed(gram, v, xp.zeros_like(v))
    shifts = np.geomspace(1e-6, 1e4, 61) * float(squared[-1])
    moved = xp.stack([xp.sqrt(squared + float(shift)) for shift in shifts], axis=1)
    weights = xp.square(basis)
    diagonal, inverse = on_host(weights @ moved), on_host(weights @ (1 / moved))
    level, steps = np.log(on_host(cap)), np.log(shifts)
    found = np.zeros((2, len(level)))
    for i, variance in enumerate(np.log(diagonal * inverse)):  # falls with the shift
        held = level[i] < variance[0]
        at = np.interp(level[i], variance[::-1], steps[::-1]) if held else steps[0]
        found[:, i] = np.interp(at, steps, diagonal[i]), np.exp(at) if held else 0.0
    return put(found[0]), put(found[1]) / v


def _curvature(
    point: Point, node: DeviceArray, *, accuracy: float
) -> tuple[DeviceArray, DeviceArray, DeviceArray]:
    """A, C and D of :class:`Model`, shapes (n, n), (n, k) and (k, k)."""
    xp, v, root = namespace(point.v), point.v, point.frame.root
    if 2 * node.shape[0] > v.shape[0]:
        budgets, across, caps = pairs.sums(point.basis, root, (1, 0, -1), accuracy=accuracy)
        across = xp.take(across, node, axis=1)
        caps = xp.take(xp.take(caps, node, axis=0), node, axis=1)
    else:
        (budgets,) = pairs.sums(point.basis, root, (1,), accuracy=accuracy)
        some = xp.take(point.basis, node, axis=0)
        across, caps = pairs.sums(point.basis, root, (0, -1), right=some, accuracy=accuracy)
        caps = xp.take(caps, node, axis=0)
    at = xp.take(v, node)
    budgets /= v
    budgets /= v[:, None]
    across *= -at
    across /= v[:, None]
    caps *= at
    caps *= at[:, None]
    return budgets, across, caps


class Model:
    """The quadratic model of the dual at a point, in v and in the w of ``node``, shape (k,): minus
    its Hessian is [[A, C], [C^T, D]], and with A = L L^T eliminated D - C^T A^-1 C."""

    def __init__(self, point: Point, node: DeviceArray, *, accuracy: float) -> None:
        self.xp = xp = namespace(point.v)
        every = xp.arange(point.v.shape[0], device=array_api_compat.device(node))
        self.place = xp.astype(node[:, None] == every, xp.float64)  # (k, n), one 1 in every row
        budgets, across, caps = _curvature(point, node, accuracy=accuracy)
        self.free: DeviceArray | None = None
        self.solved: tuple[DeviceArray, Callable[[DeviceArray], DeviceArray]] | None = None
        self.budgets = Preconditioner(budgets, xp=self.xp)
        self.across = across
        half = self.budgets.inverse @ (self.budgets.scale[:, None] * across)
        caps -= half.T @ half
        self.caps = caps

    def step(self, slope_v: DeviceArray, slope_w: DeviceArray, w: DeviceArray) -> tuple[Any, Any]:
        """dv and dw at its maximum under w + dw >= 0, slopes and w of shape (n,)."""
        alone = self.budgets(slope_v)
        dw = self._held(self.place @ slope_w - self.across.T @ alone, self.place @ w)
        return alone - self.budgets(self.across @ dw), dw @ self.place

    def _held(self, slope: DeviceArray, w: DeviceArray) -> DeviceArray:
        """dw >= -w, those that are 0 in the end guessed and the guess mended."""
        xp, size = self.xp, w.shape[0]
        free = (w > 0) | (slope > 0) if self.free is None else self.free
        dw = -w
        for _ in range(20 if size else 0):
            held = xp.where(free, 0.0, -w)
            right = xp.where(free, slope - self.caps @ held, -w)
            dw = self._solver(free)(right)
            guess = xp.where(free, w + dw > 0, self.caps @ dw < slope)
            if bool(xp.all(guess == free)):
                break
            free = guess
        self.free = free  # next time there is little to mend
        return xp.maximum(dw, -w)

    def _solver(self, free: DeviceArray) -> Callable[[DeviceArray], DeviceArray]:
        """A solver of the equations for caps that are ``free``, factored once for the same ones."""
        if self.solved is None or not bool(self.xp.all(self.solved[0] == free)):
            eye = identity(free.shape[0], like=self.caps)
            system = self.xp.where(free[:, None] & free, self.caps, eye)
            try:
                solver = solver_of_positive(system)
            except np.linalg.LinAlgError:  # by rounding
                solver = partial(solution_of, system)
            self.solved = free, solver
        return self.solved[1]


def advanced(point: Point, cap: DeviceArray, model: Model, *, bent: bool) -> Any:
    """v and w after a step, which may allow for second orders, by a second one."""
    xp = namespace(cap)
    over = point.variance / cap
    aimed = (point.w > 0) | (over > 1)
    slope_v = point.precision - 1
    slope_w = (point.variance - cap) * xp.where(aimed, over, 1.0)
    dv, dw = model.step(slope_v, slope_w, point.w)
    change = dv / point.v
    if bent:
        frame = point.frame
        seen = frame.of_budgets(dv)
        f = frame.shared(frame.of_limits(dw) - seen)
        g, rest = frame.second(f, seen)
        second_v, second_w = frame.precision_along(g), frame.variance_along(rest)
        # Second orders are told by a step so short only.
        trust = min(1.0, 1 / float(xp.max(xp.abs(change))))
        # 1 / R in the second order of the change of R that it was to make in the first.
        second_w = second_w - xp.square(xp.where(aimed, slope_w, 0.0)) / point.variance
        dv, dw = model.step(slope_v + trust * second_v, slope_w + trust * second_w, point.w)
        change = dv / point.v - 0.75 * trust * xp.square(change)
    v = point.v / xp.square(xp.maximum(1 - change / 2, 0.2))
    return v, xp.maximum(point.w + dw, 0.0)


def solve(program: Program, *, monitor: Monitor, device: Device = CPU) -> Found:
    """Solve a normalised program of single participation with a cap and a regular H on ``device``;
    as inaccurate, with the best it has seen, where the method goes astray."""
    assert program.cap is not None
    gram, cap = device.put(program.gram), device.put(program.cap)
    xp = namespace(gram, cap)
    v, w = start(gram, cap, put=device.put)
    evaluations = 1
    best: Point | None = None
    best_gap, least, last, waited, models = np.inf, np.inf, np.inf, 0, 0
    model: Model | None = None
    with Search(monitor) as search:
        while evaluations < MAX_EVALUATIONS:
            point = evaluate(gram, v, w)
            evaluations += 1
            lower, upper, estimate = bounds(gram, cap, point)
            error = point.error(cap)
            # X and R change so little that the first order tells what the repair costs.
            if error < 1e-3:
                upper = min(upper, estimate)
            monitor.report(lower=lower, upper=upper)
            gap = upper / lower - 1 if lower > 0 else np.inf
            if best is None or gap < best_gap:
                best, best_gap = point, gap
            if search.ended(solved=gap <= REACHED * monitor.gap):
                break
            waited = 0 if error < least / 2 else waited + 1
            least = min(error, least)
            # With multipliers that are as good as zero the method does not work.
            if waited > 3 or point.spread > 1e10:
                break
            # The last matrix is kept while X and R changed by less than 2 per cent and steps with
            # it leave at most a tenth of the error.
            fresh = model is None or last > 0.02 or error > 0.1 * last
            if fresh:
                # From 0.9 of its cap on a variance may be held by it after the next step.
                node = xp.nonzero((w > 0) | (point.variance > 0.9 * cap))[0]
                model = Model(point, node, accuracy=ACCURACIES[min(models, len(ACCURACIES) - 1)])
                models += 1
            assert model is not None
            last = error
            # Second orders are below what sums of exponentials leave of the first where the error
            # is small.
            v, w = advanced(point, cap, model, bent=fresh and error > 3e-3)
    found = np.eye(program.size) if best is None else on_host(best.frame.gram)
    if best is not None:
        v, w = best.v, best.w
    dual = diagonal_dual(on_host(v), cap=on_host(w))
    return Found(stop=search.stop, gram=found, dual=dual, evaluations=evaluations)
