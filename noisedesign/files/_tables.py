"""Tables that problem files and account files share: the graph, and the matrices they name."""

from __future__ import annotations

import tokenize
from pathlib import Path

import networkx as nx
import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base import memory
from noisedesign.base.checks import Array, InputError
from noisedesign.base.regular_files import check_regular
from noisedesign.files import _schema
from noisedesign.files._toml import renamed
from noisedesign.system.datasets import EGO_FACEBOOK_NODES, ego_facebook
from noisedesign.system.directed import DIRECTED_WEIGHTS, build_digraph, directed_mixing
from noisedesign.system.fastest_mixing.stated import stated_fastest_mixing
from noisedesign.system.graph import WEIGHTS, build_graph, mixing_matrix, node_names, read_edges

FASTEST = "fastest-mixing"

_NPY_ERRORS = (ValueError, EOFError, MemoryError, SyntaxError, tokenize.TokenError)
"""What numpy raises on a damaged file: its header is read as Python source, and may claim any
amount of memory before the data turn out missing."""


def mixing_of(
    graph: _schema.Graph, *, folder: Path, known: Array | None = None
) -> tuple[Array, tuple[str, ...]]:
    """W, shape (n, n), and the names of its rows; no names where W itself is given.

    Args:
        known: a W to take for the fastest mixing, if that is what it is: see
            :func:`noisedesign.system.fastest_mixing.stated.stated_fastest_mixing`.

    Raises:
        InputError: naming ``graph.<key>``.
    """
    if isinstance(graph, _schema.MatrixGraph):
        return load_npy(folder / graph.file, field="graph.file"), ()
    directed = is_directed(graph)
    allowed = DIRECTED_WEIGHTS if directed else (*WEIGHTS, FASTEST)
    if graph.weights not in allowed:
        got = graph.weights if "weights" in graph.model_fields_set else "nothing"
        raise InputError(
            "graph.weights",
            got=got,
            expected=f"one of {', '.join(allowed)} where graph.directed = {str(directed).lower()}",
        )
    built = _graph(graph, directed=directed, folder=folder)
    keys = {"weights": "graph.weights", "backend": "graph.weights"}
    if isinstance(graph, _schema.EdgesGraph):
        keys["graph"] = "graph.file"
    with renamed(keys):
        if directed:
            return directed_mixing(built, weights=graph.weights), node_names(built)
        if graph.weights == FASTEST:
            return stated_fastest_mixing(built, known=known), node_names(built)
        return mixing_matrix(built, weights=graph.weights), node_names(built)


def is_directed(graph: _schema.Graph) -> bool:
    """Whether links of the graph go one way."""
    return bool(getattr(graph, "directed", False))


def _graph(graph: _schema.Graph, *, directed: bool, folder: Path) -> nx.Graph:
    match graph:
        case _schema.EdgesGraph():
            return read_edges(folder / graph.file, directed=directed)
        case _schema.EgoFacebookGraph():
            return ego_facebook(graph.ego)
    build = build_digraph if directed else build_graph
    return build(**graph.model_dump(exclude={"weights", "directed"}))


def nodes_of(graph: _schema.Graph, *, folder: Path) -> int:
    """How many nodes a graph has, found out without a network.

    Raises:
        InputError: naming ``graph.<key>``.
    """
    match graph:
        case _schema.MatrixGraph():
            return len(load_npy(folder / graph.file, field="graph.file"))
        case _schema.EgoFacebookGraph() if graph.ego in EGO_FACEBOOK_NODES:
            return EGO_FACEBOOK_NODES[graph.ego]
    return len(_graph(graph, directed=is_directed(graph), folder=folder))


def mixing_key(graph: _schema.Graph) -> str:
    """The key that an error about W is about."""
    return "graph.file" if isinstance(graph, _schema.MatrixGraph) else "graph.weights"


def load_npy(path: Path, *, field: str) -> Array:
    """A float64 matrix from a .npy file. Nothing is ever unpickled.

    Raises:
        InputError: naming ``field``: no such file, damaged, not a matrix of float64.
    """
    check_regular(path, field=field, expected="a readable .npy file", times=memory.SQUARES)
    try:
        with path.open("rb") as file:
            array = np.lib.format.read_array(file, allow_pickle=False)
    except OSError as error:
        got = f"{path}: {error.strerror}"
        raise InputError(field, expected="a readable .npy file", got=got) from error
    except _NPY_ERRORS as error:
        raise InputError(
            field,
            expected="a complete .npy file of numbers",
            got=f"{path}: {error}",
            remedy="Write it with numpy.save from a float64 array; object arrays are refused.",
        ) from error
    return _checks.matrix(array, field=field)
