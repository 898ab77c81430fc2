"""Gradients of every error in W by differences of its Gram matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from noisedesign.system.workloads import ErrorMeasure, ErrorMixture, Workload

RATES = [0.7, 0.6, 0.5, 0.4]
ERRORS: dict[str, Any] = {
    "plain": ErrorMeasure(horizon=4),
    "consensus": ErrorMeasure(horizon=4, of="consensus", node_weights=[1.0, 2.0, 3.0]),
    "steps": ErrorMeasure(horizon=4, step_weights=[1.0, 0.0, 2.0, 1.0], average=[1.0, 0.0, 2.0]),
    "momentum": ErrorMeasure(horizon=4, of="last-iterate", momentum=0.5, learning_rates=RATES),
    "loss": ErrorMeasure(horizon=4, of="loss", curvature=[0.1, 0.5], learning_rate=0.7),
    "both": ErrorMeasure(
        horizon=4, of="loss", curvature=[0.1, 0.5], learning_rates=RATES, momentum=0.4
    ),
    "mixture": ErrorMixture(
        shares=[0.3, 0.7],
        measures=(
            ErrorMeasure(horizon=4, momentum=0.3),
            ErrorMeasure(horizon=4, of="last-iterate", momentum=0.3),
        ),
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_gradients_in_the_mixing(name: str) -> None:
    rng, error = np.random.default_rng(0), ERRORS[name]
    w, root = rng.random((3, 3)), rng.normal(size=(4, 3, 5))
    w /= w.sum(axis=1, keepdims=True)
    noise = root.reshape(12, 5) @ root.reshape(12, 5).T
    found = Workload(mixing=w, error=error).mixing_gradient(root)
    for i, j in np.ndindex(3, 3):
        change = 1e-5 * np.outer(np.eye(3)[i], np.eye(3)[j])
        ahead, behind = (
            np.sum(Workload(mixing=w + sign * change, error=error).gram() * noise)
            for sign in (1, -1)
        )
        assert found[i, j] == pytest.approx((ahead - behind) / 2e-5, rel=1e-6)
