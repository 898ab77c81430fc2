"""The record of what was drawn from which secret: a small database on this machine, which refuses a
second use.

The same noise on other data shows the difference of the two, so a secret serves one node, one
design and one run, and a step of it one sum of gradients. Who took part in which step is kept, too.
What happens on another machine cannot be seen here.

Data and names of records are kept as hashes, keyed by the secret. Who reads the file learns how
many records were in the sum of a step, and which steps had one in common, but can try out no names.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from secrets import token_hex

from noisedesign.base import checks as _checks
from noisedesign.base.checks import InputError
from noisedesign.noise.hidden import HASH_BYTES

ENVIRONMENT = "NOISEDESIGN_RECORDS"
_VERSION = 2
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
        with self._open() as database:
            (version,) = database.execute("PRAGMA user_version").fetchone()
            if version > _VERSION:
                got = f"version {version}"
                raise InputError("record", expected=f"version {_VERSION} in {self.path}", got=got)
            database.executescript(_TABLES)
            database.execute(f"PRAGMA user_version = {_VERSION}")

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """One transaction."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self.path, timeout=60)) as database, database:
                yield database
        except (OSError, sqlite3.Error) as error:
            expected = f"a record of what was drawn at {self.path}"
            remedy = (
                f"Name another file in {ENVIRONMENT}; without the old one nobody sees "
                "whether a secret served before, so take new secrets."
            )
            raise InputError("record", expected=expected, got=f"{error}", remedy=remedy) from None

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
            return _steps(database, (secret, node))


@dataclass(frozen=True)
class Uses:
    """The uses of the secrets of one run of one node, by their fingerprints, as its record keeps
    them; who took part is kept with the first."""

    record: Record
    secrets: tuple[str, ...]
    node: int
    run: str = field(default_factory=lambda: token_hex(16))

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
                        f"{_progress(database, where)}"
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
            steps = [_steps(database, where) for where in self._places]
            if resume and not (all(known) and all(found == steps[0] for found in steps)):
                expected = "the secrets of the run that goes on"
                got = "some that served other steps than the others"
                raise InputError("secret", expected=expected, got=got, remedy=ALL_OF_THEM)
            for where in self._places:
                if resume:
                    database.execute(f"UPDATE uses SET run = ? {_HERE}", (self.run, *where))
                elif _run_of(database, where) is not None:
                    expected = "one that no run has used"
                    got = f"one whose noise {_progress(database, where)}"
                    remedy = f"Go on with that run by resume=True. For another run: {_NEW}"
                    raise InputError("secret", expected=expected, got=got, remedy=remedy)

    def begin(self) -> None:
        """Draw noise from now on, unless another run has since the secrets were claimed."""
        with self._drawing():
            pass

    def use(self, step: int, *, data: bytes, dimension: int, who: bytes | None) -> None:
        """Record that the noise of a step hides so many numbers with this hash, of ``who``."""
        with self._drawing() as database:
            for where in self._places:
                (size,) = database.execute(f"SELECT dimension FROM uses {_HERE}", where).fetchone()
                if size not in (None, dimension):
                    expected = f"{size} numbers, as in the steps before"
                    raise InputError("parameters", expected=expected, got=f"{dimension}")
                query = f"SELECT data FROM steps {_HERE} AND step = ?"
                found = database.execute(query, (*where, step)).fetchone()
                if found is None:
                    database.execute(f"UPDATE uses SET dimension = ? {_HERE}", (dimension, *where))
                    database.execute("INSERT INTO steps VALUES (?, ?, ?, ?)", (*where, step, data))
                elif found[0] != data:
                    raise other_data(step)
            if who is not None:
                self._attend(database, step, who)

    def attend(self, step: int, who: bytes) -> None:
        """Record that these, too, took part in a step: their hashes, one after another."""
        with self._drawing() as database:
            self._attend(database, step, who)

    def _attend(self, database: sqlite3.Connection, step: int, who: bytes) -> None:
        where = (*self._places[0], step)
        query = f"SELECT who FROM attendance {_HERE} AND step = ?"
        before = database.execute(query, where).fetchone()
        known: bytes = b"" if before is None else before[0]
        database.execute(
            "INSERT OR REPLACE INTO attendance VALUES (?, ?, ?, ?)", (*where, known + who)
        )

    def attendance(self) -> dict[int, bytes]:
        """Who took part in which step, as :meth:`attend` was told; nothing for an empty batch."""
        with self.record._open() as database:
            found = database.execute(f"SELECT step, who FROM attendance {_HERE}", self._places[0])
            return dict(found.fetchall())

    def draw(self, secret: str, records: int) -> None:
        """Record that batches of so many records are drawn from a secret."""
        with self.record._open() as database:
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


def _steps(database: sqlite3.Connection, where: Place) -> frozenset[int]:
    found = database.execute(f"SELECT step FROM steps {_HERE}", where)
    return frozenset(step for (step,) in found)


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


def _progress(database: sqlite3.Connection, where: Place) -> str:
    (last,) = database.execute(f"SELECT max(step) FROM steps {_HERE}", where).fetchone()
    return "was drawn" if last is None else f"was added up to step {last}"


def other_data(step: int) -> InputError:
    """Make the error for noise of a step that hid something else."""
    expected = "noise of every step for one sum of gradients"
    got = f"other data at step {step}, whose noise was added before"
    remedy = "The difference of both would show the data. Go on with the next step."
    return InputError("step", expected=expected, got=got, remedy=remedy)


def other_records(before: int, now: int) -> InputError:
    """Make the error for batches that are drawn for another number of records."""
    got, remedy = str(now), "Batches of other data are another run: draw a new secret for it."
    return InputError("records", expected=f"{before} records, as before", got=got, remedy=remedy)
