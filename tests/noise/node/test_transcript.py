"""The chain that a node writes: it goes on after kills, and never says two things of one step."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from noisedesign.base.checks import InputError
from noisedesign.noise import Identity, Secret
from noisedesign.noise.node.transcript import Keyed, Transcript, read_lines

HEAD = {"format": "noisedesign-transcript", "version": 1, "dimension": 2, "data": "d"}
IDENTITY = Identity(Secret(bytes(range(32))))


def begun(folder: Path, **other: Any) -> Transcript:
    return Transcript(folder, HEAD | other, IDENTITY)


def step(of: Transcript, t: int, *, sent: float = 0.5, heard: Any = ()) -> None:
    numbers = {"model": [t, 1.0], "noisy": [t, 2.0], "sent": [t, sent]}
    arrays = {name: np.array(value, dtype=float) for name, value in numbers.items()}
    of.step(t, batch=f"b{t}", heard=list(heard), **arrays)


def entries(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "transcript.jsonl").read_bytes().splitlines()
    return [json.loads(json.loads(line)["entry"]) for line in lines]


def test_lines_are_a_signed_chain(tmp_path: Path) -> None:
    of = begun(tmp_path)
    step(of, 0)
    step(of, 1, heard=[{"7": "abc"}])
    of.end(2, model=np.array([9.0, 9.0]), heard=[])
    public, before = Ed25519PublicKey.from_public_bytes(IDENTITY.public), ""
    lines = (tmp_path / "transcript.jsonl").read_bytes().splitlines(keepends=True)
    for line in lines:
        outer = json.loads(line)
        said = b"noisedesign transcript 1 " + outer["entry"].encode()
        public.verify(bytes.fromhex(outer["signature"]), said)
        assert json.loads(outer["entry"])["before"] == before
        before = hashlib.sha256(line).hexdigest()
    found = entries(tmp_path)
    assert found[0] == HEAD | {"before": ""}
    assert found[2]["heard"] == [{"7": "abc"}]
    assert found[2]["sent"] == hashlib.sha256(np.array([1.0, 0.5], "<f8").tobytes()).hexdigest()
    assert found[3]["end"] == 2
    kept = np.fromfile(tmp_path / "transcript.f8", dtype="<f8")
    assert kept.tolist() == [0, 1, 0, 2, 1, 1, 1, 2, 9, 9]


def test_it_goes_on_after_a_kill(tmp_path: Path) -> None:
    of = begun(tmp_path)
    step(of, 0)
    step(of, 1)
    whole = (tmp_path / "transcript.jsonl").read_bytes()
    with (tmp_path / "transcript.jsonl").open("ab") as stream:
        stream.write(b'{"entry": "half a li')  # killed while it wrote
    again = begun(tmp_path)
    step(again, 1)  # the step that was computed again
    assert (tmp_path / "transcript.jsonl").read_bytes() == whole
    step(again, 2)
    straight = tmp_path / "straight"
    straight.mkdir()
    of = begun(straight)
    for t in range(3):
        step(of, t)
    assert (straight / "transcript.jsonl").read_bytes() == (
        tmp_path / "transcript.jsonl"
    ).read_bytes()
    assert len(list(read_lines(tmp_path / "transcript.jsonl"))) == 4


def test_a_step_is_attested_once(tmp_path: Path) -> None:
    step(begun(tmp_path), 0)
    with pytest.raises(
        InputError, match="transcript: expected the transcript of this run at .*, g"
    ):
        step(begun(tmp_path), 0, sent=0.25)
    with pytest.raises(InputError, match="got one of 1 steps at step 2"):
        step(begun(tmp_path), 2)
    with pytest.raises(InputError, match="got one with another data"):
        begun(tmp_path, data="other")
    with pytest.raises(InputError, match="got one with another signature"):
        Transcript(tmp_path, HEAD, Identity.new())


def test_hashes_are_keyed_and_of_what_they_say() -> None:
    """Without the secret nobody can try which records were in a batch."""
    digest, batch = "a1" * 32, np.array([1, 2])
    one, other = (Keyed(Secret(bytes(range(n, n + 32))), digest) for n in (0, 1))
    assert one.batch(0, batch) == one.batch(0, batch[::-1])
    found = {
        one.batch(0, batch),
        other.batch(0, batch),
        one.batch(1, batch),
        one.batch(0, batch[:1]),
    }
    assert len(found) == 4
    features, labels = np.ones((2, 3)), np.ones(2)
    data = {
        one.data(features, labels),
        one.data(features, 0 * labels),
        other.data(features, labels),
    }
    assert len(data) == 3
