"""The record of what was drawn from which secret: a small database on this machine, which refuses a
second use.

The same noise on other data shows the difference of the two, so a secret serves one node, one
design and one run, and a step of it one sum of gradients. Who took part in which step is kept, too.
What happens on another machine cannot be seen here.

Data and names of records are kept as hashes, keyed by the secret. Who reads the file learns how
many records were in the sum of a step, and which steps had one in common, but can try out no names.

Every transaction is one synchronisation with the disk (a write-ahead log of SQLite, synchronous
"full"; where a file system has none, a journal whose folder is synchronised too). A run claims up
to 64 steps in one, and logs what it does with them: see :mod:`noisedesign.noise.claims`.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import time
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from secrets import token_hex
from threading import RLock

from noisedesign.base import checks as _checks
from noisedesign.base.checks import InputError
from noisedesign.noise import claims as _claims
from noisedesign.noise.claims import ATTENDED, USED, Claim, Entry
from noisedesign.noise.hidden import HASH_BYTES

ENVIRONMENT = "NOISEDESIGN_RECORDS"
_VERSION = 3
PATIENCE = 60.0  # seconds that a process waits for others to write
LOST = b""  # of a step that was claimed when the machine went down: any data are others
_TABLES = """
CREATE TABLE IF NOT EXISTS uses (
    secret TEXT NOT NULL, node INTEGER NOT NULL, digest TEXT NOT NULL, streams TEXT NOT NULL,
    run TEXT, dimension INTEGER, PRIMARY KEY (secret, node)
);
CREATE TABLE IF NOT EXISTS steps (
    secret TEXT NOT NULL, node INTEGER NOT NULL, step INTEGER NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY (secret, node, step)
);
CREATE TABLE IF NOT EXISTS attendance (
    secret TEXT NOT NULL, node INTEGER NOT NULL, step INTEGER NOT NULL, who BLOB NOT NULL,
    PRIMARY KEY (secret, node, step)
);
CREATE TABLE IF NOT EXISTS batches (
    secret TEXT NOT NULL, node INTEGER NOT NULL, records INTEGER NOT NULL,
    PRIMARY KEY (secret, node)
);
CREATE TABLE IF NOT EXISTS claims (
    run TEXT NOT NULL PRIMARY KEY, first INTEGER NOT NULL, last INTEGER NOT NULL,
    boot TEXT NOT NULL, log TEXT NOT NULL
);
"""
_HERE = "WHERE secret = ? AND node = ?"
_NEW = "Draw a new one: Secret.new()."
Place = tuple[str, int]  # fingerprint of a secret, and a node that draws from it
ALL_OF_THEM = "A run goes on with all its secrets; for another run draw all of them anew."


def default_path() -> Path:
    """``$NOISEDESIGN_RECORDS``, or a file of the user's state folder."""
    named = os.environ.get(ENVIRONMENT)
    if named:
        return Path(named)
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA", Path.home()))
    else:
        base = Path(os.environ.get("XDG_STATE_HOME", Path.home() / ".local" / "state"))
    return base / "noisedesign" / "records.sqlite3"


