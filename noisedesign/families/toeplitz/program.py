"""The program of strategies that are constant along diagonals."""

from __future__ import annotations

from dataclasses import dataclass

from noisedesign.families.temporal import TemporalProgram
from noisedesign.forms.structure import TimeStructure
from noisedesign.system.participation import FixedEpoch, Participation, require_fixed_epoch


@dataclass(frozen=True, kw_only=True, eq=False)
class ToeplitzProgram(TemporalProgram):
    """Its strategies are constant along diagonals, and of the kind of ``structure``."""

    structure: TimeStructure


def require_signs(participation: Participation) -> FixedEpoch:
    """The scheme, once one pattern decides the sensitivity of coefficients of any sign."""
    expected = "(k, b) participation, for coefficients or buffers of any sign"
    return require_fixed_epoch(participation, expected=expected)
