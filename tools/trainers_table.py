"""``python tools/trainers_table.py FOLDER``: the table of trainers of ``docs/guides/trainers.md``.

FOLDER has the rows that tests of trainers wrote (``tests/support/trainer_rows.py``). They replace
those of the same trainers in ``docs/guides/trainers-rows.json``, of which the table is made; a
trainer that this run did not reach keeps its row, and is named.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

GUIDES = Path(__file__).resolve().parents[1] / "docs" / "guides"
BEGINS, ENDS = "<!-- the table of trainers begins -->", "<!-- the table of trainers ends -->"
HEAD = ("trainer", "versions tested", "what works", "what is refused", "cost of a step")

Rows = dict[str, dict[str, Any]]


def read_rows(guides: Path = GUIDES) -> Rows:
    """The rows that are stored, by trainer."""
    text = (guides / "trainers-rows.json").read_text(encoding="utf-8")
    return {row["trainer"]: row for row in json.loads(text)}


def table(rows: Rows) -> str:
    """The table, in Markdown, a line for every trainer in alphabetical order."""
    lines = [_line(HEAD), _line(["---"] * len(HEAD))]
    for name in sorted(rows, key=str.lower):
        row = rows[name]
        versions = _versions(row["versions"], row["python"])
        cells = (name, versions, "; ".join(row["works"]), "; ".join(row["refuses"]), row["cost"])
        lines.append(_line([cell.replace("|", "\\|") for cell in cells]))
    return "\n".join(lines)


def page(text: str, rows: Rows) -> str:
    """The text of the guide with the table of ``rows`` between its two marks."""
    before, begins, rest = text.partition(BEGINS)
    _, ends, after = rest.partition(ENDS)
    if not (begins and ends):
        raise SystemExit(f"trainers.md: expected {BEGINS} and {ENDS}")
    return f"{before}{begins}\n\n{table(rows)}\n\n{ends}{after}"


def write(rows: Rows, guides: Path = GUIDES) -> None:
    """Store the rows, and the table of them in the guide."""
    ordered = [rows[name] for name in sorted(rows, key=str.lower)]
    text = json.dumps(ordered, indent=1, ensure_ascii=False) + "\n"
    guide = guides / "trainers.md"
    made = page(guide.read_text(encoding="utf-8"), rows)
    (guides / "trainers-rows.json").write_text(text, encoding="utf-8")
    guide.write_text(made, encoding="utf-8")


def _versions(versions: Mapping[str, str], python: str) -> str:
    """Return the versions in words; "by its interface" where no package was run."""
    if not versions:
        return "by its interface, not run"
    named = [f"{name} {version}" for name, version in versions.items()]
    return ", ".join([*named, f"Python {python}"])


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def main(folder: str) -> int:
    found = [json.loads(path.read_text(encoding="utf-8")) for path in Path(folder).glob("*.json")]
    new = {row["trainer"]: row for row in found}
    if not new:
        print(f"no rows in {folder}: run the tests of trainers first", file=sys.stderr)
        return 1
    rows = read_rows() | new
    write(rows)
    print(f"{len(new)} trainers tested, {len(rows)} in the table")
    if left := sorted(rows.keys() - new.keys()):
        print(f"not reached by this run, as they were: {', '.join(left)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
