"""The command that people begin with: which noise is best for a graph, records and an epsilon."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

import noisedesign as nd
from noisedesign.base.checks import InputError
from noisedesign.base.file_kinds import DESIGN
from noisedesign.cli._shared import (
    NewFile,
    Writing,
    json_option,
    note,
    output_option,
    show,
    transient,
)

COLUMNS = ("noise", "relative", "needs", "vectors kept", "gap", "status")


@click.command(cls=Writing)
@click.argument("graph")
@click.option("--records", type=int, required=True, help="Records of a node.")
@click.option("--batch-size", type=int, required=True, help="Records of a step of a node.")
@click.option("--epochs", type=int, required=True, help="How often a record takes part.")
@click.option("--epsilon", type=float, required=True, help="Of the whole run.")
@click.option("--delta", type=float, default=1e-6, show_default=True)
@click.option("--clip", type=float, default=1.0, show_default=True, help="Of one gradient's norm.")
@click.option("--adjacency", default="replace", show_default=True, help="Or zero-out, add-remove.")
@click.option("--trust", default="nobody", show_default=True, help="neighbours, or a party.")
@click.option("--fixed-batches", is_flag=True, help="Batches cannot be drawn at random.")
@click.option("--weights", help="Of W [Metropolis-Hastings, and beside them those of least noise].")
@click.option("--curvature", metavar="A,B", help="Of the loss: ranks by that of the last models.")
@click.option("--learning-rate", type=float, help="Of steps along means over a batch.")
@click.option("--dimension", type=int, help="Parameters of the model.")
@click.option("--memory", type=float, metavar="BYTES", help="For noise, of a node.")
@click.option("--time-limit", type=float, metavar="S", default=120.0, show_default=True)
@output_option(NewFile(DESIGN), "Design file of the first, .npz.")
@json_option
def recommend(
    graph: str, output: str | None, as_json: bool, fixed_batches: bool, **how: Any
) -> None:
    """The best noise for a graph, records and an epsilon.

    GRAPH is a file of edges, a problem file, whose [graph] counts, or a graph of its own, such as
    florentine. All kinds of noise that fit
    are solved and certified at the same epsilon, and ranked by their error over the whole run."""
    from noisedesign.surveys.recommend import TRUST

    meant = [name for name in TRUST if how["trust"] and how["trust"] in name]
    if len(meant) != 1:
        expected = " or ".join(repr(name) for name in TRUST)
        raise InputError("trust", expected=expected, got=repr(how["trust"]))
    how["trust"] = meant[0]
    if how["curvature"] is not None:
        how["curvature"] = _numbers(how["curvature"])
    watched = sys.stderr.isatty()
    progress = (lambda name: transient(f"solving: {name}")) if watched else None
    how |= {"random_batches": not fixed_batches, "progress": progress}
    found = nd.recommend(_graph(graph), **how)
    if watched:
        transient("")
    record = found.to_json()
    if output is not None:
        nd.save_design(found.design, output)
        record["output"] = output
    if as_json:
        show(record, as_json=True)
        return
    show(record["candidates"], as_json=False, columns=COLUMNS)
    for line in found.told():
        note(line)
    click.echo(f"\n{found.code}", nl=False)


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        expected = "numbers separated by commas"
        raise InputError("curvature", expected=expected, got=repr(text)) from None


def _graph(name: str) -> Any:
    """The graph of a file of edges or of a problem file, or by its own name; or W, if given."""
    import networkx as nx
    import numpy as np

    from noisedesign.files.toml import parsed
    from noisedesign.system.graph import read_edges

    if Path(name).suffix == ".toml" or ("/" in name and not Path(name).is_file()):
        loaded = nd.load_problem(name)
        mixing = getattr(loaded.problem, "mixing", None)
        if mixing is None:
            raise InputError("graph", expected="a problem file with [graph]", got=name)
        if parsed(loaded.text, field="problem")["graph"]["kind"] == "matrix":
            return mixing
        links = nx.from_numpy_array(np.asarray(mixing) > 0)
        links.remove_edges_from(list(nx.selfloop_edges(links)))
        return nx.relabel_nodes(links, dict(enumerate(loaded.problem.nodes)))
    return read_edges(name) if Path(name).is_file() else nd.build_graph(name)
