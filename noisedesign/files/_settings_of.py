"""What [structure], [error] and [mixing] of a problem file say, as values."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array, InputError, describe
from noisedesign.base.regular_files import check_regular
from noisedesign.files import _schema
from noisedesign.files._tables import is_directed, mixing_key
from noisedesign.files._toml import renamed
from noisedesign.files.node_names import row_of
from noisedesign.program.structure import SpaceStructure, TimeStructure
from noisedesign.system.directed import perron_vector, push_sum_weights
from noisedesign.system.participation import FixedEpoch, MinSeparation, every_step, single
from noisedesign.system.random_mixing import (
    EdgeDropout,
    NodeDropout,
    RandomMixing,
    maximal_matchings,
    pairwise_gossip,
)
from noisedesign.system.workloads import Objective

MATCHINGS = {"pairwise": pairwise_gossip, "maximal": maximal_matchings}

OF_A_MEAN = ("mean-model", "consensus")
"""Errors that depend on which mean the models are compared with."""


def participation_of(table: Any) -> FixedEpoch | MinSeparation:
    """The scheme of a [participation] table."""
    fields = table.model_dump(exclude={"kind"})
    if isinstance(table, _schema.MinSeparationTable):
        return MinSeparation(**fields)
    if isinstance(table, _schema.HorizonTable):
        with renamed({"horizon": "participation.horizon"}):
            return (single if table.kind == "single" else every_step)(table.horizon)
    return FixedEpoch(**fields)


def time_structure(table: _schema.TimeStructureTable) -> TimeStructure:
    return TimeStructure(kind=table.time, bands=table.bands, buffers=table.buffers)


def space_structure(
    table: _schema.SpaceStructureTable, *, nodes: Sequence[str], folder: Path
) -> SpaceStructure:
    clusters = None
    if table.clusters is not None:
        clusters = read_clusters(folder / table.clusters, nodes=nodes)
    return SpaceStructure(
        kind=table.space, hops=table.hops, clusters=clusters, known_seeds=table.known_seeds
    )


def read_clusters(path: Path, *, nodes: Sequence[str]) -> tuple[int, ...]:
    """The cluster of every node, from a JSON list of lists of nodes (names, or row numbers).

    Raises:
        InputError: naming ``structure.clusters``: no such file, no such list; a node that is
            unknown, missing or listed twice.
    """
    field, expected = "structure.clusters", "a JSON list of lists of nodes"
    check_regular(path, field=field, expected="a readable file")
    try:
        lists = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(
            field, expected="a readable file", got=f"{path}: {error.strerror}"
        ) from error
    except (ValueError, RecursionError) as error:
        raise InputError(field, expected=expected, got=f"{path}: {error}") from error
    if not isinstance(lists, list) or not all(isinstance(members, list) for members in lists):
        raise InputError(field, expected=expected, got=describe(lists))
    cluster_of: dict[int, int] = {}
    for cluster, members in enumerate(lists):
        for member in members:
            if isinstance(member, bool) or not isinstance(member, int | str):
                raise InputError(field, expected=expected, got=f"the node {describe(member)}")
            row = row_of(member, nodes, field=field)
            if row in cluster_of:
                raise InputError(field, expected="every node once", got=f"{nodes[row]} twice")
            cluster_of[row] = cluster
    for row, name in enumerate(nodes):
        if row not in cluster_of:
            raise InputError(field, expected="every node in some cluster", got=f"none for {name}")
    return tuple(cluster_of[row] for row in range(len(nodes)))


def models_of(
    graph: _schema.Graph, table: _schema.ErrorTable | None, *, mixing: Array, horizon: int
) -> dict[str, Any]:
    """What the weights of a directed graph say of the models, as fields of an objective.

    Under row stochastic weights models agree on the mean by the Perron vector; under column
    stochastic ones they are states over their push-sum weights.
    """
    if not is_directed(graph):
        return {}
    if getattr(graph, "weights", "") == "column-stochastic":
        return {"push_sum_weights": push_sum_weights(mixing, horizon=horizon)}
    if table is None or table.of not in OF_A_MEAN:
        return {}
    return {"average": perron_vector(mixing, stochastic="row")}


def objective_of(
    table: _schema.ErrorTable | None,
    *,
    horizon: int,
    nodes: int,
    models: Mapping[str, Any] | None = None,
) -> Objective | None:
    """None where the file has no [error] table and nothing is said of its ``models``.

    Raises:
        InputError: naming ``error.<key>``.
    """
    if table is None and not models:
        return None
    fields = {} if table is None else table.model_dump(exclude={"horizon"})
    fields |= models or {}
    with renamed({key: f"error.{key}" for key in (*fields, "horizon")}):
        for key, value in fields.items():
            if isinstance(value, list):
                fields[key] = np.array(value, dtype=np.float64)
        objective = Objective(horizon=horizon, **fields)
        # Weights of nodes are only checked against a number of nodes.
        objective.readout(nodes=nodes)
    return objective


def random_mixing_of(
    table: _schema.MixingTable | None, *, mixing: Array, graph: _schema.Graph
) -> RandomMixing | None:
    """The distribution of W; None where the file has no [mixing] table.

    Raises:
        InputError: naming ``mixing``, not one kind of randomness, or of a directed graph;
            ``mixing.<key>``; or the key that says what W is.
    """
    if table is None:
        return None
    if is_directed(graph):
        raise InputError("mixing", expected="no [mixing] table for a directed graph", got="one")
    given = [key for key, value in table.model_dump().items() if value is not None]
    if len(given) != 1:
        raise InputError(
            "mixing",
            expected="one of dropout, edge_failure, matching",
            got=" and ".join(given) or "nothing",
        )
    key = f"mixing.{given[0]}"
    with renamed({"mixing": mixing_key(graph), "probability": key, "graph": key}):
        if table.dropout is not None:
            p: Any = table.dropout
            p = np.array(p, dtype=np.float64) if isinstance(p, list) else p
            return NodeDropout(mixing=mixing, probability=p)
        if table.edge_failure is not None:
            return EdgeDropout(mixing=mixing, probability=table.edge_failure)
        _checks.one_of(table.matching, field=key, allowed=tuple(MATCHINGS))
        links = nx.from_numpy_array(mixing)
        links.remove_edges_from(list(nx.selfloop_edges(links)))
        return MATCHINGS[str(table.matching)](links)
