"""The step from a plan in real numbers to one in integers, with the privacy that was designed.

Gradients are integers g on a lattice of step ``grid``. C is rounded to integers, its entries those
of the design times a power of two that gives the largest of the diagonal 12 bits after the point.
Nodes release what follows from y = C g + v, where noise v of every step is, at node i,

    v_i = z_i + sum_k a_ik w_k,        a_ik integers,

z_i a discrete Gaussian of the node's own and w_k one that the holders of seed k share. Everything
here is computed in integers and fractions, from the floats of the plan as they are.

docs/mathematics/integers.md, theorem J, derives the privacy: of the rounded C, of own and of shared
noise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import frexp, isqrt

import numpy as np
from numpy.typing import NDArray

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array, InputError
from noisedesign.noise.discrete_gaussian import LARGEST_VARIANCE
from noisedesign.noise.plan import CHANGE_OVER_CLIP, OWN, Plan, Stream
from noisedesign.noise.rules import Number, Rule, heaviest_sums

Integers = NDArray[np.int64]
PLACES = 12  # bits after the point of C, whose largest diagonal entry is between 1 and 2
NOISE_STEPS, CLIP_STEPS, MOST_CLIP_STEPS, MOST_SIGMA = 20, 24, 30, 37
"""log2 of the steps to one ``noise_stddev`` and to one clip, where no lattice is asked for: at
least the first two, but never more to the clip than the third, nor more to sigma than the last."""
SMOOTHING = 8  # s^2
FINEST_SEED = 16  # least tau^2
SEED_BITS = 16  # log2 of the coefficient of a seed whose noise is that of the design alone
FINE = 16  # bits after the point of what rounding takes from C
SLACK = Fraction(1, 1 << 40)
SPLIT = Fraction(1, 1 << 12)  # theta
LARGEST = 1 << 60  # no integer is larger: sums of two fit int64
MOST_CLIP = 1 << 31  # most steps of a clip: squares fit int64


@dataclass(frozen=True, kw_only=True, eq=False)
class Lattice:
    """The integers of a node: ``strategy`` has C[t + i, t] at [i, t], ``own_variance`` is that of
    its noise in y, ``seed_variance`` of draws from shared seeds, times ``coefficients``; ``rho`` is
    the zCDP of the whole run, None where shared seeds are a part of the privacy."""

    exponent: int
    strategy: Integers
    clip_squared: int
    squared_sensitivity: int
    own_variance: int
    seed_variance: int
    coefficients: Mapping[str, int]
    rho: Fraction | None

    @property
    def grid(self) -> float:
        return 2.0**self.exponent


def lattice_of(plan: Plan, *, grid: float | None = None) -> Lattice:
    """Return the integers of a plan; ``grid`` is a power of two in units of the gradients."""
    claim = plan.claim
    if claim.mu is None or claim.clip is None or claim.adjacency is None or claim.rule is None:
        remedy = "Design with a [privacy] table that states epsilon, delta and clip."
        raise InputError("plan.claim", expected="a privacy target", got="none", remedy=remedy)
    if claim.rule.random is not None:
        raise InputError(
            "plan.claim",
            expected="participation whose privacy rests on no randomness",
            got=f"{claim.participation}",
            remedy="C of integers has fewer digits, and what randomness adds is proved for C: "
            "design for fixed-epoch.",
        )
    bands = None if plan.couplings is not None else plan.filter.strategy(plan.horizon)
    if bands is None:
        got = "a full design" if plan.couplings is not None else plan.filter.kind
        remedy = "Integers need C itself: design for a banded, Toeplitz, dense or no strategy."
        raise InputError("plan", expected="C with bands, or dense", got=got, remedy=remedy)
    strategy, shift, moved = _rounded(bands)
    sensitivity = squared_sensitivity(strategy, claim.rule)
    change = Fraction(CHANGE_OVER_CLIP[claim.adjacency]) ** 2
    least = change * Fraction(claim.clip) ** 2 * sensitivity / Fraction(claim.mu) ** 2
    exponent = _exponent(grid, claim.noise_stddev, claim.clip, least)
    # A gradient of one unit is 2^-exponent steps, and C of one 2^shift.
    unit = Fraction(2) ** (shift - exponent)
    clip_squared = _clip_squared(claim.clip, exponent)
    change *= clip_squared
    own = sum(Fraction(s.coefficient) ** 2 for s in plan.streams if s.source == OWN) * unit**2
    shared = [stream for stream in plan.streams if stream.source != OWN and stream.coefficient]
    if not shared:
        least = change * sensitivity / Fraction(claim.mu) ** 2
        variance = _ceiling(max(own, least) * (1 + SLACK)) + SMOOTHING
        rho = change * sensitivity / (2 * variance)
        coefficients, seed_variance = {}, FINEST_SEED
    else:
        gain = (1 + SLACK) * _gain(strategy, moved, claim.rule, sensitivity)
        scale = Fraction(isqrt(_ceiling(gain * (1 + SPLIT) * 2**80)) + 1, 2**40) * unit
        tau = max(4, 1 << max(0, int(Fraction(claim.noise_stddev) * unit).bit_length() - SEED_BITS))
        coefficients = {s.name: round(Fraction(s.coefficient) * scale / tau) for s in shared}
        sizes = {name: abs(a) for name, a in coefficients.items()}
        holders = {stream.name: _holders(stream, plan.node) for stream in shared}
        lost = sum(holders.values()) * Fraction(tau**2, 4) / SPLIT
        smooth = 16 * sum(sizes.values()) * max(sizes[s] * holders[s] for s in sizes)
        variance = max(_ceiling(gain * own + lost), smooth) + SMOOTHING
        seed_variance, rho = tau**2, None
    found = Lattice(
        exponent=exponent,
        strategy=strategy,
        clip_squared=clip_squared,
        squared_sensitivity=sensitivity,
        own_variance=variance,
        seed_variance=seed_variance,
        coefficients=coefficients,
        rho=rho,
    )
    _check_room(found, amplified=plan.filter.row_sums(plan.horizon, np.abs).max() / 2.0**shift)
    return found


def _holders(stream: Stream, node: int) -> int:
    """Return the number of nodes that hold a seed."""
    if node not in stream.holders or len(set(stream.holders)) < len(stream.holders):
        expected = f"node {node} among the holders of {stream.name!r}"
        raise InputError("plan", expected=expected, got=f"{list(stream.holders)}")
    return len(stream.holders)


def squared_sensitivity(strategy: Integers, rule: Rule) -> int:
    """Return at least max |sum over t of C_t d_t|^2 over sets of steps of a record and |d_t| <= 1.

    It is the largest sum of |C^T C| over such a set, or more; equal for sets of one residue class
    or from a list, and where columns of one set do not overlap."""
    bands, horizon = len(strategy), strategy.shape[1]
    _check_sums(strategy, rule)

    def gram(lag: int) -> Integers:
        """|C^T C|[t, t + lag], zero past the end."""
        found = np.zeros(horizon, dtype=np.int64)
        for i in range(bands - lag):
            found[: horizon - lag] += strategy[i + lag, : horizon - lag] * strategy[i, lag:]
        return np.abs(found)

    if rule.patterns is not None:
        lags = {b - a for steps in rule.patterns for a in steps for b in steps if a <= b}
        grams = {lag: gram(lag) for lag in lags if lag < bands}

        def entry(a: int, b: int) -> int:
            return int(grams[b - a][a]) * (1 if a == b else 2) if b - a in grams else 0

        return max(
            sum(entry(a, b) for a in steps for b in steps if a <= b) for steps in rule.patterns
        )
    found = gram(0)
    if rule.residue is not None:
        # Sums of rows over a whole class, of which the largest are taken.
        for lag in range(rule.residue, bands, rule.residue):
            if lag >= rule.min_sep:
                both = gram(lag)
                found += both
                found[lag:] += both[: horizon - lag]
        classes = (np.sort(found[r :: rule.residue])[::-1] for r in range(rule.residue))
        return max(int(members[: rule.most].sum()) for members in classes)
    # Of every b steps in a row at most one is taken besides: each such window counts its largest.
    windows: list[Integers] = []
    for first in range(rule.min_sep, bands, rule.min_sep):
        ahead, behind = np.zeros_like(found), np.zeros_like(found)
        for lag in range(first, min(first + rule.min_sep, bands)):
            both = gram(lag)
            np.maximum(ahead, both, out=ahead)
            np.maximum(behind[lag:], both[: horizon - lag], out=behind[lag:])
        windows += [ahead, behind]
    if windows and rule.most > 1:
        found += np.sort(windows, axis=0)[::-1][: rule.most - 1].sum(axis=0)
    counts = min(rule.most, -(-horizon // rule.min_sep))
    return int(heaviest_sums(found, separation=rule.min_sep, counts=counts)[-1])


def _check_sums(strategy: Integers, rule: Rule) -> None:
    """Check that no sum of :func:`squared_sensitivity` passes 64 bits."""
    largest = int(np.abs(strategy).max())
    columns = largest**2 * len(strategy)
    if columns < LARGEST:
        columns = int(np.square(strategy).sum(axis=0).max())
    stride = rule.min_sep if rule.residue is None else rule.residue
    steps = -(-strategy.shape[1] // stride) if rule.patterns is None else rule.most
    if columns * (steps + 1) ** 2 >= LARGEST:
        expected = f"C with entries below {isqrt(LARGEST) // (len(strategy) * (steps + 1))}"
        raise InputError("strategy", expected=expected, got=str(largest))


def _gain(strategy: Integers, moved: Integers, rule: Rule, sensitivity: int) -> Fraction:
    """Return at least sens(C rounded)^2 / sens(C)^2, where rounding took ``moved`` / 2^FINE from
    C, to less than a unit of that in every entry.

    Sensitivity is a norm: that of what was taken is at most that of ``moved`` and of units beside
    it. Its square is at least the sum of the squared columns of any set of steps, which is the mean
    over signs, and at least the squared sum of these columns."""
    if not moved.any():
        return Fraction(1)
    least, horizon = 0, strategy.shape[1]
    for steps in _some_patterns(rule, horizon):
        columns = np.zeros((horizon + len(strategy), len(steps)), dtype=np.int64)
        for place, t in enumerate(steps):
            columns[t : t + len(strategy), place] = strategy[:, t]
        least = max(least, int(np.square(columns).sum()), int(np.square(columns.sum(axis=1)).sum()))

    def root(square: int) -> int:
        """Round 2^30 times the square root up."""
        return isqrt(square << 60) + 1

    unit = squared_sensitivity(_within(np.ones_like(strategy)), rule)
    lost = -(-(root(squared_sensitivity(moved, rule)) + root(unit)) // 2**FINE)
    low = isqrt(least << 60) - lost
    if low <= 0:
        expected, got = "a strategy whose entries are of one size", "one that rounding changes"
        raise InputError("plan", expected=expected, got=got)
    return Fraction(sensitivity << 60, low * low)


def _some_patterns(rule: Rule, horizon: int) -> list[tuple[int, ...]]:
    """Sets of steps a record may take part in, the heaviest of usual designs among them."""
    if rule.patterns is not None:
        return list(rule.patterns)
    residue = rule.residue or 1
    stride = residue * -(-rule.min_sep // residue)
    return [tuple(range(r, horizon, stride))[: rule.most] for r in range(min(stride, horizon))]


def _rounded(bands: Array) -> tuple[Integers, int, Integers]:
    """C times 2^shift in integers, shift, and what is missing in units of 2^-FINE."""
    shift = PLACES + 1 - frexp(float(bands[0].max()))[1]
    scaled = _within(np.ldexp(bands, shift))
    strategy = np.rint(scaled).astype(np.int64)
    if strategy[0].min() < 1:
        expected = f"diagonal entries of C within {2**PLACES} of each other"
        raise InputError("plan", expected=expected, got=f"{bands[0].min() / bands[0].max():.3g}")
    # Differences of neighbours are exact; away from zero, so that nothing that is missing is none.
    missing = np.ldexp(scaled - strategy, FINE)
    return strategy, shift, np.copysign(np.ceil(np.abs(missing)), missing).astype(np.int64)


def _within(bands: NDArray[Number]) -> NDArray[Number]:
    """A copy without what is past the last row of C."""
    found = np.array(bands[: bands.shape[1]])
    for i in range(1, len(found)):
        found[i, found.shape[1] - i :] = 0
    return found


def _exponent(grid: float | None, stddev: float, clip: float, least: Fraction) -> int:
    """log2 of the step of the lattice; ``least`` is sigma^2 (squared) for one of 1."""
    if grid is None:
        fine = min(frexp(stddev)[1] - 1 - NOISE_STEPS, frexp(clip)[1] - 1 - CLIP_STEPS)
        sigma = -(-frexp(least)[1] // 2)
        return max(fine, frexp(clip)[1] - 1 - MOST_CLIP_STEPS, sigma - MOST_SIGMA)
    mantissa, exponent = frexp(_checks.scale(grid, field="grid"))
    if mantissa != 0.5:
        nearest = 2.0 ** (exponent - 1)
        raise InputError("grid", expected=f"a power of two, as {nearest:g}", got=f"{grid:g}")
    return exponent - 1


def _clip_squared(clip: float, exponent: int) -> int:
    steps = Fraction(clip) / Fraction(2) ** exponent
    if not 1 <= steps < MOST_CLIP:
        coarsest, finest = f"{clip:.3g}", f"{clip / MOST_CLIP:.3g}"
        expected = f"a step between {finest} and {coarsest}, the clip"
        raise InputError("grid", expected=expected, got=f"{2.0**exponent:g}")
    return int(steps**2)


def _ceiling(value: Fraction) -> int:
    return -(-value.numerator // value.denominator)


def _check_room(lattice: Lattice, *, amplified: float) -> None:
    """Check that noise of 2^7 standard deviations, which nobody ever sees, fits."""
    own, seeds = isqrt(lattice.own_variance) + 1, isqrt(lattice.seed_variance) + 1
    white = own + seeds * sum(map(abs, lattice.coefficients.values()))
    weight = int(np.abs(lattice.strategy).sum(axis=0).max())
    largest = _ceiling(Fraction(amplified) * white * weight)
    if lattice.own_variance > LARGEST_VARIANCE or largest << 7 > LARGEST:
        expected = "a coarser step: noise in steps is to fit 64 bits"
        raise InputError("grid", expected=expected, got=f"{lattice.grid:g}")
