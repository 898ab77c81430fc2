"""Nodes that drop out of a step, and edges that fail in one, each independently."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base import linalg as _linalg
from noisedesign.base import settings
from noisedesign.base.checks import Array, InputError
from noisedesign.system.graph import check_mixing
from noisedesign.system.random_mixing.base import RandomMixing, laplacian


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class NodeDropout(RandomMixing):
    """Every node is out of a step with its own probability, independently of all others.

    A node that is out keeps its model: its row and column of W become those of the identity, and
    its neighbours put the weight it had on themselves.

    Args:
        mixing: W with everyone in, shape (n, n), symmetric, doubly stochastic, connected.
        probability: p, scalar or shape (n,), in [0, 1).

    Raises:
        InputError: see :func:`graph.check_mixing`; W is not symmetric; a probability
            outside [0, 1).
    """

    mixing: Any
    probability: Any

    def __post_init__(self) -> None:
        mixing = _symmetric_mixing(self.mixing)
        object.__setattr__(self, "mixing", mixing)
        p = _checks.vector(self.probability, field="probability", length=len(mixing))
        _check_probabilities(p)
        object.__setattr__(self, "probability", p)

    @cached_property
    def _mean_weights(self) -> Array:
        present = 1 - self.probability
        return np.asarray(_edge_weights(self.mixing) * present[:, None] * present)

    @cached_property
    def mean_laplacian(self) -> Array:
        return laplacian(self._mean_weights)

    def laplacian_square(self, gram: Array) -> Array:
        # Relative to independent edges, two edges that share node k alone are 1/q_k times as
        # likely to be up together, and an edge (i, j) with itself 1/(q_i q_j) times. The sum over
        # stars counts that edge at both ends: (1/q_i - 1) + (1/q_j - 1), which leaves the product.
        excess = 1 / (1 - self.probability) - 1
        return np.asarray(
            self.mean_laplacian @ gram @ self.mean_laplacian
            + _stars(self._mean_weights, gram, excess)
            + _edges(np.square(self._mean_weights) * excess[:, None] * excess, gram)
        )

    def _sampled_laplacian(self, rng: np.random.Generator) -> Array:
        present = rng.random(len(self.mixing)) >= self.probability
        return laplacian(_edge_weights(self.mixing) * present[:, None] * present)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class EdgeDropout(RandomMixing):
    """Every edge fails in a step with the same probability, independently of all others.

    The weight of a failed edge returns to the diagonal at both ends.

    Args:
        mixing: W with all edges up, shape (n, n), symmetric, doubly stochastic, connected.
        probability: p, in [0, 1).

    Raises:
        InputError: see :func:`graph.check_mixing`; W is not symmetric; a probability
            outside [0, 1).
    """

    mixing: Any
    probability: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "mixing", _symmetric_mixing(self.mixing))
        p = _checks.real(self.probability, field="probability")
        _check_probabilities(np.array([p]))

    @cached_property
    def mean_laplacian(self) -> Array:
        return (1 - self.probability) * laplacian(_edge_weights(self.mixing))

    def laplacian_square(self, gram: Array) -> Array:
        variance = self.probability * (1 - self.probability)
        own = _edges(variance * np.square(_edge_weights(self.mixing)), gram)
        return np.asarray(self.mean_laplacian @ gram @ self.mean_laplacian + own)

    def _sampled_laplacian(self, rng: np.random.Generator) -> Array:
        n = len(self.mixing)
        up = np.triu(rng.random((n, n)) >= self.probability, 1)
        return laplacian(_edge_weights(self.mixing) * (up | up.T))


def _symmetric_mixing(mixing: Any) -> Array:
    w = check_mixing(mixing, doubly_stochastic=True)
    return _checks.symmetric_matrix(w, field="mixing", tolerance=settings.SYMMETRY_TOLERANCE)


def _check_probabilities(p: Iterable[float]) -> None:
    for index, value in enumerate(p):
        if not 0 <= value < 1:
            raise InputError(
                "probability", expected="probabilities in [0, 1)", got=f"{value:g} at index {index}"
            )


def _edge_weights(mixing: Array) -> Array:
    """W without its diagonal, exactly symmetric."""
    weights = _linalg.symmetrized(mixing)
    np.fill_diagonal(weights, 0.0)
    return weights


def _edges(weights: Array, gram: Array) -> Array:
    """Sum over edges e of c_e (b_e^T G b_e) b_e b_e^T, b_e = e_i - e_j, ``weights`` holding c."""
    diagonal = np.diagonal(gram)
    return laplacian(weights * (np.add.outer(diagonal, diagonal) - 2 * gram))


def _stars(weights: Array, gram: Array, excess: Array) -> Array:
    """Sum over nodes k of r_k L_k G L_k, L_k the Laplacian of the edges at k alone, r = excess.

    L_k G L_k has the entry v_kj v_kl (G_kk - G_kl - G_jk + G_jl) at (j, l) for neighbours j and l,
    and rows that sum to zero; n^3 operations for all k together.
    """
    diagonal = np.diagonal(gram)
    scaled = excess[:, None] * weights
    cross = scaled.T @ (weights * gram)
    far = (
        (weights.T * (excess * diagonal)) @ weights - cross - cross.T + gram * (scaled.T @ weights)
    )
    sums = weights @ gram
    degrees = weights.sum(axis=1)
    centre = degrees * diagonal - np.diagonal(sums)
    near = scaled * (centre[:, None] - degrees[:, None] * gram + sums)
    return np.asarray(far - near - near.T + np.diag(near.sum(axis=1)))
