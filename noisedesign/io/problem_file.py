"""Problem files: strict TOML in, a checked problem out."""

from __future__ import annotations

import tokenize
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from noisedesign import _checks
from noisedesign._checks import Array, InputError
from noisedesign.datasets import ego_facebook
from noisedesign.graph import build_graph, mixing_matrix, node_names, read_edges
from noisedesign.io import _schema
from noisedesign.io._schema_errors import to_input_error
from noisedesign.participation import FixedEpoch
from noisedesign.problem import PrivacyTarget, Problem, SpaceProblem, TimeProblem

_NPY_ERRORS = (ValueError, EOFError, MemoryError, SyntaxError, tokenize.TokenError)
"""What numpy raises on a damaged file: its header is read as Python source, and may claim any
amount of memory before the data turn out missing."""


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
    try:
        text = path.read_bytes().decode("utf-8")
    except OSError as error:
        got = f"{path}: {error.strerror}"
        raise InputError("problem", expected="a readable TOML file", got=got) from error
    except UnicodeDecodeError as error:
        got = f"{path}: byte {error.start} is not UTF-8"
        raise InputError("problem", expected="UTF-8 text", got=got) from error
    try:
        return _parse(text, folder=path.parent, path=path)
    except InputError as error:
        # Where many files are read, the key alone does not say which one to mend.
        remedy = f"{error.remedy} (in {path})".strip()
        raise InputError(
            error.field, expected=error.expected, got=error.got, remedy=remedy
        ) from error


def parse_problem(text: str, *, folder: str | Path) -> LoadedProblem:
    """As :func:`load_problem`, from text; files it names are relative to ``folder``."""
    return _parse(text, folder=Path(folder), path=None)


def _parse(text: str, *, folder: Path, path: Path | None) -> LoadedProblem:
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError("problem", expected="TOML", got=str(error)) from error
    try:
        file = _schema.ProblemFile.validate_python(data)
    except ValidationError as error:
        raise to_input_error(error, data) from None
    # Cheap checks first: a wrong reference should not cost an eigendecomposition.
    reference = None if file.reference is None else Reference(**file.reference.model_dump())
    return LoadedProblem(
        problem=_build(file, folder), text=text, reference=reference, path=path,
        tags=tuple(file.tags),
    )  # fmt: skip


def _build(file: _schema.SpaceFile | _schema.TimeFile, folder: Path) -> Problem:
    common: dict[str, Any] = {"name": file.name}
    if file.privacy is not None:
        common["privacy"] = PrivacyTarget(**file.privacy.model_dump())
    if isinstance(file, _schema.TimeFile):
        return _time_problem(file, folder, common)
    mixing, nodes = _mixing(file.graph, folder)
    cap = None if file.limits is None else file.limits.max_variance
    with _renamed("mixing", _mixing_key(file.graph)):
        return SpaceProblem(
            mixing=mixing, nodes=nodes, budget=file.budget.tau, max_variance=cap, **common
        )


def _time_problem(file: _schema.TimeFile, folder: Path, common: dict[str, Any]) -> TimeProblem:
    participation = FixedEpoch(**file.participation.model_dump())
    kind = file.workload.kind
    if kind == "decentralized":
        if file.graph is None:
            raise InputError(
                "graph", expected="a [graph] table for a decentralized workload", got="nothing"
            )
        mixing, nodes = _mixing(file.graph, folder)
        with _renamed("mixing", _mixing_key(file.graph)):
            return TimeProblem.decentralized(
                mixing=mixing, nodes=nodes, participation=participation, **common
            )
    if file.graph is not None:
        raise InputError(
            "graph", expected=f"no [graph] table for a {kind} workload", got=file.graph.kind
        )
    if isinstance(file.workload, _schema.GramWorkload):
        gram = _load_npy(folder / file.workload.file, field="workload.file")
        with _renamed("workload.gram", "workload.file"):
            return TimeProblem.from_gram(gram=gram, participation=participation, **common)
    return TimeProblem.prefix(participation=participation, **common)


def _mixing(graph: _schema.Graph, folder: Path) -> tuple[Array, tuple[str, ...]]:
    """W and the names of its rows; no names where W itself is given."""
    match graph:
        case _schema.MatrixGraph():
            return _load_npy(folder / graph.file, field="graph.file"), ()
        case _schema.EdgesGraph():
            built = read_edges(folder / graph.file)
        case _schema.EgoFacebookGraph():
            built = ego_facebook(graph.ego)
        case _:
            built = build_graph(**graph.model_dump(exclude={"weights"}))
    return mixing_matrix(built, weights=graph.weights), node_names(built)


def _mixing_key(graph: _schema.Graph) -> str:
    return "graph.file" if isinstance(graph, _schema.MatrixGraph) else "graph.weights"


@contextmanager
def _renamed(field: str, key: str) -> Iterator[None]:
    """Errors about an argument of the library, told as errors about a key of the file."""
    try:
        yield
    except InputError as error:
        if error.field != field:
            raise
        raise InputError(
            key, expected=error.expected, got=error.got, remedy=error.remedy
        ) from error


def _load_npy(path: Path, *, field: str) -> Array:
    """A float64 matrix from a .npy file. Nothing is ever unpickled."""
    try:
        with path.open("rb") as file:
            array = np.lib.format.read_array(file, allow_pickle=False)
    except OSError as error:
        got = f"{path}: {error.strerror}"
        raise InputError(field, expected="a readable .npy file", got=got) from error
    except _NPY_ERRORS as error:
        raise InputError(
            field, expected="a complete .npy file of numbers", got=f"{path}: {error}",
            remedy="Write it with numpy.save from a float64 array; object arrays are refused.",
        ) from error  # fmt: skip
    return _checks.matrix(array, field=field)
