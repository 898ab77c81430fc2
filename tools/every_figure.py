"""``python tools/every_figure.py``: the page of every figure, table and theorem of the sources.

What people know (what a paper says, where, and which command or test answers) is in a file a source
in ``docs/experiments/every-figure``, which this file's ``Row`` describes. Numbers and the verdicts
on them are computed from the CSV files in ``docs/experiments``, so that none outlives its results.
"""

from __future__ import annotations

import csv
import itertools
import math
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

EXPERIMENTS = Path(__file__).resolve().parents[1] / "docs" / "experiments"
PAGE = EXPERIMENTS / "every-figure.md"
SOURCES = ("whisper", "mafalda", "mafalda-talk", "gossip", "zip-dl")  # in the order of the page

AGREES, WEAKLY, NOT, OPEN, UNDONE = VERDICTS = (
    *("agrees", "agrees weakly", "does not agree", "open", "not done"),
)
NEITHER = "states nothing to check"
UNMEASURED = "not yet measured"
COMPARED = '<!-- numbers: {test = "test_the_page_is_what_the_tool_writes"} -->'
HEAD = ("item", "what it says", "published", "here", "verdict", "by")

Cells = dict[str, str]


class Value(NamedTuple):
    """A number, and the ends of its interval where the results have one."""

    mean: float
    low: float | None = None
    high: float | None = None

    @property
    def ends(self) -> tuple[float, float]:
        """The ends of the interval, or twice the number."""
        if self.low is None or self.high is None:
            return self.mean, self.mean
        return self.low, self.high


class Row(NamedTuple):
    """A claim of a numbered item, in a table [[row]].

    ``item`` ("Figure 3, right"), ``says`` and, where the text has numbers, ``published`` with its
    ``place``. Then either ``verdict`` (one of VERDICTS, or NEITHER) and, unless nothing was done,
    ``tests`` that show it; or ``measure``, which is compared; ``until`` the results have it, this
    is why it was not done. ``note`` is added to the verdict.
    """

    item: str
    says: str
    published: str = ""
    place: str = ""
    command: str = ""
    picture: str = ""
    tests: Sequence[str] = ()
    verdict: str = ""
    note: str = ""
    until: str = ""
    measure: Mapping[str, Any] = {}

    @property
    def number(self) -> str:
        """The item without its part: "Figure 3"."""
        return self.item.partition(",")[0]


class Source(NamedTuple):
    """A paper: how many items of each kind it numbers, the rows of them, and how long each command
    ran that measured them."""

    title: str
    read: str
    numbered: dict[str, int]
    rows: tuple[Row, ...]
    took: Mapping[str, str] = {}


def source(name: str, folder: Path = EXPERIMENTS) -> Source:
    """Read what is known of a source from its file."""
    with (folder / "every-figure" / f"{name}.toml").open("rb") as file:
        tables = tomllib.load(file)
    return Source(rows=tuple(Row(**row) for row in tables.pop("row")), **tables)


# --- numbers of the results -----------------------------------------------------------------------


@cache
def results(name: str, folder: Path) -> list[Cells]:
    """The rows of ``NAME.csv``, or none where no such results are stored."""
    path = folder / f"{name}.csv"
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def select(rows: Sequence[Cells], where: Mapping[str, Any]) -> list[Cells]:
    """The rows that have one of the values of every column named, numbers as numbers."""
    return [row for row in rows if all(_has(row.get(key), value) for key, value in where.items())]


def _has(cell: str | None, value: Any) -> bool:
    if isinstance(value, list):
        return any(_has(cell, one) for one in value)
    if cell is None or isinstance(value, str):
        return bool(cell == value)
    number = _number(cell)
    return number is not None and math.isclose(number, value, rel_tol=2e-3)


def _number(cell: str | None) -> float | None:
    try:
        number = float(cell or "")
    except ValueError:
        return None
    return None if math.isnan(number) else number


