"""Budgets of patterns in time: what is designed for them, judged, stored and refused."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

import noisedesign as nd
from noisedesign.base.checks import InputError
from noisedesign.design.design import Design
from noisedesign.files.problem_file import parse_problem
from noisedesign.forms import DenseStrategy, Noise
from tests.support import oracles

W = oracles.metropolis(nx.path_graph(4))
TAU = np.array([1.0, 0.25, 2.0])
USE = nd.participation.FixedEpoch(epochs=3, separation=3)
TARGET = nd.PrivacyTarget(epsilon=2.0, delta=1e-6, clip=0.5)
TEXT = """
name = "uneven"
design = "time"
[graph]
kind = "path"
nodes = 4
weights = "metropolis-hastings"
[workload]
kind = "decentralized"
[participation]
epochs = 3
separation = 3
[budget]
tau = [1.0, 0.25, 2.0]
"""


def problem(budget: Any = TAU, use: Any = USE, **fields: Any) -> nd.TimeProblem:
    return nd.TimeProblem.decentralized(mixing=W, participation=use, budget=budget, **fields)


@cache
def solved() -> Design:
    found = nd.solve(problem(privacy=TARGET), gap=1e-9).design
    assert found is not None
    return found


def of_patterns(strategy: np.ndarray) -> np.ndarray:
    """Squared sensitivity of three steps of a record, the worst gradients by their signs."""
    gram = strategy.T @ strategy
    return np.array([oracles.best_signs(gram[j::3, j::3]) for j in range(3)])


def test_every_step_has_a_budget_of_its_own_under_single_participation() -> None:
    budget = np.array([1.0, 0.3, 2.0, 0.7, 1.5])
    asked = nd.TimeProblem.prefix(participation=nd.participation.single(5), budget=budget)
    found = nd.solve(asked, gap=1e-9).design
    exact = oracles.diagonal_interval(asked.gram, budget=budget, width=1e-8)
    assert found.objective == pytest.approx(exact.upper, rel=2e-8)
    assert found.lower_bound <= exact.upper
    np.testing.assert_array_less(np.square(found.strategy).sum(axis=0), budget)


@pytest.mark.parametrize("backend", ["native", "clarabel"])
def test_patterns_of_several_steps_have_theirs(backend: str) -> None:
    """C D with D^2 = 1 / tau is of unit sensitivity, for D^-1 H D^-1."""
    root = np.sqrt(np.tile(TAU, 3))
    exact = oracles.fixed_epoch_interval(problem().gram / root / root[:, None], 3, 3, width=1e-7)
    found = nd.solve(problem(), backend=backend, gap=1e-6).design
    assert exact.lower <= found.objective <= exact.upper * (1 + 2e-6)
    assert found.lower_bound <= exact.upper
    used = of_patterns(found.strategy)
    assert (used <= TAU).all()
    assert used.max() / TAU[used.argmax()] >= 1 - 1e-6


def test_the_largest_budget_keeps_the_target_and_the_others_are_below() -> None:
    found = solved()
    mu = nd.privacy.mu_of(epsilon=2.0, delta=1e-6)
    scale = nd.calibrate(found).noise_stddev
    assert scale == pytest.approx(2 * 0.5 * np.sqrt(2) / mu)
    strategy = found.strategy / scale
    assert of_patterns(strategy).max() * 1.0**2 == pytest.approx(mu**2, rel=1e-8)  # a step moves 1
    assert nd.privacy.privacy_after(found, steps=9).claim.mu == pytest.approx(mu)
    assert nd.privacy.privacy_after(found, steps=2).claim.mu < mu
    simulated = nd.simulate(found, runs=500, seed=0)
    assert simulated.variance.agrees
    assert simulated.audit.agrees


def test_a_trainer_that_multiplies_by_the_sensitivity_is_given_the_rest(tmp_path: Path) -> None:
    (path, *_) = nd.export(solved(), to="mfdl", path=tmp_path)
    told = json.loads(path.with_suffix(".json").read_text())
    product = told["noise_multiplier"] * told["trainer_sensitivity"]
    assert product == pytest.approx(nd.calibrate(solved()).noise_multiplier, rel=1e-6)


def test_baselines_keep_the_budgets() -> None:
    asked = problem()
    for name in nd.baseline_names(asked):
        found = nd.baseline(asked, name)
        assert nd.verify(found, rigorous=True).ok
        if name != "cdp":
            assert (of_patterns(found.strategy) <= TAU * (1 + 1e-12)).all()
    ldp = nd.baseline(asked, "ldp")
    assert ldp.objective == pytest.approx(
        float(np.sum(np.diagonal(asked.gram) * 3 / np.tile(TAU, 3)))
    )


def test_a_cap_is_above_independent_noise_at_every_budget() -> None:
    capped = problem(max_variance=3 / np.tile(TAU, 3) * 1.5)
    found = nd.solve(capped, gap=1e-8).design
    assert found.objective >= solved().lower_bound
    assert (np.square(found.noising_matrix).sum(axis=1) <= capped.max_variance).all()
    with pytest.raises(InputError, match=r"limits\.max_variance: .*more than 12"):
        problem(max_variance=10.0)


def test_files_keep_them_and_others_are_refused(tmp_path: Path) -> None:
    asked = parse_problem(TEXT, folder=tmp_path)
    np.testing.assert_array_equal(asked.problem.budget, TAU)
    found = nd.solve(asked).design
    path = nd.save(found, tmp_path / "design.npz", problem_text=TEXT)
    again = nd.load(path)
    np.testing.assert_array_equal(again.design.problem.budget, TAU)
    assert nd.verify(again, rigorous=True).ok
    assert not nd.verify(again, problem=problem(TAU * 2)).ok
    for budget in (np.array([1.0, 0.25, 1.9]), None):  # claimed of noise that spends more
        forged = replace(found, problem=replace(found.problem, budget=budget))
        assert not nd.verify(forged).ok


def test_even_budgets_of_one_are_no_budgets() -> None:
    assert problem(1.0).budget is None
    assert problem(None).budget is None
    np.testing.assert_array_equal(problem(None).budgets, np.ones(3))
    np.testing.assert_array_equal(problem(2.0).budget, np.full(3, 2.0))
    whole, half = (nd.solve(problem(tau)).design.objective for tau in (1.0, 2.0))
    assert half == pytest.approx(whole / 2, rel=1e-6)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "another number of them": ({"budget": [1.0, 2.0]}, "3 values, one per pattern"),
    "a budget of 0": ({"budget": [1.0, 0.0, 1.0]}, "values > 0"),
    "words": ({"budget": "many"}, "a float64 array"),
    "a structure": (
        {"structure": nd.TimeStructure(kind="banded", bands=2)},
        "none but for noise without a structure",
    ),
    "patterns that overlap": (
        {"use": nd.participation.MinSeparation(horizon=9, separation=3, max_participations=3)},
        "none but for noise without a structure under",
    ),
    "the worst step": (
        {"error": nd.ErrorMeasure(horizon=9, of="worst")},
        "none but for noise without a structure",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_bad_budgets_are_refused_by_name(what: str) -> None:
    fields, words = REFUSED[what]
    with pytest.raises(InputError, match=rf"^budget\.tau: .*{words}"):
        problem(**fields)


def test_random_participation_has_one_budget() -> None:
    with pytest.raises(InputError, match=r"^budget\.tau"):
        problem(use=nd.participation.BallsInBins(epochs=3, separation=3), privacy=TARGET)


def test_noise_that_spends_a_smaller_budget_is_not_feasible() -> None:
    """Though its largest sensitivity is below the largest budget."""
    found = solved()
    rolled = DenseStrategy(strategy=0.99 * np.eye(9) / np.sqrt(3))
    forged = replace(found, noise=Noise.of_strategy(rolled))
    assert not nd.verify(forged).ok
