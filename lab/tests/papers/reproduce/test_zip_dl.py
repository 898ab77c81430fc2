"""The experiment of Zip-DL: attacks by counting, noise of messages by brute force, and its rows."""

from __future__ import annotations

import itertools
import math
from typing import Any

import networkx as nx
import numpy as np
import pytest

from noisedesign.noise.batches import Batches
from noisedesign.system.graph import mixing_matrix
from noisedesign.system.participation import every_step
from noisedesign.system.random_mixing import NodeDropout
from noisedesign_lab.datasets import Examples
from noisedesign_lab.papers.reproduce import load_settings, named
from noisedesign_lab.papers.reproduce.experiment import SUMMARY, Unit
from noisedesign_lab.papers.reproduce.zip_dl import best, training
from noisedesign_lab.training.gossip import FixedGossip, RandomGossip
from noisedesign_lab.training.noise import MessageNoise, WhiteNoise
from noisedesign_lab.training.trainer import Seen, train


@pytest.mark.parametrize(
    ("members", "others"),
    [([3.0, 1.0], [2.0, 0.0, 1.0]), ([1.0], [1.0, 1.0]), ([5.0, 6.0], [1.0]), ([0.0], [1.0, 2.0])],
)
def test_area_and_true_positives_by_counting(members: list[float], others: list[float]) -> None:
    wins = [1.0 if m > o else 0.5 if m == o else 0.0 for m in members for o in others]
    found = training.roc_auc(np.array(members), np.array(others))
    assert found == pytest.approx(np.mean(wins), rel=1e-12)
    for rate in (0.0, 0.34, 0.5, 1.0):
        thresholds = [-math.inf, *members, *others]
        allowed = [
            np.mean(np.array(members) > t)
            for t in thresholds
            if np.mean(np.array(others) > t) <= rate + 1e-12
        ]
        at = training.true_positives_at(rate, np.array(members), np.array(others))
        assert at == pytest.approx(max(allowed)), rate


def test_the_classifier_finds_what_is_there_and_nothing_else() -> None:
    """Members whose losses fall are told from others without fail; of equal distributions the area
    is 1/2 within five standard deviations, sqrt(1/12 (1/m + 1/o))."""
    rng = np.random.default_rng(4)
    levels = np.exp(rng.normal(size=(500, 1)))
    falling = levels[:200] * np.exp(-np.arange(5.0)) * np.exp(0.1 * rng.normal(size=(200, 5)))
    steady = levels[200:] * np.exp(0.1 * rng.normal(size=(300, 5)))
    assert training.roc_auc(*training.classified(falling, steady, rng)) > 0.999
    series = np.exp(rng.normal(size=(2400, 5)))
    own, rest = training.classified(series[:1200], series[1200:], rng)
    assert (len(own), len(rest)) == (360, 360)
    deviation = math.sqrt((1 / 360 + 1 / 360) / 12)
    assert abs(training.roc_auc(own, rest) - 0.5) < 5 * deviation


def test_noise_of_a_message_by_hand() -> None:
    """All weights of a complete graph are 1/n, and Z = Y - mean Y has variance 1 - 1/n."""
    for nodes in (2, 5):
        w = np.full((nodes, nodes), 1 / nodes)
        assert training.zip_dl_scale(w) == pytest.approx(math.sqrt(1 - 1 / nodes), rel=1e-12)


def _received(w: np.ndarray, out: set[int]) -> np.ndarray:
    """Covariance of what nodes receive, from every message written out: node u draws Y_v for its
    closed neighbourhood and sends to those who are in, if it is in."""
    n = len(w)
    rows = np.zeros((n, n, n))  # what node v receives, of Y_(u, j)
    for u in range(n):
        near = [v for v in range(n) if w[v, u] > 0]
        for v in near:
            if u in out or v in out:
                continue
            for j in near:
                z = float(j == v) - w[j, u] / (len(near) * w[v, u])
                rows[v, u, j] += w[v, u] * z
    flat = rows.reshape(n, -1)
    return flat @ flat.T


@pytest.mark.parametrize("out", [set(), {1}, {0, 3}, {0, 1, 2, 3, 4}])
def test_noise_with_nodes_out_by_brute_force(out: set[int]) -> None:
    graph = nx.cycle_graph(5)
    graph.add_edge(0, 2)
    w = mixing_matrix(graph)
    present = np.array([node not in out for node in range(5)])
    step = np.where(present[:, None] & present, w, 0.0)
    np.fill_diagonal(step, 0.0)
    step += np.diag(1 - step.sum(axis=1))
    gossip = RandomGossip(random=NodeDropout(mixing=w, probability=0.5))
    noise = training.MessageNoiseWithDropout(mixing=w, gossip=gossip)
    root = noise.root(step)
    alone = {node for node in range(5) if step[node, node] == 1.0}
    np.testing.assert_allclose(root @ root.T, _received(w, alone), atol=1e-12)
    total = float(np.ones(5) @ root @ root.T @ np.ones(5))
    if not out:
        assert total == pytest.approx(0.0, abs=1e-12)  # the mean of all models is left as it is
    elif len(out) < 5:
        assert total > 1e-3


