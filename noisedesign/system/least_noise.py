"""The mixing of a graph under which one step of optimal noise adds the least error.

The optimum of Whisper's problem is a convex function of W, so that W and the covariance R of the
noise have one optimum together. With X = R^-1 it is that of a semidefinite program,

    min tr P_1  over  S = [[P, (L W; I)], [(L W, I), X]] >= 0,  diag X <= tau,  diag P_2 <= c,

over weights w >= 0 of links or arcs with W_ii >= 0 and ||W - J||_2 <= s, L = I or the roots of
weights of nodes. The rows and columns of I and P_2 are left out where there are no caps c. A
primal-dual method (Nesterov and Todd 1998; Mehrotra 1992) eliminates P, X and the multiplier of (L
W; I) in closed form, and is left with a row a weight (docs/methods/mixing.md)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
import scipy.linalg

from noisedesign.base import memory
from noisedesign.base.checks import Array, InputError
from noisedesign.system.fastest_mixing import gap_of, longest_of, longest_step, path_to_fastest
from noisedesign.system.least_noise_bound import MixingProof, error_lower_bound, root_below
from noisedesign.system.links import (
    ArcWeights,
    EdgeWeights,
    Held,
    Links,
    doubly_stochastic,
    mixing_norm,
)
from noisedesign.system.rules import ruled_mixing

GAP = 9e-7  # of error and bound, relative, at which W is found: 1e-6 less rounding elsewhere
FRACTION = 0.9  # of the longest step, on which pairs of slack and multiplier stay of one size
AT_ONCE = 256  # pairs of nodes whose products are held at a time: as many as a cache holds
REFINED = 2  # times that what elimination left of Newton's equations is solved once more
SHORTEST = 0.01  # steps that are all shorter lead nowhere: rounding is in the way
WITHIN = 1e-4  # by which the first W is within the norm, of 1 - s; nearer, Newton's steps are short


@dataclass(frozen=True, kw_only=True, eq=False)
class LeastNoise:
    """W, shape (n, n), the error of the best R found for it, and the bound for every W allowed."""

    mixing: Array
    error: float = np.inf  # tr(L W R W^T L), squared noise at the stated budgets
    lower_bound: float = 0.0  # no W of the graph with ||W - J||_2 <= s has an R of less error
    proof: MixingProof | None = None  # of that bound


class Asked(NamedTuple):
    """A graph, and the limits on W and R."""

    graph: Links
    norm: float  # s, the largest ||W - J||_2 allowed
    budget: Array  # tau, shape (n,)
    cap: Array  # c, shape (n,), or (0,) where there is none
    reading: Array  # L, the error being tr(L W R W^T L), shape (n,), a diagonal

    def seen(self, change: Array) -> Array:
        """L times a change of W."""
        return np.asarray(self.reading[:, None] * change)

    def along(self, matrix: Array) -> Array:
        """l_e^T L A r_e, shape (m,)."""
        return self.graph.along(self.seen(matrix))


class Point(NamedTuple):
    """Weights, S, and multipliers; those of S are Y = [[diag(1, u), -B], [-B^T, diag v]]."""

    weights: Array  # w, shape (m,)
    slack: Array  # S, shape (q + n, q + n), q = n or with caps 2 n
    dual: Array  # Y
    distance: Array  # Y of the slacks of ||W - J||_2 <= s
    of_weights: Array  # x of w >= 0, shape (m,)
    of_nodes: Array  # z of W_ii >= 0, shape (n,), where self weights are what weights leave
    of_sums: Array  # lambda of sums of weights that are held at 1

    def moved(self, step: Point, primal: float, dual: float) -> Point:
        lengths = (primal, primal, dual, dual, dual, dual, dual)
        return Point(*(a + t * d for a, d, t in zip(self, step, lengths, strict=True)))


def _sym(a: Any) -> Array:
    return np.asarray((a + np.swapaxes(a, -1, -2)) / 2)


class _Step:
    """Newton's equations at a point: two solves of one factorisation."""

    def __init__(self, asked: Asked, here: Point) -> None:
        graph = asked.graph
        self.asked, self.here = asked, here
        n = graph.nodes
        self.rows = len(here.slack) - n
        self.norms = graph.slacks(gap_of(graph, here.weights), asked.norm)
        self.norms_inverse = _sym(np.linalg.inv(self.norms))
        self.kept = 1 - graph.at_nodes(here.weights)
        self.limited = np.r_[n : self.rows, self.rows : self.rows + n]  # of P_2 and of X
        self.room = np.append(asked.cap, asked.budget) - np.diagonal(here.slack)[self.limited]
        self.prices = np.diagonal(here.dual)[self.limited]
        slacks = np.concatenate([self.kept, here.weights, self.room, self.prices])
        if slacks.min() <= 0:
            raise np.linalg.LinAlgError("rounding has made a slack vanish")
        self._scale()
        self._factor()

    def _scale(self) -> None:
        """The scaling M with M Y M = S, and the frame in which its blocks are I, delta and I."""
        q, here = self.rows, self.here
        self.slack_root, self.dual_root = (_root(here.slack), _root(here.dual))
        _, values, turned = np.linalg.svd(self.dual_root.T @ self.slack_root)
        self.values, self.half = values, self.slack_root @ turned.T / np.sqrt(values)
        self.inverse_half = np.sqrt(values)[:, None] * turned @ np.linalg.inv(self.slack_root)
        # Of both blocks of rows by QR: their Gram matrices would square the condition.
        above, left = np.linalg.qr(self.half[:q].T)
        below, right = np.linalg.qr(self.half[q:].T)
        p, delta, qt = np.linalg.svd(above.T @ below)
        self.left, self.right = left.T @ p, right.T @ qt.T
        self.left_inverse, self.right_inverse = np.linalg.inv(self.left), np.linalg.inv(self.right)
        self.delta = np.append(delta, np.zeros(q - len(delta)))

    def _factor(self) -> None:
        graph, here, n, q = self.asked.graph, self.here, self.asked.graph.nodes, self.rows
        d, e = self.delta, self.delta[:n]
        near, near_e = (1 - d) * (1 + d), (1 - e) * (1 + e)
        product = np.multiply.outer(d, e)
        self.product, denominator = product, (1 - product) * (1 + product)
        a = self.left_inverse[:, :n] @ self.asked.seen(graph.left)
        b = self.right_inverse @ graph.right
        self.a, self.b = a, b
        matrix = np.zeros((a.shape[1],) * 2, order="F")
        pairs = np.triu_indices(n, 1)
        for first in range(0, len(pairs[0]), AT_ONCE):
            k, m = (part[first : first + AT_ONCE] for part in pairs)
            same, turned, p = a[k] * b[m], a[m] * b[k], product[k, m][:, None]
            for rows in ((same + turned) / np.sqrt(1 + p), (same - turned) / np.sqrt(1 - p)):
                matrix = scipy.linalg.blas.dsyrk(1.0, rows.T, beta=1.0, c=matrix, overwrite_c=1)
        rows = a[:n] * b * np.sqrt(2 / (1 + e * e))[:, None]
        matrix = scipy.linalg.blas.dsyrk(1.0, rows.T, beta=1.0, c=matrix, overwrite_c=1)
        matrix += np.triu(matrix, 1).T
        if q > n:
            matrix += 2 * (a[n:].T @ a[n:]) * (b.T @ b)
        matrix += graph.between_slacks(self.norms_inverse, here.distance)
        unsigned = graph.at_nodes_each
        matrix += (unsigned.T * (here.of_nodes / self.kept)) @ unsigned
        matrix[np.diag_indices(len(matrix))] += here.of_weights / here.weights
        # Limits on diag P_2 and diag X: their frame vectors, with q entries, of X the last are 0.
        self.at = np.concatenate([self.left[n:], np.pad(self.right, ((0, 0), (0, q - n)))])
        caps = len(self.at) - n
        outer = np.multiply.outer(d, d)
        weights = np.multiply.outer(near, near) / ((1 - outer) * (1 + outer))
        signed = self._pairs(self.at, weights)
        crossed = self._pairs(self.at, weights * outer)
        signed[:caps, caps:], signed[caps:, :caps] = -crossed[:caps, caps:], -crossed[caps:, :caps]
        signed[np.diag_indices(len(signed))] += self.room / self.prices
        # K E_i in the frame is (h h^T) times these, for caps and for budgets.
        of_caps = np.multiply.outer(near[:n], e) / denominator[:n]
        of_budgets = np.multiply.outer(e, near_e) / denominator[:n]
        self.mixed = np.empty((graph.size, len(self.at)))
        for i, h in enumerate(self.at):
            kernel = (of_caps if i < caps else of_budgets) * np.multiply.outer(h[:n], h[:n])
            inside = self.left_inverse[:n, :n].T @ kernel @ self.right_inverse
            self.mixed[:, i] = 2 * self.asked.along(inside)
        # Rows beyond the n-th, which caps alone have, are paired with none.
        beyond = (self.at[:caps, n:] @ a[n:]) * ((self.at[:caps, :n] * e) @ b)
        self.mixed[:, :caps] += 2 * beyond.T
        self.limits = scipy.linalg.cho_factor(signed, lower=True)
        matrix += self.mixed @ scipy.linalg.cho_solve(self.limits, self.mixed.T)
        if not np.isfinite(matrix).all() or np.diagonal(matrix).min() <= 0:
            raise np.linalg.LinAlgError("rounding has made a system indefinite")
        unit = 1 / np.sqrt(np.diagonal(matrix))
        factor = scipy.linalg.cho_factor(matrix * unit[:, None] * unit, lower=True)

        def solve(right: Array) -> Array:
            return np.asarray((unit * scipy.linalg.cho_solve(factor, (unit * right.T).T).T).T)

        self.solve = Held(solve, graph.held)

    @staticmethod
    def _pairs(vectors: Array, weights: Array) -> Array:
        """sum_kl weights_kl h_ik h_il h_jk h_jl of rows h_i, shape (rows, rows)."""
        rows = [np.sum((vectors @ (weights * np.outer(h, h))) * vectors, axis=1) for h in vectors]
        return np.stack(rows)

    def _kernel(self, right: Array) -> Array:
        """The D with D_kl + delta_k delta_l D_lk of that right side, shape (q, n)."""
        n, found = self.asked.graph.nodes, np.array(right)
        p = self.product[:n]
        found[:n] = (right[:n] - p * right[:n].T) / ((1 - p) * (1 + p))
        return found

    @property
    def complementarity(self) -> float:
        """The distance of the objective from the bound, once multipliers fit."""
        here = self.here
        return float(
            np.sum(here.slack * here.dual)
            + np.sum(self.norms * here.distance)
            + here.weights @ here.of_weights
            + self.kept @ here.of_nodes
            + self.room @ self.prices
        )

    @property
    def degree(self) -> int:
        n = self.asked.graph.nodes
        conic = len(self.here.slack) + 2 * n + len(self.kept)
        return conic + len(self.here.weights) + len(self.room)

    def towards(self, mu: float, ahead: Point | None = None) -> Point:
        """The change that leads to complementarity of mu to first order, or to second ``ahead``."""
        here, graph, q, n = self.here, self.asked.graph, self.rows, self.asked.graph.nodes
        scaled = np.diag(mu / self.values - self.values)  # in the frame in which S = Y
        y, x, z = mu * self.norms_inverse, mu / here.weights, mu / self.kept
        limit = mu / self.prices - self.room
        if ahead is not None:
            d_norms, d_kept = self._along(ahead.weights)
            a = self.inverse_half @ ahead.slack @ self.inverse_half.T
            both = a @ (self.half.T @ ahead.dual @ self.half)
            scaled -= (both + both.T) / np.add.outer(self.values, self.values)
            y = y - _sym(ahead.distance @ d_norms @ self.norms_inverse)
            x = x - ahead.of_weights * ahead.weights / here.weights
            z = z - ahead.of_nodes * d_kept / self.kept
            moved = np.diagonal(ahead.slack)[self.limited] * np.diagonal(ahead.dual)[self.limited]
            limit = limit + moved / self.prices
        found, sums = np.zeros(graph.size), here.of_sums
        dual, distance, of_weights, of_nodes = np.zeros_like(here.dual), y, x, z
        slack = _sym(self.half @ scaled @ self.half.T)
        for _ in range(1 + REFINED):
            off = slack[:q, q:].copy()
            off[:n] += self.asked.seen(graph.less(found))
            right = graph.along_slacks(distance) + of_weights - graph.at_nodes_each.T @ of_nodes
            right += graph.held.T @ sums - 2 * self.asked.along((here.dual + dual)[:n, q:])
            limited = np.diagonal(slack)[self.limited] + limit
            limited = limited - self.room / self.prices * np.diagonal(dual)[self.limited]
            missing = 1 - graph.held @ (here.weights + found)
            changes = self._solved(off, right, limited, missing)
            found, sums, dual = found + changes[0], sums + changes[1], dual + changes[2]
            slack = _sym(self.half @ (scaled - self.half.T @ dual @ self.half) @ self.half.T)
            d_norms, d_kept = self._along(found)
            distance = y - _sym(here.distance @ d_norms @ self.norms_inverse)
            of_weights = x - here.of_weights * found / here.weights
            of_nodes = z - here.of_nodes * d_kept / self.kept
        slack[:q, q:] = 0
        slack[:n, q:] = -self.asked.seen(graph.less(found))
        slack[q:, :q] = slack[:q, q:].T
        return Point(
            found,
            slack,
            dual,
            distance - here.distance,
            of_weights - here.of_weights,
            of_nodes - here.of_nodes,
            sums - here.of_sums,
        )

    def _solved(
        self, off: Array, right: Array, limited: Array, missing: Array
    ) -> tuple[Array, Array, Array]:
        """Changes of w, of lambda and of Y that remove what is left of Newton's equations."""
        graph, q, n = self.asked.graph, self.rows, self.asked.graph.nodes
        caps = len(self.room) - n
        reach = self.left_inverse[:, :n]
        inside = self.left_inverse @ off @ self.right_inverse.T
        kernel = self._kernel(inside)
        right = right - 2 * self.asked.along(reach.T @ kernel @ self.right_inverse)
        h = self.at[:, :n]
        turned = np.sum((self.at @ (kernel * self.delta[:n])) * h, axis=1)
        plain = np.sum((self.at @ (kernel * self.delta[:, None])) * h, axis=1)
        limited = limited - 2 * np.append(turned[:caps], plain[caps:])
        solved = scipy.linalg.cho_solve(self.limits, limited)
        found, sums = self.solve(right + self.mixed @ solved, missing)
        prices = scipy.linalg.cho_solve(self.limits, limited - self.mixed.T @ found)
        seen = self.asked.seen(graph.less(found))
        change = -reach @ seen @ self.right_inverse.T - inside
        change += ((self.at[:caps].T * prices[:caps]) @ h[:caps]) * self.delta[:n]
        change += ((self.at[caps:].T * prices[caps:]) @ h[caps:]) * self.delta[:, None]
        of_mixing = self.left_inverse.T @ self._kernel(change) @ self.right_inverse
        dual = np.zeros_like(self.here.dual)
        dual[:q, q:], dual[q:, :q] = -of_mixing, -of_mixing.T
        dual[self.limited, self.limited] = prices
        return found, sums, dual

    def _along(self, weights: Array) -> tuple[Array, Array]:
        """Change of the slacks of ||W - J||_2 <= s, and of diag(W)."""
        graph = self.asked.graph
        return graph.slacks(graph.less(weights)), -graph.at_nodes(weights)

    def lengths(self, step: Point) -> tuple[float, float]:
        """Longest step of weights and S, and of the multipliers."""
        here, graph = self.here, self.asked.graph
        d_norms, _ = self._along(step.weights)
        primal = [longest_step(self.slack_root, step.slack)]
        pairs = list(zip(self.norms, d_norms, strict=True))
        primal += [longest_step(_root(a), d) for a, d in pairs]
        primal += [longest_of(here.weights, step.weights)]
        primal += [longest_of(self.kept, -graph.at_nodes(step.weights))]
        primal += [longest_of(self.room, -np.diagonal(step.slack)[self.limited])]
        dual = [longest_step(self.dual_root, step.dual)]
        pairs = list(zip(here.distance, step.distance, strict=True))
        dual += [longest_step(_root(a), d) for a, d in pairs]
        dual += [longest_of(here.of_weights, step.of_weights)]
        dual += [longest_of(here.of_nodes, step.of_nodes)]
        return min(primal), min(dual)

    def next(self) -> Point:
        mu = self.complementarity / self.degree
        predicted = self.towards(0.0)
        primal, dual = (min(1.0, length) for length in self.lengths(predicted))
        d_norms, d_kept = self._along(predicted.weights)
        there = self.here.moved(predicted, primal, dual)
        room = self.room - primal * np.diagonal(predicted.slack)[self.limited]
        left = float(
            np.sum(there.slack * there.dual)
            + np.sum((self.norms + primal * d_norms) * there.distance)
            + there.weights @ there.of_weights
            + (self.kept + primal * d_kept) @ there.of_nodes
            + room @ np.diagonal(there.dual)[self.limited]
        )
        aim = min(1.0, max(left / self.degree / mu, 0.0) ** 2) * mu
        for level, ahead in ((aim, predicted), (mu, None)):
            step = self.towards(level, ahead)
            primal, dual = (min(1.0, FRACTION * length) for length in self.lengths(step))
            if min(primal, dual) > SHORTEST:  # else back to the middle of the path
                break
        self.length = max(primal, dual)
        return self.here.moved(step, primal, dual)


