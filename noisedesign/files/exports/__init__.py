"""Designs in the formats of other programs.

An exporter is a module here with ``ACCEPTS`` and ``DESCRIPTION``, its name below, and ``write`` and
``read`` of a generic format (:class:`Format`) or ``export`` of a trainer's own (:class:`Trainer`).
Other distributions add theirs by an entry point of the group ``noisedesign.exporters``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Protocol, TypeGuard, cast

from noisedesign.base import checks as _checks
from noisedesign.base.checks import InputError
from noisedesign.base.file_kinds import MATLAB_5
from noisedesign.base.plugins import Group
from noisedesign.base.regular_files import read_regular
from noisedesign.design.design import Design
from noisedesign.families.toeplitz.streaming import StreamingDesign
from noisedesign.files.array_files import files_of
from noisedesign.files.exported import Exported, parsed_metadata
from noisedesign.forms import Noise

__all__ = ["Exported", "exporter", "exporter_names", "read"]

FORMATS = ("npy", "csv", "mat", "safetensors", "seeds")
TRAINERS = ("jax-privacy", "mfdl", "whisper-dsgd", "decor", "decentralizepy")
KINDS = ("space", "time", "space-time", "streaming")

_ADDED = Group("noisedesign.exporters", field="to", what="an exporter")


class Exporter(Protocol):
    """A module of this package, or an object of another distribution."""

    ACCEPTS: tuple[str, ...]  # kinds of design it can write, of KINDS
    DESCRIPTION: str  # the files, in one line


class Format(Exporter, Protocol):
    """A generic format, which knows no design: it writes and reads the arrays of noise.

    One that does not hold C and R as they are has ``noise_of(design)``, the noise as it holds it.
    """

    def write(self, content: Exported, path: Path) -> tuple[Path, ...]:
        """Write ``content`` and return the paths written, the main one first."""

    def read(self, path: Path) -> Exported:
        """Read a file of this format."""


class Trainer(Exporter, Protocol):
    """A trainer's own files, calibrated where there is a privacy target.

    ``companions(design, path)`` are paths at which it looks for published mechanisms as .npy, and
    the names of these baselines. One with ``DRAWS_BATCHES = True`` takes the batches of a node from
    :mod:`noisedesign.noise`, as random participation needs."""

    def export(self, design: Design, path: Path, *, problem_text: str = "") -> tuple[Path, ...]:
        """Write ``design`` and return the paths written, the main one first."""


def exporter_names() -> tuple[str, ...]:
    """The formats that ``noisedesign export`` knows, those of other distributions last.

    Returns:
        Names for :func:`exporter` and :func:`noisedesign.export`.

    Examples:
        >>> from noisedesign.files import exports
        >>> exports.exporter_names()[:5]
        ('npy', 'csv', 'mat', 'safetensors', 'seeds')
    """
    own = (*FORMATS, *TRAINERS)
    return (*own, *_ADDED.names(own))


def exporter(name: str) -> Exporter:
    """The exporter of that name, imported now.

    Args:
        name: one of :func:`exporter_names`.

    Returns:
        A module or object with ``ACCEPTS`` and ``DESCRIPTION``.

    Raises:
        InputError: another name; an exporter of another distribution that cannot be used.

    Examples:
        >>> from noisedesign.files import exports
        >>> exports.exporter("seeds").ACCEPTS
        ('space', 'space-time')
    """
    if _is_own(name):
        return cast("Exporter", import_module(f"{__name__}.{name.replace('-', '_')}"))
    _checks.one_of(name, field="to", allowed=exporter_names())
    added, distribution = _ADDED.load(name)
    accepts, description = getattr(added, "ACCEPTS", None), getattr(added, "DESCRIPTION", None)
    if not (isinstance(accepts, tuple) and accepts and set(accepts) <= set(KINDS)):
        got = f"{name} with ACCEPTS {_checks.describe(accepts)}, which is no tuple of kinds"
        raise _ADDED.refusal(distribution, got)
    if not isinstance(description, str):
        raise _ADDED.refusal(distribution, f"{name} without a DESCRIPTION")
    if not (is_trainer(added) or callable(getattr(added, "write", None))):
        raise _ADDED.refusal(distribution, f"{name} with neither export nor write")
    return cast("Exporter", added)


def _is_own(name: object) -> bool:
    return isinstance(name, str) and name in (*FORMATS, *TRAINERS)


def is_trainer(chosen: Exporter) -> TypeGuard[Trainer]:
    """Whether it writes a trainer's own files, from the design, and no generic format."""
    return callable(getattr(chosen, "export", None))


