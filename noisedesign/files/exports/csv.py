"""Comma-separated values with all digits of a float64, and JSON of the same stem."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np

from noisedesign.base.checks import Array, InputError
from noisedesign.base.tables import visible
from noisedesign.files.array_files import read_files, write_files
from noisedesign.files.exported import FIELD, Exported

ACCEPTS = ("space", "time", "space-time", "streaming")
DESCRIPTION = "R under a row of node names, or C with C^-1 in PATH-noising.csv, or both, and .json"

HEADED = "covariance"  # the array below a row of node names


def write(content: Exported, path: Path) -> tuple[Path, ...]:
    """Write R, shape (n, n), below its node names, and other arrays bare, in files named as by
    :mod:`noisedesign.files.exports.npy`; vectors are one row, and the C of one mode lies below
    that of another."""
    names = content.metadata.get("nodes") or ()

    def encode(name: str, array: Array) -> bytes:
        table = io.StringIO()
        if name == HEADED and names:
            csv.writer(table, lineterminator="\n").writerow(map(_heading, names))
        rows = array.reshape(-1, array.shape[-1]) if array.ndim > 2 else np.atleast_2d(array)
        np.savetxt(table, rows, fmt="%.17g", delimiter=",")
        return table.getvalue().encode("utf-8")

    return write_files(content, path, to="csv", encode=encode)


def _heading(name: str) -> str:
    """A name that no spreadsheet takes for a formula, and no terminal for an order."""
    safe = visible(name).replace("\n", r"\n")
    return f"'{safe}" if safe.startswith(("=", "+", "-", "@")) else safe


def read(path: Path) -> Exported:
    """Read the tables that the JSON at ``path`` names."""
    return read_files(path, decode=_decoded)


def _decoded(data: bytes, name: str) -> Array:
    try:
        rows = list(csv.reader(io.StringIO(data.decode("utf-8"), newline=""), strict=True))
        return np.array(rows[name == HEADED :], dtype=np.float64)
    except (ValueError, csv.Error) as error:
        raise InputError(f"{FIELD}.{name}", expected="rows of numbers", got=str(error)) from error
