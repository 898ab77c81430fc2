"""Upper bounds of the two directions of an account, remove and add, and epsilon from delta.

Every bound decreases in epsilon, and the least counts. "replace" is a removal and an addition in a
row: delta(e1 + e2) <= remove(e1) + e^e1 add(e2) for every split.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from noisedesign.privacy.accounting import LEAST, delta_above
from noisedesign.privacy.amplification.convolution import LARGEST_GRAM, even_add, even_remove
from noisedesign.privacy.amplification.mixture import (
    Mixture,
    Multisets,
    Order,
    Tuples,
    even_orders,
    renyi_remove,
)
from noisedesign.privacy.amplification.sampled import Proposal, Sampled, log_geometric
from noisedesign.privacy.target import Adjacency

UNAMPLIFIED, CONVOLUTION, RENYI = "unamplified", "convolution", "renyi"
GEOMETRIC, MONTE_CARLO = "geometric-mean", "monte-carlo"
COMPOSITION, TANGENT = "composition", "tangent"

REPLACE: Adjacency = "replace"

DIGITS = 1e-6  # relative width at which a search for epsilon ends, on the safe side

MOST_CONVOLVED = 25.0  # squared sensitivity up to which a common factor is convolved: it takes long

RESOLVED = 30.0  # sum of integrand over bound of all samples below which an estimate is none
Curve = Callable[[float], float]  # a bound of delta by epsilon, at least 0; decreasing


# --- from delta to epsilon ------------------------------------------------------------------------


class Parts(NamedTuple):
    """An epsilon, and those of the two directions: its largest, or its summands ("replace")."""

    epsilon: float
    remove: float
    add: float


class Remembered:
    """A curve that remembers its values."""

    def __init__(self, curve: Curve) -> None:
        self._curve = curve
        self._known: dict[float, float] = {}

    def __call__(self, epsilon: float) -> float:
        if epsilon not in self._known:
            self._known[epsilon] = self._curve(epsilon)
        return self._known[epsilon]

    def epsilon(self, delta: float) -> float:
        """Smallest epsilon whose delta is at most that, rounded up; infinite if there is none."""
        if delta < LEAST:
            return math.inf
        if self(0.0) <= delta:
            return 0.0
        high = 1.0
        while self(high) > delta:
            high *= 2
            if high > 1e5:
                return math.inf
        # Values known from earlier searches are the nearest bracket there is.
        low = max(eps for eps, of in self._known.items() if of > delta and eps < high)
        high = min(eps for eps, of in self._known.items() if of <= delta and eps > low)

        def excess(epsilon: float) -> float:
            return math.log(self(epsilon) / delta)

        if excess(high) == 0:
            return high
        step = DIGITS * high
        found = float(brentq(excess, low, high, xtol=step, rtol=DIGITS))
        while excess(found) > 0:
            found, step = min(found + step, high), 2 * step
        return found


def least_epsilon(
    remove: Curve, add: Curve, *, delta: float, adjacency: str, share: float | None = None
) -> Parts:
    """The smallest epsilon at delta, rounded up. Under "replace" the removal has ``share`` of
    delta, by default the best, which bounds by samples must not choose, as each may fail."""
    removal, addition = _remembered(remove), _remembered(add)
    if adjacency != REPLACE:
        first, second = removal.epsilon(delta), addition.epsilon(delta)
        return Parts(max(first, second), first, second)

    used = best_share(removal, addition, delta=delta) if share is None else share
    first, second = _shared(removal, addition, delta, used)
    return Parts((first + second) * (1 + 1e-15), first, second)


def best_share(remove: Curve, add: Curve, *, delta: float) -> float:
    """Share of delta, in (0, 1), for the removal at which the sum of both epsilons is least."""
    removal, addition = _remembered(remove), _remembered(add)
    best = minimize_scalar(  # infinite epsilons are cut off, as differences are taken of them
        lambda odds: min(sum(_shared(removal, addition, delta, _share(odds))), 1e300),
        bounds=(-6.0, 6.0),  # shares from 1 / 400 to all but that
        method="bounded",
        options={"xatol": 0.3},
    )
    return _share(float(best.x))


def _share(odds: float) -> float:
    return 1 / (1 + math.exp(-odds))


def _shared(
    removal: Remembered, addition: Remembered, delta: float, share: float
) -> tuple[float, float]:
    first = removal.epsilon(share * delta)
    return first, addition.epsilon((1 - share) * delta * math.exp(-first))


def least_delta(
    remove: Curve, add: Curve, *, epsilon: float, adjacency: str, split: float | None = None
) -> float:
    """The smallest delta at epsilon; under "replace" the removal has ``split`` of it, or the best
    part."""
    if adjacency != REPLACE:
        return max(remove(epsilon), add(epsilon))
    first = best_split(remove, add, epsilon=epsilon) if split is None else split
    return _split(remove, add, epsilon, first)


def best_split(remove: Curve, add: Curve, *, epsilon: float) -> float:
    """Part of epsilon for the removal at which the delta of both together is least."""
    if epsilon == 0:
        return 0.0
    best = minimize_scalar(
        lambda first: math.log(_split(remove, add, epsilon, first)),
        bounds=(0.0, epsilon),
        method="bounded",
        options={"xatol": 3e-3 * epsilon},
    )
    return float(best.x)


def _split(remove: Curve, add: Curve, epsilon: float, first: float) -> float:
    second = max(epsilon - first, 0.0) * (1 - 1e-15)
    found = remove(first) + math.exp(min(first, 700.0)) * add(second)
    return min(found * (1 + 1e-14), 1.0)


def _remembered(curve: Curve) -> Remembered:
    return curve if isinstance(curve, Remembered) else Remembered(curve)


# --- bounds of both directions --------------------------------------------------------------------


class Directions(ABC):
    """Bounds of remove and add by name, beside the unamplified one of ``mu``, not squared;
    ``upper`` names a pair above the observer's own, ``share`` is that of removals if chosen
    beforehand."""

    share: float | None = None

    def __init__(self, mu: float, upper: str = "") -> None:
        self.mu, self.upper = mu, upper
        self.remove = Remembered(lambda epsilon: min(self.bounds(epsilon, remove=True).values()))
        self.add = Remembered(lambda epsilon: min(self.bounds(epsilon, remove=False).values()))

    @abstractmethod
    def bounds(self, epsilon: float, *, remove: bool) -> dict[str, float]:
        """Every bound of a direction at epsilon, by its name."""

    @property
    def estimates(self) -> tuple[Curve, Curve] | None:
        """Both directions estimated, which bounds nothing; None without samples."""
        return None

    def unamplified(self, epsilon: float) -> float:
        """Delta of a record whose steps are known."""
        return delta_above(self.mu, epsilon) if self.mu else LEAST

    def which(self, epsilon: float, *, remove: bool) -> str:
        """Name of the least bound of a direction at epsilon."""
        bounds = self.bounds(epsilon, remove=remove)
        return min(bounds, key=lambda name: bounds[name])


class Bound(NamedTuple):
    """An upper bound of one direction: its name, delta by epsilon, and an estimate of that."""

    name: str
    delta: Curve
    estimate: Curve | None = None


class ListedDirections(Directions):
    """Bounds that are written out, beside the unamplified one."""

    def __init__(self, mu: float, remove: list[Bound], add: list[Bound]) -> None:
        super().__init__(mu)
        self._listed = {True: remove, False: add}

    def bounds(self, epsilon: float, *, remove: bool) -> dict[str, float]:
        found = {bound.name: bound.delta(epsilon) for bound in self._listed[remove]}
        return found | {UNAMPLIFIED: self.unamplified(epsilon)}

    @property
    def estimates(self) -> tuple[Curve, Curve] | None:
        remove, add = (
            [bound.estimate for bound in self._listed[way] if bound.estimate is not None]
            for way in (True, False)
        )
        if not remove and not add:
            return None
        return self._estimate(remove) or self.remove, self._estimate(add) or self.add

    def _estimate(self, estimates: list[Curve]) -> Curve | None:
        if not estimates:
            return None
        return lambda epsilon: min(
            *(estimate(epsilon) for estimate in estimates), self.unamplified(epsilon)
        )


class MixtureDirections(Directions):
    """Bounds of a mixture without samples; moments come with their multisets."""

    def __init__(self, mixture: Mixture, orders: list[tuple[Order, Tuples, float]]) -> None:
        super().__init__(math.sqrt(mixture.sensitivity_squared), mixture.upper)
        self.mixture = mixture
        self._common = mixture.common
        self._own = max(mixture.sensitivity_squared - self._common, 0.0)
        self._orders = [order for order, _, _ in orders]

    def bounds(self, epsilon: float, *, remove: bool) -> dict[str, float]:
        found = {UNAMPLIFIED: self.unamplified(epsilon)}  # the simplest, first where several are
        if self.mixture.bins == 1 or not self.mu:
            return found
        if self._convolves(epsilon, remove=remove):
            bound = even_remove if remove else even_add
            found[CONVOLUTION] = bound(self._own, self.mixture.bins, epsilon, common=self._common)
        if remove and self._moments:
            found[RENYI] = max(renyi_remove(self._moments, epsilon), LEAST)
        if not remove and not self.mixture.even:
            found[GEOMETRIC] = max(math.exp(log_geometric(self.mixture.gram, epsilon)), LEAST)
        return found

    def _convolves(self, epsilon: float, *, remove: bool) -> bool:
        """Whether the convolution of the least even Gram matrix above is among the bounds."""
        return self._common == 0 or self._own + self._common <= MOST_CONVOLVED

    @cached_property
    def _moments(self) -> list[Order]:
        """Bounds of moments, none where the convolution is nearly exact."""
        if self.mixture.even and self._own <= LARGEST_GRAM:
            return []
        return self._orders + even_orders(self._own, self.mixture.bins, common=self._common)


class SampledDirections(MixtureDirections):
    """The same with bounds from samples, each with half of a failure; ``alone`` leaves the
    unamplified one beside them, and ``as_if`` forecasts so many samples."""

    def __init__(
        self,
        mixture: Mixture,
        orders: list[tuple[Order, Tuples, float]],
        samples: tuple[Sampled, Sampled],
        failure: float,
        *,
        alone: bool = False,
        as_if: int | None = None,
        share: float | None = None,
    ) -> None:
        super().__init__(mixture, orders)
        self.samples, self.failure, self.alone, self.as_if = samples, failure, alone, as_if
        self.share = share

    def of(self, *, remove: bool) -> Sampled:
        """The samples of a direction."""
        return self.samples[0 if remove else 1]

    def bounds(self, epsilon: float, *, remove: bool) -> dict[str, float]:
        found = super().bounds(epsilon, remove=remove)
        if self.alone:
            found = {UNAMPLIFIED: found[UNAMPLIFIED]}
        upper = self.of(remove=remove).upper(epsilon, self.failure / 2, samples=self.as_if)
        return found | {MONTE_CARLO: max(upper, LEAST)}

    def _convolves(self, epsilon: float, *, remove: bool) -> bool:
        # Samples are better but for additions of which they see little, whose bounds are poor.
        if self.alone or remove or self.resolved(epsilon, remove=False):
            return False
        return super()._convolves(epsilon, remove=remove)

    def resolved(self, epsilon: float, *, remove: bool) -> bool:
        """Whether enough samples matter at epsilon for an estimate."""
        sampled = self.of(remove=remove)
        return sampled.mean(epsilon) * (self.as_if or sampled.size) >= RESOLVED

    @property
    def estimates(self) -> tuple[Curve, Curve]:
        first, second = (self._estimate(sampled) for sampled in self.samples)
        return first, second

    def _estimate(self, sampled: Sampled) -> Curve:
        return Remembered(
            lambda epsilon: min(max(sampled.estimate(epsilon), LEAST), self.unamplified(epsilon))
        )


class Bins:
    """A mixture at any noise, with what is computed once for all."""

    def __init__(self, mixture: Mixture) -> None:
        self.mixture = mixture
        self._known: tuple[float, list[tuple[Order, Tuples, float]]] = (0.0, [])

    @cached_property
    def _multisets(self) -> Multisets:
        return Multisets(self.mixture.gram)

    def _orders(self, noise: float) -> list[tuple[Order, Tuples, float]]:
        if self._known[0] != noise:
            self._known = noise, self._multisets.orders(1 / noise / noise)
        return self._known[1]

    def proved(self, noise: float) -> MixtureDirections:
        """Bounds without samples."""
        orders = [] if self.mixture.even or self.mixture.bins == 1 else self._orders(noise)
        return MixtureDirections(self.mixture.scaled(noise), orders)

    def sampled(
        self,
        noise: float,
        at: tuple[float, float],
        samples: int,
        failure: float,
        generator: np.random.Generator,
        **how: Any,
    ) -> SampledDirections:
        """Bounds with fresh samples, drawn so that they are good at the epsilons ``at``."""
        mixture, orders = self.mixture.scaled(noise), self._orders(noise)
        proposal = Proposal(mixture.gram, orders, remove_at=at[0], add_at=at[1])
        drawn = (proposal.remove(samples, generator), proposal.add(samples, generator))
        return SampledDirections(mixture, orders, drawn, failure, **how)
