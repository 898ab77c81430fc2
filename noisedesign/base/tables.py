"""JSON for programs, and tables for people: columns where they fit, else lines of name and value.

Values that all rows share are printed once, above the table; notes are numbered, below it. Words
are wrapped at a terminal, and nothing is cut."""

from __future__ import annotations

import itertools
import json
import math
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

Record = dict[str, Any]

BETWEEN = 2  # blanks between columns
UNLIMITED = 1_000_000  # characters of a line where nobody is watching
LONG, PIECE = 40, 20  # longer words (digests, paths) may be broken into such pieces
MOST_LINES = 4  # lines of a cell at most, before the table becomes lines of name and value


def print_table(
    records: Iterable[Record],
    columns: Sequence[str],
    *,
    title: str = "",
    notes: Sequence[str] = (),
    keep: Sequence[str] = (),
) -> None:
    """Print ``columns`` of records, ``notes`` numbered below, those in ``keep`` never merged."""
    watched = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if watched else UNLIMITED
    shown = _parts(list(records), columns, title, width, notes=notes, keep=keep)
    for count, lines in enumerate(shown):
        for line in [""] * bool(count) + lines:
            print(line.rstrip())


def _parts(
    records: list[Record],
    columns: Sequence[str],
    title: str,
    width: int,
    *,
    notes: Sequence[str],
    keep: Sequence[str],
) -> Iterator[list[str]]:
    """Yield the lines that are printed, an empty line between every two parts."""
    if title:
        yield _wrapped(visible(title), width)
    filled = [c for c in columns if not records or any(_cell(r.get(c)) for r in records)]
    shared = _shared(records, filled, keep)
    own = [c for c in filled if c not in shared]
    if shared:
        yield _pairs([(_words(c), _cell(records[0].get(c))) for c in shared], width)
    if not own:
        return
    said = dict.fromkeys(_cell(r.get(c)) for r in records for c in own if c in notes)
    numbers = {text: f"[{n}]" for n, text in enumerate(filter(None, said), start=1)}
    rows = [
        [numbers.get(_cell(r.get(c)), "") if c in notes else _cell(r.get(c)) for c in own]
        for r in records
    ]
    right = [_is_numeric(r.get(c) for r in records) for c in own]
    fitted = _columns([_words(c) for c in own], rows, right, width)
    if fitted is None:
        for record in records:
            named = [(_words(c), _cell(record.get(c))) for c in own]
            yield _pairs([(name, cell) for name, cell in named if cell], width)
        return
    yield fitted
    if numbers:
        yield _pairs([(number, text) for text, number in numbers.items()], width)


def _shared(records: list[Record], columns: list[str], keep: Sequence[str]) -> list[str]:
    """Columns that show one value in all records, unless that is all of them."""
    if len(records) == 1:
        return columns
    free = [c for c in columns if c not in keep and len({_cell(r.get(c)) for r in records}) == 1]
    found = [c for c in free if all(r.get(c) == records[0].get(c) for r in records)]
    return [] if found == columns else found


def _columns(
    header: list[str], rows: list[list[str]], right: list[bool], width: int
) -> list[str] | None:
    """A table of that width, words wrapped where needed; None where that is not enough."""
    cells = list(zip(header, *rows, strict=True))
    widths = _fitted(cells, width - BETWEEN * (len(header) - 1))
    if widths is None:
        return None
    lines: list[str] = []
    for row in (header, *rows):
        wrapped = [_wrapped(cell, size) for cell, size in zip(row, widths, strict=True)]
        if max(map(len, wrapped)) > MOST_LINES:
            return None
        lines += _beside(wrapped, widths, right)
    return lines


def _beside(wrapped: list[list[str]], widths: list[int], right: list[bool]) -> Iterator[str]:
    """Lines of cells side by side, each to the right or left of its column."""
    for pieces in itertools.zip_longest(*wrapped, fillvalue=""):
        blanks = [" " * (size - _length(p)) for p, size in zip(pieces, widths, strict=True)]
        cells = zip(pieces, blanks, right, strict=True)
        yield (" " * BETWEEN).join(b + p if aligned else p + b for p, b, aligned in cells)


def _wrapped(text: str, width: int) -> list[str]:
    """Lines of at most that many characters; longer words are broken."""
    return [
        piece
        for line in text.split("\n")
        for piece in textwrap.wrap(line, width, break_on_hyphens=False) or [""]
    ]


def _fitted(cells: Sequence[tuple[str, ...]], room: int) -> list[int] | None:
    """Widths of the columns of ``cells`` in ``room`` characters, words unbroken, or None."""
    widths = [max(map(_length, column)) for column in cells]
    words = [[_length(word) for cell in column for word in cell.split()] for column in cells]
    least = [max((PIECE if size > LONG else size for size in own), default=0) for own in words]
    if sum(least) > room:
        return None
    while sum(widths) > room:
        _, widest = max((size, j) for j, size in enumerate(widths) if size > least[j])
        widths[widest] -= 1
    return widths


def _pairs(pairs: list[tuple[str, str]], width: int) -> list[str]:
    """Lines of name and value, the values one below the other."""
    names = max((_length(name) for name, _ in pairs), default=0)
    room = max(1, width - names - BETWEEN)
    lines: list[str] = []
    for name, value in pairs:
        lines += _beside([[name], _wrapped(value, room)], [names, room], [False, False])
    return lines


def _length(text: str) -> int:
    """Columns of a terminal that it takes: some characters take two."""
    return len(text) + sum(unicodedata.east_asian_width(c) in "WF" for c in text)


def _words(column: str) -> str:
    return visible(column.replace("_", " "))


def visible(text: str) -> str:
    """A text that is safe to print: control characters as their escapes, lines kept."""
    return "".join(
        c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text
    )


def _is_numeric(column: Iterable[Any]) -> bool:
    """Numbers, perhaps with a word in the place of some, but no sentences."""
    cells = [value for value in column if value is not None]
    numbers = [isinstance(cell, int | float) and not isinstance(cell, bool) for cell in cells]
    return any(numbers) and not any(" " in str(cell) for cell in cells)


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1e-3 or abs(value) >= 1e6 else f"{value:.6g}"
    return "" if value is None else visible(str(value))


def to_json(value: Any) -> str:
    """JSON without the literals that are not JSON: NaN and infinities become null."""
    return json.dumps(_plain(value), indent=2)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