def _root(a: Array) -> Array:
    return np.asarray(np.linalg.cholesky(a), dtype=np.float64)


def _first(asked: Asked, weights: Array, mu: float = 0.3) -> Point:
    """A point near the central path, but for its weights, which are strictly feasible."""
    graph, n = asked.graph, asked.graph.nodes
    mixing = asked.seen(graph.at_zero - graph.less(weights))
    capped = len(asked.cap) > 0
    v, u, r = mu / asked.budget, mu / asked.cap, np.empty(0)
    for _ in range(300):
        gram = mixing.T @ mixing + (np.diag(u) if capped else 0)
        root = np.sqrt(v)
        values, basis = np.linalg.eigh(root[:, None] * gram * root)
        t = 2 / (mu + np.sqrt(mu * mu + 4 * np.maximum(values, 0)))
        r = (basis * t) @ basis.T * root[:, None] * root
        spent = (np.sum(basis**2 / t, axis=1) / v + mu / v) / asked.budget
        grown = (np.diagonal(r) + 2 * mu / u) / asked.cap if capped else np.ones(0)
        if max(abs(np.append(spent, grown) - 1)) < 1e-2:
            break
        v, u = v * np.sqrt(spent), u * np.sqrt(grown)
    b = np.concatenate([mixing @ r, u[:, None] * r]) if capped else mixing @ r
    dual = np.block([[np.diag(np.append(np.ones(n), u)), -b], [-b.T, np.diag(v)]])
    norms = graph.slacks(gap_of(graph, weights), asked.norm)
    return Point(
        weights,
        _sym(mu * np.linalg.inv(dual)),
        dual,
        _sym(mu * np.linalg.inv(norms)),
        mu / weights,
        mu / (1 - graph.at_nodes(weights)),
        np.zeros(len(graph.held)),
    )


