"""A training task into a table: whole, resumed, in one process or two, and what is refused."""

from __future__ import annotations

import csv
import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import noisedesign as nd
from noisedesign.base.checks import InputError
from noisedesign_lab.tasks import mechanisms as catalogue, table as tables
from noisedesign_lab.tasks.table import train
from noisedesign_lab.tasks.training_file import parse_training
from noisedesign_lab.tasks.training_task import COLUMNS, TrainingTask, run
from noisedesign_lab.training.losses import Quadratic
from noisedesign_lab.training.noise import NodeNoise
from tests.support.clusters import threads as threads
from tests.support.command_line import MODULE, call, environment, write
from tests.support.training_noise import linear_task

TEXT = """
name = "small"
mechanisms = ["none", "ldp", "muffliato-2"]
seeds = 3
[graph]
kind = "ring"
nodes = 4
[participation]
epochs = 2
separation = 3
[data]
kind = "gaussian"
records = 40
features = 2
[loss]
kind = "quadratic"
[training]
record_every = 2
[privacy]
epsilons = [1.0, 4.0]
"""
ROWS = (1 + 2 + 2) * 3 * 4
"""Mechanisms and budgets, seeds, recorded steps 0, 2, 4 and 6."""


def task(**replaced: str) -> TrainingTask:
    """The task of TEXT with some lines of it in other words."""
    text = TEXT
    for key, line in replaced.items():
        before = next(one for one in TEXT.splitlines() if one.startswith(f"{key} ="))
        text = text.replace(before, line)
    return parse_training(text, folder=".")


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def cells(rows: list[dict[str, Any]]) -> list[list[Any]]:
    return [[row[name] for name in COLUMNS] for row in rows]


def test_every_row_is_there_once_and_in_order(tmp_path: Path) -> None:
    found = train(task(), output=tmp_path / "rows.csv")
    assert len(found.rows) == ROWS
    assert list(found.rows[0]) == list(COLUMNS)
    places = [(row["mechanism"], row["epsilon"], row["seed"], row["step"]) for row in found.rows]
    budgets = {"none": [None], "ldp": [1.0, 4.0], "muffliato-2": [1.0, 4.0]}
    assert places == [
        (mechanism, epsilon, seed, step)
        for mechanism, given in budgets.items()
        for epsilon in given
        for seed in range(3)
        for step in (0, 2, 4, 6)
    ]
    stored = read(tmp_path / "rows.csv")
    assert len({row["key"] for row in stored}) == ROWS
    by_place = {(row["mechanism"], row["epsilon"], row["seed"], row["step"]): row for row in stored}
    for row in found.rows:
        at = tuple(
            "" if row[name] is None else str(row[name])
            for name in ("mechanism", "epsilon", "seed", "step")
        )
        for name in COLUMNS:
            assert by_place[at][name] == ("" if row[name] is None else str(row[name]))


def test_rows_are_those_without_a_table_and_those_of_run(tmp_path: Path) -> None:
    alone = train(task())
    assert cells(alone.rows) == cells(train(task(), output=tmp_path / "rows.csv").rows)
    by_place = {
        (row["mechanism"], row["epsilon"], row["seed"], row["step"]): row for row in run(task())
    }
    for row in alone.rows:
        assert row == by_place[row["mechanism"], row["epsilon"], row["seed"], row["step"]]


def test_lanes_that_do_not_fit_together_are_run_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = train(task()).rows
    monkeypatch.setattr("noisedesign_lab.tasks.training_task.LANE_FLOATS", 2 * 4 * 2)
    for row, same in zip(train(task()).rows, expected, strict=True):
        for name, cell in row.items():
            known = name not in ("train_loss", "test_loss", "consensus_distance")
            assert cell == (same[name] if known else pytest.approx(same[name], rel=1e-9, abs=1e-15))


def test_the_result_is_a_table_of_means_over_seeds() -> None:
    found = train(task())
    assert [(one.mechanism, one.epsilon) for one in found] == [
        *(("none", None), ("ldp", 1.0), ("ldp", 4.0)),
        *(("muffliato-2", 1.0), ("muffliato-2", 4.0)),
    ]
    for one in found:
        last = [
            row["test_loss"]
            for row in found.rows
            if (row["mechanism"], row["epsilon"], row["step"]) == (one.mechanism, one.epsilon, 6)
        ]
        assert one.seeds == len(last) == 3
        assert one.test_loss == pytest.approx(np.mean(last), rel=1e-12)
    lines = repr(found).splitlines()
    assert len(lines) == 6
    assert lines[0].split()[:3] == ["epsilon", "mu", "stddev"]
    assert lines[2].startswith("ldp")


