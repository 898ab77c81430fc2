"""What is known of noise of polynomial precision, by code that made none of it.

Budgets are finite sums over neighbourhoods: [p(B)]_ii by Gauss quadrature. k Lanczos steps from
e_i give a tridiagonal T with [p(B)]_ii = [p(T)]_11 for every p of degree up to 2k - 1 (Golub and
Meurant 1994, "Matrices, moments and quadrature"), and touch (2k - 1)-hop neighbourhoods alone.
Error and bound are traces, within what random vectors tell of them.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.polynomial import Chebyshev
from scipy import sparse

from noisedesign.base.checks import Array
from noisedesign.families.polynomial import polynomials
from noisedesign.families.polynomial.noise import PolynomialNoise
from noisedesign.families.polynomial.operator import Weighted
from noisedesign.families.polynomial.program import SparseProgram
from noisedesign.families.polynomial.traces import deviation, trace
from noisedesign.program.noise import PolynomialCovariance

CONFIDENCE = 1 - 1e-6

LEAST_PROBES = 48
"""Gaussian vectors of a trace."""

PROBED = 1_000_000
"""Entries of all vectors that probe a trace, where those are not the fewest."""

CHEAP_DEGREE = 2
"""Of p while V is searched, and of what is known exactly of the trace of a bound."""

DEGREES_BELOW = (16, 64, 128)
"""Of polynomials below the square root; the best by what is expected of it is taken."""

ENTRIES_AT_ONCE = 1 << 24
"""Numbers of a block of columns, 128 MB: some six are held at once."""

POWER_STEPS = 300
"""For a bound on eigenvalues, at most: it falls with each, and one that is at most b ends them."""

POINTS_PER_DEGREE = 4096
"""At which p and r^2 p are evaluated, a degree: what they do in between is known to 4e-4 of how
much they change."""

FAILURE = (1 - CONFIDENCE) / 2


class Estimate(NamedTuple):
    """What a number is between; both ends are the number itself where nothing is drawn."""

    low: float
    high: float

    @property
    def spread(self) -> float:
        """How far apart the ends are, relative to the upper one."""
        return (self.high - self.low) / self.high if self.high > 0 else 0.0


def probes_of(program: SparseProgram) -> int:
    """Random vectors a trace; as many as nodes are no longer random, but unit vectors."""
    return max(LEAST_PROBES, PROBED // program.size)


def is_exact(program: SparseProgram) -> bool:
    """Whether traces are those themselves, up to rounding."""
    return probes_of(program) >= program.size


def squared_sensitivity(noise: PolynomialCovariance, budget: Array) -> float:
    """A bound on the largest [R^-1]_ii over its budget; infinite where nothing bounds it.

    With c the least r^2 p on [0, b], R^-1 is at most D^(-1/2) p(B) D^(-1/2) / c.
    """
    p, r = noise.polynomials
    if not eigenvalues_within(noise) or least(p, p) <= 0:
        return math.inf
    slack = least(r * r * p, r * r * p - 1)
    if slack <= 0:
        return math.inf
    found = diagonal(noise) / (noise.scale * budget)
    return float(found.max()) / min(slack, 1.0) if np.isfinite(found).all() else math.inf


def eigenvalues_within(noise: PolynomialCovariance) -> bool:
    """Whether b is above every eigenvalue of B: (B x)_i <= b x_i for some x > 0 proves it."""
    a = _factor(noise)
    transposed = a.T.tocsr()
    x = np.ones(noise.nodes)
    for _ in range(POWER_STEPS):
        image = transposed @ (a @ x)
        if (image <= noise.bound * x).all():
            return True
        x = image / image.max() + 1e-6 * x
    return False


def least(p: Chebyshev, part: Chebyshev) -> float:
    """A bound from below on a polynomial on its domain, of which ``part`` is all but a constant.

    On the angles of Chebyshev points a polynomial of degree d changes by at most d times its
    largest size (Bernstein), which is what is seen of it over 1 - d h / 2 at points h apart.
    """
    degree = max(part.degree(), 1)
    count = POINTS_PER_DEGREE * degree
    angles = (np.arange(count) + 0.5) * (math.pi / count)
    low, high = p.domain
    seen = part(low + (high - low) / 2 * (1 + np.cos(angles)))
    missed = degree * (math.pi / count) / 2
    size = float(np.abs(seen).max()) / (1 - missed)
    rounding = 1e-14 * float(np.abs(part.coef).sum())
    constant = float((p - part).coef[0])
    return constant + float(seen.min()) - missed * size - rounding


def diagonal(noise: PolynomialCovariance) -> Array:
    """The diagonal of p(B), shape (n,)."""
    p, _ = noise.polynomials
    steps = p.degree() // 2 + 1
    a, n = _factor(noise), noise.nodes
    transposed = a.T.tocsr()
    found = np.empty(n)
    width = max(1, ENTRIES_AT_ONCE // n)
    for first in range(0, n, width):
        places = np.arange(first, min(first + width, n))
        diagonals, beside = _lanczos(a, transposed, places, steps)
        matrices = np.zeros((len(places), steps, steps))
        k = np.arange(steps)
        matrices[:, k, k] = diagonals.T
        matrices[:, k[1:], k[:-1]] = beside.T
        values, vectors = np.linalg.eigh(matrices)
        found[places] = np.sum(vectors[:, 0, :] ** 2 * p(values), axis=1)
    return found


def _lanczos(a: Any, transposed: Any, places: Any, steps: int) -> tuple[Array, Array]:
    """Of B = A^T A from unit vectors: diagonals, (steps, m), and what is beside them."""
    m = len(places)
    unit: Any = sparse.csr_array((np.ones(m), (places, np.arange(m))), shape=(a.shape[1], m))
    seen: Any = a @ unit
    diagonals, beside = np.empty((steps, m)), np.zeros((steps - 1, m))
    current: Any = None
    previous: Any = None
    for k in range(steps):
        diagonals[k] = _squares(seen)
        if k == steps - 1:
            break
        following = _array(transposed @ seen)
        if current is None:
            following[places, np.arange(m)] -= diagonals[0]
        else:
            following -= diagonals[k] * current
            if previous is None:
                following[places, np.arange(m)] -= beside[0]
            else:
                following -= beside[k - 1] * previous
        length = np.sqrt(_squares(following))
        beside[k] = length
        following /= np.where(length > 0, length, 1.0)
        previous, current = current, following
        seen = a @ following
    return diagonals, beside


def _array(block: Any) -> Array:
    return block if isinstance(block, np.ndarray) else np.asarray(block.toarray())


def _squares(block: Any) -> Array:
    """Squared lengths of columns."""
    if isinstance(block, np.ndarray):
        return np.asarray(np.einsum("ij,ij->j", block, block))
    return np.asarray(block.power(2).sum(axis=0))


def _factor(noise: PolynomialCovariance) -> Any:
    """A with B = A^T A."""
    return (noise.mixing @ sparse.diags_array(np.sqrt(noise.weights))).tocsr()


def error(program: SparseProgram, noise: PolynomialCovariance) -> Estimate:
    """tr(W R W^T), squared noise, of noise whose B has its eigenvalues within [0, b]."""
    p, r = noise.polynomials
    operator = Weighted(mixing=program.mixing, weights=noise.weights)
    object.__setattr__(operator, "top", noise.bound)  # the domain that p and r are told on
    stated = PolynomialNoise(operator=operator, precision=p, scale=noise.scale, root=r)
    rng = _vectors(program, 0)
    return error_within(stated, probes=probes_of(program), failure=FAILURE, rng=rng)


def proved(program: SparseProgram, weights: Array) -> Estimate:
    """What multipliers prove, squared noise: (tr B^(1/2))^2 / <tau, v>, or somewhat less."""
    operator = Weighted(mixing=program.mixing, weights=weights / weights.max())
    rng = _vectors(program, 1)
    return bound_within(program, operator, probes=probes_of(program), failure=FAILURE, rng=rng)


def _vectors(program: SparseProgram, use: int) -> np.random.Generator:
    """Where vectors come from; what is exact depends on them no further than on a choice."""
    seed = 0 if is_exact(program) else program.seed
    return np.random.default_rng(None if seed is None else [seed, 1 + use])


# --- traces ---------------------------------------------------------------------------------------


def error_at_most(
    noise: PolynomialNoise, *, probes: int, failure: float, rng: np.random.Generator
) -> float:
    """The upper end of :func:`error_within`."""
    return error_within(noise, probes=probes, failure=failure, rng=rng).high


def error_within(
    noise: PolynomialNoise, *, probes: int, failure: float, rng: np.random.Generator
) -> Estimate:
    """What tr(W cov(z) W^T) is between, either side but with probability ``failure``.

    Of a polynomial near r^2, of lower degree, the trace is a finite sum; only that of the rest is
    estimated.
    """
    operator, degree = noise.operator, max(noise.precision.degree() - 1, 1)
    outer = (operator.mixing @ sparse.diags_array(np.sqrt(noise.scale))).tocsr()
    points, weights = operator.spectrum(outer.T @ rng.standard_normal(outer.shape[0]))
    squared = noise.root * noise.root
    near = polynomials.fitted(squared(points), points, weights, degree=degree, top=operator.top)
    exact = float(operator.diagonal(near, outer.T).sum())
    norm = Weighted(mixing=operator.mixing, weights=noise.scale).top
    rest = trace(
        operator, squared - near, outer=outer, norm=norm, probes=probes, failure=failure, rng=rng
    )
    return Estimate(exact + rest.value - rest.below, exact + rest.value + rest.above)


def lower_bound(
    program: SparseProgram,
    operator: Weighted,
    *,
    probes: int,
    failure: float,
    rng: np.random.Generator,
) -> float:
    """The lower end of :func:`bound_within`: no noise within the budgets has a smaller error, but
    with probability ``failure``."""
    return bound_within(program, operator, probes=probes, failure=failure, rng=rng).low


def bound_within(
    program: SparseProgram,
    operator: Weighted,
    *,
    probes: int,
    failure: float,
    rng: np.random.Generator,
) -> Estimate:
    """What a bound on the error of all noise within the budgets is between, either side but with
    probability ``failure``.

    It is (tr B^(1/2))^2 / sum(tau v), for any v > 0, with a polynomial below the square root in its
    place: of a polynomial of lower degree near that one the trace is a finite sum, only that of the
    rest is estimated.

    Args:
        program: W and the budgets.
        operator: B of W and v.
        probes: Gaussian vectors.
        failure: probability that the bound does not hold.
        rng: of the vectors.
    """
    top, n = operator.top, program.size
    identity = sparse.eye_array(n, format="csc")
    moments = operator.moments(identity, CHEAP_DEGREE).sum(axis=1)
    start = rng.standard_normal(n)
    points, weights = operator.spectrum(start)
    kinds = []
    for degree in DEGREES_BELOW:
        g = polynomials.below_root(points, weights, degree=degree, top=top)
        near = polynomials.fitted(g(points), points, weights, degree=CHEAP_DEGREE, top=top)
        ends = polynomials.proved_range(g - near)
        squared = float(weights @ (g - near)(points) ** 2)
        lost = deviation(squared, *ends, probes=probes, failure=failure) if probes < n else 0.0
        kinds.append((float(weights @ g(points)) - lost, g, near))
    _, g, near = max(kinds, key=lambda kind: kind[0])
    rest = trace(operator, g - near, probes=probes, failure=failure, rng=rng)
    half, price = float(near.coef @ moments) + rest.value, program.budget @ operator.weights
    low, high = (max(end, 0.0) ** 2 / price for end in (half - rest.below, half + rest.above))
    return Estimate(float(low), float(high))
