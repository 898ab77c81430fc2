"""A loss as the trainer uses it: sums of clipped per-example gradients, and values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from noisedesign.base.checks import Array
from noisedesign_lab.datasets import Examples, Places


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """The batches of all nodes at one step: ``places`` of examples, shape (S, n, m), and
    ``present``, 1.0 or 0.0 where a place only fills a batch up."""

    examples: Examples
    places: Places
    present: Array

    @property
    def features(self) -> Array:
        """Shape (S, n, m, p)."""
        return self.examples.features[self.places]

    @property
    def targets(self) -> Array:
        """Shape (S, n, m)."""
        return self.examples.targets[self.places]


@runtime_checkable
class Loss(Protocol):
    """A loss of a model of d coordinates on an example."""

    @property
    def dimension(self) -> int:
        """d."""

    @property
    def private(self) -> slice | NDArray[np.intp] | None:
        """Coordinates that never leave a node, and get neither noise nor mixing. They remember a
        node's examples, so that no account of single examples holds."""
        return None

    def start(self, rng: np.random.Generator) -> Array:
        """Start the models of one seed, by default at zero.

        Args:
            rng: of this seed.

        Returns:
            Shape (d,), the same at every node, or (n, d).
        """
        return np.zeros(self.dimension)

    def clipped_sums(self, models: Array, batch: Batch, *, clip: float) -> Array:
        """Sum over each node's batch of exact per-example gradients, each clipped.

        Args:
            models: shape (S, n, E, d).
            batch: of all nodes.
            clip: the largest Euclidean norm of one example's gradient (of the coordinates that
                leave a node), positive; infinite: not clipped.

        Returns:
            Shape (S, n, E, d), a new array.
        """

    def value(self, models: Array, examples: Examples) -> Array:
        """Mean loss of each model.

        Args:
            models: shape (..., d).
            examples: all are counted.

        Returns:
            Shape (...).
        """

    def accuracy(self, models: Array, examples: Examples) -> Array | None:
        """Share of examples that each model classifies rightly.

        Args:
            models: shape (..., d).
            examples: all are counted.

        Returns:
            Shape (...); None where nothing is classified, the default.
        """
        return None


def clipped_weights(norms: Array, present: Array, *, clip: float) -> Array:
    """Return min(1, clip / norm), (S, n, m, E), and 0 for what only fills a batch up."""
    factors = np.ones_like(norms) if np.isinf(clip) else clip / np.maximum(norms, clip)
    return np.asarray(factors * present[..., None])


ENTRIES = 2**15  # doubles of the largest array of a block: 256 kB, which caches of a core hold


def spans(count: int, entries_each: int) -> Iterator[slice]:
    """Slices of ``count`` things of so many doubles each, as large as a block may be."""
    step = max(1, ENTRIES // max(1, entries_each))
    return (slice(start, start + step) for start in range(0, count, step))
