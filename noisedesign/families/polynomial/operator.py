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
from noisedesign.base.threads import in_threads
from noisedesign.families.polynomial import polynomials
from noisedesign.families.polynomial.quadrature import Bidiagonal, Rule
from noisedesign.families.polynomial.traces import COLUMNS

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

ENTRIES_AT_ONCE = 16_000_000
"""Of those columns, at most: 130 MB where they are full, and three such blocks in every thread."""

WORTH = 100_000
"""Entries of a block from which its columns are shared out among threads."""

DENSE_FROM = 0.08
"""Share of nonzero entries from which a block of columns is quicker dense."""


GoOn = Callable[[], bool]
"""Whether there is time to go on."""


def always() -> bool:
    """Without a limit."""
    return True


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
        return narrow((self.mixing @ sparse.diags_array(np.sqrt(self.weights))).tocsr())

    @cached_property
    def _scaled(self) -> tuple[Any, Any]:
        scaled = self.factor / np.sqrt(self.top)
        return narrow(scaled.tocsr()), narrow(scaled.T.tocsr())

    @cached_property
    def top(self) -> float:
        """A bound b on the eigenvalues of B (Collatz and Wielandt)."""
        return collatz(
            lambda x: self.backward(self.forward(x)), len(self.weights), steps=POWER_STEPS
        )

    def apply(self, p: Chebyshev, block: Array) -> Array:
        """p(B) times a block, shape (n, m); p is a polynomial on [0, b]."""
        a, transposed = self._doubled  # before threads, which would each make their own
        return by_columns(lambda part: clenshaw(p, lambda x: transposed @ (a @ x), part), block)

    @cached_property
    def _doubled(self) -> tuple[Any, Any]:
        """Whose product is 4 B / b."""
        a, transposed = self._scaled
        return 2 * a, 2 * transposed

    def moments(self, degree: int, *, go_on: GoOn = always) -> Array:
        """The diagonals of T_j(2 B / b - 1), j <= degree, shape (degree + 1, n); kept.

        T_j(2 x^2 - 1) = T_2j(x) = 2 T_j(x)^2 - 1, so j products of A or A^T with a unit vector do,
        by turns, and only its j-hop neighbourhoods are touched.

        Args:
            degree: of the last.
            go_on: asked between blocks of columns.

        Raises:
            TimeoutError: that said no.
        """
        if len(self._kept) <= degree:
            n = self.factor.shape[1]
            width = max(1, min(COLUMNS_AT_ONCE, ENTRIES_AT_ONCE // n))

            def found(first: int) -> Array:
                return self._moments(first, min(first + width, n), degree)

            blocks = []
            _ = self._recurring  # before threads, which would each make their own
            for block in in_threads(found, range(0, n, width)):
                blocks.append(block)
                if not go_on():
                    raise TimeoutError
            self.know(np.concatenate(blocks, axis=1))
        return np.array(self._kept[: degree + 1])

    def know(self, moments: Array) -> None:
        """That these are the diagonals of T_j(2 B / b - 1)."""
        self._kept[:] = moments

    @cached_property
    def _kept(self) -> list[Array]:
        """Diagonals that are known."""
        return []

    @cached_property
    def _recurring(self) -> tuple[Any, Any]:
        """A above -I / 2, and A^T, over sqrt(b) and doubled: from rows x and y beside them these
        make 2 x A - y."""
        taken = -sparse.eye_array(len(self.weights), format="csr")
        one, other = (sparse.vstack([2 * m, taken], format="csr") for m in self._scaled)
        return narrow(one), narrow(other)

    def _moments(self, first: int, end: int, degree: int) -> Array:
        found = [2 * squares(block) - 1 for block in self.walks(first, end, degree)]
        return np.array([np.ones(end - first), *found])

    def walks(self, first: int, end: int, degree: int) -> Iterator[Any]:
        """For j = 1, 2, ... what j products with A / sqrt(b) or its transpose make of unit vectors
        of these nodes, T_j of them: sparse rows, and columns of an array from where neighbourhoods
        are not much smaller than the graph."""
        a, transposed = self._scaled
        m = end - first
        unit = (np.ones(m), (np.arange(m), np.arange(first, end)))
        previous: Any = sparse.csr_array(unit, shape=(m, a.shape[1]))
        current: Any = transposed[first:end]
        for j in range(1, degree + 1):
            yield current
            if j == degree:
                break
            if _is_full(current):
                previous, current = previous.T.toarray(), current.T.toarray()
            if isinstance(current, np.ndarray):
                following = (transposed if j % 2 else a) @ current
                following *= 2
                following -= previous
            else:
                both = sparse.hstack([current, previous], format="csr")
                following = both @ self._recurring[0 if j % 2 else 1]
            previous, current = current, following

    def diagonal(self, p: Chebyshev, *, go_on: GoOn = always) -> Array:
        """The diagonal of p(B), shape (n,)."""
        moments = self.moments(p.degree(), go_on=go_on)
        return np.asarray(np.asarray(p.coef, dtype=np.float64) @ moments)

    def forward(self, block: Array) -> Array:
        """A times a block."""
        return np.asarray(self.factor @ block)

    def backward(self, block: Array) -> Array:
        """A^T times a block."""
        return np.asarray(self.transposed @ block)

    @cached_property
    def transposed(self) -> Any:
        """A^T."""
        return narrow(self.factor.T.tocsr())

    def spectrum(self, starts: Array, *, steps: int = LANCZOS_STEPS) -> tuple[Array, Array]:
        """Nodes in [0, b] and weights of a measure near that of B in ``starts``, shape (n,), or in
        the mean of the columns of an (n, m) array."""
        block = starts.reshape(len(starts), -1)
        _ = self.transposed  # before threads, which would each make their own

        def found(part: Array) -> list[Rule]:
            process = Bidiagonal(self.forward, self.backward, part)
            process.extend(min(steps, len(part)))
            return [process.rule(k, below=False) for k in range(part.shape[1])]

        halves = np.array_split(block, min(2, block.shape[1]), axis=1)
        rules = [rule for half in in_threads(found, halves) for rule in half]
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
    def _narrow(self) -> Any:
        """W."""
        return narrow(self.mixing.copy())

    @cached_property
    def transposed(self) -> Any:
        """W^T."""
        return narrow(self.mixing.T.tocsr())

    @cached_property
    def symmetric(self) -> bool:
        """Whether W is, exactly: H is a polynomial of W^2 then, whose eigenvalues are in [0, 1]."""
        return bool((self.mixing != self.mixing.T).nnz == 0)

    @cached_property
    def quarter_below(self) -> Chebyshev | None:
        """s on [0, 1] with s(W^2)^2 W^2 s(W^2)^2 <= H and hardly less, of symmetric W; None where
        that takes about as many products as H does."""
        if not self.symmetric or self.counts[0] == 0:
            return None
        n, steps = self.mixing.shape[0], len(self.counts)
        powers = np.polynomial.Polynomial(self.counts)
        k = Chebyshev.interpolate(powers, steps - 1, domain=[0.0, 1.0])
        squared = Weighted(mixing=self.mixing, weights=np.ones(n))
        x, weights = squared.measure(sparse.eye_array(n, format="csc"), np.random.default_rng(0))
        x = np.clip(x, 0.0, 1.0)
        gain = weights * np.sqrt(x) / n
        return polynomials.quarter_below(k, x, gain, degree=3 * steps // 8)

    def forward(self, block: Array) -> Array:
        """F times a block of m columns, shape (T n, m)."""
        seen = []
        for count in self.counts:
            block = self._narrow @ block
            seen.append(math.sqrt(count) * block)
        return np.concatenate(seen)

    def backward(self, stacked: Array) -> Array:
        """F^T times a block, shape (n, m)."""
        return self._gathered(iter(stacked.reshape(len(self.counts), -1, stacked.shape[1])[::-1]))

    def random(self, rng: np.random.Generator, count: int) -> Array:
        """F^T times standard normal vectors, or F'^T: independent columns of covariance H, or a
        little less."""
        shape = (self.mixing.shape[0], count)
        if self.quarter_below is not None:
            return by_columns(self._by_root, rng.standard_normal(shape))
        return self._gathered(rng.standard_normal(shape) for _ in self.counts)

    def _gathered(self, latest_first: Iterator[Array]) -> Array:
        total: Any = 0.0
        for count, block in zip(self.counts[::-1], latest_first, strict=True):
            total = self.transposed @ (total + math.sqrt(count) * block)
        return np.asarray(total)

    def times(self, block: Array) -> Array:
        """H times a block."""
        if not self.symmetric:
            return self.backward(self.forward(block))
        total = self.counts[-1] * block
        term = np.empty_like(total)
        for count in self.counts[-2::-1]:
            total = self._narrow @ (self._narrow @ total)
            np.multiply(block, count, out=term)
            total += term
        return np.asarray(self._narrow @ (self._narrow @ total))

    def factor(self, block: Array) -> Array:
        """F' times a block, F'^T F' <= H: W s(W^2)^2 where there is that s, else F."""
        return self.forward(block) if self.quarter_below is None else self._by_root(block)

    def factor_transposed(self, block: Array) -> Array:
        """F'^T times a block."""
        return self.backward(block) if self.quarter_below is None else self._by_root(block)

    def _by_root(self, block: Array) -> Array:
        return np.asarray(self._narrow @ self.by_quarter(self.by_quarter(block)))

    def by_quarter(self, block: Array) -> Array:
        """s(W^2) times a block, where there is that s."""
        s: Any = self.quarter_below
        doubled = self._doubled
        return clenshaw(s, lambda x: doubled @ (doubled @ x), block)

    @cached_property
    def _doubled(self) -> Any:
        """2 W."""
        return 2 * self._narrow

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


def clenshaw(p: Chebyshev, product: Callable[[Array], Array], block: Array) -> Array:
    """p(B) times a block, p on [0, b], by products with 4 B / b (Clenshaw 1955).

    Blocks of all nodes are far larger than what a processor keeps at hand, so that sums are made in
    those that are there already.
    """
    previous, current = np.zeros_like(block), p.coef[-1] * block
    for coefficient in p.coef[-2:0:-1]:
        following = product(current)
        previous += current
        previous += current
        following -= previous
        np.multiply(block, coefficient, out=previous)
        following += previous
        previous, current = current, following
    if len(p.coef) == 1:
        return np.asarray(current)
    total = product(current)
    total /= 2
    total -= current
    total -= previous
    np.multiply(block, p.coef[0], out=previous)
    total += previous
    return np.asarray(total)


def by_columns(work: Callable[[Array], Array], block: Array) -> Array:
    """What is done to every column of a block, by threads where it is large."""
    every = COLUMNS if block.size >= WORTH else max(block.shape[1], 1)
    parts = np.split(block, range(every, block.shape[1], every), axis=1)
    found = in_threads(lambda part: work(np.ascontiguousarray(part)), parts)
    return np.concatenate(list(found), axis=1)


def narrow(array: Any) -> Any:
    """The same with indices of four bytes, where they do: products are a fifth quicker."""
    if array.nnz < np.iinfo(np.int32).max:
        array.indices, array.indptr = (x.astype(np.int32) for x in (array.indices, array.indptr))
    return array


def _is_full(block: Any) -> bool:
    """Whether a block that is stored sparse has so many entries that it should not be."""
    if isinstance(block, np.ndarray):
        return False
    return bool(block.nnz > DENSE_FROM * block.shape[0] * block.shape[1])


def squares(block: Any) -> Array:
    """Squared lengths of sparse rows, or of columns of an array."""
    if isinstance(block, np.ndarray):
        return np.asarray(np.einsum("ij,ij->j", block, block))
    rows = np.repeat(np.arange(block.shape[0]), np.diff(block.indptr))
    found = np.bincount(rows, weights=block.data**2, minlength=block.shape[0])
    return np.asarray(found, dtype=np.float64)
