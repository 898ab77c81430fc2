"""The plan of one node, which is all it must know to draw its noise: a design reduced to its part.

Noise of node u at step t is z_t = (C^-1 v)_t with white noise v_s = sum_k a_k w_k,s: ``streams``
have the a_k, ``filter`` is C^-1. A full space-time design has no such C: its ``streams`` are those
of all nodes with coefficients of every pair of steps. The file of a plan is JSON beside .npy arrays
in one archive, with a checksum: a plan is made from a design and not edited."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from noisedesign.base import atomic, checks as _checks
from noisedesign.base.checks import Array, InputError
from noisedesign.noise.filters import Buffered, Filter, Fresh, filter_of
from noisedesign.noise.rules import Rule

if TYPE_CHECKING:
    from noisedesign.base.nodes import Node

FORMAT, VERSION = "noisedesign-node", 1
MOST_BYTES = 2**32
_MANIFEST = "plan.json"
_ENDLESS = "unbounded"  # in place of the number of steps
_STATED = ("digest", "node", "nodes", "name", "horizon", "weights", "rounds")
UNBOUNDED = 2**53
"""The horizon of a run without an end: the largest integer that every number here can be."""
OWN, SHARED, DEALT = "own", "shared", "dealt"
CHANGE_OVER_CLIP = {"replace": 2.0, "zero-out": 1.0, "add-remove": 1.0}
"""Largest Euclidean change of one step's sum of clipped gradients over the clip (not squared), by
adjacency. A record that is added or removed fills or empties a slot that nobody else takes, and
sums are not divided by how many records came: it is the same as zeroing a record out."""


@dataclass(frozen=True)
class Claim:
    """The privacy a design gives, and the rules that the trainer must keep to.

    Attributes:
        noise_stddev: standard deviation that the noise was scaled by, in units of the gradients.
        mu: GDP parameter of the whole run, for the least protected node, by which runs are
            composed; where participation is random that of any order of records, more than epsilon
            says.
        epsilon: of the target that the run meets.
        delta: likewise.
        adjacency: likewise.
        clip: the norm that every gradient is clipped to; noise is added to their sum.
        participation: how often one record may take part, in words.
        rule: the same for a trainer to hold every record to.
        trust: who the noise protects from.
        batch_size: what sums are divided by before noise is added; None: nothing.
        confidence: with which epsilon holds, where it was found by samples; None: certainly.

    Examples:
        >>> import noisedesign as nd
        >>> target = nd.PrivacyTarget(epsilon=1.0, clip=0.5)
        >>> scheme = nd.participation.single(2)
        >>> problem = nd.TimeProblem.prefix(participation=scheme, privacy=target)
        >>> claim = nd.solve(problem).design.claim
        >>> print(f"{claim.noise_stddev * claim.mu:.4f}")  # 2 clip
        1.0000
    """

    noise_stddev: float
    mu: float | None = None
    epsilon: float | None = None
    delta: float | None = None
    adjacency: str | None = None
    clip: float | None = None
    participation: str | None = None
    rule: Rule | None = None
    trust: str = "local"
    batch_size: int | None = None
    confidence: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Its numbers and words.

        Returns:
            JSON values; without ``confidence`` where there is none, as :meth:`Rule.to_json`.
        """
        found = asdict(self) | {"rule": None if self.rule is None else self.rule.to_json()}
        if self.confidence is None:
            del found["confidence"]
        return found


