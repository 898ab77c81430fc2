"""Rings and complete graphs, whose W is singular: the cap that nobody states, and what it costs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

import noisedesign as nd
from noisedesign.base.checks import InputError
from noisedesign.design import solve as solving
from noisedesign.forms.structure import SpaceStructure
from noisedesign.problem.default_cap import TIMES, WORTH, larger, uncapped
from noisedesign.problem.problem import SpaceProblem, SpaceTimeProblem
from noisedesign.system.workloads import ErrorMeasure
from tests.support import oracles
from tests.support.command_line import call

GRAPHS: dict[str, nx.Graph] = {
    **{f"ring of {n}": nx.cycle_graph(n) for n in (3, 6, 9, 12)},
    **{f"K_{n}": nx.complete_graph(n) for n in (4, 5, 12)},
    "torus": nx.grid_2d_graph(5, 5, periodic=True),
}
RING_6, FIVE = GRAPHS["ring of 6"], GRAPHS["K_5"]
STEPS = nd.participation.FixedEpoch(epochs=2, separation=4)

TEXT = 'name = "ring"\ndesign = "space"\n[graph]\nkind = "ring"\nnodes = 6\n'
REFUSES = TEXT + '[limits]\nmax_variance = "none"\n'


@pytest.mark.parametrize("name", GRAPHS)
def test_graphs_of_a_singular_matrix_solve_and_what_that_costs_is_true(name: str) -> None:
    """All nodes look alike: the infimum is (nuclear norm of W)^2 / n, by an eigensolver alone."""
    graph = GRAPHS[name]
    found = nd.solve(SpaceProblem.from_graph(graph))
    assert found.status == "optimal"
    assert found.design is not None
    assert found.default_cap is not None
    cost, times = found.default_cap.cost, found.default_cap.times
    infimum = oracles.vertex_transitive_optimum(oracles.metropolis(graph))
    excess = found.design.objective / infimum - 1
    assert excess * (1 - 1e-6) <= cost <= 1.01 * excess + 2e-6
    assert cost <= 0.013
    assert np.diagonal(found.design.covariance).max() <= times
    np.testing.assert_allclose(found.problem.max_variance, times)  # as if it had been written
    # The least of the caps that cost so little: the one before costs more.
    if times > TIMES[0]:
        tighter = TIMES[TIMES.index(times) - 1]
        before = nd.solve(SpaceProblem.from_graph(graph, max_variance=tighter)).design
        assert before is not None
        assert before.objective / infimum - 1 > 0.013
    assert f"<= {times:g} times independent, by default: costs at most" in str(found)


@pytest.mark.parametrize("nodes", [6, 12])
@pytest.mark.parametrize("kind", ["last-iterate", "all-iterates", "worst-node"])
@pytest.mark.parametrize("horizon", [1, 4])
def test_an_error_whose_factor_floats_find_is_singular_all_the_same(
    nodes: int, kind: str, horizon: int
) -> None:
    """A Cholesky factor of H passes on pivots that are rounding; noise of 3e7 came of it."""
    ring = oracles.metropolis(nx.cycle_graph(nodes))
    error = ErrorMeasure(of=kind, horizon=horizon)
    found = nd.solve(SpaceProblem(mixing=ring, error=error))
    assert found.design is not None
    assert found.default_cap is not None
    assert np.diagonal(found.design.covariance).max() <= found.default_cap.times
    with pytest.raises(InputError, match="max_variance"):
        nd.solve(SpaceProblem(mixing=ring, error=error, max_variance="none"))


def test_a_second_attempt_that_is_stopped_does_not_replace_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inner, seen = solving._solve, []

    def stopped(problem: Any, **how: Any) -> Any:
        found = inner(problem, **how)
        seen.append(found.design.objective)
        if len(seen) == 1:
            return found
        poor = nd.baseline(problem, "ldp")
        return replace(found, design=poor, status="time-limit")

    monkeypatch.setattr(solving, "_solve", stopped)
    found = nd.solve(SpaceProblem.from_graph(nx.complete_graph(4)))
    assert len(seen) == 2  # ten times independent noise costs more than 1.3 %
    assert found.design is not None
    assert found.design.objective == seen[0]
    assert found.default_cap is not None
    assert found.default_cap.times == TIMES[0]


def test_complete_graphs_by_hand() -> None:
    """R = a J / n + b (I - J / n) on K_n: a = 1 / (n - (n - 1) / b), b = (c n - a) / (n - 1), and
    the objective is a, over an infimum of 1 / n."""
    n, a = 5, 0.2
    times = 50.0
    for _ in range(50):
        a = 1 / (n - (n - 1) / ((times * n - a) / (n - 1)))
    found = nd.solve(SpaceProblem.from_graph(FIVE))
    assert found.default_cap is not None
    assert found.default_cap.times == times
    assert found.default_cap.cost == pytest.approx(n * a - 1, rel=1e-3)


@pytest.mark.parametrize("tau", [0.01, 7.0])
def test_uneven_budgets_are_capped_node_by_node(tau: float) -> None:
    budget = tau * np.array([1.0, 1, 1, 4, 4])
    found = nd.solve(SpaceProblem.from_graph(FIVE, budget=budget))
    assert found.design is not None
    assert found.default_cap is not None
    variances = np.diagonal(found.design.covariance)
    assert (variances * budget <= found.default_cap.times).all()
    np.testing.assert_allclose(found.problem.max_variance * budget, found.default_cap.times)
    # Under budgets of which some are larger the infimum is that of the least: 1 / (n tau).
    assert found.design.objective * 5 * tau - 1 <= found.default_cap.cost + 1e-9


@pytest.mark.parametrize("error", [ErrorMeasure(horizon=8), ErrorMeasure(horizon=1, of="worst")])
def test_other_errors_are_capped_too(error: ErrorMeasure) -> None:
    found = nd.solve(SpaceProblem.from_graph(FIVE, error=error))
    if found.default_cap is None:  # rounding decides whether noise is refused or told
        assert "max_variance" in found.remedy
        return
    assert found.design is not None
    assert found.default_cap.cost <= 0.013
    values, k = np.linalg.eigvalsh(oracles.metropolis(FIVE)), np.arange(1, error.horizon + 1)
    roots = np.sqrt((values[:, None] ** (2 * k)) @ (error.horizon + 1.0 - k))
    infimum = roots.sum() ** 2 / 5  # the error of the worst node after one step is that of all
    assert found.design.objective / infimum - 1 <= found.default_cap.cost + 1e-6


@pytest.mark.parametrize(("graph", "space"), [(RING_6, "dense"), (FIVE, "edge-local")])
def test_products_of_time_and_space_are_capped_in_space(graph: nx.Graph, space: str) -> None:
    """What a cap costs is that of R beside this C, which no R goes below: tr (H^1/2)^2 / n."""
    structure = SpaceStructure(kind=space)
    asked = SpaceTimeProblem.from_graph(graph, participation=STEPS, space=structure)
    found = nd.solve(asked)
    assert found.default_cap is not None
    assert found.design is not None
    design, w, n = found.design, oracles.metropolis(graph), len(graph)
    assert np.diagonal(design.covariance).max() <= found.default_cap.times
    s = np.linalg.inv(design.strategy)
    s = s @ s.T
    h, powers = np.zeros((n, n)), [np.linalg.matrix_power(w, k) for k in range(STEPS.horizon + 1)]
    for t in range(STEPS.horizon):
        for one in range(t + 1):
            for other in range(t + 1):
                h += s[one, other] * powers[t - one + 1].T @ powers[t - other + 1]
    infimum = np.sqrt(np.maximum(np.linalg.eigvalsh(h), 0)).sum() ** 2 / n
    excess = design.objective / infimum - 1
    # Of cliques the bound is that of variances up to 1,000, which costs .1 % itself.
    assert excess - (2e-3 if structure.restricts else 1e-6) <= found.default_cap.cost <= 0.013
    with pytest.raises(InputError, match="null direction|cancelled by mixing"):
        nd.solve(replace(asked, max_variance="none"))


def test_cliques_that_share_seeds_are_capped() -> None:
    """One clique of all six nodes is noise without a structure: the infimum is 1 / 6."""
    structure = SpaceStructure(kind="neighbourhood")
    found = nd.solve(SpaceProblem.from_graph(nx.complete_graph(6), structure=structure))
    assert found.default_cap is not None
    assert found.design is not None
    assert found.design.objective * 6 - 1 <= found.default_cap.cost + 1.1e-3
    assert found.default_cap.cost <= 0.013
    assert "1,000 times" in found.default_cap.beside


@pytest.mark.parametrize("graph", [nx.cycle_graph(5), nx.star_graph(5), nx.path_graph(4)])
def test_nothing_changes_where_noise_is_bounded(graph: nx.Graph) -> None:
    """A star's W is singular, and its budgets bound the noise all the same."""
    problem = SpaceProblem.from_graph(graph)
    found, refusing = nd.solve(problem), nd.solve(replace(problem, max_variance="none"))
    assert found.default_cap is None
    assert found.problem.max_variance is None
    assert found.design is not None
    assert refusing.design is not None
    np.testing.assert_array_equal(found.design.covariance, refusing.design.covariance)


