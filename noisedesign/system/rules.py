"""W by a rule, of a graph that is given: what every link weighs."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from itertools import islice
from typing import Any, Literal, get_args

import networkx as nx
import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from noisedesign.base import checks as _checks, memory
from noisedesign.base.checks import Array, InputError, describe

Weights = Literal["metropolis-hastings", "max-degree", "lazy-metropolis-hastings", "row-normalized"]
WEIGHTS: tuple[str, ...] = get_args(Weights)

UNSAID = ""  # weight of a graph of which nobody said whether its weights count
HOW = 'weight="weight" makes W of them, weight=None of the links alone'

LARGER = 'Noise of structure.space = "polynomial" in space takes W as a sparse array instead.'


def ruled_mixing(
    graph: nx.Graph, *, weights: str = "metropolis-hastings", weight: str | None = UNSAID
) -> Array:
    """W of a rule as an array, shape (n, n)."""
    found = sparse_mixing_matrix(graph, weights=weights, weight=weight)
    require_room(found.shape[0], field="graph")
    return np.asarray(found.toarray())


def sparse_mixing_matrix(
    graph: Any, *, weights: str = "metropolis-hastings", weight: str | None = UNSAID
) -> Any:
    """The rules of :func:`noisedesign.mixing_matrix` as a sparse array, in memory by the edges.

    Args:
        graph: as there; or its links as a sparse array of SciPy, shape (n, n), symmetric, a one for
            each and nothing on the diagonal, which takes a tenth of the memory.
        weights: as there.
        weight: as there.

    Returns:
        W, a :class:`scipy.sparse.csr_array` of shape (n, n), float64.

    Raises:
        InputError: as there, but for the room that an array takes.

    Examples:
        >>> import noisedesign as nd
        >>> nd.graphs.sparse_mixing_matrix(nd.build_graph("ring", nodes=100_000)).nnz
        300000
    """
    _checks.one_of(weights, field="weights", allowed=WEIGHTS)
    links: Any
    if sparse.issparse(graph):
        links = _checked_links(graph)
    else:
        check_graph(graph)
        by = weigher(graph, weight)
        links = nx.to_scipy_sparse_array(graph, weight=by, dtype=np.float64, format="coo")
    n, (row, column) = links.shape[0], links.coords
    each = _scaled(links.data)
    degrees: Array = np.bincount(row, weights=each, minlength=n).astype(np.float64)
    shares: Array
    kept: Array
    if weights == "max-degree":
        shares = each / (1 + float(degrees.max()))
    elif weights == "row-normalized":
        shares = each / (1 + degrees[row])
    else:
        shares = each / (1 + np.maximum(degrees[row], degrees[column]))
    if weights == "lazy-metropolis-hastings":
        shares = shares / 2
    if weights == "row-normalized":
        kept = 1 / (1 + degrees)
    else:
        kept = 1 - np.asarray(np.bincount(row, weights=shares, minlength=n), dtype=np.float64)
    own: Any = np.arange(n)
    entries = np.concatenate([shares, kept])
    at = (np.concatenate([row, own]), np.concatenate([column, own]))
    return sparse.csr_array((entries, at), shape=(n, n))


def _checked_links(given: Any) -> Any:
    """Links as an array in coordinates; refused as graphs are."""
    got = f"shape {given.shape}"
    if given.ndim == 2 and given.shape[0] == given.shape[1] and given.shape[0]:
        links: Any = sparse.csr_array(given, copy=True)
        links.sum_duplicates()
        links.eliminate_zeros()
        got, ones = "", links.astype(bool)
        count, _ = connected_components(ones, directed=False)
        if (links.data != 1).any():
            got = f"{links.data[links.data != 1][0]:g}"
        elif (ones != ones.T).nnz:
            got = "an array that is not symmetric"
        elif (loops := np.flatnonzero(ones.diagonal())).size:
            got = f"a self-loop at node {loops[0]}"
        elif count > 1:
            got = f"{count} components"
    if got:
        expected = "a symmetric sparse array of ones off its diagonal, connected"
        raise InputError("graph", expected=expected, got=got)
    return links.astype(np.float64).tocoo()


def adjacency(graph: nx.Graph, *, directed: bool = False, weight: str | None = UNSAID) -> Array:
    """Zeros and ones, or weights over their mean, shape (n, n), in the order of ``graph.nodes``."""
    check_graph(graph, directed=directed)
    require_room(len(graph), field="graph")
    by = weigher(graph, weight)
    found = np.asarray(nx.to_numpy_array(graph, weight=by, dtype=np.float64))
    found[found > 0] = _scaled(found[found > 0])
    return found


def check_graph(graph: nx.Graph, *, directed: bool = False) -> None:
    """Refuse a graph that no W can be made of: W needs it simple and connected."""
    got, remedy = "", ""
    if not isinstance(graph, nx.Graph):
        got = _checks.describe(graph)
    elif graph.is_directed() != directed:
        got, remedy = "a directed graph", "Use graph.to_undirected()."
        if directed:
            got = "an undirected graph"
            remedy = "Use graph.to_directed() where every link goes both ways."
    elif graph.is_multigraph():
        same = "DiGraph" if directed else "Graph"
        got, remedy = "a multigraph", f"Use nx.{same}(graph), which merges parallel edges."
    elif len(graph) == 0:
        got = "no nodes"
    elif loop := next(nx.selfloop_edges(graph), None):
        got = f"a self-loop at node {loop[0]}"
        remedy = "Use graph.remove_edges_from(list(nx.selfloop_edges(graph))); W adds self weights."
    elif not (nx.is_strongly_connected if directed else nx.is_connected)(graph):
        find = "strongly_connected_components" if directed else "connected_components"
        parts = [list(part) for part in getattr(nx, find)(graph)]
        got = components_in_words(parts, what=find.replace("_", " ") if directed else "components")
        remedy = f"Keep the largest: graph.subgraph(max(nx.{find}(graph), key=len))."
    if got:
        strongly, kind = ("strongly ", "directed") if directed else ("", "undirected")
        expected = f"a {strongly}connected, simple, {kind} graph"
        raise InputError("graph", expected=expected, got=got, remedy=remedy)


def weigher(
    graph: nx.Graph, weight: str | None, *, field: str = "weight", how: str = HOW
) -> str | None:
    """The attribute of edges that W is made of, each a positive number; None for links alone.

    Where nobody said, links alone count, with a warning if weights differ."""
    if weight is None:
        return None
    if weight == UNSAID:
        links = list(graph.edges(data="weight", default=1))
        if odd := next((link for link in links if link[2] != links[0][2]), None):
            shown = (f"{describe(of)} of edge ({a}, {b})" for a, b, of in (links[0], odd))
            said = f"weights of edges differ, {' and '.join(shown)}, and are not used: {how}"
            warnings.warn(said, UserWarning, stacklevel=_outside())
        return None
    _checks.text(weight, field=field)
    for a, b, given in graph.edges(data=weight):
        real = isinstance(given, int | float | np.integer | np.floating)
        if not real or isinstance(given, bool) or not 0 < given <= np.finfo(float).max:
            expected = f"a positive number {weight!r} at every edge"
            got = "none" if given is None else describe(given)
            raise InputError(field, expected=expected, got=f"{got} at edge ({a}, {b})")
    return weight


def _outside() -> int:
    """The level of the line outside of this package that led here, for a warning of our caller."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").startswith("noisedesign"):
        level, frame = level + 1, frame.f_back
    return level


