"""Traces from products with few vectors, and what is known of each on either side.

What holds of them is in docs/methods/large-graphs.md. k steps of Golub and Kahan (1965) from q
give a bidiagonal U, and the rule of its singular values lies above q^T (A^T A)^(1/2) q for the k x
k part (Gauss), below for the k x (k + 1) part, which has 0 among its nodes (Gauss and Radau; Golub
and Meurant 1994, "Matrices, moments and quadrature"). How near the same steps come to (A^T A)^(1/2)
q itself is told by Frommer, Kahl, Lippert and Rittich (2013, "2-norm error bounds and estimates for
Lanczos approximations to linear systems and rational matrix functions")."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.linalg import eigh_tridiagonal

from noisedesign.base import settings, together
from noisedesign.base.checks import Array
from noisedesign.families.polynomial.reach import is_full

Product = Callable[[Array], Array]

COLUMNS = 16  # vectors that are multiplied together: fewer and more take longer each
STEPS_AT_ONCE = 32  # steps of a process after which it is looked how far apart both rules are
MOST_STEPS = 160  # steps at most, unless more are allowed
APART = 8e-4  # relative distance of both rules at which a process ends, unless less is asked for


def deviation(squared: float, low: float, high: float, *, probes: int, failure: float) -> float:
    """Bound how far the mean of z^T E z is above tr E, but with ``failure`` (Laurent and Massart
    2000, Lemma 1): half of it for |E|_F, half for the mean. ``squared`` is the mean of |E z|^2 over
    the ``probes`` z; 0, ``low`` and ``high`` enclose the eigenvalues of E."""
    share = math.log(2 / failure) / probes
    shift = max(abs(low), abs(high)) * math.sqrt(share)
    frobenius = shift + math.sqrt(shift**2 + squared)
    return 2 * frobenius * math.sqrt(share) + 2 * max(high, 0.0) * share


class Probes:
    """Gaussian vectors in blocks of about ``COLUMNS``, each of a random stream of its own."""

    def __init__(self, nodes: int, count: int, rng: np.random.Generator) -> None:
        # Blocks come in multiples of four, for as many threads.
        blocks = min(4 * -(-count // (4 * COLUMNS)), count)
        self._nodes, self._ends = nodes, np.arange(blocks + 1) * count // blocks
        self._seeds = rng.integers(2**63, size=(blocks, 2))

    def __len__(self) -> int:
        return len(self._seeds)

    def block(self, number: int) -> Array:
        """The block of a number, shape (n, m)."""
        columns = int(self._ends[number + 1] - self._ends[number])
        rng = np.random.default_rng(self._seeds[number])
        return together.drawn(rng.standard_normal, self._nodes, columns)


class Rule(NamedTuple):
    """Nodes x >= 0 and weights, whose sum is the squared length of a vector."""

    nodes: Array
    weights: Array

    def __call__(self, values: Array) -> float:
        """Integrate a function by its values at the nodes."""
        return float(self.weights @ values)


class Bidiagonal:
    """Golub and Kahan's process from every column of a block ``starts``, shape (n, m), by x -> A x
    and y -> A^T y of blocks, without reorthogonalisation, which the rules do not need (Golub and
    Strakos 1994)."""

    def __init__(self, forward: Product, backward: Product, starts: Array) -> None:
        self._forward, self._backward, self._starts = forward, backward, starts
        self._squares = products(starts, starts)
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
        """Take some steps more."""
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
        """Take steps until the rules of four columns are that close to each other, relative."""
        while self.steps < most:
            self.extend(min(STEPS_AT_ONCE, most - self.steps))
            few = range(min(4, len(self._squares)))
            low, high = (float(self._means(few, below=b).sum()) for b in (True, False))
            if high - low <= apart * high:
                break

    def _tridiagonal(self, column: int) -> tuple[Array, Array]:
        """U^T U: its diagonal, and what is beside that."""
        a = np.array([row[column] for row in self._diagonal])
        b = np.array([row[column] for row in self._beside])
        diagonal = a**2
        diagonal[1:] += b[:-1] ** 2
        return diagonal, a[:-1] * b[:-1]

    def rule(self, column: int, *, below: bool) -> Rule:
        """The rule of a column, below for the square root, with 0 among its nodes, or above."""
        diagonal, beside = self._tridiagonal(column)
        if below:
            a, b = self._diagonal[-1][column], self._beside[-1][column]
            diagonal, beside = np.append(diagonal, b**2), np.append(beside, a * b)
        nodes, vectors = eigh_tridiagonal(diagonal, beside)
        # Each rule moves to its own side: the root of a zero's rounding is no small number.
        rounded = 16 * settings.EPS * np.abs(nodes).max()
        nodes = nodes - rounded if below else nodes + rounded
        return Rule(np.maximum(nodes, 0.0), self._squares[column] * vectors[0] ** 2)

    def roots(self) -> tuple[Array, Array]:
        """Bounds on q^T (A^T A)^(1/2) q from below and above, for every column q."""
        columns = range(len(self._squares))
        return self._means(columns, below=True), self._means(columns, below=False)

    def _means(self, columns: Iterable[int], *, below: bool) -> Array:
        """The integral of the square root by the rules of some columns."""
        rules = [self.rule(k, below=below) for k in columns]
        return np.array([rule(np.sqrt(rule.nodes)) for rule in rules])

    def root_times(self) -> tuple[Array, Array]:
        """About (A^T A)^(1/2) times every column, by a second run, and how far off each is."""
        k = int(0.625 * self.steps)  # half and three quarters are a tenth worse
        found = [self._root_times(column, k) for column in range(len(self._squares))]
        again = Bidiagonal(self._forward, self._backward, self._starts)
        total = np.zeros_like(self._right)
        for row in np.array([row for row, _ in found]).T:
            total += row * again._right
            again.extend(1)
        return total, np.array([off for _, off in found])

    def _root_times(self, column: int, k: int) -> tuple[Array, float]:
        """The product with one column in the basis of k steps, and how far off it is."""
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
    """The rule of steps after the ``first``, with a node 0; None if rounding leaves none."""
    if not (steps := len(diagonal) - first - 1):
        return None
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
            own, next_to = own[: j + 1], next_to[:j]
            break
        basis[j + 1] = image / next_to[j]
    else:
        own[steps] = next_to[-1] ** 2 / pivot  # the last pivot is 0
    nodes, vectors = eigh_tridiagonal(own, next_to)
    return Rule(np.maximum(nodes, 0.0), vectors[0] ** 2)


def products(left: Array, right: Array) -> Array:
    """Inner products of columns with columns."""
    return np.asarray(together.total(np.einsum("ij,ij->j", left, right)))


def _normalised(block: Array) -> Array:
    """Divide columns by their lengths in place, zeros by 1; return the lengths."""
    lengths = np.sqrt(products(block, block))
    block /= np.where(lengths > 0, lengths, 1.0)
    return np.asarray(lengths)


# --- Lanczos' method from unit vectors ------------------------------------------------------------

FULL = 0.1  # share of entries from which a block of sparse columns is an array


def jacobi(
    product: Callable[[Any], Any],
    size: int,
    m: int,
    steps: int,
    *,
    root: Callable[[Any], Any] | None = None,
) -> tuple[Array, Array]:
    """Diagonals and squared entries beside them, (steps, m), of Lanczos' Jacobi matrices from the
    first m unit vectors; without the last entries beside where the product is that of a ``root``
    with its transpose, which is asked for no more than the last diagonal."""
    before: Any = sparse.csr_array((size, m))
    current: Any = sparse.eye_array(size, m, format="csr")
    diagonal, beside = np.zeros((steps, m)), np.zeros((steps, m))
    length = np.zeros(m)
    for j in range(steps):
        if not isinstance(current, np.ndarray) and is_full(current, FULL):
            before, current = before.toarray(), current.toarray()
        if root is not None and j + 1 == steps:
            image = root(current)
            diagonal[j] = _inner(image, image)
            break
        image = product(current)
        diagonal[j] = _inner(image, current)
        if j + 1 == steps:  # Pythagoras: what is left is orthogonal to both
            beside[j] = np.maximum(_inner(image, image) - diagonal[j] ** 2 - length**2, 0.0)
            break
        image = image - _scaled(current, diagonal[j]) - _scaled(before, length)
        beside[j] = _inner(image, image)
        length = np.sqrt(beside[j])
        ended = length < 1e-12  # nothing is left: the sums before it are all that there is
        beside[j, ended] = length[ended] = 0.0
        inverse = np.divide(1.0, length, out=np.zeros(m), where=~ended)
        before, current = current, _scaled(image, inverse)
    return diagonal, beside


def _scaled(block: Any, factors: Array) -> Any:
    """Columns times factors."""
    return block * factors if isinstance(block, np.ndarray) else block @ sparse.diags_array(factors)


def _inner(left: Any, right: Any) -> Array:
    """Inner products of columns, sparse or not."""
    if isinstance(left, np.ndarray):
        return products(left, right)
    return np.asarray(together.total(left.multiply(right).sum(axis=0)))