@dataclass(frozen=True, kw_only=True)
class Stream:
    """White noise that goes into the noise of a node, times a coefficient.

    Attributes:
        name: tells it from the others of the design.
        coefficient: that the node multiplies it by, not squared.
        source: "own" of the node's secret, "shared" of its holders', "dealt" of a dealer's.
        holders: the nodes that draw from it.

    Examples:
        >>> from noisedesign.noise import Stream
        >>> Stream(name="node 0", coefficient=2.5)
        Stream(name='node 0', coefficient=2.5, source='own', holders=())
    """

    name: str
    coefficient: float
    source: str = OWN
    holders: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """One node's part of a design.

    Attributes:
        digest: SHA-256 of the design, 64 hexadecimal digits.
        node: zero-based.
        nodes: n; None where every node has the same plan, however many they are.
        horizon: T, after which nothing may be drawn; ``UNBOUNDED`` of a run without an end.
        filter: noise from white noise.
        streams: white noise from secrets.
        claim: what it protects.
        couplings: of a full design, shape (T, T, n), how noise of step t takes step s of a stream.
        weights: the nonzero entries of W in the row of the node, (v, W[node, v]), if W is known.
        name: of the node.
        rounds: how often models are averaged by these weights after a step; noise is added once.

    Examples:
        Without correlation the noise of every step has the variance noise_stddev^2.

        >>> import noisedesign as nd
        >>> from noisedesign.noise import Plan
        >>> target = nd.PrivacyTarget(epsilon=1.0)
        >>> scheme = nd.participation.single(3)
        >>> problem = nd.TimeProblem.prefix(participation=scheme, privacy=target)
        >>> plan = nd.baseline(problem, "ldp").node_plan(0)
        >>> (plan.variances / plan.claim.noise_stddev**2).round(4).tolist()
        [1.0, 1.0, 1.0]
        >>> Plan.load(plan.save("node-0.plan")).digest == plan.digest
        True
    """

    digest: str
    node: int
    horizon: int
    streams: tuple[Stream, ...]
    claim: Claim
    filter: Filter = field(default_factory=Fresh)
    nodes: int | None = None
    couplings: Array | None = None
    weights: tuple[tuple[int, float], ...] = ()
    name: str = ""
    rounds: int = 1

    def node_plan(self, node: Node | None = None, *, batch_size: int | None = None) -> Plan:
        """Itself, or of a design that is the same at every node the plan of another one.

        Args:
            node: its name, a text, or its row, zero-based; None: its own.
            batch_size: None, or that of its claim.

        Returns:
            The plan of that node.

        Raises:
            InputError: it is that of another node, or for another batch size.
        """
        agrees("batch_size", batch_size, self.claim.batch_size)
        named = isinstance(node, str)
        own: Node = self.name if named else self.node
        if not named and node is not None:
            node = _checks.positive_int(node, field="node", minimum=0)
        if node in (None, own):
            return self
        if self.nodes is None and isinstance(node, int):
            return replace(self, node=node)
        expected = f"{own}, whose file this is"
        raise InputError("node", expected=expected, got=_checks.describe(node))

    @property
    def unbounded(self) -> bool:
        """Whether the run has no end."""
        return self.horizon == UNBOUNDED

    @property
    def sources(self) -> frozenset[str]:
        """The kinds of secrets it needs, of the node, shared or dealt."""
        return frozenset(stream.source for stream in self.streams)

    @property
    def others(self) -> tuple[int, ...]:
        """Neighbours in W, and nodes it shares a seed with, ascending."""
        shared = {v for s in self.streams if s.source == SHARED for v in s.holders}
        return tuple(sorted((shared | {v for v, _ in self.weights}) - {self.node}))

    @property
    def variances(self) -> Array:
        """Variances of its noise at every step, shape (T,), in squared units of the gradients.

        Raises:
            InputError: the run has no end.
        """
        if self.unbounded:
            raise InputError("plan.horizon", expected="a run that ends", got="one without an end")
        weights = np.array([stream.coefficient for stream in self.streams])
        if self.couplings is not None:
            return np.asarray(np.square(self.couplings * weights).sum(axis=(1, 2)))
        return float(weights @ weights) * self.filter.row_sums(self.horizon, np.square)

    @property
    def checksum(self) -> str:
        """SHA-256 of all that its file says, 64 hexadecimal digits."""
        return _checksum(*self._said())

    def _said(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """The manifest of its file, but for the checksum, and the arrays beside it."""
        arrays = self.filter.arrays()
        if self.couplings is not None:
            arrays["couplings"] = self.couplings
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            **{name: getattr(self, name) for name in _STATED},
            "horizon": _ENDLESS if self.unbounded else self.horizon,
            "filter": self.filter.kind,
            "claim": self.claim.to_json(),
            "streams": [asdict(stream) for stream in self.streams],
            "arrays": {name: list(array.shape) for name, array in arrays.items()},
        }
        return manifest, arrays

    def save(self, path: str | Path) -> Path:
        """Written whole or not at all.

        Args:
            path: of the file.

        Returns:
            ``path``.

        Raises:
            InputError: ``path`` is no path, a folder or a device.
            StorageError: the file cannot be written; an existing one stays as it was.
        """
        manifest, arrays = self._said()
        manifest["checksum"] = _checksum(manifest, arrays)
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w", zipfile.ZIP_STORED) as archive:
            archive.writestr(_MANIFEST, json.dumps(manifest, allow_nan=False, indent=2))
            for name, array in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                    np.lib.format.write_array(entry, array, allow_pickle=False)
        return atomic.write_bytes(path, content.getvalue())

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """The plan of a file that :meth:`save` wrote.

        Args:
            path: of the file.

        Returns:
            The plan.

        Raises:
            InputError: no such file, another kind of file, a newer version, or damage.
        """
        file = _checks.path(path, field="plan")
        try:
            with zipfile.ZipFile(file) as archive:
                return _read(archive, str(file))
        except OSError as error:
            got = error.strerror or str(error)
            raise InputError("plan", expected=f"a file {file}", got=got) from None
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
            if not zipfile.is_zipfile(file):
                raise _another_kind(str(file)) from None
            raise _damaged(str(file), str(error)) from None


def agrees(field: str, given: float | None, designed: float | None) -> None:
    """Check that what a trainer says, if anything, is what the design is for."""
    if given is not None and _checks.real(given, field=field, low=0) != designed:
        stated = "none stated" if designed is None else f"{designed:g}"
        expected = f"{stated}, which the design is for"
        remedy = "Another one has another privacy: design for it."
        raise InputError(field, expected=expected, got=_checks.describe(given), remedy=remedy)


