"""Formats of one array a file, and the JSON that lies beside the files.

The JSON has the stem of the path that was asked for and holds the metadata and, of every array, its
file, its shape and the sha256 of that file, so that an array of another export is noticed."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from noisedesign.base.atomic import (
    REPLACE_REMEDY,
    may_overwrite,
    target_of,
    write_bytes,
    write_text,
)
from noisedesign.base.checks import Array, InputError
from noisedesign.base.regular_files import read_regular
from noisedesign.files.exported import (
    FIELD,
    Exported,
    content_from,
    not_ours,
    parsed_metadata,
    to_json,
)

SIDECAR = ".json"


def write_files(
    content: Exported, path: Path, *, to: str, encode: Callable[[str, Array], bytes]
) -> tuple[Path, ...]:
    """One file an array, then the JSON. Where there is one factor its first array is ``path``."""
    target_of(path)
    if path.suffix == SIDECAR:
        expected = f"a name that does not end in {SIDECAR}, which is that of the metadata"
        raise InputError("output", expected=expected, got=str(path))
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
    short = "noising" if name == "noising_matrix" else name
    return path.with_name(f"{path.stem}-{short}{path.suffix or '.' + to}")


def read_files(path: Path, *, decode: Callable[[bytes, str], Array]) -> Exported:
    """The arrays that the JSON at ``path`` names, in its folder."""
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
        data = read_regular(at, field=f"{FIELD}.{name}", expected=f"the file {at}")
        if hashlib.sha256(data).hexdigest() != digest:
            expected = f"the array that {path.name} was written with"
            got = f"another in {at.name}"
            remedy = "Export the design again."
            raise InputError(f"{FIELD}.{name}", expected=expected, got=got, remedy=remedy)
        array = decode(data, name)
        if not all(isinstance(n, int) and n >= 0 for n in shape) or array.size != math.prod(shape):
            raise InputError(f"{FIELD}.{name}", expected=f"shape {shape}", got=str(array.shape))
        arrays[name] = array.reshape(shape)
    return content_from(arrays, metadata)


def require_own_description(path: Path, *, to: str, files: Iterable[Path] = ()) -> None:
    """Refuse to replace another export's JSON at ``path``, or ``files`` that it does not name."""
    # Two exports of one stem would share the JSON, and files of one be read as the other's.
    if may_overwrite():
        return
    found, files = _description_at(path), tuple(files)
    if found.get("to") not in (None, to):
        got = f"one to {to} that is described there too"
        expected = f"a name of its own, since {path} describes an export to {found['to']}"
        raise InputError("output", got=got, remedy=REPLACE_REMEDY, expected=expected)
    others = sorted(name for name in files_of(found) if (path.parent / Path(name).name).is_file())
    if files and others and not {file.name for file in files} & {*others}:
        expected = f"a name of its own, since {path} describes {', '.join(others)}"
        got = f"{files[0].name}, which is described there too"
        raise InputError("output", got=got, remedy=REPLACE_REMEDY, expected=expected)
    for file in files:
        if file.is_file() and file.stat().st_size and file.name not in files_of(found):
            expected = "a new file, or one of an earlier export to replace"
            got = f"{file}, which {path.name} does not name"
            raise InputError("output", expected=expected, got=got, remedy=REPLACE_REMEDY)


def _description_at(path: Path) -> dict[str, Any]:
    """The JSON object at ``path``, empty where there is none."""
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}  # whoever writes there says what it is
    return found if isinstance(found, dict) else {}


def files_of(metadata: dict[str, Any]) -> set[str]:
    """The names of the files that hold the arrays of an export."""
    entries = metadata.get("arrays")
    listed = entries.values() if isinstance(entries, dict) else ()
    return {str(entry["file"]) for entry in listed if isinstance(entry, dict) and "file" in entry}
