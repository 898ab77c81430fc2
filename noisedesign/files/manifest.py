"""The manifest of a design file, version 5: its keys and types, and the values that they state.

Problems are the same where they are stated alike."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self, TypeVar

import numpy as np
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PlainSerializer,
    ValidationError,
)
from scipy.sparse import issparse

from noisedesign.base.checks import Array, InputError, describe
from noisedesign.files.schema import ScalarOrList
from noisedesign.files.tables import (
    ErrorTable,
    JointStructureTable,
    PrivacyTable,
    as_array,
    model_fields,
)
from noisedesign.forms.structure import SpaceStructure, TimeStructure
from noisedesign.privacy.views import Coalitions, Observer, coalitions
from noisedesign.privacy.views.noise import Knowledge
from noisedesign.privacy.views.observers import Sees
from noisedesign.problem.default_cap import as_solved
from noisedesign.problem.problem import ANY_SPACE, ANY_TIME, Problem
from noisedesign.system.directed import perron_vector, push_sum_weights
from noisedesign.system.participation import SCHEMES, Participation
from noisedesign.system.random_mixing import EdgeDropout, NodeDropout, RandomMatchings, RandomMixing
from noisedesign.system.workloads import ErrorMeasure, ErrorMixture

if TYPE_CHECKING:  # accounts of random participation load slowly
    from noisedesign.privacy.amplification import Amplified

FORMAT: Final = "noisedesign-design"
VERSION: Final = 5  # 1 to 4 lack keys that have defaults; up to 2 every C is in full, with H
FIELD = "design file"

Model = TypeVar("Model", bound=BaseModel)


def flaw(part: str, expected: str, got: str, remedy: str = "") -> InputError:
    """The error about a part of a design file."""
    return InputError(f"{FIELD}.{part}", expected=expected, got=got, remedy=remedy)


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, str) and value in ("inf", "-inf", "nan") else value


def _written(value: float) -> float | str:
    # JSON has no infinity; a design without a bound has an infinite gap.
    return value if math.isfinite(value) else str(value)


Number = Annotated[
    float, BeforeValidator(_number), PlainSerializer(_written, return_type=Any, when_used="json")
]


class Entry(BaseModel):
    """Keys and types of a JSON object, none of them unknown."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class ArrayEntry(Entry):
    """An array of the file."""

    kind: str  # its name in the mathematics
    shape: tuple[int, ...]
    dtype: Literal["float64"] = "float64"
    sha256: str  # of its little-endian numbers


_UNNAMED = {"fixed-epoch": "epochs", "min-separation": "max_participations"}
"""Schemes that are stored without their kind, and the key that tells them apart."""


def _complete(entry: dict[str, Any]) -> dict[str, Any]:
    keys = ("separation", "epochs", "horizon", "max_participations")
    return entry if "kind" in entry else dict.fromkeys(keys) | entry


Scheme = Annotated[dict[str, int | str | None], AfterValidator(_complete)]


def array_entries(arrays: Mapping[str, Array], kinds: Mapping[str, str]) -> dict[str, Any]:
    """The entries of arrays that are stored, by name; ``kinds`` says what they are."""
    return {
        name: {"kind": kinds[name], "shape": array.shape, "sha256": array_sha256(array)}
        for name, array in arrays.items()
    }


def array_sha256(array: Array) -> str:
    """sha256 of the little-endian numbers of an array."""
    return hashlib.sha256(np.ascontiguousarray(array, dtype="<f8").data).hexdigest()


class SensitivityEntry(Entry):
    """Largest sensitivity over its budget, and which number it is."""

    value: Number
    which: str
    squared: Literal[True] = True


class StructureEntry(JointStructureTable):
    """The shape of the noise in time and in space."""

    clusters: tuple[int, ...] | list[int] | None = None  # type: ignore[assignment]  # no file
    joint: str | None = None  # type: ignore[assignment]

    @classmethod
    def of(
        cls,
        time: TimeStructure = ANY_TIME,
        space: SpaceStructure = ANY_SPACE,
        joint: str | None = None,
    ) -> Self | None:
        """The entry; None where noise has no structure."""
        if not (time.restricts or space.restricts or joint):
            return None
        in_time, in_space = asdict(time), asdict(space)
        kinds = {"time": in_time.pop("kind"), "space": in_space.pop("kind"), "joint": joint}
        return cls(**kinds, **in_time, **in_space)


