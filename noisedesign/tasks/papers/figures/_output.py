"""Files of a figure, and what its pictures have in common."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noisedesign.base.atomic import write_text
from noisedesign.files.picture_file import write_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Announce = Callable[[str], None]

BLUE, ORANGE, GREEN, GREY = "#0072b2", "#d55e00", "#009e73", "#767676"
"""Colours that readers with any colour vision tell apart (Okabe and Ito 2008)."""

DPI, PNG = 110, ".png"


def silent(message: str) -> None:
    """Announce nothing."""


def new_figure(*, width: float, height: float) -> Figure:
    """An empty figure of some inches, drawn without a display and without global state."""
    from matplotlib.figure import Figure  # late: it takes longer to load than a command takes

    return Figure(figsize=(width, height), layout="constrained")


def write_picture(figure: Figure, path: Path) -> Path:
    """Write a figure, whole or not at all."""
    return write_figure(figure, path, dpi=DPI)


def write_table(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Path:
    """Write rows as CSV, whole or not at all. None becomes an empty cell, infinity ``inf``."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(columns)
    writer.writerows(rows)
    return write_text(path, text.getvalue())
