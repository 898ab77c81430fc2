"""Weights of the links of a graph, as the methods that choose W see them.

W = W_0 - sum_e w_e l_e r_e^T is linear in weights w, and each weight changes it by rank one. Of an
undirected graph W is symmetric, W_0 = I and l_e = r_e = e_i - e_j; of arcs, one way or both, the
self weights are weights too, W_0 = 0, l_e = -e_i, r_e = e_j, and rows and columns have to sum to 1.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import networkx as nx
import numpy as np
import scipy.linalg

from noisedesign.base import settings
from noisedesign.base.checks import Array, InputError
from noisedesign.system.rules import UNSAID, adjacency

SIGNS = np.array([1.0, -1.0])[:, None, None]  # of J - W in the two slacks of s I -+ (W - J)
SCALINGS = 100_000  # rounds of Sinkhorn and Knopp: digraphs of hundreds of nodes take hundreds


class EdgeWeights:
    """The links of an undirected graph: W is symmetric, and W_ii what they leave."""

    def __init__(self, mixing: Array) -> None:
        self.nodes = len(mixing)
        self.edges = np.argwhere(np.triu(mixing, 1) > 0)
        self.size = len(self.edges)
        self.at_zero = np.eye(self.nodes)
        self.held = np.zeros((0, self.size))  # rows of sums of weights that have to be 1

    @cached_property
    def incidence(self) -> Array:
        """b_e as columns, shape (n, m)."""
        columns = np.arange(self.size)
        result = np.zeros((self.nodes, self.size))
        result[self.edges[:, 0], columns], result[self.edges[:, 1], columns] = 1, -1
        return result

    @property
    def left(self) -> Array:
        """l_e as columns, shape (n, m)."""
        return self.incidence

    @property
    def right(self) -> Array:
        """r_e as columns, shape (n, m)."""
        return self.incidence

    @property
    def at_nodes_each(self) -> Array:
        """The shares of self weights that each weight takes, shape (n, m)."""
        return np.abs(self.incidence)

    def of(self, mixing: Array) -> Array:
        """The weights of a W, shape (m,)."""
        return np.asarray(mixing[tuple(self.edges.T)])

    def mixing(self, w: Array) -> Array:
        """W >= 0, exactly symmetric and within a rounding of W 1 = 1."""
        i, j = self.edges.T
        mixing = np.zeros((self.nodes, self.nodes))
        mixing[i, j] = mixing[j, i] = np.maximum(w, 0.0)
        mixing /= max(1.0, float(mixing.sum(axis=1).max()))
        np.fill_diagonal(mixing, np.maximum(1 - mixing.sum(axis=1), 0.0))
        return mixing

    def less(self, w: Array) -> Array:
        """W_0 - W = sum_e w_e b_e b_e^T, shape (n, n)."""
        i, j = self.edges.T
        result = np.zeros((self.nodes, self.nodes))
        result[i, j] = result[j, i] = -w
        np.fill_diagonal(result, self.at_nodes(w))
        return result

    def at_nodes(self, w: Array) -> Array:
        """Sums over the edges of every node, shape (n,): 1 less these are self weights."""
        ends = self.edges.ravel()
        return np.asarray(np.bincount(ends, np.repeat(w, 2), self.nodes), dtype=np.float64)

    def along(self, matrix: Array) -> Array:
        """l_e^T A r_e, shape (m,), of the symmetric part of A."""
        i, j = self.edges.T
        return np.asarray(matrix[i, i] + matrix[j, j] - matrix[i, j] - matrix[j, i])

    def between(self, matrix: Array) -> Array:
        """b_e^T A b_f, shape (m, m)."""
        i, j = self.edges.T
        rows = matrix[i] - matrix[j]
        return np.asarray(rows[:, i] - rows[:, j])

    def slacks(self, gap: Array, norm: float = 0.0) -> Array:
        """s I + A and s I - A for A = J - W, (2, n, n): semidefinite where ||A||_2 <= s."""
        return np.asarray(norm * np.eye(self.nodes) + SIGNS * gap)

    def along_slacks(self, y: Array) -> Array:
        """<Y, d slacks / dw_e>, shape (m,)."""
        return self.along(y[0] - y[1])

    def between_slacks(self, a: Array, y: Array) -> Array:
        """tr(A F_e Y F_f) of the changes F of the slacks, summed over them, shape (m, m)."""
        first, second = (self.between(p) * self.between(q) for p, q in zip(a, y, strict=True))
        return np.asarray(first + second)

    def price(self, y: Array) -> Array:
        """Z with <Y, slacks> = s tr Y + 2 <Z, W - J>, shape (n, n)."""
        return np.asarray(y[1] - y[0]) / 2


class ArcWeights:
    """The arcs and self weights of a digraph: W is doubly stochastic and need not be symmetric."""

    def __init__(self, mixing: Array) -> None:
        self.nodes = n = len(mixing)
        self.edges = np.argwhere((mixing > 0) | np.eye(n, dtype=bool))  # (i, j): from j to i
        self.size = len(self.edges)
        self.at_zero = np.zeros((n, n))
        sums = np.concatenate([-self.left, self.right])
        self.held = sums[:-1]  # the sum of the last column follows

    @cached_property
    def left(self) -> Array:
        """l_e as columns, shape (n, m)."""
        return -np.eye(self.nodes)[:, self.edges[:, 0]]

    @cached_property
    def right(self) -> Array:
        """r_e as columns, shape (n, m)."""
        return np.eye(self.nodes)[:, self.edges[:, 1]]

    @property
    def at_nodes_each(self) -> Array:
        """No shares, as self weights are weights, shape (0, m)."""
        return np.zeros((0, self.size))

    def of(self, mixing: Array) -> Array:
        """The weights of a W, shape (m,)."""
        return np.asarray(mixing[tuple(self.edges.T)])

    def mixing(self, w: Array) -> Array:
        """W >= 0 within roundings of W 1 = 1 and 1^T W = 1^T."""
        return balanced(-self.less(np.maximum(w, 0.0)))

    def less(self, w: Array) -> Array:
        """W_0 - W, shape (n, n)."""
        result = np.zeros((self.nodes, self.nodes))
        result[tuple(self.edges.T)] = -w
        return result

    def at_nodes(self, w: Array) -> Array:
        """No sums, as self weights are weights, shape (0,)."""
        return np.zeros(0)

    def along(self, matrix: Array) -> Array:
        """l_e^T A r_e, shape (m,)."""
        return np.asarray(-matrix[tuple(self.edges.T)])

    def slacks(self, gap: Array, norm: float = 0.0) -> Array:
        """[[s I, -A], [-A^T, s I]], A = J - W, (1, 2 n, 2 n): semidefinite where ||A||_2 <= s."""
        own = norm * np.eye(self.nodes)
        return np.block([[own, -gap], [-gap.T, own]])[None]

    def along_slacks(self, y: Array) -> Array:
        """<Y, d slacks / dw_e>, shape (m,)."""
        n = self.nodes
        return -self.along(y[0, :n, n:] + y[0, n:, :n].T)

    def between_slacks(self, a: Array, y: Array) -> Array:
        """tr(A F_e Y F_f) of the changes F of the slacks, shape (m, m)."""
        i, j = self.edges.T
        j = j + self.nodes

        def at(matrix: Array, rows: Any, columns: Any) -> Any:
            return matrix[0][np.ix_(rows, columns)]

        found = at(a, i, j) * at(y, j, i) + at(a, i, i) * at(y, j, j)
        return np.asarray(found + at(a, j, j) * at(y, i, i) + at(a, j, i) * at(y, i, j))

    def price(self, y: Array) -> Array:
        """Z with <Y, slacks> = s tr Y + 2 <Z, W - J>, shape (n, n)."""
        n = self.nodes
        return np.asarray(y[0, :n, n:] + y[0, n:, :n].T) / 2


Links = EdgeWeights | ArcWeights


class Held:
    """Solves that keep sums of weights at 1: of M x - E^T lambda = r and E x = d."""

    def __init__(self, solve: Callable[[Array], Array], held: Array) -> None:
        self._solve, self._held = solve, held
        if len(held):
            self._across = solve(held.T)
            self._factor = scipy.linalg.cho_factor(held @ self._across, lower=True)

    def __call__(self, right: Array, missing: Array) -> tuple[Array, Array]:
        """x and lambda."""
        found = self._solve(right)
        if not len(self._held):
            return found, missing
        prices = scipy.linalg.cho_solve(self._factor, missing - self._held @ found)
        return found + self._across @ prices, prices


def balanced(mixing: Array) -> Array:
    """D_1 A D_2 with rows and columns that sum to 1, of A >= 0 with a positive diagonal whose graph
    is strongly connected: it exists, as every arc is on a cycle (Sinkhorn and Knopp 1967)."""
    found = np.array(mixing)
    for _ in range(SCALINGS):
        found /= found.sum(axis=1, keepdims=True)
        columns = found.sum(axis=0)
        if np.abs(columns - 1).max() <= 4 * settings.EPS:
            break
        found /= columns
    return found


def doubly_stochastic(digraph: nx.DiGraph, *, weight: str | None = UNSAID) -> Array:
    """The doubly stochastic W of most entropy on the arcs of a digraph: A + I, balanced."""
    found = balanced(adjacency(digraph, directed=True, weight=weight).T + np.eye(len(digraph)))
    if not np.abs(found.sum(axis=1) - 1).max() <= settings.STOCHASTIC_TOLERANCE:
        expected = f"a digraph whose W is balanced in {SCALINGS} rounds"
        remedy = "Give W itself in the place of the graph."
        raise InputError("graph", expected=expected, got="another", remedy=remedy)
    return found


def mixing_norm(mixing: Array) -> float:
    """||W - J||_2, not squared, shape (n, n)."""
    off = mixing - 1 / len(mixing)
    if (mixing == mixing.T).all():
        return float(np.abs(np.linalg.eigvalsh(off)).max())
    return float(np.linalg.norm(off, 2))


def stochastic_on(links: Array, mixing: Array, *, symmetric: bool = True) -> bool:
    """Whether W is nonnegative and doubly stochastic, with the links of another W, and symmetric
    where that is asked for."""
    if mixing.shape != links.shape or not np.isfinite(mixing).all():
        return False
    off = ~np.eye(len(links), dtype=bool)
    sums = np.concatenate([mixing.sum(axis=0), mixing.sum(axis=1)])
    return bool(
        (not symmetric or np.array_equal(mixing, mixing.T))
        and mixing.min() >= 0
        and np.array_equal(mixing[off] > 0, links[off] > 0)
        and np.abs(sums - 1).max() <= settings.STOCHASTIC_TOLERANCE
    )
