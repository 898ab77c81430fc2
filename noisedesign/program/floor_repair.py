"""Making noise feasible whose variances are limited from below, and perhaps from above.

A floor is linear in R = X^-1 and not convex in X. Multiplying row and column i by d_i >= 1 raises
R_ii by d_i^2 and lowers [R^-1]_ii by as much: so floors are met, at no cost to the budgets. Below 1
the factors use up what budget and floor leave, and at the least one of the two is met exactly.

Caps come between: X is blended with independent noise at full budget, which lowers variances. Rows
that fall below a floor are raised again, to the floor, which is not above the cap.
"""

from __future__ import annotations

import numpy as np

from noisedesign.base import linalg as _linalg
from noisedesign.base.checks import Array
from noisedesign.program.program import Program


def raised(program: Program, covariance: Array) -> Array:
    """R, shape (n, n), within budgets, caps and floors up to rounding, from a positive definite R.

    Rows are multiplied by the least factors that budgets and floors allow, or only raised: a budget
    that is slack where nothing else holds a node must not be used up. The better one is taken.

    Raises:
        numpy.linalg.LinAlgError: R is not positive definite.
    """
    precision = np.diagonal(_linalg.inverse_of_positive(covariance))
    least = np.maximum(precision / program.budget, _floor(program) / np.diagonal(covariance))
    candidates = [
        _lowered(program, _scaled(covariance, factor)) for factor in (least, np.maximum(least, 1.0))
    ]
    return min(candidates, key=lambda candidate: float(np.sum(program.gram * candidate)))


def settled(program: Program, covariance: Array, *, margin: float) -> Array:
    """R within budgets, caps and floors in floating point, from one of :func:`raised`.

    Rows are raised by what they exceed their budgets by, the rounding of several inverses, and by
    half the relative ``margin``, which is what one is accurate to. Caps have left room for that, or
    their rows have been raised to a floor by more.
    """
    variance = np.diagonal(covariance)
    used = np.diagonal(_linalg.inverse_of_positive(covariance)) / program.budget
    wanted = variance * np.maximum(used, 1.0) * (1 + margin / 2)
    wanted = np.clip(wanted, _floor(program), _cap(program))
    found = _scaled(covariance, wanted / variance)
    np.fill_diagonal(found, wanted)
    return found


def _scaled(a: Array, squares: Array) -> Array:
    """Row and column i multiplied by the root of squares_i."""
    root = np.sqrt(squares)
    return np.asarray(a * root[:, None] * root)


def _lowered(program: Program, covariance: Array) -> Array:
    """R within its budgets and floors brought below its caps as well.

    diag(X^-1) is convex in X, so the share of independent noise that brings the bound on every
    entry to the cap is enough.
    """
    if program.cap is None:
        return covariance
    variance, gram = np.diagonal(covariance), _linalg.inverse_of_positive(covariance)
    margin = _linalg.inversion_margin(np.diagonal(gram), variance)
    excess = variance - program.cap * (1 - margin)
    over = excess > 0
    if not over.any():
        return covariance
    share = min(1.0, float((excess[over] / (variance - 1 / program.budget)[over]).max()))
    blend = _linalg.inverse_of_positive((1 - share) * gram + share * np.diag(program.budget))
    return _scaled(blend, np.maximum(1.0, _floor(program) / np.diagonal(blend)))


def _floor(program: Program) -> Array:
    return np.zeros(program.size) if program.floor is None else program.floor


def _cap(program: Program) -> Array:
    return np.full(program.size, np.inf) if program.cap is None else program.cap
