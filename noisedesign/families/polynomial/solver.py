"""Noise of polynomial precision, X = D^(-1/2) p(B) D^(-1/2) with B = V^(1/2) W^T W V^(1/2).

D = diag(p(B)) / tau makes X_ii = tau_i whatever V and p are. Without a degree p is the square root
and D = V at the optimum, so V comes from D by a fixed point, and p from the spectrum of B. Drawn
noise is z = D^(1/2) r(B) g of standard normal g, with r^2 >= 1 / p on all of [0, b]; so
cov(z) >= X^-1, and the budgets hold for it as well."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.polynomial import Chebyshev
from scipy import sparse

from noisedesign.base import together
from noisedesign.base.checks import Array
from noisedesign.families.polynomial import polynomials
from noisedesign.families.polynomial.operator import GoOn, Weighted, near
from noisedesign.families.polynomial.program import SparseProgram
from noisedesign.forms import PolynomialCovariance

PROBES = 16  # vectors that probe diag(B^(1/2)) for V, whose noise costs a bound little
ROOT_DEGREE = 48  # of a polynomial near it, by which V is found
CHEAP_DEGREE = 2  # of p while V is searched


def improving(
    program: SparseProgram,
    *,
    degree: int | None = None,
    rng: np.random.Generator,
    go_on: GoOn | None = None,
) -> Iterator[tuple[PolynomialCovariance, Weighted]]:
    """Yield noise of a precision of that degree, by default the affordable one, and B of the
    multipliers that a bound is made of (docs/methods/large-graphs.md).

    The first is of a low degree, all are within the budgets, the later the better; they end where
    ``go_on`` says no. The diagonals of T_j(B) are found once."""
    operator = _scaled(program, 1 / program.budget)
    density = _density(operator, rng)
    p, scale = _of_commuting(program, operator, operator.moments(CHEAP_DEGREE), density)
    yield _noise(operator, p, scale), _scaled(program, scale)
    if program.plain:
        operator = _scaled(program, scale)
        density = _density(operator, rng)
    if degree is None:
        degree = affordable_degree(operator, rng=rng)
    try:
        moments = operator.moments(degree, go_on=go_on)
    except TimeoutError:
        return
    p, scale = _of_commuting(program, operator, moments, density)
    bounding = _scaled(program, scale)
    yield _noise(operator, p, scale), bounding
    if program.plain:
        root = polynomials.root(*density, degree=ROOT_DEGREE, top=operator.top)
        bounding = weighted(program, scale, root, beside=operator, degree=degree, rng=rng)
        yield _noise(operator, p, scale), bounding
    for _ in range(2 if program.plain else 4):  # the first gains a quarter, a third nothing
        x, seen = _seen(program, operator, scale, rng)
        # Of diagonals, which are known.
        prices = together.total(moments @ (bounding.weights / scale))
        gain = seen / (seen @ (1 / p(x))) * (prices @ _coefficients(p))
        p = polynomials.precision(x, gain / prices[0], prices / prices[0], top=operator.top)
        scale = _coefficients(p) @ moments / program.budget
        if not program.plain:
            bounding = _multipliers(program, operator, p, moments, rng=rng)
        yield _noise(operator, p, scale), bounding


def _noise(operator: Weighted, p: Chebyshev, scale: Array) -> PolynomialCovariance:
    return PolynomialCovariance(
        mixing=operator.mixing,
        weights=operator.weights,
        bound=operator.top,
        precision=_coefficients(p),
        noise=_coefficients(polynomials.inverse_root(p)),
        scale=scale * (1 + 1e-10),  # budgets are undercut for the rounding of finite sums
    )


def _seen(
    program: SparseProgram, operator: Weighted, scale: Array, rng: np.random.Generator
) -> tuple[Array, Array]:
    """A measure that stands for f -> tr(H D^(1/2) f(B) D^(1/2))."""
    root = np.sqrt(scale)[:, None]
    if operator.small:
        values, vectors = operator.eigen
        y = root * vectors
        return values, np.sum(y * (program.objective.dense @ y), axis=0)
    return operator.spectrum(root * program.objective.random(rng, operator.measured))


def _multipliers(
    program: SparseProgram,
    operator: Weighted,
    p: Chebyshev,
    moments: Array,
    *,
    rng: np.random.Generator,
) -> Weighted:
    """B with V near diag(R H R), the multipliers of the optimum: the variance of R F^T g of a few
    g, with what nodes have in common by their diagonals of T_j(B) taken out of its noise by
    regression."""
    scale = _coefficients(p) @ moments / program.budget
    root = np.sqrt(scale)[:, None]
    if operator.small:
        values, vectors = operator.eigen
        r = (root * vectors / p(values)) @ (root * vectors).T
        return _scaled(program, np.sum((r @ program.objective.dense) * r, axis=1))
    r = polynomials.inverse_root(p, slack=1e-2)  # a few samples say no more
    drawn = operator.apply(r, operator.apply(r, root * program.objective.random(rng, PROBES)))
    seen = np.log(np.mean((root * drawn) ** 2, axis=1))
    features = np.column_stack([np.log(scale), np.log(program.budget), *moments[1:]])
    features = np.column_stack([np.ones(len(seen)), features, features**2])
    fitted = features @ np.linalg.lstsq(features, seen, rcond=None)[0]
    left = seen - fitted
    known = max(0.0, 1 - 2 / (PROBES * float(np.mean(left**2))))  # 2 / m: variance of a log chi^2
    return _scaled(program, np.exp(fitted + known * left))


def _scaled(program: SparseProgram, weights: Array) -> Weighted:
    return Weighted(mixing=program.mixing, weights=weights / together.largest(weights))


def _coefficients(p: Chebyshev) -> Array:
    """The coefficients of T_0, T_1, ..."""
    return np.asarray(p.coef, dtype=np.float64)


def _density(operator: Weighted, rng: np.random.Generator) -> tuple[Array, Array]:
    """Points and weights, which sum to 1, that stand for the eigenvalues."""
    x, weights = operator.measure(sparse.eye_array(len(operator.weights), format="csc"), rng)
    return x, weights / weights.sum()


def _of_commuting(
    program: SparseProgram, operator: Weighted, moments: Array, density: tuple[Array, Array]
) -> tuple[Chebyshev, Array]:
    """The p that would be best if D were V, and both a multiple of the identity; and D."""
    x, weights = density
    means = together.total(moments.sum(axis=1)) / program.size
    p = polynomials.precision(x, x * weights, means, top=operator.top)
    return p, _coefficients(p) @ moments / program.budget


def affordable_degree(operator: Weighted, *, rng: np.random.Generator) -> int:
    """The largest degree, up to 8, whose sums over neighbourhoods cost no more than the traces."""
    n = together.count(len(operator.weights))
    nodes = np.sort(rng.choice(n, min(n, 64), replace=False))
    reached = operator.units(nodes)
    for degree in range(1, 9):
        reached = (operator.transposed if degree % 2 == 0 else operator.factor) @ reached
        if together.total(reached.nnz) > 8000 * len(nodes) and degree > CHEAP_DEGREE:
            return degree - 1
    return 8


def weighted(
    program: SparseProgram,
    weights: Array,
    root: Chebyshev,
    *,
    beside: Weighted,
    degree: int,
    rng: np.random.Generator,
) -> Weighted:
    """B with V near a fixed point of f(V) = diag(B^(1/2)) / tau, from ``weights`` on. f takes log V
    about half the way there, so that the first round goes to f(V)^2 / V. ``root`` is near the root
    where ``beside`` has its eigenvalues, of which diagonals up to ``degree`` are known."""
    for number in range(2):
        operator = _scaled(program, weights)
        diagonal = _root_diagonal(operator, root, beside=beside, degree=degree, rng=rng)
        # An estimate of a node's multiplier may be negative.
        mean = float(together.total(diagonal.sum())) / program.size
        found = np.maximum(diagonal, 1e-2 * mean) / program.budget
        weights = found if number else found * (found / operator.weights)
    return _scaled(program, weights)


def _root_diagonal(
    operator: Weighted, root: Chebyshev, *, beside: Weighted, degree: int, rng: np.random.Generator
) -> Array:
    """About diag(B^(1/2)): that of a polynomial near the root, and the rest by random signs."""
    n = len(operator.weights)
    if operator.small:
        values, vectors = operator.eigen
        return np.asarray(vectors**2 @ np.sqrt(values))
    # Of B over its bound the spectrum is like that beside it.
    g = root * math.sqrt(operator.top / beside.top)
    signs = together.drawn(lambda size: rng.choice([-1.0, 1.0], size=size), n, PROBES)
    images = operator.apply(g, signs)
    factor = (operator.weights / beside.weights) ** 0.25
    known = near(beside, factor, degree=degree, starts=signs[:, :2], images=images[:, :2])
    rest = np.mean(signs * (images - known.apply(signs)), axis=1)
    return np.asarray(known.diagonal + rest)
