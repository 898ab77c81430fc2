"""Sparse W in the operators that noise and its error are made of, seen through products alone.

They are B = A^T A with A = W V^(1/2), whose polynomials the noise is made of; H = F^T F, the sum of
powers of W that the error is; and K = G q(B) G, what is known exactly of a trace that is estimated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.polynomial import Chebyshev
from scipy import sparse

from noisedesign.base import together
from noisedesign.base.checks import Array
from noisedesign.base.workers import in_threads
from noisedesign.families.polynomial import polynomials, reach
from noisedesign.families.polynomial.quadrature import COLUMNS, Bidiagonal, Rule
from noisedesign.forms.sparse_forms import clenshaw

POWER_STEPS = 60  # of a bound on eigenvalues, at most: it is valid after any number
GAINING, GAIN = 4, 1e-3  # steps that have to lower that bound by this share, or they are the last
MEASURED = 4  # vectors, at most, that show what a spectrum is like
SHOWN = 200_000  # entries of them, so that large graphs have fewer, but two, which are two threads'
STEPS = 60  # of each: geometric graphs have gaps of .1 % more by 40, and hardly less by 80
DENSE = 1400  # nodes up to which all eigenvalues are found
WORTH = 100_000  # entries of a block from which its columns are shared out among threads
DENSE_FROM = 0.08  # share of nonzero entries from which a block of columns is quicker dense

GoOn = Callable[[], bool]  # whether there is time to go on


@dataclass(frozen=True, kw_only=True, eq=False)
class Weighted:
    """B = V^(1/2) W^T W V^(1/2), shape (n, n), and its polynomials, of a sparse W >= 0, ``mixing``,
    and ``weights`` v > 0, (n,). ``bound`` is what is said to be above all eigenvalues, if anything
    is, and ``known`` keeps the diagonals of T_j(2 B / b - 1), sums that take long."""

    mixing: Any
    weights: Array
    bound: float | None = None
    known: list[Array] = field(default_factory=list)

    @cached_property
    def factor(self) -> Any:
        """A."""
        return narrow((self.mixing @ sparse.diags_array(np.sqrt(self.weights))).tocsr())

    @cached_property
    def transposed(self) -> Any:
        """A^T."""
        return narrow(self.factor.T.tocsr())

    @together.once
    def top(self) -> float:
        """b, a bound on the eigenvalues of B."""
        if self.bound is not None:
            return self.bound
        size = len(self.weights)
        return float(together.kept(lambda: largest_at_most(self.squared, size, steps=POWER_STEPS)))

    @together.once
    def _scaled(self) -> tuple[Any, Any]:
        """A / sqrt(b) and its transpose."""
        scaled = self.factor / np.sqrt(self.top)
        return narrow(scaled.tocsr()), narrow(scaled.T.tocsr())

    def forward(self, block: Array) -> Array:
        """A times a block."""
        return np.asarray(self.factor @ block)

    def backward(self, block: Array) -> Array:
        """A^T times a block."""
        return np.asarray(self.transposed @ block)

    def squared(self, block: Array) -> Array:
        """B times a block."""
        return self.backward(self.forward(block))

    def apply(self, p: Chebyshev, block: Array) -> Array:
        """p(B) times a block, shape (n, m); p is a polynomial on [0, b]."""
        a, transposed = (2 * part for part in self._scaled)  # their product is 4 B / b
        product = partial(clenshaw, p.coef, lambda x: transposed @ (a @ x))
        return by_columns(product, block)

    def chebyshev(self, block: Array, degree: int) -> Iterator[Array]:
        """Yield T_j(2 B / b - 1) times a block, j = 0 to ``degree``."""
        a, transposed = self._scaled
        previous, current = block, block
        for j in range(degree + 1):
            yield current
            if j == degree:
                break
            following = (4 if j else 2) * (transposed @ (a @ current))
            following -= (2 if j else 1) * current
            if j:
                following -= previous
            previous, current = current, following

    def moments(self, degree: int, *, go_on: GoOn | None = None) -> Array:
        """Diagonals of T_j(2 B / b - 1), j <= degree; ``TimeoutError`` where ``go_on`` says no."""
        if len(self.known) <= degree:
            top = self.top  # before, since it is kept for itself
            if together.alone():
                self.known[:] = self._moments(degree, go_on)
            else:  # by the rows of W, which are in parts
                self.known[:] = together.kept(lambda: self.factor.by_halves(top, degree))
        return np.array(self.known[: degree + 1])

    def _moments(self, degree: int, go_on: GoOn | None = None) -> Array:
        around = self.around(degree)

        def found(run: slice) -> Array:
            pieces = []
            for piece in around.pieces(run):
                squared = [2 * squares(block) - 1 for block in self.walk(piece, degree)]
                pieces.append(np.array([np.ones(piece.nodes.stop - piece.nodes.start), *squared]))
            return np.concatenate(pieces, axis=1)

        blocks = []
        for block in in_threads(found, around.runs):
            blocks.append(block)
            if go_on is not None and not go_on():
                raise TimeoutError
        return np.concatenate(blocks, axis=1)

    def around(self, degree: int) -> reach.Neighbourhoods:
        """The neighbourhoods that so many products reach."""
        a, transposed = self._scaled
        nodes = np.arange(a.shape[1])
        return reach.Neighbourhoods(factor=a, transposed=transposed, hops=degree, nodes=nodes)

    def walk(self, piece: reach.Piece, degree: int) -> Iterator[Any]:
        """Yield T_j of A / sqrt(b) or its transpose times the unit vectors of a piece, by j = 1 to
        ``degree`` products by turns: sparse rows, or columns of an array where neighbourhoods are
        not much smaller than all that the piece reaches.

        T_j(2 x^2 - 1) = T_2j(x) = 2 T_j(x)^2 - 1, so they give the diagonals of T_j(2 B / b - 1).
        """
        (_, a, transposed), m = piece, piece.nodes.stop - piece.nodes.start
        # From rows x and y beside them these make 2 x A - y and 2 x A^T - y.
        from_odd, from_even = (
            sparse.vstack([2 * x, -sparse.eye_array(x.shape[1])], format="csr")
            for x in (a, transposed)
        )
        previous: Any = sparse.eye_array(m, a.shape[1], format="csr")
        current: Any = transposed[:m]
        for j in range(1, degree + 1):
            yield current
            if j == degree:
                break
            stored = not isinstance(current, np.ndarray)
            if stored and reach.is_full(current, DENSE_FROM):
                previous, current = previous.T.toarray(), current.T.toarray()
                a, transposed = transposed.T.tocsr(), a.T.tocsr()  # whose rows are whole
            if isinstance(current, np.ndarray):
                following = (transposed if j % 2 else a) @ current
                following *= 2
                following -= previous
            else:
                both = sparse.hstack([current, previous], format="csr")
                following = both @ (from_odd if j % 2 else from_even)
            previous, current = current, following

    def units(self, nodes: Any) -> Any:
        """The unit vectors of some nodes, sparse columns."""
        here = together.here(len(self.weights))
        column = np.flatnonzero((nodes >= here.start) & (nodes < here.stop))
        at = (nodes[column] - here.start, column)
        return sparse.csr_array((np.ones(len(column)), at), shape=(len(here), len(nodes)))

    def diagonal(self, p: Chebyshev) -> Array:
        """The diagonal of p(B), shape (n,)."""
        return np.asarray(np.asarray(p.coef, dtype=np.float64) @ self.moments(p.degree()))

    def spectrum(self, starts: Array, *, steps: int = STEPS) -> tuple[Array, Array]:
        """Nodes in [0, b] and weights of a measure near that of B in ``starts``, shape (n,), or in
        the mean of the columns of an (n, m) array."""
        block = starts.reshape(len(starts), -1)

        def found(part: Array) -> list[Rule]:
            process = Bidiagonal(self.forward, self.backward, part)
            process.extend(min(steps, together.count(len(part))))
            return [process.rule(k, below=False) for k in range(part.shape[1])]

        halves = np.array_split(block, min(2, block.shape[1]), axis=1)

        def measured() -> tuple[Array, Array]:
            rules = [rule for half in in_threads(found, halves) for rule in half]
            nodes = np.concatenate([rule.nodes for rule in rules])
            return nodes, np.concatenate([rule.weights for rule in rules]) / len(rules)

        nodes, weights = together.kept(measured)
        return np.minimum(nodes, self.top), weights

    @property
    def small(self) -> bool:
        """Whether all eigenvalues are found sooner than what stands for them."""
        return together.count(len(self.weights)) <= DENSE

    @cached_property
    def eigen(self) -> tuple[Array, Array]:
        """Eigenvalues and eigenvectors of B, where n x n arrays are nothing to fear."""
        values, vectors = np.linalg.eigh((self.factor.T @ self.factor).toarray())
        return np.clip(values, 0.0, self.top), vectors

    def measure(self, outer: Any, rng: np.random.Generator) -> tuple[Array, Array]:
        """Nodes in [0, b] and weights that stand for f -> tr(Y f(B) Y^T), exact for small B."""
        if self.small:
            values, vectors = self.eigen
            return values, np.sum((outer @ vectors) ** 2, axis=0)
        drawn = together.drawn(rng.standard_normal, outer.shape[0], self.measured)
        return self.spectrum(outer.T @ drawn)

    @property
    def measured(self) -> int:
        """The number of vectors that show what its spectrum is like."""
        return max(min(MEASURED, SHOWN // together.count(len(self.weights))), min(2, MEASURED))


@dataclass(frozen=True, kw_only=True, eq=False)
class Known:
    """K = G q(B) G, of which the trace is a finite sum by diagonals of polynomials of B; ``factor``
    is the diagonal of G, (n,), positive; q is on [0, b]."""

    operator: Weighted
    factor: Array
    q: Chebyshev

    @property
    def diagonal(self) -> Array:
        """The diagonal of K, shape (n,)."""
        return np.asarray(self.factor**2 * self.operator.diagonal(self.q))

    def apply(self, block: Array) -> Array:
        """K times a block, shape (n, m)."""
        g = self.factor[:, None]
        return np.asarray(g * self.operator.apply(self.q, g * block))

    @property
    def ends(self) -> tuple[float, float]:
        """An interval of 0 and all eigenvalues of K."""
        low, high = polynomials.proved_range(self.q)
        largest = together.largest(self.factor) ** 2
        return largest * min(low, 0.0), largest * max(high, 0.0)


def near(operator: Weighted, factor: Array, *, degree: int, starts: Array, images: Array) -> Known:
    """Find the K of that degree nearest to E by least squares from ``images``, E ``starts``."""
    g = factor[:, None]
    basis = [(g * image).ravel() for image in operator.chebyshev(g * starts, degree)]
    found = together.least_squares(np.stack(basis, axis=1), images.ravel())
    return Known(operator=operator, factor=factor, q=Chebyshev(found, domain=[0.0, operator.top]))


@dataclass(frozen=True, kw_only=True, eq=False)
class Powers:
    """H = F^T F = sum_t c_t (W^t)^T W^t of ``counts`` c >= 0, (T,), and a sparse W >= 0,
    ``mixing``."""

    mixing: Any
    counts: Array

    @cached_property
    def _narrow(self) -> Any:
        """W."""
        return narrow(self.mixing.copy())

    @cached_property
    def _transposed(self) -> Any:
        """W^T."""
        return narrow(self.mixing.T.tocsr())

    @cached_property
    def symmetric(self) -> bool:
        """Whether W is, exactly: H is a polynomial of W^2 then, whose eigenvalues are in [0, 1]."""
        return bool((self.mixing != self.mixing.T).nnz == 0)

    @cached_property
    def fourth_root(self) -> Chebyshev | None:
        """s on [0, 1] with s(W^2)^2 W^2 s(W^2)^2 <= H and hardly less, or None where that takes too
        much."""
        n, steps = self.mixing.shape[0], len(self.counts)
        if not self.symmetric or self.counts[0] == 0 or steps < 6:  # it is of degree 2 at least
            return None
        powers = np.polynomial.Polynomial(self.counts)
        k = Chebyshev.interpolate(powers, steps - 1, domain=[0.0, 1.0])
        squared = Weighted(mixing=self.mixing, weights=np.ones(n))
        x, weights = squared.measure(sparse.eye_array(n, format="csc"), np.random.default_rng(0))
        x = np.clip(x, 0.0, 1.0)
        gain = weights * np.sqrt(x) / n
        return polynomials.fourth_root_below(k, x, gain, degree=3 * steps // 8)

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
        """Independent columns of covariance H, or a little less: F^T, or W s(W^2)^2, of normals."""
        shape = (self.mixing.shape[0], count)
        if self.fourth_root is None:
            return self._gathered(together.drawn(rng.standard_normal, *shape) for _ in self.counts)
        return by_columns(
            lambda z: self._narrow @ self.times_fourth_root(self.times_fourth_root(z)),
            rng.standard_normal(shape),
        )

    def _gathered(self, latest_first: Iterator[Array]) -> Array:
        total: Any = 0.0
        for count, block in zip(self.counts[::-1], latest_first, strict=True):
            total = self._transposed @ (total + math.sqrt(count) * block)
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

    def times_fourth_root(self, block: Array) -> Array:
        """s(W^2) times a block, where there is that s."""
        s, doubled = self.fourth_root, 2 * self._narrow
        assert s is not None
        return clenshaw(s.coef, lambda x: doubled @ (doubled @ x), block)

    @cached_property
    def dense(self) -> Array:
        """H, where n x n arrays are nothing to fear."""
        return self.times(np.eye(self.mixing.shape[0]))

    def top(self, scale: Array) -> float:
        """A bound on the eigenvalues of D^(1/2) H D^(1/2), D = diag(scale)."""
        root = np.sqrt(scale)[:, None]
        # A step takes 2 T products, so that there are fewer of them.
        return largest_at_most(lambda x: root * self.times(root * x), len(scale), steps=20)

    def first(self, apart: float, rng: np.random.Generator) -> Powers:
        """The first of its terms, which are at most H, and all of its trace but about ``apart``."""
        block, parts = rng.standard_normal((self.mixing.shape[0], 1)), []
        for count in self.counts:
            block = self.mixing @ block
            parts.append(count * float(np.sum(block**2)))
        kept = int(np.searchsorted(np.cumsum(parts), (1 - apart) * sum(parts))) + 1
        return Powers(mixing=self.mixing, counts=self.counts[:kept])


def power_steps(
    product: Callable[[Array], Array], size: int, *, steps: int
) -> Iterator[tuple[Array, Array]]:
    """Yield positive x, shape (size, 1), and B x of a nonnegative symmetric B: its eigenvalues are
    at most the largest (B x)_i / x_i (Collatz and Wielandt), whether x has converged or not."""
    x = np.ones((size, 1))
    for _ in range(steps):
        image = product(x)
        yield x, image
        # What is kept of x leaves it positive, and never lets that bound rise.
        x = image / together.largest(image) + 1e-3 * x / together.largest(x)


def largest_at_most(product: Callable[[Array], Array], size: int, *, steps: int) -> float:
    """Bound the eigenvalues of a nonnegative symmetric B by power steps, as many as pay."""
    found: list[float] = []
    for x, image in power_steps(product, size, steps=steps):
        found.append(together.largest(image / x))
        if len(found) > GAINING and min(found) >= (1 - GAIN) * min(found[:-GAINING]):
            break
    return min(found) * (1 + 1e-12)  # for rounding of the products


def by_columns(work: Callable[[Array], Array], block: Array) -> Array:
    """Work on all columns of a block, by threads where it is large."""
    every = COLUMNS if block.size >= WORTH else max(block.shape[1], 1)
    parts = np.split(block, range(every, block.shape[1], every), axis=1)
    found = in_threads(lambda part: work(np.ascontiguousarray(part)), parts)
    return np.concatenate(list(found), axis=1)


def narrow(array: Any) -> Any:
    """The same with indices of four bytes, where they do: products are a fifth quicker."""
    stored: Any = array if sparse.issparse(array) else None  # rows in parts are narrow already
    if stored is not None and stored.nnz < np.iinfo(np.int32).max:
        array.indices, array.indptr = (x.astype(np.int32) for x in (array.indices, array.indptr))
    return array


def squares(block: Any) -> Array:
    """Squared lengths of sparse rows, or of columns of an array."""
    if isinstance(block, np.ndarray):
        return np.asarray(np.einsum("ij,ij->j", block, block))
    rows = np.repeat(np.arange(block.shape[0]), np.diff(block.indptr))
    found = np.bincount(rows, weights=block.data**2, minlength=block.shape[0])
    return np.asarray(found, dtype=np.float64)
