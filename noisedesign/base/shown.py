"""Results shown as a few lines of names and numbers, and as a table in a notebook."""

from __future__ import annotations

import dataclasses
import html
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

Item = TypeVar("Item", bound="Shown")

FEW = 4  # values of a sequence that are written out; of a longer one, how many there are
ROWS = 20  # rows of a table that are shown, and below them how many are not
LONGEST = 64  # characters of a cell in a printed table
_LEFT = ' style="text-align: left"'


class Shown:
    """A result that is shown by its title and its facts, never by its matrices.

    A dataclass says ``repr=False`` and has the facts of its fields, unless it states others."""

    def _title(self) -> str:
        """Name it in one line."""
        name = getattr(self, "name", None)
        kind = type(self).__name__
        return f"{kind} {name!r}" if isinstance(name, str) else kind

    def _facts(self) -> Mapping[str, object]:
        """Names and values; None is not shown."""
        shown = (field.name for field in dataclasses.fields(self) if field.repr)  # type: ignore[arg-type]
        return {name.replace("_", " "): getattr(self, name) for name in shown if name != "name"}

    def _lines(self) -> dict[str, str]:
        lines = {name: words(value) for name, value in self._facts().items() if value is not None}
        return {name: line for name, line in lines.items() if line}

    def __repr__(self) -> str:
        lines = self._lines()
        width = max(map(len, lines), default=0)
        return "\n".join([self._title(), *(f"  {n:<{width}}  {v}" for n, v in lines.items())])

    def _repr_html_(self) -> str:
        rows = (f"<tr>{_cell(n, 'th')}{_cell(v)}</tr>" for n, v in self._lines().items())
        return _table(self._title(), rows)


class ShownInline(Shown):
    """A result in one line, for those that come by the dozen."""

    def __repr__(self) -> str:
        facts = ", ".join(f"{name} {value}" for name, value in self._lines().items())
        return f"{self._title()}: {facts}"


class Listing(list[Item]):
    """A list of results, shown as a table with a row for each."""

    def _rows(self) -> tuple[list[str], list[list[str]]]:
        lines = [{"": item._title(), **item._lines()} for item in self[:ROWS]]
        names = list(dict.fromkeys(name for line in lines for name in line))
        return names, [[line.get(name, "") for name in names] for line in lines]

    def _others(self) -> str:
        return f"and {len(self) - ROWS} more" if len(self) > ROWS else ""

    def __repr__(self) -> str:
        names, rows = self._rows()
        table = [[shortened(cell) for cell in row] for row in (names, *rows)] if rows else []
        widths = [max(len(row[column]) for row in table) for column in range(len(names))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in table
        ]
        return "\n".join([*lines, *([self._others()] if self._others() else [])]) or "[]"

    def _repr_html_(self) -> str:
        names, rows = self._rows()
        heads = "".join(_cell(name, "th") for name in names)
        body = [f"<tr>{''.join(_cell(cell) for cell in row)}</tr>" for row in rows]
        return _table(self._others(), [f"<tr>{heads}</tr>", *body])


def shortened(text: str, length: int = LONGEST) -> str:
    """The beginning of a text that is too long for its place."""
    return text if len(text) <= length else f"{text[: length - 3]}..."


def words(value: object) -> str:
    """A value in one line: six digits of a number, the size of a matrix, a few of many names."""
    if isinstance(value, str):
        return " ".join(value.split())
    text = str(value)
    if isinstance(value, bool | np.bool_):
        text = "yes" if value else "no"
    elif isinstance(value, float | np.floating):
        text = "infinite" if math.isinf(value) else f"{value:.6g}"
    elif isinstance(value, np.ndarray):
        text = f"{' x '.join(map(str, value.shape))} matrix"
        if value.ndim == 1:
            same = value.size and (value == value[0]).all()
            text = words(value[:1].tolist() if same else value.tolist())
    elif (entries := getattr(value, "nnz", None)) is not None:  # a sparse array of scipy
        shape = " x ".join(map(str, getattr(value, "shape", ())))
        text = f"{shape} sparse matrix, {entries} entries"
    elif isinstance(value, Shown):
        text = value._title()
    elif isinstance(value, Mapping):
        text = ", ".join(f"{key} {words(item)}" for key, item in value.items())
    elif isinstance(value, Sequence):
        plain = len(value) <= FEW and not any(map(dataclasses.is_dataclass, value))
        text = ", ".join(map(words, value)) if plain else f"{len(value)} values"
        if len(value) > FEW and all(isinstance(item, str) for item in value):
            text = f"{', '.join(value[: FEW - 1])}, ... ({len(value)} in all)"
    elif dataclasses.is_dataclass(value) and "array(" in text:
        text = type(value).__name__
    return " ".join(text.split())


def _cell(text: str, tag: str = "td") -> str:
    return f"<{tag}{_LEFT}>{html.escape(text)}</{tag}>"


def _table(title: str, rows: Any) -> str:
    caption = f"<caption{_LEFT}>{html.escape(title)}</caption>" if title else ""
    return f"<table>{caption}{''.join(rows)}</table>"
