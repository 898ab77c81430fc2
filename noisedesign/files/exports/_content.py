"""What a generic export holds: the arrays that noise is drawn from, and what must be known of them.

A format writes and reads this value, and knows no design. ``multiply_by`` is a factor on the noise
(its standard deviation), so that R is multiplied by its square.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array, InputError, describe
from noisedesign.files._layout import arrays_of
from noisedesign.files.exports._common import NO_TARGET, factor, facts, require_feasible, to_json
from noisedesign.program.calibration import Calibration, calibrate
from noisedesign.program.design import Design
from noisedesign.program.noise import Noise, noise_of_arrays
from noisedesign.program.noise.streams import Seed

FORMAT, VERSION = "noisedesign-export", 1
FIELD = "export"

PROBLEM_ARRAYS = ("mixing", "budget", "max_variance", "min_variance", "gram")
"""What formats of many arrays hold beside those of the noise: W, tau, limits, H of the problem."""

_CALIBRATED = (
    "Scaled to the privacy target: draw from the arrays as they are. The factor noise_stddev "
    "stands in {where}. Other arrays are those of the problem, before scaling."
)
_UNCALIBRATED = (
    "Not scaled to the privacy target: the arrays are at unit sensitivity, or at the budgets. "
    "Multiply the noise by multiply_by = noise_stddev (and so R by its square)."
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Exported:
    """Noise as a file holds it.

    Attributes:
        noise: what to draw from, as it stands in the file.
        metadata: JSON values: ``calibrated``, ``multiply_by``, ``note``, what is said of the
            design, and of its privacy ``noise_stddev``, ``noise_multiplier``, ``mu``, ``epsilon``,
            ``delta``, ``adjacency``, ``clip``, ``horizon`` and participation, null where nothing
            is known.
        beside: arrays of the problem that nobody needs to draw, by name.
    """

    noise: Noise
    metadata: dict[str, Any]
    beside: Mapping[str, Array] = field(default_factory=dict)

    @property
    def multiply_by(self) -> float | None:
        """Factor on the noise that gives the privacy stated; None where there was no target."""
        value = self.metadata["multiply_by"]
        return None if value is None else float(value)

    def scaled(self, multiply_by: float | None = None) -> Noise:
        """The noise to add, times the factor of the file or, where it has none, the one given.

        Raises:
            InputError: neither.
        """
        used = factor(multiply_by, stated=self.multiply_by)
        return self.noise if used == 1 else self.noise.scaled(used)

    def stream(
        self,
        *,
        dimension: int,
        seed: Seed,
        steps: int | None = None,
        nodes: int | None = None,
        multiply_by: float | None = None,
    ) -> Iterator[Array]:
        """Noise to add to the sums of clipped gradients, arrays of shape (n, d), one a step.

        The arguments are those of :meth:`Noise.stream` and :meth:`scaled`. It
        draws from one seed, by a generator that is not cryptographic: it is for simulation.
        """
        return self.scaled(multiply_by).stream(
            dimension=dimension, seed=seed, steps=steps, nodes=nodes
        )


def plain_noise(design: Design) -> Noise:
    """C and R, in the forms they are stored in."""
    return design.noise


def content_of(
    design: Design, noise: Noise, *, problem_text: str, calibrated: bool | None
) -> Exported:
    """What is exported of a design whose noise is ``noise``.

    Args:
        calibrated: whether the arrays are scaled to the privacy target; None: where there is one.

    Raises:
        InputError: asked to calibrate without a target; a design that is not feasible, so that
            nothing can be claimed.
    """
    if design.trust != "central":
        require_feasible(design)
    known, found = facts(design, problem_text=problem_text), calibrate(design.problem)
    stored = arrays_of(design)
    beside = {name: stored[name] for name in PROBLEM_ARRAYS if name in stored}
    return calibrated_content(noise, known, found, calibrated=calibrated, beside=beside)


def calibrated_content(
    noise: Noise,
    known: dict[str, Any],
    found: Calibration,
    *,
    calibrated: bool | None,
    beside: Mapping[str, Array],
) -> Exported:
    """The noise scaled, or not, with words that say which."""
    target = found.mu is not None
    if calibrated and not target:
        raise InputError(
            "calibrated",
            expected="a design with a privacy target",
            got="one without",
            remedy="State one in [privacy], or export it as it is.",
        )
    calibrated = target if calibrated is None else calibrated
    metadata = known | {
        "format": FORMAT,
        "version": VERSION,
        "noise": {
            "kind": noise.axes,
            "steps": noise.steps,
            "nodes": noise.nodes,
            "full": noise.full,
            "strategy": None if noise.strategy is None else noise.strategy.kind,
        },
        "calibrated": calibrated,
        "multiply_by": 1.0 if calibrated else found.noise_stddev if target else None,
        "note": _UNCALIBRATED if target else NO_TARGET,
    }
    if calibrated:
        noise = noise.scaled(found.noise_stddev)
        metadata["note"] = _CALIBRATED.format(where=_where(noise))
    return Exported(noise=noise, metadata=metadata, beside=beside)


def _where(noise: Noise) -> str:
    if noise.space is not None:
        return "covariance (its square), or in the coefficients of the seeds, and not in C"
    assert noise.strategy is not None
    return f"{', '.join(noise.strategy.names)} (C is divided by it, C^-1 multiplied)"


# --- reading --------------------------------------------------------------------------------------


def parsed_metadata(text: str | bytes, path: Path) -> dict[str, Any]:
    """The metadata of an export, checked for what drawing depends on.

    Raises:
        InputError: not JSON, or not of this format and version.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise not_ours(path, f"no JSON: {error}") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise not_ours(path, "JSON of another kind")
    if found.get("version") != VERSION:
        raise InputError(
            f"{FIELD}.version",
            expected=f"version {VERSION}",
            got=f"version {describe(found.get('version'))} in {path}",
        )
    factor, noise = found.get("multiply_by"), found.get("noise")
    if not isinstance(noise, dict) or not isinstance(noise.get("full"), bool):
        raise not_ours(path, "metadata without noise")
    for key in ("steps", "nodes"):
        if noise.get(key) is not None:
            _checks.positive_int(noise[key], field=f"{FIELD}.noise.{key}")
    if factor is not None:
        _checks.real(factor, field=f"{FIELD}.multiply_by", low=0)
    return found


