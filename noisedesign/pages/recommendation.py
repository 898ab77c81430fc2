"""One page about a recommendation: what was tried, ranked, in a picture, and what would change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from noisedesign.base.version import version
from noisedesign.files.picture_file import plain
from noisedesign.files.picture_looks import LOOKS
from noisedesign.pages.content import Code, Facts, Page, Part, Pictures, Section, Table, Text

WORDS = {  # of kinds of noise, by the mechanism whose colour they have, in the order of the legend
    "independent": ("ldp", "independent"),
    "time": ("mafalda", "over time"),
    "unbounded": ("bsr", "over time, without a horizon"),
    "space": ("whisper", "between nodes"),
    "kronecker": ("kronecker", "between nodes and over time"),
    "modal": ("modal", "between nodes and over time, by modes"),
    "full": ("full", "between nodes and over time, dense"),
}
COLOURS = {name: (LOOKS[look][0], words) for name, (look, words) in WORDS.items()}
HATCH = "////"  # of noise for random batches
INCHES = 0.44  # of a bar and the name above it
COLUMNS = (
    *("noise", "relative", "error", "epsilon", "vectors kept", "bytes kept"),
    *("seconds a step", "gap", "status"),
)
WHO = ("noise", "needs", "does not hold before", "epsilon if batches are known")


@runtime_checkable
class Ranked(Protocol):
    """A recommendation, as far as a page has it."""

    records: list[dict[str, Any]]
    sentences: list[str]
    values: dict[str, Any]
    code: str
    situation: Any


def page_of_recommendation(found: Ranked) -> Page:
    """The page of a recommendation."""
    made, records = Pictures(), found.records
    first, run = records[0], found.situation
    caption = (
        "Error over the whole run at the same epsilon, over that of independent noise with batches "
        "in a fixed order. Hatched bars are of batches that are drawn at random and kept secret."
    )
    picture = made.add(
        "Error of every kind of noise",
        caption,
        draw_errors,
        records,
        height=1.2 + INCHES * len(records),
    )
    table = _table("All kinds of noise, the least error first", COLUMNS, records)
    who = _table("Who shares what, and before whom an epsilon does not hold", WHO, records)
    values = found.values
    ranking: list[Part] = [picture, table, who]
    solved: list[Part] = []
    if rows := [[c["change"], _rounded(c["error"]), c["by"]] for c in values["changes"]]:
        columns = ["change", "error over that of the first", "by"]
        solved.append(Table("Other situations, each solved and certified", columns, rows))
    for parts, key, what, caption in (
        (ranking, "skipped", "noise", "Kinds of noise that were not solved"),
        (solved, "changes not solved", "change", "Changes that were not solved"),
    ):
        if values[key]:
            parts.append(
                Table(caption, [what, "why"], [list(pair) for pair in values[key].items()])
            )
    changes = [Section("changes", "What would change it", solved)] if solved else []
    notes: list[Part] = [Text(sentence) for sentence in found.sentences]
    facts: dict[str, Any] = ({"graph": run.source} if run.source else {}) | {
        "take": first["noise"],
        "error, over independent noise": _rounded(first["relative"]),
        "epsilon, delta": f"{run.target.epsilon:g}, {run.target.delta:g}",
        "adjacency, clip": f"{run.target.adjacency}, {run.target.clip:g}",
        "needs": first["needs"],
        "nodes": len(run.mixing),
        "records of a node, batch size, epochs": f"{run.records}, {run.batch_size}, {run.epochs}",
        "steps": run.fixed.horizon,
    }
    incomplete = values["incomplete"]
    told = f"{incomplete.capitalize()}. " if incomplete else ""
    return Page(
        title=f"Recommended: {first['noise']}{' (incomplete)' if incomplete else ''}",
        summary="Every kind of noise that fits a graph, records and an epsilon, ranked by error.",
        verdict=f"{told}{len(records)} kinds of noise were solved, and certified or accounted, at "
        "the same epsilon while this page was made. Nothing on it is estimated.",
        unchecked="",
        holds=True,
        facts=Facts(facts),
        sections=[
            Section("ranking", "Ranking", ranking),
            Section("notes", "What the numbers are, and what does not hold", notes),
            *changes,
            Section(
                "code",
                "Take it",
                [Code("From Python:" if run.made else "From Python, with the graph:", found.code)],
            ),
        ],
        made_by=f"Written by noisedesign {version()}.",
    )


def _table(caption: str, columns: Sequence[str], records: Sequence[dict[str, Any]]) -> Table:
    """The columns of records that hold something."""
    shown = [column for column in columns if any(r[column] is not None for r in records)]
    return Table(caption, shown, [[_rounded(r[column]) for column in shown] for r in records])


def draw_errors(axes: Any, records: Sequence[dict[str, Any]]) -> None:
    """A bar for every kind of noise below its name, the least error on top."""
    from matplotlib.patches import Patch

    for place, record in enumerate(records):
        colour, _ = COLOURS[record["mechanism"]]
        look: dict[str, Any] = {"facecolor": colour, "edgecolor": "white", "linewidth": 0}
        if record["epsilon if batches are known"] is not None:
            look["hatch"] = HATCH
        axes.barh(place, record["relative"], height=0.4, **look)
        value = f" {record['relative']:.3g}"
        axes.text(record["relative"], place, value, va="center", fontsize=8.5)
        name = plain(record["noise"], longest=72)
        axes.text(0, place - 0.25, name, va="bottom", fontsize=8.5)
    axes.set_yticks([])
    axes.set(ylim=(len(records) - 0.6, -0.75), xlim=(0, 1.15 * max(r["relative"] for r in records)))
    axes.set_xlabel("error over that of independent noise in a fixed order")
    mechanisms = {record["mechanism"] for record in records}
    labels = {COLOURS[name][1]: COLOURS[name][0] for name in COLOURS if name in mechanisms}
    handles = [Patch(color=colour, label=label) for label, colour in labels.items()]
    axes.figure.legend(handles=handles, loc="outside lower center", ncols=2)


def _rounded(value: Any) -> Any:
    """A number with as many digits as people read."""
    return float(f"{value:.4g}") if isinstance(value, float) else value
