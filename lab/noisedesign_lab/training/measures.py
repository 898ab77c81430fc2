"""Measurements of models: losses, accuracy, how far nodes are apart, whether a run diverged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from noisedesign.base.checks import Array
from noisedesign_lab.datasets.examples import Examples
from noisedesign_lab.training.losses.loss import Loss

MODELS = ("nodes", "mean")
"""Models whose loss is measured: the mean over nodes, or that of the mean model."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Measurement:
    """Measurements after a step, arrays of shape (S, E), NaN where a run ``diverged``; None without
    test examples, or where the loss classifies nothing. Accuracy is on test examples if there are
    any."""

    step: int
    train_loss: Array
    test_loss: Array | None
    accuracy: Array | None
    consensus_distance: Array
    diverged: NDArray[np.bool_]


def consensus_distance(models: Array) -> Array:
    """Root mean square distance of the models of nodes to their mean, (S, n, E, d) to (S, E)."""
    total = np.zeros((models.shape[0], models.shape[2]))
    for s, of_seed in enumerate(models):
        apart = of_seed - of_seed.mean(axis=0)
        total[s] = np.einsum("ned,ned->e", apart, apart)
    return np.asarray(np.sqrt(total / models.shape[1]))


def of_models(models: Array, measure: Callable[[Array], Array | None], *, whose: str) -> Array:
    """Return a measure of each seed and lane, (S, n, E, d) to (S, E): the mean over nodes, or that
    of the mean model. NaN where there is none."""
    found = np.full((models.shape[0], models.shape[2]), np.nan)
    for s, of_seed in enumerate(models):
        if whose == "mean":
            values = measure(of_seed.mean(axis=0))
            if values is not None:
                found[s] = values
            continue
        for lane in range(models.shape[2]):  # a lane at a time: what a loss holds stays small
            values = measure(np.ascontiguousarray(of_seed[:, lane]))
            if values is not None:
                found[s, lane] = values.mean()
    return found


def losses(models: Array, loss: Loss, examples: Examples, *, whose: str) -> Array:
    """Mean loss on examples, shape (S, E)."""
    return of_models(models, lambda each: loss.value(each, examples), whose=whose)


def accuracies(models: Array, loss: Loss, examples: Examples, *, whose: str) -> Array | None:
    """Share of examples classified rightly, shape (S, E); None where nothing is classified."""
    if loss.accuracy(models[:1, 0, 0], examples) is None:
        return None
    return of_models(models, lambda each: loss.accuracy(each, examples), whose=whose)
