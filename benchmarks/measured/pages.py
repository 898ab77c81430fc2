"""Tables of the documentation, made of stored results.

A page has ``<!-- measured: {name = "observers"} -->`` where a table belongs, and ``<!-- end of
measured -->`` below it; what stands between is written here. ``table`` takes the table of that
title, of several; ``as = "printed"`` shows what the command printed; ``stamp = false`` leaves out
when and where, which then stands below another table of that result.
"""

from __future__ import annotations

import re
import textwrap
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.measured import store
from benchmarks.measured.store import Measurement, Result, changed, load, measurements
from noisedesign.base.atomic import overwriting, write_text
from noisedesign.base.checks import InputError

END = "<!-- end of measured -->"
REGION = re.compile(rf"(<!-- measured: (\{{[^<>]*\}}) -->\n)(.*?)({END})", re.DOTALL)
CELLS = re.compile(r"(?<!\\)\|")
WIDTH = 100

STALE = "**Measured before the code changed**"
"""What stands below a table whose code is another now."""


class Table(NamedTuple):
    """A table that a command printed: what all rows share, the head and the rows."""

    title: str
    shared: list[tuple[str, str]]
    rows: list[list[str]]


def pages_of() -> list[Path]:
    """Pages with tables of stored results."""
    pages = sorted((store.ROOT / "docs").rglob("*.md"))
    return [page for page in pages if REGION.search(page.read_text(encoding="utf-8"))]


def write_pages() -> list[Path]:
    """Write every page anew that is not what the stored results say, and return these."""
    written = []
    for page in pages_of():
        text = page.read_text(encoding="utf-8")
        if (made := page_of(text)) != text:
            with overwriting():
                write_text(page, made)
            written.append(page)
    return written


def page_of(text: str) -> str:
    """The text of a page with all its tables as they are stored."""
    known = measurements()

    def made(found: re.Match[str]) -> str:
        says = tomllib.loads(f"x = {found[2]}")["x"]
        if (name := says["name"]) not in known:
            raise InputError("measured", expected=f"one of {', '.join(known)}", got=name)
        return f"{found[1]}\n{region(says, known[name], load(name))}\n\n{found[4]}"

    return REGION.sub(made, text)


def region(says: Mapping[str, str], asked: Measurement, result: Result | None) -> str:
    """What stands between the marks."""
    if result is None:
        return f"*Not measured yet, about {minutes(60 * asked.minutes)}:*\n{commands(asked.run)}"
    if says.get("as") == "printed":
        shown = "\n".join(["```text", *result.printed, "```"])
    else:
        wanted = says.get("table")
        found = [one for one in tables(result.printed) if wanted in (None, one.title)]
        if not found:
            raise InputError("table", expected="a title that was printed", got=str(wanted))
        shown = "\n\n".join(markdown(one, titled=wanted is None) for one in found)
    stale = bool(changed(result, asked))
    if says.get("stamp", True):
        return f"{shown}\n\n{stamp(result, stale=stale)}"
    return f"{shown}\n\n{STALE}." if stale else shown


def stamp(result: Result, *, stale: bool) -> str:
    """When and where it was measured, how long it took, and whether the code is another now."""
    m = result.machine
    parts = [
        f"{result.date}, commit {result.commit[:12]}{'.dirty' * result.commit.endswith('.dirty')}",
        *([f"Python {m['python']}, NumPy {m['numpy']}, {m['blas']}"] if "numpy" in m else []),
        *(f"{name} {version}" for name, version in result.packages.items()),
        *([f"{_count(m['threads'], 'BLAS thread')}"] if "threads" in m else []),
        *([f"{_count(m['cores'], 'core')} of {m['processor']}"] if "cores" in m else []),
        *([m["platform"]] if "platform" in m else []),
        *([f"other load {m['load']:g}"] if "load" in m else []),
        *([minutes(result.cpu_seconds)] if result.cpu_seconds is not None else []),
    ]
    said = textwrap.fill(
        f"{f'{STALE}: ' * stale}{', '.join(parts)}.",
        WIDTH,
        break_on_hyphens=False,
        break_long_words=False,
    )
    return f"{commands(result.run)}\n{said}"


def commands(run: Sequence[str]) -> str:
    return "\n".join(f"`{command}`" + "," * (command != run[-1]) for command in run) + ":"


def minutes(seconds: float) -> str:
    """Time of the processor in words."""
    if seconds < 90:
        return f"{seconds:.0f} s of CPU"
    return f"{seconds / 60:.0f} min of CPU" if seconds < 5400 else f"{seconds / 3600:.1f} h of CPU"


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'s' * (number != 1)}"


# --- printed tables -------------------------------------------------------------------------------


def tables(printed: Sequence[str]) -> list[Table]:
    """Tables as :func:`noisedesign.base.tables.print_table` prints them, or Markdown has them."""
    found: list[Table] = []
    title, shared = "", list[tuple[str, str]]()
    for block in blocks(printed):
        if all(line.startswith("|") for line in block):
            cells = [[cell.strip() for cell in CELLS.split(line.strip()[1:-1])] for line in block]
            rows = [cells[0], *cells[2:]]
        elif len(block) == 1 and "  " not in block[0].strip():
            title, shared = block[0].strip(), []
            continue
        else:
            rows = columns(block)
            if len(rows[0]) == 2 and not found_head(rows):
                shared = [(name, value) for name, value in rows]
                continue
        found.append(Table(title, shared, rows))
        title, shared = "", []
    return found


def blocks(printed: Sequence[str]) -> Iterator[list[str]]:
    """Lines between empty ones."""
    block: list[str] = []
    for line in [*printed, ""]:
        if line.strip():
            block.append(line)
        elif block:
            yield block
            block = []


def columns(block: Sequence[str]) -> list[list[str]]:
    """Cells of lines, cut where two characters or more are blank in every one of them."""
    width = max(map(len, block))
    lines = [line.ljust(width) for line in block]
    blank = "".join(" x"[any(line[i] != " " for line in lines)] for i in range(width))
    cuts = [found.end() for found in re.finditer(r"(?<=x) {2,}(?=x)", blank)]
    ends = list(zip([0, *cuts], [*cuts, width], strict=True))
    return [[line[start:end].strip() for start, end in ends] for line in lines]


def found_head(rows: list[list[str]]) -> bool:
    """Whether two columns are a table with a head, and no names and values: its head is words
    over numbers."""
    number = re.compile(r"-?[\d.]")
    return len(rows) > 1 and not number.match(rows[0][1]) and bool(number.match(rows[1][1]))


def markdown(table: Table, *, titled: bool) -> str:
    """A table in Markdown, with its title and what all rows share above it."""
    head, *rows = table.rows
    lines = [f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *rows)]
    above = [table.title.capitalize() if titled else ""]
    above += [f"{name}: {value}" for name, value in table.shared]
    said = "; ".join(filter(None, above))
    return "\n".join([f"{said}.\n"] * bool(said) + lines)
