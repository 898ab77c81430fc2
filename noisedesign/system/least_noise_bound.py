"""A bound on the error of one step that holds for every mixing of a graph: NumPy alone.

For v >= 0 and ||U||_2 <= 1 the optimum of Whisper's problem for W is at least <U, W V^1/2>^2 over
sum tau v, which is linear in W under the square; its least value over all W of the graph is bounded
by prices of the constraints of W (docs/mathematics.md, "The mixing of least noise").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisedesign.base import settings
from noisedesign.base.checks import Array


@dataclass(frozen=True, kw_only=True, eq=False)
class MixingProof:
    """Multipliers of a bound for every W of a graph; whatever they are, the bound is one."""

    norm: float  # s, the largest ||W - J||_2 allowed, not squared
    budget: Array  # v of [R^-1]_ii <= tau_i, shape (n,)
    cap: Array  # u of R_ii <= c_i, shape (n,), or (0,) without caps
    polar: Array  # U, shape (n, n), or (2 n, n) where there are caps
    distance: Array  # Z_- - Z_+ of -s I <= W - J <= s I, shape (n, n)
    self_weights: Array  # z of W_ii >= 0, shape (n,)

    def arrays(self) -> dict[str, Array]:
        """The multipliers, by name."""
        return {name: getattr(self, name) for name in MULTIPLIERS}


MULTIPLIERS = {  # by name, what each is the multiplier of
    "budget": "v of the budgets, of the bound for every W",
    "cap": "u of the caps, of the bound for every W",
    "polar": "U of the bound for every W",
    "distance": "Z of the mixing rate, of the bound for every W",
    "self_weights": "z of the self weights, of the bound for every W",
}


def error_lower_bound(
    edges: NDArray[np.integer[Any]], *, budget: Array, cap: Array | None, proof: MixingProof
) -> float:
    """No symmetric W >= 0 on the edges (m, 2) with W 1 = 1 and ||W - J||_2 <= s (not squared) has
    noise of a smaller error tr(W R W) than this, at budgets and caps of shape (n,)."""
    n = len(budget)
    shapes = {"budget": (n,), "distance": (n, n), "self_weights": (n,)}
    shapes |= {"cap": (0,) if cap is None else (n,), "polar": (n if cap is None else 2 * n, n)}
    if any(array.shape != shapes[name] for name, array in proof.arrays().items()):
        return 0.0
    if not all(np.isfinite(array).all() for array in proof.arrays().values()):
        return 0.0
    rounding = 8 * settings.rank_tolerance(2 * n)
    v, u = np.maximum(proof.budget, 0.0), np.maximum(proof.cap, 0.0)
    polar = proof.polar / max(1.0, float(np.linalg.norm(proof.polar, 2)) * (1 + rounding))
    root = np.sqrt(v)
    gain = polar[:n] * root
    gain = (gain + gain.T) / 2
    z = np.maximum(proof.self_weights, 0.0)
    z_distance = (proof.distance + proof.distance.T) / 2
    nuclear = float(np.abs(np.linalg.eigvalsh(z_distance)).sum())
    # <U, W V^1/2> >= tr D + <Z, J> - s |Z|_* - sum w_e b^T D b, D = sym(U V^1/2) - Z, and a weight
    # of w_e <= 1 costs at most z_i + z_j at the price sum z.
    left, (i, j) = gain - z_distance, edges.T
    along = left[i, i] + left[j, j] - 2 * left[i, j]
    excess = np.maximum(along - z[i] - z[j], 0.0)
    terms = np.concatenate([np.diagonal(left), excess, z, [nuclear], z_distance.ravel() / n])
    value = float(
        np.trace(left) + z_distance.sum() / n - proof.norm * nuclear - z.sum() - excess.sum()
    )
    spent, charge = float(budget @ v), 0.0
    if cap is not None:
        value += float(np.sum(np.diagonal(polar[n:]) * np.sqrt(u) * root))
        charge = float(cap @ u) * (1 + rounding)
    value -= rounding * float(np.abs(terms).sum())
    if not (value > 0 and spent > 0):
        return 0.0
    return max(0.0, value**2 / spent * (1 - rounding) - charge)