def value_of(row: Cells, measure: Mapping[str, Any]) -> Value | None:
    """The number in ``column``, ``times`` a unit or over that of the column ``per``, with its
    interval where the columns ``ends`` (without them, those that end in ``_low`` and ``_high``)
    have one."""
    column = measure["column"]
    names = (column, *measure.get("ends", (f"{column}_low", f"{column}_high")))
    mean, low, high = (_number(row.get(name)) for name in names)
    if mean is None:
        return None
    if low is None and "exact" in measure:
        low = high = mean
    times = measure.get("times", 1.0)
    if "per" in measure:
        whole = _number(row.get(measure["per"]))
        if not whole:
            return None
        times /= whole
    ends = (None if end is None else times * end for end in (low, high))
    return Value(times * mean, *ends)


def measured(measure: Mapping[str, Any], rows: Sequence[Cells]) -> Value | None:
    """The number that ``column`` has in the one row of ``where``, or the ``take`` of several
    ("mean"; "least" or "greatest", with its interval), or that it has where the column ``crosses``
    falls to a ``level``; ``over`` (further words of ``where``) divides it, and ``against`` (such
    words too) divides that by the same quotient elsewhere. None where the results lack it."""
    if "against" in measure:
        inner = {key: value for key, value in measure.items() if key != "against"}
        found = measured(inner, rows)
        below = measured(inner | {"where": measure["where"] | measure["against"]}, rows)
        return Value(found.mean / below.mean) if found and below and below.mean else None
    found = _taken(measure, select(rows, measure["where"]))
    if found is None or "over" not in measure:
        return found
    below = _taken(measure, select(rows, measure["where"] | measure["over"]))
    return None if below is None or below.mean == 0 else Value(found.mean / below.mean)


def _taken(measure: Mapping[str, Any], rows: Sequence[Cells]) -> Value | None:
    if "crosses" in measure:
        return _crossing(rows, measure["column"], measure["crosses"], measure["level"])
    values = [value for row in rows if (value := value_of(row, measure)) is not None]
    if not values or len(values) < len(rows):
        return None
    if (take := measure.get("take")) is None:
        return values[0] if len(values) == 1 else None
    if take == "mean":
        return Value(math.fsum(value.mean for value in values) / len(values))
    return (min if take == "least" else max)(values, key=lambda value: value.mean)


def _crossing(rows: Sequence[Cells], column: str, other: str, level: float) -> Value | None:
    """Return the place where ``other`` falls to ``level``, interpolated in logarithms of both."""
    points = sorted(
        (math.log(x), math.log(y))
        for row in rows
        if (x := _number(row.get(column))) is not None
        and (y := _number(row.get(other))) is not None
        and 0 < x < math.inf
        and 0 < y < math.inf
    )
    at = math.log(level)
    for (a, high), (b, low) in itertools.pairwise(points):
        if high >= at >= low and high > low:
            return Value(math.exp(a + (high - at) / (high - low) * (b - a)))
    return None


def pairs_of(measure: Mapping[str, Any], rows: Sequence[Cells]) -> list[tuple[Value, Value]]:
    """Every row of ``where`` beside those of ``than`` that are alike in the columns ``by``; or
    beside the number ``than``. None at all where one of them has no number: the others would be a
    choice."""
    by = measure.get("by", [])
    if not isinstance(measure["than"], dict):
        limit = Value(*[float(measure["than"])] * 3)
        found = [value_of(row, measure) for row in select(rows, measure["where"])]
        return [] if None in found else [(value, limit) for value in found if value is not None]
    others = select(rows, measure["where"] | measure["than"])
    pairs = []
    for row in select(rows, measure["where"]):
        alike = (other for other in others if all(row[key] == other[key] for key in by))
        both = ((value_of(row, measure), value_of(other, measure)) for other in alike)
        for a, b in both:
            if a is None or b is None:
                return []
            pairs.append((a, b))
    return pairs


# --- verdicts -------------------------------------------------------------------------------------


class Judged(NamedTuple):
    """Words for a number, a verdict, and the rule that it follows from."""

    here: str
    verdict: str
    rule: str = ""


