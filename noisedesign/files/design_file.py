"""Designs on disk: one .npz of float64 arrays with a manifest inside, sealed with its sha256.

The archive's comment, which ends the file, is ``noisedesign-sha256:`` and 64 hexadecimal digits:
the sha256 of every byte before those digits. So a changed, missing or added byte anywhere is an
error. The seal guards against accidents, not against someone who seals again: what such a file
claims is what :func:`noisedesign.tasks.verify.verify` recomputes.

``numpy.load(path, allow_pickle=False)`` opens the file; ``manifest.json`` comes back as bytes.

The text of a problem in a file may be anybody's: to build the problem from it once more opens no
file, asks no network, and builds nothing larger than the arrays that came with it.

A streaming design is a strategy in a few numbers, for any horizon: nothing of it is of size T x T,
and of size T only what is computed from the strategy's column.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, cast

import numpy as np

from noisedesign.base import checks as _checks, memory
from noisedesign.base.atomic import overwriting, write_atomically
from noisedesign.base.checks import Array, InputError
from noisedesign.base.monitor import Bounds, Stop
from noisedesign.base.regular_files import read_regular
from noisedesign.base.shown import Shown
from noisedesign.base.version import version
from noisedesign.files.archive import NPY, float64_array, npy_parts, pack_into, unpack
from noisedesign.files.design_arrays import arrays_of, main_array, parts_of, specs_of
from noisedesign.files.graph_tables import FASTEST
from noisedesign.files.manifest import (
    FIELD,
    AccountEntry,
    ArrayEntry,
    Entry,
    Manifest,
    Number,
    Scheme,
    array_entries,
    array_sha256,
    differences,
    format_of,
    participation_entry,
    participation_of,
    read_manifest,
    stated,
    validated,
)
from noisedesign.files.problem_file import AnyProblemFile, tables_of
from noisedesign.files.tables import PrivacyTable
from noisedesign.files.toml import located
from noisedesign.program.certificate import Certificate
from noisedesign.program.design import AGAINST_OBSERVERS, Design, Provenance, design_of
from noisedesign.program.noise import (
    BandedInverse,
    BufferedToeplitz,
    StationaryStrategy,
    Strategy,
    ToeplitzStrategy,
    strategy_of_arrays,
)
from noisedesign.program.problem import Problem, theorem_of
from noisedesign.program.streaming import StreamingDesign
from noisedesign.system.random_mixing import RandomMatchings
from noisedesign.system.workloads.toeplitz import GramWorkload, PoleWorkload, Workload

MANIFEST = "manifest.json"
SEAL = b"noisedesign-sha256:"

_DIGITS = 64
_TRUSTS = ("local", "observers", "central")
_BUDGET_NOTE = {
    "space": "[R^-1]_ii <= tau_i (squared sensitivity); R and the objective are at these budgets",
    "time": "squared sensitivity <= 1; C and the objective are at unit sensitivity",
    "space-time": "squared sensitivity of node i <= tau_i; R and the objective are at these "
    "budgets, C is at unit sensitivity, or at the budgets where there is no R",
    "random": "C is scaled so that noise_stddev = change / mu of the target meets the target under "
    "random participation: neither is its squared sensitivity 1, nor is its noise mu-GDP",
    "observers": "squared sensitivity of what an observer sees over all steps to a change of node "
    "i at one step <= tau_i; R and the objective are at these budgets",
    "pairs": "squared sensitivity of what observer a sees over all steps to a change of node i at "
    "one step <= pair_factors[a, i] tau_i; R and the objective are at these budgets",
}


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class StoredDesign(Shown):
    """A design as its file states it.

    Attributes:
        design: what is stored.
        problem_text: the problem file that it was made from, or nothing.
        manifest: the JSON object of the file, which is what is claimed.
        path: of the file.
        arrays: every array of the file by name, read-only float64; among them the noising matrix of
            a temporal design, which ``design.noising_matrix`` computes afresh, or in place of C and
            C^-1 the bands, coefficients or buffers of a strategy that has a structure
            (:mod:`noisedesign.program.noise.strategies`).
    """

    design: Design
    problem_text: str
    manifest: dict[str, Any]
    path: Path
    arrays: dict[str, Array]

    def _title(self) -> str:
        return f"Stored design of {self.design.problem.name!r}"

    def _facts(self) -> dict[str, object]:
        return {**self.design._facts(), "path": self.path}


def as_stored(value: Any) -> StoredDesign | StoredStreamingDesign:
    """The stored design that was meant: itself, or what the file of a design would hold.

    Raises:
        InputError: anything else.
    """
    if isinstance(value, StoredDesign | StoredStreamingDesign):
        return value
    arrays, manifest = _said(value, problem_text="")
    manifest = json.loads(json.dumps(manifest))
    said: dict[str, Any] = {"manifest": manifest, "path": Path(), "arrays": arrays}
    if isinstance(value, StreamingDesign):
        return StoredStreamingDesign(design=value, **said)
    return StoredDesign(design=design_of(value, sparse=True), problem_text="", **said)


def _said(design: Any, *, problem_text: str) -> tuple[dict[str, Array], dict[str, Any]]:
    """The arrays and the manifest of a design."""
    held = design.design if isinstance(design, StoredStreamingDesign) else design
    if isinstance(held, StreamingDesign):
        arrays = _streaming_arrays(held)
        return arrays, streaming_manifest_of(held, arrays)
    found = design_of(design, sparse=True)
    arrays = arrays_of(found)
    return arrays, manifest_of(found, arrays, problem_text=problem_text)


def save_design(
    design: Design | StreamingDesign,
    path: str | Path,
    *,
    problem_text: str = "",
    overwrite: bool = False,
) -> Path:
    """Write ``design`` to ``path``, whole or not at all; the same design gives the same bytes.

    A streaming design is stored by its coefficients or buffers and its workload, whatever its
    horizon.

    Args:
        design: a design, or a solution or loaded file that has one; or a streaming design.
        path: of the file; by habit it ends in ``.npz``.
        problem_text: the problem file the design was made from, so that
            :func:`noisedesign.verify` can rebuild the problem.
        overwrite: replace a file even if it is no design file.

    Returns:
        ``path``.

    Raises:
        InputError: ``path`` is a folder or a file of another kind, or its folder does not exist;
            unknown ``trust``.
        StorageError: the file cannot be written; an existing one stays as it was.

    Examples:
        >>> import noisedesign as nd
        >>> design = nd.solve(nd.TimeProblem.prefix(participation=nd.single(2))).design
        >>> path = nd.save_design(design, "prefix.npz")
        >>> bool((nd.load_design(path).design.strategy == design.strategy).all())
        True
    """
    problem_text = _checks.text(problem_text, field="problem_text")
    arrays, manifest = _said(design, problem_text=problem_text)
    text = json.dumps(manifest, allow_nan=False, ensure_ascii=False, indent=2)
    members: dict[str, Sequence[bytes | memoryview]] = {MANIFEST: (text.encode("utf-8"),)}
    members |= {name + NPY: npy_parts(array) for name, array in arrays.items()}

    def write(file: BinaryIO) -> None:
        pack_into(file, members, comment=SEAL + b"0" * _DIGITS)
        file.seek(-_DIGITS, os.SEEK_END)
        file.truncate()
        file.seek(0)
        digest = hashlib.file_digest(cast("Any", file), "sha256")
        file.write(digest.hexdigest().encode("ascii"))

    with overwriting(overwrite):
        return write_atomically(path, write)


def load_design(path: str | Path) -> StoredDesign | StoredStreamingDesign:
    """Read a design file and check its integrity. Nothing is ever unpickled.

    Args:
        path: of a file that :func:`noisedesign.save_design` or ``noisedesign solve -o`` wrote.

    Returns:
        The ``design``, with what its file claims of it (``manifest``) and every array.

    Raises:
        InputError: no such file; truncated, changed, not a design file, of a later version;
            arrays of a wrong dtype, shape or sha256, or with entries that are not finite.

    Examples:
        A file that was changed is not read.

        >>> from pathlib import Path
        >>> import noisedesign as nd
        >>> design = nd.solve(nd.TimeProblem.prefix(participation=nd.single(2))).design
        >>> path = nd.save_design(design, "prefix.npz")
        >>> content = path.read_bytes()
        >>> _ = path.write_bytes(content.replace(b"lower_bound", b"upper_bound"))
        >>> nd.load_design(path)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        noisedesign.base.checks.InputError: design file: expected ...
    """
    path = _checks.path(path, field=FIELD)
    content = read_regular(path, field=FIELD, expected="a readable design file", times=2)
    with located(path):
        return _parsed(content, path)


# --- seal -----------------------------------------------------------------------------------


def _check_seal(content: bytes) -> None:
    if content[-_DIGITS - len(SEAL) : -_DIGITS] != SEAL:
        got = "a Python pickle" if content.startswith(b"\x80") else "a file without its seal"
        raise InputError(
            FIELD,
            expected="a complete file written by save_design",
            got=got,
            remedy="It is truncated, changed, or something else; nothing in it was executed. "
            "`noisedesign solve -o` writes design files.",
        )
    found = hashlib.sha256(memoryview(content)[:-_DIGITS]).hexdigest()
    if content[-_DIGITS:] != found.encode("ascii"):
        expected = "the bytes its sha256 was taken of"
        remedy = "It was changed or damaged after it was written. Solve again, or restore it."
        raise InputError(FIELD, expected=expected, got="other bytes", remedy=remedy)


# --- manifest -------------------------------------------------------------------------------


def manifest_of(design: Design, arrays: dict[str, Array], *, problem_text: str) -> dict[str, Any]:
    """The JSON object that describes ``design``, stored as ``arrays``."""
    problem, certificate, made = design.problem, design.certificate, design.provenance
    kinds = {name: spec.kind for name, spec in specs_of(problem, arrays).items()}
    said = stated(problem)
    manifest = Manifest.model_validate(
        said
        | {
            "library": version(),
            "trust": _checks.one_of(design.trust, field="design.trust", allowed=_TRUSTS),
            "matrix": main_array(arrays),
            "arrays": array_entries(arrays, kinds),
            "budget": _BUDGET_NOTE[_budget_kind(design)],
            "sensitivity": {
                "value": certificate.sensitivity_squared,
                "which": certificate.sensitivity_kind,
            },
            "variance_ratio": certificate.variance_ratio,
            "objective": certificate.objective,
            "lower_bound": certificate.lower_bound,
            "gap": certificate.gap,
            "feasible": bool(certificate.feasible),
            "adjacency": problem.privacy and problem.privacy.adjacency,
            "provenance": asdict(made)
            | {"status": str(made.status), "evaluations": int(made.evaluations)},
            "problem": {"text": problem_text, "sha256": text_sha256(problem_text)},
            "unrestricted_lower_bound": certificate.unrestricted_lower_bound,
            "local": bool(design.local),
            "floor_ratio": certificate.floor_ratio,
            "fixed_lower_bound": certificate.fixed_lower_bound,
            "account": AccountEntry.of(certificate.account),
            "confidence": certificate.confidence,
            "uncertainty": certificate.uncertainty,
        }
    )
    return manifest.model_dump(mode="json")


def _budget_kind(design: Design) -> str:
    if design.problem.axes == "space":
        if design.problem.pair_factors is not None:
            return "pairs"
        return "observers" if design.problem.observers else "space"
    return "random" if design.problem.participation.random else design.axes


def text_sha256(text: str) -> str:
    """sha256 of the UTF-8 bytes of ``text``, in hexadecimal."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


