"""Baselines of space-time problems, against stacked matrices and solves of either side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

from noisedesign.design.design import Design
from noisedesign.design.solve import solve
from noisedesign.files.design_file import load_design, save_design
from noisedesign.forms.structure import SpaceStructure, TimeStructure
from noisedesign.mechanisms.baselines import baseline, baseline_names, compared
from noisedesign.problem.problem import SpaceProblem, SpaceTimeProblem, TimeProblem
from noisedesign.system.participation import FixedEpoch
from noisedesign.system.workloads import ErrorMeasure
from noisedesign.tasks.verify import verify
from tests.support import oracles
from tests.support.command_line import call
from tests.support.space_time_cases import patterns_of, stacked_workload

PATH_4 = (oracles.metropolis(nx.path_graph(4)) + np.eye(4)) / 2
TAU = np.array([1.0, 2.0, 0.5, 1.0])
SCHEME = FixedEpoch(epochs=2, separation=3)
NAMES = {
    "ldp",
    "cdp",
    "whisper-one-step",
    "whisper",
    "decor",
    "mafalda",
    "d-mf",
    "antipgd",
    "normalized-sqrt",
    "bisr",
    "bifr",
    "banded-sqrt",
}


def problem(joint: str = "kronecker", **kwargs: Any) -> SpaceTimeProblem:
    return SpaceTimeProblem(
        mixing=PATH_4, participation=SCHEME, **({"budget": TAU} | kwargs), joint=joint
    )


def covariance_of(design: Design) -> np.ndarray:
    """Of all nT coordinates, time-major, from C and R."""
    inverse = np.linalg.inv(design.strategy.T @ design.strategy)
    if design.noise.full:
        return inverse
    return np.kron(inverse, design.covariance)


def squared_sensitivities(covariance: np.ndarray) -> np.ndarray:
    """Of every node over its budget, from below: all choices of signs of its k = 2 gradients."""
    precision = np.linalg.inv(covariance)
    worst = np.zeros(4)
    for number, (s, t) in enumerate(patterns_of(4, 2, 3)):
        squared = precision[s, s] + precision[t, t] + 2 * abs(precision[s, t])
        worst[number % 4] = max(worst[number % 4], squared)
    return worst / TAU


@pytest.mark.parametrize("joint", ["kronecker", "full"])
def test_every_baseline_is_what_dense_algebra_says(joint: str) -> None:
    designs = {d.provenance.method: d for d in compared(problem(joint))}
    assert set(designs) == NAMES | {"optimal"}
    a = stacked_workload(PATH_4, 6)
    for name, design in designs.items():
        covariance = covariance_of(design)
        assert design.objective == pytest.approx(np.trace(a @ covariance @ a.T), rel=1e-9), name
        if name == "cdp":
            assert (design.trust, design.certificate.feasible) == ("central", False)
            continue
        assert design.certificate.feasible
        # Equal privacy: every one uses up the budget of some node.
        assert squared_sensitivities(covariance).max() == pytest.approx(1.0, rel=1e-6), name
        assert design.lower_bound <= designs["optimal"].objective * (1 + 1e-9)
        assert design.lower_bound == pytest.approx(designs["optimal"].lower_bound, rel=1e-6)
    # What is designed jointly is no worse than what is designed on one side only.
    assert designs["optimal"].objective < min(designs[name].objective for name in NAMES - {"cdp"})
    assert designs["whisper"].objective < designs["whisper-one-step"].objective
    for worse in ("decor", "ldp"):
        assert designs["whisper"].objective < designs[worse].objective
    assert designs["mafalda"].objective < designs["d-mf"].objective


def test_independent_noise_by_hand() -> None:
    """k / tau_i on every coordinate."""
    a = stacked_workload(PATH_4, 6)
    expected = float((np.square(a).sum(axis=0) * np.tile(2 / TAU, 6)).sum())
    assert baseline(problem(), "ldp").objective == pytest.approx(expected, rel=1e-9)


def test_each_side_is_the_solve_of_that_side() -> None:
    horizon = 6
    joint = problem(budget=1.0)
    in_space = solve(
        SpaceProblem(mixing=PATH_4, error=ErrorMeasure(horizon=horizon, of="all-iterates"))
    ).design
    one_step = solve(SpaceProblem(mixing=PATH_4)).design
    in_time = solve(TimeProblem.decentralized(mixing=PATH_4, participation=SCHEME)).design
    assert in_space is not None
    assert one_step is not None
    assert in_time is not None
    # A spatial design is for unit sensitivity at one step, here a record takes part in two.
    whisper = baseline(joint, "whisper")
    assert whisper.objective == pytest.approx(2 * in_space.objective, rel=1e-5)
    np.testing.assert_allclose(
        baseline(joint, "whisper-one-step").covariance, one_step.covariance, atol=1e-3
    )
    mafalda = baseline(joint, "mafalda")
    assert mafalda.objective == pytest.approx(in_time.objective, rel=1e-5)
    np.testing.assert_allclose(mafalda.covariance, np.eye(4), rtol=1e-12)


def test_a_trusted_server_costs_the_prefix_optimum_over_n_tau() -> None:
    prefix = solve(TimeProblem.prefix(participation=SCHEME)).design
    assert prefix is not None
    for joint in ("kronecker", "full"):
        design = baseline(problem(joint), "cdp")
        assert design.objective == pytest.approx(prefix.objective / (4 * TAU.min()), rel=1e-5)


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"joint": "full"},
        {"max_variance": 5.0},
        {"time": TimeStructure(kind="banded", bands=2), "space": SpaceStructure(kind="decor")},
        {"error": ErrorMeasure(horizon=6, of="mean-model"), "max_variance": 4.0},
    ],
    ids=["kronecker", "full", "capped", "structured", "mean model"],
)
def test_every_baseline_is_saved_and_verified(how: dict[str, Any], tmp_path: Path) -> None:
    asked = problem(**how)
    best = solve(asked).design
    assert best is not None
    for name in baseline_names(asked):
        for proof in (best, None):
            design = baseline(asked, name, dual=proof)
            outcome = verify(load_design(save_design(design, tmp_path / "d.npz")))
            assert outcome.ok, (name, [c for c in outcome.checks if c.ok is False])


def test_the_command_takes_space_time_problems() -> None:
    for name in ("ring-8-kronecker", "ring-8-full"):
        result = call("baselines", f"space-time/{name}.toml", "--json")
        assert result.code == 0, result.err
        rows = {row["method"]: row for row in result.json()}
        assert set(rows) == NAMES | {"optimal"}
        assert rows["ldp"]["relative_to_ldp"] == pytest.approx(1.0, rel=1e-9)
        assert rows["optimal"]["objective"] < rows["whisper"]["objective"]
        assert rows["cdp"]["gap"] is None
