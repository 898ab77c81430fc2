"""The bound of :mod:`.turned` with every rounding accounted for, of the plain error of one W.

For any numbers a_lm, whatever the q_m are, and with Y_um = Z_m diag_i([S_i]_um) (B_u E)^T,

    < A diag(B_u), Z >  =  sum_m sum_(t>=s) a_(t-s)m (Z_m F_m^T)_ts  +  sum_lmu r_lmu d_l(Y_um),

r_lm = (W^T)^(l+1) q_m - a_lm q_m, and d_l the sum of the l-th diagonal, the main one first. By
Cauchy and Schwarz the last sum is at most T max_l |r_lm| (sum_u |Y_um|^2)^1/2, summed over m. It is
about zero where q_m is an eigenvector and a_lm are powers of its eigenvalue; that they are so is
asked of nobody. The norm of Z is at most the product of those of Q, of all Z_m, of all S and of E.
"""

from __future__ import annotations

import math

import numpy as np
import scipy.linalg

from noisedesign.base.checks import Array
from noisedesign.base.enclosures import (
    EPS,
    TINY,
    Contraction,
    Enclosure,
    Interval,
    U,
    column_norms,
    contraction,
    exactly,
    inner,
    product,
    products_up,
    up,
)
from noisedesign.families.kronecker import rigorous as proofs
from noisedesign.families.kronecker.bound import Witness
from noisedesign.families.kronecker.turned import Turned, nearest_orthogonal
from noisedesign.program import rigorous
from noisedesign.program.family import Arrays
from noisedesign.program.polar import polar_factor
from noisedesign.program.space_time import SpaceTimeProgram


def lower_bound(program: SpaceTimeProgram, turned: Turned) -> Interval:
    """:func:`turned.lower_bound`.

    Raises:
        NotProvedError: the arrays are no numbers, or nothing; W has no modes.
    """
    workload, largest = program.workload, float(np.abs(turned.roots).max())
    modes, w = workload.modes, workload.one_mixing
    if not (0 < largest < np.inf and all(np.isfinite(a).all() for a in turned.arrays().values())):
        raise rigorous.NotProvedError("the multipliers are no numbers, or zero")
    if modes is None or w is None:
        raise rigorous.NotProvedError("an error without modes")
    left, right = _orthogonal(modes.basis), _orthogonal(turned.basis)
    turns = [_orthogonal(turn) for turn in turned.turns]
    whole = Turned(
        roots=turned.roots * 2.0 ** -math.frexp(largest)[1],
        basis=right.matrix,
        turns=np.array([turn.matrix for turn in turns]),
    )
    mixed, reach = _mixed(program, whole, left.matrix)
    ratios = np.array([modes.factor(m)[:, 0] for m in range(workload.nodes)]).T
    away = _away(w, left.matrix, ratios)
    lower, upper, largest = [], [], 0.0
    for m, f in enumerate(mixed):
        factor = scipy.linalg.toeplitz(ratios[:, m], np.zeros(len(ratios)))
        seen = product(exactly(factor), f)
        z = polar_factor(seen.mid)
        found = inner(seen, z.matrix)
        error = float(up(workload.horizon * away[m] * z.norm * reach[m], 4))
        lower.append(found.lower - error)
        upper.append(found.upper + error)
        largest = max(largest, z.norm)
    norm = left.norm * right.norm * largest * max(turn.norm for turn in turns) * (1 + 4 * EPS)
    ends = math.fsum(lower), math.fsum(upper)
    room = 4 * EPS * (math.fsum(map(abs, lower)) + math.fsum(map(abs, upper)))
    squares = up(np.square(whole.roots).sum(axis=3), whole.roots.shape[3])
    prices = up(squares.max(axis=2).sum(axis=1), whole.roots.shape[1])
    price = products_up(program.budget, prices)
    if not (largest > 0 and price > 0):
        raise rigorous.NotProvedError("the multipliers are no numbers, or zero")
    least = max((ends[0] - room) / norm * (1 - 4 * EPS), 0.0)
    return rigorous.squared_over(Interval(least, (ends[1] + room) * norm * (1 + 4 * EPS)), price)


def proved(program: SpaceTimeProgram, proof: Arrays, *, enough: float) -> Interval:
    """:func:`turned.proved`.

    Raises:
        NotProvedError: why nothing is.
    """
    turned = Turned.of_arrays(proof)
    if turned is not None:
        return lower_bound(program, turned)
    witness = Witness.of_arrays(proof) or Witness.uniform(program)
    return proofs.lower_bound(program, witness, enough=enough)


def _orthogonal(a: Array) -> Contraction:
    """About the orthogonal matrix next to this one.

    Raises:
        NotProvedError: rounding hides it.
    """
    found = contraction(nearest_orthogonal(a))
    if found is None:
        raise rigorous.NotProvedError("an orthogonal matrix is not proved so")
    return found[0]


def _mixed(
    program: SpaceTimeProgram, turned: Turned, basis: Array
) -> tuple[list[Enclosure], Array]:
    """F_m of every mode, and (sum_u max_i [S_i]_um^2 |B_u E|^2)^1/2 of every one, rounded up."""
    spread = turned.spread(program.participation)
    rad = np.empty_like(spread)
    k = turned.roots.shape[3]
    for j, pattern in enumerate(program.participation.patterns):
        rows = up(np.sqrt(up(np.square(turned.roots[:, j]).sum(axis=2), k)), 1)
        columns = column_norms(turned.basis[pattern])
        rad[:, pattern] = up((k + 1) * U * rows[:, :, None] * columns, 3)
    mid, n = turned.mixed(basis, spread), len(basis)
    largest = np.abs(spread)
    lengths = np.sqrt(up(np.square(up(largest + rad, 1)).sum(axis=(1, 2)), rad[0].size + 2))
    shares = np.abs(turned.turns).max(axis=0) * lengths[:, None]
    reach = up(np.linalg.norm(shares, axis=0), n + 4)
    rad += (n + 3) * U * largest
    absolute = Turned(roots=turned.roots, basis=turned.basis, turns=np.abs(turned.turns))
    spoiled = up(absolute.mixed(np.abs(basis), rad), n + 6) + n * TINY
    return [Enclosure(m, r) for m, r in zip(mid, spoiled, strict=True)], np.asarray(reach)


def _away(w: Array, basis: Array, ratios: Array) -> Array:
    """max_l |(W^T)^(l+1) q_m - a_lm q_m| of every q_m, rounded up."""
    found, n = np.zeros(len(basis)), len(basis)
    for row, power in zip(ratios, proofs.powers(w.T, basis, len(ratios)), strict=True):
        expected = basis * row
        left = np.abs(power.mid - expected)
        off = up(left + 2 * U * (np.abs(expected) + left) + power.rad, 4)
        found = np.maximum(found, column_norms(off))
    return np.asarray(up(found, n))
