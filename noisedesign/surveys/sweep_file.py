"""Sweep files: a problem, a grid of its keys and some backends in; rows to compute out."""

from __future__ import annotations

import copy
import hashlib
import itertools
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from noisedesign.base import checks as _checks, settings
from noisedesign.base.checks import InputError, describe, did_you_mean
from noisedesign.base.shown import Shown, ShownInline
from noisedesign.design.backends import get_backend
from noisedesign.files.problem_file import BELONGS, PROBLEM_FILE
from noisedesign.files.schema import validated
from noisedesign.files.toml import dumped, opened, parsed, read_text, renamed
from noisedesign.surveys.results_file import RESULTS_FORMAT, SWEEP

FIELD = "sweep"
OWN_KEYS = ("problem", "grid", "backends", "gap", "time_limit")  # others are the problem's
FOR_PEOPLE = ("description", "source", "tags", "reference")
"""Keys of a problem that change no answer: rewording one is no reason to solve again."""
NAMED_FILES = ("file", "files", "clusters")  # keys of tables whose values are names of files

MOST_PROBLEMS = 100_000

KEY_DIGITS = 16  # hexadecimal: two of a million rows collide with a probability of 3e-8
Parameters = dict[str, Any]


@dataclass(frozen=True, kw_only=True, repr=False)
class SweepRow(ShownInline):
    """One row to compute: a problem and who solves it, in plain values that travel anywhere.

    Attributes:
        text: the problem with its parameters set.
        folder: what files that it names are relative to.
        name: of the problem.
        design: its kind.
        parameters: values of the swept keys.
        backend: who solves it.
        gap: the relative duality gap asked for.
        time_limit: in seconds, or None.
    """

    text: str
    folder: Path
    name: str
    design: str
    parameters: Parameters
    backend: str
    gap: float
    time_limit: float | None

    @cached_property
    def key(self) -> str:
        """Digest of all that decides the answer, and of the format its columns have.

        A time limit decides nothing about an answer that was found. Files named in the problem
        count by their names."""
        parts = json.dumps([RESULTS_FORMAT[SWEEP], self.text, self.backend, self.gap])
        return hashlib.sha256(parts.encode()).hexdigest()[:KEY_DIGITS]

    @property
    def files(self) -> list[Path]:
        """Paths of the files that the problem names."""
        return [self.folder / name for name in named_files(parsed(self.text, field=FIELD))]


@dataclass(frozen=True, kw_only=True, repr=False)
class Sweep(Shown):
    """The rows of a sweep.

    Attributes:
        keys: the dotted keys that rows differ in.
        rows: what is to be computed.
    """

    keys: tuple[str, ...]
    rows: tuple[SweepRow, ...]


def load_sweep(path: str | Path) -> Sweep:
    """The sweep of a file or of the name of a shipped one; every problem's keys are checked."""
    with opened(path, field=FIELD) as (found, text):
        return parse_sweep(text, folder=found.parent)


def parse_sweep(text: str, *, folder: str | Path) -> Sweep:
    """Read a sweep as :func:`load_sweep` does, from text; files are relative to ``folder``."""
    data = parsed(text, field=FIELD)
    base, home = _base(data, Path(folder))
    backends = _backends(data.get("backends", ["native"]))
    gap = _checks.real(data.get("gap", settings.DEFAULT_GAP), field="gap", low=0, high=1)
    limit = data.get("time_limit")
    limit = None if limit is None else _checks.real(limit, field="time_limit", low=0)
    grid = _grid_of(data.get("grid"))
    # Of keys at the top that are no problem's: perhaps one of a sweep is meant.
    tops = {*base, *(key.partition(".")[0] for key in grid)}
    belongs = BELONGS | {key: meant for key in tops if (meant := did_you_mean(key, OWN_KEYS))}
    rows = []
    for parameters, tables in points(base, grid):
        _check(tables, grid=grid, belongs=belongs)
        solved = {key: value for key, value in tables.items() if key not in FOR_PEOPLE}
        what: Any = {"name": tables["name"], "design": tables["design"], "parameters": parameters}
        what |= {"text": dumped(solved), "folder": home, "gap": gap, "time_limit": limit}
        rows += [SweepRow(backend=backend, **what) for backend in backends]
    return Sweep(keys=tuple(grid), rows=tuple(rows))