class ErrorEntry(ErrorTable):
    """The error that counts, and of which steps; lists are per node or step."""

    horizon: int
    share: float = 1.0  # of a mixture
    mean: Literal["plain", "perron"] = "plain"  # by node_weights, or by the Perron vector of W
    push_sum: bool = False  # whether models are states over the push-sum weights of W

    @classmethod
    def stating(
        cls, error: ErrorMeasure | ErrorMixture | None, problem: Problem
    ) -> Self | tuple[Self, ...] | None:
        """None for the usual error; a mean or push-sum weights other than W's are refused."""
        if isinstance(error, ErrorMixture):
            pairs = zip(error.shares, error.measures, strict=True)
            return tuple(cls._of(measure, problem, share=float(share)) for share, measure in pairs)
        return None if error is None else cls._of(error, problem)

    @classmethod
    def _of(cls, error: ErrorMeasure, problem: Problem, *, share: float = 1.0) -> Self:
        mixing = problem.mixing
        average, weights = error.average, error.push_sum_weights
        if average is not None:
            assert mixing is not None
            mean, what = np.asarray(average) / np.sum(average), "the Perron vector of W"
            _check_derived("average", mean, partial(perron_vector, mixing, stochastic="row"), what)
        if weights is not None:
            derive = partial(push_sum_weights, problem.step_mixing, horizon=error.horizon)
            _check_derived("push_sum_weights", weights, derive, "those of W, one row a step")
        return cls(
            horizon=int(error.horizon),
            share=share,
            mean="plain" if average is None else "perron",
            push_sum=weights is not None,
            **{key: _listed(getattr(error, key)) for key in ErrorTable.model_fields},
        )

    def error(self, *, mixing: Array | None, rounds: int = 1) -> ErrorMeasure:
        if mixing is None:  # of prefix sums
            return ErrorMeasure(horizon=self.horizon, **self.weights())
        models = model_fields(
            mixing,
            rounds=rounds,
            horizon=self.horizon,
            perron=self.mean == "perron",
            push_sum=self.push_sum,
        )
        return ErrorMeasure(horizon=self.horizon, **self.weights(), **models)


def error_of_entries(
    entries: ErrorEntry | tuple[ErrorEntry, ...] | None, *, mixing: Array | None, rounds: int = 1
) -> ErrorMeasure | ErrorMixture | None:
    if entries is None:
        return None
    if isinstance(entries, ErrorEntry):
        return entries.error(mixing=mixing, rounds=rounds)
    measures = tuple(entry.error(mixing=mixing, rounds=rounds) for entry in entries)
    return ErrorMixture(shares=np.array([entry.share for entry in entries]), measures=measures)


def _check_derived(field: str, value: Array, derive: Callable[[], Array], what: str) -> None:
    try:
        expected = derive()
        # Sums of at most a few thousand positive terms, in whatever order.
        same = value.shape == expected.shape and np.allclose(value, expected, rtol=1e-12, atol=0.0)
    except InputError:
        same = False
    if not same:
        got = "others"
        raise InputError(f"error.{field}", expected=f"{what}, in a design that is stored", got=got)


def _listed(value: Any) -> Any:
    """Numbers as JSON has them; words and None as they are."""
    return value if value is None or isinstance(value, str) else np.asarray(value, float).tolist()


class RandomEntry(Entry):
    """The distribution of W: nodes or edges that fail, or matchings that are drawn."""

    kind: Literal["dropout", "edge-failure", "matchings"]
    probability: ScalarOrList | None = None
    matchings: tuple[tuple[tuple[int, int], ...], ...] | None = None

    @classmethod
    def of(cls, random: RandomMixing | None) -> Self | None:
        """None where W is not drawn; a distribution that no file can state is refused."""
        match random:
            case None:
                return None
            case NodeDropout():
                return cls(kind="dropout", probability=_listed(random.probability))
            case EdgeDropout():
                return cls(kind="edge-failure", probability=float(random.probability))
            case RandomMatchings() if np.all(random.probabilities == 1 / len(random.matchings)):
                pairs = tuple(tuple((int(i), int(j)) for i, j in m) for m in random.matchings)
                return cls(kind="matchings", matchings=pairs)
        expected = "dropout, edge failures or equally likely matchings, to be stored"
        raise InputError("random", expected=expected, got=type(random).__name__)

    def random(self, *, mixing: Array) -> RandomMixing:
        if self.kind == "dropout":
            return NodeDropout(mixing=mixing, probability=as_array(self.probability))
        if self.kind == "edge-failure":
            return EdgeDropout(mixing=mixing, probability=self.probability)  # type: ignore[arg-type]
        return RandomMatchings(nodes=len(mixing), matchings=self.matchings or ())


