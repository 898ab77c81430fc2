"""Checkpoints of long solves: the multipliers reached, which are all that native solvers need.

The file is an .npz archive of ``checkpoint.json``, with the digest of the program, and
``multipliers.npy``; it is replaced whole, and never holds a pickle."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base.atomic import target_of, write_bytes
from noisedesign.base.checks import Array, InputError
from noisedesign.base.regular_files import read_regular
from noisedesign.certify.program import Program
from noisedesign.files.archive import NPY, float64_array, npy_bytes, pack, unpack

FIELD = "checkpoint"
CHECKPOINT_SECONDS = 60.0  # between two writes, which take far less
FORMAT = {"format": "noisedesign-checkpoint", "version": 1}
_MANIFEST, _MULTIPLIERS = "checkpoint.json", "multipliers" + NPY
_OTHER = "Name another file, or delete this one to begin anew."


@dataclass(frozen=True)
class CheckpointFile:
    """Keeps a solve in a file, which ``solve(problem, checkpoint=CheckpointFile(path))`` writes as
    it runs and when it ends, however it ends, and begins with.

    Args:
        path: of the file, which need not exist yet.
        seconds: between two writes.

    Raises:
        InputError: ``path`` is no path; ``seconds`` is no positive number.

    Examples:
        >>> import noisedesign as nd
        >>> scheme = nd.participation.FixedEpoch(epochs=4, separation=4)
        >>> problem = nd.TimeProblem.prefix(participation=scheme)
        >>> checkpoint = nd.results.CheckpointFile("run.npz")
        >>> first = nd.solve(problem, checkpoint=checkpoint)
        >>> again = nd.solve(problem, checkpoint=checkpoint)  # goes on from its end
        >>> again.status, again.evaluations < first.evaluations
        ('optimal', True)
    """

    path: str | Path
    seconds: float = CHECKPOINT_SECONDS

    def __post_init__(self) -> None:
        _checks.path(self.path, field=FIELD)
        _checks.real(self.seconds, field="seconds", low=0)

    def load(self, program: Program) -> Array | None:
        """The multipliers that the file holds.

        Args:
            program: the normalised program that is being solved.

        Returns:
            Multipliers U, shape (patterns, epochs, epochs); None where there is no file yet.

        Raises:
            InputError: the file is of another program, damaged, no checkpoint, or out of reach.
        """
        path = Path(self.path)
        if not path.exists():
            folder = target_of(path, field=FIELD).parent
            if not os.access(folder, os.W_OK):
                raise InputError(FIELD, expected="a folder that can be written to", got=str(folder))
            return None
        content = read_regular(path, field=FIELD, expected="a file that can be read")
        try:
            return _multipliers(unpack(content, field=FIELD), program)
        except InputError as error:
            got = f"{error.got} (in {path})"
            remedy = error.remedy or _OTHER
            raise InputError(FIELD, expected=error.expected, got=got, remedy=remedy) from error

    def save(self, program: Program, blocks: Array) -> None:
        """Put multipliers in place of what the file held.

        Args:
            program: as of :meth:`load`.
            blocks: its multipliers U, likewise.

        Raises:
            InputError: ``path`` is a folder or a device.
            StorageError: the file cannot be written; an existing one stays as it was.
        """
        manifest = json.dumps(FORMAT | {"program": digest_of(program)}, indent=2)
        members = {_MANIFEST: manifest.encode("utf-8"), _MULTIPLIERS: npy_bytes(blocks)}
        write_bytes(self.path, pack(members))


def digest_of(program: Program) -> str:
    """sha256 of a program: L where it is stated, else H; budgets, cap, floor, participation."""
    stated = {
        "factor": program.exact_factor,
        "gram": program.gram if program.exact_factor is None else None,
        "budget": program.budget,
        "cap": program.cap,
        "floor": program.floor,
    }
    scheme = program.participation
    digest = hashlib.sha256(f"{scheme.epochs} x {scheme.separation}".encode())
    for name, array in stated.items():
        if array is not None:
            digest.update(f"; {name} {array.shape}: ".encode())
            digest.update(np.ascontiguousarray(array, dtype="<f8").data)
    return digest.hexdigest()


def _multipliers(members: dict[str, bytes], program: Program) -> Array:
    """The multipliers of a checkpoint, which a solver may start from."""
    manifest: Any = None
    if set(members) == {_MANIFEST, _MULTIPLIERS}:
        with suppress(ValueError, RecursionError):
            manifest = json.loads(members[_MANIFEST])
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT["format"]:
        raise InputError(FIELD, expected="a checkpoint", got="another kind of file")
    if manifest.get("version") != FORMAT["version"]:
        expected = f"a checkpoint of version {FORMAT['version']}"
        raise InputError(FIELD, expected=expected, got=f"version {manifest.get('version')}")
    if manifest.get("program") != digest_of(program):
        expected, got = "a checkpoint of this problem", "one of another problem"
        remedy = f"W or H, budgets, limits or participation differ, if in the last digit. {_OTHER}"
        raise InputError(FIELD, expected=expected, got=got, remedy=remedy)
    blocks = float64_array(members[_MULTIPLIERS], field=FIELD)
    epochs, patterns = program.participation.epochs, program.participation.separation
    if blocks.shape != (patterns, epochs, epochs):
        expected = f"multipliers of shape {(patterns, epochs, epochs)}"
        raise InputError(FIELD, expected=expected, got=f"shape {blocks.shape}")
    blocks = (blocks + blocks.transpose(0, 2, 1)) / 2  # symmetric up to rounding when written
    diagonal = np.einsum("jii->ji", blocks)
    try:
        if not np.isfinite(blocks).all() or (diagonal != diagonal[:, :1]).any():
            raise np.linalg.LinAlgError
        np.linalg.cholesky(blocks)
    except np.linalg.LinAlgError:
        expected = "positive definite multipliers with constant diagonals"
        raise InputError(FIELD, expected=expected, got="others") from None
    return blocks
