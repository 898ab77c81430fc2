"""Secrets, and the keys derived from them.

A secret is 32 bytes that nobody else may have: one for each node, one for each seed that nodes
share. The key of a step is HKDF-SHA256 of the secret (RFC 5869), salted with the digest of the
design, for the words "noise", the name of the stream and the step: another node, seed, step or
design has another key, and a key betrays neither the secret nor any other key."""

from __future__ import annotations

import os
import secrets
import stat
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from noisedesign.base import atomic, checks as _checks
from noisedesign.base.checks import InputError

SECRET_BYTES = 32
DIGEST_BYTES = 32
VERSION = b"noisedesign noise 1"
OTHERS = stat.S_IRWXG | stat.S_IRWXO  # rights to a file of users other than its owner
_SECRET = f"{SECRET_BYTES} bytes, as Secret.new() draws them"


@dataclass(frozen=True, eq=False)
class Secret:
    """The bytes that the noise of one node, or of one shared seed, is derived from, never shown.

    Args:
        value: 32 bytes of a cryptographic generator; :meth:`new` draws them.

    Raises:
        InputError: not 32 bytes, or bytes that nobody drew (all the same).

    Examples:
        >>> from noisedesign.noise import Secret
        >>> secret = Secret.new()
        >>> print(secret)
        Secret()
        >>> path = secret.save("node-0.secret")
        >>> Secret.load(path).fingerprint == secret.fingerprint
        True
    """

    value: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.value, bytes):
            raise InputError("secret", expected=_SECRET, got=_checks.describe(self.value))
        if len(self.value) != SECRET_BYTES:
            raise InputError("secret", expected=_SECRET, got=f"{len(self.value)} bytes")
        if len(set(self.value)) == 1:
            raise InputError("secret", expected=_SECRET, got=f"{SECRET_BYTES} times one byte")

    @classmethod
    def new(cls) -> Self:
        """A secret from the operating system's generator.

        Returns:
            A new one.
        """
        return cls(secrets.token_bytes(SECRET_BYTES))

    def __deepcopy__(self, memo: Any = None) -> Self:
        """Itself: it never changes."""
        return self

    __copy__ = __deepcopy__

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Refused: a pickle has its bytes in clear, wherever it is sent or kept."""
        remedy = "Save it, secret.save(path), and give the path to whoever needs it."
        raise InputError("secret", expected="a file of its own", got="a pickle", remedy=remedy)

    @classmethod
    def of(cls, value: Any, *, field: str = "secret") -> Secret:
        """The secret that was meant.

        Args:
            value: a secret, 32 bytes, or the path of a file of one.
            field: what an error names.

        Returns:
            The secret.

        Raises:
            InputError: none of these.
        """
        if isinstance(value, Secret):
            return value
        if isinstance(value, bytes):
            return cls(value)
        if isinstance(value, (str, Path)):
            return cls.load(value)
        expected = f"a Secret, {SECRET_BYTES} bytes or the path of a file of them"
        raise InputError(field, expected=expected, got=_checks.describe(value))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The secret of a file that :meth:`save` wrote.

        Args:
            path: of the file.

        Returns:
            The secret.

        Raises:
            InputError: no such file, or no secret in it; one that other users may read or write,
                where the system knows of users.
        """
        file = _checks.path(path, field="secret")
        try:
            if os.name == "posix" and (mode := stat.S_IMODE(file.stat().st_mode)) & OTHERS:
                expected = f"a file {file} that its owner alone may read"
                remedy = (
                    f"Others may know it already: draw a new one, or chmod 600 {file} where "
                    "they do not. Where a mount allows no other mode, read its text yourself: "
                    "Secret(bytes.fromhex(text))."
                )
                raise InputError("secret", expected=expected, got=f"mode {mode:03o}", remedy=remedy)
            text = file.read_bytes()[: 4 * SECRET_BYTES].decode("ascii").strip()
            return cls(bytes.fromhex(text))
        except OSError as error:
            got = error.strerror or str(error)
            raise InputError("secret", expected=f"a file {file}", got=got) from None
        except ValueError as error:
            if isinstance(error, InputError):
                raise
            expected = f"{2 * SECRET_BYTES} hexadecimal digits in {file}"
            raise InputError("secret", expected=expected, got="other text") from None

    def save(self, path: str | Path) -> Path:
        """Written as hexadecimal digits, readable by this user only, never over another file.

        Args:
            path: of a new file.

        Returns:
            ``path``.

        Raises:
            InputError: there is a file already: another run may need its secret.
            StorageError: the file cannot be written.
        """
        file = _checks.path(path, field="secret")
        try:
            handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            raise InputError("secret", expected="a new file", got=f"{file}, which exists") from None
        except OSError as error:
            raise atomic.StorageError(file, error) from error
        with os.fdopen(handle, "w", encoding="ascii") as stream:
            stream.write(self.value.hex() + "\n")
            stream.flush()
            os.fsync(stream.fileno())
        return file

    @cached_property
    def fingerprint(self) -> str:
        """32 hexadecimal digits that tell secrets apart and betray nothing of them."""
        return derived(self.value, salt=b"", info=VERSION + b" fingerprint", length=16).hex()

    def child(self, name: str, *, digest: str) -> Secret:
        """A secret of its own for one purpose within one design: what a dealer gives away.

        Args:
            name: of the purpose.
            digest: of the design, 64 hexadecimal digits.

        Returns:
            The secret.

        Raises:
            InputError: no name, or no digest.
        """
        info = VERSION + b" child " + _checks.text(name, field="name").encode()
        return Secret(derived(self.value, salt=_salt(digest), info=info))

    def step_key(self, stream: str, step: int, *, digest: str, use: str = "noise") -> bytes:
        """The key of ChaCha20 for one stream and step.

        Args:
            stream: its name.
            step: zero-based.
            digest: of the design, 64 hexadecimal digits.
            use: what is drawn; keys of two uses are not alike.

        Returns:
            32 bytes, by HKDF-SHA256.

        Raises:
            InputError: no name of a stream, no step, or no digest.
        """
        name = _checks.text(stream, field="stream").encode()
        use = _checks.text(use, field="use")
        step = _checks.positive_int(step, field="step", minimum=0)
        info = b"%s %s %s %d" % (VERSION, use.encode(), name, step)
        return derived(self.value, salt=_salt(digest), info=info)


def _salt(digest: str) -> bytes:
    """The 32 bytes of a design's digest."""
    try:
        found = bytes.fromhex(digest)
    except (TypeError, ValueError):
        found = b""
    if len(found) != DIGEST_BYTES:
        expected = f"the {2 * DIGEST_BYTES} hexadecimal digits of a design's digest"
        raise InputError("digest", expected=expected, got=_checks.describe(digest))
    return found


def derived(secret: bytes, *, salt: bytes, info: bytes, length: int = SECRET_BYTES) -> bytes:
    """HKDF-SHA256 of a secret."""
    return HKDF(algorithm=SHA256(), length=length, salt=salt, info=info).derive(secret)
