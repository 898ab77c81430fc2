"""JSON for programs, and tables for people: columns where they fit, else lines of name and value.

What all rows share is said once, above the table, so that a single row is lines of name and value.
Notes are numbered, and below. Nothing is cut: at a terminal words are wrapped, and numbers are
whole; where nobody is watching, a line is as long as what it says, whatever the terminal.
"""

from __future__ import annotations

import io
import json
import math
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

Record = dict[str, Any]

BETWEEN = 2
"""Blanks between columns."""

UNLIMITED = 1_000_000
"""Characters of a line where nobody is watching."""

LONG, PIECE = 40, 20
"""Words above the first, which are digests, paths and addresses, may be broken into lines of at
least the second; numbers and names are shorter and stay whole."""

MOST_LINES = 4
"""Of a cell: what takes more is read more easily as lines of name and value."""


def print_table(
    records: Iterable[Record],
    columns: Sequence[str],
    *,
    title: str = "",
    notes: Sequence[str] = (),
    keep: Sequence[str] = (),
) -> None:
    """Print records on standard output.

    Args:
        columns: keys of the records, in order; those without a value in any record are left out.
        notes: those of ``columns`` that are sentences: numbered, and printed below.
        keep: those that stay in the table of several records even where all share their value.
    """
    console = _console()
    shown = _parts(list(records), columns, title, console.width, notes=notes, keep=keep)
    for count, part in enumerate(shown):
        if count:
            console.print()
        console.print(part)
    assert isinstance(console.file, io.StringIO)
    for line in console.file.getvalue().splitlines():
        print(line.rstrip())


def _console() -> Console:
    """One that keeps what is printed, as wide as the terminal; without one, plain and wide."""
    from rich.console import Console  # late: most of what a program imports prints nothing

    watched = sys.stdout.isatty()
    width, height = shutil.get_terminal_size() if watched else (UNLIMITED, UNLIMITED)
    # Cells are data: "noisedesign[mosek]" is no markup and ":key:" no picture.
    return Console(
        file=io.StringIO(),
        width=width,
        height=height,
        force_terminal=watched,
        legacy_windows=False,
        markup=False,
        emoji=False,
        highlight=False,
    )


def _parts(
    records: list[Record],
    columns: Sequence[str],
    title: str,
    width: int,
    *,
    notes: Sequence[str],
    keep: Sequence[str],
) -> Iterator[RenderableType]:
    """What is printed, with an empty line between every two."""
    if title:
        yield visible(title)
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
    """Columns with one value in all records, unless then nothing told how many there are.

    0.0 and False are equal, but not shown alike; numbers that are only shown alike keep their
    column, as those of two solvers do.
    """
    if len(records) == 1:
        return columns
    found = [
        c
        for c in columns
        if c not in keep
        and len({_cell(r.get(c)) for r in records}) == 1
        and all(r.get(c) == records[0].get(c) for r in records)
    ]
    return [] if found == columns else found


def _columns(
    header: list[str], rows: list[list[str]], right: list[bool], width: int
) -> RenderableType | None:
    """A table of that width, words wrapped where needed; None where that is not enough."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    cells = list(zip(header, *rows, strict=True))
    widths = _fitted(cells, width - BETWEEN * (len(header) - 1))
    if widths is None:
        return None
    table = Table(
        box=None, show_edge=False, pad_edge=False, padding=(0, BETWEEN, 0, 0), header_style=""
    )
    for name, size, to_the_right in zip(header, widths, right, strict=True):
        justify: Any = "right" if to_the_right else "left"
        table.add_column(Text(name, style="bold"), width=size, justify=justify, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    ruler = Console(file=io.StringIO(), width=UNLIMITED)
    lines = (
        len(Text(cell).wrap(ruler, size))
        for column, size in zip(cells, widths, strict=True)
        for cell in column
        if _length(cell) > size
    )
    return table if max(lines, default=1) <= MOST_LINES else None


def _fitted(cells: Sequence[tuple[str, ...]], room: int) -> list[int] | None:
    """Widths of the columns that ``cells`` are, the widest wrapped first, in ``room`` characters;
    None where that would break words."""
    widths = [max(map(_length, column)) for column in cells]
    least = [max(_unbroken(cell) for cell in column) for column in cells]
    if sum(least) > room:
        return None
    while sum(widths) > room:
        _, widest = max((size, j) for j, size in enumerate(widths) if size > least[j])
        widths[widest] -= 1
    return widths


def _unbroken(cell: str) -> int:
    lengths = map(_length, cell.split())
    return max((PIECE if length > LONG else length for length in lengths), default=0)


def _pairs(pairs: list[tuple[str, str]], width: int) -> RenderableType:
    """Lines of name and value, the values one below the other."""
    from rich.table import Table
    from rich.text import Text

    names = max((_length(name) for name, _ in pairs), default=0)
    values = max((_length(value) for _, value in pairs), default=0)
    grid = Table.grid(padding=(0, BETWEEN, 0, 0))
    grid.add_column(width=names)
    grid.add_column(width=max(1, min(values, width - names - BETWEEN)), overflow="fold")
    for name, value in pairs:
        grid.add_row(Text(name), Text(value))
    return grid


def _length(text: str) -> int:
    """Character cells that it takes: some characters take two."""
    from rich.cells import cell_len

    return cell_len(text)


def _words(column: str) -> str:
    return visible(column.replace("_", " "))


def visible(text: str) -> str:
    """A text as it is safe to print: what is not printable, such as control characters and those
    that turn the direction of writing, as its escape; names may be a stranger's.

    Line breaks stay.
    """
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
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