def path_to_least_noise(asked: Asked, weights: Array) -> Iterator[Point]:
    """Points ever nearer to the optimum, from weights strictly within, until rounding stops it."""
    here = _first(asked, weights)
    for _ in range(100):  # thrice what graphs of up to a hundred and fifty nodes have taken
        yield here
        try:
            step = _Step(asked, here)
            here = step.next()
        except np.linalg.LinAlgError:
            return
        if step.length < SHORTEST:
            return


def strictly_within(links: Links, plain: Array, norm: float) -> Array | None:
    """Weights w > 0 with W_ii > 0 and ||W - J||_2 < s; None where there are none but the plain W
    has that norm, and InputError where no W is so fast."""
    # Six arrays of m x m doubles are held at once.
    memory.require(lambda m: 6 * 8 * m * m, links.size, field="graph", of="edges")
    least = slowest = mixing_norm(plain)
    for point in path_to_fastest(links, links.of(plain)) if len(plain) > 1 else ():
        found = mixing_norm(links.mixing(point.weights))
        if found < norm - WITHIN * (1 - norm):
            return point.weights
        least = min(least, found)
    if norm < slowest - WITHIN:
        expected = f"at least that of the fastest mixing, {least:.6g}"
        raise InputError("mixing_rate", expected=expected, got=f"{norm:.6g}")
    return None


