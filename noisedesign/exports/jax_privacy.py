"""JAX Privacy: what ``matrix_factorization_privatizer(noising_matrix, stddev=...)`` takes.

That privatizer adds, to the SUM of clipped gradients, noise with covariance
stddev^2 noising_matrix noising_matrix^T over the steps. Past the last row it would repeat the last
noise vector, whose difference from the one before is no noise at all; :func:`read` refuses to run
that far.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from noisedesign import _checks
from noisedesign._checks import Array, InputError
from noisedesign.accounting import calibrate
from noisedesign.design import Design
from noisedesign.exports._common import facts, require_protection, to_json
from noisedesign.io._archive import NPY, npy_bytes, pack
from noisedesign.io.atomic import write_bytes

ACCEPTS = ("time",)
DESCRIPTION = "C^-1, stddev and horizon of jax_privacy's matrix_factorization_privatizer (.npz)"

_FIELD = "jax-privacy file"
_NOTE = (
    "Add to the sum of clipped gradients, before any averaging. Under jax's default float32 the "
    "matrix is rounded to 7 digits; jax.config.update('jax_enable_x64', True) keeps all."
)


def export(design: Design, path: Path, *, problem_text: str = "") -> tuple[Path, ...]:
    """Write ``noising_matrix`` C^-1, (T, T), ``stddev`` and ``horizon`` T, and ``metadata``.

    ``stddev`` (not squared) is step sensitivity / mu for the privacy target of the problem, or 1
    where it has none: then multiply it by your own.

    Raises:
        InputError: the design does not protect every message.
    """
    require_protection(design)
    calibration = calibrate(design.problem)
    metadata = facts(design, problem_text=problem_text) | {"note": _NOTE}
    members = {
        "noising_matrix": design.noising_matrix,
        "stddev": np.float64(calibration.noise_stddev),
        "horizon": np.int64(len(design.matrix)),
        "metadata": to_json(metadata),
    }
    content = pack({name + NPY: npy_bytes(value) for name, value in members.items()})
    return (write_bytes(path, content),)


def read(path: str | Path, *, steps: int) -> tuple[Array, float]:
    """C^-1, shape (T, T), and stddev of an exported file, for a run of ``steps`` steps.

    Raises:
        InputError: steps > T; not such a file.
    """
    steps = _checks.positive_int(steps, field="steps")
    try:
        with np.load(path, allow_pickle=False) as stored:
            noising_matrix = _checks.matrix(stored["noising_matrix"], field=_FIELD, square=True)
            stddev = _checks.real(float(stored["stddev"]), field=_FIELD, low=0)
            horizon = int(stored["horizon"])
    except InputError:
        raise
    except (OSError, KeyError, ValueError, TypeError, EOFError, zipfile.BadZipFile) as error:
        got = f"{path}: {error}"
        raise InputError(_FIELD, expected="a file of this exporter", got=got) from error
    if len(noising_matrix) != horizon:
        raise InputError(_FIELD, expected=f"{horizon} rows", got=f"{len(noising_matrix)}")
    if steps > horizon:
        raise InputError(
            "steps", expected=f"at most {horizon}, the horizon of the design", got=str(steps),
            remedy="The privatizer would repeat its last noise vector: design for more steps.",
        )  # fmt: skip
    return noising_matrix, stddev
