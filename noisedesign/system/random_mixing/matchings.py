"""Gossip in pairs: a random matching of the nodes averages at every step."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

import networkx as nx
import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base import settings
from noisedesign.base.checks import Array, InputError
from noisedesign.system.graph import mixing_matrix
from noisedesign.system.random_mixing.base import RandomMixing, laplacian

MAX_MATCHINGS = 10_000
"""Maximal matchings listed before giving up: their number grows exponentially with the graph, and
beyond this a distribution over all of them is not one that is written down."""

Matching = tuple[tuple[int, int], ...]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RandomMatchings(RandomMixing):
    """A matching is drawn at every step, and its pairs average: W = I - sum (e_i-e_j)(e_i-e_j)^T/2.

    Randomised gossip (Boyd, Ghosh, Prabhakar and Shah 2006) is :func:`pairwise_gossip`.

    Args:
        nodes: n.
        matchings: each a tuple of pairs of zero-based nodes that share none.
        probabilities: of each matching, nonnegative, summing to 1; default all the same.

    Raises:
        InputError: a pair of equal or unknown nodes, a node twice in one matching, probabilities
            that are negative or do not sum to 1, nodes that no sequence of matchings connects.
    """

    nodes: int
    matchings: tuple[Matching, ...]
    probabilities: Any = None

    def __post_init__(self) -> None:
        _checks.positive_int(self.nodes, field="nodes")
        expected = "a list of matchings, each a list of pairs of nodes"
        given = [
            tuple(
                tuple(_checks.listed(pair, field="matchings", expected=expected))
                for pair in _checks.listed(matching, field="matchings", expected=expected)
            )
            for matching in _checks.listed(self.matchings, field="matchings", expected=expected)
        ]
        object.__setattr__(self, "matchings", tuple(given))
        count = len(self.matchings)
        if count == 0:
            raise InputError("matchings", expected="at least one matching", got="none")
        for number, matching in enumerate(self.matchings):
            self._check_matching(matching, number=number)
        p: Array = np.full(count, 1 / count)
        if self.probabilities is not None:
            of_each = _checks.as_array(self.probabilities, field="probabilities", ndim=1)
            if of_each.size != count:
                raise InputError(
                    "probabilities",
                    expected=f"{count} values, one per matching",
                    got=f"{of_each.size}",
                )
            p = _checks.vector(self.probabilities, field="probabilities", length=count)
        if p.min() < 0 or abs(p.sum() - 1) > settings.STOCHASTIC_TOLERANCE:
            raise InputError(
                "probabilities",
                expected="nonnegative values that sum to 1",
                got=f"sum {p.sum():.15g}, least {p.min():.6g}",
            )
        object.__setattr__(self, "probabilities", p)
        union = nx.Graph()
        union.add_nodes_from(range(self.nodes))
        for matching, weight in zip(self.matchings, p, strict=True):
            union.add_edges_from(matching if weight > 0 else ())
        if not nx.is_connected(union):
            raise InputError(
                "matchings",
                expected="pairs that connect all nodes",
                got=f"{nx.number_connected_components(union)} components",
            )

    def _check_matching(self, matching: Matching, *, number: int) -> None:
        seen: set[int] = set()
        for pair in matching:
            for node in pair:
                _checks.positive_int(node, field="matchings", minimum=0)
                if node >= self.nodes or node in seen:
                    raise InputError(
                        "matchings",
                        expected=f"nodes below {self.nodes}, each once in a matching",
                        got=f"node {node} in matching {number}",
                    )
                seen.add(node)
            if len(pair) != 2:
                raise InputError("matchings", expected="pairs", got=f"{pair} in matching {number}")

    @cached_property
    def _ends(self) -> tuple[tuple[np.ndarray[Any, np.dtype[np.intp]], ...], ...]:
        """Heads and tails of every matching."""
        arrays = (np.array(m, dtype=np.intp).reshape(-1, 2) for m in self.matchings)
        return tuple((pairs[:, 0], pairs[:, 1]) for pairs in arrays)

    @cached_property
    def mean_laplacian(self) -> Array:
        weights = np.zeros((self.nodes, self.nodes))
        for (heads, tails), p in zip(self._ends, self.probabilities, strict=True):
            weights[heads, tails] += p / 2
            weights[tails, heads] += p / 2
        return laplacian(weights)

    def laplacian_square(self, gram: Array) -> Array:
        total = np.zeros((self.nodes, self.nodes))
        for (heads, tails), p in zip(self._ends, self.probabilities, strict=True):
            across = gram[heads] - gram[tails]
            moved = p / 4 * (across[:, heads] - across[:, tails])
            # Nodes of one matching differ, so no entry is addressed twice.
            total[np.ix_(heads, heads)] += moved
            total[np.ix_(tails, tails)] += moved
            total[np.ix_(heads, tails)] -= moved
            total[np.ix_(tails, heads)] -= moved
        return total

    def _sampled_laplacian(self, rng: np.random.Generator) -> Array:
        heads, tails = self._ends[rng.choice(len(self._ends), p=self.probabilities)]
        weights = np.zeros((self.nodes, self.nodes))
        weights[heads, tails] = weights[tails, heads] = 0.5
        return laplacian(weights)


def pairwise_gossip(graph: nx.Graph) -> RandomMatchings:
    """One edge of the graph, uniformly chosen, averages at every step.

    Nodes are numbered in the order of ``graph.nodes``.

    Raises:
        InputError: see :func:`noisedesign.system.graph.mixing_matrix`; a graph without edges.
    """
    pairs = _pairs(graph)
    return RandomMatchings(nodes=len(graph), matchings=tuple((pair,) for pair in pairs))


def maximal_matchings(graph: nx.Graph) -> RandomMatchings:
    """A uniformly chosen maximal matching of the graph (no edge can be added) at every step.

    They are listed, so the graph has to be small. Nodes are numbered in the order of
    ``graph.nodes``.

    Raises:
        InputError: see :func:`graph.mixing_matrix`; a graph without edges, or with more
            than ``MAX_MATCHINGS`` maximal matchings.
    """
    lines = nx.Graph()
    pairs = _pairs(graph)
    lines.add_nodes_from(pairs)
    lines.add_edges_from(
        (e, f) for i, e in enumerate(pairs) for f in pairs[:i] if not set(e) & set(f)
    )
    # Cliques of edges that share no node are matchings.
    found = [tuple(sorted(m)) for m in islice(nx.find_cliques(lines), MAX_MATCHINGS + 1)]
    if len(found) > MAX_MATCHINGS:
        raise InputError(
            "graph",
            expected=f"at most {MAX_MATCHINGS} maximal matchings",
            got="more",
            remedy="Use pairwise_gossip, or RandomMatchings with a few matchings of your own.",
        )
    return RandomMatchings(nodes=len(graph), matchings=tuple(sorted(found)))


def _pairs(graph: nx.Graph) -> list[tuple[int, int]]:
    linked = np.argwhere(np.triu(mixing_matrix(graph), 1))
    if len(linked) == 0:
        raise InputError("graph", expected="at least one edge", got="a single node")
    return [(int(i), int(j)) for i, j in linked]
