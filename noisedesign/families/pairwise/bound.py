"""What hides each node: the diagonal of R^-1 of a sparse R, between bounds that are finite sums.

With S = diag(R)^(1/2) and R = S (I - N) S, a positive vector z and rho = max (|N| z)_i / z_i give
|N|_2 <= rho (Collatz and Wielandt), so that I - N >= (1 - rho) I. Lanczos steps from a unit vector
e_i, a product with N each, know the first moments of I - N in e_i; among all measures with these
moments on [1 - rho, inf) the integral of 1 / x is least for Gauss' quadrature and largest for
Radau's with a node at 1 - rho (Golub and Meurant 1994). So (I - N)^-1_ii lies between the two, and
no graph around i is seen farther than the steps.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from noisedesign.base.checks import Array
from noisedesign.families.polynomial.program import SparseProgram
from noisedesign.program.noise import PairwiseCovariance

POWER_STEPS = 60
"""For a bound on eigenvalues that holds after any number of them, and is close after these."""

ROOM = 1e-6
"""By which rho is larger than it must be: Radau's node is no eigenvalue."""

BLOCK_ENTRIES = 16_000_000
"""Of all vectors that are held at once."""

DENSE_FROM = 0.05
"""Share of the products of a dense block from which a sparse one is slower, as measured."""

DONE = 1e-12
"""A Lanczos step this short has nothing left: the sums before it are the inverse."""

LOOSE = 1e-3
"""Of bounds on the inverse: steps are taken until this is met."""

SAMPLED = 256
"""Nodes by which the number of steps is chosen."""

MOST_STEPS = 12

MOST_PRODUCTS = 3e10
"""Of a step, as many as a dense block would take: a minute or less."""

PAIRS_AT_ONCE = 100_000

MARGIN = 1e-10
"""By which bounds are widened for the rounding of their sums, relative to what is above 1."""

FEW = 1e-14
"""The same of that 1."""


class Bounds(NamedTuple):
    """Of numbers, one a node."""

    lower: Array
    upper: Array


def contraction(coupling: Any) -> tuple[float, Array]:
    """rho >= |N|_2 and the positive vector z with |N| z <= rho z that proves it.

    Args:
        coupling: N, sparse, symmetric.
    """
    size = abs(coupling)
    z = np.ones(coupling.shape[0])
    for _ in range(POWER_STEPS):
        z = size @ z + z / 2
        z = z / z.max() + 1e-3
    rho = float((size @ z / z).max()) if size.nnz else 0.0
    return rho + ROOM, z


