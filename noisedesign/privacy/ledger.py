"""The privacy of several runs on one set of data: mu^2 = sum of mu_i^2 under independent noise
(Dong, Roth and Su 2022, corollary 3.3). Runs with the *same* noise do not compose, so that a
:class:`Ledger` knows runs by the fingerprints of their secrets."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from noisedesign.base import atomic, checks as _checks
from noisedesign.base.checks import InputError
from noisedesign.base.file_kinds import LEDGER
from noisedesign.base.regular_files import read_regular
from noisedesign.base.shown import Shown
from noisedesign.noise.keys import Secret
from noisedesign.noise.plan import Claim
from noisedesign.privacy.accounting import delta_of, epsilon_of
from noisedesign.privacy.target import ADJACENCIES

VERSION = 1
PATIENCE = 60.0  # seconds to wait for another process that books a run

_FINGERPRINT = re.compile(r"[0-9a-f]{32}")

RELATIONS = {
    "add-remove": "ADD_OR_REMOVE_ONE",
    "zero-out": "REPLACE_SPECIAL",
    "replace": "REPLACE_SPECIAL",
}
"""``dp_accounting.NeighboringRelation`` under which its accountants read 1 / mu as it is meant."""


# --- dp_accounting ----------------------------------------------------------------------------


def dp_event(run: Any) -> Any:
    """A whole run as one event of ``dp_accounting``: a Gaussian of noise multiplier 1 / mu.

    Not ``SelfComposedDpEvent(GaussianDpEvent(noise_stddev / clip), T)``: that books T independent
    steps. Give the accountant the relation of :func:`neighboring_relation`.

    Args:
        run: a design with a privacy target, the plan or the noise of a node, a loaded export, a
            :class:`Ledger`, or what :func:`noisedesign.privacy.privacy_after` gives.

    Returns:
        ``dp_accounting.GaussianDpEvent``; of a ledger, ``ComposedDpEvent`` of these.

    Raises:
        InputError: no privacy target, or nothing that has one.
        ModuleNotFoundError: dp-accounting is not installed.

    Examples:
        >>> import noisedesign as nd
        >>> nd.privacy.dp_event(nd.privacy.Ledger())
        ComposedDpEvent(events=[])
    """
    library = _dp_accounting()
    if isinstance(run, Ledger):
        return library.ComposedDpEvent([_gaussian(library, entry.mu) for entry in run.entries])
    return _gaussian(library, _stated(run)[0])


def neighboring_relation(run: Any) -> Any:
    """The relation that an accountant of ``dp_accounting`` takes for :func:`dp_event` of ``run``.

    "add-remove" is ``ADD_OR_REMOVE_ONE``, the others are ``REPLACE_SPECIAL``: mu has the two clips
    of a replaced record in it already, which ``REPLACE_ONE`` would double in the PLD accountant.

    Args:
        run: as for :func:`dp_event`.

    Returns:
        A member of ``dp_accounting.NeighboringRelation``.

    Raises:
        InputError: as :func:`dp_event`; a ledger without runs.
        ModuleNotFoundError: dp-accounting is not installed.

    Examples:
        >>> import noisedesign as nd
        >>> target = nd.PrivacyTarget(epsilon=1.0, adjacency="add-remove")
        >>> scheme = nd.participation.single(2)
        >>> problem = nd.TimeProblem.prefix(participation=scheme, privacy=target)
        >>> print(nd.privacy.neighboring_relation(nd.solve(problem).design).name)
        ADD_OR_REMOVE_ONE
    """
    library = _dp_accounting()
    adjacency = run.adjacency if isinstance(run, Ledger) else _stated(run)[1]
    if adjacency is None:
        raise InputError("ledger", expected="at least one run", got="none")
    return library.NeighboringRelation[RELATIONS[adjacency]]


def _dp_accounting() -> Any:
    try:
        import dp_accounting
    except ModuleNotFoundError as error:
        if error.name != "dp_accounting":
            raise
        message = (
            "dp-accounting is not installed: pip install noisedesign[ledger]. Ledger.epsilon and "
            "noisedesign.privacy.epsilon_of need nothing."
        )
        raise ModuleNotFoundError(message, name=error.name) from None
    return dp_accounting


def _gaussian(library: Any, mu: float) -> Any:
    return library.GaussianDpEvent(math.nextafter(1 / mu, 0.0))


def _stated(run: Any) -> tuple[float, str]:
    """The mu and adjacency that a run claims."""
    for found in (run, getattr(run, "design", None)):
        claim = getattr(found, "claim", None)
        if not isinstance(claim, Claim):
            continue
        if claim.mu is None or claim.adjacency is None:
            remedy = "State epsilon, delta and clip in [privacy]."
            raise InputError("run", expected="a privacy target", got="none", remedy=remedy)
        return claim.mu, claim.adjacency
    expected = "a design, the plan or noise of a node, a loaded export, or privacy_after one"
    raise InputError("run", expected=expected, got=_checks.describe(run))


# --- the ledger -------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, repr=False)
class Entry(Shown):
    """A run as a ledger has it.

    Attributes:
        name: what its user calls it.
        mu: GDP parameter, not squared.
        secrets: fingerprints of all its secrets.
    """

    name: str
    mu: float
    secrets: tuple[str, ...]


class Ledger(Shown):
    """The runs on one set of data, and what they tell together.

    Runs whose noise is independent compose, :math:`mu^2 = sum_i mu_i^2` (Dong, Roth and Su 2022,
    corollary 3.3); runs with the same noise do not, so a secret serves one.

    Args:
        path: of a file that keeps them, made with the first run; None keeps them in memory.

    Raises:
        InputError: a file that is no ledger, is damaged, or of a newer version.

    Examples:
        >>> import noisedesign as nd
        >>> target = nd.PrivacyTarget(epsilon=1.0, delta=1e-6)
        >>> scheme = nd.participation.single(2)
        >>> problem = nd.TimeProblem.prefix(participation=scheme, privacy=target)
        >>> design, ledger = nd.solve(problem).design, nd.privacy.Ledger()
        >>> entries = [ledger.add(design, secret=nd.noise.Secret.new()) for _ in range(4)]
        >>> print(f"{ledger.mu / design.claim.mu:.4f}")  # sqrt(4)
        2.0000
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = None if path is None else _checks.path(path, field="ledger")
        self._adjacency: str | None = None
        self._entries: tuple[Entry, ...] = ()
        self._read()

    def add(self, run: Any, *, secret: Any = None, name: str = "", resume: bool = False) -> Entry:
        """Book a run. On disk it is booked when this returns, and not at all where it raises.

        Book it before it starts: it counts whether or not all its steps are taken. One that ended
        early may be booked again by ``resume``, with what
        :func:`noisedesign.privacy.privacy_after` gives.

        Args:
            run: as for :func:`dp_event`, but no ledger.
            secret: the :class:`noisedesign.noise.Secret` of its noise (and of random batches, where
                that is another one), its fingerprint, or a list; the noise of a node needs none.
            name: in what is shown.
            resume: in place of the entry of the same secrets.

        Returns:
            The run as it is booked, with its name, mu and the fingerprints of its secrets.

        Raises:
            InputError: a secret that a run in this ledger has used; no secret; another adjacency
                than that of the runs before; nothing to resume; ``run`` as :func:`dp_event`.
        """
        (mu, adjacency), name = _stated(run), _checks.text(name, field="name")
        resume = _checks.flag(resume, field="resume")
        entry = Entry(name=name, mu=mu, secrets=_fingerprints(run, secret))
        with self._alone():
            self._read()
            if self._adjacency not in (None, adjacency):
                expected = f"adjacency {self._adjacency!r}, that of the runs before"
                remedy = "What mu means differs. Keep a ledger for each adjacency."
                raise InputError("run", expected=expected, got=f"{adjacency!r}", remedy=remedy)
            kept = self._without(entry, resume=resume)
            self._write((*kept, entry), adjacency)
        return entry

    def _without(self, entry: Entry, *, resume: bool) -> tuple[Entry, ...]:
        """The entries that stay beside a new one."""
        used = {print_: other for other in self._entries for print_ in other.secrets}
        same = [used[print_] for print_ in entry.secrets if print_ in used]
        if not resume:
            if same:
                raise InputError(
                    "secret",
                    expected="one that no run in this ledger has used",
                    got=f"that of run {_called(same[0])}",
                    remedy="Two runs with the same noise show the difference of their data, and "
                    "two with the same batches, where these are drawn, show who is in them: draw a "
                    "new secret. For the same run, resume=True.",
                )
            return self._entries
        if not same or set(same[0].secrets) != set(entry.secrets):
            expected = "the secrets of a run in this ledger"
            raise InputError("secret", expected=expected, got="others" if same else "new ones")
        return tuple(other for other in self._entries if other is not same[0])

    # --- what they tell -----------------------------------------------------------------------

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The runs, in the order they were booked."""
        return self._entries

    @property
    def adjacency(self) -> str | None:
        """The adjacency of all runs; None before the first."""
        return self._adjacency

    @property
    def mu(self) -> float:
        """GDP parameter of all runs together, sqrt(sum mu_i^2), rounded up; 0 without runs."""
        if len(self._entries) < 2:
            return self._entries[0].mu if self._entries else 0.0
        return math.nextafter(math.hypot(*(entry.mu for entry in self._entries)), math.inf)

    def epsilon(self, *, delta: float) -> float:
        """Smallest epsilon of all runs together, rounded up.

        Args:
            delta: in [1e-300, 1).

        Returns:
            epsilon; 0 without runs.

        Raises:
            InputError: as :func:`noisedesign.privacy.epsilon_of`.
        """
        found = epsilon_of(mu=self.mu or 1.0, delta=delta)  # a wrong delta is told without runs too
        return found if self._entries else 0.0

    def delta(self, *, epsilon: float) -> float:
        """Smallest delta of all runs together, rounded up.

        Args:
            epsilon: in [1e-100, 1e100].

        Returns:
            delta; what is below 1e-300 is told as that. 0 without runs.

        Raises:
            InputError: as :func:`noisedesign.privacy.delta_of`.
        """
        found = delta_of(mu=self.mu or 1.0, epsilon=epsilon)
        return found if self._entries else 0.0

    def _title(self) -> str:
        where = "" if self.path is None else f" at {self.path}"
        runs = "1 run" if len(self._entries) == 1 else f"{len(self._entries)} runs"
        return f"Ledger of {runs}{where}"

    def _facts(self) -> dict[str, object]:
        each = {_called(entry): f"mu {entry.mu:.6g}" for entry in self._entries}
        return {"mu": self.mu, "adjacency": self.adjacency, **each}

    # --- the file -------------------------------------------------------------------------------

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if self.path is None:
            yield
            return
        import filelock

        target = atomic.target_of(self.path, field="ledger")
        lock = filelock.FileLock(target.with_name(f".{target.name}.lock"), timeout=PATIENCE)
        try:
            lock.acquire()
        except filelock.Timeout:
            got = f"{self.path}, which another process holds"
            raise InputError("ledger", expected="a ledger that is free", got=got) from None
        except OSError as error:
            raise atomic.StorageError(self.path, error) from error
        try:
            yield
        finally:
            lock.release()

    def _read(self) -> None:
        if self.path is None or not self.path.exists():
            if self.path is not None and self._entries:
                raise InputError("ledger", expected=f"the file {self.path}", got="none any more")
            return
        content = read_regular(self.path, field="ledger", expected="a ledger")
        try:
            found = json.loads(content)
            if found["format"] != LEDGER:
                raise _damaged(self.path, "another kind of file")
            if found["version"] != VERSION:
                got = f"version {_checks.describe(found['version'])} in {self.path}"
                raise InputError("ledger.version", expected=f"{VERSION}", got=got)
            adjacency = found["adjacency"]
            if adjacency not in ADJACENCIES:
                raise ValueError(f"adjacency {_checks.describe(adjacency)}")
            entries = tuple(_entry(said) for said in found["runs"])
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            if isinstance(error, InputError):
                raise
            raise _damaged(self.path, f"{type(error).__name__}: {error}") from None
        self._adjacency, self._entries = adjacency, entries

    def _write(self, entries: tuple[Entry, ...], adjacency: str | None) -> None:
        if self.path is not None:
            content = {
                "format": LEDGER,
                "version": VERSION,
                "adjacency": adjacency,
                "runs": [asdict(entry) for entry in entries],
            }
            text = json.dumps(content, allow_nan=False, ensure_ascii=False, indent=2) + "\n"
            atomic.write_text(self.path, text)
        self._entries, self._adjacency = entries, adjacency


def _called(entry: Entry) -> str:
    return entry.name or entry.secrets[0][:8]


def _damaged(path: Path, got: str) -> InputError:
    remedy = "Without it nobody knows what the data have been used for: take it from a copy."
    return InputError("ledger", expected=f"a whole ledger at {path}", got=got, remedy=remedy)


def _entry(said: Mapping[str, Any]) -> Entry:
    mu = _checks.real(said["mu"], field="ledger.mu", low=0)
    secrets = tuple(_fingerprint(value) for value in said["secrets"])
    if not secrets:
        raise ValueError("a run without secrets")
    return Entry(name=_checks.text(said["name"], field="ledger.name"), mu=mu, secrets=secrets)


def _fingerprints(run: Any, secret: Any) -> tuple[str, ...]:
    """Fingerprints of the secrets of a run: those given, and those it knows."""
    known: tuple[str, ...] = getattr(run, "fingerprints", ())
    given = secret if isinstance(secret, (list, tuple)) else [] if secret is None else [secret]
    found = tuple(dict.fromkeys((*known, *map(_fingerprint, given))))
    if known and set(found) != set(known):
        raise InputError("secret", expected="those of the run, or none", got="others")
    if not found:
        expected = "the secret that the noise of this run is drawn from"
        remedy = "Give it, or its fingerprint; or book the noise of the node, which knows it."
        raise InputError("secret", expected=expected, got="none", remedy=remedy)
    return found


def _fingerprint(value: Any) -> str:
    if isinstance(value, Secret):
        return value.fingerprint
    if isinstance(value, str) and _FINGERPRINT.fullmatch(value):
        return value
    expected = "a Secret, or its fingerprint of 32 hexadecimal digits"
    raise InputError("secret", expected=expected, got=_checks.describe(value))
