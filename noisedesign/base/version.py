"""The version: that of the release to come and, in a checkout, the commit.

``0.2.0.dev0+g0123456789ab``, with ``.dirty`` where tracked files differ from that commit. Git is
asked each time, as an editable installation stays while commits come and go; distributions keep
the version they were built with. Setup scripts load this file alone: it imports nothing of ours."""

from __future__ import annotations

import os
import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path

RELEASE = "0.3.0.dev0"
"""The release to come; without ``.dev0`` in the commit that is tagged with "v" and this number."""

ARCHIVED = "$Format:%H$"
"""The commit, in an archive of the sources that git wrote (see ``.gitattributes``)."""

PROJECT = "noisedesign"
DISTRIBUTIONS = (PROJECT, f"{PROJECT}-runtime")  # wheels that have this file
DIGITS, DIRTY = 12, ".dirty"
UNKNOWN = f"{RELEASE}+unknown"


@cache
def version() -> str:
    """The version of the files that this process runs, as PEP 440 writes versions."""
    here = Path(__file__).resolve()
    return version_of(here.parents[2]) or _installed(here) or UNKNOWN


def version_of(root: Path) -> str | None:
    """The version of the sources in a folder; None where it is not that of a checkout or sdist."""
    if _is_checkout(root):
        return _described(root) or _commit_version(_head(root))
    if not ARCHIVED.startswith("$"):
        return _commit_version(ARCHIVED)
    try:
        lines = (root / "PKG-INFO").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    facts = dict(line.split(": ", 1) for line in lines[: lines.index("")] if ": " in line)
    return facts.get("Version") if facts.get("Name") in DISTRIBUTIONS else None


def _is_checkout(root: Path) -> bool:
    """Whether it is ours: others may keep a copy of the package in a repository of theirs."""
    try:
        project = (root / "pyproject.toml").read_text(encoding="utf-8")
    except OSError:
        return False
    return f'name = "{PROJECT}"\n' in project and (root / ".git").exists()


def _described(root: Path) -> str | None:
    """The version by git; None without it, or where it does not trust the owner of the folder."""
    tag = f"v{RELEASE}"
    describe = ["git", "describe", "--tags", "--match", tag, "--long", "--always"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    command = [*describe, f"--abbrev={DIGITS}", f"--dirty={DIRTY}"]
    try:
        done = subprocess.run(
            command, cwd=root, env=environment, capture_output=True, text=True, check=False
        )
    except OSError:
        return None
    told = done.stdout.strip()
    if done.returncode or not told:
        return None
    if told.startswith(f"{tag}-0-") and not told.endswith(DIRTY):
        return RELEASE
    return f"{RELEASE}+g{told.rpartition('-g')[2]}"


def _head(root: Path) -> str | None:
    """The commit from the files of git, which do not tell whether others were changed."""
    git = root / ".git"
    try:
        if git.is_file():  # of a worktree
            git = root / git.read_text(encoding="utf-8").removeprefix("gitdir:").strip()
        head = (git / "HEAD").read_text(encoding="utf-8").strip()
        if not head.startswith("ref: "):
            return head
        name, common = head.removeprefix("ref: "), git / "commondir"
        shared = git / common.read_text(encoding="utf-8").strip() if common.is_file() else git
        if (shared / name).is_file():
            return (shared / name).read_text(encoding="utf-8").strip()
        packed = (shared / "packed-refs").read_text(encoding="utf-8").splitlines()
        return next((line.split()[0] for line in packed if line.endswith(f" {name}")), None)
    except (OSError, UnicodeError):
        return None


def _commit_version(commit: str | None) -> str | None:
    return f"{RELEASE}+g{commit[:DIGITS]}" if commit else None


def _installed(here: Path) -> str | None:
    """The version of the wheel that this very file came in, if any."""
    for name in DISTRIBUTIONS:
        try:
            found = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        file = Path(*here.parts[-3:])
        if Path(str(found.locate_file(file))).resolve() == here:
            return found.version
    return None