class Record:
    """A database of what was drawn from which secrets, which refuses to have noise drawn for two
    runs: two messages with the same noise show the difference of what it hides.

    Args:
        path: of the database, made where there is none; by default ``$NOISEDESIGN_RECORDS`` or a
            file of the user's state folder.

    Raises:
        InputError: a file that is no record, or cannot be written.

    Examples:
        >>> import numpy as np
        >>> import noisedesign as nd
        >>> from noisedesign.noise import Record, Secret, noise
        >>> target = nd.PrivacyTarget(epsilon=1.0)
        >>> scheme = nd.participation.single(2)
        >>> problem = nd.TimeProblem.prefix(participation=scheme, privacy=target)
        >>> design, secret = nd.solve(problem).design, Secret.new()
        >>> source = noise(design, node=0, secret=secret, record="records.sqlite3")
        >>> source.add_([np.zeros(3)], 0)
        >>> Record("records.sqlite3").steps(secret=secret.fingerprint, node=0)
        frozenset({0})
        >>> try:
        ...     noise(design, node=0, secret=secret, record="records.sqlite3")
        ... except nd.InputError as error:
        ...     print(error.got)
        one whose noise was added up to step 0
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = default_path() if path is None else _checks.path(path, field="record")
        self._kept = _kept(self.path.absolute())
        with self._open() as database:
            (version,) = database.execute("PRAGMA user_version").fetchone()
            if version > _VERSION:
                got = f"version {version}"
                raise InputError("record", expected=f"version {_VERSION} in {self.path}", got=got)
            if version < _VERSION:
                database.execute("BEGIN IMMEDIATE")
                for table in _TABLES.split(";"):
                    database.execute(table)
                database.execute(f"PRAGMA user_version = {_VERSION}")

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """The connection of this process; a transaction that is begun ends with it."""
        try:
            with self._kept.lock:
                database = self._kept.database()
                try:
                    yield database
                    if database.in_transaction:
                        database.execute("COMMIT")
                finally:
                    if database.in_transaction:
                        database.execute("ROLLBACK")
        except (OSError, sqlite3.Error) as error:
            expected = f"a record of what was drawn at {self.path}"
            remedy = (
                f"Name another file in {ENVIRONMENT}; without the old one nobody sees "
                "whether a secret served before, so take new secrets."
            )
            raise InputError("record", expected=expected, got=f"{error}", remedy=remedy) from None

    def _log(self, claim: Claim) -> Path:
        return self.path.with_name(claim.log)

    def steps(self, *, secret: str, node: int) -> frozenset[int]:
        """The steps whose noise a node added.

        Args:
            secret: its fingerprint.
            node: zero-based.

        Returns:
            Steps, zero-based.

        Raises:
            InputError: no text, or no node; the record cannot be read.
        """
        _checks.text(secret, field="secret")
        node = _checks.positive_int(node, field="node", minimum=0)
        with self._open() as database:
            database.execute("BEGIN")
            return self._steps(database, (secret, node))

    def _steps(self, database: sqlite3.Connection, where: Place) -> frozenset[int]:
        """Steps of a place that count as used, of an open claim, too."""
        found = database.execute(f"SELECT step FROM steps {_HERE}", where)
        steps = {step for (step,) in found}
        run = database.execute(f"SELECT run FROM uses {_HERE}", where).fetchone()
        if run is not None and (claim := _claim_of(database, run[0])) is not None:
            steps.update(entry.step for entry in self._logged(claim) if entry.kind == USED)
        return frozenset(steps)

    def _logged(self, claim: Claim, *, take: bool = False) -> list[Entry]:
        """Return the entries of a claim: its log, and steps that it may have lost."""
        found = _claims.entries_of(self._log(claim), take=take)
        if found is not None and claim.boot == _claims.boot():
            return found
        found = found or []
        known = {entry.step for entry in found if entry.kind == USED}
        lost = (step for step in range(claim.first, claim.last) if step not in known)
        return [*found, *(Entry(USED, step, LOST) for step in lost)]


class _Connection:
    """The connection of this process to one file, as long as that is the same file."""

    def __init__(self, path: Path) -> None:
        self.path, self.lock = path, RLock()
        self._of: tuple[object, ...] = ()
        self._database: sqlite3.Connection | None = None

    def database(self) -> sqlite3.Connection:
        """Return it, opened anew in a fork, and where the file was removed."""
        if self._database is None or self._of != self._is():
            if self._of[:1] == (os.getpid(),):
                self.close()
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._database = _connected(self.path)
            self._of = self._is()
        return self._database

    def _is(self) -> tuple[object, ...]:
        with suppress(OSError):
            stat = os.stat(self.path)
            return os.getpid(), stat.st_dev, stat.st_ino
        return ()

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
        self._database = None


_CONNECTIONS: weakref.WeakValueDictionary[Path, _Connection] = weakref.WeakValueDictionary()


def _kept(path: Path) -> _Connection:
    """Return the one connection to a file: thousands of nodes may run in a process."""
    found = _CONNECTIONS.get(path)
    if found is None:
        found = _CONNECTIONS[path] = _Connection(path)
    return found


def _connected(path: Path) -> sqlite3.Connection:
    """Open a database that has every transaction on disk when it ends, with one synchronisation."""
    database = sqlite3.connect(
        path, timeout=PATIENCE, isolation_level=None, check_same_thread=False
    )
    try:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                (mode,) = database.execute("PRAGMA journal_mode = WAL").fetchone()
                break
            except sqlite3.OperationalError:  # others open it: SQLite does not wait here
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
        database.execute(f"PRAGMA synchronous = {'FULL' if mode == 'wal' else 'EXTRA'}")
    except BaseException:
        database.close()
        raise
    return database


@dataclass(eq=False)
class _Open:
    """The claim of a run that goes on in this process: its log, and what is in it."""

    claim: Claim
    log: Path
    used: dict[int, bytes]  # hashes of its steps, those from before the claim, too
    size: int = 0
    entries: list[Entry] = field(default_factory=list)

    def add(self, *entries: Entry) -> bool:
        """Whether the claim is this run's still, and then they are in its log."""
        size = _claims.append(self.log, entries, size=self.size)
        if size is None:
            return False
        self.size = size
        self.entries += entries
        self.used.update((entry.step, entry.body) for entry in entries if entry.kind == USED)
        return True

    def has(self, step: int) -> bool:
        return self.claim.first <= step < self.claim.last


