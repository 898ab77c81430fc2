"""Noise without a horizon of buffers that are written by hand, where none needs to be searched."""

from __future__ import annotations

import numpy as np
import pytest

import noisedesign as nd

SCALES, DECAYS = np.array([0.15, 0.3]), np.array([0.4, 0.8])


def by_hand(problem: nd.UnboundedProblem) -> nd.UnboundedDesign:
    """A design of these buffers, whose ratio and sensitivity nobody asks for."""
    return nd.UnboundedDesign(
        problem=problem, scales=SCALES, decays=DECAYS, squared_sensitivity=1.0, ratio=2.0, worst=1
    )


def strategy(steps: int) -> np.ndarray:
    """C of these buffers, shape (T, T), from its first column."""
    column = [1.0] + [float(SCALES @ DECAYS ** (k - 1)) for k in range(1, steps)]
    return np.array(
        [[column[t - s] if s <= t else 0.0 for s in range(steps)] for t in range(steps)]
    )


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recommendations take these buffers, and search for none."""
    monkeypatch.setattr("noisedesign.surveys.recommend.solve_unbounded", by_hand)
