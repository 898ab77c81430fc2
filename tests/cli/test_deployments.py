"""deploy and rehearse, as a shell runs them."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from noisedesign.design.solve import solve
from noisedesign.files.design_file import save_design
from noisedesign.noise import Plan
from noisedesign.tasks import soak
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
        (["soak", "{design}", "-o", "{tmp}/s", "--minutes", "nan"], "minutes"),
        (["soak", "{design}", "-o", "{tmp}/s", "--gone", "nobody"], "gone"),
        (["soak", "{tmp}/none.npz", "-o", "{tmp}/s"], "none.npz"),
        (["audit-run", "{tmp}/none", "--plan", "{design}"], "transcript: expected a file"),
        (["audit-run", "{design}", "--plan", "{tmp}/none.plan"], "none.plan"),
        (["audit-run", "{design}"], "--plan"),
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, design: Path, words: list[str], said: str) -> None:
    call("deploy", str(design), "-o", str(tmp_path / "out"))
    data(tmp_path / "x.npz")
    ran = call(*[word.format(tmp=tmp_path, design=design) for word in words])
    assert ran.code == 2
    assert said in ran.err
    assert ran.err.strip().count("\n") == 0


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL is of POSIX systems")
def test_soak_and_audit_run(tmp_path: Path, design: Path) -> None:
    out = tmp_path / "out"
    given = ["--kill-every", "2", "--runs", "1", "--minutes", "2", "--seconds", "30"]
    ran = call("soak", str(design), "-o", str(out), *given)
    assert ran.code == 0, ran.err + ran.out
    assert "Records were made, as no --data was given." in ran.err
    assert "soak: 0.0 of 2 minutes, run 1" in ran.err
    assert re.search(r"^steps +4$", ran.out, flags=re.M)
    assert re.search(r"^audited +3$", ran.out, flags=re.M)
    assert "All runs together: epsilon 6 at delta 1e-05." in ran.out
    assert re.search(r"3 nodes took 4 steps in 1 run with \d kills?; memory stayed, ", ran.out)
    told = json.loads((out / "report.json").read_text())
    assert told["problems"] == []
    assert (out / "report.svg").read_text().startswith("<?xml")
    at, plan = out / "run-1/1", next((out / "run-1/plans").glob("1-*.plan"))
    known = ["--plan", str(plan), "--secrets", str(at), "--data", str(out / "nodes/1/data.npz")]
    known += ["--certificate", str(out / "identities/1.pem")]
    for v in (0, 2):
        known += ["--neighbour", str(out / f"run-1/{v}/transcript.jsonl")]
    ran = call("audit-run", str(at / "transcript.jsonl"), *known, "--json")
    assert ran.code == 0, ran.err
    told = json.loads(ran.out)
    assert (told["node"], told["steps"], told["verdicts"]) == ("1", 4, ["held"] * 4)
    assert {one["result"] for one in told["checks"]} == {"held"}
    ran = call("audit-run", str(at / "transcript.jsonl"), "--plan", str(design))
    assert ran.code == 0, ran.err
    assert "Node 1: nothing differs, and not all was checked." in ran.out
    lines = (at / "transcript.jsonl").read_bytes().splitlines(keepends=True)
    (at / "transcript.jsonl").write_bytes(b"".join([*lines[:2], *lines[3:]]))
    ran = call("audit-run", str(at / "transcript.jsonl"), *known)
    assert ran.code == 1
    assert re.search(r"^chain +differs", ran.out, flags=re.M)
    assert "Node 1 did not do what it attests" in ran.out


def test_a_soak_that_finds_something_fails(
    tmp_path: Path, design: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(soak, "NODE", [sys.executable, "-c", "raise SystemExit('error: no key')"])
    ran = call("soak", str(design), "-o", str(tmp_path / "out"), "--json")
    assert ran.code == 1
    assert "ended at step 0: no key" in json.loads(ran.out)["problems"][0]
