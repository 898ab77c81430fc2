"""From a squared sensitivity to the Renyi divergence most of these papers state."""

from __future__ import annotations

from typing import overload

from noisedesign import _checks
from noisedesign._checks import Array


@overload
def renyi_divergence(
    squared_sensitivity: float, *, alpha: float, sigma: float = ..., step_sensitivity: float = ...
) -> float: ...
@overload
def renyi_divergence(
    squared_sensitivity: Array, *, alpha: float, sigma: float = ..., step_sensitivity: float = ...
) -> Array: ...
def renyi_divergence(
    squared_sensitivity: float | Array,
    *,
    alpha: float,
    sigma: float = 1.0,
    step_sensitivity: float = 1.0,
) -> float | Array:
    """Renyi divergence of order alpha, alpha D^2 s / (2 sigma^2), of a Gaussian mechanism.

    Args:
        squared_sensitivity: s, squared, to gradients that change by at most 1; a number or an
            array of them.
        alpha: order, > 1.
        sigma: standard deviation of every node's noise, not squared.
        step_sensitivity: D, largest change of one clipped gradient, not squared.

    Raises:
        InputError: alpha <= 1, or sigma or step_sensitivity not positive.
    """
    alpha = _checks.real(alpha, field="alpha", low=1)
    sigma = _checks.real(sigma, field="sigma", low=0)
    step_sensitivity = _checks.real(step_sensitivity, field="step_sensitivity", low=0)
    return alpha * (step_sensitivity / sigma) ** 2 / 2 * squared_sensitivity
