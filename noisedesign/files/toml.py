"""TOML text: read whole from disk, parsed, written; and errors that say which file, or which key.

What is written is always the same text for the same tables, so that it can be hashed.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from noisedesign.base.checks import InputError
from noisedesign.files.lookup import remedy_for_missing

LARGEST_TEXT = 2**24
"""Bytes of a TOML file that are read: a pipe or a device may never end."""

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def read_text(path: Path, *, field: str) -> str:
    """The text of a file, without the byte order mark that some editors begin it with.

    Raises:
        InputError: naming ``field``: no such file, a folder, not UTF-8.
    """
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
    """The tables of a TOML text.

    Raises:
        InputError: naming ``field``: not TOML.
    """
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(field, expected="TOML", got=str(error)) from error


@contextmanager
def located(path: Path) -> Iterator[None]:
    """Errors that end in the name of the file: where many are read, a key does not say which."""
    try:
        yield
    except InputError as error:
        remedy = f"{error.remedy} (in {path})".strip()
        raise InputError(
            error.field, expected=error.expected, got=error.got, remedy=remedy
        ) from error


@contextmanager
def renamed(keys: dict[str, str]) -> Iterator[None]:
    """Errors about an argument of the library, told as errors about a key of the file.

    Args:
        keys: from the names of arguments to those of keys; others stay as they are.
    """
    try:
        yield
    except InputError as error:
        if error.field not in keys:
            raise
        raise InputError(
            keys[error.field], expected=error.expected, got=error.got, remedy=error.remedy
        ) from error


def dumped(tables: Mapping[str, Any]) -> str:
    """TOML text that says what ``tables`` says: one sorted key a line, tables inline.

    Args:
        tables: of strings, integers, floats, booleans, lists and tables of them.
    """
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
