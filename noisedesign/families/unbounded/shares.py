"""Shares of steps and of patterns whose bound of :mod:`.bound` is large, for prefix sums of blocks.

A run of N blocks of m steps: gaps between participations are whole blocks, so that a pattern p of
blocks serves at all m places of a block. On vectors that are constant on blocks, A is that of N
steps with (m + 1) / (2 m) on the diagonal; on those of sum 0 in every block it is the inverse of a
circulant difference, of singular values 1 / (2 sin(pi j / m)). The norm of Q^1/2 A V^1/2 is at
least that of both parts together, as what links them is left out. Shares q and v follow the fixed
point that a norm's derivative gives, q_t <- q_t d / dq_t and v likewise, and any are a bound: the
last ones are judged with every rounding, by <M, Z> <= |M|_* |Z| with Z about the polar factor."""

from __future__ import annotations

import math

import numpy as np

from noisedesign.base import circle
from noisedesign.base.checks import Array
from noisedesign.base.enclosures import EPS, Rounded, contraction, inner, sum_up

FINE = 6  # blocks to a separation where that is enough: more gain less than .01
MOST = 128  # blocks
NEAR, FINEST = 1.3, 256  # up to so many times the first horizon with room for all, blocks are steps
STRETCH = 1 / 16  # part of a separation that the largest number of gaps in blocks may be too long
POWER = 1.5  # of the factor of a share: 2 would end at once if shares were apart
ROUNDS = 16  # of the fixed point: 50 gain less than .005


def in_blocks(horizon: int, often: int, apart: int) -> float:
    """The bound on prefix sums in blocks; 0 where there would have to be too many."""
    near = horizon < NEAR * ((often - 1) * apart + 1)
    fine, most = (apart, FINEST) if near else (FINE, MOST)
    for size in range(max(1, apart // fine, -(-horizon // most)), apart + 1):
        blocks, gap = horizon // size, -(-apart // size)
        if often * (gap * size - apart) <= STRETCH * apart and (often - 1) * gap < blocks:
            return _bound(blocks, size, _patterns(blocks, often, gap))
    return 0.0


def _patterns(blocks: int, often: int, gap: int) -> Array:
    """Participations at even distances of one to two gaps, cut at both ends, shape (p, N)."""
    found = []
    for distance in range(gap, 2 * gap + 1, max(1, gap // 4)):
        for start in range(-(often - 1) * distance, blocks):
            steps = start + distance * np.arange(often)
            pattern = np.zeros(blocks)
            pattern[steps[(steps >= 0) & (steps < blocks)]] = 1
            found.append(pattern)
    return np.array(found)


def _bound(blocks: int, size: int, patterns: Array) -> float:
    """The norm at the shares where the fixed point is left."""
    # In units of half a step of a block: integers.
    sums = 2 * size * np.tril(np.ones((blocks, blocks)), -1) + (size + 1) * np.eye(blocks)
    sines = circle.turned(np.arange(1, size, dtype=np.int64), size).imag + circle.ERROR
    inside = float((1 / sines).sum()) * (1 - (size + 4) * EPS)
    v, q = np.square(patterns.sum(axis=1)), 1 / np.arange(blocks, 0.0, -1)
    for _ in range(ROUNDS):
        v, q = v / v.sum(), q / q.sum()
        values, vectors = np.linalg.eigh((patterns.T * v) @ patterns)
        roots = np.sqrt(np.maximum(values, EPS * values[-1]))
        half, inverse = (vectors * roots) @ vectors.T, (vectors / roots) @ vectors.T
        total, left, right = 0.0, np.zeros(blocks), np.zeros((blocks, blocks))
        for factor, matrix in ((1.0, sums @ half), (inside, half)):
            if factor:
                u, norms, w = np.linalg.svd(np.sqrt(q)[:, None] * matrix, full_matrices=False)
                total += factor * float(norms.sum())
                left += factor * ((u * norms) * u).sum(axis=1)
                right += factor * ((w.T * norms) @ w)
        seen = patterns @ (inverse @ right @ inverse)
        v = v * ((seen * patterns).sum(axis=1) / total) ** POWER
        q = q * (left / (q * total)) ** POWER
    kept = v > EPS * v.max()
    roots_of_q, roots_of_v = np.sqrt(np.maximum(q, 0.0)), np.sqrt(v[kept])
    found = _norm(sums @ patterns[kept].T, roots_of_q, roots_of_v)
    if inside:
        found += inside * _norm(patterns[kept].T, roots_of_q, roots_of_v)
    shares = sum_up(roots_of_q**2) * sum_up(roots_of_v**2) * (1 + 8 * EPS)
    return found / (2 * size * math.sqrt(shares)) * (1 - 8 * EPS)


def _norm(whole: Array, left: Array, right: Array) -> float:
    """The nuclear norm of diag(left) M diag(right) from below, M of integers; 0 if not proved."""
    matrix = left[:, None] * whole * right
    u, _, w = np.linalg.svd(matrix, full_matrices=False)
    near = contraction(u @ w)
    if near is None:
        return 0.0
    polar = near[0]
    return max(0.0, inner(Rounded(matrix, 3), polar.matrix).lower / polar.norm * (1 - 2 * EPS))
