"""The housing experiment on four nodes and a few houses: its rows, and what theory says of them."""

from __future__ import annotations

import csv
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noisedesign.base.checks import Array, InputError
from noisedesign.privacy.accounting import epsilon_of
from noisedesign_lab.datasets import Examples
from noisedesign_lab.papers.reproduce import load_settings, mafalda
from noisedesign_lab.papers.reproduce.experiment import SUMMARY
from noisedesign_lab.papers.reproduce.run import README, ROWS, SUMMARY_FILE, reproduce

NAMES = ("none", "ldp", "antipgd", "d-mf", "mafalda", "kronecker")
TINY = """experiment = "mafalda"
description = "tiny"
epochs = 3
mus = [0.5, 4.0]
delta = 1e-6
adjacency = "zero-out"
clip = 1.0
step_size = 0.1
hidden = 3
test = 0.25
measured = 40
last = 3
seeds = 2
bound = 1e4
level = 0.75
curves = [4.0]

[tuning]
step_sizes = [0.003, 0.1, 1.0]
tuning_seeds = 2
seeds = 1

[[networks]]
name = "path"
graph = { kind = "path", nodes = 4 }
separation = 2
mechanisms = ["none", "ldp", "antipgd", "d-mf", "mafalda", "kronecker"]
drawn = true

[[networks]]
name = "servers"
graph = { kind = "peertube" }
separation = 2
mechanisms = ["none"]
optional = true

[quick]
seeds = 1
mus = [4.0]
"""


def houses() -> Examples:
    rng = np.random.default_rng(5)
    features = rng.normal(3.0, 2.0, (120, 8))
    return Examples(features=features, targets=np.abs(features[:, 0]) / 2 + 0.1)


