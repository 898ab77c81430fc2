"""Upper bounds of the two directions of an account, remove and add, and epsilon from delta.
"replace" is both in a row: delta(e1 + e2) <= remove(e1) + e^e1 add(e2) for every split."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from noisedesign.privacy.accounting import LEAST, delta_above
from noisedesign.privacy.amplification.convolution import LARGEST_GRAM, even_add, even_remove
from noisedesign.privacy.amplification.mixture import (
    Mixture,
    Multisets,
    Order,
    Proposal,
    Sampled,
    Tuples,
    even_orders,
    log_geometric,
    renyi_remove,
)
from noisedesign.privacy.target import Adjacency

UNAMPLIFIED, CONVOLUTION, RENYI = "unamplified", "convolution", "renyi"
GEOMETRIC, MONTE_CARLO = "geometric-mean", "monte-carlo"
COMPOSITION, TANGENT = "composition", "tangent"

REPLACE: Adjacency = "replace"

DIGITS = 1e-6  # relative width at which a search for epsilon ends, on the safe side
MOST_CONVOLVED = 25.0  # squared sensitivity up to which a common factor is convolved: it takes long

Curve = Callable[[float], float]  # a bound of delta by epsilon, at least 0; decreasing


# --- from delta to epsilon ------------------------------------------------------------------------


class Parts(NamedTuple):
    """An epsilon, and those of the two directions: its largest, or its summands ("replace")."""

    epsilon: float
    remove: float
    add: float


class Remembered:
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
    """The smallest epsilon at delta, rounded up; under "replace" removal has ``share`` of delta."""
    # The best share is the default, which bounds by samples must not choose, as each may fail.
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
    """The smallest delta at epsilon; under "replace" removal has ``split``, or the best part."""
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


class Bound(NamedTuple):
    """An upper bound of one direction: its name, delta by epsilon, and an estimate of that."""

    name: str
    delta: Curve
    estimate: Curve | None = None


class Directions:
    """Bounds of remove and add by name, beside the unamplified one of ``mu``, not squared;
    ``upper`` names a pair above the observer's own, ``share`` is that of removals if chosen
    beforehand, and ``samples`` are those of remove (True) and add, if there are any."""

    def __init__(
        self,
        mu: float,
        remove: Sequence[Bound] = (),
        add: Sequence[Bound] = (),
        *,
        upper: str = "",
        share: float | None = None,
        samples: Mapping[bool, Sampled] | None = None,
        alone: bool = False,
    ) -> None:
        self.mu, self.upper, self.share, self.samples, self.alone = mu, upper, share, samples, alone
        plain = Bound(UNAMPLIFIED, self.unamplified)  # the simplest, first where several are
        self._listed = {True: [plain, *remove], False: [plain, *add]}
        self.remove = Remembered(lambda epsilon: min(self.bounds(epsilon, remove=True).values()))
        self.add = Remembered(lambda epsilon: min(self.bounds(epsilon, remove=False).values()))

    def bounds(self, epsilon: float, *, remove: bool) -> dict[str, float]:
        return {bound.name: bound.delta(epsilon) for bound in self._listed[remove]}

    @property
    def estimates(self) -> tuple[Curve, Curve] | None:
        """Both directions estimated, which bounds nothing; None without samples."""
        remove, add = (
            [bound.estimate for bound in self._listed[way] if bound.estimate is not None]
            for way in (True, False)
        )
        if not remove and not add:
            return None
        return self._estimate(remove) or self.remove, self._estimate(add) or self.add

    def _estimate(self, given: list[Curve]) -> Curve | None:
        if not given:
            return None
        return lambda epsilon: min(
            *(estimate(epsilon) for estimate in given), self.unamplified(epsilon)
        )

    def unamplified(self, epsilon: float) -> float:
        return delta_above(self.mu, epsilon) if self.mu else LEAST

    def which(self, epsilon: float, *, remove: bool) -> str:
        bounds = self.bounds(epsilon, remove=remove)
        return min(bounds, key=lambda name: bounds[name])


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

    def proved(self, noise: float) -> Directions:
        orders = [] if self.mixture.even or self.mixture.bins == 1 else self._orders(noise)
        mixture = self.mixture.scaled(noise)
        remove, add = _without_samples(mixture, orders)
        for bounds, even in ((remove, even_remove), (add, even_add)):
            bounds[:0] = _convolved(mixture, even)
        return Directions(math.sqrt(mixture.sensitivity_squared), remove, add, upper=mixture.upper)

    def sampled(
        self,
        noise: float,
        at: tuple[float, float],
        samples: int,
        failure: float,
        generator: np.random.Generator,
        *,
        alone: bool = False,
        as_if: int | None = None,
        share: float | None = None,
    ) -> Directions:
        """Bounds with fresh samples, good at the epsilons ``at``; ``as_if`` forecasts so many."""
        mixture, orders = self.mixture.scaled(noise), self._orders(noise)
        proposal = Proposal(mixture.gram, orders, remove_at=at[0], add_at=at[1])
        drawn = {True: proposal.remove(samples, generator), False: proposal.add(samples, generator)}
        remove, add = ([], []) if alone else _without_samples(mixture, orders)
        for bound in [] if alone else _convolved(mixture, even_add):
            # Samples are better but for additions of which they see little.
            add.insert(0, bound._replace(delta=partial(_unresolved, bound, drawn[False], as_if)))
        for bounds, of in ((remove, drawn[True]), (add, drawn[False])):
            bounds.append(_by_samples(of, failure / 2, as_if))
        return Directions(
            math.sqrt(mixture.sensitivity_squared),
            remove,
            add,
            upper=mixture.upper,
            share=share,
            samples=drawn,
            alone=alone,
        )


def _own(mixture: Mixture) -> float:
    """c of the least even Gram matrix above, c I + common J."""
    return max(mixture.sensitivity_squared - mixture.common, 0.0)


def _convolved(mixture: Mixture, even: Callable[..., float]) -> list[Bound]:
    """The convolution of the least even Gram matrix above, where it does not take long."""
    own, common = _own(mixture), mixture.common
    if mixture.bins == 1 or own + common == 0 or (common and own + common > MOST_CONVOLVED):
        return []
    return [Bound(CONVOLUTION, partial(even, own, mixture.bins, common=common))]


def _without_samples(
    mixture: Mixture, orders: list[tuple[Order, Tuples, float]]
) -> tuple[list[Bound], list[Bound]]:
    """Moments of removal and the geometric mean of addition, none where convolution is exact."""
    own, remove, add = _own(mixture), [], []
    if mixture.bins == 1 or not mixture.sensitivity_squared:
        return [], []
    if not mixture.even or own > LARGEST_GRAM:
        moments = [order for order, _, _ in orders]
        moments += even_orders(own, mixture.bins, common=mixture.common)
        remove.append(Bound(RENYI, lambda epsilon: max(renyi_remove(moments, epsilon), LEAST)))
    if not mixture.even:
        gram = mixture.gram
        add.append(
            Bound(GEOMETRIC, lambda epsilon: max(math.exp(log_geometric(gram, epsilon)), LEAST))
        )
    return remove, add


def _by_samples(drawn: Sampled, failure: float, as_if: int | None) -> Bound:
    return Bound(
        MONTE_CARLO,
        lambda epsilon: max(drawn.upper(epsilon, failure, samples=as_if), LEAST),
        lambda epsilon: max(drawn.estimate(epsilon), LEAST),
    )


def _unresolved(bound: Bound, drawn: Sampled, as_if: int | None, epsilon: float) -> float:
    """The bound where samples see too little."""
    return math.inf if drawn.resolved(epsilon, samples=as_if) else bound.delta(epsilon)
