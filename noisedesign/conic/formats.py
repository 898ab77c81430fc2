"""Problems as files of conic programs, for people who develop solvers.

To add a format: a function that writes it, and its line in ``FORMATS``.

cbf
    The Conic Benchmark Format, version 2. Blocks are PSDCON (HCOORD, DCOORD), linear rows CON of
    kind L+ (ACOORD, BCOORD), variables free. Variables, constraints, rows and columns count from 0.
    Source: Friberg (2016), "CBLIB 2014: a benchmark library for conic mixed-integer and continuous
    optimization".
sdpa
    The sparse format of SDPA, which CSDP, DSDP and others read as well. The program is SDPA's
    primal: minimise c^T x subject to sum of x_i F_i - F_0 >= 0, so F_0 has the other sign here than
    in :mod:`noisedesign.conic.program`. Linear rows are the last block, a diagonal one, whose size
    is written negative. Everything counts from 1.
    Source: Fujisawa, Kojima, Nakata and Yamashita, "SDPA user's manual".
mosek-task
    MOSEK's own files, written by the ``mosek`` package, which needs no licence for it. MOSEK reads
    the program from the Conic Benchmark Format and writes it as it holds it: an affine conic
    constraint for every block, whose off-diagonal entries it multiplies by the root of two."""

from __future__ import annotations

import importlib
import shutil
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base.atomic import StorageError, overwriting, write_atomically
from noisedesign.base.checks import Array, InputError, one_of
from noisedesign.base.version import version
from noisedesign.conic.program import CONSTANT, ConicProgram

WIDTH = 96  # columns of a comment; the Conic Benchmark Format allows 512 bytes a line
CHUNK = 65536  # lines handed to the file at a time
MOST_GROUPS = 40  # most groups of variables named one by one: cliques and patterns may be thousands


def comments(
    program: ConicProgram, description: str, *, mark: str, constraints: str, first: int
) -> str:
    """The head of a file: its origin and the meaning of its numbers, each line after a mark."""
    groups = []
    for group in program.groups:
        low, high = group.first + first - 1, group.last + first - 1
        numbered = str(low) if low == high else f"{low}-{high}"
        groups.append(f"  {numbered}: {group.name}, {group.meaning}")
    if (left_out := len(groups) - MOST_GROUPS) > 0:
        between = f"  and {left_out} more groups, in between, of the kinds before and after:"
        groups[MOST_GROUPS - 1 : -1] = [between]
    sentences = [
        f"{program.name}: a problem of noisedesign {version()}, formulation "
        f'"{program.formulation}".',
        description,
        "Objective: minimise. Its optimum is the objective of `noisedesign solve`, the squared "
        "error of the noise for one coordinate of the model at the budgets of the problem; no "
        "factor, no offset, no change of sign.",
        f"Constraints: {constraints}.",
        f"Variables, counted from {first}; symmetric matrices by their upper triangle, row by row, "
        "entries that vanish left out:",
        *groups,
        *program.remarks,
    ]
    lines = [
        line
        for sentence in sentences
        for line in textwrap.wrap(sentence, WIDTH, subsequent_indent="  ")
    ]
    return "".join(f"{mark} {line}\n" for line in lines)


def lines(*columns: Any) -> Iterator[str]:
    """One line for each entry of arrays of whole numbers and, last, of numbers."""
    for first in range(0, len(columns[-1]), CHUNK):
        parts = [column[first : first + CHUNK].tolist() for column in columns]
        yield from (f"{' '.join(map(repr, line))}\n" for line in zip(*parts, strict=True))


def numbers(values: Array) -> str:
    """Values in one line."""
    return " ".join(map(repr, values.tolist())) + "\n"


def _cbf(program: ConicProgram, description: str) -> Iterator[str]:
    constraints = "D + sum of x_j H_j positive semidefinite for every PSDCON, A x + b >= 0"
    yield comments(program, description, mark="#", constraints=constraints, first=0)
    yield f"VER\n2\n\nOBJSENSE\nMIN\n\nVAR\n{program.variables} 1\nF {program.variables}\n"
    if program.blocks:
        yield f"\nPSDCON\n{len(program.blocks)}\n"
        yield from (f"{block.size}\n" for block in program.blocks)
    if program.rows.size:
        yield f"\nCON\n{program.rows.size} 1\nL+ {program.rows.size}\n"
    priced = np.flatnonzero(program.cost)
    yield from _section("OBJACOORD", priced, program.cost[priced])
    rows = program.rows.entries
    free = rows.variable != CONSTANT
    if program.rows.size:
        yield from _section("ACOORD", rows.row[free], rows.variable[free] - 1, rows.value[free])
        yield from _section("BCOORD", rows.row[~free], rows.value[~free])
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


