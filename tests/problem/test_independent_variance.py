"""The independent part of correlated noise, sigma_mix^2 of Whisper D-SGD."""

from __future__ import annotations

from pathlib import Path

import networkx as nx
import numpy as np
import pytest

import noisedesign as nd
from noisedesign.base.linalg import is_positive
from noisedesign.tasks import report
from tests.support import oracles
from tests.support.command_line import RING, call, write


def largest_split(covariance: np.ndarray) -> float:
    """Largest s with R - s I positive definite, by bisection on whether it has a factor."""
    low, high = 0.0, float(np.trace(covariance))
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (
            (middle, high)
            if is_positive(covariance - middle * np.eye(len(covariance)))
            else (low, middle)
        )
    return low


@pytest.mark.parametrize("graph", [nx.path_graph(3), nx.cycle_graph(5), nx.karate_club_graph()])
def test_it_is_the_largest_part_that_leaves_a_covariance(graph: nx.Graph) -> None:
    design = nd.solve(nd.SpaceProblem(mixing=oracles.metropolis(graph))).design
    assert design is not None
    found = design.independent_variance
    assert found is not None
    assert found == pytest.approx(largest_split(design.covariance), rel=1e-9)
    # No weighted sum of the nodes' noise has less variance.
    weights = np.random.default_rng(0).normal(size=(100, len(design.covariance)))
    weights /= np.linalg.norm(weights, axis=1, keepdims=True)
    assert np.einsum("wi,ij,wj->w", weights, design.covariance, weights).min() >= found
    assert found <= 1 + 1e-9  # that of LDP at budgets of 1: [R^-1]_ii <= 1 / smallest eigenvalue


def test_baselines_by_hand() -> None:
    """LDP is all independent, and of DECOR, s I + c Laplacian, s is."""
    problem = nd.SpaceProblem(mixing=oracles.metropolis(nx.cycle_graph(5)), budget=4.0)
    independent = nd.baseline(problem, "ldp")
    assert independent.independent_variance == pytest.approx(1 / 4)
    decor = nd.baseline(problem, "decor")
    off = -decor.covariance[0, 1]
    s = decor.covariance[0, 0] - 2 * off
    assert decor.independent_variance == pytest.approx(s, rel=1e-9)


def test_designs_without_r_have_none_and_records_say_it() -> None:
    time = nd.solve(nd.TimeProblem.prefix(participation=nd.participation.single(2))).design
    assert time is not None
    assert time.independent_variance is None
    assert report.design_record(time)["independent_variance"] is None


def test_commands_tell_it(tmp_path: Path) -> None:
    path = write(tmp_path, RING)
    solved = call("solve", path, "--json").json()
    compared = {row["method"]: row for row in call("baselines", path, "--json").json()}
    assert compared["ldp"]["independent_variance"] == pytest.approx(1)
    assert 0 < solved["independent_variance"] < 1


def test_the_report_has_it(tmp_path: Path) -> None:
    problem = nd.SpaceProblem(mixing=oracles.metropolis(nx.path_graph(3)), budget=4.0)
    design = nd.solve(problem).design
    assert design is not None
    text = nd.report(design, path=tmp_path / "r.html").read_text(encoding="utf-8")
    assert f"sigma_mix^2 of Whisper D-SGD)</dt><dd>{design.independent_variance:.6g}<" in text
    assert "that of independent noise</dt><dd>0.25<" in text
