"""deploy and rehearse, as a shell runs them."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from noisedesign.design.solve import solve
from noisedesign.files.design_file import save_design
from noisedesign.noise import Plan
from tests.support import private_problems
from tests.support.command_line import call


@pytest.fixture
def design(tmp_path: Path) -> Path:
    found = solve(private_problems.path_of_seeds()).design
    assert found is not None
    return save_design(found, tmp_path / "d.npz")


def data(path: Path) -> Path:
    generator = np.random.default_rng(1)
    features = generator.standard_normal((12, 2))
    np.savez(path, features=features, labels=(features[:, 0] > 0).astype(float))
    return path


def test_deploy_and_rehearse(tmp_path: Path, design: Path) -> None:
    out = tmp_path / "out"
    ran = call("deploy", str(design), "-o", str(out), "--json")
    assert ran.code == 0
    told = json.loads(ran.out)
    assert [(row["node"], row["neighbours"], row["seeds"]) for row in told] == [
        ("0", 1, 1),
        ("1", 2, 2),
        ("2", 1, 1),
    ]
    assert Plan.load(told[1]["file"]).horizon == told[1]["steps"] == 4
    file, picture = data(tmp_path / "x.npz"), tmp_path / "loss.png"
    ran = call(
        "rehearse", str(out), "--data", str(file), "-o", str(picture), "--seconds", "30", "--json"
    )
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    assert (found["nodes"], found["steps"], found["epsilon"], found["delta"]) == (3, 4, 6.0, 1e-5)
    models = [np.load(path)["model"] for path in (out / "nodes").glob("*/model.npz")]
    assert len(models) == 3
    with np.load(file) as held:
        heights = np.column_stack([held["features"], np.ones(12)]) @ np.mean(models, axis=0)
        labels = held["labels"]
    assert found["accuracy"] == pytest.approx(np.mean((heights > 0) == (labels == 1)))
    losses = np.logaddexp(0, np.where(labels == 1, -heights, heights))
    assert found["loss"] == pytest.approx(losses.mean())
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_words_without_json(tmp_path: Path, design: Path) -> None:
    ran = call("deploy", str(design), "-o", str(tmp_path / "out"))
    assert ran.code == 0
    assert "0-0.plan" in ran.out
    assert "(6, 1e-05)-DP for replace adjacency and clip 0.5" in ran.out
    assert "No file holds a secret." in ran.out
    assert re.search(r"Against one node of the design, .* have \(7\.\d+, 1e-05\)-DP", ran.out)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["deploy", "{design}", "-o", "{tmp}/out", "--batch-size", "0"], "batch_size"),
        (["deploy", "{tmp}/none.npz", "-o", "{tmp}/out"], "none.npz"),
        (["rehearse", "{tmp}", "--data", "{tmp}/x.npz"], "folder: expected nodes' files"),
        (["rehearse", "{tmp}/out", "--data", "{tmp}/none.npz"], "none.npz"),
        (["rehearse", "{tmp}/out", "--data", "{tmp}/x.npz", "--step-size", "0"], "step-size"),
        (["rehearse", "{tmp}/out", "--data", "{tmp}/x.npz", "--step-size", "nan"], "step_size"),
        (["rehearse", "{tmp}/out", "--data", "{tmp}/x.npz", "--seconds", "-1"], "seconds"),
        (["rehearse", "{tmp}/out"], "--data"),
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, design: Path, words: list[str], said: str) -> None:
    call("deploy", str(design), "-o", str(tmp_path / "out"))
    data(tmp_path / "x.npz")
    ran = call(*[word.format(tmp=tmp_path, design=design) for word in words])
    assert ran.code == 2
    assert said in ran.err
    assert ran.err.strip().count("\n") == 0
