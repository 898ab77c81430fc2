"""The manifest of a design file: its keys and types, version 1. Nothing of their truth."""

from __future__ import annotations

import math
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer, ValidationError

from noisedesign._checks import InputError, describe

FORMAT: Final = "noisedesign-design"
VERSION: Final = 1
FIELD = "design file"

_NON_FINITE = ("inf", "-inf", "nan")

Model = TypeVar("Model", bound=BaseModel)


def _number(value: Any) -> Any:
    return float(value) if value in _NON_FINITE and isinstance(value, str) else value


def _written(value: float) -> float | str:
    # JSON has no infinity; a design without a proved bound has an infinite gap.
    return value if math.isfinite(value) else str(value)


Number = Annotated[
    float, BeforeValidator(_number), PlainSerializer(_written, return_type=Any, when_used="json")
]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class ArrayEntry(_Table):
    """What an array is in the mathematics, its shape, the sha256 of its little-endian numbers."""

    kind: str
    shape: tuple[int, ...]
    dtype: Literal["float64"] = "float64"
    sha256: str


class SensitivityEntry(_Table):
    """Largest sensitivity over its budget, and which number it is."""

    value: Number
    which: str
    squared: Literal[True] = True


class ParticipationEntry(_Table):
    epochs: int
    separation: int


class PrivacyEntry(_Table):
    epsilon: Number
    delta: Number
    clip: Number
    steps: int | None
    adjacency: str
    conversion: str


class BoundsEntry(_Table):
    seconds: Number
    lower: Number
    upper: Number


class ProvenanceEntry(_Table):
    method: str
    backend: str
    status: str
    build_seconds: Number
    solve_seconds: Number
    evaluations: int
    versions: dict[str, str]
    history: tuple[BoundsEntry, ...]


class ProblemText(_Table):
    """The problem file the design was made from, empty where there was none."""

    text: str
    sha256: str


class Manifest(_Table):
    """Everything a design file says in words and numbers beside its arrays."""

    format: Literal["noisedesign-design"] = FORMAT
    version: Literal[1] = VERSION
    library: str
    name: str
    design: Literal["space", "time"]
    trust: Literal["local", "central"]
    matrix: str
    arrays: dict[str, ArrayEntry]
    horizon: int | None
    nodes: tuple[str, ...]
    workload: str | None
    participation: ParticipationEntry | None
    budget: str
    sensitivity: SensitivityEntry
    variance_ratio: Number | None
    objective: Number
    lower_bound: Number
    gap: Number
    feasible: bool
    adjacency: str | None
    privacy: PrivacyEntry | None
    provenance: ProvenanceEntry
    problem: ProblemText


class _Header(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)

    format: str
    version: int
    library: str = "unknown"


def read_manifest(content: bytes) -> Manifest:
    """The manifest in ``content``.

    Raises:
        InputError: not JSON, another format, a newer version, a missing or unknown key.
    """
    header = _validated(_Header, content)
    if header.format != FORMAT:
        raise InputError(
            f"{FIELD}.format", expected=FORMAT, got=describe(header.format),
            remedy="Designs are written by `noisedesign solve -o` and noisedesign.io.save_design.",
        )  # fmt: skip
    if header.version != VERSION:
        raise InputError(
            f"{FIELD}.version", expected=f"version {VERSION}", got=f"version {header.version}",
            remedy=f"It was written by noisedesign {header.library}: use that or a later version.",
        )  # fmt: skip
    return _validated(Manifest, content)


def _validated(model: type[Model], content: bytes) -> Model:
    try:
        return model.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(step) for step in first["loc"])
        raise InputError(
            f"{FIELD}.manifest", expected=f"{where or 'JSON'}: {first['msg']}",
            got=describe(first["input"]),
        ) from None  # fmt: skip
