"""From a design to mu, epsilon and delta, and back.

Every design here is a Gaussian mechanism: with sensitivity D and noise of standard deviation 1 it
is D-GDP, exactly. Conversion to (epsilon, delta) is left to a maintained accountant.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from noisedesign import _checks
from noisedesign._checks import InputError
from noisedesign.privacy_target import CONVERSIONS, PrivacyTarget
from noisedesign.problem import Problem, SpaceProblem, SpaceTimeProblem

LARGE_MU = 1e6
"""Above it the Renyi bound on epsilon is exact to 1e-5 and errs upwards, while the accountant's
search stops at a relative tolerance, on either side."""


def _accountant() -> Any:
    # Imported late: it takes longer to load than most designs take to solve.
    import dp_accounting

    return dp_accounting


def mu_of(*, epsilon: float, delta: float, conversion: str = "gdp") -> float:
    """Largest mu whose Gaussian mechanism is (epsilon, delta)-DP.

    ``gdp`` is exact. ``rdp`` is the rule published with Whisper D-SGD: the Renyi bound
    mu^2 / 2 + sqrt(2 mu^2 log(1/delta)) = epsilon, that is
    mu = sqrt(2) (sqrt(L + epsilon) - sqrt(L)), L = log(1/delta); it asks for more noise.

    Raises:
        InputError: epsilon <= 0, delta outside (0, 1), unknown conversion.
    """
    epsilon = _checks.real(epsilon, field="epsilon", low=0)
    delta = _checks.real(delta, field="delta", low=0, high=1)
    _checks.one_of(conversion, field="conversion", allowed=CONVERSIONS)
    if conversion == "rdp":
        log_inverse = math.log(1 / delta)
        return math.sqrt(2) * (math.sqrt(log_inverse + epsilon) - math.sqrt(log_inverse))
    return 1 / float(_accountant().get_sigma_gaussian(epsilon, delta))


def epsilon_of(*, mu: float, delta: float, conversion: str = "gdp") -> float:
    """Smallest epsilon at ``delta`` of a mu-GDP mechanism; see :func:`mu_of`.

    Raises:
        InputError: mu <= 0, delta outside (0, 1), unknown conversion.
    """
    mu = _checks.real(mu, field="mu", low=0)
    delta = _checks.real(delta, field="delta", low=0, high=1)
    _checks.one_of(conversion, field="conversion", allowed=CONVERSIONS)
    if conversion == "rdp" or mu > LARGE_MU:
        return mu * mu / 2 + mu * math.sqrt(2 * math.log(1 / delta))
    return float(_accountant().get_epsilon_gaussian(1 / mu, delta))


def delta_of(*, mu: float, epsilon: float) -> float:
    """Smallest delta at ``epsilon`` of a mu-GDP mechanism (Dong, Roth and Su 2022, eq. (6))."""
    from dp_accounting.pld import privacy_loss_mechanism

    mu = _checks.real(mu, field="mu", low=0)
    epsilon = _checks.real(epsilon, field="epsilon", low=0)
    loss = privacy_loss_mechanism.GaussianPrivacyLoss(standard_deviation=1 / mu)
    return float(loss.get_delta_for_epsilon(epsilon))


def renyi_of(*, mu: float, alpha: float) -> float:
    """Renyi divergence of order alpha between two runs of a mu-GDP mechanism: alpha mu^2 / 2.

    Exact for a Gaussian mechanism (Mironov 2017, Proposition 7); mu may be 0 or infinite.

    Raises:
        InputError: alpha <= 1, mu negative.
    """
    alpha = _checks.real(alpha, field="alpha", low=1)
    if not mu >= 0:
        raise InputError("mu", expected="a number >= 0", got=f"{mu:g}")
    return alpha * mu * mu / 2


def sigma_for(
    *, sensitivity_squared: float, epsilon: float, delta: float, step_sensitivity: float = 1.0
) -> float:
    """Factor on the standard deviation of the noise that meets (epsilon, delta).

    Args:
        sensitivity_squared: squared sensitivity to unit changes, for unit noise.
        step_sensitivity: largest change of a step's gradient over the clip, not squared.

    Raises:
        InputError: as :func:`mu_of`; a sensitivity that no noise makes up for.
    """
    squared = _checks.real(sensitivity_squared, field="sensitivity_squared")
    if squared < 0:
        raise InputError("sensitivity_squared", expected="a number >= 0", got=f"{squared:g}")
    change = _checks.real(step_sensitivity, field="step_sensitivity", low=0)
    return math.sqrt(squared) * change / mu_of(epsilon=epsilon, delta=delta)


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """How much to scale a design's noise to meet a privacy target.

    Attributes:
        mu: GDP parameter of the whole run after scaling, for the least protected node.
        noise_multiplier: factor on the standard deviation of the design's noise (so its square
            multiplies R); 1 where the problem has no target.
        steps: independent rounds a spatial design is composed over, or the horizon in time.
        step_sensitivity: largest change of one step's clipped gradient, not squared.
    """

    mu: float
    noise_multiplier: float
    steps: int
    step_sensitivity: float
    epsilon: float | None = None
    delta: float | None = None
    adjacency: str | None = None
    conversion: str | None = None


def calibrate(problem: Problem) -> Calibration:
    """Noise multiplier that makes a design of ``problem`` meet its privacy target.

    A spatial design used for T independent steps under step sensitivity D is mu-GDP with
    mu^2 = D^2 T max_i [R^-1]_ii / multiplier^2, and max_i [R^-1]_ii is at most its budget. A
    temporal design of unit sensitivity covers its whole horizon: mu = D / multiplier. Without a
    target the noise is left as it is and mu is stated for unit step sensitivity.

    A spatial target that names no steps is taken for one step. Noise against chosen observers is
    mu-GDP towards each of them over its whole horizon, for a record that takes part once.
    """
    target: PrivacyTarget | None = problem.privacy
    unit: float
    if isinstance(problem, SpaceProblem) and problem.observers:
        steps, unit = problem.horizon, math.sqrt(float(problem.budget.max()))
    elif isinstance(problem, SpaceProblem):
        steps = 1 if target is None or target.steps is None else target.steps
        unit = math.sqrt(steps * float(problem.budget.max()))
    elif isinstance(problem, SpaceTimeProblem):
        steps, unit = problem.participation.horizon, math.sqrt(float(problem.budget.max()))
    else:
        steps, unit = problem.participation.horizon, 1.0
    if target is None:
        return Calibration(mu=unit, noise_multiplier=1.0, steps=steps, step_sensitivity=1.0)
    mu = mu_of(epsilon=target.epsilon, delta=target.delta, conversion=target.conversion)
    multiplier = target.step_sensitivity * unit / mu
    if not math.isfinite(multiplier):
        raise InputError(
            "privacy", expected="a target that some finite noise meets", got=f"mu = {mu:.3g}"
        )
    return Calibration(
        mu=mu, noise_multiplier=multiplier, steps=steps, step_sensitivity=target.step_sensitivity,
        epsilon=target.epsilon, delta=target.delta, adjacency=target.adjacency,
        conversion=target.conversion,
    )  # fmt: skip
