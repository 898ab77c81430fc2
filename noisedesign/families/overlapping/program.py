"""(P) in time where patterns overlap: they have to cover every step."""

from __future__ import annotations

from typing import Any

from noisedesign.base.checks import InputError
from noisedesign.program.temporal import TemporalProgram, temporal_program
from noisedesign.system.participation import Participation


def overlapping_program(*, gram: Any, participation: Participation) -> TemporalProgram:
    """The program of strategies without a structure for H = ``gram``, shape (T, T).

    Raises:
        InputError: as :func:`noisedesign.program.temporal.temporal_program`; a step is in no
            pattern.
    """
    program = temporal_program(gram=gram, participation=participation)
    taking_part = participation.taking_part
    if not taking_part.all():
        raise InputError(
            "participation",
            expected="patterns that cover every step",
            got=f"none with step {int(taking_part.argmin())}: nothing limits how well it may be "
            "served",
        )
    return program
