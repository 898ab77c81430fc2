"""Safetensors: the arrays under their names, and what must be known of them as strings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from noisedesign.base.atomic import write_bytes
from noisedesign.base.checks import InputError
from noisedesign.files.exported import Exported, content_from, not_ours, parsed_metadata

ACCEPTS = ("space", "time", "space-time", "streaming")
DESCRIPTION = "covariance, strategy, noising_matrix, mixing, ... as float64, for any framework"


def write(content: Exported, path: Path) -> tuple[Path, ...]:
    """Write ``covariance``, ``strategy``, ``noising_matrix`` or the bands, coefficients or buffers
    of C; ``mixing``, ``budget`` and what else the problem has.

    The metadata are strings: ``matrix``, the name of the main array, and its ``kind`` ("R" or
    "C"), the facts of the design one by one, and ``metadata``, the same as one JSON object.
    """
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
    """From the file alone."""
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
    try:
        import safetensors.numpy
    except ImportError as error:
        expected = "the safetensors package"
        remedy = "Install it: pip install safetensors."
        raise InputError("to", expected=expected, got="none", remedy=remedy) from error
    return safetensors.numpy
