"""The best DECOR noise: a search along the ratio of its two variances."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from noisedesign.base.checks import Array
from noisedesign.certify.program import Program

# Bounds of log(c / s): beyond them R is a multiple of I, or of L plus a constant, in float64.
SEARCH = (-12.0, 12.0)


def decor_variances(
    program: Program, laplacian: Array, *, near: float | None = None
) -> tuple[float, float]:
    """Squared scales of the best DECOR noise, R = s I + c L: s of a node's own, c of an edge's; or
    those at log(c / s) = ``near``. L = ``laplacian``, shape (n, n).

    For a ratio of the two the least feasible scale is explicit. Pairs of a bounded objective, above
    a floor under diag(R) or within a cap on it form convex sets, so that the objective is
    quasi-convex along the ratio, a floor raises the scale and a cap shortens the search. Where no
    pair keeps both, the one that exceeds its cap by the least factor is returned."""
    gram, budget, cap, floor = program.gram, program.budget, program.cap, program.floor
    values, vectors = np.linalg.eigh(laplacian)
    weights = np.square(vectors) / budget[:, None]
    plain, spread = float(np.trace(gram)), float(np.sum(gram * laplacian))
    degrees = np.diagonal(laplacian)

    def least_scale(log_ratio: float) -> float:
        needed = float((weights @ (1 / (1 + np.exp(log_ratio) * values))).max())
        least = 0.0 if floor is None else floor / (1 + np.exp(log_ratio) * degrees)
        return max(needed, float(np.max(least)))

    def objective(log_ratio: float) -> float:
        return float(least_scale(log_ratio) * (plain + np.exp(log_ratio) * spread))

    def over_cap(log_ratio: float) -> float:
        if cap is None:
            return -1.0
        variance = 1 + np.exp(log_ratio) * degrees
        # The rest of a cap is for rounding of the inverse.
        return float((least_scale(log_ratio) * variance / cap).max()) - (1 - 1e-9)

    def least(function: Callable[[float], float], bounds: tuple[float, float]) -> float:
        found = minimize_scalar(function, bounds=bounds, method="bounded", options={"xatol": 1e-10})
        return float(found.x)

    low, high = inside, _ = SEARCH
    if floor is not None and over_cap(low) > 0:
        # A floor that differs from node to node may be out of reach of equal noise alone.
        inside = least(over_cap, SEARCH)
        low = brentq(over_cap, low, inside) if over_cap(inside) < 0 else inside
    if over_cap(high) > 0:
        high = brentq(over_cap, inside, high) if over_cap(inside) < 0 else inside
    if near is not None:
        best = float(np.clip(near, low, high))
    else:
        # The search stays inside its interval; the optimum may be its end, at the cap.
        best = min((low, least(objective, (low, high)), high), key=objective)
    if best == SEARCH[0]:
        return least_scale(-np.inf), 0.0
    return least_scale(best), float(np.exp(best)) * least_scale(best)


def decor_precision(program: Program, laplacian: Array, *, near: float | None = None) -> Array:
    """X = R^-1 of :func:`decor_variances`, shape (n, n)."""
    node_variance, edge_variance = decor_variances(program, laplacian, near=near)
    values, vectors = np.linalg.eigh(laplacian)
    return np.asarray((vectors / (node_variance + edge_variance * values)) @ vectors.T)
