"""Account files: strict TOML in, the tables of a question of who sees what out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, PlainValidator, TypeAdapter
from pydantic_core import PydanticCustomError

from noisedesign.base.checks import InputError
from noisedesign.files.graph_tables import GraphOfKind, load_npy
from noisedesign.files.schema import Table, Text, validated
from noisedesign.files.tables import (
    OBSERVERS,
    AnyParticipationTable,
    Node,
    OwnNoise,
    is_node,
    row_of,
)
from noisedesign.files.toml import parsed
from noisedesign.privacy.target import DEFAULT_ADJACENCY, DEFAULT_DELTA, Adjacency
from noisedesign.privacy.views import Observer

FIELD = "account"

_BELONGS = {
    key: f"{key} is a key of problem files, which `noisedesign solve` reads."
    for key in ("design", "workload", "budget", "limits", "privacy", "reference")
}

# --- algorithm ------------------------------------------------------------------------------------


class _Algorithm(Table):
    matrix: ClassVar[str | None] = None
    """The option of the algorithm that the matrix in ``file`` is."""

    kind: str
    noise_multiplier: float = 1.0

    def options(self, folder: Path) -> dict[str, Any]:
        """The options of the algorithm, by name; ``file`` is relative to ``folder``."""
        found = self.model_dump(exclude={"kind", "noise_multiplier", "file"})
        file = getattr(self, "file", None)
        if self.matrix is not None and file is not None:
            found[self.matrix] = load_npy(folder / file, field="algorithm.file")
        return found


class PlainAlgorithm(_Algorithm):
    kind: Literal["dp-d-sgd", "antipgd", "d-mf", "mafalda"]


class MuffliatoAlgorithm(_Algorithm):
    kind: Literal["muffliato"]
    rounds: int


class StrategyAlgorithm(_Algorithm):
    matrix: ClassVar[str | None] = "strategy"
    kind: Literal["mf-d-sgd"]
    file: Text
    rounds: int = 1


class SpaceTimeAlgorithm(_Algorithm):
    matrix: ClassVar[str | None] = "covariance"
    kind: Literal["space-time"]
    file: Text
    rounds: int = 1


class WhisperAlgorithm(_Algorithm):
    matrix: ClassVar[str | None] = "covariance"
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
    | StrategyAlgorithm
    | SpaceTimeAlgorithm
    | WhisperAlgorithm
    | DecorAlgorithm
    | ZipDlAlgorithm
    | DesignAlgorithm
)


# --- observer -------------------------------------------------------------------------------------


def _node(value: Any) -> Node:
    if not is_node(value):
        raise PydanticCustomError("node_type", "a row number or the name of a node")
    found: Node = value
    return found


NamedSeed = Node | tuple[Node, Node]


def _seed(value: Any) -> NamedSeed:
    if not isinstance(value, list):
        return _node(value)
    if len(value) != 2:
        raise PydanticCustomError("seed_type", "a node, or a list of the two nodes of an edge")
    return _node(value[0]), _node(value[1])


NodeKey = Annotated[Node, PlainValidator(_node)]
SeedKey = Annotated[NamedSeed, PlainValidator(_seed)]
"""A node for its own seed, a list of two for the seed they share."""


class _Observer(Table):
    model: str
    victims: list[NodeKey] | None = None
    delta: float = DEFAULT_DELTA
    adjacency: Adjacency = DEFAULT_ADJACENCY

    def observer(self, names: Sequence[str]) -> Observer:
        """Who looks, of nodes of these names."""
        options = self.model_dump(exclude={"model", "victims", "delta", "adjacency"})
        for key in ("nodes", "known_seeds"):
            if key in options:
                options[key] = [_rows(n, names, f"observer.{key}") for n in options[key]]
        return OBSERVERS[self.model](**options)

    def victims_before(self, observer: Observer, names: Sequence[str]) -> tuple[int, ...] | None:
        """Rows of the nodes that are asked about, ascending; None for all that do not look."""
        if self.victims is None:
            return None
        field = "observer.victims"
        rows = [row_of(node, names, field=field) for node in self.victims]
        if not rows or len(set(rows)) != len(rows):
            got = ", ".join(names[row] for row in rows) or "none"
            raise InputError(field, expected="one or more different nodes", got=got)
        for row in rows:
            if row in observer.coalition:
                expected = "nodes other than the observer"
                got = f"{names[row]}, who looks"
                remedy = "A node knows its own gradients."
                raise InputError(field, expected=expected, got=got, remedy=remedy)
        return tuple(sorted(rows))


def _rows(seed: Any, names: Sequence[str], field: str) -> Any:
    """The row of a node, the rows of two."""
    if isinstance(seed, tuple):
        return tuple(row_of(node, names, field=field) for node in seed)
    return row_of(seed, names, field=field)


class OutsideObserver(_Observer):
    model: Literal["ldp"]


class NodesObserver(_Observer):
    model: Literal["insider", "tap"]
    nodes: list[NodeKey]


class ReceivingObserver(_Observer):
    model: Literal["pndp", "secure-sum"]
    nodes: list[NodeKey]
    own_noise: OwnNoise = "seeds"


class SeedObserver(_Observer):
    model: Literal["secldp"]
    nodes: list[NodeKey] = Field(default_factory=list)
    known_seeds: list[SeedKey] = Field(default_factory=list)


class SharedSeedObserver(_Observer):
    model: Literal["shared-seed"]
    nodes: list[NodeKey] = Field(default_factory=list)


ObserverTable = (
    OutsideObserver | NodesObserver | ReceivingObserver | SeedObserver | SharedSeedObserver
)


# --- the file -------------------------------------------------------------------------------------


class AccountFile(Table):
    name: Text | None = None
    description: str = ""
    graph: GraphOfKind | None = None
    participation: AnyParticipationTable
    algorithm: Annotated[AlgorithmTable, Field(discriminator="kind")]
    observer: Annotated[ObserverTable, Field(discriminator="model")]


_ACCOUNT_FILE = TypeAdapter(AccountFile)


def account_tables(text: str) -> AccountFile:
    """The tables of an account file, their names and types checked; nothing is built.

    Raises:
        InputError: naming the dotted key at fault; not TOML.
    """
    return validated(_ACCOUNT_FILE, parsed(text, field=FIELD), belongs=_BELONGS)
