"""The commands that the laboratory adds to ``noisedesign``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from noisedesign.cli._shared import (
    NewFile,
    Writing,
    counter,
    folder_option,
    json_option,
    note,
    show,
    show_files,
    where_options,
)


@click.command(cls=Writing)
@click.argument("name")
@folder_option
@click.option("--format", "to", default="svg", show_default=True, help="svg, pdf or png.")
@click.option("--quick", is_flag=True, help="Small graphs and short horizons, in seconds.")
@json_option
def figure(name: str, output: str, as_json: bool, **how: Any) -> None:
    """Compute figure NAME: a picture and its numbers (CSV).

    \b
    pndp-by-distance        Mafalda-SGD, Figure 2, before one node
    gossip-single-view      Koskela and Kulkarni, Figure 1
    gossip-spectral         Koskela and Kulkarni, Figure 2
    algorithms-by-observer  every algorithm before every observer, at equal error"""
    from noisedesign_lab.papers.figures import make

    show_files(make(name, output, announce=note, **how), as_json=as_json, figure=name)


@click.command(cls=Writing)
@click.argument("name")
@folder_option
@click.option("--quick", is_flag=True, help="Fewer seeds and steps: at most some minutes.")
@where_options
@click.option("--format", "to", default="svg", show_default=True, help="png, pdf or svg.")
@json_option
def reproduce(name: str, output: str, as_json: bool, **how: Any) -> None:
    """Run experiments NAME of a paper; what came out, in words.

    NAME is one of those below, or a file of settings. The folder gets rows.csv, whose finished
    units are not run again, summary.csv, pictures, and README.md, which says what they tell.

    \b
    gossip         Koskela and Kulkarni: one node's view, and excess risk
    mafalda        Mafalda-SGD: house prices, noise over time, and over nodes
    whisper        Whisper D-SGD: quadratic objectives, and incomes (a9a)
    zip-dl         Zip-DL: ratings of films, membership attacks, dropout
    ours           designs across nodes, over time and both, before every observer
    balls-in-bins  batches drawn at random: noise at equal privacy, and loss
    loss           the loss of the last models, steps tuned for every mechanism"""
    from noisedesign_lab.papers.reproduce.run import reproduce as run

    files = run(name, output, progress=counter(f"reproducing {name}", "units"), **how)
    show_files(files, as_json=as_json, experiment=name)


@click.command(cls=Writing)
@click.argument("task")
@click.option("-o", "--output", type=NewFile(), help="Table of all rows: .csv or .parquet.")
@where_options
@click.option("--seeds", type=int, metavar="N", help="Seeds 0 to N - 1, instead of the file's.")
@click.option("--retry", is_flag=True, help="Run those that diverged again.")
@click.option("--picture", type=NewFile(), help="Loss against epsilon: .svg, .pdf or .png.")
@json_option
def train(task: str, picture: str | None, as_json: bool, **how: Any) -> None:
    """Train under every mechanism and budget of TASK.toml.

    Rows that the table has are kept."""
    from noisedesign.files.picture_file import picture_format
    from noisedesign_lab.tasks.picture import loss_picture
    from noisedesign_lab.tasks.table import train as run

    if picture is not None:
        picture_format(picture, field="picture")
    found = run(task, progress=counter("training", "rows"), **how)
    records = [asdict(one) for one in found]
    if as_json:
        counted = {"rows": len(found.rows), "skipped": found.skipped, "diverged": found.diverged}
        output = None if found.output is None else str(found.output)
        show({"output": output, **counted, "results": records}, as_json=True)
    else:
        show(records, as_json=False, keep=["mechanism", "epsilon", "train_loss"])
    if picture is not None:
        note(f"wrote {loss_picture(found, picture)}")
    if found.skipped:
        note(f"{found.skipped} of {len(found.rows)} rows were in {found.output} already")
    if found.diverged:
        note(f"{found.diverged} runs diverged, of which there are no losses")
