"""Epsilon, delta and noise of a record whose steps are drawn at random, by the least of the
bounds that its kind of participation has (docs/mathematics/random.md)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypedDict, Unpack

import numpy as np
from scipy.optimize import brentq

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array, InputError
from noisedesign.privacy.accounting import LEAST, delta_above, epsilon_of, mu_of
from noisedesign.privacy.amplification import losses
from noisedesign.privacy.amplification.directions import (
    COMPOSITION,
    DIGITS,
    MONTE_CARLO,
    RENYI,
    REPLACE,
    TANGENT,
    UNAMPLIFIED,
    Bins,
    Bound,
    Directions,
    Parts,
    best_share,
    best_split,
    least_delta,
    least_epsilon,
)
from noisedesign.privacy.amplification.min_separation import Chain, chosen, sampled
from noisedesign.privacy.amplification.mixture import RESOLVED, Mixture, bins_of, samples_for
from noisedesign.privacy.runs import LEMMA
from noisedesign.privacy.target import ADJACENCIES, DEFAULT_ADJACENCY
from noisedesign.system.participation import (
    BMinSepSampling,
    CyclicPoisson,
    Participation,
    RandomAllocation,
    TruncatedPoisson,
)

AUTO, PROVED = "auto", "proved"
METHODS = (AUTO, PROVED, MONTE_CARLO)

CONFIDENCE = 1 - 1e-6  # default of accounts that rest on samples
PILOT = 2**14  # samples of a search, whose result others bear out
FORECAST = 2e-3  # relative digits of noise that a search with samples is for
ATTEMPTS = 20  # proofs tried of what was searched with samples, before amplification is given up
MOST_ACCOUNTS = 40  # accounts of a search, each with its share of 1 - confidence and fresh samples
LARGEST_SQUARE = 200.0  # squared sensitivity beyond which nothing is composed: epsilon is about 100


@dataclass(frozen=True, kw_only=True)
class Amplified:
    """The account of a record: ``epsilon`` is a bound at ``delta``, by ``which``, or infinite.

    ``confidence`` is for samples, ``epsilon_estimate`` no bound; ``remove`` and ``add`` are the
    directions, parts of epsilon under "replace"."""

    epsilon: float
    delta: float
    which: str
    confidence: float | None
    epsilon_estimate: float | None
    adjacency: str
    remove: float
    add: float


class How(TypedDict, total=False):
    """Options of every account.

    adjacency: "replace" (a removal and an addition; default), "zero-out" or "add-remove"; for the
        last two batches are divided by a fixed number, never by the size drawn.
    confidence: probability that epsilon is right where it rests on samples; default 1 - 1e-6.
    samples: draws of each direction; None: as many as the kind takes by default.
    seed: of the samples, >= 0. Nobody who gains by a small epsilon should choose it."""

    adjacency: str
    confidence: float
    samples: int | None
    seed: int


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The options of an account, checked; no ``samples`` leaves their number to the kind."""

    delta: float
    adjacency: str = DEFAULT_ADJACENCY
    confidence: float = CONFIDENCE
    samples: int | None = None
    seed: int = 0
    method: str = AUTO

    def __post_init__(self) -> None:
        for field in ("delta", "confidence"):
            given = getattr(self, field)
            object.__setattr__(self, field, _checks.real(given, field=field, low=0, high=1))
        _checks.one_of(self.adjacency, field="adjacency", allowed=ADJACENCIES)
        if self.samples is not None:
            _checks.positive_int(self.samples, field="samples", minimum=2)
        _checks.seed(self.seed, field="seed")
        _checks.one_of(self.method, field="method", allowed=METHODS)

    @property
    def failure(self) -> float:
        """Probability that some bound by samples is wrong."""
        return 1 - self.confidence

    @property
    def steps(self) -> int:
        """Changes of one record in a row: two where it becomes another."""
        return 2 if self.adjacency == REPLACE else 1

    def generator(self, *stage: int) -> np.random.Generator:
        """Samples of one stage, independent of those of the others."""
        return np.random.default_rng([self.seed, *stage])


# --- mixtures -------------------------------------------------------------------------------------


def amplified_epsilon(
    mixture: Mixture,
    *,
    delta: float,
    noise_multiplier: float = 1.0,
    method: str = AUTO,
    **how: Unpack[How],
) -> Amplified:
    """The least bound on epsilon at delta, of a mixture for unit changes and noise."""
    asked = Asked(delta=delta, method=method, **how)
    noise = _checks.scale(noise_multiplier, field="noise_multiplier")
    return _told(_of_mixture(mixture, noise, asked), asked)


