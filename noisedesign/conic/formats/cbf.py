"""The Conic Benchmark Format, version 2.

Blocks are PSDCON (HCOORD, DCOORD), linear rows CON of kind L+ (ACOORD, BCOORD), variables free.
Numbers of variables, constraints, rows and columns count from 0.

Source: Friberg (2016), "CBLIB 2014: a benchmark library for conic mixed-integer and continuous
optimization".
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from noisedesign.base.atomic import write_atomically
from noisedesign.conic.formats._text import comments, lines, write_lines
from noisedesign.conic.program import CONSTANT, ConicProgram

SUFFIXES = (".cbf",)
DESCRIPTION = "Conic Benchmark Format 2 (CBLIB)"
VERSION = 2


def write(program: ConicProgram, path: Path, *, description: str = "") -> Path:
    """Write a program. Raises as :func:`noisedesign.base.atomic.write_atomically`."""

    def fill(file: BinaryIO) -> None:
        write_lines(file, _text(program, description))

    return write_atomically(path, fill)


def _text(program: ConicProgram, description: str) -> Iterator[str]:
    yield comments(
        program,
        description,
        mark="#",
        first=0,
        constraints="D + sum of x_j H_j positive semidefinite for every PSDCON, A x + b >= 0",
    )
    yield f"VER\n{VERSION}\n\nOBJSENSE\nMIN\n\nVAR\n{program.variables} 1\nF {program.variables}\n"
    if program.blocks:
        yield f"\nPSDCON\n{len(program.blocks)}\n"
        yield from (f"{block.size}\n" for block in program.blocks)
    if program.rows.size:
        yield f"\nCON\n{program.rows.size} 1\nL+ {program.rows.size}\n"
    priced = np.flatnonzero(program.cost)
    yield from _section("OBJACOORD", priced, program.cost[priced])
    rows = program.rows.entries
    fixed = rows.variable == CONSTANT
    if program.rows.size:
        yield from _section(
            "ACOORD", rows.row[~fixed], rows.variable[~fixed] - 1, rows.value[~fixed]
        )
        yield from _section("BCOORD", rows.row[fixed], rows.value[fixed])
    yield from _blocks("HCOORD", program, constant=False)
    yield from _blocks("DCOORD", program, constant=True)


def _section(keyword: str, *columns: np.ndarray) -> Iterator[str]:
    yield f"\n{keyword}\n{len(columns[-1])}\n"
    yield from lines(*columns)


def _blocks(keyword: str, program: ConicProgram, *, constant: bool) -> Iterator[str]:
    chosen = [(block.entries.variable == CONSTANT) == constant for block in program.blocks]
    yield f"\n{keyword}\n{sum(int(which.sum()) for which in chosen)}\n"
    for number, (block, which) in enumerate(zip(program.blocks, chosen, strict=True)):
        entries = block.entries
        where = [np.full(int(which.sum()), number)]
        if not constant:
            where.append(entries.variable[which] - 1)
        yield from lines(*where, entries.row[which], entries.column[which], entries.value[which])