class ObserverEntry(Entry):
    """One observer the noise is designed against: what it sees, and whose noise it knows."""

    model: str
    sees: Sees
    coalition: tuple[int, ...] = ()
    listened: tuple[int, ...] = ()
    holders: tuple[int, ...] = ()  # nodes whose seeds it knows
    values: tuple[int, ...] = ()  # nodes whose noise it knows

    @classmethod
    def of(cls, observer: Observer) -> Self:
        """The entry; an observer who knows noise otherwise than by its nodes is refused."""
        knows = observer.knows
        if knows.everything or knows.seeds:
            expected = "observers who know noise by its nodes, in a design that is stored"
            raise InputError("observers", expected=expected, got=str(observer))
        return cls(
            model=observer.model,
            sees=observer.sees,
            coalition=tuple(map(int, observer.coalition)),
            listened=tuple(map(int, observer.listened)),
            holders=tuple(sorted(map(int, knows.holders))),
            values=tuple(sorted(map(int, knows.values))),
        )

    def observer(self) -> Observer:
        said = self.model_dump(exclude={"holders", "values"})
        knows = Knowledge(holders=frozenset(self.holders), values=frozenset(self.values))
        return Observer(**said, knows=knows)


class CoalitionsEntry(Entry):
    """All sets of ``size`` of some nodes, which the noise is designed against."""

    nodes: tuple[int, ...]
    size: int
    own_noise: str

    @classmethod
    def of(cls, observers: Sequence[Observer]) -> Self | None:
        """None for observers that are written out."""
        if not isinstance(observers, Coalitions):
            return None
        nodes = tuple(map(int, observers.nodes))
        return cls(nodes=nodes, size=observers.size, own_noise=observers.own_noise)

    def observers(self) -> Coalitions:
        return coalitions(nodes=self.nodes, size=self.size, own_noise=self.own_noise)


class AccountEntry(Entry):
    """The privacy claimed under random participation: the fields of :class:`Amplified`."""

    epsilon: Number
    delta: Number
    which: str
    confidence: Number | None
    epsilon_estimate: Number | None
    adjacency: str
    remove: Number
    add: Number

    @classmethod
    def of(cls, account: Amplified | None) -> Self | None:
        """None where there is none."""
        if account is None:
            return None
        return cls(**{name: getattr(account, name) for name in cls.model_fields})

    def account(self) -> Amplified:
        from noisedesign.privacy.amplification import Amplified

        return Amplified(**self.model_dump())


class BoundsEntry(Entry):
    seconds: Number
    lower: Number
    upper: Number


class ProvenanceEntry(Entry):
    method: str
    backend: str
    status: str
    build_seconds: Number
    solve_seconds: Number
    evaluations: int
    versions: dict[str, str]
    history: tuple[BoundsEntry, ...]


class ProblemText(Entry):
    """The problem file the design was made from, empty where there was none."""

    text: str
    sha256: str


class Manifest(Entry):
    """Everything a design file says in words and numbers beside its arrays."""

    format: Literal["noisedesign-design"] = FORMAT
    version: Literal[1, 2, 3, 4, 5] = VERSION
    library: str
    name: str
    design: Literal["space", "time", "space-time"]
    trust: Literal["local", "observers", "central"]
    matrix: str
    arrays: dict[str, ArrayEntry]
    horizon: int | None
    nodes: tuple[str, ...]
    workload: str | None
    participation: Scheme | None
    budget: str
    sensitivity: SensitivityEntry
    variance_ratio: Number | None
    objective: Number
    lower_bound: Number
    gap: Number
    feasible: bool
    adjacency: str | None
    privacy: PrivacyTable | None
    provenance: ProvenanceEntry
    problem: ProblemText
    structure: StructureEntry | None = None
    error: ErrorEntry | tuple[ErrorEntry, ...] | None = None
    random: RandomEntry | None = None
    rounds: int = 1
    observers: tuple[ObserverEntry, ...] = ()
    coalitions: CoalitionsEntry | None = None
    unrestricted_lower_bound: Number | None = None
    local: bool = False
    floor_ratio: Number | None = None
    fixed_lower_bound: Number | None = None
    account: AccountEntry | None = None
    confidence: Number | None = None
    uncertainty: Number | None = None
    mixing_rate: Number | None = None  # the largest ||W - J||_2 that W was chosen under


def participation_entry(scheme: Participation | None) -> dict[str, Any] | None:
    """A scheme by its numbers."""
    if scheme is None:
        return None
    named = {} if scheme.kind in _UNNAMED else {"kind": scheme.kind}
    return _complete(named | scheme.entry())