def _base(data: Mapping[str, Any], folder: Path) -> tuple[dict[str, Any], Path]:
    """The problem that is varied, and the folder that its files are relative to."""
    inline = {key: value for key, value in data.items() if key not in OWN_KEYS}
    if "problem" not in data:
        return inline, folder
    name = data["problem"]
    if not isinstance(name, str):
        raise InputError("problem", expected="the name of a problem file", got=describe(name))
    for key in inline:
        expected = f"only the keys {', '.join(OWN_KEYS)} beside a problem file"
        got = f"unknown key {key}"
        raise InputError(key, expected=expected, got=got, remedy=did_you_mean(key, OWN_KEYS))
    path = folder / name
    return parsed(read_text(path, field="problem"), field="problem"), path.parent


def _backends(names: Any) -> list[str]:
    if not isinstance(names, list) or not names:
        raise InputError("backends", expected="a non-empty list of names", got=describe(names))
    for index, name in enumerate(names):
        if name in names[:index]:
            raise InputError("backends", expected="every backend once", got=f"{name} twice")
        if not isinstance(name, str):
            raise InputError("backends", expected="names of backends", got=describe(name))
        with renamed({"backend": "backends"}):
            get_backend(name)
    return names


def _check(
    tables: Mapping[str, Any], *, grid: Mapping[str, Any], belongs: Mapping[str, str]
) -> None:
    """Names and types of the keys of a problem; errors about swept keys name the grid."""
    try:
        validated(PROBLEM_FILE, tables, belongs=belongs)
    except InputError as error:
        # An error in a value that is a table names a key within it.
        swept = any(f"{error.field}.".startswith(f"{key}.") for key in grid)
        with renamed({error.field: f"grid.{error.field}" if swept else error.field}):
            raise


def named_files(tables: Mapping[str, Any]) -> Iterator[str]:
    """Names of the files that the tables of a problem name."""
    for key, value in tables.items():
        if isinstance(value, dict):
            yield from named_files(value)
        elif key in NAMED_FILES:
            yield from [value] if isinstance(value, str) else value


def with_curvature(text: str, factor: float) -> str:
    """A problem with its curvatures, without weight decay, times a factor."""
    tables = parsed(text, field=FIELD)
    said = tables.get("error", {})
    for table in said if isinstance(said, list) else [said]:
        if (curvature := table.get("curvature")) is not None:
            table["curvature"] = (np.asarray(curvature, dtype=float) * factor).tolist()
    return dumped(tables)


# --- the grid -------------------------------------------------------------------------------------


def _grid_of(table: Any) -> dict[str, list[Any]]:
    """Dotted keys and their values, from a [grid] table, whether its keys are quoted or not."""
    if not isinstance(table, dict):
        got = "nothing" if table is None else describe(table)
        raise InputError("grid", expected="a [grid] table", got=got)
    grid = dict(_flat(table))
    if not grid:
        expected = 'keys of a problem and their values, as "graph.nodes" = [20, 40]'
        raise InputError("grid", expected=expected, got="none")
    size = math.prod(len(values) for values in grid.values())
    if size > MOST_PROBLEMS:
        raise InputError("grid", expected=f"at most {MOST_PROBLEMS} problems", got=f"{size}")
    return grid


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, list[Any]]]:
    for key, value in table.items():
        dotted = f"{prefix}{key}"
        if isinstance(value, dict):
            yield from _flat(value, f"{dotted}.")
            continue
        field = f"grid.{dotted}"
        if not isinstance(value, list) or not value:
            raise InputError(field, expected="a non-empty list of values", got=describe(value))
        # As text, since 1, 1.0 and true are the same to Python and not in a problem file.
        texts = [json.dumps(item, sort_keys=True, default=str) for item in value]
        for index, text in enumerate(texts):
            if text in texts[:index]:
                raise InputError(field, expected="every value once", got=f"{text} twice")
        yield dotted, value


def points(
    base: Mapping[str, Any], grid: Mapping[str, list[Any]]
) -> Iterator[tuple[Parameters, dict[str, Any]]]:
    """Every point of the grid, the last key fastest: parameters, and tables with them set."""
    for values in itertools.product(*grid.values()):
        parameters = dict(zip(grid, values, strict=True))
        tables = copy.deepcopy(dict(base))
        # Whole tables before keys in them: [graph] may be swept beside "graph.weights".
        for key in sorted(parameters, key=lambda key: key.count(".")):
            _set(tables, key, copy.deepcopy(parameters[key]))
        yield parameters, tables


def _set(tables: dict[str, Any], dotted: str, value: Any) -> None:
    *path, last = dotted.split(".")
    here: Any = tables
    for step in path:
        here = here.setdefault(step, {})
        if not isinstance(here, dict):
            expected = "the dotted name of a key of the problem"
            got = f"{step} = {describe(here)}, which is no table"
            raise InputError(f"grid.{dotted}", expected=expected, got=got)
    here[last] = value
