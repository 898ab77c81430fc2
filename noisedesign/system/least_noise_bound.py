"""A bound on the error of one step that holds for every mixing of a graph: NumPy alone.

For v >= 0 and ||U||_2 <= 1 the optimum of Whisper's problem for W is at least <U, W V^1/2>^2 over
sum tau v, which is linear in W under the square; its least value over all W of the graph is bounded
by prices of the constraints of W (docs/methods/mixing.md). Every rounding is accounted for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from noisedesign.base.checks import Array
from noisedesign.base.enclosures import (
    EPS,
    TINY,
    U,
    nuclear_norm_above,
    products_up,
    spectral_norm_above,
    sum_up,
    up,
)


@dataclass(frozen=True, kw_only=True, eq=False)
class MixingProof:
    """Multipliers of a bound for every W of a graph; whatever they are, the bound is one."""

    norm: float  # s, the largest ||W - J||_2 allowed, not squared
    budget: Array  # v of [R^-1]_ii <= tau_i, shape (n,)
    cap: Array  # u of R_ii <= c_i, shape (n,), or (0,) without caps
    polar: Array  # U, shape (n, n), or (2 n, n) where there are caps
    distance: Array  # Z of ||W - J||_2 <= s, shape (n, n)
    rows: Array  # alpha of W 1 = 1, shape (n,)
    columns: Array  # beta of 1^T W = 1^T, shape (n,); (0,) where W is symmetric: alpha

    @property
    def symmetric(self) -> bool:
        """Whether the bound is for symmetric W alone."""
        return not self.columns.size

    def arrays(self) -> dict[str, Array]:
        """The multipliers, by name."""
        return {name: getattr(self, name) for name in MULTIPLIERS}


MULTIPLIERS = {  # by name, what each is the multiplier of
    "budget": "v of the budgets, of the bound for every W",
    "cap": "u of the caps, of the bound for every W",
    "polar": "U of the bound for every W",
    "distance": "Z of the mixing rate, of the bound for every W",
    "rows": "alpha of the sums of rows, of the bound for every W",
    "columns": "beta of the sums of columns, of the bound for every W",
}


def error_lower_bound(
    mixing: Array,
    *,
    budget: Array,
    cap: Array | None,
    proof: MixingProof,
    weights: Array | None = None,
) -> float:
    """A bound below the error tr(diag(weights) W R W^T), weights 1 if not said, of every R within
    budgets and caps, (n,), and every doubly stochastic W with the links of this one, (n, n), and
    ||W - J||_2 <= s (not squared); of symmetric W alone where the proof is one for these."""
    n = len(budget)
    shapes = {"budget": (n,), "distance": (n, n), "rows": (n,)}
    shapes |= {"columns": (0,) if proof.symmetric else (n,)}
    shapes |= {"cap": (0,) if cap is None else (n,), "polar": (n if cap is None else 2 * n, n)}
    if any(array.shape != shapes[name] for name, array in proof.arrays().items()):
        return 0.0
    if not all(np.isfinite(array).all() for array in proof.arrays().values()):
        return 0.0
    allowed = (mixing > 0) | np.eye(n, dtype=bool)
    reading = np.ones(n) if weights is None else root_below(weights)
    with np.errstate(all="ignore"):  # what is not finite is no bound
        try:
            found = _bound(allowed, reading, budget, cap, proof)
        except (np.linalg.LinAlgError, ArithmeticError, ValueError):
            return 0.0
    return found if 0 < found < math.inf else 0.0


def root_below(weights: Array) -> Array:
    """L with L^2 <= weights, exact where these are 1."""
    return np.asarray(np.where(weights == 1, 1.0, np.sqrt(weights) * (1 - 2 * EPS)))


def _bound(
    allowed: Any, reading: Array, budget: Array, cap: Array | None, proof: MixingProof
) -> float:
    # For D = L U V^1/2 - Z, as weights are at most 1, <U, L W V^1/2> is at least sum alpha + sum
    # beta + <Z, J> - s |Z|_* - sum max(alpha_i + beta_j - D_ij, 0). V is the square of its root.
    n, z = len(budget), proof.distance
    root, alpha = np.sqrt(np.maximum(proof.budget, 0.0)), proof.rows
    beta = alpha if proof.symmetric else proof.columns
    gain = reading[:, None] * proof.polar[:n] * root
    size = abs(gain)
    if proof.symmetric:  # a symmetric W sees the symmetric parts alone
        gain, size, z = ((a + a.T) / 2 for a in (gain, size, z))
    excess = np.maximum(np.add.outer(alpha, beta) - gain + z, 0.0)[allowed]
    sizes = (np.add.outer(abs(alpha), abs(beta)) + size + abs(z))[allowed]
    crossed, charge = np.zeros(0), 0.0
    if cap is not None:
        of_caps = np.sqrt(np.maximum(proof.cap, 0.0))
        crossed = np.diagonal(proof.polar[n:]) * of_caps * root
        charge = products_up(cap, up(of_caps**2, 1))
    paid = float(up(proof.norm * nuclear_norm_above(z), 1))
    terms = np.concatenate([alpha, beta, z.ravel() / n, crossed, -excess, [-paid]])
    sizes = np.concatenate([abs(terms), sizes])
    value = math.fsum(terms) - float(up(8 * U * sum_up(sizes) + sizes.size * TINY, 8))
    spent = products_up(budget, up(root**2, 1))
    if not (value > 0 and spent > 0):
        return 0.0
    value /= spectral_norm_above(proof.polar)
    return (value * value / spent * (1 - 8 * EPS) - charge) * (1 - 4 * EPS)
