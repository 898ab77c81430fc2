"""Secrets and keys: HKDF by its own vectors, and what is refused."""

from __future__ import annotations

import copy
import json
import os
import pickle
import stat
from pathlib import Path
from typing import Any

import pytest

from noisedesign.base.checks import InputError
from noisedesign.noise import Identity, Secret
from noisedesign.noise.keys import derived
from tests.support import noise_reference as reference

DIGEST = "0123456789abcdef" * 4
SECRET = Secret(bytes(range(32)))

VECTORS = [
    (
        b"\x0b" * 22,
        bytes(range(13)),
        bytes(range(0xF0, 0xFA)),
        "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865",
    ),
    (
        bytes(range(0x50)),
        bytes(range(0x60, 0xB0)),
        bytes(range(0xB0, 0x100)),
        "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c"
        "59045a99cac7827271cb41c65e590e09da3275600c2f09b8367793a9aca3db71"
        "cc30c58179ec3e87c14c01d5c1f3434f1d87",
    ),
    (
        b"\x0b" * 22,
        b"",
        b"",
        "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8",
    ),
]
"""RFC 5869, appendices A.1 to A.3: secret, salt, info, what comes."""


@pytest.mark.parametrize(("secret", "salt", "info", "expected"), VECTORS)
def test_derivation_is_that_of_the_standard(
    secret: bytes, salt: bytes, info: bytes, expected: str
) -> None:
    length = len(expected) // 2
    assert derived(secret, salt=salt, info=info, length=length).hex() == expected
    assert reference.hkdf(secret, salt=salt, info=info, length=length).hex() == expected


@pytest.mark.parametrize(("stream", "step"), [("node 0", 0), ("seed 12", 3), ("draw 1", 10**9)])
def test_keys_of_steps(stream: str, step: int) -> None:
    """By HMAC of Python's own library."""
    found = SECRET.step_key(stream, step, digest=DIGEST)
    assert found == reference.step_key(SECRET.value, stream, step, digest=DIGEST)


def test_one_key_bit_for_bit() -> None:
    """From tests.support.noise_reference."""
    expected = "f5c19c2321a55bb6fa435df4b965a66197524ed212c4379391ecf48087a75d7c"
    assert SECRET.step_key("node 0", 0, digest=DIGEST).hex() == expected


def test_whatever_differs_has_another_key() -> None:
    other = Secret(bytes(range(1, 33)))
    keys = [
        secret.step_key(stream, step, digest=digest)
        for secret in (SECRET, other, SECRET.child("node 1", digest=DIGEST))
        for digest in (DIGEST, DIGEST[::-1])
        for stream in ("node 1", "node 1 1", "node 11", "seed 1")
        for step in (0, 1, 11, 111)
    ]
    keys += [SECRET.value, other.value, SECRET.child("node 1 0", digest=DIGEST).value]
    assert len(set(keys)) == len(keys) == 3 * 2 * 4 * 4 + 3


def test_children_are_of_a_name_and_a_design() -> None:
    child = SECRET.child("seed 3", digest=DIGEST)
    assert child.value == reference.child(SECRET.value, "seed 3", digest=DIGEST)
    assert child.value == SECRET.child("seed 3", digest=DIGEST).value
    assert child.value != SECRET.child("seed 3", digest=DIGEST[::-1]).value


def test_the_operating_system_draws() -> None:
    found = {Secret.new().value for _ in range(100)}
    assert len(found) == 100
    assert all(len(value) == 32 for value in found)
    assert abs(sum(byte.bit_count() for value in found for byte in value) - 12800) < 500


def test_a_secret_is_not_shown() -> None:
    shown = f"{SECRET!r} {SECRET} {SECRET.fingerprint}"
    for part in (SECRET.value.hex()[:12], repr(SECRET.value)[2:14]):
        assert part not in shown
    assert SECRET.fingerprint != Secret(bytes(range(1, 33))).fingerprint
    assert len(bytes.fromhex(SECRET.fingerprint)) == 16


def test_a_secret_of_a_file(tmp_path: Path) -> None:
    path = SECRET.save(tmp_path / "secret")
    assert path.read_text() == SECRET.value.hex() + "\n"
    if os.name == "posix":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for again in (Secret.load(path), Secret.of(str(path)), Secret.of(path)):
        assert again.value == SECRET.value
    with pytest.raises(InputError, match="secret: expected a new file, got .*which exists"):
        Secret.new().save(path)
    assert Secret.load(path).value == SECRET.value


def test_a_secret_as_it_is() -> None:
    assert Secret.of(SECRET) is SECRET
    assert Secret.of(SECRET.value).value == SECRET.value


@pytest.mark.parametrize(
    ("value", "got"),
    [
        (bytes(31), "31 bytes"),
        (bytes(33), "33 bytes"),
        (bytes(32), "32 times one byte"),
        (b"\xff" * 32, "32 times one byte"),
        (7, "7"),
        (None, "None"),
        ([1] * 32, "a list|1, 1"),
    ],
)
def test_no_secrets(value: Any, got: str) -> None:
    with pytest.raises(InputError, match=f"secret: expected .*(?:{got})"):
        Secret.of(value)


@pytest.mark.parametrize(
    "content", [b"", b"abcd", b"\xff\xfe" * 40, b"zz" * 32, b"0" * 64, json.dumps({}).encode()]
)
def test_files_without_a_secret(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(InputError, match=r"^secret: expected"):
        Secret.load(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="secret: expected a file .*No such file"):
        Secret.load(tmp_path / "nowhere")
    with pytest.raises(OSError, match="could not write"):
        SECRET.save(tmp_path / "no folder" / "secret")


# --- where it may be ------------------------------------------------------------------------------


def test_a_secret_is_in_no_pickle_and_its_copy_is_itself() -> None:
    secret = Secret.new()
    for held in (secret, [secret], {"a": secret}, Identity(secret)):
        with pytest.raises(InputError, match="^secret: expected a file of its own, got a pickle"):
            pickle.dumps(held)
    assert copy.copy(secret) is copy.deepcopy([secret])[0] is secret


@pytest.mark.skipif(os.name != "posix", reason="modes are of POSIX")
def test_a_file_that_others_may_read_holds_no_secret(tmp_path: Path) -> None:
    path = Secret.new().save(tmp_path / "secret")
    for mode in (0o600, 0o400):
        path.chmod(mode)
        Secret.load(path)
    for mode in (0o640, 0o604, 0o620, 0o644):
        path.chmod(mode)
        for load in (Secret.load, Secret.of, Identity.load):
            with pytest.raises(InputError, match=f"^secret: .*owner alone.* got mode {mode:o}"):
                load(path)
