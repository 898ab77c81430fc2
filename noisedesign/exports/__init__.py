"""Designs in the formats of other programs.

To add one: a module here with ``ACCEPTS``, ``DESCRIPTION`` and ``export``, and its name below.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from noisedesign import _checks
from noisedesign._checks import InputError
from noisedesign.design import Design, design_of
from noisedesign.io.atomic import overwriting

_NAMES = (
    "npy",
    "csv",
    "mat",
    "safetensors",
    "seeds",
    "jax-privacy",
    "mfdl",
    "whisper-dsgd",
)


class Exporter(Protocol):
    """What a module of this package is."""

    @property
    def ACCEPTS(self) -> tuple[str, ...]:  # noqa: N802
        """Kinds of design it can write: "space", "time" or both."""

    @property
    def DESCRIPTION(self) -> str:  # noqa: N802
        """One line: what it writes."""

    def export(self, design: Design, path: Path, *, problem_text: str = "") -> tuple[Path, ...]:
        """Write ``design`` and return the paths written, the main one first."""


def exporter_names() -> tuple[str, ...]:
    """The formats :func:`export` knows."""
    return _NAMES


def exporter(name: str) -> Exporter:
    """The exporter of that name, imported now. Raises InputError for another name."""
    _checks.one_of(name, field="to", allowed=_NAMES)
    return cast("Exporter", import_module(f"{__name__}.{name.replace('-', '_')}"))


def export(
    design: Design, *, to: str, path: str | Path, problem_text: str = "", overwrite: bool = False
) -> tuple[Path, ...]:
    """Write ``design`` in the format ``to``; every file whole or not at all.

    Args:
        path: the file to write; for ``mfdl`` also the folder of that trainer's cache.
        problem_text: the problem file the design was made from, for formats that carry it.
        overwrite: replace files even if they are not of this format.

    Returns:
        The paths written, the main one first.

    Raises:
        InputError: an unknown format, a design of a kind it cannot hold, a path that cannot be
            written to, a file of another kind.
        StorageError: the disk is full, the folder is read-only, ...
    """
    chosen, design = exporter(to), design_of(design)
    path = _checks.path(path, field="output")
    problem_text = _checks.text(problem_text, field="problem_text")
    if design.kind not in chosen.ACCEPTS:
        able = [name for name in _NAMES if design.kind in exporter(name).ACCEPTS]
        raise InputError(
            "design", expected=f"a {' or '.join(chosen.ACCEPTS)} design for {to}",
            got=f"the {design.kind} design {design.problem.name!r}",
            remedy=f"It can be exported to {', '.join(able)}.",
        )  # fmt: skip
    with overwriting(overwrite):
        return chosen.export(design, Path(path), problem_text=problem_text)
