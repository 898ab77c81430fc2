"""Proved bounds on the elliptope maximum max <M, Y>, Y positive semidefinite with unit diagonal.

A correlation matrix bounds it from below; sum(y) from above where Diag(y) - M passes a Cholesky
factorisation, with its rounding added (Rump 2006). The search is by signs, by unit vectors of low
rank (Burer and Monteiro 2003), and by interior points (Helmberg, Rendl, Vanderbei and Wolkowicz
1996). Unit vectors v_i that make sum_ij M_ij <v_i, v_j> large are found by Newton steps on the
product of spheres, by conjugate gradients inside a trust region (Absil, Mahony and Sepulchre 2008,
chapter 7), by products M V only; in one dimension they are signs."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse
import scipy.sparse.linalg
from scipy.linalg import lapack
from scipy.sparse import csgraph, csr_array

from noisedesign.base import settings
from noisedesign.base.checks import Array
from noisedesign.base.machine import one_thread

Matrix = Array | csr_array

STEPS = 200  # most Newton steps; 10 to 20 are usual
STATIONARY = 1e-13  # length of the gradient relative to the value at which rounding takes over


class Found(NamedTuple):
    """Unit vectors V, shape (k, rank); y_i = <v_i, (M V)_i>; whether the search came to rest."""

    vectors: Array
    y: Array
    settled: bool


class _Point(NamedTuple):
    vectors: Array
    pull: Array
    y: Array
    value: float


class _Step(NamedTuple):
    move: Array
    gain: float
    products: int


def first_guess(size: int, rank: int) -> Array:
    """Nearly aligned unit vectors, shape (size, rank), the same at every call."""
    start = 0.1 * np.random.default_rng(0).standard_normal((size, rank))
    start[:, 0] += 1.0
    return _normalised(start)


def widened(vectors: Array, direction: Array) -> Array:
    """One more column, along a direction of negative curvature of Diag(y) - M, shape (k,)."""
    length = 0.1 * math.sqrt(len(vectors)) / max(float(np.linalg.norm(direction)), 1e-300)
    return _normalised(np.hstack([vectors, length * direction[:, None]]))


def ascend(m: Matrix, vectors: Array, *, products: int) -> Found:
    """A stationary point above ``vectors``, or as far as about so many products M V lead."""
    here = _point(m, vectors)
    widest = math.sqrt(len(vectors))
    radius = widest / 4
    diagonal = m.diagonal()
    for _ in range(STEPS):
        gradient = _across(here.pull, here.vectors)
        if _length(gradient) <= STATIONARY * abs(here.value):
            return Found(here.vectors, here.y, settled=True)
        if products <= 0:
            break
        step = _newton_step(m, here, gradient, diagonal, radius)
        products -= step.products
        there = _point(m, _normalised(here.vectors + step.move))
        gain = there.value - here.value
        if gain > 0:
            here = there
        elif step.gain <= STATIONARY * abs(here.value):
            return Found(here.vectors, here.y, settled=True)
        if gain > 0.75 * step.gain:
            radius = min(2 * radius, widest)
        elif gain < 0.25 * step.gain:
            radius /= 4
    return Found(here.vectors, here.y, settled=False)


def _point(m: Matrix, vectors: Array) -> _Point:
    pull = np.asarray(m @ vectors)
    y = np.einsum("ij,ij->i", pull, vectors)
    return _Point(vectors, pull, y, float(y.sum()))


def _length(u: Array) -> float:
    return math.sqrt(np.vdot(u, u))


def _normalised(vectors: Array) -> Array:
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def _across(u: Array, vectors: Array) -> Array:
    """The part of every row of U across v_i."""
    return np.asarray(u - np.einsum("ij,ij->i", u, vectors)[:, None] * vectors)


def _newton_step(m: Matrix, here: _Point, gradient: Array, diagonal: Array, radius: float) -> _Step:
    """A step within the radius and the gain it predicts (Steihaug's conjugate gradients)."""
    y = here.y[:, None]

    def curvature(u: Array) -> Array:
        return _across(y * u - m @ u, here.vectors)

    guess = here.y - diagonal
    floor = 1e-3 * max(float(np.abs(guess).max()), 1e-300)
    inverse = 1 / np.maximum(guess, floor)[:, None]
    length = _length(gradient)
    # Later systems are solved to the root of the relative length, for superlinear convergence.
    enough = length * min(0.1, math.sqrt(length / max(abs(here.value), length)))
    step, curved = np.zeros_like(gradient), np.zeros_like(gradient)
    residual = gradient
    scaled = _across(inverse * residual, here.vectors)
    direction, product = scaled, float(np.vdot(residual, scaled))
    products = 0
    for _ in range(200):
        products += 1
        bent = curvature(direction)
        bend = float(np.vdot(direction, bent))
        inside = bend > 0 and _length(step + product / bend * direction) < radius
        share = product / bend if inside else _to_the_rim(step, direction, radius)
        step, curved = step + share * direction, curved + share * bent
        residual = residual - share * bent
        if not inside or _length(residual) <= enough:
            break
        scaled = _across(inverse * residual, here.vectors)
        before, product = product, float(np.vdot(residual, scaled))
        direction = scaled + product / before * direction
    gain = float(2 * np.vdot(gradient, step) - np.vdot(step, curved))
    return _Step(move=step, gain=gain, products=products)


def _to_the_rim(step: Array, direction: Array, radius: float) -> float:
    """t > 0 with |step + t direction| = radius."""
    a, b = float(np.vdot(direction, direction)), float(np.vdot(step, direction))
    c = max(radius**2 - float(np.vdot(step, step)), 0.0)
    return c / (b + math.sqrt(b * b + a * c)) if b > 0 else (math.sqrt(b * b + a * c) - b) / a


def balancing_signs(m: Array | scipy.sparse.csr_array) -> Array:
    """Signs s with s_i s_j M_ij >= 0 but for rounding, where there are any, shape (k,)."""
    relative = settings.rank_tolerance(m.shape[0])
    if isinstance(m, np.ndarray):
        absolute = np.abs(m)
        return _spread(np.where(absolute > relative * absolute.max(), m, 0.0))
    return _coloured(m, relative * np.abs(m.data).max(initial=0.0))


def _spread(m: Array) -> Array:
    """Signs by spreading from one index over its neighbours, theirs, and so on."""
    s = np.zeros(len(m))
    while not s.all():
        pull = m @ s
        reached = (s == 0) & (pull != 0)
        if reached.any():
            s[reached] = np.sign(pull[reached])
        else:
            s[int((s == 0).argmax())] = 1.0
    return s


def _coloured(m: scipy.sparse.csr_array, floor: float) -> Array:
    """Signs of two copies of every index: positive entries join like ones, negative unlike."""
    entries = m.tocoo()
    k = m.shape[0]
    kept = np.abs(entries.data) > floor
    row, column, negative = entries.row[kept], entries.col[kept], entries.data[kept] < 0
    heads = np.concatenate([row, row + k])
    tails = np.concatenate([column + k * negative, column + k * ~negative])
    graph = scipy.sparse.coo_array((np.ones(len(heads)), (heads, tails)), shape=(2 * k, 2 * k))
    _, labels = csgraph.connected_components(graph, directed=False)
    return np.where(labels[:k] <= labels[k:], 1.0, -1.0)


def local_signs(m: Array | scipy.sparse.csr_array) -> tuple[Array, Array]:
    """Signs c that no single flip improves, and M c; both of shape (k,)."""
    c = np.ones(m.shape[0])
    pull, diagonal = np.asarray(m @ c), m.diagonal()
    for _ in range(len(c)):
        gain = diagonal - c * pull  # a quarter of what flipping i adds to c^T M c
        worst = int(gain.argmax())
        if gain[worst] <= 0:
            break
        c[worst] = -c[worst]
        column = m[:, [worst]]
        column = column.toarray() if scipy.sparse.issparse(column) else column
        pull = pull + 2 * c[worst] * np.ravel(column)
    return c, pull


SOLVED = 1e-9  # relative gap of the bounds to reach; rounding adds 2e-10 at most, k^2 EPS
BLOCK_LIMIT = 1024  # largest dense block: seconds by interior points, growing as its cube
SMALL = 128  # size up to which the interior-point method is the faster of the two searches
NEWTON_STEPS = 100  # cap on its iterations; 12 to 25 are usual, at any size
RANK = 6  # columns the low-rank search starts with; optima of matrices at hand have 1 to 4
PRODUCTS = 1500  # products M V that search may take: about the time of the interior-point method


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """lower <= max <M, Y> <= upper, both proved, the latter by a y, shape (k,), or otherwise."""

    lower: float
    upper: float
    dual: Array | None = field(default=None, compare=False, repr=False)

    def agree(self, tolerance: float) -> bool:
        """Whether the bounds coincide to ``tolerance``, relative to the upper one."""
        return math.isfinite(self.upper) and self.upper - self.lower <= tolerance * self.upper

    def tightened(self, other: Bounds) -> Bounds:
        """The better end of both."""
        better = self if self.upper <= other.upper else other
        return Bounds(lower=max(self.lower, other.lower), upper=better.upper, dual=better.dual)


UNKNOWN = Bounds(lower=-math.inf, upper=math.inf)


def block_bounds(block: Array, *, enough: float = -math.inf) -> Bounds:
    """Bounds for a dense symmetric block to a gap of ``SOLVED``, or an upper one of ``enough``."""
    scale = float(np.abs(block).max())
    if scale == 0:
        return Bounds(lower=0.0, upper=0.0)
    m = block / scale
    searches = (_low_rank_bounds, _interior_bounds) if len(m) > SMALL else (_interior_bounds,)
    with one_thread():
        # Signs c that no flip improves, with y_i = c_i (M c)_i, raised to prove it.
        c, pull = local_signs(m)
        best = _ends(m, _raised(c * pull), np.multiply.outer(c, c))
        for search in searches:
            if best.agree(SOLVED) or best.upper * scale <= enough:
                break
            best = best.tightened(search(m, enough / scale))
    dual = None if best.dual is None else scale * best.dual
    return Bounds(lower=scale * best.lower, upper=scale * best.upper, dual=dual)


def _raised(y: Array) -> Array:
    return np.asarray(y + max(float(y.sum()), 0.0) * SOLVED / (4 * len(y)))


def _low_rank_bounds(m: Array, enough: float) -> Bounds:
    """Bounds from unit vectors of low rank."""
    k = len(m)
    vectors, best = first_guess(k, min(RANK, k)), UNKNOWN
    for _ in range(5):  # columns are added one by one
        found = ascend(m, vectors, products=PRODUCTS)
        best = best.tightened(_ends(m, _raised(found.y), found.vectors @ found.vectors.T))
        if best.agree(SOLVED) or best.upper <= enough or not found.settled:
            break
        _, directions = np.linalg.eigh(np.diag(found.y) - m)
        vectors = widened(found.vectors, directions[:, 0])
    return best


def _interior_bounds(m: Array, enough: float) -> Bounds:
    """Bounds from a primal-dual interior-point method whose Y and y stay feasible at any time."""
    k = len(m)
    rows = np.abs(m).sum(axis=1)
    y = 1.1 * rows + 0.1 * rows.mean()  # strictly dominant: feasible, and off the boundary
    slack, correlation = np.diag(y) - m, np.eye(k)
    best, target = _ends(m, y, correlation), 0.5
    for _ in range(NEWTON_STEPS):
        if best.agree(SOLVED) or best.upper <= enough:
            break
        mu = target * float(np.sum(slack * correlation)) / k
        direction = _direction(slack, correlation, mu)
        if direction is None:
            break
        d_y, d_correlation = direction
        primal = _step(correlation, d_correlation)
        dual = _step(slack, np.diag(d_y))
        correlation = correlation + primal * d_correlation
        y = y + dual * d_y
        slack = np.diag(y) - m
        # Short steps mean that the iterate is off centre: aim for the centre first.
        target = 0.1 if primal + dual > 1.8 else 0.5
        best = best.tightened(_ends(m, y, correlation))
    return best


def _direction(slack: Array, correlation: Array, mu: float) -> tuple[Array, Array] | None:
    """Newton direction of (y, Y) for slack Y = mu I, or None where rounding defeats it."""
    root, failed = lapack.dpotrf(slack, lower=1)
    if failed:
        return None
    inverse, _ = lapack.dpotri(root, lower=1)
    inverse = np.tril(inverse) + np.tril(inverse, -1).T
    _, d_y, failed = lapack.dposv(inverse * correlation, mu * np.diagonal(inverse) - 1)
    if failed or not np.isfinite(d_y).all():
        return None
    product = inverse @ (d_y[:, None] * correlation)
    return d_y, mu * inverse - correlation - (product + product.T) / 2


def _step(matrix: Array, direction: Array) -> float:
    """A step that keeps ``matrix`` positive definite, at most 1; 0 where there is none."""
    length = 1.0
    while length > settings.EPS:
        _, failed = lapack.dpotrf(matrix + length * direction, lower=1)
        if not failed:
            return length if length == 1.0 else 0.95 * length
        length *= 0.8
    return 0.0


def _ends(m: Array, y: Array, correlation: Array) -> Bounds:
    """Both bounds, of an iterate that is feasible up to rounding."""
    k = len(m)
    root = 1 / np.sqrt(np.diagonal(correlation))
    lower = float(root @ (m * correlation) @ root)
    slack = np.diag(y) - m
    _, failed = lapack.dpotrf(slack, lower=1)
    if failed:
        return Bounds(lower=lower, upper=math.inf)
    # Least eigenvalue of a matrix that passed Cholesky: not below -(k + 1) EPS trace, to first
    # order; twice that, and two more for the roundings of the difference.
    rounding = 2 * (k + 3) * settings.EPS * float(np.trace(slack))
    return Bounds(lower=lower, upper=float(y.sum()) + k * rounding, dual=y + rounding)


Sparse = scipy.sparse.csr_array

BAND_ENTRIES = 10**8  # largest band (rows times bandwidth) that is factorised: 0.8 GB


def sparse_bounds(m: Sparse) -> Bounds:
    """Bounds for a large symmetric matrix, shape (k, k), in memory of its band."""
    absolute = float(abs(m).sum())
    scale = float(abs(m).max())
    if scale == 0:
        return Bounds(lower=0.0, upper=0.0)
    m = Sparse(m / scale)
    c, pull = local_signs(m)
    y = c * pull
    best = Bounds(lower=float(y.sum()), upper=_proved(m, y))
    if not best.agree(SOLVED):
        operator = m.toarray() if m.nnz > m.shape[0] ** 2 / 4 else m
        start = first_guess(m.shape[0], RANK)
        found = ascend(operator, start, products=min(15_000, 2 * 10**9 // m.nnz))
        best = best.tightened(Bounds(lower=float(found.y.sum()), upper=_proved(m, found.y)))
    if not best.agree(SOLVED):
        # With y = 1 the bound is k lambda_max: better where the search is far from done.
        feasible = np.maximum(found.y, settings.EPS * found.y.max())
        for dual in (feasible, np.ones(len(y))):
            upper = float(dual.sum()) * certified_multiple(m, dual)
            best = best.tightened(Bounds(lower=-math.inf, upper=upper))
    return Bounds(lower=scale * best.lower, upper=min(absolute, scale * best.upper))


def _proved(m: Sparse, y: Array) -> float:
    """sum(y), raised by a share of ``SOLVED``, where that is proved an upper bound; else inf."""
    if not y.min() > 0:
        return math.inf
    raised = y * (1 + SOLVED / 4)
    scaled = _Scaled.of(m, raised)
    if scaled is None or not scaled.positive_definite(1.0):
        return math.inf
    return float(raised.sum()) * (1 + scaled.rounding(1.0))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Scaled:
    """Diag(y)^-1/2 M Diag(y)^-1/2, and the lower band of its negative, shape (width + 1, k)."""

    matrix: Sparse
    band: Array

    @classmethod
    def of(cls, m: Sparse, y: Array) -> _Scaled | None:
        """None where the band has more than ``BAND_ENTRIES`` entries."""
        root = scipy.sparse.diags_array(1 / np.sqrt(y))
        scaled = (root @ m @ root).tocoo()
        below = scaled.row - scaled.col
        width = int(np.abs(below).max(initial=0))
        if (width + 1) * len(y) > BAND_ENTRIES:
            return None
        band = np.zeros((width + 1, len(y)))
        lower = below >= 0
        band[below[lower], scaled.col[lower]] = -scaled.data[lower]
        return cls(matrix=scaled.tocsr(), band=band)

    def positive_definite(self, t: float) -> bool:
        """Whether Cholesky of t I - matrix runs to its end."""
        trial = self.band.copy()
        trial[0] += t
        try:
            scipy.linalg.cholesky_banded(trial, overwrite_ab=True, lower=True, check_finite=False)
        except np.linalg.LinAlgError:
            return False
        return True

    def rounding(self, t: float) -> float:
        """A number to add to a t that passed, for the rounding of the factorisation."""
        # As for a dense block; |R|^T |R| has 2 * width + 1 entries in a row at most.
        width, k = len(self.band) - 1, self.band.shape[1]
        peak = float((t + self.band[0]).max())
        return float(2 * (width + 5) * settings.EPS * min(2 * width + 1, k) * peak)


def certified_multiple(m: Sparse, y: Array) -> float:
    """A t, nearly the least, with t Diag(y) - M proved positive semidefinite, or infinity."""
    scaled = _Scaled.of(m, y)
    if scaled is None:
        return math.inf
    # What dominates every row is positive semidefinite without a proof by factorisation.
    dominant = float(abs(scaled.matrix).sum(axis=1).max()) * (1 + settings.rank_tolerance(len(y)))
    failed, step = _largest_eigenvalue(scaled.matrix), settings.sqrt_eps() * dominant
    while failed + step < dominant and not scaled.positive_definite(failed + step):
        failed, step = failed + step, 10 * step
    passed = min(failed + step, dominant)
    while passed - failed > SOLVED / 4 * passed:
        middle = (failed + passed) / 2
        if scaled.positive_definite(middle):
            passed = middle
        else:
            failed = middle
    return min(passed + scaled.rounding(passed), dominant)


def _largest_eigenvalue(m: Sparse) -> float:
    """A lower estimate of the largest eigenvalue of M, which only starts a bisection."""
    start = np.random.default_rng(0).standard_normal(m.shape[0])
    try:
        _, vectors = scipy.sparse.linalg.eigsh(m, k=1, which="LA", v0=start, tol=1e-3)
        vector = vectors[:, 0]
    except scipy.sparse.linalg.ArpackNoConvergence:
        vector = start
    return float(vector @ (m @ vector) / (vector @ vector))
