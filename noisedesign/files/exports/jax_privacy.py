"""JAX Privacy: what ``matrix_factorization_privatizer(noising_matrix, stddev=...)`` takes.

That privatizer adds, to the SUM of clipped gradients, noise with covariance
stddev^2 noising_matrix noising_matrix^T over the steps. Left alone it draws its key from numpy's
global generator, and repeats its last noise past the last row: :func:`privatizer` does neither."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base.atomic import write_bytes
from noisedesign.base.checks import Array, InputError
from noisedesign.base.regular_files import read_regular
from noisedesign.design.design import Design
from noisedesign.files.archive import NPY, float64_array, npy_bytes, pack, plain_array, unpack
from noisedesign.files.exported import factor, to_json, trainer_facts
from noisedesign.problem.calibration import calibration_of

ACCEPTS = ("time",)
DESCRIPTION = "C^-1, stddev and horizon of jax_privacy's matrix_factorization_privatizer (.npz)"

_FIELD = "jax-privacy file"
_NOTE = (
    "Add to the sum of clipped gradients, before any averaging. Every node needs a secret key of "
    "its own, of fresh bits of the operating system. After the horizon the privatizer repeats its "
    "last noise: stop there, as noisedesign.files.exports.jax_privacy.privatizer does. Without "
    "jax_enable_x64 the matrix is rounded to 7 digits."
)


def export(design: Design, path: Path, *, problem_text: str = "") -> tuple[Path, ...]:
    """Write ``noising_matrix`` C^-1, (T, T), ``stddev``, ``horizon`` T, and ``metadata``.

    ``stddev`` (not squared) is step sensitivity / mu; without a privacy target it is 1, and
    ``calibrated`` is False."""
    calibration = calibration_of(design.problem)
    metadata = trainer_facts(design, note=_NOTE, problem_text=problem_text)
    members = {
        "noising_matrix": design.noising_matrix,
        "stddev": np.float64(calibration.noise_stddev),
        "horizon": np.int64(len(design.matrix)),
        "calibrated": np.bool_(metadata["calibrated"]),
        "metadata": to_json(metadata),
    }
    content = pack({name + NPY: npy_bytes(value) for name, value in members.items()})
    return (write_bytes(path, content),)


def read(path: str | Path, *, steps: int) -> tuple[Array, float]:
    """C^-1, shape (T, T), and stddev (1 without a privacy target), for a run of ``steps`` steps."""
    return _read(path, steps=steps)[:2]


def _read(path: str | Path, *, steps: int) -> tuple[Array, float, bool]:
    """C^-1, stddev, and whether that meets a privacy target."""
    steps = _checks.positive_int(steps, field="steps")
    expected = "a file of this exporter"
    content = read_regular(Path(path), field=_FIELD, expected=expected)
    members = unpack(content, field=_FIELD)
    try:
        found = {name: members[name + NPY] for name in ("noising_matrix", "stddev", "horizon")}
    except KeyError as error:
        raise InputError(_FIELD, expected=expected, got=f"{path}: {error}") from error
    calibrated = members.get("calibrated" + NPY, npy_bytes(np.bool_(False)))
    noising_matrix = float64_array(found["noising_matrix"], field=_FIELD)
    noising_matrix = _checks.matrix(noising_matrix, field=_FIELD, square=True)
    numbers = (
        float64_array(found["stddev"], field=_FIELD),
        plain_array(found["horizon"], field=_FIELD, dtype=np.dtype("<i8")),
        plain_array(calibrated, field=_FIELD, dtype=np.dtype(bool)),
    )
    if any(number.shape != () for number in numbers):
        raise InputError(_FIELD, expected="one stddev and one horizon", got=f"{path}: several")
    stddev = _checks.real(float(numbers[0]), field=_FIELD, low=0)
    horizon = int(numbers[1])
    if len(noising_matrix) != horizon:
        raise InputError(_FIELD, expected=f"{horizon} rows", got=f"{len(noising_matrix)}")
    if steps > horizon:
        expected = f"at most {horizon}, the horizon of the design"
        remedy = "The privatizer would repeat its last noise vector: design for more steps."
        raise InputError("steps", expected=expected, got=str(steps), remedy=remedy)
    return noising_matrix, stddev, bool(numbers[2])


def privatizer(path: str | Path, *, steps: int, key: Any, multiply_by: float | None = None) -> Any:
    """The privatizer of one node for one run: the real one, which stops after ``steps`` steps.

    ``init(model)`` gives its state and ``update(sum_of_clipped_grads, state)`` the sum with the
    noise of the next step, and the next state. Update ``steps`` + 1 raises, before any noise is
    drawn: an InputError or, where it is compiled, the RuntimeError that JAX makes of it. Noise is
    drawn in float32, in float64 where ``jax_enable_x64`` is set.

    ``key`` is a JAX PRNG key such as ``jax.random.wrap_key_data`` makes of fresh secret bits, of
    this node and run alone; an interrupted run goes on with its key and its last state.
    ``multiply_by`` is required where the file has no privacy target."""
    noising_matrix, stddev, calibrated = _read(path, steps=steps)
    stddev *= factor(multiply_by, stated=1.0 if calibrated else None)
    if not hasattr(key, "dtype"):
        raise _bad_key(key)

    import jax
    from jax.experimental import io_callback
    from jax_privacy import noise_addition

    if not jax.dtypes.issubdtype(key.dtype, jax.dtypes.prng_key) or key.shape != ():
        raise _bad_key(key)
    noise = noise_addition.matrix_factorization_privatizer(
        noising_matrix, stddev=stddev, prng_key=key, dtype=jax.numpy.result_type(float)
    )

    def check(step: Any) -> None:
        if not 0 <= int(step) < steps:
            expected = f"the {steps} updates of the run"
            remedy = "Past its end noise would be repeated: design for a longer run."
            raise InputError("steps", expected=expected, got=f"update {step + 1}", remedy=remedy)

    def update(sum_of_clipped_grads: Any, state: Any, params: Any = None) -> Any:
        if isinstance(state, jax.core.Tracer):
            io_callback(check, None, state)
        else:
            check(state)
        return noise.update(sum_of_clipped_grads, state, params)

    return noise._replace(update=update)


def _bad_key(key: Any) -> InputError:
    """An error that does not show what was given, which may be a secret."""
    words = [str(part) for part in (getattr(key, "dtype", ""), getattr(key, "shape", "")) if part]
    expected = "a JAX PRNG key, fresh and secret, another one at every node"
    got = f"of type {' '.join([type(key).__name__, *words])}"
    remedy = "jax.random.wrap_key_data(np.frombuffer(secrets.token_bytes(8), np.uint32)) is one."
    return InputError("key", expected=expected, got=got, remedy=remedy)
