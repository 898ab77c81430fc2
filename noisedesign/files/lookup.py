"""Where a file is that somebody names: in the working directory, or among what is shipped."""

from __future__ import annotations

import difflib
import os
from pathlib import Path

from noisedesign.base import checks as _checks

SUFFIX = ".toml"

LOCAL = Path("problems")
"""Folder of the working directory whose files may be named without it."""


def shipped_folder() -> Path:
    """The problems of the package: inside it once it is installed, beside it in a checkout."""
    package = Path(__file__).parents[1]
    inside = package / "problems"
    return inside if inside.is_dir() else package.parent / "problems"


def shipped_files() -> dict[str, Path]:
    """All that is shipped: "whisper/florentine" and the like, in alphabetical order, and files."""
    folder = shipped_folder()
    return {
        path.relative_to(folder).with_suffix("").as_posix(): path
        for path in sorted(folder.rglob(f"*{SUFFIX}"))
    }


def lookup(name: str | Path) -> Path:
    """The file or folder of that name, ``.toml`` or not: of the working directory, of its folder
    ``problems``, or shipped with the package, the first there is; else the name as a path."""
    path = _checks.path(name, field="path")
    named = [path, path.with_name(f"{path.name}{SUFFIX}")] if path.name else [path]
    folders = [Path()]
    if not path.is_absolute() and ".." not in path.parts:
        folders += [LOCAL, shipped_folder()]
    return next((f / n for f in folders for n in named if os.path.exists(f / n)), path)


def remedy_for_missing(path: Path) -> str:
    """What to try where there is no file of that name."""
    known = shipped_files()
    asked = path.with_suffix("").as_posix() if path.suffix == SUFFIX else path.as_posix()
    close = difflib.get_close_matches(asked, known, n=1)
    if not close:  # the family may be missing, or wrong
        close = [name for name in known if name.rpartition("/")[2] == asked.rpartition("/")[2]]
    meant = f"Did you mean {close[0]}? " if close else ""
    return f"{meant}`noisedesign problems` lists those that are shipped."
