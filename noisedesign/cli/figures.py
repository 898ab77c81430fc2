"""Published figures and our own, from one command each."""

from __future__ import annotations

import click

from noisedesign.cli._shared import Writing, json_option, note


@click.command(cls=Writing)
@click.argument("name")
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False),
    default="out",
    show_default=True,
    help="Folder to write into.",
)
@click.option("--format", "to", default="png", show_default=True, help="png, pdf or svg.")
@click.option("--quick", is_flag=True, help="Small graphs and short horizons, in seconds.")
@json_option
def figure(name: str, output: str, to: str, quick: bool, as_json: bool) -> None:
    """Compute figure NAME: a picture and its numbers (CSV).

    \b
    pndp-by-distance        Mafalda-SGD, Figure 2
    gossip-single-view      Koskela and Kulkarni, Figure 1
    gossip-spectral         Koskela and Kulkarni, Figure 2
    algorithms-by-observer  every algorithm before every observer, at equal error
    """
    from noisedesign.tasks import report
    from noisedesign.tasks.papers.figures import make

    paths = make(name, output, quick=quick, to=to, announce=note)
    if as_json:
        click.echo(report.to_json({"figure": name, "files": [str(path) for path in paths]}))
    else:
        for path in paths:
            click.echo(path)
