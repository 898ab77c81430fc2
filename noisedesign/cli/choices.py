"""The commands of a choice: every kind of noise that fits, ranked, and designs side by side."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

import noisedesign as nd
from noisedesign.base.checks import InputError
from noisedesign.base.file_kinds import DESIGN, PAGE
from noisedesign.cli._shared import (
    NewFile,
    Writing,
    design_in,
    json_option,
    note,
    output_option,
    problem_in,
    say,
    show,
    transient,
)

NOTES = ("needs", "exposed to")
RECOMMENDED = ("noise", "relative", "epsilon", "keeps", "s a step", "gap", *NOTES)
DIGITS = {"relative": 4, "epsilon": 4, "gap": 2}  # that people read
SHORT = ("nobody", "neighbours", "party")  # what --trust takes beside the whole words


@click.command(cls=Writing)
@click.argument("graph")
@click.option("--records", type=int, required=True, help="Records of a node.")
@click.option("--batch-size", type=int, required=True, help="Records of a step of a node.")
@click.option("--epochs", type=int, required=True, help="How often a record takes part.")
@click.option("--epsilon", type=float, required=True, help="Of the whole run.")
@click.option("--delta", type=float, default=1e-6, show_default=True)
@click.option("--clip", type=float, default=1.0, show_default=True, help="Of one gradient's norm.")
@click.option("--adjacency", default="replace", show_default=True, help="Or zero-out, add-remove.")
@click.option("--trust", default="nobody", show_default=True, help="Or neighbours, or party.")
@click.option("--fixed-batches", is_flag=True, help="Batches cannot be drawn at random.")
@click.option("--weights", help="Of W [metropolis-hastings, and those of least noise beside them].")
@click.option("--weight/--no-weight", default=None, help="Whether W takes weights of the edges.")
@click.option("--curvature", metavar="A,B", help="Of the loss: ranks by that of the last models.")
@click.option("--learning-rate", type=float, help="Of steps along means over a batch.")
@click.option("--dimension", type=int, help="Parameters of the model.")
@click.option("--memory", type=float, metavar="BYTES", help="For noise, of a node.")
@click.option("--time-limit", type=float, metavar="S", default=120.0, show_default=True)
@output_option(NewFile(DESIGN), "Design file of the first, .npz.")
@click.option("--report", type=NewFile(PAGE), help="Page (HTML) of all of it.")
@json_option
def recommend(
    graph: str,
    output: str | None,
    report: str | None,
    as_json: bool,
    fixed_batches: bool,
    **how: Any,
) -> None:
    """The best noise for a graph, records and an epsilon.

    GRAPH is a file of edges, a problem file, whose [graph] counts, or a graph that has a name, such
    as florentine. All kinds of noise that fit are solved and certified at the same epsilon, and
    ranked by their error over the whole run. Ctrl-C ends it with what was solved."""
    from noisedesign.base.monitor import Stop
    from noisedesign.surveys.situation import TRUST
    from noisedesign.system.rules import UNSAID

    meant = [name for name in TRUST if how["trust"] and how["trust"] in name]
    if len(meant) != 1:
        both = zip(SHORT, TRUST, strict=True)
        expected = " or ".join(s if s == name else f"{s} ({name!r})" for s, name in both)
        raise InputError("trust", expected=expected, got=repr(how["trust"]))
    how["trust"] = meant[0]
    if how["curvature"] is not None:
        how["curvature"] = _numbers(how["curvature"])
    watched = sys.stderr.isatty()
    progress = (lambda name: transient(f"solving: {name}")) if watched else None
    how |= {"random_batches": not fixed_batches, "progress": progress}
    how["weight"] = {None: UNSAID, True: "weight", False: None}[how["weight"]]
    made, lines = _graph(graph)
    found = nd.recommend(made, **how)
    situation = replace(found.situation, source=graph, made=lines)
    found = replace(found, situation=situation)
    if watched:
        transient("")
    record = found.values
    if output is not None:
        nd.save(found.design, output)
        record["output"] = output
    if report is not None:
        nd.report(found, path=report)
        record["report"] = report
    if as_json:
        show(record, as_json=True)
        return
    if found.incomplete:
        say(found.sentences[0])
    early = any(one.status in (Stop.TIME_LIMIT, Stop.INTERRUPTED) for one in found.candidates)
    columns = [*RECOMMENDED, "status"] if early else RECOMMENDED
    show(_short(record["candidates"]), as_json=False, columns=columns, notes=NOTES, keep=["noise"])
    for line in found.sentences[bool(found.incomplete) :]:
        note(line)
    click.echo(f"\n{found.code}", nl=False)


@click.command()
@click.argument("designs", metavar="DESIGN.npz...", nargs=-1, required=True)
@click.option(
    "--error",
    "keys",
    multiple=True,
    metavar="KEY=VALUE",
    help="A key of [error], such as of=last-iterate; may be repeated. A list has commas.",
)
@json_option
def evaluate(designs: tuple[str, ...], keys: tuple[str, ...], as_json: bool) -> None:
    """Errors of designs by one measure, at their privacy targets.

    By default that which each was designed for, if it counts the whole run, else that of all models
    after every step. Designs in space, in time and in both compare, over as many steps as each
    is for; of noise without a horizon --error horizon=T says how many."""
    measure = dict(_key_and_value(text) for text in keys)
    records = []
    for path in designs:
        design = design_in(path).design
        found = nd.evaluate(design, error=measure or None)
        target = design.problem.privacy
        records.append(
            {
                "file": path,
                "design": design.problem.axes,
                "error of": found.of,
                "steps": found.horizon,
                "epsilon": None if target is None else target.epsilon,
                "delta": None if target is None else target.delta,
                "error": found.error,
                "independent noise": found.independent,
                "relative": found.relative,
            }
        )
    show(records, as_json=as_json, keep=["file", "error", "relative"])


def _key_and_value(text: str) -> tuple[str, Any]:
    """A key and its value, a number, a list of numbers or a word."""
    key, equals, value = text.partition("=")
    if not equals:
        raise InputError("error", expected="KEY=VALUE", got=repr(text))
    try:
        numbers = [float(part) for part in value.split(",")]
    except ValueError:
        if "," in value:
            expected = "numbers separated by commas"
            raise InputError(f"error.{key}", expected=expected, got=repr(value)) from None
        return key, value
    if len(numbers) > 1:
        return key, numbers
    return key, int(numbers[0]) if value.isdecimal() else numbers[0]


def _short(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Records with as many digits, and in as short words, as people read."""
    return [
        record
        | {key: _rounded(record[key], digits) for key, digits in DIGITS.items()}
        | {
            "exposed to": record["does not hold before"],
            "keeps": _kept(record),
            "s a step": _rounded(record["seconds a step"], 2),
        }
        for record in records
    ]


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else float(f"{value:.{digits}g}")


