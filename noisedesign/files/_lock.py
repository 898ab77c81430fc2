"""One process at a time with one table.

The operating system keeps the lock and lets go of it however the process ends, so that no crash
leaves a table locked. It is on an empty file beside the table, since a table is replaced now and
then, and a lock would go with the file that it is on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock

from noisedesign.base.atomic import target_of
from noisedesign.base.checks import InputError

FIELD = "output"


@contextmanager
def alone_with(path: Path) -> Iterator[None]:
    """Alone with the file at ``path``, which need not exist, under whatever name others know it.

    The file that is locked, ``.NAME.lock`` in the same folder, stays: who removes it may remove the
    one that the next process holds.

    Raises:
        InputError: naming ``output``: somebody else is at it; no such folder, or one that cannot
            be written to; a folder, a device, a loop of links.
    """
    target = target_of(path)
    lock = filelock.FileLock(target.with_name(f".{target.name}.lock"))
    try:
        lock.acquire(blocking=False)
    except filelock.Timeout as error:
        raise InputError(
            FIELD,
            expected="a table that nobody else is writing",
            got=f"{path}, which another process has open",
            remedy="Wait for it, end it, or name another file.",
        ) from error
    except OSError as error:
        raise unwritable(path, error) from error
    try:
        yield
    finally:
        lock.release()


def unwritable(path: Path, error: OSError) -> InputError:
    """What to say of a table that the system does not let us write."""
    return InputError(
        FIELD, expected="a file that can be written", got=f"{path}: {error.strerror or error}"
    )
