"""The record of what was drawn from which secret: a small database on this machine, which refuses a
second use.

Noise hides a gradient once. The same noise on other data shows the difference of the two, so a
secret serves one node, one design and one run, and a step of it one sum of gradients. Batches that
are drawn from it are as secret, and serve that run alone. Who took part in which step is kept, too:
the privacy of a run is that of records that take part as its design says. What happens on another
machine cannot be seen here.

Data and names of records are kept as hashes, keyed by the secret. Who reads the file learns how
many records were in the sum of a step, and which steps had one in common, but can try out no names.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from noisedesign.base import checks as _checks
from noisedesign.base.checks import InputError

ENVIRONMENT = "NOISEDESIGN_RECORDS"
_VERSION = 2
HASH_BYTES = 16
"""Bytes of a hash of data or names: two of 1e9 names collide with a chance of 1e-21."""
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
    runs.

    Two messages with the same noise show the difference of what it hides.

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
        >>> problem = nd.TimeProblem.prefix(participation=nd.single(2), privacy=target)
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
            raise InputError(
                "record",
                expected=f"a record of what was drawn at {self.path}",
                got=f"{error}",
                remedy=f"Name another file in {ENVIRONMENT}; without the old one nobody sees "
                "whether a secret served before, so take new secrets.",
            ) from None

    def claim(
        self,
        served: Mapping[str, tuple[str, bool]],
        *,
        node: int,
        digest: str,
        run: str,
        resume: bool,
    ) -> None:
        """Claim secrets for a node in one run: all of them, or none.

        Args:
            served: by their fingerprints what is drawn from them, in words, and whether other nodes
                may draw from them too.
            node: zero-based.
            digest: of the design.
            run: a name of this run that no other has.
            resume: whether this run goes on with one before, which then cannot go on itself.

        Raises:
            InputError: one served another node, another design, or another run; nothing is known of
                a run that goes on, or not of all its secrets.
        """
        with self._open() as database:
            database.execute("BEGIN IMMEDIATE")
            known = [
                _serves(database, (secret, node), digest=digest, streams=streams, shared=shared)
                for secret, (streams, shared) in served.items()
            ]
            if resume and not any(known):
                raise InputError(
                    "record",
                    expected=f"a record in {self.path} of the run that goes on",
                    got="one that does not know it",
                    remedy="Name the record that the run began with. Where that is lost, nobody "
                    "sees which noise was used: take new secrets. A run begins once without "
                    "resume=True.",
                )
            steps = [self._steps(database, (secret, node)) for secret in served]
            if resume and not (all(known) and all(found == steps[0] for found in steps)):
                raise InputError(
                    "secret",
                    expected="the secrets of the run that goes on",
                    got="some that served other steps than the others",
                    remedy=ALL_OF_THEM,
                )
            for secret in served:
                where = (secret, node)
                if resume:
                    database.execute(f"UPDATE uses SET run = ? {_HERE}", (run, *where))
                elif _run_of(database, where) is not None:
                    raise InputError(
                        "secret",
                        expected="one that no run has used",
                        got=f"one whose noise {_progress(database, where)}",
                        remedy=f"Go on with that run by resume=True. For another run: {_NEW}",
                    )

    def begin(self, secrets: Sequence[str], *, node: int, run: str) -> None:
        """Draw noise from these secrets from now on, in this run and no other.

        Args:
            secrets: their fingerprints.
            node: zero-based.
            run: the name that :meth:`claim` was given.

        Raises:
            InputError: another run has drawn some since they were claimed.
        """
        with self._open() as database:
            database.execute("BEGIN IMMEDIATE")
            for secret in secrets:
                _begin(database, (secret, node), run)

    def use(
        self,
        secrets: Sequence[str],
        *,
        node: int,
        run: str,
        step: int,
        data: bytes,
        dimension: int,
        who: bytes | None = None,
    ) -> None:
        """Record that the noise of a step, from all these secrets, is added to what has this hash.

        Args:
            secrets: their fingerprints.
            node: zero-based.
            run: the name that :meth:`claim` was given.
            step: zero-based.
            data: hash of what the noise hides.
            dimension: how many numbers that is.
            who: hashes of the records in it that :meth:`attend` was not told of; None where nobody
                says.

        Raises:
            InputError: it was added to something else, or to a model of another size; another
                run goes on with these secrets.
        """
        with self._open() as database:
            database.execute("BEGIN IMMEDIATE")
            for secret in secrets:
                _begin(database, (secret, node), run)
                _use(database, (secret, node), step=step, data=data, dimension=dimension)
            if who is not None:
                _attend(database, (secrets[0], node), step=step, who=who)

    def attend(self, secrets: Sequence[str], *, node: int, run: str, step: int, who: bytes) -> None:
        """Record that these records, too, are in the sum of a step.

        Args:
            secrets: fingerprints of those of the run.
            node: zero-based.
            run: the name that :meth:`claim` was given.
            step: zero-based.
            who: their hashes, HASH_BYTES each, one after another.

        Raises:
            InputError: another run goes on with these secrets.
        """
        with self._open() as database:
            database.execute("BEGIN IMMEDIATE")
            for secret in secrets:
                _begin(database, (secret, node), run)
            _attend(database, (secrets[0], node), step=step, who=who)

    def attendance(self, *, secret: str, node: int) -> dict[int, bytes]:
        """Who took part in which step, as :meth:`attend` was told.

        Args:
            secret: fingerprint of the first of the run.
            node: zero-based.

        Returns:
            Hashes by step; none in an empty batch.
        """
        with self._open() as database:
            found = database.execute(f"SELECT step, who FROM attendance {_HERE}", (secret, node))
            return dict(found.fetchall())

    def draw(self, *, secret: str, node: int, records: int) -> None:
        """Record that batches of so many records are drawn from a secret.

        Args:
            secret: its fingerprint.
            node: zero-based.
            records: how many the node has.

        Raises:
            InputError: it was another number before.
        """
        with self._open() as database:
            database.execute(
                "INSERT OR IGNORE INTO batches VALUES (?, ?, ?)", (secret, node, records)
            )
            query = f"SELECT records FROM batches {_HERE}"
            (known,) = database.execute(query, (secret, node)).fetchone()
            if known != records:
                raise other_records(known, records)

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
            return self._steps(database, (secret, node))

    @staticmethod
    def _steps(database: sqlite3.Connection, where: tuple[str, int]) -> frozenset[int]:
        found = database.execute(f"SELECT step FROM steps {_HERE}", where)
        return frozenset(step for (step,) in found)


def _serves(
    database: sqlite3.Connection, where: tuple[str, int], *, digest: str, streams: str, shared: bool
) -> bool:
    """Whether a secret served this node before; from now on it does."""
    secret, node = where
    known = database.execute(
        "SELECT node, digest, streams FROM uses WHERE secret = ?", (secret,)
    ).fetchall()
    for other, design, served in known:
        expected, got = "", ""
        if design != digest:
            expected, got = (
                "a secret of this design alone",
                f"one that served the design {design[:12]}",
            )
        elif other != node and not (shared and served == streams):
            expected, got = f"a secret of node {node} alone", f"that of node {other}"
        elif other == node and served != streams:
            expected, got = f"a secret for {streams}", f"one that served {served}"
        if expected:
            raise InputError("secret", expected=expected, got=got, remedy=_NEW)
    database.execute(
        "INSERT OR IGNORE INTO uses VALUES (?, ?, ?, ?, NULL, NULL)",
        (secret, node, digest, streams),
    )
    return any(other == node for other, _, _ in known)


def _run_of(database: sqlite3.Connection, where: tuple[str, int]) -> str | None:
    """Return the run that drew from a secret; None where none has."""
    found = database.execute(f"SELECT run FROM uses {_HERE}", where).fetchone()
    if found is None:
        expected, got = "the record this run began with", "another"
        raise InputError("record", expected=expected, got=got, remedy=_NEW)
    run: str | None = found[0]
    return run


def _begin(database: sqlite3.Connection, where: tuple[str, int], run: str) -> None:
    known = _run_of(database, where)
    if known is None:
        database.execute(f"UPDATE uses SET run = ? {_HERE}", (run, *where))
    elif known != run:
        raise InputError(
            "secret",
            expected="one that no other run uses",
            got=f"one that another process draws from, whose noise {_progress(database, where)}",
            remedy=f"Stop one of them. For a run of its own: {_NEW}",
        )


def _progress(database: sqlite3.Connection, where: tuple[str, int]) -> str:
    (last,) = database.execute(f"SELECT max(step) FROM steps {_HERE}", where).fetchone()
    return "was drawn" if last is None else f"was added up to step {last}"


def _use(
    database: sqlite3.Connection, where: tuple[str, int], *, step: int, data: bytes, dimension: int
) -> None:
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


def _attend(database: sqlite3.Connection, where: tuple[str, int], *, step: int, who: bytes) -> None:
    query = f"SELECT who FROM attendance {_HERE} AND step = ?"
    before = database.execute(query, (*where, step)).fetchone()
    known: bytes = b"" if before is None else before[0]
    database.execute(
        "INSERT OR REPLACE INTO attendance VALUES (?, ?, ?, ?)", (*where, step, known + who)
    )


def other_data(step: int) -> InputError:
    """Make the error for noise of a step that hid something else."""
    return InputError(
        "step",
        expected="noise of every step for one sum of gradients",
        got=f"other data at step {step}, whose noise was added before",
        remedy="The difference of both would show the data. Go on with the next step.",
    )


def other_records(before: int, now: int) -> InputError:
    """Make the error for batches that are drawn for another number of records."""
    return InputError(
        "records",
        expected=f"{before} records, as before",
        got=str(now),
        remedy="Batches of other data are another run: draw a new secret for it.",
    )
