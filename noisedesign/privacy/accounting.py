"""Conversions between mu, epsilon and delta of a design, a Gaussian mechanism, to the safe side.

delta is phi(x) I(x), x = epsilon / mu - mu / 2, of an integral I that loses no digits where mu or
delta is small (docs/accounts.md, "Conversions"); an x lowered by its rounding bounds it from above.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import erfcx, ndtr

from noisedesign.base import checks as _checks, settings
from noisedesign.base.checks import InputError
from noisedesign.privacy.target import (
    DEFAULT_ADJACENCY,
    RDP,
    WHISPER,
    PrivacyTarget,
    check_conversion,
)

LARGEST_MU = 1e150  # its square is still a double


def mu_of(*, epsilon: float, delta: float, conversion: str = "gdp") -> float:
    """Largest mu whose Gaussian mechanism is (epsilon, delta)-DP, rounded down.

    With L = log(1/delta), ``gdp`` is exact but for the last digits (Balle and Wang 2018, theorem 8;
    Dong, Roth and Su 2022, corollary 2.13), ``rdp`` the Renyi bound in the code of Whisper D-SGD,
    :math:`sqrt(2) (sqrt(L + epsilon) - sqrt(L))`, which asks for more noise, and ``whisper``
    equation (10) of its paper with the inequality the right way round, epsilon / (2 sqrt(L)) for
    epsilon < L (Proposition 1), which asks for more still.

    Args:
        epsilon: of the target, in [1e-100, 1e100].
        delta: of the target, in [1e-300, 1).
        conversion: "gdp", "rdp" or "whisper".

    Returns:
        mu, the GDP parameter, which is sensitivity over standard deviation, neither squared.

    Raises:
        InputError: epsilon outside [1e-100, 1e100], delta outside [1e-300, 1), unknown conversion;
            "whisper" and epsilon >= log(1/delta).

    Examples:
        >>> import math
        >>> import noisedesign as nd
        >>> mu = nd.privacy.mu_of(epsilon=3.0, delta=math.exp(-1), conversion="rdp")  # L = 1
        >>> print(f"{mu:.4f}")
        1.4142
    """
    epsilon = _checks.scale(epsilon, field="epsilon")
    delta = _delta(delta)
    name, large = check_conversion(conversion, epsilon=epsilon, delta=delta)
    if name == RDP:
        return renyi_mu(epsilon, delta)
    if name == WHISPER:
        return epsilon / (2 * math.sqrt(large))

    # The Renyi bound fits but for the allowances.
    return _last(renyi_mu(epsilon, delta), lambda mu: is_private(mu, epsilon, delta), step=2.0)


def _mu(value: Any) -> float:
    number = _checks.real(value, field="mu", low=0)
    if not _checks.SMALLEST <= number <= LARGEST_MU:
        expected = f"a number between {_checks.SMALLEST:g} and {LARGEST_MU:g}"
        raise InputError("mu", expected=expected, got=f"{number:g}")
    return number


def _delta(value: Any) -> float:
    number = _checks.real(value, field="delta", low=0, high=1)
    if number < LEAST:
        raise InputError("delta", expected=f"a number of at least {LEAST:g}", got=f"{number:g}")
    return number


def epsilon_of(*, mu: float, delta: float, conversion: str = "gdp") -> float:
    """Smallest epsilon at ``delta`` of a mu-GDP mechanism, rounded up; 0 where delta alone does.

    Args:
        mu: GDP parameter, not squared, in [1e-100, 1e150].
        delta: in [1e-300, 1).
        conversion: "gdp", "rdp" or "whisper", as of :func:`mu_of`.

    Returns:
        epsilon, at least 0.

    Raises:
        InputError: mu outside [1e-100, 1e150], delta outside [1e-300, 1), unknown conversion;
            "whisper" where it says nothing, mu >= sqrt(log(1/delta)) / 2.

    Examples:
        >>> import noisedesign as nd
        >>> print(f"{nd.privacy.epsilon_of(mu=1.0, delta=0.126937):.4f}")  # see delta_of
        1.0000
    """
    mu = _mu(mu)
    delta = _delta(delta)
    name, large = check_conversion(conversion, epsilon=0.0, delta=delta)
    if name == RDP:
        return renyi_epsilon(mu, delta)
    if name == WHISPER:
        published = 2 * mu * math.sqrt(large)
        check_conversion(name, epsilon=published, delta=delta)
        return published
    if is_private(mu, 0.0, delta):
        return 0.0

    return _last(renyi_epsilon(mu, delta), lambda eps: is_private(mu, eps, delta), step=0.5)


def delta_of(*, mu: float, epsilon: float) -> float:
    """Smallest delta at ``epsilon`` of a mu-GDP mechanism, rounded up.

    It is :math:`Q(x) - exp(epsilon) Q(x + mu)` with :math:`x = epsilon / mu - mu / 2` and Q the
    upper tail of the standard normal distribution (Dong, Roth and Su 2022, eq. (6)).

    Args:
        mu: GDP parameter, not squared, in [1e-100, 1e150].
        epsilon: in [1e-100, 1e100].

    Returns:
        delta, in [1e-300, 1]; what is below 1e-300 is told as that.

    Raises:
        InputError: mu outside [1e-100, 1e150], epsilon outside [1e-100, 1e100].

    Examples:
        >>> import noisedesign as nd
        >>> print(f"{nd.privacy.delta_of(mu=1.0, epsilon=1.0):.6f}")  # Q(1/2) - e Q(3/2)
        0.126937
    """
    mu, epsilon = _mu(mu), _checks.scale(epsilon, field="epsilon")
    return delta_above(mu, epsilon)


def renyi_of(*, mu: float, alpha: float) -> float:
    """Renyi divergence, of order alpha, of two runs of a mu-GDP mechanism: :math:`alpha mu^2 / 2`.

    Exact for a Gaussian mechanism (Mironov 2017, Proposition 7).

    Args:
        mu: GDP parameter, not squared, at least 0; may be infinite.
        alpha: order, greater than 1.

    Returns:
        The divergence, in nats.

    Raises:
        InputError: alpha <= 1, mu negative.

    Examples:
        >>> import noisedesign as nd
        >>> nd.privacy.renyi_of(mu=3.0, alpha=2.0)
        9.0
    """
    alpha = _checks.real(alpha, field="alpha", low=1)
    if not (isinstance(mu, float) and mu == math.inf):
        mu = _checks.nonnegative(mu, field="mu")
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
        epsilon: of the target, in [1e-100, 1e100].
        delta: of the target, in [1e-300, 1).
        clip: bound on the norm of one record's gradient at one step, not squared.
        adjacency: "replace" (a step changes by up to 2 clip), "zero-out" or "add-remove" (clip).

    Returns:
        sqrt(sensitivity_squared) times the largest change of a step, over mu; not squared, in the
        units of the clip.

    Raises:
        InputError: as :class:`PrivacyTarget`; a sensitivity that no noise makes up for.

    Examples:
        >>> import noisedesign as nd
        >>> goal = {"epsilon": 1.0, "delta": 1e-6}
        >>> stddev = nd.privacy.noise_stddev_for(sensitivity_squared=9.0, clip=0.5, **goal)
        >>> print(f"{stddev * nd.privacy.mu_of(**goal):.4f}")  # sqrt(9) * (2 * 0.5)
        3.0000
    """
    squared = _checks.nonnegative(sensitivity_squared, field="sensitivity_squared")
    target = PrivacyTarget(epsilon=epsilon, delta=delta, clip=clip, adjacency=adjacency)
    return math.sqrt(squared) * target.step_sensitivity / mu_of(epsilon=epsilon, delta=delta)


