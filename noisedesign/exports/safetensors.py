"""Safetensors: the arrays of a design file, its facts as strings."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from noisedesign._checks import InputError
from noisedesign.design import Design
from noisedesign.exports._common import facts, to_json
from noisedesign.io._layout import SPECS, arrays_of, main_array
from noisedesign.io.atomic import write_bytes

ACCEPTS = ("space", "time")
DESCRIPTION = "the float64 arrays of a design file, for safetensors of any framework"


def export(design: Design, path: Path, *, problem_text: str = "") -> tuple[Path, ...]:
    """Write covariance, mixing, budget, ... or strategy, noising_matrix, gram, ... as float64.

    The metadata are strings: ``kind`` of the main array ("R" or "C"), ``matrix`` its name, the
    facts of the design one by one, and ``metadata``, the same as one JSON object.
    """
    try:
        from safetensors.numpy import save
    except ImportError as error:
        raise InputError(
            "to", expected="the safetensors package", got="none",
            remedy="Install it: pip install safetensors.",
        ) from error  # fmt: skip
    stored, known = arrays_of(design), facts(design, problem_text=problem_text)
    main = main_array(design.kind, stored)
    words = {key: value if isinstance(value, str) else repr(value) for key, value in known.items()}
    words |= {"kind": SPECS[design.kind][main].kind, "matrix": main, "metadata": to_json(known)}
    arrays = {name: np.ascontiguousarray(array) for name, array in stored.items()}
    return (write_bytes(path, save(arrays, metadata=words)),)
