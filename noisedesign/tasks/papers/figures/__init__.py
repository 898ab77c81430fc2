"""Published figures and one of our own, each from one command: a picture and its numbers.

To add one: a :class:`_output.Figure` in a module here, and a line below. Files appear whole, after
every part that is finished, so that an interrupted run keeps what it had.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from noisedesign.base import checks as _checks
from noisedesign.base.checks import InputError
from noisedesign.files.picture_file import FORMATS
from noisedesign.tasks.papers.figures._output import Announce, Figure

__all__ = ["NAMES", "describe", "make"]

_FIGURES = {
    "pndp-by-distance": ("pndp", "BY_DISTANCE"),
    "gossip-single-view": ("gossip", "SINGLE_VIEW"),
    "gossip-spectral": ("gossip", "SPECTRAL"),
    "algorithms-by-observer": ("algorithms_by_observer", "FIGURE"),
}
"""Names, and where each is; loaded when it is asked for."""

NAMES = tuple(_FIGURES)


def make(
    name: str,
    folder: str | Path,
    *,
    quick: bool = False,
    to: str = "png",
    announce: Announce = lambda _: None,
) -> list[Path]:
    """Compute a figure and write it into ``folder``, which is created.

    Args:
        name: one of ``NAMES``.
        quick: small graphs and short horizons, to try it out in seconds.
        to: format of the picture, "png", "pdf" or "svg".
        announce: told what is being computed, what is skipped and why.

    Returns:
        The files written, the picture first, then its numbers (CSV).

    Raises:
        InputError: an unknown name or format, a folder that cannot be created.
        StorageError: a file that cannot be written.
    """
    figure = _figure(name)
    _checks.one_of(to, field="format", allowed=FORMATS)
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            "output", expected="a folder that can be created", got=f"{path}: {error.strerror}"
        ) from error
    return figure.make(name, path, quick=quick, announce=announce, suffix=f".{to}")


def describe(name: str) -> str:
    """One line on what a figure shows. Raises InputError for an unknown name."""
    return _figure(name).description


def _figure(name: str) -> Figure:
    module, value = _FIGURES[_checks.one_of(name, field="figure", allowed=NAMES)]
    found: Figure = getattr(import_module(f"{__name__}.{module}"), value)
    return found
