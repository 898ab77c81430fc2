"""Noise of polynomial precision, X = D^(-1/2) p(B) D^(-1/2) with B = V^(1/2) W^T W V^(1/2).

D = diag(p(B)) / tau makes X_ii = tau_i whatever V and p are: budgets are met by construction, and D
is a finite sum over neighbourhoods. Without a degree p is the square root and D = V at the optimum,
so V comes from D by a fixed point, and p from the spectrum of B. Drawn noise is z = D^(1/2) r(B) g
of standard normal g, with r^2 >= 1 / p proved on all of [0, b]; so cov(z) >= X^-1, and the budgets
hold for it as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from noisedesign.base.checks import Array, InputError
from noisedesign.families.polynomial import polynomials
from noisedesign.families.polynomial.bound import (
    CHEAP_DEGREE,
    CONFIDENCE,
    LEAST_PROBES,
    PROBED,
    error_at_most,
    lower_bound,
)
from noisedesign.families.polynomial.noise import PolynomialNoise
from noisedesign.families.polynomial.operator import Weighted
from noisedesign.families.polynomial.program import SparseProgram

WEIGHT_PROBES = 32
"""Vectors that probe diag(B^(1/2)), from which V is made: noise in V costs a bound little."""
DEGREE = 3
DEGREE_NEAR = 64
"""Of a polynomial near the square root, while V is searched."""
ROUNDS = 3
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
    degree: int = DEGREE,
    rounds: int = ROUNDS,
    probes: int | None = None,
    confidence: float = CONFIDENCE,
    seed: int = 0,
) -> SparseDesign:
    """A design of polynomial precision, its error and a lower bound.

    Args:
        program: W and the budgets.
        degree: of p in B; budgets take sums over as many hops.
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

        >>>         >>> w = sparse.csr_array([[0.75, 0.25], [0.25, 0.75]])
        >>> found = solve(SparseProgram(mixing=w))
        >>> print(f"{found.lower_bound:.4f} {found.objective:.4f}")
        1.1250 1.1250
    """
    if probes is None:
        probes = max(LEAST_PROBES, PROBED // program.size)
    for name, number in (("degree", degree), ("rounds", rounds), ("probes", probes)):
        if number < 1:
            raise InputError(name, expected="at least 1", got=str(number))
    if not 0 < confidence < 1:
        raise InputError("confidence", expected="a number in (0, 1)", got=str(confidence))
    failure = (1 - confidence) / 2
    pilot, *rngs = (np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(3))
    noise = polynomial_noise(program, degree=degree, rng=pilot)
    error = error_at_most(noise, probes=probes, failure=failure, rng=rngs[0])
    operator = weighted(
        program, noise.scale, rounds=rounds, probes=min(probes, WEIGHT_PROBES), rng=pilot
    )
    bound = lower_bound(program, operator, probes=probes, failure=failure, rng=rngs[1])
    return SparseDesign(
        noise=noise,
        objective=error,
        lower_bound=bound,
        confidence=1.0 if probes >= program.size else confidence,
    )


def polynomial_noise(
    program: SparseProgram, *, degree: int, rng: np.random.Generator
) -> PolynomialNoise:
    """Noise of a precision of that degree.

    V is D of a precision of low degree: for V nearer the optimum a polynomial of B would have to
    follow the square root more closely than it can.
    """
    weights = 1 / program.budget
    for of in (min(degree, CHEAP_DEGREE), degree):
        operator = Weighted(mixing=program.mixing, weights=weights / weights.max())
        spectrum = operator.spectrum(rng.standard_normal(program.size))
        p = polynomials.precision(*spectrum, degree=of, top=operator.top)
        weights = operator.diagonal(p) / program.budget * (1 + MARGIN)
    root = polynomials.inverse_root(p)
    return PolynomialNoise(operator=operator, precision=p, scale=weights, root=root)


def weighted(
    program: SparseProgram, weights: Array, *, rounds: int, probes: int, rng: np.random.Generator
) -> Weighted:
    """B with V near a fixed point of V = diag(B^(1/2)) / tau, from ``weights`` on.

    The multipliers of the optimum are one. Any V proves a bound, so that this one is estimated.
    """
    n = program.size
    for _ in range(rounds):
        operator = Weighted(mixing=program.mixing, weights=weights / weights.max())
        start = rng.standard_normal(n)
        points, masses = operator.spectrum(start)
        g = polynomials.root(points, masses, degree=DEGREE_NEAR, top=operator.top)
        near = polynomials.fitted(g(points), points, masses, degree=CHEAP_DEGREE, top=operator.top)
        known = operator.diagonal(near)
        signs = np.eye(n) if n <= probes else rng.choice([-1.0, 1.0], size=(n, probes))
        rest = np.sum(signs * operator.apply(g - near, signs), axis=1)
        diagonal = known + rest / (1 if n <= probes else probes)
        least = LEAST_WEIGHT * float(diagonal.mean())
        weights = np.maximum(diagonal, least) / program.budget
    return Weighted(mixing=program.mixing, weights=weights / weights.max())
