"""TOML files: found, read, parsed and written; and errors that name the file or the key.

The same tables always give the same text, so that it can be hashed."""

from __future__ import annotations

import difflib
import json
import math
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from noisedesign.base import checks as _checks
from noisedesign.base.checks import InputError

LARGEST_TEXT = 2**24  # most bytes of a TOML file: a pipe or a device may never end

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def read_text(path: Path, *, field: str) -> str:
    """The text of a file, without the byte order mark that some editors begin it with."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_TEXT + 1)
        if len(content) > LARGEST_TEXT:
            raise InputError(field, expected=f"at most {LARGEST_TEXT} bytes", got=f"{path}: more")
        return content.decode("utf-8").removeprefix("\ufeff")
    except OSError as error:
        got = f"{path}: {error.strerror}"
        remedy = remedy_for_missing(path) if isinstance(error, FileNotFoundError) else ""
        raise InputError(field, expected="a readable TOML file", got=got, remedy=remedy) from error
    except UnicodeDecodeError as error:
        got = f"{path}: byte {error.start} is not UTF-8"
        raise InputError(field, expected="UTF-8 text", got=got) from error


def parsed(text: str, *, field: str) -> dict[str, Any]:
    """The tables of a TOML text."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # TOMLDecodeError, or thousands of digits
        if (long := _long_number(text)) is not None and not isinstance(
            error, tomllib.TOMLDecodeError
        ):
            key, digits = long
            expected, got = "a number that can be computed with", f"one of {digits:,} digits"
            raise InputError(key, expected=expected, got=got) from error
        raise InputError(field, expected="TOML", got=str(error).partition(";")[0]) from error


def _long_number(text: str) -> tuple[str, int] | None:
    """The dotted key of the first number that is too long to be read, and its digits."""
    table = ""
    for line in text.splitlines():
        if header := re.match(r"\s*\[+\s*([\w.-]+)\s*\]", line):
            table = f"{header[1]}."
        if found := re.match(r"\s*([\w.-]+)\s*=.*?(\d{4300,})", line):
            return f"{table}{found[1]}", len(found[2])
    return None


@contextmanager
def located(path: Path) -> Iterator[None]:
    """Errors that end in the name of the file: where many are read, a key does not say which."""
    try:
        yield
    except InputError as error:
        raise error.told(remedy=f"{error.remedy} (in {path})".strip()) from error


@contextmanager
def opened(path: str | Path, *, field: str) -> Iterator[tuple[Path, str]]:
    """The file that :func:`lookup` finds, and its text; errors within this name it."""
    found = lookup(path)
    text = read_text(found, field=field)
    with located(found):
        yield found, text


@contextmanager
def renamed(keys: dict[str, str]) -> Iterator[None]:
    """Errors about an argument of the library, told as errors about a key of the file."""
    try:
        yield
    except InputError as error:
        if error.field not in keys:
            raise
        raise error.told(field=keys[error.field]) from error


def dumped(tables: Mapping[str, Any]) -> str:
    """TOML text that says what ``tables`` says: one sorted key a line, tables inline."""
    return "".join(f"{_key(key)} = {_value(tables[key])}\n" for key in sorted(tables))


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _string(key)


def _string(text: str) -> str:
    # The escapes of JSON are escapes of TOML; DEL is the one character that only TOML escapes.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")


def _value(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int():
            return str(value)
        case float():
            return repr(value) if math.isfinite(value) else str(value)
        case str():
            return _string(value)
        case list():
            return "[" + ", ".join(map(_value, value)) + "]"
        case dict():
            pairs = (f"{_key(key)} = {_value(value[key])}" for key in sorted(value))
            return "{" + ", ".join(pairs) + "}"
    raise TypeError(f"no TOML for {value!r}")


SUFFIX = ".toml"

LOCAL = Path("problems")  # folder of the working directory whose files may be named without it


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
    """Find a name, ``.toml`` or not, here, in ``problems`` or shipped; else it is a path."""
    path = _checks.path(name, field="path")
    named = [path, path.with_name(f"{path.name}{SUFFIX}")] if path.name else [path]
    folders = [Path()]
    if not path.is_absolute() and ".." not in path.parts:
        folders += [LOCAL, shipped_folder()]
    return next((f / n for f in folders for n in named if os.path.exists(f / n)), path)


def remedy_for_missing(path: Path) -> str:
    """A remedy where there is no file of that name: the shipped file most like it."""
    known = shipped_files()
    asked = path.with_suffix("").as_posix() if path.suffix == SUFFIX else path.as_posix()
    close = difflib.get_close_matches(asked, known, n=1)
    if not close:  # the family may be missing, or wrong
        close = [name for name in known if name.rpartition("/")[2] == asked.rpartition("/")[2]]
    meant = f"Did you mean {close[0]}? " if close else ""
    return f"{meant}`noisedesign problems` lists those that are shipped."
