"""Noise of polynomial precision, judged and bounded by code that made none of it.

Budgets are finite sums over neighbourhoods, which a judge adds up by another route than the solver.
Error and bound are traces, within what random vectors tell of them."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.polynomial import Chebyshev
from scipy.fft import dct
from scipy.linalg import svdvals

from noisedesign.base import together
from noisedesign.base.checks import Array
from noisedesign.base.workers import in_threads
from noisedesign.families.polynomial import operator as operators, polynomials
from noisedesign.families.polynomial.operator import Known, Powers, Weighted, near, power_steps
from noisedesign.families.polynomial.program import SparseProgram
from noisedesign.families.polynomial.quadrature import (
    APART,
    MOST_STEPS,
    Bidiagonal,
    Probes,
    Product,
    deviation,
    jacobi,
    products,
)
from noisedesign.families.polynomial.reach import Neighbourhoods, Piece
from noisedesign.forms import PolynomialCovariance

CONFIDENCE = 1 - 1e-6

FAILURE = (1 - CONFIDENCE) / 2  # probability that error, or bound, is beyond what is told of it
PROBED = 2_000_000  # entries of all vectors that probe a trace; over several steps twice as many
FEWEST = 16  # vectors that probe a trace: of large graphs each tells as much as many of small ones
WRITTEN_OVER_STEPS = 3000  # nodes to which eigenvalues over several steps are found sooner
POWER_STEPS = 300  # steps of a bound on eigenvalues, at most: one that is at most b ends them


class Estimate(NamedTuple):
    """Ends between which a number is; both are the number itself where nothing is drawn."""

    low: float
    high: float

    @property
    def spread(self) -> float:
        """The distance of the ends, relative to the upper one."""
        return (self.high - self.low) / self.high if self.high > 0 else 0.0


def probes_of(program: SparseProgram) -> int:
    """Random vectors a trace; as many as nodes are no longer random, but unit vectors."""
    if not program.plain and program.size <= WRITTEN_OVER_STEPS:
        return program.size
    entries = (1 if program.plain else 2) * program.share * PROBED
    return max(FEWEST, int(entries / program.size))


def is_exact(program: SparseProgram) -> bool:
    """Whether traces are the traces themselves, up to rounding."""
    return probes_of(program) >= program.size


@lru_cache(maxsize=1)
def in_order(program: SparseProgram, noise: PolynomialCovariance) -> PolynomialCovariance:
    """The noise in the order of ``program.in_order``; that of the last is kept."""
    if program.order is None or noise.nodes != program.size:
        return noise
    return noise.reordered(program.order)


def squared_sensitivity(noise: PolynomialCovariance, budget: Array) -> float:
    """Bound the largest [R^-1]_ii over its budget tau, shape (n,); infinite where nothing does.
    With c the least r^2 p on [0, b], R^-1 is at most D^(-1/2) p(B) D^(-1/2) / c."""
    p, r = noise.polynomials
    if not eigenvalues_within(noise) or least(p, p) <= 0:
        return math.inf
    slack = least(r * r * p, r * r * p - 1)
    if slack <= 0:
        return math.inf
    found = diagonal(noise) / (noise.scale * budget)
    worst = together.largest(np.where(np.isfinite(found), found, math.inf))
    return worst / min(slack, 1.0) if math.isfinite(worst) else math.inf


@together.of_last
def eigenvalues_within(noise: PolynomialCovariance) -> bool:
    """Whether b is above every eigenvalue of B: (B x)_i <= b x_i for some x > 0 proves it."""
    operator = Weighted(mixing=noise.mixing, weights=noise.weights)
    steps = power_steps(operator.squared, noise.nodes, steps=POWER_STEPS)
    return any(together.largest(image - noise.bound * x) <= 0 for x, image in steps)


def least(p: Chebyshev, part: Chebyshev) -> float:
    """Bound a polynomial on its domain from below; ``part`` is all of it but a constant. On the
    angles of Chebyshev points h apart a polynomial of degree d changes by at most d times its
    largest size (Bernstein), which is what is seen of it over 1 - d h / 2."""
    degree = max(part.degree(), 1)
    count = 4096 * degree
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
    return _operator(noise).diagonal(noise.polynomials[0])


@together.of_last
def _operator(noise: PolynomialCovariance) -> Weighted:
    """B, with diagonals by other sums than the solver's; those of the last noise are kept."""
    found = Weighted(mixing=noise.mixing, weights=noise.weights, bound=noise.bound)
    degree, a, b = _degree(noise), found.factor, noise.bound
    if together.alone():
        found.known[:] = moments(degree, a, b)
    else:  # by the rows of W, which are in parts
        found.known[:] = together.kept(lambda: a.by_steps(b, degree))
    return found