def amplified_delta(
    mixture: Mixture,
    *,
    epsilon: float,
    noise_multiplier: float = 1.0,
    method: str = AUTO,
    **how: Unpack[How],
) -> float:
    """Least bound on delta at epsilon, at least 1e-300; see :func:`amplified_epsilon`."""
    epsilon = _checks.scale(epsilon, field="epsilon")
    asked = Asked(delta=0.5, method=method, **how)
    samples = _samples(mixture, asked)
    noise = _checks.scale(noise_multiplier, field="noise_multiplier")
    bins = Bins(mixture)
    if not samples:
        return _delta_of(bins.proved(noise), epsilon, asked)
    at = (epsilon / asked.steps,) * 2
    split = None
    if asked.adjacency == REPLACE:
        ahead = bins.sampled(noise, at, PILOT, asked.failure, asked.generator(0), as_if=samples)
        split = best_split(ahead.remove, ahead.add, epsilon=epsilon)
    alone = asked.method == MONTE_CARLO
    found = bins.sampled(noise, at, samples, asked.failure, asked.generator(1), alone=alone)
    return _delta_of(found, epsilon, asked, split)


def amplified_noise(
    mixture: Mixture, *, epsilon: float, delta: float, method: str = AUTO, **how: Unpack[How]
) -> tuple[float, Amplified]:
    """The smallest noise over the clip that meets (epsilon, delta), and its account."""
    # What some samples find, fresh ones judge, with a little more noise, a share of 1 - confidence.
    epsilon = _checks.scale(epsilon, field="epsilon")
    asked = Asked(delta=delta, method=method, **how)
    samples = _samples(mixture, asked)
    top = math.sqrt(mixture.sensitivity_squared)
    if not top:
        raise InputError("gram", expected="a nonzero matrix", got="zeros: nothing is released")
    plain = asked.steps * top / mu_of(epsilon=epsilon, delta=delta)
    bins = Bins(mixture)
    if not samples:
        noise = _searched(lambda noise: _delta_of(bins.proved(noise), epsilon, asked), plain, delta)
        return noise, _meeting(bins.proved(noise), epsilon, asked)
    at = (epsilon / asked.steps,) * 2
    alone = asked.method == MONTE_CARLO

    def ahead(noise: float) -> Directions:
        return bins.sampled(
            noise, at, PILOT, asked.failure, asked.generator(0), alone=alone, as_if=samples
        )

    noise = _searched(
        lambda noise: _delta_of(ahead(noise), epsilon, asked), plain, delta, digits=FORECAST
    )
    given: dict[str, Any] = {"alone": alone, "share": _share(ahead(noise), asked)}
    for attempt in range(1, ATTEMPTS + 1):
        noise = min(noise * (1 + FORECAST * attempt), plain)
        failure, fresh = asked.failure / 2**attempt, asked.generator(attempt)
        found = bins.sampled(noise, at, samples, failure, fresh, **given)
        if noise == plain or _meets(found, epsilon, asked):
            break
    else:  # with the failure that the last attempt left
        noise = plain
        found = bins.sampled(noise, at, samples, failure, fresh, **given)
    return noise, _meeting(found, epsilon, asked)


def _of_mixture(mixture: Mixture, noise: float, asked: Asked) -> Directions:
    """Bounds of a mixture that serve at the delta asked for."""
    samples = _samples(mixture, asked)
    bins = Bins(mixture)
    if not samples:
        return bins.proved(noise)
    # Where to look is found with other samples than those that judge.
    pilot, share = _pilot(bins, noise, asked, samples)
    alone, fresh = asked.method == MONTE_CARLO, asked.generator(1)
    return bins.sampled(noise, pilot[1:], samples, asked.failure, fresh, alone=alone, share=share)


def _samples(mixture: Mixture, asked: Asked) -> int:
    """Number of samples that an account of a mixture takes, none where nothing rests on them."""
    if asked.confidence < 0.5:
        raise InputError("confidence", expected="a number in [0.5, 1)", got=f"{asked.confidence:g}")
    if asked.delta < LEAST:
        expected = f"a number of at least {LEAST:g}"
        raise InputError("delta", expected=expected, got=f"{asked.delta:g}")
    number = samples_for(mixture.bins) if asked.samples is None else asked.samples
    _checks.positive_int(number, field="samples", minimum=100)
    if mixture.bins == 1 or not mixture.sensitivity_squared:
        return 0
    drawn = asked.method == MONTE_CARLO or (asked.method == AUTO and not mixture.even)
    return number if drawn else 0


