"""Linear losses, whose models are a noiseless run and noise: what theory says of both is exact."""

from __future__ import annotations

from typing import Any

import numpy as np

from noisedesign.base.checks import Array
from noisedesign.system.participation import FixedEpoch
from noisedesign.tasks.simulation.dynamics import CONFIDENCE, RunningMoments
from noisedesign_lab.datasets import Examples
from noisedesign_lab.tasks.training_task import TrainingTask, run
from noisedesign_lab.training.losses.quadratics import Quadratic

DIMENSION = 1500
"""Coordinates, each of which gets noise of its own."""


def linear_task(
    *, mixing: Array, participation: FixedEpoch, dimension: int = DIMENSION, **other: Any
) -> TrainingTask:
    """One record a batch, a linear loss and step sizes of 1: an update is a gradient and noise."""
    n, rounds = int(np.shape(mixing)[-1]), participation.separation
    rng = np.random.default_rng(6)
    examples = Examples(
        features=rng.standard_normal((n * rounds, dimension)), targets=np.zeros(n * rounds)
    )
    fields: dict[str, Any] = {
        "loss": Quadratic(dimension=dimension, curvature=0.0),
        "examples": examples,
        "partition": lambda rng: np.array_split(rng.permutation(n * rounds), n),
        "mixing": mixing,
        "participation": participation,
        "noise_multipliers": [2.0],
        "step_sizes": 1.0,
        "seeds": 8,
    }
    return TrainingTask(**fields | other)


class Squares:
    """Squared difference of the models of two lanes, summed over steps and nodes, for each seed and
    coordinate: noisy before noiseless."""

    def __init__(self) -> None:
        self.blocks: list[Array] = []

    def __call__(self, seen: Any) -> None:
        error = seen.models[:, :, 1] - seen.models[:, :, 0]  # (S, n, d)
        squares = np.square(error).sum(axis=1)
        if seen.step == 0:
            self.blocks.append(squares)
        else:
            self.blocks[-1] += squares

    @property
    def found(self) -> Array:
        """Shape (seeds, d)."""
        return np.concatenate(self.blocks)


def squared_error(
    task: TrainingTask, mechanism: Any, *, each: str = "coordinate"
) -> tuple[float, tuple[float, float]]:
    """Mean squared error that unit noise causes, a coordinate, and its interval.

    ``each`` is what is independent of others: a "coordinate", or a "seed" where coordinates share
    the mixing matrices that were drawn.
    """
    moments, squares = RunningMoments(), Squares()
    rows = run(task, "none", mechanism, observer=squares)
    found = squares.found / rows[-1]["stddev"] ** 2
    moments.add(np.ravel(found) if each == "coordinate" else found.mean(axis=1))
    return moments.mean, moments.mean_interval(CONFIDENCE)
