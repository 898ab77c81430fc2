"""Sweep files: a problem, a grid of its keys and some backends in; rows to compute out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from noisedesign.base import checks as _checks
from noisedesign.base import settings
from noisedesign.base.checks import InputError, describe
from noisedesign.base.shown import Shown, ShownInline
from noisedesign.files import _schema
from noisedesign.files._grid import Parameters, grid_of, points
from noisedesign.files._lookup import lookup
from noisedesign.files._schema_errors import BELONGS, did_you_mean, to_input_error
from noisedesign.files._toml import located, parsed, read_text, renamed
from noisedesign.files._toml_out import dumped
from noisedesign.files.results_file import RESULTS_FORMAT, SWEEP
from noisedesign.program.backends import get_backend

FIELD = "sweep"

OWN_KEYS = ("problem", "grid", "backends", "gap", "time_limit")
"""Keys of a sweep file; all others are those of its problem."""

FOR_PEOPLE = ("description", "source", "tags", "reference")
"""Keys of a problem that change no answer: rewording one is no reason to solve again."""

KEY_DIGITS = 16
"""Hexadecimal digits of a key: 64 bits, so that two of a million rows collide with a probability
of 3e-8."""


@dataclass(frozen=True, kw_only=True, repr=False)
class SweepRow(ShownInline):
    """One row to compute: a problem and who solves it, in plain values that travel anywhere.

    ``text`` is the problem with its parameters set, and files it names are relative to ``folder``.
    ``gap`` is the relative duality gap asked for, ``time_limit`` in seconds, or None.
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
        count by their names.
        """
        parts = json.dumps([RESULTS_FORMAT[SWEEP], self.text, self.backend, self.gap])
        return hashlib.sha256(parts.encode()).hexdigest()[:KEY_DIGITS]


@dataclass(frozen=True, kw_only=True, repr=False)
class Sweep(Shown):
    """The rows of a sweep, and the dotted ``keys`` they differ in."""

    keys: tuple[str, ...]
    rows: tuple[SweepRow, ...]


def load_sweep(path: str | Path) -> Sweep:
    """Read a sweep file; ``problems/README.md`` describes its keys.

    Every problem of the grid is checked for unknown keys and wrong types; that its graph can be
    built and its optimum exists is found out where it is solved.

    Args:
        path: a file, or the name of a shipped one, ``"sweeps/random-graphs"``, with ``.toml`` or
            without. What the working directory or its folder ``problems`` has comes first.

    Raises:
        InputError: naming the dotted key at fault and this file; no such file, a folder, not
            UTF-8, not TOML.
    """
    path = lookup(path)
    text = read_text(path, field=FIELD)
    with located(path):
        return parse_sweep(text, folder=path.parent)


def parse_sweep(text: str, *, folder: str | Path) -> Sweep:
    """As :func:`load_sweep`, from text; files it names are relative to ``folder``."""
    data = parsed(text, field=FIELD)
    base, home = _base(data, Path(folder))
    backends = _backends(data.get("backends", ["native"]))
    gap = _checks.real(data.get("gap", settings.DEFAULT_GAP), field="gap", low=0, high=1)
    limit = data.get("time_limit")
    limit = None if limit is None else _checks.real(limit, field="time_limit", low=0)
    grid = grid_of(data.get("grid"))
    rows = []
    for parameters, tables in points(base, grid):
        _checked(tables, grid=grid)
        solved = {key: value for key, value in tables.items() if key not in FOR_PEOPLE}
        rows += [
            SweepRow(
                text=dumped(solved),
                folder=home,
                name=tables["name"],
                design=tables["design"],
                parameters=parameters,
                backend=backend,
                gap=gap,
                time_limit=limit,
            )
            for backend in backends
        ]
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
        raise InputError(
            key,
            expected=f"only the keys {', '.join(OWN_KEYS)} beside a problem file",
            got=f"unknown key {key}",
            remedy=did_you_mean(key, OWN_KEYS),
        )
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


def _checked(tables: Mapping[str, Any], *, grid: Mapping[str, Any]) -> None:
    """Names and types of the keys of a problem; errors about swept keys name the grid."""
    try:
        _schema.ProblemFile.validate_python(tables)
    except ValidationError as error:
        meant = {key: did_you_mean(key, OWN_KEYS) for key in tables}
        belongs = BELONGS | {key: remedy for key, remedy in meant.items() if remedy}
        told = to_input_error(error, tables, belongs=belongs)
        swept = any(key in grid for key in _prefixes(told.field))
        with renamed({told.field: f"grid.{told.field}" if swept else told.field}):
            raise told from None


def _prefixes(dotted: str) -> Iterator[str]:
    """``a.b.c``, ``a.b`` and ``a``: an error in a value that is a table names a key within it."""
    while dotted:
        yield dotted
        dotted = dotted.rpartition(".")[0]
