"""Prices of budgets by differences of optima, and budgets that are tightened or split anew."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import networkx as nx
import numpy as np
import pytest
import scipy.linalg
import scipy.optimize

import noisedesign as nd
from noisedesign.base.checks import InputError
from noisedesign.families.family import family_of
from noisedesign.forms import DenseStrategy, Noise
from noisedesign.pages.content import Table, Text
from noisedesign.pages.privacy import prices_of
from noisedesign.problem.problem import Problem
from noisedesign.tasks.budgets import best_split, budget_rows, budgets_of, tightened
from noisedesign.tasks.report import design_record
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
    use = nd.participation.FixedEpoch(epochs=2, separation=2)
    return lambda budget: nd.SpaceTimeProblem(
        mixing=PATH, participation=use, joint=joint, budget=budget
    )


def seeds(kind: str, **of: Any) -> dict[str, Any]:
    return {"structure": nd.SpaceStructure(kind=kind, **of)}


THRICE = nd.participation.FixedEpoch(epochs=3, separation=3)


def of_patterns(**fields: Any) -> Callable[[Any], Problem]:
    return lambda budget: nd.TimeProblem.decentralized(
        mixing=PATH, participation=THRICE, budget=budget, **fields
    )


def banded(budget: Any) -> Problem:
    """C of two bands at the budgets, by C D of unit sensitivity with D^2 = 1 / tau."""
    free = nd.TimeProblem.decentralized(mixing=PATH, participation=THRICE)
    root = np.sqrt(np.tile(budget, 3))
    structure = nd.TimeStructure(kind="banded", bands=2)
    return nd.TimeProblem.from_gram(
        gram=free.gram / root / root[:, None], participation=THRICE, structure=structure
    )


PARTS = [nd.observers.pndp(nodes=[node]) for node in range(3)]
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
    "decor, capped": (of_florentine(max_variance=2.05, **seeds("decor")), N, 1e-9),
    "patterns": (of_patterns(), 3, 1e-9),
    "patterns, capped": (of_patterns(max_variance=18.0), 3, 1e-9),
    "bands": (banded, 3, 1e-9),
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
    use = nd.participation.FixedEpoch(epochs=2, separation=2)
    problem = nd.SpaceTimeProblem(mixing=ring, participation=use, joint=joint)
    prices = list(nd.solve(problem).design.prices.values())
    assert prices == pytest.approx([0.25] * 4, rel=1e-3)


def test_two_prefix_sums_by_hand() -> None:
    """H = [[2, 1], [1, 1]]: t^2 / (v_1 + v_2) = (2 v_1 + v_2 + 2 (v_1 v_2)^1/2) / (v_1 + v_2) has
    its maximum where v_1 = g v_2, g^1/2 the golden ratio."""
    design = nd.solve(
        nd.TimeProblem.prefix(participation=nd.participation.single(2)), gap=1e-10
    ).design
    golden = (1 + 5**0.5) / 2
    first = golden**2 / (1 + golden**2)
    assert design.prices == pytest.approx({"steps 0": first, "steps 1": 1 - first}, rel=1e-4)


def test_patterns_that_overlap_have_prices() -> None:
    use = nd.participation.MinSeparation(horizon=7, separation=3, max_participations=2)
    prices = nd.solve(nd.TimeProblem.prefix(participation=use)).design.prices
    assert sum(prices.values()) == pytest.approx(1.0)
    assert set(prices) <= {
        *(f"steps {first}" for first in range(7)),
        *(f"steps {first}, {after}" for first in range(7) for after in range(first + 3, 7)),
    }


def test_bands_under_patterns_that_overlap_have_prices() -> None:
    """One step or two of four, three apart: the pattern of both is that of steps 0 and 3. Of one
    band X is x_t = c_t^2, and H_tt / x_t is least where multipliers are H_tt / x_t^2."""
    use = nd.participation.MinSeparation(horizon=4, separation=3, max_participations=2)
    structure = nd.TimeStructure(kind="banded", bands=1)
    problem = nd.TimeProblem.prefix(participation=use, structure=structure)
    prices = nd.solve(problem, gap=1e-10).design.prices
    a, b = (4**0.5 + 1**0.5) ** 2, (3.0, 2.0)  # steps 0 and 3 share a budget, 1 and 2 have theirs
    expected = {"steps 0, 3": a, "steps 1": b[0], "steps 2": b[1]}
    total = sum(expected.values())
    assert prices == pytest.approx({k: v / total for k, v in expected.items()}, rel=1e-4)


def least_toeplitz(budget: np.ndarray) -> float:
    """The least error of six prefix sums by three coefficients; squared norms of columns 0 and 3, 1
    and 4, 2 and 5, which do not overlap, are at most the budgets."""

    def error(c: np.ndarray) -> float:
        strategy = scipy.linalg.toeplitz(np.append(c, np.zeros(3)), np.zeros(6))
        squares = np.square(strategy).sum(axis=0)
        worst = float(np.max((squares[:3] + squares[3:]) / budget))
        return float(np.square(np.tril(np.ones((6, 6))) @ np.linalg.inv(strategy)).sum() * worst)

    how = {"xatol": 1e-10, "fatol": 1e-13, "maxiter": 2000, "maxfev": 2000}
    start = np.array([1, 0.5, 0.35])
    return float(scipy.optimize.minimize(error, start, method="Nelder-Mead", options=how).fun)


def test_one_budget_is_used_up_by_the_pattern_that_starts_first() -> None:
    """Of coefficients the other patterns may have a smaller budget for nothing."""
    use = nd.participation.FixedEpoch(epochs=2, separation=3)
    problem = nd.TimeProblem.prefix(participation=use, structure=nd.TimeStructure(kind="toeplitz"))
    design = nd.solve(problem).design
    assert design.prices == {"steps 0, 3": 1.0}
    least = least_toeplitz(np.ones(3))
    assert design.objective == pytest.approx(least, rel=1e-5)
    assert least_toeplitz(np.array([1.01, 1.0, 1.0])) == pytest.approx(least / 1.01, rel=1e-6)
    assert least_toeplitz(np.array([1.0, 0.99, 0.99])) == pytest.approx(least, rel=1e-6)


def test_patterns_that_use_up_one_budget_together_have_one_price() -> None:
    structure = nd.TimeStructure(nonnegative=True)
    use = nd.participation.FixedEpoch(epochs=2, separation=4)
    problem = nd.TimeProblem.prefix(participation=use, structure=structure)
    prices = nd.solve(problem).design.prices
    assert prices == {"steps 0, 4 and ... 4 patterns ... and steps 3, 7": 1.0}


def test_of_random_participation_every_record_has_the_one_budget() -> None:
    target = nd.PrivacyTarget(epsilon=4.0, delta=1e-5)
    use = nd.participation.BallsInBins(epochs=1, separation=4)
    problem = nd.TimeProblem.prefix(participation=use, privacy=target)
    noise = Noise.of_strategy(DenseStrategy(strategy=np.eye(4)))
    assert family_of(problem).prices(problem, noise, {}) == {"every record": 1.0}


def test_what_has_no_prices_says_why() -> None:
    ring = nd.SpaceProblem.from_graph(nd.build_graph("ring", nodes=4))
    server, alone = nd.baseline(ring, "cdp"), nd.baseline(ring, "ldp")
    for design, words in ((server, "released average alone"), (alone, "multipliers")):
        assert design.prices == {}
        assert words in design.unpriced
        assert words in design_record(design)["unpriced"]
        assert design_record(design)["prices"] is None
        (text,) = prices_of(design)
        assert isinstance(text, Text)
        assert words in text.text
    priced = nd.solve(ring).design
    assert priced.unpriced == ""
    assert "unpriced" not in design_record(priced)


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
    mu = [nd.privacy.mu_of(epsilon=epsilon, delta=1e-6) for epsilon in (0.5, 1.0)]
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


OVER_TIME: dict[str, Callable[[Any], Problem]] = {
    "single steps": lambda budget: nd.TimeProblem.prefix(
        participation=nd.participation.single(6), budget=budget
    ),
    "patterns": of_patterns(),
    "full": of_path("full"),
    "kronecker": of_path("kronecker"),
    "modal": of_path("modal"),
}


@pytest.mark.parametrize("name", OVER_TIME)
def test_half_of_mu_over_time_costs_what_is_told(name: str) -> None:
    """The error of noise that is scaled at one budget alone, and the bound at that budget."""
    make = OVER_TIME[name]
    count = 6 if name == "single steps" else 3
    budget = np.array([1.0, 0.5, 2.0, 1.5, 0.7, 1.0][:count])
    gap = 1e-9 if name in ("single steps", "patterns", "full") else 1e-3
    design = nd.solve(make(budget), gap=gap).design
    for place, row in enumerate(budget_rows(design)):
        assert row.budget == budget[place]
        stricter = make(budget * np.where(np.arange(count) == place, 0.25, 1.0))
        after = nd.solve(stricter, gap=gap).design
        assert row.at_least * design.lower_bound <= after.objective * (1 + 1e-9)
        assert after.lower_bound <= row.at_most * design.objective * (1 + 1e-9)
        assert row.at_least * 0.999 <= row.at_most
    scaled = scaled_at(design, 1, 2.0)
    told = budget_rows(design)[1].at_most
    assert scaled.objective == pytest.approx(told * design.objective, rel=1e-9)
    assert scaled.sensitivity_squared <= 1 + 1e-9


def scaled_at(design: Any, place: int, factor: float) -> Any:
    """The certificate of noise that is larger by a factor at one node or pattern, written out, at
    the budget that is as much stricter."""
    problem, noise = design.problem, design.noise
    n = 1 if problem.axes == "time" else 3
    steps = problem.participation.horizon
    if noise.full:
        covariance = design.noising_matrix @ design.noising_matrix.T
    else:
        in_time = design.noising_matrix @ design.noising_matrix.T
        covariance = np.kron(in_time, np.eye(1) if n == 1 else design.covariance)
    whole = np.arange(steps * n)
    group = whole % n == place if n > 1 else np.isin(whole, problem.participation.patterns[place])
    larger = np.where(group, factor, 1.0)
    covariance = covariance * larger * larger[:, None]
    budget = design.problem.budget * np.where(
        np.arange(len(design.problem.budget)) == place, 0.25, 1
    )
    asked = replace(problem, budget=budget)
    if n > 1:
        asked = replace(asked, joint="full")
    strategy = np.linalg.cholesky(np.linalg.inv(covariance)[::-1, ::-1]).T[::-1, ::-1]
    form = DenseStrategy(strategy=np.ascontiguousarray(strategy))
    made = Noise(steps=len(whole), strategy=form, full=n > 1)
    family = family_of(asked)
    return family.judge(family.program(asked), made, {}, bound=0.0)


@pytest.mark.parametrize("name", ["single steps", "patterns", "full"])
def test_the_best_split_over_time_meets_the_bound_of_all(name: str) -> None:
    make = OVER_TIME[name]
    count = 6 if name == "single steps" else 3
    even = make(np.ones(count))
    design, bound = best_split(even, gap=1e-8)
    assert sum(budgets_of(design)) == pytest.approx(count)
    assert bound <= design.objective <= bound * (1 + 2e-7)
    assert design.objective < nd.solve(even).design.objective
    if name == "single steps":
        closed = np.linalg.svd(np.tril(np.ones((6, 6))), compute_uv=False).sum() ** 2 / 6
        assert bound == pytest.approx(closed, rel=1e-6)
    rng = np.random.default_rng(2)
    for _ in range(5):
        other = make(rng.dirichlet(np.ones(count)) * count)
        assert nd.solve(other).design.objective >= bound


def test_a_split_of_noise_of_modes_is_better_and_its_bound_holds_for_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("noisedesign.tasks.budgets.MOST_SPLITS", 4)
    even = OVER_TIME["modal"](1.0)
    design, bound = best_split(even, gap=1e-3)
    assert bound <= design.objective < nd.solve(even).design.objective
    full, _ = best_split(OVER_TIME["full"](1.0))
    assert bound <= full.objective <= design.objective * (1 + 1e-6)


def test_patterns_of_the_last_step_alone_may_be_stricter_for_nothing() -> None:
    """Of the loss after the last step, what enters first is nearly forgotten."""
    error = nd.ErrorMeasure(horizon=9, of="loss", curvature=0.9, learning_rate=1.0)
    design = nd.solve(of_patterns(error=error)(1.0)).design
    tight = tightened(design)
    assert budgets_of(tight) == [0.25, 0.25, 1.0]
    assert tight.certificate.feasible
    assert tight.objective <= 1.01 * design.lower_bound


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
    assert nd.verify(nd.load(path)).ok
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


def test_wrong_problems_are_refused() -> None:
    toeplitz = nd.TimeStructure(kind="toeplitz")
    over_time = nd.TimeProblem.prefix(participation=nd.participation.single(2), structure=toeplitz)
    with pytest.raises(InputError, match="design: .*one budget"):
        budget_rows(nd.solve(over_time))
    with pytest.raises(InputError, match="design: .*multipliers"):
        budget_rows(nd.baseline(nd.SpaceProblem(mixing=W), "ldp"))
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


@pytest.mark.parametrize("of", ["worst", "worst-node", "worst-iterate"])
def test_largest_errors_have_prices_and_no_splits(of: str) -> None:
    error = nd.ErrorMeasure(horizon=1, of=of)
    problem = nd.SpaceProblem.from_graph(nd.build_graph("path", nodes=4), error=error)
    rows = budget_rows(nd.solve(problem))
    np.testing.assert_allclose(sum(row.price for row in rows), 1.0, rtol=1e-6)
    assert all(row.at_most is None for row in rows)
    for asked in (lambda: best_split(problem), lambda: tightened(nd.solve(problem))):
        with pytest.raises(InputError, match=r"error\.of: expected an error that is a sum"):
            asked()
