"""From a design to mu, epsilon and delta, and back.

Every design here is a Gaussian mechanism: with sensitivity D and noise of standard deviation 1 it
is D-GDP, exactly. Conversion to (epsilon, delta) rounds to the safe side: no mu is larger than
allowed, no epsilon or delta smaller than what holds.
"""

from __future__ import annotations

import math
from typing import Any

from noisedesign.base import checks as _checks
from noisedesign.base.checks import InputError
from noisedesign.privacy import gaussian as gaussian_privacy
from noisedesign.privacy.target import CONVERSIONS, DEFAULT_ADJACENCY, PrivacyTarget

LARGEST_MU = 1e150
"""Its square is still a double."""


def mu_of(*, epsilon: float, delta: float, conversion: str = "gdp") -> float:
    """Largest mu whose Gaussian mechanism is (epsilon, delta)-DP, rounded down.

    ``gdp`` is exact but for the last digits. ``rdp`` is the rule published with Whisper D-SGD: the
    Renyi bound
    mu^2 / 2 + sqrt(2 mu^2 log(1/delta)) = epsilon, that is
    mu = sqrt(2) (sqrt(L + epsilon) - sqrt(L)), L = log(1/delta); it asks for more noise.

    Raises:
        InputError: epsilon outside [1e-100, 1e100], delta outside [1e-300, 1), unknown conversion.
    """
    epsilon = _checks.scale(epsilon, field="epsilon")
    delta = _delta(delta)
    _checks.one_of(conversion, field="conversion", allowed=CONVERSIONS)
    if conversion == "rdp":
        return gaussian_privacy.renyi_mu(epsilon, delta)
    return gaussian_privacy.mu_below(epsilon, delta)


def _mu(value: Any) -> float:
    number = _checks.real(value, field="mu", low=0)
    if not _checks.SMALLEST <= number <= LARGEST_MU:
        raise InputError(
            "mu",
            expected=f"a number between {_checks.SMALLEST:g} and {LARGEST_MU:g}",
            got=f"{number:g}",
        )
    return number


def _delta(value: Any) -> float:
    number = _checks.real(value, field="delta", low=0, high=1)
    if number < gaussian_privacy.LEAST:
        raise InputError(
            "delta", expected=f"a number of at least {gaussian_privacy.LEAST:g}", got=f"{number:g}"
        )
    return number


def epsilon_of(*, mu: float, delta: float, conversion: str = "gdp") -> float:
    """Smallest epsilon at ``delta`` of a mu-GDP mechanism, rounded up; see :func:`mu_of`.

    Raises:
        InputError: mu outside [1e-100, 1e150], delta outside [1e-300, 1), unknown conversion.
    """
    mu = _mu(mu)
    delta = _delta(delta)
    _checks.one_of(conversion, field="conversion", allowed=CONVERSIONS)
    if conversion == "rdp":
        return gaussian_privacy.renyi_epsilon(mu, delta)
    return gaussian_privacy.epsilon_above(mu, delta)


def delta_of(*, mu: float, epsilon: float) -> float:
    """Smallest delta at ``epsilon`` of a mu-GDP mechanism, rounded up (Dong, Roth and Su 2022,
    eq. (6)); what is below 1e-300 is told as that.

    Raises:
        InputError: mu outside [1e-100, 1e150], epsilon outside [1e-100, 1e100].
    """
    mu, epsilon = _mu(mu), _checks.scale(epsilon, field="epsilon")
    return gaussian_privacy.delta_above(mu, epsilon)


def renyi_of(*, mu: float, alpha: float) -> float:
    """Renyi divergence of order alpha between two runs of a mu-GDP mechanism: alpha mu^2 / 2.

    Exact for a Gaussian mechanism (Mironov 2017, Proposition 7); mu may be 0 or infinite.

    Raises:
        InputError: alpha <= 1, mu negative.
    """
    alpha = _checks.real(alpha, field="alpha", low=1)
    if not (isinstance(mu, float) and mu == math.inf):
        mu = _checks.real(mu, field="mu")
    if mu < 0:
        raise InputError("mu", expected="a number >= 0", got=f"{mu:g}")
    return alpha * mu * mu / 2


def noise_stddev_for(
    *,
    sensitivity_squared: float,
    epsilon: float,
    delta: float,
    clip: float = 1.0,
    adjacency: str = DEFAULT_ADJACENCY,
) -> float:
    """Factor on the standard deviation of the noise that meets (epsilon, delta).

    Args:
        sensitivity_squared: squared sensitivity to unit changes, for unit noise.
        clip: bound on the norm of one record's gradient at one step.
        adjacency: "replace" (a step changes by up to 2 clip), "zero-out" or "add-remove" (clip).

    Raises:
        InputError: as :class:`PrivacyTarget`; a sensitivity that no noise makes up for.
    """
    squared = _checks.real(sensitivity_squared, field="sensitivity_squared")
    if squared < 0:
        raise InputError("sensitivity_squared", expected="a number >= 0", got=f"{squared:g}")
    target = PrivacyTarget(epsilon=epsilon, delta=delta, clip=clip, adjacency=adjacency)
    return math.sqrt(squared) * target.step_sensitivity / mu_of(epsilon=epsilon, delta=delta)
