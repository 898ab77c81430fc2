"""Comma-separated values with all digits of a float64."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np

from noisedesign._checks import Array
from noisedesign.design import Design
from noisedesign.io.atomic import write_text

ACCEPTS = ("space", "time")
DESCRIPTION = "R under a row of node names, or C with C^-1 in PATH-noising.csv"


def export(design: Design, path: Path, *, problem_text: str = "") -> tuple[Path, ...]:
    """Write R, shape (n, n), below its node names, or C and C^-1, shape (T, T), bare.

    ``pandas.read_csv(path)`` takes the names of R for columns; ``numpy.loadtxt(path,
    delimiter=",", skiprows=1)`` skips them.
    """
    if design.kind == "space":
        return (write_text(path, _table(design.matrix, header=design.problem.nodes)),)
    beside = path.with_name(f"{path.stem}-noising{path.suffix or '.csv'}")
    return (
        write_text(path, _table(design.matrix)),
        write_text(beside, _table(design.noising_matrix)),
    )


def _table(matrix: Array, *, header: tuple[str, ...] = ()) -> str:
    buffer = io.StringIO()
    if header:
        csv.writer(buffer, lineterminator="\n").writerow(header)
    np.savetxt(buffer, matrix, fmt="%.17g", delimiter=",")
    return buffer.getvalue()
