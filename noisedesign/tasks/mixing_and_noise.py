"""Weights and noise designed in turns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import networkx as nx
import numpy as np

from noisedesign.base import checks as _checks, settings
from noisedesign.base.checks import Array, InputError
from noisedesign.base.monitor import Monitor, Stop
from noisedesign.base.shown import Shown
from noisedesign.conic.solvers import solve_cvxpy
from noisedesign.program.design import Design
from noisedesign.program.problem import SpaceProblem
from noisedesign.system.edge_weights import EdgeWeights
from noisedesign.system.fastest_mixing import FastestMixing, affine, fastest_mixing, mixing_norm
from noisedesign.system.graph import mixing_matrix
from noisedesign.tasks.solve import Solution, solve

ROUND_WORTH = 1e-4
"""Relative improvement below which alternating stops: the objective is flat in W by then, and the
program of W is only solved to some 1e-8."""

MAX_ROUNDS = 50
"""Rounds after which to stop in any case; the instances measured took at most twenty."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class JointDesign(Shown):
    """Weights and noise designed together.

    Attributes:
        design: the certified R for the final W; its bound is for that W.
        history: tr(W R W^T) at the start, then after each step in W and each in R, never rising.
        lower_bound: no doubly stochastic W with any R has a smaller objective:
            n / (sum_i sqrt(tau_i))^2, what one trusted server would pay.
        spectral_gap: 1 - ||W - J||_2 of the final W.
        stop: "solved" where rounds stopped paying, else what ended them ("failed": the solver of W
            did, after the rounds in the history).
    """

    design: Design
    history: tuple[float, ...]
    lower_bound: float
    spectral_gap: float
    stop: Stop

    @property
    def mixing(self) -> Array:
        """W, shape (n, n), symmetric and doubly stochastic."""
        return np.asarray(self.design.problem.mixing)


def design_mixing_and_noise(
    graph: nx.Graph,
    *,
    required_gap: float,
    budget: Any = 1.0,
    max_variance: Any = None,
    backend: str = "clarabel",
    monitor: Monitor | None = None,
) -> JointDesign:
    """Alternate W and R to lower tr(W R W^T), keeping ||W - J||_2 <= 1 - required_gap.

    Starts from Metropolis-Hastings weights, moved towards the fastest ones as far as the required
    gap asks. A round is accepted only if both its steps lower the objective. The result is a local
    one, and without a cap it may be no optimum at all: W tends to cancel directions that R then
    fills with noise. Set ``max_variance`` where diag(R) of the result is larger than one can draw.

    Args:
        graph: connected, simple, undirected; rows of W and R follow ``graph.nodes``.
        required_gap: least 1 - ||W - J||_2, in (0, 1), not squared.
        budget: tau, scalar or shape (n,): as of :class:`SpaceProblem`, squared.
        max_variance: cap on diag(R), squared noise, scalar or shape (n,), or None.
        backend: conic solver for the steps in W; the fastest W and R are left to native ones.
        monitor: gap asked of R, clock and progress; the bounds reported are of the joint problem.

    Raises:
        InputError: a required gap that no W on the graph reaches; see :func:`fastest_mixing` and
            :func:`solve.solve` (a W so designed may be singular, and needs a cap).
    """
    required = _checks.real(required_gap, field="required_gap", low=0, high=1)
    monitor = Monitor(gap=settings.DEFAULT_GAP) if monitor is None else monitor
    alone = Monitor(gap=monitor.gap, time_limit=monitor.time_left)
    fastest = fastest_mixing(graph, monitor=alone)
    norm = 1 - required
    if norm < fastest.norm:
        raise InputError(
            "required_gap",
            expected=f"at most {fastest.spectral_gap:.6g} on this graph "
            f"(no W has more than {1 - fastest.lower_bound:.6g})",
            got=f"{required:.6g}",
        )
    start = mixing_matrix(graph)
    weights = EdgeWeights(start)
    tau = _checks.positive_vector(budget, field="budget.tau", length=len(start))

    def noise_for(w: Array) -> Solution:
        problem = SpaceProblem(mixing=w, budget=tau, max_variance=max_variance)
        return solve(problem, gap=monitor.gap, time_limit=monitor.time_left)

    solution = noise_for(_fast_enough(start, fastest, norm))
    if solution.design is None:
        expected = "Metropolis-Hastings weights whose noise can be designed"
        got = f"a solve that ended as {solution.status}"
        raise InputError("graph", expected=expected, got=got, remedy=solution.remedy)
    best = solution.design
    lower = weights.nodes / float(np.sqrt(tau).sum()) ** 2
    history: list[float] = [best.objective]
    stop: Stop | None = None
    monitor.report(lower=lower, upper=best.objective)
    try:
        for _ in range(MAX_ROUNDS):
            if stop := _cut_short(solution, monitor):
                break
            w = _least_noisy(weights, best.matrix, norm, backend, monitor)
            if w is None:
                stop = _cut_short(solution, monitor) or Stop.FAILED
                break
            w = _fast_enough(w, fastest, norm)
            value = float(np.sum((w @ best.matrix) * w))
            if value >= best.objective:
                stop = Stop.SOLVED
                break
            solution = noise_for(w)
            if solution.design is None or solution.design.objective > value:
                stop = _cut_short(solution, monitor) or Stop.SOLVED
                break
            gained = 1 - solution.design.objective / best.objective
            best = solution.design
            history += [value, best.objective]
            monitor.report(lower=lower, upper=best.objective)
            if gained < ROUND_WORTH:
                stop = Stop.SOLVED
                break
    except KeyboardInterrupt:
        stop = Stop.INTERRUPTED
    return JointDesign(
        design=best,
        history=tuple(history),
        lower_bound=lower,
        spectral_gap=1 - mixing_norm(np.asarray(best.problem.mixing)),
        stop=stop or Stop.INACCURATE,
    )