def _kept(record: dict[str, Any]) -> str:
    """The memory of a node: megabytes where the model's dimension is known."""
    if (size := record["bytes kept"]) is not None:
        return f"{size / 1e6:.3g} MB"
    count = record["vectors kept"]
    return f"{count} vector{'' if count == 1 else 's'}"


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        expected = "numbers separated by commas"
        raise InputError("curvature", expected=expected, got=repr(text)) from None


def _graph(name: str) -> tuple[Any, str]:
    """The graph of a file of edges or of a problem file, or by its own name; or W, if given; and
    lines of Python that make it."""
    from noisedesign.files.toml import parsed, renamed
    from noisedesign.surveys.situation import links_of
    from noisedesign.system.graph import read_edges

    said = json.dumps(name, ensure_ascii=False)
    if Path(name).suffix == ".toml" or ("/" in name and not Path(name).is_file()):
        loaded = problem_in(name)
        if getattr(loaded.problem, "mixing", None) is None:
            raise InputError("graph", expected="a problem file with [graph]", got=name)
        table = parsed(loaded.text, field="problem")["graph"]
        if table["kind"] == "matrix" or table.get("weight"):
            return loaded.problem.mixing, f"graph = nd.load({said}).problem.mixing"
        line = "from noisedesign.surveys.situation import links_of"
        return links_of(loaded.problem), f"{line}\ngraph = links_of(nd.load({said}).problem)"
    with renamed({"graph.file": "graph", "graph.kind": "graph"}):
        if "." in name or Path(name).is_file():
            line = "from noisedesign.system.graph import read_edges"
            return read_edges(name), f"{line}\ngraph = read_edges({said})  # nodes sorted"
        return nd.build_graph(name), f"graph = nd.build_graph({said})"
