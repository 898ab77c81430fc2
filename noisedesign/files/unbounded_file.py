"""Files of designs for runs without an end: a few buffers, W, and what is claimed of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from noisedesign.base.checks import Array
from noisedesign.base.version import version
from noisedesign.design.unbounded import UnboundedDesign
from noisedesign.files.manifest import ArrayEntry, Entry, Number, array_entries, flaw
from noisedesign.files.stored import Stored
from noisedesign.files.tables import PrivacyTable
from noisedesign.problem.unbounded import UnboundedProblem

UNBOUNDED_FORMAT: Final = "noisedesign-unbounded-design"
_KINDS = {
    "buffer_scales": "buffer scales s",
    "buffer_decays": "buffer decays l",
    "mixing": "mixing matrix W",
}


class UnboundedManifest(Entry):
    """Everything a file of a design without a horizon says beside its arrays."""

    format: Literal["noisedesign-unbounded-design"] = UNBOUNDED_FORMAT
    version: Literal[1] = 1
    library: str
    name: str
    design: Literal["unbounded"] = "unbounded"
    arrays: dict[str, ArrayEntry]
    max_participations: int
    separation: int
    squared_sensitivity: Number
    ratio: Number
    worst: int
    nodes: list[str]
    privacy: PrivacyTable | None = None
    problem_text: str = ""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class StoredUnboundedDesign(Stored):
    """A design without a horizon as its file states it.

    Attributes:
        design: what is stored.
        manifest: the JSON object of the file, which is what is claimed.
        path: of the file.
        arrays: every array of the file by name, read-only float64.
        problem_text: the problem file that it was made from, or nothing.
    """

    design: UnboundedDesign


def unbounded_said(
    design: UnboundedDesign, *, problem_text: str
) -> tuple[dict[str, Array], dict[str, Any]]:
    """The arrays and the manifest of a design without a horizon."""
    problem = design.problem
    arrays = {"buffer_scales": design.scales, "buffer_decays": design.decays}
    if problem.mixing is not None:
        arrays["mixing"] = problem.mixing
    manifest = UnboundedManifest(
        library=version(),
        name=problem.name,
        arrays=array_entries(arrays, _KINDS),
        max_participations=int(problem.max_participations),
        separation=int(problem.separation),
        squared_sensitivity=design.squared_sensitivity,
        ratio=design.ratio,
        worst=design.worst,
        nodes=list(problem.nodes),
        privacy=PrivacyTable.of(problem.privacy),
        problem_text=problem_text,
    )
    return arrays, manifest.model_dump(mode="json")


def unbounded_design(manifest: UnboundedManifest, arrays: dict[str, Array]) -> UnboundedDesign:
    """The design of a file whose arrays are intact."""
    if not {"buffer_scales", "buffer_decays"} <= set(arrays) <= set(_KINDS):
        raise flaw("arrays", ", ".join(_KINDS), ", ".join(arrays) or "none")
    scales, decays = arrays["buffer_scales"], arrays["buffer_decays"]
    if scales.ndim != 1 or scales.shape != decays.shape or not scales.size:
        raise flaw("buffer_decays", "one a scale", f"{scales.shape} and {decays.shape}")
    problem = UnboundedProblem(
        mixing=arrays.get("mixing"),
        max_participations=manifest.max_participations,
        separation=manifest.separation,
        buffers=len(scales),
        privacy=None if manifest.privacy is None else manifest.privacy.target(),
        nodes=tuple(manifest.nodes),
        name=manifest.name,
    )
    return UnboundedDesign(
        problem=problem,
        scales=scales,
        decays=decays,
        squared_sensitivity=manifest.squared_sensitivity,
        ratio=manifest.ratio,
        worst=manifest.worst,
    )
