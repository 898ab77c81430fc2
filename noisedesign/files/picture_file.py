"""Pictures: how all of them look, and files of them, whole or not at all, the same every time."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from noisedesign.base import checks as _checks
from noisedesign.base.atomic import write_atomically
from noisedesign.base.checks import InputError
from noisedesign.base.extras import need
from noisedesign.base.file_kinds import MADE_BY
from noisedesign.base.shown import shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DPI = 130  # dots per inch of a PNG

_METADATA: dict[str, dict[str, Any]] = {
    "png": {},
    "pdf": {"Creator": MADE_BY, "CreationDate": None},
    "svg": {"Creator": MADE_BY, "Date": None},
}
"""Metadata by format: the program, and no date, so that a picture has the same bytes every time."""

FORMATS = tuple(_METADATA)
VECTOR = "svg"  # the format of pictures by default

BLUE, ORANGE, GREEN, GREY = "#0072b2", "#d55e00", "#009e73", "#767676"
PURPLE, SKY = "#cc79a7", "#56b4e9"  # for any colour vision (Okabe and Ito 2008)
AMBER, WINE, BLACK = "#e69f00", "#882255", "#333333"  # further ones, of mechanisms alone
FOREST, MINT, OLIVE = "#005a3c", "#6cc644", "#7a8b00"  # beside green
PLUM, VIOLET, MAUVE = "#7b2d8e", "#9c5fd0", "#5b4a9e"  # beside purple
BROWN, YELLOW = "#8a5a00", "#c9ad00"  # beside amber
NAVY, TEAL, ICE, STEEL, SLATE, CYAN, DENIM = (  # beside blue
    *("#08306b", "#12808f", "#a3b5e0", "#54779e", "#4a6274", "#2bc0cf", "#7b9ff2"),
)
RUST, PEACH, TAN = "#8c2d04", "#f0894a", "#a8775a"  # beside orange
ROSE, RED = "#d6457b", "#b3001b"  # beside wine
COLOURS = (BLUE, ORANGE, GREEN, PURPLE, SKY, GREY)
LINES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1)), (0, (1, 1)))  # of curves, in turn
SIGNED = "RdBu_r"  # colours of numbers with a sign: blue below zero, white at zero, red above it

NEGATIVE, POSITIVE = "#2166ac", "#b2182b"
"""The colours of negative and positive numbers in it."""

_STYLE: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.grid": False,
    "axes.labelsize": 9,
    "axes.linewidth": 0.7,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10,
    "figure.titlesize": 11,
    "font.family": ["sans-serif"],
    # One width of letters in all of them: a picture is laid out by the first, and read with any.
    "font.sans-serif": ["DejaVu Sans", "Bitstream Vera Sans", "Verdana", "sans-serif"],
    "font.size": 9,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.6,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "lines.linewidth": 1.4,
    "lines.markersize": 4.5,
    "pdf.fonttype": 42,  # TrueType, as publishers ask
    "svg.fonttype": "none",  # text that can be searched, read aloud and copied
    "svg.hashsalt": MADE_BY,  # names inside are the same every time
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
}

NAMED = 40  # most nodes whose names all fit along an axis
BELOW: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.16), "ncols": 2}

_UNSEEN = re.compile(  # control characters, and those that turn letters round
    r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]+"
)


@contextmanager
def style() -> Iterator[None]:
    """Draw and write pictures in one style, whatever the settings of the user."""
    need("matplotlib", field="output")
    import matplotlib as mpl  # late: it takes longer to load than a solve takes

    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_STYLE)
        yield


def new_figure(width: float, height: float, *, squares: bool = False) -> Figure:
    """An empty figure in inches, without display or global state; ``squares`` is for heat maps."""
    need("matplotlib", field="output")
    from matplotlib.figure import Figure  # late, as above

    return Figure(figsize=(width, height), layout="compressed" if squares else "constrained")


def plain(text: str, *, longest: int = 24) -> str:
    """A name of the user's in a picture: no mathematics, no control characters, not too long."""
    return shortened(_UNSEEN.sub(" ", text), longest).replace("$", r"\$")


def name_axis(axes: Axes, which: Literal["x", "y"], names: Sequence[str], *, of: str) -> None:
    """Write names along an axis at 0, 1, ...: every k-th, or none where they are the numbers."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    if all(name == str(place) for place, name in enumerate(names)):
        axis.set_label_text(of if len(names) <= NAMED else f"{of} ({len(names)} in all)")
        return
    every = 1 if len(names) <= NAMED else -(-len(names) // 20)
    shown = [plain(name) for name in names[::every]]
    long = which == "x" and max(map(len, shown)) > 2
    size = min(8.0, 200 / len(shown))
    axis.set_ticks(range(0, len(names), every), shown, fontsize=size, rotation=90 if long else 0)
    axis.set_label_text("" if every == 1 else f"{of} (one of {every} named, {len(names)} in all)")


def legend_below(figure: Figure, *, columns: int = 2, of: Axes | None = None) -> None:
    """Put the legend outside the axes, where it covers nothing."""
    handles, labels = (of or figure.axes[0]).get_legend_handles_labels()
    columns = max(1, min(columns, len(labels)))
    if labels:
        figure.legend(handles, labels, loc="outside lower center", ncols=columns)


def picture_format(path: str | Path, *, field: str = "output") -> str:
    """ "png", "pdf" or "svg", as the name of the file ends."""
    path = _checks.path(path, field=field)
    suffix = path.suffix.lower()
    if suffix[1:] not in FORMATS:
        *others, last = (f".{name}" for name in FORMATS)
        expected = f"a name that ends in {', '.join(others)} or {last}"
        got = f"{path.name}, which ends in {suffix or 'none of them'}"
        raise InputError(field, expected=expected, got=got)
    return suffix[1:]


def write_figure(figure: Figure, path: str | Path, *, dpi: float = DPI) -> Path:
    """Write a picture in the format that the name of the file ends in."""
    kind = picture_format(path)
    return write_atomically(path, lambda stream: save_figure(figure, stream, kind=kind, dpi=dpi))


def save_figure(figure: Figure, stream: Any, *, kind: str, dpi: float = DPI) -> None:
    """Write a picture of a format of FORMATS to an open binary file."""
    with style(), warnings.catch_warnings():
        if kind == VECTOR:  # its reader brings the letters
            warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure.savefig(stream, format=kind, dpi=dpi, metadata=_METADATA[kind])