def judged(measure: Mapping[str, Any], folder: Path = EXPERIMENTS) -> Judged:
    """Compare what the results have with what is published. ``near`` asks for a number, up to
    ``within`` (a share of it); ``at_most`` and ``at_least`` for a side; ``less`` and ``more`` for
    the order of every pair of ``pairs_of``. An ``exact`` number needs no interval."""
    rows = results(measure["csv"], folder)
    if "than" in measure:
        return _of_pairs(pairs_of(measure, rows), measure)
    found = measured(measure, rows)
    if found is None:
        return Judged(UNMEASURED, OPEN)
    here = shown(found, percent=measure.get("percent", 0))
    if "near" in measure:
        return Judged(here, *_near(found, measure["near"], measure.get("within", 0.1)))
    side = -1.0 if "at_most" in measure else 1.0
    limit = measure.get("at_most", measure.get("at_least"))
    return Judged(here, *_on_side(found, side, limit))


def _near(found: Value, published: float, within: float) -> tuple[str, str]:
    low, high = found.ends
    close = abs(found.mean / published - 1) <= within
    if low < high and low <= published <= high:
        told = "the interval holds the published number"
        return (AGREES, told) if close else (OPEN, f"{told}, and is too wide to tell")
    if close and low == high:
        told = "" if found.low is not None else "; no interval is stored"
        return AGREES, f"within {100 * within:.0f} %{told}"
    if close:
        return WEAKLY, f"within {100 * within:.0f} %, and the interval does not hold it"
    told = "" if found.low is not None else "; no interval is stored"
    return NOT, f"{abs(found.mean / published - 1):.0%} off{told}".replace("%", " %")


def _on_side(found: Value, side: float, limit: float) -> tuple[str, str]:
    away = sorted(side * (end - limit) for end in found.ends)
    told = "" if found.low is not None else "no interval is stored"
    if away[0] >= 0:
        return AGREES, told or ("the whole interval is on that side" if away[1] > away[0] else "")
    if side * (found.mean - limit) >= 0:
        return WEAKLY, "the interval goes beyond it"
    return (OPEN, "the interval reaches it") if away[1] >= 0 else (NOT, told)


def _of_pairs(pairs: Sequence[tuple[Value, Value]], measure: Mapping[str, Any]) -> Judged:
    if not pairs:
        return Judged(UNMEASURED, OPEN)
    more, exact, percent = "more" in measure, "exact" in measure, measure.get("percent", 0)
    ordered = [(b, a) if more else (a, b) for a, b in pairs]
    held = sum(a.mean < b.mean for a, b in ordered)
    apart = sum(a.ends[1] < b.ends[0] for a, b in ordered)
    against = sum(b.ends[1] < a.ends[0] for a, b in ordered)
    word = "more" if more else "less"
    stored = all(value.low is not None for pair in pairs for value in pair)
    if len(pairs) == 1:
        here = " against ".join(shown(value, percent=percent) for value in pairs[0])
    else:
        here = f"{word} in {held} of {len(pairs)}"
        here += f", by more than both intervals in {apart}" if stored and not exact else ""
    if not stored:
        rule = "no intervals are stored"
        return Judged(here, WEAKLY if held == len(pairs) else NOT if not held else OPEN, rule)
    if apart == len(pairs):
        return Judged(here, AGREES, "exact numbers" if exact else "all intervals are apart")
    if held == len(pairs) or (held > len(pairs) / 2 and not against):
        return Judged(here, WEAKLY, "some intervals cross")
    return Judged(here, NOT if against else OPEN, f"{against} the other way, intervals apart")


def shown(value: Value, *, percent: int = 0) -> str:
    """A number with its interval, to three digits or as many as tell its ends apart; ``percent`` is
    what makes it per cent, or 0."""
    times, unit = (percent, " %") if percent else (1, "")

    def digits(number: float, count: int = 3) -> str:
        number *= times
        if not math.isfinite(number):
            return "diverged"
        return f"{number:.0f}" if abs(number) >= 1000 else f"{round(number, 9) + 0.0:.{count}g}"

    low, high = value.ends
    if low == high or not math.isfinite(value.mean):
        return f"{digits(value.mean)}{unit}"
    for count in range(3, 7):
        told, *ends = (digits(number, count) for number in (value.mean, low, high))
        if ends[0] != ends[1]:
            break
    return f"{told}{unit} ({ends[0]} to {ends[1]})"