def test_nodes_that_drop_out_are_those_of_the_mixing() -> None:
    """Nobody who is out receives noise, at any step and seed."""
    w = mixing_matrix(nx.cycle_graph(6))
    gossip = RandomGossip(random=NodeDropout(mixing=w, probability=0.4))
    noise = training.MessageNoiseWithDropout(mixing=w, gossip=gossip)
    seeds, seen = (3, 8), 0
    white = WhiteNoise(seeds, shape=(6, 2), steps=10)
    for step, drawn in enumerate(noise.stream(white)):
        for k, mixing in enumerate(gossip.at(step, seeds)(1)):
            for node in range(6):
                alone = mixing[node, node] == 1.0
                seen += alone
                assert (np.abs(drawn[k, node]) < 1e-12).all() == alone
    assert seen > 10


def test_nobody_drops_out_with_probability_0() -> None:
    w = mixing_matrix(nx.cycle_graph(6))
    gossip = RandomGossip(random=NodeDropout(mixing=w, probability=0.0))
    white = WhiteNoise((1,), shape=(6, 3), steps=2)
    pairs = zip(
        training.MessageNoiseWithDropout(mixing=w, gossip=gossip).stream(white),
        MessageNoise(mixing=w).stream(white),
        strict=True,
    )
    for one, other in pairs:
        np.testing.assert_allclose(one, other, atol=1e-9)


UNIT: Unit = {
    "nodes": 6,
    "degree": 3,
    "graph_seed": 0,
    "least_ratings": 1,
    "factors": 2,
    "test": 0.25,
    "split_seed": 1,
    "steps": 4,
    "step_size": 0.5,
    "batch_size": 4,
    "clip": math.inf,
    "measured": 50,
    "sigma": 0.01,
    "levels": [1.0, 8.0],
    "rounds": [3],
    "victims": 2,
    "models": 3,
    "others": 20,
    "seed": 0,
    "dropout": 0.0,
}


@pytest.fixture
def ratings(monkeypatch: pytest.MonkeyPatch) -> Examples:
    """Twelve users who rate ten films each, out of fifteen."""
    rng = np.random.default_rng(8)
    pairs = [(u, f) for u in range(12) for f in rng.choice(15, size=10, replace=False)]
    features = np.array(pairs, dtype=np.float64)
    found = Examples(
        features=features,
        targets=rng.integers(1, 6, size=len(pairs)).astype(np.float64),
        owners=features[:, 0].astype(np.intp),
    )
    monkeypatch.setattr(training, "movielens_small", lambda: found)
    training._ratings.cache_clear()
    return found


@pytest.mark.usefixtures("ratings")
def test_sizes_are_those_of_the_batches() -> None:
    """A node has 15 ratings or so: batches of at most 11 are two, of 8 or 7."""
    for batch_size in (4, 7, 11, 100):
        task = training.Task(UNIT | {"batch_size": batch_size})
        rule = every_step(4).rule
        sizes = [
            len(Batches(rule, horizon=4, records=len(part), batch_size=batch_size)[0])
            for part in task.parts
        ]
        np.testing.assert_array_equal(task.sizes, sizes)


