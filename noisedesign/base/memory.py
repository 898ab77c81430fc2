"""Whether something fits the memory of this machine: asked before the work starts."""

from __future__ import annotations

import contextlib
import os
import sys
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path

from noisedesign.base.checks import InputError

CGROUP_FILES = (  # files with the memory limits of containers, of either version
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)

UNKNOWN = 16 * 2**30  # bytes that a machine is taken to have where the system does not tell
SQUARES = 8  # arrays of m x m doubles that a whole solve holds at once, its certificate included


def physical() -> int:
    """Bytes this process may use: those of the machine, or fewer where a limit is set."""
    known = [bytes_ for bytes_ in (_machine(), _container(), _process()) if bytes_]
    return min(known, default=UNKNOWN)


def squares(size: int) -> int:
    """Bytes of the dense arrays of a solve of that size."""
    return 8 * SQUARES * size * size


def require(
    bytes_of: Callable[[int], int], size: int, *, field: str, of: str, remedy: str = ""
) -> None:
    """Refuse a ``size``, set by ``field`` and counted in ``of``, whose bytes do not fit."""
    allowed, needed = physical(), bytes_of(size)
    if needed > allowed:
        fitting = f"at most {largest(bytes_of, below=size)} {of}"
        expected = f"{fitting}, which fit the {words(allowed)} of this machine"
        got = f"{size}, which take {words(needed)}"
        raise InputError(field, expected=expected, got=got, remedy=remedy)


def largest(bytes_of: Callable[[int], int], *, below: int) -> int:
    """The largest size that fits, where ``below`` does not; ``bytes_of`` grows with the size."""
    allowed = physical()
    return bisect_right(range(1, below), allowed, key=bytes_of)


def words(count: float) -> str:
    """Bytes as people say them: "7.5 GiB"."""
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024:
            return f"{count:.3g} {unit}" if count < 100 else f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:,.0f} PiB" if count < 1e9 else f"{count:.3g} PiB"


def _machine() -> int | None:
    if sys.platform == "win32":
        return None
    with contextlib.suppress(OSError, ValueError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return None


def _container() -> int | None:
    for path in CGROUP_FILES:
        with contextlib.suppress(OSError, ValueError):
            return int(path.read_text(encoding="ascii"))
    return None


def _process() -> int | None:
    """The limit set with ``ulimit -v``, if any."""
    if sys.platform == "win32":
        return None
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft
