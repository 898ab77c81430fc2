"""Epsilon of a record under random participation, proved; and the noise that a target asks for.

Two directions count: remove, E_Q (L - e^epsilon)_+, and add, E_Q (1 - e^epsilon L)_+, Q being the
run without the record. Each has several upper bounds, of which the least is taken:

- unamplified: the Gaussian mechanism of the largest bin, as if the bin were known;
- convolution: deterministic, nearly exact where bins are orthogonal and alike, and an upper bound
  elsewhere, by a larger Gram matrix of that kind;
- renyi: deterministic, by moments of the likelihood ratio, for any Gram matrix (remove alone);
- monte-carlo: by samples, with a confidence (:mod:`.sampled`).

"replace" adjacency is a removal and an addition in a row: delta(e1 + e2) <= remove(e1) +
e^e1 add(e2), at the best split.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import brentq

from noisedesign.base import checks as _checks
from noisedesign.base.checks import InputError
from noisedesign.privacy.accounting import LEAST, delta_above, epsilon_of, mu_of
from noisedesign.privacy.amplification.directions import (
    MONTE_CARLO,
    RESOLVED,
    UNAMPLIFIED,
    Bins,
    Directions,
    SampledDirections,
)
from noisedesign.privacy.amplification.mixture import Mixture
from noisedesign.privacy.amplification.sampled import samples_for
from noisedesign.privacy.amplification.search import (
    DIGITS,
    REPLACE,
    Parts,
    best_share,
    best_split,
    least_delta,
    least_epsilon,
)
from noisedesign.privacy.target import ADJACENCIES, DEFAULT_ADJACENCY

AUTO, PROVED = "auto", "proved"
METHODS = (AUTO, PROVED, MONTE_CARLO)

CONFIDENCE = 1 - 1e-6
"""Default of what rests on samples."""


@dataclass(frozen=True, kw_only=True)
class Amplified:
    """Privacy of one record under random participation.

    Attributes:
        epsilon: what is proved, at ``delta``; infinite where nothing finite is.
        delta: the delta it belongs to.
        which: what proves the direction that decides: "convolution", "renyi", "monte-carlo" or
            "unamplified"; followed by the name of the bound where the mixture is an upper bound.
        confidence: probability that epsilon is right, where samples enter; else None.
        epsilon_estimate: an estimate, not a bound, where samples enter; else None.
        adjacency: "replace", "zero-out" or "add-remove".
        remove: epsilon of the direction with the record against without, at ``delta``; under
            "replace" its part of epsilon.
        add: the same of without against with.

    Examples:
        >>> import numpy as np
        >>> from noisedesign.privacy.amplification import Mixture, amplified_epsilon
        >>> mixture = Mixture(gram=np.eye(16))
        >>> result = amplified_epsilon(mixture, delta=1e-5, adjacency="zero-out")
        >>> print(f"{result.epsilon:.2f}", result.which)
        1.79 convolution
    """

    epsilon: float
    delta: float
    which: str
    confidence: float | None
    epsilon_estimate: float | None
    adjacency: str
    remove: float
    add: float


def amplified_epsilon(
    mixture: Mixture,
    *,
    delta: float,
    noise_multiplier: float = 1.0,
    adjacency: str = DEFAULT_ADJACENCY,
    confidence: float = CONFIDENCE,
    samples: int | None = None,
    seed: int = 0,
    method: str = AUTO,
) -> Amplified:
    """Smallest epsilon that is proved at delta, both directions counted.

    Args:
        mixture: the bins of one record, for unit changes and unit noise.
        delta: in [1e-300, 1).
        noise_multiplier: standard deviation of the noise over the clip, not squared.
        adjacency: "replace" (by a removal and an addition), "zero-out" or "add-remove", for which
            batches are divided by a fixed number, never by the size drawn.
        confidence: probability that epsilon is right where it rests on samples, in [0.5, 1).
        samples: of each direction; None: 131,072, fewer where bins are hundreds.
        seed: of the samples, an integer >= 0.
        method: "proved", without samples; "monte-carlo", by samples alone; "auto", without samples
            where bins are orthogonal and alike, else the least of all bounds.

    Returns:
        epsilon, what proves it, and the two directions.

    Raises:
        InputError: ``delta``, ``noise_multiplier``, ``adjacency``, ``confidence``, ``samples``,
            ``seed`` or ``method``; too few samples for "monte-carlo" to see so small a delta.

    Examples:
        >>> import numpy as np
        >>> from noisedesign.privacy.amplification import Mixture, amplified_epsilon
        >>> bins = Mixture(gram=4 * np.eye(16))
        >>> for kind in ("zero-out", "replace"):
        ...     found = amplified_epsilon(bins, delta=1e-5, noise_multiplier=2, adjacency=kind)
        ...     print(f"{found.epsilon:.3f}: {found.remove:.3f}, {found.add:.3f}", found.which)
        1.788: 1.788, 1.076 convolution
        3.117: 1.834, 1.283 convolution
    """
    asked = _Asked.of(mixture, delta, adjacency, confidence, samples, seed, method)
    noise = _checks.scale(noise_multiplier, field="noise_multiplier")
    bins = Bins(mixture)
    if not asked.draws(mixture):
        return _amplified(bins.proved(noise), asked)
    # Where to look is found with other samples than those that prove.
    pilot, share = _pilot(bins, noise, asked)
    alone = asked.method == MONTE_CARLO
    found = bins.sampled(
        noise,
        (pilot.remove, pilot.add),
        asked.samples,
        asked.failure,
        asked.generator(1),
        alone=alone,
    )
    return _amplified(found, asked, share)


def amplified_delta(
    mixture: Mixture,
    *,
    epsilon: float,
    noise_multiplier: float = 1.0,
    adjacency: str = DEFAULT_ADJACENCY,
    confidence: float = CONFIDENCE,
    samples: int | None = None,
    seed: int = 0,
    method: str = AUTO,
) -> float:
    """Smallest delta that is proved at epsilon, both directions counted.

    Args:
        mixture: the bins of one record, for unit changes and unit noise.
        epsilon: of the target, in [1e-100, 1e100].
        noise_multiplier: standard deviation of the noise over the clip, not squared.
        adjacency: as of :func:`amplified_epsilon`.
        confidence: as of :func:`amplified_epsilon`.
        samples: as of :func:`amplified_epsilon`.
        seed: as of :func:`amplified_epsilon`.
        method: as of :func:`amplified_epsilon`.

    Returns:
        delta, in [1e-300, 1]; with probability ``confidence`` where it rests on samples.

    Raises:
        InputError: ``epsilon``, and as :func:`amplified_epsilon`.

    Examples:
        >>> import numpy as np
        >>> from noisedesign.privacy.amplification import Mixture, amplified_delta
        >>> bins = Mixture(gram=np.eye(16))
        >>> print(f"{amplified_delta(bins, epsilon=2.0, adjacency='zero-out'):.3g}")
        3.3e-06
    """
    epsilon = _checks.scale(epsilon, field="epsilon")
    asked = _Asked.of(mixture, 0.5, adjacency, confidence, samples, seed, method)
    noise = _checks.scale(noise_multiplier, field="noise_multiplier")
    bins = Bins(mixture)
    directions = bins.proved(noise)
    if asked.draws(mixture):
        at = (epsilon / asked.steps, epsilon / asked.steps)
        fresh = asked.generator(1)
        alone = asked.method == MONTE_CARLO
        split = None
        if asked.adjacency == REPLACE:
            ahead = bins.sampled(
                noise, at, PILOT, asked.failure, asked.generator(0), as_if=asked.samples
            )
            split = best_split(ahead.remove, ahead.add, epsilon=epsilon)
        directions = bins.sampled(noise, at, asked.samples, asked.failure, fresh, alone=alone)
        return _delta_of(directions, epsilon, asked, split)
    return _delta_of(directions, epsilon, asked)


def amplified_noise(
    mixture: Mixture,
    *,
    epsilon: float,
    delta: float,
    adjacency: str = DEFAULT_ADJACENCY,
    confidence: float = CONFIDENCE,
    samples: int | None = None,
    seed: int = 0,
    method: str = AUTO,
) -> tuple[float, Amplified]:
    """Smallest noise that is proved to meet (epsilon, delta), both directions counted.

    Where it rests on samples, the noise is searched with some, and proved once by fresh ones. Where
    they fail to, a little more noise is tried; every try has its share of 1 - confidence.

    Args:
        mixture: the bins of one record, for unit changes and unit noise.
        epsilon: of the target, in [1e-100, 1e100].
        delta: of the target, in [1e-300, 1).
        adjacency: as of :func:`amplified_epsilon`.
        confidence: as of :func:`amplified_epsilon`.
        samples: as of :func:`amplified_epsilon`.
        seed: as of :func:`amplified_epsilon`.
        method: as of :func:`amplified_epsilon`.

    Returns:
        The standard deviation of the noise over the clip, not squared, and the account under it.

    Raises:
        InputError: ``epsilon``, and as :func:`amplified_epsilon`; a Gram matrix of zeros.

    Examples:
        A quarter of the variance of fixed participation, as of the known bin:

        >>> import numpy as np
        >>> import noisedesign as nd
        >>> from noisedesign.privacy.amplification import Mixture, amplified_noise
        >>> goal = {"epsilon": 2.0, "delta": 1e-4}
        >>> mixture = Mixture(gram=20 * np.eye(16))
        >>> noise, account = amplified_noise(mixture, adjacency="zero-out", **goal)
        >>> fixed = 20**0.5 / nd.mu_of(**goal)
        >>> print(f"{noise**2 / fixed**2:.3f}", account.which)
        0.240 convolution
    """
    epsilon = _checks.scale(epsilon, field="epsilon")
    asked = _Asked.of(mixture, delta, adjacency, confidence, samples, seed, method)
    top = math.sqrt(mixture.sensitivity_squared)
    if not top:
        raise InputError("gram", expected="a nonzero matrix", got="zeros: nothing is released")
    plain = asked.steps * top / mu_of(epsilon=epsilon, delta=delta)
    bins = Bins(mixture)
    if not asked.draws(mixture):
        noise = _searched(lambda noise: _delta_of(bins.proved(noise), epsilon, asked), plain, delta)
        return noise, _meeting(bins.proved(noise), epsilon, asked)
    at = (epsilon / asked.steps, epsilon / asked.steps)
    alone = asked.method == MONTE_CARLO

    def ahead(noise: float) -> SampledDirections:
        return bins.sampled(
            noise, at, PILOT, asked.failure, asked.generator(0), alone=alone, as_if=asked.samples
        )

    noise = _searched(
        lambda noise: _delta_of(ahead(noise), epsilon, asked), plain, delta, digits=FORECAST
    )
    share = _share(ahead(noise), asked)
    for attempt in range(1, ATTEMPTS + 1):
        noise = min(noise * (1 + FORECAST * attempt), plain)
        failure, fresh = asked.failure / 2**attempt, asked.generator(attempt)
        found = bins.sampled(noise, at, asked.samples, failure, fresh, alone=alone)
        if noise == plain or _meets(found, epsilon, asked, share):
            break
    else:  # what the last attempt left of the failure
        noise = plain
        found = bins.sampled(noise, at, asked.samples, failure, fresh, alone=alone)
    return noise, _meeting(found, epsilon, asked, share)


PILOT = 2**14
"""Samples of a search, whose result is proved by others."""

FORECAST = 2e-3
"""Relative digits of noise that a search with samples is for."""

ATTEMPTS = 20
"""To prove what was searched, before amplification is given up."""


@dataclass(frozen=True)
class _Asked:
    """What the arguments say, checked."""

    delta: float
    adjacency: str
    failure: float
    samples: int
    seed: int
    method: str

    @classmethod
    def of(
        cls,
        mixture: Mixture,
        delta: Any,
        adjacency: Any,
        confidence: Any,
        samples: Any,
        seed: Any,
        method: Any,
    ) -> _Asked:
        sure = _checks.real(confidence, field="confidence", low=0, high=1)
        if sure < 0.5:
            raise InputError("confidence", expected="a number in [0.5, 1)", got=f"{sure:g}")
        number = samples_for(mixture.bins) if samples is None else samples
        return cls(
            delta=_delta(delta),
            adjacency=_checks.one_of(adjacency, field="adjacency", allowed=ADJACENCIES),
            failure=1 - sure,
            samples=_checks.positive_int(number, field="samples", minimum=100),
            seed=_checks.seed(seed, field="seed"),
            method=_checks.one_of(method, field="method", allowed=METHODS),
        )

    @property
    def steps(self) -> int:
        """Changes of one record in a row: two where it becomes another."""
        return 2 if self.adjacency == REPLACE else 1

    def generator(self, stage: int) -> np.random.Generator:
        """Samples of one stage, independent of those of the others."""
        return np.random.default_rng([self.seed, stage])

    def draws(self, mixture: Mixture) -> bool:
        """Whether there are samples at all."""
        if mixture.bins == 1 or not mixture.sensitivity_squared:
            return False
        return self.method == MONTE_CARLO or (self.method == AUTO and not mixture.even)


def _delta(value: Any) -> float:
    number = _checks.real(value, field="delta", low=0, high=1)
    if number < LEAST:
        raise InputError("delta", expected=f"a number of at least {LEAST:g}", got=f"{number:g}")
    return number


def _pilot(bins: Bins, noise: float, asked: _Asked) -> tuple[Parts, float | None]:
    """Where the two directions are about to meet delta, and how they are to share it."""
    top = math.sqrt(bins.mixture.scaled(noise).sensitivity_squared)
    start = epsilon_of(mu=top, delta=asked.delta)
    at = (start, start)
    for stage in (2, 3):  # the second with samples drawn about where the first one ends
        fresh = np.random.default_rng([asked.seed, 0, stage])
        found = bins.sampled(noise, at, PILOT, asked.failure, fresh)
        parts = least_epsilon(*found.estimates, delta=asked.delta, adjacency=asked.adjacency)
        parts = Parts(*(min(epsilon, 2 * start) for epsilon in parts))  # none may be finite
        at = (parts.remove, parts.add)
    fresh = np.random.default_rng([asked.seed, 0, 4])
    return parts, _share(
        bins.sampled(noise, at, PILOT, asked.failure, fresh, as_if=asked.samples), asked
    )


def _share(ahead: SampledDirections, asked: _Asked) -> float | None:
    """Share of delta for the removal under "replace", from other samples than those that prove: a
    share that these choose would be one of many, each of which may fail."""
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
    directions: Directions, epsilon: float, asked: _Asked, split: float | None = None
) -> float:
    found = least_delta(
        directions.remove, directions.add, epsilon=epsilon, adjacency=asked.adjacency, split=split
    )
    top = asked.steps * directions.top
    return min(found, delta_above(top, epsilon)) if top else LEAST


def _meets(
    directions: SampledDirections, epsilon: float, asked: _Asked, share: float | None
) -> bool:
    """Whether fresh samples prove that noise meets the target."""
    if share is None:
        return _delta_of(directions, epsilon, asked) <= asked.delta
    return _amplified(directions, asked, share).epsilon <= epsilon


def _meeting(
    directions: Directions, epsilon: float, asked: _Asked, share: float | None = None
) -> Amplified:
    """The account of noise whose delta at epsilon is met."""
    found = _amplified(directions, asked, share)
    return replace(found, epsilon=min(found.epsilon, epsilon))


def _estimate(directions: SampledDirections, parts: Parts, asked: _Asked) -> float | None:
    """Epsilon by the means of samples; None where too few of them matter."""
    for remove, part, other in ((True, parts.remove, parts.add), (False, parts.add, parts.remove)):
        decides = asked.adjacency == REPLACE or part >= other
        if decides and not directions.resolved(part, remove=remove):
            if directions.alone:
                hits = directions.of(remove=remove).mean(part) * asked.samples
                needed = asked.samples * RESOLVED / max(hits, 1e-3)
                raise InputError(
                    "samples",
                    expected=f"{needed:.1g} or more, so that samples see a delta of "
                    f"{asked.delta:g} in the direction {'remove' if remove else 'add'}",
                    got=f"{asked.samples}",
                    remedy='Ask for method = "auto", which bounds it in other ways too.',
                )
            return None
    found = least_epsilon(*directions.estimates, delta=asked.delta, adjacency=asked.adjacency)
    return found.epsilon


def _amplified(directions: Directions, asked: _Asked, share: float | None = None) -> Amplified:
    delta, adjacency = asked.delta, asked.adjacency
    parts = least_epsilon(
        directions.remove, directions.add, delta=delta, adjacency=adjacency, share=share
    )
    names = {
        remove: directions.which(parts.remove if remove else parts.add, remove=remove)
        for remove in (True, False)
    }
    decides = parts.remove >= parts.add
    which = names[decides]
    if directions.top:
        plain = epsilon_of(mu=asked.steps * directions.top, delta=delta)
        if plain <= parts.epsilon * (1 + DIGITS):
            parts, which = Parts(plain, plain / asked.steps, plain / asked.steps), UNAMPLIFIED
            names = dict.fromkeys(names, UNAMPLIFIED)
    confidence, estimate = None, None
    if isinstance(directions, SampledDirections):
        estimate = _estimate(directions, parts, asked)
        if MONTE_CARLO in names.values():
            confidence = 1 - asked.failure
    upper = directions.mixture.upper
    return Amplified(
        epsilon=parts.epsilon,
        delta=delta,
        which=f"{which} of {upper}" if upper else which,
        confidence=confidence,
        epsilon_estimate=estimate,
        adjacency=adjacency,
        remove=parts.remove,
        add=parts.add,
    )
