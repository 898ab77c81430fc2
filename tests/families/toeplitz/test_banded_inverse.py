"""Error and sensitivity of a banded inverse: against matrices, differences and whole columns."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import scipy.linalg

from noisedesign.families.toeplitz.banded_inverse import (
    error_and_gradient,
    sensitivity_and_gradient,
)
from noisedesign.families.toeplitz.solver import (
    NoisingShares,
    log_objective,
    log_objective_of_banded_inverse,
    log_sensitivity,
)
from noisedesign.system.participation import FixedEpoch, MinSeparation, Participation, single
from noisedesign.system.workloads.toeplitz import PoleWorkload, prefix_workload

POLES = np.array([1.0, 0.6, 0.0, -1.0])
WEIGHTS = np.array([1.0, 3.0, 0.5, 2.0])
NOISING = [np.array([1.0]), np.array([1.0, -0.5]), np.array([1.0, -0.4, -0.3, -0.2999])]


def inverse(d: np.ndarray, horizon: int) -> np.ndarray:
    column = np.zeros(horizon)
    column[: len(d)] = d
    return scipy.linalg.toeplitz(column, np.zeros(horizon))


def differences(
    value: Callable[[np.ndarray], float], d: np.ndarray, step: float = 1e-6
) -> list[float]:
    sides = [[value(d + s * step * e) for s in (-1, 1)] for e in np.eye(len(d))]
    return [(high - low) / (2 * step) for low, high in sides]


@pytest.mark.parametrize("d", NOISING)
@pytest.mark.parametrize("horizon", [4, 5, 17])
def test_error_against_the_matrices(d: np.ndarray, horizon: int) -> None:
    workload = PoleWorkload(poles=POLES, weights=WEIGHTS, horizon=horizon)

    def expected(d: np.ndarray) -> float:
        lags = np.subtract.outer(np.arange(horizon), np.arange(horizon))
        filters = [np.where(lags >= 0, pole ** np.maximum(lags, 0), 0.0) for pole in POLES]
        return sum(
            w * float(np.sum((a @ inverse(d, horizon)) ** 2))
            for w, a in zip(WEIGHTS, filters, strict=True)
        )

    found, gradient = error_and_gradient(workload, bands=len(d))(d)
    assert found == pytest.approx(expected(d), rel=1e-12)
    np.testing.assert_allclose(gradient, differences(expected, d), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("d", NOISING)
@pytest.mark.parametrize(
    ("steps", "taken"),
    [
        (single(12), [0]),
        (FixedEpoch(epochs=3, separation=4), [0, 4, 8]),
        (MinSeparation(horizon=12, separation=5, max_participations=9), [0, 5, 10]),
    ],
)
def test_sensitivity_against_the_matrix(
    d: np.ndarray, steps: Participation, taken: list[int]
) -> None:
    def expected(d: np.ndarray) -> float:
        strategy = np.linalg.inv(inverse(d, 12))
        return float(np.sum(strategy[:, taken].sum(axis=1) ** 2))

    found, gradient = sensitivity_and_gradient(steps)(d)
    assert found == pytest.approx(expected(d), rel=1e-12)
    np.testing.assert_allclose(gradient, differences(expected, d), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("bands", [1, 2, 5, 30])
def test_the_objective_of_whole_columns(bands: int) -> None:
    workload = PoleWorkload(poles=POLES, weights=WEIGHTS, horizon=30)
    steps = FixedEpoch(epochs=3, separation=10)
    x = np.random.default_rng(bands).standard_normal(bands - 1)
    short = log_objective_of_banded_inverse(workload, steps, bands=bands)(x)
    whole = log_objective(NoisingShares(horizon=30), workload, log_sensitivity(steps))(x)
    assert short[0] == pytest.approx(whole[0], rel=1e-12)
    np.testing.assert_allclose(short[1], whole[1], rtol=1e-9, atol=1e-10)


def test_two_bands_of_prefix_sums_in_closed_form_at_any_horizon() -> None:
    """d = (1, -q): z = 1, 1 - q, 1 - q, ..., and C decays like q^t."""
    q, horizon = 0.999, 10**6
    error, _ = error_and_gradient(prefix_workload(horizon=horizon), bands=2)(np.array([1.0, -q]))
    assert error == pytest.approx(horizon + (1 - q) ** 2 * horizon * (horizon - 1) / 2, rel=1e-12)
    squared, _ = sensitivity_and_gradient(single(horizon))(np.array([1.0, -q]))
    assert squared == pytest.approx((1 - q ** (2 * horizon)) / (1 - q**2), rel=1e-10)
