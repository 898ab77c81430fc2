"""The unrepaired X(U) of multipliers U, found again from the feasible design made of it.

Solvers find X(U) = H^1/2 (H^1/2 U H^1/2)^-1/2 H^1/2, the one X with X U X = H. The export is made
feasible: entries off the diagonal are dropped on patterns, and rows scaled pattern by pattern
(:mod:`noisedesign.certify.repair`). So X(U) = D X D + E of the exported X, with one number d_j a
pattern, and E zero but for symmetric blocks E_j with a zero diagonal. Blocks of X U X = H on
the patterns tell both. With d_j^2 = f_j and N_jl = X_jl U_l X_lj they are

    f_j sum_l f_l N_jl + E_j U_j Y_j + Y_j U_j E_j + E_j U_j E_j = H_jj,    Y_j = f_j X_jj,

of which Newton's method solves the linear part: no matrix but N is large. W_j with
U_j Y_j W_j + W_j Y_j U_j diagonal does not see E_j to first order, so <W_j, .> tells log d by
itself, from a system with a matrix between 2 and 4; what is left are equations of Lyapunov.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from noisedesign.base.checks import Array


class Unrepaired(NamedTuple):
    """f = d^2, shape (b,), and E, shape (b, k, k), of X(U) = D X D + E."""

    squares: Array
    added: Array


def couplings(half: Array, b: int) -> Array:
    """N_jl = (X B)_jl (X B)_jl^T, (k, k, b, b), by ``half`` = X B, (m, m), of b patterns."""
    k = len(half) // b
    parts = half.reshape(k, b, k, b)
    return np.asarray(np.einsum("sjrl,tjrl->stjl", parts, parts))


def unrepaired(n: Array, x: Array, u: Array, h: Array) -> Unrepaired | None:
    """Find D and E, up to rounding; None for a design repaired in another way, or a near singular
    H.

    ``n`` are :func:`couplings`; ``x`` the blocks of X, (b, k, k), diagonal; ``u`` is U, (b, k, k),
    both of any scale; ``h`` are the blocks of H.
    """
    b, k, _ = x.shape
    diagonal = np.arange(k)
    roots = np.sqrt(x[:, diagonal, diagonal])
    outer = roots[:, :, None] * roots[:, None, :]
    scale = float(np.sqrt(np.einsum("jss->", h) / np.einsum("ssjl->", n)))
    # In units in which Y is about I: E' = Y^-1/2 E Y^-1/2, U' = Y^1/2 U Y^1/2.
    values, vectors = np.linalg.eigh(scale * outer * u)
    sums, adjoint = values[:, :, None] + values[:, None, :], vectors.transpose(0, 2, 1)

    def lyapunov(right: Array) -> Array:
        """E' with E' U' + U' E' as given."""
        return np.asarray(vectors @ (adjoint @ right @ vectors / sums) @ adjoint)

    squares, added, before = np.full(b, scale), np.zeros_like(x), np.inf
    within = h / (scale * outer)
    wanted = np.zeros_like(x)
    wanted[:, diagonal, diagonal] = within[:, diagonal, diagonal]
    weights = lyapunov(wanted)
    coupling: Array | None = None
    for _ in range(10):  # steps of Newton's method with one linear part; three are usual
        spread = np.moveaxis(n @ squares, 2, 0)
        now = squares[:, None, None] * x + added
        curved = added @ u @ now
        # E U Y + Y U E + E U E, as Y = X - E there.
        full = squares[:, None, None] * spread + curved + curved.transpose(0, 2, 1)
        full -= added @ u @ added
        missing = (h - full) / (scale * outer)
        if coupling is None:
            coupling = scale * np.einsum("jst,stjl->jl", weights / outer, n)
            sizes = coupling.sum(axis=1)
            coupling /= sizes[:, None]
        told = np.einsum("jst,jst->j", weights, missing) / sizes
        logs = told / 3
        for _ in range(8):  # each leaves at most a third of the error
            logs += (told / 2 - logs - coupling @ logs) * (2 / 3)
        change = 2 * logs[:, None, None] * full
        change += 2 * squares[:, None, None] * np.moveaxis(n @ (squares * logs), 2, 0)
        step = lyapunov(missing - change / (scale * outer))
        step[:, diagonal, diagonal] = 0.0
        size = float(max(np.abs(step).max(), np.abs(logs).max()))
        if not size < before / 2:
            break
        squares, added = squares * np.exp(2 * logs), added + scale * outer * step
        if size <= 1e-9:  # the next change is rounding
            return Unrepaired(squares, added)
        before = size
    return Unrepaired(squares, added) if before <= 1e-6 else None
