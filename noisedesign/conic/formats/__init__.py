"""Problems as files of conic programs, for people who develop solvers.

To add a format: a module here with ``SUFFIXES``, ``DESCRIPTION`` and ``write``, and its name below.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from noisedesign.base.atomic import overwriting
from noisedesign.base.checks import InputError, one_of
from noisedesign.conic.program import ConicProgram

_NAMES = ("cbf", "sdpa", "mosek-task")


class Format(Protocol):
    """What a module of a format is."""

    @property
    def SUFFIXES(self) -> tuple[str, ...]:  # noqa: N802
        """Endings of its files, each with its dot."""

    @property
    def DESCRIPTION(self) -> str:  # noqa: N802
        """One line: what it is, and who reads it."""

    def write(self, program: ConicProgram, path: Path, *, description: str = "") -> Path:
        """Write ``program`` to ``path`` and return it."""


def formats() -> dict[str, Format]:
    """The formats by name."""
    return {
        name: cast("Format", import_module(f"{__name__}.{name.replace('-', '_')}"))
        for name in _NAMES
    }


def format_of(path: str | Path, *, name: str | None = None) -> str:
    """The format to write to ``path``: the one asked for, or that of the ending of ``path``.

    Raises:
        InputError: an unknown format; an ending that belongs to no format, or not to that one.
    """
    known = formats()
    if name is not None:
        one_of(name, field="format", allowed=_NAMES)
    ending = Path(path).suffix.lower()
    if name is None:
        for found, form in known.items():
            if ending in form.SUFFIXES:
                return found
        raise InputError(
            "format",
            expected="one of " + ", ".join(known),
            got=f"none, for a file {path}",
            remedy="Name it with --format, or by the ending of the file: "
            + ", ".join(end for form in known.values() for end in form.SUFFIXES),
        )
    # MOSEK chooses among its kinds of file by the ending; the others are text under any name.
    if name == "mosek-task" and ending not in known[name].SUFFIXES:
        raise InputError(
            "output",
            expected=f"a file that ends in {', '.join(known[name].SUFFIXES)}",
            got=str(path),
        )
    return name


def write(
    program: ConicProgram,
    path: str | Path,
    *,
    to: str | None = None,
    description: str = "",
    overwrite: bool = False,
) -> Path:
    """Write a program, whole or not at all.

    Args:
        to: "cbf", "sdpa" or "mosek-task"; by default what the ending of ``path`` says.
        description: goes into the comments at the head of the file, which task files lack.
        overwrite: replace a file even if it is no conic program.

    Raises:
        InputError: see :func:`format_of`; a path that cannot be written to, a file of another kind;
            the mosek package is missing.
        StorageError: the disk is full, the folder is read-only, ...
    """
    chosen = format_of(path, name=to)
    with overwriting(overwrite):
        return formats()[chosen].write(program, Path(path), description=description)
