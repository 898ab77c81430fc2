"""MATLAB 5 files: the arrays under their names, and what must be known of them as JSON.

The text at the head of such a file is free, and holds the sha256 of the bytes below it: SciPy's
reader may crash on a damaged file. That guards against accidents, not against who changes a file on
purpose."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any, cast

import numpy as np
from scipy.io import loadmat, savemat

from noisedesign.base.atomic import write_atomically
from noisedesign.base.file_kinds import MATLAB_5
from noisedesign.files.exported import (
    PROBLEM_ARRAYS,
    Exported,
    content_from,
    not_ours,
    parsed_metadata,
)
from noisedesign.forms import FORMS, MIXING_ARRAYS, STRATEGIES

ACCEPTS = ("space", "time", "space-time", "streaming")
DESCRIPTION = "covariance, strategy, noising_matrix, mixing, ...; MATLAB and scipy.io.loadmat"

_HEAD = 116  # bytes of the text at the head of a MATLAB 5 file

_VECTORS = {
    "strategy_coefficients",
    "noising_coefficients",
    "buffer_scales",
    "buffer_decays",
    "buffer_turns",
    "strategy_diagonal",
    "budget",
    "max_variance",
    "min_variance",
    *MIXING_ARRAYS,
    *(name for form in FORMS for name in form.names),
}


def write(content: Exported, path: Path) -> tuple[Path, ...]:
    """Write the arrays of the noise and the problem, vectors as columns; ``nodes``, a cell array in
    the order of the rows of W; and ``metadata``, a JSON string."""
    variables: dict[str, Any] = content.arrays()
    if names := content.metadata.get("nodes"):
        variables["nodes"] = np.array([*names, None], dtype=object)[:-1]
    variables["metadata"] = content.text

    def write(file: Any) -> None:
        savemat(file, variables, oned_as="column")
        file.seek(_HEAD)
        head = _head(file.read())
        file.seek(0)
        file.write(head)

    return (write_atomically(path, write),)


def _head(body: bytes) -> bytes:
    """The text at the head of a file whose other bytes are ``body``."""
    digest = hashlib.sha256(body).hexdigest().encode("ascii")
    return (MATLAB_5 + b", noisedesign-sha256:" + digest).ljust(_HEAD)


def read(path: Path) -> Exported:
    """Read the arrays of a file whose head fits them."""
    content = path.read_bytes()
    if content[:_HEAD] != _head(content[_HEAD:]):
        raise not_ours(path, "a MATLAB file that is damaged, or of another program")
    try:
        found = loadmat(cast("Any", io.BytesIO(content)))
        text = str(found["metadata"].item())
    except (OSError, ValueError, KeyError, TypeError, NotImplementedError) as error:
        raise not_ours(path, str(error)) from error
    known = {name for form in STRATEGIES for name in form.names} | _VECTORS
    arrays = {
        name: np.ravel(array) if name in _VECTORS else array
        for name, array in found.items()
        if name in {*known, *PROBLEM_ARRAYS, "covariance"}
    }
    return content_from(arrays, parsed_metadata(text, path))
