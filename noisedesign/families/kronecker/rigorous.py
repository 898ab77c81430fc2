"""Kronecker noise judged and bounded with every rounding accounted for, factor by factor.

Of the plain error of one W for all steps nothing of size nT is formed. With S = (C^T C)^-1 and
G_ab = <W^a R, W^b>, both known with their errors,

    tr(H (S x R)) = sum_ab K_ab G_ab,      K the sums of S along its diagonals,

as in :mod:`noisedesign.system.workloads.workload`. The bound is the nuclear norm of A (B x V^1/2),
P = B B^T, A of blocks W^(t-s+1), from below: for any matrices q_j, s_j and Z_j,

    Z = sum_j Z_j x q_j s_j^T     has     ||Z|| <= ||Q|| max_j ||Z_j|| ||S||,

    <A (B x V^1/2), Z>  =  sum_j sum_ts (Z_j B^T)_ts  q_j^T W^(t-s+1) V^1/2 s_j.

At the modes of W and polar factors it is the bound of :mod:`.bound`; but that they are so is asked
of nobody. Of other errors H is formed on all coordinates, as many as ``MOST_COORDINATES``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from noisedesign.base.checks import Array
from noisedesign.base.enclosures import (
    EPS,
    TINY,
    Enclosure,
    Interval,
    U,
    column_norms,
    contraction,
    exactly,
    finer_product,
    gram,
    inner,
    product,
    products_up,
    sum_up,
    symmetric_part,
    up,
)
from noisedesign.families.kronecker.bound import Witness, full_dual, on_patterns
from noisedesign.program import rigorous
from noisedesign.program.polar import polar_factor
from noisedesign.program.program import Program
from noisedesign.program.space_time import SpaceTimeProgram
from noisedesign.system.workloads.workload import sums_along_diagonals

MOST_COORDINATES = 2048
"""Largest nT at which H of all coordinates is formed: a minute or so."""

FLOATS = 4_000_000
"""Of a few columns of all powers of W at a time: 32 MB."""


def lower_bound(program: SpaceTimeProgram, witness: Witness, *, enough: float) -> Interval:
    """:func:`bound.lower_bound`, by modes where it has any, and else on all coordinates.

    Raises:
        NotProvedError: too many coordinates; as of a program whose patterns are disjoint.
    """
    if program.workload.modes is None:
        full = all_coordinates(program)
        return rigorous.disjoint_bound(replace(full, cap=None), full_dual(witness), enough=enough)
    largest = float(np.abs(witness.blocks).max()), float(witness.weights.max())
    if not (0 < largest[0] < np.inf and 0 < largest[1] < np.inf):
        raise rigorous.NotProvedError("the multipliers are no numbers, or zero")
    # Both scales are free. U = B B^T x diag(r)^2, whatever B and r are.
    blocks = rigorous.block_roots(witness.blocks / largest[0])
    roots = np.sqrt(np.maximum(witness.weights / largest[1], 0.0))
    prices = up(np.square(blocks).sum(axis=2), blocks.shape[2]).max(axis=1)
    paid = products_up(program.budget, up(np.square(roots), 1))
    price = float(up(np.float64(sum_up(prices) * paid), 1))
    return rigorous.squared_over(_nuclear_norm(program, blocks, roots), price)


def _nuclear_norm(program: SpaceTimeProgram, blocks: Array, roots: Array) -> Interval:
    """||A (B x diag(r))||_* from below, by the modes of the workload."""
    workload = program.workload
    modes, horizon, w = workload.modes, workload.horizon, workload.one_mixing
    assert modes is not None
    assert w is not None
    half, size = on_patterns(blocks, program.participation), len(roots)
    largest, shares = 0.0, np.empty(size)
    sums, spread = np.empty((horizon, size)), np.empty((horizon, size))
    for j in range(size):
        factor = modes.factor(j) @ half
        z = polar_factor(factor)
        largest, shares[j] = max(largest, z.norm), float(np.sum(factor * z.matrix))
        seen = product(z.matrix, np.ascontiguousarray(half.T))
        for lag in range(horizon):
            sums[lag, j] = np.trace(seen.mid, offset=-lag)
            terms = np.diagonal(seen.rad, -lag) + horizon * U * np.abs(np.diagonal(seen.mid, -lag))
            spread[lag, j] = terms.sum()
    spread = np.asarray(up(spread, horizon + 2))
    left = contraction(modes.basis)
    if left is None:
        raise rigorous.NotProvedError("the modes are not proved orthonormal")
    right = polar_factor(roots[:, None] * (left[0].matrix * shares))
    weighed = roots[:, None] * right.matrix
    middle, error = [], 0.0
    lengths, totals = column_norms(weighed), up(np.abs(weighed).sum(axis=0), size + 1)
    for lag, power in enumerate(powers(w.T, left[0].matrix, horizon)):
        seen_by = np.einsum("ij,ij->j", power.mid, weighed)
        away = (size + 3) * U * column_norms(power.mid) * lengths + power.rad * totals
        middle.append(math.fsum((seen_by * sums[lag]).tolist()))
        error += float(
            np.sum(away * (np.abs(sums[lag]) + spread[lag]))
            + np.sum(np.abs(seen_by) * (spread[lag] + U * np.abs(sums[lag])))
        )
    error = float(up(error, 8 * size + horizon)) + TINY * horizon * horizon * size
    norm = float(up(np.float64(left[0].norm * right.norm * largest), 3))
    total = math.fsum(middle)
    error += 4 * EPS * (abs(total) + math.fsum(map(abs, middle)))
    least = max((total - error) / norm * (1 - 4 * EPS), 0.0)
    return Interval(least, (total + error) * norm * (1 + 4 * EPS))


class Power(NamedTuple):
    """W^m X for all X, and by how much an entry is off at most."""

    mid: Array
    rad: float


def powers(w: Array, start: Array, count: int) -> Iterator[Power]:
    """W X, W^2 X, ..., W^count X, each with its error, of X = ``start``, shape (n, m).

    Errors of one step are carried on by W, in the norm of largest entries or of largest sums of
    columns, the one in which W is smaller: it is 1 of the weights of gossip.
    """
    size, w = len(w), np.ascontiguousarray(w)
    entries = float(up(np.abs(w).sum(axis=1), size).max())
    columns = float(up(np.abs(w).sum(axis=0), size).max())
    mid, rad = np.ascontiguousarray(start), 0.0
    for _ in range(count):
        found = finer_product(exactly(w), exactly(mid))  # else rounding of hubs adds up
        own = found.rad.max() if entries <= columns else up(found.rad.sum(axis=0), size).max()
        mid, rad = found.mid, float(up(min(entries, columns) * rad + own, 4))
        yield Power(mid, rad)


def judge(program: SpaceTimeProgram, *, strategy: Array, covariance: Array) -> rigorous.Judged:
    """:func:`bound.judge_kronecker`: tr(H (S x R)), S = (C^T C)^-1; under random participation no
    sensitivity.

    Raises:
        NotProvedError: too many coordinates; C not proved invertible, or R positive definite.
    """
    judged = rigorous.judge_covariance(program.space_program(np.eye(len(covariance))), covariance)
    steps = program.participation
    # An account of random participation is no inequality of matrices.
    in_time = math.inf if steps.random else rigorous.sensitivity_above(exactly(strategy), steps)
    return replace(
        judged,
        objective=_error(program, strategy, covariance),
        sensitivity_squared=float(up(np.float64(in_time * judged.sensitivity_squared), 1)),
        covariance=None,
        precision=None,
    )


def judge_release(
    program: SpaceTimeProgram, *, strategy: Array, covariance: Array
) -> rigorous.Judged:
    """:func:`judge` of a trusted server's noise.

    Raises:
        NotProvedError: as there; it is not the same noise for all nodes.
    """
    in_time = rigorous.sensitivity_above(exactly(strategy), program.participation)
    return rigorous.Judged(
        objective=_error(program, strategy, covariance),
        sensitivity_squared=rigorous.release_above(covariance, program.budget, in_time=in_time),
    )


def _error(program: SpaceTimeProgram, strategy: Array, covariance: Array) -> Interval:
    noising = rigorous.noising_of(strategy)
    d = exactly(noising.matrix)
    s = finer_product(d, d.transposed())
    objective = _on_all if program.workload.one_mixing is None else _by_powers
    return noising.around(objective(program, s, covariance))


def _by_powers(program: SpaceTimeProgram, s: Enclosure, covariance: Array) -> Interval:
    """tr(H (S x R)) of the plain error of one W."""
    w, horizon, n = program.workload.one_mixing, program.workload.horizon, len(covariance)
    assert w is not None
    mid, rad = np.zeros((horizon, horizon)), np.zeros((horizon, horizon))
    width = max(1, min(n, FLOATS // (n * horizon)))
    starts = range(0, n, width)
    for start in starts:
        columns = slice(start, start + width)
        left = _stacked(powers(w, covariance[:, columns], horizon))
        right = _stacked(powers(w, np.eye(n)[:, columns], horizon))
        found = product(left.mid, np.ascontiguousarray(right.mid.T))
        mid += found.mid
        rad += found.rad
        length = left.mid.shape[1]
        sums = [up(np.abs(side.mid).sum(axis=1), length) for side in (left, right)]
        rad += np.multiply.outer(sums[0], right.rad) + np.multiply.outer(left.rad, sums[1])
        rad += length * np.multiply.outer(left.rad, right.rad) + len(starts) * U * np.abs(mid)
    g = Enclosure(mid, np.asarray(up(rad, 8 * len(starts))))
    spread = np.asarray(s.rad) + horizon * U * np.abs(s.mid)
    k, k_rad = (sums_along_diagonals(x)[::-1, ::-1] for x in (s.mid, spread))
    found_objective = inner(g, np.ascontiguousarray(k))
    spare = products_up(g.largest, up(k_rad, horizon + 2))
    return Interval(found_objective.lower - spare, found_objective.upper + spare)


def _stacked(found: Iterator[Power]) -> Enclosure:
    """One row of entries for every power, and one radius for each."""
    every = list(found)
    return Enclosure(
        np.stack([power.mid.ravel() for power in every]), np.array([power.rad for power in every])
    )


def _on_all(program: SpaceTimeProgram, s: Enclosure, covariance: Array) -> Interval:
    """tr(H (S x R)) with H of all coordinates."""
    full = all_coordinates(program)
    h = exactly(full.gram) if full.exact_factor is None else gram(full.exact_factor)
    space = symmetric_part(covariance)
    mid = np.kron(s.mid, space.mid)
    rad = np.kron(s.largest, space.largest)
    slack = np.kron(s.rad, space.largest) + np.kron(
        s.largest, np.broadcast_to(space.rad, space.mid.shape)
    )
    spread = np.asarray(up(slack + 2 * EPS * rad, 8), dtype=np.float64)
    noise = Enclosure(np.asarray(mid, dtype=np.float64), spread)
    objective = inner(noise, h.mid)
    spare = 0.0 if h.exact else products_up(noise.largest, h.rad)
    return Interval(objective.lower - spare, objective.upper + spare)


def all_coordinates(program: SpaceTimeProgram) -> Program:
    """The program on all pairs of node and step.

    Raises:
        NotProvedError: they are more than ``MOST_COORDINATES``.
    """
    coordinates = program.workload.nodes * program.workload.horizon
    if coordinates > MOST_COORDINATES:
        raise rigorous.NotProvedError(
            f"{coordinates} pairs of node and step of an error without modes, of which at most "
            f"{MOST_COORDINATES} are covered"
        )
    return program.full_program()