ALLOWANCE = 1e-11  # rounding allowed for, of delta: its exponential keeps 1e-13, the rest 1e-14
LEAST = 1e-300  # the least delta whose digits hold; what is below is told as this
SMALL = 1.0  # mu up to which the difference is taken as an integral
NODES, WEIGHTS = np.polynomial.legendre.leggauss(80)  # exact over 50 units of an exponent


def delta_above(mu: float, epsilon: float) -> float:
    """Smallest delta of a mu-GDP mechanism at epsilon, rounded up; at least LEAST, at most 1."""
    x = _point(mu, epsilon)
    return min(max((1 + ALLOWANCE) * _difference(x, mu), LEAST), 1.0)


def is_private(mu: float, epsilon: float, delta: float) -> bool:
    """Whether a mu-GDP mechanism surely is (epsilon, delta)-DP."""
    if delta <= 0.5:
        return delta_above(mu, epsilon) <= delta
    # Close to 1 the digits are in 1 - delta = Phi(x) + e^epsilon Q(x + mu), a sum.
    x = _point(mu, epsilon)
    rest = float(ndtr(x)) + _density_times(x, _tail_ratio(x + mu))
    return (1 - ALLOWANCE) * rest >= 1 - delta


def renyi_mu(epsilon: float, delta: float) -> float:
    """mu of the Renyi bound, sqrt(2) (sqrt(L + epsilon) - sqrt(L)), L = log(1 / delta)."""
    log_inverse = -math.log(delta)
    return math.sqrt(2) * epsilon / (math.sqrt(log_inverse + epsilon) + math.sqrt(log_inverse))


def renyi_epsilon(mu: float, delta: float) -> float:
    """Epsilon of the Renyi bound, mu^2 / 2 + mu sqrt(2 L)."""
    return mu * (mu / 2 + math.sqrt(-2 * math.log(delta)))


def _last(inside: float, fits: Callable[[float], bool], *, step: float) -> float:
    """The last number that fits on the way by factors ``step`` to those that do not."""
    while not fits(inside):
        inside /= step
    outside = step * inside
    while outside > 0 and fits(outside):
        inside, outside = outside, step * outside
    while True:
        middle = (inside + outside) / 2
        if middle in (inside, outside):
            return inside
        inside, outside = (middle, outside) if fits(middle) else (inside, middle)


def _point(mu: float, epsilon: float) -> float:
    """x, not above its true value."""
    first, second = epsilon / mu, mu / 2
    return first - second - 8 * settings.EPS * (first + second)  # the rounding of a difference


def _difference(x: float, mu: float) -> float:
    """Q(x) - e^epsilon Q(x + mu)."""
    if mu <= SMALL:
        return _density_times(x, _integral(x, mu))
    if x < 0:
        return float(ndtr(-x)) - _density_times(x, _tail_ratio(x + mu))
    return _density_times(x, _tail_ratio(x) - _tail_ratio(x + mu))


def _density_times(x: float, factor: float) -> float:
    """exp(-x^2 / 2) / sqrt(2 pi) times a factor; x may be beyond the root of all doubles."""
    if factor == 0 or abs(x) > 1e10:
        return 0.0
    return math.exp(-x * x / 2) / math.sqrt(2 * math.pi) * factor


def _tail_ratio(x: float) -> float:
    """Q(x) / phi(x), for x that is not far below 0."""
    return math.sqrt(math.pi / 2) * float(erfcx(x / math.sqrt(2)))


def _integral(x: float, mu: float) -> float:
    """I(x): x >= -mu / 2 - rounding, mu <= SMALL."""
    if x > 1e10:
        return 0.0
    end = 2 * 50.0 / (x + math.sqrt(x * x + 2 * 50.0))  # where the integrand has lost 21 digits
    s = end / 2 * (1 + NODES)
    return float(end / 2 * (WEIGHTS @ (np.exp(-s * (s / 2 + x)) * -np.expm1(-s * mu))))
