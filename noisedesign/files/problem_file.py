"""Problem files: strict TOML in, a checked problem out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array, InputError
from noisedesign.base.shown import Shown
from noisedesign.files import _schema
from noisedesign.files._lookup import lookup
from noisedesign.files._observers_of import error_horizon, observers_of
from noisedesign.files._schema_errors import BELONGS, to_input_error
from noisedesign.files._settings_of import (
    models_of,
    objective_of,
    participation_of,
    random_mixing_of,
    space_structure,
    time_structure,
)
from noisedesign.files._tables import is_directed, load_npy, mixing_key, mixing_of
from noisedesign.files._toml import located, parsed, read_text, renamed
from noisedesign.privacy.target import PrivacyTarget
from noisedesign.program.problem import Problem, SpaceProblem, SpaceTimeProblem, TimeProblem
from noisedesign.system.graph import check_mixing
from noisedesign.system.participation import FixedEpoch
from noisedesign.system.workloads import Objective

FIELD = "problem"


@dataclass(frozen=True, kw_only=True)
class Reference:
    """An interval that holds the optimum of tr(H X^-1), and how it was obtained.

    Raises:
        InputError: a bound is not positive and finite, or lower > upper.
    """

    lower: float
    upper: float
    method: str

    def __post_init__(self) -> None:
        lower = _checks.real(self.lower, field="reference.lower", low=0)
        upper = _checks.real(self.upper, field="reference.upper", low=0)
        if lower > upper:
            raise InputError(
                "reference.upper", expected=f"at least reference.lower = {lower!r}", got=repr(upper)
            )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LoadedProblem(Shown):
    """A problem and the text it was read from. ``path`` is None for text without a file."""

    problem: Problem
    text: str
    reference: Reference | None = None
    path: Path | None = None
    tags: tuple[str, ...] = ()
    description: str = ""

    def _title(self) -> str:
        return f"Problem file {self.problem.name!r}"

    def _facts(self) -> dict[str, object]:
        optimum = self.reference and f"from {self.reference.lower!r} to {self.reference.upper!r}"
        return {
            **self.problem._facts(),
            "optimum": optimum,
            "description": self.description,
            "tags": self.tags,
            "path": self.path,
        }


def load_problem(path: str | Path, *, mixing: Array | None = None) -> LoadedProblem:
    """Read a problem file; ``problems/README.md`` describes its keys.

    Args:
        path: a file, or the name of a shipped one, ``"whisper/florentine"``, with ``.toml`` or
            without. What the working directory or its folder ``problems`` has comes first.
        mixing: as of :func:`parse_problem`.

    Raises:
        InputError: naming the dotted key at fault and this file; no such file, a folder, not
            UTF-8, not TOML.
    """
    path = lookup(path)
    text = read_text(path, field=FIELD)
    with located(path):
        return _parse(text, folder=path.parent, path=path, mixing=mixing)


def parse_problem(text: str, *, folder: str | Path, mixing: Array | None = None) -> LoadedProblem:
    """As :func:`load_problem`, from text; files it names are relative to ``folder``.

    Args:
        mixing: the W to take where ``graph.weights`` asks for the fastest, if it is as fast as any:
            that of a design whose problem is read again.
    """
    return _parse(text, folder=Path(folder), path=None, mixing=mixing)


def _parse(
    text: str, *, folder: Path, path: Path | None, mixing: Array | None = None
) -> LoadedProblem:
    file = tables_of(text)
    # Cheap checks first: a wrong reference should not cost an eigendecomposition.
    reference = None if file.reference is None else Reference(**file.reference.model_dump())
    return LoadedProblem(
        problem=built(file, folder=folder, known=mixing),
        text=text,
        reference=reference,
        path=path,
        tags=tuple(file.tags),
        description=file.description,
    )


def tables_of(text: str) -> _schema.AnyProblemFile:
    """The tables of a problem file, their names and types checked; nothing is built.

    Raises:
        InputError: naming the dotted key at fault; not TOML.
    """
    data = parsed(text, field=FIELD)
    try:
        return _schema.ProblemFile.validate_python(data)
    except ValidationError as error:
        raise to_input_error(error, data, belongs=BELONGS) from None


def built(
    file: _schema.AnyProblemFile, *, folder: Path = Path(), known: Array | None = None
) -> Problem:
    """The problem that the tables say; as :func:`parse_problem`, with ``known`` for ``mixing``."""
    common: dict[str, Any] = {"name": file.name}
    if file.privacy is not None:
        common["privacy"] = PrivacyTarget(**file.privacy.model_dump())
    if isinstance(file, _schema.TimeFile):
        return _time_problem(file, folder, known, common)
    if isinstance(file, _schema.SpaceTimeFile):
        return _space_time_problem(file, folder, known, common)
    mixing, nodes = mixing_of(file.graph, folder=folder, known=known)
    if is_directed(file.graph):
        _check_balanced(mixing)
    names = nodes or tuple(str(i) for i in range(len(mixing)))
    common["structure"] = space_structure(file.structure, nodes=names, folder=folder)
    if file.participation is not None:
        common["participation"] = participation_of(file.participation)
    horizon = 1 if file.error is None else file.error.horizon
    if file.observers is not None:
        if file.mixing is not None:
            raise InputError("mixing", expected="no [mixing] table beside [observers]", got="one")
        common["observers"] = observers_of(file.observers, names=names)
        horizon = error_horizon(file.error, file.observers)
        common["objective"] = Objective(horizon=horizon)
    if file.error is not None:
        common["objective"] = objective_of(file.error, horizon=horizon, nodes=len(mixing))
    cap, floor = _limits_of(file.limits)
    key = mixing_key(file.graph)
    random = random_mixing_of(file.mixing, mixing=mixing, graph=file.graph)
    horizon_key = "error.horizon" if file.observers is None else "observers.horizon"
    with renamed({"mixing": key, "objective.horizon": horizon_key}):
        return SpaceProblem(
            mixing=mixing,
            nodes=nodes,
            budget=file.budget.tau,
            max_variance=cap,
            min_variance=floor,
            random=random,
            **common,
        )


def _limits_of(limits: _schema.Limits | None) -> tuple[Any, Any]:
    """Cap and floor of a [limits] table, which names at least one of them."""
    if limits is None:
        return None, None
    if limits.max_variance is None and limits.min_variance is None:
        raise InputError(
            "limits.max_variance", expected="a value, or one of limits.min_variance", got="nothing"
        )
    return limits.max_variance, limits.min_variance


def _check_balanced(mixing: Array) -> None:
    """W of a directed graph, in a spatial design, keeps sums as well as means."""
    try:
        check_mixing(mixing, doubly_stochastic=True)
    except InputError as error:
        raise InputError(
            "graph.directed",
            expected="false for a space design, unless W is doubly stochastic",
            got=f"true, and {error.got} of W",
            remedy="Time and space-time designs take any directed graph that is connected.",
        ) from error


def _time_problem(
    file: _schema.TimeFile, folder: Path, known: Array | None, common: dict[str, Any]
) -> TimeProblem:
    participation = participation_of(file.participation)
    common["structure"] = time_structure(file.structure)
    kind = file.workload.kind
    if kind == "decentralized":
        if file.graph is None:
            raise InputError(
                "graph", expected="a [graph] table for a decentralized workload", got="nothing"
            )
        mixing, nodes = mixing_of(file.graph, folder=folder, known=known)
        common |= _errors(file, file.graph, mixing=mixing, horizon=participation.horizon)
        with renamed({"mixing": mixing_key(file.graph)}):
            return TimeProblem.decentralized(
                mixing=mixing, nodes=nodes, participation=participation, **common
            )
    if file.graph is not None:
        raise InputError(
            "graph", expected=f"no [graph] table for a {kind} workload", got=file.graph.kind
        )
    for key in ("error", "mixing"):
        if getattr(file, key) is not None:
            raise InputError(key, expected=f"no [{key}] table for a {kind} workload", got="one")
    if isinstance(file.workload, _schema.GramWorkload):
        gram = load_npy(folder / file.workload.file, field="workload.file")
        with renamed({"workload.gram": "workload.file"}):
            return TimeProblem.from_gram(gram=gram, participation=participation, **common)
    return TimeProblem.prefix(participation=participation, **common)


def _space_time_problem(
    file: _schema.SpaceTimeFile, folder: Path, known: Array | None, common: dict[str, Any]
) -> SpaceTimeProblem:
    participation = participation_of(file.participation)
    if not isinstance(participation, FixedEpoch):
        raise InputError(
            "participation.kind",
            expected="fixed-epoch for a space-time design",
            got=file.participation.kind,
        )
    mixing, nodes = mixing_of(file.graph, folder=folder, known=known)
    names = nodes or tuple(str(i) for i in range(len(mixing)))
    cap, floor = _limits_of(file.limits)
    if floor is not None:
        raise InputError(
            "limits.min_variance",
            expected="no floor but in space designs without a structure",
            got='one for design = "space-time"',
        )
    common |= _errors(file, file.graph, mixing=mixing, horizon=participation.horizon)
    with renamed({"mixing": mixing_key(file.graph)}):
        return SpaceTimeProblem(
            mixing=mixing,
            nodes=nodes,
            participation=participation,
            budget=file.budget.tau,
            max_variance=cap,
            joint=file.structure.joint,
            time=time_structure(file.structure),
            space=space_structure(file.structure, nodes=names, folder=folder),
            **common,
        )


def _errors(
    file: _schema.TimeFile | _schema.SpaceTimeFile,
    graph: _schema.Graph,
    *,
    mixing: Array,
    horizon: int,
) -> dict[str, Any]:
    """The tables [error] and [mixing]: which error counts, and how W fails."""
    models = models_of(graph, file.error, mixing=mixing, horizon=horizon)
    return {
        "objective": objective_of(file.error, horizon=horizon, nodes=len(mixing), models=models),
        "random": random_mixing_of(file.mixing, mixing=mixing, graph=graph),
    }
