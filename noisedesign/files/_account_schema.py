"""The tables and keys of an account file: their names and types, nothing of their meaning."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainValidator
from pydantic_core import PydanticCustomError

from noisedesign.files._schema import (
    FixedEpochTable,
    GraphOfKind,
    HorizonTable,
    MinSeparationTable,
    Table,
    Text,
    fixed_epoch_if_nothing_is_said,
)
from noisedesign.privacy.target import DEFAULT_ADJACENCY, DEFAULT_DELTA, Adjacency

# --- participation --------------------------------------------------------------------------


class PatternsTable(Table):
    kind: Literal["patterns"]
    horizon: int
    patterns: list[list[int]]


ParticipationTable = FixedEpochTable | HorizonTable | MinSeparationTable | PatternsTable


ParticipationOfKind = Annotated[
    Annotated[ParticipationTable, Field(discriminator="kind")],
    BeforeValidator(fixed_epoch_if_nothing_is_said),
]


# --- algorithm ------------------------------------------------------------------------------


class _Algorithm(Table):
    noise_multiplier: float = 1.0


class PlainAlgorithm(_Algorithm):
    kind: Literal["dp-d-sgd", "antipgd", "d-mf", "mafalda"]


class MuffliatoAlgorithm(_Algorithm):
    kind: Literal["muffliato"]
    rounds: int


class MatrixAlgorithm(_Algorithm):
    kind: Literal["mf-d-sgd", "space-time"]
    file: Text
    rounds: int = 1


class WhisperAlgorithm(_Algorithm):
    kind: Literal["whisper"]
    file: Text | None = None


class DecorAlgorithm(_Algorithm):
    kind: Literal["decor"]
    edge_stddev: float | None = None


class ZipDlAlgorithm(_Algorithm):
    kind: Literal["zip-dl"]
    neighbourhood: Literal["closed", "open"] = "closed"
    self_message: Literal["unseen", "seen"] = "unseen"


class DesignAlgorithm(_Algorithm):
    kind: Literal["design"]
    file: Text


AlgorithmTable = (
    PlainAlgorithm
    | MuffliatoAlgorithm
    | MatrixAlgorithm
    | WhisperAlgorithm
    | DecorAlgorithm
    | ZipDlAlgorithm
    | DesignAlgorithm
)


# --- observer -------------------------------------------------------------------------------


def _node(value: Any) -> int | str:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise PydanticCustomError("node_type", "a row number or the name of a node")
    return value


def _seed(value: Any) -> NamedSeed:
    if not isinstance(value, list):
        return _node(value)
    if len(value) != 2:
        raise PydanticCustomError("seed_type", "a node, or a list of the two nodes of an edge")
    return _node(value[0]), _node(value[1])


Node = Annotated[int | str, PlainValidator(_node)]
"""An integer is the number of a row of W, a string the name of a node."""

NamedSeed = int | str | tuple[int | str, int | str]
SeedOfNodes = Annotated[NamedSeed, PlainValidator(_seed)]
"""A node for its own seed, a list of two for the seed they share."""


class _Observer(Table):
    victims: list[Node] | None = None
    delta: float = DEFAULT_DELTA
    adjacency: Adjacency = DEFAULT_ADJACENCY


class OutsideObserver(_Observer):
    model: Literal["ldp"]


class NodesObserver(_Observer):
    model: Literal["insider", "tap"]
    nodes: list[Node]


class ReceivingObserver(_Observer):
    model: Literal["pndp", "secure-sum"]
    nodes: list[Node]
    own_noise: Literal["seeds", "values", "counted"] = "seeds"


class SeedObserver(_Observer):
    model: Literal["secldp"]
    nodes: list[Node] = Field(default_factory=list)
    known_seeds: list[SeedOfNodes] = Field(default_factory=list)


class SharedSeedObserver(_Observer):
    model: Literal["shared-seed"]
    nodes: list[Node] = Field(default_factory=list)


ObserverTable = (
    OutsideObserver | NodesObserver | ReceivingObserver | SeedObserver | SharedSeedObserver
)


class AccountFile(Table):
    """An account file."""

    name: Text | None = None
    description: str = ""
    graph: GraphOfKind | None = None
    participation: ParticipationOfKind
    algorithm: Annotated[AlgorithmTable, Field(discriminator="kind")]
    observer: Annotated[ObserverTable, Field(discriminator="model")]
