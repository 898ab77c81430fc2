"""What is known of noise of polynomial precision, by code that made none of it.

Budgets are finite sums over neighbourhoods, which whoever judges anew adds up by another route.
Error and bound are traces, within what random vectors tell of them.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.polynomial import Chebyshev
from scipy import sparse
from scipy.fft import dct
from scipy.linalg import svdvals

from noisedesign.base.checks import Array
from noisedesign.families.polynomial import neighbourhoods, polynomials
from noisedesign.families.polynomial.noise import PolynomialNoise
from noisedesign.families.polynomial.operator import Powers, Weighted
from noisedesign.families.polynomial.program import SparseProgram
from noisedesign.families.polynomial.quadrature import APART, STEPS_AT_ONCE, Bidiagonal, Product
from noisedesign.families.polynomial.traces import deviation, trace
from noisedesign.program.noise import PolynomialCovariance

CONFIDENCE = 1 - 1e-6

LEAST_PROBES = 48
"""Gaussian vectors of a trace."""

PROBED = 2_000_000
"""Entries of all vectors that probe a trace, where those are not the fewest."""

LEFT_OUT = 3e-3
"""Of the trace of an objective over many steps, by a bound that takes fewer of them."""

APART_OVER_STEPS = 4e-3
"""Rules of quadrature there, where each step takes many products."""

EXACT_DEGREE = 3
"""Of what is known exactly of the trace of a bound."""

POWER_STEPS = 300
"""For a bound on eigenvalues, at most: it falls with each, and one that is at most b ends them."""

SHIFT = 1e-3
"""Of the power steps, which keeps vectors positive and never lets that bound rise."""

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


def squared_sensitivity(noise: PolynomialCovariance, budget: Array, *, anew: bool = True) -> float:
    """A bound on the largest [R^-1]_ii over its budget; infinite where nothing bounds it.

    With c the least r^2 p on [0, b], R^-1 is at most D^(-1/2) p(B) D^(-1/2) / c.

    Args:
        noise: what is judged.
        budget: tau, shape (n,).
        anew: by sums of another kind than those that the solver took.
    """
    p, r = noise.polynomials
    if not eigenvalues_within(noise) or least(p, p) <= 0:
        return math.inf
    slack = least(r * r * p, r * r * p - 1)
    if slack <= 0:
        return math.inf
    found = (diagonal_anew if anew else diagonal)(noise) / (noise.scale * budget)
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
        x = image / image.max() + SHIFT * x / x.max()
    return False


def least(p: Chebyshev, part: Chebyshev) -> float:
    """A bound from below on a polynomial on its domain, of which ``part`` is all but a constant.

    On the angles of Chebyshev points a polynomial of degree d changes by at most d times its
    largest size (Bernstein), which is what is seen of it over 1 - d h / 2 at points h apart.
    """
    degree = max(part.degree(), 1)
    count = POINTS_PER_DEGREE * degree
    series = np.zeros(count)
    series[: len(part.coef)] = np.asarray(part.coef, dtype=np.float64) / 2
    series[0] *= 2
    seen = dct(series, type=3)  # at the angles (k + 1/2) pi / count
    missed = degree * (math.pi / count) / 2
    size = float(np.abs(seen).max()) / (1 - missed)
    rounding = 1e-14 * float(np.abs(part.coef).sum())
    constant = float((p - part).coef[0])
    return constant + float(seen.min()) - missed * size - rounding


def diagonal(noise: PolynomialCovariance) -> Array:
    """The diagonal of p(B), shape (n,)."""
    return _stated(noise).diagonal(noise.polynomials[0])


def diagonal_anew(noise: PolynomialCovariance) -> Array:
    """The same by quadrature."""
    return neighbourhoods.diagonal(noise.polynomials[0], _factor(noise))


def _stated(noise: PolynomialCovariance) -> Weighted:
    """B, with eigenvalues within what the noise says."""
    operator = Weighted(mixing=noise.mixing, weights=noise.weights)
    object.__setattr__(operator, "top", noise.bound)  # the domain that p and r are told on
    return operator


def _factor(noise: PolynomialCovariance) -> Any:
    """A with B = A^T A."""
    return (noise.mixing @ sparse.diags_array(np.sqrt(noise.weights))).tocsr()


def error(program: SparseProgram, noise: PolynomialCovariance) -> Estimate:
    """tr(W R W^T), squared noise, of noise whose B has its eigenvalues within [0, b]."""
    p, r = noise.polynomials
    stated = PolynomialNoise(operator=_stated(noise), precision=p, scale=noise.scale, root=r)
    rng = _vectors(program, 0)
    return error_within(
        stated, objective=program.objective, probes=probes_of(program), failure=FAILURE, rng=rng
    )


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
    noise: PolynomialNoise,
    *,
    objective: Powers | None = None,
    probes: int,
    failure: float,
    rng: np.random.Generator,
) -> Estimate:
    """What tr(H cov(z)) is between, either side but with probability ``failure``; H = W^T W unless
    ``objective`` says otherwise.

    Of a polynomial near r^2, of lower degree, the trace is a finite sum; only that of the rest is
    estimated. Of an objective over several steps all of it is.
    """
    operator = noise.operator
    if objective is None or len(objective.counts) == 1:
        factor = 1.0 if objective is None else float(objective.counts[0])
        found = _error_after_one_step(noise, probes=probes, failure=failure, rng=rng)
        return Estimate(factor * found.low, factor * found.high)
    n = len(noise.scale)
    root = np.sqrt(noise.scale)[:, None]
    if probes >= n:
        values, vectors = operator.eigen
        y = root * vectors
        exact = float(np.sum(y * (objective.dense @ y), axis=0) @ noise.root(values) ** 2)
        return Estimate(exact, exact)
    half = operator.apply(noise.root, root * objective.random(rng, probes))
    value = float(np.sum(half**2)) / probes
    seen = objective.forward(root * operator.apply(noise.root, half))
    squared = float(np.sum(seen**2)) / probes
    largest = polynomials.proved_range(noise.root * noise.root)[1] * objective.top(noise.scale)
    above, below = (
        deviation(squared, *ends, probes=probes, failure=failure)
        for ends in ((-largest, 0.0), (0.0, largest))
    )
    return Estimate(max(value - below, 0.0), value + above)


def _error_after_one_step(
    noise: PolynomialNoise, *, probes: int, failure: float, rng: np.random.Generator
) -> Estimate:
    operator, degree = noise.operator, max(noise.precision.degree() - 1, 1)
    outer = (operator.mixing @ sparse.diags_array(np.sqrt(noise.scale))).tocsr()
    if probes >= outer.shape[1]:
        values, vectors = operator.eigen
        exact = float(np.sum((outer @ vectors) ** 2, axis=0) @ noise.root(values) ** 2)
        return Estimate(exact, exact)
    points, weights = operator.measure(outer, rng)
    squared = noise.root * noise.root
    near = polynomials.fitted(squared(points), points, weights, degree=degree, top=operator.top)
    exact = float(operator.diagonal(near, outer.T).sum())
    rest = trace(
        operator,
        squared - near,
        outer=outer,
        ends=_between(noise, squared - near),
        probes=probes,
        failure=failure,
        rng=rng,
    )
    return Estimate(exact + rest.value - rest.below, exact + rest.value + rest.above)


def _between(noise: PolynomialNoise, h: Chebyshev) -> tuple[float, float]:
    """Of and 0, what encloses the eigenvalues of W D^(1/2) h(B) D^(1/2) W^T.

    W D^(1/2) is A with its columns times d = (D / V)^(1/2), which are about c: for h >= 0 the norm
    of A d h(B)^(1/2) is at most c |A h(B)^(1/2)| + |A| max |d - c| max h^(1/2).
    """
    operator = noise.operator
    ratios = np.sqrt(noise.scale / operator.weights)
    middle, half = (ratios.max() + ratios.min()) / 2, (ratios.max() - ratios.min()) / 2
    norm = Weighted(mixing=operator.mixing, weights=noise.scale).top
    x = Chebyshev([operator.top / 2, operator.top / 2], domain=h.domain)
    plain, times = polynomials.proved_range(h), polynomials.proved_range(x * h)

    def largest(sign: int, end: int) -> float:
        size, weighted = (max(sign * ends[end], 0.0) for ends in (plain, times))
        both = middle * math.sqrt(weighted) + half * math.sqrt(operator.top * size)
        return float(min(norm * size, both**2))

    return -largest(-1, 0), largest(1, 1)


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

    It is (tr B^(1/2))^2 / sum(tau v), for any v > 0. The trace of a polynomial near the square root
    is a finite sum; only that of the rest is estimated, by quadrature.

    Args:
        program: W and the budgets.
        operator: B of W and v.
        probes: Gaussian vectors.
        failure: probability that the bound does not hold.
        rng: of the vectors.
    """
    price = float(program.budget @ operator.weights)
    root = np.sqrt(operator.weights)[:, None]
    objective = program.objective
    if probes >= program.size:
        if program.plain:
            values = math.sqrt(objective.counts[0]) * svdvals(operator.factor.toarray())
        else:
            b = root * objective.dense * root.T
            values = np.sqrt(np.clip(np.linalg.eigvalsh((b + b.T) / 2), 0.0, None))
        exact = float(values.sum()) ** 2 / price
        return Estimate(exact, exact)
    if program.plain:
        found = root_trace(operator, degree=EXACT_DEGREE, probes=probes, failure=failure, rng=rng)
        price /= float(objective.counts[0])
    else:
        objective = objective.first(LEFT_OUT, rng)
        top = objective.top(operator.weights)

        def forward(x: Array) -> Array:
            return objective.forward(root * x)

        def backward(y: Array) -> Array:
            return np.asarray(root * objective.backward(y))

        pilot = Bidiagonal(forward, backward, rng.standard_normal((program.size, 1)))
        pilot.extend(STEPS_AT_ONCE)
        rule = pilot.rule(0, below=False)
        mean = rule(np.sqrt(rule.nodes)) / rule(np.ones(len(rule.nodes)))
        found = rest_of_root(
            forward,
            backward,
            Chebyshev([mean], domain=[0.0, top]),
            known=mean * program.size,
            starts=rng.standard_normal((program.size, probes)),
            failure=failure,
            apart=APART_OVER_STEPS,
        )
    return Estimate(found.low**2 / price, found.high**2 / price)


