"""Edge lists as text: one edge a line, two node names apart by white space."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx

from noisedesign.base.checks import InputError, describe
from noisedesign.base.regular_files import check_regular

_FIELD = "graph.file"

_TIMES = 20
"""How much memory names and pairs take, over the bytes they are written in."""


def read_edges(path: str | Path, *, directed: bool = False) -> nx.Graph:
    """Largest component of an edge list on disk; see :func:`edge_list_graph`.

    Raises:
        InputError: no such file, no regular one or too large, not UTF-8 text, or naming the file
            and the line at fault.
    """
    check_regular(Path(path), field=_FIELD, expected="a readable edge list", times=_TIMES)
    try:
        text = Path(path).read_text(encoding="utf-8-sig")  # a byte order mark is no name
    except OSError as error:
        got = f"{path}: {error.strerror}"
        raise InputError(_FIELD, expected="a readable edge list", got=got) from error
    except UnicodeDecodeError as error:
        got = f"{path}: bytes that are not UTF-8"
        raise InputError(_FIELD, expected="a text file", got=got) from error
    return edge_list_graph(text, source=str(path), directed=directed)


def edge_list_graph(text: str, *, source: str, directed: bool = False) -> nx.Graph:
    """Largest component of the graph of an edge list (the first of equally large ones).

    ``#`` starts a comment. Self-loops are dropped and repeated edges merged. Nodes come sorted:
    as numbers where every name is an integer, else as text.

    Args:
        source: where the text came from, for messages.
        directed: whether the first node of a line sends to the second, and not the second to the
            first; the component is then one in which every node reaches every other.

    Raises:
        InputError: naming the source and the line at fault.
    """
    pairs = _pairs(text, source=source)
    integers = all(name.removeprefix("-").isdecimal() for pair in pairs for name in pair)
    to_node: Callable[[str], Any] = int if integers else str
    named = [(to_node(a), to_node(b)) for a, b in pairs]
    edges = {edge if directed else (min(edge), max(edge)) for edge in named if edge[0] != edge[1]}
    if not edges:
        raise InputError(_FIELD, expected="at least one edge", got=f"{source}: none")
    graph = _sorted_graph(edges, directed=directed)
    components = nx.strongly_connected_components if directed else nx.connected_components
    # The first of equals is the one with the first node, in whatever order they come.
    largest = max(sorted(components(graph), key=min), key=len)
    if len(largest) == 1:
        raise InputError(
            _FIELD,
            expected="nodes that reach each other",
            got=f"{source}: no two that do",
            remedy="Add links that lead back, or leave out graph.directed.",
        )
    return _sorted_graph({edge for edge in edges if largest.issuperset(edge)}, directed=directed)


def _pairs(text: str, *, source: str) -> list[tuple[str, str]]:
    pairs = []
    for number, line in enumerate(text.splitlines(), start=1):
        match line.partition("#")[0].split():
            case []:
                pass
            case [first, second]:
                pairs.append((first, second))
            case _:
                raise InputError(
                    _FIELD,
                    expected="two node names a line",
                    got=f"{source}, line {number}: {describe(line.strip())}",
                )
    return pairs


def _sorted_graph(edges: set[tuple[Any, Any]], *, directed: bool) -> nx.Graph:
    graph = nx.DiGraph() if directed else nx.Graph()
    graph.add_nodes_from(sorted({node for edge in edges for node in edge}))
    graph.add_edges_from(sorted(edges))
    return graph