@contextmanager
def blamed(name: str) -> Iterator[None]:
    """Within this, what an exporter of another distribution does wrong is told as its mistake."""
    if _is_own(name):
        yield
        return
    with _ADDED.blames(_ADDED.load(name).distribution):
        yield


def noise_of(chosen: Exporter, design: Design | StreamingDesign) -> Noise:
    """The noise of a design as a generic format holds it."""
    own = getattr(chosen, "noise_of", None)
    return design.noise if own is None else cast("Noise", own(design))


def require_own_batches(chosen: Exporter, name: str, design: Design | StreamingDesign) -> None:
    """Refuse a trainer whose loader draws no batches in secret, where privacy rests on that."""
    scheme = design.problem.use if isinstance(design, Design) else design.participation
    if scheme is None or not scheme.random or not is_trainer(chosen):
        return
    if not getattr(chosen, "DRAWS_BATCHES", False):
        raise InputError(
            "participation",
            expected=f"one in which any order of records will do, as {name} has its own loader",
            got=f"{scheme}, whose batches a node draws in secret",
            remedy="Give nodes their plans, by `noisedesign deploy` or design.node_plan, and train "
            "with a module of noisedesign.adapters, which draws them; or design for fixed-epoch.",
        )


def takers(design: Design | StreamingDesign) -> list[str]:
    """The formats that a design can be exported to; seeds need one that is made of them."""
    return [name for name in exporter_names() if _takes(name, design)]


def _takes(name: str, design: Design | StreamingDesign) -> bool:
    try:
        with blamed(name):
            chosen = exporter(name)
            if design.axes not in chosen.ACCEPTS:
                return False
            noise_of(chosen, design)
            require_own_batches(chosen, name, design)
    except InputError:
        return False
    return True


def read(path: str | Path) -> Exported:
    """Read the noise of a file of a generic format, from it and its JSON alone.

    Args:
        path: as it was exported to; of formats of one array a file, the JSON will do.

    Returns:
        The noise, and what is said of it.

    Raises:
        InputError: no such file, or none of these formats; arrays that are not its JSON's.

    Examples:
        >>> import noisedesign as nd
        >>> from noisedesign.files import exports
        >>> design = nd.solve(nd.SpaceProblem.from_graph(nd.build_graph("ring", nodes=4))).design
        >>> written = nd.export(design, to="csv", path="ring.csv")
        >>> found = exports.read("ring.csv")
        >>> bool((found.noise.covariance == design.covariance).all())
        True
    """
    path = _checks.path(path, field="export")
    head = b""
    if path.is_file():
        with path.open("rb") as file:
            head = file.read(200)
    name, described = "mat" if head.startswith(MATLAB_5) else "safetensors", path
    if not head.startswith(MATLAB_5) and head[8:10] != b'{"':
        name, described = _described(path, is_json=head[:1] == b"{")
    return cast("Format", exporter(name)).read(described)


def _described(path: Path, *, is_json: bool) -> tuple[str, Path]:
    """The format of an array, as the JSON that is beside it says, and that JSON."""
    if not path.name:
        raise InputError("export", expected="the path of a file", got=_checks.describe(str(path)))
    described = path if is_json else path.with_suffix(".json")
    content = read_regular(described, field="export", expected="a file of `noisedesign export`")
    metadata = parsed_metadata(content, described)
    if path.is_file() and not is_json and path.name not in files_of(metadata):
        expected = f"one of the files that {described.name} describes"
        remedy = "It is of another export. Export the design again, under a name of its own."
        raise InputError("export", expected=expected, got=str(path), remedy=remedy)
    named = ("npy", "csv", "seeds")
    return _checks.one_of(metadata.get("to"), field="export.to", allowed=named), described
