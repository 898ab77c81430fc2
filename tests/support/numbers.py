"""Where the numbers of a table or paragraph come from, as a comment above it says, in TOML:

    <!-- numbers: {stored = "docs/experiments/x.csv", where = {setting = "ring"}, keys = 1} -->

- ``stored``: a CSV file beside the pages. ``printed``: a command, whose printed tables are read.
- ``where``: columns of the file, and what stands in the rows meant. ``keys``: how many cells at
  the head of a row of the page say which rows of the source are meant, 1 where nothing is said.
  ``words``: what these cells, and the heads of columns, are called in the source, where it calls
  them otherwise. ``unchecked``: first cells of rows that the source does not have.
- ``test``: the tests that compare the table or paragraph. ``measured``: the command that measured
  it, where it takes too long or depends on the machine, as seconds do.

Every number of a cell has to be in a row of the source that has the row's keys and, where some of
these have the column's head as well, in one of those, to the digits shown. Per cent may be shares
in the source.
"""

from __future__ import annotations

import csv
import math
import re
import shlex
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from typing import Any

from tests.support import ROOT, pages

Row = tuple[str, ...]

MARK = re.compile(r"^<!-- numbers: (\{[^<>]*\}) -->\n\n?((?:^.+\n)+)", re.MULTILINE)
MEASURED = re.compile(r"<!-- measured: .*?<!-- end of measured -->", re.DOTALL)
TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)
NUMBER = re.compile(r"(?<![\w.])-?(?:\d[\d,]*)?\.?\d+(?:e[-+]?\d+)?(?!\w)( ?%)?")
KINDS = ("stored", "printed", "test", "measured")


@dataclass(frozen=True)
class Marked:
    """A table, and what the comment above it says."""

    page: str
    says: dict[str, Any]
    table: str

    def __str__(self) -> str:
        (kind,) = self.kinds
        return f"{self.page}: {kind} {self.says[kind]}"

    @property
    def kinds(self) -> list[str]:
        return [kind for kind in KINDS if kind in self.says]


def marked(page: str, text: str) -> list[Marked]:
    return [
        Marked(page, tomllib.loads(f"x = {found[1]}".replace("\n", " "))["x"], found[2])
        for found in MARK.finditer(text)
    ]


def unmarked(text: str, fewest: int) -> list[str]:
    """First lines of tables with at least so many decimal numbers or shares, and no comment."""
    known = [found[2] for found in MARK.finditer(text)]
    without = MEASURED.sub("", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL))
    tables = [found[0] for found in TABLE.finditer(without)]
    return [
        table.partition("\n")[0]
        for table in tables
        if table not in known and len(re.findall(r"\d\.\d|\.\d|\d ?%", table)) >= fewest
    ]


# --- sources ----------------------------------------------------------------------------------


def stored(path: str, where: dict[str, str]) -> list[Row]:
    with (ROOT / path).open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if all(row[k] == v for k, v in where.items())]
    assert rows, f"{path} has no row where {where}"
    return [tuple(row.values()) for row in rows]


def printed(command: str) -> list[Row]:
    program, *arguments = shlex.split(command)
    words = {"python": [sys.executable], "noisedesign": [sys.executable, "-m", "noisedesign"]}
    ran = subprocess.run(
        [*words[program], *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [tuple(pages.split(line)) for line in ran.stdout.splitlines()]


# --- comparing --------------------------------------------------------------------------------


def plain(cell: str) -> str:
    return cell.replace("*", "").replace("`", "").strip()


def same(shown: str, found: str) -> bool:
    """Equal words, or numbers that are equal up to two thousandths: epsilon = 2.25 is 2.247."""
    a, b = pages.number(shown), pages.number(found)
    return shown == found or (a is not None and b is not None and math.isclose(a, b, rel_tol=2e-3))


def rounds(shown: str, value: float) -> bool:
    digits, _, exponent = shown.replace(",", "").partition("e")
    unit = 10.0 ** (int(exponent or 0) - len(digits.partition(".")[2]))
    return abs(float(digits + (f"e{exponent}" if exponent else "")) - value) <= 0.5001 * unit


def faults(table: str, source: list[Row], says: dict[str, Any]) -> list[str]:
    """What the source does not have, one sentence a number or row."""
    words, keys = says.get("words", {}), says.get("keys", 1)
    head, _, *rows = [re.split(r"(?<!\\)\|", line.strip()[1:-1]) for line in table.splitlines()]
    found, compared = [], 0
    for row in rows:
        if plain(row[0]) in says.get("unchecked", ()):
            continue
        parts = [words.get(plain(cell), plain(cell)) for cell in row[:keys]]
        wanted = [words.get(part, part) for cell in parts for part in split_key(cell, source)]
        lines = [line for line in source if all(has(line, key) for key in wanted if key)]
        if not lines:
            found.append(f"no row with {wanted}")
            continue
        for name, cell in zip(head[keys:], row[keys:], strict=True):
            title = words.get(plain(name), plain(name)).removeprefix("ε = ")
            among = [line for line in lines if has(line, title)] or lines
            values = [v for line in among for v in map(pages.number, line) if v is not None]
            for token in NUMBER.finditer(plain(cell)):
                compared += 1
                shown = token[0].removesuffix(token[1] or "")
                shares = [100 * value for value in values] if token[1] else []
                if not any(rounds(shown, value) for value in values + shares):
                    found.append(f"{wanted}, {title}: {token[0]}")
    return found if compared else ["no number to compare"]


def split_key(cell: str, source: list[Row]) -> list[str]:
    """A cell as it is where the source has it, else its parts: "ldp, random"."""
    return [cell] if any(has(line, cell) for line in source) else cell.split(", ")


def has(line: Row, key: str) -> bool:
    return any(same(key, cell) for cell in line)
