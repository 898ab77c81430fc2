"""What is known of noise of polynomial precision, by code that made none of it.

Budgets are finite sums over neighbourhoods, which whoever judges anew adds up by another route.
Error and bound are traces, within what random vectors tell of them.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.polynomial import Chebyshev
from scipy import sparse
from scipy.fft import dct
from scipy.linalg import svdvals

from noisedesign.base.checks import Array
from noisedesign.base.threads import in_threads
from noisedesign.families.polynomial import neighbourhoods, operator as operators, polynomials
from noisedesign.families.polynomial.known import Known, near
from noisedesign.families.polynomial.noise import PolynomialNoise
from noisedesign.families.polynomial.operator import Powers, Weighted
from noisedesign.families.polynomial.program import SparseProgram
from noisedesign.families.polynomial.quadrature import (
    APART,
    MOST_OF_MANY,
    MOST_STEPS,
    STEPS_AT_ONCE,
    Bidiagonal,
    Product,
    products,
    times_root,
)
from noisedesign.families.polynomial.traces import Probes, deviation
from noisedesign.program.noise import PolynomialCovariance

CONFIDENCE = 1 - 1e-6

LEAST_PROBES = 48
"""Gaussian vectors of a trace."""

ROUNDED = 1e-9
"""Of a polynomial that is known from its values."""

OF_ERROR = 3
"""So many times more vectors for an error, which takes few products of each."""

OF_BOUND = 3
"""So many times fewer for the trace of a bound, where each takes a process of Lanczos."""

LEAST_OF_BOUND = 24

PILOT = 2
"""Vectors by which what is known exactly is chosen."""

PROBED = 2_000_000
"""Entries of all vectors that probe a trace, where those are not the fewest; twice as many of an
objective over several steps."""

WRITTEN_OVER_STEPS = 3000
"""Nodes up to which all eigenvalues of such an objective are found sooner than its traces are
estimated closely."""

LEFT_OUT = 3e-3
"""Of the trace of an objective over many steps, by a bound that takes fewer of them."""

APART_OVER_STEPS = 4e-3
"""Rules of quadrature there, where each step takes many products."""

EXACT_DEGREE = 3
"""Of what is known exactly of the trace of a bound, where there is no noise that says it."""

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
    if program.plain:
        return max(LEAST_PROBES, int(program.share * PROBED / program.size))
    if program.size <= WRITTEN_OVER_STEPS:
        return program.size
    return max(LEAST_PROBES, int(2 * program.share * PROBED / program.size))


def is_exact(program: SparseProgram) -> bool:
    """Whether traces are those themselves, up to rounding."""
    return probes_of(program) >= program.size


def squared_sensitivity(noise: PolynomialCovariance, budget: Array) -> float:
    """A bound on the largest [R^-1]_ii over its budget; infinite where nothing bounds it.

    With c the least r^2 p on [0, b], R^-1 is at most D^(-1/2) p(B) D^(-1/2) / c.

    Args:
        noise: what is judged.
        budget: tau, shape (n,), squared sensitivity.
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


_KEPT: WeakKeyDictionary[PolynomialCovariance, Weighted] = WeakKeyDictionary()
"""Operators of noise that is judged, with their diagonals: sums that take long."""


def _stated(noise: PolynomialCovariance) -> Weighted:
    """B, with eigenvalues within what the noise says, and diagonals by sums of another kind than
    those that the solver took."""
    if noise not in _KEPT:
        operator = Weighted(mixing=noise.mixing, weights=noise.weights)
        object.__setattr__(operator, "top", noise.bound)  # the domain that p and r are told on
        degree = max(noise.polynomials[0].degree(), 1)
        operator.know(neighbourhoods.moments(degree, _factor(noise), noise.bound))
        _KEPT[noise] = operator
    return _KEPT[noise]


def _factor(noise: PolynomialCovariance) -> Any:
    """A with B = A^T A."""
    return (noise.mixing @ sparse.diags_array(np.sqrt(noise.weights))).tocsr()


def error(program: SparseProgram, noise: PolynomialCovariance) -> Estimate:
    """tr(H R), squared noise, of noise whose B has its eigenvalues within [0, b]."""
    return error_within(
        _as_noise(noise),
        objective=program.objective,
        probes=probes_of(program),
        failure=FAILURE,
        rng=_vectors(program, 0),
    )


