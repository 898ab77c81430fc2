"""The diagonal of R^-1 of a sparse R, which hides each node, between bounds that are finite sums.

With S = diag(R)^(1/2) and R = S (I - N) S, Lanczos steps from a unit vector, a product with N each,
bound (I - N)^-1_ii by quadratures of Gauss and Radau (docs/methods/large-graphs.md, "Seeds of
neighbours alone")."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from noisedesign.base.checks import Array
from noisedesign.families.polynomial.program import SparseProgram
from noisedesign.families.polynomial.quadrature import jacobi
from noisedesign.families.polynomial.reach import Neighbourhoods
from noisedesign.forms import PairwiseCovariance

SAMPLED = 256  # nodes by which the number of steps is chosen
MOST_STEPS = 12
MOST_PRODUCTS = 3e10  # of a step, as many as a dense block would take: a minute or less
MARGIN, FEW = 1e-10, 1e-14  # relative room of bounds for rounding, in what is above 1 and in that 1


class Bounds(NamedTuple):
    """Bounds on numbers, one a node."""

    lower: Array
    upper: Array


def contraction(coupling: Any) -> tuple[float, Array]:
    """rho >= |N|_2 of a sparse symmetric N, and the z > 0 with |N| z <= rho z that proves it."""
    size = abs(coupling)
    z = np.ones(coupling.shape[0])
    for _ in range(60):
        z = size @ z + z / 2
        z = z / z.max() + 1e-3
    rho = float((size @ z / z).max()) if size.nnz else 0.0
    return rho + 1e-6, z  # Radau's node is no eigenvalue


def inverse_diagonal(coupling: Any, rho: float, *, steps: int, nodes: Any = None) -> Bounds:
    """Bounds on the diagonal of (I - N)^-1 at some nodes, or all; rho < 1 bounds |N|_2."""
    n = coupling.shape[0]
    which = np.arange(n) if nodes is None else np.asarray(nodes)
    lower, upper = np.empty(len(which)), np.empty(len(which))
    around = Neighbourhoods(factor=coupling, transposed=coupling, hops=steps, nodes=which)
    for span, near, _ in (piece for run in around.runs for piece in around.pieces(run)):
        own = near.T.tocsr()
        alpha, beta = jacobi(own.__matmul__, own.shape[0], span.stop - span.start, steps)
        lower[span], upper[span] = _quadratures(1 - alpha, beta, 1 - rho)
    room = MARGIN * (upper - 1) + FEW
    return Bounds(lower - room, upper + room)


def _quadratures(alpha: Array, beta: Array, end: float) -> tuple[Array, Array]:
    """Gauss and Radau: the corners of inverses of Jacobi matrices, as continued fractions.
    ``alpha`` are diagonals, (steps, m), ``beta`` squared entries beside, the last of which only
    Radau's matrix has, and ``end`` is Radau's node, below all eigenvalues."""
    pivot = alpha[0] - end
    for j in range(1, len(alpha)):
        pivot = alpha[j] - end - beta[j - 1] / pivot
    gauss, radau = alpha[-1], alpha[-1] - beta[-1] / (end + beta[-1] / pivot)
    for j in range(len(alpha) - 2, -1, -1):
        gauss, radau = alpha[j] - beta[j] / gauss, alpha[j] - beta[j] / radau
    return 1 / gauss, 1 / radau


def chosen_steps(coupling: Any, rho: float) -> int:
    """Choose as many steps as bring bounds within 1e-3 on some nodes, unless they are dear."""
    n = coupling.shape[0]
    nodes = np.unique(np.linspace(0, n - 1, min(n, SAMPLED)).astype(np.intp))
    degrees = np.diff(coupling.indptr)
    reached = sparse.eye_array(n, format="csr")[:, nodes]
    for steps in range(1, MOST_STEPS + 1):
        sparsely = float(np.diff(reached.indptr) @ degrees) * n / len(nodes)
        # With more than a twentieth of the products of a dense block a sparse one is slower.
        if steps > 1 and min(20 * sparsely, float(coupling.nnz) * n) > MOST_PRODUCTS:
            return steps - 1
        if looseness(inverse_diagonal(coupling, rho, steps=steps, nodes=nodes)) <= 1e-3:
            return steps
        reached = coupling @ reached
    return MOST_STEPS


def looseness(bounds: Bounds) -> float:
    """The mean relative distance of upper from lower bounds."""
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
    """Bound the largest [R^-1]_ii / tau_i, tau of shape (n,); infinite where nothing does."""
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
    for begin in range(0, len(first), 100_000):
        span = slice(begin, begin + 100_000)
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