def participation_of(entry: Mapping[str, Any] | None, *, horizon: int | None) -> Participation:
    """The scheme of a file that states its ``horizon`` as well; errors name either."""
    said = {key: value for key, value in (entry or {}).items() if value is not None}
    unnamed = next((kind for kind, key in _UNNAMED.items() if key in said), None)
    scheme = SCHEMES.get(said.pop("kind", unnamed) or "")
    if scheme is None or set(said) != set(scheme.keys()):
        expected = "epochs and separation, or horizon, separation and max_participations"
        raise flaw("participation", expected, ", ".join(said) or "nothing")
    found = scheme.of(said)
    if horizon != found.horizon:
        raise flaw("horizon", f"{found.horizon} steps for {found}", str(horizon))
    return found


def stated(problem: Problem) -> dict[str, Any]:
    """The part of a manifest that states a problem beside its arrays."""
    scheme, observers = problem.participation, getattr(problem, "observers", ())
    together = CoalitionsEntry.of(observers)
    parts = ("time", "space", "joint") if problem.axes == "space-time" else ()
    structure = {part: getattr(problem, part) for part in parts} or {
        problem.axes: getattr(problem, "structure", None)
    }
    return {
        "name": problem.name,
        "design": problem.axes,
        "horizon": None if scheme is None else int(scheme.horizon),
        "nodes": problem.nodes,
        "workload": getattr(problem, "workload", None),
        "participation": participation_entry(scheme),
        "privacy": PrivacyTable.of(problem.privacy),
        "structure": StructureEntry.of(**structure),
        "error": ErrorEntry.stating(problem.error, problem),
        "random": RandomEntry.of(problem.random),
        "rounds": int(problem.rounds),
        "observers": () if together else tuple(map(ObserverEntry.of, observers)),
        "coalitions": together,
    }


def differences(stored: Problem, rebuilt: Problem, *, tolerance: float) -> list[str]:
    """Names of what differs between two problems; W and H may, by a relative ``tolerance``."""
    if stored.axes != rebuilt.axes:
        return ["design"]
    rebuilt = as_solved(rebuilt, stored)
    said, again = stated(stored), stated(rebuilt)
    told = {"random": "mixing randomness", "rounds": "gossip rounds"}
    different = [told.get(key, key) for key in said if said[key] != again[key]]
    allowed = dict.fromkeys(("budget", "pair_factors", "max_variance", "min_variance"), 0.0)
    allowed |= dict.fromkeys(("mixing", "schedule"), tolerance)

    def far(name: str) -> float:
        return relative_difference(getattr(stored, name, None), getattr(rebuilt, name, None))

    different += [name for name, most in allowed.items() if far(name) > most]
    sparse = stored.sparse and rebuilt.sparse  # H follows from W, and is no array
    if not different and not sparse and far("gram") > tolerance:
        different.append("gram")
    return different


def relative_difference(a: Any, b: Any) -> float:
    """Largest difference of two arrays relative to the largest entry; infinite for two shapes."""
    if a is None or b is None:
        return 0.0 if a is b else float("inf")
    if a.shape != b.shape or issparse(a) != issparse(b):
        return float("inf")
    return float(abs(a - b).max() / abs(b).max())


class _Header(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)

    format: str
    version: int
    library: str = "unknown"


def read_manifest(content: bytes) -> Manifest:
    """The manifest in ``content``."""
    header = validated(_Header, content)
    if header.format != FORMAT:
        remedy = "Designs are written by `noisedesign solve -o` and noisedesign.save."
        raise flaw("format", FORMAT, describe(header.format), remedy)
    if not 1 <= header.version <= VERSION:
        remedy = f"It was written by noisedesign {header.library}: use that or a later version."
        raise flaw("version", f"version {VERSION}", f"version {header.version}", remedy)
    return validated(Manifest, content)


def format_of(content: bytes) -> str:
    """The format that a manifest names, once every key is there once."""
    found = validated(_Header, content).format
    json.loads(content, object_pairs_hook=_once, parse_int=str)  # of any number of digits
    return found


def _once(pairs: list[tuple[str, Any]]) -> None:
    """Refuse two keys of one name: some readers take the first and some the last."""
    if len(dict(pairs)) < len(pairs):
        raise flaw("manifest", "every key once", "one of them twice")


def validated(model: type[Model], content: bytes) -> Model:
    """The object in ``content``."""
    try:
        return model.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(step) for step in first["loc"])
        expected = f"{where or 'JSON'}: {first['msg']}"
        raise flaw("manifest", expected, describe(first["input"])) from None
