"""The trace of (A^T A)^(1/2) from few vectors, each known on either side.

k steps of Golub and Kahan (1965) from q give a bidiagonal U, and for f(x) = sqrt(x) the rule of its
singular values is known to lie below or above q^T f(A^T A) q: above for the k x k part (Gauss),
below for the k x (k + 1) part, which has 0 among its nodes (Gauss and Radau), because derivatives
of the square root change their signs by turns (Golub and Meurant 1994, "Matrices, moments and
quadrature").

The same steps come near (A^T A)^(1/2) q itself, within what Frommer, Kahl, Lippert and Rittich
(2013, "2-norm error bounds and estimates for Lanczos approximations to linear systems and rational
matrix functions") find in them: with T = U^T U of k steps, of eigenvalues x_i and eigenvectors s_i,
the rest is f(A^T A) q' of the next vector q', where f(y) is the size of the sum over i of
b s_i1 s_ik / (sqrt(x_i) + sqrt(y)) and b is what is beside T. f^2 is decreasing, its derivatives
change signs by turns, so that Radau's rule bounds its mean, and steps from q' are read off those
that were taken from q.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh_tridiagonal

from noisedesign.base import settings
from noisedesign.base.checks import Array

Product = Callable[[Array], Array]

STEPS_AT_ONCE = 32
"""After which it is looked how far apart both rules are."""

MOST_STEPS = 160
MOST_OF_MANY = 240
"""Steps at most, and those where the spectrum is that of an objective over many steps."""
APART = 8e-4
"""Both rules, relative, at which no more steps are taken, unless less is asked for."""

ROUNDED = 16
"""Units of rounding of the largest node by which all are moved, each rule's to its own side: the
root of what rounding leaves of a zero is no small number."""

LOOKED_AT = 4
"""Vectors whose rules are compared."""

FOLLOWED = 0.625
"""Share of the steps by which a root times a vector is found; the others tell how far that is off.
Half and three quarters are a tenth worse."""


@dataclass(frozen=True)
class Rule:
    """Nodes x >= 0 and weights, whose sum is the squared length of a vector."""

    nodes: Array
    weights: Array

    def __call__(self, values: Array) -> float:
        """Of a function's values at the nodes."""
        return float(self.weights @ values)


class Bidiagonal:
    """Golub and Kahan's process from every column of a block, without reorthogonalisation: what
    that loses are repeated nodes, not the rules (Golub and Strakos 1994).

    Args:
        forward: x -> A x, of blocks.
        backward: y -> A^T y.
        starts: the columns, shape (n, m).
    """

    def __init__(self, forward: Product, backward: Product, starts: Array) -> None:
        self._forward, self._backward, self._starts = forward, backward, starts
        self._squares = np.einsum("ij,ij->j", starts, starts)
        self._right = np.array(starts)
        _normalised(self._right)
        self._left: Array | None = None
        self._diagonal: list[Array] = []
        self._beside: list[Array] = []

    @property
    def steps(self) -> int:
        """k."""
        return len(self._diagonal)

    def extend(self, steps: int) -> None:
        """That many steps more."""
        for _ in range(steps):
            left = self._forward(self._right)
            if self._left is not None:
                self._left *= self._beside[-1]
                left -= self._left
            self._left = left
            self._diagonal.append(_normalised(left))
            right = self._backward(left)
            self._right *= self._diagonal[-1]
            right -= self._right
            self._right = right
            self._beside.append(_normalised(right))

    def until_close(self, apart: float = APART, *, most: int = MOST_STEPS) -> None:
        """As many steps as bring the rules of a few columns that close to each other, relative."""
        while self.steps < most:
            self.extend(min(STEPS_AT_ONCE, most - self.steps))
            few = range(min(LOOKED_AT, len(self._squares)))
            low, high = (
                sum(rule(np.sqrt(rule.nodes)) for rule in (self.rule(k, below=b) for k in few))
                for b in (True, False)
            )
            if high - low <= apart * high:
                break

    @property
    def right(self) -> Array:
        """The vectors of the next step, shape (n, m)."""
        return np.array(self._right)

    def first_row_of_root(self, column: int) -> Array:
        """That of the root of the k x k part, times the length of the start, shape (k,)."""
        diagonal, beside = self._tridiagonal(column)
        nodes, vectors = eigh_tridiagonal(diagonal, beside)
        root = (vectors[0] * np.sqrt(np.maximum(nodes, 0.0))) @ vectors.T
        return np.asarray(root * math.sqrt(self._squares[column]))

    def _tridiagonal(self, column: int) -> tuple[Array, Array]:
        """U^T U: its diagonal, and what is beside that."""
        a = np.array([row[column] for row in self._diagonal])
        b = np.array([row[column] for row in self._beside])
        diagonal = a**2
        diagonal[1:] += b[:-1] ** 2
        return diagonal, a[:-1] * b[:-1]

    def rule(self, column: int, *, below: bool) -> Rule:
        """Of one column: the rule below for the square root, with 0 among its nodes, or above."""
        diagonal, beside = self._tridiagonal(column)
        if below:
            a, b = self._diagonal[-1][column], self._beside[-1][column]
            diagonal, beside = np.append(diagonal, b**2), np.append(beside, a * b)
        nodes, vectors = eigh_tridiagonal(diagonal, beside)
        rounded = ROUNDED * settings.EPS * np.abs(nodes).max()
        nodes = nodes - rounded if below else nodes + rounded
        return Rule(np.maximum(nodes, 0.0), self._squares[column] * vectors[0] ** 2)

    def roots(self) -> tuple[Array, Array]:
        """For every column q, what q^T (A^T A)^(1/2) q is at least and at most."""
        low, high = (
            np.array([rule(np.sqrt(rule.nodes)) for rule in rules])
            for rules in (
                [self.rule(k, below=below) for k in range(len(self._squares))]
                for below in (True, False)
            )
        )
        return low, high

    def root_times(self) -> tuple[Array, Array]:
        """About (A^T A)^(1/2) times every column, by a second run of most of the steps, and how far
        off each is at most, by the others."""
        k = int(FOLLOWED * self.steps)
        found = [self._root_times(column, k) for column in range(len(self._squares))]
        again = Bidiagonal(self._forward, self._backward, self._starts)
        total = np.zeros_like(self._right)
        for row in np.array([row for row, _ in found]).T:
            total += row * again._right
            again.extend(1)
        return total, np.array([off for _, off in found])

    def _root_times(self, column: int, k: int) -> tuple[Array, float]:
        """In the basis of k steps, and how far off."""
        start = math.sqrt(self._squares[column])
        diagonal, beside = self._tridiagonal(column)
        size = start * math.sqrt(diagonal[0])  # of the root times q
        if k < 1 or size == 0:
            return np.zeros(k), size
        nodes, vectors = eigh_tridiagonal(diagonal[:k], beside[: k - 1])
        roots = np.sqrt(np.maximum(nodes, 0.0))
        row = start * ((vectors[0] * roots) @ vectors.T)
        crude = size + float(np.linalg.norm(row))
        rest = _interior(diagonal, beside, k)
        if rest is None:
            return row, crude
        sums = np.sqrt(rest.nodes)[:, None] + roots
        if sums.min() <= 0:  # an eigenvalue 0 of T: the rest may be anything
            return row, crude
        left = start * beside[k - 1] * ((1 / sums) @ (vectors[0] * vectors[-1]))
        return row, min(math.sqrt(rest(left**2)), crude)