def proved(
    program: SparseProgram, weights: Array, noise: PolynomialCovariance | None = None
) -> Estimate:
    """What multipliers prove, squared noise: (tr S)^2 / <tau, v>, or somewhat less.

    Sums that were found of noise serve here too, whatever noise it is, if b is above its B.
    """
    if noise is not None and not (noise.nodes == program.size and eigenvalues_within(noise)):
        noise = None
    operator = Weighted(mixing=program.mixing, weights=weights / weights.max())
    return bound_within(
        program,
        operator,
        noise=None if noise is None else _as_noise(noise),
        probes=probes_of(program),
        failure=FAILURE,
        rng=_vectors(program, 1),
    )


def _as_noise(noise: PolynomialCovariance) -> PolynomialNoise:
    p, r = noise.polynomials
    return PolynomialNoise(operator=_stated(noise), precision=p, scale=noise.scale, root=r)


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

    Of a polynomial near it the trace is a finite sum; only that of the rest is estimated.
    """
    operator = noise.operator
    objective = (
        Powers(mixing=operator.mixing, counts=np.ones(1)) if objective is None else objective
    )
    n = len(noise.scale)
    root = np.sqrt(noise.scale)[:, None]
    if probes >= n:
        values, vectors = operator.eigen
        y = root * vectors
        exact = float(np.sum(y * (objective.dense @ y), axis=0) @ noise.root(values) ** 2)
        return Estimate(exact, exact)

    h = objective

    def image(z: Array) -> Array:
        """E z, E = r(B) D^(1/2) H D^(1/2) r(B)."""
        seen = root * h.times(root * operator.apply(noise.root, z))
        return operator.apply(noise.root, seen)

    probes *= OF_ERROR
    pilot = rng.standard_normal((n, PILOT))
    known = near(
        operator,
        np.sqrt(noise.scale / operator.weights),
        degree=max(noise.precision.degree(), 1),
        starts=pilot,
        images=image(pilot),
    )

    blocks = Probes(n, probes, rng)

    def probed(number: int) -> Array:
        z = blocks.block(number)
        left = image(z) - known.apply(z)
        return np.array([np.sum(z * left), np.sum(left**2)])

    value, squared = (
        float(x) / probes for x in np.sum(list(in_threads(probed, range(len(blocks)))), axis=0)
    )
    low, high = known.ends
    ends = (-high, largest_of(noise, objective) - low)
    exact = float(known.diagonal.sum())
    below = deviation(squared, *ends, probes=probes, failure=failure)
    above = deviation(squared, -ends[1], -ends[0], probes=probes, failure=failure)
    return Estimate(max(exact + value - below, 0.0), exact + value + above)


def largest_of(noise: PolynomialNoise, objective: Powers) -> float:
    """A bound on the eigenvalues of H cov(z).

    H = F^T F, and F D^(1/2) is F V^(1/2) with its columns times d = (D / V)^(1/2), which are about
    c: |F D^(1/2) r(B)| is at most c |F V^(1/2) r(B)| + |F V^(1/2)| max |d - c| max r. The first
    norm is that of a polynomial of B after one step, and of symmetric W where V is constant.
    """
    operator = noise.operator
    squared = noise.root * noise.root
    size = max(polynomials.proved_range(squared)[1], 0.0)
    found = size * objective.top(noise.scale)
    v = float(operator.weights[0])
    if len(objective.counts) == 1:
        terms = objective.counts
    elif objective.symmetric and (operator.weights == v).all():
        terms = objective.counts / v ** np.arange(len(objective.counts))
    else:
        return found
    powers = np.polynomial.Polynomial([0.0, *terms])
    x = Chebyshev.interpolate(powers, len(terms), domain=squared.domain)
    weighted = max(polynomials.proved_range(x * squared)[1], 0.0)
    ratios = np.sqrt(noise.scale / operator.weights)
    middle, half = (ratios.max() + ratios.min()) / 2, (ratios.max() - ratios.min()) / 2
    both = middle * math.sqrt(weighted) + half * math.sqrt(float(powers(operator.top)) * size)
    return float(min(found, both**2 * (1 + ROUNDED)))


def lower_bound(
    program: SparseProgram,
    operator: Weighted,
    *,
    noise: PolynomialNoise | None = None,
    probes: int,
    failure: float,
    rng: np.random.Generator,
) -> float:
    """The lower end of :func:`bound_within`: no noise within the budgets has a smaller error, but
    with probability ``failure``."""
    found = bound_within(program, operator, noise=noise, probes=probes, failure=failure, rng=rng)
    return found.low


def bound_within(
    program: SparseProgram,
    operator: Weighted,
    *,
    noise: PolynomialNoise | None = None,
    probes: int,
    failure: float,
    rng: np.random.Generator,
) -> Estimate:
    """What a bound on the error of all noise within the budgets is between, either side but with
    probability ``failure``.

    It is (tr S)^2 / sum(tau v) with S = (V^(1/2) H V^(1/2))^(1/2), for any v > 0. Of a polynomial
    near S the trace is a finite sum; only that of the rest is estimated, by quadrature.

    Over several steps of symmetric W a smaller trace takes the place of S, whose products are few:
    that of E = s (W V W)^(1/2) s, with s of W^2 and s^4 W^2 <= H. For Z of the polar decomposition
    of W V^(1/2) it is tr(V^(1/2) W s^2 Z^T), a product of a factor of V^(1/2) H V^(1/2) and a
    contraction. The norm of E is at most that of S (Cordes 1987).

    Args:
        program: W and the budgets.
        operator: of W and v.
        noise: whose diagonals of polynomials serve for what is known of the trace.
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
    scaled: Array = operator.weights
    outer, stretch = None, 1.0
    factors: tuple[Product, Product]
    if program.plain:
        top, apart, most = operator.top, APART, MOST_STEPS
        factors = operator.forward, operator.backward
        price /= float(objective.counts[0])
    elif objective.quarter_below is None:
        top, apart, most = objective.top(operator.weights), APART_OVER_STEPS, MOST_OF_MANY
        terms = objective.first(LEFT_OUT, rng)
        factors = (lambda x: terms.forward(root * x), lambda y: root * terms.backward(y))
    else:
        top, apart, most = objective.top(operator.weights), APART, MOST_OF_MANY
        w = operators.narrow(program.mixing.tocsr())
        factors = (lambda x: root * (w @ x), lambda y: w @ (root * y))
        outer = objective.by_quarter
        stretch = polynomials.proved_range(objective.quarter_below)[1]
        scaled = (w.power(2) @ scaled) / w.power(2).sum(axis=1)
    if noise is None:
        beside, degree = Weighted(mixing=program.mixing, weights=1 / program.budget), EXACT_DEGREE
    else:
        beside, degree = noise.operator, max(noise.precision.degree(), 1)
    within = outer or np.asarray
    pilot = rng.standard_normal((program.size, PILOT))
    known = near(
        beside,
        (scaled / beside.weights) ** 0.25,
        degree=degree,
        starts=pilot,
        images=within(times_root(*factors, within(pilot), steps=STEPS_AT_ONCE)),
    )
    found = rest_of_root(
        *factors,
        known,
        outer=outer,
        stretch=stretch,
        top=top,
        starts=Probes(program.size, max(probes // OF_BOUND, LEAST_OF_BOUND), rng),
        failure=failure,
        apart=apart,
        most=most,
    )
    return Estimate(found.low**2 / price, found.high**2 / price)


def rest_of_root(
    forward: Product,
    backward: Product,
    known: Known,
    *,
    outer: Product | None = None,
    stretch: float = 1.0,
    top: float,
    starts: Probes,
    failure: float,
    apart: float = APART,
    most: int = MOST_STEPS,
) -> Estimate:
    """What the trace of S = Q (A^T A)^(1/2) Q is between, of which that of K is known.

    Args:
        forward: x -> A x, of blocks.
        backward: y -> A^T y.
        known: K.
        outer: x -> Q x, of blocks, symmetric; None where Q is the identity.
        stretch: a bound on the norm of Q.
        top: a bound on the squared eigenvalues of S.
        starts: Gaussian vectors z.
        failure: probability that either side is exceeded, one side at a time.
        apart: both rules, relative, at which no more steps are taken.
        most: of these steps.

    The same steps tell what S z is, and how far off that is at most, so that |(S - K) z| says
    enough of |S - K|_F.
    """

    def probed(number: int) -> tuple[Array, Array, Array]:
        z = starts.block(number)
        seen = known.apply(z)
        process = Bidiagonal(forward, backward, z if outer is None else outer(z))
        process.until_close(apart, most=most)
        low, high = process.roots()
        image, off = process.root_times()
        left = (image if outer is None else outer(image)) - seen
        exact = products(z, seen)
        return low - exact, high - exact, (np.sqrt(products(left, left)) + stretch * off) ** 2

    low, high, squares = (
        np.concatenate(found) for found in zip(*in_threads(probed, range(len(starts))), strict=True)
    )
    squared, exact = float(squares.mean()), float(known.diagonal.sum())
    ends = (-known.ends[1], math.sqrt(top) - known.ends[0])
    below, above = (
        deviation(squared, *two, probes=len(low), failure=failure)
        for two in (ends, (-ends[1], -ends[0]))
    )
    return Estimate(max(exact + float(low.mean()) - below, 0.0), exact + float(high.mean()) + above)
