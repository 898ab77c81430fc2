"""The experiment of random batches: noise by hand and by quadrature, and its tables."""

from __future__ import annotations

import math
from typing import Any

import networkx as nx
import numpy as np
import pytest

import noisedesign as nd
from noisedesign.system.graph import mixing_matrix
from noisedesign_lab.datasets import Examples
from noisedesign_lab.papers.reproduce import balls_in_bins, load_settings, ours
from noisedesign_lab.papers.reproduce.experiment import SUMMARY

PATH = {"kind": "path", "nodes": 3}
UNIT: dict[str, Any] = {
    "graph": PATH,
    "epochs": 2,
    "separation": 2,
    "cap": 20.0,
    "epsilons": [2.0],
    "deltas": [1e-3],
    "adjacency": "zero-out",
}


def test_independent_noise_by_hand() -> None:
    """k / mu^2 of unit noise at fixed batches; at random ones, what bins of any k save of it."""
    fixed, random = balls_in_bins.noise_rows(UNIT | {"mechanism": "ldp"})
    w = mixing_matrix(nx.path_graph(3))
    powers = [np.square(np.linalg.matrix_power(w, a)).sum() for a in range(1, 5)]
    error = sum((5 - a) * power for a, power in enumerate(powers, start=1))
    mu = nd.privacy.mu_of(epsilon=2.0, delta=1e-3)
    assert fixed["squared_error"] == pytest.approx(2 / mu**2 * error, rel=1e-9)
    assert (fixed["account"], random["account"]) == ("fixed", "random")
    ((saved),) = balls_in_bins.gains_rows(
        {"adjacency": "zero-out", "bins": 2, "epsilons": [2.0], "deltas": [1e-3]}
    )
    ratio = random["squared_error"] / fixed["squared_error"]
    assert ratio == pytest.approx(saved["variance"], rel=1e-3)
    assert 0.3 < ratio < 1


def test_noise_that_no_lemma_covers_has_one_account() -> None:
    accounts = {
        name: [row["account"] for row in balls_in_bins.noise_rows(UNIT | {"mechanism": name})]
        for name in ("mafalda", "whisper")
    }
    assert accounts == {"mafalda": ["fixed"], "whisper": ["fixed", "random"]}


def test_noise_over_that_of_independent_noise_in_order() -> None:
    def row(mechanism: str, account: str, error: float, epsilon: float = 1.0) -> Any:
        names = {"setting": "path 3", "mechanism": mechanism, "account": account}
        names["adjacency"] = "replace"
        return names | {"epsilon": epsilon, "delta": 1e-5, "squared_error": error}

    table = balls_in_bins.compared(
        [
            row("ldp", "fixed", 8.0),
            row("ldp", "random", 2.0),
            row("mafalda", "fixed", 1.0),
            row("ldp", "fixed", 4.0, epsilon=2.0),
            row("mafalda", "fixed", 1.0, epsilon=2.0),
        ]
    )
    assert [one["over_ldp"] for one in table] == [1.0, 0.25, 0.125, 1.0, 0.25]
    assert [one["mechanism"] for one in balls_in_bins.noise_drawn(table)][:3] == [
        "ldp",
        "ldp, random",
        "mafalda",
    ]


def test_the_whole_experiment_on_few_records(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    features = rng.integers(0, 2, size=(90, 4)).astype(np.float64)
    data = Examples(features=features, targets=np.where(features[:, 0] > 0, 1.0, -1.0))
    monkeypatch.setattr(ours, "_records", lambda: (data, data.at(np.arange(30))))
    experiment, settings = load_settings("balls-in-bins", quick=True)
    values = settings.model_dump()
    names = ["ldp", "whisper", "mafalda"]
    small = {"graphs": [PATH], "epochs": 2, "separation": 3}
    values["noise"] |= small | {"mechanisms": names, "epsilons": [1.0]}
    budget = {"epsilons": [1.0], "deltas": [1e-5]}
    values["gains"] |= budget | {"bins": [2], "adjacencies": ["zero-out"]}
    how = {"seeds": 3, "together": 2, "measured": 20, "records": 60, "epsilons": [1.0]}
    how["adjacency"] = "zero-out"
    values["training"] |= small | how | {"mechanisms": ["none", *names]}
    read = experiment.read(values)
    units = experiment.units(read)
    assert [unit["part"] for unit in units] == ["noise"] * 3 + ["gains"] + ["training"] * 2
    rows = [row for unit in units for row in experiment.run(unit)]
    assert {name for row in rows for name in row} == set(experiment.columns)
    found = experiment.summary(rows, read)
    assert set(SUMMARY) <= set(found[0])
    assert [row["mechanism"] for row in found] == [
        *("none", "ldp", "ldp, random", "whisper", "whisper, random", "mafalda")
    ]
    free, ldp, random = (row["stddev"] for row in found[:3])
    assert free == 0 < random < ldp
    tables = experiment.tables(rows, read)
    assert [len(tables[name]) for name in ("noise.csv", "gains.csv", "costs.csv")] == [5, 1, 5]
    costs = {row["mechanism"]: row["error_over_ldp"] for row in tables["costs.csv"]}
    noises = {
        balls_in_bins.called(row): row["over_ldp"]
        for row in tables["noise.csv"]
        if math.isclose(row["delta"], values["training"]["delta"])
    }
    assert costs == pytest.approx(noises, rel=1e-6)  # the same graph, budgets and steps
    assert set(experiment.pictures(rows, found, read)) == {"noise", "gains", "loss", "steps"}
    assert "path 3, zero-out. epsilon 1: " in experiment.paragraph(rows, found, read)
