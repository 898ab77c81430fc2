"""The unrepaired X(U) of multipliers U, found again from the feasible design made of it.

Solvers find X(U), the one X with X U X = H, and the export drops entries and scales rows, pattern
by pattern (:mod:`noisedesign.certify.repair`). So X(U) = D X D + E of the exported X, with one
number d_j a pattern, and E zero but for symmetric blocks E_j with a zero diagonal. Blocks of X U X
= H on the patterns tell both, by Newton's method with one linear part: docs/methods/proofs.md,
"X(U) of a design"."""

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
    H. ``n`` are :func:`couplings`; ``x`` the blocks of X, (b, k, k), diagonal; ``u`` is U, of that
    shape, both of any scale; ``h`` are the blocks of H."""
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
