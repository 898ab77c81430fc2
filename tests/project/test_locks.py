"""What `make` installs: the demo what is needed and no more, the tests their tools besides."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from packaging.version import Version

from tests.support import ROOT
from tests.support.clones import VARIABLES

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def locked(name: str) -> dict[str, set[str]]:
    """Hashes by "package==version; marker"."""
    text = (ROOT / name).read_text(encoding="utf-8")
    found = re.findall(r"^(\S+==[^\\\n]+)((?:\\\n +--hash=\S+ ?)+)", text, re.MULTILINE)
    return {package.strip(): set(re.findall(r"sha256:\w+", hashes)) for package, hashes in found}


def names(requirements: Any) -> set[str]:
    return {re.split(r"[<>=;\[ ]", one)[0].lower() for one in requirements}


def test_the_demo_takes_what_is_needed_and_no_more() -> None:
    demo, everything = locked("requirements-demo.lock"), locked("requirements.lock")
    assert len(demo) > 30
    for package, hashes in demo.items():
        assert hashes
        assert everything[package] == hashes  # so that the tests install nothing twice
    needed = names(PROJECT["project"]["dependencies"])
    assert names(demo) >= needed | {"setuptools"}
    extras = PROJECT["project"]["optional-dependencies"]
    for extra in ("test", "solvers", "mosek", "parquet", "dask"):
        assert not names(demo) & (names(extras[extra]) - needed - {"setuptools"}), extra
        assert names(everything) >= names(extras[extra]), extra


def test_the_trainers_are_locked_without_what_only_a_graphics_card_needs() -> None:
    """PyTorch itself is installed before, from an index of its own, in the version of the group."""
    extras = PROJECT["project"]["optional-dependencies"]
    groups = PROJECT["dependency-groups"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    needed = PROJECT["project"]["dependencies"]
    trainers = names(locked("requirements-trainers.lock"))
    (chosen,) = re.findall(r"^TRAINERS := ((?:.|\\\n)*?)--group", makefile, re.MULTILINE)
    chosen = re.findall(r"--extra (\w+)", chosen)
    wanted = [*needed, *groups["trainers"], *(one for name in chosen for one in extras[name])]
    assert trainers >= names([*wanted, "ray"]) - {"torch"}
    old = names(locked("requirements-trainers-numpy1.lock"))
    assert old >= names(groups["trainers-numpy1"]) - {"torch", "torchvision"}
    for lock in (trainers, old):
        large = r"torch$|torchvision|nvidia|cuda"
        assert not {name for name in lock if re.match(large, name)}
    assert names(locked("requirements-trainers-jax.lock")) >= names(
        [*needed, *groups["trainers-jax"], *extras["jax"]]
    )
    (version,) = re.findall(r"^TORCH := (\S+)$", makefile, re.MULTILINE)
    assert version in groups["trainers"]
    assert version in groups["trainers-numpy1"]
    (vision,) = re.findall(r"^TORCHVISION := (\S+)$", makefile, re.MULTILINE)
    assert vision in groups["trainers-numpy1"]
    metadata = PROJECT["tool"]["uv"]["dependency-metadata"]
    assert [f"{one['name']}=={one['version']}" for one in metadata] == [version]


def tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("code", [0, 3])
def test_progress_of_an_installation(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line at a terminal, and the exit code of pip."""
    lock = tmp_path / "some.lock"
    lock.write_text("# a comment\na==1 \\\n    --hash=sha256:0\nb==2 ; marker \\\nb==3 \\\n")
    begun: list[list[str]] = []
    popen = subprocess.Popen

    def pip(command: list[str], **kwargs: Any) -> Any:
        begun.append(command)
        said = "Collecting a==1 (from x)\nCollecting b==3\nInstalling collected packages: a, b\n"
        script = f"import sys; sys.stdout.write({said!r}); sys.exit({code})"
        return popen([sys.executable, "-c", script], **kwargs)

    module = tool("install")
    monkeypatch.setattr(module.subprocess, "Popen", pip)
    assert module.main(str(lock)) == code
    assert {"--require-hashes", "-r", str(lock)} <= set(begun[0])
    assert capsys.readouterr().out == f"installing up to 2 packages of {lock}, once\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    module.main(str(lock))
    lines = re.split(r"[\r\n]+", capsys.readouterr().out)
    assert [line.strip() for line in lines[1:4]] == [
        "1 of 2: a",
        "2 of 2: b",
        "2 packages: unpacking",
    ]


def test_the_lowest_versions_are_those_asked_for() -> None:
    """What pyproject.toml promises to work with is what `make test-pythons` tests."""
    lowest: dict[str, Version] = {}
    for one in locked("requirements-lowest.lock"):  # some twice, for different Pythons
        name, version = re.split(r"[; ]", one)[0].split("==")
        lowest[name.lower()] = min(Version(version), lowest.get(name.lower(), Version(version)))
    extras = PROJECT["project"]["optional-dependencies"]
    chosen = ("test", "solvers", "mosek", "parquet", "dask")
    asked = [*PROJECT["project"]["dependencies"], *(one for name in chosen for one in extras[name])]
    for one in asked:
        name, bound = re.fullmatch(r"([\w-]+)>=([\d.]+).*", one).groups()  # type: ignore[union-attr]
        found = lowest[name.lower()]
        assert found >= Version(bound)
        # The first that is out there: a bound may name a version that was never released.
        assert found.release[: len(Version(bound).release)] == Version(bound).release, one