def _damaged(file: str, got: str) -> InputError:
    remedy = "Take the file again from where it was made."
    return InputError("plan", expected=f"a whole {file}", got=got, remedy=remedy)


def _another_kind(file: str) -> InputError:
    remedy = (
        "Plan.save writes one: design.node_plan(node).save(path). For a design's own file give "
        "noise(noisedesign.load(path), node=...), for an export "
        "noise(noisedesign.files.exports.read(path), node=...)."
    )
    got = f"{file}, which is no whole one"
    return InputError("plan", expected="a node's file", got=got, remedy=remedy)


def _read(archive: zipfile.ZipFile, file: str) -> Plan:
    if _MANIFEST not in archive.namelist():
        raise _another_kind(file)
    if sum(entry.file_size for entry in archive.infolist()) > MOST_BYTES:
        raise _damaged(file, "more than 4 GiB")
    try:
        manifest = json.loads(archive.read(_MANIFEST))
        if manifest["format"] != FORMAT:
            raise KeyError("format")
        if manifest["version"] != VERSION:
            got = _checks.describe(manifest["version"])
            remedy = f"{file} was written by another version of noisedesign: use that one."
            raise InputError("plan.version", expected=f"{VERSION}", got=got, remedy=remedy)
        arrays = {
            name: _array(archive, name, tuple(shape)) for name, shape in manifest["arrays"].items()
        }
        found, checksum = _plan(manifest, dict(arrays)), manifest.pop("checksum")
        if checksum != _checksum(manifest, arrays):
            raise ValueError("something in it was changed since it was made")
        return found
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        if isinstance(error, InputError) and error.field == "plan.version":
            raise
        raise _damaged(file, f"{type(error).__name__}: {error}") from None


def _checksum(manifest: Mapping[str, Any], arrays: Mapping[str, Array]) -> str:
    """SHA-256 of all that a file says, as no node can compute the digest of the whole design."""
    found = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode())
    for name in sorted(arrays):
        found.update(np.ascontiguousarray(arrays[name], dtype="<f8").data)
    return found.hexdigest()


def _array(archive: zipfile.ZipFile, name: str, shape: tuple[int, ...]) -> Array:
    with archive.open(f"{name}.npy") as entry:
        found = np.lib.format.read_array(entry, allow_pickle=False)
    if found.dtype != np.float64 or found.shape != shape or not np.isfinite(found).all():
        raise ValueError(f"{name}: expected finite float64 of shape {shape}")
    return np.asarray(found)


def claim_of_json(said: Mapping[str, Any]) -> Claim:
    """Read :meth:`Claim.to_json`; other values raise a KeyError, TypeError or ValueError."""
    said = {"confidence": None, **said}
    numbers = ("noise_stddev", "mu", "epsilon", "delta", "clip", "confidence")
    for name in numbers:
        if said[name] is not None:
            _checks.real(said[name], field=f"claim.{name}", low=0)
    if said["batch_size"] is not None:
        _checks.positive_int(said["batch_size"], field="claim.batch_size")
    rule = said["rule"]
    return Claim(**{**said, "rule": None if rule is None else Rule.of_json(rule)})


def _streams(said: Any) -> tuple[Stream, ...]:
    found = tuple(Stream(**{**stream, "holders": tuple(stream["holders"])}) for stream in said)
    for stream in found:
        _checks.real(stream.coefficient, field=stream.name)
        _checks.one_of(stream.source, field=stream.name, allowed=(OWN, SHARED, DEALT))
    if not found or len({stream.name for stream in found}) < len(found):
        raise ValueError("streams: expected some, each of a name of its own")
    return found


def _plan(manifest: Mapping[str, Any], arrays: dict[str, Array]) -> Plan:
    said = manifest["horizon"]
    horizon = UNBOUNDED if said == _ENDLESS else _checks.positive_int(said, field="horizon")
    if horizon == UNBOUNDED and manifest["filter"] != Buffered.kind:
        raise ValueError("filter: expected buffers in a run without an end")
    digest = str(manifest["digest"])
    if len(bytes.fromhex(digest)) != 32:
        raise ValueError("digest: expected 64 hexadecimal digits")
    if manifest["nodes"] is not None:
        _checks.positive_int(manifest["nodes"], field="nodes")
    couplings = arrays.pop("couplings", None)
    streams = _streams(manifest["streams"])
    if couplings is not None and couplings.shape != (horizon, horizon, len(streams)):
        raise ValueError(f"couplings: expected one number for {horizon} x {horizon} steps a stream")
    return Plan(
        digest=digest,
        node=_checks.positive_int(manifest["node"], field="node", minimum=0),
        nodes=manifest["nodes"],
        name=str(manifest["name"]),
        horizon=horizon,
        filter=filter_of(manifest["filter"], arrays, horizon=horizon),
        streams=streams,
        couplings=couplings,
        weights=tuple((int(v), float(w)) for v, w in manifest["weights"]),
        rounds=_checks.positive_int(manifest.get("rounds", 1), field="rounds"),
        claim=claim_of_json(manifest["claim"]),
    )
