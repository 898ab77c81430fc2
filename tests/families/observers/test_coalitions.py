"""Coalitions that are not written out: against all of them written out, one by one."""

from __future__ import annotations

import itertools
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

import noisedesign as nd
from noisedesign.base.checks import InputError
from noisedesign.base.monitor import Monitor, Stop
from noisedesign.families.observers import newton, observed, rigorous, sweeps, working_set
from noisedesign.families.observers.bound import judge, proved
from noisedesign.families.observers.family import FAMILY
from noisedesign.families.observers.observed import EveryCoalition, told_above
from noisedesign.families.observers.program import ObserverProgram
from noisedesign.files.design_file import load_design, save_design
from noisedesign.files.problem_file import parse_problem
from noisedesign.problem.problem import SpaceProblem
from tests.support import oracles
from tests.support.observer_designs import designed, observer_program

RANDOM = nx.convert_node_labels_to_integers(nx.gnp_random_graph(8, 0.35, seed=5))
TEXT = """name = "x"
design = "space"
graph = { kind = "ring", nodes = 6 }
limits.max_variance = 10.0
"""


def asked(graph: nx.Graph, size: int = 2, **more: Any) -> dict[str, Any]:
    return {
        "mixing": oracles.metropolis(graph),
        "horizon": 1,
        "max_variance": 10.0,
        "observers": nd.observers.coalitions(nodes=range(len(graph)), size=size),
    } | more


def noise_of(n: int, seed: int = 0) -> np.ndarray:
    root = np.random.default_rng(seed).standard_normal((n, n))
    return np.asarray(root @ root.T / n + 0.2 * np.eye(n))


def told_to(noise: np.ndarray, graph: nx.Graph, members: tuple[int, ...]) -> dict[int, float]:
    """By the inverse of the covariance of all that they hear."""
    heard = sorted(set(members).union(*(graph[node] for node in members)))
    precision = np.linalg.inv(noise[np.ix_(heard, heard)])
    return {u: precision[i, i] for i, u in enumerate(heard) if u not in members}


def interval(problem: ObserverProgram, answer: Any) -> tuple[float, float]:
    """Bound, from the arrays that a design file holds, and objective of feasible noise."""
    (noise,) = answer.noises
    bound = FAMILY.bound(problem, answer.proof).value
    certificate = judge(problem, noise.covariance, bound=bound)
    assert certificate.feasible
    return bound, certificate.objective


