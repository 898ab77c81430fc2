"""DECOR noise: R = s I + c Laplacian, a private share and one pairwise seed an edge, all alike.

Source: Allouah et al. (2024), "The Privacy Power of Correlated Noise in Decentralized Learning".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from noisedesign.base.checks import Array
from noisedesign.program.program import Program


@dataclass(frozen=True, kw_only=True, eq=False)
class DecorProgram(Program):
    """(P) over R = s I + c L, L the Laplacian of the graph of W, ``mixing``, shape (n, n)."""

    mixing: Array

    @cached_property
    def laplacian(self) -> Array:
        return graph_laplacian(self.mixing)


def graph_laplacian(mixing: Array) -> Array:
    """Laplacian of the graph along which messages travel, shape (n, n)."""
    linked = ((mixing != 0) | (mixing.T != 0)).astype(np.float64)
    np.fill_diagonal(linked, 0.0)
    return np.asarray(np.diag(linked.sum(axis=1)) - linked)


def shares(covariance: Array, laplacian: Array) -> tuple[float, float]:
    """s and c of R = s I + c L, read off the means of R over nodes and over edges."""
    edges = laplacian < 0
    shared = -float(covariance[edges].mean()) if edges.any() else 0.0
    return float((np.diagonal(covariance) - shared * np.diagonal(laplacian)).mean()), shared