def _pilot(bins: Bins, noise: float, asked: Asked, samples: int) -> tuple[Parts, float | None]:
    """About where the two directions meet delta, and how they are to share it."""
    top = math.sqrt(bins.mixture.scaled(noise).sensitivity_squared)
    start = epsilon_of(mu=top, delta=asked.delta)
    at = (start, start)
    for stage in (2, 3):  # the second with samples drawn about where the first one ends
        found = bins.sampled(noise, at, PILOT, asked.failure, asked.generator(0, stage))
        assert found.estimates is not None
        parts = least_epsilon(*found.estimates, delta=asked.delta, adjacency=asked.adjacency)
        parts = Parts(*(min(epsilon, 2 * start) for epsilon in parts))  # none may be finite
        at = (parts.remove, parts.add)
    fresh = asked.generator(0, 4)
    return parts, _share(bins.sampled(noise, at, PILOT, asked.failure, fresh, as_if=samples), asked)


def _share(ahead: Directions, asked: Asked) -> float | None:
    """Share of delta for the removal under "replace", by other samples than those that judge."""
    if asked.adjacency != REPLACE:
        return None
    return best_share(ahead.remove, ahead.add, delta=asked.delta)


def _searched(
    delta_of: Callable[[float], float], plain: float, delta: float, *, digits: float = DIGITS
) -> float:
    """Smallest noise whose delta is at most that, rounded up; ``plain`` is enough in any case."""

    def excess(log_noise: float) -> float:
        return math.log(delta_of(math.exp(log_noise)) / delta)

    high = math.log(plain)
    low = high - math.log(2)
    while excess(low) <= 0:
        high, low = low, low - math.log(2)
    if excess(high) >= 0:
        return math.exp(high)
    found, step = float(brentq(excess, low, high, xtol=digits)), digits
    while excess(found) > 0:
        found, step = min(found + step, high), 2 * step
    return math.exp(found)


def _delta_of(
    directions: Directions, epsilon: float, asked: Asked, split: float | None = None
) -> float:
    found = least_delta(
        directions.remove, directions.add, epsilon=epsilon, adjacency=asked.adjacency, split=split
    )
    top = asked.steps * directions.mu
    return min(found, delta_above(top, epsilon)) if top else LEAST


def _meets(directions: Directions, epsilon: float, asked: Asked) -> bool:
    if directions.share is None:
        return _delta_of(directions, epsilon, asked) <= asked.delta
    return _told(directions, asked).epsilon <= epsilon


def _meeting(directions: Directions, epsilon: float, asked: Asked) -> Amplified:
    found = _told(directions, asked)
    return replace(found, epsilon=min(found.epsilon, epsilon))


# --- from bounds to epsilon -----------------------------------------------------------------------


def _told(directions: Directions, asked: Asked) -> Amplified:
    """The least epsilon of both directions, and what proves the larger of them."""
    delta, adjacency = asked.delta, asked.adjacency
    remove, add = directions.remove, directions.add
    parts = Parts(0.0, 0.0, 0.0)
    if directions.mu:
        parts = least_epsilon(remove, add, delta=delta, adjacency=adjacency, share=directions.share)
    names = [directions.which(parts.remove, remove=True), directions.which(parts.add, remove=False)]
    which = names[int(parts.add > parts.remove)]
    if directions.mu:
        plain = epsilon_of(mu=asked.steps * directions.mu, delta=delta)
        if plain <= parts.epsilon * (1 + DIGITS):
            parts, which = Parts(plain, plain / asked.steps, plain / asked.steps), UNAMPLIFIED
            names = []
    return Amplified(
        epsilon=parts.epsilon,
        delta=delta,
        which=f"{which} of {directions.upper}" if directions.upper else which,
        confidence=asked.confidence if MONTE_CARLO in names else None,
        epsilon_estimate=_estimate(directions, parts, asked),
        adjacency=adjacency,
        remove=parts.remove,
        add=parts.add,
    )


def _estimate(directions: Directions, parts: Parts, asked: Asked) -> float | None:
    """Epsilon by the means of samples; None where too few of them matter, or there are none."""
    estimates = directions.estimates
    if estimates is None:
        return None
    for remove, drawn in (directions.samples or {}).items():
        part, way = (parts.remove, "remove") if remove else (parts.add, "add")
        decides = asked.adjacency == REPLACE or part == max(parts.remove, parts.add)
        if decides and not drawn.resolved(part):
            if not directions.alone:
                return None
            needed = RESOLVED / max(drawn.mean(part), 1e-3 / drawn.size)
            expected = (
                f"{needed:.1g} or more, so that samples see a delta of {asked.delta:g} "
                f"in the direction {way}"
            )
            remedy = 'Ask for method = "auto", which bounds it in other ways too.'
            raise InputError("samples", expected=expected, got=f"{drawn.size}", remedy=remedy)
    return least_epsilon(*estimates, delta=asked.delta, adjacency=asked.adjacency).epsilon