# --- the sequence ---------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3])
def test_all_sets_in_order(size: int) -> None:
    nodes = (4, 0, 7, 2, 9)
    found = nd.observers.coalitions(nodes=nodes, size=size)
    sets = list(itertools.combinations(nodes, size))
    assert [one.coalition for one in found] == sets
    assert [found[i].coalition for i in range(len(found))] == sets
    assert found[-1].coalition == sets[-1]
    assert [one.coalition for one in found[1:3]] == sets[1:3]
    assert [tuple(row) for row in found.members()] == sets
    with pytest.raises(IndexError):
        found[len(sets)]


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"size": 0}, "observers.pooled"),
        ({"size": 3}, "observers.pooled"),
        ({"nodes": [0, 0, 1]}, "observer.nodes"),
        ({"own_noise": "lost"}, "observer.own_noise"),
        ({"nodes": range(3000), "size": 3}, "observers.pooled"),
    ],
)
def test_what_are_no_coalitions(wrong: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as error:
        nd.observers.coalitions(**({"nodes": [0, 1, 2], "size": 2} | wrong))
    assert error.value.field == field


def test_smaller_sets_learn_no_more_than_some_larger_one() -> None:
    noise = noise_of(8)
    larger = {pair: told_to(noise, RANDOM, pair) for pair in itertools.combinations(range(8), 2)}
    for node in RANDOM:
        for victim, told in told_to(noise, RANDOM, (node,)).items():
            covered = max(
                found[victim] for pair, found in larger.items() if node in pair and victim in found
            )
            assert told <= covered * (1 + 1e-12)


# --- what they are told ---------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("graph", [nx.path_graph(6), RANDOM], ids=["path", "random"])
def test_all_are_told_what_each_is(graph: nx.Graph, size: int) -> None:
    n, noise = len(graph), noise_of(len(graph), size)
    coalitions = nd.observers.coalitions(nodes=range(n), size=size)
    told = EveryCoalition(coalitions, oracles.metropolis(graph)).told(noise)
    each = [told_to(noise, graph, one.coalition) for one in coalitions]
    assert told.by_coalition == pytest.approx([max(one.values()) for one in each], rel=1e-9)
    worst = [max((one[u] for one in each if u in one), default=0.0) for u in range(n)]
    assert told.of_node == pytest.approx(worst, rel=1e-9)


def test_those_above_a_level_are_told_one_by_one() -> None:
    noise, coalitions = noise_of(8, 2), nd.observers.coalitions(nodes=range(8), size=2)
    pools = EveryCoalition(coalitions, oracles.metropolis(RANDOM))
    level = float(np.median(pools.told(noise).by_coalition))
    some = np.arange(len(coalitions)) % 3 > 0
    found = pools.told(noise, level=level, among=some)
    given = zip(found.places.tolist(), found.victims.tolist(), found.amounts.tolist(), strict=True)
    expected = {
        (place, victim): told
        for place, one in enumerate(coalitions)
        for victim, told in told_to(noise, RANDOM, one.coalition).items()
        if some[place] and told > level
    }
    assert {(place, victim): told for place, victim, told in given} == pytest.approx(
        expected, rel=1e-9
    )
    assert not found.by_coalition[~some].any()


def test_more_coalitions_than_fit_are_told_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    noise = noise_of(8, 3)
    pools = EveryCoalition(
        nd.observers.coalitions(nodes=range(8), size=2), oracles.metropolis(RANDOM)
    )
    whole = pools.told(noise)
    monkeypatch.setattr(observed, "AT_ONCE", 2)
    assert pools.told(noise).by_coalition == pytest.approx(whole.by_coalition, rel=1e-12)


def test_who_hears_nobody_is_told_nothing() -> None:
    apart = np.eye(4)
    told = EveryCoalition(nd.observers.coalitions(nodes=range(4), size=2), apart).told(noise_of(4))
    assert not told.by_coalition.any()


@pytest.mark.parametrize("budget", [1.0, np.linspace(0.5, 2.0, 8)], ids=["even", "uneven"])
def test_the_worst_is_that_of_all_written_out(budget: Any) -> None:
    of = asked(RANDOM, budget=budget)
    written = observer_program(**of | {"observers": tuple(of["observers"])})
    for seed in range(3):
        noise = noise_of(8, seed)
        assert observer_program(**of).worst(noise)[0] == pytest.approx(
            written.worst(noise)[0], rel=1e-9
        )


def test_singular_noise_is_left_to_the_account() -> None:
    """The noise of nodes 0 and 1 is one number: who hears both is told their difference bare."""
    noise = np.diag(np.arange(1.0, 7.0))
    noise[0, 1] = noise[1, 0] = noise[1, 1] = 1.0
    worst, whose = observer_program(**asked(nx.cycle_graph(6))).worst(noise)
    assert worst == np.inf
    assert "node 0" in whose or "node 1" in whose


# --- the search -----------------------------------------------------------------------------------


@pytest.mark.parametrize("search", [sweeps.search, newton.search], ids=["sweeps", "newton"])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_watching_some_is_enough_for_all(
    monkeypatch: pytest.MonkeyPatch, search: Any, size: int
) -> None:
    monkeypatch.setattr(working_set, "FEW", 0)
    monkeypatch.setattr(working_set, "MOST", 1)
    graph = RANDOM if size < 3 else nx.path_graph(7)
    problem = observer_program(**asked(graph, size))
    answer = search(problem, monitor=Monitor(gap=5e-3))
    assert answer.stop is Stop.SOLVED
    assert size == 1 or len(answer.proof["dual_coalitions"]) < len(problem.observers)
    bound, objective = interval(problem, answer)
    assert objective <= bound * (1 + 5e-3)
    (noise,) = answer.noises
    for members in itertools.combinations(range(len(graph)), size):
        assert max(told_to(noise.covariance, graph, members).values(), default=0) <= 1 + 1e-9
    conic = designed(**asked(graph, size) | {"observers": tuple(problem.observers)}).certificate
    assert conic.gap <= 1e-4
    assert bound <= conic.objective
    assert conic.lower_bound <= objective


def test_multipliers_of_some_prove_what_they_prove_of_these() -> None:
    problem = observer_program(**asked(RANDOM))
    answer = newton.search(problem, monitor=Monitor(gap=1e-4))
    some = problem.among([(0, 1), (4, 7)])
    fewer = FAMILY.solve(some, monitor=Monitor(gap=1e-4))
    assert interval(some, fewer)[1] < interval(problem, answer)[0]
    watched, found = proved(problem, answer.proof)
    assert len(watched.observers) == len(found.factors) == len(answer.proof["dual_coalitions"])


FORGED: dict[str, Any] = {
    "one node": lambda named: named[:, :1],
    "a stranger": lambda named: np.where(named == named.max(), 8.0, named),
    "halves": lambda named: named + 0.5,
    "twice one": lambda named: np.repeat(named[:, :1], 2, axis=1),
    "twice one at last": lambda named: np.vstack([named[:-1], [[3.0, 3.0]]]),
    "none": lambda named: named[:0],
    "nan": lambda named: named * np.nan,
}


@cache
def searched() -> tuple[Any, dict[str, Any]]:
    """A problem and what proves a bound on it."""
    problem = observer_program(**asked(RANDOM))
    return problem, newton.search(problem, monitor=Monitor(gap=1e-2)).proof


@pytest.mark.parametrize(
    "change", [*FORGED.values(), lambda named: named[1:]], ids=[*FORGED, "others"]
)
def test_forged_coalitions_are_refused(change: Any) -> None:
    problem, found = searched()
    proof = dict(found)
    proof["dual_coalitions"] = change(proof["dual_coalitions"])
    with pytest.raises(InputError) as error:
        FAMILY.bound(problem, proof)
    assert error.value.field.startswith("design file.")
    if change in FORGED.values():
        assert error.value.field == "design file.dual_coalitions"


# --- files ----------------------------------------------------------------------------------------


def test_a_problem_file_counts_them(tmp_path: Path) -> None:
    text = TEXT + 'observers = { model = "pndp", pooled = 2, horizon = 1 }\n'
    problem = parse_problem(text, folder=Path()).problem
    assert isinstance(problem, SpaceProblem)
    assert problem.observers == nd.observers.coalitions(nodes=range(6), size=2)
    solution = nd.solve(problem, gap=1e-4)
    assert solution.status == "optimal"
    assert solution.design is not None
    stored = load_design(save_design(solution.design, tmp_path / "x.npz", problem_text=text))
    assert stored.design.problem.observers == problem.observers
    found = nd.verify(stored, rigorous=True)
    assert found.ok
    assert all(check.ok for check in found.checks)


@pytest.mark.parametrize(
    ("table", "field"),
    [
        ('model = "pndp", pooled = 0', "observers.pooled"),
        ('model = "pndp", pooled = 6', "observers.pooled"),
        ('model = "insider", pooled = 2', "observers.pooled"),
        ('model = "ldp", pooled = 2', "observers.pooled"),
        ('model = "central", pooled = 2', "observers.pooled"),
        ('model = "pndp", pooled = 2, nodes = [[0, 1], 2, 3]', "observers.nodes"),
        ('model = "pndp", pooled = 2, nodes = [0, 1, 9]', "observers.nodes"),
        ('model = "pndp", pooled = 2, nodes = []', "observers.nodes"),
    ],
)
def test_what_a_problem_file_may_not_ask(table: str, field: str) -> None:
    with pytest.raises(InputError) as error:
        parse_problem(TEXT + f"observers = {{ {table}, horizon = 1 }}\n", folder=Path())
    assert error.value.field == field


def test_distance_says_nothing_of_smaller_coalitions() -> None:
    text = TEXT + 'observers = { model = "pndp", pooled = 2, horizon = 1 }\n'
    with pytest.raises(InputError) as error:
        parse_problem(text + "budget.by_distance = [4.0, 1.0]\n", folder=Path())
    assert error.value.field == "budget.by_distance"
    with pytest.raises(InputError) as error:
        SpaceProblem(**_space(), pair_factors=np.ones((15, 6)))
    assert error.value.field == "pair_factors"


def _space() -> dict[str, Any]:
    mixing = oracles.metropolis(nx.cycle_graph(6))
    observers = nd.observers.coalitions(nodes=range(6), size=2)
    return {"mixing": mixing, "max_variance": 10.0, "observers": observers}


def test_coalitions_of_other_nodes_are_no_observers() -> None:
    with pytest.raises(InputError) as error:
        SpaceProblem(**_space() | {"observers": nd.observers.coalitions(nodes=[0, 1, 7], size=2)})
    assert error.value.field == "observers.nodes"


def test_several_steps_look_at_each_of_them() -> None:
    pooled = observer_program(**asked(nx.path_graph(4), horizon=2))
    written = observer_program(
        **asked(nx.path_graph(4), horizon=2) | {"observers": tuple(pooled.observers)}
    )
    monitor = Monitor(gap=1e-4)
    assert interval(pooled, FAMILY.solve(pooled, monitor=monitor)) == pytest.approx(
        interval(written, FAMILY.solve(written, monitor=monitor)), rel=1e-3
    )


def test_the_audit_and_the_page_look_at_those_who_are_told_most() -> None:
    problem = SpaceProblem(**_space())
    design = nd.solve(problem, gap=1e-3).design
    assert design is not None
    foremost = FAMILY.foremost(problem, design.noise)
    told = [
        max(told_to(design.covariance, nx.cycle_graph(6), one.coalition).values(), default=0.0)
        for one in foremost
    ]
    assert len(foremost) == 15
    assert told == pytest.approx(sorted(told, reverse=True), rel=1e-9)
    assert nd.simulate(design, runs=200, seed=1).agrees


# --- every rounding accounted for -----------------------------------------------------------------


def exact_inverse_diagonal(matrix: np.ndarray) -> list[Fraction]:
    """By elimination in fractions."""
    size = len(matrix)
    rows = [
        [*(Fraction(float(x)) for x in row), *(Fraction(int(i == j)) for j in range(size))]
        for i, row in enumerate(matrix)
    ]
    for i in range(size):
        pivot = rows[i][i]
        rows[i] = [x / pivot for x in rows[i]]
        for k in range(size):
            if k != i and rows[k][i]:
                factor = rows[k][i]
                rows[k] = [x - factor * y for x, y in zip(rows[k], rows[i], strict=True)]
    return [rows[i][size + i] for i in range(size)]


@pytest.mark.parametrize("shift", [1.0, 1e-4, 1e-9])
def test_no_coalition_is_told_more_than_is_proved(shift: float) -> None:
    rng = np.random.default_rng(1)
    thin = rng.standard_normal((8, 3))
    noise = thin @ thin.T + shift * np.eye(8)
    noise = (noise + noise.T) / 2
    coalitions, budget = nd.observers.coalitions(nodes=range(8), size=2), np.linspace(0.5, 2.0, 8)
    above = told_above(EveryCoalition(coalitions, oracles.metropolis(RANDOM)), noise, budget)
    for place, one in enumerate(coalitions):
        heard = sorted(set(one.coalition).union(*(RANDOM[node] for node in one.coalition)))
        found = exact_inverse_diagonal(noise[np.ix_(heard, heard)])
        exact = [
            value / Fraction(float(budget[u]))
            for u, value in zip(heard, found, strict=True)
            if u not in one.coalition
        ]
        assert Fraction(float(above[place])) >= max(exact)
        if shift > 1e-6:
            assert above[place] == pytest.approx(float(max(exact)), rel=1e-6)


def test_noise_that_one_coalition_sees_too_much_of_is_not_proved() -> None:
    problem = observer_program(**asked(nx.path_graph(6)))
    noise = newton.search(problem, monitor=Monitor(gap=1e-3)).noises[0].covariance
    assert rigorous.judge(problem, noise).sensitivity_squared <= 1
    assert rigorous.judge(problem, noise * (1 - 1e-8)).sensitivity_squared > 1
