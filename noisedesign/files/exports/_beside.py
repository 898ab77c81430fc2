"""Formats of one array a file: how the files are named, and the JSON that lies beside them.

The JSON has the stem of the path that was asked for and holds the metadata and, of every array, its
file, its shape and the sha256 of that file: an array of another export is noticed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from noisedesign.base.atomic import target_of, write_bytes, write_text
from noisedesign.base.checks import Array, InputError
from noisedesign.base.regular_files import check_regular
from noisedesign.files.exports._common import require_own_description, to_json
from noisedesign.files.exports._content import (
    FIELD,
    Exported,
    content_from,
    float64,
    not_ours,
    parsed_metadata,
)

SIDECAR = ".json"

_SHORT = {"noising_matrix": "noising"}


def write_files(
    content: Exported, path: Path, *, to: str, encode: Callable[[str, Array], bytes]
) -> tuple[Path, ...]:
    """One file an array, then the JSON. Where there is one factor its first array is ``path``.

    Raises:
        InputError: a path that no file can be written to, or that the JSON would lie at.
    """
    target_of(path)
    if path.suffix == SIDECAR:
        raise InputError(
            "output",
            expected=f"a name that does not end in {SIDECAR}, which is that of the metadata",
            got=str(path),
        )
    arrays, sidecar = content.noise.arrays(), path.with_suffix(SIDECAR)
    targets = [path, *(_beside(path, name, to=to) for name in list(arrays)[1:])]
    if content.noise.axes == "space-time":
        targets[0] = _beside(path, next(iter(arrays)), to=to)
    require_own_description(sidecar, to=to, files=targets)
    entries: dict[str, Any] = {}
    for target, (name, array) in zip(targets, arrays.items(), strict=True):
        data = encode(name, array)
        write_bytes(target, data)
        digest = hashlib.sha256(data).hexdigest()
        entries[name] = {"file": target.name, "shape": list(array.shape), "sha256": digest}
    write_text(sidecar, to_json(content.metadata | {"to": to, "arrays": entries}))
    return (*targets, sidecar)


def _beside(path: Path, name: str, *, to: str) -> Path:
    """The file of an array that is not at ``path`` itself."""
    return path.with_name(f"{path.stem}-{_SHORT.get(name, name)}{path.suffix or '.' + to}")


def read_files(path: Path, *, decode: Callable[[bytes, str], Array]) -> Exported:
    """The arrays that the JSON at ``path`` names, in its folder.

    Raises:
        InputError: a file that is missing or another than when the JSON was written.
    """
    metadata = parsed_metadata(path.read_bytes(), path)
    entries = metadata.get("arrays")
    if not isinstance(entries, dict):
        raise not_ours(path, "metadata without arrays")
    arrays = {}
    for name, entry in entries.items():
        try:
            file, shape, digest = Path(entry["file"]), tuple(entry["shape"]), entry["sha256"]
        except (TypeError, KeyError) as error:
            raise not_ours(path, f"no file of {name}") from error
        at = path.parent / file.name  # never elsewhere
        check_regular(at, field=f"{FIELD}.{name}", expected=f"the file {at}")
        try:
            data = at.read_bytes()
        except OSError as error:
            raise InputError(
                f"{FIELD}.{name}", expected=f"the file {at}", got=str(error.strerror)
            ) from error
        if hashlib.sha256(data).hexdigest() != digest:
            raise InputError(
                f"{FIELD}.{name}",
                expected=f"the array that {path.name} was written with",
                got=f"another in {at.name}",
                remedy="Export the design again.",
            )
        array = float64(decode(data, name), name=name)
        if array.size != _size(shape):
            raise InputError(f"{FIELD}.{name}", expected=f"shape {shape}", got=str(array.shape))
        arrays[name] = array.reshape(shape)
    return content_from(arrays, metadata)


def _size(shape: tuple[Any, ...]) -> int:
    size = 1
    for length in shape:
        if not isinstance(length, int) or length < 0:
            return -1
        size *= length
    return size
