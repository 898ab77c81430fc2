"""Files of a figure, part by part, and what its pictures have in common."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noisedesign.base.atomic import write_text
from noisedesign.files.picture_file import write_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

Announce = Callable[[str], None]

DPI = 110


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A picture and its numbers, made of rows by pure functions of a graph.

    Attributes:
        description: one line: what it shows.
        parts: (quick, announce) -> the rows of one part after another.
        draw: (rows, quick) -> the picture.
        tables: by the end of their file's name, (columns, lines) of rows.
        early: whether the picture is drawn after every part, or once all are there.
    """

    description: str
    parts: Callable[[bool, Announce], Iterator[list[Any]]]
    draw: Callable[[Sequence[Any], bool], Picture]
    tables: Mapping[str, Callable[[Sequence[Any]], tuple[Sequence[str], Iterable[Sequence[Any]]]]]
    early: bool = True

    def make(
        self, name: str, folder: Path, *, quick: bool, announce: Announce, suffix: str
    ) -> list[Path]:
        """Write its files, each whole after every part, and return their paths, the picture first,
        whose name ends in ``suffix``."""
        picture, *tables = (folder / f"{name}{end}" for end in (suffix, *self.tables))
        rows: list[Any] = []
        for part in self.parts(quick, announce):
            rows += part
            for path, table in zip(tables, self.tables.values(), strict=True):
                write_table(path, *table(rows))
            if self.early:
                write_figure(self.draw(rows, quick), picture, dpi=DPI)
        if not self.early:
            write_figure(self.draw(rows, quick), picture, dpi=DPI)
        return [picture, *tables]


def write_table(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Path:
    """Write rows as CSV, whole or not at all. None becomes an empty cell, infinity ``inf``."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(columns)
    writer.writerows(rows)
    return write_text(path, text.getvalue())
