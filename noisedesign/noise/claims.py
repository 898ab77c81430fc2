"""Steps that a run has claimed in the record before it draws their noise, and the log of those it
has drawn: one synchronisation with the disk a claim, none a step.

The log is written to after every step and not synchronised. Its words are lost with the machine,
never with the process: a process that is killed has given its bytes to the system. So a claim says
on which boot of the machine it was made. On that boot its log is whole. After another one, steps of
the claim that its log does not have count as used, whatever they were used for.

Whoever takes a run over puts a last entry behind the log, and so the run that is taken over sees a
log that is longer than what it wrote itself. A lock on the log keeps the two apart, so there are no
claims where files have none."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None  # type: ignore[assignment]

MOST = 64  # steps of a claim: more are fewer synchronisations, and more that a power cut takes
SHARE = 16
"""A claim is at most this part of the horizon, so that a power cut takes little of a short run."""
BOOT = Path("/proc/sys/kernel/random/boot_id")  # of Linux: another text on every boot
USED, ATTENDED, TAKEN = b"u", b"a", b"t"
_HEAD, _CHECK = struct.Struct("<cQI"), 8  # kind, step and bytes of an entry; bytes of its checksum


class Entry(NamedTuple):
    """A log says of a step the hash of what its noise hides, or who took part in it."""

    kind: bytes
    step: int
    body: bytes


class Claim(NamedTuple):
    """Steps ``first`` to ``last`` - 1 of a run, claimed on a boot, with the name of their log."""

    first: int
    last: int
    boot: str
    log: str


def boot() -> str | None:
    """Return the identity of this boot of the machine; None where there are no claims."""
    try:
        return None if fcntl is None else BOOT.read_text("ascii").strip() or None
    except (OSError, ValueError):
        return None


def steps_of_a_claim(horizon: int) -> int:
    """Return how many steps are claimed together."""
    return max(1, min(MOST, horizon // SHARE))


def created(path: Path) -> None:
    """Make an empty log, for this user alone."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def append(path: Path, entries: Iterable[Entry], *, size: int) -> int | None:
    """Return the new size of a log of that size; None, with nothing written, where it has another
    one, or is gone."""
    content = b"".join(map(_packed, entries))
    try:
        handle = os.open(path, os.O_WRONLY | os.O_APPEND)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        if os.fstat(handle).st_size != size:
            return None
        if content and os.write(handle, content) != len(content):
            os.ftruncate(handle, size)
            return None
        return size + len(content)
    except OSError:
        return None
    finally:
        os.close(handle)


def entries_of(path: Path, *, take: bool = False) -> list[Entry] | None:
    """Return the entries of a log, and with ``take`` put a last one behind them; None where there
    is no such log."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_APPEND)
    except OSError:
        return None
    with os.fdopen(handle, "r+b", buffering=0) as file:
        fcntl.flock(handle, fcntl.LOCK_EX)
        content = file.readall()
        if take:
            file.write(_packed(Entry(TAKEN, 0, b"")))
    found, at = [], 0
    while (entry := _unpacked(content, at)) is not None:
        found.append(entry)
        at += _HEAD.size + len(entry.body) + _CHECK
    return found


def _packed(entry: Entry) -> bytes:
    said = _HEAD.pack(entry.kind, entry.step, len(entry.body)) + entry.body
    return said + blake2b(said, digest_size=_CHECK).digest()


def _unpacked(content: bytes, at: int) -> Entry | None:
    """Return the entry at a place; None where none is whole."""
    if at + _HEAD.size > len(content):
        return None
    kind, step, size = _HEAD.unpack_from(content, at)
    end = at + _HEAD.size + size
    said, check = content[at:end], content[end : end + _CHECK]
    if check != blake2b(said, digest_size=_CHECK).digest():
        return None
    return Entry(kind, step, said[_HEAD.size :])
