"""Newton's method on small problems: against dense posteriors, closed forms and conic answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import scipy.optimize

from noisedesign.base.checks import Array
from noisedesign.base.monitor import Monitor, Stop
from noisedesign.certify.certificate import Certificate
from noisedesign.design.solve import solve
from noisedesign.families.observers import newton
from noisedesign.families.observers.bound import Multipliers, judge, lower_bound, multipliers_of
from noisedesign.files.problem_file import load_problem
from noisedesign.privacy import views as threats
from noisedesign.problem.problem import SpaceProblem
from tests.support import oracles
from tests.support.observer_designs import designed, observer_program

PROBLEMS = Path(__file__).parents[3] / "problems" / "observers"
GAP = 1e-6


def everyone(graph: nx.Graph) -> tuple[threats.Observer, ...]:
    return tuple(threats.pndp(nodes=[node]) for node in graph)


def asked(graph: nx.Graph, **more: Any) -> dict[str, Any]:
    base = {"mixing": oracles.metropolis(graph), "horizon": 1, "max_variance": 10.0}
    return base | {"observers": everyone(graph)} | more


def found(gap: float = GAP, **of: Any) -> tuple[Stop, Certificate, Array, Multipliers]:
    """Why it stopped, and what is proved from the arrays that a design file holds."""
    problem = observer_program(**of)
    answer = newton.search(problem, monitor=Monitor(gap=gap))
    (noise,) = answer.noises
    proved = multipliers_of(problem.normalized, answer.proof)
    bound = problem.unit_error * lower_bound(problem.normalized, proved)
    covariance = noise.covariance
    return answer.stop, judge(problem, covariance, bound=bound), covariance, proved


def told_after_conditioning(covariance: Array, heard: list[int], own: int, victim: int) -> float:
    """1 / var of the victim's noise, once the observer has explained what it can of it by its own
    noise and by the other messages it hears: Gaussian conditioning, by least squares on a root."""
    root = np.linalg.cholesky(covariance)
    others = [node for node in {*heard, own} if node != victim]
    fit, *_ = np.linalg.lstsq(root[others].T, root[victim], rcond=None)
    return float(1 / np.sum((root[victim] - fit @ root[others]) ** 2))


@pytest.mark.parametrize(
    "graph",
    [nx.path_graph(5), nx.cycle_graph(6), nx.star_graph(4), nx.lollipop_graph(4, 3)],
    ids=["path", "ring", "star", "lollipop"],
)
def test_every_posterior_of_every_neighbour_is_within_its_budget(graph: nx.Graph) -> None:
    budget = np.linspace(1.0, 2.0, len(graph))
    stop, certificate, covariance, _ = found(**asked(graph, budget=budget))
    worst = max(
        told_after_conditioning(covariance, list(graph[a]), a, u) / budget[u]
        for a in graph
        for u in graph[a]
    )
    assert stop is Stop.SOLVED
    assert worst == pytest.approx(1.0, abs=1e-6)
    assert worst <= 1 + 1e-9
    assert np.diagonal(covariance).max() <= 10.0
    assert certificate.gap <= GAP


def test_nothing_that_another_search_finds_costs_less() -> None:
    """A path of three: R has six entries. A general-purpose search on its Cholesky factor, from
    several starts, with constraints by Gaussian conditioning."""
    graph = nx.path_graph(3)
    w = oracles.metropolis(graph)
    i, j = np.tril_indices(3)

    def covariance(x: Array) -> Array:
        lower = np.zeros((3, 3))
        lower[i, j] = x
        return np.asarray(lower @ lower.T)

    def room(x: Array) -> Array:
        r = covariance(x) + 1e-12 * np.eye(3)
        told = [told_after_conditioning(r, list(graph[a]), a, u) for a in graph for u in graph[a]]
        return np.concatenate([1 - np.array(told), 4.0 - np.diagonal(r)])

    best = np.inf
    for seed in range(3):
        start = np.eye(3)[i, j] * 1.3 + 0.1 * np.random.default_rng(seed).standard_normal(6)
        other = scipy.optimize.minimize(
            lambda x: float(np.sum((w.T @ w) * covariance(x))),
            start,
            method="SLSQP",
            constraints=[{"type": "ineq", "fun": room}],
            options={"maxiter": 300, "ftol": 1e-12},
        )
        if room(other.x).min() >= -1e-8:
            best = min(best, float(other.fun))
    _, certificate, _, _ = found(**asked(graph, max_variance=4.0))
    assert certificate.objective == pytest.approx(best, rel=1e-6)
    assert certificate.lower_bound <= best * (1 + 1e-7)


def test_who_hears_everybody_needs_the_noise_of_whisper() -> None:
    """Vertex-transitive W: (nuclear norm of W)^2 / n, at tau = 1."""
    ring = nx.cycle_graph(5)
    _, certificate, _, _ = found(**asked(ring, observers=(threats.ldp(),), max_variance=50.0))
    optimum = oracles.vertex_transitive_optimum(oracles.metropolis(ring))
    assert certificate.lower_bound <= optimum * (1 + 1e-12)
    assert optimum <= certificate.objective * (1 + 1e-12)
    assert certificate.gap <= GAP


@pytest.mark.parametrize(
    "of",
    [
        asked(nx.path_graph(4), horizon=2),
        asked(nx.cycle_graph(6), observers=tuple(threats.pndp(nodes=[i, i - 3]) for i in (3, 4))),
        asked(nx.star_graph(3), observers=(threats.secure_sum(nodes=[0]), threats.tap(nodes=[2]))),
        asked(nx.path_graph(4), max_variance=np.array([1.2, 2.0, 30.0, 1.5])),
    ],
    ids=["two steps", "coalitions", "sums", "uneven caps"],
)
def test_conic_answers_lie_within_its_interval(of: dict[str, Any]) -> None:
    stop, certificate, _, _ = found(**of)
    conic = designed(**of).certificate
    assert stop is Stop.SOLVED
    assert certificate.lower_bound <= conic.objective
    assert conic.lower_bound <= certificate.objective
    assert conic.gap <= 1e-4


def test_noise_that_nobody_sees_is_singular_but_for_the_cap() -> None:
    """Only node 0 of a path watches: W can cancel noise beyond its neighbour, and R is singular."""
    path = nx.path_graph(6)
    of = asked(path, observers=(threats.pndp(nodes=[0]),))
    stop, certificate, covariance, _ = found(**of)
    values = np.linalg.eigvalsh(covariance)
    assert stop is Stop.SOLVED
    assert values[0] < 1e-6 * values[-1]
    assert certificate.feasible
    assert told_after_conditioning(covariance + 1e-13 * np.eye(6), [1], 0, 1) <= 1 + 1e-6
    assert certificate.lower_bound <= designed(**of).certificate.objective


def test_forged_multipliers_prove_no_more_than_the_optimum() -> None:
    """Whatever they are: larger N_a, other signs, another observer's, caps that cost nothing."""
    ring = nx.cycle_graph(6)
    of = asked(ring)
    program = observer_program(**of).normalized
    unit_error = observer_program(**of).unit_error
    _, certificate, _, proved = found(**of)
    honest = lower_bound(program, proved)
    assert unit_error * honest == pytest.approx(certificate.lower_bound, rel=1e-12)
    forgeries = [
        replace(proved, factors=tuple(1.01 * factor for factor in proved.factors)),
        replace(proved, factors=proved.factors[1:] + proved.factors[:1]),
        replace(proved, weights=tuple(-weight for weight in proved.weights)),
        replace(proved, weights=tuple(weight[::-1] for weight in proved.weights)),
        replace(proved, cap=0 * proved.cap),
        replace(proved, cap=-proved.cap),
        replace(proved, factors=tuple(np.full_like(f, np.nan) for f in proved.factors)),
    ]
    bounds = [lower_bound(program, forged) for forged in forgeries]
    assert max(bounds) <= certificate.objective / unit_error
    assert bounds[0] < 0.99 * honest
    assert bounds[2] == bounds[-1] == 0


@pytest.mark.parametrize(
    "name", ["path-5-both-ends", pytest.param("ring-6-neighbours", marks=pytest.mark.slow)]
)
def test_the_native_backend_solves_the_shipped_problems(name: str) -> None:
    loaded = load_problem(PROBLEMS / f"{name}.toml")
    assert isinstance(loaded.problem, SpaceProblem)
    solution = solve(loaded.problem, backend="native", gap=1e-6)
    assert (solution.status, solution.backend) == ("optimal", "native")
    assert solution.certificate is not None
    assert loaded.reference is not None
    assert solution.certificate.lower_bound <= loaded.reference.upper
    assert solution.certificate.objective >= loaded.reference.lower


def test_noise_stays_within_its_limits_where_time_ends() -> None:
    problem = observer_program(**asked(nx.path_graph(4), max_variance=3.0))
    answer = newton.search(problem, monitor=Monitor(gap=1e-6, time_limit=1e-9))
    (noise,) = answer.noises
    assert answer.stop is Stop.TIME_LIMIT
    assert judge(problem, noise.covariance, bound=0.0).feasible
