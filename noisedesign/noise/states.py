"""Files of the buffers of a run without an end: a restart goes on from there, and not from the
first step.

Who has the buffers of a node can take noise off, as who has its secret can. So a file is encrypted
and authenticated (ChaCha20-Poly1305) under a key derived from the secret for this file alone, with
all that the file says in clear: design, node, secret, step and sizes. Two files take turns, each
replaced in one step, so that one is whole whenever the process dies, and a step of an older
checkpoint can be reached from the older one. Buffers of a step are always the same numbers, so
that no file of this run, however old, leads to other noise."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from secrets import token_bytes
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from numpy.typing import NDArray

from noisedesign.base import atomic
from noisedesign.base.checks import InputError
from noisedesign.noise.keys import VERSION, Secret, derived

EVERY = 64  # steps from one file to the next: at most so many are computed again
_MAGIC = b"noisedesign state 1\n"
_TAG, _SALT = 16, 16  # bytes
_MOST = 2**28  # bytes of what a file says in clear
_SIZES = {"<f4": 4, "<f8": 8}
Place = tuple[int, "np.dtype[Any]"]  # number of a block of the model, and precision


class _File(NamedTuple):
    """A file as it is in clear: its bytes, the step, and where the buffers of a block are."""

    path: Path
    said: bytes
    key: ChaCha20Poly1305
    step: int
    rows: int
    places: Mapping[Place, tuple[int, int, int]]  # number of the piece, width, place in the file


@dataclass
class States:
    """The files of a run.

    Args:
        folder: of the files, made where there is none.
        secret: of the node.
        digest: of the design.
        node: zero-based.
        every: steps from one file to the next.

    Raises:
        InputError: naming ``state``: a file that is not whole, or of another run.
    """

    folder: Path
    secret: Secret
    digest: str
    node: int
    every: int = EVERY

    def __post_init__(self) -> None:
        self._files = [self._read(self._path(number)) for number in (0, 1)]

    def due(self, t: int) -> bool:
        """Whether a file is written after step t."""
        return (t + 1) % self.every == 0

    def keep(self, t: int, kept: Mapping[Place, NDArray[Any]]) -> None:
        """Write the buffers as they are after step t, over the older file; where that fails, warn:
        they can be computed again."""
        try:
            steps = [-1 if file is None else file.step for file in self._files]
            older = steps.index(min(steps))
            path, salt = self._path(older), token_bytes(_SALT)
            sizes = [[at[0], value.shape[1], _code(at[1])] for at, value in kept.items()]
            rows = next(iter(kept.values())).shape[0]
            said = json.dumps(
                {**self._own, "step": t, "rows": rows, "salt": salt.hex(), "blocks": sizes}
            ).encode()
            key = self._key(salt)

            def write(file: BinaryIO) -> None:
                if os.name == "posix":
                    os.fchmod(file.fileno(), 0o600)
                file.write(_MAGIC + len(said).to_bytes(8, "little") + said)
                for piece, ((_, dtype), value) in enumerate(kept.items()):
                    plain = np.ascontiguousarray(value, dtype=_code(dtype)).tobytes()
                    file.write(key.encrypt(_nonce(piece), plain, said))

            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with atomic.overwriting():
                atomic.write_atomically(path, write)
            self._files[older] = self._read(path)
        except OSError as error:
            said_of = f"Buffers after step {t} were not kept, so that a restart computes more again"
            warnings.warn(f"{said_of}: {error}", stacklevel=4)

    def find(self, at: Place, *, before: int, width: int) -> tuple[int, NDArray[Any]] | None:
        """The latest step before that one whose buffers of a block are kept, and these."""
        found = [
            file
            for file in self._files
            if file is not None
            and file.step < before
            and at in file.places
            and file.places[at][1] >= width
        ]
        if not found:
            return None
        file = max(found, key=lambda one: one.step)
        piece, wide, start = file.places[at]
        code = _code(at[1])
        try:
            with file.path.open("rb") as stream:
                stream.seek(start)
                sealed = stream.read(file.rows * wide * _SIZES[code] + _TAG)
        except FileNotFoundError:  # somebody deleted it
            self._files = [None if one is file else one for one in self._files]
            return self.find(at, before=before, width=width)
        except OSError as error:
            raise _damaged(file.path, error.strerror or str(error)) from None
        try:
            plain = file.key.decrypt(_nonce(piece), sealed, file.said)
        except InvalidTag:
            raise _damaged(file.path, "one that was changed since") from None
        kept = np.frombuffer(plain, dtype=code).astype(at[1]).reshape(file.rows, wide)
        return file.step, kept

    @property
    def _own(self) -> dict[str, Any]:
        return {"digest": self.digest, "node": self.node, "secret": self.secret.fingerprint}

    def _path(self, number: int) -> Path:
        return self.folder / f"{self.secret.fingerprint}-{self.node}-{number}.state"

    def _key(self, salt: bytes) -> ChaCha20Poly1305:
        info = VERSION + b" state " + salt
        return ChaCha20Poly1305(
            derived(self.secret.value, salt=bytes.fromhex(self.digest), info=info)
        )

    def _read(self, path: Path) -> _File | None:
        """Read what is in clear of a file; none of it is used before a piece has opened by it."""
        try:
            with path.open("rb") as stream:
                begins = stream.read(len(_MAGIC) + 8)
                size = int.from_bytes(begins[len(_MAGIC) :], "little")
                if begins[: len(_MAGIC)] != _MAGIC or size > _MOST:
                    raise ValueError("no beginning")
                said = stream.read(size)
            found = json.loads(said)
            if {key: found[key] for key in self._own} != self._own:
                raise _damaged(path, "one of another run")
            places, start = {}, len(begins) + size
            rows, step = int(found["rows"]), int(found["step"])
            for piece, (block, width, code) in enumerate(found["blocks"]):
                places[int(block), np.dtype(code)] = piece, int(width), start
                start += rows * int(width) * _SIZES[code] + _TAG
            if start != path.stat().st_size:
                raise ValueError("another size")
            key = self._key(bytes.fromhex(found["salt"]))
            return _File(path, said, key, step, rows, places)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _damaged(path, error.strerror or str(error)) from None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            if isinstance(error, InputError):
                raise
            raise _damaged(path, "one that is not whole") from None


def _code(dtype: np.dtype[Any]) -> str:
    return f"<f{dtype.itemsize}"


def _nonce(piece: int) -> bytes:
    """No key encrypts two pieces with one: every file has a key of its own."""
    return piece.to_bytes(12, "little")


def _damaged(path: Path, got: str) -> InputError:
    remedy = "Delete the file: buffers are computed again, from an older one or the first step."
    return InputError(
        "state", expected=f"the buffers of this run in {path}", got=got, remedy=remedy
    )
