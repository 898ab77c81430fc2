"""What is sent on a path of three nodes, and what it tells: dense, written out, no shared code."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.support import oracles
from tests.support.small_designs import PATH_3

STEPS = 4
EVERY_STEP = [list(range(STEPS))]


def messages(rounds: int = 1, steps: int = STEPS) -> np.ndarray:
    """What everybody sends on the path of three, (steps * rounds, 3, steps * 3): x -> W x.

    Linear in gradient plus noise, with a column for each step and node, in the order of time.
    """
    sent = []
    state = np.zeros((3, steps * 3))
    for t in range(steps):
        state = state + np.eye(steps * 3)[3 * t : 3 * t + 3]
        for _ in range(rounds):
            sent.append(state)
            state = PATH_3 @ state
    return np.array(sent)


def gram(
    seen: np.ndarray, victim: int, known: list[int], r: np.ndarray | None = None
) -> np.ndarray:
    """A_u^T (B B^T)^+ A_u for noise R a step, where the noise of some nodes is known.

    What is known of R is conditioned on by a Schur complement.
    """
    rows = seen.reshape(-1, seen.shape[-1])
    steps = rows.shape[1] // 3
    r = np.eye(3) if r is None else r
    rest = [i for i in range(3) if i not in known]
    given = np.zeros((3, 3))
    given[np.ix_(rest, rest)] = np.linalg.inv(np.linalg.inv(r)[np.ix_(rest, rest)])
    cov = rows @ np.kron(np.eye(steps), given) @ rows.T
    a = rows[:, victim::3]
    return np.asarray(a.T @ np.linalg.pinv(cov, rcond=1e-10, hermitian=True) @ a)


def assert_sensitive(
    record: dict[str, object], m: np.ndarray, patterns: list[list[int]] = EVERY_STEP
) -> None:
    """The record states max <M, Y> over correlation matrices Y, for the worst pattern."""
    bounds = np.array([oracles.elliptope(m[np.ix_(steps, steps)]) for steps in patterns])
    low, high = bounds.max(axis=0)
    assert high / low - 1 < 1e-6
    squared = float(str(record["sensitivity_squared"]))
    assert low * (1 - 1e-9) <= squared <= high * (1 + 1e-6)
    assert record["mu"] == pytest.approx(math.sqrt(squared), rel=1e-12)
