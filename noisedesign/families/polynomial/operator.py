"""A = W V^(1/2) of sparse W, which is seen through products alone, and B = A^T A."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.polynomial import Chebyshev
from scipy import sparse

from noisedesign.base.checks import Array
from noisedesign.families.polynomial.quadrature import Bidiagonal

POWER_STEPS = 60
"""For a bound on eigenvalues that is valid after any number of them, and close after these."""

H_POWER_STEPS = 20
"""The same, of products that take 2 T as many."""

LANCZOS_STEPS = 80
"""As many points as stand for a spectrum."""

MEASURED = 4
"""Vectors that show what a spectrum is like."""

DENSE = 1400
"""Nodes up to which all eigenvalues are found."""

COLUMNS_AT_ONCE = 1024
"""Whose neighbourhoods are held at once."""

ENTRIES_AT_ONCE = 50_000_000
"""Of those columns, at most: 400 MB, and four such blocks at a time."""

DENSE_FROM = 0.08
"""Share of nonzero entries from which a block of columns is quicker dense."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Weighted:
    """B = V^(1/2) W^T W V^(1/2), shape (n, n), and its polynomials.

    Attributes:
        mixing: W, sparse, shape (n, n), nonnegative.
        weights: v, the diagonal of V, shape (n,), positive.
    """

    mixing: Any
    weights: Array

    @cached_property
    def factor(self) -> Any:
        """A."""
        return (self.mixing @ sparse.diags_array(np.sqrt(self.weights))).tocsr()

    @cached_property
    def _scaled(self) -> tuple[Any, Any]:
        scaled = self.factor / np.sqrt(self.top)
        return scaled.tocsr(), scaled.T.tocsr()

    @cached_property
    def top(self) -> float:
        """A bound b on the eigenvalues of B (Collatz and Wielandt)."""
        return collatz(
            lambda x: self.backward(self.forward(x)), len(self.weights), steps=POWER_STEPS
        )

    def apply(self, p: Chebyshev, block: Array) -> Array:
        """p(B) times a block, shape (n, m); p is a polynomial on [0, b]."""
        a, transposed = self._scaled
        previous, current = block, 2 * (transposed @ (a @ block)) - block
        c = p.coef
        total = c[0] * block
        if len(c) > 1:
            total = total + c[1] * current
        for coefficient in c[2:]:
            following = 4 * (transposed @ (a @ current)) - 2 * current - previous
            previous, current = current, following
            total += coefficient * current
        return np.asarray(total)

    def moments(self, starts: Any, degree: int) -> Array:
        """s_k^T T_j(2 B / b - 1) s_k of sparse columns s_k: j <= degree, shape (degree + 1, m).

        T_j(2 x^2 - 1) = T_2j(x) = 2 T_j(x)^2 - 1, so j products of A or A^T with s_k do, by turns,
        and only the j-hop neighbourhoods of its entries are touched.
        """
        a, transposed = self._scaled
        starts = starts.tocsc()
        m = starts.shape[1]
        found = np.empty((degree + 1, m))
        width = max(1, min(COLUMNS_AT_ONCE, ENTRIES_AT_ONCE // starts.shape[0]))
        for first in range(0, m, width):
            span = slice(first, min(first + width, m))
            previous: Any = starts[:, span].tocsr()
            current: Any = a @ previous
            found[0, span] = own = _squares(previous)
            for j in range(1, degree + 1):
                found[j, span] = 2 * _squares(current) - own
                if j == degree:
                    break
                if _is_full(current):
                    previous, current = previous.toarray(), current.toarray()
                following = 2 * ((transposed if j % 2 else a) @ current) - previous
                previous, current = current, following
        return found

    def diagonal(self, p: Chebyshev, starts: Any = None) -> Array:
        """s_k^T p(B) s_k of sparse columns s_k, shape (m,); by default the diagonal of p(B)."""
        if starts is None:
            starts = sparse.eye_array(len(self.weights), format="csc")
        return np.asarray(np.asarray(p.coef, dtype=np.float64) @ self.moments(starts, p.degree()))

    def forward(self, block: Array) -> Array:
        """A times a block."""
        return np.asarray(self.factor @ block)

    def backward(self, block: Array) -> Array:
        """A^T times a block."""
        return np.asarray(self.transposed @ block)

    @cached_property
    def transposed(self) -> Any:
        """A^T."""
        return self.factor.T.tocsr()

    def spectrum(self, starts: Array, *, steps: int = LANCZOS_STEPS) -> tuple[Array, Array]:
        """Nodes in [0, b] and weights of a measure near that of B in ``starts``, shape (n,), or in
        the mean of the columns of an (n, m) array."""
        block = starts.reshape(len(starts), -1)
        process = Bidiagonal(self.forward, self.backward, block)
        process.extend(min(steps, len(block)))
        rules = [process.rule(k, below=False) for k in range(block.shape[1])]
        nodes = np.concatenate([rule.nodes for rule in rules])
        weights = np.concatenate([rule.weights for rule in rules]) / len(rules)
        return np.minimum(nodes, self.top), weights

    @property
    def small(self) -> bool:
        """Whether all eigenvalues are found sooner than what stands for them."""
        return len(self.weights) <= DENSE

    @cached_property
    def eigen(self) -> tuple[Array, Array]:
        """Eigenvalues and eigenvectors of B, where n x n arrays are nothing to fear."""
        values, vectors = np.linalg.eigh((self.factor.T @ self.factor).toarray())
        return np.clip(values, 0.0, self.top), vectors

    def measure(self, outer: Any, rng: np.random.Generator) -> tuple[Array, Array]:
        """Nodes in [0, b] and weights that stand for f -> tr(Y f(B) Y^T): of small B those
        themselves, else of a few random vectors."""
        if self.small:
            values, vectors = self.eigen
            return values, np.sum((outer @ vectors) ** 2, axis=0)
        return self.spectrum(outer.T @ rng.standard_normal((outer.shape[0], MEASURED)))


@dataclass(frozen=True, kw_only=True, eq=False)
class Powers:
    """H = F^T F = sum_t c_t (W^t)^T W^t, F of the blocks c_t^(1/2) W^t for t = 1..T.

    Attributes:
        mixing: W, sparse, shape (n, n), nonnegative.
        counts: c, shape (T,), nonnegative.
    """

    mixing: Any
    counts: Array

    @cached_property
    def transposed(self) -> Any:
        """W^T."""
        return self.mixing.T.tocsr()

    def forward(self, block: Array) -> Array:
        """F times a block of m columns, shape (T n, m)."""
        seen = []
        for count in self.counts:
            block = self.mixing @ block
            seen.append(math.sqrt(count) * block)
        return np.concatenate(seen)

    def backward(self, stacked: Array) -> Array:
        """F^T times a block, shape (n, m)."""
        return self._gathered(iter(stacked.reshape(len(self.counts), -1, stacked.shape[1])[::-1]))

    def random(self, rng: np.random.Generator, count: int) -> Array:
        """F^T times standard normal vectors: independent columns of covariance H."""
        shape = (self.mixing.shape[0], count)
        return self._gathered(rng.standard_normal(shape) for _ in self.counts)

    def _gathered(self, latest_first: Iterator[Array]) -> Array:
        total: Any = 0.0
        for count, block in zip(self.counts[::-1], latest_first, strict=True):
            total = self.transposed @ (total + math.sqrt(count) * block)
        return np.asarray(total)

    def times(self, block: Array) -> Array:
        """H times a block."""
        return self.backward(self.forward(block))

    @cached_property
    def dense(self) -> Array:
        """H, where n x n arrays are nothing to fear."""
        return self.times(np.eye(self.mixing.shape[0]))

    def top(self, scale: Array) -> float:
        """A bound on the eigenvalues of D^(1/2) H D^(1/2), D = diag(scale); as that of B."""
        root = np.sqrt(scale)[:, None]
        return collatz(lambda x: root * self.times(root * x), len(scale), steps=H_POWER_STEPS)

    def first(self, apart: float, rng: np.random.Generator) -> Powers:
        """The first of its terms, which are at most H, and all of its trace but about ``apart``."""
        block, parts = rng.standard_normal((self.mixing.shape[0], 1)), []
        for count in self.counts:
            block = self.mixing @ block
            parts.append(count * float(np.sum(block**2)))
        kept = int(np.searchsorted(np.cumsum(parts), (1 - apart) * sum(parts))) + 1
        return Powers(mixing=self.mixing, counts=self.counts[:kept])


def collatz(product: Callable[[Array], Array], size: int, *, steps: int) -> float:
    """A bound on the eigenvalues of a nonnegative symmetric B: max of (B x)_i / x_i over i, for
    a positive x. A few power steps choose x, which need not have converged."""
    x = np.ones((size, 1))
    bound = math.inf
    for _ in range(steps):
        image = product(x)
        bound = min(bound, float((image / x).max()))
        x = image / image.max() + 1e-3 * x / x.max()
    return bound * (1 + 1e-12)  # for rounding of the products


def _is_full(block: Any) -> bool:
    """Whether a block that is stored sparse has so many entries that it should not be."""
    if isinstance(block, np.ndarray):
        return False
    return bool(block.nnz > DENSE_FROM * block.shape[0] * block.shape[1])


def _squares(block: Any) -> Array:
    """Squared lengths of columns."""
    if isinstance(block, np.ndarray):
        return np.asarray(np.einsum("ij,ij->j", block, block))
    squares = np.bincount(block.indices, weights=block.data**2, minlength=block.shape[1])
    return np.asarray(squares, dtype=np.float64)
