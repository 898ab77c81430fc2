"""The mixing of a graph under which optimal noise adds the least error.

One step of Whisper's problem is convex in W and R together, and solved with a bound for every W
(:mod:`noisedesign.system.least_noise`). Elsewhere the certified optimum is a function of W with the
gradient d optimum / dW = <noise, dH(W) / dW>, by the envelope theorem; quasi-Newton steps lead to a
W that is best among its neighbours, and no bound is claimed for others."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import networkx as nx
import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array, InputError
from noisedesign.base.linalg import gram_factor
from noisedesign.base.shown import Shown
from noisedesign.design.design import Design
from noisedesign.design.solve import solve
from noisedesign.families.worst.program import summed_error
from noisedesign.problem.default_cap import uncapped
from noisedesign.problem.problem import Problem
from noisedesign.system.fastest_mixing import gap_of
from noisedesign.system.least_noise import least_noise, plain_links, strictly_within
from noisedesign.system.links import ArcWeights, Links, balanced, mixing_norm
from noisedesign.system.workloads import Workload
from noisedesign.system.workloads.error import AnyError, measures_of

MOST_GLOBAL = 1e11  # links^2 x nodes^2 of the largest graphs whose W and R are found together
LOCAL_GAP = 1e-5  # of designs whose noise gives the gradient, relative: steps are of 1e-3
EVALUATIONS = 180  # designs on the way, after which little is gained on graphs of tens of nodes
BARRIERS = (1e-1, 1e-2, 1e-3)  # relative error given away to stay within the limits on W, in turn
REMEMBERED = 10  # changes of the gradient of which quasi-Newton steps are made
SMALLEST = 1e-6  # relative decrease of the error by a step, below which the next barrier is taken


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LeastNoiseMixing(Shown):
    """A mixing that was chosen for its noise.

    Attributes:
        mixing: W, shape (n, n), doubly stochastic, positive on the links; symmetric where these go
            both ways, unless that was not asked for.
        norm: ||W - J||_2, not squared: the rate at which models agree.
        mixing_rate: the largest one that was allowed.
        problem: the problem that W was chosen for, under this W.
        status: "optimal" (no W allowed has an optimum smaller by more than 1e-6), "inaccurate" (the
            same, by more), "local" (best among its neighbours; nothing is said of others) or
            "given" (there is no other W of that rate, or the error is that of the mean model, the
            same for all W: Metropolis-Hastings, or on a digraph the balanced one, if as fast).
        error: of the noise that was found beside W, squared noise; None where it was not.
        lower_bound: no W allowed has noise of a smaller error; None where none is proved.

    Examples:
        >>> import noisedesign as nd
        >>> problem = nd.SpaceProblem.from_graph(nd.build_graph("florentine"))
        >>> found = nd.graphs.least_noise_mixing(problem)
        >>> found.status, f"{found.error:.4f}"
        ('optimal', '3.3440')
        >>> plain = nd.solve(nd.SpaceProblem.from_graph(nd.build_graph("florentine")))
        >>> f"{nd.solve(found.problem).design.objective / plain.design.objective:.3f}"
        '0.749'
    """

    mixing: Array
    norm: float
    mixing_rate: float
    problem: Problem
    status: str
    error: float | None = None
    lower_bound: float | None = None

    def _title(self) -> str:
        return f"Mixing of least noise for {self.problem.name!r}"

    def _facts(self) -> dict[str, object]:
        names = ("status", "error", "lower_bound", "norm", "mixing_rate")
        return {name.replace("_", " "): getattr(self, name) for name in names}


def least_noise_mixing(
    problem: Problem,
    *,
    mixing_rate: float | None = None,
    symmetric: bool | None = None,
    time_limit: float | None = None,
) -> LeastNoiseMixing:
    """Choose W, on the links of the W of a problem, for the least error of its optimal noise.

    W is nonnegative and doubly stochastic, with :math:`||W - J||_2` at most ``mixing_rate``. For
    one step in space whose error is that of nodes, weighted or not, without a structure and floors,
    W and R are optimal together, and a bound is proved for every W. Elsewhere W is locally optimal.

    Args:
        problem: under any W on the graph that is meant; its budgets, caps, steps and error count. W
            is one for all steps, and there are no observers.
        mixing_rate: largest ||W - J||_2 allowed, not squared, in (0, 1); None: that of
            Metropolis-Hastings weights, or on a digraph of A + I balanced by Sinkhorn's scaling.
        symmetric: whether W is to be symmetric; None: where all links go both ways.
        time_limit: seconds for a W that is locally optimal, which is refused if it takes longer.

    Returns:
        W, and the problem under it.

    Raises:
        InputError: a problem of another kind, by what sets it apart; a mixing rate that no W of the
            graph has; a time limit that is too short.

    Examples:
        >>> import noisedesign as nd
        >>> ring = nd.SpaceProblem.from_graph(nd.build_graph("ring", nodes=16))
        >>> found = nd.graphs.least_noise_mixing(ring)  # on a ring equal weights are hard to beat
        >>> f"{found.lower_bound:.4f} {nd.solve(ring).design.objective:.4f}"
        '3.6889 3.6889'
    """
    both_ways = _check_supported(problem)
    if mixing_rate is not None:
        mixing_rate = _checks.real(mixing_rate, field="mixing_rate", low=0, high=1)
    ends = np.inf
    if time_limit is not None:
        ends = time.perf_counter() + _checks.real(time_limit, field="time_limit", low=0)
    if symmetric is None:
        symmetric = both_ways
    _checks.instance(symmetric, bool, field="symmetric", expected="true, false or None")
    if symmetric and not both_ways:
        expected = "false or None where a link goes one way"
        raise InputError("symmetric", expected=expected, got="true")
    assert problem.mixing is not None
    kind = nx.Graph if both_ways else nx.DiGraph
    off = ~np.eye(len(problem.mixing), dtype=bool)
    graph = nx.from_numpy_array(problem.mixing.T * off != 0, create_using=kind)
    plain, links = plain_links(graph, symmetric=symmetric)
    rate = mixing_norm(plain) if mixing_rate is None else mixing_rate
    weights = getattr(problem, "one_step_weights", None)
    if weights is None or (links.size * links.nodes) ** 2 > MOST_GLOBAL:
        return _local(problem, plain, links, rate, ends=ends)
    posed: Any = problem  # in space
    limits = {"budget": posed.budget, "cap": posed.max_variance, "weights": weights}
    best = least_noise(graph, norm=rate, symmetric=symmetric, **limits)
    if best.proof is None:
        return _found(problem, best.mixing, rate, "given")
    close = best.error <= (1 + 1e-6) * best.lower_bound
    found = _found(problem, best.mixing, rate, "optimal" if close else "inaccurate")
    given: Any = found.problem
    proved = replace(given, mixing_proof=best.proof)
    return replace(found, problem=proved, error=best.error, lower_bound=best.lower_bound)


def _found(problem: Problem, mixing: Array, rate: float, status: str) -> LeastNoiseMixing:
    """Return what was found, without an error and a bound."""
    given, norm = problem.with_mixing(mixing), mixing_norm(mixing)
    return LeastNoiseMixing(
        mixing=mixing, norm=norm, mixing_rate=rate, problem=given, status=status
    )


def _check_supported(problem: Problem) -> bool:
    """Refuse what W is not chosen for, naming it; whether all links of W go both ways."""
    mixing, use = problem.mixing, problem.use
    pushed = getattr(problem.error, "push_sum_weights", None) is not None
    for key, other, got in (
        ("mixing", mixing is None, "a problem without W"),
        ("mixing", problem.sparse, "a sparse W"),
        ("random", problem.random is not None, "W that is drawn"),
        ("schedule", problem.schedule is not None, "a schedule of W"),
        ("error.push_sum_weights", pushed, "push-sum, whose weights are those of its W"),
        ("observers", bool(getattr(problem, "observers", ())), "chosen observers"),
        ("structure.joint", getattr(problem, "joint", "") == "modal", '"modal", of the modes of W'),
        ("participation", use is not None and use.random, "a random one"),
    ):
        if other:
            expected = "a problem that W can be chosen for"
            remedy = "Choose W for a problem without it, and give the W found to this one."
            if key == "error.push_sum_weights":
                remedy = "Leave them out: the W chosen is doubly stochastic, and keeps the mean."
            raise InputError(key, expected=expected, got=got, remedy=remedy)
    assert mixing is not None
    return bool(((mixing > 0) == (mixing.T > 0)).all())


def _of_the_mean(error: AnyError | None) -> bool:
    """Whether an error is that of the plain mean model, which no doubly stochastic W changes."""
    for one in () if error is None else measures_of(error):
        means = one.node_weights if one.average is None else one.average
        uneven = means is not None and np.ptp(means) > 0
        if uneven or one.of not in ("mean-model", "loss-of-mean"):
            return False
    return error is not None


def _local(
    problem: Problem, plain: Array, links: Links, rate: float, *, ends: float
) -> LeastNoiseMixing:
    """The best W that quasi-Newton steps lead to, none worse than the plain one."""
    start = strictly_within(links, plain, rate)
    if start is None:
        return _found(problem, plain, rate, "given")
    slow = mixing_norm(plain) > rate
    if _of_the_mean(problem.error):
        return _found(problem, links.mixing(start) if slow else plain, rate, "given")
    tried = [links.mixing(_descended(problem, links, start, rate, ends=ends)), links.mixing(start)]
    if not slow:
        tried.append(plain)
    errors = [_error(problem, mixing)[0] for mixing in tried]
    return _found(problem, tried[int(np.argmin(errors))], rate, "local")


def _error(problem: Problem, mixing: Array) -> tuple[float, Array]:
    """The optimum for W, and its gradient in W; infinite where there is no design."""
    try:
        design = solve(uncapped(problem.with_mixing(mixing)), gap=LOCAL_GAP).design
    except InputError:  # W so near to a singular one that its noise is unbounded
        design = None
    if design is None:
        return np.inf, np.zeros_like(mixing)
    return design.objective, _gradient(design)


def _gradient(design: Design) -> Array:
    """d tr(H(W) cov z) / dW at the noise of a design."""
    problem: Any = design.problem
    n, timed = len(problem.mixing), problem if problem.axes == "space" else problem.participation
    worst = getattr(problem, "worst", False)
    error = summed_error(problem, design.proof) if worst else problem.error
    workload = Workload.of(problem.step_mixing, horizon=timed.horizon, error=error)
    of_step = np.zeros((n, n))
    for root in _roots(design, nodes=n, horizon=timed.horizon):
        of_step += workload.mixing_gradient(root)
    # Of W^K, of which every factor is W.
    powers = [np.linalg.matrix_power(problem.mixing.T, k) for k in range(problem.rounds)]
    return np.asarray(sum(a @ of_step @ b for a, b in zip(powers, powers[::-1], strict=True)))


def _roots(design: Design, *, nodes: int, horizon: int) -> Iterator[Array]:
    """Matrices S, (T, n, k), whose noises S g of white g add up to that of a design."""
    axes, of_nodes = design.axes, np.eye(nodes)
    if getattr(design.problem, "joint", "") == "full":
        yield np.asarray(design.strategy_form.dense_noising()).reshape(horizon, nodes, -1)
        return
    if axes != "time":
        of_nodes = gram_factor(design.covariance).T
    of_steps = np.eye(horizon) if axes == "space" else design.strategy_form.dense_noising()
    for column in of_steps.T:
        root: Any = np.multiply.outer(column, of_nodes)
        yield root


def _descended(
    problem: Problem, links: Links, weights: Array, rate: float, *, ends: float
) -> Array:
    """Weights of a small error near those given, which are strictly within their limits."""
    left = EVALUATIONS

    def value(barrier: float, logs: Array) -> tuple[float, Array]:
        if time.perf_counter() > ends:
            expected, got = "seconds enough to choose W", "too few"
            raise InputError("time_limit", expected=expected, got=got)
        w = _weights_of(links, logs)
        kept = 1 - links.at_nodes(w)
        slacks = links.slacks(gap_of(links, w), rate)
        try:
            np.linalg.cholesky(slacks)
        except np.linalg.LinAlgError:
            return np.inf, logs
        if kept.min(initial=1.0) <= 0:
            return np.inf, logs
        error, slope = _error(problem, links.at_zero - links.less(w))
        inverse: Any = np.linalg.inv(slacks)
        by_weight = links.at_nodes_each.T @ (1 / kept) - links.along_slacks(inverse)
        by_weight = np.asarray(barrier * by_weight - links.along(slope) / error)
        if len(links.held):  # as sums of weights are held, by scalings of rows and columns
            across = links.held * w
            by_weight -= links.held.T @ np.linalg.solve(across @ links.held.T, across @ by_weight)
        inside = float(np.log(kept).sum() + np.linalg.slogdet(slacks)[1].sum())
        return float(np.log(error)) - barrier * inside, w * by_weight

    here = np.log(weights)
    for share in BARRIERS:
        here, left = _minimised(partial(value, share / (3 * links.nodes)), here, left)
    return _weights_of(links, here)


def _weights_of(links: Links, logs: Array) -> Array:
    """Weights by logarithms, of arcs once their rows and columns are scaled to sums of 1."""
    w = np.exp(logs)
    return links.of(balanced(-links.less(w))) if isinstance(links, ArcWeights) else w


def _minimised(
    value: Callable[[Array], tuple[float, Array]], here: Array, left: int
) -> tuple[Array, int]:
    """A minimum by limited-memory quasi-Newton steps (Nocedal 1980), and the evaluations left."""
    now, slope = value(here)
    left -= 1
    pairs: list[tuple[Array, Array]] = []
    while left > 0 and np.isfinite(now):
        step = _quasi_newton(pairs, slope)
        step *= min(1.0, 1.0 / float(np.abs(step).max(initial=1e-300)))
        fall, length, there = float(slope @ step), 1.0, np.inf
        while left > 0 and length > 1e-3:
            there, steepness = value(here + length * step)
            left -= int(np.isfinite(there))
            if there <= now + 1e-4 * length * fall:
                break
            length /= 4
        gained = now - there
        if gained < SMALLEST:
            if not pairs:
                break
            pairs = []  # what is remembered misleads: once more down the slope itself
            if gained <= 0:
                continue
        s, y = length * step, steepness - slope
        if s @ y > 1e-10 * (y @ y):
            pairs = [*pairs, (s, y)][-REMEMBERED:]
        here, now, slope = here + s, there, steepness
    return here, left


def _quasi_newton(pairs: Sequence[tuple[Array, Array]], slope: Array) -> Array:
    """The step down a slope, by what changes of place have changed it before."""
    step, shares = -slope, []
    for s, y in reversed(pairs):
        shares.append(float(s @ step / (s @ y)))
        step = step - shares[-1] * y
    if pairs:
        s, y = pairs[-1]
        step = step * float(s @ y / (y @ y))
    for (s, y), share in zip(pairs, reversed(shares), strict=True):
        step = step + (share - float(y @ step / (s @ y))) * s
    return step
