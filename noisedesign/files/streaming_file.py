"""Streaming designs in design files: a strategy in a few numbers, for any horizon.

Nothing here is of size T x T, and of size T only what is computed from the strategy's column. The
archive, its seal and its reading are those of :mod:`noisedesign.files.design_file`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from noisedesign.base import memory
from noisedesign.base.checks import Array, InputError
from noisedesign.base.monitor import Stop
from noisedesign.base.shown import Shown
from noisedesign.files.manifest import (
    FIELD,
    ArrayEntry,
    Entry,
    Number,
    Scheme,
    array_entries,
    library_version,
    participation_entry,
    participation_of,
)
from noisedesign.files.tables import PrivacyTable
from noisedesign.program.noise import (
    BandedInverse,
    BufferedToeplitz,
    StationaryStrategy,
    Strategy,
    ToeplitzStrategy,
    strategy_of_arrays,
)
from noisedesign.program.streaming import StreamingDesign
from noisedesign.system.workloads.toeplitz import GramWorkload, PoleWorkload, Workload

FORMAT: Final = "noisedesign-streaming-design"
VERSION: Final = 1

VECTORS = 64
"""Vectors of T doubles that recomputing the claims holds at once, its transforms included."""

MOST_WORK = 1e12
"""T times the square of the number of poles: some minutes on one core."""

_FORMS = (ToeplitzStrategy, BandedInverse, BufferedToeplitz)
_KINDS = {name: kind for form in _FORMS for name, kind in form.names.items()} | {
    "poles": "lambda",
    "weights": "squared gain of every pole",
    "gram": "H",
}


class StreamingManifest(Entry):
    """Everything a file of a streaming design says beside its arrays."""

    format: Literal["noisedesign-streaming-design"] = FORMAT
    version: Literal[1] = VERSION
    library: str
    name: str
    design: Literal["streaming"] = "streaming"
    strategy: str
    arrays: dict[str, ArrayEntry]
    horizon: int
    participation: Scheme
    squared_error: Number
    squared_sensitivity: Number
    sensitivity_kind: str
    objective: Number
    lower_bound_of_unrestricted_optimum: Number
    stop: str
    evaluations: int
    privacy: PrivacyTable | None = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class StoredStreamingDesign(Shown):
    """A streaming design as its file states it; ``manifest`` is what is claimed."""

    design: StreamingDesign
    manifest: dict[str, Any]
    path: Path
    arrays: dict[str, Array]
    problem_text: str = ""

    def _title(self) -> str:
        return f"Stored streaming design of {self.design.horizon} steps"

    def _facts(self) -> dict[str, object]:
        return {**self.design._facts(), "path": self.path}


def arrays_of(design: StreamingDesign) -> dict[str, Array]:
    """The arrays that determine ``design``: its strategy of unit diagonal, and its workload."""
    found = design.strategy.at(design.horizon).arrays()
    workload = design.workload
    if isinstance(workload, PoleWorkload):
        return found | {"poles": workload.poles, "weights": workload.weights}
    return found | {"gram": workload.gram()}


def manifest_of(design: StreamingDesign, arrays: dict[str, Array]) -> dict[str, Any]:
    """The JSON object that describes ``design``, stored as ``arrays``."""
    manifest = StreamingManifest.model_validate(
        {
            "library": library_version(),
            "name": design.name,
            "strategy": design.strategy.at(design.horizon).kind,
            "arrays": array_entries(arrays, _KINDS),
            "horizon": int(design.horizon),
            "participation": participation_entry(design.participation),
            "squared_error": design.squared_error,
            "squared_sensitivity": design.squared_sensitivity,
            "sensitivity_kind": design.sensitivity_kind,
            "objective": design.objective,
            "lower_bound_of_unrestricted_optimum": design.lower_bound_of_unrestricted_optimum,
            "stop": design.stop.value,
            "evaluations": int(design.evaluations),
            "privacy": PrivacyTable.of(design.privacy),
        }
    )
    return manifest.model_dump(mode="json")


def design_of(manifest: StreamingManifest, arrays: dict[str, Array]) -> StreamingDesign:
    """The design of a file whose arrays are intact.

    Raises:
        InputError: arrays that are no strategy or no workload; a horizon beyond what the machine
            holds vectors of.
    """
    scheme = participation_of(manifest.participation, horizon=manifest.horizon)
    memory.require(
        lambda steps: 8 * VECTORS * steps, scheme.horizon, field=f"{FIELD}.horizon", of="steps"
    )
    for name, array in arrays.items():
        if name not in _KINDS:
            raise InputError(f"{FIELD}.{name}", expected=f"one of {', '.join(_KINDS)}", got=name)
        if not np.isfinite(array).all():
            raise InputError(f"{FIELD}.{name}", expected="finite entries", got="NaN or infinity")
    form = strategy_of_arrays(arrays, horizon=scheme.horizon, field=FIELD)
    privacy = manifest.privacy
    try:
        stop = Stop(manifest.stop)
    except ValueError:
        raise InputError(f"{FIELD}.stop", expected=", ".join(Stop), got=manifest.stop) from None
    return StreamingDesign(
        strategy=_strategy(form),
        horizon=scheme.horizon,
        workload=_workload(arrays, scheme.horizon),
        participation=scheme,
        squared_error=manifest.squared_error,
        squared_sensitivity=manifest.squared_sensitivity,
        sensitivity_kind=manifest.sensitivity_kind,
        lower_bound_of_unrestricted_optimum=manifest.lower_bound_of_unrestricted_optimum,
        stop=stop,
        evaluations=manifest.evaluations,
        name=manifest.name,
        privacy=None if privacy is None else privacy.target(),
    )


def _strategy(form: Strategy | None) -> StationaryStrategy:
    """At any horizon, as streaming designs have it."""
    match form:
        case BufferedToeplitz() if form.diagonal != 1.0:
            pass
        case StationaryStrategy():
            return replace(form, steps=None)
    expected = "Toeplitz coefficients of C or C^-1, or buffers of unit diagonal"
    got = "nothing" if form is None else form.kind
    raise InputError(f"{FIELD}.strategy", expected=expected, got=got)


def _workload(arrays: dict[str, Array], horizon: int) -> Workload:
    if "gram" in arrays:
        return GramWorkload(matrix=arrays["gram"])
    for name in ("poles", "weights"):
        if name not in arrays:
            raise InputError(f"{FIELD}.{name}", expected="the array of the workload", got="nothing")
    if horizon * (1 + arrays["poles"].size) ** 2 > MOST_WORK:
        expected = f"a workload of at most {MOST_WORK:g} operations to verify"
        got = f"{arrays['poles'].size} poles over {horizon} steps"
        raise InputError(FIELD, expected=expected, got=got)
    return PoleWorkload(poles=arrays["poles"], weights=arrays["weights"], horizon=horizon)
