"""Zip archives of arrays that numpy.load opens: the same bytes every time, and never a pickle."""

from __future__ import annotations

import io
import math
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np

from noisedesign.base.checks import Array, InputError

NPY = ".npy"

_FLOAT64 = np.dtype("<f8")
_ARCHIVE_ERRORS = (  # errors of zipfile about a damaged archive
    zipfile.BadZipFile, zlib.error, struct.error, OSError, EOFError, KeyError, ValueError,
    NotImplementedError, RuntimeError,
)  # fmt: skip
_HEADER_ERRORS = (ValueError, SyntaxError, TypeError, KeyError, RecursionError, MemoryError,
                  tokenize.TokenError)  # fmt: skip
"""Errors of numpy about a damaged .npy header, which it reads as Python source."""


def npy_parts(array: Any) -> tuple[bytes, memoryview]:
    """Header and numbers of an .npy file, C-contiguous float64, copied only where they are not."""
    array = np.asarray(array, order="C")
    if np.issubdtype(array.dtype, np.floating):
        array = array.astype(_FLOAT64, copy=False)
    header = io.BytesIO()
    entries = np.lib.format.header_data_from_array_1_0(array)
    np.lib.format.write_array_header_1_0(header, entries)
    return header.getvalue(), memoryview(array.reshape(-1)).cast("B")


def npy_bytes(array: Any) -> bytes:
    """The .npy file of an array, as :func:`npy_parts`."""
    return b"".join(npy_parts(array))


def pack_into(
    file: BinaryIO, members: Mapping[str, Sequence[bytes | memoryview]], *, comment: bytes = b""
) -> None:
    """Write a zip archive, uncompressed, as compressed bytes depend on the version of zlib."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, parts in members.items():
            info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            info.create_system = 3
            info.external_attr = 0o644 << 16
            info.file_size = sum(len(part) for part in parts)  # decides on its header
            with archive.open(info, "w") as member:
                for part in parts:
                    member.write(part)
        archive.comment = comment


def pack(members: Mapping[str, bytes]) -> bytes:
    """The archive of :func:`pack_into`."""
    buffer = io.BytesIO()
    pack_into(buffer, {name: (content,) for name, content in members.items()})
    return buffer.getvalue()


def unpack(content: bytes, *, field: str) -> dict[str, bytes]:
    """Members of an archive that :func:`pack` could have written."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            infos = archive.infolist()
            names = [info.filename for info in infos]
            plain = all(
                info.compress_type == zipfile.ZIP_STORED and info.file_size == info.compress_size
                for info in infos
            )
            # Entries may overlap, so that a small file unpacks to a large one.
            fits = sum(info.file_size for info in infos) <= len(content)
            members = {name: archive.read(name) for name in names} if plain and fits else {}
    except _ARCHIVE_ERRORS as error:
        raise InputError(field, expected="a zip archive of arrays", got=str(error)) from error
    if len(members) != len(names):
        expected = "uncompressed members, each once"
        raise InputError(field, expected=expected, got=", ".join(sorted(names)))
    return members


def float64_array(content: bytes, *, field: str) -> Array:
    """The float64 array of a .npy file, read-only."""
    array: Array = plain_array(content, field=field, dtype=_FLOAT64)
    return array


def plain_array(content: bytes, *, field: str, dtype: np.dtype[Any]) -> Any:
    """The array of numbers of a .npy file, read-only, without a copy."""
    stream = io.BytesIO(content)
    try:
        version = np.lib.format.read_magic(stream)
        if version != (1, 0):
            raise ValueError(f".npy version {version}")
        shape, fortran, found = np.lib.format.read_array_header_1_0(stream)
    except _HEADER_ERRORS as error:
        raise InputError(field, expected="a .npy array", got=str(error)) from error
    if found != dtype or fortran:
        order = "Fortran-ordered " if fortran else ""
        expected = f"a C-ordered {dtype} array"
        remedy = "Object arrays are pickles and are never read." if found.hasobject else ""
        raise InputError(field, expected=expected, got=f"{order}dtype {found}", remedy=remedy)
    data = memoryview(content)[stream.tell() :]
    if len(data) != math.prod(shape) * dtype.itemsize or min(shape, default=0) < 0:
        raise InputError(field, expected=f"the data of shape {shape}", got=f"{len(data)} bytes")
    return np.frombuffer(data, dtype=dtype).reshape(shape)
