"""Error and sensitivity of buffers from their states: against matrices, columns and differences."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
import scipy.optimize

from noisedesign.families.toeplitz.buffered import (
    error_and_gradient,
    losses_and_logs,
    sensitivity_and_gradient,
)
from noisedesign.families.toeplitz.solver import (
    Buffers,
    log_objective,
    log_objective_of_buffers,
    log_sensitivity,
)
from noisedesign.system.participation import FixedEpoch, MinSeparation, every_step, single
from noisedesign.system.workloads.toeplitz import PoleWorkload, prefix_workload


def matrix(scales: np.ndarray, losses: np.ndarray, horizon: int) -> np.ndarray:
    """C, entry by entry."""
    column = [1.0] + [float(scales @ (1 - losses) ** j) for j in range(horizon - 1)]
    return scipy.linalg.toeplitz(column, np.zeros(horizon))


def filters(workload: PoleWorkload) -> list[np.ndarray]:
    lags = np.subtract.outer(np.arange(workload.horizon), np.arange(workload.horizon))
    powers = [np.where(lags >= 0, float(p) ** np.maximum(lags, 0), 0.0) for p in workload.poles]
    return [np.sqrt(w) * a for w, a in zip(workload.weights, powers, strict=True)]


CASES = [
    # A loss of 1 is a buffer that forgets at once; decays may coincide.
    ([0.3], [1.0]),
    ([0.2, 0.4], [0.5, 0.5]),
    ([0.1, 0.3, 0.2], [1e-9, 0.02, 0.7]),
]


@pytest.mark.parametrize(("scales", "losses"), CASES)
@pytest.mark.parametrize("horizon", [1, 2, 3, 5, 12, 31, 64])
def test_error_against_the_matrices(scales: list, losses: list, horizon: int) -> None:
    workload = PoleWorkload(
        poles=np.array([1.0, 0.6, 0.0, -1.0]),
        weights=np.array([1.0, 3.0, 0.5, 2.0]),
        horizon=horizon,
    )
    inverse = np.linalg.inv(matrix(np.array(scales), np.array(losses), horizon))
    expected = sum(float(np.sum((a @ inverse) ** 2)) for a in filters(workload))
    found, of_scales, of_losses = error_and_gradient(workload, np.array(scales), np.array(losses))
    assert found == pytest.approx(expected, rel=1e-12)
    # Differences of the same matrices.
    point, step = np.array([*scales, *losses]), 1e-6
    for k, slope in enumerate([*of_scales, *of_losses]):
        ends = []
        for sign in (1, -1):
            moved = point + sign * step * np.eye(len(point))[k]
            inverse = np.linalg.inv(matrix(*np.split(moved, 2), horizon))
            ends.append(sum(float(np.sum((a @ inverse) ** 2)) for a in filters(workload)))
        assert slope == pytest.approx(
            (ends[0] - ends[1]) / (2 * step), rel=1e-5, abs=1e-6 * expected
        )


@pytest.mark.parametrize(
    "steps",
    [
        single(1),
        single(2),
        single(9),
        every_step(5),
        FixedEpoch(epochs=3, separation=4),
        MinSeparation(horizon=11, separation=4, max_participations=3),
        MinSeparation(horizon=30, separation=4, max_participations=2),
    ],
)
def test_sensitivity_against_the_worst_pattern(steps: FixedEpoch | MinSeparation) -> None:
    """Columns fall, so the earliest and densest pattern is the worst."""
    scales, losses = np.array([0.3, 0.2]), np.array([0.1, 0.6])
    first = np.arange(steps.largest_size) * steps.stride
    point, step = np.concatenate([scales, np.log1p(-losses)]), 1e-6

    def squared(at: np.ndarray) -> float:
        strategy = matrix(at[:2], -np.expm1(at[2:]), steps.horizon)
        return float(np.sum(strategy[:, first].sum(axis=1) ** 2))

    found, *gradient = sensitivity_and_gradient(*np.split(point, 2), steps)
    assert found == pytest.approx(squared(point), rel=1e-13)
    expected = scipy.optimize.approx_fprime(point, squared, step)
    np.testing.assert_allclose(np.concatenate(gradient), expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("steps", [single(3000), FixedEpoch(epochs=7, separation=429)])
@pytest.mark.parametrize("seed", range(3))
def test_without_columns_and_with_them(steps: FixedEpoch, seed: int) -> None:
    rng = np.random.default_rng(seed)
    workload = PoleWorkload(
        poles=rng.uniform(-1, 1, 6), weights=rng.uniform(0.1, 2, 6), horizon=steps.horizon
    )
    for given in (workload, prefix_workload(horizon=steps.horizon)):
        x = np.concatenate([rng.normal(-2, 1, 4), rng.uniform(-2, 8, 4)])
        value, gradient = log_objective_of_buffers(given, steps)(x)
        expected, slope = log_objective(
            Buffers(horizon=steps.horizon), given, log_sensitivity(steps)
        )(x)
        assert value == pytest.approx(expected, abs=1e-11)
        np.testing.assert_allclose(gradient, slope, atol=1e-10)


def test_prefix_sums_of_one_buffer_in_closed_form_at_any_horizon() -> None:
    # c = 1 + s x / (1 - t x) with s = t has c = 1 / (1 - t x): C^-1 is I - t S, so sums of it are
    # 1, 1 - t, 1 - t, ...: the error is T + (1 - t)^2 T (T - 1) / 2.
    horizon, t = 10**9, 0.999
    found, _, of_losses = error_and_gradient(
        prefix_workload(horizon=horizon), np.array([t]), np.array([1 - t])
    )
    assert found == pytest.approx(horizon + (1 - t) ** 2 * horizon * (horizon - 1) / 2, rel=1e-10)
    assert np.isfinite(of_losses).all()


def test_losses_keep_their_digits() -> None:
    losses, logs = losses_and_logs(np.array([0.0, 40.0, -700.0, 700.0]))
    np.testing.assert_allclose(losses, [0.5, np.exp(-40), 1.0, np.exp(-700)], rtol=1e-15)
    np.testing.assert_allclose(logs, [-np.log(2), -np.exp(-40), -700.0, -np.exp(-700)], rtol=1e-14)
