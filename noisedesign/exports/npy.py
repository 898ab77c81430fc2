"""NumPy: R, or C and beside it C^-1, one float64 array a file."""

from __future__ import annotations

from pathlib import Path

from noisedesign.design import Design
from noisedesign.io._archive import npy_bytes
from noisedesign.io.atomic import write_bytes

ACCEPTS = ("space", "time")
DESCRIPTION = "R, or C with C^-1 in PATH-noising.npy, for numpy.load"


def export(design: Design, path: Path, *, problem_text: str = "") -> tuple[Path, ...]:
    """Write R, shape (n, n), or C and C^-1, shape (T, T)."""
    written = [write_bytes(path, npy_bytes(design.matrix))]
    if design.kind == "time":
        beside = path.with_name(f"{path.stem}-noising{path.suffix or '.npy'}")
        written.append(write_bytes(beside, npy_bytes(design.noising_matrix)))
    return tuple(written)