def test_a_stated_cap_is_no_default() -> None:
    found = nd.solve(SpaceProblem.from_graph(RING_6, max_variance=4.0))
    assert found.default_cap is None
    assert found.design is not None
    assert np.diagonal(found.design.covariance).max() <= 4


@pytest.mark.parametrize("make", [SpaceProblem, SpaceTimeProblem])
def test_none_refuses_and_nothing_else_is_a_word_for_it(make: Any) -> None:
    more = {"participation": STEPS} if make is SpaceTimeProblem else {}
    problem = make.from_graph(RING_6, max_variance="none", **more)
    assert (problem.max_variance, problem.default_cap) == (None, False)
    with pytest.raises(InputError, match="max_variance"):
        nd.solve(problem)
    with pytest.raises(InputError, match=r"limits\.max_variance: expected one of none"):
        make.from_graph(RING_6, max_variance="never", **more)
    with pytest.raises(InputError, match="default_cap"):
        make.from_graph(RING_6, default_cap=0, **more)
    assert nd.solve(replace(problem, max_variance=10.0)).default_cap is None


def test_caps_rise_by_what_they_cost() -> None:
    assert larger(10.0, WORTH) is None
    assert larger(10.0, 0.02) == 20.0
    # A blend of 1 / c independent noise costs 1 / (c - 1): from 10 to 1.3 % takes 78.
    assert larger(10.0, 1 / 9) == 100.0
    assert larger(10.0, np.inf) == 100.0
    assert larger(100.0, 1.0) is None


