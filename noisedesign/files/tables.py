"""Tables of problem and account files beside [graph], and the values that they state.

A table knows its keys and makes its value; errors name ``<table>.<key>``. Manifests of design files
extend the tables whose values they state too."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import cache, partial
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_type_hints

import networkx as nx
import numpy as np
from pydantic import BeforeValidator, Discriminator, PlainValidator, Tag
from pydantic_core import PydanticCustomError

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array, InputError, describe
from noisedesign.base.nodes import Node, is_node, row_of
from noisedesign.base.regular_files import read_regular
from noisedesign.files.graph_tables import Graph
from noisedesign.files.schema import CapOrNone, ScalarOrList, Table, Text, of_kind, table_of_kind
from noisedesign.files.toml import renamed
from noisedesign.forms.structure import SpaceStructure, TimeStructure
from noisedesign.privacy import views
from noisedesign.privacy.runs import Responses
from noisedesign.privacy.target import Clipping, Kind, Losses, PrivacyTarget
from noisedesign.privacy.views import Coalitions, Observer, coalitions
from noisedesign.problem.pair_budgets import factors_by_distance
from noisedesign.system.directed import perron_vector, push_sum_weights
from noisedesign.system.gossip import of_every_step
from noisedesign.system.participation import SCHEMES, SHORTHANDS, FixedEpoch, Participation
from noisedesign.system.random_mixing import (
    EdgeDropout,
    NodeDropout,
    RandomMixing,
    maximal_matchings,
    pairwise_gossip,
)
from noisedesign.system.workloads import ErrorMeasure, ErrorMixture
from noisedesign.system.workloads.error import AnyError


class SchemeTable(Table):
    """The keys of a scheme, and its kind."""

    kind: str

    def scheme(self) -> Participation:
        return SCHEMES[self.kind].of(self.model_dump(exclude={"kind"}))


class HorizonTable(SchemeTable):
    kind: Literal[tuple(SHORTHANDS)]  # type: ignore[valid-type]
    horizon: int

    def scheme(self) -> Participation:
        with renamed({"horizon": "participation.horizon"}):
            return SHORTHANDS[self.kind](self.horizon)


class RecordsTable(SchemeTable):
    """The numbers of a run that a scheme is made from."""

    def scheme(self) -> Participation:
        scheme, said = SCHEMES[self.kind], self.model_dump(exclude={"kind"})
        with renamed({key: f"participation.{key}" for key in said}):
            found: Participation = scheme.from_records(**said)  # type: ignore[attr-defined]
        return found


def records_keys(scheme: Any) -> dict[str, Any]:
    """Types, and defaults, of what a scheme is made from; nothing where it is not from records."""
    if not hasattr(scheme, "from_records"):
        return {}
    types, known = get_type_hints(scheme.from_records), signature(scheme.from_records).parameters
    return {
        key: types[key] if of.default is Parameter.empty else (types[key], of.default)
        for key, of in known.items()
    }


@cache
def _scheme_table(kind: str, scheme: Any) -> type[Table]:
    return table_of_kind(kind, scheme.keys(), base=SchemeTable)


@cache
def _records_table(kind: str, scheme: Any) -> type[Table]:
    return table_of_kind(kind, records_keys(scheme), base=RecordsTable)


def participation_tables(*, for_designs: bool = False) -> tuple[type[Table], ...]:
    """A table for every scheme, or for those that noise is designed for."""
    taken = _taken(for_designs)
    return HorizonTable, *(_scheme_table(*named) for named in taken.items())


def records_tables(*, for_designs: bool = False) -> tuple[type[Table], ...]:
    """A table from records for every scheme that can be made from them."""
    taken = _taken(for_designs)
    return tuple(_records_table(*named) for named in taken.items() if records_keys(named[1]))


def _taken(for_designs: bool) -> dict[str, Any]:
    return {k: scheme for k, scheme in SCHEMES.items() if scheme.for_designs or not for_designs}


FROM_RECORDS = ("records", "batch_size")  # keys that tell a table from records


def _of_own_numbers_or_records(*, for_designs: bool = False) -> PlainValidator:
    own = of_kind(partial(participation_tables, for_designs=for_designs))
    of_records = of_kind(partial(records_tables, for_designs=for_designs))

    def validated(value: Any) -> Any:
        chosen: Any = of_records if _is_of_records(value) else own
        return chosen.func(value)

    return PlainValidator(validated)


def _is_of_records(value: Any) -> bool:
    """Whether a table gives the records of a run; one that gives more than these is refused."""
    said = [key for key in FROM_RECORDS if key in value] if isinstance(value, dict) else []
    kind = value.get("kind") if said else None
    scheme = SCHEMES.get(kind) if isinstance(kind, str) else None
    if scheme is None or not (keys := records_keys(scheme)):
        return False
    if both := [key for key in scheme.keys() if key in value and key not in keys]:  # noqa: SIM118
        expected = f"either {both[0]}, or {' and '.join(FROM_RECORDS)}, which it follows from"
        raise InputError(f"participation.{both[0]}", expected=expected, got=f"{both[0]}, {said[0]}")
    return True


def _fixed_epoch_if_nothing_is_said(value: Any) -> Any:
    return {"kind": FixedEpoch.kind, **value} if isinstance(value, dict) else value


def _for_designs(value: Any) -> Any:
    kind = value.get("kind") if isinstance(value, dict) else None
    scheme = SCHEMES.get(kind) if isinstance(kind, str) else None
    if scheme is not None and not scheme.for_designs and scheme.instead:
        field, expected = "participation.kind", "a participation that noise is designed for"
        raise InputError(field, expected=expected, got=f"{kind!r}", remedy=scheme.instead)
    return value


_Unsaid = BeforeValidator(_fixed_epoch_if_nothing_is_said)

ParticipationTable = Annotated[
    SchemeTable,
    _of_own_numbers_or_records(for_designs=True),
    _Unsaid,
    BeforeValidator(_for_designs),
]
AnyParticipationTable = Annotated[SchemeTable, _of_own_numbers_or_records(), _Unsaid]
"""Account files take any list of patterns; no design is made for one."""


class BudgetTable(Table):
    tau: ScalarOrList = 1.0


class SpaceBudgetTable(BudgetTable):
    """Budgets that may grow with the hops between victim and observer."""

    by_distance: list[float] | None = None

    def pair_factors(self, mixing: Array, observers: Sequence[Observer]) -> Array | None:
        """Factors on the budgets, shape (observers, n); None where distance does not count."""
        field, values = "budget.by_distance", self.by_distance
        if values is None:
            return None
        if not observers:
            expected, got = "an [observers] table beside it", "none"
            remedy = "A reader of all messages is at no distance: leave the key out."
            raise InputError(field, expected=expected, got=got, remedy=remedy)
        return factors_by_distance(values, mixing=mixing, observers=observers, field=field)


class LimitsTable(Table):
    max_variance: CapOrNone | None = None
    min_variance: ScalarOrList | None = None


def limits_of(table: LimitsTable | None) -> tuple[Any, Any]:
    """Cap and floor of a [limits] table, which names at least one of them."""
    if table is None:
        return None, None
    if table.max_variance is None and table.min_variance is None:
        expected = "a value, or one of limits.min_variance"
        raise InputError("limits.max_variance", expected=expected, got="nothing")
    return table.max_variance, table.min_variance


def cap_of(table: LimitsTable | None, *, design: str) -> Any:
    """The cap of the [limits] table of a design over time, which has no floors."""
    cap, floor = limits_of(table)
    if floor is not None:
        expected = "no floor but in space designs without a structure"
        got = f'one for design = "{design}"'
        raise InputError("limits.min_variance", expected=expected, got=got)
    return cap


class PrivacyTable(Table):
    """[privacy] of problem files, ``privacy`` of design files."""

    epsilon: float
    delta: float = PrivacyTarget.delta
    clip: float = PrivacyTarget.clip
    steps: int | None = PrivacyTarget.steps
    adjacency: str = PrivacyTarget.adjacency
    conversion: str = PrivacyTarget.conversion

    @classmethod
    def of(cls, target: PrivacyTarget | None) -> Self | None:
        """None where there is no target."""
        if target is None:
            return None
        steps = None if target.steps is None else int(target.steps)
        return cls(**asdict(target) | {"steps": steps})

    def target(self) -> PrivacyTarget:
        return PrivacyTarget(**self.model_dump())


class TimeStructureTable(Table):
    time: str = "dense"
    bands: int | None = None
    buffers: int | None = None
    nonnegative: bool | None = None

    def in_time(self) -> TimeStructure:
        said = {key: getattr(self, key) for key in ("bands", "buffers", "nonnegative")}
        return TimeStructure(kind=self.time, **said)


class SpaceStructureTable(Table):
    space: str = "dense"
    hops: int | None = None
    clusters: Text | None = None
    known_seeds: int = 0

    def in_space(self, *, nodes: Sequence[str] = (), folder: Path = Path()) -> SpaceStructure:
        clusters: Any = self.clusters
        if isinstance(clusters, str):
            clusters = read_clusters(folder / clusters, nodes=nodes)
        elif clusters is not None:
            clusters = tuple(clusters)
        return SpaceStructure(
            kind=self.space, hops=self.hops, clusters=clusters, known_seeds=self.known_seeds
        )


class JointStructureTable(SpaceStructureTable, TimeStructureTable):
    joint: str = "kronecker"


def read_clusters(path: Path, *, nodes: Sequence[str]) -> tuple[int, ...]:
    """The cluster of every node, from a JSON list of lists of nodes."""
    field, expected = "structure.clusters", "a JSON list of lists of nodes"
    content = read_regular(path, field=field, expected="a readable file")
    try:
        lists = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(field, expected=expected, got=f"{path}: {error}") from error
    if not isinstance(lists, list) or not all(isinstance(members, list) for members in lists):
        raise InputError(field, expected=expected, got=describe(lists))
    cluster_of: dict[int, int] = {}
    for cluster, members in enumerate(lists):
        for member in members:
            if not is_node(member):
                raise InputError(field, expected=expected, got=f"the node {describe(member)}")
            row = row_of(member, nodes, field=field)
            if row in cluster_of:
                raise InputError(field, expected="every node once", got=f"{nodes[row]} twice")
            cluster_of[row] = cluster
    for row, name in enumerate(nodes):
        if row not in cluster_of:
            raise InputError(field, expected="every node in some cluster", got=f"none for {name}")
    return tuple(cluster_of[row] for row in range(len(nodes)))


StepWeights = Annotated[
    Annotated[float, Tag("scalar")]
    | Annotated[list[float], Tag("list")]
    | Annotated[str, Tag("word")],
    Discriminator(lambda value: {list: "list", str: "word"}.get(type(value), "scalar")),
]


class ErrorTable(Table):
    of: str = "all-iterates"
    node_weights: ScalarOrList | None = None
    step_weights: StepWeights | None = None
    learning_rates: ScalarOrList | None = None
    learning_rate: float | None = None
    momentum: float = 0.0
    curvature: ScalarOrList | None = None
    curvature_weights: ScalarOrList | None = None
    weight_decay: float = 0.0

    def weights(self) -> dict[str, Any]:
        """The keys as fields of an error measure."""
        return {key: as_array(getattr(self, key)) for key in ErrorTable.model_fields}


class TunedErrorTable(ErrorTable):
    """One error, whose learning rate may be tuned with the noise."""

    tune: Literal["learning-rate"] | None = None
    start: ScalarOrList | None = None
    batch_size: float | None = None

    def tuning(self) -> dict[str, Any] | None:
        """Arguments of the tuning that is asked for; None where none is."""
        said = {"start": self.start, "batch_size": self.batch_size}
        if self.tune is None:
            for key, value in said.items():
                if value is not None:
                    expected = 'nothing without error.tune = "learning-rate"'
                    raise InputError(f"error.{key}", expected=expected, got="a value")
            return None
        if self.start is None:
            expected = "the squared distance of the start from the minimum, a coordinate"
            raise InputError("error.start", expected=expected, got="nothing")
        return {key: as_array(value) for key, value in said.items() if value is not None}


class SpaceErrorTable(TunedErrorTable):
    horizon: int = 1


class ErrorShareTable(ErrorTable):
    """One of several errors; what it does not say of the run, another table may."""

    share: float


class SpaceErrorShareTable(ErrorShareTable):
    horizon: int = 1


def _one_or_several(one: type[Table], share: type[Table]) -> Any:
    any_of: Any = Annotated[one, Tag("one")] | Annotated[list[share], Tag("several")]  # type: ignore[valid-type]
    several = Discriminator(lambda value: "several" if isinstance(value, list) else "one")
    return Annotated[any_of, several]


ErrorTables: Any = _one_or_several(TunedErrorTable, ErrorShareTable)
SpaceErrorTables: Any = _one_or_several(SpaceErrorTable, SpaceErrorShareTable)
_EACH = {"of", "node_weights", "step_weights", "share"}  # keys that are of an error, not of the run


def errors_of(tables: ErrorTable | Sequence[ErrorTable] | None) -> list[ErrorTable]:
    """The tables of the errors, each with what any of them says of the run."""
    if tables is None or isinstance(tables, ErrorTable):
        return [] if tables is None else [tables]
    if not tables:
        raise InputError("error", expected="one or more tables [[error]]", got="none")
    run: dict[str, Any] = {}
    for table in reversed(tables):
        run |= table.model_dump(include=table.model_fields_set - _EACH)
    return [table.model_copy(update=run | table.model_dump(exclude_unset=True)) for table in tables]


def error_horizon(tables: ErrorTable | Sequence[ErrorTable] | None) -> int:
    """T of the errors, which is one number."""
    found = {getattr(table, "horizon", 1) for table in errors_of(tables)} or {1}
    if len(found) > 1:
        got = " and ".join(map(str, sorted(found)))
        raise InputError("error.horizon", expected="the same for all errors", got=got)
    return int(found.pop())


def error_of(
    tables: ErrorTable | Sequence[ErrorTable] | None,
    graph: Graph,
    *,
    mixing: Array,
    rounds: int,
    horizon: int,
) -> AnyError | None:
    """The error that counts; None where there is no [error] and no directed graph."""
    push_sum = graph.one_way and getattr(graph, "weights", "") == "column-stochastic"

    def of_models(of: str) -> dict[str, Any]:
        rows = graph.one_way and getattr(graph, "weights", "") == "row-stochastic"
        perron = rows and of in OF_A_MEAN
        return model_fields(
            mixing, rounds=rounds, horizon=horizon, perron=perron, push_sum=push_sum
        )

    said = errors_of(tables)
    if tables is None and not of_models(""):
        return None
    names = (*ErrorTable.model_fields, "horizon", "push_sum_weights", "average")
    with renamed({key: f"error.{key}" for key in names} | {"shares": "error.share"}):
        measures = [
            ErrorMeasure(horizon=horizon, **of_models(table.of), **table.weights())
            for table in said or [ErrorTable()]
        ]
        measure: AnyError = measures[0]
        if isinstance(tables, Sequence):
            shares = as_array([table.share for table in tables])  # type: ignore[attr-defined]
            measure = ErrorMixture(shares=shares, measures=tuple(measures))
        if not measure.plain:  # weights of nodes are only checked against a number of nodes
            for each in measures:
                each.readout(nodes=mixing.shape[-1])
    return measure


OF_A_MEAN = ("mean-model", "consensus", "loss-of-mean")  # which a directed graph takes by Perron


def as_array(value: Any) -> Any:
    """Lists of numbers as arrays, all else as it is."""
    return np.array(value, dtype=np.float64) if isinstance(value, list | tuple) else value


def model_fields(
    mixing: Array, *, rounds: int, horizon: int, perron: bool, push_sum: bool
) -> dict[str, Any]:
    """The mean by the Perron vector of W, and the push-sum weights of every step, where asked."""
    fields = {}
    if perron:
        fields["average"] = perron_vector(mixing, stochastic="row")
    if push_sum:
        power = of_every_step(mixing, rounds=rounds)
        fields["push_sum_weights"] = push_sum_weights(power, horizon=horizon)
    return fields


MATCHINGS = {"pairwise": pairwise_gossip, "maximal": maximal_matchings}


class MixingTable(Table):
    dropout: ScalarOrList | None = None
    edge_failure: float | None = None
    matching: str | None = None

    def random(self, mixing: Array, graph: Graph) -> RandomMixing:
        """The distribution of W; errors name ``mixing`` or its key."""
        for kind, refused in (("directed graph", graph.one_way), ("schedule", mixing.ndim == 3)):
            if refused:
                raise InputError("mixing", expected=f"no [mixing] table for a {kind}", got="one")
        given = [key for key, value in self.model_dump().items() if value is not None]
        if len(given) != 1:
            expected = "one of dropout, edge_failure, matching"
            raise InputError("mixing", expected=expected, got=" and ".join(given) or "nothing")
        key = f"mixing.{given[0]}"
        with renamed({"mixing": graph.weights_key, "probability": key, "graph": key}):
            if self.dropout is not None:
                return NodeDropout(mixing=mixing, probability=as_array(self.dropout))
            if self.edge_failure is not None:
                return EdgeDropout(mixing=mixing, probability=self.edge_failure)
            _checks.one_of(self.matching, field=key, allowed=tuple(MATCHINGS))
            links = nx.from_numpy_array(mixing != 0)
            links.remove_edges_from(list(nx.selfloop_edges(links)))
            return MATCHINGS[str(self.matching)](links)


class ResponsesKeys(Table):
    """Keys that say how gradients answer to models, in the table of an observer or a target."""

    responses: Kind | None = None
    smoothness: float | None = None
    convexity: float | None = None
    losses: Losses | None = None
    clipping: Clipping | None = None

    def said(self, *, table: str) -> Responses:
        """The responses, "any" by default; errors name a key of ``table``."""
        said = {key: getattr(self, key) for key in RESPONSES[1:]}
        try:
            return Responses(kind=self.responses or "any", **said)
        except InputError as error:
            raise error.told(field=f"{table}.{error.field}") from error


RESPONSES = tuple(ResponsesKeys.model_fields)  # keys that say how gradients answer to models


_MODELS = ("ldp", "central", "pndp", "secure-sum", "insider", "tap", "secldp", "shared-seed")
OBSERVERS: dict[str, Callable[..., Observer]] = {  # the maker of the observers of each model
    model: getattr(views, model.replace("-", "_")) for model in _MODELS
}

OwnNoise = Literal["seeds", "values", "counted"]

_OUTSIDE = {  # observers who are no nodes, and their positions
    "ldp": "reads all messages from outside",
    "central": "gets the mean of all models, from outside",
}


def _coalition(value: Any) -> Any:
    for node in value if isinstance(value, list) and value else [value]:
        if not is_node(node):
            raise PydanticCustomError("node_type", "a node (row number or name), or a list of them")
    return value


class ObserversTable(Table):
    model: Literal["ldp", "central", "pndp", "secure-sum", "insider", "tap"]
    nodes: list[Annotated[Node | list[Node], PlainValidator(_coalition)]] | None = None
    own_noise: OwnNoise | None = None
    pooled: int | None = None
    responses: Literal["any", "fixed"] = "any"
    horizon: int

    def observers(self, names: Sequence[str]) -> tuple[Observer, ...] | Coalitions:
        """An observer for every entry of ``nodes``, by default every node; or all coalitions."""
        field, make = "observers.nodes", OBSERVERS[self.model]
        expected = f'nothing for observers.model = "{self.model}"'
        if self.own_noise is not None and self.model not in ("pndp", "secure-sum"):
            raise InputError("observers.own_noise", expected=expected, got=self.own_noise)
        if self.pooled is not None and self.model != "pndp":
            remedy = "" if self.model in _OUTSIDE else "State each coalition in observers.nodes."
            got = str(self.pooled)
            raise InputError("observers.pooled", expected=expected, got=got, remedy=remedy)
        if self.model in _OUTSIDE:
            if self.nodes is not None:
                remedy = f"It {_OUTSIDE[self.model]}."
                raise InputError(field, expected=expected, got=describe(self.nodes), remedy=remedy)
            return (make(),)
        entries = list(range(len(names))) if self.nodes is None else self.nodes
        if not entries:
            raise InputError(field, expected="one or more observers", got="none")
        options: dict[str, Any] = {} if self.own_noise is None else {"own_noise": self.own_noise}
        lists = [entry for entry in entries if isinstance(entry, list)]
        if lists and self.pooled is not None:
            expected = "single nodes beside observers.pooled"
            raise InputError(field, expected=expected, got=describe(lists[0]))

        def rows(nodes: Sequence[Any]) -> list[int]:
            return [row_of(node, names, field=field) for node in nodes]

        with renamed({"observer.nodes": field}):
            if self.pooled is not None:
                return coalitions(nodes=rows(entries), size=self.pooled, **options)
            together = [entry if isinstance(entry, list) else [entry] for entry in entries]
            return tuple(make(nodes=rows(coalition), **options) for coalition in together)

    def error_horizon(self, error: ErrorTable | Sequence[ErrorTable] | None) -> int:
        """T of the errors that count, which is that of the observers."""
        horizon = _checks.positive_int(self.horizon, field="observers.horizon")
        for table in errors_of(error):
            said = table.model_dump(exclude_unset=True)
            if said.get("horizon", horizon) != horizon:
                expected = f"observers.horizon = {horizon}, or nothing"
                raise InputError("error.horizon", expected=expected, got=str(said["horizon"]))
        return horizon
