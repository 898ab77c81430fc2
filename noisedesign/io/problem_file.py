"""Problem files: strict TOML in, a checked problem out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from noisedesign import _checks
from noisedesign._checks import InputError
from noisedesign.io import _schema
from noisedesign.io._schema_errors import BELONGS, to_input_error
from noisedesign.io._settings_of import (
    objective_of,
    participation_of,
    random_mixing_of,
    space_structure,
    time_structure,
)
from noisedesign.io._tables import load_npy, mixing_key, mixing_of
from noisedesign.io._toml import located, parsed, read_text, renamed
from noisedesign.participation import FixedEpoch
from noisedesign.privacy_target import PrivacyTarget
from noisedesign.problem import Problem, SpaceProblem, SpaceTimeProblem, TimeProblem

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


@dataclass(frozen=True, kw_only=True, eq=False)
class LoadedProblem:
    """A problem and the text it was read from. ``path`` is None for text without a file."""

    problem: Problem
    text: str
    reference: Reference | None = None
    path: Path | None = None
    tags: tuple[str, ...] = ()


def load_problem(path: str | Path) -> LoadedProblem:
    """Read a problem file; ``problems/README.md`` describes its keys.

    Raises:
        InputError: naming the dotted key at fault and this file; no such file, a folder, not
            UTF-8, not TOML.
    """
    path = Path(path)
    text = read_text(path, field=FIELD)
    with located(path):
        return _parse(text, folder=path.parent, path=path)


def parse_problem(text: str, *, folder: str | Path) -> LoadedProblem:
    """As :func:`load_problem`, from text; files it names are relative to ``folder``."""
    return _parse(text, folder=Path(folder), path=None)


def _parse(text: str, *, folder: Path, path: Path | None) -> LoadedProblem:
    data = parsed(text, field=FIELD)
    try:
        file = _schema.ProblemFile.validate_python(data)
    except ValidationError as error:
        raise to_input_error(error, data, belongs=BELONGS) from None
    # Cheap checks first: a wrong reference should not cost an eigendecomposition.
    reference = None if file.reference is None else Reference(**file.reference.model_dump())
    return LoadedProblem(
        problem=_build(file, folder), text=text, reference=reference, path=path,
        tags=tuple(file.tags),
    )  # fmt: skip


def _build(
    file: _schema.SpaceFile | _schema.TimeFile | _schema.SpaceTimeFile, folder: Path
) -> Problem:
    common: dict[str, Any] = {"name": file.name}
    if file.privacy is not None:
        common["privacy"] = PrivacyTarget(**file.privacy.model_dump())
    if isinstance(file, _schema.TimeFile):
        return _time_problem(file, folder, common)
    if isinstance(file, _schema.SpaceTimeFile):
        return _space_time_problem(file, folder, common)
    mixing, nodes = mixing_of(file.graph, folder=folder)
    names = nodes or tuple(str(i) for i in range(len(mixing)))
    common["structure"] = space_structure(file.structure, nodes=names, folder=folder)
    if file.error is not None:
        horizon = file.error.horizon
        common["objective"] = objective_of(file.error, horizon=horizon, nodes=len(mixing))
    cap = None if file.limits is None else file.limits.max_variance
    key = mixing_key(file.graph)
    random = random_mixing_of(file.mixing, mixing=mixing, mixing_key=key)
    with renamed({"mixing": key}):
        return SpaceProblem(
            mixing=mixing, nodes=nodes, budget=file.budget.tau, max_variance=cap, random=random,
            **common,
        )  # fmt: skip


def _time_problem(file: _schema.TimeFile, folder: Path, common: dict[str, Any]) -> TimeProblem:
    participation = participation_of(file.participation)
    common["structure"] = time_structure(file.structure)
    kind = file.workload.kind
    if kind == "decentralized":
        if file.graph is None:
            raise InputError(
                "graph", expected="a [graph] table for a decentralized workload", got="nothing"
            )
        mixing, nodes = mixing_of(file.graph, folder=folder)
        objective = objective_of(
            file.error, horizon=participation.horizon, nodes=len(mixing)
        )  # fmt: skip
        key = mixing_key(file.graph)
        random = random_mixing_of(file.mixing, mixing=mixing, mixing_key=key)
        with renamed({"mixing": key}):
            return TimeProblem.decentralized(
                mixing=mixing, nodes=nodes, participation=participation, objective=objective,
                random=random, **common,
            )  # fmt: skip
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
    file: _schema.SpaceTimeFile, folder: Path, common: dict[str, Any]
) -> SpaceTimeProblem:
    participation = participation_of(file.participation)
    if not isinstance(participation, FixedEpoch):
        raise InputError(
            "participation.kind", expected="fixed-epoch for a space-time design",
            got=file.participation.kind,
        )  # fmt: skip
    mixing, nodes = mixing_of(file.graph, folder=folder)
    names = nodes or tuple(str(i) for i in range(len(mixing)))
    cap = None if file.limits is None else file.limits.max_variance
    objective = objective_of(
        file.error, horizon=participation.horizon, nodes=len(mixing)
    )  # fmt: skip
    key = mixing_key(file.graph)
    random = random_mixing_of(file.mixing, mixing=mixing, mixing_key=key)
    with renamed({"mixing": key}):
        return SpaceTimeProblem(
            mixing=mixing, nodes=nodes, participation=participation, budget=file.budget.tau,
            max_variance=cap, joint=file.structure.joint, time=time_structure(file.structure),
            space=space_structure(file.structure, nodes=names, folder=folder),
            objective=objective, random=random, **common,
        )  # fmt: skip
