"""The experiment of Whisper D-SGD: ratios by hand, tuned step sizes against one run each, and what
must hold of losses whatever the data."""

from __future__ import annotations

import math
import re
from typing import Any

import networkx as nx
import numpy as np
import pytest

from noisedesign.system.graph import mixing_matrix
from noisedesign.system.participation import every_step
from noisedesign_lab.datasets import Examples
from noisedesign_lab.papers.reproduce import load_settings, named
from noisedesign_lab.papers.reproduce.experiment import SUMMARY, Unit
from noisedesign_lab.papers.reproduce.whisper import _order, lanes, saved, summary
from noisedesign_lab.tasks.mechanisms import Network, mechanism
from noisedesign_lab.tasks.training_task import run
from noisedesign_lab.training.losses.loss import Batch
from noisedesign_lab.training.losses.quadratics import whisper_quadratics

NETWORK = {
    "nodes": 4,
    "graph_seed": 0,
    "mechanisms": ["none", "ldp", "whisper", "cdp-n2"],
    "epsilons": [2.0, 8.0],
    "delta": 1e-5,
    "adjacency": "replace",
    "cap": 20.0,
    "p": 0.7,
}
INCOMES: dict[str, Any] = {
    "epsilons": [2.0, 8.0],
    "steps": 12,
    "clip": 0.5,
    "batch_size": 8,
    "concentration": 100.0,
    "regularization": 1e-3,
    "step_sizes": [0.01, 3.0, 0.3],
    "shares": {"train": 0.6, "validation": 0.2, "test": 0.2},
    "split_seed": 3,
    "tuning_seeds": 2,
    "seeds": 2,
    "measured": 60,
}


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch) -> Examples:
    """Three hundred records of five features in place of a9a."""
    rng = np.random.default_rng(5)
    features = rng.integers(0, 2, size=(300, 5)).astype(np.float64)
    targets = np.where(features @ [1, -1, 2, 0, 1] + rng.normal(size=300) > 1, 1.0, -1.0)
    found = Examples(features=features, targets=targets)
    monkeypatch.setattr(lanes, "_records", lambda: found)
    return found


@pytest.mark.parametrize("nodes", [3, 6])
def test_variance_after_a_step_by_hand(nodes: int) -> None:
    """A ring of 1/3: sum of squares n/3, and the nuclear norm of W gives Whisper's optimum. A
    server's average has variance 1/n^2, or 1/n, at every one of n nodes."""
    steps, w = 7, mixing_matrix(nx.cycle_graph(nodes))
    network = Network(mixing=w, participation=every_step(steps), max_variance=1e4)
    squares, nuclear = nodes / 3, np.abs(1 + 2 * np.cos(2 * np.pi * np.arange(nodes) / nodes)).sum()
    expected = {
        "ldp": 1.0,
        "whisper": (nuclear / 3) ** 2 / nodes / squares,
        "cdp-n2": 1 / nodes / squares,
        "cdp-n": 1 / squares,
    }
    for name, value in expected.items():
        found = lanes.variance_over_ldp(w, mechanism(name, network), steps)
        assert found == pytest.approx(value, rel=2e-3 if name == "whisper" else 1e-12), name
    assert lanes.variance_over_ldp(w, mechanism("none", network), steps) is None


def test_singular_networks_are_capped_and_others_are_not() -> None:
    unit: Unit = {**NETWORK, "steps": 3, "cap": 5.0, "mechanisms": ["whisper"]}
    w, (capped,) = lanes.on_graph(unit | {"p": 1.0})
    np.testing.assert_allclose(w, 0.25)
    assert capped.design is not None
    scale = capped.sensitivity_squared / 3
    largest = np.diag(capped.design.covariance).max() * scale
    assert 5 * (1 - 1e-4) <= largest <= 5 * (1 + 1e-12)
    _, (free,) = lanes.on_graph(unit | {"nodes": 7, "p": 0.4})
    assert free.design is not None
    assert free.design.problem.max_variance is None


