"""Kronecker noise judged and bounded with every rounding accounted for, factor by factor.

For the plain error of one W nothing of size nT is formed (docs/methods/proofs.md). Other errors are
judged with H on all coordinates."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

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
    finer_product,
    gram,
    inner,
    product,
    products_up,
    sum_up,
    symmetric_part,
    up,
)
from noisedesign.certify import certificate, rigorous
from noisedesign.certify.polar import polar_factor
from noisedesign.certify.program import DualPoint, Program
from noisedesign.families.family import Arrays
from noisedesign.families.kronecker.bound import Witness, full_dual, on_patterns
from noisedesign.families.kronecker.turned import Turned, nearest_orthogonal
from noisedesign.families.space_time import SpaceTimeProgram
from noisedesign.system.workloads.response import sums_along_diagonals

MOST_COORDINATES = 2048  # largest nT at which H of all coordinates is formed: a minute or so


def lower_bound(program: SpaceTimeProgram, witness: Witness, *, enough: float) -> Interval:
    """The bound of :func:`bound.lower_bound`, by modes or on all coordinates."""
    if program.workload.modes is None or program.workload.one_mixing is None:
        return _bound_on_all(program, full_dual(witness), enough=enough)
    largest = float(np.abs(witness.blocks).max()), float(witness.weights.max())
    if not (0 < largest[0] < np.inf and 0 < largest[1] < np.inf):
        raise rigorous.NotProvedError("the multipliers are no numbers, or zero")
    # Both scales are free. U = B B^T x diag(r)^2, whatever B and r are.
    blocks = certificate.block_roots(witness.blocks / largest[0])
    roots = np.sqrt(np.maximum(witness.weights / largest[1], 0.0))
    prices = up(np.square(blocks).sum(axis=2), blocks.shape[2]).max(axis=1)
    paid = products_up(program.budget, up(np.square(roots), 1))
    price = float(up(np.float64(sum_up(prices) * paid), 1))
    return rigorous.squared_over(_nuclear_norm(program, blocks, roots), price)


def _bound_on_all(program: SpaceTimeProgram, dual: DualPoint, *, enough: float) -> Interval:
    """The bound by multipliers of all pairs of node and step."""
    full = replace(all_coordinates(program), cap=None)
    return rigorous.disjoint_bound(full, dual, enough=enough)


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
    """W X, ..., W^count X of X, (n, m); errors are carried on in the norm that is smaller."""
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
    """The judgement of :func:`bound.judge_kronecker`, without sensitivity if steps are random."""
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
    """The judgement of :func:`judge` for a trusted server's noise, the same for all nodes."""
    in_time = rigorous.sensitivity_above(exactly(strategy), program.participation)
    return rigorous.Judged(
        objective=_error(program, strategy, covariance),
        sensitivity_squared=rigorous.release_above(covariance, program.budget, in_time=in_time),
    )


def _error(program: SpaceTimeProgram, strategy: Array, covariance: Array) -> Interval:
    """tr(H (S x R))."""
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
    width = max(1, min(n, 4_000_000 // (n * horizon)))  # 32 MB of columns at a time
    starts = range(0, n, width)
    for start in starts:
        columns = slice(start, start + width)
        left, right = (
            _stacked(powers(w, start[:, columns], horizon)) for start in (covariance, np.eye(n))
        )
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
    full, space = all_coordinates(program), symmetric_part(covariance)
    mid = np.kron(s.mid, space.mid)
    rad = np.kron(s.largest, space.largest)
    slack = np.kron(s.rad, space.largest) + np.kron(
        s.largest, np.broadcast_to(space.rad, space.mid.shape)
    )
    spread = np.asarray(up(slack + 2 * EPS * rad, 8), dtype=np.float64)
    return error_on_all(full, Enclosure(np.asarray(mid, dtype=np.float64), spread))


def error_on_all(full: Program, noise: Enclosure) -> Interval:
    """tr(H cov(z)) with H and cov(z), ``noise``, of all coordinates."""
    h = exactly(full.gram) if full.exact_factor is None else gram(full.exact_factor)
    objective = inner(noise, h.mid)
    spare = 0.0 if h.exact else products_up(noise.largest, h.rad)
    return Interval(objective.lower - spare, objective.upper + spare)


def all_coordinates(program: SpaceTimeProgram) -> Program:
    """The program on all pairs of node and step; NotProvedError if they are too many."""
    coordinates = program.workload.nodes * program.workload.horizon
    if coordinates > MOST_COORDINATES:
        raise rigorous.NotProvedError(
            f"{coordinates} pairs of node and step of another error than the plain one of one "
            f"symmetric W, of which at most {MOST_COORDINATES} are covered"
        )
    return program.full_program()


def turned_bound(program: SpaceTimeProgram, turned: Turned) -> Interval:
    """The bound of :func:`turned.lower_bound` for one W and any q_m and a_lm."""
    workload, largest = program.workload, float(np.abs(turned.roots).max())
    w = workload.one_mixing
    if not (0 < largest < np.inf and all(np.isfinite(a).all() for a in turned.arrays().values())):
        raise rigorous.NotProvedError("the multipliers are no numbers, or zero")
    if w is None or (modes := turned.of_workload(workload)) is None:
        raise rigorous.NotProvedError("an error without modes, or another than the plain one")
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
    """The bound of :func:`turned.proved`."""
    if (turned := Turned.of_arrays(proof)) is not None:
        if program.workload.modes is None or program.workload.one_mixing is None:
            return _bound_on_all(program, turned.full_dual, enough=enough)
        return turned_bound(program, turned)
    return lower_bound(program, Witness.of(program, proof), enough=enough)


def _orthogonal(a: Array) -> Contraction:
    """The orthogonal matrix next to this one, about."""
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
    for row, power in zip(ratios, powers(w.T, basis, len(ratios)), strict=True):
        expected = basis * row
        left = np.abs(power.mid - expected)
        off = up(left + 2 * U * (np.abs(expected) + left) + power.rad, 4)
        found = np.maximum(found, column_norms(off))
    return np.asarray(up(found, n))
