"""Published figures and one of our own; a module here and a line below add one."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noisedesign.base import checks as _checks
from noisedesign.base.atomic import made_folder, write_text
from noisedesign.files.picture_file import FORMATS, VECTOR, style, write_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

Announce = Callable[[str], None]

_FIGURES = {  # names, and where each is; loaded when it is asked for
    "pndp-by-distance": ("pndp", "BY_DISTANCE"),
    "gossip-single-view": ("gossip", "SINGLE_VIEW"),
    "gossip-spectral": ("gossip", "SPECTRAL"),
    "algorithms-by-observer": ("algorithms_by_observer", "FIGURE"),
}

NAMES = tuple(_FIGURES)


def make(
    name: str,
    folder: str | Path,
    *,
    quick: bool = False,
    to: str = VECTOR,
    announce: Announce = lambda _: None,
) -> list[Path]:
    """Compute a figure into ``folder``: picture and numbers; ``quick`` takes small graphs."""
    module, value = _FIGURES[_checks.one_of(name, field="figure", allowed=NAMES)]
    figure: Figure = getattr(import_module(f"{__name__}.{module}"), value)
    _checks.one_of(to, field="format", allowed=FORMATS)
    path = made_folder(folder)
    return figure.make(name, path, quick=quick, announce=announce, suffix=f".{to}")


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A picture and its numbers: ``parts(quick, announce)`` yields rows, ``draw(rows, quick)``
    draws them (after every part if ``early``), ``tables`` makes a table by the end of its name."""

    parts: Callable[[bool, Announce], Iterator[list[Any]]]
    draw: Callable[[Sequence[Any], bool], Picture]
    tables: Mapping[str, Callable[[Sequence[Any]], tuple[Sequence[str], Iterable[Sequence[Any]]]]]
    early: bool = True

    def make(
        self, name: str, folder: Path, *, quick: bool, announce: Announce, suffix: str
    ) -> list[Path]:
        """Write the files, each whole after every part, and return the paths, picture first."""
        picture, *tables = (folder / f"{name}{end}" for end in (suffix, *self.tables))
        rows: list[Any] = []

        def draw() -> None:
            with style():
                write_figure(self.draw(rows, quick), picture)

        for part in self.parts(quick, announce):
            rows += part
            for path, table in zip(tables, self.tables.values(), strict=True):
                write_table(path, *table(rows))
            if self.early:
                draw()
        if not self.early:
            draw()
        return [picture, *tables]


def write_table(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Path:
    """Write rows as CSV, whole or not at all. None becomes an empty cell, infinity ``inf``."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(columns)
    writer.writerows(rows)
    return write_text(path, text.getvalue())