# --- reading --------------------------------------------------------------------------------


def _parsed(content: bytes, path: Path) -> StoredDesign | StoredStreamingDesign:
    _check_seal(content)
    members = unpack(content, field=FIELD)
    if MANIFEST not in members:
        raise InputError(f"{FIELD}.manifest", expected=MANIFEST, got="nothing")
    content = members.pop(MANIFEST)
    if format_of(content) == STREAMING_FORMAT:
        said = validated(StreamingManifest, content)
        held, claimed = _arrays(members, said), said.model_dump(mode="json")
        streamed = _streaming_design(said, held)
        return StoredStreamingDesign(design=streamed, manifest=claimed, path=path, arrays=held)
    manifest = read_manifest(content)
    arrays = _arrays(members, manifest)
    parts = parts_of(arrays, manifest)
    _check_trust(manifest)
    _check_account(manifest, parts.problem)
    made = manifest.provenance.model_dump()
    history = tuple(Bounds(**bounds) for bounds in made.pop("history"))
    design = Design(
        **parts._asdict(),
        certificate=Certificate(
            objective=manifest.objective,
            lower_bound=manifest.lower_bound,
            sensitivity_squared=manifest.sensitivity.value,
            sensitivity_kind=manifest.sensitivity.which,
            variance_ratio=manifest.variance_ratio,
            unrestricted_lower_bound=manifest.unrestricted_lower_bound,
            floor_ratio=manifest.floor_ratio,
            fixed_lower_bound=manifest.fixed_lower_bound,
            account=None if manifest.account is None else manifest.account.account(),
            confidence=manifest.confidence,
            uncertainty=manifest.uncertainty,
            theorem=theorem_of(parts.problem).number,
        ),
        provenance=Provenance(**made, history=history),
        trust=manifest.trust,
        local=manifest.local,
    )
    text, claimed = manifest.problem.text, manifest.model_dump(mode="json")
    return StoredDesign(
        design=design, problem_text=text, manifest=claimed, path=path, arrays=arrays
    )