def moments(degree: int, factor: Any, top: float) -> Array:
    """The diagonals of T_j(2 B / b - 1) of B = A^T A, j <= degree, shape (degree + 1, n);
    ``factor`` is A, sparse, and ``top`` b. k Lanczos steps from e_i give [p(B)]_ii for every p of
    degree up to 2k - 1 (Golub and Meurant 1994)."""
    around = Neighbourhoods(
        factor=factor.tocsr(),
        transposed=factor.T.tocsr(),
        hops=degree,
        nodes=np.arange(factor.shape[1]),
    )
    steps, size = (degree + 1) // 2, degree // 2 + 1
    k = np.arange(size)

    def found(run: slice) -> Array:
        return np.concatenate([of(piece) for piece in around.pieces(run)], axis=1)

    def of(piece: Piece) -> Array:
        m = piece.nodes.stop - piece.nodes.start
        back, a = piece.factor.T.tocsr(), piece.transposed.T.tocsr()
        # Of an odd degree the last product with A^T tells nothing that is asked for.
        own, beside = jacobi(
            lambda block: back @ (a @ block),
            a.shape[1],
            m,
            steps,
            root=(lambda block: a @ block) if degree % 2 else None,
        )
        matrices = np.zeros((m, size, size))
        matrices[:, -1, -1] = top / 2  # of even degrees, where any number would do
        matrices[:, k[:steps], k[:steps]] = own.T
        matrices[:, k[1:], k[:-1]] = np.sqrt(beside[: size - 1]).T
        values, vectors = np.linalg.eigh(matrices)
        seen = np.polynomial.chebyshev.chebvander(2 * values / top - 1, degree)
        return np.asarray(np.einsum("ms,msj->jm", vectors[:, 0, :] ** 2, seen))

    return np.concatenate(list(in_threads(found, around.runs)), axis=1)


def _degree(noise: PolynomialCovariance) -> int:
    return max(noise.polynomials[0].degree(), 1)


def _vectors(program: SparseProgram, use: int) -> np.random.Generator:
    """The source of vectors; what is exact depends on them no further than on a choice."""
    seed = 0 if is_exact(program) else program.seed
    return np.random.default_rng(None if seed is None else [seed, 1 + use])


# --- the error ------------------------------------------------------------------------------------


def error(program: SparseProgram, noise: PolynomialCovariance) -> Estimate:
    """Enclose tr(H R), squared noise, of noise whose B has its eigenvalues within [0, b]; either
    side fails with probability ``FAILURE``. As in :func:`proved`, only a rest is estimated."""
    operator, h, n = _operator(noise), program.objective, program.size
    r = noise.polynomials[1]
    root = np.sqrt(noise.scale)[:, None]
    if is_exact(program):
        values, vectors = operator.eigen
        y = root * vectors
        exact = float(np.sum(y * (h.dense @ y), axis=0) @ r(values) ** 2)
        return Estimate(exact, exact)

    def image(z: Array) -> Array:
        """E z, E = r(B) D^(1/2) H D^(1/2) r(B)."""
        return operator.apply(r, root * h.times(root * operator.apply(r, z)))

    rng = _vectors(program, 0)
    pilot = together.drawn(rng.standard_normal, n, 2)
    factor = np.sqrt(noise.scale / operator.weights)
    known = near(operator, factor, degree=_degree(noise), starts=pilot, images=image(pilot))
    # An error takes few products of each vector, so that there are three times as many.
    probes = 3 * probes_of(program)
    blocks = Probes(n, probes, rng)

    def probed(number: int) -> Array:
        z = blocks.block(number)
        left = image(z) - known.apply(z)
        return np.asarray(together.total(np.array([np.sum(z * left), np.sum(left**2)])))

    every = in_threads(lambda number: together.kept(lambda: probed(number)), range(len(blocks)))
    found = np.sum(list(every), axis=0) / probes
    rest, top = Estimate(float(found[0]), float(found[0])), largest_of(noise, h)
    return _enclosed(known, rest, float(found[1]), top=top, probes=probes, failure=FAILURE)


def _enclosed(
    known: Known, rest: Estimate, squared: float, *, top: float, probes: int, failure: float
) -> Estimate:
    """Enclose the trace of E, of eigenvalues up to ``top``, by that of K and the ``rest``: the mean
    of z^T F z over some probes z, F = E - K, and of |F z|^2, ``squared``."""
    exact, (low, high) = float(together.total(known.diagonal.sum())), known.ends
    ends = (-high, top - low)
    below, above = (
        deviation(squared, *two, probes=probes, failure=failure)
        for two in (ends, (-ends[1], -ends[0]))
    )
    return Estimate(max(exact + rest.low - below, 0.0), exact + rest.high + above)