def links_alone(graph: nx.Graph) -> nx.Graph:
    """The same graph without attributes, its nodes in the same order."""
    found = type(graph)()
    found.add_nodes_from(graph)
    found.add_edges_from(graph.edges)
    return found


def _scaled(weights: Array) -> Array:
    """Weights over their mean; ones where all are alike, to the last bit."""
    if not len(weights) or (weights == weights[0]).all():
        return np.ones(len(weights))
    return np.asarray(weights / weights.mean())


def components_in_words(parts: Sequence[Sequence[Any]], *, what: str = "components") -> str:
    """Say "2 components, of 5 nodes (0, 1, 2, ...) and 1 node (7)", the largest first."""
    shown = []
    for part in sorted(parts, key=len, reverse=True)[:4]:
        names = [*map(str, islice(part, 3)), *(["..."] if len(part) > 3 else [])]
        plural = "s" if len(part) > 1 else ""
        shown.append(f"{len(part)} node{plural} ({', '.join(names)})")
    if len(parts) > len(shown):
        shown.append(f"{len(parts) - len(shown)} more")
    return f"{len(parts)} {what}, of " + ", ".join(shown[:-1]) + " and " + shown[-1]


def require_room(nodes: int, *, field: str = "graph.nodes", of: str = "nodes") -> None:
    """Refuse a graph whose W, as an array, and the arrays of a solve do not fit this machine."""
    memory.require(memory.squares, nodes, field=field, of=of, remedy=LARGER)