# --- every kind of participation ------------------------------------------------------------------


def amplified(
    participation: Participation,
    rows: Any,
    *,
    delta: float,
    noise_multiplier: float = 1.0,
    **how: Unpack[How],
) -> Amplified:
    """The least bound on epsilon at delta for rows (m, T) >= 0 of a random record."""
    if not participation.random or participation.kind not in KINDS:
        expected = f"one of {', '.join(KINDS)}"
        raise InputError("participation", expected=expected, got=str(participation))
    matrix = _checks.matrix(rows, field="rows")
    if matrix.shape[1] != participation.horizon:
        expected = f"a column for each of the {participation.horizon} steps"
        raise InputError("rows", expected=expected, got=f"{matrix.shape[1]} columns")
    if matrix.min() < 0:
        expected = f"entries >= 0, as in {LEMMA}"
        remedy = "Ask for a nonnegative strategy, or give absolute values: they are a bound."
        raise InputError("rows", expected=expected, got=f"{matrix.min():.3g}", remedy=remedy)
    asked = Asked(delta=delta, **how)
    noise = _checks.scale(noise_multiplier, field="noise_multiplier")
    if not matrix.any():
        return _told(Directions(0.0), asked)
    found = KINDS[participation.kind](participation, matrix / noise, asked)
    return min((_told(one, asked) for one in found), key=lambda account: account.epsilon)


def _of_pair(pair: losses.Pair, mu: float, asked: Asked) -> Directions:
    losses.require_resolved(max(pair.remove.error, pair.add.error), asked.delta)
    return Directions(mu, *([Bound(COMPOSITION, way.delta)] for way in pair))


def _balls_in_bins(participation: Participation, rows: Array, asked: Asked) -> list[Directions]:
    return [_of_mixture(bins_of(rows, participation), 1.0, asked)]


def _random_allocation(
    participation: RandomAllocation, rows: Array, asked: Asked
) -> list[Directions]:
    count = participation.participations
    c, d, top = losses.allocated_products(rows, count)
    found: list[Directions] = []
    # Up to 200 subsets, overlapping columns are accounted for as a mixture of them all as well.
    if count == 1 or (d > 0 and math.comb(participation.horizon, count) <= 200):
        found = _balls_in_bins(participation, rows, asked)
    mu = math.sqrt(top)
    if count == 1 or max(c, count * count * d) > LARGEST_SQUARE:
        return [*found, Directions(mu)]
    # An addition after a removal of epsilon has e^-epsilon of delta at most, and a composition in
    # doubles loses what is below 1e-14.
    removal = epsilon_of(mu=mu, delta=asked.delta) if asked.adjacency == REPLACE else 0.0
    least = max(asked.delta * math.exp(-removal), min(1e-14, asked.delta))
    return [*found, _of_pair(losses.random_allocation(c, d, participation, least), mu, asked)]


def _cyclic_poisson(participation: CyclicPoisson, rows: Array, asked: Asked) -> list[Directions]:
    c, d, top = losses.cyclic_products(rows, participation)
    if max(c, participation.epochs**2 * d) > LARGEST_SQUARE:
        return [Directions(math.sqrt(top))]
    return [_of_pair(losses.cyclic_poisson(c, d, participation), math.sqrt(top), asked)]


def _truncated_poisson(
    participation: TruncatedPoisson, rows: Array, asked: Asked
) -> list[Directions]:
    if asked.adjacency == "add-remove":
        expected = "zero-out or replace, under truncated Poisson sampling"
        remedy = "How many records there are is known where batches are truncated."
        raise InputError("adjacency", expected=expected, got=asked.adjacency, remedy=remedy)
    c, d, top = losses.cyclic_products(rows, participation)
    if d > 0:  # a record pushes out others, whose gradients have any signs: no lemma covers that
        b = participation.separation
        raise InputError(
            "participation",
            expected=f"columns of one group that share no row (at most separation = {b} bands), "
            "for truncated Poisson sampling",
            got=f"two whose product is {d:.3g}",
            remedy='Take fewer bands, or kind = "cyclic-poisson" or "balls-in-bins".',
        )
    if c > LARGEST_SQUARE:
        return [Directions(math.sqrt(top))]
    return [_of_pair(losses.truncated_poisson(c, participation), math.sqrt(top), asked)]


