"""Prices of budgets by differences of optima, and budgets that are tightened or split anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import networkx as nx
import numpy as np
import pytest

import noisedesign as nd
from noisedesign.base.checks import InputError
from noisedesign.pages.content import Table
from noisedesign.pages.privacy import prices_of
from noisedesign.problem.problem import Problem
from noisedesign.tasks.budgets import best_split, budget_rows, tightened
from tests.support import oracles
from tests.support.command_line import RING, call, write

GRAPH = nx.florentine_families_graph()
W = nd.mixing_matrix(GRAPH)
N = len(W)
BUDGET = np.random.default_rng(0).uniform(0.5, 2.0, N)
PATH = nd.mixing_matrix(nx.path_graph(3), weights="metropolis-hastings")


def of_florentine(**fields: Any) -> Callable[[Any], Problem]:
    return lambda budget: nd.SpaceProblem(mixing=W, budget=budget, **fields)


def of_path(joint: str) -> Callable[[Any], Problem]:
    use = nd.FixedEpoch(epochs=2, separation=2)
    return lambda budget: nd.SpaceTimeProblem(
        mixing=PATH, participation=use, joint=joint, budget=budget
    )


def seeds(kind: str, **of: Any) -> dict[str, Any]:
    return {"structure": nd.SpaceStructure(kind=kind, **of)}


PARTS = [nd.pndp(nodes=[node]) for node in range(3)]
BEFORE = {"mixing": PATH, "observers": PARTS, "max_variance": 10.0}
CASES: dict[str, tuple[Callable[[Any], Problem], int, float]] = {
    "no structure": (of_florentine(), N, 1e-10),
    "caps that hold": (of_florentine(max_variance=2.1), N, 1e-9),
    "edge-local": (of_florentine(**seeds("edge-local")), N, 1e-9),
    "one known seed": (
        lambda budget: nd.SpaceProblem(
            mixing=PATH, budget=budget, **seeds("edge-local", known_seeds=1)
        ),
        3,
        1e-9,
    ),
    "decor": (of_florentine(**seeds("decor")), N, 1e-9),
    "observers": (lambda budget: nd.SpaceProblem(budget=budget, **BEFORE), 3, 1e-9),
    "full": (of_path("full"), 3, 1e-9),
}


@pytest.mark.parametrize("case", CASES)
def test_prices_are_the_slopes_of_the_optimum(case: str) -> None:
    make, nodes, gap = CASES[case]
    budget = BUDGET[:nodes]
    prices = nd.solve(make(budget), gap=gap).design.prices
    dearest = int(np.argmax(list(prices.values())))
    step = 0.01
    errors = [
        nd.solve(make(budget * np.exp(sign * step * (np.arange(nodes) == dearest))), gap=gap)
        for sign in (1, -1)
    ]
    above, below = (np.log(found.design.objective) for found in errors)
    assert list(prices.values())[dearest] == pytest.approx((below - above) / (2 * step), rel=2e-3)
    assert min(prices.values()) >= 0


@pytest.mark.parametrize("joint", ["full", "kronecker", "modal"])
def test_alike_nodes_have_one_price_and_all_add_up_to_one(joint: str) -> None:
    ring = nd.mixing_matrix(nx.cycle_graph(4))
    use = nd.FixedEpoch(epochs=2, separation=2)
    problem = nd.SpaceTimeProblem(mixing=ring, participation=use, joint=joint)
    prices = list(nd.solve(problem).design.prices.values())
    assert prices == pytest.approx([0.25] * 4, rel=1e-3)


def test_two_prefix_sums_by_hand() -> None:
    """H = [[2, 1], [1, 1]]: t^2 / (v_1 + v_2) = (2 v_1 + v_2 + 2 (v_1 v_2)^1/2) / (v_1 + v_2) has
    its maximum where v_1 = g v_2, g^1/2 the golden ratio."""
    design = nd.solve(nd.TimeProblem.prefix(participation=nd.single(2)), gap=1e-10).design
    golden = (1 + 5**0.5) / 2
    first = golden**2 / (1 + golden**2)
    assert design.prices == pytest.approx({"steps 0": first, "steps 1": 1 - first}, rel=1e-4)


def test_patterns_that_overlap_have_prices() -> None:
    use = nd.MinSeparation(horizon=7, separation=3, max_participations=2)
    prices = nd.solve(nd.TimeProblem.prefix(participation=use)).design.prices
    assert sum(prices.values()) == pytest.approx(1.0)
    assert set(prices) <= {
        *(f"steps {first}" for first in range(7)),
        *(f"steps {first}, {after}" for first in range(7) for after in range(first + 3, 7)),
    }


def test_families_without_multipliers_of_budgets_have_no_prices() -> None:
    structure = nd.TimeStructure(kind="toeplitz")
    problem = nd.TimeProblem.prefix(participation=nd.single(4), structure=structure)
    assert nd.solve(problem).design.prices == {}


@pytest.mark.parametrize("limits", [{}, {"max_variance": 3.0}])
def test_half_of_mu_costs_what_is_told(limits: dict[str, float]) -> None:
    design = nd.solve(nd.SpaceProblem(mixing=W, **limits), gap=1e-9).design
    row = budget_rows(design)[3]
    budget = np.where(np.arange(N) == 3, 0.25, 1.0)
    if limits:
        assert row.at_most is None
        stricter = nd.SpaceProblem(mixing=W, budget=budget, max_variance=9.0)
        after = nd.solve(stricter, gap=1e-9).design.objective
        limited = nd.solve(nd.SpaceProblem(mixing=W, max_variance=9.0), gap=1e-9).design
        assert budget_rows(limited)[3].at_least * limited.lower_bound <= after
    else:
        exact = oracles.diagonal_interval(W.T @ W, budget=budget, width=1e-9)
        assert row.stricter == 0.25
        assert row.at_least * design.lower_bound <= exact.upper
        assert exact.lower <= row.at_most * design.objective


def test_half_of_epsilon_is_that_of_the_target() -> None:
    target = nd.PrivacyTarget(epsilon=1.0, delta=1e-6, steps=10)
    rows = budget_rows(nd.solve(nd.SpaceProblem(mixing=W, privacy=target)))
    mu = [nd.mu_of(epsilon=epsilon, delta=1e-6) for epsilon in (0.5, 1.0)]
    assert rows[0].stricter == pytest.approx((mu[0] / mu[1]) ** 2)


def test_hubs_are_tightened_for_next_to_nothing() -> None:
    graph = nx.Graph(nx.karate_club_graph().edges)
    design = nd.solve(nd.SpaceProblem.from_graph(graph)).design
    tight = tightened(design)
    free = np.flatnonzero(tight.problem.budget == 0.25)
    assert {0, 1} <= set(free.tolist())
    assert tight.certificate.feasible
    exact = oracles.diagonal_interval(design.problem.gram, budget=tight.problem.budget, width=1e-6)
    assert exact.lower <= tight.objective <= 1.01 * design.lower_bound


def test_the_best_split_is_a_closed_form() -> None:
    """Twice the budgets halve the error; of an even sum it is (sum of singular values)^2 / S."""
    problem = nd.SpaceProblem(mixing=W, budget=BUDGET)
    design, bound = best_split(problem)
    closed = np.linalg.svd(W, compute_uv=False).sum() ** 2 / BUDGET.sum()
    assert bound == pytest.approx(closed, rel=1e-9)
    assert design.objective == pytest.approx(closed, rel=1e-5)
    assert design.problem.budget.sum() == pytest.approx(BUDGET.sum())
    rng = np.random.default_rng(1)
    for _ in range(5):
        other = rng.dirichlet(np.ones(N)) * BUDGET.sum()
        assert oracles.diagonal_interval(W.T @ W, budget=other, width=1e-6).upper >= bound


def test_the_best_split_of_a_singular_mixing_is_refused() -> None:
    star = nd.SpaceProblem.from_graph(nx.star_graph(4))
    assert nd.solve(star).design.prices["0"] == pytest.approx(0.0, abs=1e-6)
    with pytest.raises(InputError, match="singular"):
        best_split(star)


def test_the_command_prints_and_writes(tmp_path: Any) -> None:
    asked = write(tmp_path, RING)
    table = call("budgets", asked)
    assert table.code == 0
    assert "at least" in table.out
    path = tmp_path / "split.npz"
    told = call("budgets", asked, "--split", "-o", path, "--json").json()
    assert told["ratio"] == pytest.approx(1.0, abs=1e-5)
    assert nd.verify(nd.load_design(path)).ok
    assert call("budgets", asked, "--tighten", "--split").code == 2
    assert call("budgets", asked, "--cost", "0.1").code == 2


def test_a_page_shows_the_dearest_first() -> None:
    design = nd.solve(nd.SpaceProblem.from_graph(GRAPH)).design
    assert design is not None
    _, table = prices_of(design)
    assert isinstance(table, Table)
    names, prices = zip(*table.rows, strict=True)
    assert names[0] == "Acciaiuoli"
    assert names[-1] == "Medici"
    assert list(prices) == sorted(prices, reverse=True)
    assert prices_of(nd.baseline(design.problem, "cdp")) == []


def test_wrong_problems_are_refused() -> None:
    over_time = nd.solve(nd.TimeProblem.prefix(participation=nd.single(2)))
    with pytest.raises(InputError, match="design"):
        budget_rows(over_time)
    with pytest.raises(InputError, match="problem"):
        best_split(nd.SpaceProblem(mixing=W, max_variance=3.0))
    with pytest.raises(InputError, match="cost"):
        tightened(nd.solve(nd.SpaceProblem(mixing=W)), cost=0.0)


def test_half_the_epsilon_is_by_the_conversion_of_the_target() -> None:
    """The rule of Renyi accounts is another one, so that half its epsilon is another budget."""
    ring = nd.build_graph("ring", nodes=4)
    for conversion in ("gdp", "rdp"):
        target = nd.PrivacyTarget(epsilon=4.0, delta=1e-6, steps=1, conversion=conversion)
        design = nd.solve(nd.SpaceProblem.from_graph(ring, privacy=target)).design
        half, whole = (
            nd.privacy.accounting.mu_of(epsilon=eps, delta=1e-6, conversion=conversion)
            for eps in (2.0, 4.0)
        )
        (row, *_) = budget_rows(design)
        assert row.stricter == pytest.approx((half / whole) ** 2, rel=1e-12)
