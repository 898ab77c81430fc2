"""The experiment on the loss of the last models: losses known by hand, best steps, paired costs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from noisedesign.base.checks import Array, InputError
from noisedesign.system.graph import build_graph, mixing_matrix
from noisedesign.system.participation import FixedEpoch
from noisedesign_lab.datasets import Examples
from noisedesign_lab.papers.reproduce import load_settings, loss
from noisedesign_lab.papers.reproduce.experiment import SUMMARY
from noisedesign_lab.papers.reproduce.loss import LEAST_NOISE, PLAIN, Key
from noisedesign_lab.training.losses import LeastSquares
from noisedesign_lab.training.trainer import train

RNG = np.random.default_rng(5)
PATH = (("kind", "path"), ("nodes", 3))


def _records(count: int) -> Examples:
    features = RNG.normal(size=(count, 2)) / 3
    return Examples(features=features, targets=features @ [1.0, -1.0])


DATA = loss.Data(_records(60), _records(50), LeastSquares(features=2))
UNIT: dict[str, Any] = {
    "graph": dict(PATH),
    "name": "a9a",
    "mu": 1.0,
    "label": "",
    "optimizer": "sgd",
    "whose": "nodes",
    "mechanisms": ["none", "ldp", "mafalda", "loss", "loss-capped", "loss-mixed"],
    "least_noise": ["mafalda", "kronecker-loss"],
    "steps": 8,
    "batch_size": 5,
    "clip": 1.0,
    "measured": 50,
    "tuning_seeds": 2,
    "seeds": 3,
    "curvature": [0.05, 0.1],
    "step_sizes": [0.5, 2.0],
}


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adamw"])
def test_rows_of_a_unit(monkeypatch: pytest.MonkeyPatch, optimizer: str) -> None:
    monkeypatch.setattr(loss, "data_of", lambda name: DATA)
    rows = loss.run(UNIT | {"optimizer": optimizer, "label": optimizer})
    assert [set(row) for row in rows] == [set(loss.COLUMNS)] * len(rows)
    assert len(rows) == 8 * 2 * 3
    assert {row["setting"] for row in rows} == {f"path 3, a9a, {optimizer}"}
    falling = {row["step_size"] for row in rows if row["mechanism"].endswith("falling")}
    constant = {row["step_size"] for row in rows if not row["mechanism"].endswith("falling")}
    assert constant <= {0.5, 2.0}
    assert falling <= {1.0, 4.0}
    _, settings = load_settings("loss", quick=True)
    (first, *_) = loss.summary(rows, settings)
    assert tuple(first)[: len(SUMMARY)] == SUMMARY
    assert "kronecker-loss, least noise, falling" in loss.paragraph(rows, [], settings)


def test_the_step_that_was_best_on_other_seeds_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer steps down a quadratic without noise are better, up to 1 over its curvature."""
    monkeypatch.setattr(loss, "data_of", lambda name: DATA)
    unit = UNIT | {"mechanisms": ["none"], "least_noise": [], "step_sizes": [0.1, 1.0, 4.0]}
    rows = loss.run(unit)
    assert {(row["mechanism"], row["step_size"]) for row in rows} == {
        ("none", 4.0),
        ("none, falling", 8.0),
    }


