"""The laboratory is a distribution of its own, which adds its commands to the toolkit's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from importlib import metadata
from importlib.metadata import EntryPoints
from pathlib import Path

import click
import pytest

from noisedesign import cli
from noisedesign.cli import _shared
from noisedesign_lab import commands
from tests.support import ROOT
from tests.support.command_line import call

NAMES = ("figure", "reproduce", "train")


@pytest.fixture
def _no_laboratory(monkeypatch: pytest.MonkeyPatch) -> None:
    """No distribution adds commands."""
    monkeypatch.setattr(metadata, "entry_points", lambda **_: EntryPoints(()))


@pytest.mark.usefixtures("_no_laboratory")
@pytest.mark.parametrize("name", NAMES)
def test_without_it_its_commands_say_how_to_get_it(name: str) -> None:
    said = call(name, "whisper", "-o", "out", "--quick")
    assert (said.code, said.out) == (_shared.EXIT_INPUT, "")
    assert said.err.count("\n") == 1
    assert f"{name} is a command of noisedesign-lab, which is not installed" in said.err
    assert "pip install ./lab" in said.err


@pytest.mark.usefixtures("_no_laboratory")
def test_without_it_help_lists_the_commands_of_the_toolkit() -> None:
    context = click.Context(cli.commands)
    assert set(cli.commands.list_commands(context)) == set(cli.commands.commands)
    assert "No such command 'trains'" in call("trains").err


def test_its_commands_are_listed_with_the_others() -> None:
    context = click.Context(cli.commands)
    assert set(cli.commands.list_commands(context)) == {*cli.commands.commands, *NAMES}
    page = call("--help", columns=80).out
    for name in NAMES:
        command = cli.commands.get_command(context, name)
        assert command is getattr(commands, name)
        assert any("--json" in option.opts for option in command.params)
        assert f"\n  {name} " in page
        shown = call(name, "--help", columns=80)
        assert (shown.code, shown.err) == (0, "")
        assert f"noisedesign {name}" in shown.out
        assert max(map(len, shown.out.splitlines())) <= 80


def done(*command: str | Path, cwd: Path, code: int = 0) -> str:
    """The text that a command prints to standard output and error, with this exit code."""
    hidden = ("PYTHON", "GIT_", "NOISEDESIGN_")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(hidden)}
    ran = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    said = ran.stdout + ran.stderr
    assert ran.returncode == code, f"{command}: {said}"
    return said


@pytest.mark.slow
def test_it_is_installed_beside_the_toolkit_and_goes_again(tmp_path: Path) -> None:
    """The environment is its own, and offline: what both need are links to the packages here."""
    if shutil.which("git") is None:
        pytest.skip("needs git, which tells the files of the project from others")
    listed = done("git", "ls-files", "-co", "--exclude-standard", cwd=ROOT).splitlines()
    for name in listed:
        if (ROOT / name).is_file():
            (tmp_path / "src" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / "src" / name)
    needed = tmp_path / "needed"
    needed.mkdir()
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not path.name.startswith(("noisedesign", "__editable__")):
            (needed / path.name).symlink_to(path)
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv/bin/python"
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = Path(done(python, "-c", code, cwd=tmp_path).strip())
    (site / "needed.pth").write_text(f"{needed}\n")
    noisedesign = tmp_path / "venv/bin/noisedesign"
    pip = (sys.executable, "-m", "pip", "--quiet", "--python", python)
    install = (*pip, "install", "--no-index", "--no-deps", "--no-build-isolation")

    def works(*, laboratory: bool) -> None:
        for name in NAMES:
            said = done(noisedesign, name, "none", cwd=tmp_path, code=2)
            assert ("noisedesign-lab, which is not installed" in said) is not laboratory
            assert len(said.splitlines()) == 1
        assert '"status": "optimal"' in done(
            noisedesign, "solve", "whisper/florentine.toml", "--json", cwd=tmp_path
        )

    done(*install, tmp_path / "src", cwd=tmp_path)
    works(laboratory=False)
    done(*install, tmp_path / "src/lab", cwd=tmp_path)
    works(laboratory=True)
    said = done(noisedesign, "train", "training/ring-quadratic", "--seeds", "1", cwd=tmp_path)
    assert "kronecker" in said
    done(*pip, "uninstall", "--yes", "noisedesign-lab", cwd=tmp_path)
    works(laboratory=False)
