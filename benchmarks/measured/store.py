"""What was measured, as it is stored, and whether the code that it rests on is still the same."""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from noisedesign.base.atomic import overwriting, write_text

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "measured"
LIST = Path(__file__).with_name("list.toml")

DIGITS = 12
"""Of a digest, hexadecimal: two of all files that ever were have the same with chance 1e-9."""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """An entry of ``list.toml``.

    Attributes:
        run: commands, as people type them; what the last one prints is the result.
        minutes: of the processor, about, where it has not been measured yet.
        needs: variables of the environment, or modules, without which it cannot run.
        packages: distributions whose versions are told with it.
    """

    name: str
    run: tuple[str, ...]
    minutes: float
    needs: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Result:
    """What one run of a measurement printed.

    Attributes:
        commit: of the sources; with ``.dirty`` where they were changed after it.
        rests_on: digests of the files that the run read, by path; None where nobody noted them.
    """

    run: tuple[str, ...]
    date: str
    commit: str
    machine: dict[str, Any]
    packages: dict[str, str] = field(default_factory=dict)
    cpu_seconds: float | None = None
    rests_on: dict[str, str] | None = None
    printed: tuple[str, ...] = ()


def measurements() -> dict[str, Measurement]:
    """All of them, in the order of the file."""
    found = {}
    for name, entry in tomllib.loads(LIST.read_text(encoding="utf-8")).items():
        given = {key: tuple(v) if isinstance(v, list) else v for key, v in entry.items()}
        found[name] = Measurement(name=name, **given)
    return found


def load(name: str) -> Result | None:
    """The stored result of that name; None where there is none."""
    try:
        stored = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return Result(**stored | {key: tuple(stored[key]) for key in ("run", "printed")})


def save(name: str, result: Result) -> None:
    """Store it, whole or not at all."""
    text = json.dumps(asdict(result), indent=1, ensure_ascii=False) + "\n"
    with overwriting():
        write_text(FOLDER / f"{name}.json", text)


def changed(result: Result, asked: Measurement) -> list[str]:
    """What differs from the run, in paths or words; nothing where the result is of this code."""
    said = [] if result.run == asked.run else ["the commands"]
    if result.rests_on is None:
        return [*said, "files that the run did not note"]
    now: Mapping[str, str] = {path: digest(ROOT / path) for path in result.rests_on}
    return said + [path for path, known in result.rests_on.items() if now[path] != known]


# --- digests --------------------------------------------------------------------------------------

TOKEN = re.compile(
    r"""\s*[bfru]{0,2}(?P<three>\"{3}|'{3})(?:[^\\]|\\.)*?(?P=three)
    |"(?:[^"\\\n]|\\.)*"
    |'(?:[^'\\\n]|\\.)*'
    |(?P<comment>\s*\#[^\n]*)
    |(?P<blank>[ \t]*\n\s*\n|[ \t]+\n)""",
    re.DOTALL | re.IGNORECASE | re.VERBOSE,
)
OPEN = {*"([{,=+%\\|"}
"""Characters after which a text in three quotes is part of an expression."""


def code_of(text: str) -> str:
    """Python without comments, blank lines and docstrings, which are texts in three quotes that are
    statements: a change of these changes no number."""

    def kept(found: re.Match[str]) -> str:
        if found["comment"]:
            return ""
        if found["blank"]:
            return "\n"
        if not found["three"]:
            return found[0]
        first = "\n" in found[0][: found.start("three") - found.start()] or not found.start()
        last = text[found.end() : found.end() + 1] in ("\n", "")
        alone = first and last and text[found.start() - 1 : found.start()] not in OPEN
        return "" if alone else found[0]

    return TOKEN.sub(kept, text).strip()


@cache
def digest(path: Path) -> str:
    """Of code without what :func:`code_of` leaves out, the bytes of data, the names in a folder;
    empty where there is nothing."""
    try:
        if path.is_dir():
            content = "\n".join(sorted(one.name for one in path.iterdir() if shown(one))).encode()
        else:
            content = path.read_bytes()
    except OSError:
        return ""
    if path.suffix in (".py", ".pyi"):
        content = code_of(content.decode("utf-8")).encode()
    return hashlib.sha256(content).hexdigest()[:DIGITS]


def shown(path: Path) -> bool:
    return not path.name.startswith((".", "__pycache__"))