@dataclass(eq=False)
class Uses:
    """The uses of the secrets of one run of one node, by their fingerprints, as its record keeps
    them; who took part is kept with the first. A run of ``horizon`` steps claims many at once."""

    record: Record
    secrets: tuple[str, ...]
    node: int
    horizon: int = 1
    run: str = field(default_factory=lambda: token_hex(16))
    _open: _Open | None = field(default=None, init=False)
    _dimension: int | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._lock = RLock()
        self._end: weakref.finalize[..., Uses] | None = None

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction that holds the record from its first word on."""
        with self.record._open() as database:
            database.execute("BEGIN IMMEDIATE")
            yield database

    @contextmanager
    def _drawing(self) -> Iterator[sqlite3.Connection]:
        """One transaction in which the secrets are drawn from, in this run and no other."""
        with self._writing() as database:
            for where in self._places:
                known = _run_of(database, where)
                if known is None:
                    database.execute(f"UPDATE uses SET run = ? {_HERE}", (self.run, *where))
                elif known != self.run:
                    expected = "one that no other run uses"
                    got = (
                        "one that another process draws from, whose noise "
                        f"{self._progress(database, where)}"
                    )
                    remedy = f"Stop one of them. For a run of its own: {_NEW}"
                    raise InputError("secret", expected=expected, got=got, remedy=remedy)
            yield database

    @property
    def _places(self) -> list[Place]:
        return [(secret, self.node) for secret in self.secrets]

    def claim(self, served: Mapping[str, tuple[str, bool]], *, digest: str, resume: bool) -> None:
        """Claim the secrets for this run of a design: all of them, or none.

        ``served`` says by their fingerprints what is drawn from them, in words, and whether other
        nodes may draw from them too; a run that is resumed cannot go on itself."""
        closed: list[Path] = []
        with self._writing() as database:
            known = [
                _serves(database, (secret, self.node), digest, streams, shared=shared)
                for secret, (streams, shared) in served.items()
            ]
            if resume and not any(known):
                expected = f"a record in {self.record.path} of the run that goes on"
                got = "one that does not know it"
                remedy = (
                    "Name the record that the run began with. Where that is lost, nobody "
                    "sees which noise was used: take new secrets. A run begins once without "
                    "resume=True."
                )
                raise InputError("record", expected=expected, got=got, remedy=remedy)
            if resume:
                runs = {_run_of(database, where) for where in self._places}
                closed = [log for run in runs if (log := self._close(database, run))]
            steps = [self.record._steps(database, where) for where in self._places]
            if resume and not (all(known) and all(found == steps[0] for found in steps)):
                expected = "the secrets of the run that goes on"
                got = "some that served other steps than the others"
                raise InputError("secret", expected=expected, got=got, remedy=ALL_OF_THEM)
            for where in self._places:
                if resume:
                    database.execute(f"UPDATE uses SET run = ? {_HERE}", (self.run, *where))
                elif _run_of(database, where) is not None:
                    expected = "one that no run has used"
                    got = f"one whose noise {self._progress(database, where)}"
                    remedy = f"Go on with that run by resume=True. For another run: {_NEW}"
                    raise InputError("secret", expected=expected, got=got, remedy=remedy)
        for log in closed:
            log.unlink(missing_ok=True)

    def _progress(self, database: sqlite3.Connection, where: Place) -> str:
        steps = self.record._steps(database, where)
        return f"was added up to step {max(steps)}" if steps else "was drawn"

    def begin(self) -> None:
        """Draw noise from now on, unless another run has since the secrets were claimed."""
        with self._lock:
            if self._open is not None and self._open.add():
                return
            with self._drawing():
                pass

    def use(self, step: int, *, data: bytes, dimension: int, who: bytes | None) -> None:
        """Record that the noise of a step hides so many numbers with this hash, of ``who``."""
        with self._lock:
            if self._dimension not in (None, dimension):
                expected = f"{self._dimension} numbers, as in the steps before"
                raise InputError("parameters", expected=expected, got=f"{dimension}")
            if self._open is not None and self._open.has(step):
                known = self._open.used.get(step)
                if known not in (None, data):
                    raise other_data(step, lost=known == LOST)
                entries = [] if known else [Entry(USED, step, data)]
                entries += [] if who is None else [Entry(ATTENDED, step, who)]
                if self._open.add(*entries):
                    return
            self._use(step, data=data, dimension=dimension, who=who)

    def _use(self, step: int, *, data: bytes, dimension: int, who: bytes | None) -> None:
        """Record it on disk, and claim the steps after it."""
        claim, log = self._next(step)
        before = self._open
        try:
            with self._drawing() as database:
                self._close(database, self.run)
                for where in self._places:
                    query = f"SELECT dimension FROM uses {_HERE}"
                    (size,) = database.execute(query, where).fetchone()
                    if size not in (None, dimension):
                        expected = f"{size} numbers, as in the steps before"
                        raise InputError("parameters", expected=expected, got=f"{dimension}")
                    query = f"SELECT data FROM steps {_HERE} AND step = ?"
                    found = database.execute(query, (*where, step)).fetchone()
                    if found is None:
                        query = f"UPDATE uses SET dimension = ? {_HERE}"
                        database.execute(query, (dimension, *where))
                        _insert(database, where, step, data)
                    elif found[0] != data:
                        raise other_data(step, lost=found[0] == LOST)
                if who is not None:
                    _attend(database, self._places[0], step, who)
                opened = None
                if claim is not None:
                    _claims.created(log)
                    row = (self.run, *claim)
                    database.execute("INSERT INTO claims VALUES (?, ?, ?, ?, ?)", row)
                    query = f"SELECT step, data FROM steps {_HERE}"
                    opened = _Open(claim, log, dict(database.execute(query, self._places[0])))
        except BaseException:
            log.unlink(missing_ok=True)
            raise
        self._dimension, self._open = dimension, opened
        if before is not None:
            before.log.unlink(missing_ok=True)
        if self._end is not None:
            self._end.detach()
        if opened is not None:
            ended = self.record, self.run, self._places[0], opened, os.getpid()
            self._end = weakref.finalize(self, _ended, *ended)

    def _next(self, step: int) -> tuple[Claim | None, Path]:
        """The claim of a step and those after it; None where it would be the only one."""
        boot = _claims.boot()
        name = f"{self.record.path.name}-{token_hex(8)}.log"
        last = min(self.horizon, step + _claims.steps_of_a_claim(self.horizon))
        claim = None if boot is None or last <= step + 1 else Claim(step, last, boot, name)
        return claim, self.record.path.with_name(name)

    def _close(self, database: sqlite3.Connection, run: str | None) -> Path | None:
        """Write what a run did with its claim, which draws no more by it; return its log, if any,
        which nobody needs once that is on disk."""
        claim = _claim_of(database, run)
        if claim is None:
            return None
        own = self._open if run == self.run else None
        entries = self.record._logged(claim, take=True) if own is None else own.entries
        _write(database, run, self._places[0], entries)
        return self.record._log(claim)

    def attend(self, step: int, who: bytes) -> None:
        """Record that these, too, took part in a step: their hashes, one after another."""
        with self._lock:
            claimed = self._open
            if claimed and claimed.has(step) and claimed.add(Entry(ATTENDED, step, who)):
                return
            with self._drawing() as database:
                _attend(database, self._places[0], step, who)

    def attendance(self) -> dict[int, bytes]:
        """Who took part in which step, as :meth:`attend` was told; nothing for an empty batch."""
        with self.record._open() as database:
            database.execute("BEGIN")
            query = f"SELECT step, who FROM attendance {_HERE}"
            found: dict[int, bytes] = dict(database.execute(query, self._places[0]).fetchall())
            claim = _claim_of(database, self.run)
            for entry in [] if claim is None else self.record._logged(claim):
                if entry.kind == ATTENDED:
                    found[entry.step] = found.get(entry.step, b"") + entry.body
            return found

    def draw(self, secret: str, records: int) -> None:
        """Record that batches of so many records are drawn from a secret."""
        with self._writing() as database:
            where = (secret, self.node)
            database.execute("INSERT OR IGNORE INTO batches VALUES (?, ?, ?)", (*where, records))
            (known,) = database.execute(f"SELECT records FROM batches {_HERE}", where).fetchone()
            if known != records:
                raise other_records(known, records)


@dataclass(frozen=True)
class Register:
    """An attendance in the record of a run, where there is one: names are hashes by ``key``."""

    key: bytes
    uses: Uses | None
    check: Callable[[], None]

    def name(self, record: Hashable) -> str:
        return blake2b(repr(record).encode(), digest_size=HASH_BYTES, key=self.key).hexdigest()

    def known(self) -> dict[int, list[str]]:
        """The names that are kept, by step."""
        kept = {} if self.uses is None else self.uses.attendance()
        places = {t: range(0, len(who), HASH_BYTES) for t, who in kept.items()}
        return {t: [kept[t][at : at + HASH_BYTES].hex() for at in places[t]] for t in kept}

    def keep(self, t: int, names: Iterable[str]) -> None:
        """Keep that these, too, took part in step t."""
        self.check()
        if self.uses is not None:
            self.uses.attend(t, joined(names))


def joined(names: Iterable[str]) -> bytes:
    """Names of a :class:`Register`, as they are kept."""
    return bytes.fromhex("".join(names))


class OtherNodeError(InputError):
    """A secret of another node of a design; both are its rows."""

    nodes: tuple[int, int] = (0, 0)

    @classmethod
    def of(cls, node: int | str, other: int | str) -> OtherNodeError:
        """The error about the secret of ``other`` at ``node``."""
        expected, got = f"a secret of node {node} alone", f"that of node {other}"
        return cls("secret", expected=expected, got=got, remedy=_NEW)


def _claim_of(database: sqlite3.Connection, run: str | None) -> Claim | None:
    query = "SELECT first, last, boot, log FROM claims WHERE run = ?"
    found = database.execute(query, (run,)).fetchone()
    return None if found is None else Claim(*found)


def _insert(database: sqlite3.Connection, where: Place, step: int, data: bytes) -> None:
    database.execute("INSERT OR IGNORE INTO steps VALUES (?, ?, ?, ?)", (*where, step, data))


def _attend(database: sqlite3.Connection, where: Place, step: int, who: bytes) -> None:
    query = f"SELECT who FROM attendance {_HERE} AND step = ?"
    before = database.execute(query, (*where, step)).fetchone()
    known: bytes = b"" if before is None else before[0]
    row = (*where, step, known + who)
    database.execute("INSERT OR REPLACE INTO attendance VALUES (?, ?, ?, ?)", row)


def _write(
    database: sqlite3.Connection, run: str | None, first: Place, entries: Iterable[Entry]
) -> None:
    """Write what a run did with its claim, and that it has none."""
    query = "SELECT secret, node FROM uses WHERE run = ?"
    places = database.execute(query, (run,)).fetchall()
    for entry in entries:
        if entry.kind == USED:
            for where in places:
                _insert(database, where, entry.step, entry.body)
        elif entry.kind == ATTENDED:
            _attend(database, first, entry.step, entry.body)
    database.execute("DELETE FROM claims WHERE run = ?", (run,))


def _ended(record: Record, run: str, first: Place, opened: _Open, process: int) -> None:
    """Give the rest of a claim back when the run that has it ends: a reboot then takes nothing.
    In a fork it has not ended."""
    kept, here = record._kept, os.getpid()
    if here != process or kept._of[:1] != (here,) or not kept.lock.acquire(blocking=False):
        return
    try:
        if kept._database is None or kept._database.in_transaction:
            return
        with suppress(InputError), record._open() as database:
            database.execute("BEGIN IMMEDIATE")
            if _claim_of(database, run) == opened.claim:
                _write(database, run, first, opened.entries)
            database.execute("COMMIT")
            opened.log.unlink(missing_ok=True)
    finally:
        kept.lock.release()


def _serves(
    database: sqlite3.Connection, where: Place, digest: str, streams: str, *, shared: bool
) -> bool:
    """Whether a secret served this node before; from now on it does."""
    secret, node = where
    query = "SELECT node, digest, streams FROM uses WHERE secret = ?"
    known = database.execute(query, (secret,)).fetchall()
    for other, design, served in known:
        expected, got = "", ""
        if design != digest:
            expected = "a secret of this design alone"
            got = f"one that served the design {design[:12]}"
        elif other != node and not (shared and served == streams):
            refused = OtherNodeError.of(node, other)
            refused.nodes = node, other
            raise refused
        elif other == node and served != streams:
            expected, got = f"a secret for {streams}", f"one that served {served}"
        if expected:
            raise InputError("secret", expected=expected, got=got, remedy=_NEW)
    database.execute(
        "INSERT OR IGNORE INTO uses VALUES (?, ?, ?, ?, NULL, NULL)",
        (secret, node, digest, streams),
    )
    return any(other == node for other, _, _ in known)


def _run_of(database: sqlite3.Connection, where: Place) -> str | None:
    """Return the run that drew from a secret; None where none has."""
    found = database.execute(f"SELECT run FROM uses {_HERE}", where).fetchone()
    if found is None:
        expected, got = "the record this run began with", "another"
        raise InputError("record", expected=expected, got=got, remedy=_NEW)
    run: str | None = found[0]
    return run


def other_data(step: int, *, lost: bool = False) -> InputError:
    """Make the error for noise of a step that hid something else, or, ``lost``, may have."""
    expected = "noise of every step for one sum of gradients"
    got = f"other data at step {step}, whose noise was added before"
    if lost:
        got = f"step {step}, which may have been drawn before the machine went down"
    remedy = "The difference of both would show the data. Go on with the next step."
    return InputError("step", expected=expected, got=got, remedy=remedy)


def other_records(before: int, now: int) -> InputError:
    """Make the error for batches that are drawn for another number of records."""
    got, remedy = str(now), "Batches of other data are another run: draw a new secret for it."
    return InputError("records", expected=f"{before} records, as before", got=got, remedy=remedy)