@pytest.mark.parametrize("batch_size", [4, 11])
@pytest.mark.usefixtures("ratings")
def test_what_is_added_to_a_message_has_the_stated_deviation(batch_size: int) -> None:
    """Muffliato's first message less that without noise, of the first step: 6 x 54 normals."""
    task = training.Task(UNIT | {"batch_size": batch_size})
    lanes = [
        task.lane(None, 0.0, name="none"),
        task.lane(task.independent, 0.08, name="muffliato-3", rounds=3),
    ]
    first: list[np.ndarray] = []

    def keep(seen: Seen) -> None:
        if seen.step == 0:
            first.append(seen.messages[0, :, 1] - seen.messages[0, :, 0])

    list(train(task.run(FixedGossip(mixing=task.mixing)), lanes, seeds=[0], observer=keep))
    values = first[0].ravel()
    assert values.std() == pytest.approx(0.08, rel=5 / math.sqrt(2 * len(values)))
    # Every node's noise is as loud, whatever its batches: white noise times the deviation.
    assert (len(set(task.sizes)) > 1) == (batch_size == 11)
    white = WhiteNoise((0,), shape=first[0].shape, steps=1).at(0)[0]
    np.testing.assert_allclose(first[0], -0.08 * white, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("batch_size", [4, 11])
@pytest.mark.usefixtures("ratings")
def test_noise_on_messages_has_the_stated_deviation(batch_size: int) -> None:
    """Models of Zip-DL after a step, less those without noise: the mean is the same, and nodes
    differ by what messages of that deviation leave."""
    task = training.Task(UNIT | {"batch_size": batch_size})
    noise = MessageNoise(mixing=task.mixing)
    scale = training.zip_dl_scale(task.mixing)
    lanes = [task.lane(None, 0.0, name="none"), task.lane(noise, 0.08 / scale, name="zip-dl")]
    seen_models: list[np.ndarray] = []

    def keep(seen: Seen) -> None:
        if seen.step == 0:
            seen_models.append(seen.models[0, :, 1] - seen.models[0, :, 0])

    list(train(task.run(FixedGossip(mixing=task.mixing)), lanes, seeds=[0], observer=keep))
    added = seen_models[0]
    np.testing.assert_allclose(added.mean(axis=0), 0.0, atol=1e-13)
    expected = (0.08 / scale) ** 2 * np.trace(_received(task.mixing, set())) / 6
    freedom = 5 * added.shape[1]
    assert np.square(added).mean() == pytest.approx(expected, rel=5 * math.sqrt(2 / freedom))


@pytest.mark.usefixtures("ratings")
def test_rows_of_a_unit() -> None:
    rows = training.run(UNIT)
    assert len(rows) == 3 * (1 + 2 * 2)
    assert {row["step"] for row in rows} == {1, 2, 4}
    last = [row for row in rows if row["step"] == 4]
    for row in last:
        for name in ("threshold_auc", "classifier_auc", "threshold_tpr", "classifier_tpr"):
            assert 0 <= row[name] <= 1
    again = training.run(UNIT | {"levels": [8.0]})
    both = {
        (row["mechanism"], row["step"]): row["test_rmse"]
        for row in rows
        if row["level"] in (0.0, 8.0)
    }
    for row in again:
        assert row["test_rmse"] == pytest.approx(both[row["mechanism"], row["step"]], rel=1e-9)


def _row(step: int, rmse: float | None, auc: float | None, status: str = "ok") -> dict[str, Any]:
    return dict.fromkeys(training.COLUMNS) | {
        "setting": "no dropout",
        "mechanism": "zip-dl",
        "level": 1.0,
        "seed": 0,
        "step": step,
        "test_rmse": rmse,
        "threshold_auc": auc,
        "status": status,
    }


def test_the_least_error_of_a_run_and_the_attack_at_its_end() -> None:
    (row,) = best([_row(1, 3.0, None), _row(2, 1.5, None), _row(3, 2.0, 0.6)])
    assert (row["test_loss"], row["threshold_auc"]) == (1.5, 0.6)
    (gone,) = best([_row(1, 3.0, None), _row(2, None, None, "diverged"), _row(3, None, 0.6)])
    assert (gone["test_loss"], gone["threshold_auc"]) == (None, None)


@pytest.mark.usefixtures("ratings")
def test_the_whole_experiment_on_few_ratings() -> None:
    experiment, settings = load_settings("zip-dl", quick=True)
    assert experiment is named("zip-dl")
    values = settings.model_dump()
    values["network"] |= {"nodes": 6, "degree": 3}
    values["training"] |= {"least_ratings": 1, "steps": 4, "batch_size": 4, "step_size": 0.1}
    values["attack"] |= {"victims": 2, "models": 3, "others": 20}
    small = experiment.read(values)
    units = experiment.units(small)
    assert [(unit["seed"], unit["dropout"]) for unit in units] == list(
        itertools.product((0, 1), (0.0, 0.0, 0.25))
    )
    rows = [row for unit in units for row in experiment.run(unit)]
    assert {name for row in rows for name in row} == set(experiment.columns)
    found = experiment.summary(rows, small)
    assert set(SUMMARY) <= set(found[0])
    assert {row["setting"] for row in found} == {"no dropout", "dropout 0%", "dropout 25%"}
    assert set(experiment.pictures(rows, found, small)) == {"attacks", "dropout"}
    text = experiment.paragraph(rows, found, small)
    assert "Without noise: RMSE" in text
    assert "zip-dl at 16: 0%" in text
