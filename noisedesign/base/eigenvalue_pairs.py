"""Sums over pairs of eigenvalues, of which Newton's matrices are made, by a few matrix products.

    sum_kl P_ik P_il Q_jk Q_jl (r_k r_l)^p / (r_k + r_l)

costs n products of n x n matrices as it stands. But with phi_j(r) = (r - p_j) / (r + p_j)

    1 / (r + s) - sum_j h_j(r) h_j(s) = phi_1(r) ... phi_t(r) phi_1(s) ... phi_t(s) / (r + s),
    h_j(r) = (2 p_j)^1/2 / (r + p_j) phi_1(r) ... phi_(j-1)(r),

which is next to nothing for few p_j well chosen: they are the shifts of the ADI method, given by
elliptic functions (Wachspress, "Iterative Solution of Elliptic Systems", 1966; Beckermann and
Townsend, "On the singular values of matrices with displacement structure", 2017). Each h turns the
sum into (P diag(h(r)) Q^T)_ij^2, one product, whatever n is. And r h_j and h_j / r, of the kernels
of p = 1 and -1, are combinations of the same functions and of 1 or 1 / r: they share products.

A matrix made in this way is off by the relative error of the kernel, as a form, and positive."""

from __future__ import annotations

from typing import Any

import array_api_compat
import numpy as np
import scipy.special

from noisedesign.base.checks import Array
from noisedesign.base.device import DeviceArray, namespace

ROWS = 32  # rows of a sum at a time, on the CPU: so few that their parts stay in the cache


def shifts(spread: float, *, accuracy: float) -> Array:
    """The fewest p_j with 1 / (r + s) to ``accuracy``, r and s within ``spread``."""
    modulus, most, count = spread**-2, np.sqrt(spread), 1
    period = float(scipy.special.ellipkm1(modulus))
    while True:
        # The larger half: p and 1 / p are shifts together.
        u = (2 * np.arange(count // 2) + 1) * (period / (2 * count))
        larger = most * scipy.special.ellipj(u, 1 - modulus)[2]
        found = np.concatenate([larger, 1 / larger, np.ones(count % 2)])
        if float(np.prod((most - found) / (most + found))) ** 2 <= accuracy:
            return found
        count += 1


def values(r: DeviceArray, shifts: Array) -> DeviceArray:
    """h_1(r), ..., h_t(r), 1 and 1 / r, shape (t + 2, k)."""
    xp = namespace(r)
    rows, product = [], xp.ones_like(r)
    for shift in shifts.tolist():
        rows.append((2 * shift) ** 0.5 / (r + shift) * product)
        product = product * ((r - shift) / (r + shift))
    return xp.stack([*rows, xp.ones_like(r), 1 / r])


def mixes(shifts: Array) -> dict[int, Array]:
    """Express r^p h_j in the functions of :func:`values` for p = 1, 0, -1, each (t, t + 2)."""
    # r h_j = (2 p_j)^1/2 Phi_(j-1) - p_j h_j;
    # h_j / r = (2 / p_j)^1/2 Phi_(j-1) / r - h_j / p_j; Phi_j = phi_1 ... phi_j is
    # Phi_(j-1) - (2 p_j)^1/2 h_j, and Phi_j / r = (2 / p_j)^1/2 h_j - Phi_(j-1) / r.
    count = len(shifts)
    own = np.eye(count, count + 2)
    times, over = -shifts[:, None] * own, -own / shifts[:, None]
    product, share = np.eye(count + 2)[count:]
    for j, (most, least) in enumerate(zip(np.sqrt(2 * shifts), np.sqrt(2 / shifts), strict=True)):
        times[j] += most * product
        over[j] += least * share
        product, share = product - most * own[j], least * own[j] - share
    return {1: times, 0: own, -1: over}


def sums(
    left: DeviceArray,
    root: DeviceArray,
    powers: tuple[int, ...],
    *,
    right: DeviceArray | None = None,
    accuracy: float,
) -> list[DeviceArray]:
    """Sum over pairs for each of ``powers`` (1, 0, -1); P is ``left``, r ``root``, Q ``right``."""
    xp, place = namespace(left, root), array_api_compat.device(left)
    least, most = float(xp.min(root)), float(xp.max(root))
    unit = float(np.sqrt(least * most))
    found = shifts(most / least, accuracy=accuracy)
    functions = values(root / unit, found)
    mixed: list[Any] = [None]
    if len(powers) == 1:
        functions = functions[: len(found), :] * (root ** float(powers[0]) / unit**0.5)
    else:
        parts = [unit ** (power - 0.5) * mixes(found)[power] for power in powers]
        needed = np.flatnonzero(np.any(np.concatenate(parts), axis=0))
        functions = xp.take(functions, xp.asarray(needed, device=place), axis=0)
        mixed = [xp.asarray(part[:, needed], device=place) for part in parts]
    own, (size, columns), count = right is None, left.shape, functions.shape[0]
    right = left if right is None else right
    totals = [xp.zeros((size, right.shape[0]), dtype=xp.float64, device=place) for _ in powers]
    rows = ROWS if isinstance(left, np.ndarray) else size
    for start in range(0, size, rows):
        stop = min(start + rows, size)
        there = right[:stop, :] if own else right
        half = xp.reshape(functions[:, None, :] * left[start:stop, :], (-1, columns))
        products = xp.reshape(half @ there.T, (count, -1))
        for total, mix in zip(totals, mixed, strict=True):
            terms = products if mix is None else mix @ products
            terms *= terms
            block = xp.reshape(xp.sum(terms, axis=0), (stop - start, there.shape[0]))
            total[start:stop, : there.shape[0]] = block
    return [_mirrored(total) for total in totals] if own else totals


def _mirrored(total: DeviceArray) -> DeviceArray:
    """The symmetric matrix whose lower triangle, diagonal included, is given."""
    if not isinstance(total, np.ndarray):
        return total
    lower = np.tril(total)
    lower += np.tril(total, -1).T
    return lower
