"""Safetensors: the arrays under their names, and what must be known of them as strings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from noisedesign.base.atomic import write_bytes
from noisedesign.base.extras import need
from noisedesign.files.exported import Exported, content_from, not_ours, parsed_metadata

ACCEPTS = ("space", "time", "space-time", "streaming")
DESCRIPTION = "covariance, strategy, noising_matrix, mixing, ... as float64, for any framework"


def write(content: Exported, path: Path) -> tuple[Path, ...]:
    """Write the arrays of the noise and the problem, and strings: ``matrix``, the name of the main
    array, its ``kind`` ("R" or "C"), every fact, and ``metadata``, all facts as one JSON object."""
    main = next(iter(content.noise.arrays()))
    known = content.metadata
    words = {key: value if isinstance(value, str) else repr(value) for key, value in known.items()}
    words |= {
        "kind": "R" if main == "covariance" else "C",
        "matrix": main,
        "metadata": content.text,
    }
    tensors = {name: np.ascontiguousarray(array) for name, array in content.arrays().items()}
    return (write_bytes(path, _package().save(tensors, metadata=words)),)


def read(path: Path) -> Exported:
    """Read the arrays of a file."""
    _package()
    import safetensors

    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            text = (file.metadata() or {})["metadata"]
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, KeyError, ValueError, safetensors.SafetensorError) as error:
        raise not_ours(path, f"{type(error).__name__}: {error}") from error
    return content_from(arrays, parsed_metadata(text, path))


def _package() -> Any:
    need("safetensors", field="to")
    import safetensors.numpy

    return safetensors.numpy
