"""Our experiment: noise at equal privacy by hand, squared errors by brute force, and its tables."""

from __future__ import annotations

import math
from typing import Any

import networkx as nx
import numpy as np
import pytest

from noisedesign.privacy.runs import FIXED_RESPONSES
from noisedesign.system.graph import mixing_matrix
from noisedesign.system.participation import FixedEpoch
from noisedesign_lab.datasets import Examples
from noisedesign_lab.papers.reproduce import load_settings, ours
from noisedesign_lab.papers.reproduce.experiment import SUMMARY
from noisedesign_lab.tasks.mechanisms import Network, mechanism

UNIT: dict[str, Any] = {"epochs": 2, "separation": 2, "cap": 20.0}
PATH = {"kind": "path", "nodes": 3}


def _powers(w: np.ndarray, steps: int) -> np.ndarray:
    """The map from all noise to all iterates has blocks W^(t - s + 1), (n T, n T)."""
    n = len(w)
    stacked = np.zeros((n * steps, n * steps))
    for t in range(steps):
        for s in range(t + 1):
            block = np.linalg.matrix_power(w, t - s + 1)
            stacked[t * n : (t + 1) * n, s * n : (s + 1) * n] = block
    return stacked


@pytest.mark.parametrize("name", ["ldp", "whisper", "mafalda", "kronecker"])
def test_squared_error_by_brute_force(name: str) -> None:
    steps, w = 4, mixing_matrix(nx.path_graph(3))
    network = Network(
        mixing=w,
        participation=FixedEpoch(epochs=2, separation=2),
        max_variance=20.0,
        responses=FIXED_RESPONSES,
    )
    made = mechanism(name, network)
    in_time, in_space = np.eye(steps), np.eye(3)
    if made.design is not None and made.design.noise.strategy is not None:
        noising = np.linalg.inv(made.design.strategy)
        in_time = noising @ noising.T
    if made.design is not None and made.design.noise.space is not None:
        in_space = made.design.covariance
    stacked = _powers(w, steps)
    expected = np.trace(stacked @ np.kron(in_time, in_space) @ stacked.T)
    assert ours.squared_error(made, w, steps) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("name", ["none", "cdp-n2"])
def test_no_squared_error_without_noise_or_gossip(name: str) -> None:
    network = Network(
        mixing=mixing_matrix(nx.path_graph(3)), participation=FixedEpoch(epochs=1, separation=2)
    )
    assert ours.squared_error(mechanism(name, network), network.mixing, 2) is None


def test_noise_before_a_reader_of_all_messages_by_hand() -> None:
    """Two participations in unit noise: mu = sqrt 2 for changes of norm 1, so that noise scaled to
    mu = 1 has twice the error of unit noise."""
    rows = {
        row["model"]: row for row in ours.observer_rows({**UNIT, "graph": PATH, "mechanism": "ldp"})
    }
    assert set(rows) == set(ours.MODELS)
    stacked = _powers(mixing_matrix(nx.path_graph(3)), 4)
    assert rows["ldp"]["mu"] == pytest.approx(math.sqrt(2), rel=1e-12)
    assert rows["ldp"]["squared_error"] == pytest.approx(2 * np.square(stacked).sum(), rel=1e-9)
    assert rows["pndp"]["mu"] <= rows["insider"]["mu"] * (1 + 1e-12)


@pytest.mark.parametrize("name", ["mafalda", "kronecker", "zip-dl"])
def test_noise_of_designs_beside_independent_noise(name: str) -> None:
    """Before a reader of all messages the ratio is that of certified objectives, which
    :func:`ours.squared_error` has; Zip-DL's noise is louder and protects less."""
    unit = {**UNIT, "graph": PATH}
    rows = [
        *ours.observer_rows(unit | {"mechanism": "ldp"}),
        *ours.observer_rows(unit | {"mechanism": name}),
    ]
    found = {(row["mechanism"], row["model"]): row["over_ldp"] for row in ours.compared(rows)}
    assert found["ldp", "ldp"] == 1.0
    w = mixing_matrix(nx.path_graph(3))
    network = Network(
        mixing=w,
        participation=FixedEpoch(epochs=2, separation=2),
        max_variance=20.0,
        responses=FIXED_RESPONSES,
    )
    made = mechanism(name, network)
    if made.design is None:
        assert found[name, "ldp"] > 1
        return
    own, other = ours.squared_error(made, w, 4), np.square(_powers(w, 4)).sum()
    assert own is not None
    expected = own * made.sensitivity_squared / (2 * other)
    assert found[name, "ldp"] == pytest.approx(expected, rel=1e-6)


def _row(mechanism: str, epsilon: float, seed: int, loss: float | None, error: float | None) -> Any:
    return {
        "setting": "path 3",
        "mechanism": mechanism,
        "epsilon": epsilon,
        "seed": seed,
        "test_loss": loss,
        "error": error,
    }


def test_costs_by_hand() -> None:
    """Differences of the same seed: 1 and 3 of independent noise, .5 and .5 of the other."""
    found = ours.costs(
        [
            _row("none", math.inf, 0, 1.0, None),
            _row("none", math.inf, 1, 2.0, None),
            _row("ldp", 1.0, 0, 2.0, 8.0),
            _row("ldp", 1.0, 1, 5.0, 8.0),
            _row("mafalda", 1.0, 0, 1.5, 2.0),
            _row("mafalda", 1.0, 1, 2.5, 2.0),
            _row("antipgd", 1.0, 0, None, 99.0),
            _row("antipgd", 1.0, 1, 3.0, 99.0),
        ]
    )
    assert [row["mechanism"] for row in found] == ["ldp", "mafalda", "antipgd"]
    assert [row["cost"] for row in found] == [2.0, 0.5, math.inf]
    assert [row["error_over_ldp"] for row in found] == [1.0, 0.25, 99 / 8]
    assert found[0]["cost_low"] == pytest.approx(2 - 12.7062, rel=1e-5)


def test_the_whole_experiment_on_few_records(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    features = rng.integers(0, 2, size=(90, 4)).astype(np.float64)
    data = Examples(features=features, targets=np.where(features[:, 0] > 0, 1.0, -1.0))
    monkeypatch.setattr(ours, "_records", lambda: (data, data.at(np.arange(30))))
    experiment, settings = load_settings("ours", quick=True)
    values = settings.model_dump()
    names = ["ldp", "whisper", "mafalda"]
    values["observers"] |= {"graphs": [PATH], "mechanisms": names}
    values["training"] |= {
        "graphs": [PATH],
        "mechanisms": ["none", *names],
        "epochs": 2,
        "separation": 3,
        "seeds": 3,
        "together": 2,
        "measured": 20,
    }
    small = experiment.read(values)
    units = experiment.units(small)
    assert [unit.get("seeds") for unit in units] == [None, None, None, [0, 1], [2]]
    rows = [row for unit in units for row in experiment.run(unit)]
    assert {name for row in rows for name in row} == set(experiment.columns)
    found = experiment.summary(rows, small)
    assert set(SUMMARY) <= set(found[0])
    assert len(found) == 1 + 3 * len(values["training"]["epsilons"])
    tables = experiment.tables(rows, small)
    assert len(tables["observers.csv"]) == 3 * len(ours.MODELS)
    pictures = experiment.pictures(rows, found, small)
    assert set(pictures) == {"observers", "loss", "steps"}
    words = experiment.paragraph(rows, found, small)
    assert "| graph | eavesdropper | neighbour |" in words
    assert "\n| path 3 | " in words
    for told in (words, pictures["observers"].get_suptitle().lower()):
        assert "fixed responses" in told
