"""DECOR noise: R = s I + c Laplacian, a private share and one pairwise seed an edge, all alike.

Source: Allouah et al. (2024), "The Privacy Power of Correlated Noise in Decentralized Learning".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from noisedesign.base.checks import Array
from noisedesign.program.program import Program
from noisedesign.system.graph import graph_laplacian


@dataclass(frozen=True, kw_only=True, eq=False)
class DecorProgram(Program):
    """(P) over R = s I + c L, L the Laplacian of the graph of W, ``mixing``, shape (n, n)."""

    mixing: Array

    @cached_property
    def laplacian(self) -> Array:
        return graph_laplacian(self.mixing)
