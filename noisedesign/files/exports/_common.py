"""What several exporters share: facts about a design, and what a trainer must not be given."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from noisedesign.base import checks as _checks
from noisedesign.base.atomic import REPLACE_REMEDY, may_overwrite
from noisedesign.base.checks import InputError
from noisedesign.program.calibration import Calibration, calibrate
from noisedesign.program.design import AGAINST_OBSERVERS, Design

NO_TARGET = (
    "No privacy target: the arrays are at unit sensitivity, or at the budgets, and nobody is "
    "protected yet. Multiply the noise (R by the square) by the change of a step (twice the clip "
    "for replace adjacency, the clip for zero-out and add-remove) over mu; where there are budgets "
    "also by the root of the largest, and for noise that is drawn afresh at every step by the root "
    "of the number of steps in which one record takes part."
)


def facts(design: Design, *, problem_text: str = "") -> dict[str, Any]:
    """What a reader of an exported matrix needs to know, as JSON values."""
    problem, certificate = design.problem, design.certificate
    found: dict[str, Any] = {
        "name": problem.name,
        "design": design.axes,
        "nodes": list(problem.nodes),
        "objective": certificate.objective,
        "lower_bound": certificate.lower_bound,
        "gap": certificate.gap,
        "sensitivity_squared": certificate.sensitivity_squared,
        "sensitivity_kind": certificate.sensitivity_kind,
        "trust": design.trust,
        "privacy": None if problem.privacy is None else asdict(problem.privacy),
        "problem": problem_text,
    }
    return json_values(found | privacy_facts(calibrate(problem)))


def privacy_facts(found: Calibration) -> dict[str, Any]:
    """What the noise is to be scaled by, and the privacy it then gives; None without a target."""
    scheme, known = found.participation, found.mu is not None
    return {
        "noise_stddev": found.noise_stddev if known else None,
        "noise_multiplier": found.noise_multiplier if known else None,
        "mu": found.mu,
        "epsilon": found.epsilon,
        "delta": found.delta,
        "adjacency": found.adjacency,
        "clip": found.clip,
        "step_sensitivity": found.step_sensitivity,
        "horizon": found.horizon,
        "participation": None if scheme is None else str(scheme),
        "participation_kind": None if scheme is None else scheme.kind,
        "max_participations": None if scheme is None else scheme.largest_size,
        "separation": None if scheme is None else scheme.stride,
    }


def scaling(found: Calibration, *, note: str) -> dict[str, Any]:
    """What the metadata of a trainer's file say of its noise: scaled to the target, if any."""
    known = found.mu is not None
    return {
        "calibrated": known,
        "multiply_by": 1.0 if known else None,
        "note": note if known else f"{NO_TARGET} {note}",
    }


def factor(given: float | None, *, stated: float | None) -> float:
    """Factor on the noise of a file: the one given, else the one stated.

    Raises:
        InputError: neither, so that nobody would be protected.
    """
    found = stated if given is None else given
    if found is None:
        raise InputError(
            "multiply_by",
            expected="the factor on the noise that your privacy asks for",
            got="nothing, and no privacy target in the file",
            remedy=NO_TARGET,
        )
    return _checks.real(found, field="multiply_by", low=0)


def require_own_description(path: Path, *, to: str, files: Iterable[Path] = ()) -> None:
    """JSON at ``path``, if there is any, is of an export ``to`` this format; so are ``files``.

    Two exports of one stem would share the JSON, and the files of the first would be read by what
    is said of the second. An array that no such JSON names is somebody else's.

    Raises:
        InputError: naming ``output``: the JSON of another format, or an array of no export, is
            there, and nobody said to overwrite it.
    """
    if may_overwrite():
        return
    found = _description_at(path)
    if found.get("to") not in (None, to):
        raise InputError(
            "output",
            got=f"one to {to} that is described there too",
            remedy=REPLACE_REMEDY,
            expected=f"a name of its own, since {path} describes an export to {found['to']}",
        )
    for file in files:
        if file.is_file() and file.stat().st_size and file.name not in files_of(found):
            raise InputError(
                "output",
                expected="a new file, or one of an earlier export to replace",
                got=f"{file}, which {path.name} does not name",
                remedy=REPLACE_REMEDY,
            )


def _description_at(path: Path) -> dict[str, Any]:
    """The JSON object at ``path``, empty where there is none."""
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}  # whoever writes there says what it is
    return found if isinstance(found, dict) else {}


def files_of(metadata: dict[str, Any]) -> set[str]:
    """The names of the files that hold the arrays of an export."""
    entries = metadata.get("arrays")
    listed = entries.values() if isinstance(entries, dict) else ()
    return {str(entry["file"]) for entry in listed if isinstance(entry, dict) and "file" in entry}


def to_json(values: dict[str, Any]) -> str:
    """Indented JSON; non-finite numbers must have become words by now."""
    return json.dumps(values, allow_nan=False, ensure_ascii=False, indent=2) + "\n"


def require_feasible(design: Design) -> None:
    """Refuse a design that nothing can be claimed of.

    Raises:
        InputError: the design is not feasible.
    """
    if not design.certificate.feasible:
        raise InputError(
            "design",
            expected="a feasible design",
            got=f"squared sensitivity {design.certificate.sensitivity_squared:.6g} of its budget",
        )


def require_protection(design: Design) -> None:
    """Refuse to hand a trainer noise that does not protect every message it sends.

    Raises:
        InputError: the design is for a trusted server, or is not feasible.
    """
    if design.trust == AGAINST_OBSERVERS:
        raise InputError(
            "design",
            expected="noise that protects every message",
            got="noise against chosen observers only",
            remedy="Export it to npy, csv, mat or safetensors where nobody else sees messages.",
        )
    if design.trust != "local":
        raise InputError(
            "design",
            expected="noise that protects every message",
            got=f"a baseline for a trusted server ({design.provenance.method})",
            remedy="Export it to npy, csv, mat or safetensors to study it.",
        )
    require_feasible(design)


def json_values(found: dict[str, Any]) -> dict[str, Any]:
    """The same, with words for numbers that are not finite, for which JSON has none."""
    return {
        key: str(value) if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in found.items()
    }
