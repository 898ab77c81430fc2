"""Least errors of those who know the horizon, and how near buffers for every horizon come to them.

With S the squared sensitivity over all time, the noise of unit privacy has S times the variances
of C^-1. Nobody's worst step of T is below

    |Q^1/2 A V^1/2|_*,   Q = diag(q), V = sum_j v_j p_j p_j^T,   sum q = sum v = 1,

p_j participations of one record, of either sign: <Q^1/2 A C^-1, (C V^1/2 Z)^T> for |Z| <= 1 is at
most the root of the mean error by q times the sensitivity. The least never falls as T grows, and
variances never fall either: so a grid of steps proves all steps between. For prefix sums there are
three kinds of q and v, and every rounding is accounted for: even ones without or with patterns
(:func:`_folded`, near the best for T far above k b), and for shorter runs those of
:mod:`.shares`. Under gossip there is one, and eigenvalues of W are known to their rounding."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisedesign.base import circle, settings
from noisedesign.base.checks import Array
from noisedesign.base.enclosures import EPS
from noisedesign.families.toeplitz.bound import root_trace_lower_bound
from noisedesign.families.unbounded.buffers import Buffers
from noisedesign.families.unbounded.directed import Directed
from noisedesign.families.unbounded.shares import in_blocks
from noisedesign.system.workloads.toeplitz import PoleWorkload

EVERY, COARSE = 1 / 16, 1 / 2  # octaves between steps of the grid; of W, whose bound takes O(T m^2)
SPREAD = 3  # gaps of folded patterns are evenly b to b + b / SPREAD: others gain less than .01
SHORT = 16  # times k b: beyond, folded patterns are better than blocks
SMALL = 8 * EPS  # what a product of a few factors, or a root of one, is off by at most, relative


class Least(NamedTuple):
    """Horizons, ascending from 1, shape (p,), and what nobody's worst step is below: standard
    deviations for unit privacy, a coordinate, root mean square over nodes, shape (p,). They count
    all participations, which have room from the horizon ``first`` on."""

    horizons: NDArray[np.int64]
    stddevs: Array
    first: int


def least_stddevs(
    poles: Array,
    weights: Array,
    *,
    participations: int,
    separation: int,
    steps: int,
    directed: Directed | None = None,
) -> Least:
    """Lower bounds of a grid of horizons up to ``steps``; of a W that is not symmetric, its own."""
    plain, first = is_prefix(poles), (participations - 1) * separation + 1
    often = plain and participations > 1
    every = 2 * EVERY if often else EVERY if plain else COARSE
    spaced = 2 ** np.arange(0, np.log2(steps) + 1, every)
    if often:  # the least rises most steeply there
        near = np.arange(0, 1, EVERY)
        spaced = np.concatenate([spaced, first * 2**near, first * 2 ** (near[near < 1 / 3] + 0.03)])
    grid = np.unique(np.append(np.minimum(np.ceil(spaced), steps), first)).astype(np.int64)
    found = []
    for horizon in grid.tolist():
        if plain:
            scale = math.sqrt(weights[0]) * (1 - SMALL)
            found.append(scale * _of_prefix_sums(horizon, participations, separation))
        elif directed is not None:
            found.append(
                directed.least_stddev(horizon) * _even(horizon, participations, separation)
            )
        else:
            workload = PoleWorkload(poles=poles, weights=weights, horizon=horizon)
            root = root_trace_lower_bound(workload) * (1 - settings.rank_tolerance(horizon))
            found.append(root / horizon * _even(horizon, participations, separation))
    return Least(grid, np.maximum.accumulate(found), first)


def is_prefix(poles: Array) -> bool:
    return len(poles) == 1 and bool(poles[0] == 1)


def _even(horizon: int, often: int, apart: int) -> float:
    """The root of c, from below, for the largest c / T that is at every step the weight of patterns
    of weights of sum 1: b steps in a row hold one participation, and all steps hold k."""
    return math.sqrt(min(float(often), max(1.0, horizon / apart))) * (1 - SMALL)


def _of_prefix_sums(horizon: int, often: int, apart: int) -> float:
    """The best bound; who takes part k times changes the last sum by k."""
    half = _sines(horizon)
    rounding = 1 - (horizon + 64) * EPS
    best = _even(horizon, often, apart) * float((0.5 / half).sum()) / horizon * rounding
    if often > 1 and horizon > (often - 1) * apart:
        best = max(best, float(often), _folded(half, often, apart) * rounding)
        if horizon <= SHORT * often * apart:
            best = max(best, in_blocks(horizon, often, apart))
    return best


def _sines(horizon: int) -> Array:
    """sin(a / 2), a = (2 i - 1) pi / (2 T + 1), from above: A has the singular values 1 / (2 sin),
    and A^T A the eigenvectors cos(a (s + 1/2))."""
    odd = 2 * np.arange(1, horizon + 1, dtype=np.int64) - 1
    return np.asarray(circle.turned(odd, 4 * horizon + 2).imag + circle.ERROR)


def _folded(half: Array, often: int, apart: int) -> float:
    """The bound, but for rounding, of patterns that are mirrored at both ends of the run.

    Eigenvectors of A^T A are even about -1/2 and odd about T. Patterns at all 2 T + 1 places of a
    circle, folded in the same way, have these eigenvectors too, with 2 / (2 T + 1) times the mean
    of |sum_j exp(i a s_j)|^2. A pattern p + r on both sides of a mirror is none, but
    (p + r) (p + r)^T <= 2 p p^T + 2 r r^T, and p at one end makes a pattern with as much as is
    missing at the other, of either sign: so all weights together are 1 + (2 E + 1) / (2 T + 1),
    E the mean length, as T itself is no step."""
    horizon, spread = len(half), apart // SPREAD
    if horizon <= 2 * (often - 1) * (apart + spread) + apart:
        return 0.0
    odd, turn = 2 * np.arange(1, horizon + 1, dtype=np.int64) - 1, 4 * horizon + 2
    gap = circle.turned(odd * (2 * apart + spread), turn)  # E exp(i a g) of a gap g
    if spread:
        gap *= circle.turned(odd * (spread + 1), turn).imag / ((spread + 1) * half)
    # Sines are off by ERROR each, and gap is at most 1: k^3 / 6 times its error, and roundings of
    # 16 U k^3 in sums of powers.
    off = 8 * circle.ERROR * float(often) ** 3 / half
    power = often + 2 * _weighted_powers(gap, often).real - off
    length = (often - 1) * (2 * apart + spread)
    roots = np.sqrt(np.maximum(power, 0.0) * (2 / (2 * horizon + 2 + length)))
    return float((0.5 * roots / half).sum()) / math.sqrt(horizon)


def _weighted_powers(x: NDArray[np.complex128], count: int) -> NDArray[np.complex128]:
    """sum over 0 < j < ``count`` of (count - j) x^j, by doubling."""
    found, powers, power, known = np.zeros_like(x), np.ones_like(x), x.copy(), 1
    for digit in bin(count)[3:]:  # powers: sum of x^j over j < known; power: x^known
        found += power * found + known * (powers - 1 + power)
        powers += power * powers
        power *= power
        known *= 2
        if digit == "1":
            powers += power
            found += powers - 1
            power *= x
            known += 1
    return found


class Proved(NamedTuple):
    """Over the steps from ``least.first`` on: the largest ratio of a standard deviation to the
    least one of its grid interval, and where; ``ends`` are the last steps of these intervals."""

    ratio: float
    worst: int
    ends: NDArray[np.int64]
    stddevs: Array
    least: Array


def judged(
    buffers: Buffers,
    poles: Array,
    weights: Array,
    *,
    least: Least,
    squared: float,
    steps: int,
    directed: Directed | None = None,
) -> Proved:
    """Judge buffers of that squared sensitivity up to ``steps``; under gossip, roundings are
    allowed for by an argument."""
    counted = least.horizons >= least.first
    ends = np.append(least.horizons[1:] - 1, steps)[counted]
    if is_prefix(poles):
        variances = weights[0] * buffers.proved_variances(ends)
    else:
        if directed is not None:
            every = directed.variances(buffers, steps)
        else:
            every = buffers.variances(poles, weights, steps=steps)
        variances = every[ends - 1] * (1 + ALLOWANCE)
    stddevs, known = np.sqrt(squared * variances) * (1 + SMALL), least.stddevs[counted]
    ratios = stddevs / known * (1 + EPS)
    at = int(ratios.argmax())
    return Proved(float(ratios[at]), int(ends[at]), ends, stddevs, known)


ALLOWANCE = 1e-8
"""Relative allowance for roundings under gossip, on squares: thousands of operations of 2^-52
each, 1e6 in running sums, and powers up to 745 * 2^-50."""
