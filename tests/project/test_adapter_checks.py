"""The checks of adapters see what they are for."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.adapters import audit_noise, check_noise, designed_covariance
from tests.support.small_designs import TARGET, time_design

DESIGN = time_design(privacy=TARGET)
COVARIANCE = designed_covariance(DESIGN)
D = 20_000


def right(d: int = D, seed: int = 0) -> np.ndarray:
    white = np.random.default_rng(seed).standard_normal((4, d))
    return np.linalg.cholesky(COVARIANCE) @ white


def test_rms_of_right_noise_is_one_on_average() -> None:
    """And its variance that of the moments: 400 draws, three standard errors."""
    found = [check_noise(COVARIANCE, right(200, seed)) ** 2 for seed in range(400)]
    variance = (20 + 4 * (32 + 20 + 5) / 200) / 10**2
    assert abs(np.mean(found) - 1) <= 3 * np.sqrt(variance / 400)
    assert 0.7 * variance <= np.var(found) <= 1.4 * variance


@pytest.mark.parametrize(
    "wrong",
    [
        lambda z: 1.03 * z,
        lambda z: z[[0, 1, 2, 2]],
        lambda z: z[[0, 0, 1, 2]],
        lambda z: z[[1, 0, 2, 3]],
        lambda z: np.vstack([z[:1], 1.05 * z[1:2], z[2:]]),
        lambda z: np.tile(z[:, : D // 2], (1, 2)),
        lambda z: z + 0.2,
        lambda z: np.zeros_like(z),
        lambda z: np.vstack([z[:3], z[3:] - z[2:3]]),
        lambda z: np.random.default_rng(9).laplace(size=z.shape),
    ],
)
def test_wrong_noise_fails(wrong: object) -> None:
    with pytest.raises(AssertionError):
        check_noise(COVARIANCE, wrong(right()))  # type: ignore[operator]


def test_transposed_covariance_fails() -> None:
    noising = np.linalg.inv(DESIGN.strategy)
    drawn = noising.T @ np.random.default_rng(1).standard_normal((4, D))
    scale = np.sqrt(COVARIANCE[0, 0]) / np.linalg.norm(noising[0])
    with pytest.raises(AssertionError):
        check_noise(COVARIANCE, scale * drawn)


def test_audit_of_drawn_noise_agrees_and_sees_too_little_noise() -> None:
    seeds = iter(range(100))

    def draw(d: int) -> np.ndarray:
        return right(d, next(seeds))

    report = audit_noise(DESIGN, draw, runs=20_000)
    assert not report.exceeds
    assert report.close
    assert audit_noise(DESIGN, lambda d: 0.8 * draw(d), runs=20_000).exceeds
