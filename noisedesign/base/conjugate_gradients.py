"""Preconditioned conjugate gradients, as far as a caller says it is worth it.

SciPy's stop on the plain norm of the residual; here it is measured as the preconditioner does,
where it tells how much of the objective a step leaves. Vectors may be of any array API library.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Solved(NamedTuple):
    """x; the residual it leaves; how many products that took."""

    x: Any
    residual: Any
    products: int


def conjugate_gradients(
    product: Callable[[Any], Any],
    precondition: Callable[[Any], Any],
    *,
    right: Any,
    preconditioned: Any,
    target: float,
    most: int,
    expired: Callable[[], bool] = lambda: False,
) -> Solved:
    """x with product(x) near ``right``, shape (k,), from zero; at least one step if most > 0.

    Args:
        product: a symmetric positive definite map of vectors, shape (k,). Where it turns out not to
            be positive along a direction, the search ends before that.
        precondition: a map near its inverse, of the same kind.
        preconditioned: precondition(right), which a target depends on more often than not.
        target: square of the residual, in the norm of ``precondition``, that is small enough.
        most: products at most.
        expired: asked after every product whether to end.
    """
    residual, step = right, preconditioned
    x, size, used = 0 * right, float(right @ preconditioned), 0
    while used < most:
        image = product(step)
        used += 1
        along = float(step @ image)
        if not along > 0:
            break
        length = size / along
        x = x + length * step
        residual = residual - length * image
        turned = precondition(residual)
        previous, size = size, float(residual @ turned)
        if size <= target or expired():
            break
        step = turned + size / previous * step
    return Solved(x, residual, used)
