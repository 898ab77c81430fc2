"""Designs in the formats of other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from noisedesign.base import checks as _checks
from noisedesign.base.atomic import overwriting, write_bytes
from noisedesign.base.checks import InputError
from noisedesign.design.design import Design, design_of
from noisedesign.families.toeplitz.streaming import StreamingDesign
from noisedesign.files.archive import npy_bytes
from noisedesign.files.exported import content_of, require_protection
from noisedesign.files.exports import (
    FORMATS,
    Format,
    blamed,
    exporter,
    is_trainer,
    noise_of,
    require_own_batches,
    takers,
)
from noisedesign.mechanisms.baselines import baseline


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
        design: a design, or a solution or loaded file that has one; or a streaming design.
        to: "npy", "csv", "mat", "safetensors", "seeds", or a trainer's own files: "jax-privacy",
            "mfdl", "whisper-dsgd", "decor", "decentralizepy". Other distributions may add formats.
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
            for a trainer; random participation for a trainer that has its own loader.
        StorageError: the disk is full, the folder is read-only, ...

    Examples:
        >>> import numpy as np
        >>> import noisedesign as nd
        >>> design = nd.solve(nd.SpaceProblem.from_graph(nd.build_graph("ring", nodes=4))).design
        >>> written = nd.export(design, to="npy", path="ring.npy")
        >>> bool((np.load(written[0]) == design.covariance).all())
        True
    """
    chosen = exporter(to)
    held = getattr(design, "design", None)
    if isinstance(held, StreamingDesign):  # as a loaded file has it
        design = held
    design = design if isinstance(design, StreamingDesign) else design_of(design, sparse=True)
    name = design.name if isinstance(design, StreamingDesign) else design.problem.name
    path = _checks.path(path, field="output")
    problem_text = _checks.text(problem_text, field="problem_text")
    if calibrated is not None:
        calibrated = _checks.flag(calibrated, field="calibrated")
    if design.axes not in chosen.ACCEPTS:
        expected = f"a {' or '.join(chosen.ACCEPTS)} design for {to}"
        got = f"the {design.axes} design {name!r}"
        remedy = f"It can be exported to {', '.join(able)}." if (able := takers(design)) else ""
        raise InputError("design", expected=expected, got=got, remedy=remedy)
    if is_trainer(chosen):
        if calibrated is False:
            expected = f"calibrated noise for {to}"
            remedy = f"Export it to {', '.join(FORMATS[:-1])} to scale it yourself."
            raise InputError("calibrated", expected=expected, got="uncalibrated", remedy=remedy)
        design = design_of(design)
        require_protection(design)
    require_own_batches(chosen, to, design)
    with overwriting(overwrite), blamed(to):
        if not is_trainer(chosen):
            held_noise = noise_of(chosen, design)
            content = content_of(
                design, held_noise, problem_text=problem_text, calibrated=calibrated
            )
            return _paths(cast("Format", chosen).write(content, path))
        assert isinstance(design, Design)
        written = _paths(chosen.export(design, path, problem_text=problem_text))
        companions = getattr(chosen, "companions", None)
        others: dict[Path, str] = {} if companions is None else companions(design, path)
        return written + tuple(
            write_bytes(at, npy_bytes(baseline(design.problem, other).strategy))
            for at, other in others.items()
        )


def _paths(written: Any) -> tuple[Path, ...]:
    """The paths that an exporter says it wrote, which are there."""
    paths = tuple(map(Path, written))
    missing = [str(path) for path in paths if not path.exists()]
    if missing or not paths:
        raise ValueError(f"it wrote no {', '.join(missing) or 'file'}")
    return paths