def _check_trust(manifest: Manifest) -> None:
    """Noise against chosen observers says so, as nothing else does."""
    written, pooled = len(manifest.observers), manifest.coalitions is not None
    if written and pooled:
        expected = "observers or all coalitions of some nodes"
        raise InputError(f"{FIELD}.coalitions", expected=expected, got="both")
    if (manifest.trust == AGAINST_OBSERVERS) != bool(written or pooled):
        chosen = "all coalitions of some nodes" if pooled else f"{written} chosen observers"
        expected = "observers" if written or pooled else "local or central"
        raise InputError(
            f"{FIELD}.trust", expected=f"{expected}, with {chosen}", got=manifest.trust
        )


def _check_account(manifest: Manifest, problem: Problem) -> None:
    """Noise that is accounted for under random participation holds under no other."""
    use = problem.use
    if manifest.account is not None and not (use is not None and use.random):
        raise InputError(
            f"{FIELD}.participation",
            expected="the random one that its account and the scale of its noise are for",
            got=f"{use}",
            remedy='Solve the problem again with kind = "fixed-epoch".',
        )


def _arrays(members: dict[str, bytes], manifest: Manifest | StreamingManifest) -> dict[str, Array]:
    named = {name + NPY for name in manifest.arrays}
    if set(members) != named:
        odd = ", ".join(sorted(set(members) ^ named))
        raise InputError(
            f"{FIELD}.manifest", expected="the arrays of the file, all of them", got=f"not {odd}"
        )
    arrays = {}
    for name, entry in manifest.arrays.items():
        field, content = f"{FIELD}.{name}", members[name + NPY]
        arrays[name] = float64_array(content, field=field)
        if array_sha256(arrays[name]) != entry.sha256:
            raise InputError(field, expected="the array its sha256 was taken of", got="another")
        if arrays[name].shape != entry.shape:
            raise InputError(
                field, expected=f"shape {entry.shape}", got=f"shape {arrays[name].shape}"
            )
    return arrays


