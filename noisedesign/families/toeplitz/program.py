"""The program of Toeplitz strategies: that of all strategies, over one kind of columns."""

from __future__ import annotations

from dataclasses import dataclass

from noisedesign.program.structure import TimeStructure
from noisedesign.program.temporal import TemporalProgram


@dataclass(frozen=True, kw_only=True, eq=False)
class ToeplitzProgram(TemporalProgram):
    """Its strategies are constant along diagonals, and of the kind of ``structure``."""

    structure: TimeStructure