def largest_of(noise: PolynomialCovariance, objective: Powers) -> float:
    """Bound the eigenvalues of H R, H = F^T F. With d = (D / V)^(1/2) about c, |F D^(1/2) r(B)| is
    at most c |F V^(1/2) r(B)| + |F V^(1/2)| max |d - c| max r; the first norm is that of a
    polynomial of B after one step, and of symmetric W where V is constant."""
    r = noise.polynomials[1]
    squared = r * r
    size = max(polynomials.proved_range(squared)[1], 0.0)
    found = size * objective.top(noise.scale)
    v = together.largest(noise.weights)
    if len(objective.counts) == 1:
        terms = objective.counts
    elif objective.symmetric and together.least(noise.weights) == v:
        terms = objective.counts / v ** np.arange(len(objective.counts))
    else:
        return found
    powers = np.polynomial.Polynomial([0.0, *terms])
    x = Chebyshev.interpolate(powers, len(terms), domain=squared.domain)
    weighted = max(polynomials.proved_range(x * squared)[1], 0.0)
    ratios = np.sqrt(noise.scale / noise.weights)
    ends = together.least(ratios), together.largest(ratios)
    middle, half = (ends[1] + ends[0]) / 2, (ends[1] - ends[0]) / 2
    both = middle * math.sqrt(weighted) + half * math.sqrt(float(powers(noise.bound)) * size)
    return float(min(found, both**2 * (1 + 1e-9)))  # x is known from its values


# --- the bound ------------------------------------------------------------------------------------


def proved(
    program: SparseProgram, weights: Array, noise: PolynomialCovariance | None = None
) -> Estimate:
    """Enclose a bound on the error of all noise within the budgets, squared noise.

    It is (tr S)^2 / <tau, v> with S = (V^(1/2) H V^(1/2))^(1/2), for any v > 0, or somewhat less;
    either side fails with probability ``FAILURE``. Of a polynomial near S the trace is a finite
    sum; only that of the rest is estimated, by quadrature. Sums that were found of noise serve here
    too, whatever noise it is, if b is above its B. Over several steps of symmetric W the trace of
    s (W V W)^(1/2) s, with s of W^2 and s^4 W^2 <= H, takes the place of S
    (docs/methods/large-graphs.md).
    """
    fits = noise is not None and noise.nodes == len(program.budget)
    if noise is not None and not (fits and eigenvalues_within(noise)):
        noise = None
    operator = Weighted(mixing=program.mixing, weights=weights / together.largest(weights))
    price = float(together.total(program.budget @ operator.weights))
    root = np.sqrt(operator.weights)[:, None]
    objective = program.objective
    if is_exact(program):
        if program.plain:
            values = math.sqrt(objective.counts[0]) * svdvals(operator.factor.toarray())
        else:
            b = root * objective.dense * root.T
            values = np.sqrt(np.clip(np.linalg.eigvalsh((b + b.T) / 2), 0.0, None))
        exact = float(values.sum()) ** 2 / price
        return Estimate(exact, exact)
    rng = _vectors(program, 1)
    scaled: Array = operator.weights
    factors: tuple[Product, Product]
    more: dict[str, Any] = {}  # of :func:`rest_of_root`
    if program.plain:
        factors, top = (operator.forward, operator.backward), operator.top
        price /= float(objective.counts[0])
    else:  # rules need more of a process, each of which takes many products
        more["most"], top = 240, objective.top(operator.weights)
        if objective.fourth_root is None:
            more["apart"], terms = 4e-3, objective.first(3e-3, rng)
            factors = (lambda x: terms.forward(root * x), lambda y: root * terms.backward(y))
        else:
            w = operators.narrow(program.mixing.tocsr())
            factors = (lambda x: root * (w @ x), lambda y: w @ (root * y))
            more["outer"] = objective.times_fourth_root
            more["stretch"] = polynomials.proved_range(objective.fourth_root)[1]
            scaled = (w.power(2) @ scaled) / w.power(2).sum(axis=1)
    if noise is None:
        beside, degree = Weighted(mixing=program.mixing, weights=1 / program.budget), 3
    else:
        beside, degree = _operator(noise), _degree(noise)
    within = more.get("outer", np.asarray)
    pilot = together.drawn(rng.standard_normal, program.size, 2)
    process = Bidiagonal(*factors, within(pilot))
    process.extend(52)  # of which 32 make the product
    images, factor = within(process.root_times()[0]), (scaled / beside.weights) ** 0.25
    known = near(beside, factor, degree=degree, starts=pilot, images=images)
    # Each vector takes a process of Lanczos, so that there are three times fewer.
    starts = Probes(program.size, max(probes_of(program) // 3, 24), rng)
    found = rest_of_root(*factors, known, top=top, starts=starts, failure=FAILURE, **more)
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
    """Enclose the trace of S = Q (A^T A)^(1/2) Q, of which that of K is known.

    A and A^T are x -> A x and y -> A^T y of blocks; so is Q, ``outer``, symmetric, of a norm of at
    most ``stretch``, the identity where it is None. ``top`` bounds the squared eigenvalues of S.
    Either side is exceeded with probability ``failure``. ``apart`` and ``most`` are those of
    :meth:`Bidiagonal.until_close`. The same steps tell S z closely enough for |S - K|_F."""

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

    every = in_threads(lambda number: together.kept(lambda: probed(number)), range(len(starts)))
    parts = zip(*every, strict=True)
    low, high, squares = (np.concatenate(found) for found in parts)
    rest, squared = Estimate(float(low.mean()), float(high.mean())), float(squares.mean())
    return _enclosed(known, rest, squared, top=math.sqrt(top), probes=len(low), failure=failure)
