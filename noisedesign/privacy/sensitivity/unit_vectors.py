"""Unit vectors v_i of few dimensions that make sum_ij M_ij <v_i, v_j> large.

That sum is <M, Y> for the correlation matrix Y = V V^T (Burer and Monteiro 2003). On the product of
spheres the gradient is the part of M V across the v_i, and with y_i = <v_i, (M V)_i> the second
derivative is that of Diag(y) - M. Newton steps are found by conjugate gradients inside a trust
region (Absil, Mahony and Sepulchre 2008, chapter 7); each needs products M V only, so M may be
sparse. At an optimum of the whole problem Diag(y) - M is positive semidefinite, which proves it;
the caller checks that.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from noisedesign.base.checks import Array

Matrix = Array | csr_array

STEPS = 200
"""Most Newton steps; 10 to 20 are usual."""

INNER_STEPS = 200
"""Most conjugate gradient steps for one of them."""

STATIONARY = 1e-13
"""Length of the gradient relative to the value at which rounding takes over."""

FORCING = 0.1
"""Residual of the first Newton systems relative to the gradient; later ones are solved to the root
of its relative length, for superlinear convergence."""

TRUSTED, DOUBTED = 0.75, 0.25
"""Shares of the predicted gain above which the region grows, and below which it shrinks."""

FLATTEST = 1e-3
"""Least curvature, relative to the largest, that the diagonal preconditioner assumes."""


class Found(NamedTuple):
    """Unit vectors V, shape (k, rank); y_i = <v_i, (M V)_i>, shape (k,), with sum <M, V V^T>;
    settled: whether the search came to rest."""

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
    """A stationary point above ``vectors``, or as far as about so many products M V lead.

    100 to 500 are usual. Where the optimum is nearly attained along whole curves (M close to a
    multiple of the identity, or nearly decoupled) tens of thousands may be needed.
    """
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
        if gain > TRUSTED * step.gain:
            radius = min(2 * radius, widest)
        elif gain < DOUBTED * step.gain:
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
    floor = FLATTEST * max(float(np.abs(guess).max()), 1e-300)
    inverse = 1 / np.maximum(guess, floor)[:, None]
    length = _length(gradient)
    enough = length * min(FORCING, math.sqrt(length / max(abs(here.value), length)))
    step, curved = np.zeros_like(gradient), np.zeros_like(gradient)
    residual = gradient
    scaled = _across(inverse * residual, here.vectors)
    direction, product = scaled, float(np.vdot(residual, scaled))
    products = 0
    for _ in range(INNER_STEPS):
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