def _cut_short(solution: Solution, monitor: Monitor) -> Stop | None:
    """What ended the search from outside, if anything did."""
    if solution.status == Stop.INTERRUPTED.value:
        return Stop.INTERRUPTED
    return Stop.TIME_LIMIT if monitor.expired else None


def _least_noisy(
    weights: EdgeWeights, covariance: Array, norm: float, backend: str, monitor: Monitor
) -> Array | None:
    """W >= 0 of least tr(W R W^T) with ||W - J|| <= norm, nearly; None where the solver failed.

    tr(W R W^T) = tr R - 2 sum_e w_e b_e^T R b_e + sum_ef w_e w_f (b_e^T b_f) (b_e^T R b_f).
    """
    if len(weights.edges) == 0:
        return np.ones((1, 1))
    import cvxpy as cp

    b, identity = weights.incidence, np.eye(weights.nodes)
    seen = b.T @ covariance @ b / np.trace(covariance)
    w = cp.Variable(b.shape[1])
    distance, allowed = affine(weights, w, nonnegative=True)
    cost = cp.quad_form(w, cp.psd_wrap((b.T @ b) * seen)) - 2 * (np.diagonal(seen) @ w)
    fast = [norm * identity - distance >> 0, norm * identity + distance >> 0]
    if not solve_cvxpy(cp.Problem(cp.Minimize(cost), [*fast, *allowed]), backend, monitor):
        return None
    return weights.mixing(np.asarray(w.value), nonnegative=True)


def _fast_enough(mixing: Array, fastest: FastestMixing, norm: float) -> Array:
    """W moved towards the fastest until ||W - J|| <= norm, which is convex on the way."""
    present, share = mixing_norm(mixing), 0.0
    while present > norm and share < 1:
        needed = (present - norm) / max(present - fastest.norm, settings.EPS)
        # From where rounding has the last word, at least a rounding further.
        share = min(1.0, share + (1 - share) * max(needed, settings.rank_tolerance(len(mixing))))
        moved = (1 - share) * mixing + share * fastest.mixing
        present = mixing_norm(moved)
    return mixing if share == 0 else moved
