"""Mixing that is drawn afresh at every step: nodes that drop out, edges that fail, gossip in pairs.

Every W is I - L with L the Laplacian of random edge weights, and only E[W^T G W] enters a design.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

import networkx as nx
import numpy as np

from noisedesign.base import checks as _checks, linalg as _linalg, settings
from noisedesign.base.checks import Array, InputError
from noisedesign.base.shown import Shown
from noisedesign.system.graph import check_mixing, mixing_matrix
from noisedesign.system.rules import UNSAID, weigher

ALIKE = 'nx.set_edge_attributes(graph, 1, "weight")'
MAX_MATCHINGS = 10_000  # maximal matchings listed; their number is exponential in the graph

Matching = tuple[tuple[int, int], ...]


class RandomMixing(Shown, ABC):
    """A distribution of symmetric, doubly stochastic mixing matrices W, one draw a step.

    Every one is W = I - L, with L the Laplacian of random edge weights.

    Examples:
        >>> import numpy as np
        >>> import noisedesign as nd
        >>> random = nd.graphs.EdgeDropout(mixing=np.full((2, 2), 0.5), probability=0.5)
        >>> print(isinstance(random, nd.graphs.RandomMixing), random.expected(np.eye(2)).trace())
        True 1.5
    """

    @property
    @abstractmethod
    def mean_laplacian(self) -> Array:
        """E[L], shape (n, n)."""

    def _laplacian_square(self, gram: Array) -> Array:
        """E[L G L], shape (n, n), of the random Laplacian L."""
        raise NotImplementedError

    def _sampled_laplacian(self, rng: np.random.Generator) -> Array:
        """One draw of L, shape (n, n)."""
        raise NotImplementedError

    @property
    def outcomes(self) -> int:
        """Number of draws told apart one by one; 0 where expectations are in closed form."""
        return 0

    @property
    def mean(self) -> Array:
        """E[W], shape (n, n)."""
        return np.asarray(np.eye(len(self.mean_laplacian)) - self.mean_laplacian)

    def expected(self, gram: Any) -> Array:
        """E[W^T G W], exact. With G = I it is the H of one step.

        Args:
            gram: G, shape (n, n), symmetric.

        Returns:
            The expectation, shape (n, n), symmetric.

        Raises:
            InputError: G is not a finite symmetric float64 matrix of n nodes.
        """
        g = _checks.symmetric_matrix(gram, field="gram", tolerance=settings.SYMMETRY_TOLERANCE)
        if g.shape != self.mean_laplacian.shape:
            expected = f"shape {self.mean_laplacian.shape}"
            raise InputError("gram", expected=expected, got=f"{g.shape}")
        # The symmetric part of 2 E[L] G is E[L] G + G E[L].
        return _linalg.symmetrized(g - 2 * self.mean_laplacian @ g + self._laplacian_square(g))

    def sample(self, rng: np.random.Generator) -> Array:
        """One draw of W.

        Args:
            rng: a generator of NumPy.

        Returns:
            W, shape (n, n), symmetric and doubly stochastic.

        Raises:
            InputError: rng is no numpy Generator.
        """
        if not isinstance(rng, np.random.Generator):
            raise InputError("rng", expected="a numpy Generator", got=_checks.describe(rng))
        drawn = self._sampled_laplacian(rng)
        return np.asarray(np.eye(len(drawn)) - drawn)


def laplacian(weights: Array) -> Array:
    """diag(A 1) - A for edge weights A, shape (n, n), zero on the diagonal."""
    return np.asarray(np.diag(weights.sum(axis=1)) - weights)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class NodeDropout(RandomMixing):
    """Every node is out of a step with its own probability, independently of all others.

    A node that is out keeps its model, and its neighbours put the weight it had on themselves.

    Args:
        mixing: W with everyone in, shape (n, n), symmetric, doubly stochastic, connected.
        probability: p, scalar or shape (n,), in [0, 1).

    Raises:
        InputError: see :func:`noisedesign.system.graph.check_mixing`; W is not symmetric; a
            probability outside [0, 1).

    Examples:
        >>> import numpy as np
        >>> import noisedesign as nd
        >>> nd.graphs.NodeDropout(mixing=np.full((2, 2), 0.5), probability=0.5).mean.tolist()
        [[0.875, 0.125], [0.125, 0.875]]
    """

    mixing: Any
    probability: Any

    def __post_init__(self) -> None:
        mixing = _symmetric_mixing(self.mixing)
        object.__setattr__(self, "mixing", mixing)
        p = _checks.vector(self.probability, field="probability", length=len(mixing))
        _check_probabilities(p)
        object.__setattr__(self, "probability", p)

    @cached_property
    def _mean_weights(self) -> Array:
        present = 1 - self.probability
        return np.asarray(_edge_weights(self.mixing) * present[:, None] * present)

    @cached_property
    def mean_laplacian(self) -> Array:
        """E[L], shape (n, n)."""
        return laplacian(self._mean_weights)

    def _laplacian_square(self, gram: Array) -> Array:
        # Relative to independent edges, two edges that share node k alone are 1/q_k times as
        # likely to be up together, and an edge (i, j) with itself 1/(q_i q_j) times. The sum over
        # stars counts that edge at both ends: (1/q_i - 1) + (1/q_j - 1), which leaves the product.
        excess = 1 / (1 - self.probability) - 1
        return np.asarray(
            self.mean_laplacian @ gram @ self.mean_laplacian
            + _stars(self._mean_weights, gram, excess)
            + _edges(np.square(self._mean_weights) * excess[:, None] * excess, gram)
        )

    def _sampled_laplacian(self, rng: np.random.Generator) -> Array:
        present = rng.random(len(self.mixing)) >= self.probability
        return laplacian(_edge_weights(self.mixing) * present[:, None] * present)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class EdgeDropout(RandomMixing):
    """Every edge fails in a step with the same probability, independently of all others.

    The weight of a failed edge returns to the diagonal at both ends.

    Args:
        mixing: W with all edges up, shape (n, n), symmetric, doubly stochastic, connected.
        probability: p, in [0, 1).

    Raises:
        InputError: see :func:`noisedesign.system.graph.check_mixing`; W is not symmetric; a
            probability outside [0, 1).

    Examples:
        >>> import numpy as np
        >>> import noisedesign as nd
        >>> nd.graphs.EdgeDropout(mixing=np.full((2, 2), 0.5), probability=0.5).mean.tolist()
        [[0.75, 0.25], [0.25, 0.75]]
    """

    mixing: Any
    probability: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "mixing", _symmetric_mixing(self.mixing))
        p = _checks.real(self.probability, field="probability")
        _check_probabilities(np.array([p]))

    @cached_property
    def mean_laplacian(self) -> Array:
        """E[L], shape (n, n)."""
        return (1 - self.probability) * laplacian(_edge_weights(self.mixing))

    def _laplacian_square(self, gram: Array) -> Array:
        variance = self.probability * (1 - self.probability)
        own = _edges(variance * np.square(_edge_weights(self.mixing)), gram)
        return np.asarray(self.mean_laplacian @ gram @ self.mean_laplacian + own)

    def _sampled_laplacian(self, rng: np.random.Generator) -> Array:
        n = len(self.mixing)
        up = np.triu(rng.random((n, n)) >= self.probability, 1)
        return laplacian(_edge_weights(self.mixing) * (up | up.T))


def _symmetric_mixing(mixing: Any) -> Array:
    w = check_mixing(mixing, stochastic="both")
    return _checks.symmetric_matrix(w, field="mixing", tolerance=settings.SYMMETRY_TOLERANCE)


def _check_probabilities(p: Iterable[float]) -> None:
    for index, value in enumerate(p):
        if not 0 <= value < 1:
            expected = "probabilities in [0, 1)"
            raise InputError("probability", expected=expected, got=f"{value:g} at index {index}")


def _edge_weights(mixing: Array) -> Array:
    """W without its diagonal, exactly symmetric."""
    weights = _linalg.symmetrized(mixing)
    np.fill_diagonal(weights, 0.0)
    return weights


def _edges(weights: Array, gram: Array) -> Array:
    """Sum over edges e of c_e (b_e^T G b_e) b_e b_e^T, b_e = e_i - e_j, ``weights`` holding c."""
    diagonal = np.diagonal(gram)
    return laplacian(weights * (np.add.outer(diagonal, diagonal) - 2 * gram))


def _stars(weights: Array, gram: Array, excess: Array) -> Array:
    """Sum over nodes k of r_k L_k G L_k, L_k the Laplacian of the edges at k, r = excess."""
    # Entries v_kj v_kl (G_kk - G_kl - G_jk + G_jl) are at (j, l), and rows sum to zero.
    diagonal = np.diagonal(gram)
    scaled = excess[:, None] * weights
    cross = scaled.T @ (weights * gram)
    far = (
        (weights.T * (excess * diagonal)) @ weights - cross - cross.T + gram * (scaled.T @ weights)
    )
    sums = weights @ gram
    degrees = weights.sum(axis=1)
    centre = degrees * diagonal - np.diagonal(sums)
    near = scaled * (centre[:, None] - degrees[:, None] * gram + sums)
    return np.asarray(far - near - near.T + np.diag(near.sum(axis=1)))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RandomMatchings(RandomMixing):
    """A matching is drawn at every step, and its pairs average: W = I - sum (e_i-e_j)(e_i-e_j)^T/2.

    Randomised gossip (Boyd, Ghosh, Prabhakar and Shah 2006) is :func:`pairwise_gossip`.

    Args:
        nodes: the number n of nodes.
        matchings: each a tuple of pairs of zero-based nodes that share none.
        probabilities: of each matching, nonnegative, summing to 1; default all the same.

    Raises:
        InputError: a pair of equal or unknown nodes, a node twice in one matching, probabilities
            that are negative or do not sum to 1, nodes that no sequence of matchings connects.

    Examples:
        >>> import noisedesign as nd
        >>> nd.graphs.RandomMatchings(nodes=3, matchings=[[(0, 1)], [(1, 2)]]).mean.tolist()
        [[0.75, 0.25, 0.0], [0.25, 0.5, 0.25], [0.0, 0.25, 0.75]]
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
        field, p = "probabilities", np.full(count, 1 / count)
        if self.probabilities is not None:
            size = _checks.as_array(self.probabilities, field=field, ndim=1).size
            if size != count:
                raise InputError(field, expected=f"{count} values, one per matching", got=f"{size}")
            p = _checks.vector(self.probabilities, field=field, length=count)
        if p.min() < 0 or abs(p.sum() - 1) > settings.STOCHASTIC_TOLERANCE:
            got = f"sum {p.sum():.15g}, least {p.min():.6g}"
            raise InputError(field, expected="nonnegative values that sum to 1", got=got)
        object.__setattr__(self, "probabilities", p)
        union = nx.Graph()
        union.add_nodes_from(range(self.nodes))
        for matching, weight in zip(self.matchings, p, strict=True):
            union.add_edges_from(matching if weight > 0 else ())
        if not nx.is_connected(union):
            got = f"{nx.number_connected_components(union)} components"
            raise InputError("matchings", expected="pairs that connect all nodes", got=got)

    def _check_matching(self, matching: Matching, *, number: int) -> None:
        seen: set[int] = set()
        for pair in matching:
            for node in pair:
                _checks.positive_int(node, field="matchings", minimum=0)
                if node >= self.nodes or node in seen:
                    expected = f"nodes below {self.nodes}, each once in a matching"
                    got = f"node {node} in matching {number}"
                    raise InputError("matchings", expected=expected, got=got)
                seen.add(node)
            if len(pair) != 2:
                raise InputError("matchings", expected="pairs", got=f"{pair} in matching {number}")

    @cached_property
    def _ends(self) -> tuple[tuple[np.ndarray[Any, np.dtype[np.intp]], ...], ...]:
        arrays = (np.array(m, dtype=np.intp).reshape(-1, 2) for m in self.matchings)
        return tuple((pairs[:, 0], pairs[:, 1]) for pairs in arrays)

    @property
    def outcomes(self) -> int:
        return len(self.matchings)

    @cached_property
    def mean_laplacian(self) -> Array:
        """E[L], shape (n, n)."""
        weights = np.zeros((self.nodes, self.nodes))
        for (heads, tails), p in zip(self._ends, self.probabilities, strict=True):
            weights[heads, tails] += p / 2
            weights[tails, heads] += p / 2
        return laplacian(weights)

    def _laplacian_square(self, gram: Array) -> Array:
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

    Args:
        graph: connected and simple; nodes are numbered in the order of ``graph.nodes``.

    Returns:
        The distribution, of one matching for each edge.

    Raises:
        InputError: see :func:`noisedesign.mixing_matrix`; a graph without edges.

    Examples:
        >>> import noisedesign as nd
        >>> nd.graphs.pairwise_gossip(nd.build_graph("path", nodes=3)).matchings
        (((0, 1),), ((1, 2),))
    """
    pairs = _pairs(graph)
    return RandomMatchings(nodes=len(graph), matchings=tuple((pair,) for pair in pairs))


def maximal_matchings(graph: nx.Graph) -> RandomMatchings:
    """A uniformly chosen maximal matching of the graph (no edge can be added) at every step.

    Args:
        graph: connected, simple and small, as all are listed; nodes are numbered in the order of
            ``graph.nodes``.

    Returns:
        The distribution.

    Raises:
        InputError: see :func:`noisedesign.mixing_matrix`; a graph without edges, or with more
            than ``MAX_MATCHINGS`` maximal matchings.

    Examples:
        >>> import noisedesign as nd
        >>> nd.graphs.maximal_matchings(nd.build_graph("path", nodes=4)).matchings
        (((0, 1), (2, 3)), ((1, 2),))
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
        expected = f"at most {MAX_MATCHINGS} maximal matchings"
        remedy = "Use pairwise_gossip, or RandomMatchings with a few matchings of your own."
        raise InputError("graph", expected=expected, got="more", remedy=remedy)
    return RandomMatchings(nodes=len(graph), matchings=tuple(sorted(found)))


def _pairs(graph: nx.Graph) -> list[tuple[int, int]]:
    if isinstance(graph, nx.Graph):
        weigher(graph, UNSAID, how=f"matchings are of links alone, as after {ALIKE}")
    linked = np.argwhere(np.triu(mixing_matrix(graph, weight=None), 1))
    if len(linked) == 0:
        raise InputError("graph", expected="at least one edge", got="a single node")
    return [(int(i), int(j)) for i, j in linked]
