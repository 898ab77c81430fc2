"""Writing a file whole or not at all, and never over a file of another kind."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import BinaryIO

from noisedesign.base import checks as _checks
from noisedesign.base.checks import InputError
from noisedesign.base.file_kinds import kind_of

if sys.platform != "win32":
    import fcntl

REPLACE_REMEDY = "Name another file, or replace it with --force (in Python: overwrite=True)."

_overwrite = ContextVar("overwrite", default=False)


class StorageError(OSError):
    """The file could not be written. Whatever stood at ``path`` before still stands there."""

    def __init__(self, path: Path, cause: OSError) -> None:
        reason = cause.strerror or str(cause)
        kept = "the existing file is untouched" if path.exists() else "nothing was left behind"
        super().__init__(f"could not write {path}: {reason}; {kept}")
        self.path, self.errno = path, cause.errno


@contextmanager
def overwriting(allowed: bool = True) -> Iterator[None]:
    """Replace files of any kind within this, where ``allowed`` or within another such context."""
    token = _overwrite.set(_checks.flag(allowed, field="overwrite") or _overwrite.get())
    try:
        yield
    finally:
        _overwrite.reset(token)


def may_overwrite() -> bool:
    """Whether files of any kind are replaced now."""
    return _overwrite.get()


def check_replaceable(path: str | Path, kind: str | None, *, field: str = "output") -> None:
    """Refuse to replace a file of another ``kind`` (in words) unless overwriting."""
    path = _checks.path(path, field=field)
    if may_overwrite() or not path.is_file() or not path.stat().st_size:
        return
    found = kind_of(path)
    if kind is None or found != kind:
        expected = f"a new file, or {kind or 'one of the same kind'} to replace"
        got = f"{path}, {found or 'a file that is something else'}"
        raise InputError(field, expected=expected, got=got, remedy=REPLACE_REMEDY)


def target_of(path: str | Path, *, field: str = "output") -> Path:
    """Return the regular file that is written for ``path``: symbolic links are followed."""
    target = Path(os.path.realpath(_checks.path(path, field=field)))
    if target.is_symlink():  # what realpath could not follow
        raise InputError(field, expected="a file path", got=f"a loop of links, {path}")
    if target.is_dir():
        raise InputError(field, expected="a file path", got=f"a folder, {path}")
    if target.exists() and not target.is_file():
        raise InputError(field, expected="a regular file", got=f"a device or pipe, {path}")
    if not target.parent.is_dir():
        expected = f"an existing folder {target.parent}"
        raise InputError(field, expected=expected, got="none", remedy="Create the folder first.")
    return target


def write_atomically(path: str | Path, write: Callable[[BinaryIO], object]) -> Path:
    """Fill a new file by ``write``, then put it in place of ``path`` in one step."""
    # Whatever fails, readers see the old file whole; rests of a new one go now or next time.
    target = target_of(path)
    path = Path(path)
    try:
        remove_leftovers(target.parent)
        with _temporary(target.parent) as temporary:
            with temporary.open("r+b") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            if target.exists():
                check_replaceable(path, kind_of(temporary))
            temporary.replace(target)
    except OSError as error:
        raise StorageError(path, error) from error
    with contextlib.suppress(OSError):  # the name itself made durable, where a system can
        descriptor = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    return path


# --- temporary files ------------------------------------------------------------------------

_BEGINNING = f".noisedesign-{hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]}-"
"""Names of temporary files begin so; the mark of this machine spares those of others."""


@contextmanager
def _temporary(folder: Path) -> Iterator[Path]:
    """Make a new file in ``folder``, locked while this process lives; gone afterwards."""
    while True:
        path = folder / f"{_BEGINNING}{secrets.token_hex(8)}.tmp"
        # "x" creates with the user's umask, which a tempfile's mode 600 would override.
        with path.open("x+b") as owner:
            try:
                with contextlib.suppress(OSError):  # without locks nobody removes anything
                    _locked(owner, wait=True)
                if os.fstat(owner.fileno()).st_nlink > 0:  # else it was taken for a leftover
                    yield path
                    return
            finally:
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)


def remove_leftovers(folder: Path) -> None:
    """Remove temporary files of dead processes of this machine: their locks are free."""
    for path in folder.glob(f"{_BEGINNING}*.tmp"):
        with contextlib.suppress(OSError), path.open("r+b") as file:
            if _locked(file, wait=False):
                path.unlink()


def _locked(file: BinaryIO, *, wait: bool) -> bool:
    """Take the lock of a file; false on Windows. Raises OSError where somebody else has it."""
    if sys.platform == "win32":
        return False
    fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    return True


def write_bytes(path: str | Path, content: bytes) -> Path:
    """Write bytes by :func:`write_atomically`."""
    return write_atomically(path, lambda file: file.write(content))


def write_text(path: str | Path, content: str) -> Path:
    """:func:`write_atomically` of UTF-8 text, line ends as they are."""
    return write_bytes(path, content.encode("utf-8"))


def made_folder(path: str | Path) -> Path:
    """Return the folder at ``path``, created where there is none; InputError naming ``output``."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        got = f"{folder}: {error.strerror}"
        raise InputError("output", expected="a folder that can be created", got=got) from error
    return folder
