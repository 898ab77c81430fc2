"""The experiment on the loss of the last models: noise of its budget, best steps, paired costs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from noisedesign.system.graph import build_graph, mixing_matrix
from noisedesign.system.participation import FixedEpoch
from noisedesign_lab.datasets import Examples
from noisedesign_lab.papers.reproduce import load_settings, loss
from noisedesign_lab.papers.reproduce.experiment import SUMMARY
from noisedesign_lab.training.losses import LeastSquares

RNG = np.random.default_rng(5)


def _records(count: int) -> Examples:
    features = RNG.normal(size=(count, 2)) / 3
    return Examples(features=features, targets=features @ [1.0, -1.0])


DATA = loss.Data(_records(60), _records(50), LeastSquares(features=2))
UNIT: dict[str, Any] = {
    "graph": {"kind": "path", "nodes": 3},
    "name": "a9a",
    "mu": 1.0,
    "optimizer": "sgd",
    "mechanisms": ["none", "ldp", "mafalda", "loss", "loss-capped"],
    "steps": 8,
    "batch_size": 5,
    "clip": 1.0,
    "measured": 50,
    "tuning_seeds": 2,
    "seeds": 3,
    "curvature": [0.05, 0.1],
    "step_sizes": [0.5, 2.0],
    "adaptive_step_sizes": [0.1],
}


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adamw"])
def test_rows_of_a_unit(monkeypatch: pytest.MonkeyPatch, optimizer: str) -> None:
    monkeypatch.setattr(loss, "data_of", lambda name: DATA)
    rows = loss.run(UNIT | {"optimizer": optimizer})
    assert [set(row) for row in rows] == [set(loss.COLUMNS)] * len(rows)
    assert len(rows) == 5 * 2 * 3
    assert {row["step_size"] for row in rows} <= ({0.1} if optimizer == "adamw" else {0.5, 2.0})
    _, settings = load_settings("loss", quick=True)
    (first, *_) = loss.summary(rows, settings)
    assert tuple(first)[: len(SUMMARY)] == SUMMARY
    costs = {row["mechanism"]: row["cost"] for row in loss.costs(rows)}
    by_hand = {
        name: np.mean([row["test_loss"] for row in rows if row["mechanism"] == name])
        for name in ("none", "ldp")
    }
    assert costs["ldp"] == pytest.approx(by_hand["ldp"] - by_hand["none"], rel=1e-12)
    assert "ldp" in loss.paragraph(rows, [], settings)


def test_the_step_that_was_best_on_other_seeds_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without noise longer steps down a quadratic are better, up to 1 over its curvature."""
    monkeypatch.setattr(loss, "data_of", lambda name: DATA)
    rows = loss.run(UNIT | {"mechanisms": ["none"], "step_sizes": [0.1, 1.0, 4.0]})
    assert {row["step_size"] for row in rows} == {4.0}


def test_noise_has_the_standard_deviation_of_its_budget() -> None:
    """Two epochs of four steps of independent noise, a record replaced: 2 sqrt(2) clip / mu."""
    scheme, graph = FixedEpoch(epochs=2, separation=4), (("kind", "path"), ("nodes", 3))
    made = loss._made("ldp", graph, scheme, 1.0, False, (0.1,))
    found = loss._stddev(made, {"clip": 0.5, "mu": 0.3})
    assert found == pytest.approx(2 * np.sqrt(2) * 0.5 / 0.3, rel=1e-12)
    for name in ("mafalda", "loss", "loss-capped"):  # of unit sensitivity
        made = loss._made(name, graph, scheme, 1.0, True, (0.05, 0.1))
        found = loss._stddev(made, {"clip": 0.5, "mu": 0.3})
        assert found == pytest.approx(2 * 0.5 / 0.3, rel=1e-9)
        design = made.design
        assert design is not None
        variances = np.square(design.noising_matrix).sum(axis=1)
        if name == "loss-capped":
            assert variances.max() <= loss.CAP * 2 * (1 + 1e-9)
        np.testing.assert_array_equal(
            design.problem.mixing, mixing_matrix(build_graph("path", nodes=3))
        )


def test_steps_that_fall() -> None:
    np.testing.assert_allclose(loss.steps_of(4, falling=True), [1, 0.75, 0.5, 0.25])
    np.testing.assert_array_equal(loss.steps_of(4, falling=False), np.ones(4))
