"""The factorization norms of prefix sums: against decompositions and a closed form."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import constants, unknown_horizon
from noisedesign.system.workloads.factorization_norm import least_errors, right_diagonal
from tests.support import oracles


@pytest.mark.parametrize("steps", [2, 5, 40])
def test_gamma_2_is_that_of_decompositions(steps: int) -> None:
    known = oracles.worst_step_interval(np.tril(np.ones((steps, steps)))[:, None, :], width=1e-7)
    low, high = constants.interval(steps, worst=True)
    assert low <= known.upper**0.5
    assert known.lower**0.5 <= high
    assert high <= low * 1.0001


def test_the_price_of_not_knowing_the_horizon_is_that_of_decompositions() -> None:
    """The worst step of rows over gamma_2 of their own horizons, which decompositions know."""
    steps = 6
    least = [
        oracles.worst_step_interval(np.tril(np.ones((t, t)))[:, None, :], width=1e-7)
        for t in range(1, steps + 1)
    ]
    errors = np.sqrt([(one.lower + one.upper) / 2 for one in least])
    np.testing.assert_allclose(least_errors(steps), errors, rtol=1e-6)
    assert (least_errors(steps) <= [one.upper**0.5 for one in least]).all()
    rows = np.tril(np.ones((steps, steps))) / errors[:, None]
    known = oracles.worst_step_interval(rows[:, None, :], width=1e-6)
    low, high = unknown_horizon.price(steps)
    assert low == pytest.approx(known.lower**0.5, rel=1e-4)
    assert low <= high <= low * (1 + unknown_horizon.GAP)
    assert high > 1.1  # which is what is to pay


@pytest.mark.parametrize("steps", [2, 40])
def test_gamma_f_is_that_of_the_least_sum(steps: int) -> None:
    rows = np.tril(np.ones((steps, steps)))
    known = oracles.diagonal_interval(rows.T @ rows, width=1e-8)
    low, high = constants.interval(steps, worst=False)
    assert low <= (known.upper / steps) ** 0.5
    assert (known.lower / steps) ** 0.5 <= high <= low * 1.0001


@pytest.mark.parametrize("steps", [3, 1000, 100_000])
def test_singular_values_of_even_shares_add_up_to_the_closed_form(steps: int) -> None:
    """Those of the matrix of ones are 1 / (2 sin((2 k - 1) pi / (4 T + 2)))."""
    even = np.full(steps, 1 / steps)
    angles = (2 * np.arange(1, steps + 1) - 1) * np.pi / (4 * steps + 2)
    exact = float((1 / (2 * np.sin(angles))).sum()) / steps
    assert right_diagonal(even, even).sum() == pytest.approx(exact, rel=1e-6)
