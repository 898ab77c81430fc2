"""The tables and keys of a problem file: their names and types, nothing of their meaning."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PlainValidator,
    Tag,
    TypeAdapter,
    model_validator,
)
from pydantic_core import PydanticCustomError

from noisedesign.privacy.target import PrivacyTarget
from noisedesign.system.directed import DirectedWeights
from noisedesign.system.graph import Weights

Text = Annotated[str, Field(min_length=1)]


def _scalar_or_list(value: Any) -> str:
    return "list" if isinstance(value, list) else "scalar"


ScalarOrList = Annotated[
    Annotated[float, Tag("scalar")] | Annotated[list[float], Tag("list")],
    Discriminator(_scalar_or_list),
]


class Table(BaseModel):
    """A TOML table: no unknown keys, no conversions."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, data: Any) -> Any:
        # Before the fields, so that a misspelt key is reported as itself and not as missing.
        for key in data if isinstance(data, dict) else ():
            if key not in cls.model_fields:
                context = {"key": key, "allowed": sorted(cls.model_fields)}
                raise PydanticCustomError("unknown_key", "unknown key {key}", context)
        return data


class _Weighted(Table):
    weights: Literal[Weights, "fastest-mixing"] = "metropolis-hastings"


class _MaybeDirected(Table):
    weights: Literal[Weights, "fastest-mixing", DirectedWeights] = "metropolis-hastings"
    directed: bool = False


class NamedGraph(_Weighted):
    kind: Literal["florentine", "karate"]


class SizedGraph(_Weighted):
    kind: Literal["path", "complete", "star"]
    nodes: int


class RingGraph(_MaybeDirected):
    kind: Literal["ring"]
    nodes: int


class LatticeGraph(_Weighted):
    kind: Literal["grid", "torus"]
    rows: int
    columns: int


class HypercubeGraph(_Weighted):
    kind: Literal["hypercube"]
    dimension: int


class ErdosRenyiGraph(_MaybeDirected):
    kind: Literal["erdos-renyi"]
    nodes: int
    p: float
    seed: int


class RandomRegularGraph(_Weighted):
    kind: Literal["random-regular"]
    nodes: int
    degree: int
    seed: int


class BarabasiAlbertGraph(_Weighted):
    kind: Literal["barabasi-albert"]
    nodes: int
    links: int
    seed: int


class EgoFacebookGraph(_Weighted):
    kind: Literal["ego-facebook"]
    ego: int


class EdgesGraph(_MaybeDirected):
    kind: Literal["edges"]
    file: Text


class MatrixGraph(Table):
    kind: Literal["matrix"]
    file: Text


Graph = (
    NamedGraph
    | SizedGraph
    | RingGraph
    | LatticeGraph
    | HypercubeGraph
    | ErdosRenyiGraph
    | RandomRegularGraph
    | BarabasiAlbertGraph
    | EgoFacebookGraph
    | EdgesGraph
    | MatrixGraph
)
GraphOfKind = Annotated[Graph, Field(discriminator="kind")]


class ClosedFormWorkload(Table):
    kind: Literal["decentralized", "prefix"]


class GramWorkload(Table):
    kind: Literal["gram"]
    file: Text


Workload = Annotated[ClosedFormWorkload | GramWorkload, Field(discriminator="kind")]


class FixedEpochTable(Table):
    kind: Literal["fixed-epoch"]
    epochs: int
    separation: int


class HorizonTable(Table):
    kind: Literal["single", "every-step"]
    horizon: int


class MinSeparationTable(Table):
    kind: Literal["min-separation"]
    horizon: int
    separation: int
    max_participations: int


def fixed_epoch_if_nothing_is_said(value: Any) -> Any:
    return {"kind": "fixed-epoch", **value} if isinstance(value, dict) else value


Participation = Annotated[
    Annotated[FixedEpochTable | HorizonTable | MinSeparationTable, Field(discriminator="kind")],
    BeforeValidator(fixed_epoch_if_nothing_is_said),
]


class Budget(Table):
    tau: ScalarOrList = 1.0


class Limits(Table):
    max_variance: ScalarOrList | None = None
    min_variance: ScalarOrList | None = None


class TimeStructureTable(Table):
    time: str = "dense"
    bands: int | None = None
    buffers: int | None = None


class SpaceStructureTable(Table):
    space: str = "dense"
    hops: int | None = None
    clusters: Text | None = None
    known_seeds: int = 0


class JointStructureTable(TimeStructureTable, SpaceStructureTable):
    joint: str = "kronecker"


class ErrorTable(Table):
    of: str = "all-iterates"
    node_weights: ScalarOrList | None = None
    step_weights: ScalarOrList | None = None
    learning_rates: ScalarOrList | None = None
    momentum: float = 0.0


class SpaceErrorTable(ErrorTable):
    horizon: int = 1


class MixingTable(Table):
    dropout: ScalarOrList | None = None
    edge_failure: float | None = None
    matching: str | None = None


def _observer(value: Any) -> Any:
    for node in value if isinstance(value, list) and value else [value]:
        if isinstance(node, bool) or not isinstance(node, int | str):
            raise PydanticCustomError("node_type", "a node (row number or name), or a list of them")
    return value


class ObserversTable(Table):
    model: Literal["ldp", "pndp", "secure-sum", "insider", "tap"]
    nodes: list[Annotated[int | str | list[int | str], PlainValidator(_observer)]] | None = None
    own_noise: Literal["seeds", "values", "counted"] | None = None
    horizon: int


class Privacy(Table):
    epsilon: float
    delta: float = PrivacyTarget.delta
    clip: float = PrivacyTarget.clip
    steps: int | None = PrivacyTarget.steps
    adjacency: str = PrivacyTarget.adjacency
    conversion: str = PrivacyTarget.conversion


class ReferenceTable(Table):
    lower: float
    upper: float
    method: Text


class _ProblemFile(Table):
    name: Text
    description: str = ""
    source: str = ""
    tags: list[Text] = []


class SpaceFile(_ProblemFile):
    design: Literal["space"]
    graph: GraphOfKind
    participation: Participation | None = None
    budget: Budget = Budget()
    limits: Limits | None = None
    structure: SpaceStructureTable = SpaceStructureTable()
    error: SpaceErrorTable | None = None
    mixing: MixingTable | None = None
    observers: ObserversTable | None = None
    privacy: Privacy | None = None
    reference: ReferenceTable | None = None


class TimeFile(_ProblemFile):
    design: Literal["time"]
    workload: Workload
    graph: GraphOfKind | None = None
    participation: Participation
    structure: TimeStructureTable = TimeStructureTable()
    error: ErrorTable | None = None
    mixing: MixingTable | None = None
    privacy: Privacy | None = None
    reference: ReferenceTable | None = None


class SpaceTimeFile(_ProblemFile):
    design: Literal["space-time"]
    graph: GraphOfKind
    participation: Participation
    budget: Budget = Budget()
    limits: Limits | None = None
    structure: JointStructureTable = JointStructureTable()
    error: ErrorTable | None = None
    mixing: MixingTable | None = None
    privacy: Privacy | None = None
    reference: ReferenceTable | None = None


AnyProblemFile = SpaceFile | TimeFile | SpaceTimeFile

ProblemFile: TypeAdapter[AnyProblemFile] = TypeAdapter(
    Annotated[AnyProblemFile, Field(discriminator="design")]
)