def content_from(arrays: Mapping[str, Array], metadata: dict[str, Any]) -> Exported:
    """The content of a file with these arrays and checked metadata."""
    said = metadata["noise"]
    noise = noise_of_arrays(
        arrays, steps=said.get("steps"), nodes=said.get("nodes"), full=said["full"], field=FIELD
    )
    form = None if noise.strategy is None else noise.strategy.kind
    if (noise.axes, form) != (said.get("kind"), said.get("strategy")):
        raise InputError(
            f"{FIELD}.noise",
            expected=f"{describe(said.get('kind'))} noise, as its metadata say",
            got=f"arrays of {noise.axes} noise",
        )
    beside = {name: array for name, array in arrays.items() if name in PROBLEM_ARRAYS}
    return Exported(noise=noise, metadata=metadata, beside=beside)


def not_ours(path: Path, got: str) -> InputError:
    """The error for a file that no generic exporter wrote."""
    return InputError(FIELD, expected="a file of `noisedesign export`", got=f"{path}: {got}")


def metadata_text(content: Exported) -> str:
    """The metadata as JSON."""
    return to_json(content.metadata)


def float64(array: Any, *, name: str) -> Array:
    """The array, read-only.

    Raises:
        InputError: another dtype.
    """
    found = np.asarray(array)
    if found.dtype != np.float64:
        raise InputError(f"{FIELD}.{name}", expected="float64", got=str(found.dtype))
    return found
