"""NumPy: one float64 array a file, and what must be known of them in JSON of the same stem."""

from __future__ import annotations

from pathlib import Path

from noisedesign.files.archive import float64_array, npy_bytes
from noisedesign.files.array_files import read_files, write_files
from noisedesign.files.exported import FIELD, Exported

ACCEPTS = ("space", "time", "space-time", "streaming")
DESCRIPTION = "R, or C with C^-1 in PATH-noising.npy, or both, and .json; for numpy.load"


def write(content: Exported, path: Path) -> tuple[Path, ...]:
    """Write R at ``path``, or C and PATH-noising.npy; of noise in space and time
    PATH-strategy.npy, PATH-noising.npy and PATH-covariance.npy; and PATH.json."""
    return write_files(content, path, to="npy", encode=lambda _, array: npy_bytes(array))


def read(path: Path) -> Exported:
    """Read the arrays that the JSON at ``path`` names."""
    return read_files(path, decode=lambda data, name: float64_array(data, field=f"{FIELD}.{name}"))
