"""The demonstration: both kinds of design from one real graph, each file used and checked."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noisedesign.base.file_kinds import PICTURE, kind_of
from noisedesign.base.monitor import Bounds
from noisedesign.design.solve import Solution, solve
from noisedesign.files.design_file import load_design
from noisedesign.mechanisms.baselines import names_of
from noisedesign.pages import demo
from noisedesign.tasks.verify import verify
from tests.support.command_line import call

DESIGNS = ("whisper-florentine", "mafalda-florentine")


@pytest.fixture
def _no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOISEDESIGN_DATA", raising=False)


@pytest.mark.usefixtures("_no_data")
def test_demo_without_data(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "out"
    outcome = call("demo", "-o", folder, "--runs", 200, "--json")
    assert outcome.code == 0, outcome.err
    assert "no Facebook data (NOISEDESIGN_DATA)" in outcome.err
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        f"{name}.{kind}" for name in DESIGNS for kind in ("npz", "svg")
    )
    records = outcome.json()
    assert all(record["graph"] == "florentine" for record in records)
    methods = [record["method"] for record in records]
    assert methods == [*names_of("space"), "optimal", *names_of("time"), "optimal"]
    for name in DESIGNS:
        stored = load_design(folder / f"{name}.npz")
        assert verify(stored).ok
        assert stored.problem_text
        assert kind_of(folder / f"{name}.svg") == PICTURE
        (ours,) = (
            record
            for record in records
            if record["method"] == "optimal" and record["design"] == stored.design.axes
        )
        assert (ours["verified"], ours["simulated"], ours["holds"]) == (True, True, True)
        assert (ours["epsilon"], ours["delta"], ours["adjacency"]) == (5.0, 1e-5, "replace")
        assert Path(ours["picture"]) == folder / f"{name}.svg"
        assert Path(ours["file"]) == folder / f"{name}.npz"
        assert ours["objective"] == stored.design.objective
        assert 0 <= ours["gap"] <= 1e-6
        others = [
            record
            for record in records
            if record["design"] == stored.design.axes and record["protects"] == "every message"
        ]
        assert min(others, key=lambda record: record["objective"]) is ours
        assert others[0]["method"] == "ldp"
        assert others[0]["relative_to_ldp"] == pytest.approx(1)
    # The published comparison on this graph: 0.789 of independent noise.
    space = next(record for record in records if record["method"] == "optimal")
    assert round(space["relative_to_ldp"], 3) == 0.789


@pytest.mark.usefixtures("_no_data")
def test_demo_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = {
        "graph": "g",
        "design": "space",
        "method": "optimal",
        "objective": 1.5,
        "relative_to_ldp": 0.75,
        "gap": 1e-9,
        "verified": True,
        "simulated": False,
        "name": "whisper-g",
        "picture": "out/whisper-g.svg",
        "file": "out/whisper-g.npz",
        "epsilon": 5.0,
        "delta": 1e-5,
        "adjacency": "replace",
        "protects": "every message",
        "holds": False,
    }
    monkeypatch.setattr(demo, "run", lambda *args, **kwargs: [record])
    outcome = call("demo", "-o", tmp_path)
    assert outcome.code == 1  # a design that does not hold
    told = " ".join(outcome.out.split())
    for word in (
        "relative to ldp",
        "0.75",
        "1e-06",  # the gap that is certified: what is left below it is rounding
        "every message",
        "(5, 1e-05)-DP under replace",
        "e^5 = 148 times as probable, plus 1e-05",
        "by NumPy and no solver",
        "whisper-g: verified yes, simulated NO",
        "open in a browser out/whisper-g.svg",
        "noisedesign report out/whisper-g.npz",
    ):
        assert word in told, word
    record["holds"] = True
    assert call("demo", "-o", tmp_path).code == 0


@pytest.mark.usefixtures("_no_data")
def test_demo_fits_eighty_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether or not a terminal is there: a line a mechanism, and no footnotes."""
    monkeypatch.setattr(demo, "plot", lambda *_, path, **__: path)
    monkeypatch.chdir(tmp_path)
    found = demo.run(Path("out"), runs=200, announce=lambda _: None)
    monkeypatch.setattr(demo, "run", lambda *_, **__: found)
    outcome = call("demo", "-o", "out", columns=80)
    assert call("demo", "-o", "out").out == outcome.out
    lines = outcome.out.splitlines()
    assert max(map(len, lines)) <= 80
    for name in (*names_of("space"), *names_of("time"), "optimal"):
        assert [line for line in lines if line.split()[:1] == [name]], name
    # Mechanisms that both designs are compared with, and the optimum, have a line in each table.
    twice = {*names_of("space")} & {*names_of("time")} | {"optimal"}
    heads = [line.split()[0] for line in lines if line.endswith(("every message", "average only"))]
    assert {name for name in heads if heads.count(name) == 2} == twice
    assert "[1]" not in outcome.out
    for path in ("out/whisper-florentine", "out/mafalda-florentine"):
        assert f"open in a browser  {path}.svg" in outcome.out
        assert Path(f"{path}.npz").is_file()


@pytest.mark.usefixtures("_no_data")
def test_ctrl_c_keeps_what_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second solve is interrupted: its half of a design is not passed off as the demo's."""

    def press(_: Bounds) -> None:
        raise KeyboardInterrupt

    def second_interrupted(problem: Any, **kwargs: Any) -> Solution:
        if problem.axes == "time":
            kwargs |= {"progress": press, "gap": 1e-12}
        return solve(problem, **kwargs)

    monkeypatch.setattr(demo, "solve", second_interrupted)
    outcome = call("demo", "-o", tmp_path, "--runs", 200, "--json")
    assert (outcome.code, outcome.out) == (130, "")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "whisper-florentine.npz",
        "whisper-florentine.svg",
    ]
    assert verify(load_design(tmp_path / "whisper-florentine.npz")).ok


@pytest.mark.slow
def test_demo_on_the_facebook_graph(tmp_path: Path) -> None:
    data = os.environ.get("NOISEDESIGN_DATA")
    if not data or not (Path(data) / "ego-facebook" / "414.edges").exists():
        pytest.skip("NOISEDESIGN_DATA names no folder with ego-facebook/414.edges")
    outcome = call("demo", "-o", tmp_path, "--runs", 200, "--json")
    assert outcome.code == 0, outcome.err
    records = outcome.json()
    assert {record["graph"] for record in records} == {"ego-148"}
    assert all(record["holds"] for record in records)
    design = load_design(tmp_path / "whisper-ego-148.npz").design
    assert design.covariance.shape == (148, 148)
    assert np.isfinite(design.covariance).all()
    assert design.gap <= 1e-6
