"""What every adapter to a trainer is held to: the noise that reached the parameters is that of the
design, and nobody learns more from it than the design says.

A test lets the real trainer run for the whole horizon on gradients that it knows, subtracts them
from what came out, and hands in the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from noisedesign.design.design import Design
from noisedesign.problem.calibration import calibrate
from noisedesign.tasks.simulation.attacks import audit_time
from noisedesign.tasks.simulation.audit import AuditReport

DEVIATIONS = 5.0
"""Half-width of every interval: a right adapter fails once in a million secrets."""


def designed_covariance(design: Design) -> np.ndarray:
    """Of the noise a time design means one node to add to the sums of its clipped gradients, by
    dense linear algebra on C: stddev^2 (C^T C)^-1, shape (T, T)."""
    strategy = np.asarray(design.strategy)
    return calibrate(design.problem).noise_stddev ** 2 * np.linalg.inv(strategy.T @ strategy)


def check_noise(
    designed: np.ndarray, drawn: np.ndarray, *, deviations: float = DEVIATIONS
) -> float:
    """Assert that ``drawn`` is Gaussian noise of covariance ``designed``, at every step.

    The coordinates of the model are independent and alike, so ``drawn`` is whitened by the Cholesky
    factor of ``designed``: G = Y Y^T / d is the identity in expectation, and the T (T + 1) / 2
    standardised entries sqrt(d) G_st and sqrt(d / 2) (G_tt - 1) are uncorrelated, of mean 0 and
    variance 1. Their sum of squares, d |G - I|^2 / 2, has by the moments of Wishart matrices mean
    T (T + 1) / 2 and variance T (T + 1) + T (2 T^2 + 5 T + 5) / d.

    Noise of one step in place of another, a scale that is off by 1 / sqrt(d), noise repeated from
    step to step or from layer to layer, and noise of the transposed covariance all fail.

    Args:
        designed: shape (T, T), squared units of what was added to; (n T, n T) for noise of several
            nodes.
        drawn: shape (T, d), or (T, n, d) in the same order as ``designed``: every coordinate of the
            model in a column of its own. d of several thousand tells most.

    Returns:
        The rms of the standardised entries, near 1.
    """
    assert np.isfinite(drawn).all()
    flat = np.asarray(drawn, dtype=np.float64).reshape(-1, drawn.shape[-1])
    steps, d = flat.shape
    assert designed.shape == (steps, steps), (designed.shape, drawn.shape)
    assert d >= 10 * steps, "too few coordinates to tell anything"
    assert len({column.tobytes() for column in flat.T}) == d, "two coordinates got the same noise"
    white = np.linalg.solve(np.linalg.cholesky(designed), flat)
    entries = math.sqrt(d) * np.tril(white @ white.T / d - np.eye(steps))
    entries[np.diag_indices(steps)] /= math.sqrt(2)
    count = steps * (steps + 1) / 2
    spread = math.sqrt(2 * count + steps * (2 * steps**2 + 5 * steps + 5) / d)
    squares = float(np.square(entries).sum())
    assert abs(squares - count) <= deviations * spread, f"rms {math.sqrt(squares / count):.4f}"
    # Every entry, and the mean of every step, to an error probability of the same order.
    most = math.sqrt(deviations**2 + 2 * math.log(2 * count))
    worst = np.unravel_index(np.abs(entries).argmax(), entries.shape)
    assert np.abs(entries).max() <= most, f"steps {worst}: {entries[worst]:.2f} standard errors"
    means = np.abs(white.mean(axis=1)) * math.sqrt(d)
    assert means.max() <= most, f"mean of step {means.argmax()}: {means.max():.2f} standard errors"
    # First and last step by themselves: there the adapters of others went wrong.
    for step in (0, steps - 1):
        ratio = float(np.mean(flat[step] ** 2)) / designed[step, step]
        assert abs(ratio - 1) <= deviations * math.sqrt(2 / d), f"step {step}: {ratio:.4f}"
    return math.sqrt(squares / count)


def audit_noise(
    design: Design, draw: Callable[[int], np.ndarray], *, runs: int = 2000, **how: Any
) -> AuditReport:
    """The audit of the simulator, on noise that an adapter draws for one node of a time design.

    Args:
        draw: d -> noise as it is added to the sums of clipped gradients, shape (T, d), from a new
            secret at every call.
        runs: in each of the two worlds: coordinates that are drawn.

    Returns:
        A report whose claim is the mu of the whole run; ``exceeds`` must be False.
    """
    found, use = calibrate(design.problem), design.problem.participation
    assert found.mu is not None
    unit = found.step_sensitivity  # one record changes a step by so much
    return audit_time(
        noising_matrix=design.noising_matrix * (found.noise_stddev / unit),
        patterns=use.longest(100),
        claimed_mu=found.mu,
        draw=lambda columns, _: (row[None] / unit for row in draw(columns)),
        runs=runs,
        **how,
    )