def test_without_noise_the_loss_is_that_of_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records (1, 1) have (1 - theta)^2 / 2, and a step leaves 1 - eta of 1 - theta."""
    ones = Examples(features=np.ones((60, 1)), targets=np.ones(60))
    monkeypatch.setattr(loss, "data_of", lambda _: loss.Data(ones, ones, LeastSquares(features=1)))
    unit = UNIT | {"mechanisms": ["none"], "least_noise": [], "step_sizes": [0.3]}
    found = {row["mechanism"]: row["test_loss"] for row in loss.run(unit)}
    steps = np.arange(8)  # two epochs of four batches of five, at three nodes of 20 records
    left = {"none": 0.7**8, "none, falling": np.prod(1 - 0.6 * (1 - steps / 8))}
    assert found == {name: pytest.approx(one**2 / 2, rel=1e-9) for name, one in left.items()}


DIMENSION, CURVATURE, RATE = 2000, 0.5, 0.8


@pytest.mark.parametrize("whose", ["nodes", "mean"])
def test_loss_of_a_quadratic_is_that_of_its_covariance(
    monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    """All loss of CURVATURE |theta|^2 / 2 from its minimum is noise, by a recursion by hand."""
    zeros = Examples(features=np.zeros((60, DIMENSION)), targets=np.zeros(60))
    square = LeastSquares(features=DIMENSION, regularization=CURVATURE)
    monkeypatch.setattr(loss, "data_of", lambda _: loss.Data(zeros, zeros, square))
    unit = UNIT | {
        "whose": whose,
        "mechanisms": ["ldp", "mafalda", "loss-capped", "edge-local-loss", "kronecker-loss"],
        "curvature": [CURVATURE],
        "step_sizes": [RATE],
        "clip": 1e3,  # of no gradient on the way
        "mu": 3e3,
        "tuning_seeds": 1,
    }
    rows = loss.run(unit)
    scheme = FixedEpoch(epochs=2, separation=4)
    for key in loss._keys(unit):
        made = loss._made_for(key, unit, scheme)
        noise = made.design.noise if made.design else None
        r = np.eye(3) if noise is None or noise.space is None else noise.covariance
        g = np.eye(8) if noise is None else np.linalg.inv(noise.strategy.dense())
        assert made.design is not None or key.name == "ldp"
        stddev = 2 * np.sqrt(2 if key.name == "ldp" else made.sensitivity_squared) / 3 / 5
        models = _last_models(key, unit, np.kron(g @ g.T, r)) * stddev**2  # sums of five
        of = np.trace(models) / 3 if whose == "nodes" else models.sum() / 9
        found = [row["test_loss"] for row in rows if row["mechanism"] == key.told]
        # A mean of at least 3 x 2000 squares: 1.8 % of standard error, here 4 of them.
        assert np.mean(found) == pytest.approx(CURVATURE / 2 * DIMENSION * of, rel=0.075), key


def _last_models(key: Key, unit: dict[str, Any], covariance: Array) -> Array:
    """Covariance (n, n) of the models after T steps of noise of this covariance, time-major."""
    w = loss._mixing(tuple(unit["graph"].items()), key.weights)
    rates = key.rate * (1 - np.arange(8) / 8 if key.falling else np.ones(8))
    weights = np.zeros((3, 0))
    for rate in rates:
        weights = w @ np.hstack([(1 - rate * CURVATURE) * weights, rate * np.eye(3)])
    return np.asarray(weights @ covariance @ weights.T)


def test_lanes_run_under_the_mixing_that_they_are_named_after(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lanes: dict[bytes, int] = {}

    def counted(run: Any, given: Any, **how: Any) -> Any:
        w = run.gossip.mixing.tobytes()
        lanes[w] = max(lanes.get(w, 0), len(given))
        return train(run, given, **how)

    monkeypatch.setattr(loss, "data_of", lambda name: DATA)
    monkeypatch.setattr(loss, "train", counted)
    loss.run(UNIT | {"mechanisms": ["none", "ldp", "mafalda"], "least_noise": ["mafalda"]})
    path = build_graph("path", nodes=3)
    by_hand = {"metropolis-hastings": 3 * 2 * 2, "least-noise": 1 * 2 * 2}  # kinds of step, sizes
    assert lanes == {
        mixing_matrix(path, weights=weights).tobytes(): count for weights, count in by_hand.items()
    }


@pytest.mark.parametrize("falling", [False, True])
def test_designs_are_for_the_loss_of_their_steps(falling: bool) -> None:
    """The objective is the loss that a recursion by hand has of the design's own noise."""
    scheme = FixedEpoch(epochs=2, separation=4)
    key = Key("loss", PLAIN, falling, RATE)
    design = loss._made(key, PATH, scheme, (CURVATURE,)).design
    assert design is not None
    g = design.noising_matrix
    models = _last_models(key, {"graph": dict(PATH)}, np.kron(g @ g.T, np.eye(3)))
    assert design.objective == pytest.approx(CURVATURE / 2 * np.trace(models) / 3, rel=1e-9)