def _sdpa(program: ConicProgram, description: str) -> Iterator[str]:
    blocks = [*program.blocks, *([program.rows] if program.rows.size else [])]
    sizes = [str(block.size) for block in program.blocks]
    if program.rows.size:
        sizes.append(str(-program.rows.size))
    constraints = (
        "sum of x_i F_i - F_0 positive semidefinite, a last block of negative size diagonal"
    )
    yield comments(program, description, mark="*", constraints=constraints, first=1)
    yield f"{program.variables}\n{len(blocks)}\n{' '.join(sizes)}\n{numbers(program.cost)}"
    block = np.repeat(np.arange(len(blocks)), [len(block.entries) for block in blocks])
    # The upper triangle is asked for: rows and columns change places.
    variable, column, row, value = (
        np.concatenate([getattr(block.entries, name) for block in blocks])
        for name in ("variable", "row", "column", "value")
    )
    value = np.where(variable == CONSTANT, -value, value)
    order = np.argsort(variable, kind="stable")
    columns = (variable, block + 1, row + 1, column + 1, value)
    yield from lines(*(part[order] for part in columns))


def _write_task(program: ConicProgram, path: Path, description: str) -> Path:
    """Write a program in the kind of MOSEK file that the ending of ``path`` names."""
    try:
        mosek = importlib.import_module("mosek")
    except ModuleNotFoundError:
        raise InputError(
            "format",
            expected="the mosek package, which writes its own files",
            got="none",
            remedy="pip install 'noisedesign[mosek]' (no licence is needed), or write a .cbf, "
            "which MOSEK reads.",
        ) from None
    with tempfile.TemporaryDirectory() as folder:
        source = _written(_cbf)(program, Path(folder, "model.cbf"), description)
        made = Path(folder, f"model{path.suffix.lower()}")
        try:
            with mosek.Env() as environment, environment.Task() as task:
                task.readdata(str(source))
                task.puttaskname(program.name)
                task.writedata(str(made))
        except mosek.Error as error:
            raise StorageError(path, OSError(f"MOSEK says {error}")) from error

        def fill(file: BinaryIO) -> None:
            with made.open("rb") as content:
                shutil.copyfileobj(content, file)

        return write_atomically(path, fill)


def _written(
    text: Callable[[ConicProgram, str], Iterator[str]],
) -> Callable[[ConicProgram, Path, str], Path]:
    """Make the writer of a format of text, which gathers lines so that few writes are made."""

    def written(program: ConicProgram, path: Path, description: str) -> Path:
        def write(file: BinaryIO) -> None:
            rest = text(program, description)
            while gathered := list(islice(rest, CHUNK)):
                file.write("".join(gathered).encode("utf-8"))

        return write_atomically(path, write)

    return written


@dataclass(frozen=True)
class Format:
    """A format: endings of its files with the dot, what it is and who reads it, and its writer."""

    suffixes: tuple[str, ...]
    description: str
    write: Callable[[ConicProgram, Path, str], Path]


FORMATS = {
    "cbf": Format((".cbf",), "Conic Benchmark Format 2 (CBLIB)", _written(_cbf)),
    "sdpa": Format((".dat-s",), "SDPA sparse format (SDPA, CSDP, DSDP)", _written(_sdpa)),
    "mosek-task": Format(
        (".task", ".jtask", ".ptf"),
        "MOSEK task: .task (binary), .jtask (JSON) or .ptf (text); needs the mosek package",
        _write_task,
    ),
}


def format_of(path: str | Path, *, name: str | None = None) -> str:
    """Return the format to write to ``path``: the one asked for, or that of its ending."""
    if name is not None:
        one_of(name, field="format", allowed=tuple(FORMATS))
    ending = Path(path).suffix.lower()
    if name is None:
        for found, form in FORMATS.items():
            if ending in form.suffixes:
                return found
        raise InputError(
            "format",
            expected="one of " + ", ".join(FORMATS),
            got=f"none, for a file {path}",
            remedy="Name it with --format, or by the ending of the file: "
            + ", ".join(end for form in FORMATS.values() for end in form.suffixes),
        )
    # MOSEK chooses among its kinds of file by the ending; the others are text under any name.
    if name == "mosek-task" and ending not in FORMATS[name].suffixes:
        expected = f"a file that ends in {', '.join(FORMATS[name].suffixes)}"
        raise InputError("output", expected=expected, got=str(path))
    return name


def write(
    program: ConicProgram,
    path: str | Path,
    *,
    to: str | None = None,
    description: str = "",
    overwrite: bool = False,
) -> Path:
    """Write a conic program, whole or not at all.

    Args:
        program: of :func:`noisedesign.tasks.model.conic_program`.
        path: of the file; its ending says the format.
        to: "cbf", "sdpa" or "mosek-task"; by default what the ending of ``path`` says.
        description: goes into the comments at the head of the file, which task files lack.
        overwrite: replace a file even if it is no conic program.

    Returns:
        ``path``.

    Raises:
        InputError: no program; see :func:`format_of`; a path that cannot be written to, a file of
            another kind; the mosek package is missing.
        StorageError: the disk is full, the folder is read-only, ...

    Examples:
        >>> import noisedesign as nd
        >>> from noisedesign.conic import formats
        >>> from noisedesign.tasks.model import conic_program
        >>> problem = nd.TimeProblem.prefix(participation=nd.participation.single(2))
        >>> formats.write(conic_program(problem), "prefix.cbf").exists()
        True
    """
    expected = "a conic program, as noisedesign.tasks.model.conic_program(problem) makes one"
    _checks.instance(program, ConicProgram, field="program", expected=expected)
    path = _checks.path(path, field="output")
    _checks.text(description, field="description")
    chosen = FORMATS[format_of(path, name=to)]
    with overwriting(overwrite):
        return chosen.write(program, path, description)
