"""Pictures on disk: what the ending of the name says, whole or not at all, the same every time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from noisedesign.base import checks as _checks
from noisedesign.base.atomic import write_atomically
from noisedesign.base.checks import InputError
from noisedesign.base.file_kinds import MADE_BY

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 130
"""Dots per inch of a PNG."""

_METADATA: dict[str, dict[str, Any]] = {
    "png": {},
    "pdf": {"Creator": MADE_BY, "CreationDate": None},
    "svg": {"Creator": MADE_BY, "Date": None},
}
"""What a file says of itself, by format: who made it, which tells it from files of others, and no
date, so that the same picture gives the same bytes."""

FORMATS = tuple(_METADATA)

_SETTINGS: dict[Any, Any] = {"svg.hashsalt": MADE_BY, "pdf.fonttype": 42}
"""Names inside an SVG are the same every time; a PDF has TrueType fonts, as publishers ask."""


BLUE, ORANGE, GREEN, GREY = "#0072b2", "#d55e00", "#009e73", "#767676"
"""Colours that readers with any colour vision tell apart (Okabe and Ito 2008)."""


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of some inches, drawn without a display and without global state."""
    from matplotlib.figure import Figure  # late: it takes longer to load than a solve takes

    return Figure(figsize=(width, height), layout="constrained")


def picture_format(path: str | Path, *, field: str = "output") -> str:
    """ "png", "pdf" or "svg", as the name of the file ends.

    Raises:
        InputError: naming ``field``: no path; another ending, or none.
    """
    path = _checks.path(path, field=field)
    suffix = path.suffix.lower()
    if suffix[1:] not in FORMATS:
        *others, last = (f".{name}" for name in FORMATS)
        expected = f"a name that ends in {', '.join(others)} or {last}"
        got = f"{path.name}, which ends in {suffix or 'none of them'}"
        raise InputError(field, expected=expected, got=got)
    return suffix[1:]


def write_figure(figure: Figure, path: str | Path, *, dpi: float = DPI) -> Path:
    """Write a picture in the format that the name of the file ends in.

    Raises:
        InputError: another ending than .png, .pdf or .svg; the folder does not exist.
        StorageError: the file cannot be written; an existing one stays as it was.
    """
    import matplotlib as mpl  # late: it takes longer to load than a solve takes

    kind = picture_format(path)

    def write(stream: Any) -> None:
        with mpl.rc_context(_SETTINGS):
            figure.savefig(stream, format=kind, dpi=dpi, metadata=_METADATA[kind])

    return write_atomically(path, write)
