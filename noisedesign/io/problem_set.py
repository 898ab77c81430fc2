"""Which problem files are meant: names, folders and patterns."""

from __future__ import annotations

import glob
from collections.abc import Iterable
from pathlib import Path

from noisedesign._checks import InputError
from noisedesign.io._toml import parsed, read_text

FIELD = "problem"

OTHER_KINDS = ("algorithm", "grid")
"""Tables that account files and sweep files have, and problem files have not."""


def problem_files(names: Iterable[str | Path]) -> tuple[list[Path], list[Path]]:
    """The problem files that are meant, each once, and the files passed over.

    Args:
        names: files, folders (all ``*.toml`` in them and below) and patterns with ``*``, ``?`` and,
            for any folders, ``**``. Account and sweep files are passed over, so that a pattern may
            name them along with problems.

    Raises:
        InputError: naming ``problem``: nothing of that name; no problem file among them; not TOML.
    """
    found: dict[Path, None] = {}
    for name in names:
        path = Path(name)
        if path.is_dir():
            files = sorted(path.rglob("*.toml"))
        elif not path.exists() and glob.has_magic(str(name)):
            files = sorted(Path(hit) for hit in glob.glob(str(name), recursive=True))
            files = [file for file in files if file.is_file()]
        else:
            files = [path]
        if not files:
            raise InputError(FIELD, expected="a TOML file of that name", got=f"none: {name}")
        found |= dict.fromkeys(files)
    passed_over = [path for path in found if _is_of_another_kind(path)]
    meant = [path for path in found if path not in passed_over]
    if not meant:
        raise InputError(
            FIELD, expected="at least one problem file",
            got=f"{len(passed_over)} account or sweep files",
        )  # fmt: skip
    return meant, passed_over


def _is_of_another_kind(path: Path) -> bool:
    tables = parsed(read_text(path, field=FIELD), field=FIELD)
    return any(table in tables for table in OTHER_KINDS)