def judgement(row: Row, folder: Path = EXPERIMENTS) -> Judged:
    """The verdict on a row: computed where there is a number, else that of its file."""
    if not row.measure:
        return Judged("", row.verdict, row.note)
    found = judged(row.measure, folder)
    if found.here == UNMEASURED and row.until:
        return Judged("", UNDONE, row.until)
    return found._replace(rule="; ".join(text for text in (found.rule, row.note) if text))


# --- the page -------------------------------------------------------------------------------------

INTRODUCTION = """# Every figure, table and theorem

`python tools/every_figure.py` writes this page from the results beside it: no number and no verdict
on a number is typed. What people typed is in `docs/experiments/every-figure`, a file a source: what
an item says, in our words, what its text prints and where, and which command or test answers. Only
the column *published* is copied from a paper, from its text; a number that can only be read off a
figure is not there. To make a result again, run its command and put its CSV file here; tests are
run by `python -m pytest tests lab/tests -k NAME`. Rows are claims, and an item may have several.
Definitions, assumptions, remarks and algorithms are left out.
"""

MEANING = {
    AGREES: "the 95 % interval holds the published number, or lies where it is claimed to lie; "
    "without an interval the rule is said. Of a theorem: a test shows it",
    WEAKLY: "the size or order is there, and intervals cross, or none are stored",
    NOT: "an interval excludes it; where none is stored, the number does, and the rule is said. Of "
    "a theorem: a test has a counterexample, as in the [errata](../errata.md)",
    OPEN: "not measured, or too little to tell",
    UNDONE: "and why",
}


def page(folder: Path = EXPERIMENTS) -> str:
    """Return the text of the page."""
    means = [_line(("verdict", "means")), _line(["---"] * 2), *map(_line, MEANING.items())]
    counts = [_line(("source", *VERDICTS, "in all")), _line(["---"] * (len(VERDICTS) + 2))]
    ran = [_line(("command", "ran, at the settings of these rows")), _line(["---"] * 2)]
    parts = []
    for of in (source(name, folder) for name in SOURCES):
        ran += [_line((f"`{command}`", time)) for command, time in of.took.items()]
        verdicts = [judgement(row, folder) for row in of.rows]
        found = Counter(one.verdict for one in verdicts)
        link = f"[{of.title}](#{re.sub(r'[^a-z0-9]+', '-', of.title.lower()).strip('-')})"
        counts.append(_line((link, *(str(found[v]) for v in VERDICTS), str(len(verdicts)))))
        parts.append(_section(of, verdicts))
    return "\n".join([INTRODUCTION, *means, "", *counts, "", *ran, "", *parts])


def _section(of: Source, verdicts: Sequence[Judged]) -> str:
    numbered = ", ".join(
        f"{count} {kind.lower()}{'' if count == 1 else 's'}" for kind, count in of.numbered.items()
    ).replace("corollarys", "corollaries")
    lines = [f"## {of.title}\n", f"{of.read} Its numbered items: {numbered or 'none'}.\n"]
    lines += [f"{COMPARED}\n", _line(HEAD), _line(["---"] * len(HEAD))]
    drawn: set[str] = set()
    for row, found in zip(of.rows, verdicts, strict=True):
        here = found.here
        if row.picture and row.picture not in drawn:
            drawn.add(row.picture)
            here = f"{here} ![{row.picture.replace('-', ' ')}](../pictures/{row.picture}.svg)"
        by = [f"`{row.command}`"] if row.command else []
        by += [f"`{test}`" for test in row.tests]
        published = f"{row.published} ({row.place})" if row.published else ""
        verdict = f"**{found.verdict}**" if found.verdict in VERDICTS else found.verdict
        verdict += f": {found.rule}" if found.rule else ""
        lines.append(_line((row.item, row.says, published, here.strip(), verdict, ", ".join(by))))
    return "\n".join([*lines, ""])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def main() -> int:
    """Write the page, and say how many rows have which verdict."""
    PAGE.write_text(page(), encoding="utf-8")
    found = Counter(judgement(row).verdict for name in SOURCES for row in source(name).rows)
    print(f"{PAGE.relative_to(EXPERIMENTS.parents[1])}: {dict(found)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
