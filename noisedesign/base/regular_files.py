"""Files that users name: regular ones of a size that fits, before any of them is read."""

from __future__ import annotations

import stat
from pathlib import Path

from noisedesign.base import memory
from noisedesign.base.checks import InputError


def check_regular(path: Path, *, field: str, expected: str, times: int = 1) -> None:
    """Refuse what is no regular file or takes, ``times`` its size, more than the memory."""
    try:
        found = path.stat()
    except (OSError, ValueError) as error:  # ValueError: a null character in the name
        reason = getattr(error, "strerror", error)
        raise InputError(field, expected=expected, got=f"{path}: {reason}") from error
    if stat.S_ISDIR(found.st_mode):
        raise InputError(field, expected=expected, got=f"{path}: Is a directory")
    if not stat.S_ISREG(found.st_mode):
        kind = "a pipe" if stat.S_ISFIFO(found.st_mode) else "a device or socket"
        remedy = "Copy its content to a file first."
        raise InputError(field, expected=expected, got=f"{path}: {kind}", remedy=remedy)
    memory.require(lambda size: times * size, found.st_size, field=field, of=f"bytes in {path}")


def read_regular(path: Path, *, field: str, expected: str, times: int = 1) -> bytes:
    """The content of a regular file; arguments and errors as of :func:`check_regular`."""
    check_regular(path, field=field, expected=expected, times=times)
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(field, expected=expected, got=f"{path}: {error.strerror}") from error
