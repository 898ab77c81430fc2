"""The mixing of a graph under which optimal noise adds the least error.

One step of Whisper's problem is convex in W and R together, and solved with a bound for every W
(:mod:`noisedesign.system.least_noise`). Over several steps, in time, and of Kronecker form the
certified optimum is a function of W with the gradient d optimum / dW = <noise, dH(W) / dW>, by the
envelope theorem; quasi-Newton steps lead to a W that is best among its neighbours, and no bound is
claimed for others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import networkx as nx
import numpy as np
from numpy.polynomial import polynomial

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array, InputError
from noisedesign.base.shown import Shown
from noisedesign.design.design import Design
from noisedesign.design.solve import solve
from noisedesign.problem.problem import Problem
from noisedesign.system.graph import mixing_matrix
from noisedesign.system.least_noise import least_noise, strictly_within
from noisedesign.system.links import SIGNS, EdgeWeights, mixing_norm

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
        mixing: W, shape (n, n), symmetric, doubly stochastic, positive on the links.
        norm: ||W - J||_2, not squared: the rate at which models agree.
        mixing_rate: the largest one that was allowed.
        problem: the problem that W was chosen for, under this W.
        status: "optimal" (no W allowed has an optimum smaller by more than 1e-6), "inaccurate" (the
            same, by more), "local" (best among its neighbours; nothing is said of others) or
            "given" (there is no other W of that rate: Metropolis-Hastings).
        error: of the noise that was found beside W, squared noise; None where it was not.
        lower_bound: no W allowed has noise of a smaller error; None where none is proved.

    Examples:
        >>> import noisedesign as nd
        >>> found = nd.least_noise_mixing(nd.SpaceProblem.from_graph(nd.build_graph("florentine")))
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


def least_noise_mixing(problem: Problem, *, mixing_rate: float | None = None) -> LeastNoiseMixing:
    """Choose W, on the links of the W of a problem, for the least error of its optimal noise.

    W is symmetric, nonnegative and doubly stochastic, with ||W - J||_2 at most ``mixing_rate``. For
    one step in space, without a structure and floors, W and R are optimal together, and a bound is
    proved for every W. For several steps, in time, and for Kronecker designs, W is locally optimal.

    Args:
        problem: under any W on the graph that is meant; its budgets, caps, steps and error count. W
            is one for all steps, the error that of all iterates, and there are no observers.
        mixing_rate: largest ||W - J||_2 allowed, not squared, in (0, 1); None: that of
            Metropolis-Hastings weights.

    Returns:
        W, and the problem under it.

    Raises:
        InputError: a problem of another kind, by what sets it apart; a mixing rate that no W of the
            graph has.

    Examples:
        >>> import noisedesign as nd
        >>> ring = nd.SpaceProblem.from_graph(nd.build_graph("ring", nodes=16))
        >>> found = nd.least_noise_mixing(ring)  # on a ring equal weights are hard to beat
        >>> f"{found.lower_bound:.4f} {nd.solve(ring).design.objective:.4f}"
        '3.6889 3.6889'
    """
    _check_supported(problem)
    assert problem.mixing is not None
    graph = nx.from_numpy_array(problem.mixing - np.diag(np.diagonal(problem.mixing)) != 0)
    plain = mixing_matrix(graph)
    if mixing_rate is not None:
        mixing_rate = _checks.real(mixing_rate, field="mixing_rate", low=0, high=1)
    rate = mixing_norm(plain) if mixing_rate is None else mixing_rate
    if problem.one_plain_step and _few(plain):
        posed: Any = problem  # in space
        found = least_noise(graph, budget=posed.budget, cap=posed.max_variance, norm=rate)
        given = replace(posed.with_mixing(found.mixing), mixing_proof=found.proof)
        if found.proof is None:
            status, error, bound = "given", None, None
        else:
            close = found.error <= (1 + 1e-6) * found.lower_bound
            status, error = "optimal" if close else "inaccurate", found.error
            bound = found.lower_bound
        return LeastNoiseMixing(
            mixing=found.mixing,
            norm=mixing_norm(found.mixing),
            mixing_rate=rate,
            problem=given,
            status=status,
            error=error,
            lower_bound=bound,
        )
    return _local(problem, graph, rate)


def _check_supported(problem: Problem) -> None:
    """Refuse what W is not chosen for, naming it."""
    error, mixing = problem.error, problem.mixing
    use = problem.use
    for key, other, got in (
        ("mixing", mixing is None, "a problem without W"),
        ("mixing", problem.sparse, "a sparse W"),
        ("random", problem.random is not None, "W that is drawn"),
        ("schedule", problem.schedule is not None, "a schedule of W"),
        ("error", error is not None and not error.plain, "another error than that of all iterates"),
        ("observers", bool(getattr(problem, "observers", ())), "chosen observers"),
        ("structure.joint", getattr(problem, "joint", "kronecker") != "kronecker", "another joint"),
        ("participation", use is not None and use.random, "a random one"),
    ):
        if other:
            expected = "a problem that W can be chosen for"
            remedy = "Choose W for a problem without it, and give the W found to this one."
            raise InputError(key, expected=expected, got=got, remedy=remedy)
    assert mixing is not None
    if ((mixing > 0) != (mixing.T > 0)).any():
        expected, got = "W of an undirected graph", "a link that goes one way"
        raise InputError("mixing", expected=expected, got=got)


def _few(mixing: Array) -> bool:
    """Whether a graph is small enough for W and R to be found together."""
    return bool(((mixing > 0).sum() / 2) ** 2 * len(mixing) ** 2 <= MOST_GLOBAL)


def _local(problem: Problem, graph: nx.Graph, rate: float) -> LeastNoiseMixing:
    """The best W that quasi-Newton steps lead to, none worse than Metropolis-Hastings."""
    plain = mixing_matrix(graph)
    weights = EdgeWeights(plain)
    start = None
    if len(weights.edges):
        start = strictly_within(weights, plain[tuple(weights.edges.T)], rate)

    def found(mixing: Array, status: str) -> LeastNoiseMixing:
        given, norm = problem.with_mixing(mixing), mixing_norm(mixing)
        return LeastNoiseMixing(
            mixing=mixing, norm=norm, mixing_rate=rate, problem=given, status=status
        )

    if start is None:
        return found(plain, "given")
    tried = [weights.mixing(_descended(problem, weights, start, rate)), weights.mixing(start)]
    if mixing_norm(plain) <= rate:
        tried.append(plain)
    errors = [_error(problem, mixing)[0] for mixing in tried]
    return found(tried[int(np.argmin(errors))], "local")


def _error(problem: Problem, mixing: Array) -> tuple[float, Array]:
    """The optimum for W, and its gradient in W, symmetric; infinite where there is no design."""
    try:
        design = solve(problem.with_mixing(mixing), gap=LOCAL_GAP).design
    except InputError:  # W so near to a singular one that its noise is unbounded
        design = None
    if design is None:
        return np.inf, np.zeros_like(mixing)
    return design.objective, _gradient(design, mixing, rounds=problem.rounds)


def _gradient(design: Design, mixing: Array, *, rounds: int) -> Array:
    """d tr(H(W) K x R) / dW of noise of covariance K over steps and R over nodes, symmetric W."""
    # tr(H K x R) = tr(R p(W^rounds)), p of coefficients sum of K_ss' by 2 t + 2 - s - s'.
    problem, n = design.problem, len(mixing)
    covariance = np.eye(n) if problem.axes == "time" else design.covariance
    steps = np.eye(problem.horizon) if problem.axes == "space" else None
    if steps is None:
        noising = design.strategy_form.dense_noising()
        steps = noising @ noising.T
    horizon = len(steps)
    lags = np.add.outer(np.arange(horizon), np.arange(horizon))
    coefficients: Any = np.zeros(1)
    for t in range(horizon):
        powers = (2 * t + 2 - lags[: t + 1, : t + 1]).ravel()
        of_step = np.bincount(powers, steps[: t + 1, : t + 1].ravel())
        coefficients = polynomial.polyadd(coefficients, of_step)
    values, basis = np.linalg.eigh(mixing)
    powered = values**rounds
    at = polynomial.polyval(powered, coefficients)
    slope = polynomial.polyval(powered, polynomial.polyder(coefficients))
    slope *= rounds * values ** (rounds - 1)
    apart = np.subtract.outer(values, values)
    near = np.abs(apart) < 1e-6  # where a difference has fewer digits than a mean of slopes
    divided = np.subtract.outer(at, at) / np.where(near, 1.0, apart)
    divided = np.where(near, np.add.outer(slope, slope) / 2, divided)
    return np.asarray(basis @ (divided * (basis.T @ covariance @ basis)) @ basis.T)


def _descended(problem: Problem, graph: EdgeWeights, weights: Array, rate: float) -> Array:
    """Weights of a small error near those given, which are strictly within their limits."""
    n, left = graph.nodes, EVALUATIONS

    def value(barrier: float, logs: Array) -> tuple[float, Array]:
        w = np.exp(logs)
        kept = 1 - graph.at_nodes(w)
        norms = rate * np.eye(n) + SIGNS * (graph.laplacian(w) - np.eye(n) + 1 / n)
        try:
            np.linalg.cholesky(norms)
        except np.linalg.LinAlgError:
            return np.inf, logs
        if kept.min() <= 0:
            return np.inf, logs
        error, slope = _error(problem, np.eye(n) - graph.laplacian(w))
        inverse = np.linalg.inv(norms)
        i, j = graph.edges.T
        by_weight = -graph.along(slope) / error + barrier * (1 / kept[i] + 1 / kept[j])
        by_weight -= barrier * graph.along(inverse[0] - inverse[1])
        inside = float(np.log(kept).sum() + np.linalg.slogdet(norms)[1].sum())
        return float(np.log(error)) - barrier * inside, w * by_weight

    here = np.log(weights)
    for share in BARRIERS:
        here, left = _minimised(partial(value, share / (3 * n)), here, left)
    return np.asarray(np.exp(here))


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