def test_a_time_limit_is_that_of_all_attempts() -> None:
    found = nd.solve(SpaceProblem.from_graph(FIVE), time_limit=60.0)
    assert found.status == "optimal"
    assert found.default_cap is not None
    assert found.default_cap.cost <= 0.013


def test_files_say_so_and_designs_keep_the_cap(tmp_path: Path) -> None:
    problem, design = tmp_path / "ring.toml", tmp_path / "ring.npz"
    problem.write_text(TEXT)
    outcome = call("solve", str(problem), "-o", str(design))
    assert outcome.code == 0
    words = " ".join(outcome.out.split())
    assert "largest variance <= 10 times independent, by default: costs at most 1.2 %" in words
    assert 'max_variance = "none" refuses' in words
    np.testing.assert_allclose(nd.load(design).design.problem.max_variance, 10.0)
    # The text states no cap: it is the one by default of this very problem, and of no other.
    for more in ([], ["--problem", str(problem)]):
        assert call("verify", str(design), *more).code == 0
    refusing = tmp_path / "refusing.toml"
    refusing.write_text(REFUSES)
    assert call("verify", str(design), "--problem", str(refusing)).code == 1
    outcome = call("solve", str(refusing))
    assert outcome.code == 2
    assert "null direction" in outcome.err


def test_only_these_caps_of_singular_problems_are_by_default(tmp_path: Path) -> None:
    design = tmp_path / "d.npz"
    for graph, cap, same in (
        (RING_6, 10.0, True),
        (RING_6, 100.0, True),
        (RING_6, 11.0, False),
        (nx.cycle_graph(5), 10.0, False),  # its W is regular
    ):
        asked = SpaceProblem.from_graph(graph)
        nd.save(nd.solve(replace(asked, max_variance=cap)).design, design)
        assert nd.verify(nd.load(design), problem=asked).ok is same
        assert not nd.verify(nd.load(design), problem=uncapped(asked)).ok


def test_json_has_the_numbers(tmp_path: Path) -> None:
    problem = tmp_path / "ring.toml"
    problem.write_text(TEXT)
    told = call("solve", str(problem), "--json").json()["default_cap"]
    assert told["times_independent"] == 10
    infimum = oracles.vertex_transitive_optimum(oracles.metropolis(RING_6))
    # From eigenvalues 1, 2/3, 2/3, 0, 0, 1/3: (8/3)^2 / 6, and a cap's cost by the conic solver.
    assert infimum == pytest.approx((1 + 2 / 3 + 2 / 3 + 1 / 3) ** 2 / 6)
    conic = nd.solve(
        SpaceProblem.from_graph(RING_6, max_variance=10.0), backend="clarabel", gap=1e-8
    )
    assert conic.design is not None
    assert told["cost"] == pytest.approx(conic.design.objective / infimum - 1, rel=1e-3)


def test_tables_of_many_problems_say_so() -> None:
    row = nd.compare([SpaceProblem.from_graph(RING_6)], backends=["native"]).rows[0]
    assert row["solved"]
    assert "<= 10 times independent, by default" in row["reason"]


def test_baselines_stand_beside_a_capped_optimum(tmp_path: Path) -> None:
    """The optimal R of baselines in space and time takes the cap, too, unless it is refused."""
    asked = SpaceTimeProblem.from_graph(RING_6, participation=nd.participation.single(2))
    for name in ("whisper", "whisper-one-step"):
        design = nd.baseline(asked, name)
        assert design.certificate.feasible
        refused = ""
        try:  # rounding decides whether such noise is refused
            nd.baseline(replace(asked, max_variance="none"), name)
        except InputError as error:
            refused = error.remedy
        if refused:
            assert "max_variance" in refused
            assert np.diagonal(design.covariance).max() <= 10
    path = tmp_path / "ring.toml"
    use = "[participation]\nepochs = 1\nseparation = 2\n"
    for text in (TEXT, TEXT.replace('"space"', '"space-time"') + use):
        path.write_text(text)
        outcome = call("baselines", path)
        assert outcome.code == 0
        assert "the optimum is capped at 10 times" in outcome.err
        assert "optimal" in outcome.out
