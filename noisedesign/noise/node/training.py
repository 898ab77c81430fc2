"""D-SGD of one node: theta_u <- sum_v W_uv (theta_v - eta (sum of clipped gradients + noise) / B),
averaged once more a further gossip round. All it must remember is in its folder, so that it can be
killed and started again: it computes the same step with the same noise, and neighbours wait. Where
addresses say that a neighbour is gone for good, its own model takes that one's place."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import json
import queue
import shutil
import threading
import time
import zipfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisedesign.base import atomic, checks as _checks
from noisedesign.base.checks import Array, InputError
from noisedesign.noise.agreement import MOST_BYTES, Agreement, Letters
from noisedesign.noise.attendance import Attendance
from noisedesign.noise.batches import Batches, RandomBatches
from noisedesign.noise.keys import Secret
from noisedesign.noise.node.exchange import LETTER, MODEL, Board, GoneError, Lines, Peers, ask
from noisedesign.noise.node.links import Links
from noisedesign.noise.node.transcript import KEY, Keyed, Transcript, digest_of, head_of
from noisedesign.noise.plan import DEALT, OWN, SHARED, Plan
from noisedesign.noise.source import NodeNoise, noise

DONE = "done"
GONE = "gone.json"  # by neighbour that is gone, the first of its messages that was not heard
SECRET, BATCH_SECRET, SEEDS = "secret", "batch-secret", "seeds"  # files of a node, and a folder
Places = NDArray[np.intp]
Heard = list[dict[str, str]]  # a gossip round of one step, digests of messages by node


@dataclass(frozen=True, eq=False)
class Examples:
    """The data of logistic regression: ``features``, (m, p), and ``labels``, (m,), each 0 or 1;
    the loss is log(1 + exp(-s)), s = (2 y - 1) <theta, (x, 1)>."""

    features: Array
    labels: Array

    @classmethod
    def load(cls, path: str | Path) -> Examples:
        """Load ``features`` and ``labels``, each 0 or 1, from an .npz file."""
        file = _checks.path(path, field="data")
        expected = f"a file {file} of features and labels, .npz"
        try:
            with np.load(file, allow_pickle=False) as arrays:
                features, labels = arrays["features"], arrays["labels"]
        except (OSError, ValueError, KeyError, EOFError, AttributeError) as error:
            raise InputError("data", expected=expected, got=f"{error}") from None
        features = _checks.matrix(features, field="data.features")
        labels = _checks.vector(labels, field="data.labels", length=len(features))
        if not np.isin(labels, (0.0, 1.0)).all():
            raise InputError("data.labels", expected="0 or 1", got="another number")
        return cls(np.hstack([features, np.ones((len(features), 1))]), labels)

    @property
    def dimension(self) -> int:
        """Number of coefficients of the model: one a feature, and a constant."""
        return int(self.features.shape[1])

    def losses(self, model: Array) -> Array:
        """Return the loss of every example."""
        return np.asarray(np.logaddexp(0.0, -self._margins(model)))

    def accuracy(self, model: Array) -> float:
        """Share of examples on the right side."""
        return float((self._margins(model) > 0).mean())

    def clipped_sum(self, model: Array, batch: Places, *, clip: float) -> Array:
        """Sum the gradients of a batch (places), each scaled to a norm of at most ``clip``."""
        x, sign = self.features[batch], 2.0 * self.labels[batch] - 1.0
        slope = -sign / (1.0 + np.exp(np.clip(sign * (x @ model), -700.0, 700.0)))
        norms = np.abs(slope) * np.sqrt(np.square(x).sum(axis=1))
        return np.asarray((slope * np.minimum(1.0, clip / np.maximum(norms, 1e-300))) @ x)

    def _margins(self, model: Array) -> Array:
        return np.asarray((2.0 * self.labels - 1.0) * (self.features @ model))


@dataclass(kw_only=True, eq=False)
class State:
    """All that a node goes on with: its model before ``step``, what it heard in the step before and
    sent in it, (rounds, d): a neighbour may not have it yet."""

    model: Array
    step: int = 0
    heard: Heard = field(default_factory=list)
    sent: Array


@dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """One node in one run: its plan and data, the folder that it remembers in, eta over the mean of
    clipped gradients, how long it waits for a neighbour, a function that is told step and loss,
    which is not private and for rehearsals, and what it and its neighbours know each other by."""

    plan: Plan
    examples: Examples
    folder: Path
    step_size: float = 1.0
    seconds: float = 120.0
    report: Callable[[int, float], None] | None = None
    links: Links | None = None

    def __post_init__(self) -> None:
        for name in ("step_size", "seconds"):
            _checks.real(getattr(self, name), field=name, low=0)
        if not self.plan.weights:
            remedy = "Design for a graph, whose W every node needs."
            raise InputError("plan", expected="one with weights of W", got="none", remedy=remedy)
        if self.plan.claim.clip is None or self.plan.claim.rule is None:
            raise InputError("plan.claim", expected="a clip and a participation", got="none")
        if DEALT in self.plan.sources:
            expected = "noise that nodes draw by themselves"
            got = "noise that a dealer must deal, who knows all of it"
            remedy = 'Design with [structure] space = "edge-local", or in time alone.'
            raise InputError("plan", expected=expected, got=got, remedy=remedy)

    def train(self, peers: Peers, board: Board) -> Array:
        """Return the model after the whole horizon, shape (d,), once its neighbours need nothing
        more. Their addresses are asked for again at every step."""
        with self._lines:
            return self._trained(peers, board)

    def _trained(self, peers: Peers, board: Board) -> Array:
        source, rounds = self._source(peers, board), self.plan.rounds
        schedule, attendance = self._schedule(source)
        now = self._remembered(attendance, source.steps)
        keyed, transcript = self._transcript()
        for k, sent in enumerate(now.sent, (now.step - 1) * rounds):
            board.show(MODEL, k, sent.tobytes())
        claim = self.plan.claim
        assert claim.clip is not None
        divisor = claim.batch_size or 1
        rate = self.step_size * divisor / schedule.expected_size
        for t in range(now.step, self.plan.horizon):
            batch, model = schedule[t], now.model
            noisy = self.examples.clipped_sum(model, batch, clip=claim.clip) / divisor
            source.add_([noisy], t, records=batch.tolist())
            own = model - rate * noisy
            hashed = keyed.batch(t, batch)
            transcript.step(t, batch=hashed, model=model, noisy=noisy, sent=own, heard=now.heard)
            heard: Heard = []
            sent = np.empty((rounds, len(own)), dtype="<f8")
            for k in range(rounds):
                sent[k] = own
                board.show(MODEL, t * rounds + k, sent[k].tobytes())
                own, said = self._mixed(own, t * rounds + k, peers)
                heard.append(said)
            now = State(model=own, step=t + 1, heard=heard, sent=sent)
            self._log(t, own)  # first: a step that is computed again is logged again
            self._remember(now, attendance)
        transcript.end(now.step, model=now.model, heard=now.heard)
        self._wait_for_all(peers, board)
        return now.model

    def _schedule(self, source: NodeNoise) -> tuple[Batches | RandomBatches, Attendance]:
        """Who takes part when, and the check of it: drawn where the design says so."""
        rule, count = self.plan.claim.rule, len(self.examples.labels)
        assert rule is not None
        if rule.random is not None:
            drawn = source.batches(count)
            return drawn, source.attendance(drawn)
        batches = Batches(rule, horizon=self.plan.horizon, records=count)
        return batches, source.attendance()

    def _wait_for_all(self, peers: Peers, board: Board) -> None:
        """Neighbours that are restarted at the last step still need our message of it. Those that
        have all and are over do not answer any more: nothing is wrong then."""
        board.show(DONE, 0, b"")
        deadline = time.monotonic() + self.seconds
        for v in self.plan.others:
            with contextlib.suppress(InputError):
                self._ask(peers, v, DONE, 0, seconds=max(0.0, deadline - time.monotonic()))
        left = [v for v in self.plan.others if peers()[v] is not None]
        board.wait_until_told(DONE, left, seconds=max(0.0, deadline - time.monotonic()))

    def _source(self, peers: Peers, board: Board) -> NodeNoise:
        claim, begun, own = self.plan.claim, self.folder / "begun", OWN in self.plan.sources
        drawn = not own and claim.rule is not None and claim.rule.random is not None
        found = noise(
            self.plan,
            secret=self._secret(SECRET) if own else None,
            seeds=self._seeds(peers, board),
            batch_size=claim.batch_size,
            record=self.folder / "record.sqlite3",
            resume=begun.exists() or (self.folder / "model.npz").exists(),
            batch_secret=self._secret(BATCH_SECRET) if drawn else None,
        )
        begun.touch()  # the record knows the run: from now on one that does not was lost
        return found

    def _secret(self, name: str) -> Secret:
        file = self.folder / name
        if not file.exists():  # whole or not at all, whenever the node is killed
            partial = self.folder / f"{name}.partial"
            partial.unlink(missing_ok=True)
            Secret.new().save(partial).rename(file)
        return Secret.load(file)

    def _transcript(self) -> tuple[Keyed, Transcript]:
        """Begin the transcript of this run, or go on with it; its hashes are keyed."""
        secret = self._secret(KEY)
        identity = None if self.links is None else self.links.identity
        keyed = Keyed(secret, self.plan.digest)
        head = head_of(
            self.plan,
            secrets=secrets_in(self.folder, self.plan),
            identity=identity,
            data=keyed.data(self.examples.features, self.examples.labels),
            records=len(self.examples.labels),
            dimension=self.examples.dimension,
            step_size=self.step_size,
        )
        return keyed, Transcript(self.folder, head, identity)

    def _seeds(self, peers: Peers, board: Board) -> dict[str, Secret]:
        """Return the secrets of shared streams: those in the folder, or new ones all confirmed."""
        names = [stream.name for stream in self.plan.streams if stream.source == SHARED]
        kept = self.folder / SEEDS
        # A node killed before they are here cannot agree with those that went on: all start afresh.
        if names and not kept.exists():
            found = self._agreement(peers, board).secrets()
            partial = kept.with_suffix(".partial")  # all of them, or none
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(mode=0o700)
            for name, secret in found.items():
                secret.save(partial / name)
            partial.rename(kept)
        return {name: Secret.load(kept / name) for name in names}

    def _agreement(self, peers: Peers, board: Board) -> Agreement:
        """Agree over the board: letters for a node are shown in order, and asked for in it."""
        known: dict[str, Any] = {}
        if self.links is not None:
            known = {"identity": self.links.identity, "identities": self.links.publics}
        found, shown = Agreement(self.plan, **known), Counter[int]()
        heard: queue.Queue[bytes | InputError] = queue.Queue()
        over = threading.Event()

        def show(letters: Letters) -> None:
            for receiver, letter in letters:
                board.show(f"{LETTER}{receiver}", shown[receiver], letter)
                shown[receiver] += 1

        def listen(peer: int) -> None:
            kind, at = f"{LETTER}{self.plan.node}", 0

            def until_over() -> dict[int, Any]:
                return {peer: None if over.is_set() else peers()[peer]}

            with self._lines:
                while not over.is_set():
                    try:
                        heard.put(self._ask(until_over, peer, kind, at, most=MOST_BYTES))
                    except InputError as error:
                        heard.put(error)
                        return
                    at += 1

        show(found.start())
        for peer in found.peers:
            threading.Thread(target=listen, args=(peer,), daemon=True).start()
        deadline = time.monotonic() + self.seconds
        try:
            while not found.finished:
                try:
                    letter = heard.get(timeout=max(0.0, deadline - time.monotonic()))
                except queue.Empty:
                    silent = ", ".join(map(str, found.waiting))
                    expected = f"the confirmation of node {silent} within {self.seconds:g} s"
                    raise InputError("seeds", expected=expected, got="none") from None
                if isinstance(letter, InputError):
                    raise letter
                show(found.take(letter))
        finally:
            over.set()
        return found

    def _mixed(self, own: Array, k: int, peers: Peers) -> tuple[Array, dict[str, str]]:
        """Return sum_v W_uv x_v, in the order of the nodes: the same bits after a restart; and what
        was heard."""
        total, heard = np.zeros_like(own), {}
        for v, weight in self.plan.weights:
            sent = own
            if v != self.plan.node and k < self._gone.get(v, k + 1):
                try:
                    sent = self._asked(peers, k, v, len(own))
                except GoneError:
                    self._gone[v] = k
                    told = json.dumps({str(u): first for u, first in self._gone.items()})
                    with atomic.overwriting():
                        atomic.write_text(self.folder / GONE, told)
            if sent is not own or v == self.plan.node:
                heard[str(v)] = digest_of(sent)
            total += weight * sent
        return total, heard

    @cached_property
    def _lines(self) -> Lines:
        return Lines(self.links)

    @cached_property
    def _gone(self) -> dict[int, int]:
        return gone_in(self.folder)

    def _asked(self, peers: Peers, t: int, v: int, dimension: int) -> Array:
        most = 8 * dimension + (1 << 20)  # to tell of another size
        body = self._ask(peers, v, MODEL, t, most=most)
        if len(body) != 8 * dimension:
            expected, got = f"{dimension} numbers from node {v}", f"{len(body) / 8:g}"
            raise InputError("model", expected=expected, got=got, remedy="Give all the same data.")
        found = np.frombuffer(body, dtype="<f8").astype(np.float64)
        if not np.isfinite(found).all():
            raise InputError("model", expected=f"finite numbers from node {v}", got="others")
        return found

    def _ask(
        self,
        peers: Peers,
        v: int,
        kind: str,
        step: int,
        *,
        most: int = 0,
        seconds: float | None = None,
    ) -> bytes:
        return ask(
            lambda: peers()[v],
            digest=self.plan.digest,
            node=self.plan.node,
            kind=kind,
            step=step,
            seconds=self.seconds if seconds is None else seconds,
            most=most,
            other=v,
            lines=self._lines,
        )

    @cached_property
    def _name(self) -> str:
        """Name of the design and of these data in this order: others would take part again."""
        found = hashlib.sha256(f"{self.plan.digest} {self.examples.features.shape}".encode())
        for array in (self.examples.features, self.examples.labels):
            found.update(np.ascontiguousarray(array, dtype="<f8").data)
        return found.hexdigest()

    def _remembered(self, attendance: Attendance, steps: frozenset[int]) -> State:
        """Read what it goes on with; ``steps`` are recorded."""
        file, d = self.folder / "model.npz", self.examples.dimension
        if not file.exists():
            return State(model=np.zeros(d), sent=np.empty((0, d)))
        remedy = "Name another folder."
        try:
            with np.load(file, allow_pickle=False) as arrays:
                heard, told = (
                    json.loads(str(arrays["heard"])),
                    json.loads(str(arrays["attendance"])),
                )
                model, step, sent = arrays["model"], int(arrays["step"]), arrays["sent"]
                same = str(arrays["run"]) == self._name
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            got = f"{file}: {error}"
            raise InputError("folder", expected="a whole state", got=got, remedy=remedy) from None
        if not same:
            got = "that of another design, or of other data"
            raise InputError("folder", expected="the state of this run", got=got, remedy=remedy)
        if not steps >= set(range(step)):
            got = f"none of step {min(set(range(step)) - steps)}, in a run that took {step}"
            expected = "the record of what noise was added"
            raise InputError("folder", expected=expected, got=got, remedy=remedy)
        attendance.load_state_dict(told)
        return State(model=model, step=step, heard=heard, sent=sent)

    def _remember(self, now: State, attendance: Attendance) -> None:
        content = io.BytesIO()
        np.savez(
            content,
            model=now.model,
            step=np.array(now.step),
            sent=now.sent,
            heard=np.array(json.dumps(now.heard)),
            run=np.array(self._name),
            attendance=np.array(json.dumps(attendance.state_dict())),
        )
        atomic.write_bytes(self.folder / "model.npz", content.getvalue())

    def _log(self, t: int, model: Array) -> None:
        loss, right = float(self.examples.losses(model).mean()), self.examples.accuracy(model)
        with (self.folder / "log.csv").open("a", newline="", encoding="utf-8") as stream:
            csv.writer(stream).writerow((t, loss, right))
        if self.report is not None:
            self.report(t, loss)


def secrets_in(folder: Path, plan: Plan) -> dict[str, Secret]:
    """All secrets of a node, by the names of their files; seeds by those of their streams."""
    found = {}
    for name in (SECRET, BATCH_SECRET, KEY):
        if (folder / name).exists():
            found[name] = Secret.load(folder / name)
    for stream in plan.streams:
        if stream.source == SHARED:
            found[stream.name] = Secret.load(folder / SEEDS / stream.name)
    return found


def gone_in(folder: Path) -> dict[int, int]:
    """Read, by neighbour that is gone, the first of its messages that a node did not hear."""
    file = folder / GONE
    said = json.loads(file.read_text("utf-8")) if file.exists() else {}
    return {int(v): int(first) for v, first in said.items()}
