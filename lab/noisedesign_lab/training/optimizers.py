"""What nodes make of noisy gradients before a step: post-processing, which costs no privacy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array, InputError

Update = Callable[[Array, Array], Array]  # noisy mean gradients and models to a direction


@runtime_checkable
class Optimizer(Protocol):
    """A rule of steps: theta <- theta - eta times the direction of an update."""

    def start(self) -> Update:
        """Return the update of a run, which remembers what it has seen."""
        ...


@dataclass(frozen=True, kw_only=True)
class Momentum:
    """Heavy ball (Polyak 1964): m <- beta m + g, and the direction is (1 - beta) m, so that a
    learning rate means the same for every beta."""

    beta: float = 0.9

    def __post_init__(self) -> None:
        _share(self.beta, "beta")

    def start(self) -> Update:
        moved: list[Array | float] = [0.0]

        def update(gradients: Array, models: Array) -> Array:
            moved[0] = self.beta * moved[0] + (1 - self.beta) * gradients
            return np.asarray(moved[0])

        return update


@dataclass(frozen=True, kw_only=True)
class AdamW:
    """AdamW (Loshchilov and Hutter 2019, Algorithm 2)."""

    beta1: float = 0.9
    beta2: float = 0.999
    floor: float = 1e-8  # epsilon of the paper, in units of the gradient
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        _share(self.beta1, "beta1")
        _share(self.beta2, "beta2")
        _checks.nonnegative(self.floor, field="floor")
        _checks.nonnegative(self.weight_decay, field="weight_decay")

    def start(self) -> Update:
        first: list[Array | float] = [0.0, 0.0]
        shares = np.ones(2)

        def update(gradients: Array, models: Array) -> Array:
            first[0] = self.beta1 * first[0] + (1 - self.beta1) * gradients
            first[1] = self.beta2 * first[1] + (1 - self.beta2) * np.square(gradients)
            shares[:] *= (self.beta1, self.beta2)
            mean, square = (x / (1 - share) for x, share in zip(first, shares, strict=True))
            return np.asarray(mean / (np.sqrt(square) + self.floor) + self.weight_decay * models)

        return update


def _share(value: float, field: str) -> None:
    if not 0 <= _checks.real(value, field=field) < 1:
        raise InputError(field, expected="a number in [0, 1)", got=f"{value:g}")
