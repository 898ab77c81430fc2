"""JAX Privacy: what ``matrix_factorization_privatizer(noising_matrix, stddev=...)`` takes.

That privatizer adds, to the SUM of clipped gradients, noise with covariance
stddev^2 noising_matrix noising_matrix^T over the steps. Left alone it draws its key from numpy's
global generator, so that nodes with one seed add one noise, and past the last row it repeats the
last noise vector, whose difference from the one before is no noise at all. :func:`privatizer` asks
for a key and stops there; :func:`read` refuses a run that is too long, but counts no steps.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base.atomic import write_bytes
from noisedesign.base.checks import Array, InputError
from noisedesign.base.regular_files import read_regular
from noisedesign.files.archive import NPY, float64_array, npy_bytes, pack, plain_array, unpack
from noisedesign.files.exported import factor, to_json, trainer_facts
from noisedesign.program.calibration import calibration_of
from noisedesign.program.design import Design

ACCEPTS = ("time",)
DESCRIPTION = "C^-1, stddev and horizon of jax_privacy's matrix_factorization_privatizer (.npz)"

_FIELD = "jax-privacy file"
_NOTE = (
    "Add to the sum of clipped gradients, before any averaging. Every node needs a key of its own, "
    "secret, of fresh bits of the operating system. After the horizon the privatizer repeats its "
    "last noise: stop there (noisedesign.files.exports.jax_privacy.privatizer does). Under jax's "
    "default float32 the matrix is rounded to 7 digits; jax.config.update('jax_enable_x64', True) "
    "keeps all."
)


def export(design: Design, path: Path, *, problem_text: str = "") -> tuple[Path, ...]:
    """Write ``noising_matrix`` C^-1, (T, T), ``stddev``, ``horizon`` T, and ``metadata``.

    ``stddev`` (not squared) is step sensitivity / mu for the privacy target of the problem. Where
    it has none it is 1 and protects nobody yet: the metadata say what to multiply it by, and
    ``calibrated`` is False.
    """
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
    """C^-1, shape (T, T), and stddev of an exported file, for a run of ``steps`` steps.

    The stddev of a file without a privacy target is 1.

    Raises:
        InputError: steps > T; not such a file.
    """
    return _read(path, steps=steps)[:2]


class _File(NamedTuple):
    noising_matrix: Array
    stddev: float
    calibrated: bool
    """Whether ``stddev`` meets a privacy target."""


def _read(path: str | Path, *, steps: int) -> _File:
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
        raise InputError(
            "steps",
            expected=f"at most {horizon}, the horizon of the design",
            got=str(steps),
            remedy="The privatizer would repeat its last noise vector: design for more steps.",
        )
    return _File(noising_matrix=noising_matrix, stddev=stddev, calibrated=bool(numbers[2]))


def privatizer(path: str | Path, *, steps: int, key: Any, multiply_by: float | None = None) -> Any:
    """The privatizer of one node for one run: the real one, which stops at the horizon.

    ``init(model)`` gives its state and ``update(sum_of_clipped_grads, state)`` the sum with the
    noise of the next step, and the next state. Update ``steps`` + 1 raises, before any noise is
    drawn: an InputError or, where it is compiled (``jax.jit``, ``jax.lax.scan``), the RuntimeError
    that JAX makes of it, as soon as the result is used. Noise is drawn in float32, in float64 where
    ``jax_enable_x64`` is set, also for gradients of fewer digits.

    Args:
        path: a file of this exporter.
        steps: length of the run, at most T.
        key: a JAX PRNG key, such as ``jax.random.wrap_key_data`` makes of fresh secret bits, and no
            other node's: whoever knows it knows the noise, and two nodes with the same key add the
            same noise. Numbers are refused: they are guessed, copied from script to script, and JAX
            keeps 32 bits of them. An interrupted run goes on with its key and its last state; a new
            run, which begins with ``init``, takes a new key.
        multiply_by: factor on the stddev of the file; required where it has no privacy target.

    Returns:
        An ``optax.GradientTransformation``.

    Raises:
        InputError: steps > T; not such a file; ``key`` is not one key; no privacy target in the
            file and no ``multiply_by``.
        ModuleNotFoundError: jax_privacy is not installed.
    """
    found = _read(path, steps=steps)
    stddev = found.stddev * factor(multiply_by, stated=1.0 if found.calibrated else None)
    if not hasattr(key, "dtype"):
        raise _bad_key(key)

    import jax
    from jax.experimental import io_callback
    from jax_privacy import noise_addition

    if not jax.dtypes.issubdtype(key.dtype, jax.dtypes.prng_key) or key.shape != ():
        raise _bad_key(key)
    noise = noise_addition.matrix_factorization_privatizer(
        found.noising_matrix, stddev=stddev, prng_key=key, dtype=jax.numpy.result_type(float)
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
    """That, and not what was given: it may be a secret."""
    words = [str(part) for part in (getattr(key, "dtype", ""), getattr(key, "shape", "")) if part]
    expected = "a JAX PRNG key, fresh and secret, another one at every node"
    got = f"of type {' '.join([type(key).__name__, *words])}"
    remedy = "jax.random.wrap_key_data(np.frombuffer(secrets.token_bytes(8), np.uint32)) is one."
    return InputError("key", expected=expected, got=got, remedy=remedy)
