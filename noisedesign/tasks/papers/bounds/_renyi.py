"""From a squared sensitivity to the Renyi divergence most of these papers state."""

from __future__ import annotations

from typing import overload

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array


@overload
def renyi_divergence(
    squared_sensitivity: float,
    *,
    alpha: float,
    noise_stddev: float = ...,
    step_sensitivity: float = ...,
) -> float: ...
@overload
def renyi_divergence(
    squared_sensitivity: Array,
    *,
    alpha: float,
    noise_stddev: float = ...,
    step_sensitivity: float = ...,
) -> Array: ...
def renyi_divergence(
    squared_sensitivity: float | Array,
    *,
    alpha: float,
    noise_stddev: float = 1.0,
    step_sensitivity: float = 1.0,
) -> float | Array:
    """Renyi divergence of order alpha, alpha D^2 s / (2 noise_stddev^2), of a Gaussian mechanism.

    Args:
        squared_sensitivity: s, squared, to gradients that change by at most 1; a number or an
            array of them.
        alpha: order, > 1.
        noise_stddev: standard deviation of every node's noise, not squared.
        step_sensitivity: D, largest change of one clipped gradient, not squared.

    Raises:
        InputError: alpha <= 1, or noise_stddev or step_sensitivity not positive.
    """
    alpha = _checks.real(alpha, field="alpha", low=1)
    noise_stddev = _checks.real(noise_stddev, field="noise_stddev", low=0)
    step_sensitivity = _checks.real(step_sensitivity, field="step_sensitivity", low=0)
    return alpha * (step_sensitivity / noise_stddev) ** 2 / 2 * squared_sensitivity
