"""TOML files on disk: read whole, and errors that say which file they are about."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from noisedesign.base.checks import InputError
from noisedesign.files._lookup import remedy_for_missing

LARGEST_TEXT = 2**24
"""Bytes of a TOML file that are read: a pipe or a device may never end."""


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
