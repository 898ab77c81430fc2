"""The frame of an experiment: settings in; units of work; rows, a summary, pictures and a paragraph
out. A unit is computed as a whole, and never again once its rows are in the table."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import Field, TypeAdapter

from noisedesign.base.checks import InputError, describe, did_you_mean
from noisedesign.files.schema import Table, Text, validated
from noisedesign.surveys.results_file import EXPERIMENT, RESULTS_FORMAT

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Record = dict[str, Any]
Rows = Sequence[Record]
Unit = dict[str, Any]  # plain values of JSON, which hold all that decides the rows of a unit
SUMMARY = (
    *("setting", "mechanism", "epsilon"),
    *("test_loss", "test_loss_low", "test_loss_high", "accuracy"),
)
"""Columns that every summary begins with. ``test_loss`` is a mean over seeds between the ends of
its 95 % interval; where a run diverged it is infinite and has no ends."""


class Settings(Table):
    """Keys of every file of settings; [quick] holds other values of some of them."""

    experiment: Text
    description: Text
    source: str = ""
    tags: list[Text] = Field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One experiment, as functions of plain values: ``run`` is a function of a module, for other
    processes call it; a unit holds all that decides its rows but ``version``, which goes up where
    ``run`` answers otherwise than before; ``summary`` begins with the columns ``SUMMARY``."""

    title: str
    settings: type[Settings]
    columns: Mapping[str, type]
    units: Callable[[Any], Sequence[Unit]]
    run: Callable[[Unit], Rows]
    summary: Callable[[Rows, Any], Rows]
    pictures: Callable[[Rows, Rows, Any], Mapping[str, Figure]]
    paragraph: Callable[[Rows, Rows, Any], str]
    tables: Callable[[Rows, Any], Mapping[str, Rows]] = lambda *_: {}
    version: int = 1

    def read(self, values: Mapping[str, Any]) -> Settings:
        """Return settings whose names and types are checked."""
        return validated(TypeAdapter(self.settings), values, belongs={})

    def key_of(self, unit: Unit) -> str:
        """Digest of all that decides the rows of a unit."""
        parts = [RESULTS_FORMAT[EXPERIMENT], self.run.__module__, self.version, unit]
        text = json.dumps(parts, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def settings_of(
    tables: Mapping[str, Any], *, known: tuple[str, ...], quick: bool
) -> tuple[str, dict[str, Any]]:
    """Return the experiment that a file of settings names, and its keys, not checked yet."""
    name = tables.get("experiment")
    if name not in known:
        expected, got = f"one of {', '.join(known)}", describe(name) if name else "nothing"
        raise InputError("experiment", expected=expected, got=got, remedy=did_you_mean(name, known))
    values = {key: value for key, value in tables.items() if key != "quick"}
    if quick:
        values = _merged(values, tables.get("quick", {}), "quick")
    return str(name), values


def _merged(values: Mapping[str, Any], others: Any, field: str) -> dict[str, Any]:
    """``values`` with ``others`` in their place, in tables key by key."""
    if not isinstance(others, dict):
        raise InputError(field, expected="a table", got=describe(others))
    merged = dict(values)
    for key, value in others.items():
        if key not in merged:
            expected, remedy = "keys that stand outside it, too", did_you_mean(key, tuple(values))
            raise InputError(f"{field}.{key}", expected=expected, got=key, remedy=remedy)
        inside = isinstance(merged[key], dict)
        merged[key] = _merged(merged[key], value, f"{field}.{key}") if inside else value
    return merged


def as_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of Markdown."""
    lines = [f"| {' | '.join(cells)} |" for cells in (head, *rows)]
    return "\n".join([lines[0], f"|{'---|' * len(head)}", *lines[1:]])


class Part(NamedTuple):
    """One part of an experiment: its columns, the units of its table of settings, their rows."""

    columns: Mapping[str, type]
    units: Callable[[Any], Iterable[Unit]]
    run: Callable[[Unit], Rows]


class Parts:
    """The parts of an experiment, by their tables in the settings. Rows of one part have empty
    columns of the others."""

    def __init__(self, **parts: Part) -> None:
        self._parts = parts
        self.columns: dict[str, type] = {"part": str}
        for part in parts.values():
            self.columns |= part.columns

    def units(self, settings: Any) -> list[Unit]:
        """List the units of all parts."""
        return [
            {"part": name} | unit
            for name, part in self._parts.items()
            for unit in part.units(getattr(settings, name))
        ]

    def run(self, unit: Unit) -> list[Record]:
        """Return the rows of a unit."""
        rows = self._parts[unit["part"]].run(unit)
        return [dict.fromkeys(self.columns) | {"part": unit["part"]} | row for row in rows]

    def rows(self, part: str, rows: Rows) -> list[Record]:
        """Return the rows of one part, with its columns."""
        kept = self._parts[part].columns
        return [{name: row[name] for name in kept} for row in rows if row["part"] == part]
