"""Runs of any objective under exported noise: schedules, momentum, and mixing that fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array
from noisedesign.tasks.simulation.estimates import CONFIDENCE
from noisedesign.tasks.simulation.variance import Progress, VarianceReport, monte_carlo

NoiseSource = Callable[[int, np.random.SeedSequence], Iterator[Array]]
"""From a number of columns and a seed to T arrays of noise, shape (n, columns)."""


class Measure(Protocol):
    """What is measured; :class:`noisedesign.system.workloads.Objective` is one."""

    @property
    def horizon(self) -> int: ...

    @property
    def momentum(self) -> float: ...

    @property
    def steps(self) -> Array: ...

    @property
    def step_factor(self) -> Array: ...

    def readout(self, *, nodes: int, step: int) -> Array: ...


class Draws(Protocol):
    """A distribution of W; :class:`noisedesign.system.random_mixing.RandomMixing` is one."""

    def sample(self, rng: np.random.Generator) -> Array: ...


def simulate_objective(
    *,
    mixing: Any,
    objective: Measure,
    noise: NoiseSource,
    predicted: float,
    random: Draws | None = None,
    runs: int = 2000,
    seed: int = 0,
    confidence: float = CONFIDENCE,
    progress: Progress | None = None,
) -> VarianceReport:
    """The squared error of ``objective`` in runs of D-SGD, against ``predicted``.

    Every run follows x_{t+1} = W_t (x_t + eta_t m_t) with m_t = beta m_{t-1} + z_t, its own noise
    and, with ``random``, its own draws of W_t.

    Args:
        mixing: W, shape (n, n), where it is not random.
        noise: what to draw z from.
        predicted: objective tr(H cov(z)), squared.
        random: the distribution of every W_t.
        runs, seed, confidence, progress: as of :func:`noisedesign.tasks.simulation.simulate_time`.

    Raises:
        InputError: W is not finite, float64 and square, predicted <= 0, runs < 30.
    """
    w = _checks.matrix(mixing, field="mixing", square=True)
    n, horizon = len(w), objective.horizon
    rates = np.diagonal(objective.step_factor)
    roots = [
        np.sqrt(weight) * _root(objective.readout(nodes=n, step=step))
        for step, weight in enumerate(objective.steps)
    ]

    def errors(columns: int, sequence: np.random.SeedSequence) -> Iterator[Array]:
        of_noise, of_mixing = sequence.spawn(2)
        rng = np.random.default_rng(of_mixing)
        models, velocity = np.zeros((n, columns)), np.zeros((n, columns))
        for step, drawn in enumerate(noise(columns, of_noise)):
            velocity = objective.momentum * velocity + drawn
            models = models + rates[step] * velocity
            if random is None:
                models = w @ models
            else:
                mixings = np.stack([random.sample(rng) for _ in range(columns)])
                models = np.einsum("cij,jc->ic", mixings, models)
            yield roots[step] @ models

    return monte_carlo(
        errors,
        floats_per_column=(3 + horizon) * n + (n * n if random is not None else 0),
        predicted=predicted,
        runs=runs,
        seed=seed,
        confidence=confidence,
        progress=progress,
    )


def _root(readout: Array) -> Array:
    """Q^1/2, shape (n, n)."""
    values, vectors = np.linalg.eigh(readout)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T)