def root_trace(
    operator: Weighted, *, degree: int, probes: int, failure: float, rng: np.random.Generator
) -> Estimate:
    """What tr B^(1/2) is between, either side but with probability ``failure``."""
    n, top = len(operator.weights), operator.top
    identity = sparse.eye_array(n, format="csc")
    moments = operator.moments(identity, degree).sum(axis=1)
    points, weights = operator.measure(identity, rng)
    near = polynomials.fitted(np.sqrt(points), points, weights, degree=degree, top=top)
    return rest_of_root(
        operator.forward,
        operator.backward,
        near,
        known=float(near.coef @ moments),
        starts=rng.standard_normal((n, probes)),
        failure=failure,
    )


def rest_of_root(
    forward: Product,
    backward: Product,
    near: Chebyshev,
    *,
    known: float,
    starts: Array,
    failure: float,
    apart: float = APART,
) -> Estimate:
    """What tr (A^T A)^(1/2) is between, of which that of the polynomial ``near`` is known."""
    process = Bidiagonal(forward, backward, starts)
    process.until_close(apart)
    low, high, squares = (float(found.mean()) for found in process.without(near))
    ends = polynomials.below_and_above(near)
    below, above = (
        deviation(squares, *two, probes=starts.shape[1], failure=failure)
        for two in (ends, (-ends[1], -ends[0]))
    )
    return Estimate(max(known + low - below, 0.0), known + high + above)
