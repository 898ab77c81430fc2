"""The program of strategies that are constant along diagonals."""

from __future__ import annotations

from dataclasses import dataclass

from noisedesign.families.temporal import TemporalProgram
from noisedesign.forms.structure import TimeStructure


@dataclass(frozen=True, kw_only=True, eq=False)
class ToeplitzProgram(TemporalProgram):
    """Its strategies are constant along diagonals, and of the kind of ``structure``."""

    structure: TimeStructure
