"""Privacy losses composed: never below the composition of what they stand for."""

from __future__ import annotations

import math

import numpy as np
import pytest

from noisedesign.privacy.accounting import delta_above
from noisedesign.privacy.amplification.losses import LOWEST, Losses, of_points

pytest.importorskip("dp_accounting", reason="dp-accounting: .[ledger] brings it")


STEP = 0.003


def gaussian(mu: float, *, taken: float = 0.0) -> Losses:
    """The Gaussian mechanism on a fine grid, with that much less than its delta at every point."""
    points = np.arange(-2000, 2001)
    losses = points * STEP
    deltas = [
        delta_above(mu, x) if x >= 0 else -math.expm1(x) + math.exp(x) * delta_above(mu, -x)
        for x in losses.tolist()
    ]
    made = of_points(points, np.maximum(np.array(deltas) - taken, 0.0), STEP)
    return Losses(made.pmf, made.error + taken)


@pytest.mark.parametrize("count", [1, 2, 7, 40])
def test_a_composition_is_that_of_gaussians(count: int) -> None:
    mu = 0.5
    for made in (gaussian(mu).times(count), chained(gaussian(mu), count)):
        for epsilon in (0.1, 1.0, 3.0):
            exact = delta_above(mu * math.sqrt(count), epsilon)
            assert exact <= made.delta(epsilon) <= exact * (1 + 2e-3) + made.error


def chained(one: Losses, count: int) -> Losses:
    found = one
    for _ in range(count - 1):
        found = found.then(one)
    return found


@pytest.mark.parametrize("taken", [1e-3, 1e-5])
@pytest.mark.parametrize("count", [2, 7, 40])
def test_what_rounding_took_from_every_factor_is_counted(count: int, taken: float) -> None:
    """Factors whose curves are too low by their error, as rounding may make them."""
    mu = 0.3
    one = gaussian(mu, taken=taken)
    for made in (one.times(count), chained(one, count)):
        assert made.error >= count * (taken + LOWEST)
        for epsilon in (0.02, 0.1, 0.3, 1.0):
            assert made.delta(epsilon) >= delta_above(mu * math.sqrt(count), epsilon)
    pair = one.then(gaussian(0.6))
    assert pair.delta(0.5) >= delta_above(math.hypot(mu, 0.6), 0.5)
