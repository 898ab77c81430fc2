"""Designs in the formats of other programs, and read again.

To add one: a module here with ``ACCEPTS`` and ``DESCRIPTION``, its name below, and ``write`` and
``read`` of a generic format (:class:`Format`) or ``export`` of a trainer's own (:class:`Trainer`).
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from noisedesign.base import checks as _checks
from noisedesign.base.atomic import overwriting
from noisedesign.base.checks import InputError
from noisedesign.base.file_kinds import MATLAB_5
from noisedesign.base.regular_files import read_regular
from noisedesign.files.array_files import files_of
from noisedesign.files.exported import Exported, content_of, parsed_metadata
from noisedesign.program.design import Design, design_of
from noisedesign.program.noise import Noise
from noisedesign.program.streaming import StreamingDesign

__all__ = ["Exported", "export", "exporter", "exporter_names", "read"]

_FORMATS = ("npy", "csv", "mat", "safetensors", "seeds")
_TRAINERS = ("jax-privacy", "mfdl", "whisper-dsgd")
_NAMES = (*_FORMATS, *_TRAINERS)


class Exporter(Protocol):
    """What every module of this package is."""

    @property
    def ACCEPTS(self) -> tuple[str, ...]:  # noqa: N802
        """Kinds of design it can write: "space", "time", "space-time", "streaming"."""

    @property
    def DESCRIPTION(self) -> str:  # noqa: N802
        """One line: what it writes."""


class Format(Exporter, Protocol):
    """A generic format: it holds what noise is drawn from, and knows no design. One that does not
    hold C and R as they are has ``noise_of(design)``, the noise as it holds it."""

    def write(self, content: Exported, path: Path) -> tuple[Path, ...]:
        """Write ``content`` and return the paths written, the main one first."""

    def read(self, path: Path) -> Exported:
        """What a file of this format holds."""


class Trainer(Exporter, Protocol):
    """A trainer's own files, calibrated where there is a privacy target."""

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
    design: Design | StreamingDesign,
    *,
    to: str,
    path: str | Path,
    problem_text: str = "",
    overwrite: bool = False,
    calibrated: bool | None = None,
) -> tuple[Path, ...]:
    """Write ``design`` in the format ``to``; every file whole or not at all.

    Args:
        path: the file to write; for ``mfdl`` also the folder of that trainer's cache. Of formats of
            one array a file, the others have the same stem.
        problem_text: the problem file the design was made from, for formats that carry it.
        overwrite: replace files even if they are not of this format.
        calibrated: whether the arrays of a generic format are scaled to the privacy target, so
            that noise drawn from them gives the privacy that the metadata state; None: where there
            is a target. Otherwise the metadata say what the noise must be multiplied by.

    Returns:
        The paths written, the main one first.

    Raises:
        InputError: an unknown format, a design of a kind it cannot hold, a path that cannot be
            written to, a file of another kind; ``calibrated`` without a target, or not calibrated
            for a trainer.
        StorageError: the disk is full, the folder is read-only, ...
    """
    chosen = exporter(to)
    held = getattr(design, "design", None)
    if isinstance(held, StreamingDesign):  # as a loaded file has it
        design = held
    design = design if isinstance(design, StreamingDesign) else design_of(design)
    name = design.name if isinstance(design, StreamingDesign) else design.problem.name
    path = _checks.path(path, field="output")
    problem_text = _checks.text(problem_text, field="problem_text")
    if design.axes not in chosen.ACCEPTS:
        able = [other for other in _NAMES if _takes(exporter(other), design)]
        raise InputError(
            "design",
            expected=f"a {' or '.join(chosen.ACCEPTS)} design for {to}",
            got=f"the {design.axes} design {name!r}",
            remedy=f"It can be exported to {', '.join(able)}." if able else "",
        )
    with overwriting(overwrite):
        if to not in _TRAINERS:
            content = content_of(
                design, _noise_of(chosen, design), problem_text=problem_text, calibrated=calibrated
            )
            return cast("Format", chosen).write(content, path)
        if calibrated is False:
            raise InputError(
                "calibrated",
                expected=f"calibrated noise for {to}",
                got="uncalibrated",
                remedy=f"Export it to {', '.join(_FORMATS[:-1])} to scale it yourself.",
            )
        return cast("Trainer", chosen).export(design_of(design), path, problem_text=problem_text)


def _noise_of(chosen: Exporter, design: Design | StreamingDesign) -> Noise:
    """The noise of a design as a format holds it.

    Raises:
        InputError: it cannot hold that.
    """
    noise_of = getattr(chosen, "noise_of", None)
    return design.noise if noise_of is None else cast("Noise", noise_of(design))


def _takes(chosen: Exporter, design: Design | StreamingDesign) -> bool:
    """Whether a design can be exported to that; seeds need one that is made of them."""
    if design.axes not in chosen.ACCEPTS:
        return False
    try:
        _noise_of(chosen, design)
    except InputError:
        return False
    return True


def read(path: str | Path) -> Exported:
    """What to draw noise from, of a file of a generic format: from it and its JSON alone.

    Args:
        path: as it was exported to; of formats of one array a file, the JSON will do.

    Raises:
        InputError: no such file, or none of these formats; arrays that are not those of its JSON,
            or no noise.
    """
    path = _checks.path(path, field="export")
    head = b""
    if path.is_file():
        with path.open("rb") as file:
            head = file.read(200)
    if head.startswith(MATLAB_5):
        return _format("mat").read(path)
    if head[8:10] == b'{"':
        return _format("safetensors").read(path)
    return _described(path if head[:1] == b"{" else path.with_suffix(".json"), asked=path)


def _described(path: Path, *, asked: Path) -> Exported:
    """What the JSON at ``path`` describes."""
    content = read_regular(path, field="export", expected="a file of `noisedesign export`")
    metadata = parsed_metadata(content, path)
    if asked.is_file() and asked != path and asked.name not in files_of(metadata):
        raise InputError(
            "export",
            expected=f"one of the files that {path.name} describes",
            got=str(asked),
            remedy="It is of another export. Export the design again, under a name of its own.",
        )
    named = ("npy", "csv", "seeds")
    name = _checks.one_of(metadata.get("to"), field="export.to", allowed=named)
    return _format(name).read(path)


def _format(name: str) -> Format:
    return cast("Format", exporter(name))