def proof_of(asked: Asked, point: Point) -> MixingProof:
    """Multipliers of a bound for every W, from a point."""
    n, q = asked.graph.nodes, len(point.slack) - asked.graph.nodes
    prices = np.diagonal(point.dual)
    roots = np.sqrt(prices)
    z, columns = asked.graph.price(point.distance), np.zeros(0)
    if len(point.of_sums):
        rows, columns = np.split(np.append(point.of_sums, 0.0) / 2, 2)
    else:
        gain = -asked.reading * np.diagonal(point.dual[:n, q:])
        rows = (gain - np.diagonal(z) - point.of_nodes / 2) / 2
    return MixingProof(
        norm=asked.norm,
        budget=prices[q:],
        cap=prices[n:q],
        polar=-point.dual[:q, q:] / roots[q:] / roots[:q, None],
        distance=z,
        rows=rows,
        columns=columns,
    )


def least_noise(
    graph: nx.Graph,
    *,
    budget: Array,
    cap: Array | None = None,
    norm: float | None = None,
    weights: Array | None = None,
    symmetric: bool = True,
) -> LeastNoise:
    """W and R of least error after one step, weighted by node, to 1e-6 or as far as rounding lets;
    W is symmetric on an undirected graph, or doubly stochastic on the arcs of either kind."""
    plain, links = plain_links(graph, symmetric=symmetric)
    norm = mixing_norm(plain) if norm is None else norm
    reading = np.ones(len(plain)) if weights is None else root_below(weights)
    asked = Asked(links, norm, budget, np.zeros(0) if cap is None else cap, reading)
    start = strictly_within(links, plain, norm)
    if start is None:
        return LeastNoise(mixing=plain)
    best = LeastNoise(mixing=plain)
    for point in path_to_least_noise(asked, start):
        mixing = links.mixing(point.weights)
        precision = point.slack[-len(plain) :, -len(plain) :]
        error = float(np.sum(asked.seen(mixing) @ np.linalg.inv(precision) * asked.seen(mixing)))
        if cap is None:  # a budget left over is less noise
            error *= float((np.diagonal(precision) / budget).max())
        if error < best.error and mixing_norm(mixing) <= norm:
            best = replace(best, mixing=mixing, error=error)
        proof = proof_of(asked, point)
        bound = error_lower_bound(plain, budget=budget, cap=cap, proof=proof, weights=weights)
        if bound > best.lower_bound:
            best = replace(best, lower_bound=bound, proof=proof)
        if best.error <= (1 + GAP) * best.lower_bound:
            break
    return best


def plain_links(graph: nx.Graph, *, symmetric: bool = True) -> tuple[Array, Links]:
    """The W of a graph that W is chosen beside, Metropolis-Hastings or balanced, and its links."""
    if symmetric:
        plain = ruled_mixing(graph)
        return plain, EdgeWeights(plain)
    plain = doubly_stochastic(graph if graph.is_directed() else graph.to_directed())
    return plain, ArcWeights(plain)
