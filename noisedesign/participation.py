"""Participation: at which steps one record may take part.

A scheme is a set of patterns, each a set of steps. Sensitivity (theory: the largest change of
C G over the patterns) is a maximum over patterns, so a scheme only has to name them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from noisedesign._checks import positive_int


@dataclass(frozen=True, kw_only=True)
class FixedEpoch:
    """(k, b) participation: a record takes part in steps j, j + b, ..., j + (k - 1) b.

    ``epochs`` is k, ``separation`` is b, the horizon T is k * b and the b patterns are the residue
    classes of the steps modulo b. One epoch is single participation: every step is a pattern of
    its own, which is also how the nodes of a spatial design take part.

    Source: Choquette-Choo et al. (2023), "(k, b)-participation".

    Raises:
        InputError: ``epochs`` or ``separation`` is not an integer >= 1.
    """

    epochs: int
    separation: int

    def __post_init__(self) -> None:
        positive_int(self.epochs, field="participation.epochs")
        positive_int(self.separation, field="participation.separation")

    @property
    def horizon(self) -> int:
        """Number of steps T = epochs * separation."""
        return self.epochs * self.separation

    @property
    def patterns(self) -> NDArray[np.intp]:
        """Steps of each pattern, shape (separation, epochs), zero-based."""
        return np.arange(self.horizon).reshape(self.epochs, self.separation).T

    def __str__(self) -> str:
        return f"(k, b) = ({self.epochs}, {self.separation})"


def single(horizon: int) -> FixedEpoch:
    """Single participation over ``horizon`` steps (or nodes)."""
    return FixedEpoch(epochs=1, separation=positive_int(horizon, field="horizon"))