MOST_FASTEST = 200
"""Nodes of a graph whose fastest mixing is found again: seconds, unless it has many edges."""

_OUTSIDE = ("file", "files", "clusters", "ego")
"""Keys of tables that name data which is not in the text."""

_TOLD = {"horizon": "error"}
"""What differs where an attribute of the problem does, if that has another name."""


class NotRebuiltError(InputError):
    """The text says a problem that is not rebuilt here: of data elsewhere, or with much work."""


def differences_from_text(text: str, *, stored: Problem, tolerance: float) -> list[str]:
    """Names of what the problem in ``text`` has otherwise than ``stored``.

    Raises:
        NotRebuiltError: naming the key that keeps it from being built.
        InputError: the text is no problem.
    """
    file = tables_of(text)
    _check_inside(file)
    if different := _other_sizes(file, stored):
        return different
    graph = getattr(file, "graph", None)
    if getattr(graph, "weights", None) == FASTEST and len(stored.nodes) > MOST_FASTEST:
        raise NotRebuiltError(
            "graph.weights",
            expected=f"the fastest mixing of at most {MOST_FASTEST} nodes",
            got=f"{len(stored.nodes)}",
        )
    return differences(stored, file.problem(Path(), stored.mixing), tolerance=tolerance)


def _check_inside(file: AnyProblemFile) -> None:
    expected = "nothing outside the design file"
    if file.graph is not None and file.graph.kept_outside:
        raise NotRebuiltError("graph.kind", expected=expected, got=repr(file.graph.kind))
    for name in type(file).model_fields:
        for key in _OUTSIDE:
            value = getattr(getattr(file, name), key, None)
            if value is not None:
                raise NotRebuiltError(f"{name}.{key}", expected=expected, got=repr(value))


