"""[graph] of problem and account files: its keys, and the mixing matrix that they state."""

from __future__ import annotations

import io
import math
import tokenize
from abc import ABC, abstractmethod
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import networkx as nx
import numpy as np

from noisedesign.base import checks as _checks, memory
from noisedesign.base.checks import Array, InputError
from noisedesign.base.regular_files import read_regular
from noisedesign.files.schema import Table, Text, of_kind, table_of_kind
from noisedesign.files.toml import renamed
from noisedesign.system.datasets import (
    EGO_FACEBOOK_NODES,
    PEERTUBE_NODES,
    ego_facebook,
    local_peertube,
    peertube,
)
from noisedesign.system.directed import (
    DIGRAPH_KINDS,
    DIRECTED_WEIGHTS,
    DirectedWeights,
    build_digraph,
    directed_mixing,
)
from noisedesign.system.fastest_mixing import stated_fastest_mixing
from noisedesign.system.graph import (
    BEYOND,
    GRAPH_KEYS,
    LEAST_NOISE,
    build_graph,
    chosen_links,
    mixing_matrix,
    node_names,
    read_all_edges,
    read_edges,
)
from noisedesign.system.rules import (
    UNSAID,
    WEIGHTS,
    Weights,
    require_room,
    sparse_mixing_matrix,
    weigher,
)

Mixing = tuple[Any, tuple[str, ...]]
"""W, shape (n, n), dense or sparse, or of a schedule, (P, n, n); and the names of its rows."""

FASTEST = "fastest-mixing"


class Graph(Table, ABC):
    """A graph and its W; errors name ``graph.<key>``."""

    weights_key: ClassVar[str] = "graph.weights"  # the key that errors about W name
    kept_outside: ClassVar[bool] = False
    """Whether its kind alone names data outside of any file of ours."""

    kind: str

    @property
    def one_way(self) -> bool:
        """Whether links go one way."""
        return False

    @property
    def size(self) -> int | None:
        """The number of nodes by its keys; None where it is always the same."""
        said = self.model_dump()
        if "dimension" in said:
            return 2 ** said["dimension"] if 0 <= said["dimension"] < BEYOND else 0
        if "clique" in said:
            return int(2 * said["clique"] + said["bridge"])
        if "cliques" in said:
            return int(said["cliques"] * said["members"])
        return said["rows"] * said["columns"] if "rows" in said else said.get("nodes")

    @abstractmethod
    def count(self, folder: Path) -> int:
        """The number of nodes, found without a network; files are relative to ``folder``."""

    @abstractmethod
    def mixing(
        self, folder: Path, *, known: Array | None = None, sparse_above: float = math.inf
    ) -> Mixing:
        """W and the names of its rows, none where W itself is given.

        W is sparse for more nodes than ``sparse_above``; ``known`` is a W to take as the fastest.
        """


class _Built(Graph):
    """A graph that is built or read, and then weighted."""

    links_key: ClassVar[str] = "graph"  # the key that errors about the links name

    weights: str = "metropolis-hastings"
    mixing_rate: float | None = None

    @property
    def _weighs(self) -> str | None:
        """The attribute of edges that W is made of, None, or that nobody said."""
        return UNSAID

    def _graph(self, folder: Path) -> nx.Graph:
        build = build_digraph if self.one_way else build_graph
        other = {"weights", "weight", "mixing_rate", "directed"}
        return build(**self.model_dump(exclude=other, exclude_none=True))

    def count(self, folder: Path) -> int:
        return len(self._graph(folder)) if self.size is None else self.size

    def mixing(
        self, folder: Path, *, known: Array | None = None, sparse_above: float = math.inf
    ) -> Mixing:
        if self.weights == LEAST_NOISE:
            expected = "weights that the graph alone decides on, outside of problem files"
            remedy = f'Name the design of a problem with "{LEAST_NOISE}", which holds its W.'
            raise InputError("graph.weights", expected=expected, got=LEAST_NOISE, remedy=remedy)
        if self.mixing_rate is not None:
            expected = f'none but for weights = "{LEAST_NOISE}"'
            raise InputError("graph.mixing_rate", expected=expected, got=f"{self.mixing_rate:g}")
        allowed = (*DIRECTED_WEIGHTS, LEAST_NOISE)
        if not self.one_way:
            allowed = (*WEIGHTS, FASTEST, LEAST_NOISE)
        if self.weights not in allowed:
            where = f"where graph.directed = {str(self.one_way).lower()}"
            expected = f"one of {', '.join(allowed)} {where}"
            got = self.weights if "weights" in self.model_fields_set else "nothing"
            raise InputError("graph.weights", expected=expected, got=got)
        said = self.size
        if said is not None and said <= sparse_above:
            require_room(said)
        graph = self._graph(folder)
        keys = {"weights": "graph.weights", "graph": self.links_key, "weight": "graph.weight"}
        with renamed(keys):
            how = "graph.weight = true makes W of them, false of the links alone"
            by = weigher(graph, self._weighs, how=how)
            ruled: dict[str, Any] = {"weights": self.weights, "weight": by}
            if len(graph) > sparse_above and self.weights in WEIGHTS:
                return sparse_mixing_matrix(graph, **ruled), node_names(graph)
            if self.one_way:
                return directed_mixing(graph, **ruled), node_names(graph)
            if self.weights == FASTEST:
                links = chosen_links(graph, by, beside=FASTEST)
                return stated_fastest_mixing(links, known=known), node_names(graph)
            return mixing_matrix(graph, **ruled), node_names(graph)


class _Weighted(_Built):
    weights: Literal[Weights, "fastest-mixing", "least-noise"] = "metropolis-hastings"


