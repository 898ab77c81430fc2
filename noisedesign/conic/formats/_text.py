"""What the text formats share: the words at the head of a file, and numbers as they are read back
to the last bit."""

from __future__ import annotations

import importlib.metadata
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

from noisedesign.base.checks import Array
from noisedesign.conic.program import ConicProgram, Group

WIDTH = 96
"""Columns of a comment; the Conic Benchmark Format allows 512 bytes a line."""

CHUNK = 65536
"""Lines handed to the file at a time."""

MOST_GROUPS = 40
"""Most groups of variables named one by one: cliques and patterns may be thousands."""


def comments(
    program: ConicProgram, description: str, *, mark: str, constraints: str, first: int
) -> str:
    """The head of a file: where it comes from and what its numbers mean, each line after a mark.

    ``constraints`` is what the format requires, ``first`` the number of its first variable.
    """
    sentences = [
        f"{program.name}: a problem of noisedesign {_version()}, formulation "
        f'"{program.formulation}".',
        description,
        "Objective: minimise. Its optimum is the objective of `noisedesign solve`, the squared "
        "error of the noise for one coordinate of the model at the budgets of the problem; no "
        "factor, no offset, no change of sign.",
        f"Constraints: {constraints}.",
        f"Variables, counted from {first}; symmetric matrices by their upper triangle, row by row, "
        "entries that vanish left out:",
        *_listed([_words(group, first - 1) for group in program.groups]),
        *program.remarks,
    ]
    lines = [
        line
        for sentence in sentences
        for line in textwrap.wrap(sentence, WIDTH, subsequent_indent="  ")
    ]
    return "".join(f"{mark} {line}\n" for line in lines)


def _version() -> str:
    try:
        return importlib.metadata.version("noisedesign")
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"


def _words(group: Group, shift: int) -> str:
    low, high = group.first + shift, group.last + shift
    numbers = str(low) if low == high else f"{low}-{high}"
    return f"  {numbers}: {group.name}, {group.meaning}"


def _listed(groups: list[str]) -> list[str]:
    left_out = len(groups) - MOST_GROUPS
    if left_out <= 0:
        return groups
    between = f"  and {left_out} more groups, in between, of the kinds before and after:"
    return [*groups[: MOST_GROUPS - 1], between, groups[-1]]


def lines(*columns: Any) -> Iterator[str]:
    """One line for each entry of arrays of whole numbers and, last, of numbers."""
    for first in range(0, len(columns[-1]), CHUNK):
        parts = [column[first : first + CHUNK].tolist() for column in columns]
        yield from (f"{' '.join(map(repr, line))}\n" for line in zip(*parts, strict=True))


def numbers(values: Array) -> str:
    """Values in one line."""
    return " ".join(map(repr, values.tolist())) + "\n"


def write_lines(file: BinaryIO, written: Iterable[str]) -> None:
    """Text to a file, gathered so that few writes are made."""
    gathered: list[str] = []
    for line in written:
        gathered.append(line)
        if len(gathered) == CHUNK:
            file.write("".join(gathered).encode("utf-8"))
            gathered.clear()
    file.write("".join(gathered).encode("utf-8"))
