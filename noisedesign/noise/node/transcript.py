"""The transcript of a node: a chain of signed lines, and the numbers that it sent.

The first line has digests of plan and data, the rule of batches, and fingerprints of the secrets,
by which the node is bound before it draws. Then each step has a line, on the disk before its
message leaves: what the message is, from which model and noisy sum, what was heard before, and a
hash of the batch. ``transcript.f8`` has models and noisy sums themselves, which follow from the
messages that everybody may see. Hashes of what nobody may see are keyed by a secret for that."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisedesign.base import atomic
from noisedesign.base.checks import Array, InputError
from noisedesign.noise.agreement import Identity
from noisedesign.noise.keys import Secret
from noisedesign.noise.plan import Plan

FORMAT, VERSION = "noisedesign-transcript", 1
CHAIN, NUMBERS = "transcript.jsonl", "transcript.f8"
KEY = "audit-secret"  # the file of the secret that hashes are keyed by
LABEL = b"noisedesign transcript 1 "
LONGEST_LINE = 1 << 24  # bytes


def digest_of(array: Array) -> str:
    """SHA-256 of numbers as they are sent."""
    return hashlib.sha256(np.ascontiguousarray(array, dtype="<f8").data).hexdigest()


class Keyed:
    """Hashes that nobody can try guesses at who has not the secret."""

    def __init__(self, secret: Secret, digest: str) -> None:
        self._key = secret.step_key("hashes", 0, digest=digest, use="transcript")

    def _hash(self, what: str, parts: Iterable[bytes]) -> str:
        found = hashlib.blake2b(what.encode(), key=self._key, digest_size=32)
        for part in parts:
            found.update(b"%d:" % len(part))
            found.update(part)
        return found.hexdigest()

    def batch(self, step: int, batch: NDArray[np.intp]) -> str:
        """The records of a step, ascending."""
        return self._hash(f"batch {step} ", [np.sort(batch).astype("<i8").tobytes()])

    def data(self, features: Array, labels: Array) -> str:
        """Features and labels in their order."""
        shown = (np.ascontiguousarray(array, dtype="<f8").tobytes() for array in (features, labels))
        return self._hash(f"data {features.shape} ", shown)


def head_of(
    plan: Plan,
    *,
    secrets: Mapping[str, Secret],
    identity: Identity | None,
    data: str,
    records: int,
    dimension: int,
    step_size: float,
) -> dict[str, Any]:
    """The first entry: what a node is bound to before it draws."""
    rule = plan.claim.rule
    return {
        "format": FORMAT,
        "version": VERSION,
        "digest": plan.digest,
        "plan": plan.checksum,
        "node": plan.node,
        "identity": None if identity is None else identity.public.hex(),
        "rule": None if rule is None else json.loads(json.dumps(rule.to_json())),
        "records": records,
        "dimension": dimension,
        "step_size": step_size,
        "secrets": {name: secret.fingerprint for name, secret in sorted(secrets.items())},
        "data": data,
    }


def line_of(entry: Mapping[str, Any], before: str, identity: Identity | None) -> bytes:
    """An entry in the chain, signed where there is an identity."""
    said = json.dumps({**entry, "before": before}, sort_keys=True, separators=(",", ":"))
    signature = "" if identity is None else identity.sign(LABEL + said.encode()).hex()
    return json.dumps({"entry": said, "signature": signature}).encode() + b"\n"


def read_lines(path: Path) -> Iterator[bytes]:
    """Whole lines; the last one may be torn, of a node that was killed."""
    with path.open("rb") as stream:
        while line := stream.readline(LONGEST_LINE):
            if line.endswith(b"\n"):
                yield line


class Transcript:
    """The transcript of one run in a folder, which goes on where it ended."""

    def __init__(self, folder: Path, head: Mapping[str, Any], identity: Identity | None) -> None:
        self._chain, self._numbers = folder / CHAIN, folder / NUMBERS
        self._identity, self._dimension = identity, int(head["dimension"])
        self._last, self._count = b"", 0  # lines, the first among them
        if self._chain.exists():
            whole = 0
            for line in read_lines(self._chain):
                self._before, self._last, self._count = self._last, line, self._count + 1
                whole += len(line)
                if self._count == 1 and line != line_of(head, "", identity):
                    said = json.loads(json.loads(line)["entry"])
                    other = [key for key in head if said.get(key) != head[key]]
                    got = f"one with another {', '.join(other) or 'signature'}"
                    raise _of_this_run(self._chain, got)
            os.truncate(self._chain, whole)
        if not self._count:
            self._before = b""
            self._append(line_of(head, "", identity))

    def step(
        self, t: int, *, batch: str, model: Array, noisy: Array, sent: Array, heard: Any
    ) -> None:
        """Attest a message before it leaves; ``heard`` is of the step before."""
        entry = {
            "step": t,
            "batch": batch,
            "model": digest_of(model),
            "noisy": digest_of(noisy),
            "sent": digest_of(sent),
            "heard": heard,
        }
        self._keep(2 * t, model)
        self._keep(2 * t + 1, noisy)
        self._add(t + 1, entry)

    def end(self, steps: int, *, model: Array, heard: Any) -> None:
        """Attest the last model, and that no step comes after it."""
        self._keep(2 * steps, model)
        self._add(steps + 1, {"end": steps, "model": digest_of(model), "heard": heard})

    def _add(self, place: int, entry: Mapping[str, Any]) -> None:
        """Append a line, or find it there: a step that is computed again is the same step."""
        if place == self._count:
            self._append(line_of(entry, _hash(self._last), self._identity))
        elif place == self._count - 1:
            if line_of(entry, _hash(self._before), self._identity) != self._last:
                raise _of_this_run(self._chain, f"another step {place - 1} than was computed now")
        else:
            raise _of_this_run(self._chain, f"one of {self._count - 1} steps at step {place - 1}")

    def _append(self, line: bytes) -> None:
        try:
            with self._chain.open("ab") as stream:
                stream.write(line)
                stream.flush()
                os.fsync(stream.fileno())
        except OSError as error:
            raise atomic.StorageError(self._chain, error) from error
        self._before, self._last, self._count = self._last, line, self._count + 1

    def _keep(self, place: int, numbers: Array) -> None:
        size = 8 * self._dimension
        with self._numbers.open("r+b" if self._numbers.exists() else "w+b") as stream:
            stream.seek(place * size)
            stream.write(np.ascontiguousarray(numbers, dtype="<f8").data)


def _hash(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()


def _of_this_run(path: Path, got: str) -> InputError:
    remedy = "Name another folder, with secrets of its own."
    expected = f"the transcript of this run at {path}"
    return InputError("transcript", expected=expected, got=got, remedy=remedy)
