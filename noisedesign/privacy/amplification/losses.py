"""Distributions of privacy losses, composed: Poisson sampling and random allocation.

A curve H(K) = E_Q (dP/dQ - K)_+ is joined at points (Doroshenko et al. 2022, arXiv 2207.04380) and
composed by FFT of ``dp_accounting``, whose a priori error is added
(docs/methods/random-participation.md, "Kinds other than balls in bins")."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisedesign.base import settings
from noisedesign.base.checks import Array, InputError
from noisedesign.privacy.accounting import delta_above
from noisedesign.privacy.amplification.convolution import FFT_ERROR, even_deltas
from noisedesign.system.participation import CyclicPoisson, RandomAllocation, TruncatedPoisson

LOWEST = 1e-14  # rounding of a delta of one factor: differences of tails of normal distributions
HEADROOM = 10.0  # a delta this many times what rounding adds is still told; below, it is refused
TAIL = 1e-16  # mass that a composition may move to an infinite loss
FINE = 8  # points of a curve a standard deviation of the loss near 0; half for each factor 2 beyond


def library() -> Any:
    """``dp_accounting.pld``, or a ModuleNotFoundError that says what to install."""
    try:
        from dp_accounting import pld
    except ModuleNotFoundError as error:
        if error.name != "dp_accounting":
            raise
        message = (
            "dp-accounting is not installed, which composes the privacy losses of this kind of "
            'participation: pip install noisedesign[ledger]. kind = "balls-in-bins" needs nothing.'
        )
        raise ModuleNotFoundError(message, name=error.name) from None
    return pld


class Pair(NamedTuple):
    """Both directions: ``remove`` is P against Q, ``add`` Q against P."""

    remove: Losses
    add: Losses

    def then(self, other: Pair) -> Pair:
        return Pair(self.remove.then(other.remove), self.add.then(other.add))

    def times(self, count: int) -> Pair:
        return Pair(self.remove.times(count), self.add.times(count))


@dataclass(frozen=True)
class Losses:
    """One direction: a measure on the grid of losses, and what rounding may have taken from it."""

    pmf: Any
    error: float

    def then(self, other: Losses) -> Losses:
        first, second = self.pmf.to_dense_pmf(), other.pmf.to_dense_pmf()
        product = library().pld_pmf.compose_pmfs(first, second, tail_mass_truncation=TAIL)
        error = self.error + other.error + _fft_error((first, 1), (second, 1), cells=product.size)
        return Losses(product, error)

    def times(self, count: int) -> Losses:
        if count == 1:
            return self
        pmf = self.pmf.to_dense_pmf()
        power = pmf.self_compose(count, tail_mass_truncation=TAIL)
        return Losses(power, count * self.error + _fft_error((pmf, count), cells=power.size))

    def delta(self, epsilon: float) -> float:
        """The curve at epsilon, rounded up."""
        found = float(self.pmf.get_delta_for_epsilon(epsilon))
        return min((1 + 1e-9) * found + self.error, 1.0)  # sums of positive numbers


def of_points(points: NDArray[np.int_], deltas: Array, step: float) -> Losses:
    """The measure that joins a curve, bounded at ascending points in units of ``step``."""
    joined = library().pld_pmf.create_pmf_pessimistic_connect_dots
    falling = np.minimum(np.maximum.accumulate(deltas[::-1])[::-1], 1.0)
    return Losses(joined(step, points, falling), LOWEST)


def _fft_error(*parts: tuple[Any, int], cells: int) -> float:
    """Bound of what the FFT may take from all cells: a factor's error times the others' masses."""
    doublings = math.log2(max(sum(count * pmf.size for pmf, count in parts), 2)) + 2
    totals = math.prod(max(float(pmf._probs.sum()), 1.0) ** count for pmf, count in parts)
    norms = sum((count + 1) * float(np.linalg.norm(pmf._probs)) for pmf, count in parts)
    return 2 * FFT_ERROR * doublings * totals * norms * math.sqrt(cells)


def require_resolved(error: float, delta: float) -> None:
    """Refuse a delta that is lost in rounding."""
    if delta < HEADROOM * error:
        expected = f"at least {HEADROOM * error:.1e}, which a composition in doubles resolves"
        remedy = 'Take kind = "balls-in-bins", whose account resolves any delta.'
        raise InputError("delta", expected=expected, got=f"{delta:g}", remedy=remedy)


# --- Poisson sampling -----------------------------------------------------------------------------


def cyclic_products(rows: Array, participation: CyclicPoisson) -> tuple[float, float, float]:
    """Largest squared norm c of a column, product of two of a group, and square without coins."""
    c, d, top = 0.0, 0.0, 0.0
    for turns in participation.patterns:
        gram = rows[:, turns].T @ rows[:, turns]
        top = max(top, float(gram.sum()))
        c = max(c, float(gram.diagonal().max()))
        d = max(d, _largest_product(gram))
    return c, _unless_rounding(d, c), top


def _largest_product(gram: Array) -> float:
    """The largest entry off the diagonal, which is overwritten."""
    np.fill_diagonal(gram, 0)
    return float(gram.max(initial=0.0))


def _unless_rounding(d: float, c: float) -> float:
    """A product of columns, 0 where it is the rounding of one."""
    return d if d > 64 * settings.EPS * c else 0.0


def every_step(c: float, rate: float, steps: int) -> Pair:
    """Poisson sampling in so many steps, each with an output of its own."""
    return _subsampled(math.sqrt(c), rate, _poisson_step(c, rate)).times(steps)


def cyclic_poisson(c: float, d: float, participation: CyclicPoisson) -> Pair:
    """Bound one group, c the squared norm of a column and d a product of two, 0 up to b bands."""
    step, k = _poisson_step(c, participation.rate), participation.epochs
    pair = _subsampled(math.sqrt(c), participation.rate, step).times(k)
    return pair if d == 0 else pair.then(_subsampled(k * math.sqrt(d), 1.0, step))


def truncated_poisson(c: float, participation: TruncatedPoisson) -> Pair:
    """Bound zero-out where batches have a largest size (Ganesh et al., arXiv 2508.15089)."""
    one = library().privacy_loss_distribution.from_truncated_subsampled_gaussian_mechanism(
        dataset_size=participation.group_size,
        sampling_probability=participation.rate,
        truncated_batch_size=participation.batch_size_limit,
        noise_multiplier=_stddev(math.sqrt(c)),
        value_discretization_interval=_poisson_step(c, participation.rate),
    )
    return _pair(one).times(participation.epochs)


def _subsampled(mu: float, rate: float, step: float) -> Pair:
    return _pair(
        library().privacy_loss_distribution.from_gaussian_mechanism(
            _stddev(mu), sampling_prob=rate, value_discretization_interval=step
        )
    )


def _pair(found: Any) -> Pair:
    return Pair(Losses(found._pmf_remove, LOWEST), Losses(found._pmf_add, LOWEST))


def _stddev(mu: float) -> float:
    return (1 - 1e-14) / mu


def _poisson_step(c: float, rate: float) -> float:
    """A grid that is fine beside the standard deviation of the loss of one turn, about."""
    spread = rate * math.sqrt(math.expm1(min(c, 50.0)))
    return min(max(spread / 8, 2e-5), 2e-3)


# --- random allocation ----------------------------------------------------------------------------


def allocated_products(rows: Array, count: int) -> tuple[float, float, float]:
    """Largest squared norm of a column, product of two, and bound of ``count`` columns."""
    gram = rows.T @ rows
    c = float(gram.diagonal().max())
    together = np.sort(gram, axis=1)[:, -count:].sum(axis=1)
    return c, _unless_rounding(_largest_product(gram), c), count * float(together.max())


def random_allocation(c: float, d: float, participation: RandomAllocation, delta: float) -> Pair:
    """Bound both directions down to ``delta``; c and d are as for :func:`cyclic_poisson`."""
    horizon, count = participation.horizon, participation.participations
    floor, larger = divmod(horizon, count)
    own = max(c - d, 0.0)
    least = 1e-3 * delta / count  # what all losses beyond the last points may cost
    step = math.sqrt(math.log1p(math.expm1(min(own, 50.0)) / floor)) / FINE
    pair = _one_of(own, floor, step, least).times(count - larger)
    if larger:
        pair = pair.then(_one_of(own, floor + 1, step, least).times(larger))
    if d == 0:
        return pair
    mu = math.sqrt(d * count**2)
    return pair.then(_joined(lambda epsilon: (delta_above(mu, epsilon),) * 2, step, least))


def _one_of(c: float, bins: int, step: float, least: float) -> Pair:
    return _joined(lambda epsilon: even_deltas(c, bins, epsilon), step, least)


def _joined(deltas: Callable[[float], tuple[float, float]], step: float, least: float) -> Pair:
    """Both directions, joined at points, from their deltas at epsilon >= 0."""
    found = {0: deltas(0.0)}
    last, stride = 0, 1
    while max(found[last]) > least:
        if last >= 2 * FINE * stride:
            stride *= 2
        last += stride
        found[last] = deltas(last * step)
    points = np.array([*(-k for k in reversed(found) if k), *found])
    curves = (_both_sides(found, step, way) for way in (0, 1))
    return Pair(*(of_points(points, curve, step) for curve in curves))


def _both_sides(found: dict[int, tuple[float, float]], step: float, way: int) -> Array:
    """Deltas from the lowest point on, E_Q (L - K)_+ = 1 - K + E_Q (K - L)_+ at -epsilon."""
    below = []
    for k in reversed(found):
        if k:
            strike = math.exp(-k * step)
            below.append(-math.expm1(-k * step) + strike * found[k][1 - way])
    return np.array([*below, *(both[way] for both in found.values())])
