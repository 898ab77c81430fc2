"""Covariances R of many nodes by O(edges) numbers: noise is drawn by products, and there is no R.

===============  ============================================================================
kind             arrays, besides W by rows (``mixing_data``, ``_indices`` and ``_indptr``)
===============  ============================================================================
polynomial       ``precision_coefficients`` and ``noise_coefficients`` of p and r,
                 ``spectral_bound`` b, ``node_weights`` v and ``node_scales`` D
pairwise         ``own_shares``, ``seed_nodes`` and ``seed_shares``: what nodes multiply their own
                 normals by, who shares each seed, and what the two multiply its normal by
===============  ============================================================================"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.polynomial import Chebyshev
from scipy.sparse import csr_array, diags_array
from scipy.sparse.linalg import LinearOperator, aslinearoperator

from noisedesign.base import settings
from noisedesign.base.checks import Array, InputError

MIXING_ARRAYS = {
    "mixing_data": "entries of W, row by row",
    "mixing_indices": "their columns",
    "mixing_indptr": "where each row begins",
}
"""W as a sparse array, as files hold it: the names of its parts, and what they are."""

COLUMNS_AT_ONCE = 64  # coordinates of the model that are drawn together


class SparseCovariance(ABC):
    """R of n nodes, known by fewer numbers than it has entries."""

    kind: ClassVar[str]  # the name in :class:`noisedesign.forms.structure.SpaceStructure`
    names: ClassVar[Mapping[str, str]]
    """Names of its arrays but W, and what each is in the mathematics."""
    drawn: ClassVar[str]  # sentences on who draws such noise, and what they learn

    @property
    @abstractmethod
    def nodes(self) -> int:
        """n."""

    @abstractmethod
    def arrays(self) -> dict[str, Array]:
        """The arrays that determine it, by ``names``, with W where that is one."""

    @classmethod
    @abstractmethod
    def of_arrays(cls, arrays: Mapping[str, Array], *, nodes: int, field: str) -> Self:
        """Read :meth:`arrays` back, ignoring others; InputError for impossible ones."""

    @abstractmethod
    def scaled(self, factor: float) -> Self:
        """The covariance of ``factor`` times the noise (not squared)."""

    @abstractmethod
    def root(self) -> LinearOperator:
        """F with F F^T = R, by its products with blocks of white noise."""

    def covariance(self) -> Array:
        """R, shape (n, n), squared noise; InputError above DENSE_NODES."""
        if self.nodes > settings.DENSE_NODES:
            expected = f"noise of at most {settings.DENSE_NODES} nodes, for an n x n covariance"
            got = f"that of {self.nodes}, {self.kind}"
            remedy = "It is drawn by products: see design.noise.stream."
            raise InputError("design", expected=expected, got=got, remedy=remedy)
        return self._written_out()

    def _written_out(self) -> Array:
        factor = np.asarray(self.root() @ np.eye(self.nodes))
        found = factor @ factor.T
        return np.asarray((found + found.T) / 2)


@dataclass(frozen=True, kw_only=True, eq=False)
class PolynomialCovariance(SparseCovariance):
    """R = D^(1/2) r(B)^2 D^(1/2) with B = V^(1/2) W^T W V^(1/2), r^2 >= 1 / p on [0, b].

    r and p are polynomials by their Chebyshev coefficients (``noise``, ``precision``) on [0, b], b
    the ``bound`` on eigenvalues of B, so that R^-1 is at most D^(-1/2) p(B) D^(-1/2); V and D are
    diagonals (n,), ``weights`` and ``scale``."""

    kind: ClassVar[str] = "polynomial"
    names: ClassVar[Mapping[str, str]] = {
        "precision_coefficients": "p, in Chebyshev polynomials on [0, b]",
        "noise_coefficients": "r, in the same",
        "spectral_bound": "b",
        "node_weights": "v",
        "node_scales": "D",
    }
    drawn: ClassVar[str] = (
        "Noise of all nodes is drawn together, by products with W: by somebody who deals it out, "
        "or by twice the degree of r rounds of messages along the links, which hide nothing from "
        "nodes that take part. Edge-local noise needs neither."
    )

    mixing: Any
    weights: Array
    bound: float
    precision: Array
    noise: Array
    scale: Array

    @property
    def nodes(self) -> int:
        return len(self.scale)

    def arrays(self) -> dict[str, Array]:
        bound = np.array([self.bound])
        parts = (self.precision, self.noise, bound, self.weights, self.scale)
        return dict(zip(self.names, parts, strict=True)) | mixing_arrays(self.mixing)

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, Array], *, nodes: int, field: str) -> Self:
        precision, noise, bound, weights, scale = (arrays[name] for name in cls.names)

        def few(coefficients: Array) -> bool:
            return coefficients.ndim == 1 and 0 < len(coefficients) <= 1000

        def positive(array: Array, length: int) -> bool:
            return array.shape == (length,) and bool((array > 0).all())

        require = partial(require_array, arrays, field)
        require("precision_coefficients", "at most 1000 coefficients", few(precision))
        require("noise_coefficients", "at most 1000 coefficients", few(noise))
        require("spectral_bound", "one positive number", positive(bound, 1))
        require("node_weights", f"{nodes} positive numbers", positive(weights, nodes))
        require("node_scales", f"{nodes} positive numbers", positive(scale, nodes))
        return cls(
            mixing=mixing_of_arrays(arrays, nodes=nodes, field=field),
            weights=weights,
            bound=float(bound[0]),
            precision=precision,
            noise=noise,
            scale=scale,
        )

    @property
    def polynomials(self) -> tuple[Chebyshev, Chebyshev]:
        """p and r."""
        domain = [0.0, self.bound]
        return Chebyshev(self.precision, domain=domain), Chebyshev(self.noise, domain=domain)

    def scaled(self, factor: float) -> Self:
        return replace(self, scale=factor**2 * self.scale)

    def reordered(self, order: Array) -> Self:
        """The same noise of nodes in another order, in which ``order`` are their places here."""
        mixing = self.mixing[order][:, order]
        return replace(self, mixing=mixing, weights=self.weights[order], scale=self.scale[order])

    @cached_property
    def _doubled(self) -> tuple[Any, Any]:
        """2 W V^(1/2) / b^(1/2) and its transpose."""
        a = (self.mixing @ diags_array(2 * np.sqrt(self.weights / self.bound))).tocsr()
        return a, a.T.tocsr()

    def root(self) -> LinearOperator:
        scale = np.sqrt(self.scale)[:, None]
        product = partial(_in_parts, lambda part: scale * self._of_b(part))
        transposed = partial(_in_parts, lambda part: self._of_b(scale * part))
        by: dict[str, Any] = {"matvec": product, "matmat": product}
        by |= {"rmatvec": transposed, "rmatmat": transposed}
        return LinearOperator((self.nodes,) * 2, dtype=np.float64, **by)

    def _of_b(self, block: Array) -> Array:
        """r(B) times a block."""
        a, transposed = self._doubled
        return clenshaw(self.noise, lambda x: transposed @ (a @ x), block)


def clenshaw(coefficients: Any, product: Callable[[Array], Array], block: Array) -> Array:
    """A Chebyshev series on [0, b] of B times a block (Clenshaw 1955), in place."""
    previous, current = np.zeros_like(block), coefficients[-1] * block
    for coefficient in coefficients[-2:0:-1]:
        following = product(current)
        previous += current
        previous += current
        following -= previous
        np.multiply(block, coefficient, out=previous)
        following += previous
        previous, current = current, following
    if len(coefficients) == 1:
        return np.asarray(current)
    total = product(current)
    total /= 2
    total -= current
    total -= previous
    np.multiply(block, coefficients[0], out=previous)
    total += previous
    return np.asarray(total)


def _in_parts(product: Callable[[Array], Array], block: Array) -> Array:
    """A product with a block, a few of its columns at a time."""
    columns = np.asarray(block, dtype=np.float64).reshape(len(block), -1)
    found = np.empty_like(columns)
    for first in range(0, columns.shape[1], COLUMNS_AT_ONCE):
        part = slice(first, first + COLUMNS_AT_ONCE)
        found[:, part] = product(columns[:, part])
    return found.reshape(block.shape)


@dataclass(frozen=True, kw_only=True, eq=False)
class PairwiseCovariance(SparseCovariance):
    """R = F F^T of seeds that one node has alone, or two share: node u adds ``own``_u g_u and, of
    every seed e it holds, its share_e,u g_e, of independent standard normals g; ``pairs`` of nodes,
    (m, 2), have ``shares``, (m, 2), not squared."""

    kind: ClassVar[str] = "pairwise"
    names: ClassVar[Mapping[str, str]] = {
        "own_shares": "factor of every node's own seed",
        "seed_nodes": "the two nodes of every shared seed",
        "seed_shares": "factor of either",
    }
    drawn: ClassVar[str] = (
        "Every node draws its noise from a seed of its own and one with each neighbour: nobody "
        "deals it out, and nothing is sent. Who holds a seed can pass it on."
    )

    own: Array
    pairs: Any
    shares: Array

    @property
    def nodes(self) -> int:
        return len(self.own)

    def arrays(self) -> dict[str, Any]:
        parts = self.own, self.pairs.astype(np.float64), self.shares
        return dict(zip(self.names, parts, strict=True))

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, Any], *, nodes: int, field: str) -> Self:
        own, pairs, shares = (arrays[name] for name in cls.names)
        known = pairs.ndim == 2 and pairs.shape[1] == 2 and bool((pairs == np.floor(pairs)).all())
        known = known and bool(((pairs >= 0) & (pairs < nodes)).all())
        known = known and bool((pairs[:, 0] != pairs[:, 1]).all())
        require = partial(require_array, arrays, field)
        fits = own.shape == (nodes,) and (own >= 0).all()
        require("own_shares", f"{nodes} numbers >= 0", fits)
        require("seed_nodes", f"pairs of two nodes below {nodes}", known)
        require("seed_shares", "a number for either node of a pair", shares.shape == pairs.shape)
        return cls(own=own, pairs=pairs.astype(np.int64), shares=shares)

    def scaled(self, factor: float) -> Self:
        return replace(self, own=factor * self.own, shares=factor * self.shares)

    @cached_property
    def _factor(self) -> Any:
        """F, shape (n, n + m), by rows."""
        n, m = self.nodes, len(self.pairs)
        rows = np.concatenate([np.arange(n), *self.pairs.T])
        columns = np.concatenate([np.arange(n), np.tile(n + np.arange(m), 2)])
        values = np.concatenate([self.own, *self.shares.T])
        return csr_array((values, (rows, columns)), shape=(n, n + m))

    @cached_property
    def matrix(self) -> Any:
        """R, sparse, shape (n, n), squared noise; symmetric to the last digit."""
        (first, second), (a, b) = self.pairs.T, self.shares.T
        nodes = np.arange(self.nodes)
        rows = np.concatenate([nodes, first, second, first, second])
        columns = np.concatenate([nodes, first, second, second, first])
        values = np.concatenate([self.own**2, a**2, b**2, a * b, a * b])
        found = csr_array((values, (rows, columns)), shape=(self.nodes,) * 2)
        return (found + found.T) / 2

    def root(self) -> LinearOperator:
        return aslinearoperator(self._factor)

    def _written_out(self) -> Array:
        return np.asarray(self.matrix.toarray())

    def held_by(self, node: int) -> list[tuple[int, int, float]]:
        """The shared seeds of a node: which, with whom, and what it multiplies its normal by."""
        row = self._factor[[node]].tocoo()
        n, both = self.nodes, self.pairs.sum(axis=1)
        return [
            (int(k) - n, int(both[k - n]) - node, float(share))
            for k, share in zip(row.coords[1], row.data, strict=True)
            if k >= n
        ]


def require_array(
    arrays: Mapping[str, Array], field: str, name: str, expected: str, holds: Any
) -> None:
    if not holds:
        got = f"an array of shape {np.shape(arrays[name])}"
        raise InputError(f"{field}.{name}", expected=expected, got=got)


def mixing_arrays(mixing: Any) -> dict[str, Array]:
    """The parts of a sparse W by the names of ``MIXING_ARRAYS``, float64 as in all files."""
    parts = (part.astype(np.float64) for part in (mixing.data, mixing.indices, mixing.indptr))
    return dict(zip(MIXING_ARRAYS, parts, strict=True))


def mixing_of_arrays(arrays: Mapping[str, Array], *, nodes: int, field: str) -> Any:
    """Make the sparse W of arrays named as ``MIXING_ARRAYS``, or raise InputError."""
    for name in MIXING_ARRAYS:
        if name not in arrays:
            raise InputError(f"{field}.{name}", expected=f"the array of {name}", got="nothing")
    data, indices, indptr = (arrays[name] for name in MIXING_ARRAYS)
    try:
        places = [part.astype(np.int64) for part in (indices, indptr)]
        if any((a != b).any() for a, b in zip(places, (indices, indptr), strict=True)):
            raise ValueError("places that are no integers")
        found: Any = csr_array((data, *places), shape=(nodes, nodes), copy=True)
        found.check_format(full_check=True)
        if found.nnz != len(data):
            raise ValueError(f"{len(data)} entries, of which rows have {found.nnz}")
    except (ValueError, IndexError, TypeError) as error:
        expected = f"a sparse array of {nodes} x {nodes}"
        raise InputError(f"{field}.mixing_indices", expected=expected, got=str(error)) from error
    return found


FORMS: tuple[type[SparseCovariance], ...] = (PolynomialCovariance, PairwiseCovariance)


def sparse_covariance_of_arrays(
    arrays: Mapping[str, Array], *, nodes: int, field: str
) -> SparseCovariance | None:
    """Make the covariance that has its arrays among ``arrays``; None where none has."""
    for form in FORMS:
        if set(form.names) <= set(arrays):
            return form.of_arrays(arrays, nodes=nodes, field=field)
    return None
