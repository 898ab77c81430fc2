"""Noise within budgets of pairs: against dense posteriors, conic answers and the account."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

from noisedesign.base.checks import InputError
from noisedesign.base.monitor import Monitor, Stop
from noisedesign.design.design import Design
from noisedesign.design.solve import solve
from noisedesign.families.observers import newton, sweeps
from noisedesign.families.observers.bound import judge, lower_bound, multipliers_of
from noisedesign.families.observers.family import FAMILY
from noisedesign.files.design_file import load_design, save_design
from noisedesign.files.problem_file import parse_problem
from noisedesign.privacy import views as threats
from noisedesign.privacy.exposure import account
from noisedesign.problem.calibration import calibrate
from noisedesign.problem.problem import PrivacyTarget, SpaceProblem
from noisedesign.system.participation import single
from noisedesign.tasks.report import insider_note
from noisedesign.tasks.simulate import simulate
from noisedesign.tasks.verify import verify
from tests.support import oracles
from tests.support.made_designs import with_matrix
from tests.support.observer_designs import designed, observer_program
from tests.support.small_designs import falsify

GRAPHS = {"path": nx.path_graph(5), "ring": nx.cycle_graph(6)}
TEXT = """name = "x"
design = "space"
graph = { kind = "path", nodes = 5 }
budget.by_distance = [9, 4.0, 1.0]
limits.max_variance = 20.0
observers = { model = "pndp", responses = "fixed", horizon = 3 }
"""


def asked(graph: nx.Graph, *, seed: int = 0, **more: Any) -> dict[str, Any]:
    n, rng = len(graph), np.random.default_rng(seed)
    return {
        "mixing": oracles.metropolis(graph),
        "horizon": 1,
        "max_variance": 10.0,
        "budget": rng.uniform(0.5, 2.0, n),
        "observers": tuple(threats.pndp(nodes=[node]) for node in graph),
        "pair_factors": rng.uniform(1.0, 8.0, (n, n)),
    } | more


def after_conditioning(covariance: np.ndarray, a: int, u: int, heard: list[int]) -> float:
    """1 / var of the noise of u given that of a and of all others that a hears."""
    others = [a, *(v for v in heard if v != u)]
    inside = covariance[np.ix_(others, others)]
    across = covariance[u, others]
    return float(1 / (covariance[u, u] - across @ np.linalg.solve(inside, across)))


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize(("search", "gap"), [(newton.search, 1e-6), (sweeps.search, 5e-3)])
def test_both_searches_reach_the_conic_optimum(name: str, search: Any, gap: float) -> None:
    graph = GRAPHS[name]
    of = asked(graph, seed=len(graph))
    problem = observer_program(**of)
    answer = search(problem, monitor=Monitor(gap=gap))
    (noise,) = answer.noises
    proved = multipliers_of(problem.normalized, answer.proof)
    bound = problem.unit_error * lower_bound(problem.normalized, proved)
    found = judge(problem, noise.covariance, bound=bound)
    assert answer.stop is Stop.SOLVED
    worst = max(
        after_conditioning(noise.covariance, a, u, list(graph[a]))
        / (of["budget"][u] * of["pair_factors"][a, u])
        for a in graph
        for u in graph[a]
    )
    assert worst <= 1 + 1e-9
    assert found.sensitivity_squared == pytest.approx(worst, rel=1e-9)
    conic = designed(**of).certificate
    assert found.lower_bound <= conic.objective
    assert conic.lower_bound <= found.objective <= conic.lower_bound * (1 + gap + 1e-5)
    # It would be another optimum without them.
    assert found.objective < 0.9 * designed(**of | {"pair_factors": None}).certificate.lower_bound


def test_factors_alike_are_a_budget() -> None:
    graph = GRAPHS["path"]
    of = asked(graph, pair_factors=np.full((5, 5), 3.0), horizon=2)
    alike = designed(**of).certificate
    budget = designed(**of | {"pair_factors": None, "budget": 3 * of["budget"]}).certificate
    assert alike.objective == pytest.approx(budget.objective, rel=3e-5)


def parse(text: str = TEXT) -> SpaceProblem:
    problem = parse_problem(text, folder=".").problem
    assert isinstance(problem, SpaceProblem)
    return problem


@cache
def solved() -> Design:
    design = solve(parse()).design
    assert design is not None
    return design


def told(design: Design) -> np.ndarray:
    """Squared sensitivities by the account of the run, shape (observers, n)."""
    problem: Any = design.problem
    algorithm = threats.whisper(
        mixing=problem.mixing, covariance=design.covariance, horizon=problem.horizon
    )
    found = np.zeros((len(problem.observers), 5))
    for a, observer in enumerate(problem.observers):
        for one in account(
            algorithm, observer, participation=single(3), delta=None, responses="fixed"
        ):
            u = algorithm.nodes.index(one.node)
            found[a, u] = max(found[a, u], one.sensitivity_squared)
    return found


def test_a_run_keeps_the_budget_of_every_distance() -> None:
    hops = np.abs(np.subtract.outer(np.arange(5), np.arange(5)))
    budgets = np.select([hops <= 1, hops == 2], [9.0, 4.0], 1.0)
    np.testing.assert_array_equal(solved().problem.pair_factors, budgets)  # type: ignore[union-attr]
    ratios = told(solved()) / budgets
    assert ratios.max() == pytest.approx(1.0, abs=1e-6)
    assert ratios.max() <= 1 + 1e-9
    assert told(solved()).max() > 4
    # The least budget of a node is before who is farthest: two hops from the middle of the path.
    independent = np.array([1, 1, 1 / 4, 1, 1])
    assert solved().ldp_objective == pytest.approx(np.diagonal(solved().problem.gram) @ independent)


def test_a_target_is_kept_before_every_observer() -> None:
    target = PrivacyTarget(epsilon=1.0, delta=1e-6, adjacency="zero-out")
    problem = replace(parse(), privacy=target, participation=single(3))
    found = calibrate(problem)
    assert found.noise_stddev == pytest.approx(
        3 * calibrate(replace(problem, pair_factors=None)).noise_stddev
    )
    assert found.mu is not None
    mu = found.step_sensitivity * np.sqrt(told(solved()).max()) / found.noise_stddev
    assert mu <= found.mu * (1 + 1e-9)
    # Noise for the least of the budgets would not do.
    assert 3 * mu > 2 * found.mu
    assert "told most" in insider_note(solved())


def stored(folder: Path) -> Path:
    return save_design(solved(), folder / "d.npz", problem_text=TEXT)


def test_a_design_comes_back_and_is_proved(tmp_path: Path) -> None:
    loaded = load_design(stored(tmp_path))
    outcome = verify(loaded, rigorous=True)
    assert outcome.ok
    assert all(check.ok for check in outcome.checks)
    problem = loaded.design.problem
    np.testing.assert_array_equal(problem.pair_factors, parse().pair_factors)  # type: ignore[union-attr]
    assert "pair_factors" in loaded.manifest["budget"]
    proved = FAMILY.rigorous_bound(FAMILY.program(parse()), solved().proof)
    assert proved.lower == pytest.approx(solved().lower_bound, rel=1e-8)
    assert proved.upper <= solved().objective


@pytest.mark.parametrize("rigorous", [False, True])
def test_forged_factors_are_found(tmp_path: Path, rigorous: bool) -> None:
    def failing() -> set[str]:
        outcome = verify(load_design(tmp_path / "d.npz"), rigorous=rigorous)
        return {check.name for check in outcome.checks if check.ok is False}

    def looser(manifest: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        arrays["pair_factors"] = arrays["pair_factors"] * 1.01

    falsify(stored(tmp_path), looser)
    assert {"problem", "sensitivity"} <= failing()

    def tighter(manifest: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        arrays["pair_factors"] = np.maximum(arrays["pair_factors"] / 1.01, 1.0)

    falsify(stored(tmp_path), tighter)
    assert {"problem", "sensitivity", "feasible"} <= failing()

    def forgotten(manifest: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        del arrays["pair_factors"], manifest["arrays"]["pair_factors"]

    falsify(stored(tmp_path), forgotten)
    assert {"problem", "sensitivity", "feasible"} <= failing()

    def of_nobody(manifest: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        arrays["pair_factors"] = arrays["pair_factors"][:-1]

    falsify(stored(tmp_path), of_nobody)
    with pytest.raises(InputError, match="pair_factors"):
        load_design(tmp_path / "d.npz")


def test_the_simulator_agrees() -> None:
    assert simulate(solved(), runs=2000, seed=1).agrees
    weak = with_matrix(solved(), matrix=solved().covariance / 2)
    assert simulate(weak, runs=2000, seed=1).audit.exceeds


OBSERVERS = 'observers = { model = "pndp", responses = "fixed", horizon = 3 }\n'


@pytest.mark.parametrize(
    ("text", "field", "words"),
    [
        (TEXT.replace(OBSERVERS, ""), "budget.by_distance", "[observers]"),
        (TEXT.replace("[9, 4.0, 1.0]", "[]"), "budget.by_distance", "one factor or more"),
        (TEXT.replace("[9, 4.0, 1.0]", "[9, 0.5]"), "budget.by_distance", "0.5 at 2 hops"),
        (TEXT.replace("[9, 4.0, 1.0]", "[-1.0]"), "budget.by_distance", "values > 0"),
        (TEXT.replace("[9, 4.0, 1.0]", "[nan]"), "budget.by_distance", "finite"),
        (TEXT.replace("[9, 4.0, 1.0]", "4.0"), "budget.by_distance", "list"),
        (TEXT.replace("[9, 4.0, 1.0]", '["near"]'), "budget.by_distance.0", "number"),
        (TEXT.replace("by_distance", "by_distances"), "budget.by_distances", "by_distance?"),
        (
            TEXT.replace(OBSERVERS, "participation = { epochs = 1, separation = 3 }\n").replace(
                '"space"', '"space-time"'
            ),
            "budget.by_distance",
            "unknown key",
        ),
    ],
)
def test_errors_name_the_key(text: str, field: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(text)
    assert caught.value.field == field
    assert words in str(caught.value)
