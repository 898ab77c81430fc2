"""The manifest of a design file: its keys and types, version 3. Nothing of their truth."""

from __future__ import annotations

import math
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer, ValidationError

from noisedesign.base.checks import InputError, describe

FORMAT: Final = "noisedesign-design"
VERSION: Final = 3
READABLE = (1, 2, 3)
"""Version 1 has no structure, error, random, unrestricted_lower_bound, local or floor_ratio: none
of them is needed. Up to version 2 every C is stored in full, with its inverse and H."""
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


class Table(BaseModel):
    """Keys and types of a JSON object, none of them unknown."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class ArrayEntry(Table):
    """What an array is in the mathematics, its shape, the sha256 of its little-endian numbers."""

    kind: str
    shape: tuple[int, ...]
    dtype: Literal["float64"] = "float64"
    sha256: str


class SensitivityEntry(Table):
    """Largest sensitivity over its budget, and which number it is."""

    value: Number
    which: str
    squared: Literal[True] = True


class ParticipationEntry(Table):
    """(k, b) participation, or min-separation with the last two."""

    separation: int
    epochs: int | None = None
    horizon: int | None = None
    max_participations: int | None = None


class StructureEntry(Table):
    """What shape the noise has, in time and in space."""

    time: str = "dense"
    bands: int | None = None
    buffers: int | None = None
    space: str = "dense"
    hops: int | None = None
    clusters: tuple[int, ...] | None = None
    known_seeds: int = 0
    joint: str | None = None


class ErrorEntry(Table):
    """What error of which steps counts; lists are per node or step.

    ``mean`` is that of node_weights, or by the Perron vector of W; with ``push_sum`` models are
    states over the push-sum weights of W.
    """

    horizon: int
    of: str
    node_weights: float | tuple[float, ...] | None = None
    step_weights: float | tuple[float, ...] | None = None
    learning_rates: float | tuple[float, ...] | None = None
    momentum: float = 0.0
    mean: Literal["plain", "perron"] = "plain"
    push_sum: bool = False


class RandomEntry(Table):
    """The distribution of W: of nodes or edges that fail, or of matchings that are drawn."""

    kind: Literal["dropout", "edge-failure", "matchings"]
    probability: float | tuple[float, ...] | None = None
    matchings: tuple[tuple[tuple[int, int], ...], ...] | None = None


class ObserverEntry(Table):
    """One observer the noise is designed against: what it sees, and whose noise it knows."""

    model: str
    sees: Literal["all", "received", "sums", "sent"]
    coalition: tuple[int, ...] = ()
    listened: tuple[int, ...] = ()
    holders: tuple[int, ...] = ()
    values: tuple[int, ...] = ()


class PrivacyEntry(Table):
    epsilon: Number
    delta: Number
    clip: Number
    steps: int | None
    adjacency: str
    conversion: str


class BoundsEntry(Table):
    seconds: Number
    lower: Number
    upper: Number


class ProvenanceEntry(Table):
    method: str
    backend: str
    status: str
    build_seconds: Number
    solve_seconds: Number
    evaluations: int
    versions: dict[str, str]
    history: tuple[BoundsEntry, ...]


class ProblemText(Table):
    """The problem file the design was made from, empty where there was none."""

    text: str
    sha256: str


class Manifest(Table):
    """Everything a design file says in words and numbers beside its arrays."""

    format: Literal["noisedesign-design"] = FORMAT
    version: Literal[1, 2, 3] = VERSION
    library: str
    name: str
    design: Literal["space", "time", "space-time"]
    trust: Literal["local", "observers", "central"]
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
    structure: StructureEntry | None = None
    error: ErrorEntry | None = None
    random: RandomEntry | None = None
    observers: tuple[ObserverEntry, ...] = ()
    unrestricted_lower_bound: Number | None = None
    local: bool = False
    floor_ratio: Number | None = None


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
    header = validated(_Header, content)
    if header.format != FORMAT:
        raise InputError(
            f"{FIELD}.format",
            expected=FORMAT,
            got=describe(header.format),
            remedy="Designs are written by `noisedesign solve -o` and noisedesign.save_design.",
        )
    if header.version not in READABLE:
        raise InputError(
            f"{FIELD}.version",
            expected=f"version {VERSION}",
            got=f"version {header.version}",
            remedy=f"It was written by noisedesign {header.library}: use that or a later version.",
        )
    return validated(Manifest, content)


def format_of(content: bytes) -> str:
    """What a manifest says it is one of.

    Raises:
        InputError: not JSON, or it says nothing.
    """
    return validated(_Header, content).format


def validated(model: type[Model], content: bytes) -> Model:
    """The object in ``content``.

    Raises:
        InputError: not JSON, a missing or unknown key.
    """
    try:
        return model.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(step) for step in first["loc"])
        raise InputError(
            f"{FIELD}.manifest",
            expected=f"{where or 'JSON'}: {first['msg']}",
            got=describe(first["input"]),
        ) from None