def test_graphs_are_the_first_connected_ones() -> None:
    """Seed 0 leaves a node of twenty alone at p = 0.2, and seed 1 none."""
    unit: Unit = {**NETWORK, "nodes": 20, "p": 0.2, "steps": 3, "mechanisms": ["none"]}
    assert not nx.is_connected(nx.gnp_random_graph(20, 0.2, seed=0))
    w, _ = lanes.on_graph(unit)
    np.testing.assert_array_equal(w, mixing_matrix(nx.gnp_random_graph(20, 0.2, seed=1)))


@pytest.mark.parametrize("clipped", [True, False])
def test_quadratics_without_noise_are_gossip_written_out(clipped: bool) -> None:
    """Gradients of every node, clipped or not, step sizes over sqrt t, and the mean objective less
    its least value."""
    unit: Unit = {
        **NETWORK,
        "mechanisms": ["none"],
        "steps": 6,
        "step_size": 0.02,
        "degrees": 15.0,
        "clip": 3.0,
        "clipped": clipped,
        "seeds": 1,
    }
    rows = lanes.quadratics_rows(unit)
    w, _ = lanes.on_graph(unit)
    loss = whisper_quadratics(4)
    models = np.zeros((4, 2))

    def mean(model: np.ndarray) -> float:
        away = model - loss.centers
        return float(np.einsum("ja,jab,jb->", away, loss.curvatures, away) / 8)

    for t in range(1, 7):
        for node in range(4):
            gradient = loss.curvatures[node] @ (models[node] - loss.centers[node])
            if clipped:
                gradient *= min(1.0, 3.0 / np.linalg.norm(gradient))
            models[node] = models[node] - 0.02 / math.sqrt(t) * gradient
        models = w @ models
    excess = np.mean([mean(model) for model in models]) - mean(loss.minimizer)
    last = next(row for row in rows if row["step"] == 6)
    assert last["test_loss"] == pytest.approx(excess, rel=1e-10)
    assert last["epsilon"] == math.inf


def test_noise_alone_is_what_two_runs_differ_by() -> None:
    """Whole gradients of the objectives, with each unit of noise by itself and without any."""
    unit: Unit = {**NETWORK, "steps": 5, "step_size": 0.02}
    w, _ = lanes.on_graph(unit)
    loss, etas, n = whisper_quadratics(4), 0.02 / np.sqrt([1, 2, 3, 4, 5]), 4

    def last(noise: np.ndarray) -> np.ndarray:
        models = np.zeros((n, 2))
        for eta, drawn in zip(etas, noise, strict=True):
            gradients = np.einsum("jab,jb->ja", loss.curvatures, models - loss.centers)
            models = w @ (models - eta * (gradients + drawn))
        return models

    away = np.zeros((5, 2, n, 2 * n))  # of which step, which coordinate and whose noise
    for t, c, node in np.ndindex(5, 2, n):
        unit_noise = np.zeros((5, n, 2))
        unit_noise[t, node, c] = 1.0
        away[t, c, node] = (last(unit_noise) - last(np.zeros((5, n, 2)))).ravel()
    expected = np.einsum("tcik,tcjk->ij", away, away)
    np.testing.assert_allclose(lanes.workload(w, loss, etas), expected, rtol=1e-9, atol=1e-13)
    rows = lanes.quadratics_rows(
        unit | {"degrees": 15.0, "clip": 0.1, "clipped": False, "seeds": 1}
    )
    assert {(row["mu"], row["protects"]) for row in rows} == {
        (None, "nothing: gradients are not clipped")
    }
    setting = "quadratics, noise for a clip of 0.1, p = 0.7"
    assert {row["setting"] for row in rows} == {setting}
    told = {row["mechanism"]: row["distance_over_ldp"] for row in rows}
    assert told["none"] is None
    assert told["ldp"] == pytest.approx(1.0)
    assert told["cdp-n2"] == pytest.approx(expected.sum() / n**2 / np.trace(expected))
    assert 0.1 < told["whisper"] < 0.99


