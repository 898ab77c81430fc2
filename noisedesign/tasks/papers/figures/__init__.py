"""Published figures and one of our own, each from one command: a picture and its numbers.

To add one: a module here with ``make(folder, *, quick, announce)``, and its name below. Numbers are
made by pure functions of a graph; files appear whole, after every part that is finished, so that an
interrupted run keeps what it had.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from noisedesign.base import checks as _checks
from noisedesign.base.checks import InputError
from noisedesign.files.picture_file import FORMATS
from noisedesign.tasks.papers.figures._output import PNG, Announce, silent

__all__ = ["NAMES", "describe", "make"]

NAMES = ("pndp-by-distance", "gossip-single-view", "gossip-spectral", "algorithms-by-observer")


class _Figure(Protocol):
    """What a module of this package is."""

    @property
    def DESCRIPTION(self) -> str:  # noqa: N802
        """One line: what it shows."""

    def make(
        self, folder: Path, *, quick: bool, announce: Announce, suffix: str = PNG
    ) -> list[Path]:
        """Write the files and return their paths, the picture first, whose name ends so."""


def make(
    name: str,
    folder: str | Path,
    *,
    quick: bool = False,
    to: str = "png",
    announce: Announce = silent,
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
    return figure.make(path, quick=quick, announce=announce, suffix=f".{to}")


def describe(name: str) -> str:
    """One line on what a figure shows. Raises InputError for an unknown name."""
    return _figure(name).DESCRIPTION


def _figure(name: str) -> _Figure:
    _checks.one_of(name, field="figure", allowed=NAMES)
    return cast("_Figure", import_module(f"{__name__}.{name.replace('-', '_')}"))