# --- what is there is not run again ---------------------------------------------------------------


@pytest.fixture
def units(monkeypatch: pytest.MonkeyPatch) -> list[tuple[tuple[str, ...], tuple[int, ...]]]:
    """Mechanisms and seeds of the units that are run."""
    seen: list[tuple[tuple[str, ...], tuple[int, ...]]] = []
    original = tables.rows_of

    def watched(of: Any, unit: Any) -> Any:
        seen.append(unit)
        return original(of, unit)

    monkeypatch.setattr(tables, "rows_of", watched)
    return seen


def test_only_what_is_missing_is_run(
    tmp_path: Path, units: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "rows.csv"
    first = train(task(), output=output)
    assert first.skipped == 0
    assert units == [(("none", "ldp", "muffliato-2"), (0, 1, 2))]
    again = train(task(), output=output)
    assert again.skipped == ROWS
    assert cells(again.rows) == cells(first.rows)
    assert len(units) == 1
    designed = task(mechanisms='mechanisms = ["none", "mafalda"]')
    train(designed, output=output)
    with monkeypatch.context() as patch:  # nothing is missing, so that nothing is designed
        patch.delattr("noisedesign_lab.tasks.mechanisms.mechanism")
        assert train(replace(designed), output=output).skipped == 3 * 3 * 4
    more = train(
        task(mechanisms='mechanisms = ["none", "cdp-n2", "ldp"]', seeds="seeds = 4"), output=output
    )
    assert units[1:] == [(("mafalda",), (0, 1, 2)), (("none", "cdp-n2", "ldp"), (0, 1, 2, 3))]
    assert more.skipped == 3 * 3 * 4
    there = ROWS + 2 * 3 * 4 + 2 * 3 * 4 + 5 * 4
    assert len(read(output)) == there
    train(task(record_every="record_every = 1"), output=output)
    assert len(read(output)) == there + 5 * 3 * 3
    same = {(row["mechanism"], row["epsilon"], row["seed"], row["step"]): row for row in more.rows}
    for row in first.rows:
        if (at := (row["mechanism"], row["epsilon"], row["seed"], row["step"])) in same:
            assert row == same[at]


def test_other_settings_are_other_rows(tmp_path: Path) -> None:
    output = tmp_path / "rows.csv"
    train(task(), output=output)
    for key, line in {
        "features": "features = 3",
        "nodes": "nodes = 5",
        "epsilons": "epsilons = [2.0]",
    }.items():
        assert train(task(**{key: line}), output=output).skipped in (0, 3 * 4)
    assert train(task(name='name = "other words"'), output=output).skipped == ROWS
    loud = train(task(epsilons="epsilons = [1.0]\ndelta = 1e-3"), output=output)
    assert loud.skipped == 0


@pytest.mark.parametrize(
    "other",
    [
        {"clip": 2.0},
        {"delta": 1e-3},
        {"adjacency": "zero-out"},
        {"step_sizes": 0.2},
        {"batch_size": 3},
        {"rounds": 2},
        {"measured": 5},
        {"bound": 10.0},
        {"loss": Quadratic(dimension=2, curvature=0.5)},
        {"mixing": np.roll(np.eye(4), 1, axis=0) / 2 + np.eye(4) / 2},
    ],
    ids=lambda other: next(iter(other)),
)
def test_a_task_with_other_arguments_has_other_rows(tmp_path: Path, other: dict[str, Any]) -> None:
    """They are not taken for it even where its identity was kept."""
    given = replace(task(), mechanisms=("none", "ldp"), seeds=1, record=[6])
    train(given, output=tmp_path / "rows.csv")
    assert train(replace(given), output=tmp_path / "rows.csv").skipped == 3
    assert train(replace(given, **other), output=tmp_path / "rows.csv").skipped == 0


def test_data_that_changed_under_the_same_name_are_other_data(tmp_path: Path) -> None:
    text = TEXT.replace(
        'kind = "gaussian"\nrecords = 40\nfeatures = 2', 'kind = "npy"\nfile = "x.npy"'
    )
    table, output = np.random.default_rng(1).standard_normal((40, 3)), tmp_path / "rows.csv"
    for change, skipped in ((0.0, 0), (0.0, ROWS), (0.1, 0)):
        table[7, 1] += change
        np.save(tmp_path / "x.npy", table)
        assert train(parse_training(text, folder=tmp_path), output=output).skipped == skipped


def test_noise_of_ones_own_is_known_by_more_than_its_name(tmp_path: Path) -> None:
    given = replace(task(), mechanisms=("ldp",), seeds=1)
    own = replace(given.named("ldp"), name="mine")
    other = replace(own, source=NodeNoise(noising=2 * np.eye(given.participation.horizon)))
    louder = replace(own, sensitivity_squared=9.0)
    for noise, skipped in ((own, 0), (own, 8), (louder, 0), (other, 0), (other, 8)):
        again = replace(given, mechanisms=(noise,))
        assert train(again, output=tmp_path / "rows.csv").skipped == skipped


def test_an_interrupted_run_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, units: list[Any]
) -> None:
    monkeypatch.setattr("noisedesign_lab.tasks.training_task.MOST_SEEDS", 1)
    output = tmp_path / "rows.csv"

    def stop(done: int, total: int) -> None:
        assert total == ROWS
        if done >= ROWS // 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(task(), output=output, progress=stop)
    assert len(read(output)) == ROWS // 3
    content = output.read_text()
    output.write_text(content + "1,half a li")  # what a power cut leaves
    found = train(task(), output=output)
    assert found.skipped == ROWS // 3
    assert [seeds for _, seeds in units] == [(0,), (1,), (2,)]
    assert output.read_text().startswith(content)
    whole = train(task(), output=tmp_path / "whole.csv")
    assert cells(found.rows) == cells(whole.rows)
    assert output.read_text() == (tmp_path / "whole.csv").read_text()


