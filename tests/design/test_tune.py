"""Learning rates tuned with their noise: by hand, by a fine grid of other code, and in files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import noisedesign as nd
from noisedesign.base.checks import InputError
from noisedesign.design.tune import objective_of, with_rate

TARGET = nd.PrivacyTarget(epsilon=2.0, delta=1e-6)
PAIR = nd.build_graph("complete", nodes=2)
PATH = nd.build_graph("path", nodes=3)


def in_time(graph: Any, horizon: int, **how: Any) -> nd.TimeProblem:
    error = nd.ErrorMeasure(horizon=horizon, of="loss", **how)
    return nd.TimeProblem.from_graph(
        graph, participation=nd.participation.single(horizon), error=error, privacy=TARGET
    )


def test_one_step_by_hand() -> None:
    """x = (1 - eta) d - eta s z, z of variance 1/2 after two nodes average: eta = d^2 / (d^2 +
    s^2 / 2), and the loss is d^2 (s^2 / 2) / (d^2 + s^2 / 2) / 2."""
    problem = in_time(PAIR, 1, curvature=[1.0])
    noise = (nd.calibrate(problem).noise_stddev / 8) ** 2 / 2
    tuned = nd.tune_learning_rate(problem, start=3.0, batch_size=8)
    assert tuned.learning_rate == pytest.approx(3 / (3 + noise), rel=2e-3)
    assert tuned.loss == pytest.approx(3 * noise / (3 + noise) / 2, rel=1e-5)
    assert tuned.of_start == pytest.approx((1 - tuned.learning_rate) ** 2 * 3 / 2, rel=1e-9)


@pytest.mark.parametrize("momentum", [0.0, 0.5])
@pytest.mark.parametrize("axes", ["time", "space"])
def test_the_best_of_a_fine_grid(axes: str, momentum: float) -> None:
    """Losses of the start run step by step, those of noise solved at every rate."""
    error = {"curvature": [0.1, 1.0], "curvature_weights": [2.0, 1.0], "momentum": momentum}
    problem: Any = in_time(PATH, 5, **error)
    if axes == "space":
        problem = nd.SpaceProblem.from_graph(
            PATH, participation=nd.participation.single(5), error=problem.error, privacy=TARGET
        )
    tuned = nd.tune_learning_rate(problem, start=[1.0, 0.5], batch_size=64)
    scale = nd.calibrate(problem).noise_stddev / 64

    def loss(rate: float) -> float:
        total = 0.0
        for count, curvature, squared in ((2, 0.1, 1.0), (1, 1.0, 0.5)):
            x, m = 1.0, 0.0
            for _ in range(5):
                m = momentum * m + curvature * x
                x -= rate * m
            total += count * curvature / 2 * x**2 * squared
        design = nd.solve(with_rate(problem, rate)).design
        assert design is not None
        return total + scale**2 * design.objective

    grid = np.geomspace(tuned.learning_rate / 1.5, min(tuned.learning_rate * 1.3, 1.99), 25)
    assert tuned.loss == pytest.approx(loss(tuned.learning_rate), rel=1e-5)
    assert tuned.loss <= min(map(loss, grid)) * (1 + 1e-5)
    assert tuned.losses.min() == tuned.loss


def test_derivatives_are_those_of_the_optimum() -> None:
    """The envelope theorem: the slope of one design's error is that of the optimum, by solves."""
    problem = in_time(PATH, 4, curvature=[0.2, 0.9])
    step = 1e-3

    def optimum(rate: float) -> nd.Design:
        design = nd.solve(with_rate(problem, rate), gap=1e-9).design
        assert design is not None
        return design

    low, here, high = (optimum(0.7 * (1 + s)) for s in (-step, 0.0, step))
    fixed = [objective_of(with_rate(problem, 0.7 * (1 + s)), here.noise) for s in (-step, step)]
    assert fixed[1] - fixed[0] == pytest.approx(high.objective - low.objective, rel=1e-4)


def test_a_schedule_is_scaled() -> None:
    falling = np.array([1.0, 0.5, 0.25])
    problem = in_time(PATH, 3, curvature=[0.5], learning_rates=falling)
    tuned = nd.tune_learning_rate(problem, start=1.0, batch_size=32, between=(0.1, 3.9))
    error = tuned.problem.error
    assert isinstance(error, nd.ErrorMeasure)
    np.testing.assert_allclose(error.rates, tuned.learning_rate * falling, rtol=1e-14)
    assert 0.1 <= tuned.rates.min() <= tuned.rates.max() <= 3.9


FILE = """
name = "tuned"
design = "time"
[graph]
kind = "path"
nodes = 3
[workload]
kind = "decentralized"
[participation]
kind = "single"
horizon = 4
[privacy]
epsilon = 2.0
[error]
of = "loss"
curvature = [0.1, 1.0]
tune = "learning-rate"
start = 2.0
batch_size = 64.0
"""


def test_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "tuned.toml"
    path.write_text(FILE)
    loaded = nd.load(path)
    expected = nd.tune_learning_rate(
        in_time(PATH, 4, curvature=[0.1, 1.0]), start=2.0, batch_size=64
    )
    error = loaded.problem.error
    assert isinstance(error, nd.ErrorMeasure)
    np.testing.assert_allclose(error.rates, expected.learning_rate, rtol=1e-6)
    assert "not clipped" in loaded.remark
    assert "learning-rate" not in loaded.text
    # The design stores the text with its rate, and is what that text says.
    design = nd.solve(loaded.problem).design
    assert design is not None
    nd.save(design, tmp_path / "design.npz", problem_text=loaded.text)
    assert nd.verify(nd.load(tmp_path / "design.npz")).ok


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ('tune = "learning-rate"\n', "", "error.start"),
        ("start = 2.0\n", "", "error.start"),
        ("start = 2.0", "start = [1.0, 2.0, 3.0]", "error.start"),
        ("batch_size = 64.0", "batch_size = -1.0", "error.batch_size"),
        ('tune = "learning-rate"', 'tune = "momentum"', "error.tune"),
        ('of = "loss"', 'of = "last-iterate"', "error.of"),
        ("[privacy]\nepsilon = 2.0\n", "", "privacy"),
    ],
)
def test_bad_files_are_named(old: str, new: str, field: str, tmp_path: Path) -> None:
    path = tmp_path / "tuned.toml"
    path.write_text(FILE.replace(old, new))
    with pytest.raises(InputError) as caught:
        nd.load(path)
    assert caught.value.field == field


@pytest.mark.parametrize("between", [(1.0,), (2.0, 1.0), (0.1, 5.0), (0.0, 1.0), 3.0])
def test_bad_ranges_are_named(between: Any) -> None:
    with pytest.raises(InputError) as caught:
        nd.tune_learning_rate(in_time(PATH, 2, curvature=[0.5]), start=1.0, between=between)
    assert caught.value.field == "between"


def test_a_stated_rate_is_only_where_the_search_begins(tmp_path: Path) -> None:
    """What is found is a factor on it, and what is stored their product."""
    stated = FILE.replace('tune = "learning-rate"', 'learning_rate = 0.5\ntune = "learning-rate"')
    rates = []
    for name, text in (("plain", FILE), ("stated", stated)):
        path = tmp_path / f"{name}.toml"
        path.write_text(text)
        error = nd.load(path).problem.error
        assert isinstance(error, nd.ErrorMeasure)
        rates.append(error.rates)
    np.testing.assert_allclose(rates[1], rates[0], rtol=1e-3)
