"""Diagonal budgets: Newton's method for the multipliers.

With D = diag(v) and S = (D^1/2 H D^1/2)^1/2 the dual bound is t^2 / sum(v), t = tr S, and Newton's
step x = dv / v solves G x = diag(S) - v, G of :mod:`square_roots`. It is taken as
v <- v / (1 - x / 2)^2; the fixed point v <- diag(S) is the safeguard where that does not ascend
(docs/methods/solvers.md, "Diagonal budgets").

That is for an H of full rank: where it is singular multipliers of slack budgets run away, and
:mod:`barrier` takes over. All of it is written against the Python array API standard and runs where
the arrays are; the answer is NumPy's."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from noisedesign.base import linalg as _linalg, settings
from noisedesign.base.checks import Array
from noisedesign.base.device import (
    CPU,
    Device,
    DeviceArray,
    Placed,
    Workload,
    conjugate_gradients,
    namespace,
    on_host,
)
from noisedesign.base.monitor import REACHED, Monitor, Search, Stop
from noisedesign.certify import repair
from noisedesign.certify.program import Program, diagonal_dual
from noisedesign.families.disjoint.program import Found
from noisedesign.families.disjoint.solver import barrier
from noisedesign.families.disjoint.solver.square_roots import (
    Preconditioner,
    SquareRoot,
    square_root,
)

MAX_EVALUATIONS = 500
FAR = 0.05  # squared Newton decrement above which the preconditioner alone gives as good a step
CG_FORCING = 0.3  # relative accuracy of a Newton system at most; else the decrement: superlinear
CG_FLOOR = 0.1
"""Accuracy of a Newton system that suffices once every budget is active, over the gap asked for. A
multiplier that is to vanish has a vanishing share in the residual and needs more."""
MAX_LOG_STEP = 6.0  # longest move of one log v in one step


class Point(NamedTuple):
    """One eigendecomposition and what follows from it."""

    log_v: DeviceArray
    v: DeviceArray
    root: SquareRoot  # S
    diag: DeviceArray  # diag(S)
    trace: float  # t
    price: float  # sum(v)
    phi: float
    xp: Any  # the functions of the library these arrays are of


def evaluate(workload: Workload, log_v: DeviceArray) -> Point:
    """Value and gradient data at v = exp(log_v): one eigendecomposition."""
    xp = namespace(log_v)
    # Below this share of the largest multiplier, what is divided by it overflows.
    log_v = xp.maximum(log_v - xp.max(log_v), -600.0)
    v = xp.exp(log_v)
    root = square_root(workload, v)
    trace, price = root.trace, float(xp.sum(v))
    phi = float(2 * np.log(trace) - np.log(price))
    return Point(log_v, v, root, root.diag, trace, price, phi, xp)


def bounds(program: Program, point: Point, *, gap: float, slack: bool) -> tuple[float, float]:
    """Lower bound t^2 / sum(v) and the objective of X(v) made feasible, the cheapest way first."""
    xp = point.xp
    ratio = point.diag / point.v  # X_ii, up to scale
    lower = point.trace**2 / point.price
    upper = point.trace * float(xp.max(ratio))  # X / max X_ii, valid whatever the rank of H
    # Matrix products are worth it where the optimum is as near as a few of the gap asked for.
    if upper <= lower * (1 + REACHED * gap) or _shortfall(point) > 4.0 * gap:
        return lower, upper
    # Rows rescaled one by one: second order in the error of v, where the above is first.
    upper = min(upper, point.root.rescaled(ratio))
    if slack and upper > lower * (1 + REACHED * gap) and program.null_space.shape[1] == 0:
        # Rescaling uses up budgets that are slack; the repair of the answer knows better. With H
        # singular a looser bound is wanted: whether noise diverges is read off a tight v.
        gram = repair.feasible_gram(program, _gram(point))
        if gram is not None:
            inverse = _linalg.inverse_of_positive(gram)
            upper = min(upper, _linalg.inner(program.gram, inverse))
    return lower, upper


def _shortfall(point: Point) -> float:
    """The least relative distance of the dual value to its maximum, as G <= diag(S) / 2."""
    share = point.diag / point.trace
    residual = share - point.v / point.price
    tiny = float(np.finfo(np.float64).tiny)
    return float(point.xp.sum(residual**2 / point.xp.maximum(share, tiny)))


def _slack(point: Point) -> bool:
    """Whether some budget is far from used up at X(v), and not because v is."""
    xp = point.xp
    ratio = point.diag / point.v
    largest = float(xp.max(ratio))
    error = largest * point.price / point.trace - 1  # gap of X / max X_ii
    unused = 1 - float(xp.min(ratio)) / largest
    return unused > max(0.05, 100 * error)


def _gram(point: Point) -> Array:
    """X(v) = D^-1/2 S D^-1/2 in NumPy, of a positive diagonal also where X vanishes."""
    gram = on_host(point.root.gram(point.v))
    diagonal = np.diagonal(gram)
    np.fill_diagonal(gram, np.maximum(diagonal, settings.EPS * diagonal.max()))
    return gram


def _newton_direction(point: Point, gradient: DeviceArray, *, enough: float) -> DeviceArray | None:
    """Approximate solution of G x = t gradient, or None where there is nothing to gain."""
    xp = point.xp
    precondition = Preconditioner(point.root.curvature_above(trace=point.trace), xp=xp)
    step = precondition(gradient)
    # The squared decrement: the relative gap, doubled, and the square of the change of v to make.
    start = float(gradient @ step)
    if not start > 0:
        return None
    if start > FAR:
        return step
    target = max(min(CG_FORCING, float(np.sqrt(start))) ** 2 * start, enough)
    x = conjugate_gradients(
        point.root.curvature(trace=point.trace),
        precondition,
        right=gradient,
        preconditioned=step,
        target=target,
        most=200,
    ).x
    return x if bool(xp.any(x != 0)) else None


def _advance(workload: Workload, point: Point, *, gap: float, slack: bool) -> tuple[Point, int]:
    """The next point and the eigendecompositions it took."""
    xp = point.xp
    gradient = point.diag / point.trace - point.v / point.price
    # Where the bounds are not close for all that, a system that is solved well may help.
    close = slack or _shortfall(point) <= CG_FLOOR * gap
    direction = _newton_direction(point, gradient, enough=0.0 if close else CG_FLOOR * gap)
    if direction is not None:
        root = xp.maximum(1 - direction / 2, float(np.exp(-MAX_LOG_STEP / 2)))
        move = xp.maximum(-2 * xp.log(root), -MAX_LOG_STEP)
        for quarterings in range(3):
            trial = evaluate(workload, point.log_v + move / 4**quarterings)
            if trial.phi >= point.phi - 32 * settings.EPS * max(1.0, abs(point.phi)):
                return trial, quarterings + 1
    positive = xp.maximum(point.diag, settings.EPS * float(xp.max(point.diag)))
    return evaluate(workload, xp.log(positive)), 1 if direction is None else 4


def _start(program: Program) -> Array:
    """log v for v = diag(H)^1/2; a coordinate that costs nothing gets next to no weight."""
    diagonal = np.diagonal(program.gram)
    return np.asarray(np.log(np.maximum(diagonal, settings.EPS**2 * diagonal.max())) / 2)


def solve(program: Program, *, monitor: Monitor, device: Device = CPU) -> Found:
    """Solve a normalised program of single participation without a cap, on ``device``; a singular H
    on the CPU, by :mod:`barrier`."""
    kept = monitor.resumed(program)
    start = np.exp(_start(program)) if kept is None else kept[:, 0, 0]
    before = 0
    if 0 < program.null_space.shape[1] < program.size:
        answer = barrier.search(program, start, monitor=monitor)
        if answer.stop is not Stop.INACCURATE:
            return answer
        # Seldom, where budgets differ by orders of magnitude; from as near as that came.
        assert answer.dual is not None
        start, before = answer.dual.blocks[:, 0, 0], answer.evaluations
    workload = Placed(program, device)
    point = evaluate(workload, device.put(np.log(start)))
    best, best_gap, evaluations, stalls = point, np.inf, 1, 0
    with Search(monitor) as search:
        while evaluations < MAX_EVALUATIONS:
            slack = _slack(point)
            lower, upper = bounds(program, point, gap=monitor.gap, slack=slack)
            gap = upper / lower - 1
            # Newton at least halves a small gap unless rounding is in its way.
            stalls = stalls + 1 if gap < 1e-7 and gap > best_gap / 2 else 0
            if gap < best_gap:
                best, best_gap = point, gap
            monitor.report(lower=lower, upper=upper)
            if monitor.due:
                monitor.keep(program, diagonal_dual(on_host(best.v)).blocks)
            if search.ended(solved=gap <= REACHED * monitor.gap):
                break
            if stalls > 2:
                break
            point, used = _advance(workload, point, gap=monitor.gap, slack=slack)
            evaluations += used
    dual = diagonal_dual(on_host(best.v))
    gram = _gram(best)
    return Found(stop=search.stop, gram=gram, dual=dual, evaluations=evaluations + before)
