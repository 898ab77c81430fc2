"""The program of DECOR: one noise of every node, and one of every edge that both ends cancel."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from noisedesign.base.checks import Array
from noisedesign.certify.program import Program
from noisedesign.system.graph import graph_laplacian


@dataclass(frozen=True, kw_only=True, eq=False)
class DecorProgram(Program):
    """(P) over R = s I + c L, L the Laplacian of the graph of W, ``mixing``, shape (n, n)."""

    mixing: Array

    @cached_property
    def laplacian(self) -> Array:
        return graph_laplacian(self.mixing)
