"""The frame of experiments: settings in, whole files out, nothing that is finished run again."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from noisedesign.base import cluster
from noisedesign.base.checks import InputError
from noisedesign.files.toml import shipped_folder
from noisedesign_lab.papers import reproduce as registry
from noisedesign_lab.papers.reproduce.experiment import SUMMARY, Experiment, Settings, Unit
from noisedesign_lab.papers.reproduce.run import README, ROWS, SUMMARY_FILE, reproduce
from noisedesign_lab.papers.reproduce.statistics import over_seeds
from tests.support.clusters import threads as threads
from tests.support.command_line import call

SETTINGS = """experiment = "gossip"
description = "losses of a rule"
losses = [1.0, 3.0]
note = "full"

[deep]
seeds = 3
scale = 2.0

[quick]
note = "quick"

[quick.deep]
seeds = 2
"""


class Rule(Settings):
    losses: list[float]
    note: str
    deep: dict[str, float]


done: list[Unit] = []
"""Units that were run in this process."""


def run(unit: Unit) -> list[dict[str, Any]]:
    if os.environ.get("STOP_AT") == str(unit["loss"]):
        raise KeyboardInterrupt
    done.append(unit)
    return [
        {
            "mechanism": "rule, the",
            "epsilon": unit["loss"],
            "seed": seed,
            "test_loss": unit["scale"] * unit["loss"] + seed,
            "good": seed > 0,
            "process": os.getpid(),
        }
        for seed in range(unit["seeds"])
    ]


def units(settings: Rule) -> list[Unit]:
    deep = {name: settings.deep[name] for name in ("seeds", "scale")}
    return [{"loss": loss, **deep, "seeds": int(deep["seeds"])} for loss in settings.losses]


def summary(rows: Sequence[Mapping[str, Any]], _: Rule) -> list[dict[str, Any]]:
    return over_seeds([{**row, "setting": "one", "accuracy": None} for row in rows])


def pictures(rows: Any, found: Any, _: Rule) -> dict[str, Figure]:
    figure = Figure()
    figure.subplots().plot([row["epsilon"] for row in found], [row["test_loss"] for row in found])
    return {"loss": figure}


RULE = Experiment(
    title="A rule",
    settings=Rule,
    columns={
        "mechanism": str,
        "epsilon": float,
        "seed": int,
        "test_loss": float,
        "good": bool,
        "process": int,
    },
    units=units,
    run=run,
    summary=summary,
    pictures=pictures,
    paragraph=lambda rows, found, settings: (
        f"{len(rows)} rows, {len(found)} lines, {settings.note}"
    ),
    tables=lambda rows, _: {"further.csv": [{"rows": len(rows)}]},
)


@pytest.fixture(autouse=True)
def rule(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The experiment of this file in the place of a shipped one, and its settings."""
    monkeypatch.setattr(registry, "named", lambda name: {"gossip": RULE}[name])
    done.clear()
    path = tmp_path / "rule.toml"
    path.write_text(SETTINGS)
    return path


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_every_file_and_what_is_in_it(rule: Path, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    files = reproduce(rule, tmp_path / "out", progress=lambda *seen: told.append(seen))
    names = [README, ROWS, SUMMARY_FILE, "further.csv", "loss.svg"]
    assert [path.name for path in files] == names
    assert told == [(0, 2), (1, 2), (2, 2)]
    rows = table(tmp_path / "out" / ROWS)
    assert [float(row["test_loss"]) for row in rows] == [2, 3, 4, 6, 7, 8]
    assert [row["good"] for row in rows] == ["False", "True", "True"] * 2
    assert {row["rows_of_unit"] for row in rows} == {"3"}
    lines = table(tmp_path / "out" / SUMMARY_FILE)
    assert tuple(lines[0])[: len(SUMMARY)] == SUMMARY
    # Mean 3 and standard deviation 1 of three: 3 -+ 4.302653 / sqrt(3), the t quantile of tables.
    assert float(lines[0]["test_loss"]) == 3
    assert float(lines[0]["test_loss_low"]) == pytest.approx(3 - 4.302653 / math.sqrt(3), abs=1e-6)
    assert float(lines[0]["test_loss_high"]) == pytest.approx(3 + 4.302653 / math.sqrt(3), abs=1e-6)
    assert (lines[1]["epsilon"], lines[1]["accuracy"]) == ("3.0", "")
    assert table(tmp_path / "out" / "further.csv") == [{"rows": "6"}]
    readme = (tmp_path / "out" / README).read_text()
    assert "6 rows, 2 lines, full" in readme
    assert "![loss](loss.svg)" in readme
    assert "losses = [1.0, 3.0]" in readme


def test_what_is_finished_is_not_run_again(rule: Path, tmp_path: Path) -> None:
    before = reproduce(rule, tmp_path / "out")
    contents = {path: path.read_bytes() for path in before}
    assert len(done) == 2
    assert reproduce(rule, tmp_path / "out") == before
    assert len(done) == 2
    assert {path: path.read_bytes() for path in before} == contents
    rule.write_text(SETTINGS.replace("[1.0, 3.0]", "[3.0, 5.0]"))
    reproduce(rule, tmp_path / "out")
    assert [unit["loss"] for unit in done] == [1, 3, 5]
    assert [row["epsilon"] for row in table(tmp_path / "out" / SUMMARY_FILE)] == ["3.0", "5.0"]
    assert len(table(tmp_path / "out" / ROWS)) == 9  # rows of other settings stay


def test_an_interrupted_run_goes_on(
    rule: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOP_AT", "3.0")
    with pytest.raises(KeyboardInterrupt):
        reproduce(rule, tmp_path / "out")
    assert len(table(tmp_path / "out" / ROWS)) == 3
    monkeypatch.delenv("STOP_AT")
    reproduce(rule, tmp_path / "out")
    assert [unit["loss"] for unit in done] == [1, 3]


@pytest.mark.parametrize("lines", [2, 3, 5])
def test_a_unit_half_written_is_run_again(rule: Path, tmp_path: Path, lines: int) -> None:
    """A crash in the middle of an append leaves some of the rows of a unit, or part of a line."""
    reproduce(rule, tmp_path / "out")
    path = tmp_path / "out" / ROWS
    whole = path.read_text()
    kept = whole.splitlines(keepends=True)[:lines]
    path.write_text("".join(kept)[:-4])
    done.clear()
    reproduce(rule, tmp_path / "out")
    assert [unit["loss"] for unit in done] == ([1, 3] if lines < 5 else [3])
    assert sorted(path.read_text().splitlines()) == sorted(whole.splitlines())


def test_quick_settings_stand_in_the_place_of_others(rule: Path, tmp_path: Path) -> None:
    reproduce(rule, tmp_path / "out", quick=True)
    assert [unit["seeds"] for unit in done] == [2, 2]
    assert [unit["scale"] for unit in done] == [2, 2]  # beside the key that is replaced
    assert "quick" in (tmp_path / "out" / README).read_text()


def test_a_newer_version_runs_all_again(
    rule: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reproduce(rule, tmp_path / "out")
    newer = Experiment(**{**vars(RULE), "version": 2})
    monkeypatch.setattr(registry, "named", lambda _: newer)
    reproduce(rule, tmp_path / "out")
    assert len(done) == 4


def test_files_of_others_are_left_alone(rule: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / README).write_text("# Mine\n")
    with pytest.raises(InputError, match="README.md"):
        reproduce(rule, folder)
    assert done == []
    assert (folder / README).read_text() == "# Mine\n"


@pytest.mark.parametrize(
    ("change", "new", "field", "words"),
    [
        ("losses = [1.0, 3.0]", "", "losses", "nothing"),
        ("losses = [1.0, 3.0]", 'losses = "few"', "losses", "a list"),
        ('"gossip"', '"gosip"', "experiment", "Did you mean gossip?"),
        ('"gossip"', "3", "experiment", "one of"),
        ("[quick.deep]\nseeds", "[quick.deep]\nseed", "quick.deep.seed", "Did you mean seeds?"),
        ("note", "nota", "nota", "Did you mean note?"),
    ],
)
def test_wrong_settings(
    rule: Path, tmp_path: Path, change: str, new: str, field: str, words: str
) -> None:
    rule.write_text(SETTINGS.replace(change, new))
    with pytest.raises(InputError) as error:
        reproduce(rule, tmp_path / "out", quick=True)
    assert error.value.field == field
    assert words in str(error.value)
    assert str(rule) in str(error.value)
    assert not (tmp_path / "out").exists()


def without_process(path: Path) -> list[str]:
    """The rows of a folder in one order, but for where they were computed."""
    return sorted(
        str({name: cell for name, cell in row.items() if name != "process"})
        for row in table(path / ROWS)
    )


def test_on_a_cluster(rule: Path, tmp_path: Path, threads: str) -> None:
    alone, together = tmp_path / "alone", tmp_path / "together"
    told: list[tuple[int, int]] = []
    reproduce(rule, alone)
    reproduce(rule, together, cluster=threads, progress=lambda *seen: told.append(seen))
    assert told == [(0, 2), (1, 2), (2, 2)]
    assert len(done) == 4
    assert without_process(alone) == without_process(together)
    assert (alone / SUMMARY_FILE).read_bytes() == (together / SUMMARY_FILE).read_bytes()
    reproduce(rule, together, cluster="tcp://127.0.0.1:1")  # nobody is asked for nothing
    assert len(done) == 4


def test_a_unit_that_ends_every_worker_is_named(
    rule: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The unit, in its own words, and after the others."""

    def in_workers(work: Any, items: Any, *, lost: Any, **_: Any) -> Iterator[tuple[str, Any]]:
        first, second = items
        yield second, work(items[second])
        yield first, lost(first)

    monkeypatch.setattr(cluster, "in_workers", in_workers)
    with pytest.raises(OSError, match=r'unit \{"loss": 1\.0, "seeds": 3, "scale": 2\.0\} ended'):
        reproduce(rule, tmp_path / "out", cluster="tcp://127.0.0.1:1")
    assert [row["epsilon"] for row in table(tmp_path / "out" / ROWS)] == ["3.0"] * 3


@pytest.mark.slow
def test_in_other_processes(rule: Path, tmp_path: Path) -> None:
    reproduce(rule, tmp_path / "alone")
    reproduce(rule, tmp_path / "together", jobs=2)
    assert str(os.getpid()) not in {row["process"] for row in table(tmp_path / "together" / ROWS)}
    assert without_process(tmp_path / "alone") == without_process(tmp_path / "together")
    texts = [(tmp_path / name / SUMMARY_FILE).read_text() for name in ("alone", "together")]
    assert texts[0] == texts[1]


def test_wrong_calls(rule: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for wrong in ({"jobs": 0}, {"jobs": 2, "cluster": "tcp://127.0.0.1:1"}, {"to": "gif"}):
        with pytest.raises(InputError):
            reproduce(rule, out, **wrong)  # type: ignore[arg-type]
    unknown = call("reproduce", "gosip", "-o", out)
    assert unknown.code == 2
    assert "gossip" in unknown.err
    assert "Did you mean gossip?" in unknown.err
    assert not out.exists()


# --- what is shipped ------------------------------------------------------------------------------


def test_every_experiment_has_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    shipped = {path.stem for path in (shipped_folder() / "papers").glob("*.toml")}
    assert shipped == set(registry.NAMES)
    for name in registry.NAMES:
        for quick in (False, True):
            experiment, settings = registry.load_settings(name, quick=quick)
            assert settings.experiment == name
            assert experiment is registry.named(name)


def test_the_command_names_every_experiment() -> None:
    shown = call("reproduce", "--help").out
    assert all(name in shown for name in registry.NAMES)
