"""Who sees what: the account of one observer, and a design under every threat model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import noisedesign as nd
from noisedesign.base.checks import InputError
from noisedesign.base.file_kinds import PICTURE
from noisedesign.cli._shared import NewFile, Writing, counter, design_in, json_option, note, show
from noisedesign.files.toml import lookup
from noisedesign.privacy.target import ADJACENCIES, CLIPPINGS, DEFAULT_ADJACENCY, KINDS, LOSSES

if TYPE_CHECKING:
    from noisedesign.base.tables import Record
    from noisedesign.tasks.account.table import Setting

ZIP = b"PK"  # the beginning of a zip archive, which a design file is and no TOML text


@click.command(cls=Writing)
@click.argument("file")
@click.option(
    "--node",
    "nodes",
    multiple=True,
    metavar="NAME",
    help="Design: who looks [the node with most neighbours].",
)
@click.option("--victim", "victims", multiple=True, metavar="NAME", help="About whom; repeatable.")
@click.option("--steps", type=int, metavar="T", help="Space design: steps a record takes part in.")
@click.option("--delta", type=float, help="Design: delta of epsilon [that of its target, or 1e-6].")
@click.option(
    "--adjacency",
    type=click.Choice(ADJACENCIES),
    help="Design: what one record does [that of its target, or replace].",
)
@click.option(
    "--responses", type=click.Choice(KINDS), help="Design: how gradients answer to models [any]."
)
@click.option("--smoothness", type=float, help="Design: learning rate times Lipschitz constant.")
@click.option("--convexity", type=float, help="Design: learning rate times strong convexity.")
@click.option("--losses", type=click.Choice(LOSSES), help="Design: convex losses [general].")
@click.option("--clipping", type=click.Choice(CLIPPINGS), help="Design: of gradients [record].")
@click.option("-o", "--output", type=NewFile(PICTURE), help="Account file: picture to write.")
@json_option
def account(
    file: str,
    nodes: tuple[str, ...],
    victims: tuple[str, ...],
    output: str | None,
    as_json: bool,
    **asked: Any,
) -> None:
    """Account for what an observer learns. FILE is an account (TOML) or a DESIGN.npz.

    An account file states algorithm, observer and participation; there is a row for every victim.
    Of a design there is a row for every threat model, about the node it protects worst. --victim
    asks about one node, or again about several, and no other."""
    path = lookup(file)
    if len(nodes) > 1:
        expected = "one node of a design: nodes that look together are [observer] nodes of an "
        remedy = f"Say nodes = {json.dumps(nodes, ensure_ascii=False)} there."
        raise InputError(
            "--node", expected=f"{expected}account file", got=" and ".join(nodes), remedy=remedy
        )
    node = nodes[0] if nodes else None
    if _is_design(path):
        _refuse({"output": output}, "an account file", "a design")
        _design(path, node, victims, as_json, **asked)
    else:
        _refuse({"node": node, **asked}, "a design", "an account file")
        _account_file(path, victims, output=output, as_json=as_json)


def _is_design(path: Path) -> bool:
    if path.suffix == ".npz":
        return True
    if not path.is_file():  # a pipe, of which nothing can be read twice
        return False
    try:
        with path.open("rb") as file:
            return file.read(len(ZIP)) == ZIP
    except OSError:
        return False  # whoever reads it says why it cannot be read


def _refuse(options: Mapping[str, object], of: str, given: str) -> None:
    for name, value in options.items():
        if value is not None:
            raise click.UsageError(f"--{name} is an option for {of}, not for {given}")


def _account_file(
    path: Path, victims: tuple[str, ...], *, output: str | None, as_json: bool
) -> None:
    from noisedesign.tasks import report
    from noisedesign.tasks.account.request import load_account
    from noisedesign.tasks.account.table import observer_words

    request = load_account(path)
    if victims:
        nodes = request.algorithm.nodes
        rows = _rows(victims, nodes)
        _require_others(rows, request.observer.coalition, nodes)
        request = replace(request, victims=rows)
    exposures = request.run(counter("accounting", "nodes"))
    if output is not None:
        from noisedesign.files.picture_file import write_figure
        from noisedesign.pages.plot import account_figure

        write_figure(account_figure(exposures, title=request.name), output)
    records = [report.exposure_record(exposure) for exposure in exposures]
    if output is not None and not as_json:
        note(f"picture: {output}")
    who = observer_words(request.observer, request.algorithm.nodes)
    _show(records, request, as_json, title=request.name, who=who)


def _rows(victims: tuple[str, ...], names: Sequence[str]) -> tuple[int, ...]:
    """The rows of --victim."""
    from noisedesign.base.nodes import row_of

    return tuple(sorted({row_of(name, names, field="victim") for name in victims}))


def _require_others(victims: Sequence[int], looks: Sequence[int], names: Sequence[str]) -> None:
    if watching := [names[row] for row in victims if row in looks]:
        remedy = "A node that looks knows its own gradients."
        expected, got = "nodes other than the observer", f"{watching[0]}, who looks"
        raise InputError("victim", expected=expected, got=got, remedy=remedy)


def _design(
    path: Path, node: str | None, victims: tuple[str, ...], as_json: bool, **options: Any
) -> None:
    from noisedesign.base.nodes import row_of
    from noisedesign.design.design import design_of
    from noisedesign.privacy.runs import Responses
    from noisedesign.tasks import report
    from noisedesign.tasks.account.table import busiest_node, every_model, setting_of

    keys = ("smoothness", "convexity", "losses", "clipping")
    declared = {key: options.pop(key) for key in keys}
    responses = Responses(kind=options.pop("responses") or "any", **declared)
    setting = setting_of(design_of(design_in(path)), responses=responses, **options)
    for field, given in (("node", node), ("victim", victims[0] if victims else None)):
        if given is not None and not setting.graph:
            raise InputError(field, expected="none for a design without a graph", got=repr(given))
    nodes, mixing = setting.algorithm.nodes, setting.algorithm.mixing
    about = _rows(victims, nodes)
    looks = row_of(node, nodes, field="node") if node else busiest_node(mixing, but=about)
    _require_others(about, (looks,), nodes)
    rows = every_model(
        setting, node=looks, victims=about, progress=counter("accounting", "threat models")
    )
    if not setting.graph:
        who = "the design has no graph, so no observer is anybody's neighbour"
    elif len(nodes) == 1:
        who = "the graph has one node, which nobody else can look at"
    else:
        most = "" if node else f" (most neighbours{', of the others' if victims else ''})"
        who = f"the observer is {nodes[looks]}{most}"
    records = [report.model_record(row) for row in rows]
    _show(records, setting, as_json, title=setting.algorithm.name, who=who)


def _show(records: list[Record], asked: Setting, as_json: bool, *, title: str, who: str) -> None:
    """The rows, and in words who looks and what mu and epsilon are for."""
    from noisedesign.tasks.report import scale_words, theorem_notes

    columns = dict.fromkeys(name for record in records for name in record)
    show(records, as_json=as_json, columns=list(columns), title=title, notes=["note"])
    if not as_json:
        note(f"{who}; {asked.algorithm.name}, {scale_words(asked)}")
        for words in theorem_notes(records):
            note(words)


@click.command()
@click.argument("data", required=False)
@click.option(
    "--loss",
    type=click.Choice(["least-squares", "logistic"]),
    required=True,
    help="Of a linear model.",
)
@click.option("--feature-bound", type=float, metavar="B", help="Largest norm of a record.")
@click.option("--public", is_flag=True, help="DATA are public.")
@click.option("--epsilon", type=float, help="DATA are private: budget of an estimate.")
@click.option("--delta", type=float, default=1e-6, show_default=True)
@click.option(
    "--adjacency", type=click.Choice(ADJACENCIES), default=DEFAULT_ADJACENCY, show_default=True
)
@click.option("--ledger", metavar="FILE", help="Ledger that the estimate is booked in.")
@json_option
def curvature(
    data: str | None,
    loss: str,
    feature_bound: float | None,
    public: bool,
    ledger: str | None,
    as_json: bool,
    **budget: Any,
) -> None:
    """Find a range of curvatures of a loss, for [error].

    DATA is a .npy or .csv file of features, a row a record. Data that are not public take an
    --epsilon, which is spent; without DATA the range is that of --feature-bound."""
    private = budget["epsilon"] is not None
    if ledger is not None and not private:
        raise click.UsageError("--ledger is for estimates from private data, of an --epsilon")
    if private and data is None:
        raise click.UsageError("--epsilon is for an estimate from DATA")
    found = nd.curvature_range(
        None if data is None else _features(Path(data)),
        loss=loss,
        feature_bound=feature_bound,
        public=public,
        privacy=nd.PrivacyTarget(**budget) if private else None,
    )
    if ledger is not None:  # before anything is told
        nd.privacy.Ledger(ledger).add(found, name="curvature")
    elif private:
        note("this estimate is in no ledger: count its epsilon beside that of training")
    values: Any = found.values.tolist()
    if not as_json:
        values = f"[{', '.join(f'{value:.6g}' for value in values)}]"
    record = {"curvature": values, "origin": found.origin, "noise": found.noise}
    show(record, as_json=as_json)


def _features(path: Path) -> Any:
    from noisedesign.files.graph_tables import load_npy, read_numbers

    return (load_npy if path.suffix == ".npy" else read_numbers)(path, field="data")
