"""Graphs and gossip matrices W: named graphs, edge lists, and the rules for W, whose rows follow
``graph.nodes`` of an undirected, simple and unweighted graph."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_type_hints

import networkx as nx
import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from noisedesign.base import checks as _checks, memory, settings
from noisedesign.base.checks import Array, InputError, describe
from noisedesign.base.regular_files import check_regular
from noisedesign.system.least_noise import least_noise
from noisedesign.system.rules import (
    UNSAID,
    WEIGHTS,
    check_graph,
    components_in_words,
    links_alone,
    require_room,
    ruled_mixing,
    weigher,
)

LEAST_NOISE = "least-noise"

BEYOND = 64  # dimensions beyond which a hypercube fits no machine, and its nodes are not counted
NODE_BYTES = 500  # memory that networkx takes for a node, with its name and its row
_ROWS = "Every design needs rows that sum to 1; W need not be symmetric."


def mixing_matrix(
    graph: nx.Graph, *, weights: str = "metropolis-hastings", weight: str | None = UNSAID
) -> Array:
    """Gossip matrix W of a connected graph.

    With degrees d, adjacency A and Laplacian L:

    - ``metropolis-hastings``: on edges :math:`W_ij = 1 / (1 + max(d_i, d_j))`, the rest on the
      diagonal (Xiao, Boyd and Kim 2007);
    - ``max-degree``: :math:`W = I - L / (1 + max d)`;
    - ``lazy-metropolis-hastings``: :math:`(I + W) / 2` of the first, hence positive definite;
    - ``row-normalized``: rows of A + I divided by their sums: as a rule row stochastic only;
    - ``least-noise``: no slower than the first, and of least error of optimal noise after one step
      at equal budgets; :func:`noisedesign.graphs.least_noise_mixing` chooses for other problems.

    All but ``row-normalized`` are symmetric and doubly stochastic. With ``weight``, A has the
    weights w_ij of the edges over their mean, and d are its row sums: W_ij = w_ij / (1 + max(d_i,
    d_j)) by the first rule, and so on. Weights in any unit have the same W, and those that are all
    alike that of none; ``least-noise`` chooses by links alone, and takes none.

    Args:
        graph: undirected, connected and simple.
        weights: one of these.
        weight: the attribute of edges that weighs them, positive, as ``"weight"``; None: links
            alone; not given: links alone, with a UserWarning where weights differ.

    Returns:
        W, shape (n, n), rows in the order of ``graph.nodes``.

    Raises:
        InputError: not such a graph; unknown weights; an edge without a positive weight; more
            nodes than this machine has memory for.

    Examples:
        >>> import noisedesign as nd
        >>> nd.mixing_matrix(nd.build_graph("path", nodes=2)).tolist()
        [[0.5, 0.5], [0.5, 0.5]]
    """
    _checks.one_of(weights, field="weights", allowed=(*WEIGHTS, LEAST_NOISE))
    if weights == LEAST_NOISE:
        return least_noise(chosen_links(graph, weight), budget=np.ones(len(graph))).mixing
    return ruled_mixing(graph, weights=weights, weight=weight)


def chosen_links(graph: nx.Graph, weight: str | None, *, beside: str = LEAST_NOISE) -> nx.Graph:
    """The links that W is chosen on by a rule which takes no weights of edges."""
    check_graph(graph, directed=isinstance(graph, nx.DiGraph))
    if weight:
        expected = f'none beside weights = "{beside}", which chooses W itself'
        raise InputError("weight", expected=expected, got=describe(weight))
    weigher(graph, weight)
    return links_alone(graph)


@np.errstate(over="ignore")  # sums of huge weights are told as infinite
def graph_laplacian(mixing: Array) -> Array:
    """Laplacian of the graph along which messages travel, shape (n, n)."""
    linked = ((mixing != 0) | (mixing.T != 0)).astype(np.float64)
    np.fill_diagonal(linked, 0.0)
    return np.asarray(np.diag(linked.sum(axis=1)) - linked)


def check_mixing(mixing: Any, *, stochastic: str, connected: bool = True) -> Array:
    """W as a read-only array, shape (n, n), nonnegative, by "row", "column", "both" or "either"."""
    _checks.one_of(stochastic, field="stochastic", allowed=("row", "column", "both", "either"))
    if isinstance(mixing, nx.Graph):
        expected = "W, an array of shape (n, n)"
        remedy = "Give mixing_matrix(graph), or make the problem by its from_graph(graph)."
        raise InputError("mixing", expected=expected, got="a graph", remedy=remedy)
    w = _checks.matrix(mixing, field="mixing", square=True)
    if w.min() < 0:
        i, j = (int(k) for k in np.argwhere(w < 0)[0])
        expected = "nonnegative weights"
        raise InputError("mixing", expected=expected, got=f"{w[i, j]:.6g} at index ({i}, {j})")
    columns = w.sum(axis=0)
    kept = stochastic == "either" and np.abs(columns - 1).max() <= settings.STOCHASTIC_TOLERANCE
    if stochastic != "column" and not kept:
        _check_sums(w.sum(axis=1), line="row", remedy=_ROWS)
    if stochastic in ("column", "both"):
        _check_sums(
            columns,
            line="column",
            remedy="Push-sum needs W column stochastic; row stochastic W averages by itself."
            if stochastic == "column"
            else 'W that is drawn anew keeps sums, too: weights = "metropolis-hastings" do.',
        )
    if connected:
        _check_connected(sparse.csr_array(w))
    return w


def check_sparse_mixing(mixing: Any) -> Any:
    """W as a read-only ``csr_array``, checked as by :func:`check_mixing` for rows that sum to 1."""
    given: Any = mixing  # what the stubs of issparse make of it has no dtype
    if not sparse.issparse(mixing):
        got = _checks.describe(mixing)
        raise InputError("mixing", expected="a scipy sparse array of shape (n, n)", got=got)
    if given.dtype != np.float64:
        remedy = "Convert the data at its source; widening float32 does not restore its digits."
        raise InputError("mixing", expected="float64 weights", got=str(given.dtype), remedy=remedy)
    if given.ndim != 2 or given.shape[0] != given.shape[1] or not given.shape[0]:
        raise InputError("mixing", expected="a square matrix", got=f"shape {given.shape}")
    w = sparse.csr_array(given, copy=True)
    w.sum_duplicates()
    w.eliminate_zeros()
    if not np.isfinite(w.data).all() or (w.data < 0).any():
        worst = float(w.data[~np.isfinite(w.data) | (w.data < 0)][0])
        raise InputError("mixing", expected="finite, nonnegative weights", got=f"{worst:.6g}")
    _check_sums(np.asarray(w.sum(axis=1)), line="row", remedy=_ROWS)
    _check_connected(w)
    for part in (w.data, w.indices, w.indptr):
        part.flags.writeable = False
    return w


def _check_connected(w: Any) -> None:
    count, labels = connected_components(w, directed=True, connection="strong")
    if count == 1:
        return
    order = np.argsort(labels, kind="stable")
    members = np.split(order, np.cumsum(np.bincount(labels))[:-1])
    expected = "every node to reach every other along nonzero weights"
    got = components_in_words([[int(i) for i in nodes] for nodes in members])
    remedy = "Design each component by itself, or add the missing links."
    raise InputError("mixing", expected=expected, got=got, remedy=remedy)


def node_names(graph: nx.Graph) -> tuple[str, ...]:
    """Names of the nodes, in the order of the rows of W: "Medici", "3", "(0, 1)"."""
    return tuple(str(node) for node in graph.nodes)


def build_graph(kind: str, **params: Any) -> nx.Graph:
    """A named graph.

    ============================  ==========================================================
    florentine, karate            no parameters; edge weights are dropped
    ring, path, complete, star    nodes (in total)
    grid, torus                   rows, columns
    hypercube                     dimension
    erdos-renyi                   nodes, p or degree, seed
    random-regular                nodes, degree, seed
    random-geometric              nodes, degree, seed
    barabasi-albert               nodes, links, seed
    small-world                   nodes, neighbours, p, seed
    barbell                       clique, bridge
    caveman                       cliques, members
    ============================  ==========================================================

    Random graphs are the first connected one of networkx's generator under the seeds seed,
    seed + 1000, seed + 2000, ... Those of an expected ``degree`` are seldom connected: every
    component of the first is linked to the largest, by one link. Points of a random geometric graph
    are uniform in the unit square, and linked up to the distance that would give the degree without
    edges. In a small world (Watts and Strogatz 1998) every node of a ring has links to its
    ``neighbours`` nearest, an even number, each moved with probability p. A barbell is two cliques
    with ``bridge`` nodes between them; caves are cliques on a ring, one link of each moved on.

    Args:
        kind: of the first column.
        **params: of the second column, all of them.

    Returns:
        A graph that is connected, simple and without weights.

    Raises:
        InputError: naming ``graph.<key>``; also where 1000 seeds gave no connected graph, and for
            more nodes and links than this machine has room for.

    Examples:
        >>> import noisedesign as nd
        >>> sorted(nd.build_graph("path", nodes=3).edges)
        [(0, 1), (1, 2)]
    """
    return built_by(_BUILDERS, kind, params)


def built_by(builders: Mapping[str, Callable[..., nx.Graph]], kind: str, params: Any) -> nx.Graph:
    """The graph of the builder of that kind, once it has its parameters and no others."""
    _checks.one_of(kind, field="graph.kind", allowed=tuple(builders))
    builder = builders[kind]
    allowed = tuple(inspect.signature(builder).parameters)
    for key in params:
        if key not in allowed:
            expected = "one of " + ", ".join(allowed) if allowed else "no parameters"
            raise InputError(f"graph.{key}", expected=f"{expected} for {kind}", got=key)
    for key, parameter in inspect.signature(builder).parameters.items():
        if key not in params and parameter.default is parameter.empty:
            raise InputError(f"graph.{key}", expected=f"a value for {kind}", got="nothing")
    return builder(**params)


def _check_sums(sums: Array, *, line: str, remedy: str) -> None:
    wrong = np.flatnonzero(np.abs(sums - 1) > settings.STOCHASTIC_TOLERANCE)
    if wrong.size:
        first = int(wrong[0])
        got = f"sum {sums[first]:.15g} in {line} {first}"
        raise InputError("mixing", expected=f"{line}s that sum to 1", got=got, remedy=remedy)


def _integer(key: str, value: Any, *, minimum: int = 1) -> int:
    return _checks.positive_int(value, field=f"graph.{key}", minimum=minimum)


def _require_links(
    nodes: int, *, field: str = "graph.nodes", of: str = "nodes", density: float = 0.0
) -> None:
    """Refuse a graph that does not fit this machine; ``density`` is links over pairs of nodes."""
    link = 150  # bytes that networkx takes for a link, at least
    memory.require(
        lambda n: NODE_BYTES * n + int(link * density * n * n / 2), nodes, field=field, of=of
    )


def _nodes(nodes: Any, *, minimum: int = 1, density: float = 0.0) -> int:
    checked = _integer("nodes", nodes, minimum=minimum)
    _require_links(checked, density=density)
    return checked


def _sized(
    generator: Callable[[int], nx.Graph], *, minimum: int = 1, density: float = 0.0
) -> Callable[..., nx.Graph]:
    """The builder of a kind whose only key is ``nodes``."""

    def build(nodes: int) -> nx.Graph:
        return generator(_nodes(nodes, minimum=minimum, density=density))

    return build


def _lattice(*, periodic: bool) -> Callable[..., nx.Graph]:
    # Around fewer than three nodes a torus would need parallel edges.
    minimum = 3 if periodic else 1

    def build(rows: int, columns: int) -> nx.Graph:
        rows = _integer("rows", rows, minimum=minimum)
        columns = _integer("columns", columns, minimum=minimum)
        larger = "rows" if rows >= columns else "columns"
        _require_links(rows * columns, field=f"graph.{larger}", of="nodes, rows * columns")
        return nx.grid_2d_graph(rows, columns, periodic=periodic)

    return build


def _hypercube(dimension: int) -> nx.Graph:
    checked = _integer("dimension", dimension)
    memory.require(
        lambda d: NODE_BYTES * 2 ** min(d, BEYOND),
        checked,
        field="graph.dimension",
        of="dimensions, of two nodes each",
    )
    return nx.hypercube_graph(checked)


def first_connected(generate: Callable[[int], nx.Graph], seed: int) -> nx.Graph:
    """The first connected graph (strongly, of a digraph) from seed, seed + 1000, ..."""
    seed, tries = _checks.seed(seed, field="graph.seed"), 1000
    for attempt in range(tries):
        graph = generate(seed + 1000 * attempt)
        if (nx.is_strongly_connected if graph.is_directed() else nx.is_connected)(graph):
            return graph
    expected = f"a connected graph within {tries} seeds from {seed}"
    raise InputError("graph.seed", expected=expected, got="none", remedy="Ask for more edges.")


def erdos_renyi(nodes: int, p: float, seed: int, *, directed: bool = False) -> nx.Graph:
    """Every link, or every one-way link, with probability p: see :func:`build_graph`."""
    p = _checks.real(p, field="graph.p")
    if not 0 < p <= 1:
        raise InputError("graph.p", expected="a probability in (0, 1]", got=f"{p:g}")
    nodes = _nodes(nodes, density=2 * p if directed else p)
    quick = nodes > settings.DENSE_NODES  # in work by the links, not by all pairs
    generate = nx.fast_gnp_random_graph if quick else nx.gnp_random_graph
    return first_connected(lambda s: generate(nodes, p, seed=s, directed=directed), seed)


def _erdos_renyi(
    nodes: int, seed: int, p: float | None = None, degree: float | None = None
) -> nx.Graph:
    if (p is None) == (degree is None):
        key, got = ("p", "neither") if p is None else ("degree", "both")
        raise InputError(f"graph.{key}", expected="one of graph.p and graph.degree", got=got)
    if p is not None:
        return erdos_renyi(nodes, p, seed)
    nodes, share = _expected_degree(nodes, degree)
    seed = _checks.seed(seed, field="graph.seed")
    return _joined(
        nx.fast_gnp_random_graph(nodes, share, seed=seed),
        lambda node, others: others[node % len(others)],
    )


def _expected_degree(nodes: Any, degree: Any) -> tuple[int, float]:
    """Nodes that there is room for, and the probability of a link between two of them."""
    nodes = _integer("nodes", nodes, minimum=2)
    degree = _checks.real(degree, field="graph.degree", low=0)
    if degree >= nodes - 1:
        expected = f"less than nodes - 1 = {nodes - 1}"
        raise InputError("graph.degree", expected=expected, got=f"{degree:g}")
    return _nodes(nodes, density=degree / (nodes - 1)), degree / (nodes - 1)


def _random_geometric(nodes: int, degree: float, seed: int) -> nx.Graph:
    nodes, share = _expected_degree(nodes, degree)
    rng = np.random.default_rng(_checks.seed(seed, field="graph.seed"))
    places = rng.random((nodes, 2))
    graph = nx.empty_graph(nodes)
    reach = np.sqrt(share * (nodes - 1) / (np.pi * nodes))
    graph.add_edges_from(
        map(tuple, cKDTree(places).query_pairs(reach, output_type="ndarray").tolist())
    )

    def nearest(node: int, others: Sequence[int]) -> int:
        away = places[list(others)] - places[node]
        return others[int(np.einsum("ij,ij->i", away, away).argmin())]

    return _joined(graph, nearest)


def _joined(graph: nx.Graph, partner: Callable[[int, Sequence[int]], int]) -> nx.Graph:
    """The graph with a link more for every component but the largest, to a ``partner`` there."""
    largest, *others = sorted(nx.connected_components(graph), key=lambda c: (-len(c), min(c)))
    inside = sorted(largest)
    graph.add_edges_from([(min(part), partner(min(part), inside)) for part in others])
    return graph


def _random_regular(nodes: int, degree: int, seed: int) -> nx.Graph:
    nodes, degree = _nodes(nodes), _integer("degree", degree)
    if degree >= nodes or nodes * degree % 2:
        expected = f"less than nodes = {nodes}, and nodes * degree even"
        raise InputError("graph.degree", expected=expected, got=str(degree))
    return first_connected(lambda s: nx.random_regular_graph(degree, nodes, seed=s), seed)


def _barabasi_albert(nodes: int, links: int, seed: int) -> nx.Graph:
    nodes, links = _nodes(nodes), _integer("links", links)
    if links >= nodes:
        raise InputError("graph.links", expected=f"less than nodes = {nodes}", got=str(links))
    return first_connected(lambda s: nx.barabasi_albert_graph(nodes, links, seed=s), seed)


def _small_world(nodes: int, neighbours: int, p: float, seed: int) -> nx.Graph:
    nodes, neighbours = _nodes(nodes), _integer("neighbours", neighbours, minimum=2)
    if neighbours >= nodes or neighbours % 2:
        expected = f"an even number less than nodes = {nodes}"
        raise InputError("graph.neighbours", expected=expected, got=str(neighbours))
    p = _checks.real(p, field="graph.p")
    if not 0 <= p <= 1:
        raise InputError("graph.p", expected="a probability in [0, 1]", got=f"{p:g}")
    return first_connected(lambda s: nx.watts_strogatz_graph(nodes, neighbours, p, seed=s), seed)


def _barbell(clique: int, bridge: int) -> nx.Graph:
    clique, bridge = _integer("clique", clique, minimum=2), _integer("bridge", bridge, minimum=0)
    larger = "clique" if 2 * clique >= bridge else "bridge"
    require_room(2 * clique + bridge, field=f"graph.{larger}", of="nodes, 2 clique + bridge")
    return nx.barbell_graph(clique, bridge)


def _caveman(cliques: int, members: int) -> nx.Graph:
    # Two cliques of two: the link of each that is moved would be that of the other.
    cliques = _integer("cliques", cliques, minimum=2)
    members = _integer("members", members, minimum=3)
    larger = "cliques" if cliques >= members else "members"
    require_room(cliques * members, field=f"graph.{larger}", of="nodes, cliques * members")
    return nx.connected_caveman_graph(cliques, members)


_BUILDERS: dict[str, Callable[..., nx.Graph]] = {
    "florentine": lambda: nx.Graph(nx.to_dict_of_lists(nx.florentine_families_graph())),
    "karate": lambda: nx.Graph(nx.to_dict_of_lists(nx.karate_club_graph())),
    "ring": _sized(nx.cycle_graph, minimum=3),
    "path": _sized(nx.path_graph),
    "complete": _sized(nx.complete_graph, density=1.0),
    "star": _sized(lambda nodes: nx.star_graph(nodes - 1)),
    "grid": _lattice(periodic=False),
    "torus": _lattice(periodic=True),
    "hypercube": _hypercube,
    "erdos-renyi": _erdos_renyi,
    "random-regular": _random_regular,
    "random-geometric": _random_geometric,
    "barabasi-albert": _barabasi_albert,
    "small-world": _small_world,
    "barbell": _barbell,
    "caveman": _caveman,
}


def _keys(builder: Callable[..., nx.Graph]) -> dict[str, Any]:
    hints = get_type_hints(builder)
    asked = inspect.signature(builder).parameters
    return {
        key: hints[key] if of.default is of.empty else (hints[key], of.default)
        for key, of in asked.items()
    }


GRAPH_KEYS: dict[str, dict[str, Any]] = {kind: _keys(build) for kind, build in _BUILDERS.items()}
"""Keys of the graphs of each kind: a type, or a type and its default."""

_FIELD = "graph.file"


def read_edges(path: str | Path, *, directed: bool = False) -> nx.Graph:
    """Largest component of an edge list on disk, as :func:`edge_list_graph` reads it; a UserWarning
    where that leaves nodes out."""
    text = _edge_text(path)
    graph = edge_list_graph(text, source=str(path), directed=directed)
    lines = _lines(text, source=str(path))
    to_node = _to_node(lines)
    if left := len({to_node(name) for a, b, *_ in lines for name in (a, b)}) - len(graph):
        told = f"{left} of {left + len(graph)} nodes do not reach the others, and are left out"
        warnings.warn(f"{_FIELD}: {path}: {told}", UserWarning, stacklevel=2)
    return graph


def read_all_edges(path: str | Path) -> nx.Graph:
    """The graph of all edges of a list on disk, connected or not; nodes may be alone."""
    lines = _lines(_edge_text(path), source=str(path))
    if any(weight is not None for *_, weight, _ in lines):
        got, remedy = f"{path}: weights of edges", "Schedules of weighted W are .npy files of W."
        raise InputError(_FIELD, expected="two node names a line", got=got, remedy=remedy)
    graph = nx.Graph([(a, b) for a, b, *_ in lines])
    graph.remove_edges_from(list(nx.selfloop_edges(graph)))
    if not len(graph):
        raise InputError(_FIELD, expected="at least one edge", got=f"{path}: none")
    return graph


def _edge_text(path: str | Path) -> str:
    # Names and pairs take some 20 times the bytes that they are written in.
    check_regular(Path(path), field=_FIELD, expected="a readable edge list", times=20)
    try:
        return Path(path).read_text(encoding="utf-8-sig")  # a byte order mark is no name
    except OSError as error:
        got = f"{path}: {error.strerror}"
        raise InputError(_FIELD, expected="a readable edge list", got=got) from error
    except UnicodeDecodeError as error:
        got = f"{path}: bytes that are not UTF-8"
        raise InputError(_FIELD, expected="a text file", got=got) from error


def edge_list_graph(text: str, *, source: str, directed: bool = False) -> nx.Graph:
    """The largest component of an edge list, nodes sorted, as numbers where all are; the third
    column, where there is one, is the ``weight`` of edges."""
    lines = _lines(text, source=source)
    to_node = _to_node(lines)
    edges: dict[tuple[Any, Any], float | None] = {}
    for first, second, weight, number in lines:
        a, b = to_node(first), to_node(second)
        edge = (a, b) if directed else (min(a, b), max(a, b))
        if a != b and edges.setdefault(edge, weight) != weight:
            got = f"{source}, line {number}: another weight of edge ({edge[0]}, {edge[1]})"
            raise InputError(_FIELD, expected="one weight of every edge", got=got)
    if not edges:
        raise InputError(_FIELD, expected="at least one edge", got=f"{source}: none")
    bare = [edge for edge, weight in edges.items() if weight is None]
    if 0 < len(bare) < len(edges):
        got = f"{source}: none of edge ({bare[0][0]}, {bare[0][1]})"
        raise InputError(_FIELD, expected="a weight of every edge, or of none", got=got)
    graph = _sorted_graph(edges, directed=directed)
    components = nx.strongly_connected_components if directed else nx.connected_components
    # The first of equals is the one with the first node, in whatever order they come.
    largest = max(sorted(components(graph), key=min), key=len)
    if len(largest) == 1:
        expected = "nodes that reach each other"
        remedy = "Add links that lead back, or leave out graph.directed."
        raise InputError(_FIELD, expected=expected, got=f"{source}: no two that do", remedy=remedy)
    kept = {edge: weight for edge, weight in edges.items() if largest.issuperset(edge)}
    return _sorted_graph(kept, directed=directed)


def _lines(text: str, *, source: str) -> list[tuple[str, str, float | None, int]]:
    """Two names, a weight or None, and the number of every line."""
    found: list[tuple[str, str, float | None, int]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        match line.partition("#")[0].split():
            case []:
                pass
            case [first, second]:
                found.append((first, second, None, number))
            case [first, second, third] if (weight := _weight(third)) is not None:
                found.append((first, second, weight, number))
            case _:
                got = f"{source}, line {number}: {describe(line.strip())}"
                expected = "two node names a line, and a positive weight or nothing"
                raise InputError(_FIELD, expected=expected, got=got)
    return found


def _to_node(lines: Sequence[tuple[str, str, float | None, int]]) -> Callable[[str], Any]:
    """Return what makes a node of its name: an integer where all names are."""
    names = (name for a, b, *_ in lines for name in (a, b))
    return int if all(name.removeprefix("-").isdecimal() for name in names) else str


def _weight(text: str) -> float | None:
    """A positive number, or None."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0 < number < np.inf else None


def _sorted_graph(edges: Mapping[tuple[Any, Any], float | None], *, directed: bool) -> nx.Graph:
    graph = nx.DiGraph() if directed else nx.Graph()
    graph.add_nodes_from(sorted({node for edge in edges for node in edge}))
    for edge in sorted(edges):
        weight = edges[edge]
        graph.add_edge(*edge, **({} if weight is None else {"weight": weight}))
    return graph
