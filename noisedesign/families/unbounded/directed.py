"""Errors of all models under a W of row sums 1 that is not symmetric, in a run without an end.

With y the column of C^-1, the error of step t adds up |R_m|_F^2 over m < t, where R_m is the sum of
W^(j+1) y_(m-j), and W^j = P + E_j, P of rank one and E_j falling geometrically. A symmetric W has
poles, and errors in closed form; here those of the first steps come from powers of W, and all
others from bounds on E_j."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from noisedesign.base import settings
from noisedesign.base.checks import Array, InputError
from noisedesign.families.unbounded.buffers import Buffers
from noisedesign.system.workloads.response import sums_along_diagonals

OPERATIONS, FOLLOWED = 2**36, (512, 16384)  # for the steps whose R is computed, and how many
NUMBERS, BLOCK = 2**25, (16, 512)  # of powers of W held together, and how many
SLOW = 1e-3  # |E| over the first one after a quarter of the steps that are followed, at most
NEGLIGIBLE = 1e-9  # of |E|: rounding, of a W that is P itself


@dataclass(frozen=True, eq=False)
class Directed:
    """W, shape (n, n); InputError where its powers do not converge, or too slowly."""

    mixing: Array

    def __post_init__(self) -> None:
        if not self.away[-1] <= max(SLOW * self.away[0], NEGLIGIBLE):
            expected = f"a symmetric W, or one whose powers converge within {len(self.away)} steps"
            raise InputError("mixing", expected=expected, got="another")

    @cached_property
    def limit(self) -> Array:
        """P = 1 p^T, p^T W = p^T of sum 1, shape (n, n)."""
        nodes = len(self.mixing)
        system = np.vstack([self.mixing.T - np.eye(nodes), np.ones(nodes)])
        vector = np.linalg.lstsq(system, np.append(np.zeros(nodes), 1.0), rcond=None)[0]
        return np.tile(vector, (nodes, 1))

    @cached_property
    def away(self) -> Array:
        """|E_j|_F of j = 1, 2, ..., a quarter of the steps that are followed."""
        least, most = FOLLOWED
        followed = min(max(OPERATIONS // len(self.mixing) ** 3, least), most)
        power, found = self.mixing, np.empty(followed // 4)
        for j in range(len(found)):
            found[j] = np.linalg.norm(power - self.limit)
            power = power @ self.mixing
        return found

    @cached_property
    def _sums(self) -> Array:
        """H of a run, from its last step backwards: those of fewer steps are its leading parts."""
        least, most = BLOCK
        powers = np.empty((min(max(NUMBERS // self.mixing.size, least), most), self.mixing.size))
        power = self.mixing
        for row in powers:
            row[:] = power.ravel()
            power = power @ self.mixing
        return np.asarray(sums_along_diagonals(powers @ powers.T))

    def least_stddev(self, horizon: int) -> float:
        """tr H^1/2 / T from below, over the root of n. A long run has N blocks of m steps, and what
        links means over a block to the rest is left out; of means, the error that counts is that
        of the mean model to a change of all nodes, sum_ij (W^j)_ij / n = 1, a prefix sum."""
        size, nodes = len(self._sums), len(self.mixing)
        if horizon <= size:
            return _root(self._sums[:horizon, :horizon]) / (horizon * math.sqrt(nodes))
        blocks = horizon // size
        later = np.arange(1, size + 1) / math.sqrt(
            size
        )  # means of what a step changes in its block
        rest = self._sums - np.multiply.outer(later, later)
        rest = rest - rest.mean(axis=0)
        rest = rest - rest.mean(axis=1)[:, None]
        coarse = np.tril(np.ones((blocks, blocks)), -1) + (size + 1) / (2 * size) * np.eye(blocks)
        found = max(blocks * _root(rest) + size * _root(coarse.T @ coarse), blocks * self._whole)
        return found / (blocks * size * math.sqrt(nodes))

    @cached_property
    def _whole(self) -> float:
        return _root(self._sums)

    def variances(self, buffers: Buffers, steps: int) -> Array:
        """Errors of steps to ``steps``, a coordinate and node, from above but for rounding."""
        far = len(self.away)
        count, nodes = min(steps, 4 * far), len(self.mixing)
        noising, sums = buffers.noising(steps), buffers.sums(steps)
        found, state = np.empty(steps), np.zeros_like(self.mixing)
        for m in range(count):
            state = self.mixing @ (state + (-noising[m - 1] if m else 1.0) * np.eye(nodes))
            found[m] = np.square(state).sum()
        if steps > count:
            # |y| falls, and all of it adds up to less than 2; E_(far + i) is E_far E_i.
            beyond = float(self.away[-1] * max(1.0, self.away.max()))
            strays = (
                float(self.away.sum()) * noising[count - far - 1 : steps - far - 1] + 2 * beyond
            )
            mean = float(np.linalg.norm(self.limit))
            found[count:] = np.square(mean * sums[count:] + strays)
        return np.cumsum(found) / nodes


def _root(gram: Array) -> float:
    """The trace of the root, without what rounding explains of eigenvalues."""
    values = np.linalg.eigvalsh(gram)
    rounding = settings.rank_tolerance(len(values)) * float(values[-1])
    return float(np.sqrt(np.maximum(values - rounding, 0.0)).sum())
