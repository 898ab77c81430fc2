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

from tests.support import ROOT

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
    needed = PROJECT["project"]["dependencies"]
    trainers = names(locked("requirements-trainers.lock"))
    wanted = [*needed, *groups["trainers"], *extras["opacus"], *extras["flower"], *extras["pfl"]]
    assert trainers >= names([*wanted, "ray"]) - {"torch"}
    assert not {name for name in trainers if re.match(r"torch$|nvidia|cuda|triton", name)}
    assert names(locked("requirements-trainers-jax.lock")) >= names(
        [*needed, *groups["trainers-jax"], *extras["jax"]]
    )
    (version,) = re.findall(r"^TORCH := (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert version in groups["trainers"]
    metadata = PROJECT["tool"]["uv"]["dependency-metadata"]
    assert [f"{one['name']}=={one['version']}" for one in metadata] == [version]


def installer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("install", ROOT / "tools" / "install.py")
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

    module = installer()
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