def test_trainers_with_numpy_1_have_what_tests_need_of_our_dependencies() -> None:
    """All but click, of which p2pfl wants an older one: nothing that tests of trainers load."""
    needed = names(PROJECT["project"]["dependencies"])
    group = PROJECT["dependency-groups"]["trainers-numpy1"]
    assert needed - names(group) == {"click"}


def test_trainers_that_no_index_has_are_cloned_or_said_not_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, begun = tool("clones"), []
    assert set(module.COMMITS) == set(VARIABLES)

    def git(command: list[str], **_: Any) -> Any:
        begun.append(command)
        (tmp_path / ".MFDL").mkdir(exist_ok=True)
        failed = "fetch" in command and len(begun) < 4
        return subprocess.CompletedProcess(command, int(failed), "", "fatal: no network\n")

    monkeypatch.setattr(module.subprocess, "run", git)
    assert module.clone("MFDL", tmp_path) == "not to be had: fatal: no network"
    begun.extend([[], []])
    assert module.clone("MFDL", tmp_path) == "there"
    assert [command[-1] for command in begun[-2:]] == [module.COMMITS["MFDL"][1], "FETCH_HEAD"]
    assert (tmp_path / "MFDL").is_dir()
    count = len(begun)
    assert module.clone("MFDL", tmp_path) == "there"
    assert len(begun) == count


# --- the oldest and the newest Python -------------------------------------------------------------


@pytest.fixture
def pythons(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The script, with nothing on the path."""
    module = tool("pythons")
    monkeypatch.setattr(module, "HOME", tmp_path / "environments")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.setattr(module.sys, "executable", "")
    return module


def put(path: Path, script: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_pythons_are_found_and_what_is_absent_is_said(
    pythons: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A shim that does not run is passed over, and so is one of another version."""
    assert pythons.supported()[0] == PROJECT["project"]["requires-python"].removeprefix(">=")
    oldest, between, newest, absent = versions = ["3.11", "3.12", "3.13", "3.14"]
    monkeypatch.setattr(pythons, "supported", lambda: versions)
    put(tmp_path / "bin" / f"python{oldest}", "echo not activated >&2; exit 127")
    kept = tmp_path / "pyenv" / "versions"
    old = put(kept / f"{oldest}.9" / "bin" / "python", f"echo {oldest} /there/old")
    new = put(tmp_path / "bin" / f"python{newest}", f"echo {newest} /there/new")
    put(tmp_path / "bin" / f"python{absent}", f"echo {newest} /there/new")
    assert [pythons.interpreter(v) for v in (oldest, newest, absent)] == [
        "/there/old",
        "/there/new",
        None,
    ]
    assert old != new
    ran: list[tuple[str, ...]] = []

    def verdict(version: str, python: str, lock: str, arguments: list[str]) -> str:
        ran.append((version, python, lock, *arguments))
        return "failed" if version == failing else "passed"

    monkeypatch.setattr(pythons, "verdict", verdict)
    failing = ""
    assert pythons.main(["tests/noise"]) == 0
    assert ran == [
        (oldest, "/there/old", "requirements-lowest.lock", "tests/noise"),
        (newest, "/there/new", "requirements.lock", "tests/noise"),
    ]
    told = capsys.readouterr().out.splitlines()
    assert [line.split() for line in told[-3:-1]] == [
        ["Python", oldest, "requirements-lowest.lock", "passed"],
        ["Python", newest, "requirements.lock", "passed"],
    ]
    assert told[-1] == f"Supported, not found here and not tested: Python {between}, {absent}"
    failing = newest
    assert pythons.main([]) == 1


def test_without_the_oldest_python_the_tests_fail(
    pythons: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pythons.main([]) == 1
    assert "requirements-lowest.lock   failed: not found here" in capsys.readouterr().out


def test_an_environment_is_built_where_its_lock_changed(
    pythons: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("pyproject.toml", "some.lock"):
        (tmp_path / name).write_text("a==1")
    begun: list[list[str]] = []

    def run(command: list[Any], **_: Any) -> None:
        begun.append([str(word) for word in command])
        (tmp_path / "environments" / "3.11-some").mkdir(parents=True, exist_ok=True)

    monkeypatch.setattr(pythons, "ROOT", tmp_path)
    monkeypatch.setattr(pythons.subprocess, "run", run)
    inside = pythons.environment("3.11", "/there/python", "some.lock")
    assert [command[0] for command in begun] == ["/there/python", str(inside), str(inside)]
    assert begun[1][1:] == ["tools/install.py", "some.lock"]
    assert pythons.environment("3.11", "/there/python", "some.lock") == inside
    assert len(begun) == 3
    (tmp_path / "some.lock").write_text("a==2")
    pythons.environment("3.11", "/there/python", "some.lock")
    assert len(begun) == 6
