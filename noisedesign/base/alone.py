"""Nobody else writes meanwhile: a lock beside a file or a folder, which ends with its process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import filelock

from noisedesign.base.checks import InputError


@contextmanager
def alone_with(target: Path, *, field: str, what: str) -> Iterator[None]:
    """Hold the lock of ``target``, which need not exist, in its folder, which must."""
    # ``.NAME.lock`` is removed while it is held: who then gets the lock of no file asks again.
    lock = filelock.FileLock(target.with_name(f".{target.name}.lock"))
    try:
        lock.acquire(blocking=False)
        while not os.path.exists(lock.lock_file):
            lock.release()
            lock.acquire(blocking=False)
    except filelock.Timeout as error:
        expected = f"a {what} that nobody else is writing"
        got = f"{target}, which another process has open"
        remedy = f"Wait for it, end it, or name another {what}."
        raise InputError(field, expected=expected, got=got, remedy=remedy) from error
    try:
        yield
    finally:
        with suppress(OSError):  # Windows removes it when it is released
            os.unlink(lock.lock_file)
        lock.release()