def inverse_diagonal(coupling: Any, rho: float, *, steps: int, nodes: Any = None) -> Bounds:
    """Bounds on the diagonal of (I - N)^-1, by as many products with N as there are steps.

    Args:
        coupling: N, sparse, symmetric, zero on its diagonal.
        rho: a bound on |N|_2, below 1.
        steps: of Lanczos; sums reach so many hops.
        nodes: whose, zero-based; all by default.
    """
    n = coupling.shape[0]
    which = np.arange(n) if nodes is None else np.asarray(nodes)
    lower, upper = np.empty(len(which)), np.empty(len(which))
    columns = max(BLOCK_ENTRIES // n, 1)
    for first in range(0, len(which), columns):
        span = slice(first, first + columns)
        diagonal, beside = _jacobi(coupling, which[span], steps)
        lower[span], upper[span] = _quadratures(1 - diagonal, beside, 1 - rho)
    room = MARGIN * (upper - 1) + FEW
    return Bounds(lower - room, upper + room)


def _jacobi(coupling: Any, nodes: Array, steps: int) -> tuple[Array, Array]:
    """What Lanczos' method makes of N and unit vectors, a column each.

    Returns:
        Diagonals, and squared entries beside them, of Jacobi matrices; shape (steps, m).
    """
    n, m = coupling.shape[0], len(nodes)
    before: Any = sparse.csr_array((n, m))
    current: Any = sparse.csr_array((np.ones(m), (nodes, np.arange(m))), shape=(n, m))
    diagonal, beside = np.zeros((steps, m)), np.zeros((steps, m))
    length = np.zeros(m)
    for j in range(steps):
        if _is_dear(coupling, current):
            before, current = before.toarray(), current.toarray()
        image = coupling @ current
        diagonal[j] = inner(image, current)
        if j + 1 == steps:  # Pythagoras: what is left is orthogonal to both
            beside[j] = np.maximum(inner(image, image) - diagonal[j] ** 2 - length**2, 0.0)
            break
        image = image - scaled(current, diagonal[j]) - scaled(before, length)
        beside[j] = inner(image, image)
        length = np.sqrt(beside[j])
        ended = length < DONE
        beside[j, ended] = length[ended] = 0.0
        inverse = np.divide(1.0, length, out=np.zeros(m), where=~ended)
        before, current = current, scaled(image, inverse)
    return diagonal, beside


def _is_dear(coupling: Any, block: Any) -> bool:
    """Whether N times a block is quicker where that is dense."""
    if isinstance(block, np.ndarray):
        return False
    products = float(np.diff(block.indptr) @ np.diff(coupling.indptr))
    return bool(products > DENSE_FROM * coupling.nnz * block.shape[1])


def scaled(block: Any, factors: Array) -> Any:
    """Columns times factors."""
    return block * factors if isinstance(block, np.ndarray) else block @ sparse.diags_array(factors)


def inner(left: Any, right: Any) -> Array:
    """Inner products of columns."""
    if isinstance(left, np.ndarray):
        return np.asarray(np.einsum("ij,ij->j", left, right))
    return np.asarray(left.multiply(right).sum(axis=0))


def _quadratures(alpha: Array, beta: Array, end: float) -> tuple[Array, Array]:
    """Gauss and Radau: the corners of inverses of Jacobi matrices, as continued fractions.

    Args:
        alpha: diagonals, shape (steps, m).
        beta: squared entries beside, the last of which only Radau's matrix has.
        end: Radau's node, below all eigenvalues.
    """
    pivot = alpha[0] - end
    for j in range(1, len(alpha)):
        pivot = alpha[j] - end - beta[j - 1] / pivot
    gauss, radau = alpha[-1], alpha[-1] - beta[-1] / (end + beta[-1] / pivot)
    for j in range(len(alpha) - 2, -1, -1):
        gauss, radau = alpha[j] - beta[j] / gauss, alpha[j] - beta[j] / radau
    return 1 / gauss, 1 / radau


def chosen_steps(coupling: Any, rho: float) -> int:
    """As many as bounds need to be near each other on some nodes, unless they are dear."""
    n = coupling.shape[0]
    nodes = np.unique(np.linspace(0, n - 1, min(n, SAMPLED)).astype(np.intp))
    degrees = np.diff(coupling.indptr)
    reached = sparse.eye_array(n, format="csr")[:, nodes]
    for steps in range(1, MOST_STEPS + 1):
        sparsely = float(np.diff(reached.indptr) @ degrees) * n / len(nodes)
        if steps > 1 and min(sparsely / DENSE_FROM, float(coupling.nnz) * n) > MOST_PRODUCTS:
            return steps - 1
        if looseness(inverse_diagonal(coupling, rho, steps=steps, nodes=nodes)) <= LOOSE:
            return steps
        reached = coupling @ reached
    return MOST_STEPS


def looseness(bounds: Bounds) -> float:
    """By how much upper bounds are above lower ones, relative, mean over nodes."""
    return float((bounds.upper / bounds.lower - 1).mean())


def normalized(noise: PairwiseCovariance) -> tuple[Any, Array]:
    """N and diag(R) with R = S (I - N) S, S = diag(R)^(1/2)."""
    covariance = noise.matrix
    variance = covariance.diagonal()
    with np.errstate(divide="ignore"):
        scale = sparse.diags_array(1 / np.sqrt(variance))
    coupling = -(scale @ sparse.triu(covariance, 1) @ scale)
    return (coupling + coupling.T).tocsr(), variance


def squared_sensitivity(noise: PairwiseCovariance, budget: Array, *, steps: int | None) -> float:
    """A bound on the largest [R^-1]_ii over its budget; infinite where nothing bounds it.

    Args:
        noise: R.
        budget: tau, shape (n,).
        steps: of Lanczos; a choice of what is near enough, if not given.
    """
    coupling, variance = normalized(noise)
    if not (
        np.isfinite(coupling.data).all() and np.isfinite(variance).all() and variance.min() > 0
    ):
        return math.inf
    rho, _ = contraction(coupling)
    if rho >= 1:
        return math.inf
    steps = chosen_steps(coupling, rho) if steps is None else steps
    return float((inverse_diagonal(coupling, rho, steps=steps).upper / (variance * budget)).max())


def error(program: SparseProgram, noise: PairwiseCovariance) -> float:
    """tr(W R W^T), squared noise: a sum over nodes and edges."""
    first, second = noise.pairs.T
    beside = noise.shares.prod(axis=1) @ gram_on(program.mixing, first, second)
    columns = np.asarray(program.mixing.power(2).sum(axis=0))
    return float(columns @ noise.matrix.diagonal() + 2 * beside)


def gram_on(mixing: Any, first: Any, second: Any) -> Array:
    """(W^T W)_ij of pairs of nodes."""
    columns = mixing.T.tocsr()
    found = np.empty(len(first))
    for begin in range(0, len(first), PAIRS_AT_ONCE):
        span = slice(begin, begin + PAIRS_AT_ONCE)
        found[span] = columns[first[span]].multiply(columns[second[span]]).sum(axis=1)
    return found


def outside(program: SparseProgram, noise: PairwiseCovariance) -> float:
    """The largest covariance of two nodes without a link, relative to the largest variance."""
    linked = (program.mixing + program.mixing.T).tocsr()
    first, second = noise.pairs.T
    if not len(first):  # of which scipy makes a sparse array
        return 0.0
    apart = np.asarray(linked[first, second]).ravel() == 0
    largest = float(np.abs(noise.shares[apart].prod(axis=1)).max(initial=0.0))
    return largest / float(noise.matrix.diagonal().max())