def test_a_cluster_finds_the_same(tmp_path: Path, threads: str) -> None:
    """Rows are the same in all digits, and the three seeds are three units."""
    alone = train(task())
    told: list[tuple[int, int]] = []
    how: Any = {"cluster": threads, "progress": lambda *seen: told.append(seen)}
    together = train(task(), output=tmp_path / "rows.csv", **how)
    assert cells(alone.rows) == cells(together.rows)
    assert told == [(ROWS * k // 3, ROWS) for k in range(4)]
    assert train(task(), output=tmp_path / "rows.csv", cluster="tcp://127.0.0.1:1").skipped == ROWS


def test_designs_go_to_the_workers_as_they_were_found(
    threads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    solved: list[str] = []
    original = catalogue.mechanism

    def mechanism(name: str, network: Any) -> Any:
        solved.append(name)
        return original(name, network)

    monkeypatch.setattr(catalogue, "mechanism", mechanism)
    train(task(), cluster=threads)
    assert sorted(solved) == ["ldp", "muffliato-2", "none"]


@pytest.mark.slow
def test_two_processes_find_the_same(tmp_path: Path) -> None:
    alone = train(task(seeds="seeds = 20"), output=tmp_path / "alone.csv")
    together = train(task(seeds="seeds = 20"), output=tmp_path / "two.csv", jobs=2)
    assert cells(alone.rows) == cells(together.rows)


@pytest.mark.slow
def test_a_killed_command_loses_nothing_finished(tmp_path: Path) -> None:
    text = TEXT.replace("seeds = 3", "seeds = 400").replace("records = 40", "records = 4000")
    path, output = write(tmp_path, text, "task.toml"), tmp_path / "rows.csv"
    command = [*MODULE, "train", str(path), "-o", str(output)]
    with subprocess.Popen(command, env=environment(), cwd=tmp_path) as process:
        while not output.exists() or len(output.read_text().splitlines()) < 100:
            assert process.poll() is None
        process.kill()
    kept = output.read_text().splitlines()[:-1]
    done = subprocess.run([*command, "--json"], env=environment(), capture_output=True, check=True)
    found = json.loads(done.stdout)
    assert 90 <= found["skipped"] < found["rows"] == 5 * 400 * 4
    assert output.read_text().splitlines()[: len(kept)] == kept


def test_runs_that_diverge_are_rows_without_losses(tmp_path: Path, units: list[Any]) -> None:
    wild = task(record_every="record_every = 3\ndivergence = 1.5", epsilons="epsilons = [1e-6]")
    found = train(wild, output=tmp_path / "rows.csv")
    assert [one.diverged for one in found] == [0, 3, 3]
    assert found.diverged == 6
    assert [one.test_loss is None for one in found] == [False, True, True]
    for row in found.rows:
        gone = row["mechanism"] != "none" and row["step"] > 0
        assert row["status"] == ("diverged" if gone else "ok")
        assert (row["train_loss"] is None) == (row["test_loss"] is None) == gone
    again = train(wild, output=tmp_path / "rows.csv", retry=True)
    assert again.skipped == len(again.rows) - 2 * 3 * 2
    assert units[1:] == [(("ldp", "muffliato-2"), (0, 1, 2))]


# --- a task from Python ---------------------------------------------------------------------------


def test_a_task_without_identity_has_no_table(tmp_path: Path) -> None:
    given = linear_task(
        mixing=nd.mixing_matrix(nd.build_graph("ring", nodes=3)),
        participation=nd.participation.single(2),
        dimension=2,
        mechanisms=["ldp"],
        noise_multipliers=[1.0, 3.0],
        seeds=[7, 2],
    )
    assert [row["seed"] for row in train(given).rows] == [7, 2, 7, 2]
    with pytest.raises(InputError, match="output: expected nothing for a task without identity"):
        train(given, output=tmp_path / "rows.csv")
    said = replace(given, identity="linear")
    first = train(said, output=tmp_path / "rows.csv")
    assert train(said, output=tmp_path / "rows.csv").skipped == 4
    for row, stddev in zip(first.rows, (1.0, 1.0, 3.0, 3.0), strict=True):
        assert row["stddev"] == stddev
        mu = 2 / stddev
        assert row["mu"] == pytest.approx(mu, rel=1e-12)
        assert row["epsilon"] == pytest.approx(nd.privacy.epsilon_of(mu=mu, delta=1e-6), rel=1e-9)


@pytest.mark.parametrize(
    ("how", "field"),
    [
        ({"jobs": 0}, "jobs"),
        ({"jobs": 2, "cluster": "tcp://127.0.0.1:1"}, "jobs"),
        ({"retry": 1}, "retry"),
        ({"seeds": 0}, "seeds"),
        ({"seeds": [1, 1]}, "seeds"),
        ({"output": "rows.txt"}, "output"),
    ],
)
def test_wrong_arguments_are_named(how: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError, match=f"^{field}"):
        train(task(), **how)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"epsilons": [1.0]}, "epsilons"),  # beside noise multipliers
        ({"noise_multipliers": []}, "noise_multipliers"),
        ({"noise_multipliers": [1.0, 1.0]}, "noise_multipliers"),
        ({"noise_multipliers": None, "epsilons": [-1.0]}, "epsilons"),
        ({"noise_multipliers": None, "epsilons": [1.0], "delta": 2.0}, "privacy.delta"),
        ({"noise_multipliers": None, "epsilons": [1.0], "adjacency": "any"}, "privacy.adjacency"),
        ({"clip": 0.0}, "clip"),
        ({"clip": np.inf}, "clip"),
        ({"step_sizes": [1.0]}, "step_sizes"),
        ({"rounds": 0}, "rounds"),
        ({"mechanisms": ["ldq"]}, "mechanisms"),
        ({"mixing": np.ones((3, 3))}, "mixing"),
        ({"record": [99]}, "record"),
    ],
)
def test_wrong_fields_are_named(fields: dict[str, Any], field: str) -> None:
    given = {
        "mixing": nd.mixing_matrix(nd.build_graph("ring", nodes=3)),
        "participation": nd.participation.single(2),
    }
    with pytest.raises(InputError, match=f"^{field}"):
        linear_task(**given | fields)


