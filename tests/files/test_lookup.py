"""Files that are shipped: found by name from anywhere, listed, and part of what is installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest

import noisedesign as nd
from noisedesign.files.problem_set import problem_files, shipped_problems
from noisedesign.system.datasets import EGO_FACEBOOK_NODES, ego_facebook, local_ego_facebook
from tests.support import ROOT
from tests.support.command_line import RING, call, write

FOLDER = ROOT / "problems"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", ["whisper/florentine", "whisper/florentine.toml"])
def test_a_shipped_problem_by_its_name(name: str) -> None:
    loaded = nd.load(name)
    assert loaded.path == FOLDER / "whisper" / "florentine.toml"
    assert loaded.problem.name == "whisper-florentine"


def test_account_and_sweep_files_by_their_names() -> None:
    assert nd.load("accounts/ring-decor-secldp").name == "accounts-ring-decor-secldp"
    assert len(nd.load("sweeps/random-graphs").rows) == 8


def test_files_that_a_shipped_problem_names_are_beside_it() -> None:
    assert len(nd.load("examples/edge-list").problem.nodes) == 6


def test_the_working_directory_comes_first_then_its_problems(tmp_path: Path) -> None:
    family = tmp_path / "problems" / "whisper"
    family.mkdir(parents=True)
    write(family, RING.replace("ring-5", "under-problems"), "florentine.toml")
    assert nd.load("whisper/florentine").problem.name == "under-problems"
    (tmp_path / "whisper").mkdir()
    write(tmp_path / "whisper", RING.replace("ring-5", "here"), "florentine.toml")
    assert nd.load("whisper/florentine").problem.name == "here"
    assert nd.load("whisper/karate").problem.name == "whisper-karate"


@pytest.mark.parametrize(
    "name", ["../whisper/florentine.toml", "/whisper/florentine.toml", "florentine", "", "\0"]
)
def test_other_paths_are_what_they_are(name: str) -> None:
    with pytest.raises((nd.InputError, ValueError)):
        nd.load(name)


def test_what_was_probably_meant() -> None:
    meant = "Did you mean whisper/florentine[?] `noisedesign problems` lists"
    for name in ("whisper/florentin", "whisper/florentin.toml", "florentine.toml"):
        with pytest.raises(nd.InputError, match=meant):
            nd.load(name)


def test_folders_and_patterns_of_shipped_problems() -> None:
    names = {"prefix-128", "prefix-20x19", "prefix-512", "prefix-8x16"}
    for asked in ("prefix", "prefix/*.toml"):
        files, _ = problem_files([asked])
        assert {path.stem for path in files} == names


def test_commands_find_them_too(tmp_path: Path) -> None:
    assert call("solve", "whisper/ring-20", "--json").json()["name"] == "whisper-ring-20"
    assert call("account", "accounts/florentine-pndp.toml", "--json").code == 0
    assert call("model", "whisper/ring-20", "-o", tmp_path / "ring.cbf").code == 0


def test_all_of_them_are_listed_as_they_are() -> None:
    shipped = shipped_problems()
    files = sorted(FOLDER.rglob("*.toml"))
    assert [problem.path for problem in shipped] == files
    for problem in shipped:
        tables = tomllib.loads(problem.path.read_text(encoding="utf-8"))
        assert problem.path == FOLDER / f"{problem.name}.toml"
        assert problem.description == tables["description"] != ""
        if problem.design in ("account", "experiment", "sweep", "training"):
            continue
        assert problem.design == tables["design"]
        told = tables.get("participation")
        if tables.get("workload", {}).get("horizon") == "unbounded":
            assert problem.steps is None
        elif told is not None:
            assert problem.steps == (told.get("horizon") or told["epochs"] * told["separation"])
        if "download" not in problem.tags and "large" not in problem.tags:
            loaded = nd.load(problem.name).problem
            assert problem.nodes == (loaded.mixing.shape[0] if loaded.mixing is not None else None)
    by_name = {problem.name: problem for problem in shipped}
    assert by_name["sweeps/random-graphs"].design == "sweep"
    decor = by_name["accounts/ring-decor-secldp"]
    assert (decor.design, decor.nodes, decor.steps) == ("account", 10, 20)
    ego = by_name["mafalda/ego-148-20x19-rn"]
    assert (ego.nodes, ego.steps) == (148, 380)


@pytest.mark.parametrize("ego", EGO_FACEBOOK_NODES)
def test_sizes_of_networks_that_are_not_shipped(ego: int) -> None:
    if local_ego_facebook(ego) is None:
        pytest.skip("the Facebook ego network is not on this machine (NOISEDESIGN_DATA)")
    assert len(ego_facebook(ego)) == EGO_FACEBOOK_NODES[ego]


def test_the_command_that_lists_them() -> None:
    rows = call("problems", "--json").json()
    assert len(rows) == len(shipped_problems())
    assert set(rows[0]) == {"name", "design", "nodes", "steps", "description", "tags", "path"}
    chosen = call("problems", "RING", "space-time/", "--json").json()
    assert {row["name"] for row in chosen} == {
        "space-time/ring-16-mafalda-edge-local",
        "space-time/ring-8-full",
        "space-time/ring-8-kronecker",
    }
    printed = call("problems", "prefix/").out
    assert "prefix/prefix-20x19" in printed
    assert "380" in printed
    nothing = call("problems", "nowhere")
    assert (nothing.code, nothing.out) == (0, "")
    assert "nowhere" in nothing.err
    assert call("problems", "nowhere", "--json").json() == []


@pytest.mark.slow
def test_they_are_installed_with_the_package(tmp_path: Path) -> None:
    """A wheel is built, unpacked somewhere and run from somewhere else, away from the checkout."""
    source, wheels, target = tmp_path / "source", tmp_path / "wheels", tmp_path / "target"
    source.mkdir()
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ("noisedesign", "problems"):
        shutil.copytree(ROOT / name, source / name, ignore=ignored)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    build = ["wheel", "--no-deps", "--no-build-isolation", "-w", str(wheels), str(source)]
    subprocess.run([*pip, *build], check=True, cwd=tmp_path)
    (wheel,) = wheels.iterdir()
    subprocess.run([*pip, "install", "--no-deps", "--target", str(target), str(wheel)], check=True)

    paths = [str(target), sysconfig.get_path("purelib")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}

    def run(*arguments: str) -> object:
        done = subprocess.run(
            [sys.executable, "-m", "noisedesign", *arguments, "--json"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return json.loads(done.stdout)

    assert run("solve", "whisper/florentine.toml")["status"] == "optimal"  # type: ignore[index]
    listed = {Path(row["path"]) for row in run("problems")}  # type: ignore[attr-defined]
    installed = target / "noisedesign" / "problems"
    assert listed == {installed / path.relative_to(FOLDER) for path in FOLDER.rglob("*.toml")}
    here, there = (
        {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}
        for folder in (FOLDER, installed)
    )
    assert here == there
    assert not (target / "problems").exists()