@pytest.mark.slow
def test_what_noise_moves_models_by_is_that_of_another_script() -> None:
    """Whisper's squared distance over that of independent noise: by a covariance recursion forward
    in time, and as a script of its own has it, on the graphs of the settings."""
    _, settings = load_settings("whisper")
    table, network = settings.quadratics, settings.network
    loss, n = whisper_quadratics(network.nodes, degrees=table.degrees), network.nodes
    curvature = np.zeros((2 * n, 2 * n))
    for k in range(n):
        curvature[2 * k : 2 * k + 2, 2 * k : 2 * k + 2] = loss.curvatures[k]
    found = []
    for p in (0.2, 0.4, 0.6, 0.8):
        w, (one,) = lanes.on_graph(
            {**network.model_dump(), "p": p, "steps": table.steps, "mechanisms": ["whisper"]}
        )
        r, mixing = lanes.covariance(w, one, table.steps), np.kron(w, np.eye(2))
        assert r is not None
        noises = [mixing @ np.kron(each, np.eye(2)) @ mixing.T for each in (r, np.eye(n))]
        now = [np.zeros((2 * n, 2 * n)) for _ in noises]
        for t in range(1, table.steps + 1):
            eta = table.step_size / math.sqrt(t)
            step = mixing @ (np.eye(2 * n) - eta * curvature)
            now = [step @ s @ step.T + eta**2 * z for s, z in zip(now, noises, strict=True)]
        found.append(float(np.trace(now[0]) / np.trace(now[1])))
    assert found == pytest.approx([0.485, 0.376, 0.253, 0.180], abs=1e-3)


@pytest.mark.usefixtures("records")
def test_the_best_step_size_is_that_of_runs_one_by_one() -> None:
    unit: Unit = {**NETWORK, **INCOMES}
    found = lanes._tuned(unit)
    _, made = lanes.on_graph(unit)
    assert len(found) == 1 + 3 * 2
    for name, epsilon, number in found:
        losses = []
        for step_size in INCOMES["step_sizes"]:
            total = 0.0
            for seed in range(2):
                task = lanes._task(unit, seed, tuning=True)
                object.__setattr__(task, "step_sizes", step_size)
                rows = run(task, *(one for one in made if one.name == name))
                of_lane = [row for row in rows if row["epsilon"] in (epsilon, None)]
                total += sum(row["test_loss"] for row in of_lane)
            losses.append(total)
        assert losses[number] == pytest.approx(min(losses), rel=1e-9), (name, epsilon)


def test_a_node_is_clipped_by_the_mean_of_its_batch() -> None:
    """Written out for two nodes with batches of three and two examples, one gradient of which is
    clipped and one is not; examples are not clipped before."""
    rng = np.random.default_rng(3)
    examples = Examples(features=rng.normal(size=(5, 2)), targets=np.array([1.0, -1, 1, 1, -1]))
    loss = lanes.OfNodes(features=2)
    places, present = np.array([[[0, 1, 2], [3, 4, 0]]]), np.array([[[1.0, 1, 1], [1, 1, 0]]])
    models = np.array([[[[0.0, 0.0]], [[3.0, -1.0]]]])
    batch = Batch(examples=examples, places=places, present=present)
    means = []
    for node, members in enumerate(([0, 1, 2], [3, 4])):
        theta = models[0, node, 0]
        gradients = [
            -b * a / (1 + math.exp(b * (a @ theta)))
            for a, b in zip(examples.features[members], examples.targets[members], strict=True)
        ]
        means.append(np.mean(gradients, axis=0))
    norms = sorted(np.linalg.norm(mean) for mean in means)
    clip = float(np.mean(norms))
    found = loss.clipped_sums(models, batch, clip=clip)[0, :, 0]
    for node, (mean, size) in enumerate(zip(means, (3, 2), strict=True)):
        scale = min(1.0, clip / np.linalg.norm(mean))
        np.testing.assert_allclose(found[node], size * scale * mean, rtol=1e-12)


