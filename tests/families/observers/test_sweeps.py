"""Noise against chosen observers without a conic solver: against conic answers, closed forms and
the account."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import networkx as nx
import numpy as np
import pytest

from noisedesign.base.checks import InputError
from noisedesign.base.monitor import Monitor, Stop
from noisedesign.certify.certificate import Certificate
from noisedesign.design.solve import solve
from noisedesign.families.observers import sweeps
from noisedesign.families.observers.bound import judge, lower_bound, multipliers_of
from noisedesign.privacy import views as threats
from noisedesign.privacy.exposure import account
from noisedesign.problem.problem import SpaceProblem
from noisedesign.system.participation import single
from tests.support import oracles
from tests.support.observer_designs import designed, observer_program

FLORENTINE = nx.convert_node_labels_to_integers(nx.florentine_families_graph())

PAIRS = tuple(threats.pndp(nodes=[i, (i + 2) % 6]) for i in range(6))


def everyone(graph: nx.Graph) -> tuple[threats.Observer, ...]:
    return tuple(threats.pndp(nodes=[node]) for node in graph)


def asked(graph: nx.Graph, **more: Any) -> dict[str, Any]:
    base = {"mixing": oracles.metropolis(graph), "horizon": 1, "max_variance": 10.0}
    return base | {"observers": everyone(graph)} | more


def found(gap: float, **of: Any) -> tuple[Stop, Certificate]:
    """Why it stopped, and what is proved from the arrays that a design file holds."""
    problem = observer_program(**of)
    answer = sweeps.search(problem, monitor=Monitor(gap=gap))
    (noise,) = answer.noises
    bound = 0.0
    if answer.proof:
        proved = multipliers_of(problem.normalized, answer.proof)
        bound = problem.unit_error * lower_bound(problem.normalized, proved)
    return answer.stop, judge(problem, noise.covariance, bound=bound)


@pytest.mark.parametrize(
    "of",
    [
        asked(nx.cycle_graph(6)),
        asked(nx.path_graph(7), max_variance=np.linspace(1.5, 20.0, 7)),
        asked(FLORENTINE),
        asked(nx.path_graph(5), horizon=3),
        asked(nx.path_graph(6), budget=np.array([1.0, 2.0, 4.0, 1.0, 3.0, 1.0])),
        asked(nx.cycle_graph(6), observers=PAIRS),
        asked(nx.star_graph(4), observers=(threats.secure_sum(nodes=[0]), threats.tap(nodes=[2]))),
    ],
    ids=["ring", "uneven caps", "florentine", "three steps", "budgets", "coalitions", "sums"],
)
def test_it_finds_what_a_conic_solver_finds(of: dict[str, Any]) -> None:
    stop, certificate = found(5e-3, **of)
    assert stop is Stop.SOLVED
    assert certificate.feasible
    conic = designed(**of).certificate
    assert conic.gap <= 1e-4
    assert certificate.lower_bound <= conic.objective
    assert conic.lower_bound <= certificate.objective
    assert certificate.objective <= conic.lower_bound * (1 + 5e-3)


def test_readers_of_all_messages_need_the_noise_of_whisper() -> None:
    ring = nx.cycle_graph(5)
    stop, certificate = found(1e-3, **asked(ring, max_variance=50.0, observers=(threats.ldp(),)))
    optimum = oracles.vertex_transitive_optimum(oracles.metropolis(ring))
    assert stop is Stop.SOLVED
    assert certificate.lower_bound <= optimum <= certificate.objective * (1 + 1e-12)
    assert certificate.gap <= 1e-3


@pytest.mark.parametrize("own_noise", ["seeds", "values", "counted"])
def test_what_one_step_tells_is_what_the_account_says(own_noise: str) -> None:
    rng = np.random.default_rng(3)
    nodes = ([0], [3], [1, 5], [2, 3, 4])
    observers = [threats.pndp(nodes=list(each), own_noise=own_noise) for each in nodes]
    observers += [threats.ldp(), threats.tap(nodes=[2]), threats.insider(nodes=[1])]
    root = rng.standard_normal((15, 15))
    covariance = root @ root.T + np.eye(15)
    budget = rng.uniform(0.5, 2.0, size=15)
    for observer in observers:
        of = asked(FLORENTINE, observers=(observer,), budget=budget)
        problem = observer_program(**of)
        (seen,) = problem.seen
        assert seen.hidden
        exposures = account(problem.algorithm(covariance), observer, participation=single(1))
        largest = max(one.sensitivity_squared / budget[int(one.node)] for one in exposures)
        value, whose = problem.worst(covariance)
        assert value == pytest.approx(largest, rel=1e-9)
        node = int(whose.split()[1])
        (told,) = (one.sensitivity_squared for one in exposures if one.node == str(node))
        assert told / budget[node] == pytest.approx(largest, rel=1e-9)


def test_gradients_told_without_noise_are_left_to_the_account() -> None:
    path = nx.path_graph(3)
    problem = observer_program(**asked(path, observers=(threats.shared_seed(nodes=[0]),)))
    assert not problem.seen[0].hidden
    assert problem.worst(np.eye(3))[0] == np.inf
    with pytest.raises(InputError, match="^observers: expected observers from whom noise hides"):
        sweeps.search(problem, monitor=Monitor(gap=0.1))
    singular = observer_program(**asked(path))
    assert singular.worst(np.ones((3, 3)))[0] == np.inf
    with pytest.raises(np.linalg.LinAlgError, match="nearly linear"):
        singular.seen[1].told(np.ones((3, 3)) + 1e-10 * np.eye(3))


def test_without_time_noise_is_independent_and_within_its_limits() -> None:
    problem = observer_program(**asked(nx.path_graph(4), max_variance=3.0))
    answer = sweeps.search(problem, monitor=Monitor(gap=1e-3, time_limit=1e-9))
    (noise,) = answer.noises
    assert answer.stop is Stop.TIME_LIMIT
    certificate = judge(problem, noise.covariance, bound=0.0)
    assert certificate.feasible
    assert certificate.objective <= 2 * problem.unit_error * (1 + 1e-9)


def test_what_was_best_is_kept_where_the_gap_asked_for_is_out_of_reach() -> None:
    stop, certificate = found(1e-9, **asked(nx.path_graph(9)))
    assert stop is Stop.INACCURATE
    assert certificate.feasible
    assert certificate.gap <= 1e-2


def test_larger_problems_need_no_conic_solver() -> None:
    path = nx.path_graph(40)
    problem = SpaceProblem(
        mixing=oracles.metropolis(path), max_variance=10.0, observers=everyone(path)
    )
    solution = solve(problem, gap=0.02)
    assert solution.certificate is not None
    assert (solution.status, solution.backend) == ("optimal", "native")
    assert solution.certificate.gap <= 0.02
    everybody = solve(replace(problem, observers=())).certificate
    assert everybody is not None
    assert solution.certificate.objective < 0.95 * everybody.lower_bound
