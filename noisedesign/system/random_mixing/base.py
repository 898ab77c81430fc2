"""What models of random mixing share: a random Laplacian, and expectations through its moments.

Only expectations of W^T G W enter a design, so that E tr(W R W^T) = tr(E[W^T W] R): H changes and
nothing else does. Every model here is W = I - L with L the Laplacian of random edge weights, hence
symmetric and doubly stochastic at every draw, and

    E[W^T G W] = G - E[L] G - G E[L] + E[L G L].

The last term needs the second moments of the edge weights. They are products of at most four
Bernoulli variables, or probabilities of matchings, so every model has it in closed form.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base import linalg as _linalg
from noisedesign.base import settings
from noisedesign.base.checks import Array, InputError
from noisedesign.base.shown import Shown


class RandomMixing(Shown, ABC):
    """A distribution of symmetric, doubly stochastic mixing matrices W, one draw a step."""

    @property
    @abstractmethod
    def mean_laplacian(self) -> Array:
        """E[L], shape (n, n)."""

    @abstractmethod
    def laplacian_square(self, gram: Array) -> Array:
        """E[L G L], shape (n, n), for a symmetric G."""

    @abstractmethod
    def _sampled_laplacian(self, rng: np.random.Generator) -> Array:
        """One draw of L, shape (n, n)."""

    @property
    def mean(self) -> Array:
        """E[W], shape (n, n)."""
        return np.asarray(np.eye(len(self.mean_laplacian)) - self.mean_laplacian)

    def expected(self, gram: Any) -> Array:
        """E[W^T G W], shape (n, n), exact, for symmetric G of shape (n, n).

        With G = I it is the H of one step: E tr(W R W^T) = tr(E[W^T W] R).

        Raises:
            InputError: G is not a finite symmetric float64 matrix of n nodes.
        """
        g = _checks.symmetric_matrix(gram, field="gram", tolerance=settings.SYMMETRY_TOLERANCE)
        if g.shape != self.mean_laplacian.shape:
            raise InputError(
                "gram", expected=f"shape {self.mean_laplacian.shape}", got=f"{g.shape}"
            )
        # The symmetric part of 2 E[L] G is E[L] G + G E[L].
        return _linalg.symmetrized(g - 2 * self.mean_laplacian @ g + self.laplacian_square(g))

    def sample(self, rng: np.random.Generator) -> Array:
        """One draw of W, shape (n, n), symmetric and doubly stochastic.

        Raises:
            InputError: rng is no numpy Generator.
        """
        if not isinstance(rng, np.random.Generator):
            raise InputError("rng", expected="a numpy Generator", got=_checks.describe(rng))
        drawn = self._sampled_laplacian(rng)
        return np.asarray(np.eye(len(drawn)) - drawn)


def laplacian(weights: Array) -> Array:
    """diag(A 1) - A for edge weights A, shape (n, n), zero on the diagonal."""
    return np.asarray(np.diag(weights.sum(axis=1)) - weights)
