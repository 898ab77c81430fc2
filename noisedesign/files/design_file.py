"""Designs on disk: one .npz of float64 arrays with a manifest inside, sealed with its sha256.

The archive's comment, which ends the file, is ``noisedesign-sha256:`` and the hexadecimal sha256 of
every byte before these digits. The seal guards against accidents, not against someone who seals
again: :func:`noisedesign.tasks.verify.verify` recomputes the claims of a file.

The text of a problem in a file may be anybody's: rebuilding the problem opens no file, asks no
network, and makes nothing larger than the arrays that came with it."""

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
from noisedesign.base.version import version
from noisedesign.certify.certificate import Certificate
from noisedesign.design.design import AGAINST_OBSERVERS, Design, Provenance, design_of
from noisedesign.design.unbounded import UnboundedDesign
from noisedesign.families.toeplitz.streaming import StreamingDesign
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
    flaw,
    format_of,
    participation_entry,
    participation_of,
    read_manifest,
    stated,
    validated,
)
from noisedesign.files.problem_file import AnyProblemFile, problem_of_tables, tables_of
from noisedesign.files.stored import Stored
from noisedesign.files.tables import PrivacyTable
from noisedesign.files.toml import located
from noisedesign.files.unbounded_file import (
    UNBOUNDED_FORMAT,
    StoredUnboundedDesign,
    UnboundedManifest,
    unbounded_design,
    unbounded_said,
)
from noisedesign.forms import (
    BandedInverse,
    BufferedToeplitz,
    SignedBuffers,
    StationaryStrategy,
    Strategy,
    ToeplitzStrategy,
    strategy_of_arrays,
)
from noisedesign.problem.problem import Problem, theorem_of
from noisedesign.system.graph import LEAST_NOISE
from noisedesign.system.random_mixing import RandomMatchings
from noisedesign.system.workloads.toeplitz import GramWorkload, PoleWorkload, Workload

MANIFEST = "manifest.json"
SEAL = b"noisedesign-sha256:"