def test_noise_has_the_standard_deviation_of_its_budget() -> None:
    """Two epochs of four steps of independent noise, a record replaced: 2 sqrt(2) clip / mu."""
    scheme, budget = FixedEpoch(epochs=2, separation=4), {"clip": 0.5, "mu": 0.3}
    found = loss._stddev(loss._catalogued("ldp", PATH, PLAIN, scheme), budget)
    assert found == pytest.approx(2 * np.sqrt(2) * 0.5 / 0.3, rel=1e-12)
    made = {
        Key(name, weights, True, 1.0): loss._made(
            Key(name, weights, True, 1.0), PATH, scheme, (0.05, 0.1)
        )
        for name in ("loss", "loss-capped", "loss-mixed", "kronecker-loss", "edge-local-loss")
        for weights in (PLAIN, LEAST_NOISE)
    }
    for key, one in made.items():  # of unit sensitivity
        assert loss._stddev(one, budget) == pytest.approx(2 * 0.5 / 0.3, rel=1e-9)
        design = one.design
        assert design is not None
        w = mixing_matrix(build_graph("path", nodes=3), weights=key.weights)
        np.testing.assert_array_equal(design.problem.mixing, w)
        if key.name == "loss-capped":
            assert np.square(design.noising_matrix).sum(axis=1).max() <= 4 * 2 * (1 + 1e-9)
        if key.name == "edge-local-loss":  # nodes 0 and 2 share no seed
            assert design.covariance[0, 2] == 0 != design.covariance[0, 1]
        if key.name in ("kronecker-loss", "edge-local-loss"):
            assert np.diagonal(design.covariance).max() <= 4 * (1 + 1e-9)


def test_steps_that_fall() -> None:
    np.testing.assert_allclose(loss.steps_of(4, falling=True), [1, 0.75, 0.5, 0.25])
    np.testing.assert_array_equal(loss.steps_of(4, falling=False), np.ones(4))


def test_shares_of_a_mixture_are_over_independent_noise() -> None:
    """The loss has 1, all iterates a fifth, of what noise of variance k at each step has."""
    scheme, w = FixedEpoch(epochs=2, separation=4), mixing_matrix(build_graph("path", nodes=3))
    key = Key("loss-mixed", PLAIN, False, RATE)
    design = loss._made(key, PATH, scheme, (CURVATURE,)).design
    assert design is not None
    last, every = np.zeros((8, 8)), np.zeros((8, 8))
    for t in range(8):
        for s in range(t + 1):
            for u in range(t + 1):
                kept = (1 - RATE * CURVATURE) ** (2 * t - s - u)
                gram = RATE**2 * kept * np.trace(np.linalg.matrix_power(w, 2 * t + 2 - s - u))
                every[s, u] += gram
                last[s, u] += gram * (t == 7)
    mixed = last / np.trace(last) + 0.2 * every / np.trace(every)
    problem: Any = design.problem
    np.testing.assert_allclose(problem.gram, mixed, rtol=1e-9)


def _rows(**losses: list[float]) -> list[dict[str, Any]]:
    names = {"free": "none", "free_falling": "none, falling", "mafalda_falling": "mafalda, falling"}
    shared = {"setting": "ring 4, a9a", "variant": "", "mu": 1.0, "epsilon": 1.0, "step_size": 2.0}
    return [
        shared | {"mechanism": names.get(name, name), "seed": seed, "test_loss": value}
        for name, values in losses.items()
        for seed, value in enumerate(values)
    ]