class _MaybeDirected(_Built):
    weights: Literal[Weights, "fastest-mixing", "least-noise", DirectedWeights] = (
        "metropolis-hastings"
    )
    directed: bool = False

    @property
    def one_way(self) -> bool:
        return self.directed


class EgoFacebookGraph(_Weighted):
    kind: Literal["ego-facebook"]
    ego: int

    def count(self, folder: Path) -> int:
        known = EGO_FACEBOOK_NODES.get(self.ego)
        return super().count(folder) if known is None else known

    def _graph(self, folder: Path) -> nx.Graph:
        return ego_facebook(self.ego)


class PeerTubeGraph(_Weighted):
    kept_outside: ClassVar[bool] = True
    kind: Literal["peertube"]

    def count(self, folder: Path) -> int:
        return PEERTUBE_NODES if local_peertube() is None else super().count(folder)

    def _graph(self, folder: Path) -> nx.Graph:
        return peertube()


class EdgesGraph(_MaybeDirected):
    links_key: ClassVar[str] = "graph.file"
    kind: Literal["edges"]
    file: Text
    weight: bool | None = None

    @property
    def _weighs(self) -> str | None:
        return UNSAID if self.weight is None else "weight" if self.weight else None

    def _graph(self, folder: Path) -> nx.Graph:
        return read_edges(folder / self.file, directed=self.directed)


class MatrixGraph(Graph):
    weights_key: ClassVar[str] = "graph.file"
    kind: Literal["matrix"]
    file: Text

    def count(self, folder: Path) -> int:
        return int(self.mixing(folder)[0].shape[-1])

    def mixing(self, folder: Path, **_: Any) -> Mixing:
        found = load_array(folder / self.file, field="graph.file")
        stack = _checks.square_matrices(found, field="graph.file")
        return stack[0] if len(stack) == 1 else stack, ()


class ScheduleGraph(Graph):
    """Graphs that come round, one a gradient step."""

    weights_key: ClassVar[str] = "graph.files"
    kind: Literal["schedule"]
    files: list[Text]
    weights: Literal[Weights] = "metropolis-hastings"

    def count(self, folder: Path) -> int:
        return len(self._names(self._graphs(folder)))

    def _graphs(self, folder: Path) -> list[nx.Graph]:
        if not self.files:
            raise InputError("graph.files", expected="one or more edge lists", got="none")
        with renamed({"graph.file": "graph.files"}):
            return [read_all_edges(folder / file) for file in self.files]

    def _names(self, graphs: list[nx.Graph]) -> list[str]:
        """Nodes of all graphs, sorted: as numbers where every one is an integer."""
        nodes = {str(node) for graph in graphs for node in graph}
        numbers = all(name.removeprefix("-").isdecimal() for name in nodes)
        return sorted(nodes, key=int if numbers else str)

    def mixing(self, folder: Path, **_: Any) -> Mixing:
        """A node without a link at a step keeps its model."""
        graphs = self._graphs(folder)
        names = self._names(graphs)
        place, stack = {name: row for row, name in enumerate(names)}, []
        for graph in graphs:
            w = np.eye(len(names))
            for part in map(sorted, nx.connected_components(graph)):
                rows = [place[str(node)] for node in part]
                ordered = nx.Graph()
                ordered.add_nodes_from(part)
                ordered.add_edges_from(graph.subgraph(part).edges)
                with renamed({"weights": "graph.weights", "graph": "graph.files"}):
                    w[np.ix_(rows, rows)] = mixing_matrix(ordered, weights=self.weights)
            stack.append(w)
        return np.stack(stack), tuple(names)


@cache
def graph_tables() -> tuple[type[Table], ...]:
    """A table for every kind of graph: those that are built take the keys of their builders."""
    made = []
    for kind, keys in GRAPH_KEYS.items():
        base = _MaybeDirected if kind in DIGRAPH_KINDS else _Weighted
        made.append(table_of_kind(kind, keys, base=base))
    return (*made, EgoFacebookGraph, PeerTubeGraph, EdgesGraph, MatrixGraph, ScheduleGraph)


GraphOfKind = Annotated[Graph, of_kind(graph_tables)]


def load_npy(path: Path, *, field: str) -> Array:
    """A float64 matrix from a .npy file. Nothing is ever unpickled."""
    return _checks.matrix(load_array(path, field=field), field=field)


def read_numbers(path: Path, *, field: str) -> Array:
    """A float64 matrix from text, a row a line with commas; a first line of names is left out."""
    content = read_regular(path, field=field, expected="a readable file", times=memory.SQUARES)
    try:
        lines = content.decode("utf-8").splitlines()
        named = bool(lines) and any(not _is_number(cell) for cell in lines[0].split(","))
        found = np.loadtxt(lines[named:], delimiter=",", ndmin=2)
    except ValueError as error:
        expected = "lines of numbers with commas, or a .npy file"
        raise InputError(field, expected=expected, got=f"{path}: {error}") from error
    return _checks.matrix(found, field=field)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def load_array(path: Path, *, field: str) -> np.ndarray:
    """The array of a .npy file, not checked. Nothing is ever unpickled."""
    expected = "a readable .npy file"
    content = read_regular(path, field=field, expected=expected, times=memory.SQUARES)
    try:
        return np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
    except (ValueError, EOFError, MemoryError, SyntaxError, tokenize.TokenError) as error:
        # The header is read as Python source, and may claim any amount of memory.
        expected = "a complete .npy file of numbers"
        remedy = "Write it with numpy.save from a float64 array; object arrays are refused."
        raise InputError(field, expected=expected, got=f"{path}: {error}", remedy=remedy) from error