@pytest.mark.usefixtures("records")
def test_noise_of_nodes_is_that_of_a_mean() -> None:
    """Sums are divided by the batch size, so that noise on them is as many times as loud."""
    unit: Unit = {**NETWORK, **INCOMES, "mechanisms": ["ldp"], "seeds": 1, "tuning_seeds": 1}
    one, whole = (
        {row["epsilon"]: row["stddev"] for row in lanes.incomes_rows(unit | kind)}
        for kind in ({}, {"protected": "node"})
    )
    for epsilon, stddev in one.items():
        assert whole[epsilon] == pytest.approx(8 * stddev, rel=1e-12)
    setting = lanes.incomes_rows(unit | {"protected": "node"})[0]["setting"]
    assert setting == "a9a by node, p = 0.7"


@pytest.mark.usefixtures("records")
def test_parts_of_the_records_do_not_overlap() -> None:
    unit: Unit = {**NETWORK, **INCOMES}
    tuning, final = (lanes._task(unit, 1, tuning=tuning) for tuning in (True, False))
    sizes = len(tuning.examples), len(tuning.test or ()), len(final.examples), len(final.test or ())
    assert sizes == (180, 60, 240, 60)
    other = lanes._task(unit, 0, tuning=False)
    assert not np.array_equal(other.examples.features, final.examples.features)


@pytest.mark.usefixtures("records")
def test_rows_of_incomes_have_every_budget_at_its_step_size() -> None:
    unit: Unit = {**NETWORK, **INCOMES}
    rows = lanes.incomes_rows(unit)
    chosen = {(name, epsilon): INCOMES["step_sizes"][k] for name, epsilon, k in lanes._tuned(unit)}
    assert {(row["mechanism"], row["epsilon"]): row["step_size"] for row in rows} == chosen
    assert len(rows) == 2 * len(chosen) * len({row["step"] for row in rows})
    for row in rows:
        assert set(row) <= set(lanes.COLUMNS)
        assert (row["mu"] is None) == (row["mechanism"] == "none")
    first = [row["train_loss"] for row in rows if row["step"] == 0]
    np.testing.assert_allclose(first, math.log(2), rtol=1e-12)  # a model of zeros


def _told(mechanism: str, epsilon: float, seed: int, loss: float | None) -> dict[str, Any]:
    return {
        "setting": "a9a, p = 0.2",
        "mechanism": mechanism,
        "epsilon": epsilon,
        "seed": seed,
        "test_loss": loss,
        "variance_over_ldp": {"none": None, "ldp": 1.0}.get(mechanism, 0.4),
    }


def _rows(ldp: list[float | None], other: list[float]) -> list[dict[str, Any]]:
    """Two seeds, whose losses without noise are 1 and 5, and two budgets."""
    lanes_of = [(1.0, 0), (2.0, 0), (1.0, 1), (2.0, 1)]
    return [
        _told("none", math.inf, 0, 1.0),
        _told("none", math.inf, 1, 5.0),
        *(_told("ldp", *lane, loss) for lane, loss in zip(lanes_of, ldp, strict=True)),
        *(_told("whisper", *lane, loss) for lane, loss in zip(lanes_of, other, strict=True)),
    ]


def test_what_is_saved_by_hand() -> None:
    """Independent noise costs 2 and 1 at the first seed, 2.2 and 1 at the second: 1.55 in the mean
    of 1.5 and 1.6, whose interval is 1.55 -+ 12.706 .05. The other costs .5 and .25 at both, and
    saves 3/4 and 49/64, whose half difference is 1/128."""
    ldp, other = saved(_rows([3.0, 2.0, 7.2, 6.0], [1.5, 1.25, 5.5, 5.25]))
    assert ldp["cost"] == pytest.approx(1.55)
    assert ldp["cost_low"] == pytest.approx(1.55 - 12.7062 * 0.05, rel=1e-5)
    assert ldp["saved"] == pytest.approx(0.0, abs=1e-12)
    assert other["cost"] == pytest.approx(0.375)
    assert other["saved"] == pytest.approx((3 / 4 + 49 / 64) / 2)
    assert other["saved_high"] - other["saved"] == pytest.approx(12.7062 / 128, rel=1e-5)
    assert other["saved_variance"] == pytest.approx(0.6)