def test_costs_are_over_the_better_kind_of_step_without_noise() -> None:
    rows = _rows(
        free=[1.0, 1.0],
        free_falling=[0.9, 1.0],
        ldp=[1.9, 2.0],
        mafalda=[1.3, 1.6],
        mafalda_falling=[1.1, 1.2],
    )
    found = {row["mechanism"]: row for row in loss.costs(rows)}
    assert list(found) == ["ldp", "mafalda", "mafalda, falling"]
    assert found["ldp"]["cost"] == pytest.approx(1.0)
    assert found["ldp"]["cost_alike"] == pytest.approx(0.95)
    assert found["mafalda"]["cost"] == pytest.approx(0.5)  # (.4 + .6) / 2, seed by seed
    half = 12.706204736432095 * 0.1  # t of one degree of freedom, times |.6 - .4| / 2
    assert found["mafalda"]["cost_high"] == pytest.approx(0.5 + half)
    fell = found["mafalda, falling"]
    assert fell["over_mafalda"] == pytest.approx(0.4)
    assert fell["over_mafalda_alike"] == pytest.approx(1.0)
    assert fell["over_ldp"] == pytest.approx(0.2)
    assert fell["cost_alike"] == pytest.approx(0.2)  # over .95, as it falls, too
    assert fell["over_ldp_alike"] is None  # which was not run with falling steps


def test_levers_are_medians_over_settings() -> None:
    rows: list[dict[str, Any]] = []
    for mu, cost in ((1.0, 0.1), (0.5, 0.3), (0.3, 0.4)):
        here = _rows(free=[1.0] * 2, ldp=[2.0] * 2, mafalda=[1.5] * 2, loss=[1 + cost] * 2)
        rows += [row | {"mu": mu, "epsilon": mu} for row in here]
    line = {row["mechanism"]: row for row in loss.levers(loss.costs(rows))}["loss"]
    assert line["settings"] == 3
    ends = [line["over_mafalda" + end] for end in ("_least", "", "_most")]
    assert ends == pytest.approx([0.2, 0.6, 0.8])
    assert line["over_ldp"] == pytest.approx(0.3)


def test_pictures_show_ratios() -> None:
    rows = _rows(free=[1.0, 1.0], ldp=[2.0, 2.0], mafalda=[1.5, 1.5], mafalda_falling=[1.1, 1.1])
    table = loss.costs(rows + [row | {"mu": 0.3, "epsilon": 0.3} for row in rows])
    axes = loss.draw(table).axes
    assert [place.get_title() for place in axes] == ["mu = 1", "mu = 0.3"]
    shown = {
        line.get_label(): line[0].get_xdata()[0]
        for line in axes[0].containers
        if len(line[0].get_xdata())
    }
    assert shown == {
        "ldp": pytest.approx(2.0),
        "mafalda": pytest.approx(1.0),
        "mafalda, falling": pytest.approx(0.2),
    }
    (place,) = loss.draw_levers(table).axes
    bars = {
        t.get_text(): bar.get_width()
        for t, bar in zip(place.get_yticklabels(), place.patches, strict=True)
    }
    assert bars == shown


def test_units_of_the_settings() -> None:
    """All settings; two graphs of each optimizer; three of the mean model and of pairwise seeds."""
    _, settings = load_settings("loss")
    units = loss.units(settings)
    assert len(units) == 12 + 2 * 8 + 3 + 3
    plain = [unit for unit in units if not unit["label"]]
    assert {(unit["mu"], unit["name"]) for unit in plain} == {
        (mu, name) for mu in (1.0, 0.3) for name in ("a9a", "california-housing")
    }
    assert [unit["optimizer"] for unit in units[12:28]] == ["momentum"] * 8 + ["adamw"] * 8
    houses, incomes = settings.model_dump()["training"]["data"]
    for unit in units:
        data = {"california-housing": houses, "a9a": incomes}[unit["name"]]
        sizes = "adaptive_step_sizes" if unit["optimizer"] == "adamw" else "step_sizes"
        assert unit["step_sizes"] == data[sizes]
    assert [unit["whose"] for unit in units] == ["nodes"] * 28 + ["mean"] * 3 + ["nodes"] * 3
    assert units[0].keys() == units[-1].keys()


def test_unknown_mechanisms_are_refused_by_name() -> None:
    """They are not taken for a design for the loss."""
    _, settings = load_settings("loss")
    values = settings.model_dump()
    values["training"]["least_noise"] = ["kronecker-losses"]
    with pytest.raises(InputError, match=r"training.least_noise.*kronecker-loss"):
        loss.EXPERIMENT.read(values)
