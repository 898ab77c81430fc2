"""Measurements of models: losses, accuracy, how far nodes are apart, whether a run diverged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisedesign.base.checks import Array
from noisedesign_lab.datasets import Examples
from noisedesign_lab.training.losses.loss import Loss

MODELS = ("nodes", "mean")
"""Models whose loss is measured: the mean over nodes, or that of the mean model."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Measurement:
    """Measurements after a step, (S, E), NaN where a run ``diverged``; None without test examples,
    or where the loss classifies nothing. Accuracy is on test examples if there are any."""

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


def _of_models(models: Array, measure: Callable[[Array], Any], *, whose: str) -> Array:
    if whose == "mean":
        return np.asarray(measure(models.mean(axis=0)))
    # A lane at a time: what a loss holds stays small.
    lanes = (np.ascontiguousarray(models[:, lane]) for lane in range(models.shape[1]))
    return np.array([measure(lane).mean() for lane in lanes])


def losses(models: Array, examples: Examples, *, loss: Loss, whose: str) -> Array:
    """Mean loss of the models of one seed on examples, (n, E, d) to (E,)."""
    return _of_models(models, lambda each: loss.value(each, examples), whose=whose)


def accuracies(models: Array, examples: Examples, *, loss: Loss, whose: str) -> Array | None:
    """Share of examples classified rightly, (n, E, d) to (E,); None where nothing is classified."""
    if loss.accuracy(models[:1, 0], examples) is None:
        return None
    return _of_models(models, lambda each: loss.accuracy(each, examples), whose=whose)