@pytest.mark.parametrize(
    "ldp", [[1.1, 1.0, 5.0, 4.9], [3.0, None, 7.0, 6.0]], ids=["within its interval", "diverged"]
)
def test_nothing_is_saved_of_a_cost_that_is_not_known(ldp: list[float | None]) -> None:
    _, other = saved(_rows(ldp, [1.5, 1.25, 5.5, 5.25]))
    assert other["saved"] is None
    assert other["cost"] == pytest.approx(0.375)


@pytest.mark.usefixtures("records")
def test_the_whole_experiment_on_few_records() -> None:
    experiment, settings = load_settings("whisper", quick=True)
    assert experiment is named("whisper")
    values = settings.model_dump()
    values["network"] |= {"nodes": 4, "connectivities": [0.7, 1.0], "epsilons": [2.0, 8.0]}
    values["quadratics"] |= {"steps": 4, "seeds": 2}
    values["incomes"] |= {"steps": 5, "seeds": 2, "batch_size": 8, "measured": 40}
    values["incomes"] |= {"epsilons": [2.0, 8.0], "protected": {"node": [0.7, 1.0]}}
    small = experiment.read(values)
    rows = [row for unit in experiment.units(small) for row in experiment.run(unit)]
    assert {name for row in rows for name in row} == set(experiment.columns)
    found = experiment.summary(rows, small)
    assert len(found) == 2 * 3 * (1 + 4 * 2)
    assert set(SUMMARY) <= set(found[0])
    pictures = experiment.pictures(rows, found, small)
    assert {name: len(figure.axes) for name, figure in pictures.items()} == {
        "quadratics": 2,
        "quadratics-distance": 1,
        "a9a-by-node-loss": 2,
        "a9a-by-node-steps": 1,
    }
    text = experiment.paragraph(rows, found, small)
    furthest = 0.1 * 0.01 * sum(1 / math.sqrt(t) for t in (1, 2, 3, 4))
    assert f"more than {furthest:.3g}" in text
    assert "The minimum is " in text
    assert "| graph | decor | whisper |" in text
    assert re.search(r"\| p = 0.7 \| 0\.\d{3} \| 0\.\d{3} \|", text)
    assert "| a9a by node, p = 0.7 |" in text


COMMON = {
    "part": "incomes",
    "step": 5000,
    "accuracy": 0.5,
    **dict.fromkeys(("step_size", "stddev", "distance_over_ldp"), 0.1),
}


def test_seeds_that_cannot_tell_are_said_to_be_too_few() -> None:
    """Whisper below DECOR at both seeds of one budget by the same, at one of another."""
    _, settings = load_settings("whisper")
    rows = [
        _told(name, epsilon, seed, loss)
        for name, epsilon, losses in (
            ("decor", 1.0, (3.0, 4.0)),
            ("whisper", 1.0, (2.0, 3.0)),
            ("decor", 2.0, (3.0, 4.0)),
            ("whisper", 2.0, (2.0, 5.0)),
        )
        for seed, loss in enumerate(losses)
    ]
    found = summary([row | COMMON for row in rows], settings)
    told = _order("a9a", found)
    assert "Of 2 pairs of graph and budget, Whisper's loss is below DECOR's in 1 and above" in told
    assert told.endswith("in 1 the run is too short to tell.")
    assert "too short" not in _order("a9a", found[:2])
    ends = {"setting": "a9a, p = 1", "mechanism": "whisper"}
    alike = [ends | {"below_decor_low": 1e-8, "below_decor_high": 3e-8}]
    assert "is below DECOR's in 0 and above it in 0 " in _order("a9a", alike)
    assert _order("a9a", alike).endswith("; in 1 both are the same noise.")
    gain = next(row for row in found if (row["mechanism"], row["epsilon"]) == ("whisper", 2.0))
    assert gain["below_decor"] == pytest.approx(0.0)  # 1 and -1
    assert gain["below_decor_high"] == pytest.approx(12.7062, rel=1e-5)
