"""Losses one example at a time, as their definition reads, and gradients without any calculus."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from noisedesign.base.checks import Array
from noisedesign_lab.training.losses.loss import Batch

OneLoss = Callable[[Array, Array, float], complex]
"""Of a model, shape (d,), perhaps complex, and one example's features and target."""


def complex_step(loss: OneLoss, model: Array, features: Array, target: float) -> Array:
    """The gradient of an analytic loss, to rounding: no difference is taken."""
    step = 1e-30
    gradient = np.empty(len(model))
    for at in range(len(model)):
        moved = model.astype(complex)
        moved[at] += 1j * step
        gradient[at] = loss(moved, features, target).imag / step
    return gradient


def central_difference(loss: OneLoss, model: Array, features: Array, target: float) -> Array:
    """The gradient of a loss that is smooth nearby, to about 1e-9 of its size."""
    step = 1e-5
    gradient = np.empty(len(model))
    for at in range(len(model)):
        up, down = model.copy(), model.copy()
        up[at] += step
        down[at] -= step
        gradient[at] = (loss(up, features, target).real - loss(down, features, target).real) / (
            up[at] - down[at]
        )
    return gradient


def loop(
    gradient: Callable[[Array, Array, float], Array],
    models: Array,
    batch: Batch,
    *,
    clip: float,
    private: slice | None = None,
) -> tuple[Array, list[float]]:
    """Clipped sums example by example; and the norms, of coordinates that leave the node."""
    sums, norms = np.zeros_like(models), []
    seeds, nodes, lanes, d = models.shape
    leaving = np.ones(d, dtype=bool)
    if private is not None:
        leaving[private] = False
    for s in range(seeds):
        for n in range(nodes):
            for place, present in zip(batch.places[s, n], batch.present[s, n], strict=True):
                if not present:
                    continue
                features, target = batch.examples.features[place], batch.examples.targets[place]
                for e in range(lanes):
                    one = gradient(models[s, n, e], features, target)
                    norm = float(np.linalg.norm(one[leaving]))
                    norms.append(norm)
                    factor = min(1.0, clip / norm) if norm else 1.0
                    sums[s, n, e] += np.where(leaving, factor * one, one)
    return sums, norms


def logistic(regularization: float, intercept: bool) -> OneLoss:
    def loss(model: Array, features: Array, target: float) -> complex:
        score = features @ model[: len(features)] + (model[-1] if intercept else 0)
        penalty = regularization / 2 * (model * model).sum()
        return np.log(1 + np.exp(-target * score)) + penalty

    return loss


def least_squares(regularization: float, intercept: bool) -> OneLoss:
    def loss(model: Array, features: Array, target: float) -> complex:
        score = features @ model[: len(features)] + (model[-1] if intercept else 0)
        return (score - target) ** 2 / 2 + regularization / 2 * (model * model).sum()

    return loss


def mlp(features_: int, hidden: int) -> OneLoss:
    """With loops over units; a unit is on where its real input is positive."""

    def loss(model: Array, features: Array, target: float) -> complex:
        width = features_ + 1
        output = model[-1]
        for unit in range(hidden):
            row = model[unit * width : (unit + 1) * width]
            entering = row[:-1] @ features + row[-1]
            if entering.real > 0:
                output = output + model[hidden * width + unit] * entering
        return (output - target) ** 2

    return loss


def matrix_factorization(users: int, factors: int, center: float) -> OneLoss:
    def loss(model: Array, features: Array, target: float) -> complex:
        user, film = (int(number) for number in features)
        product = sum(
            model[user * factors + f] * model[(users + film) * factors + f] for f in range(factors)
        )
        return (center + product - target) ** 2

    return loss


def quadratics(curvatures: Array, centers: Array, slopes: Array) -> OneLoss:
    def loss(model: Array, features: Array, target: float) -> complex:
        j = int(features[0])
        away = model - centers[j]
        return away @ curvatures[j] @ away / 2 + slopes[j] @ away

    return loss