def _interior(diagonal: Array, beside: Array, first: int) -> Rule | None:
    """The rule of steps from the vector after ``first`` of them, as many as are known of it, with 0
    among its nodes; None where rounding leaves nothing of one."""
    steps = len(diagonal) - first - 1
    basis = np.zeros((steps + 1, len(diagonal)))
    basis[0, first] = 1.0
    own, next_to = np.zeros(steps + 1), np.zeros(steps)
    pivot = 0.0
    for j in range(steps):
        image = diagonal * basis[j]
        image[1:] += beside * basis[j, :-1]
        image[:-1] += beside * basis[j, 1:]
        own[j] = image @ basis[j]
        image -= basis[: j + 1].T @ (basis[: j + 1] @ image)
        image -= basis[: j + 1].T @ (basis[: j + 1] @ image)
        next_to[j] = np.linalg.norm(image)
        pivot = own[j] - (next_to[j - 1] ** 2 / pivot if j else 0.0)
        if pivot <= 0:
            return None
        if next_to[j] <= settings.EPS * np.abs(diagonal).max():  # all that there is
            nodes, vectors = eigh_tridiagonal(own[: j + 1], next_to[:j])
            return Rule(np.maximum(nodes, 0.0), vectors[0] ** 2)
        basis[j + 1] = image / next_to[j]
    if not steps:
        return None
    own[steps] = next_to[-1] ** 2 / pivot  # the last pivot is 0
    nodes, vectors = eigh_tridiagonal(own, next_to)
    return Rule(np.maximum(nodes, 0.0), vectors[0] ** 2)


def times_root(forward: Product, backward: Product, starts: Array, *, steps: int) -> Array:
    """About (A^T A)^(1/2) times the columns of a block, as near as that many steps come."""
    process = Bidiagonal(forward, backward, starts)
    basis = []
    for _ in range(steps):
        basis.append(process.right)
        process.extend(1)
    rows = np.stack([process.first_row_of_root(k) for k in range(starts.shape[1])], axis=1)
    return np.asarray(sum(row * right for row, right in zip(rows, basis, strict=True)))


def products(left: Array, right: Array) -> Array:
    """Of columns with columns."""
    return np.asarray(np.einsum("ij,ij->j", left, right))


def _normalised(block: Array) -> Array:
    """Lengths of columns, which are divided by them in place; of zeros nothing is left."""
    lengths = np.sqrt(np.einsum("ij,ij->j", block, block))
    block /= np.where(lengths > 0, lengths, 1.0)
    return np.asarray(lengths)
