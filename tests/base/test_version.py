"""Two commits have two versions, and one commit has one, however its sources came here."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from noisedesign.base import version as versions
from noisedesign.base.version import RELEASE, UNKNOWN, version_of
from tests.support import ROOT

FILE = Path("noisedesign", "base", "version.py")
PROJECT = '[project]\nname = "noisedesign"\n'

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")

Git = Callable[..., str]


@pytest.fixture
def git(monkeypatch: pytest.MonkeyPatch) -> Git:
    """git, whatever its settings on this machine are."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    people = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]

    def run(folder: Path, *arguments: str) -> str:
        command = ["git", *people, *arguments]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    return run


@pytest.fixture
def checkout(tmp_path: Path, git: Git) -> Path:
    """A repository of two commits."""
    folder = tmp_path / "checkout"
    (folder / FILE).parent.mkdir(parents=True)
    shutil.copy(ROOT / FILE, folder / FILE)
    shutil.copy(ROOT / ".gitattributes", folder / ".gitattributes")
    (folder / "pyproject.toml").write_text(PROJECT)
    git(folder, "init", "--quiet", "--initial-branch", "main")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "one")
    (folder / "note").write_text("two")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "two")
    return folder


def expected(git: Git, folder: Path, revision: str = "HEAD") -> str:
    return f"{RELEASE}+g{git(folder, 'rev-parse', revision)[:12]}"


def told_by(file: Path, *, path: Path | str = "") -> str:
    """What a copy says in a process of its own that has no other packages."""
    code = f"import runpy; print(runpy.run_path({str(file)!r})['version']())"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env=os.environ | {"PYTHONPATH": str(path)},
        cwd=file.parent,  # and not beside metadata of builds
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@needs_git
def test_commits_are_told_apart_and_changes_are_said(checkout: Path, git: Git) -> None:
    now = version_of(checkout)
    assert now == expected(git, checkout)
    (checkout / "note").write_text("three")
    assert version_of(checkout) == f"{now}.dirty"
    (checkout / "note").write_text("two")
    (checkout / "unknown to git").write_text("")
    assert version_of(checkout) == now
    git(checkout, "checkout", "--quiet", "HEAD~")
    assert version_of(checkout) == expected(git, checkout) != now


@needs_git
@pytest.mark.parametrize("how", ["whole", "shallow", "no tags", "worktree", "packed"])
@pytest.mark.parametrize("has_git", [True, False])
def test_every_clone_of_a_commit_says_the_same(
    how: str,
    has_git: bool,
    checkout: Path,
    git: Git,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    git(checkout, "tag", "v0.1.0", "HEAD~")
    git(checkout, "tag", f"v{RELEASE}", "HEAD~")
    clone, url = tmp_path / "clone", checkout.as_uri()
    if how == "worktree":
        git(checkout, "worktree", "add", "--quiet", "-b", "beside", str(clone))
    else:
        options = {"shallow": ["--depth", "1"], "no tags": ["--no-tags"]}.get(how, [])
        git(tmp_path, "clone", "--quiet", *options, url, str(clone))
    if how == "packed":
        git(clone, "pack-refs", "--all")
    if not has_git:
        monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
        assert shutil.which("git") is None
    found = version_of(clone)
    monkeypatch.undo()
    assert found == expected(git, checkout)


@needs_git
def test_a_hook_of_another_repository_is_not_asked(
    checkout: Path, git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "--quiet")
    told = expected(git, checkout)
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    assert version_of(checkout) == told


@needs_git
def test_the_commit_of_a_release_is_the_release(
    checkout: Path, git: Git, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "RELEASE", "7.1.0")
    git(checkout, "tag", "v7.1")
    assert (version_of(checkout) or "").startswith("7.1.0+g")
    git(checkout, "tag", "v7.1.0")
    assert version_of(checkout) == "7.1.0"
    (checkout / "note").write_text("three")
    told = version_of(checkout) or ""
    assert re.fullmatch(r"7\.1\.0\+g[0-9a-f]{12}\.dirty", told)


@needs_git
def test_an_archive_and_what_is_installed_of_it(checkout: Path, git: Git, tmp_path: Path) -> None:
    git(checkout, "archive", "--output", str(tmp_path / "a.tar"), "HEAD")
    with tarfile.open(tmp_path / "a.tar") as archive:
        archive.extractall(tmp_path / "archive", filter="data")
    there = runpy.run_path(str(tmp_path / "archive" / FILE))
    assert there["version_of"](tmp_path / "archive") == expected(git, checkout)
    assert there["version"]() == expected(git, checkout)


@pytest.mark.parametrize("name", ["noisedesign", "noisedesign-runtime"])
def test_a_source_distribution_keeps_what_was_said(name: str, tmp_path: Path) -> None:
    text = f"Metadata-Version: 2.4\nName: {name}\nVersion: 3.2.1+gabc\n\nVersion: 9\n"
    (tmp_path / "PKG-INFO").write_text(text)
    assert version_of(tmp_path) == "3.2.1+gabc"


@needs_git
def test_files_that_are_not_ours(checkout: Path, tmp_path: Path) -> None:
    """A copy of the package in a repository or a distribution of somebody else."""
    (checkout / "pyproject.toml").write_text('[project]\nname = "mine"\n')
    assert version_of(checkout) is None
    (tmp_path / "PKG-INFO").write_text("Name: mine\nVersion: 9\n\n")
    assert version_of(tmp_path) is None
    assert told_by(checkout / FILE) == UNKNOWN


def test_a_wheel_says_what_its_metadata_say(tmp_path: Path) -> None:
    site = tmp_path / "site-packages"
    (site / FILE).parent.mkdir(parents=True)
    shutil.copy(ROOT / FILE, site / FILE)
    for name in ("noisedesign", "noisedesign_runtime"):
        made = site / f"{name}-3.2.1.dist-info"
        made.mkdir()
        metadata = f"Name: {name.replace('_', '-')}\nVersion: 3.2.1+gabc\n"
        (made / "METADATA").write_text(metadata)
        assert told_by(site / FILE, path=site) == "3.2.1+gabc"
        shutil.rmtree(made)


def test_a_broken_repository_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    (tmp_path / ".git").mkdir()
    assert version_of(tmp_path) is None