_DIGITS = 64
_BUDGET_NOTE = {
    "space": "[R^-1]_ii <= tau_i (squared sensitivity); R and the objective are at these budgets",
    "time": "squared sensitivity <= 1; C and the objective are at unit sensitivity",
    "patterns": "squared sensitivity of a record of steps j, j + b, ... <= tau_j; C and the "
    "objective are at these budgets",
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
class StoredDesign(Stored):
    """A design as its file states it; its ``noising_matrix`` is computed afresh.

    Attributes:
        design: what is stored.
        manifest: the JSON object of the file, which is what is claimed.
        path: of the file.
        arrays: every array of the file by name, read-only float64.
        problem_text: the problem file that it was made from, or nothing.
    """

    design: Design


def as_stored(value: Any) -> Any:
    """The stored design that was meant: itself, or the content of the file of a design."""
    if isinstance(value, StoredDesign | StoredStreamingDesign | StoredUnboundedDesign):
        return value
    arrays, manifest = _said(value, problem_text="")
    manifest = json.loads(json.dumps(manifest))
    said: dict[str, Any] = {"manifest": manifest, "path": Path(), "arrays": arrays}
    if isinstance(value, StreamingDesign):
        return StoredStreamingDesign(design=value, **said)
    if isinstance(value, UnboundedDesign):
        return StoredUnboundedDesign(design=value, **said)
    return StoredDesign(design=design_of(value, sparse=True), **said)


def _said(design: Any, *, problem_text: str) -> tuple[dict[str, Array], dict[str, Any]]:
    """The arrays and the manifest of a design."""
    kinds = StoredStreamingDesign | StoredUnboundedDesign
    held = design.design if isinstance(design, kinds) else design
    if isinstance(held, UnboundedDesign):
        return unbounded_said(held, problem_text=problem_text)
    if isinstance(held, StreamingDesign):
        arrays, workload = held.strategy.at(held.horizon).arrays(), held.workload
        if isinstance(workload, PoleWorkload):
            arrays = arrays | {"poles": workload.poles, "weights": workload.weights}
        else:
            arrays = arrays | {"gram": workload.gram()}
        return arrays, streaming_manifest_of(held, arrays)
    found = design_of(design, sparse=True)
    arrays = arrays_of(found)
    return arrays, manifest_of(found, arrays, problem_text=problem_text)


def save(
    design: Design | StreamingDesign | UnboundedDesign,
    path: str | Path,
    *,
    problem_text: str = "",
    overwrite: bool = False,
) -> Path:
    """Write ``design`` to ``path``, whole or not at all; the same design gives the same bytes.

    Args:
        design: a design, or a solution or loaded file that has one; or a streaming design.
        path: of the file; by habit it ends in ``.npz``.
        problem_text: the problem file, from which :func:`noisedesign.verify` can rebuild it.
        overwrite: replace a file even if it is no design file.

    Returns:
        ``path``.

    Raises:
        InputError: ``path`` is a folder or a file of another kind, or its folder does not exist;
            unknown ``trust``.
        StorageError: the file cannot be written; an existing one stays as it was.

    Examples:
        >>> import noisedesign as nd
        >>> problem = nd.TimeProblem.prefix(participation=nd.participation.single(2))
        >>> design = nd.solve(problem).design
        >>> path = nd.save(design, "prefix.npz")
        >>> bool((nd.load(path).design.strategy == design.strategy).all())
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


save_design = save  # beside load_design


def load_design(path: str | Path) -> Any:
    """The design of a file, and what it claims, whole or refused; nothing is ever unpickled."""
    path = _checks.path(path, field=FIELD)
    content = read_regular(path, field=FIELD, expected="a readable design file", times=2)
    with located(path):
        return _parsed(content, path)


def _check_seal(content: bytes) -> None:
    if content[-_DIGITS - len(SEAL) : -_DIGITS] != SEAL:
        got = "a Python pickle" if content.startswith(b"\x80") else "a file without its seal"
        remedy = "It is truncated, changed, or something else; nothing in it was executed."
        expected = "a complete file written by save_design or `noisedesign solve -o`"
        raise InputError(FIELD, expected=expected, got=got, remedy=remedy)
    found = hashlib.sha256(memoryview(content)[:-_DIGITS]).hexdigest()
    if content[-_DIGITS:] != found.encode("ascii"):
        expected = "the bytes its sha256 was taken of"
        remedy = "It was changed or damaged after it was written. Solve again, or restore it."
        raise InputError(FIELD, expected=expected, got="other bytes", remedy=remedy)


def manifest_of(design: Design, arrays: dict[str, Array], *, problem_text: str) -> dict[str, Any]:
    """The JSON object that describes ``design``, stored as ``arrays``."""
    problem, certificate, made = design.problem, design.certificate, design.provenance
    proof = getattr(problem, "mixing_proof", None)
    kinds = {name: spec.kind for name, spec in specs_of(problem, arrays).items()}
    manifest = Manifest.model_validate(
        stated(problem)
        | {name: getattr(certificate, name) for name in _CERTIFIED}
        | {
            "library": version(),
            "trust": _checks.one_of(
                design.trust, field="design.trust", allowed=("local", "observers", "central")
            ),
            "matrix": main_array(arrays),
            "arrays": array_entries(arrays, kinds),
            "budget": _BUDGET_NOTE[_budget_kind(design)],
            "mixing_rate": proof and proof.norm,
            "sensitivity": {
                "value": certificate.sensitivity_squared,
                "which": certificate.sensitivity_kind,
            },
            "gap": certificate.gap,
            "feasible": bool(certificate.feasible),
            "adjacency": problem.privacy and problem.privacy.adjacency,
            "provenance": asdict(made)
            | {"status": str(made.status), "evaluations": int(made.evaluations)},
            "problem": {"text": problem_text, "sha256": text_sha256(problem_text)},
            "local": bool(design.local),
            "account": AccountEntry.of(certificate.account),
        }
    )
    return manifest.model_dump(mode="json")


_CERTIFIED = (  # numbers of a certificate that a manifest states under their own names
    *("objective", "lower_bound", "unrestricted_lower_bound", "fixed_lower_bound"),
    *("variance_ratio", "floor_ratio", "confidence", "uncertainty"),
)


def _budget_kind(design: Design) -> str:
    if design.problem.axes == "space":
        if design.problem.pair_factors is not None:
            return "pairs"
        return "observers" if design.problem.observers else "space"
    if design.problem.participation.random:
        return "random"
    uneven = design.problem.axes == "time" and design.problem.budget is not None
    return "patterns" if uneven else design.axes


def text_sha256(text: str) -> str:
    """sha256 of the UTF-8 bytes of ``text``, in hexadecimal."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def _parsed(content: bytes, path: Path) -> Any:
    _check_seal(content)
    members = unpack(content, field=FIELD)
    if MANIFEST not in members:
        raise flaw("manifest", MANIFEST, "nothing")
    content = members.pop(MANIFEST)
    if format_of(content) == STREAMING_FORMAT:
        said = validated(StreamingManifest, content)
        held, claimed = _arrays(members, said), said.model_dump(mode="json")
        streamed = _streaming_design(said, held)
        return StoredStreamingDesign(design=streamed, manifest=claimed, path=path, arrays=held)
    if format_of(content) == UNBOUNDED_FORMAT:
        endless = validated(UnboundedManifest, content)
        held, claimed = _arrays(members, endless), endless.model_dump(mode="json")
        return StoredUnboundedDesign(
            design=unbounded_design(endless, held),
            manifest=claimed,
            path=path,
            arrays=held,
            problem_text=endless.problem_text,
        )
    manifest = read_manifest(content)
    arrays = _arrays(members, manifest)
    parts = parts_of(arrays, manifest)
    _check_trust(manifest)
    _check_account(manifest, parts["problem"])
    made = manifest.provenance.model_dump()
    history = tuple(Bounds(**bounds) for bounds in made.pop("history"))
    design = Design(
        **parts,
        certificate=Certificate(
            **{name: getattr(manifest, name) for name in _CERTIFIED},
            sensitivity_squared=manifest.sensitivity.value,
            sensitivity_kind=manifest.sensitivity.which,
            account=None if manifest.account is None else manifest.account.account(),
            theorem=theorem_of(parts["problem"]).number,
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
        raise flaw("coalitions", "observers or all coalitions of some nodes", "both")
    if (manifest.trust == AGAINST_OBSERVERS) != bool(written or pooled):
        chosen = "all coalitions of some nodes" if pooled else f"{written} chosen observers"
        expected = "observers" if written or pooled else "local or central"
        raise flaw("trust", f"{expected}, with {chosen}", manifest.trust)


def _check_account(manifest: Manifest, problem: Problem) -> None:
    """Noise that is accounted for under random participation holds under no other."""
    use = problem.use
    if manifest.account is not None and not (use is not None and use.random):
        expected = "the random one that its account and the scale of its noise are for"
        remedy = 'Solve the problem again with kind = "fixed-epoch".'
        raise flaw("participation", expected, f"{use}", remedy)


def _arrays(
    members: dict[str, bytes], manifest: Manifest | StreamingManifest | UnboundedManifest
) -> dict[str, Array]:
    named = {name + NPY for name in manifest.arrays}
    if set(members) != named:
        odd = ", ".join(sorted(set(members) ^ named))
        raise flaw("manifest", "the arrays of the file, all of them", f"not {odd}")
    arrays = {}
    for name, entry in manifest.arrays.items():
        field, content = f"{FIELD}.{name}", members[name + NPY]
        arrays[name] = float64_array(content, field=field)
        if array_sha256(arrays[name]) != entry.sha256:
            raise InputError(field, expected="the array its sha256 was taken of", got="another")
        if arrays[name].shape != entry.shape:
            expected = f"shape {entry.shape}"
            raise InputError(field, expected=expected, got=f"shape {arrays[name].shape}")
    return arrays


class NotRebuiltError(InputError):
    """The problem of a text is not rebuilt: it names data elsewhere, or takes much work."""


OUTSIDE = ("file", "files", "clusters", "ego")  # keys of tables that name data outside the text
MOST_CHOSEN = 200  # nodes whose mixing is chosen again: more may take minutes


def differences_from_text(text: str, *, stored: Problem, tolerance: float) -> list[str]:
    """Names of the parts of the problem in ``text`` that ``stored`` has otherwise."""
    file = tables_of(text)
    _check_inside(file)
    if different := _other_sizes(file, stored):
        return different
    graph = getattr(file, "graph", None)
    chosen = getattr(graph, "weights", None) in (FASTEST, LEAST_NOISE)
    if chosen and len(stored.nodes) > MOST_CHOSEN:
        expected = f"a mixing that is chosen for at most {MOST_CHOSEN} nodes"
        raise NotRebuiltError("graph.weights", expected=expected, got=f"{len(stored.nodes)}")
    proved = getattr(stored, "mixing_proof", None) is not None
    asked = problem_of_tables(file, Path(), stored.mixing, proved=proved)
    return differences(stored, asked, tolerance=tolerance)


def _check_inside(file: AnyProblemFile) -> None:
    expected = "nothing outside the design file"
    if file.graph is not None and file.graph.kept_outside:
        raise NotRebuiltError("graph.kind", expected=expected, got=repr(file.graph.kind))
    for name in type(file).model_fields:
        for key in OUTSIDE:
            value = getattr(getattr(file, name), key, None)
            if value is not None:
                raise NotRebuiltError(f"{name}.{key}", expected=expected, got=repr(value))


def _other_sizes(file: AnyProblemFile, stored: Problem) -> list[str]:
    """Names of the sizes of the problem that are not those of the arrays."""
    if file.design != stored.axes:
        return ["design"]
    nodes = None if file.graph is None else file.graph.size
    drawn = file.mixing is not None and file.mixing.matching is not None
    found = {"nodes": nodes in (None, len(stored.nodes))}
    found |= {name: value == getattr(stored, name) for name, value in file.sizes().items()}
    found["mixing randomness"] = drawn == isinstance(stored.random, RandomMatchings)
    return ["error" if name == "horizon" else name for name, same in found.items() if not same]


STREAMING_FORMAT: Final = "noisedesign-streaming-design"

_FORMS = (ToeplitzStrategy, BandedInverse, SignedBuffers)
_KINDS = {name: kind for form in _FORMS for name, kind in form.names.items()} | {
    "poles": "lambda",
    "weights": "squared gain of every pole",
    "gram": "H",
}

_STREAMED = (  # fields of a streaming design that its manifest states under their own names
    *("name", "squared_error", "squared_sensitivity", "sensitivity_kind"),
    "lower_bound_of_unrestricted_optimum",
)


class StreamingManifest(Entry):
    """Everything a file of a streaming design says beside its arrays."""

    format: Literal["noisedesign-streaming-design"] = STREAMING_FORMAT
    version: Literal[1] = 1
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
class StoredStreamingDesign(Stored):
    """A streaming design as its file states it.

    Attributes:
        design: what is stored.
        manifest: the JSON object of the file, which is what is claimed.
        path: of the file.
        arrays: every array of the file by name, read-only float64.
        problem_text: the problem file that it was made from, or nothing.
    """

    design: StreamingDesign

    def _title(self) -> str:
        return f"Stored streaming design of {self.design.horizon} steps"


def streaming_manifest_of(design: StreamingDesign, arrays: dict[str, Array]) -> dict[str, Any]:
    """The JSON object that describes ``design``, stored as ``arrays``."""
    manifest = StreamingManifest.model_validate(
        {
            **{name: getattr(design, name) for name in _STREAMED},
            "library": version(),
            "strategy": design.strategy.at(design.horizon).kind,
            "arrays": array_entries(arrays, _KINDS),
            "horizon": int(design.horizon),
            "participation": participation_entry(design.participation),
            "objective": design.objective,
            "stop": design.stop.value,
            "evaluations": int(design.evaluations),
            "privacy": PrivacyTable.of(design.privacy),
        }
    )
    return manifest.model_dump(mode="json")


def _streaming_design(manifest: StreamingManifest, arrays: dict[str, Array]) -> StreamingDesign:
    """The design of a file whose arrays are intact."""
    scheme = participation_of(manifest.participation, horizon=manifest.horizon)
    # Recomputing the claims holds 64 vectors of T doubles at once, its transforms included.
    memory.require(
        lambda steps: 8 * 64 * steps, scheme.horizon, field=f"{FIELD}.horizon", of="steps"
    )
    for name, array in arrays.items():
        if name not in _KINDS:
            raise flaw(name, f"one of {', '.join(_KINDS)}", name)
        if not np.isfinite(array).all():
            raise flaw(name, "finite entries", "NaN or infinity")
    form = strategy_of_arrays(arrays, horizon=scheme.horizon, field=FIELD)
    try:
        stop = Stop(manifest.stop)
    except ValueError:
        raise flaw("stop", ", ".join(Stop), manifest.stop) from None
    return StreamingDesign(
        strategy=_strategy(form),
        horizon=scheme.horizon,
        workload=_workload(arrays, scheme.horizon),
        participation=scheme,
        **{name: getattr(manifest, name) for name in _STREAMED},
        stop=stop,
        evaluations=manifest.evaluations,
        privacy=None if manifest.privacy is None else manifest.privacy.target(),
    )


def _strategy(form: Strategy | None) -> StationaryStrategy:
    """The strategy for any horizon."""
    match form:
        case BufferedToeplitz() if form.diagonal != 1.0:
            pass
        case StationaryStrategy():
            return replace(form, steps=None)
    expected = "Toeplitz coefficients of C or C^-1, or buffers of unit diagonal"
    raise flaw("strategy", expected, form.kind if form else "nothing")


def _workload(arrays: dict[str, Array], horizon: int) -> Workload:
    if "gram" in arrays:
        return GramWorkload(matrix=arrays["gram"])
    for name in ("poles", "weights"):
        if name not in arrays:
            raise flaw(name, "the array of the workload", "nothing")
    most = 1e12  # some minutes on one core
    if horizon * (1 + arrays["poles"].size) ** 2 > most:
        expected = f"a workload of at most {most:g} operations to verify"
        got = f"{arrays['poles'].size} poles over {horizon} steps"
        raise InputError(FIELD, expected=expected, got=got)
    return PoleWorkload(poles=arrays["poles"], weights=arrays["weights"], horizon=horizon)
