"""Writing a file whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from noisedesign._checks import InputError


class StorageError(OSError):
    """The file could not be written. Whatever stood at ``path`` before still stands there."""

    def __init__(self, path: Path, cause: OSError) -> None:
        reason = cause.strerror or str(cause)
        kept = "the existing file is untouched" if path.exists() else "nothing was left behind"
        super().__init__(f"could not write {path}: {reason}; {kept}")
        self.path, self.errno = path, cause.errno


def write_atomically(path: str | Path, write: Callable[[BinaryIO], None]) -> Path:
    """Let ``write`` fill a new file, then put it in place of ``path`` in one step.

    Readers see the old file or the complete new one. The temporary file lies in the same folder
    and is removed on any failure, an interrupt included. A symbolic link is followed. ``write`` may
    read what it has written.

    Returns:
        ``path`` as a Path.

    Raises:
        InputError: ``path`` is a folder or a device, or its folder does not exist.
        StorageError: the disk is full, the folder is read-only, ...
    """
    path = Path(path)
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise InputError("output", expected="a file path", got=f"a folder, {path}")
    if target.exists() and not target.is_file():
        raise InputError("output", expected="a regular file", got=f"a device or pipe, {path}")
    if not target.parent.is_dir():
        raise InputError(
            "output", expected=f"an existing folder {target.parent}", got="none",
            remedy="Create the folder first.",
        )  # fmt: skip
    temporary = target.with_name(f".noisedesign-{secrets.token_hex(8)}.tmp")
    try:
        # "x" creates with the user's umask, which a tempfile's mode 600 would override.
        with temporary.open("x+b") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise StorageError(path, error) from error
        raise
    _sync_folder(target.parent)
    return path


def write_bytes(path: str | Path, content: bytes) -> Path:
    """:func:`write_atomically` of bytes."""

    def write(file: BinaryIO) -> None:
        file.write(content)

    return write_atomically(path, write)


def write_text(path: str | Path, content: str) -> Path:
    """:func:`write_atomically` of UTF-8 text, line ends as they are."""
    return write_bytes(path, content.encode("utf-8"))


def _sync_folder(folder: Path) -> None:
    """Make the new name itself durable; not every system can, and the file is complete anyway."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
