"""Account files: strict TOML in, the tables of an account out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Discriminator, PlainValidator, Tag, TypeAdapter
from pydantic_core import PydanticCustomError

from noisedesign.base.checks import InputError
from noisedesign.base.nodes import Node, is_node, row_of
from noisedesign.files.graph_tables import GraphOfKind, load_npy
from noisedesign.files.schema import Table, Text, of_kind, table_of_kind, validated
from noisedesign.files.tables import OBSERVERS, AnyParticipationTable, OwnNoise, ResponsesKeys
from noisedesign.files.toml import parsed
from noisedesign.privacy.target import DEFAULT_ADJACENCY, DEFAULT_DELTA, Adjacency
from noisedesign.privacy.views import Observer

FIELD = "account"

_BELONGS = {
    key: f"{key} is a key of problem files, which `noisedesign solve` reads."
    for key in ("design", "workload", "budget", "limits", "privacy", "reference")
}

_ALGORITHMS: dict[str, dict[str, Any]] = {
    "dp-d-sgd": {},
    **{kind: {"rounds": (int, 1)} for kind in ("antipgd", "d-mf", "mafalda")},
    "muffliato": {"rounds": int},
    "mf-d-sgd": {"file": Text, "rounds": (int, 1)},
    "space-time": {"file": Text, "rounds": (int, 1)},
    "whisper": {"file": (Text | None, None), "rounds": (int, 1)},
    "cdp": {"server_noise": Literal["sigma^2/n", "sigma^2/n^2"], "file": (Text | None, None)},
    "decor": {"edge_stddev": (float | None, None), "rounds": (int, 1)},
    "zip-dl": {
        "neighbourhood": (Literal["closed", "open"], "closed"),
        "self_message": (Literal["unseen", "seen"], "unseen"),
        "rounds": (int, 1),
    },
}
"""Kinds of algorithm and their keys, with types and defaults; beside those, the stored design."""

_MATRIX = dict.fromkeys(("mf-d-sgd", "cdp"), "strategy")
_MATRIX |= dict.fromkeys(("space-time", "whisper"), "covariance")  # of ``file``


NoiseMultiplier = Annotated[
    Annotated[float, Tag("scalar")]
    | Annotated[list[float], Tag("list")]
    | Annotated[dict[str, float], Tag("table")],
    Discriminator(lambda value: {list: "list", dict: "table"}.get(type(value), "scalar")),
]
"""One number for all nodes, a list of one a node, or a table of one for every name."""


class AlgorithmTable(Table):
    kind: str
    noise_multiplier: NoiseMultiplier = 1.0

    def options(self, folder: Path) -> dict[str, Any]:
        """The options of the algorithm, by name; ``file`` is relative to ``folder``."""
        found = self.model_dump(exclude={"kind", "noise_multiplier", "file"})
        file = getattr(self, "file", None)
        if self.kind in _MATRIX and file is not None:
            found[_MATRIX[self.kind]] = load_npy(folder / file, field="algorithm.file")
        return found


class DesignAlgorithm(AlgorithmTable):
    kind: Literal["design"]
    file: Text


@cache
def algorithm_tables() -> tuple[type[Table], ...]:
    """A table for every kind of algorithm."""
    made = [table_of_kind(*item, base=AlgorithmTable) for item in _ALGORITHMS.items()]
    return (*made, DesignAlgorithm)


def _node(value: Any) -> Any:
    if not is_node(value):
        raise PydanticCustomError("node_type", "a row number or the name of a node")
    return value


def _seed(value: Any) -> Any:
    if not isinstance(value, list):
        return _node(value)
    if len(value) != 2:
        raise PydanticCustomError("seed_type", "a node, or a list of the two nodes of an edge")
    return _node(value[0]), _node(value[1])


NodeKey = Annotated[Node, PlainValidator(_node)]
SeedKey = Annotated[Node | tuple[Node, Node], PlainValidator(_seed)]  # its own, or shared


class ObserverTable(ResponsesKeys):
    model: str
    victims: list[NodeKey] | None = None
    delta: float = DEFAULT_DELTA
    adjacency: Adjacency = DEFAULT_ADJACENCY

    def observer(self, names: Sequence[str]) -> Observer:
        """The observer, whose nodes have these names."""
        asked = {"model", "victims", "delta", "adjacency", *ResponsesKeys.model_fields}
        options = self.model_dump(exclude=asked)
        for key in ("nodes", "known_seeds"):
            if key in options:
                at = partial(row_of, names=names, field=f"observer.{key}")
                options[key] = [
                    tuple(map(at, seed)) if isinstance(seed, tuple) else at(seed)
                    for seed in options[key]
                ]
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


_OBSERVERS: dict[str, dict[str, Any]] = {  # threat models and their keys, with types and defaults
    "ldp": {},
    "central": {},
    "insider": {"nodes": list[NodeKey]},
    "tap": {"nodes": list[NodeKey]},
    "pndp": {"nodes": list[NodeKey], "own_noise": (OwnNoise, "seeds")},
    "secure-sum": {"nodes": list[NodeKey], "own_noise": (OwnNoise, "seeds")},
    "secldp": {"nodes": (list[NodeKey], []), "known_seeds": (list[SeedKey], [])},
    "shared-seed": {"nodes": (list[NodeKey], [])},
}


@cache
def observer_tables() -> tuple[type[Table], ...]:
    """A table for every threat model."""
    made = (table_of_kind(*item, base=ObserverTable, key="model") for item in _OBSERVERS.items())
    return tuple(made)


class AccountFile(Table):
    name: Text | None = None
    description: str = ""
    graph: GraphOfKind | None = None
    participation: AnyParticipationTable | None = None
    algorithm: Annotated[AlgorithmTable, of_kind(algorithm_tables)]
    observer: Annotated[ObserverTable, of_kind(observer_tables, key="model")]


_ACCOUNT_FILE = TypeAdapter(AccountFile)


def account_tables(text: str) -> AccountFile:
    """The tables of an account file, their names and types checked; nothing is built."""
    return validated(_ACCOUNT_FILE, parsed(text, field=FIELD), belongs=_BELONGS)
