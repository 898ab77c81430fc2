"""Least errors of those who know the horizon, and how near buffers for every horizon come to them.

With S the squared sensitivity over all time, the noise of unit privacy has S times the variances
of C^-1. The worst step of T is at least as bad as the root mean square over T steps, which the
bound of :mod:`noisedesign.families.toeplitz.bound` is below, and least over all C for T steps it
never falls as T grows. Variances never fall either: so a grid of steps proves all steps between."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisedesign.base import settings
from noisedesign.base.checks import Array
from noisedesign.families.toeplitz.bound import (
    closed_form_root_trace_lower_bound,
    root_trace_lower_bound,
)
from noisedesign.families.unbounded.buffers import Buffers
from noisedesign.system.workloads.toeplitz import PoleWorkload

EVERY, COARSE = 1 / 16, 1 / 2  # octaves between steps of the grid; of W, whose bound takes O(T m^2)


class Least(NamedTuple):
    """Horizons, ascending from 1, shape (p,), and what nobody's worst step is below: standard
    deviations for unit privacy, a coordinate, root mean square over nodes, shape (p,). They count
    all participations, which have room from the horizon ``first`` on."""

    horizons: NDArray[np.int64]
    stddevs: Array
    first: int


def least_stddevs(
    poles: Array, weights: Array, *, participations: int, separation: int, steps: int
) -> Least:
    """Lower bounds of a grid of horizons up to ``steps``, by the nuclear norm of the workload."""
    plain, first = _is_prefix(poles), (participations - 1) * separation + 1
    spaced = 2 ** np.arange(0, np.log2(steps) + 1, EVERY if plain else COARSE)
    grid = np.unique(np.append(np.minimum(np.ceil(spaced), steps), first)).astype(np.int64)
    found = []
    for horizon in grid.tolist():
        workload = PoleWorkload(poles=poles, weights=weights, horizon=horizon)
        root = (closed_form_root_trace_lower_bound if plain else root_trace_lower_bound)(workload)
        rounding = 1 - settings.rank_tolerance(horizon)
        best = root / horizon * participations**0.5 * rounding
        if plain:
            best = max(best, _in_blocks(horizon, participations, separation) * weights[0] ** 0.5)
        found.append(best)
    return Least(grid, np.maximum.accumulate(found), first)


def _is_prefix(poles: Array) -> bool:
    return len(poles) == 1 and bool(poles[0] == 1)


def _in_blocks(horizon: int, participations: int, separation: int) -> float:
    """The bound on prefix sums of blocks of j b steps: who changes the same j gradients of a block
    changes its sum by j, and does so in k / j blocks, which need not be separate."""
    best = 0.0
    for size in (2**i for i in range(1, participations.bit_length())):
        blocks = horizon // (size * separation)
        times = participations // size
        if blocks >= times:
            one = PoleWorkload(poles=np.ones(1), weights=np.ones(1), horizon=blocks)
            root = closed_form_root_trace_lower_bound(one) * (1 - settings.rank_tolerance(blocks))
            best = max(best, size * times**0.5 * root / blocks)
    return best


class Proved(NamedTuple):
    """Over the steps from ``least.first`` on: the largest ratio of a standard deviation to the
    least one of its grid interval, and where; ``ends`` are the last steps of these intervals."""

    ratio: float
    worst: int
    ends: NDArray[np.int64]
    stddevs: Array
    least: Array


def judged(
    buffers: Buffers, poles: Array, weights: Array, *, least: Least, squared: float, steps: int
) -> Proved:
    """Judge buffers of that squared sensitivity up to ``steps``; roundings are allowed for by an
    argument, not by intervals."""
    variances = buffers.variances(poles, weights, steps=steps, proved=True)
    ends = np.append(least.horizons[1:] - 1, steps)
    stddevs = np.sqrt(squared * variances[ends - 1]) * (1 + 4 * settings.EPS)
    counted = least.horizons >= least.first
    ends, stddevs, known = ends[counted], stddevs[counted], least.stddevs[counted]
    at = int((stddevs / known).argmax())
    return Proved(float(stddevs[at] / known[at]), int(ends[at]), ends, stddevs, known)
