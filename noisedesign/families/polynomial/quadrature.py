"""The trace of (A^T A)^(1/2) from few vectors, each known on either side.

k steps of Golub and Kahan (1965) from q give a bidiagonal U, and for f(x) = sqrt(x) the rule of its
singular values is known to lie below or above q^T f(A^T A) q: above for the k x k part (Gauss),
below for the k x (k + 1) part, which has 0 among its nodes (Gauss and Radau), because derivatives
of the square root change their signs by turns (Golub and Meurant 1994, "Matrices, moments and
quadrature"). The same holds, with signs, for x^j sqrt(x).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.polynomial import Chebyshev
from scipy.linalg import eigh_tridiagonal

from noisedesign.base import settings
from noisedesign.base.checks import Array

Product = Callable[[Array], Array]

STEPS_AT_ONCE = 32
"""After which it is looked how far apart both rules are."""

MOST_STEPS = 160
APART = 8e-4
"""Both rules, relative, at which no more steps are taken, unless less is asked for."""

ROUNDED = 16
"""Units of rounding of the largest node by which all are moved, each rule's to its own side: the
root of what rounding leaves of a zero is no small number."""

LOOKED_AT = 4
"""Vectors whose rules are compared."""


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
        self._forward, self._backward = forward, backward
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

    def until_close(self, apart: float = APART) -> None:
        """As many steps as bring the rules of a few columns that close to each other, relative."""
        while self.steps < MOST_STEPS:
            self.extend(min(STEPS_AT_ONCE, MOST_STEPS - self.steps))
            few = range(min(LOOKED_AT, len(self._squares)))
            low, high = (
                sum(rule(np.sqrt(rule.nodes)) for rule in (self.rule(k, below=b) for k in few))
                for b in (True, False)
            )
            if high - low <= apart * high:
                break

    def rule(self, column: int, *, below: bool) -> Rule:
        """Of one column: the rule below for the square root, with 0 among its nodes, or above."""
        a = np.array([row[column] for row in self._diagonal])
        b = np.array([row[column] for row in self._beside])
        diagonal, beside = a**2, a[:-1] * b[:-1]
        diagonal[1:] += b[:-1] ** 2
        if below:
            diagonal, beside = np.append(diagonal, b[-1] ** 2), np.append(beside, a[-1] * b[-1])
        nodes, vectors = eigh_tridiagonal(diagonal, beside)
        rounded = ROUNDED * settings.EPS * np.abs(nodes).max()
        nodes = nodes - rounded if below else nodes + rounded
        return Rule(np.maximum(nodes, 0.0), self._squares[column] * vectors[0] ** 2)

    def without(self, near: Chebyshev) -> tuple[Array, Array, Array]:
        """For every column q and E = B^(1/2) - near(B), B = A^T A: what q^T E q is at least and at
        most, and what |E q|^2 is at most.

        Powers of B are integrated exactly; B^(j + 1/2) lies between the two rules.
        """
        powers = near.convert(kind=np.polynomial.Polynomial, domain=near.domain, window=[0.0, 1.0])
        scale = float(near.domain[1])
        low, high, squares = (np.empty(len(self._squares)) for _ in range(3))
        for k in range(len(self._squares)):
            under, over = self.rule(k, below=True), self.rule(k, below=False)
            exact = under(near(under.nodes))
            low[k] = under(np.sqrt(under.nodes)) - exact
            high[k] = over(np.sqrt(over.nodes)) - exact
            apart = 0.0
            for j, c in enumerate(powers.coef):
                width = _half_power(over, j, scale) - _half_power(under, j, scale)
                apart += abs(float(c) * width)
            squares[k] = over((np.sqrt(over.nodes) - near(over.nodes)) ** 2) + 2 * apart
        return low, high, squares


def _half_power(rule: Rule, power: int, scale: float) -> float:
    return rule((rule.nodes / scale) ** power * np.sqrt(rule.nodes))


def _normalised(block: Array) -> Array:
    """Lengths of columns, which are divided by them in place; of zeros nothing is left."""
    lengths = np.sqrt(np.einsum("ij,ij->j", block, block))
    block /= np.where(lengths > 0, lengths, 1.0)
    return np.asarray(lengths)
