"""Noise of polynomial precision, X = D^(-1/2) p(B) D^(-1/2) with B = V^(1/2) W^T W V^(1/2).

D = diag(p(B)) / tau makes X_ii = tau_i whatever V and p are: budgets are met by construction, and D
is a finite sum over neighbourhoods. Without a degree p is the square root and D = V at the optimum,
so V comes from D by a fixed point, and p from the spectrum of B. Drawn noise is z = D^(1/2) r(B) g
of standard normal g, with r^2 >= 1 / p proved on all of [0, b]; so cov(z) >= X^-1, and the budgets
hold for it as well.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.polynomial import Chebyshev
from scipy import sparse

from noisedesign.base.checks import Array, InputError
from noisedesign.families.polynomial import polynomials
from noisedesign.families.polynomial.bound import CONFIDENCE, error_within, lower_bound, probes_of
from noisedesign.families.polynomial.known import near
from noisedesign.families.polynomial.noise import PolynomialNoise
from noisedesign.families.polynomial.operator import MEASURED, GoOn, Weighted, always
from noisedesign.families.polynomial.program import SparseProgram

WEIGHT_PROBES = 32
"""Vectors that probe diag(B^(1/2)), from which V is made: noise in V costs a bound little."""
MOST_DEGREE = 8
"""Of p, where neighbourhoods are small: more gains little."""
SAMPLED = 64
"""Nodes whose neighbourhoods are looked at to choose a degree."""
MOST_REACHED = 8000
"""Nodes within as many hops as the degree, on average."""
REFITS = 2
"""Of p to the measures it is there for: the first gains a quarter, a third nothing."""
CHEAP_DEGREE = 2
"""Of p while V is searched."""
FITTED = 2
"""Vectors by which what is known of diag(B^(1/2)) is chosen."""
ROUGH = 1e-2
"""Of 1 / p, where a few samples say what the multipliers are."""
DEGREE_NEAR = 64
"""Of a polynomial near the square root, while V is searched."""
ROUNDS = 2
LEAST_WEIGHT = 1e-2
"""Of a node's multiplier times its budget, in means of those: an estimate may be negative."""
MARGIN = 1e-10
"""By which budgets are undercut, for the rounding of finite sums."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SparseDesign:
    """Noise, and what is known of its error.

    Attributes:
        noise: the noise.
        objective: tr(W cov(z) W^T) is at most this, squared noise.
        lower_bound: no noise within the budgets has a smaller error.
        confidence: probability, over the vectors that probed the traces, that both hold; 1 where
            they are the traces themselves, up to rounding.
    """

    noise: PolynomialNoise
    objective: float
    lower_bound: float
    confidence: float

    @cached_property
    def gap(self) -> float:
        """objective / lower_bound - 1."""
        return self.objective / self.lower_bound - 1 if self.lower_bound > 0 else np.inf


def solve(
    program: SparseProgram,
    *,
    degree: int | None = None,
    rounds: int = ROUNDS,
    probes: int | None = None,
    confidence: float = CONFIDENCE,
    seed: int = 0,
) -> SparseDesign:
    """A design of polynomial precision, its error and a lower bound.

    Args:
        program: W and the budgets.
        degree: of p in B; budgets take sums over as many hops. By default what is affordable.
        rounds: of the fixed point for V.
        probes: Gaussian vectors of either trace; by default what takes about the same time on
            small graphs. From n on the traces are those themselves, and confidence is 1.
        confidence: that the error and the bound both hold.
        seed: of all vectors.

    Returns:
        The design.

    Raises:
        InputError: a degree, rounds or probes below 1; a confidence not in (0, 1).

    Examples:
        Two nodes look alike, so that the optimum is (1 + .5)^2 / 2, of the singular values of W.

        >>> from scipy import sparse
        >>> from noisedesign.families.polynomial.solver import SparseProgram, solve
        >>> w = sparse.csr_array([[0.75, 0.25], [0.25, 0.75]])
        >>> found = solve(SparseProgram(mixing=w))
        >>> print(f"{found.lower_bound:.4f} {found.objective:.4f}")
        1.1250 1.1250
    """
    if probes is None:
        probes = probes_of(program)
    for name, number in (
        ("degree", 1 if degree is None else degree),
        ("rounds", rounds),
        ("probes", probes),
    ):
        if number < 1:
            raise InputError(name, expected="at least 1", got=str(number))
    if not 0 < confidence < 1:
        raise InputError("confidence", expected="a number in (0, 1)", got=str(confidence))
    failure = (1 - confidence) / 2
    pilot, *rngs = (np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(3))
    noise, operator = designed(program, degree=degree, rounds=rounds, rng=pilot)
    error = error_within(
        noise, objective=program.objective, probes=probes, failure=failure, rng=rngs[0]
    ).high
    bound = lower_bound(program, operator, noise=noise, probes=probes, failure=failure, rng=rngs[1])
    return SparseDesign(
        noise=noise,
        objective=error,
        lower_bound=bound,
        confidence=1.0 if probes >= program.size else confidence,
    )


def designed(
    program: SparseProgram,
    *,
    degree: int | None = None,
    rounds: int = ROUNDS,
    probes: int = WEIGHT_PROBES,
    rng: np.random.Generator,
) -> tuple[PolynomialNoise, Weighted]:
    """The last of :func:`improving`."""
    steps = improving(program, degree=degree, rounds=rounds, probes=probes, rng=rng)
    return deque(steps, maxlen=1).pop()


def improving(
    program: SparseProgram,
    *,
    degree: int | None = None,
    rounds: int = ROUNDS,
    probes: int = WEIGHT_PROBES,
    rng: np.random.Generator,
    go_on: GoOn = always,
) -> Iterator[tuple[PolynomialNoise, Weighted]]:
    """Noise of a precision of that degree, and B of the multipliers that a bound is made of: the
    first of a low degree, all within the budgets, the later the better.

    V is D of a precision of low degree: for V nearer the optimum a polynomial of B would have to
    follow the square root more closely than it can. For given V, p is fitted to what it is there
    for: with multipliers u, the sum of 1 / p in the measure of D^(1/2) W^T W D^(1/2) and of p in
    that of U / D. The diagonals of T_j(B) are found once.

    Raises:
        TimeoutError: ``go_on`` said no.
    """
    operator = _scaled(program, 1 / program.budget)
    p = _of_commuting(operator, degree=CHEAP_DEGREE, rng=rng)
    scale = operator.diagonal(p) / program.budget
    yield _noise(operator, p, scale), _scaled(program, scale)
    if program.plain:
        operator = _scaled(program, scale)
    if degree is None:
        degree = affordable_degree(operator, rng=rng)
    p = _of_commuting(operator, degree=degree, rng=rng)
    moments = operator.moments(degree, go_on=go_on)
    scale = _coefficients(p) @ moments / program.budget
    bounding = _scaled(program, scale)
    yield _noise(operator, p, scale), bounding
    if program.plain:
        bounding = weighted(
            program, scale, rounds=rounds, probes=probes, beside=operator, degree=degree, rng=rng
        )
        yield _noise(operator, p, scale), bounding
    for _ in range(REFITS if program.plain else 2 * REFITS):
        x, seen = _seen(program, operator, scale, rng)
        y, price = operator.measure(sparse.diags_array(np.sqrt(bounding.weights / scale)), rng)
        price *= (seen @ (1 / p(x))) / (price @ p(y))
        p = polynomials.precision(
            np.concatenate([x, y]),
            np.concatenate([seen, np.zeros(len(y))]) / price.sum(),
            np.concatenate([np.zeros(len(x)), price]) / price.sum(),
            degree=degree,
            top=operator.top,
        )
        scale = _coefficients(p) @ moments / program.budget
        if not program.plain:
            bounding = _multipliers(program, operator, p, moments, probes=probes, rng=rng)
        yield _noise(operator, p, scale), bounding


def _noise(operator: Weighted, p: Chebyshev, scale: Array) -> PolynomialNoise:
    return PolynomialNoise(
        operator=operator, precision=p, scale=scale * (1 + MARGIN), root=polynomials.inverse_root(p)
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
    return operator.spectrum(root * program.objective.random(rng, MEASURED))


def _multipliers(
    program: SparseProgram,
    operator: Weighted,
    p: Chebyshev,
    moments: Array,
    *,
    probes: int,
    rng: np.random.Generator,
) -> Weighted:
    """B with V near diag(R H R), which the multipliers of the optimum are.

    It is the variance of R F^T g for white g, H = F^T F: known as well as a few samples tell. What
    nodes have in common by their diagonals of T_j(B) is taken out of their noise by regression.
    """
    scale = _coefficients(p) @ moments / program.budget
    root = np.sqrt(scale)[:, None]
    if operator.small:
        values, vectors = operator.eigen
        r = (root * vectors / p(values)) @ (root * vectors).T
        return _scaled(program, np.sum((r @ program.objective.dense) * r, axis=1))
    r = polynomials.inverse_root(p, slack=ROUGH)
    drawn = operator.apply(r, operator.apply(r, root * program.objective.random(rng, probes)))
    seen = np.log(np.mean((root * drawn) ** 2, axis=1))
    features = np.column_stack([np.log(scale), np.log(program.budget), *moments[1:]])
    features = np.column_stack([np.ones(len(seen)), features, features**2])
    fitted = features @ np.linalg.lstsq(features, seen, rcond=None)[0]
    left = seen - fitted
    known = max(0.0, 1 - 2 / (probes * float(np.mean(left**2))))  # 2 / m: variance of a log chi^2
    return _scaled(program, np.exp(fitted + known * left))


def _scaled(program: SparseProgram, weights: Array) -> Weighted:
    return Weighted(mixing=program.mixing, weights=weights / weights.max())


def _coefficients(p: Chebyshev) -> Array:
    """Of T_0, T_1, ..."""
    return np.asarray(p.coef, dtype=np.float64)


def _identity(n: int) -> Any:
    return sparse.eye_array(n, format="csc")


def _of_commuting(operator: Weighted, *, degree: int, rng: np.random.Generator) -> Chebyshev:
    """p that would be best if D were V, and both a multiple of the identity."""
    x, w = operator.measure(_identity(len(operator.weights)), rng)
    w = w / w.sum()
    return polynomials.precision(x, x * w, w, degree=degree, top=operator.top)


def affordable_degree(operator: Weighted, *, rng: np.random.Generator) -> int:
    """The largest whose sums over neighbourhoods take no more than what the traces do, by those of
    a few nodes."""
    n = len(operator.weights)
    nodes = np.sort(rng.choice(n, min(n, SAMPLED), replace=False))
    reached = sparse.csc_array(
        (np.ones(len(nodes)), (nodes, np.arange(len(nodes)))), shape=(n, len(nodes))
    ).tocsr()
    for degree in range(1, MOST_DEGREE + 1):
        reached = (operator.transposed if degree % 2 == 0 else operator.factor) @ reached
        if reached.nnz > MOST_REACHED * len(nodes) and degree > CHEAP_DEGREE:
            return degree - 1
    return MOST_DEGREE


def polynomial_noise(
    program: SparseProgram, *, degree: int | None = None, rng: np.random.Generator
) -> PolynomialNoise:
    """Noise of a precision of that degree."""
    return designed(program, degree=degree, rng=rng)[0]


def weighted(
    program: SparseProgram,
    weights: Array,
    *,
    rounds: int,
    probes: int,
    beside: Weighted | None = None,
    degree: int = CHEAP_DEGREE,
    rng: np.random.Generator,
) -> Weighted:
    """B with V near a fixed point of f(V) = diag(B^(1/2)) / tau, from ``weights`` on.

    The multipliers of the optimum are one. f takes log V about half the way there, so that the
    first round goes to f(V)^2 / V. Any V proves a bound, so that this one is estimated.

    Args:
        beside: whose diagonals of polynomials of that degree are known, if not those of B.
    """
    for number in range(rounds):
        operator = _scaled(program, weights)
        diagonal = _root_diagonal(
            operator, probes=probes, beside=beside or operator, degree=degree, rng=rng
        )
        found = np.maximum(diagonal, LEAST_WEIGHT * float(diagonal.mean())) / program.budget
        weights = found if number else found * (found / operator.weights)
    return _scaled(program, weights)


def _root_diagonal(
    operator: Weighted, *, probes: int, beside: Weighted, degree: int, rng: np.random.Generator
) -> Array:
    """About diag(B^(1/2)): exactly that of a polynomial near the root, and the rest by random
    signs."""
    n = len(operator.weights)
    if operator.small:
        values, vectors = operator.eigen
        return np.asarray(vectors**2 @ np.sqrt(values))
    points, masses = operator.measure(_identity(n), rng)
    g = polynomials.root(points, masses, degree=DEGREE_NEAR, top=operator.top)
    signs = rng.choice([-1.0, 1.0], size=(n, probes))
    images = operator.apply(g, signs)
    factor = (operator.weights / beside.weights) ** 0.25
    few = slice(FITTED)
    known = near(beside, factor, degree=degree, starts=signs[:, few], images=images[:, few])
    rest = np.mean(signs * (images - known.apply(signs)), axis=1)
    return np.asarray(known.diagonal + rest)