def test_noise_without_a_budget_is_refused() -> None:
    given: dict[str, Any] = {
        "mixing": nd.mixing_matrix(nd.build_graph("ring", nodes=3)),
        "participation": nd.participation.single(2),
        "noise_multipliers": None,
    }
    with pytest.raises(InputError, match="epsilons: expected budgets for ldp"):
        linear_task(**given)
    quiet = linear_task(**given, mechanisms=["none"])
    with pytest.raises(InputError, match="epsilons: expected budgets for ldp"):
        run(quiet, "ldp")
    assert len(run(quiet, "none", seeds=[1])) == 1


# --- the command ----------------------------------------------------------------------------------


def test_the_command_prints_a_table_or_one_value(tmp_path: Path) -> None:
    path, output = write(tmp_path, TEXT, "task.toml"), tmp_path / "rows.csv"
    told = call("train", path, "-o", output, "--seeds", 2)
    assert told.code == 0
    assert "muffliato-2" in told.out
    assert len(read(output)) == ROWS * 2 // 3
    again = call("train", path, "-o", output, "--json")
    found = json.loads(again.out)
    assert (found["rows"], found["skipped"], found["diverged"]) == (ROWS, ROWS * 2 // 3, 0)
    assert found["results"][1]["mechanism"] == "ldp"
    assert "rows were in" in again.err
    wrong = call("train", write(tmp_path, TEXT.replace('"ldp"', '"lpd"'), "wrong.toml"))
    assert wrong.code == 2
    assert "mechanisms: expected one of none, ldp" in wrong.err
    assert "Did you mean ldp?" in wrong.err