def _b_min_sep(participation: BMinSepSampling, rows: Array, asked: Asked) -> list[Directions]:
    chain = Chain(rows, participation)
    mu = math.sqrt(chain.sensitivity_squared)
    remove, add = [], [Bound(TANGENT, chain.add_by_tangents)]
    square = float(chain.squares.max())
    if chain.orthogonal and square <= LARGEST_SQUARE:
        pair = losses.every_step(square, participation.rate, participation.horizon)
        if asked.delta >= losses.HEADROOM * max(pair.remove.error, pair.add.error):
            remove.append(Bound(COMPOSITION, pair.remove.delta))
            add.append(Bound(COMPOSITION, pair.add.delta))
    samples = asked.samples or 50_000
    sure, drawn = chosen(chain, asked.delta, samples)
    remove.append(Bound(RENYI, sure.bound))
    removed, added = sampled(
        drawn,
        largest=min(sure.reach(asked.delta), epsilon_of(mu=mu, delta=asked.delta)),
        failure=asked.failure,
        samples=samples,
        rng=np.random.default_rng(asked.seed),
    )
    return [Directions(mu, [*remove, removed], [*add, added])]


KINDS: dict[str, Callable[[Any, Array, Asked], list[Directions]]] = {
    "balls-in-bins": _balls_in_bins,
    "random-allocation": _random_allocation,
    "cyclic-poisson": _cyclic_poisson,
    "truncated-poisson": _truncated_poisson,
    "b-min-sep": _b_min_sep,
}


# --- noise for a target ---------------------------------------------------------------------------


def amplified_noise_of(
    participation: Participation, rows: Any, *, epsilon: float, delta: float, **how: Unpack[How]
) -> tuple[float, Amplified]:
    """The noise over the clip that meets (epsilon, delta), and the account under it."""
    epsilon = _checks.scale(epsilon, field="epsilon")
    asked = Asked(delta=delta, **how)
    if participation.binned:
        return amplified_noise(bins_of(rows, participation), epsilon=epsilon, delta=delta, **how)
    matrix = _checks.matrix(rows, field="rows")
    if not matrix.any():
        raise InputError("rows", expected="a nonzero matrix", got="zeros: nothing is released")
    columns = float((matrix**2).sum(axis=0).max())
    plain = asked.steps * math.sqrt(columns * participation.largest_size)
    bracket = _Bracket(math.log(plain / mu_of(epsilon=epsilon, delta=delta)))
    for attempt in range(MOST_ACCOUNTS):
        found = amplified(
            participation,
            matrix,
            delta=delta,
            noise_multiplier=math.exp(bracket.point),
            adjacency=asked.adjacency,
            confidence=1 - asked.failure / MOST_ACCOUNTS,
            samples=asked.samples,
            seed=asked.seed + attempt,
        )
        best = bracket.told(found, epsilon)
        if best is not None:
            sure = None if best.confidence is None else asked.confidence
            return math.exp(bracket.high), replace(best, confidence=sure)
    expected = "a target that some finite noise meets"
    raise InputError("epsilon", expected=expected, got=f"{epsilon:g}")


class _Bracket:
    """A search for the noise at which epsilon is the target's, by logarithms of both."""

    def __init__(self, start: float) -> None:
        self.point, self._count = start, 0
        self.low, self.high = -math.inf, math.inf
        self._above, self._below = math.inf, -math.inf
        self._best: Amplified | None = None

    def told(self, found: Amplified, epsilon: float) -> Amplified | None:
        """Take in the account at ``point``, and go on to another; the best one where it ends."""
        self._count += 1
        ratio = found.epsilon / epsilon
        excess = math.log(min(max(ratio, math.exp(-2)), math.exp(2)))
        if found.epsilon <= epsilon:
            self.high, self._below, self._best = self.point, excess, found
        else:
            self.low, self._above = self.point, excess
        # Width, relative, of epsilon below the target or of the noise, at which the search ends.
        digits = 1e-4 if found.confidence is None else 1e-2
        near = self._below >= -digits or self.high - self.low <= digits
        if self._best is not None and (near or self._count == MOST_ACCOUNTS):
            return self._best
        self.point = self._next(digits / 2)
        return None

    def _next(self, aim: float) -> float:
        """A point by the line through both ends, every third time the middle."""
        if self.high == math.inf:
            return self.low + max(self._above, 1e-2)
        if self.low == -math.inf:
            return self.high + min(self._below, -1e-2)
        width = self.high - self.low
        share = 0.5
        if self._count % 3:
            share = (self._above + aim) / (self._above - self._below)
        return self.low + min(max(share, 0.01), 0.99) * width
