"""Unit vectors v_i of few dimensions that make sum_ij M_ij <v_i, v_j> large (Burer and Monteiro
2003).

Newton steps on the product of spheres are found by conjugate gradients inside a trust region
(Absil, Mahony and Sepulchre 2008, chapter 7), by products M V only. In one dimension they are
signs.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import scipy.sparse
from scipy.sparse import csgraph, csr_array

from noisedesign.base import settings
from noisedesign.base.checks import Array

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