def _other_sizes(file: AnyProblemFile, stored: Problem) -> list[str]:
    """What decides how much there is to build, where it is not as in the arrays."""
    if file.design != stored.axes:
        return ["design"]
    nodes = None if file.graph is None else file.graph.size
    drawn = file.mixing is not None and file.mixing.matching is not None
    found = {"nodes": nodes in (None, len(stored.nodes))}
    found |= {name: value == getattr(stored, name) for name, value in file.sizes().items()}
    found["mixing randomness"] = drawn == isinstance(stored.random, RandomMatchings)
    return [_TOLD.get(name, name) for name, same in found.items() if not same]


STREAMING_FORMAT: Final = "noisedesign-streaming-design"
STREAMING_VERSION: Final = 1

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

    format: Literal["noisedesign-streaming-design"] = STREAMING_FORMAT
    version: Literal[1] = STREAMING_VERSION
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
    """A streaming design as its file states it.

    Attributes:
        design: what is stored.
        manifest: the JSON object of the file, which is what is claimed.
        path: of the file.
        arrays: every array of the file by name, read-only float64.
        problem_text: the problem file that it was made from, or nothing.
    """

    design: StreamingDesign
    manifest: dict[str, Any]
    path: Path
    arrays: dict[str, Array]
    problem_text: str = ""

    def _title(self) -> str:
        return f"Stored streaming design of {self.design.horizon} steps"

    def _facts(self) -> dict[str, object]:
        return {**self.design._facts(), "path": self.path}


def _streaming_arrays(design: StreamingDesign) -> dict[str, Array]:
    """The arrays that determine ``design``: its strategy of unit diagonal, and its workload."""
    found = design.strategy.at(design.horizon).arrays()
    workload = design.workload
    if isinstance(workload, PoleWorkload):
        return found | {"poles": workload.poles, "weights": workload.weights}
    return found | {"gram": workload.gram()}


def streaming_manifest_of(design: StreamingDesign, arrays: dict[str, Array]) -> dict[str, Any]:
    """The JSON object that describes ``design``, stored as ``arrays``."""
    manifest = StreamingManifest.model_validate(
        {
            "library": version(),
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


def _streaming_design(manifest: StreamingManifest, arrays: dict[str, Array]) -> StreamingDesign:
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
