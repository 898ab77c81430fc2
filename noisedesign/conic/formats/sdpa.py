"""The sparse format of SDPA, which CSDP, DSDP and others read as well.

The program is SDPA's primal: minimise c^T x subject to sum of x_i F_i - F_0 >= 0, so F_0 has the
other sign here than in :mod:`noisedesign.conic.program`. Linear rows are the last
block, a diagonal one, whose size is written negative. Everything counts from 1.

Source: Fujisawa, Kojima, Nakata and Yamashita, "SDPA user's manual".
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from noisedesign.base.atomic import write_atomically
from noisedesign.conic.formats._text import comments, lines, numbers, write_lines
from noisedesign.conic.program import CONSTANT, ConicProgram

SUFFIXES = (".dat-s",)
DESCRIPTION = "SDPA sparse format (SDPA, CSDP, DSDP)"


def write(program: ConicProgram, path: Path, *, description: str = "") -> Path:
    """Write a program. Raises as :func:`noisedesign.base.atomic.write_atomically`."""

    def fill(file: BinaryIO) -> None:
        write_lines(file, _text(program, description))

    return write_atomically(path, fill)


def _text(program: ConicProgram, description: str) -> Iterator[str]:
    blocks = [*program.blocks, *([program.rows] if program.rows.size else [])]
    sizes = [str(block.size) for block in program.blocks]
    if program.rows.size:
        sizes.append(str(-program.rows.size))
    yield comments(
        program,
        description,
        mark="*",
        first=1,
        constraints="sum of x_i F_i - F_0 positive semidefinite, a last block of negative size "
        "diagonal",
    )
    yield f"{program.variables}\n{len(blocks)}\n{' '.join(sizes)}\n{numbers(program.cost)}"
    block = np.repeat(np.arange(len(blocks)), [len(block.entries) for block in blocks])
    # The upper triangle is asked for: rows and columns change places.
    variable, column, row, value = (
        np.concatenate([getattr(block.entries, name) for block in blocks])
        for name in ("variable", "row", "column", "value")
    )
    value = np.where(variable == CONSTANT, -value, value)
    order = np.argsort(variable, kind="stable")
    yield from lines(
        variable[order], block[order] + 1, row[order] + 1, column[order] + 1, value[order]
    )