@pytest.fixture(autouse=True)
def few_houses(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> None:
        raise InputError("graph", expected="the PeerTube graph", got="nothing")

    monkeypatch.setattr(mafalda, "california_housing", houses)
    monkeypatch.setattr("noisedesign.files.graph_tables.peertube", missing)


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(TINY)
    return path


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_rows_a_summary_and_pictures(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[int] = []
    original = mafalda.side_by_side

    def counted(task: Any, seeds: list[int], *rest: Any) -> Any:
        trained.extend(seeds)
        return original(task, seeds, *rest)

    monkeypatch.setattr(mafalda, "side_by_side", counted)
    files = reproduce(tiny, tmp_path / "out")
    names = [README, ROWS, SUMMARY_FILE, "loss-against-epsilon.svg", "loss-against-steps.svg"]
    assert [path.name for path in files] == names
    rows = table(tmp_path / "out" / ROWS)
    assert len(rows) == 2 * (1 + 5 * 2) * 3  # seeds, lanes, epochs
    assert set(mafalda.EXPERIMENT.columns) < set(rows[0])
    assert {row["step"] for row in rows} == {"2", "4", "6"}
    assert {row["last_loss"] == "" for row in rows if row["step"] != "6"} == {True}
    found = table(tmp_path / "out" / SUMMARY_FILE)
    assert tuple(found[0])[: len(SUMMARY)] == SUMMARY
    assert [row["mechanism"] for row in found] == ["none", *np.repeat(NAMES[1:], 2)]
    for row in found[1:]:
        assert float(row["epsilon"]) == epsilon_of(mu=float(row["mu"]), delta=1e-6)
    text = (tmp_path / "out" / README).read_text()
    assert "**path**" in text
    assert "Not run, since its graph is not on this machine: servers." in text
    assert trained == [0, 1]
    kept = (tmp_path / "out" / ROWS).read_bytes()
    reproduce(tiny, tmp_path / "out")
    assert trained == [0, 1]
    assert (tmp_path / "out" / ROWS).read_bytes() == kept


def ran(tiny: Path, **others: Any) -> list[dict[str, Any]]:
    """Rows of the first seed."""
    _, settings = load_settings(tiny)
    return mafalda.run(mafalda.units(settings)[0] | others)


def losses(rows: list[dict[str, Any]], name: str) -> list[float]:
    return [row["test_loss"] for row in rows if row["mechanism"] == name]


def test_without_noise_no_budget_matters(tiny: Path) -> None:
    one, other = ran(tiny), ran(tiny, mus=[0.1, 1.0, 7.0])
    assert losses(one, "none") == losses(other, "none")
    assert losses(one, "ldp") != losses(other, "ldp")[:6]
    assert {row["epsilon"] for row in one if row["mechanism"] == "none"} == {math.inf}
    # Little noise is nearly none.
    quiet = ran(tiny, mus=[1e5])
    for name in NAMES[1:]:
        np.testing.assert_allclose(losses(quiet, name), losses(one, "none"), rtol=1e-3)


def test_a_step_by_step_mean_of_the_last_losses(tiny: Path) -> None:
    rows = ran(tiny, separation=1, epochs=4, last=3)  # an epoch a step: all losses are there
    for name in NAMES:
        of_name = [row for row in rows if row["mechanism"] == name]
        for epsilon in {row["epsilon"] for row in of_name}:
            at = {row["step"]: row for row in of_name if row["epsilon"] == epsilon}
            mean = np.mean([at[step]["test_loss"] for step in (2, 3, 4)])
            np.testing.assert_allclose(at[4]["last_loss"], mean, rtol=1e-12)
            assert at[3]["last_loss"] is None


def antipgd_over_ldp(mixing: Array, epochs: int, separation: int) -> float:
    """Squared error of all iterates times squared sensitivity, over independent noise's."""
    steps, n = epochs * separation, len(mixing)
    difference = np.eye(steps) - np.eye(steps, k=-1)  # C^-1, as the noise is taken back
    strategy = np.tril(np.ones((steps, steps)))
    sensitivity = max(
        float(np.square(strategy[:, start::separation].sum(axis=1)).sum())
        for start in range(separation)
    )
    errors = []
    for noising in (difference, np.eye(steps)):
        total = 0.0
        for t in range(steps):
            for s in range(t + 1):  # what the s-th white noise is in the t-th iterate
                reach = sum(
                    noising[r, s] * np.linalg.matrix_power(mixing, t - r + 1)
                    for r in range(s, t + 1)
                )
                total += float(np.square(reach).sum())
        errors.append(total)
    assert n == len(mixing)
    return sensitivity * errors[0] / (epochs * errors[1])


def test_errors_are_ordered_as_certified(tiny: Path) -> None:
    rows = ran(tiny)
    error = {row["mechanism"]: row["error"] for row in rows}
    assert error["none"] == 0
    assert error["ldp"] == 1
    mixing = np.array([[2, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 2]]) / 3
    assert error["antipgd"] == pytest.approx(antipgd_over_ldp(mixing, 3, 2), rel=1e-9)
    tolerance = 1 + 1e-6
    assert error["mafalda"] <= tolerance * min(error[name] for name in ("ldp", "antipgd", "d-mf"))
    assert error["kronecker"] <= tolerance * error["mafalda"]


def test_every_seed_has_its_own_houses_standardised_by_those_to_train_on(tiny: Path) -> None:
    _, settings = load_settings(tiny)
    for unit in mafalda.units(settings):
        train, test = mafalda._data(unit)
        assert (len(train), len(test)) == (90, 30)
        np.testing.assert_allclose(train.features.mean(axis=0), 0, atol=1e-12)
        np.testing.assert_allclose(train.features.std(axis=0), 1, atol=1e-12)
        np.testing.assert_allclose(
            np.sort([*train.targets, *test.targets]), np.sort(houses().targets)
        )
    first, second = (mafalda._data(unit)[1].targets for unit in mafalda.units(settings))
    assert (first != second).any()


def line(mechanism: str, epsilon: float, loss: float, **others: Any) -> dict[str, Any]:
    return {
        "setting": "s",
        "mechanism": mechanism,
        "epsilon": epsilon,
        "mu": epsilon,
        "seed": 0,
        "step": 9,
        "last_loss": loss,
        "error": 1.0,
        "step_size": 0.1,
        **others,
    }


def test_gains_and_epsilons_by_hand(tiny: Path) -> None:
    _, settings = load_settings(tiny)
    rows = [
        *(line("ldp", epsilon, loss) for epsilon, loss in [(1.0, 3.0), (4.0, 0.75), (16.0, 0.5)]),
        *(line("mafalda", epsilon, loss) for epsilon, loss in [(1.0, 1.5), (4.0, 0.375)]),
        line("mafalda", 16.0, None),
        line("ldp", 1.0, 99.0, step=3),  # not the end
    ]
    found = mafalda.summary(rows, settings)
    gains = {(row["mechanism"], row["epsilon"]): row["gain"] for row in found}
    assert gains["mafalda", 1.0] == pytest.approx(50)
    assert gains["mafalda", 4.0] == pytest.approx(50)
    assert gains["mafalda", 16.0] is None
    assert gains["ldp", 1.0] == 0
    by_name = {
        name: [row for row in found if row["mechanism"] == name] for name in ("ldp", "mafalda")
    }
    assert mafalda.epsilon_for(by_name["ldp"], 0.75) == pytest.approx(4)
    assert mafalda.epsilon_for(by_name["mafalda"], 0.75) == pytest.approx(2)  # half way, in logs
    assert mafalda.epsilon_for(by_name["ldp"], 0.4) is None
    told = mafalda.paragraph(rows, found, settings)
    unsure = "too short to tell"  # a single seed has no interval
    assert f"mafalda: mean gain 50 % (50 % at 1, {unsure}, 50 % at 4, {unsure})" in told
    assert "mafalda 2 (2.00 times less)" in told


def test_gains_are_of_pairs_of_runs_of_one_seed(tiny: Path) -> None:
    """50 and 25 percent: mean 37.5, standard error 12.5, t quantile of one degree of freedom."""
    _, settings = load_settings(tiny)
    rows = [
        line(name, 1.0, loss, seed=seed)
        for name, losses_ in (("ldp", (2.0, 40.0)), ("mafalda", (1.0, 30.0)))
        for seed, loss in enumerate(losses_)
    ]
    _, found = mafalda.summary(rows, settings)
    assert found["gain"] == pytest.approx(37.5)
    assert found["gain_high"] == pytest.approx(37.5 + 12.706205 * 12.5, rel=1e-6)
    assert found["gain_low"] == pytest.approx(37.5 - 12.706205 * 12.5, rel=1e-6)


def test_what_noise_costs_is_its_excess(tiny: Path) -> None:
    """Losses 3 and 2 beside 1 without noise: 2, and 1, half of it."""
    _, settings = load_settings(tiny)
    losses = {"ldp": 3.0, "mafalda": 2.0}
    rows = [line("none", math.inf, 1.0), *(line(name, 1.0, loss) for name, loss in losses.items())]
    told = {row["mechanism"]: row for row in mafalda.summary(rows, settings)}
    assert (told["ldp"]["excess"], told["ldp"]["excess_over_ldp"]) == (2.0, 1.0)
    assert (told["mafalda"]["excess"], told["mafalda"]["excess_over_ldp"]) == (1.0, 0.5)
    assert (told["none"]["excess"], told["none"]["excess_over_ldp"]) == (0.0, None)
    (alone,) = mafalda.summary(rows[1:2], settings)
    assert alone["excess"] is alone["excess_over_ldp"] is None


def test_the_shipped_settings() -> None:
    _, settings = load_settings("mafalda")
    assert isinstance(settings, mafalda.MafaldaSettings)
    assert [network.name for network in settings.networks if network.tuned] == [
        f"{graph}, b = 16, {weights}"
        for graph, weights in (
            ("Ego", "row-normalized"),
            ("Florentine", "Metropolis"),
            ("Florentine", "row-normalized"),
            ("Ego", "Metropolis"),
        )
    ]
    assert {(network.separation, settings.epochs) for network in settings.networks} == {
        (16, 20),
        (19, 20),
    }
    assert (settings.seeds, settings.delta, settings.clip, settings.step_size) == (20, 1e-6, 1, 0.1)
    assert settings.tuning.step_sizes == sorted(settings.tuning.step_sizes)
    assert any(network.optional for network in settings.networks)
    _, quick = load_settings("mafalda", quick=True)
    assert len(mafalda.units(quick)) < 10


def test_a_step_is_tuned_for_every_mechanism_and_budget_on_other_seeds(tiny: Path) -> None:
    """Runs at one step size each, over the steps that tuning looks at, say which is best."""
    tiny.write_text(TINY.replace("drawn = true", "drawn = true\ntuned = true"))
    _, settings = load_settings(tiny)
    *fixed, unit = mafalda.units(settings)
    assert [one["seed"] for one in fixed] == [0, 1]
    rows = mafalda.run(unit)
    assert {row["setting"] for row in rows} == {"path, tuned steps"}
    assert {row["setting"] for row in mafalda.run(fixed[0])} == {"path"}
    losses: dict[Any, dict[float, float]] = {}
    for size in unit["step_sizes"]:
        for seed in (mafalda.TUNING, mafalda.TUNING + 1):
            alone = {**fixed[0], "step_sizes": [size], "seed": seed}
            for row in mafalda.run(alone):
                if row["step"] == 6:  # the last of 6 steps, of which 4 to 6 are looked at
                    of = losses.setdefault((row["mechanism"], row["epsilon"]), {})
                    of[size] = of.get(size, 0.0) + row["last_loss"]
    for row in rows:
        of = losses[row["mechanism"], row["epsilon"]]
        assert of[row["step_size"]] <= min(of.values()) * (1 + 1e-9)
    assert len({row["step_size"] for row in rows}) > 1
    told = mafalda.paragraph(rows, mafalda.summary(rows, settings), settings)
    assert re.search(r"Steps from [\d.]+ to [\d.]+, \d+ of 11 at an end of the range", told)


def test_an_unknown_mechanism_names_the_known_ones(tiny: Path) -> None:
    tiny.write_text(TINY.replace('"d-mf"', '"d-mff"'))
    with pytest.raises(InputError, match="^mechanisms: expected one of none, ldp.*d-mff"):
        reproduce(tiny, tiny.parent / "out")
